"""Names of dimensions, and attributes, as netCDF-C and netCDF4-python give them."""

import random

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5d, h5t

from tests.corpus.report import CORPUS, corpus_files
from tests.data.hdf5_parts import dataset_of, properties
from tests.formats.groups import group_of, values_of
from virtualstack.manifests.plain import why_not_plain
from virtualstack.readers import HDF5


def read(path):
    # netCDF-C does not look at the StructMetadata of HDF-EOS5
    return group_of(path, HDF5(eos_dimensions=False))


def same(theirs, ours):
    if isinstance(theirs, np.ndarray):
        return isinstance(ours, np.ndarray) and theirs.dtype == ours.dtype and np.array_equal(theirs, ours)
    return type(theirs) is type(ours) and (theirs == ours or theirs != theirs)


def compare(theirs, ours, path=""):
    """Give what differs in dimensions, variables and attributes, group by group."""
    found = compare_attributes(theirs, ours.attributes, path or "/")
    lengths = {name: len(dim) for name, dim in theirs.dimensions.items()}
    if lengths.items() - ours.dimensions.items():
        found.append(f"{path}: dimensions {lengths}, ours {dict(ours.dimensions)}")
    unlimited = {name for name, dim in theirs.dimensions.items() if dim.isunlimited()}
    if unlimited != ours.unlimited & lengths.keys():
        found.append(f"{path}: unlimited {unlimited}, ours {ours.unlimited}")
    for name, variable in theirs.variables.items():
        if name not in ours.arrays:
            refused = {x.path for x in ours.refusals}
            found += [] if f"{path}/{name}" in refused else [f"{path}/{name} is missing"]
            continue
        array = ours.arrays[name]
        # where a name is that of two dimensions, here and above, netCDF4 gives the length of one for both
        is_plain = not any(is_hidden(theirs, dim) for dim in variable.dimensions)
        if variable.dimensions != array.dimension_names or (is_plain and variable.shape != array.shape):
            found.append(f"{path}/{name}: {variable.dimensions}, ours {array.dimension_names}")
        found += compare_attributes(variable, array.attributes, f"{path}/{name}")
    for name, child in theirs.groups.items():
        found += compare(child, ours.groups[name], f"{path}/{name}")
    return found


def is_hidden(group, name):
    n_found = 0
    while group is not None:
        n_found, group = n_found + (name in group.dimensions), group.parent
    return n_found > 1


def compare_attributes(theirs, ours, path):
    found = []
    for name in theirs.ncattrs():
        try:
            value = theirs.getncattr(name)
        except KeyError:
            continue  # netCDF4 does not know its type
        has_fields = getattr(value, "dtype", np.dtype("f8")).names is not None
        is_latin1 = isinstance(value, str) and "\ufffd" in value
        if not (has_fields or is_latin1 or (name in ours and same(value, ours[name]))):
            found.append(f"{path}@{name}: {value!r}, ours {ours.get(name)!r}")
    return found


def check_as_netcdf4(path, group):
    """Compare a group with the file as netCDF4 shows it; skip a file that netCDF4 cannot open."""
    try:
        theirs = netCDF4.Dataset(path)
    except OSError as error:
        pytest.skip(f"netCDF4 cannot open it: {error}")
    with theirs:
        assert compare(theirs, group) == []


@pytest.mark.skipif(not corpus_files(), reason=f"no corpus at {CORPUS}")
@pytest.mark.parametrize("path", corpus_files(), ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore:.*unsupported.*:UserWarning")
def test_corpus_as_netcdf4_shows_it(path):
    """Dimensions, their lengths, which grow, and attributes with their types are those of netCDF4."""
    check_as_netcdf4(path, read(path))


# not compounds of what has a name of its own, such as bool: netCDF-C reads them from the second time on
DTYPES_OF_RANDOM = ["f4", "i2", "S1", "?", "V3", [("a", "i4")], h5py.ref_dtype, h5py.vlen_dtype("i4")]


def build_random(path, seed):
    """Groups, dimension scales with and without a variable, attached to some axes of some datasets."""
    rng = random.Random(seed)
    with h5py.File(path, "w", track_order=rng.random() < 0.5) as file:
        groups, scales = [file], []
        for i in range(rng.randint(0, 3)):
            groups.append(rng.choice(groups).create_group(f"g{rng.randint(0, 99)}_{i}", track_order=rng.random() < 0.5))
        for group in groups:
            for i in range(rng.randint(0, 3)):
                n = rng.choice([2, 3, 4])
                scale = group.create_dataset(f"{rng.choice('abxyz')}s{i}", (n,), "f4")
                bare = f"This is a netCDF dimension but not a netCDF variable.{n:10d}"
                scale.make_scale(
                    bare if rng.random() < 0.2 else scale.name.split("/")[-1] if rng.random() < 0.7 else ""
                )
                scales.append((group, scale))
        for group in groups:
            above = [
                scale
                for owner, scale in scales
                if owner.name == group.name or group.name.startswith(owner.name.rstrip("/") + "/")
            ]
            for i in range(rng.randint(0, 4)):
                shape = tuple(rng.choice([2, 3, 4]) for _ in range(rng.randint(0, 3)))
                dataset = group.create_dataset(f"{rng.choice('abxyz')}v{i}", shape, rng.choice(DTYPES_OF_RANDOM))
                fitting = [[scale for scale in above if scale.shape[0] == n] for n in shape]
                if shape and all(fitting) and rng.random() < 0.6:
                    for axis, choice in enumerate(fitting):
                        dataset.dims[axis].attach_scale(rng.choice(choice))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.filterwarnings("ignore:.*unsupported.*:UserWarning")
def test_random_files_as_netcdf4_shows_them(seed, tmp_path):
    """Scales of this group and those above name axes; phony dimensions have netCDF-C's numbers."""
    path = tmp_path / "random.h5"
    build_random(path, seed)
    with netCDF4.Dataset(path) as theirs:
        assert compare(theirs, read(path)) == []


NOT_NUMBERS = {
    "reference": h5t.STD_REF_OBJ,
    "region": h5t.STD_REF_DSETREG,
    "bits": h5t.STD_B8LE,
    "array": h5t.array_create(h5t.STD_I32LE, (2,)),
    "float16": h5t.IEEE_F16LE,
    "three bytes": "V3",
    "bool": "?",
    "text": h5py.string_dtype(),
    "sequence": h5py.vlen_dtype("i4"),
    "sequence of float16": h5py.vlen_dtype("f2"),
    "sequence of text": h5t.vlen_create(h5t.py_create(h5py.string_dtype(), logical=True)),
    "sequence of sequences": h5t.vlen_create(h5t.vlen_create(h5t.STD_I32LE)),
    "sequence of bool": h5py.vlen_dtype("?"),
    "compound": [("a", "i4"), ("b", "f8", (2,)), ("c", "S3")],
    "compound with bool": [("a", "?")],
    "compound with float16": [("a", "f2")],
    "compound with compound": [("a", [("b", "i4")])],
    "compound with reference": [("a", "i4"), ("b", h5py.ref_dtype)],
    "compound with text": [("a", h5py.string_dtype())],
    "compound with texts": [("a", "S3", (2,))],
    "compound with bools": [("a", "?", (2,))],
}


@pytest.mark.parametrize("what", NOT_NUMBERS)
@pytest.mark.filterwarnings("ignore:.*unsupported.*:UserWarning")
def test_other_types_count_as_netcdf_counts_them(what, tmp_path):
    """An axis of a type that netCDF-C reads has a number, others have none there, also above."""
    path, tid = tmp_path / "x.h5", NOT_NUMBERS[what]
    with h5py.File(path, "w") as file:
        if not isinstance(tid, h5t.TypeID):
            tid = h5t.py_create(np.dtype(tid), logical=True)
        group = file.create_group("group")
        dataset_of(group, "a", tid, (3,))
        group.create_dataset("b", (7,), "f4")
        file.create_dataset("z", (5,), "f4")
    with netCDF4.Dataset(path) as theirs:
        for metadata in ("auto", "own", "library"):
            ours = group_of(path, HDF5(metadata=metadata))
            assert compare(theirs, ours) == []


def test_odd_names_of_netcdf(tmp_path):
    """A coordinate of two axes, one dimension twice, a variable named like a dimension, an inherited dimension."""
    path = tmp_path / "odd.nc"
    with netCDF4.Dataset(path, "w") as nc:
        for name, n in {"t": None, "n": 3, "bare": 4}.items():
            nc.createDimension(name, n)
        nc.createVariable("t", "f8", ("t",))[:] = [1, 2]
        nc.createVariable("n", "f8", ("n", "bare"))[:] = 0
        nc.createVariable("square", "f8", ("n", "n"))[:] = 1
        nc.createVariable("bare", "f8", ("n",))[:] = 5
        nc.createVariable("scalar", "i4", ())[...] = 6
        group = nc.createGroup("g")
        group.createDimension("n", 5)
        group.createVariable("below", "f4", ("t", "n", "bare"), fill_value=-1)[:] = 7
        group.createVariable("short", "f4", ("t",))[:1] = 8
        nc.setncatts({"text": "é", "empty": "", "one": np.int16(3), "list": ["a", "bb"], "many": np.arange(3.0)})
        nc.setncattr_string("string", "x")
        nc["square"].setncatts({"valid_range": np.array([0, 1], "i2"), "nan": np.nan})
    with netCDF4.Dataset(path) as theirs:
        ours = read(path)
        assert compare(theirs, ours) == []
    assert ours.arrays["square"].dimension_names == ("n", "n")
    assert ours.arrays["bare"].dimension_names == ("n",)
    assert ours.dimensions == {"t": 2, "n": 3, "bare": 4}
    assert ours.unlimited == {"t"}
    assert ours.groups["g"].arrays["below"].cf["_FillValue"] == np.float32(-1)


DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "S1")


def raw_netcdf4(path, name):
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        return file[name][...]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [1, 2, 3, 512])
def test_records_that_were_never_filled(dtype, chunk, tmp_path):
    """With NC_NOFILL, missing records past the end of a variable are netCDF's default fill, not zeros."""
    path = tmp_path / "nofill.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("t", "i4", ("t",))[:] = range(7)
        ones = np.full((4, 3), b"a") if dtype == "S1" else np.ones((4, 3), dtype)
        options = {"chunksizes": (chunk, 2)}
        file.createVariable("unfilled", dtype, ("t", "x"), fill_value=False, **options)[:4] = ones
        file.createVariable("zipped", dtype, ("t", "x"), fill_value=False, zlib=True, **options)[:4] = ones
        file.createVariable("own", dtype, ("t", "x"), fill_value=b"q" if dtype == "S1" else 9, **options)[:4] = ones
        file.set_fill_off()
        file.createVariable("off", dtype, ("t", "x"), **options)[:4] = ones
        file.createVariable("off_own", dtype, ("t", "x"), fill_value=b"q" if dtype == "S1" else 9, **options)[:4] = ones
        file.createVariable("never", dtype, ("t", "x"), **options)
    for name in ("unfilled", "zipped", "own", "off", "off_own", "never"):
        np.testing.assert_array_equal(values_of(read(path).arrays[name]), raw_netcdf4(path, name), err_msg=name)


@pytest.mark.parametrize(
    ("fill_time", "fill", "past_end"),
    [
        (h5d.FILL_TIME_IFSET, None, -2147483647),
        (h5d.FILL_TIME_NEVER, None, -2147483647),
        (h5d.FILL_TIME_ALLOC, 7, 7),
        (h5d.FILL_TIME_NEVER, 7, 7),
    ],
)
@pytest.mark.parametrize("written", [2, 5, 6])
def test_records_past_the_end_of_what_hdf5_wrote(fill_time, fill, past_end, written, tmp_path):
    """A dataset without a fill value of its own is extended by netCDF's default; chunks it has keep HDF5's."""
    path = tmp_path / "short.h5"
    with h5py.File(path, "w") as file:
        file["t"] = np.arange(11)
        file.create_dataset("u", (11,), "i4", maxshape=(None,), chunks=(4,))[...] = 1
        file["u"].make_scale("u")
        dcpl = properties(chunk=((2,),), fill_time=(fill_time,))
        if fill is not None:
            dcpl.set_fill_value(np.array(fill, "i4"))
        dataset_of(file, "x", h5t.STD_I32LE, (written,), dcpl, maxshape=(None,))
        file["x"][-1:] = 3
        file["x"].dims[0].attach_scale(file["u"])
    found = values_of(read(path).arrays["x"])
    assert found[written:].tolist() == raw_netcdf4(path, "x")[written:].tolist() == [past_end] * (11 - written)
    with h5py.File(path) as file:  # netCDF-C leaves its buffer as it was where HDF5 does not fill
        np.testing.assert_array_equal(found[:written], file["x"][...])
    array = read(path).arrays["x"]
    assert (why_not_plain(array) is None) is (written == 2 or (fill, fill_time) == (7, h5d.FILL_TIME_ALLOC))


def test_a_short_variable_along_a_huge_dimension(tmp_path):
    """What is missing is one hole where a cell for each chunk would be more than a manifest holds."""
    path = tmp_path / "huge.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("t", (1 << 40,), "i1", maxshape=(None,), chunks=(1 << 30,))
        file["t"].make_scale("t")
        file.create_dataset("x", (2,), "i4", maxshape=(None,), chunks=(1,))[...] = [3, 4]
        file["x"].dims[0].attach_scale(file["t"])
    array = read(path).arrays["x"]
    assert array.shape == (1 << 40,)
    assert array.grid.shape == (3,)
    assert values_of(array, (slice(0, 4),)).tolist() == [3, 4, -2147483647, -2147483647]


def test_attributes_that_have_no_counterpart_are_noted(tmp_path):
    """Compounds, references to regions and ragged attributes are left out, and recorded; the others stay."""
    path = tmp_path / "attributes.h5"
    with h5py.File(path, "w") as file:
        file.attrs["latin"] = np.bytes_("å".encode("latin-1"))
        file.attrs["bool"] = True
        file.attrs["null"] = h5py.Empty("f4")
        file.attrs["null_text"] = h5py.Empty("S1")
        file.attrs["two_axes"] = np.arange(4).reshape(2, 2)
        file.attrs["record"] = np.zeros(1, [("a", "i4")])
        file.attrs["reference"] = file.ref
        file.attrs["region"] = file.create_dataset("x", (3,), "f4").regionref[:2]
        file.attrs.create("ragged", np.array([np.arange(2), np.arange(3)], object), dtype=h5py.vlen_dtype("i4"))
        file.attrs["CLASS"] = "hidden"
    group = read(path)
    assert group.attributes["latin"] == "å"
    assert group.attributes["bool"] == np.True_
    assert group.attributes["null"].shape == (0,)
    assert group.attributes["null_text"] == ""
    assert group.attributes["two_axes"].shape == (2, 2)
    assert group.attributes["reference"] == "/"
    assert "CLASS" not in group.attributes
    assert {x.path: x.kind for x in group.refusals} == {f"/@{x}": "noted" for x in ("record", "region", "ragged")}
