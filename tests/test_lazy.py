"""Virtual arrays in xarray and dask."""

import asyncio
import pickle
import warnings
from dataclasses import replace

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.arrays import inline_chunks
from virtualstack.codecs.codec import Codec
from virtualstack.errors import StorageError
from virtualstack.lazy import LazyArray, lazy_variable
from virtualstack.location import Location
from virtualstack.storage import MemoryTarget
from virtualstack.testing.strategies import store_array


def known(values, chunks, url="memory://lazy/a", **options):
    array, values, sources = store_array(values, chunks, url=url, **options)
    for key, raw in sources.items():
        MemoryTarget(key.rpartition("/")[0]).put(key.rpartition("/")[2], raw)
    return array, values


def strings(words):
    import numcodecs

    raw = numcodecs.VLenUTF8().encode(np.array(words, object))
    dtype = np.dtypes.StringDType()
    how = {"codecs": [Codec.from_config("vlen-utf8")], "fill": "", "dimension_names": ("w",)}
    return inline_chunks((len(words),), dtype, raw, **how)


def test_a_variable_reads_what_is_selected():
    """Basic, outer and vectorized selections give what they give of the values."""
    array, values = known(np.arange(60, dtype="f4").reshape(6, 10), (2, 3))
    lazy, plain = lazy_variable(array), xr.Variable(("d0", "d1"), values)
    assert isinstance(lazy._data, xr.core.indexing.LazilyIndexedArray)
    for key in (
        {"d0": 3},
        {"d0": slice(None, None, -2), "d1": slice(1, 9, 3)},
        {"d0": [4, 0, 4], "d1": [9, 1]},
        {"d0": xr.Variable("p", [5, 0, 2]), "d1": xr.Variable("p", [0, 9, 4])},
        {"d0": xr.Variable(("p", "q"), [[5, 0], [1, 1]])},
    ):
        xr.testing.assert_identical(lazy.isel(key).load(), plain.isel(key))
    xr.testing.assert_identical(lazy[::2][1:][:, 3].load(), plain[::2][1:][:, 3])


@pytest.mark.parametrize("key", [slice(None, -1, -1), slice(2, 4, -2), slice(0, 5, -1), slice(4, 2), slice(9, None)])
def test_slices_of_nothing(key):
    """Whatever their step: xarray's own way to turn a slice around fails where it selects nothing."""
    array, values = known(np.arange(60, dtype="f4").reshape(6, 10), (2, 3))
    lazy, plain = lazy_variable(array), xr.Variable(("d0", "d1"), values)
    xr.testing.assert_identical(lazy.isel(d0=key).load(), plain.isel(d0=key))
    xr.testing.assert_identical(lazy.isel(d0=[1, 0], d1=key).load(), plain.isel(d0=[1, 0], d1=key))


def test_loading_in_an_event_loop():
    """`load_async` gives the values, and other tasks go on meanwhile."""
    array, values = known(np.arange(60, dtype="f4").reshape(6, 10), (2, 3))
    at = np.array([5, 0])

    async def load(*keys):
        whole = lazy_variable(array)
        return await asyncio.gather(*(whole.isel(key).load_async() for key in keys))

    outer, points = asyncio.run(
        load({"d0": slice(None, None, -1), "d1": at}, {"d0": xr.Variable("q", at), "d1": xr.Variable("q", at)})
    )
    np.testing.assert_array_equal(outer, values[::-1, at])
    np.testing.assert_array_equal(points, values[at, at])


class Entrypoint(xr.backends.BackendEntrypoint):
    """Opens variables as an engine does."""

    def open_dataset(self, filename_or_obj, *, drop_variables=None):
        return xr.Dataset({"v": filename_or_obj})


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_dask_chunks_are_those_of_the_grid_if_wanted(scheduler):
    """`chunks={}` with tasks of 0 bytes gives the grid's cells, of different lengths too."""
    first, left = known(np.arange(10.0), (4,), url="memory://lazy/b")
    second, right = known(np.arange(7.0), (3,), url="memory://lazy/c")
    for array, values, chunks in (
        (first, left, (4, 4, 2)),
        (np.concatenate([first, second]), np.concatenate([left, right]), (4, 4, 2, 3, 3, 1)),
    ):
        variable = lazy_variable(replace(array, dimension_names=("x",)), task_bytes=0)
        opened = xr.open_dataset(variable, engine=Entrypoint, chunks={})
        assert opened.v.chunks == (chunks,)
        np.testing.assert_array_equal(opened.v.compute(scheduler=scheduler), values)


@pytest.mark.parametrize(
    ("task_bytes", "chunks"),
    [
        (8 * 2 * 3, ((2,) * 3, (3, 3, 3, 1))),  # a stored chunk fills a task
        (8 * 2 * 7, ((2,) * 3, (6, 4))),  # along the last axis first, in tasks of about one size
        (8 * 5 * 12, ((4, 2), (10,))),
        ("1 MiB", ((6,), (10,))),
    ],
)
def test_dask_tasks_merge_stored_chunks(task_bytes, chunks):
    """`chunks={}` gives tasks of about the bytes that are asked for, which cut no chunk; the values stay."""
    array, values = known(np.arange(60.0).reshape(6, 10), (2, 3), url="memory://lazy/d")
    variable = lazy_variable(replace(array, dimension_names=("y", "x")), task_bytes=task_bytes)
    opened = xr.open_dataset(variable, engine=Entrypoint, chunks={})
    assert opened.v.chunks == chunks
    np.testing.assert_array_equal(opened.v.compute(), values)


def test_tasks_of_cells_of_different_lengths():
    """A join of chunks of 4 and of 3 elements is cut at lines of cells, in tasks of at most 8 elements."""
    first, left = known(np.arange(10.0), (4,), url="memory://lazy/b")
    second, right = known(np.arange(7.0), (3,), url="memory://lazy/c")
    joined = replace(np.concatenate([first, second]), dimension_names=("x",))
    opened = xr.open_dataset(lazy_variable(joined, task_bytes=64), engine=Entrypoint, chunks={})
    assert opened.v.chunks == ((8, 8, 1),)
    np.testing.assert_array_equal(opened.v.compute(), np.concatenate([left, right]))


def test_packed_numbers_count_as_they_are_decoded():
    """Two bytes that become eight make tasks of a quarter of the chunks."""
    array, _ = known(np.arange(16, dtype="i2"), (2,), url="memory://lazy/p")
    packed = replace(array, cf={"scale_factor": 0.5}, dimension_names=("x",))
    assert dict(lazy_variable(packed, task_bytes=32).encoding["preferred_chunks"]) == {"x": 4}


def test_xarray_warns_only_of_chunks_that_cut_stored_ones():
    """Chunks of a user that follow the stored ones cut no chunk, though they cut merged ones."""
    array, values = known(np.arange(24.0), (2,), url="memory://lazy/w")
    variable = lazy_variable(replace(array, dimension_names=("x",)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened = xr.open_dataset(pickle.loads(pickle.dumps(variable)), engine=Entrypoint, chunks={"x": 10})
    assert opened.v.chunks == ((10, 10, 4),)
    np.testing.assert_array_equal(opened.v.compute(), values)
    with pytest.warns(UserWarning, match="separate the stored chunks"):
        xr.open_dataset(variable, engine=Entrypoint, chunks={"x": 3})


def test_strings_are_objects():
    """Strings are presented as xarray's netCDF backends do: objects of the vlen dtype."""
    variable = lazy_variable(strings(["a", "", "länger"]))
    assert variable.dtype == object
    assert xr.coding.strings.check_vlen_dtype(variable.dtype) is str
    assert variable.load().values.tolist() == ["a", "", "länger"]
    assert type(variable.values[0]) is str


def test_lazy_arrays_pickle():
    """A copy in another process reads the same."""
    array, values = known(np.arange(12, dtype="i2").reshape(3, 4), (2, 2), is_inline=True)
    copy = pickle.loads(pickle.dumps(LazyArray(array)))
    np.testing.assert_array_equal(copy.get_duck_array(), values)
    assert repr(copy).startswith("LazyArray(ManifestArray<")


def test_attributes_that_change_values_come_from_the_array():
    """What `cf` says wins over the attributes."""
    array, _ = known(np.arange(3.0), (3,))
    array = replace(array, attributes={"units": "K", "scale_factor": 1.0}, cf={"scale_factor": 2.0})
    variable = lazy_variable(array)
    assert variable.attrs == {"units": "K", "scale_factor": 2.0}
    assert variable.encoding["source"] == "memory://lazy/a"
    assert variable.encoding["chunks"] == (3,)
    assert variable.encoding["fill_value"] == 0


def test_missing_chunks_raise_where_asked():
    """A ABSENT chunk is its fill, or an error."""
    array, values = known(np.arange(4.0), (2,), holes=np.array([0, 2], np.uint8), fill=-1)
    np.testing.assert_array_equal(lazy_variable(array).values, values)
    with pytest.raises(StorageError, match="ABSENT"):
        lazy_variable(array, absent="raise").values  # noqa: B018


def test_a_sparse_table_of_locations_has_no_source():
    """Several sources are no one source."""
    array, _ = known(np.arange(3.0), (3,))
    two = replace(array.manifest, locations=(*array.manifest.locations, Location("memory://lazy/other")))
    assert "source" not in lazy_variable(replace(array, manifest=two)).encoding


def test_a_file_is_stored_again_as_it_was(tmp_path):
    """Chunks and filters come back with ``to_netcdf``, as they do from the engine of netCDF4."""
    values = xr.Dataset({"a": (("y", "x"), np.arange(20.0).reshape(4, 5))})
    encoding = {"chunksizes": [2, 5], "zlib": True, "complevel": 7, "shuffle": True, "fletcher32": True}
    values.to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding={"a": encoding})
    with xr.open_dataset(tmp_path / "a.nc", engine="virtualstack") as opened:
        opened.to_netcdf(tmp_path / "b.nc", engine="netcdf4")
    with netCDF4.Dataset(tmp_path / "b.nc") as file:
        assert file["a"].chunking() == encoding.pop("chunksizes") == [2, 5]
        assert file["a"].filters().items() >= encoding.items()


@pytest.mark.parametrize(("target", "levels"), [("vstack", (7, 2)), ("parq", (7, 7))])
def test_a_part_of_a_cube_is_compressed_as_its_files(tmp_path, target, levels):
    """Filters survive in cubes of many files, packed and not; levels that decode alike are those of the first file."""
    paths = [tmp_path / f"{i}.nc" for i in range(2)]
    for i, path in enumerate(paths):
        values = xr.Dataset({name: (("t", "x"), np.full((2, 4), 0.5 + i)) for name in "ab"}, {"t": [2 * i, 2 * i + 1]})
        stored = {"chunksizes": [1, 4], "zlib": True, "complevel": levels[i], "shuffle": True}
        packed = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
        values.to_netcdf(path, engine="netcdf4", encoding={"a": stored, "b": stored | packed})
    vds = vs.open_virtual_mfdataset(paths)
    write = vds.virtual.to_vstack if target == "vstack" else vds.virtual.to_kerchunk
    write(tmp_path / f"cube.{target}")
    with xr.open_dataset(tmp_path / f"cube.{target}", engine="virtualstack") as opened:
        opened.isel(t=slice(1, 3)).to_netcdf(tmp_path / "part.nc", engine="netcdf4")
    with netCDF4.Dataset(tmp_path / "part.nc") as file:
        for name, dtype in {"a": "f8", "b": "i2"}.items():
            assert file[name].filters().items() >= {"zlib": True, "complevel": 7, "shuffle": True}.items()
            assert file[name].dtype == dtype


def test_records_of_netcdf3_are_no_chunk_sizes(tmp_path):
    """A million times would become a million chunks."""
    xr.Dataset({"t": ("t", [1.0, 2.0, 3.0]), "a": ("t", [1.0, 2.0, 3.0])}).to_netcdf(
        tmp_path / "a.nc", engine="netcdf4", format="NETCDF3_CLASSIC", unlimited_dims="t"
    )
    with xr.open_dataset(tmp_path / "a.nc", engine="virtualstack") as opened:
        assert opened["t"].encoding["chunks"] == (1,)
        assert "chunksizes" not in opened["t"].encoding


DECODED = {
    "fill": ("<f4", {"_FillValue": 3}),
    "two fills": ("<f8", {"_FillValue": 3, "missing_value": 5}),
    "packed": ("<i2", {"_FillValue": 3, "scale_factor": np.float32(0.01), "add_offset": np.float32(2)}),
    "packed to doubles": ("<i4", {"scale_factor": 0.1}),
    "unsigned": ("|i1", {"_FillValue": -1, "_Unsigned": "true"}),
    "big endian": (">i2", {}),
    "big endian, fill": (">f4", {"_FillValue": 3}),
}


@pytest.mark.filterwarnings("ignore:.*multiple fill values")
@pytest.mark.parametrize("kind", DECODED)
@pytest.mark.parametrize("filters", [{}, {"compression": "gzip", "shuffle": True}], ids=["raw", "gzip"])
def test_decoding_by_chunks(kind, filters, tmp_path, monkeypatch):
    """Threads that decode chunks mask and scale to the bytes that xarray gives of the whole array."""
    monkeypatch.setattr("virtualstack.reading.decode._UNPACKED_BYTES", 100)
    dtype, attrs = DECODED[kind]
    with h5py.File(tmp_path / "a.nc", "w") as file:
        fill = attrs.get("_FillValue", 0)
        variable = file.create_dataset("v", (12, 40, 30), dtype, chunks=(1, 20, 30), fillvalue=fill, **filters)
        variable[:7] = np.random.default_rng(0).integers(-9, 9, (7, 40, 30))  # the others are EMPTY
        as_attr = {"_FillValue", "missing_value"}
        for name, value in attrs.items():
            variable.attrs[name] = np.array(value, dtype) if name in as_attr else value
        for axis, name in enumerate("tyx"):
            file[name] = np.arange(variable.shape[axis])
            file[name].make_scale(name)
            variable.dims[axis].attach_scale(file[name])
    with xr.open_dataset(tmp_path / "a.nc", engine="netcdf4") as opened:
        expected = opened["v"].load().variable
    found = xr.open_dataset(tmp_path / "a.nc", engine="virtualstack")["v"].variable
    assert found.dtype == expected.dtype
    assert "ElementwiseFunction" not in repr(found._data)
    for key in (
        {},
        {"t": 3},
        {"t": 9},
        {"t": slice(None, None, -2), "y": slice(1, 39, 3)},
        {"t": [4, 0, 9, 4], "x": [29, 1]},
        {"t": xr.Variable("p", [5, 8, 2]), "y": xr.Variable("p", [0, 9, 24])},
        {"t": 2, "y": 4, "x": 7},
    ):
        values = found.isel(key).copy().values
        assert values.dtype == expected.dtype
        assert values.tobytes() == expected.isel(key).values.tobytes()


def test_warnings_of_steps_follow_the_user(tmp_path):
    """What numpy is told to ignore, or to raise, holds in the threads that decode chunks, too."""
    packed = xr.Dataset({"v": (("t", "x"), np.full((8, 30_000), 300, "f4"), {"scale_factor": np.float32(3e38)})})
    packed.to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding={"v": {"chunksizes": (1, 30_000)}})
    lazy = xr.open_dataset(tmp_path / "a.nc", engine="virtualstack")["v"]
    with np.errstate(over="ignore"):
        assert np.isinf(lazy.copy().values).all()
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        lazy.copy().values  # noqa: B018
