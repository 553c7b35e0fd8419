"""Chunks of compressors of HDF5 that are cut or changed where damage at random seldom hits."""

import itertools

import h5py
import numpy as np
import pytest

from tests.codecs.test_hdf5_damage import chunk_of
from tests.codecs.test_hdf5_filters import FILTERS, create
from virtualstack.codecs.codec import CodecError
from virtualstack.codecs.hdf5.compressors import bitshuffle, bitshuffle_settings, blosc2, lz4, lzf, szip

pytest.importorskip("imagecodecs")

MIB = 1 << 20
CHUNK_HEADER_BYTES = 32


def frame_of(values):
    """A blosc2 frame, and where its chunks begin."""
    dataset = create(values, values.shape, **FILTERS["blosc2"])
    _, raw = dataset.id.read_direct_chunk((0,) * values.ndim)
    return bytearray(raw), int.from_bytes(raw[11:15], "big")


ZEROS, VALUES = np.zeros((16, 30), "f4"), np.arange(480, dtype="f4").reshape(16, 30)


def test_an_empty_szip_chunk_has_no_bytes():
    decode = szip(chunk_of("szip nn 4")[1][-1].options())
    assert decode(bytes(4), 0, MIB) == b""
    with pytest.raises(CodecError, match="its size in 4 bytes; there are 3 bytes"):
        decode(bytes(3), None, MIB)


def test_an_lzf_chunk_has_a_size_and_bytes():
    raw, codecs, *_ = chunk_of("lzf")
    decode = lzf(codecs[-1].options())
    assert len(decode(raw, 1920, MIB)) == len(decode(raw, None, MIB)) == 1920
    with pytest.raises(CodecError, match="the LZF stream holds 1920 bytes; 1921 are expected"):
        decode(raw, 1921, MIB)
    with pytest.raises(CodecError, match="the chunk is empty"):
        decode(b"", None, MIB)


@pytest.mark.parametrize("n_lost", [1, 2, 16])
def test_elements_after_the_last_block_of_bitshuffle_may_be_cut(n_lost):
    """Elements that make no group of eight follow the blocks as they are."""
    imagecodecs = pytest.importorskip("imagecodecs")
    values = np.arange(20, dtype="<f4")
    block = imagecodecs.lz4_encode(imagecodecs.bitshuffle_encode(values[:16].tobytes(), itemsize=4), header=False)
    head = (80).to_bytes(8, "big") + (64).to_bytes(4, "big") + len(block).to_bytes(4, "big")
    raw = head + block + values[16:].tobytes()
    decode = bitshuffle({"elementsize": 4, "blocksize": 0, "compressor": "lz4"})
    np.testing.assert_array_equal(np.frombuffer(decode(raw, 80, MIB), "<f4"), values)
    with pytest.raises(CodecError, match="the bitshuffle chunk is cut short"):
        decode(raw[:-n_lost], 80, MIB)


def test_a_blosc2_frame_of_zeros_has_no_chunk():
    """The index of chunks says what its values are."""
    raw, n_header = frame_of(ZEROS)
    decode = blosc2({})
    assert bytes(decode(bytes(raw), 1920, MIB)) == ZEROS.tobytes()
    at = raw.index(0x81, n_header + CHUNK_HEADER_BYTES)
    raw[at] = 0x82
    with pytest.raises(CodecError, match="a chunk of special values 0x82, which is not known"):
        decode(bytes(raw), 1920, MIB)


def test_a_blosc2_frame_may_end_in_its_chunk():
    raw, n_header = frame_of(VALUES)
    decode = blosc2({})
    assert bytes(decode(bytes(raw), 1920, MIB)) == VALUES.tobytes()
    short = raw[: n_header + 10]
    short[16:24] = len(short).to_bytes(8, "big")
    short[39:47] = (10).to_bytes(8, "big")
    with pytest.raises(CodecError, match="ends in the header of its chunk"):
        decode(bytes(short), 1920, MIB)


@pytest.mark.parametrize(
    ("where", "number", "message"),
    [
        (slice(16, 24), 1 << 20, "says that it is 1048576 bytes long; there are"),
        (slice(39, 47), 1 << 20, "says that it is .* bytes long; there are"),
        (slice(11, 15), 3, "says that it is .* bytes long; there are"),
        (slice(30, 38), 1 << 63, "says that it holds -9223372036854775808 bytes"),
        (slice(48, 52), 0, "of elements of 0 bytes"),
    ],
)
def test_headers_of_blosc2_frames_that_contradict_their_bytes(where, number, message):
    raw, _ = frame_of(VALUES)
    raw[where] = number.to_bytes(where.stop - where.start, "big")
    with pytest.raises(CodecError, match=message):
        blosc2({})(bytes(raw), 1920, MIB)


@pytest.mark.parametrize("block", range(2, 33, 2))
@pytest.mark.parametrize("how", ["nn", "ec"])
def test_a_cut_szip_stream_is_decoded_whole_or_is_an_error(how, block, tmp_path):
    """libaec leaves the end of its output as the memory was, and says that all is well."""
    rng = np.random.default_rng(0)
    shapes = (64,), (100,), (7, 30), (3, 4100)
    dtypes = "u1", "<i2", ">i2", "<i4", ">i8", "<f4", "<f8"
    options = {"compression": "szip", "compression_opts": (how, block)}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for shape, dtype in itertools.product(shapes, dtypes):
            values = rng.integers(0, 3, shape).astype(dtype)
            made = file.create_dataset(f"{dtype}{shape}", data=values, chunks=shape, **options)
            _check_cuts(made, values)


def _check_cuts(dataset, values):
    raw = dataset.id.read_direct_chunk((0,) * values.ndim)[1]
    names = "options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline"
    decode = szip(dict(zip(names, dataset.id.get_create_plist().get_filter(0)[2], strict=True)))
    assert not dataset.id.get_chunk_info(0).filter_mask
    assert bytes(decode(raw, values.nbytes, 1 << 30)) == dataset[...].tobytes() == values.tobytes()
    n_errors = 0
    for cut in {*range(4, len(raw), 1 + len(raw) // 20), *range(len(raw) - 3, len(raw))}:
        try:
            found = decode(raw[:cut], values.nbytes, 1 << 30)
        except CodecError:
            n_errors += 1
        else:
            assert bytes(found) == values.tobytes()
            assert cut > len(raw) // 2
    assert n_errors > 5


def blocks(size, n_bytes, *stored):
    """A chunk of bitshuffle or lz4: its header, then blocks with their sizes."""
    body = b"".join(len(block).to_bytes(4, "big") + block for block in stored)
    return size.to_bytes(8, "big") + n_bytes.to_bytes(4, "big") + body


BITSHUFFLE = {"elementsize": 4, "blocksize": 0, "compressor": "lz4"}


@pytest.mark.parametrize(
    ("decoder", "options", "raw", "reason"),
    [
        (lz4, {}, blocks(8, 0), "says that its blocks have no bytes"),
        (lz4, {}, blocks(8, 8, b"12345678")[:-1], "a block reaches past the end of the chunk"),
        (lz4, {}, blocks(8, 8)[:-2], "its header alone has 12"),
        (bitshuffle, BITSHUFFLE, blocks(8, 0), "says that its blocks have no bytes"),
        (bitshuffle, BITSHUFFLE, blocks(0, 0), "holds 0 bytes in blocks of 0"),
        (bitshuffle, BITSHUFFLE, blocks(64, 24), "holds 64 bytes in blocks of 24. Elements have 4 bytes"),
        (bitshuffle, BITSHUFFLE, blocks(63, 32), "holds 63 bytes in blocks of 32. Elements have 4 bytes"),
        (bitshuffle, BITSHUFFLE, blocks(32, 32, b"\x10a"), "a block holds 1 byte; 32 bytes expected"),
        (bitshuffle, BITSHUFFLE | {"compressor": "none"}, bytes(7), "7 bytes, which are not whole elements of 4"),
    ],
)
def test_headers_and_blocks_that_contradict_each_other(decoder, options, raw, reason):
    """As no writer makes them; the HDF5 library refuses them, too, or reads beyond the chunk."""
    with pytest.raises(CodecError, match=reason):
        decoder(options)(raw, None, MIB)


def test_whole_values_of_szip():
    """Values of 4 bytes cannot fill 7."""
    options = chunk_of("szip nn 4")[1][-1].options()
    with pytest.raises(CodecError, match="7 bytes, which are not whole values of 4 bytes"):
        szip({**options, "bits": 32} if "bits" in options else options)((7).to_bytes(4, "little") + bytes(9), None, MIB)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, 1, "the header of the blosc2 frame is damaged|frame holds"),
        (3, 5, "the header of the blosc2 frame is damaged"),
    ],
)
def test_shapes_of_a_blosc2_frame_that_are_damaged(at, value, reason):
    """Those of the array, the chunk and the block stand in its header."""
    raw, _ = frame_of(VALUES)
    begin = raw.index(b"b2nd")
    content = int.from_bytes(raw[begin + 5 : begin + 9], "big") + 5
    raw[content + 3 if at == 3 else content + 11] = 0x95 if at == 3 else value
    with pytest.raises(CodecError, match=reason):
        blosc2({})(bytes(raw), 1920, MIB)


@pytest.mark.parametrize("size", [1, 2, 100, 5000])
@pytest.mark.parametrize("limit", [0, 1, MIB])
def test_lzf_of_any_size(size, limit):
    """Runs of one byte are the shortest streams: 264 bytes in 3."""
    imagecodecs = pytest.importorskip("imagecodecs")
    decode = lzf({})
    data = bytes(size)
    raw = bytes(imagecodecs.lzf_encode(data, header=False)) if size > 2 else bytes((size - 1,)) + data
    for known in (len(data), None):
        if len(data) <= max(limit, 1) or known:
            assert bytes(decode(raw, known, limit)) == data
        else:
            with pytest.raises((CodecError, imagecodecs.LzfError)):
                decode(raw, known, limit)


@pytest.mark.parametrize("bits", [8, 16, 24, 32, 64])
@pytest.mark.parametrize("extra", [0, 1])
def test_szip_chunks_hold_whole_values(bits, extra):
    """Of 1, 2, 4 and 8 bytes; 24 bits take 4."""
    imagecodecs = pytest.importorskip("imagecodecs")
    options = {"options_mask": 141, "pixels_per_block": 8, "bits_per_pixel": bits, "pixels_per_scanline": 16}
    width = {8: 1, 16: 2, 24: 4, 32: 4, 64: 8}[bits]
    raw = (32 * width).to_bytes(4, "little") + bytes(imagecodecs.szip_encode(bytes(32 * width), 141, 8, bits, 16))
    decode = szip(options)
    assert bytes(decode(raw, 32 * width, MIB)) == bytes(32 * width)
    odd = (32 * width - width + extra).to_bytes(4, "little") + raw[4:]
    if extra and width > 1:
        with pytest.raises(CodecError, match=f"are not whole values of {width} bytes"):
            decode(odd, None, MIB)
    else:
        assert bytes(decode(odd, None, MIB)) == bytes(31 * width + extra)


def test_elements_of_bitshuffle_have_at_most_a_mebibyte():
    for width, block, is_known in (
        (1 << 20, 0, True), (1 + (1 << 20), 0, False), (1, 0, True), (0, 0, False),
        (4, (1 << 32) - 8, True), (4, 1 << 32, False), (4, 8, True), (4, 12, False), (4, -8, False),
    ):  # fmt: skip
        options = {"elementsize": width, "blocksize": block, "compressor": "lz4"}
        if is_known:
            assert bitshuffle_settings(options) == (width, block, "lz4")
        else:
            with pytest.raises(ValueError, match=f"has elements of {width} bytes in blocks of {block}"):
                bitshuffle_settings(options)


@pytest.mark.parametrize(
    ("width", "n"),
    [*itertools.product([1, 2, 4, 8, 16, 100], [8, 127, 129, 5000]), (60, 140), (100, 129), (9000, 8), (9000, 150)],
)
@pytest.mark.parametrize("cname", ["none", "lz4"])
def test_bitshuffle_of_any_element(width, n, cname):
    """Blocks are of the filter's own choice: 8 KiB, and 128 elements at least."""
    data = np.frombuffer(np.random.default_rng(n).bytes(n * width), f"V{width}")
    import hdf5plugin

    made = create(data, (n,), **hdf5plugin.Bitshuffle(cname=cname))
    raw = made.id.read_direct_chunk((0,))[1]
    decode = bitshuffle({"elementsize": width, "blocksize": 0, "compressor": cname})
    assert bytes(decode(raw, data.nbytes, data.nbytes)) == data.tobytes()


@pytest.mark.parametrize(("cut", "n_bytes"), [(1, 8), (3, 5), (4, 4)])
def test_blocks_of_lz4_end_with_their_chunk(cut, n_bytes):
    """A block that is stored as it is ends with the last byte; the size of a block has 4 bytes."""
    whole = blocks(8, 4, b"1234", b"5678")
    assert bytes(lz4({})(whole, 8, 8)) == b"12345678"
    with pytest.raises(CodecError, match="a block reaches past the end of the chunk"):
        lz4({})(whole[:-cut], 8, 8)
    with pytest.raises(CodecError, match="the lz4 chunk says that it holds 8 bytes; 7 are expected"):
        lz4({})(whole, None, 7)
    with pytest.raises(CodecError, match="the lz4 chunk says that it holds 8 bytes; 9 are expected"):
        lz4({})(whole, 9, 9)


@pytest.mark.parametrize("shape", [(480,), (16, 30), (4, 6, 20), (2, 3, 4, 5, 4)])
@pytest.mark.parametrize("n_lost", [0, 1, 5])
def test_a_blosc2_frame_of_any_shape(shape, n_lost):
    """Whole, and with bytes less than it says."""
    values = VALUES.reshape(shape)
    raw, n_header = frame_of(values)
    decode = blosc2({})
    if not n_lost:
        assert bytes(decode(bytes(raw), 1920, 1920)) == values.tobytes()
        assert bytes(decode(bytes(raw) + b"more", 1920, 1920)) == values.tobytes()
        with pytest.raises(CodecError, match="the blosc2 frame says that it holds 1920 bytes; 1919 are expected"):
            decode(bytes(raw), None, 1919)
        with pytest.raises(CodecError, match="there is no blosc2 frame: the magic is missing"):
            decode(b"12" + bytes(raw), 1920, 1920)
        return
    with pytest.raises(CodecError, match=f"says that it is {len(raw)} bytes long; there are {len(raw) - n_lost}"):
        decode(bytes(raw[:-n_lost]), 1920, 1920)
    stored = int.from_bytes(raw[n_header + 12 : n_header + 16], "little")
    raw[n_header + 12 : n_header + 16] = (len(raw) + n_lost).to_bytes(4, "little")
    with pytest.raises(CodecError, match=f"the blosc2 chunk says that it is {len(raw) + n_lost} bytes long"):
        decode(bytes(raw), 1920, 1920)
    raw[n_header + 12 : n_header + 16] = (15).to_bytes(4, "little")
    assert stored > 32
    with pytest.raises(CodecError, match="the blosc2 chunk says that it is 15 bytes long"):
        decode(bytes(raw), 1920, 1920)
    raw[n_header + 4 : n_header + 8] = (1920 + n_lost).to_bytes(4, "little")
    with pytest.raises(
        CodecError, match=f"the blosc2 (chunk|frame) says that it holds {1920 + n_lost} bytes; 1920 are expected"
    ):
        decode(bytes(raw), 1920, 1920)


def test_a_blosc2_frame_with_more_than_shapes():
    """Writers may name other contents of the header before the shapes."""
    raw, n_header = frame_of(VALUES)
    at = raw.index(b"b2nd") - 1
    count_at, offset_at = at - 2, at + 6
    n_names = int.from_bytes(raw[count_at:at], "big")
    start = int.from_bytes(raw[offset_at : offset_at + 4], "big")
    name = b"\xa5other\xd2" + (start).to_bytes(4, "big")
    offset = (start + len(name)).to_bytes(4, "big")
    more = raw[:count_at] + (n_names + 1).to_bytes(2, "big") + name + raw[at:offset_at] + offset + raw[offset_at + 4 :]
    more[11:15] = (n_header + len(name)).to_bytes(4, "big")
    more[16:24] = len(more).to_bytes(8, "big")
    assert bytes(blosc2({})(bytes(more), 1920, 1920)) == VALUES.tobytes()
