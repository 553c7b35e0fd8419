"""``vds.virtual.write``: other values in a region of a virtual dataset, in a file beside what stays as it is."""

import json
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import load
from tests.vstack.growing import dataset, virtual, write
from virtualstack.errors import SourceNotFoundError, StorageError, WriterError
from virtualstack.manifests import ChunkManifest

pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine")


@pytest.fixture
def source(tmp_path):
    """A file of five days, in chunks of two days, 3 latitudes and 4 longitudes."""
    return write(tmp_path / "0.nc", dataset(range(5)))


@pytest.fixture(params=["refs.json", "refs.parq"])
def references(request, tmp_path, source):
    target = str(tmp_path / request.param)
    virtual(source).virtual.to_kerchunk(target)
    return target


def changed(plain, name, region, new):
    made = plain.copy(deep=True)
    values = np.array(made[name].values)
    values[tuple(region.get(dim, slice(None)) for dim in made[name].dims)] = new
    return made.assign({name: made[name].copy(data=values)})


def contents(folder):
    return {str(x): x.read_bytes() for x in sorted(Path(folder).rglob("*")) if x.is_file()}


def test_references_become_new_ones(tmp_path, references, source):
    """Any regions, one over the other; what was there stays, byte by byte, and kerchunk's engine reads the new ones."""
    pytest.importorskip("kerchunk")
    rng = np.random.default_rng(5)
    plain = xr.load_dataset(source)
    before = contents(tmp_path)
    for i in range(12):
        name = str(rng.choice(["t", "rain"]))
        region = {}
        for dim, n in plain[name].sizes.items():
            start = int(rng.integers(0, n))
            region[dim] = [start, slice(start, int(rng.integers(start + 1, n + 1))), slice(None)][int(rng.integers(3))]
        new = (rng.integers(0, 100, plain[name].isel(region).shape) * 0.5).astype(plain[name].dtype)
        plain = changed(plain, name, region, new)
        vds = vs.open_virtual_dataset(references).virtual.write(name, region, new, to=tmp_path / f"new-{i}.chunks")
        references = str(tmp_path / f"new-{i}{Path(references).suffix}")
        vds.virtual.to_kerchunk(references, inline_limit=0)
        xr.testing.assert_identical(load(references), plain)
        xr.testing.assert_identical(vds.virtual.open().load(), plain)
        if i % 4 == 3:
            other = xr.open_dataset(references, engine="kerchunk").load()
            for key in plain.variables:
                np.testing.assert_array_equal(other[key], plain[key])
    after = contents(tmp_path)
    assert {key: after[key] for key in before} == before


def test_the_manifest_stays_where_it_is(tmp_path, source):
    """Of references that are read a page at a time; what it gives can be pickled and changed again."""
    virtual(source).virtual.to_kerchunk(tmp_path / "refs.parq")
    vds = vs.open_virtual_dataset(str(tmp_path / "refs.parq"))
    assert not isinstance(vds["t"].variable._data.manifest, ChunkManifest)
    made = vds.virtual.write("t", {"time": slice(2, 3), "lat": slice(1, 5), "lon": 7}, 1.0, to=tmp_path / "a")
    made = pickle.loads(pickle.dumps(made)).virtual.write("t", {"time": 4}, 2.0, to=tmp_path / "b")
    assert not isinstance(made["t"].variable._data.manifest, ChunkManifest)
    plain = xr.load_dataset(source)
    wanted = changed(changed(plain, "t", {"time": slice(2, 3), "lat": slice(1, 5), "lon": 7}, 1.0), "t", {"time": 4}, 2)
    xr.testing.assert_identical(made.virtual.open().load(), wanted)
    xr.testing.assert_identical(vds.virtual.open().load(), plain)


def test_chunks_are_stored_as_those_beside_them(tmp_path, source):
    """With the codecs of the file, a whole chunk at the edge too, so that nothing is re-encoded."""
    made = virtual(source).virtual.write("t", {"time": 4}, 1.5, to=tmp_path / "new")
    manifest = made["t"].variable._data.manifest.compact()
    assert len(manifest.encodings) == 1
    assert len(manifest.locations) == 2
    assert made.virtual.report().set_index("variable").kerchunk["t"] == "as it is"


@pytest.mark.parametrize("store", ["netcdf", "vstack"])
def test_other_sources_are_changed_too(tmp_path, source, store):
    """Files, and what a store holds; the store itself stays."""
    url = source
    if store != "netcdf":
        url = str(tmp_path / "x.vstack")
        virtual(source).virtual.to_vstack(url)
    made = virtual(url).virtual.write("rain", {"time": slice(1, 4), "lat": 2}, [0.2, np.nan, 7.0], to=tmp_path / "new")
    plain = xr.load_dataset(source)
    wanted = changed(plain, "rain", {"time": slice(1, 4), "lat": 2}, [0.0, np.nan, 7.0])
    xr.testing.assert_identical(made.virtual.open().load(), wanted)
    made.virtual.to_vstack(tmp_path / "new.vstack")
    xr.testing.assert_identical(load(str(tmp_path / "new.vstack")), wanted)
    xr.testing.assert_identical(load(url) if store != "netcdf" else xr.load_dataset(url), plain)


def test_views_and_mixed_chunks(tmp_path, source):
    """A cube of two encodings, cut, turned and reversed: its new chunks are compressed with zstd."""
    other = write(tmp_path / "1.nc", dataset(range(5, 9), seed=1), t={"zlib": False, "chunksizes": [1, 6, 8]})
    parts = [virtual(source), virtual(other)]
    cube = xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override")
    plain = xr.concat([xr.load_dataset(x) for x in (source, other)], "time", data_vars="minimal", coords="minimal",
                      compat="override")  # fmt: skip
    for i, view in enumerate(
        (
            lambda x: x,
            lambda x: x.isel(time=slice(1, 8), lat=slice(1, 6)),
            lambda x: x.isel(lat=slice(None, None, -1), lon=slice(1, None, 2)),
            lambda x: x.transpose("lon", "lat", "time"),
        )
    ):
        region = {"time": slice(2, 5), "lat": slice(1, 3), "lon": slice(0, 3)}
        new = np.arange(18, dtype="f4").reshape(3, 2, 3)
        seen = view(plain)
        t = xr.DataArray(new, dims=("time", "lat", "lon"))
        wanted = changed(seen, "t", region, t.transpose(*seen["t"].dims).values)
        made = view(cube).virtual.write("t", region, t, to=tmp_path / f"{i}.chunks")
        xr.testing.assert_equal(made.virtual.open().load(), wanted)
        made.virtual.to_vstack(tmp_path / f"{i}.vstack")
        xr.testing.assert_equal(load(str(tmp_path / f"{i}.vstack")), wanted)


def test_axes_stored_in_another_order(tmp_path):
    """Zarr's ``order: "F"``, big-endian and with chunks longer than the array."""
    zarr = pytest.importorskip("zarr")
    stored = np.arange(30, dtype=">i4").reshape(5, 6)
    array = zarr.create_array(
        str(tmp_path / "x.zarr"), name="t", shape=(5, 6), chunks=(7, 4), dtype=">i4", order="F", zarr_format=2,
        fill_value=-1,
    )  # fmt: skip
    array[:] = stored
    root = tmp_path / "x.zarr" / "t"
    refs = {".zgroup": '{"zarr_format": 2}', "t/.zarray": (root / ".zarray").read_text()}
    refs["t/.zattrs"] = '{"_ARRAY_DIMENSIONS": ["y", "x"]}'
    refs |= {f"t/0.{i}": [str(root / f"0.{i}")] for i in range(2)}
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    vds = vs.open_virtual_dataset(str(tmp_path / "refs.json"), loadable_variables=[])
    made = vds.virtual.write("t", (slice(1, 3), slice(2, 6)), 7, to=tmp_path / "new")
    stored[1:3, 2:6] = 7
    made.virtual.to_kerchunk(tmp_path / "new.json", inline_limit=0)
    found = load(str(tmp_path / "new.json"))["t"]
    np.testing.assert_array_equal(np.nan_to_num(found.values), stored)
    metadata = json.loads(json.loads((tmp_path / "new.json").read_text())["refs"]["t/.zarray"])
    assert (metadata["order"], metadata["dtype"], metadata["chunks"]) == ("F", ">i4", [7, 4])


def test_scalars_and_text(tmp_path):
    """An array without axes, and strings of any length."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("s", data=np.float64(3))
        file.create_dataset("b", data=np.arange(4, dtype="u1").reshape(2, 2), chunks=(1, 2), compression="gzip")
    vds = vs.open_virtual_dataset(str(tmp_path / "x.h5"), loadable_variables=[])
    made = vds.virtual.write("s", ..., 4.5, to=tmp_path / "s").virtual.write(
        "b", (0, slice(1, 2)), 9, to=tmp_path / "b"
    )
    found = made.virtual.open().load()
    assert float(found["s"]) == 4.5
    np.testing.assert_array_equal(found["b"].values, [[0, 9], [2, 3]])


def test_trees(tmp_path):
    """By path; other groups stay."""
    tree = xr.DataTree.from_dict({"/": dataset(range(3)), "/a": dataset(range(3), seed=1)})
    tree.to_netcdf(tmp_path / "tree.nc", engine="netcdf4")
    vdt = vs.open_virtual_datatree(str(tmp_path / "tree.nc"))
    made = vdt.virtual.write("/a/t", {"time": 1}, 5.0, to=tmp_path / "new")
    made.virtual.to_kerchunk(tmp_path / "new.json")
    plain = xr.open_datatree(tmp_path / "tree.nc")
    found = xr.open_datatree(str(tmp_path / "new.json"), engine="virtualstack")
    assert (found["a/t"][1].values == 5).all()
    np.testing.assert_array_equal(found["a/t"][::2], plain["a/t"][::2])
    np.testing.assert_array_equal(found["t"], plain["t"])


def test_what_cannot_be_written_is_refused(tmp_path, source):
    """By its reason, before a file is there."""
    vds = virtual(source)
    new = tmp_path / "new"
    for name, region, value, error, match in (
        ("rain", {"time": 0}, 1e6, WriterError, "cannot be stored in variable"),
        ("t", {"time": 0}, np.zeros(3), WriterError, r"shape \(3,\) were given for a region of shape \(6, 8\)"),
        ("t", {"time": slice(0, 4, 2)}, 0, ValueError, "without a step"),
        ("t", {"level": 0}, 0, ValueError, r"region names \['level'\]"),
        ("wind", ..., 0, KeyError, "no virtual variable 'wind'"),
        ("lat", ..., 0, ValueError, "values of variable 'lat' are loaded"),
    ):
        with pytest.raises(error, match=match):
            vds.virtual.write(name, region, value, to=new)
    assert not new.exists()
    assert vds.virtual.write("t", {"time": slice(0, 0)}, 1, to=new).identical(vds)
    assert not new.exists()


def test_a_file_that_is_there_stays(tmp_path, source):
    """It may hold what other references need."""
    vds = virtual(source)
    before = Path(source).read_bytes()
    with pytest.raises(WriterError, match=r"already exists.*Give the name of a new file"):
        vds.virtual.write("t", {"time": 0}, 1, to=source)
    assert Path(source).read_bytes() == before


def test_what_is_lost_is_not_made_up(tmp_path, source):
    """Chunks that are covered in part are read, and others are not."""
    vds = virtual(source)
    Path(source).rename(tmp_path / "away.nc")
    with pytest.raises(SourceNotFoundError) as caught:
        vds.virtual.write("t", {"time": 0}, 1.0, to=tmp_path / "new")
    assert "covers whole chunks" in caught.value.__notes__[0]
    made = vds.virtual.write("t", {"time": slice(0, 2)}, 1.0, to=tmp_path / "new")
    assert (made[["t"]].isel(time=slice(0, 2)).virtual.open()["t"] == 1).all()


def test_what_has_no_place_among_packed_numbers_is_compressed_with_zstd(tmp_path, source):
    """Where the packing is a codec; kerchunk, which wants all chunks alike, refuses it."""
    made = virtual(source, unpack=True).virtual.write("rain", {"time": slice(0, 2)}, 0.3, to=tmp_path / "new")
    wanted = changed(xr.load_dataset(source), "rain", {"time": slice(0, 2)}, 0.3)
    xr.testing.assert_equal(made.virtual.open().load(), wanted)
    with pytest.raises(WriterError, match="cannot be written as kerchunk references"):
        made.virtual.to_kerchunk(tmp_path / "new.json", inline_limit=0)


def test_errors_of_storage(tmp_path, source):
    """A folder that cannot be written to."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        virtual(source).virtual.write("t", {"time": 0}, 1, to=tmp_path / "file" / "new")
