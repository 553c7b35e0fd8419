"""Reading: what is fetched, how often, and what every failure says."""

import multiprocessing
import os
import pickle
import threading
import tracemalloc
from dataclasses import replace
from itertools import permutations, product

import netCDF4
import numpy as np
import pytest

import virtualstack as vs
from tests.data.arrays import inline_chunks, referenced_array
from virtualstack.codecs.codec import Codec
from virtualstack.errors import (
    ChunkDecodeError,
    ManifestError,
    ReaderError,
    SourceChangedError,
    SourceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from virtualstack.location import Location
from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray
from virtualstack.reading import decode as decoding
from virtualstack.reading import fetch as fetching
from virtualstack.reading import plan as planning
from virtualstack.reading import read_array
from virtualstack.reading.selection import select
from virtualstack.storage import MemorySource, MemoryTarget, Storage
from virtualstack.testing.sources import RecordingSource
from virtualstack.testing.strategies import ZLIB, store_array


def publish(url, raw):
    MemoryTarget(url.rpartition("/")[0]).put(url.rpartition("/")[2], raw)


def known(values, chunks, url="memory://reading/a", **options):
    array, values, sources = store_array(values, chunks, url=url, **options)
    for key, raw in sources.items():
        publish(key, raw)
    return array, values


@pytest.fixture
def recorded(monkeypatch):
    """Sources that write down what is read of them."""
    opened = []

    def source(self, url, *, expected=None):
        folder, _, name = url.rpartition("/")
        opened.append(RecordingSource(MemorySource(MemoryTarget(folder).get(name), url)))
        return opened[-1]

    monkeypatch.setattr(Storage, "source", source)
    return opened


def reads(opened):
    return sorted(read for source in opened for read in source.reads)


def test_a_stored_chunk_is_fetched_once(recorded):
    """However many cells show a chunk, its bytes are read once; chunks that are not selected are not read."""
    array, values = known(np.arange(24.0).reshape(4, 6), (4, 3), codecs=(ZLIB,))
    many = np.broadcast_to(array, (3, 4, 6))
    cut = np.concatenate([many[:, :2], many[:, 2:]], 1)
    got = read_array(cut, (slice(None), slice(None), slice(0, 3)))
    np.testing.assert_array_equal(got, np.broadcast_to(values[:, :3], (3, 4, 3)))
    assert len(reads(recorded)) == 1


def test_of_raw_values_only_what_is_shown_is_fetched(recorded):
    """An uncompressed chunk is read from the first to the last selected element."""
    array, values = known(np.arange(1000.0).reshape(100, 10), (100, 10))
    np.testing.assert_array_equal(read_array(array, (slice(50, 52), slice(None))), values[50:52])
    (read,) = reads(recorded)
    assert read == (6 + 50 * 80, 160)
    assert read_array(array[::-1], (0, 3)) == values[-1, 3]
    assert reads(recorded)[-1] == (6 + (990 + 3) * 8, 8)


@pytest.mark.parametrize(
    ("key", "n_reads", "n_bytes"),
    [
        ((slice(None), 0), 40, 40 * 8),
        (([30, 2, 30], slice(1, 3)), 3, 3 * 16),
        ((slice(None, None, -7), [5, 1]), 6, 6 * 40),
        ((slice(None), slice(None)), 14, 40 * 1000 * 8),
        ((slice(4, 6), slice(None)), 1, 2 * 1000 * 8),
        ((slice(None, None, 2), slice(0, 900)), 20, 20 * 900 * 8),
    ],
)
def test_large_raw_chunks_are_read_in_pieces(monkeypatch, recorded, key, n_reads, n_bytes):
    """A long contiguous chunk is fetched in pieces, and values far apart one by one."""
    monkeypatch.setattr(planning, "_MIN_SPARSE_BYTES", 8000)
    monkeypatch.setattr(planning, "_MAX_GAP_BYTES", 4096)
    monkeypatch.setattr("virtualstack.reading.read._MAX_ALONE_BYTES", 8000)
    monkeypatch.setattr(planning, "_PIECE_BYTES", 24000)
    array, values = known(np.arange(40000.0).reshape(40, 1000), (40, 1000))
    wanted = values[key[0]][:, key[1]]
    np.testing.assert_array_equal(read_array(array, key), wanted)
    assert len(reads(recorded)) == n_reads
    assert sum(length for _, length in reads(recorded)) == n_bytes
    both = np.concatenate([array, array[::-1]], 1)
    np.testing.assert_array_equal(read_array(both, (key[0],)), np.concatenate([values, values[::-1]], 1)[key[0]])
    transposed = array.transpose(1, 0)
    np.testing.assert_array_equal(read_array(transposed, key[::-1]), wanted.T)


@pytest.mark.parametrize("key", [np.s_[:, :, :], np.s_[:, :, 1], np.s_[::2, 1:, ::-1], np.s_[:, [5, 2], 0]])
def test_pieces_along_two_axes_are_fetched_once(monkeypatch, recorded, key):
    """A contiguous chunk that is cut along several axes comes in pieces that are small and hold what no other does."""
    monkeypatch.setattr("virtualstack.reading.read._MAX_ALONE_BYTES", 2000)
    monkeypatch.setattr(planning, "_MIN_SPARSE_BYTES", 2000)
    monkeypatch.setattr(planning, "_MAX_GAP_BYTES", 0)
    monkeypatch.setattr(planning, "_PIECE_BYTES", 4000)
    array, values = known(np.arange(12000.0).reshape(6, 20, 100), (6, 20, 100))
    wanted = np.ascontiguousarray(values[key])
    np.testing.assert_array_equal(read_array(array, key), wanted)
    assert max(length for _, length in reads(recorded)) <= 4000
    assert sum(length for _, length in reads(recorded)) <= 2 * wanted.nbytes


def test_batches_do_not_change_values(monkeypatch):
    """Small batches, one ahead of the other, give the same."""
    array, values = known(np.random.default_rng(0).random((64, 64)), (8, 8), codecs=(ZLIB,))
    monkeypatch.setattr(fetching, "BATCH_BYTES", 1000)
    np.testing.assert_array_equal(read_array(array, ...), values)
    monkeypatch.setattr(fetching, "_MAX_BATCH_CHUNKS", 3)
    np.testing.assert_array_equal(read_array(array, ...), values)


def test_threads_keep_no_memory_of_large_chunks(monkeypatch, tmp_path):
    """What a chunk is read into is kept for the next one, up to a size."""
    monkeypatch.setattr(decoding, "_SCRATCH", threading.local())
    monkeypatch.setattr("virtualstack.reading.read.n_decoders", lambda: 1)
    monkeypatch.setattr(decoding, "_LARGE_CHUNK_BYTES", 1 << 17)
    for n, kept in ((1 << 18, 0), (1 << 10, 1 << 16)):
        values = np.random.default_rng(0).integers(0, 256, (2, n), "u1")
        url = (tmp_path / str(n)).as_uri()
        array, values, sources = store_array(values, (1, n), url=url, codecs=(ZLIB,))
        (tmp_path / str(n)).write_bytes(sources[url])
        np.testing.assert_array_equal(read_array(array, ...), values)
        assert len(getattr(decoding._SCRATCH, "stored", b"")) == kept


def test_many_sources_are_read_side_by_side():
    """A join of many files reads as the join of their values."""
    parts = [known(np.random.default_rng(i).random((1, 300)), (1, 300), url=f"memory://reading/{i}") for i in range(50)]
    joined = np.concatenate([array for array, _ in parts])
    values = np.concatenate([values for _, values in parts])
    np.testing.assert_array_equal(read_array(joined, ...), values)
    np.testing.assert_array_equal(read_array(joined, (slice(None), [7, 7, 3])), values[:, [7, 7, 3]])


def test_many_holes_are_filled():
    """Holes of several fill values, more than a few, read as their fills."""
    one = ManifestArray(
        manifest=ChunkManifest.empty((100,), Fill.from_value(3, "i2")),
        grid=ChunkGrid.regular((100,), (1,)),
        dtype=np.dtype("i2"),
    )
    two = replace(one, manifest=ChunkManifest.empty((100,), Fill.from_value(4, "i2")))
    array, _ = known(np.arange(3, dtype="i2"), (1,))
    joined = np.concatenate([one, array, two[:90]])
    np.testing.assert_array_equal(read_array(joined, ...), [3] * 100 + [0, 1, 2] + [4] * 90)


def test_zero_and_no_axes():
    """Scalars and arrays without elements read as such; nothing is fetched for the latter."""
    array, _ = known(np.array(5, "i4"), ())
    got = read_array(array, ())
    assert got.shape == ()
    assert got == 5
    empty, _ = known(np.zeros((0, 3)), (2, 2))
    assert read_array(empty, ...).shape == (0, 3)
    assert read_array(empty, (slice(None), 1)).shape == (0,)
    assert read_array(inline_chunks((2,), "S0", b"", fill=b""), ...).dtype == np.dtype("S0")


def test_strings_read_through_any_view():
    """StringDType has no strided views of other shapes; flips and repeats read all the same."""
    import numcodecs

    dtype = np.dtypes.StringDType()
    words = np.array([["a", "b", "c"], ["d", "e", "long" * 50]], dtype)
    raw = bytes(numcodecs.VLenUTF8().encode(words.astype(object)))
    array = inline_chunks((2, 3), dtype, raw, codecs=[Codec("vlen-utf8")], fill="")
    got = read_array(np.broadcast_to(array[::-1, ::2], (2, 2, 2)), (slice(None), [1, 0, 1]))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.broadcast_to(words[::-1, ::2], (2, 2, 2))[:, [1, 0, 1]])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((0, 0, 0), "too many indices"),
        ((..., ...), "single ellipsis"),
        ((4,), "index 4 is out of bounds for axis 0 with size 4"),
        ((slice(None), [0, -7]), "index -7 is out of bounds for axis 1 with size 6"),
        (([0.5],), "of integers or booleans, not 'float64'"),
        ((np.zeros((1, 1), int),), "is not an integer, a slice, or a 1-D array"),
        (([True, False],), "boolean index of 2 elements on axis 0 with size 4"),
        ((True,), "True is not an integer"),
        ((None,), "None is not an integer"),
        ((2**70,), f"index {2**70} is out of bounds for axis 0 with size 4"),
        ((0, np.uint64(2**63)), f"index {2**63} is out of bounds for axis 1 with size 6"),
    ],
)
def test_keys_that_do_not_fit(key, message):
    """Indices out of range, of the wrong kind or too many raise IndexError."""
    array, _ = known(np.zeros((4, 6)), (2, 2))
    with pytest.raises(IndexError, match=message):
        read_array(array, key)


@pytest.mark.parametrize("chunks", [(2, 2), (4, 6)])
def test_steps_longer_than_can_be_counted(chunks):
    """They select one element, as numpy has it."""
    array, values = known(np.arange(24.0).reshape(4, 6), chunks)
    key = (slice(1, None, 2**70), slice(None, 2**70, -(2**70)))
    np.testing.assert_array_equal(read_array(array, key), values[key])


def test_boolean_arrays_select():
    """A boolean array of the axis selects its true elements; a bare list is an index of the first axis."""
    array, values = known(np.arange(12.0).reshape(4, 3), (3, 2))
    mask = np.array([True, False, True, True])
    np.testing.assert_array_equal(read_array(array, mask), values[mask])
    np.testing.assert_array_equal(read_array(array, (..., 2)), values[:, 2])


def test_a_missing_source_names_variable_and_cell():
    """What cannot be fetched says which cell of which variable wanted it."""
    array, _ = known(np.zeros((4, 6)), (2, 2))
    gone = array.rename_locations(lambda url: "memory://reading/gone")
    message = r"cell \(0, 0\) of variable 'v' .* 5 more chunks.*nothing at"
    with pytest.raises(SourceNotFoundError, match=message) as caught:
        read_array(gone, ...)
    assert caught.value.url == "memory://reading/gone"
    assert pickle.loads(pickle.dumps(caught.value)).cell == (0, 0)


def test_a_short_source_names_the_cell_that_reaches_past_it():
    """The chunk behind the end is named, not the first one asked for."""
    array, _ = known(np.zeros((4, 2)), (1, 2))
    raw = MemoryTarget("memory://reading").get("a")
    publish("memory://reading/short", raw[:-10])
    short = array.rename_locations(lambda url: "memory://reading/short")
    manifest = replace(short.manifest, locations=(Location("memory://reading/short"),))
    with pytest.raises(StorageError, match=r"cell \(3, 0\) of variable 'v' \(bytes 63 to 79\)"):
        read_array(replace(short, manifest=manifest), ...)
    with pytest.raises(SourceChangedError, match=r"cell \(0, 0\) of variable 'v' .*changed after it was indexed"):
        read_array(short, ...)


def test_a_chunk_that_does_not_decode_names_everything():
    """A damaged chunk is an error with variable, cell, url, offset and length; never fill values."""
    array, _ = known(np.arange(8.0).reshape(4, 2), (1, 2), codecs=(ZLIB,), fill=-1)
    raw = bytearray(MemoryTarget("memory://reading").get("a"))
    entry = array.manifest.entries[2, 0]
    raw[entry["offset"] + 2 : entry["offset"] + 8] = b"garbag"
    publish("memory://reading/a", bytes(raw))
    message = r"cell \(2, 0\) of variable 'v', bytes .*'memory://reading/a', does not decode: \w*[Ee]rror"
    with pytest.raises(ChunkDecodeError, match=message) as caught:
        read_array(array, ...)
    error = caught.value
    assert (error.variable, error.cell, error.url) == ("v", (2, 0), "memory://reading/a")
    assert (error.offset, error.length) == (int(entry["offset"]), int(entry["length"]))
    np.testing.assert_array_equal(read_array(array, (slice(0, 2),)), [[0, 1], [2, 3]])


def test_a_checksum_that_differs_is_an_error():
    """fletcher32 is verified."""
    import numcodecs

    raw = bytearray(numcodecs.Fletcher32().encode(np.arange(4.0)))
    raw[3] ^= 1
    array = inline_chunks((4,), "<f8", bytes(raw), codecs=[Codec("numcodecs.fletcher32")])
    with pytest.raises(ChunkDecodeError, match=r"bytes 0 to 36 of the manifest, does not decode: .*fletcher32"):
        read_array(array, ...)


def test_raw_chunks_of_another_length_are_errors():
    """An uncompressed chunk must have the bytes of its shape, even where only a part is read."""
    publish("memory://reading/long", bytes(100))
    array = referenced_array((4,), (4,), "<f8", urls="memory://reading/long", offsets=[10], lengths=40)
    message = r"stored uncompressed in 40 bytes; \(4,\) of 'float64' are 32"
    with pytest.raises(ChunkDecodeError, match=message) as caught:
        read_array(array, (0,))
    assert caught.value.offset == 10
    assert "cell (0,) of variable 'v', bytes 10 to 50 of 'memory://reading/long', does not decode" in str(caught.value)


@pytest.mark.parametrize("key", [(0,), (...,), ([0, 5, 1],)])
def test_a_codec_that_is_not_there_names_the_variable(key):
    """Of a hundred variables one may have it."""
    array = inline_chunks((4,), "<f8", bytes(32), bytes(32), codecs=[Codec("numcodecs.nonsense")])
    message = r"variable 'v': codec 'numcodecs.nonsense' is known to neither"
    with pytest.raises(UnsupportedFeatureError, match=message) as caught:
        read_array(array, key)
    assert caught.value.variable == "v"


def test_cells_that_reach_out_of_their_chunk_are_errors():
    """A manifest that shows elements its chunk does not have is refused before memory is touched."""
    array = inline_chunks((4,), "<f8", bytes(32))
    strided = replace(array.manifest, encodings=(replace(array.manifest.encodings[0], strides=(2,)),))
    message = r"cell \(0,\) of variable 'v' shows elements 0 to 6 of a decoded chunk of 4"
    with pytest.raises(ManifestError, match=message):
        read_array(replace(array, manifest=strided), ...)


def test_missing_chunks_raise_where_asked():
    """ABSENT is the fill value, or an error that counts the chunks."""
    array, values = known(np.ones((4, 2)), (1, 2), holes=np.array([[0], [2], [1], [2]], np.uint8), fill=-5)
    np.testing.assert_array_equal(read_array(array, ...), values)
    with pytest.raises(StorageError, match=r"2 chunks of variable 'v' are ABSENT.*cell \(1, 0\)") as caught:
        read_array(array, ..., absent="raise")
    assert (caught.value.variable, caught.value.cell) == ("v", (1, 0))
    with pytest.raises(StorageError, match=r"^1 chunk of variable 'v' is ABSENT: the source should hold it and"):
        read_array(array, 1, absent="raise")
    np.testing.assert_array_equal(read_array(array, ([0, 2],), absent="raise"), values[[0, 2]])


def _child(array, queue):
    queue.put(float(read_array(array, ...).sum()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_reading_works_in_forked_workers():
    """A child forked after the parent has read with threads reads as well."""
    array, values = known(np.random.default_rng(0).random((64, 1024)), (8, 1024), codecs=(ZLIB,))
    assert read_array(array, ...).sum() == values.sum()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    worker = context.Process(target=_child, args=(array, queue))
    worker.start()
    assert queue.get(timeout=30) == values.sum()
    worker.join()


@pytest.mark.parametrize("n_cells", [20_000, 5_000], ids=["one a cell", "four a cell"])
def test_long_index_arrays_take_little_memory(n_cells):
    """Some hundred bytes an element, neither an object of Python for each cell nor entries that are there already."""
    array, values = known(np.arange(n_cells, dtype="<f4"), (1,), url=f"memory://reading/index{n_cells}")
    index = np.random.default_rng(0).integers(0, n_cells, 20_000)
    read_array(array, (index[:100],))
    tracemalloc.start()
    selection = select(array.grid, [index])
    peak = tracemalloc.get_traced_memory()[1]
    assert peak < 120 * index.size
    tracemalloc.reset_peak()
    begin = tracemalloc.get_traced_memory()[0]
    plan = planning.make_plan(array, selection, absent="fill")
    kept, peak = (n - begin for n in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    assert kept < 70 * index.size
    assert peak < 200 * index.size
    assert plan.parts.base.size >= len(plan.chunks)
    np.testing.assert_array_equal(read_array(array, (index,)), values[index])
    assert selection.shape == index.shape


@pytest.mark.parametrize("key", [0, ...])
def test_chunks_that_no_memory_holds_are_named(key):
    """Few bytes may say that a chunk has more of them than there are, of which hardly one is shown."""
    size = 1 << 48
    raw = b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little")
    encoding = ChunkEncoding(np.dtype("u1"), (size,), (Codec.from_config("zstd"),), (1,))
    manifest = ChunkManifest.from_bytes([raw, raw], shape=(2,), encoding=encoding, fill=Fill.from_value(0, "u1"))
    array = ManifestArray(manifest=manifest, grid=ChunkGrid.regular((4,), (2,)), dtype=np.dtype("u1"), name="t")
    with pytest.raises(ChunkDecodeError, match=rf"cell \(0,\) of variable 't'.*no memory for its {size} bytes"):
        read_array(array, key, None)


def test_values_that_do_not_fit_in_memory_are_a_typed_error():
    """A dimension coordinate that a few bytes declare is loaded by xarray, which makes an index of it."""
    grid = ChunkGrid.regular((2**58,), (2**58,))
    manifest = ChunkManifest.empty(grid.shape, Fill.from_value(0, "u1"))
    array = ManifestArray(manifest=manifest, grid=grid, dtype=np.dtype("u1"), name="x")
    with pytest.raises(ReaderError, match="do not fit in memory"):
        read_array(array, (slice(None),))
    assert read_array(array, (slice(2),)).tolist() == [0, 0]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("shape", [(2, 2), (1, 2), (2, 1), (2, 2, 2), (1, 3, 2), (3, 2)])
def test_plain_chunks_in_any_order_of_axes(tmp_path, shape, n):
    """Bytes are copied as they are only if they lie as in the result."""
    values = np.arange(n * np.prod(shape), dtype="<i4").reshape(n, *shape)
    for axes in permutations(range(len(shape))):
        stored = np.ascontiguousarray(values.transpose(0, *(axis + 1 for axis in axes)))
        steps = tuple(stored.strides[1 + axes.index(axis)] // 4 for axis in range(len(shape)))
        path = tmp_path / "".join(map(str, axes))
        path.write_bytes(stored.tobytes())
        whole, size = (n * shape[0], *shape[1:]), stored.nbytes // n
        offsets = np.arange(n).reshape(-1, *(1,) * (len(shape) - 1)) * size
        array = referenced_array(whole, shape, "<i4", urls=f"file://{path}", offsets=offsets, lengths=size)
        encoding = ChunkEncoding.c_order("<i4", stored.shape[1:]).with_strides(steps)
        array = replace(array, manifest=replace(array.manifest, encodings=(encoding,)))
        np.testing.assert_array_equal(read_array(array, ..., Storage.from_option(None)), values.reshape(whole))


@pytest.mark.parametrize("codecs", [(), (ZLIB,)], ids=["raw", "zlib"])
def test_slices_of_a_small_array_are_those_of_numpy(codecs):
    values = np.arange(16.0).reshape(2, 8)
    array, _ = known(values, (2, 3), url=f"memory://reading/{len(codecs)}", codecs=codecs)
    for start, stop, step in product(range(8), (None, *range(9)), (-4, -3, -2, -1, 1, 2, 3)):
        key = 0, slice(start, stop, step)
        np.testing.assert_array_equal(read_array(array, key), values[key], err_msg=str(key))


@pytest.mark.parametrize("key", [(), (0,), (slice(0, 2),), (np.array([0, 1]),)], ids=repr)
def test_a_chunk_that_does_not_decode_has_a_remedy(key):
    """By each way of reading: that of the codec, or else the one for damaged sources."""
    damaged = inline_chunks((2,), "<f4", bytes(8), codecs=(ZLIB,))
    with pytest.raises(ChunkDecodeError, match=r"bytes 0 to 8 of the manifest, does not decode: .*restore it or scan"):
        read_array(damaged, key)
    units = {"data_type": "<f8", "attributes": {"units": "days since 2000-01-01"}}
    late = inline_chunks(
        (2,),
        "M8[ns]",
        np.full(2, 1e9).tobytes(),
        codecs=(Codec.from_config("virtualstack.cf", **units),),
        fill=np.datetime64("NaT", "ns"),
    )
    with pytest.raises(ChunkDecodeError, match=r"Open with decode_times=False, which leaves times as they are stored$"):
        read_array(late, key)


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"zlib": True, "shuffle": True}, {}], ids=str)
@pytest.mark.parametrize("dtype", ["<i4", ">i4"])
def test_decoders_write_to_the_result(options, dtype, tmp_path):
    """Whole chunks are decoded in place, and others in memory that the next chunk uses again."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, n in {"y": 90, "x": 70}.items():
            file.createDimension(name, n)
        endian = "little" if dtype == "<i4" else "big"
        variable = file.createVariable("v", dtype, ("y", "x"), chunksizes=(20, 70), endian=endian, **options)
        variable[:] = np.random.default_rng(0).integers(0, 99, (90, 70))
        expected = variable[:].data
    array = vs.open_virtual_dataset(tmp_path / "a.nc")["v"].variable._data
    for key in (np.s_[:], np.s_[20:60], np.s_[5:85, 3:60], np.s_[::-1], np.s_[3:70:7, 5], np.s_[[80, 3, 41]]):
        np.testing.assert_array_equal(read_array(array, key), expected[key])
