"""Files that differ in how they store one variable: joined virtually they read as joined by xarray, or are refused.

There is no third outcome. ``VIRTUALSTACK_TESTS=all`` runs every pair of differences, and many more random recipes.
"""

import itertools
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import ALL
from tests.data.make_mixed import CODECS, NETCDF, Recipe, write
from virtualstack.errors import CombineError, VirtualStackError, WriterError
from virtualstack.manifests import ManifestArray

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "join-files-that-differ.md"

pytestmark = pytest.mark.filterwarnings("ignore")  # xarray's, about odd attributes

PACKED = {"dtype": "i2", "scale": np.float32(0.01), "offset": np.float32(10), "fill": -99}
DAYS, HOURS = "days since 2000-01-01", "hours since 1999-01-01"
BOUNDS = {"bounds": True}
JOINS, REFUSED = "joins", "refused"


@dataclass(frozen=True, slots=True)
class Difference:
    """What two files differ in, in words and as changes of their recipes, and what joining them does."""

    words: str
    left: dict
    right: dict
    plain: str = JOINS
    unpacked: str = JOINS

    @property
    def changed(self):
        return self.left.keys() | self.right.keys()


DIFFERENCES = [
    Difference("number of records, 365 and 366", {"n": 365}, {"n": 366}),
    Difference("number of records, 31 and 28", {"n": 31}, {"n": 28}),
    Difference("no records in the first file", {"n": 0}, {"n": 5}),
    Difference("no records in the second file", {"n": 5}, {"n": 0}),
    Difference("chunk shape", {"chunks": (4, 2, 6)}, {"chunks": (1, 4, 5)}),
    Difference("chunks longer than the file", {"chunks": (64, 4, 6)}, {}),
    Difference("chunk shape that the library chose", {}, {"chunks": None}),
    Difference("contiguous values beside chunks", {}, {"chunks": "contiguous"}),
    Difference("values in the header (compact) beside chunks", {}, {"writer": "compact"}),
    Difference("not compressed, and zlib", {}, {"codec": "zlib1"}),
    Difference("zlib 1 and zlib 9", {"codec": "zlib1"}, {"codec": "zlib9"}),
    Difference("zlib and zstd", {"codec": "zlib1"}, {"codec": "zstd"}),
    Difference("shuffle", {}, {"shuffle": True}),
    Difference("checksums (fletcher32)", {}, {"fletcher32": True}),
    Difference("byte order", {}, {"endian": "big"}),
    Difference("netCDF-4 and netCDF-3", {}, {"writer": "netcdf3"}),
    Difference("netCDF-4 and its classic model", {}, {"writer": "netcdf4_classic"}),
    Difference("netCDF-3 with 64-bit offsets, and CDF-5", {"writer": "netcdf3_64bit"}, {"writer": "cdf5"}),
    Difference("netCDF-3 by another library", {"writer": "netcdf3"}, {"writer": "scipy"}),
    Difference("order of dimensions", {}, {"dims": ("y", "time", "x")}),
    Difference("some records never written", {}, {"written": 2}),
    Difference("no chunk written at all", {"written": 0}, {}),
    Difference("no chunk written, in neither file", {"written": 0}, {"written": 0}),
    Difference("attributes that change no values", {}, {"attributes": (("units", "degC"), ("comment", "b"))}),
    Difference("`int16` and `float32`", {"dtype": "i2"}, {"dtype": "f4"}),
    Difference("`int32` and `int64`", {"dtype": "i4"}, {"dtype": "i8"}),
    Difference("`int32` and `float32`", {"dtype": "i4"}, {"dtype": "f4"}),
    Difference("`float32` and `float64`", {"dtype": "f4"}, {"dtype": "f8"}),
    Difference("`uint8` and `int8`", {"dtype": "u1"}, {"dtype": "i1"}),
    Difference("`uint64` and `int64`", {"dtype": "u8"}, {"dtype": "i8"}),
    Difference("`scale_factor`", PACKED, PACKED | {"scale": np.float32(0.5)}, REFUSED),
    Difference(
        "dtype of `scale_factor` and `add_offset`",
        PACKED,
        PACKED | {"scale": np.float64(0.01), "offset": np.float64(10)},
        REFUSED,
    ),
    Difference("`add_offset` in one file", PACKED, PACKED | {"offset": None}, REFUSED),
    Difference("`_FillValue`", {"fill": -99}, {"fill": 7}, REFUSED),
    Difference("`_FillValue` in one file", {}, {"fill": 7}, REFUSED),
    Difference("`_FillValue` of NaN in one file", {}, {"fill": np.nan}),
    Difference(
        "`_FillValue` of NaN in one file, of packed floats",
        {"dtype": "f4", "offset": np.float32(10)},
        {"dtype": "f4", "offset": np.float32(10), "fill": np.nan},
        REFUSED,
    ),
    Difference("`missing_value`", {"missing": 3}, {"missing": 4}, REFUSED),
    Difference("`_Unsigned`", {"dtype": "i1", "unsigned": "true"}, {"dtype": "i1"}, REFUSED),
    Difference(
        "`int8` that is `_Unsigned`, and `uint8`", {"dtype": "i1", "unsigned": "true"}, {"dtype": "u1"}, REFUSED
    ),
    Difference("packed in one file, `float32` in the other", PACKED, {"dtype": "f4"}, REFUSED),
    Difference("packed alike in `int16` and `int32`", PACKED, PACKED | {"dtype": "i4"}, REFUSED),
    Difference("units of the coordinate `time`", {"units": DAYS}, {"units": HOURS}),
    Difference("units of `time`, and so of its bounds", BOUNDS | {"units": DAYS}, BOUNDS | {"units": HOURS}, REFUSED),
    Difference("units of other times", {"run_units": DAYS}, {"run_units": HOURS}, REFUSED),
    Difference(
        "units of other times of the calendar `noleap`",
        {"run_units": DAYS, "run_calendar": "noleap"},
        {"run_units": HOURS, "run_calendar": "noleap"},
        REFUSED,
        REFUSED,
    ),
    Difference(
        "calendars `standard` and `noleap`",
        {"run_units": DAYS},
        {"run_units": DAYS, "run_calendar": "noleap"},
        REFUSED,
        REFUSED,
    ),
    Difference("booleans and numbers", {"flag": "bool"}, {"flag": "i2"}, REFUSED),
    Difference("text as characters, of one length", {"label": 3}, {"label": 3}),
    Difference("text as characters, of other lengths", {"label": 3}, {"label": 2}),
    Difference("strings of any length", {"name": True}, {"name": True}),
    Difference("a variable in one file only", {"only": True}, {}),
    Difference("dates in one file only", {"run_units": DAYS}, {}, REFUSED),
    Difference("booleans in one file only", {"flag": "bool"}, {}, REFUSED),
    Difference("tiles side by side, with `join='outer'`", {"tile": 0}, {"tile": 1}),
    Difference(
        "tiles side by side of integers, with `join='outer'`", {"tile": 0, "dtype": "i2"}, {"tile": 1, "dtype": "i2"}
    ),
    Difference("tiles side by side of packed integers, with `join='outer'`", PACKED, PACKED | {"tile": 1}),
    Difference("value of a scalar coordinate, with `compat='override'`", {"height": 2.0}, {"height": 10.0}),
]


# Text that is missing has no dtype of one size: the variable is to be loaded.
TEXTS = [(Difference("text in one file only", {"label": 3}, {}, REFUSED, REFUSED), r"'/label' has dtype '\|S3'")]


# -- what is compared -----------------------------------------------------------------------------------------


@dataclass
class Archive:
    """Files by recipe, each written and opened once."""

    folder: Path
    paths: dict = field(default_factory=dict)
    decoded: dict = field(default_factory=dict)
    virtuals: dict = field(default_factory=dict)

    def path(self, recipe):
        if recipe not in self.paths:
            self.paths[recipe] = write(recipe, self.folder / f"{len(self.paths)}.nc")
        return self.paths[recipe]

    def opened(self, recipe):
        if recipe not in self.decoded:
            with xr.open_dataset(self.path(recipe), engine="netcdf4") as dataset:
                self.decoded[recipe] = dataset.load()
        return self.decoded[recipe]

    def virtual(self, recipe, unpack):
        if (recipe, unpack) not in self.virtuals:
            self.virtuals[recipe, unpack] = vs.open_virtual_dataset(self.path(recipe), unpack=unpack)
        return self.virtuals[recipe, unpack]


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return Archive(tmp_path_factory.mktemp("mixed"))


def in_sequence(recipes):
    """Let each file begin on the day after the last of the one before."""
    starts = itertools.accumulate([recipe.n for recipe in recipes], initial=0)
    return [replace(recipe, first=first) for recipe, first in zip(recipes, starts, strict=False)]


def is_possible(recipe):
    """Whether the library that is to write a recipe can, and xarray reads it rightly."""
    has_all_types = recipe.is_hdf5 and recipe.writer != "netcdf4_classic"
    if not (has_all_types or recipe.writer == "cdf5") and recipe.dtype not in ("i1", "i2", "i4", "f4", "f8"):
        return False
    if recipe.name and not has_all_types:
        return False
    if recipe.height is not None and recipe.writer == "scipy":
        return False
    if recipe.chunks == "contiguous" and (recipe.codec != "none" or recipe.shuffle or recipe.fletcher32):
        return False
    if recipe.dims[0] != "time" and (recipe.writer not in ("netcdf4", "compact") or recipe.written is not None):
        return False
    if recipe.writer == "scipy" and recipe.written is not None:
        return False  # it leaves the rest of the file out
    if recipe.n == 0:
        # the netCDF library has no fixed dimension of no length, nor reads what scipy 1.18 writes without records;
        # xarray decodes no empty variable of dates of cftime
        is_fixed = recipe.chunks == "contiguous" or recipe.writer in ("compact", "scipy")
        if is_fixed or (recipe.run_units is not None and recipe.run_calendar == "noleap"):
            return False
    if recipe.fill is not None and recipe.fill != recipe.fill and recipe.dtype[0] != "f":
        return False
    if recipe.unsigned is not None and recipe.dtype[0] == "f":
        return False
    if recipe.dtype[0] == "u" and any(x is not None and x < 0 for x in (recipe.fill, recipe.missing)):
        return False
    # of unsigned numbers of the other byte order xarray 2026.9 masks a fill value with its bytes swapped
    return recipe.unsigned is None or recipe.endian == "native"


def fills_up_nothing(recipes):
    """Whether something is missing beside a file without records, of which xarray makes values: see the test of it."""
    present = {(x.tile, x.run_units is None, x.flag is None, x.only) for x in recipes}
    return len(present) > 1 and any(recipe.n == 0 for recipe in recipes)


OPTIONS = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "outer"}


def concat(datasets):
    return xr.concat(datasets, "time", combine_attrs="override", **OPTIONS)


def clashes(recipes, *, unpack, is_filled_up):
    """Name what the files of recipes must be refused for: pairs of variable and property.

    ``is_filled_up`` says that elements of a tile that is not in all files are filled in.
    """
    found = set()
    runs = {(recipe.run_units, recipe.run_calendar) for recipe in recipes if recipe.run_units is not None}
    calendars = {calendar for _, calendar in runs}
    is_run_absent = any(recipe.run_units is None for recipe in recipes)
    if runs and is_run_absent and (not unpack or "noleap" in calendars):
        found.add(("run", "dtype"))
    if unpack:  # dates that are objects of cftime stay packed
        if "noleap" in calendars and len(runs) > 1:
            found.add(("run", "dtype" if "standard" in calendars else "units"))
        return found
    if is_filled_up and len({recipe.tile for recipe in recipes}) > 1 and not all(map(has_missing, recipes)):
        found.add(("v", "fill_value"))
    is_mixed = len({recipe.dtype for recipe in recipes}) > 1
    common = np.result_type(*(recipe.dtype for recipe in recipes))
    for recipe in recipes:
        if is_mixed and common.kind == "f" and recipe.dtype[0] == "f" and not differing(meaning(recipe), {}):
            continue  # NaN is a missing value in any case, and stays one when it is cast
        if recipe.packing and is_mixed:
            found.add(("v", "dtype"))
    for left, right in itertools.combinations(recipes, 2):
        found |= {("v", key) for key in differing(meaning(left), meaning(right))}
        if left.bounds and right.bounds and left.units != right.units:
            found.add(("time_bounds", "units"))
        if left.flag != right.flag and "bool" in (left.flag, right.flag):
            found.add(("flag", "dtype"))
    if len({units for units, _ in runs}) > 1:
        found.add(("run", "units"))
    if len(calendars) > 1:
        found.add(("run", "calendar"))
    return found


def differing(left, right):
    keys = left.keys() | right.keys()
    is_packed = bool(keys - {"_FillValue", "missing_value"})
    return {key for key in keys if not means_the_same(key, left.get(key), right.get(key), is_packed)}


def meaning(recipe):
    """Leave out ``_Unsigned`` where it says what the dtype says too: xarray then reads numbers as they are stored."""
    usual = {"i": "false", "u": "true"}.get(recipe.dtype[0])
    return {key: x for key, x in recipe.packing.items() if key != "_Unsigned" or x != usual}


def has_missing(recipe):
    """Whether some stored number reads as missing; those of integers that are not packed become floats."""
    return recipe.dtype[0] == "f" or not meaning(recipe) or recipe.fill is not None or recipe.missing is not None


def means_the_same(key, left, right, is_packed):
    if left is None or right is None:  # NaN is a missing value in any case, but decides the dtype of unpacked numbers
        return not is_packed and all(x is None or (key == "_FillValue" and x != x) for x in (left, right))
    if key in ("scale_factor", "add_offset") and left.dtype != right.dtype:
        return False
    return left == right or (left != left and right != right)


def assert_same(found, expected):
    """Dims, coordinates, attributes, dtypes and the bytes of values."""
    xr.testing.assert_identical(found, expected)
    assert found.sizes == expected.sizes
    for name, variable in expected.variables.items():
        values = found.variables[name].values
        assert values.dtype == variable.dtype, name
        assert variable.dtype.kind == "O" or values.tobytes() == variable.values.tobytes(), name


def assert_reads_as(joined, expected, target=None):
    """From the joined dataset, and from references: to chunks where kerchunk can express them, else to values."""
    assert isinstance(joined.variables["v"]._data, ManifestArray)
    assert_same(joined.virtual.open().load(), expected)
    try:
        references = joined.virtual.to_kerchunk(target, inline_limit=0)
    except WriterError as error:
        assert error.variable in joined.variables
        references = joined.virtual.to_kerchunk(target)
    found = xr.open_dataset(references if target is None else target, engine="virtualstack").load()
    assert_same(found, expected)


def outcome(archive, recipes, join=concat, *, unpack, target=None):
    """Join files; give whether they ``joins``, to the values that xarray has, or are ``refused``, with a message."""
    expected = join([archive.opened(recipe) for recipe in recipes])
    try:
        joined = join([archive.virtual(recipe, unpack) for recipe in recipes])
    except CombineError as error:
        assert_names_what_clashes(error, clashes(recipes, unpack=unpack, is_filled_up=join is not tiles))
        return REFUSED
    assert_reads_as(joined, expected, target)
    return JOINS


def assert_names_what_clashes(error, expected):
    """Variable, property, both values, and what to do."""
    name = error.variable.strip("/")
    if error.property == "fill_value":  # elements that a file lacks have no stored number
        assert {(name, "dtype"), (name, "fill_value")} & expected
        assert f"set_encoding({{'{name}': {{'_FillValue': ...}}}})" in str(error)
        return
    assert (name, error.property) in expected
    assert not means_the_same(error.property, error.left, error.right, is_packed=True)
    for text in (f"'/{name}'", str(error.property)):
        assert text in str(error)
    remedies = ["unpack=True", *(["loadable_variables", "drop_variables"] if name == "run" else [])]
    assert any(remedy in str(error) for remedy in remedies)
    for value in (error.left, error.right):
        assert str(value) in str(error) or repr(value) in str(error)


def assert_joins_or_is_refused(archive, recipes, join=concat, target=None):
    """Give both outcomes, without ``unpack`` and with it."""
    found = []
    for unpack in (False, True):
        name = None if target is None else target.with_stem(f"{target.stem}-{unpack}")
        found.append(outcome(archive, recipes, join, unpack=unpack, target=name))
        is_refused = clashes(recipes, unpack=unpack, is_filled_up=join is not tiles)
        assert found[-1] == (REFUSED if is_refused else JOINS)
    return found


# -- one difference, and two ----------------------------------------------------------------------------------


BASES = {
    "usual": Recipe(),
    "packed": Recipe(**PACKED, codec="zlib1", shuffle=True),
    "netcdf3": Recipe(writer="netcdf3", dtype="f8"),
}


def singles():
    """Each difference of files that have everything else in common; what a base has itself is not changed.

    Of the bases but the usual one, two of three differences run apart.
    """
    found = {}
    for name, base in BASES.items():
        own = {x.name for x in fields(Recipe) if getattr(base, x.name) != getattr(BASES["usual"], x.name)}
        if base.packing:
            own.add("tile")  # packed integers have no place for a tile that is not there
        for difference in DIFFERENCES:
            if not own & difference.changed:
                left, right = replace(base, **difference.left), replace(base, **difference.right)
                if is_possible(left) and is_possible(right):
                    found[f"{difference.words}, {name}"] = difference, left, right
    return [
        pytest.param(*values, id=key, marks=[pytest.mark.apart] if i % 3 and not (ALL or "usual" in key) else [])
        for i, (key, values) in enumerate(found.items())
    ]


@pytest.mark.parametrize(("difference", "left", "right"), singles())
def test_files_that_differ_in_one_way_join_or_are_refused_as_the_table_says(archive, difference, left, right):
    """In either order, and as three files."""
    for recipes in ([right, left], [left, right, left]):
        assert assert_joins_or_is_refused(archive, in_sequence(recipes)) == [difference.plain, difference.unpacked]


def pairs():
    """Two differences that do not meet in one property; of every eleventh of them, two of three run apart."""
    found = []
    for one, other in itertools.combinations(DIFFERENCES, 2):
        left = Recipe(**one.left | other.left)
        right = Recipe(**one.right | other.right)
        is_known = is_possible(left) and is_possible(right) and not fills_up_nothing([left, right])
        if is_known and not one.changed & other.changed:
            found.append(pytest.param(left, right, id=f"{one.words} and {other.words}"))
    apart = [pytest.param(*x.values, id=x.id, marks=pytest.mark.apart) for x in found]
    return found if ALL else [(apart if i % 33 else found)[i] for i in range(0, len(found), 11)]


@pytest.mark.parametrize(("left", "right"), pairs())
def test_files_that_differ_in_two_ways_join_or_are_refused(archive, left, right):
    """They are refused where one of the two ways alone is."""
    assert_joins_or_is_refused(archive, in_sequence([left, right]))


# -- any number of differences --------------------------------------------------------------------------------


VALUES = {
    "writer": [*NETCDF, "scipy", "compact"],
    "dtype": ["i1", "i2", "i4", "f4", "f8", "u1", "u2", "i8", "u8"],
    "endian": ["native", "big"],
    "chunks": [(4, 2, 6), (1, 4, 6), (3, 3, 4), (64, 1, 5), "contiguous", None],
    "codec": list(CODECS),
    "shuffle": [False, True],
    "fletcher32": [False, True],
    "scale": [None, np.float32(0.01), np.float64(0.01), np.float64(-3)],
    "offset": [None, np.float32(10), np.float64(0.1)],
    "fill": [None, -99, 7, np.nan],
    "missing": [None, 3],
    "unsigned": [None, "true", "false"],
    "written": [None, 0, 2],
    "attributes": [(("units", "K"),), (("units", "degC"), ("comment", "b")), ()],
    "dims": [("time", "y", "x"), ("y", "x", "time")],
    "units": [DAYS, HOURS, "seconds since 1990-01-01"],
    "run_units": [DAYS, HOURS, None],
    "run_calendar": ["standard", "noleap"],
    "flag": ["bool", "i1", "f4", None],
    "height": [2.0, 10.0],
    "only": [False, True],
    "tile": [0, 1],
}
OPTIONAL = ["run_units", "flag", "height"]
LENGTHS = [0, 1, 2, 3, 4, 5, 5, 8, 28, 31]


@st.composite
def recipes(draw, count=None):
    """Draw two to five files of one archive, that differ in a few properties each."""
    asked_for = draw(st.sets(st.sampled_from(OPTIONAL)))
    names = st.sampled_from([key for key in VALUES if key in asked_for or key not in OPTIONAL])

    def changes():
        return {key: draw(st.sampled_from(VALUES[key])) for key in draw(st.lists(names, unique=True, max_size=3))}

    common = replace(Recipe(), **{key: VALUES[key][0] for key in asked_for})
    common = replace(common, label=draw(st.sampled_from([None, 3])), bounds=draw(st.booleans()))
    if draw(st.booleans()):
        common = replace(common, **PACKED)
    common = _if_possible(common, changes())
    lengths = st.sampled_from(LENGTHS)
    number = count or draw(st.integers(2, 5))
    return [_if_possible(common, {"n": draw(lengths), **changes()}) for _ in range(number)]


def _if_possible(recipe, changes):
    """Change what a library can write, one property after the other."""
    for key, value in changes.items():
        changed = replace(recipe, **{key: value})
        recipe = changed if is_possible(changed) else recipe
    return recipe


def tiles(datasets):
    rows = list(itertools.batched(datasets, 2))
    return xr.combine_nested(rows, ["time", "x"], combine_attrs="drop_conflicts", **OPTIONS)


def defaults(datasets):
    return xr.concat(datasets, "time")


def by_coords(datasets):
    return xr.combine_by_coords(datasets, combine_attrs="drop", **OPTIONS)


def new_dimension(datasets):
    return xr.concat(datasets, "member", combine_attrs="override", **OPTIONS | {"data_vars": "all"})


@st.composite
def joins(draw):
    """Draw a way of joining, and recipes whose coordinates let xarray join them in that way."""
    way = draw(st.sampled_from([concat, defaults, by_coords, new_dimension, tiles]))
    drawn = draw(recipes(4 if way is tiles else None))
    if way is tiles:
        # what does not lie along x is taken from the first tile of a row
        shared = ("n", "units", "run_units", "run_calendar", "flag", "only")
        rows = [{name: getattr(x, name) for name in shared} | {"first": 50 * i} for i, x in enumerate(drawn[::2])]
        drawn = [replace(x, tile=i % 2, **rows[i // 2]) for i, x in enumerate(drawn)]
        if any(fills_up_nothing([replace(x, tile=0), drawn[0]]) for x in drawn):
            drawn = [replace(x, n=x.n or 1) for x in drawn]
        return way, drawn
    if way is new_dimension:
        drawn = [replace(x, n=drawn[0].n) for x in drawn]
    if way is by_coords:
        # files with other variables are other datasets to it
        drawn = [replace(x, n=x.n or 1, tile=0, **_same_presence(drawn[0], x)) for x in drawn]
    if way is defaults:  # which compare coordinates by value
        drawn = [replace(x, height=None) for x in drawn]
    if fills_up_nothing(drawn):
        drawn = [replace(x, n=x.n or 1) for x in drawn]
    return way, drawn if way is new_dimension else in_sequence(drawn)


def _same_presence(first, other):
    """Give what a recipe must have to have the variables of another one."""
    run_units = first.run_units and (other.run_units or first.run_units)
    return {"run_units": run_units, "flag": first.flag and (other.flag or first.flag), "only": first.only}


@settings(max_examples=3000 if ALL else 25, deadline=None, suppress_health_check=list(HealthCheck))
@given(joins(), st.sampled_from(["refs.json", "refs.parq", None]))
def test_any_files_join_to_what_xarray_joins_or_are_refused(tmp_path_factory, way, name):
    """Along time, in order or by coordinates, along a new dimension, and as tiles; values are read from references."""
    join, drawn = way
    assume(all(is_possible(recipe) for recipe in drawn))
    folder = tmp_path_factory.mktemp("random")
    found = assert_joins_or_is_refused(Archive(folder), drawn, join, None if name is None else folder / name)
    event(f"{join.__name__}: {found[0]}, and {found[1]} with unpack")


# -- what is special ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("join", [tiles, new_dimension, by_coords, defaults])
@pytest.mark.parametrize(
    "odd", [*CODECS, "chunks", "byte order", "netcdf3", "scipy", "compact", "int16", "fill", "packed"]
)
def test_an_odd_file_among_four_joins_in_every_way(archive, join, odd):
    """Two by two tiles, four members of a new dimension, four files in time by their coordinates and in order."""
    changes = {
        **{codec: {"codec": codec, "shuffle": True, "fletcher32": True} for codec in CODECS},
        **{writer: {"writer": writer} for writer in ("netcdf3", "scipy", "compact")},
        "chunks": {"chunks": (3, 4, 5)},
        "byte order": {"endian": "big"},
        "int16": {"dtype": "i2"},
        "fill": {"fill": 7},
        "packed": PACKED,
    }[odd]
    recipes = [Recipe(first=5 * i) for i in range(4)]
    if join is tiles:
        recipes = [replace(x, first=5 * (i // 2), tile=i % 2) for i, x in enumerate(recipes)]
    elif join is new_dimension:
        recipes = [Recipe(attributes=(("comment", str(i)),)) for i in range(4)]
    recipes[2] = replace(recipes[2], **changes)
    assert assert_joins_or_is_refused(archive, recipes, join) == [
        REFUSED if odd in ("fill", "packed") else JOINS,
        JOINS,
    ]


@pytest.mark.parametrize("right", [{}, {"writer": "netcdf3"}, PACKED], ids=["usual", "netcdf3", "packed"])
@pytest.mark.parametrize("unpack", [False, True])
def test_merged_variables_keep_their_own_packing(archive, right, unpack):
    """Two files beside each other, under other names; and one merged with itself."""

    def merge(datasets):
        first, second = datasets
        return xr.merge([first, second.rename(v="w"), first], join="exact", compat="no_conflicts")

    assert outcome(archive, [Recipe(), Recipe(**right)], merge, unpack=unpack) == JOINS


# What `open_virtual_mfdataset` asks to be told, where xarray takes the first or fills up.
ASKED = {
    "attributes that change no values": "attribute 'units' of variable 'v' is 'K' in .* and 'degC' in .*preprocess=",
    "a variable in one file only": "'only' is missing from 1; .*join='outer'",
    "dates in one file only": "'run' is missing from 1; .*join='outer'",
    "booleans in one file only": "'flag' is missing from 1; .*join='outer'",
    "tiles side by side, with `join='outer'`": "coordinate 'x' differs in 1 of 2 files, by at most 6.*join='outer'",
    "tiles side by side of integers, with `join='outer'`": "coordinate 'x' differs in 1 of 2 files",
    "tiles side by side of packed integers, with `join='outer'`": "coordinate 'x' differs in 1 of 2 files",
    "calendars `standard` and `noleap`": "'run' has dates of several calendars: .*'noleap' in .*preprocess=",
}


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda x: x.words)
def test_many_files_opened_at_once_are_unpacked_where_they_differ(archive, difference):
    recipes = in_sequence([Recipe(**difference.left), Recipe(**difference.right)])
    paths = [archive.path(recipe) for recipe in recipes]
    options = {"combine": "nested", "concat_dim": "time", "unpack": "differing"}
    if difference.words in ASKED:
        with pytest.raises(CombineError, match=ASKED[difference.words]):
            vs.open_virtual_mfdataset(paths, **options)
        return
    expected = [archive.opened(recipe) for recipe in recipes]
    given = OPTIONS if "`compat=" not in difference.words else {**OPTIONS, "coords": "different", "compat": "equals"}
    expected = xr.concat(expected, "time", combine_attrs="drop_conflicts", **given)
    assert_reads_as(vs.open_virtual_mfdataset(paths, **options), expected)


@pytest.mark.parametrize(("difference", "message"), TEXTS, ids=lambda x: getattr(x, "words", ""))
def test_text_that_differs_joins_when_it_is_loaded(archive, difference, message):
    recipes = in_sequence([Recipe(**difference.left), Recipe(**difference.right)])
    for unpack in (False, True):
        with pytest.raises(ValueError, match=message):
            concat([archive.virtual(recipe, unpack) for recipe in recipes])
    loaded = [
        vs.open_virtual_dataset(archive.path(x), loadable_variables=["time", "y", "x", *(["label"] if x.label else [])])
        for x in recipes
    ]
    expected = concat([archive.opened(recipe) for recipe in recipes])
    xr.testing.assert_identical(concat(loaded).drop_vars("v"), expected.drop_vars("v"))


@pytest.mark.parametrize("units", [DAYS, HOURS])
def test_times_that_are_not_loaded_join_where_their_units_agree(archive, units):
    recipes = in_sequence([Recipe(units=DAYS), Recipe(units=units)])
    expected = concat([archive.opened(recipe) for recipe in recipes])
    for unpack in (False, True):
        virtual = [
            vs.open_virtual_dataset(archive.path(recipe), unpack=unpack, loadable_variables=[]).virtual.load(["x", "y"])
            for recipe in recipes
        ]
        if units != DAYS and not unpack:
            with pytest.raises(CombineError, match=r"'/time' has units = 'days .* and 'hours .*unpack=True"):
                concat(virtual)
        else:
            assert_reads_as(concat(virtual), expected)


def test_the_message_names_both_files(archive):
    left, right = in_sequence([Recipe(**PACKED), Recipe(**PACKED | {"fill": 7})])
    with pytest.raises(CombineError) as caught:
        concat([archive.virtual(left, unpack=False), archive.virtual(right, unpack=False)])
    for recipe, url in ((left, caught.value.left_url), (right, caught.value.right_url)):
        assert url.endswith(str(archive.path(recipe)))
        assert url in str(caught.value)


@pytest.mark.parametrize("unpack", [False, True])
def test_a_tile_of_a_file_without_records_is_equal_or_refused(archive, unpack):
    """xarray makes values of what has no elements when it aligns it."""
    recipes = [Recipe(n=5), Recipe(n=0, tile=1)]
    expected = concat([archive.opened(recipe) for recipe in recipes])
    try:
        joined = concat([archive.virtual(recipe, unpack) for recipe in recipes])
    except CombineError as error:
        assert "'/v' is virtual in one dataset and loaded in another" in str(error)
    else:
        assert_reads_as(joined, expected)


def test_booleans_of_a_file_without_records_are_equal_or_refused(archive):
    recipes = [Recipe(n=0, flag="bool"), Recipe(n=5)]
    with pytest.raises(WriterError, match=r"'flag' has the attributes .*'bool'.*, with which readers would"):
        assert_joins_or_is_refused(archive, recipes)


@pytest.mark.parametrize("height", [2.0, 10.0])
def test_coordinates_that_xarray_compares_by_value_are_equal_or_refused(archive, height):
    """By default ``xr.concat`` joins those that differ, and keeps those that are equal as they are."""
    recipes = in_sequence([Recipe(height=2.0), Recipe(height=height)])
    expected = defaults([archive.opened(recipe) for recipe in recipes])
    try:
        joined = defaults([archive.virtual(recipe, unpack=False) for recipe in recipes])
    except VirtualStackError as error:
        assert "height" in str(error)
    else:
        assert_reads_as(joined, expected)


@pytest.mark.parametrize("unpack", [False, True])
def test_strings_in_one_file_only_are_refused_by_name(archive, unpack):
    recipes = in_sequence([Recipe(name=True), Recipe()])
    with pytest.raises(CombineError, match="'/name'"):
        concat([archive.virtual(recipe, unpack) for recipe in recipes])


# -- the page that says so ------------------------------------------------------------------------------------


def test_the_page_lists_every_difference():
    """What joins as it is first, then what needs ``unpack=True``, then what is refused."""
    rows = [*DIFFERENCES, *(difference for difference, _ in TEXTS)]
    rows.sort(key=lambda x: (x.plain == REFUSED) + (x.unpacked == REFUSED))
    table = "".join(f"| {x.words} | {x.plain} | {x.unpacked} |\n" for x in rows)
    assert table in PAGE.read_text()
