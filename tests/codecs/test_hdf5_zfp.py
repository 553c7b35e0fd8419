"""zfp: headers that the library writes, and chunks that are decoded as the library decodes them."""

import math

import numpy as np
import pytest

from virtualstack.codecs.codec import CodecError
from virtualstack.codecs.hdf5.zfp import parse_header, zfp

imagecodecs = pytest.importorskip("imagecodecs")

MODE = imagecodecs.ZFP.MODE
SHAPES = [(15,), (15, 6), (5, 6, 7), (5, 4, 3, 6)]


def words_of(raw):
    """The header in front of a stream, as words of 32 bits, and zeros of other bits."""
    return np.frombuffer(bytes(raw[:20]).ljust(20, b"\0"), "<u4").tolist()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["i4", "i8", "f4", "f8"])
@pytest.mark.parametrize(
    ("mode", "level"),
    [
        (MODE.FIXED_RATE, 8),
        (MODE.FIXED_RATE, 9),
        (MODE.FIXED_PRECISION, 16),
        (MODE.FIXED_ACCURACY, 0.5),
        (MODE.REVERSIBLE, 0),
    ],
)
def test_a_chunk_is_decoded_as_by_the_library(shape, dtype, mode, level):
    """A fixed rate pads blocks of 4 elements along each axis; more than 2048 bits of a block take a longer header."""
    values = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    whole = bytes(imagecodecs.zfp_encode(values, level=level, mode=mode, header=True))
    words = words_of(whole)
    header = parse_header(words)
    block_bits = level * 4 ** len(shape) if mode == MODE.FIXED_RATE else 1
    assert (header.shape, header.dtype, header.block_bits) == (shape, np.dtype(dtype), block_bits)
    assert header.n_bits == (148 if block_bits > 2048 else 96)
    words = words[:3] if header.n_bits == 96 else [*words[:4], words[4] & 0xFFFFF]  # 20 bits of the last one
    decode = zfp({"header": words})
    raw = (int.from_bytes(whole, "little") >> header.n_bits).to_bytes(len(whole), "little")  # a chunk has no header
    wanted = imagecodecs.zfp_decode(whole).tobytes()
    assert bytes(decode(raw, values.nbytes, values.nbytes)) == wanted
    n_bytes = -(-math.prod(-(-n // 4) for n in shape) * block_bits // 8)
    if mode == MODE.FIXED_RATE:
        assert bytes(decode(raw[:n_bytes], values.nbytes, values.nbytes)) == wanted
        with pytest.raises(CodecError, match=rf"has {n_bytes - 1} bytes; .* blocks of {block_bits} bits are expected"):
            decode(raw[: n_bytes - 1], values.nbytes, values.nbytes)


def test_headers_end_with_their_mode():
    values = np.zeros(SHAPES[-1], "f4")
    short, long = (
        words_of(imagecodecs.zfp_encode(values, level=rate, mode=MODE.FIXED_RATE, header=True)) for rate in (8, 9)
    )
    assert parse_header(short[:3]) == parse_header(short)
    for words in (short[:2], [short[0] + 1, *short[1:]], []):
        with pytest.raises(ValueError, match="without a zfp header"):
            parse_header(words)
    with pytest.raises(ValueError, match="a zfp header that ends early"):
        parse_header(long[:4])
    with pytest.raises(ValueError, match="not words of 32 bits"):
        parse_header([*short, 1 << 32])


@pytest.mark.parametrize("size", [60, 59, 61])
def test_a_chunk_has_as_many_bytes_as_its_header_says(size):
    words = words_of(imagecodecs.zfp_encode(np.zeros(15, "f4"), level=8, mode=MODE.FIXED_RATE, header=True))
    if size == 60:
        assert len(zfp({"header": words})(bytes(100), size, 60)) == 60
    else:
        with pytest.raises(CodecError, match=f"the zfp header .*{size}"):
            zfp({"header": words})(bytes(100), size, 100)
    with pytest.raises(CodecError, match="the zfp header"):
        zfp({"header": words})(bytes(100), None, 59)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["i4", "i8", "f4", "f8"])
def test_the_library_reads_no_further_than_zeros(shape, dtype, monkeypatch):
    """After a chunk of too few bytes there are as many as the longest stream has, and not many more."""
    rng = np.random.default_rng(0)
    longest = 0
    for mode, level in ((MODE.REVERSIBLE, 0), (MODE.FIXED_PRECISION, 64)):
        values = np.frombuffer(rng.bytes(math.prod(shape) * np.dtype(dtype).itemsize), dtype).reshape(shape)
        values = np.nan_to_num(values, posinf=0, neginf=0) if values.dtype.kind == "f" else values
        raw = bytes(imagecodecs.zfp_encode(values, level=level, mode=mode, header=True))
        longest, words = max(longest, len(raw)), words_of(raw)
    given = []
    monkeypatch.setattr(imagecodecs, "zfp_decode", lambda stream, out: given.append(len(stream)))
    n_blocks = math.prod(-(-n // 4) for n in shape)
    zfp({"header": words})(bytes(-(-n_blocks // 8)), values.nbytes, values.nbytes)  # a bit for each block
    assert longest + 64 <= given[0] <= 1.1 * n_blocks * (4 ** len(shape) * values.itemsize + 24) + 100
