"""Chunks of compressors of HDF5 that are cut or changed where damage at random seldom hits."""

import itertools

import h5py
import numpy as np
import pytest

from tests.codecs.test_hdf5_damage import chunk_of
from tests.codecs.test_hdf5_filters import FILTERS, create
from virtualstack.codecs.codec import CodecError
from virtualstack.codecs.hdf5.compressors import bitshuffle, blosc2, lz4, lzf, szip

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
        (bitshuffle, BITSHUFFLE, blocks(64, 24), "holds 64 bytes in blocks of 24; elements have 4 bytes"),
        (bitshuffle, BITSHUFFLE, blocks(63, 32), "holds 63 bytes in blocks of 32; elements have 4 bytes"),
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
