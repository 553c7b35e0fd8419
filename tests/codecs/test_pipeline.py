"""Stored bytes to values: every codec against the library that wrote the bytes, and damage of every kind."""

import bz2
import gzip
import io
import lzma
import tracemalloc
import zlib

import h5py
import numcodecs
import numpy as np
import pyarrow as pa
import pytest
import zarr
from zarr.codecs import ShardingCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from virtualstack.codecs import bounded
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.pipeline import CodecError, decode, make_decoder, n_array_codecs
from virtualstack.codecs.shards import with_fill
from virtualstack.errors import MissingDependencyError, UnsupportedFeatureError

VALUES = np.random.default_rng(0).integers(0, 50, (6, 8)).astype("i4")
RAW = VALUES.tobytes()
NUMCODECS = {
    "zlib": {"level": 1},
    "gzip": {"level": 1},
    "bz2": {"level": 1},
    "lzma": {"preset": 1},
    "lz4": {"acceleration": 1},
    "zstd": {"level": 1},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    "shuffle": {"elementsize": 4},
    "fletcher32": {},
    "crc32": {},
    "adler32": {},
}


def codec(name, **options):
    return Codec.from_config(f"numcodecs.{name}", **options)


def encode(raw, *codecs):
    for x in codecs:
        encoder = numcodecs.get_codec({"id": x.name.removeprefix("numcodecs."), **x.options()})
        raw = bytes(encoder.encode(np.frombuffer(raw, "u1")))
    return raw


@pytest.mark.parametrize("name", NUMCODECS)
def test_bytes_codecs_of_numcodecs(name):
    """What numcodecs encodes decodes to the same values, alone and behind a shuffle."""
    x = codec(name, **NUMCODECS[name])
    chains = [(x,), (codec("shuffle", elementsize=4), x), (x, codec("zlib", level=1))]
    if name != "shuffle":  # numcodecs shuffles whole elements only
        chains.append((codec("lz4"), x))
    for codecs in chains:
        got = decode(encode(RAW, *codecs), codecs, VALUES.dtype, VALUES.shape)
        assert got.dtype == VALUES.dtype
        assert got.flags.c_contiguous
        np.testing.assert_array_equal(got, VALUES)
    nothing = np.zeros((0, 3), "i4")
    if name not in ("shuffle", "fletcher32", "blosc", "lz4"):  # their encoders take no empty buffers
        got = decode(encode(b"", x), (x,), nothing.dtype, nothing.shape)
        assert got.shape == (0, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": zarr.codecs.GzipCodec()},
        {"compressors": zarr.codecs.ZstdCodec()},
        {"compressors": zarr.codecs.BloscCodec(cname="zstd")},
        {"compressors": [zarr.codecs.GzipCodec(), zarr.codecs.Crc32cCodec()]},
        {"filters": zarr.codecs.TransposeCodec(order=(1, 0))},
        {"filters": [zarr.codecs.TransposeCodec(order=(1, 0)), zarr.codecs.numcodecs.Delta(dtype="<i4", astype="<i2")]},
        {"filters": zarr.codecs.numcodecs.FixedScaleOffset(offset=0, scale=1, dtype="<i4", astype="<i2")},
        {"serializer": zarr.codecs.BytesCodec(endian="big")},
        {"shards": (6, 8), "chunks": (3, 4)},
    ],
    ids=["gzip", "zstd", "blosc", "checksum", "transpose", "delta", "scale", "endian", "shards"],
)
def test_chunks_that_zarr_wrote(options):
    """Every codec in zarr's metadata decodes what zarr stored."""
    store = {}
    options = {"compressors": None, "chunks": VALUES.shape, **options}
    array = zarr.create_array(zarr.storage.MemoryStore(store), shape=VALUES.shape, dtype="i4", **options)
    array[...] = VALUES
    codecs = tuple(Codec.from_json(x.to_dict()) for x in array.metadata.codecs)
    raw = store["c/0/0"].to_bytes()
    np.testing.assert_array_equal(decode(raw, codecs, VALUES.dtype, VALUES.shape), VALUES)
    implied = tuple(x for x in codecs if x.name != "bytes")
    dtype = np.dtype(">i4" if "serializer" in options else "<i4")
    np.testing.assert_array_equal(decode(raw, implied, dtype, VALUES.shape), VALUES)


def test_chunks_that_hdf5_wrote(tmp_path):
    """Deflate, shuffle and checksum as h5py stores them, bytes that fill no element too."""
    values = np.random.default_rng(1).integers(0, 9, 1001).astype("<i4")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        one = file.create_dataset("v", data=values, chunks=(1001,), compression=4, shuffle=True, fletcher32=True)
        raw = one.id.read_direct_chunk((0,))[1]
        codecs = (codec("shuffle", elementsize=4), codec("zlib", level=4), codec("fletcher32"))
        # h5py puts the checksum behind the deflate filter
        np.testing.assert_array_equal(decode(raw, codecs, values.dtype, values.shape), values)
        odd = file.create_dataset("o", data=values[:7].astype("u1"), chunks=(7,), fletcher32=True)
        raw = odd.id.read_direct_chunk((0,))[1]
        got = decode(raw, (codec("fletcher32"),), np.dtype("u1"), (7,))
        np.testing.assert_array_equal(got, values[:7].astype("u1"))


def test_shuffle_keeps_what_fills_no_element():
    """Trailing bytes stay where they are, as in HDF5; an element of one byte is not shuffled."""
    got = decode(b"\1\3\2\4\5", (codec("shuffle", elementsize=2),), np.dtype("u1"), (5,))
    assert got.tolist() == [1, 2, 3, 4, 5]
    assert decode(b"\1\2", (codec("shuffle", elementsize=1),), np.dtype("u1"), (2,)).tolist() == [1, 2]
    assert decode(b"\1\2\3", (codec("shuffle", elementsize=8),), np.dtype("u1"), (3,)).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "dtype", [">f4", "<i2", "S3", ">U2", "<c16", "M8[s]", "V5", [("a", "u1"), ("b", ">f8")]], ids=str
)
def test_plain_bytes_of_any_dtype(dtype):
    """Without codecs the bytes are the values, byte order and fields included."""
    dtype = np.dtype(dtype)
    values = np.zeros((2, 3), dtype)
    if dtype.kind == "U":
        values[:] = "\U0010ffffa"
    else:
        values.view("u1").reshape(-1)[::5] = 1
    np.testing.assert_array_equal(decode(values.tobytes(), (), dtype, (2, 3)), values)
    with pytest.raises(CodecError, match="which is not a character"):
        decode(b"\0\0\x11\0", (), np.dtype("<U1"), ())
    padded = np.dtype({"names": ["a", "b"], "formats": ["u1", "<f8"], "offsets": [2, 8], "itemsize": 20})
    raw = bytes(range(40))
    got = decode(raw, (), padded, (2,))
    assert got["a"].tolist() == [2, 22]
    assert decode(b"", (), np.dtype("S0"), (2,)).shape == (2,)
    assert decode(b"\1", (), np.dtype("?"), ()).shape == ()
    assert decode(b"\0\2\1", (), np.dtype("?"), (3,)).tolist() == [False, True, True]


@pytest.mark.parametrize("name", ["vlen-utf8", "numcodecs.vlen-utf8"])
def test_strings(name):
    """Strings come as StringDType, compressed or not."""
    words = np.array([["a", ""], ["länger", "b" * 100]], object)
    raw = numcodecs.VLenUTF8().encode(words)
    dtype = np.dtypes.StringDType()
    for codecs, stored in (
        ((), raw),
        ((codec("zlib"),), zlib.compress(raw)),
        ((Codec("zstd"),), numcodecs.Zstd().encode(raw)),
    ):
        got = decode(bytes(stored), (Codec(name), *codecs), dtype, (2, 2))
        assert got.dtype == dtype
        assert got.tolist() == words.tolist()
    assert decode(b"\0\0\0\0", (Codec(name),), dtype, (0,)).shape == (0,)
    for bad in (b"\3\0\0\0", b"\xff\xff\xff\xff", b"\4"):
        with pytest.raises(CodecError, match="4 are expected"):
            decode(bad, (Codec(name),), dtype, (2, 2))
    with pytest.raises(CodecError, match="Error"):
        decode(b"\1\0\0\0\2\0\0\0\xff\xff", (Codec(name),), dtype, (1,))


def test_bytes_of_any_length():
    """`vlen-bytes` gives objects."""
    words = np.array([b"a", b"\xff\0"], object)
    raw = numcodecs.VLenBytes().encode(words)
    assert decode(bytes(raw), (Codec("vlen-bytes"),), np.dtype(object), (2,)).tolist() == [b"a", b"\xff\0"]
    with pytest.raises(UnsupportedFeatureError, match="no plain bytes"):
        decode(b"", (), np.dtype(object), (0,))


def test_streams_that_come_in_parts():
    """gzip members, bzip2 streams and xz streams one after the other are one."""
    a, b = RAW[:100], RAW[100:]
    for x, pack in ((Codec("gzip"), gzip.compress), (codec("bz2"), bz2.compress), (codec("lzma"), lzma.compress)):
        np.testing.assert_array_equal(decode(pack(a) + pack(b), (x,), VALUES.dtype, VALUES.shape), VALUES)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1}]
    raw = lzma.compress(RAW, lzma.FORMAT_RAW, filters=filters)
    x = codec("lzma", format=lzma.FORMAT_RAW, filters=filters)
    np.testing.assert_array_equal(decode(raw, (x,), VALUES.dtype, VALUES.shape), VALUES)
    out = pa.BufferOutputStream()  # a zstd frame that does not say how long it is
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(RAW[:10])
        stream.write(RAW[10:])
    raw = out.getvalue().to_pybytes()
    np.testing.assert_array_equal(decode(raw, (Codec("zstd"),), VALUES.dtype, VALUES.shape), VALUES)
    with pytest.raises(CodecError, match="does not say how many bytes"):
        decode(raw, (codec("zlib"), Codec("zstd")), VALUES.dtype, VALUES.shape)


@pytest.mark.parametrize("name", [*NUMCODECS, "none"])
def test_damage_is_an_error(name):
    """A chunk cut short, empty, or with bytes added or changed decodes to its values or not at all."""
    codecs = () if name == "none" else (codec(name, **NUMCODECS[name]),)
    if name in ("shuffle", "lz4", "none"):
        codecs = (*codecs, codec("fletcher32"))
    raw = encode(RAW, *codecs)
    for bad in (b"", raw[:3], raw[: len(raw) // 2], raw[:-1], b"\x55" * len(raw)):
        with pytest.raises(CodecError, match=r"."):
            decode(bad, codecs, VALUES.dtype, VALUES.shape)
    with pytest.raises(CodecError, match=r"."):
        decode(raw, codecs, VALUES.dtype, (6, 9))
    with pytest.raises(CodecError, match=r"."):
        decode(raw, codecs, VALUES.dtype, (6, 7))


@pytest.mark.parametrize("name", ["zlib", "gzip", "bz2", "lzma", "zstd", "blosc", "lz4"])
def test_bombs_do_not_go_off(name):
    """A chunk that holds much more than its shape says is refused before it is unpacked."""
    import tracemalloc

    x = codec(name, **NUMCODECS[name])
    bomb = encode(bytes(64 << 20), x)
    tracemalloc.start()
    with pytest.raises(CodecError, match=r"(holds more than|says that it holds)"):
        decode(bomb, (x,), np.dtype("u1"), (1000,))
    with pytest.raises(CodecError, match=r"(holds more than|says that it holds)"):
        decode(
            encode(bomb, codec("zlib")) if name != "zlib" else bomb,
            (x, codec("zlib"))[: 1 + (name != "zlib")],
            np.dtype("u1"),
            (1000,),
        )
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("zlib", zlib.compress(RAW)[:-2], "ends before it should"),
        ("zlib", zlib.compress(RAW[:-4]), "decodes to 188 bytes"),
        ("zstd", b"\x28\xb5\x2f\xfd\xc0\0\0", "ends in its header"),
        ("zstd", b"no frame at all", "magic number is missing"),
        ("zstd", numcodecs.Zstd().encode(RAW[:-4]), "says that it holds 188 bytes; 192 are expected"),
        ("blosc", b"\2\1\1\1", "16 bytes of header"),
        ("blosc", numcodecs.Blosc().encode(RAW)[:-5], "there are"),
        ("lz4", b"\1", "begins with its size"),
        ("fletcher32", b"\1", "checksum has 4 bytes"),
        ("fletcher32", RAW + b"\0\0\0\0", "did not match"),
        ("delta", RAW, "DOES NOT MATTER"),
    ],
)
def test_messages_name_what_is_wrong(name, raw, message):
    """Each error says which two values clash."""
    if name == "delta":
        with pytest.raises(UnsupportedFeatureError, match="does not take arrays"):
            decode(raw, (codec("delta", dtype="<f8"),), np.dtype(np.longdouble), VALUES.shape)
        return
    with pytest.raises(CodecError, match=message):
        decode(raw, (codec(name, **NUMCODECS[name]),), VALUES.dtype, VALUES.shape)


def test_arrays_of_another_dtype_or_size_are_errors():
    """A codec whose own dtype is not the chunk's does not pass."""
    other = codec("fixedscaleoffset", offset=0, scale=1, dtype="<f8", astype="<i4")
    with pytest.raises(CodecError, match="decodes to dtype 'float64'; 'int32' is expected"):
        decode(RAW, (other,), VALUES.dtype, VALUES.shape)
    swapped = codec("fixedscaleoffset", offset=0, scale=1, dtype=">i4", astype="<i4")
    got = decode(RAW, (swapped,), VALUES.dtype, VALUES.shape)
    assert got.dtype == VALUES.dtype
    np.testing.assert_array_equal(got, VALUES)


def shard_of(data):
    index = np.array([0, len(data)], "<u8").tobytes()
    return data + index + bytes(numcodecs.CRC32C(location="end").encode(index)[-4:])


SHARDING = Codec.from_config(
    "sharding_indexed",
    chunk_shape=[10],
    codecs=["bytes", "gzip"],
    index_codecs=["bytes", "crc32c"],
    index_location="end",
)


@pytest.mark.parametrize(
    ("raw", "made", "dtype"),
    [
        (shard_of(gzip.compress(bytes(1 << 25), mtime=0)), SHARDING, "i4"),
        (bytes(40), codec("astype", encode_dtype="<U1", decode_dtype="<U200000000"), "<U1"),
        (bytes(40), codec("delta", dtype="<U200000000", astype="<i4"), "<i4"),
        (bytes(80), codec("delta", dtype="(100000000,)f8", astype="<i8"), "<i8"),
        (bytes(80), codec("fixedscaleoffset", offset=0, scale=1, dtype="<U200000000", astype="<i8"), "<i8"),
        (b"\1" * 10, codec("categorize", labels=["a"], dtype="<U50000000", astype="u1"), "<i8"),
        (bytes([10, 0, 0, 0]), codec("vlen-utf8"), "T"),
        ((1 << 33).to_bytes(8) + bytes(12), codec("imagecodecs_lz4h5"), "<i8"),
    ],
)
def test_no_more_memory_is_taken_than_values_have(raw, made, dtype):
    """Whatever the metadata or a header say."""
    tracemalloc.start()
    try:
        with pytest.raises((CodecError, UnsupportedFeatureError)):
            decode(raw, (made,), np.dtypes.StringDType() if dtype == "T" else np.dtype(dtype), (10,))
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_shards_without_all_their_chunks():
    """Those that are absent have the fill value, where that is known; damage is an error."""
    index = np.array([2**64 - 1, 2**64 - 1, 0, 4], "<u8").tobytes()
    made = Codec.from_config(
        SHARDING.name, **{**SHARDING.options(), "chunk_shape": [2], "codecs": ["bytes"], "index_codecs": ["bytes"]}
    )
    good = b"\1\0\2\0" + index
    told = with_fill((made,), [np.int16(-7).tobytes()])
    assert decode(good, told, np.dtype("<i2"), (4,)).tolist() == [-7, -7, 1, 2]
    assert with_fill((made,), [b"\0\0", b"\1\0"]) == (made,)
    with pytest.raises(CodecError, match="their fill value is not known"):
        decode(good, (made,), np.dtype("<i2"), (4,))
    behind = with_fill((Codec.from_config("transpose", order=[0]), made), [b"\5\0"])
    assert decode(good, behind, np.dtype("<i2"), (4,)).tolist() == [5, 5, 1, 2]
    assert with_fill((codec("delta", dtype="<i2"), made), [b"\0\0"]) == (codec("delta", dtype="<i2"), made)
    for raw in (index, index[:-1], b"\1\0\2" + index[:-1] + b"\1"):
        with pytest.raises(CodecError):
            decode(raw, (made,), np.dtype("<i2"), (4,))
    with pytest.raises(UnsupportedFeatureError, match="does not take"):
        decode(index, (made,), np.dtype("<i2"), (5,))


def named(*names):
    options = {"bytes": {"endian": "little"}, "gzip": {"level": 1}}
    return [{"name": name, "configuration": options.get(name, {})} for name in names]


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("checks", [["bytes"], ["bytes", "crc32c"]])
def test_shards_are_what_zarr_reads(location, checks):
    """Of any fill value, wherever the index is."""
    values = np.full((6, 8), -7, "i4")
    values[:2, 4:], values[4:, :4] = 1, np.arange(8).reshape(2, 4)
    store = MemoryStore()
    made = Codec.from_config(
        SHARDING.name,
        chunk_shape=[2, 4],
        codecs=[{"name": "transpose", "configuration": {"order": [1, 0]}}, *named("bytes", "gzip")],
        index_codecs=named(*checks),
        index_location=location,
    )
    serializer = ShardingCodec.from_dict(made.to_json())
    array = zarr.create_array(
        store, shape=(6, 8), chunks=(6, 8), dtype="i4", fill_value=-7, serializer=serializer, compressors=None
    )
    array[...] = values
    raw = store._store_dict["c/0/0"].to_bytes()
    got = decode(raw, with_fill((made,), [np.int32(-7).tobytes()]), values.dtype, values.shape)
    np.testing.assert_array_equal(got, array[...])
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize(
    "chunk_shape", [[2, 4], [2, 3, 1], [2], [0, 3], [-2, 3], [2.0, 3], [True, 3], [5, 3], ["2", 3]]
)
def test_chunks_of_a_shard_divide_it_along_every_axis(chunk_shape):
    """The shard has the shape (4, 6)."""
    options = {**SHARDING.options(), "codecs": ["bytes"], "index_codecs": ["bytes"]}
    good = Codec.from_config(SHARDING.name, **{**options, "chunk_shape": [2, 3]})
    index = np.array([[6 * i, 6] for i in range(4)], "<u8").tobytes()
    expected = [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11], [12, 13, 14, 18, 19, 20], [15, 16, 17, 21, 22, 23]]
    assert decode(bytes(range(24)) + index, (good,), np.dtype("u1"), (4, 6)).tolist() == expected
    bad = Codec.from_config(SHARDING.name, **{**options, "chunk_shape": chunk_shape})
    with pytest.raises(UnsupportedFeatureError, match="does not take the configuration"):
        decode(bytes(range(24)) + index, (bad,), np.dtype("u1"), (4, 6))


def test_chunks_of_a_shard_lie_in_it():
    """At its begin or its end, but not in its index. A shard of absent chunks is its index alone."""
    options = {**SHARDING.options(), "chunk_shape": [2], "codecs": ["bytes"], "index_codecs": ["bytes"]}

    def values(location, *spots):
        made = Codec.from_config(SHARDING.name, **{**options, "index_location": location})
        index = np.array(spots, "<u8").tobytes()
        raw = index + b"abcd" if location == "start" else b"abcd" + index
        return decode(raw, with_fill((made,), [b"f"]), np.dtype("u1"), (4,)).tobytes()

    assert values("end", [0, 2], [2, 2]) == values("start", [32, 2], [34, 2]) == b"abcd"
    for location, *odd in (("end", 3, 2), ("end", 36, 2), ("start", 31, 2), ("start", 35, 2), ("end", 4, 1 << 63)):
        with pytest.raises(CodecError, match=f"has a chunk of {odd[1]} bytes at {odd[0]}"):
            values(location, [0 if location == "end" else 32, 2], odd)
    none = [2**64 - 1] * 2
    made = with_fill((Codec.from_config(SHARDING.name, **options),), [b"f"])
    assert decode(np.array([none, none], "<u8").tobytes(), made, np.dtype("u1"), (4,)).tobytes() == b"ffff"
    with pytest.raises(CodecError, match="a shard of 31 bytes, whose index has 32"):
        decode(bytes(31), made, np.dtype("u1"), (4,))


def test_chunks_of_a_shard_are_no_longer_than_chunks():
    """Else each of many would be all of it."""
    index = np.array([[0, 1 << 20]] * 8, "<u8").tobytes()
    inner = {"chunk_shape": [1], "codecs": ["bytes", "gzip"], "index_codecs": ["bytes"]}
    with pytest.raises(CodecError, match="has a chunk of 1048576 bytes, which decodes"):
        decode(bytes(1 << 20) + index, (Codec.from_config(SHARDING.name, **inner),), np.dtype("u1"), (8,))


@pytest.mark.parametrize("spot", [[2**64 - 1, 2**64 - 1], [0, 1]])
def test_shards_of_many_chunks_take_little_more_than_their_index(spot):
    """Chunks of a byte, all of them absent or the same one, cost who wrote them almost nothing."""
    n = 1 << 16
    options = {**SHARDING.options(), "chunk_shape": [1], "codecs": ["bytes"], "index_codecs": ["bytes"]}
    codecs = with_fill((Codec.from_config(SHARDING.name, **options),), [b"\7"])
    raw = b"\7" + np.array([spot] * n, "<u8").tobytes()
    decode(raw[:1] + raw[-16:], codecs, np.dtype("u1"), (1,))
    tracemalloc.start()
    try:
        assert (decode(raw, codecs, np.dtype("u1"), (n,)) == 7).all()
        assert tracemalloc.get_traced_memory()[1] < 4 * len(raw)
    finally:
        tracemalloc.stop()


def test_shards_of_more_chunks_than_are_decoded():
    """Minutes and gigabytes would be spent on few compressed bytes; it is said before any of them is read."""
    options = {**SHARDING.options(), "chunk_shape": [1], "codecs": ["bytes"], "index_codecs": ["bytes"]}
    with pytest.raises(UnsupportedFeatureError, match="has 4194305 chunks in a shard; 4194304 are decoded"):
        decode(
            b"",
            (Codec.from_config(SHARDING.name, **options), Codec.from_config("gzip", level=1)),
            np.dtype("u1"),
            ((1 << 22) + 1,),
        )


def test_streams_one_after_another_are_not_copied_for_each(monkeypatch):
    """Only a little of what is behind the end of one is."""
    copied = []

    class Counting:
        def __init__(self):
            self._stream = zlib.decompressobj(31)

        def decompress(self, data, most):
            return self._stream.decompress(data, most)

        @property
        def eof(self):
            return self._stream.eof

        @property
        def unused_data(self):
            copied.append(len(self._stream.unused_data))
            return self._stream.unused_data

    monkeypatch.setitem(bounded._DECODERS, "gzip", bounded._stream("the gzip stream", Counting))
    monkeypatch.setattr("virtualstack.codecs.bounded._FREE_STREAMS", 20_000)
    options = Codec.from_config("gzip", only="here")  # decoders are kept
    raw = gzip.compress(b"") * 10_000 + bytes(40_000) + gzip.compress(b"abc")
    assert decode(raw, (options,), np.dtype("S1"), (3,)).tobytes() == b"abc"
    assert 10_000 < len(copied) < 10_100
    assert sum(copied) < len(copied) * 20_000


@pytest.mark.parametrize(
    ("name", "pack"), [("gzip", gzip.compress), ("numcodecs.bz2", bz2.compress), ("numcodecs.lzma", lzma.compress)]
)
def test_chunks_of_very_many_empty_streams_are_refused(name, pack):
    """To begin a stream takes microseconds: 60 MB of empty ones took 20 seconds; a thousand of them are read."""
    codec = (Codec.from_config(name),)
    assert decode(pack(b"") * 999 + pack(b"abc"), codec, np.dtype("S1"), (3,)).tobytes() == b"abc"
    with pytest.raises(CodecError, match=r"has 1[0-9]+ bytes and more than 1[0-9]{3} parts, which are nearly empty"):
        decode((pack(b"") * 10_000)[:199_999], codec, np.dtype("S1"), (3,))


def test_errors_of_other_packages_are_ours():
    """Be they of a class of their own."""

    class Odd(numcodecs.abc.Codec):
        codec_id = "virtualstack-odd"

        def encode(self, buf):
            return buf

        def decode(self, buf, out=None):
            raise MemoryError

    numcodecs.register_codec(Odd)
    with pytest.raises(CodecError, match="MemoryError"):
        decode(b"x", (codec("virtualstack-odd"),), np.dtype("u1"), (1,))


def test_codecs_are_told_apart():
    """The place of zarr's plain bytes codec is behind the codecs of arrays."""
    dtype, shape = VALUES.dtype, VALUES.shape
    transpose = Codec.from_config("transpose", order=[1, 0])
    assert n_array_codecs((), dtype, shape) == (0, False)
    assert n_array_codecs((transpose, codec("zlib")), dtype, shape) == (1, False)
    assert n_array_codecs((Codec("vlen-utf8"), codec("zlib")), np.dtypes.StringDType(), shape) == (0, True)


class OnlyAsync(zarr.abc.codec.BytesBytesCodec):
    """A codec of somebody else that knows no synchronous form."""

    is_fixed_size = True

    @classmethod
    def from_dict(cls, data):
        return cls()

    async def _decode_single(self, chunk_data, chunk_spec):
        return default_buffer_prototype().buffer.from_bytes(chunk_data.to_bytes()[::-1])

    def compute_encoded_size(self, n, spec):
        return n


class Odd(numcodecs.abc.Codec):
    """A numcodecs codec that zarr has no class for."""

    codec_id = "virtualstack_test_odd"

    def encode(self, buf):
        return buf

    def decode(self, buf, out=None):
        return np.asarray(buf)[::-1].reshape(-1, 2)


zarr.registry.register_codec("virtualstack_test_async", OnlyAsync)
numcodecs.register_codec(Odd)


def test_codecs_of_other_packages():
    """What zarr and numcodecs have registered works, without and within an event loop."""
    import asyncio

    values = np.arange(4, dtype="u1")
    for name in ("virtualstack_test_async", "numcodecs.virtualstack_test_odd"):
        assert decode(values.tobytes(), (Codec(name),), values.dtype, (4,)).tolist() == [3, 2, 1, 0]

        async def within(name=name):
            return decode(values.tobytes(), (Codec(name),), values.dtype, (4,))

        assert asyncio.run(within()).tolist() == [3, 2, 1, 0]


def test_buffers_of_any_kind_decode():
    """Memoryviews, read-only and empty ones too, need no copy."""
    for raw in (RAW, memoryview(RAW), io.BytesIO(RAW).getbuffer()):
        np.testing.assert_array_equal(decode(raw, (), VALUES.dtype, VALUES.shape), VALUES)
    compressed = memoryview(zlib.compress(RAW))
    np.testing.assert_array_equal(decode(compressed, (codec("zlib"),), VALUES.dtype, VALUES.shape), VALUES)


def test_codecs_that_are_not_installed_are_named(monkeypatch):
    """An extra of ours comes with its pip command where it is not installed; others by name."""
    dtype, shape = VALUES.dtype, VALUES.shape
    with monkeypatch.context() as patch:
        patch.setattr("virtualstack.codecs.registered.find_spec", lambda name: None)
        match = r"codec 'numcodecs.FITSnothing' needs .* pip install 'virtualstack\[kerchunk\]'"
        with pytest.raises(MissingDependencyError, match=match):
            make_decoder((codec("FITSnothing"),), dtype, shape)
    pytest.importorskip("kerchunk")
    with pytest.raises(UnsupportedFeatureError, match=r"'numcodecs\.FITSnothing' .* upgrade kerchunk"):
        make_decoder((codec("FITSnothing"),), dtype, shape)
    with pytest.raises(UnsupportedFeatureError, match=r"'numcodecs\.virtualstack_test_odd' does not take"):
        make_decoder((codec("virtualstack_test_odd", surplus=1),), dtype, shape)
    with pytest.raises(UnsupportedFeatureError, match=r"codec 'numcodecs\.nobody_knows'"):
        make_decoder((codec("nobody_knows"),), dtype, shape)
    with pytest.raises(UnsupportedFeatureError, match="codec 'nobody_knows' is known to neither"):
        decode(RAW, (Codec("nobody_knows"),), dtype, shape)
    with pytest.raises(UnsupportedFeatureError, match="runs code"):
        decode(RAW, (codec("pickle"),), dtype, shape)
    with pytest.raises(UnsupportedFeatureError, match="takes arrays, but the one before it gave bytes"):
        make_decoder((codec("zlib"), Codec.from_config("transpose", order=[0, 1])), dtype, shape)
    with pytest.raises(UnsupportedFeatureError, match="a permutation of 2 axes"):
        make_decoder((Codec.from_config("transpose", order=[0, 0]),), dtype, shape)
    make_decoder((codec("zlib"),), dtype, shape)
