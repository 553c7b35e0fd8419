"""Record files of kerchunk parquet: which are read when, and what becomes of those that are not as they should be."""

import json
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

import virtualstack as vs
from tests.kerchunk.reading import parquet_bytes, read
from virtualstack.errors import (
    ChunkAlignmentError,
    MalformedFileError,
    ManifestError,
    SourceChangedError,
    SourceNotFoundError,
    UnsupportedFeatureError,
)
from virtualstack.kerchunk.document import parquet_files
from virtualstack.kerchunk.reader import read_references
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.location import absolute_url
from virtualstack.manifests import PagedManifest
from virtualstack.storage import Storage
from virtualstack.zarr.metadata.version2 import make_hierarchy

VALUES = np.arange(24, dtype="<i4").reshape(6, 4)


def references(folder):
    """Six rows of two chunks of the array ``v``, the time ``t`` and a scalar, all in one file."""
    (folder / "data.bin").write_bytes(VALUES.tobytes() + np.arange(6, dtype="<i4").tobytes() + b"\7\0\0\0")

    def array(shape, chunks, dims):
        zarray = {"shape": shape, "chunks": chunks, "dtype": "<i4", "compressor": None, "filters": None}
        zarray |= {"fill_value": None, "order": "C", "zarr_format": 2}
        return json.dumps(zarray), json.dumps({"_ARRAY_DIMENSIONS": dims})

    refs = {".zgroup": '{"zarr_format": 2}'}
    for name, shape, chunks, dims in (("v", [6, 4], [1, 2], ["t", "x"]), ("t", [6], [6], ["t"]), ("s", [], [], [])):
        refs[f"{name}/.zarray"], refs[f"{name}/.zattrs"] = array(shape, chunks, dims)
    url = str(folder / "data.bin")
    refs |= {f"v/{i}.{j}": [url, 16 * i + 8 * j, 8] for i in range(6) for j in range(2)}
    return refs | {"t/0": [url, 96, 24], "s/0": [url, 120, 4]}


def write(folder, refs, record_size=3):
    """Write parquet of few records a file."""
    shutil.rmtree(folder, ignore_errors=True)
    group = read_references({"version": 1, "refs": refs}, base_url=str(folder.parent))
    for key, data in parquet_files(make_hierarchy(group, shares_chunks=True), record_size=record_size):
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)


@pytest.fixture
def refs(tmp_path):
    write(tmp_path / "refs.parq", references(tmp_path))
    return tmp_path / "refs.parq"


@pytest.fixture
def opened(monkeypatch):
    """The names of the files that are opened, in their order."""
    names, open_ = [], Storage._open

    def recorded(self, url, expected):
        if expected is None:
            names.append(url.partition("refs.parq/")[2] or url.rpartition("/")[2])
        return open_(self, url, expected)

    monkeypatch.setattr(Storage, "_open", recorded)
    return names


def values_of(refs, *key):
    """Read a part of the array ``v`` of references."""
    return vs.reading.read_array(read(refs)["v"], key)


def change_metadata(refs, **changes):
    """Write other members into .zmetadata; those of ``metadata`` that have other names stay."""
    document = json.loads((refs / ".zmetadata").read_bytes())
    changes["metadata"] = document["metadata"] | changes.get("metadata", {})
    (refs / ".zmetadata").write_text(json.dumps(document | changes))


def zarray_of_v(refs):
    return json.loads((refs / ".zmetadata").read_bytes())["metadata"]["v/.zarray"]


def test_opening_reads_metadata_and_loaded_coordinates(refs, opened):
    """Each way of opening; a selection then reads the record files that its chunks are in, once."""
    assert read(refs).arrays.keys() == {"v", "t", "s"}
    assert opened == [".zmetadata"]
    vds = vs.open_virtual_dataset(refs)
    repr(vds)
    vds.virtual.open()
    assert sorted(set(opened) - {".zmetadata", "refs.parq"}) == ["t/refs.0.parq"]
    opened.clear()
    row = vds.isel(t=2).virtual.open()
    assert opened == []
    assert row.v.load().values.tolist() == VALUES[2].tolist()
    assert opened == ["v/refs.1.parq"]
    with xr.open_dataset(refs, engine="virtualstack") as values:
        opened.clear()
        np.testing.assert_array_equal(values.v.isel(t=slice(1, 5)).load(), VALUES[1:5])
        assert sorted(opened) == ["v/refs.0.parq", "v/refs.1.parq", "v/refs.2.parq", "v/refs.3.parq"][:4]
        assert values.s.item() == 7


def test_what_lies_between_is_not_read(refs, opened):
    """Steps, lists and points read the record files that they meet, through the lazy dataset."""
    with xr.open_dataset(refs, engine="virtualstack") as values:
        v = values.v
    points = xr.DataArray([5, 0, 5], dims="p"), xr.DataArray([3, 0, 2], dims="p")
    for found, expected in (
        (v.isel(t=[5, 0]), VALUES[[5, 0]]),
        (v.isel(t=slice(None, None, 5)), VALUES[::5]),
        (v.isel(t=points[0], x=points[1]), VALUES[[5, 0, 5], [3, 0, 2]]),
    ):
        np.testing.assert_array_equal(found, expected)
    assert sorted(name for name in opened if name.startswith("v/")) == ["v/refs.0.parq", "v/refs.3.parq"]


def test_lazy_references_are_what_json_has(refs, tmp_path):
    """The same arrays, and to_kerchunk writes them back."""
    json_refs = references(tmp_path)
    lazy, whole = read(refs), read_references({"version": 1, "refs": json_refs}, base_url=str(tmp_path))
    for name, array in whole.arrays.items():
        assert isinstance(lazy[name].manifest, PagedManifest)
        assert lazy[name].equals(array)
        assert lazy[name].attributes == array.attributes
    written = write_kerchunk(lazy, None)["refs"]
    assert {key: x for key, x in written.items() if isinstance(x, list)} == {
        key: [absolute_url(x[0]), *x[1:]] for key, x in json_refs.items() if isinstance(x, list)
    }


def test_joining_two_keeps_both_unread(refs, opened):
    """xr.concat of two lazily opened sets of references compares what both have alone; a point of it reads one file."""
    one, two = (vs.open_virtual_dataset(refs) for _ in range(2))
    opened.clear()
    joined = xr.concat([one, two], "t", data_vars="minimal")
    assert opened == ["s/refs.0.parq"] * 2
    opened.clear()
    values = joined.virtual.open().v
    assert values.isel(t=7, x=1).item() == VALUES[1, 1]
    assert opened == ["v/refs.0.parq"]
    np.testing.assert_array_equal(values, np.concatenate([VALUES, VALUES]))


def test_dask_and_other_processes_read_what_they_need(refs):
    """What is opened lazily pickles small, and reads in a spawned process."""
    array = read(refs)["v"]
    assert len(pickle.dumps(array)) < 4000
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(_first_row, pickle.dumps(array)).result() == VALUES[0].tolist()
    with xr.open_dataset(refs, engine="virtualstack", chunks={}) as values:
        np.testing.assert_array_equal(values.v.compute(), VALUES)


def _first_row(data):
    array = pickle.loads(data)
    assert array.manifest.summary() is None
    return vs.reading.read_array(array, (0,)).tolist()


def test_scanning_in_processes_and_with_a_cache(refs, tmp_path, opened):
    """A scan gives lazy groups, by workers and a second time, when a cache has nothing to add."""
    for _ in range(2):
        (group,) = vs.scan([refs], cache=tmp_path / "cache")
        np.testing.assert_array_equal(vs.reading.read_array(group["v"], ()), VALUES)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        (group,) = vs.scan([refs], executor=pool)
    assert isinstance(group["v"].manifest, PagedManifest)
    np.testing.assert_array_equal(vs.reading.read_array(group["v"], ()), VALUES)


def test_a_zarr_store_serves_what_is_opened_lazily(refs, opened):
    """ManifestStore of one array reads the record files of the chunks that are asked for."""
    zarr = pytest.importorskip("zarr")
    store = vs.ManifestStore(read(refs))
    opened.clear()
    array = zarr.open_group(store, mode="r")["v"]
    assert opened == []
    assert array[2].tolist() == VALUES[2].tolist()
    assert [name for name in opened if "parq" in name] == ["v/refs.1.parq"]
    np.testing.assert_array_equal(array[...], VALUES)
    assert store == vs.ManifestStore(read(refs))


def test_damaged_record_files_are_errors_when_they_are_read(refs):
    """They are named with their array; the others still read."""
    good = (refs / "v/refs.1.parq").read_bytes()
    table = pq.read_table(refs / "v/refs.1.parq")
    offsets = pa.array([-5, 1, 1], pa.int64())
    cases = {
        b"PAR1": "'v/refs.1.parq' of '.*refs.parq' is not a parquet table of references",
        good[:-20]: "is not a parquet table of references",
        parquet_bytes(table.slice(0, 2)): "'v/refs.1.parq' of '.*' has 2 rows; expected 3",
        parquet_bytes(
            table.set_column(1, "offset", offsets)
        ): r"'v/refs.1.parq' of '.*': chunk \(0,\) .* has a negative offset",
    }
    for data, message in cases.items():
        (refs / "v/refs.1.parq").write_bytes(data)
        array = read(refs)["v"]
        assert vs.reading.read_array(array, (0,)).tolist() == VALUES[0].tolist()
        for _ in range(2):
            with pytest.raises(MalformedFileError, match=message) as error:
                vs.reading.read_array(array, (2,))
        assert error.value.url == absolute_url(refs / "v/refs.1.parq")
    (refs / "v/refs.1.parq").write_bytes(good)
    assert vs.reading.read_array(array, (2,)).tolist() == VALUES[2].tolist()


def test_another_record_size_than_the_files_have_is_an_error(refs):
    """Chunks would be taken for others: with a smaller one as with a larger one; the last file may be filled up."""
    for size, message in (
        (2, "has 3 rows, but the 'record_size' of these references is 2"),
        (4, "has 3 rows; expected 4"),
    ):
        change_metadata(refs, record_size=size)
        for key in ((), (3, 1)):
            with pytest.raises(MalformedFileError, match=message):
                values_of(refs, *key)
    change_metadata(refs, record_size=3)
    table = pq.read_table(refs / "t/refs.0.parq")
    (refs / "t/refs.0.parq").write_bytes(parquet_bytes(pa.concat_tables([table] + [table] * 2)))
    assert vs.reading.read_array(read(refs)["t"], ()).tolist() == list(range(6))


def test_a_record_size_beyond_all_arrays_is_an_error(refs):
    array = zarray_of_v(refs) | {"shape": [1 << 61], "chunks": [1]}
    (refs / "v/refs.0.parq").unlink()
    change_metadata(refs, record_size=1 << 48, metadata={"v/.zarray": array, "v/.zattrs": {}})
    assert values_of(refs, slice(0, 2)).shape == (2,)
    change_metadata(refs, record_size=1 << 61)
    with pytest.raises(MalformedFileError, match=r"'record_size' 2305843009213693952"):
        read(refs)


def test_more_axes_than_numpy_broadcasts_are_unsupported(refs):
    arrays = [zarray_of_v(refs) | {"shape": [1] * n, "chunks": [1] * n} for n in (32, 33)]
    change_metadata(refs, metadata={"w/.zarray": arrays[0], "w/.zattrs": {}})
    assert vs.reading.read_array(read(refs)["w"], ()).ndim == 32
    change_metadata(refs, metadata={"w/.zarray": arrays[1]})
    with pytest.raises(UnsupportedFeatureError, match="has 33 axes; at most 32 are read"):
        vs.open_virtual_dataset(refs)


def test_a_record_file_of_any_size_is_not_read(refs, monkeypatch):
    """What is larger than a record file can be is refused by its size."""
    monkeypatch.setattr("virtualstack.kerchunk.parquet_table._MAX_BYTES", 100)
    with pytest.raises(MalformedFileError, match=r"'v/refs.0.parq' of '.*refs.parq' has \d+ bytes") as error:
        values_of(refs, 0)
    assert error.value.url == absolute_url(refs / "v/refs.0.parq")


def test_references_into_archives_are_errors_when_they_are_read(refs):
    """Members of a zip file have no byte ranges; file, array and remedy are named."""
    table = pq.read_table(refs / "v/refs.0.parq")
    paths = pa.array(["zip://a.nc::s3://b/c.zip"] * 3)
    (refs / "v/refs.0.parq").write_bytes(
        parquet_bytes(table.set_column(table.column_names.index("path"), "path", paths))
    )
    with pytest.raises(
        UnsupportedFeatureError, match=r"'v/refs.0.parq' of '.*': 'zip://a.nc::s3://b/c.zip' is reached"
    ):
        values_of(refs, 0)


@pytest.mark.parametrize("chunks", [None, {}])
@pytest.mark.parametrize("n_values", [10, 0])
def test_references_with_the_same_metadata_are_told(tmp_path, n_values, chunks):
    """References to other bytes of arrays that are alike are not those that were opened; the same ones are."""
    for name, values in (("x", np.arange(10.0)), ("y", np.arange(n_values) + 100.0)):
        with h5py.File(tmp_path / f"{name}.nc", "w") as file:
            file.create_dataset("v", (10,), "f8", chunks=(5,))
            if values.size:
                file["v"][:] = values
    written = {name: vs.open_virtual_dataset(tmp_path / f"{name}.nc", loadable_variables=[]) for name in "xy"}
    refs = tmp_path / "refs.parq"
    written["x"].virtual.to_kerchunk(refs)
    opened = xr.open_dataset(refs, engine="virtualstack", chunks=chunks)
    virtual = vs.open_virtual_dataset(refs, loadable_variables=[])
    written["x"].virtual.to_kerchunk(refs)
    np.testing.assert_array_equal(opened["v"][:5], np.arange(5))
    opened = xr.open_dataset(refs, engine="virtualstack", chunks=chunks)
    written["y"].virtual.to_kerchunk(refs)
    for dataset in (opened, virtual.virtual.open()):
        with pytest.raises(SourceChangedError, match=r"refs.parq/.zmetadata' changed after it was indexed"):
            dataset["v"].to_numpy()


def test_references_that_were_written_anew_are_told(refs, tmp_path):
    """Record files of other references than those that were opened are never taken for theirs; nor is nothing."""
    array = read(refs)["v"]
    changed = references(tmp_path) | {"v/0.0": [str(tmp_path / "data.bin"), 96, 8]}
    write(refs, changed | {".zattrs": '{"title": "anew"}'})
    with pytest.raises(SourceChangedError, match=r"refs.parq/.zmetadata' changed after it was indexed"):
        vs.reading.read_array(array, (0,))
    assert values_of(refs, 0).tolist() == [0, 1, 2, 3]
    array = read(refs)["v"]
    shutil.rmtree(refs)
    with pytest.raises(SourceNotFoundError, match=r"refs.parq/.zmetadata"):
        vs.reading.read_array(array, (0,))


def test_whole_files_are_measured_when_their_chunks_are_read(tmp_path, opened):
    """The size of a file that is a chunk is asked for with the chunk, not for all of its record file."""
    write(tmp_path / "refs.parq", references(tmp_path), record_size=12)
    table = {"path": list(map(str, files_of_chunks(tmp_path))), "offset": [0] * 12, "size": [0] * 12}
    records = pa.table({**table, "raw": pa.nulls(12, pa.binary())})
    (tmp_path / "refs.parq/v/refs.0.parq").write_bytes(parquet_bytes(records))
    array = read(tmp_path / "refs.parq")["v"]
    opened.clear()
    box = array.manifest.read((slice(3, 4), slice(0, 2)))
    assert sorted(opened) == ["3.0", "3.1", "v/refs.0.parq"]
    assert box.entries["length"].tolist() == [[8, 8]]
    np.testing.assert_array_equal(vs.reading.read_array(array, ()), VALUES)


def files_of_chunks(folder):
    """Write each chunk of ``v`` to a file of its own, named by its cell."""
    cells = [(i, j) for i in range(6) for j in range(2)]
    for i, j in cells:
        (folder / f"{i}.{j}").write_bytes(VALUES[i, 2 * j : 2 * j + 2].tobytes())
    return [folder / f"{i}.{j}" for i, j in cells]


def whole_files(folder):
    """References of which each chunk of ``v`` is a file, three to a record file."""
    refs = references(folder) | {f"v/{path.name}": [str(path)] for path in files_of_chunks(folder)}
    write(folder / "refs.parq", refs)
    for number in range(4):
        records = folder / f"refs.parq/v/refs.{number}.parq"
        table = pq.read_table(records).to_pydict()
        pq.write_table(pa.table(table | {"size": pa.array([0] * 3)}), records)
    return folder / "refs.parq"


def test_a_whole_file_that_is_gone_names_the_chunk(tmp_path):
    """Also where the array is cut, turned and joined: variable, and cell as in the references."""
    array = read(whole_files(tmp_path))["v"]
    np.testing.assert_array_equal(vs.reading.read_array(array, ()), VALUES)
    (tmp_path / "4.1").unlink()
    for view, key in ((array, ()), (array, (4, 3)), (array.T[:, 3:], ()), (np.concatenate([array[:2], array]), ())):
        with pytest.raises(
            SourceNotFoundError, match=r"cell \(4, 1\) of variable 'v' cannot be read: .*4\.1'"
        ) as error:
            vs.reading.read_array(view, key)
        assert (error.value.variable, error.value.cell, error.value.offset) == ("v", (4, 1), 0)
        assert error.value.url == absolute_url(tmp_path / "4.1")


def test_a_whole_file_is_measured_once_a_reading(tmp_path, opened):
    """However many record files refer to it."""
    refs = whole_files(tmp_path)
    for number in range(4):
        records = refs / f"v/refs.{number}.parq"
        table = pq.read_table(records).to_pydict()
        pq.write_table(pa.table(table | {"path": [str(tmp_path / "0.0")] * 3}), records)
    opened.clear()
    np.testing.assert_array_equal(values_of(refs, slice(None), slice(2)), [[0, 1]] * 6)
    assert opened.count("0.0") == 1


def test_metadata_can_promise_more_than_there_is(refs):
    """A grid of any size opens; cells without record file are EMPTY, and all of it at once is refused."""
    change_metadata(refs, metadata={"v/.zarray": zarray_of_v(refs) | {"shape": [2**40, 4]}})
    array = read(refs)["v"]
    assert array.manifest.read((slice(2**39, 2**39 + 1), slice(0, 2))).entries["location"].tolist() == [[0, 0]]
    assert vs.reading.read_array(array, (2,)).tolist() == VALUES[2].tolist()
    with pytest.raises(ChunkAlignmentError, match="549755813888 chunks"):
        array[::2]
    with pytest.raises(ManifestError, match=r"2199023255550 chunks of '.*refs.parq/v' are requested"):
        array[1:].in_memory()
    change_metadata(refs, metadata={"v/.zarray": zarray_of_v(refs) | {"shape": [2**62, 2**62]}})
    (refusal,) = read(refs).refusals
    assert (refusal.path, refusal.kind) == ("/v", "refused")
    assert "has more of them than can be counted" in refusal.reason


def test_groups_and_dropped_variables(refs, opened):
    """What is not wanted is not looked at, as in JSON."""
    assert read(refs, drop_variables=frozenset({"v"})).arrays.keys() == {"t", "s"}
    tree = vs.open_virtual_datatree(refs)
    assert set(tree.ds.variables) == {"v", "t", "s"}
    assert "v/refs.0.parq" not in opened
