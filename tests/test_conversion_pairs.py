"""Every form becomes every other and comes back: the same references, or an error that says what has no place."""

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.amount import ALL
from tests.data.netcdf4 import netcdf4_file, opened
from tests.joins import MINIMAL
from virtualstack.errors import ReaderError, WriterError
from virtualstack.manifests import ABSENT, EMPTY, INLINE
from virtualstack.readers import ReadOptions, find_reader
from virtualstack.reading import read_array
from virtualstack.storage import Storage
from virtualstack.vstack.save import save

icechunk = pytest.importorskip("icechunk", reason="icechunk is not installed: pip install 'virtualstack[icechunk]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore")  # of files that are odd, and of zarr's data types
]

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
FILES = sorted(path for path in (CORPUS / "hdf5").glob("*.nc*")) + sorted((CORPUS / "netcdf3").glob("*.nc"))
FORMS = "json", "parq", "vstack", "icechunk"
PAIRS = [pair for pair in itertools.product(FORMS, FORMS) if pair[0] != pair[1]]


def read(path):
    """Give the group that a form holds."""
    storage = Storage.from_option(None)
    return find_reader(path, storage).read(Path(path).absolute().as_uri().replace("%20", " "), storage, ReadOptions())


def references(array):
    """Give what each cell is: its place and codecs, its bytes, or what it reads as."""
    manifest = array.in_memory()
    starts = np.zeros(manifest.shape, np.int64) if manifest.starts is None else manifest.starts
    found = []
    for entry, start in zip(manifest.entries.reshape(-1).tolist(), starts.reshape(-1).tolist(), strict=True):
        location, encoding, offset, length = entry
        if location in (EMPTY, ABSENT):
            found.append((location, str(manifest.fills[encoding if location == EMPTY else 0])))
            continue
        codecs = str(manifest.encodings[encoding])
        data = manifest.inline[offset : offset + length] if location == INLINE else None
        place = None if data is not None else (manifest.locations[location - len((EMPTY, ABSENT, INLINE))].url, offset)
        found.append((place, data, length, codecs, start))
    return found


def as_texts(attributes):
    """Give dtypes and values, in which NaN is NaN."""
    return {name: (str(np.asarray(x).dtype), str(np.asarray(x).tolist())) for name, x in attributes.items()}


def effective(node):
    """Give attributes and coordinates, which a group's attribute ``coordinates`` may name, too."""
    attributes = as_texts(node.attributes)
    _, listed = attributes.pop("coordinates", (None, ""))
    names = {name for x in node.arrays.values() for name in str(x.attributes.get("coordinates", "")).split()}
    names = (node.coordinates | names | {*listed.split()}) & node.arrays.keys()
    return attributes, names


def assert_same(got, expected):
    """Compare groups: dims, grids, attributes, and each reference."""
    nodes, others = dict(got.walk()), dict(expected.walk())
    assert nodes.keys() == others.keys()
    for path, node in nodes.items():
        other = others[path]
        assert node.arrays.keys() == other.arrays.keys(), path
        assert effective(node) == effective(other), path
        for name, array in node.arrays.items():
            known = other.arrays[name]
            assert (array.shape, array.dtype, array.grid) == (known.shape, known.dtype, known.grid)
            assert array.dimension_names == known.dimension_names
            assert as_texts(array.attributes) == as_texts(known.attributes), name
            if array.dtype.names and references(array) != references(known):
                # records in an order of bytes, or with padding, for which zarr has no form are stored anew
                places = [x[0] for x in references(array) if len(x) == 5]
                assert all(place is None or "/b.icechunk/chunks/" in place[0] for place in places), name
                np.testing.assert_array_equal(read_array(array, ()), read_array(known, ()))
                continue
            for i, (found, wanted) in enumerate(zip(references(array), references(known), strict=True)):
                if len(wanted) == 2 and len(found) == 5:  # an absent chunk that kerchunk must write out
                    fill, dtype = known.manifest.tables.fill.value, known.dtype
                    assert not array.in_memory().encodings[0].codecs, name
                    np.testing.assert_array_equal(np.frombuffer(found[1], dtype), fill)
                else:
                    assert found == wanted, (name, i)


def there_and_back(source, first, second, folder):
    """Give what the first form holds before and after it was the second one; or the error that refused it."""
    a, b, c = (folder / f"{name}.{form}" for name, form in zip("abc", (first, second, first), strict=True))
    vs.convert(source, a, unsupported="skip")
    before = read(a)
    vs.convert(a, b)
    vs.convert(b, c)
    return before, read(c), c


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    """Files that differ as much as references of every form can hold: holes, inline chunks, groups, texts, scalars."""
    folder = tmp_path_factory.mktemp("cube")
    for i in range(3):
        values = None if i == 1 else np.random.default_rng(i).integers(0, 50, (4, 7, 5))  # None: nothing is written
        packing = {"_FillValue": -7, "scale_factor": 0.5, "add_offset": 10.0}
        raw, half = np.random.default_rng(i).random((4, 5)), np.full((2, 7), i)
        variables = {
            "half": ("f8", "time y", half, {"_FillValue": np.nan}, {"chunksizes": (2, 7)}),
            "time": ("f8", "time", np.arange(4) + 4 * i, {"units": "hours since 2000-01-01"}),
            "t": ("i2", "time y x", values, packing, {"zlib": True, "chunksizes": (2, 3, 5)}),
            "raw": (">f4", "time x", raw, {}, {"endian": "big", "chunksizes": (1, 5)}),
            "mask": ("u1", "y x", 1, {}, {"zlib": True, "shuffle": True}),
            "crs": ("i4", "", 3),
        }
        netcdf4_file(folder / f"{i} ä.nc", {"time": None, "y": 7, "x": 5}, variables, title="one of three")
    files = sorted(folder.glob("*.nc"))
    parts = [vs.open_virtual_dataset(file, loadable_variables=["time"]) for file in files]
    vds, expected = (
        xr.concat(datasets, "time", combine_attrs="override", **MINIMAL) for datasets in (parts, map(opened, files))
    )
    return vds, expected


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_cube_comes_back(cube, first, second, tmp_path):
    """Joined files, with chunks that are absent, inline, and of odd names."""
    vds, expected = cube
    vds.virtual.to_vstack(tmp_path / "cube.vstack")
    before, after, path = there_and_back(tmp_path / "cube.vstack", first, second, tmp_path)
    assert_same(after, before)
    found = vs.open_virtual_dataset(path).virtual.open().load()
    xr.testing.assert_equal(found, expected)
    assert found["t"].attrs == expected["t"].attrs


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_odd_attributes_come_back(first, second, tmp_path):
    """Numbers that JSON has no word for, fill values of another type than the values, texts of more than 512 bytes."""
    with h5py.File(tmp_path / "a.nc", "w") as file:
        v = file.create_dataset("v", data=np.arange(6, dtype="i2"))
        v.dims[0].label = "x"
        v.attrs["_FillValue"] = np.int8(-7)
        v.attrs["_FILLVALUE"] = np.float32(np.nan)
        v.attrs["limits"] = np.array([-np.inf, 1, np.nan])
        v.attrs["nothing"] = np.nan
        v.attrs["word"] = "NaN"
        f = file.create_dataset("f", data=np.arange(6, dtype="f4"))
        f.dims[0].label = "x"
        f.attrs["_FillValue"] = np.float64(np.nan)
        text = file.create_dataset("text", data=np.array([b"long" * 99] * 3, object), dtype=h5py.string_dtype())
        text.dims[0].label = "z"
        file.attrs["_NCPROPERTIES"] = np.array([1, 2], "i1")
    before, after, _ = there_and_back(tmp_path / "a.nc", first, second, tmp_path)
    assert_same(after, before)
    for name, array in read(tmp_path / "a.nc").arrays.items():
        assert as_texts(after.arrays[name].attributes) == as_texts(array.attributes)
    assert "_NCPROPERTIES" in after.attributes


@pytest.mark.parametrize("target", FORMS)
def test_missing_chunks_come_back_or_are_refused(tmp_path, target):
    """Only a vstack tells ABSENT from EMPTY: the others refuse by name, or take the fill value if told to."""
    t = ("f4", "x", np.arange(6), {"_FillValue": -1.0}, {"chunksizes": (2,)})
    netcdf4_file(tmp_path / "a.nc", {"x": 6}, {"t": t})
    group = read(tmp_path / "a.nc")
    entries = group.arrays["t"].in_memory().entries.copy()
    entries[1] = (ABSENT, 0, 0, 0)
    array = replace(group.arrays["t"], manifest=replace(group.arrays["t"].in_memory(), entries=entries))
    source, path = tmp_path / "source.vstack", tmp_path / f"target.{target}"
    save(replace(group, arrays={"t": array}), source)
    assert references(read(source).arrays["t"])[1][0] == ABSENT
    if target == "vstack":
        vs.convert(source, path)
        assert_same(read(path), read(source))
        return
    with pytest.raises(WriterError, match="variable 't' has 1 ABSENT chunk, ") as caught:
        vs.convert(source, path)
    assert (caught.value.variable, caught.value.feature) == ("t", "ABSENT chunks")
    assert not path.exists()
    vs.convert(source, path, absent="fill")
    found = vs.open_virtual_dataset(path).virtual.open().load()
    np.testing.assert_array_equal(found["t"], [0, 1, np.nan, np.nan, 4, 5])


@pytest.mark.parametrize("name", ["a b", "ä", "a%20b", "a#b", "a?b", "[a]"])
def test_icechunk_reads_files_in_folders_of_any_name(tmp_path, name):
    """Icechunk itself, which has containers for some names only."""
    (tmp_path / name).mkdir()
    expected = xr.Dataset({"v": ("x", np.arange(3.0))})
    expected.to_netcdf(tmp_path / name / f"{name}.nc")
    vs.convert(tmp_path / name / f"{name}.nc", tmp_path / f"{name}.icechunk", inline_limit=0)
    storage = icechunk.local_filesystem_storage(str(tmp_path / f"{name}.icechunk"))
    (prefix,) = icechunk.Repository.open(storage).config.virtual_chunk_containers
    access = {prefix: icechunk.credentials.LocalFileSystemAccess}
    session = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access).readonly_session("main")
    xr.testing.assert_identical(xr.open_zarr(session.store, consolidated=False, chunks=None).load(), expected)


def test_files_of_several_places(tmp_path):
    """Icechunk has no container of the root of all; a file in it, or in a folder that none holds, is refused."""
    zarray = {"zarr_format": 2, "shape": [2], "chunks": [1], "dtype": "<f8", "order": "C", "fill_value": None}
    references = {"v/.zarray": json.dumps({**zarray, "compressor": None, "filters": None})}
    for first, second in (("/a/b/c.nc", "/d/e.nc"), ("/a/b/c.nc", "/d.nc"), ("/a/b/c.nc", "/ä/d.nc")):
        chunks = {"v/0": [f"file://{first}", 0, 8], "v/1": [f"file://{second}", 0, 8]}
        (tmp_path / "a.json").write_text(json.dumps({"version": 1, "refs": references | chunks}))
        target = tmp_path / "a.icechunk"
        if second == "/d/e.nc":
            vs.convert(tmp_path / "a.json", target, inline_limit=0, allow="file:///")
            storage = icechunk.local_filesystem_storage(str(target))
            containers = icechunk.Repository.open(storage).config.virtual_chunk_containers
            assert sorted(containers) == ["file:///a/b/", "file:///d/"]
            shutil.rmtree(target)
        else:
            with pytest.raises(WriterError, match="which Icechunk cannot name"):
                vs.convert(tmp_path / "a.json", target, inline_limit=0, allow="file:///")
            assert not target.exists()


LARGE = {"ref_hdf5_compat1.nc", "ref_nccopy3_subset.nc"}
"""Files of hundreds of variables, each of which Icechunk takes long for."""


def _pairs_of(i, path):
    if not ALL and path.name in LARGE:
        return []
    return PAIRS if ALL else [PAIRS[i % len(PAIRS)]]


@pytest.mark.skipif(not FILES, reason="the shared corpus is not here: ../shared/corpus")
@pytest.mark.parametrize(
    ("path", "first", "second"),
    [(path, *pair) for i, path in enumerate(FILES) for pair in _pairs_of(i, path)],
    ids=lambda x: x.name if isinstance(x, Path) else x,
)
def test_real_files_come_back(path, first, second, tmp_path):
    """By one pair of forms each, and with VIRTUALSTACK_TESTS=all by every pair."""
    try:
        before, after, _ = there_and_back(path, first, second, tmp_path)
    except (WriterError, ReaderError) as error:
        assert getattr(error, "variable", None) or getattr(error, "feature", None) or error.url
        pytest.skip(f"refused by name: {str(error)[:300]}")
    assert_same(after, before)
