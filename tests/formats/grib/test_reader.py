import itertools
import re
import tracemalloc
import warnings

import eccodes
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import (
    GRIB1,
    GRIB2,
    edited,
    fields_of,
    merged,
    message,
    opened,
    points_of,
    section,
    values_of_message,
    write,
)
from tests.data.processes import run_python
from tests.formats.groups import group_of
from virtualstack.codecs.codec import Codec, CodecError
from virtualstack.codecs.grib.codec import grib_decoder
from virtualstack.codecs.grib.fields import is_safe, last_field
from virtualstack.codecs.pipeline import decode
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError
from virtualstack.formats.grib.walk import _Window
from virtualstack.location import absolute_url
from virtualstack.manifests import ABSENT, EMPTY, FIRST
from virtualstack.readers import GRIB, ReadOptions
from virtualstack.testing.readers import ReaderTests, record_reads

pytestmark = pytest.mark.filterwarnings("ignore:In a future version:FutureWarning")
HOLES = np.where(np.arange(24) % 5 == 0, np.nan, np.arange(24.0))


def cfgrib(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kwargs = {"indexpath": "", "errors": "raise", **options}
        with xr.open_dataset(path, engine="cfgrib", backend_kwargs=kwargs) as found:
            found.attrs.pop("history")
            return found.load()


def read_virtually(path, **options):
    return vs.open_virtual_dataset(path, **options).virtual.open().load()


def cube(sample=GRIB2, **more):
    """Two levels, two steps and two runs of two parameters."""
    keys = ({"shortName": name} for name in ("t", "u"))
    for n, (key, level, step, day) in enumerate(itertools.product(keys, (500, 850), (0, 6), (20200101, 20200102))):
        place = {"typeOfLevel": "isobaricInhPa", "level": level, "dataDate": day, "step": step}
        yield message({**key, **place, **more}, sample=sample, seed=n, values=HOLES + n if n % 3 == 0 else None)


class TestGRIB(ReaderTests):
    reader = GRIB()

    def files(self, folder):
        yield write(folder / "a.grib1", cube(GRIB1))
        yield write(folder / "b.grib2", cube())

    def test_scanning_looks_at_no_chunk(self, tmp_path):
        """A chunk is a whole message; of its data, nothing is looked at."""
        for path in self.files(tmp_path):
            data = bytearray(path.read_bytes())
            group = group_of(path, self.reader)
            for entry in group.arrays["t"].in_memory().entries.reshape(-1):
                end = int(entry["offset"] + entry["length"]) - 4
                data[end - 6 : end] = bytes(x ^ 0xFF for x in data[end - 6 : end])
            path.write_bytes(data)
            again = group_of(path, self.reader)
            assert again.arrays["t"].in_memory().entries.tobytes() == group.arrays["t"].in_memory().entries.tobytes()

    def expected(self, path):
        return {f"/{name}": cfgrib(path)[name].values for name in ("t", "u")}


@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
def test_datasets_are_those_of_cfgrib(sample, tmp_path):
    """The whole model, whatever lies between the messages, in whatever order they are."""
    messages = list(cube(sample))
    np.random.default_rng(0).shuffle(messages)
    path = write(tmp_path / "a.grib", (bytes(7) + x + b"\r\r\nNNNN GRI" for x in messages))
    expected = cfgrib(path)
    assert expected.t.dims == ("time", "step", "isobaricInhPa", "latitude", "longitude")
    xr.testing.assert_identical(read_virtually(path), expected)
    whole = vs.open_virtual_dataset(path, reader=GRIB(time_dims=("valid_time",)))
    xr.testing.assert_identical(whole.virtual.open().load(), cfgrib(path, time_dims=("valid_time",)))
    part = vs.open_virtual_dataset(path, reader=GRIB(filter_by_keys={"level": 500, "shortName": ("t",)}))
    xr.testing.assert_identical(
        part.virtual.open().load(), cfgrib(path, filter_by_keys={"level": 500, "shortName": "t"})
    )
    report = vs.open_virtual_dataset(path).virtual.report()
    assert f"{16 * 18} bytes belong to none of the 16" in report.to_string()


@pytest.mark.parametrize("time_dims", [("time",), ("step",), ("valid_time",), ("valid_time", "step")])
def test_of_several_fields_the_one_that_cfgrib_takes_is_taken(time_dims, tmp_path):
    """Where they differ in times that are no dimensions."""
    path = write(tmp_path / "a.grib", [*cube(), *cube()])
    found = read_virtually(path, reader=GRIB(time_dims=time_dims))
    xr.testing.assert_identical(found, cfgrib(path, time_dims=time_dims))


def test_steps_of_minutes_are_those_of_cfgrib(tmp_path):
    """Of GRIB 1, eccodes counts them in hours first, and fails."""
    steps = [{"indicatorOfUnitOfTimeRange": 0, "P1": n} for n in (1, 2, 60, 90)]
    path = write(tmp_path / "a.grib", [message(x, sample=GRIB1, seed=n) for n, x in enumerate(steps)])
    found = read_virtually(path)
    assert found.step.values.tolist() == [n * 60 * 10**9 for n in (1, 2, 60, 90)]
    xr.testing.assert_identical(found, cfgrib(path))


def test_equal_steps_in_other_units_are_one(tmp_path):
    """The first field is taken, wherever its step stands."""
    fields = [message({"indicatorOfUnitOfTimeRange": unit}, seed=unit) for unit in (1, 3)]
    for some in (fields, fields[::-1]):
        path = write(tmp_path / "a.grib", some)
        xr.testing.assert_identical(read_virtually(path), cfgrib(path))


@pytest.mark.parametrize("option", [{"read_keys": ("values",)}, {"filter_by_keys": {"max": 3}}])
def test_keys_of_values_are_refused(option):
    with pytest.raises(ValueError, match="needs the values of fields"):
        GRIB(**option)


def test_coordinates_of_one_value_keep_their_dimension_on_request(tmp_path):
    path = write(tmp_path / "a.grib", [message()])
    found = read_virtually(path, reader=GRIB(squeeze=False))
    xr.testing.assert_identical(found, cfgrib(path, squeeze=False))
    assert {"time", "step"} <= set(found.dims)


def test_fields_that_are_not_there_are_missing(tmp_path):
    """And the first one of several for one place is taken, and the others are counted."""
    first, *others = cube()
    path = write(tmp_path / "a.grib", [*others, others[0]])
    vds = vs.open_virtual_dataset(path)
    xr.testing.assert_identical(vds.virtual.open().load(), cfgrib(path))
    codes = vds.t.variable._data.in_memory().entries["location"]
    assert (codes == ABSENT).sum() == 1
    assert (codes >= FIRST).sum() == 7
    assert "1 of 8 fields has the same coordinates as another field" in vds.virtual.report().to_string()
    with pytest.raises(vs.errors.StorageError):
        vds.virtual.open(absent="raise").t.load()
    xr.testing.assert_identical(read_virtually(write(path, [*others, first])), cfgrib(path))


def test_many_files_are_one_index(tmp_path):
    """In any order, with any fields in each."""
    messages = list(cube())
    whole = write(tmp_path / "whole.grib", messages)
    for i in range(5):
        write(tmp_path / f"part{i}.grib", messages[i::5])
    vds = vs.open_virtual_mfdataset(str(tmp_path / "part*.grib"), cache=tmp_path / "cache")
    xr.testing.assert_identical(vds.virtual.open().load(), cfgrib(whole))
    again = vs.open_virtual_mfdataset(str(tmp_path / "part*.grib"), cache=tmp_path / "cache", executor="threads")
    xr.testing.assert_identical(again.virtual.open().load(), cfgrib(whole))


def test_a_variable_that_some_files_have_not_is_missing_there(tmp_path):
    """The file of step 0 has no rain yet; values are those of a loop over the files by cfgrib and xarray."""
    paths = []
    for step in (0, 3, 6):
        fields = [message({"shortName": "2t", "typeOfLevel": "heightAboveGround", "level": 2, "step": step}, seed=step)]
        if step:
            rain = {"productDefinitionTemplateNumber": 8, "shortName": "tp", "stepRange": f"0-{step}"}
            fields.append(message(rain, seed=20 + step))
        paths.append(write(tmp_path / f"{step}.grib", fields))
    cube = vs.open_virtual_mfdataset(paths).virtual.open()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        expected = xr.concat(
            [cfgrib(path) for path in paths], "step", data_vars="all", coords="minimal", compat="override"
        )
    for name in ("t2m", "tp", "step"):
        np.testing.assert_array_equal(cube[name], expected[name])


def test_runs_are_joined_by_xarray(tmp_path):
    messages = list(cube())
    paths = [write(tmp_path / f"{i}.grib", messages[i::2]) for i in range(2)]
    joined = xr.concat([vs.open_virtual_dataset(path) for path in paths], "time")
    expected = cfgrib(write(tmp_path / "whole.grib", messages))
    xr.testing.assert_equal(joined.virtual.open().load(), expected.transpose(*joined.t.dims, ...))


def test_all_fields_of_a_message_are_there(tmp_path):
    """Of a message of several fields, that share what is not repeated."""
    fields = [message({"shortName": name}, seed=i) for i, name in enumerate(["t", "u", "v"])]
    path = write(tmp_path / "a.grib", [merged(fields), fields[0][:16] + fields[0][16:]])
    assert [offset for offset, _ in fields_of(path)] == [0, 0, 0, len(merged(fields))]
    xr.testing.assert_identical(read_virtually(path), cfgrib(path))


MODES = list(itertools.product((0, 1), repeat=4))


@pytest.mark.parametrize(("i_negative", "j_positive", "columns", "alternate"), MODES)
def test_points_are_where_eccodes_says(i_negative, j_positive, columns, alternate, tmp_path):
    """In all scanning modes: each value stands at its latitude and longitude."""
    keys = {
        "iScansNegatively": i_negative,
        "jScansPositively": j_positive,
        "jPointsAreConsecutive": columns,
        "alternativeRowScanning": alternate,
    }
    if j_positive:
        keys |= {"latitudeOfFirstGridPointInDegrees": 35, "latitudeOfLastGridPointInDegrees": 50}
    if i_negative:
        keys |= {"longitudeOfFirstGridPointInDegrees": 50, "longitudeOfLastGridPointInDegrees": 0}
    path = write(tmp_path / "a.grib2", [message({"shortName": "t", **keys}, values=np.arange(24.0))])
    # eccodes lists points as if no row were turned around; WMO FM 92 GRIB2, flag table 3.4, bit 4 says which are
    n = np.arange(24.0).reshape((6, 4) if columns else (4, 6))
    if alternate:
        n[1::2] = n[1::2, ::-1]
    with opened(path.read_bytes()) as handle:
        points = [eccodes.codes_get_array(handle, key) for key in ("latitudes", "longitudes")]
    found = read_virtually(path).t
    for latitude, longitude, value in zip(*points, n.reshape(-1), strict=True):
        assert float(found.sel(latitude=latitude, longitude=longitude)) == value


PROJECTIONS = {
    "lambert": {"LaDInDegrees": 45, "Latin1InDegrees": 45, "LoVInDegrees": 10, "DxInMetres": 9e4, "DyInMetres": 9e4},
    "polar_stereographic": {"LaDInDegrees": 60, "DxInMetres": 90000, "DyInMetres": 90000},
    "lambert_azimuthal_equal_area": {
        "standardParallelInDegrees": 52,
        "xDirectionGridLengthInMillimetres": 10**8,
        "yDirectionGridLengthInMillimetres": 10**8,
    },
    "rotated_ll": {"latitudeOfSouthernPoleInDegrees": -40, "longitudeOfSouthernPoleInDegrees": 10},
}


def projected(kind, columns):
    keys = {"gridType": kind, "Nx": 6, "Ny": 4, "jScansPositively": 1, **PROJECTIONS[kind]}
    if kind == "rotated_ll":
        keys |= {"latitudeOfFirstGridPointInDegrees": 35, "latitudeOfLastGridPointInDegrees": 50}
    keys["jPointsAreConsecutive"] = columns
    return edited(message({"shortName": "t"}), keys, values=np.arange(24.0))


@pytest.mark.parametrize("limit", [0, 1 << 20])
@pytest.mark.parametrize("kind", PROJECTIONS)
def test_columns_of_projected_grids_are_where_eccodes_says(kind, limit, tmp_path):
    """It lists latitudes and longitudes of some types of grid row by row, though values are not."""
    path = write(tmp_path / "a.grib2", [projected(kind, columns=1)])
    expected = points_of(path.read_bytes())
    found = vs.open_virtual_dataset(path, inline_limit=limit).virtual.open().load()
    values = np.stack([found[name].values.reshape(-1) for name in ("latitude", "longitude", "t")], axis=1)
    np.testing.assert_allclose(values[np.argsort(values[:, 2])], sorted(expected, key=lambda x: x[2]))
    rows = read_virtually(write(tmp_path / "b.grib2", [projected(kind, columns=0)]))
    xr.testing.assert_identical(found[["latitude", "longitude"]], rows[["latitude", "longitude"]])


@pytest.mark.parametrize("flags", [{"iScansNegatively": 1}, {"jScansPositively": 0}], ids=str)
@pytest.mark.parametrize("kind", ["lambert", "polar_stereographic", "lambert_azimuthal_equal_area"])
def test_projections_that_eccodes_lists_backwards_have_no_coordinates(kind, flags, tmp_path):
    """It lists the points of some as if the first were in the south-west; their values are those of eccodes."""
    data = edited(projected(kind, columns=0), flags)
    path = write(tmp_path / "a.grib2", [data])
    values = [value for _, _, value in points_of(data)]
    if kind == "lambert_azimuthal_equal_area":
        np.testing.assert_array_equal(values, np.arange(24))
        xr.testing.assert_identical(read_virtually(path), cfgrib(path))
    else:
        assert values != sorted(values)
        without_points(path, "t", "not in the south-west")


def without_points(path, name, reason):
    """Check that the values of a variable are those of eccodes, without coordinates, and that a note says why."""
    vds = vs.open_virtual_dataset(path)
    found = vds.virtual.open()[name]
    assert not {"latitude", "longitude"} & set(found.coords)
    with path.open("rb") as file:
        handles = iter(lambda: eccodes.codes_grib_new_from_file(file), None)
        values = [eccodes.codes_get_values(x) for x in handles if eccodes.codes_get(x, "shortName") == name]
    np.testing.assert_array_equal(found.values.reshape(-1), np.float32(values).reshape(-1))
    assert reason in vds.virtual.report().to_string()
    tree = xr.open_datatree(path, engine="virtualstack")
    (of_tree,) = (node[name] for node in tree.subtree if name in node.data_vars)
    np.testing.assert_array_equal(of_tree.values, found.values)
    assert "latitude" not in of_tree.coords


def test_columns_that_eccodes_lists_as_rows_have_no_coordinates(tmp_path):
    """Where a grid has but one dimension, and coordinates would be those of other points."""
    keys = {"gridType": "mercator", "Ni": 6, "Nj": 4, "DiInMetres": 9e4, "DjInMetres": 9e4, "LaDInDegrees": 20}
    path = write(tmp_path / "a.grib2", [edited(message({"shortName": "t"}), keys | {"jPointsAreConsecutive": 1})])
    without_points(path, "t", "points lie column by column")


PACKINGS = [
    {"packingType": "grid_simple", "bitsPerValue": 12},
    {"packingType": "grid_simple", "bitsPerValue": 24},
    {"packingType": "grid_simple", "decimalPrecision": 3},
    {"packingType": "grid_simple_matrix"},
    {"packingType": "grid_ieee"},
    {"packingType": "grid_ccsds"},
    {"packingType": "grid_jpeg"},
    {"packingType": "grid_png"},
    {"packingType": "grid_complex"},
    {"packingType": "grid_complex_spatial_differencing"},
    {"packingType": "grid_second_order"},
]


@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
@pytest.mark.parametrize("values", [None, HOLES, np.full(24, 5.0), np.linspace(9990, 10010, 24)])
@pytest.mark.parametrize("packing", PACKINGS, ids=lambda x: "-".join(map(str, x.values())))
def test_values_of_all_packings_are_those_of_cfgrib(packing, values, sample, tmp_path):
    """Also those that are 9999, which kerchunk makes NaN of."""
    try:
        keys = {"shortName": "t", **{key: value for key, value in packing.items() if key != "packingType"}}
        after = {key: value for key, value in packing.items() if key == "packingType"}
        data = message(keys, sample=sample, values=values, after=after)
    except eccodes.CodesInternalError:
        pytest.skip("eccodes does not encode it")
    path = write(tmp_path / "a.grib", [data])
    vds = vs.open_virtual_dataset(path)
    xr.testing.assert_identical(vds.virtual.open().load(), cfgrib(path))
    vds.virtual.to_kerchunk(tmp_path / "refs.json")
    for engine in ("virtualstack", "kerchunk"):
        with xr.open_dataset(str(tmp_path / "refs.json"), engine=engine) as found:
            np.testing.assert_array_equal(found.t.values, cfgrib(path).t.values)


def test_kerchunk_references_name_kerchunks_codec_where_it_is_right(tmp_path):
    """Where a packed number may stand for 9999, or fields are parts of a message, they name ours."""
    plain = message({"shortName": "t", "bitsPerValue": 12})
    reaching = message({"shortName": "t", "bitsPerValue": 16}, values=np.linspace(0, 65535, 24))
    parts = merged([plain, message({"shortName": "u"})])
    for data, known in ((plain, True), (reaching, False), (parts, False)):
        vds = vs.open_virtual_dataset(write(tmp_path / "a.grib", [data]))
        refs = vds.virtual.to_kerchunk(None)["refs"]
        (name,) = [name for name in ("t", "u") if f"{name}/.zarray" in refs][:1]
        assert ('"id":"grib"' in refs[f"{name}/.zarray"].replace(" ", "")) == known
    two = [write(tmp_path / f"{i}.grib", [x]) for i, x in enumerate((plain, reaching))]
    joined = xr.concat(
        [vs.open_virtual_dataset(x).drop_vars("heightAboveGround", errors="ignore") for x in two],
        "n",
        coords="minimal",
        compat="override",
    )
    refs = joined.virtual.to_kerchunk(None)["refs"]
    assert '"id":"virtualstack.grib"' in refs["t/.zarray"].replace(" ", "")


def test_scanning_reads_headers_alone(tmp_path):
    big = {"Ni": 1000, "Nj": 500, "iDirectionIncrementInDegrees": 0.05, "jDirectionIncrementInDegrees": 0.03}
    path = write(tmp_path / "a.grib", [message({"shortName": "t", "step": i, **big}, seed=i) for i in range(4)])
    _, sources = record_reads(GRIB(), absolute_url(path), ReadOptions())
    assert sum(length for source in sources for _, length in source.reads) < 0.02 * path.stat().st_size


def test_parameters_that_nobody_knows_have_names(tmp_path):
    unknown = {"discipline": 192, "parameterCategory": 5}
    path = write(tmp_path / "a.grib", [message({**unknown, "parameterNumber": n}, seed=n) for n in (7, 8)])
    found = read_virtually(path)
    assert set(found.data_vars) == {"unknown_192_5_7", "unknown_192_5_8"}
    for name, (_, values) in zip(found.data_vars, fields_of(path), strict=True):
        np.testing.assert_array_equal(found[name].values.reshape(-1), values)


def test_fields_of_several_kinds_are_refused_or_a_tree(tmp_path):
    levels = [{"typeOfLevel": "isobaricInhPa", "level": n} for n in (500, 850)]
    fields = [message({"shortName": "t", **x}, seed=i) for i, x in enumerate([*levels, {"typeOfLevel": "surface"}])]
    path = write(tmp_path / "a.grib", fields)
    with pytest.raises(UnsupportedFeatureError, match=r"typeOfLevel.*open_virtual_datatree"):
        vs.open_virtual_dataset(path)
    tree = vs.open_virtual_datatree(path)
    assert set(tree.groups) == {"/", "/isobaricInhPa", "/isobaricInhPa/instant", "/surface", "/surface/instant"}
    for level in ("isobaricInhPa", "surface"):
        expected = cfgrib(path, filter_by_keys={"typeOfLevel": level})
        found = read_virtually(path, group=f"{level}/instant")
        xr.testing.assert_equal(found, expected)
        xr.testing.assert_equal(tree[f"{level}/instant"].to_dataset().virtual.open().load(), expected)


def places(path, **options):
    """Give the group that each field of a file is in, by its offset."""
    found = {}
    for node in vs.open_virtual_datatree(path, reader=vs.readers.GRIB(**options)).subtree:
        for variable in node.data_vars.values():
            entries = variable.variable._data.in_memory().entries.reshape(-1)
            found |= dict.fromkeys(entries["offset"][entries["location"] >= FIRST].tolist(), node.path)
    return found


def test_where_a_field_is_follows_from_its_own_keys(tmp_path):
    """Names of groups, whatever else is there; and with by_kind=True also whether there are groups."""
    small, members = {"Ni": 5, "Nj": 3}, {"productDefinitionTemplateNumber": 1, "dataType": "pf"}
    kinds = [{}, small, {"dataType": "an"}, members | {"number": 1}, small | members | {"number": 1}]
    fields = [message({"shortName": "t", **kind}, seed=n) for n, kind in enumerate(kinds)]
    alone = [places(write(tmp_path / "a.grib", [field]), by_kind=True)[0] for field in fields]
    assert len(set(alone)) == len(kinds)
    assert all(re.fullmatch(r"/surface/instant/(af|an|pf)_regular_ll_\d+_[0-9a-f]{6}(_number)?", x) for x in alone)
    for n in range(2, len(kinds) + 1):
        for some in itertools.combinations(range(len(kinds)), n):
            path = write(tmp_path / "a.grib", [fields[i] for i in some])
            assert [group for _, group in sorted(places(path).items())] == [alone[i] for i in some]
    assert places(write(tmp_path / "a.grib", fields[:1])) == {0: "/surface/instant"}


def test_variables_of_a_group_share_their_levels(tmp_path):
    """A level that a variable has in no field is EMPTY; one that it should have is ABSENT."""
    levels = {"t": (500, 700, 850), "u": (500, 850)}
    fields = [
        message({"shortName": name, "typeOfLevel": "isobaricInhPa", "level": level, "step": step})
        for name, its in levels.items()
        for level, step in itertools.product(its, (0, 6))
    ]
    path = write(tmp_path / "a.grib", fields[:-1])
    node = vs.open_virtual_datatree(path)["isobaricInhPa/instant"]
    assert node.isobaricInhPa.values.tolist() == [850, 700, 500]
    codes = node.u.variable._data.in_memory().entries["location"].reshape(2, 3)
    assert np.minimum(codes, FIRST).tolist() == [[FIRST, EMPTY, FIRST], [ABSENT, EMPTY, FIRST]]


@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
def test_damaged_messages_are_named(sample, tmp_path):
    """Those that are cut short, have no end, or sections that do not fit; junk is not taken for one."""
    a, b = message({"shortName": "t"}, sample=sample), message({"shortName": "u"}, sample=sample)
    at = 8 if sample == GRIB1 else 16
    for data, offset in (
        (a + b[:-10], len(a)),
        (a + b[:-4] + b"7778", len(a)),
        (a[:at] + bytes(4) + a[at + 4 :] + b, 0),
    ):
        path = write(tmp_path / "a.grib", [data])
        with pytest.raises(MalformedFileError, match=f"at byte {offset}") as caught:
            group_of(path, GRIB())
        assert caught.value.offset == offset
    with pytest.raises(MalformedFileError, match="no GRIB message"):
        vs.open_virtual_dataset(write(tmp_path / "b.grib", [b"GRIB is text here" * 99]))


def test_many_damaged_messages_take_no_longer_than_their_bytes(tmp_path, monkeypatch):
    """The bytes behind each were copied to look for the next one: half a mebibyte for 20 of them."""
    n_copied, rest = 0, _Window.rest

    def count(window, offset, /):
        nonlocal n_copied
        n_copied += len(found := rest(window, offset))
        return found

    monkeypatch.setattr(_Window, "rest", count)
    (tmp_path / "x.grib2").write_bytes((b"GRIB\0\0\0\2" + (20).to_bytes(8) + b"7777") * 20_000)
    with pytest.raises(MalformedFileError, match="damaged message at byte 0"):
        vs.open_virtual_dataset(tmp_path / "x.grib2")
    assert n_copied < 20_000 * (1 << 13)


def test_single_and_double_precision_agree():
    """Where values are decoded in float32, they are those of float64, rounded."""
    rng = np.random.default_rng(0)
    n_float = 0
    for trial in range(200):
        values = (rng.random(24) - rng.random()) * 10.0 ** rng.integers(-8, 9) + rng.choice([0, 1, 1000, -3e5])
        packing = rng.choice(["grid_simple", "grid_ccsds"])
        data = message(
            {"shortName": "t", "bitsPerValue": int(rng.integers(1, 32))}, values=values, after={"packingType": packing}
        )
        with opened(data) as handle:
            n_float += eccodes.codes_get(handle, "decimalScaleFactor") == 0
        expected = values_of_message(data)
        np.testing.assert_array_equal(grib_decoder({"row": 6}, (4, 6))(data).reshape(-1), expected, str(trial))
    assert n_float > 50


@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
@pytest.mark.parametrize("value", [0.0, 280.3, -1e-7, 1e30, 3.4028234663852886e38])
@pytest.mark.parametrize("decimal", [0, 2, 0x8001])
def test_fields_of_one_value_are_those_of_eccodes(sample, value, decimal):
    """Of which no bits are kept; eccodes leaves the decimal scale out, whatever it is."""
    data = bytearray(message(sample=sample, values=np.full(24, value)))
    at = 8 + 26 if sample == GRIB1 else section(data, 5) + 17
    data[at : at + 2] = decimal.to_bytes(2, "big")
    with opened(data) as handle:
        assert eccodes.codes_get(handle, "bitsPerValue") == 0
        assert abs(eccodes.codes_get(handle, "decimalScaleFactor")) == decimal & 0xFF
    expected = values_of_message(data)
    expected[expected == np.finfo("f4").max] = np.nan
    np.testing.assert_array_equal(grib_decoder({"row": 6}, (4, 6))(bytes(data)).reshape(-1), expected)


@pytest.mark.parametrize("edition", [1, 2])
def test_harmonics_are_those_of_eccodes(edition):
    data = edited(f"sh_ml_grib{edition}", values=np.random.default_rng(0).normal(size=65 * 64))
    np.testing.assert_array_equal(grib_decoder({})(data), values_of_message(data))


def changed(data, kind, at, new):
    """Put bytes into a section of GRIB 2."""
    at += section(data, kind)
    return data[:at] + new + data[at + len(new) :]


HOSTILE_GRIDS = {
    "no such template": (12, (0xABCD).to_bytes(2, "big")),
    "many points in a row": (30, (10**9).to_bytes(4, "big")),
    "many points": (6, (4 * 10**8).to_bytes(4, "big") + bytes(20) + (2 * 10**4).to_bytes(4, "big") * 2),
}


@pytest.mark.parametrize("hostile", HOSTILE_GRIDS)
def test_grids_that_cannot_be_made_out_are_refused(hostile, tmp_path):
    """And no others; eccodes would abort the process where it has no memory for all points."""
    good, bad = message({"shortName": "t"}), message({"shortName": "u", "typeOfLevel": "surface"})
    path = write(tmp_path / "a.grib2", [good, changed(bad, 3, *HOSTILE_GRIDS[hostile])])
    for open_ in (vs.open_virtual_dataset, vs.open_virtual_datatree):
        with pytest.raises(UnsupportedFeatureError, match=f"'/u.*the first one at byte {len(good)} of .*grid"):
            open_(path)
    with pytest.warns(UserWarning, match="'/u"):
        found = vs.open_virtual_dataset(path, unsupported="skip")
    xr.testing.assert_identical(found.virtual.open().load(), cfgrib(write(tmp_path / "b.grib2", [good])))


@pytest.mark.parametrize("octets", [bytes(8), (7).to_bytes(4, "big")], ids=["no points", "other points"])
def test_fields_whose_grid_contradicts_itself_keep_their_values(octets, tmp_path):
    """Beside a field with coordinates, whose points are not theirs."""
    good, bad = message({"shortName": "t"}), message({"shortName": "u", "typeOfLevel": "surface"})
    path = write(tmp_path / "a.grib2", [good, changed(bad, 3, 30, octets)])
    without_points(path, "u", "its grid")
    found = vs.open_virtual_dataset(path).virtual.open().load()
    expected = cfgrib(write(tmp_path / "b.grib2", [good]))
    xr.testing.assert_identical(found["t"].drop_attrs(), expected["t"].drop_attrs())


def test_fields_on_unknown_grids_join_only_if_their_grids_are_described_alike(tmp_path):
    """Their points cannot be compared, so that other bytes mean another grid."""

    def field(day, step):
        data = edited(projected("lambert", columns=0), {"iScansNegatively": 1, "dataDate": day, "DxInMetres": step})
        return write(tmp_path / f"{day}_{step}.grib2", [data])

    alike = [field(20200101, 9000), field(20200102, 9000)]
    joined = vs.open_virtual_mfdataset(alike).virtual.open()
    each = [vs.open_virtual_dataset(path).virtual.open()["t"].values for path in alike]
    np.testing.assert_array_equal(joined["t"].values, np.stack(each))
    with pytest.raises(UnsupportedFeatureError, match="md5GridSection"):
        vs.open_virtual_mfdataset([alike[0], field(20200102, 8000)])


def test_times_without_end_are_refused_where_eccodes_counts_them(tmp_path):
    """It counts day by day, up to millions of years."""
    far = changed(message({"shortName": "t"}), 4, 17, b"\7\x7f\xff\xff\xff")
    path = write(tmp_path / "a.grib2", [message({"shortName": "t"}), far])
    unitless = write(tmp_path / "b.grib2", [changed(message({"shortName": "t"}), 4, 17, b"\xff")])
    for endless in (path, unitless):
        with pytest.raises(MalformedFileError, match="ten thousand years"):
            vs.open_virtual_dataset(endless, reader=GRIB(time_dims=("valid_time",)))
    vds = vs.open_virtual_dataset(path, decode_times=False)
    assert vds.step.values[1] == pytest.approx(0x7FFFFFFF * 36525 * 24, rel=1e-3)


def test_steps_that_xarray_cannot_hold_are_refused_as_such(tmp_path):
    """Of more than 292 years; scalars are decoded when a file is opened."""
    path = write(tmp_path / "a.grib2", [changed(message({"shortName": "t"}), 4, 17, b"\4\x80\0\1\x2c")])
    with pytest.raises(vs.errors.VirtualStackError, match=r"step' of .* cannot be decoded.*decode_times=False"):
        vs.open_virtual_dataset(path)
    assert vs.open_virtual_dataset(path, decode_times=False)["step"].dtype.kind == "f"


def test_headers_that_eccodes_cannot_read_are_damaged(tmp_path):
    """Where it can make no message of them at all."""
    good = message({"shortName": "t"})
    bad = changed(message({"shortName": "u"}), 4, 0, (30).to_bytes(4, "big"))
    path = write(tmp_path / "a.grib2", [good, bad[: section(bad, 4) + 30] + bad[section(good, 5) :]])
    with pytest.raises(vs.errors.VirtualStackError, match=f"at byte {len(good)}"):
        vs.open_virtual_dataset(path)


def patched(data, changes):
    changed = bytearray(data)
    for place, octets in changes.items():
        changed[place : place + len(octets)] = octets
    return bytes(changed)


@pytest.mark.parametrize(
    ("sample", "changes"),
    [(GRIB1, {63: b"\x04\xff"}), (GRIB1, {63: b"\x04\x1d"}), (GRIB2, {114: b"\x00\x10"}), (GRIB2, {114: b"\x00\x01"})],
)
def test_coordinates_of_levels_that_have_no_room_are_damage(sample, changes, tmp_path):
    """eccodes reads on behind the section, and may crash."""
    path = write(tmp_path / "a.grib", [patched(message({"shortName": "t"}, sample=sample), changes)])
    with pytest.raises(MalformedFileError, match="no room for the"):
        vs.open_virtual_dataset(path)


def reduced(sample, *others):
    """Make a reduced Gaussian grid of 64 rows, of which some have other lengths."""
    size = 2 if sample[-1] == "1" else 4
    with opened(sample) as handle:
        data = eccodes.codes_get_message(handle)
        lengths = eccodes.codes_get_long_array(handle, "pl").astype(f">u{size}").tobytes()
    if lengths not in data:
        lengths = np.frombuffer(lengths, f">u{size}").astype(">u2").tobytes()
        size = 2
    return patched(data, {data.index(lengths) + 10 * size: b"".join(n.to_bytes(size, "big") for n in others)})


REDUCED = [f"reduced_{kind}_pl_32_grib{edition}" for kind in ("gg", "rotated_gg") for edition in (1, 2)]


@pytest.mark.parametrize("sample", REDUCED)
def test_rows_that_make_no_sense_are_damage(sample, tmp_path):
    """eccodes ends the process."""
    vs.open_virtual_dataset(write(tmp_path / "a.grib", [reduced(sample, 2)]), unsupported="skip")
    for others, reason in (((1,), "has a single point"), ((65535, 0), "of 32 parallels has 65535 points")):
        path = write(tmp_path / "a.grib", [reduced(sample, *others)])
        with pytest.raises(MalformedFileError, match=reason):
            vs.open_virtual_dataset(path)


def reduced_latlon(edition):
    """Make a reduced latitude-longitude grid of six rows."""
    keys = {"Nj": 6, "pl": np.array([4, 6, 8, 8, 6, 4])} | ({"numberOfDataPoints": 36} if edition == 2 else {})
    corners = {"latitudeOfFirst": 75, "latitudeOfLast": -75, "longitudeOfFirst": 0, "longitudeOfLast": 315}
    keys |= {f"{name}GridPointInDegrees": degrees for name, degrees in corners.items()}
    return edited(f"reduced_ll_sfc_grib{edition}", keys | {"jDirectionIncrementInDegrees": 30}, values=np.arange(36.0))


DAMAGED_ROWS = {
    "fewer points than rows have": (6, (30).to_bytes(4, "big"), "have 36 points together, and the grid has 30"),
    "lengths of no size": (10, b"\x82", "have 130 bytes"),
    "more rows than lengths": (34, (7).to_bytes(4, "big"), "has 7 rows, and lengths of 6"),
}


@pytest.mark.parametrize("damage", DAMAGED_ROWS)
def test_rows_of_a_latitude_longitude_grid_that_make_no_sense_are_damage(damage, tmp_path):
    """eccodes writes behind its lists of points, and the process ends."""
    at, octets, said = DAMAGED_ROWS[damage]
    good = reduced_latlon(2)
    xr.testing.assert_identical(*(open_(write(tmp_path / "a.grib2", [good])) for open_ in (read_virtually, cfgrib)))
    bad = changed(good, 3, at, octets)
    with pytest.raises(MalformedFileError, match=said):
        vs.open_virtual_dataset(write(tmp_path / "b.grib2", [bad]))


@pytest.mark.parametrize("key", ["values", "latitudes"])
@pytest.mark.parametrize("damage", DAMAGED_ROWS)
def test_rows_of_a_changed_message_are_damage(damage, key):
    """What was checked when the file was scanned may be others when a store is read."""
    at, octets, said = DAMAGED_ROWS[damage]
    with pytest.raises(CodecError, match=said):
        grib_decoder({"key": key}, (36,))(changed(reduced_latlon(2), 3, at, octets))


KERCHUNK_DTYPES = {"values": "f4", "latitude": "f8", "longitude": "f8"}


def by_kerchunks_codec(data, var, n):
    """Decode a message of ``n`` points as references that name kerchunk's codec do."""
    codec = Codec.from_config("numcodecs.grib", var=var)
    return decode(data, (codec,), np.dtype(KERCHUNK_DTYPES[var]), (n,))


@pytest.mark.parametrize("var", KERCHUNK_DTYPES)
@pytest.mark.parametrize("damage", DAMAGED_ROWS)
def test_kerchunks_codec_refuses_rows_that_make_no_sense(damage, var):
    """References may name any bytes; eccodes writes behind its lists of points, and the process ends."""
    pytest.importorskip("kerchunk")
    at, octets, said = DAMAGED_ROWS[damage]
    with pytest.raises(CodecError, match=said):
        by_kerchunks_codec(changed(reduced_latlon(2), 3, at, octets), var, 36)


def test_kerchunks_codec_survives_what_makes_eccodes_crash():
    """Coordinates, and packings other than the usual ones, are decoded in a child process."""
    pytest.importorskip("kerchunk")
    good = message({"shortName": "t"}, after={"packingType": "grid_second_order_no_SPD"})
    n = grib_decoder({}, None)(good).size
    assert by_kerchunks_codec(good, "values", n).size == n
    with pytest.raises(CodecError, match=r"is damaged: eccodes (crashed|ended its process)"):
        by_kerchunks_codec(changed(good, 5, 29, b"\xff"), "values", 9)  # as many as it says now
    grid = edited("regular_gg_sfc_grib2")
    with opened(grid) as handle:
        n = eccodes.codes_get_size(handle, "latitudes")
    with pytest.raises(CodecError, match=r"is damaged: eccodes (crashed|ended its process)"):
        by_kerchunks_codec(changed(grid, 3, 46, b"\x7f"), "latitude", n)


@pytest.mark.parametrize("var", KERCHUNK_DTYPES)
@pytest.mark.parametrize("packing", ["grid_simple", "grid_second_order_no_SPD"])
@pytest.mark.parametrize("dtype", [None, "float64", "float32"])
def test_kerchunks_codec_decodes_what_kerchunk_does(dtype, packing, var):
    """In this process or in another one, with missing values, and with any dtype."""
    codecs = pytest.importorskip("kerchunk.codecs")
    values = HOLES if packing == "grid_simple" else None
    data = message({"shortName": "t"}, values=values, after={"packingType": packing})
    expected = codecs.GRIBCodec(var, dtype).decode(data)
    codec = Codec.from_config("numcodecs.grib", var=var, dtype=dtype)
    np.testing.assert_array_equal(decode(data, (codec,), expected.dtype, expected.shape), expected)


MUTATED = """
import sys
from virtualstack.errors import VirtualStackError
from virtualstack.readers import GRIB, ReadOptions
from virtualstack.reading import read_array
from virtualstack.storage import Storage
path, begin, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
good = open(path, "rb").read()
for at in range(begin, end):
    for octet in {1, 0xFF} - {good[at]}:
        with open(path, "wb") as file:
            file.write(good[:at] + bytes([octet]) + good[at + 1 :])
        try:
            group = GRIB().read("file://" + path, Storage.from_option(None), ReadOptions(is_tree=True))
            for _, node in group.walk():
                for array in node.arrays.values():
                    read_array(array, ..., None)
        except VirtualStackError:
            pass
print("whole")
"""


@pytest.mark.parametrize("edition", [1, 2])
def test_no_byte_of_a_reduced_grid_ends_the_process(edition, tmp_path):
    """Each byte of the section of the grid is another one; errors are ours."""
    data = reduced_latlon(edition)
    begin, n_length = (section(data, 3), 4) if edition == 2 else (8 + int.from_bytes(data[8:11], "big"), 3)
    end = begin + int.from_bytes(data[begin : begin + n_length], "big")
    path = write(tmp_path / "a.grib", [data])
    assert run_python(MUTATED, path, begin, end, timeout=600) == "whole\n"


@pytest.mark.parametrize("sample", ["regular_gg_pl_grib2", "reduced_gg_pl_32_grib2"])
def test_gaussian_grids_without_end_are_refused(sample, tmp_path):
    """eccodes computes each parallel, and the time for one grows with their number."""
    data = changed(edited(sample), 3, 67, (1 << 20).to_bytes(4, "big"))
    with pytest.raises(MalformedFileError, match="1048576 parallels"):
        vs.open_virtual_dataset(write(tmp_path / "a.grib2", [data]))


@pytest.mark.parametrize("at", [19, 35, 36, 46])
@pytest.mark.parametrize("packing", ["grid_complex", "grid_complex_spatial_differencing"])
def test_numbers_of_too_many_bits_are_damage(packing, at, tmp_path):
    """eccodes ends the process."""
    data = message({"shortName": "t"}, after={"packingType": packing})
    vs.open_virtual_dataset(write(tmp_path / "a.grib2", [data]))
    path = write(tmp_path / "a.grib2", [changed(data, 5, at, b"\xff")])
    with pytest.raises(MalformedFileError, match="more than 64 bits"):
        vs.open_virtual_dataset(path)


DAMAGED_GRIDS = {
    ("regular_gg_sfc_grib2", "a first latitude of no parallel"): (46, b"\x7f"),
    ("regular_gg_sfc_grib2", "a basic angle"): (38, b"\x7f"),
    ("rotated_gg_sfc_grib2", "a basic angle"): (38, b"\x7f"),
    ("reduced_gg_pl_32_grib2", "a basic angle"): (38, b"\xff"),
}


ROTATED = ("rotated_gg_sfc_grib2", "a basic angle")  # takes eccodes seconds, as the regular grid does


@pytest.mark.parametrize(
    ("sample", "damage"), [pytest.param(*x, marks=pytest.mark.apart) if x == ROTATED else x for x in DAMAGED_GRIDS]
)
def test_grids_that_make_eccodes_crash_are_damage(sample, damage, tmp_path):
    """The crash is that of a child process, and the error names the file and the place of the message."""
    good = edited(sample)
    path = write(tmp_path / "a.grib2", [good, changed(good, 3, *DAMAGED_GRIDS[sample, damage])])
    with pytest.raises(MalformedFileError, match=r"'file://.*a\.grib2'.* eccodes crashed \(SIG.* byte \d+") as caught:
        vs.open_virtual_datatree(path)
    assert caught.value.offset == len(good)
    assert caught.value.url == path.as_uri()


def test_packed_values_that_make_eccodes_crash_are_damage():
    """Packings other than the usual ones are decoded in a child process."""
    data = message({"shortName": "t"}, after={"packingType": "grid_second_order_no_SPD"})
    np.testing.assert_array_equal(grib_decoder({}, None)(data), values_of_message(data))
    with pytest.raises(CodecError, match=r"is damaged: eccodes (crashed|ended its process)"):
        grib_decoder({}, None)(changed(data, 5, 29, b"\xff"))


@pytest.mark.parametrize("packing", ["grid_complex", "grid_complex_spatial_differencing"])
def test_groups_that_end_behind_the_message_are_damage(packing):
    """Eccodes makes values of the memory behind it, other ones each time."""
    values = np.random.default_rng(0).random(2400)
    data = message({"shortName": "t", "Ni": 60, "Nj": 40}, values=values, after={"packingType": packing})
    assert grib_decoder({}, None)(data).size == 2400
    at = 42  # WMO FM 92 GRIB2, templates 5.2 and 5.3: true length of the last group
    with pytest.raises(CodecError, match=r"packed values take \d+ bits, and it has \d+"):
        grib_decoder({}, None)(changed(data, 5, at, (1 << 16).to_bytes(4, "big")))


USUAL = ["grid_simple", "grid_ccsds", "grid_jpeg", "grid_png", "grid_complex", "grid_complex_spatial_differencing"]
LARGER = {"Ni": 60, "Nj": 40, "bitsPerValue": 8}  # eccodes has too little room for a PNG image of few points


@pytest.mark.parametrize("packing", USUAL)
def test_usual_packings_are_decoded_in_this_process(packing, monkeypatch):
    """A child process would take as long again for its answer."""
    monkeypatch.setattr("virtualstack.codecs.grib.codec.run_in_child", None)
    data = message({"shortName": "t", **LARGER}, values=np.arange(2400.0), after={"packingType": packing})
    np.testing.assert_array_equal(grib_decoder({}, None)(data), values_of_message(data))


@pytest.mark.parametrize(
    ("at", "octets"),
    [
        (5, b"?"),
        (16, b"\0"),
        (17, b"i"),
        (24, b"\0"),
        (28, b"\0"),
        (29, b"\x10"),
        (29, b"\x04"),
        (30, b"\2"),
        (30, b"\3"),
        (33, b"\1"),
        (38, b"\xff"),
        (-12, b"\0\0\0\1"),
        (-8, b"i"),
    ],
)
def test_png_images_that_eccodes_might_read_beyond_their_end_are_decoded_in_a_child(at, octets):
    """Signature, IHDR (ISO 15948, 11.2.2) or chunks that do not fit: the values are never of the memory behind them."""
    data = message({"shortName": "t", **LARGER}, values=np.arange(2400.0), after={"packingType": "grid_png"})
    assert is_safe(last_field(data))
    length = int.from_bytes(data[section(data, 7) :][:4], "big")
    assert not is_safe(last_field(changed(data, 7, at % length, octets)))


def test_what_damaged_messages_say_is_not_taken_for_others(tmp_path):
    """A local section that is none hides the grid from eccodes; the next file has the same grid, and shows it."""
    corner = {"latitudeOfLastGridPointInDegrees": 30, "longitudeOfLastGridPointInDegrees": 60}
    keys = {"Ni": 7, "Nj": 5, **corner}  # a grid that nobody has asked about before
    good = message({"shortName": "t", **keys}, sample=GRIB1)
    bad = write(tmp_path / "bad.grib", [patched(good, {48: b"\x21"})])
    with pytest.raises(UnsupportedFeatureError, match="it has no grid"):
        vs.open_virtual_dataset(bad)
    path = write(tmp_path / "good.grib", [good])
    xr.testing.assert_identical(read_virtually(path), cfgrib(path))


def test_coordinates_are_counted_before_they_are_made():
    """A message of bytes may describe a grid of any size."""
    data = edited("regular_ll_sfc_grib2", {"Ni": 2000, "Nj": 1000}, values=np.zeros(2_000_000))
    made = grib_decoder({"key": "latitudes"}, (10,))
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match="has 2000000 points; 10 are expected"):
            made(data)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
