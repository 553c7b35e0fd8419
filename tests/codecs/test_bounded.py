"""Decoders of single codecs beside the libraries that encode: bytes of every length, whole, cut, and too many."""

import bz2
import gzip
import lzma
import zlib

import numcodecs
import numpy as np
import pytest

from virtualstack.codecs.bounded import bounded_decoder, encoded_size
from virtualstack.codecs.codec import Codec, CodecError

LENGTHS = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 255, 256, 257, 1000, 70_000]
CHECKSUMS = ["adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"]
COMPRESSORS = {
    "zlib": {},
    "gzip": {},
    "bz2": {},
    "lzma": {},
    "lzma raw": {"format": lzma.FORMAT_RAW, "filters": [{"id": lzma.FILTER_LZMA2, "preset": 1}]},
    "lz4": {},
    "zstd": {},
    "blosc": {"cname": "zstd"},
    "blosc stored": {"clevel": 0},
}


def pair(name, **options):
    """Return the codec of numcodecs, and the same as it is written in metadata."""
    name = name.split()[0]
    return numcodecs.get_codec({"id": name, **options}), Codec.from_config(f"numcodecs.{name}", **options)


def content(n):
    """Return bytes that compress, in the first half, and others."""
    return bytes(n // 2) + np.random.default_rng(n).bytes(n - n // 2)


def undone(decode, raw, size, limit):
    return bytes(np.asarray(memoryview(decode(raw, size, limit))))


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", COMPRESSORS)
def test_bytes_of_every_length(name, n):
    """Each comes back whether its length is known or only limited; one byte more than the limit does not."""
    library, codec = pair(name, **COMPRESSORS[name])
    data, decode = content(n), bounded_decoder(codec)
    raw = bytes(library.encode(data))
    for size, limit in ((n, n), (n, n + 9), (None, n), (None, n + 9)):
        assert undone(decode, raw, size, limit) == data
    if n:
        with pytest.raises(CodecError, match=r"more than|at most"):
            decode(raw, None, n - 1)


@pytest.mark.parametrize("n", [1, 4, 16, 300])
@pytest.mark.parametrize("name", COMPRESSORS)
def test_cut_bytes_are_errors(name, n):
    """At each of their bytes; a length in a header, and a frame without content, are no data."""
    library, codec = pair(name, **COMPRESSORS[name])
    decode, raw = bounded_decoder(codec), bytes(library.encode(content(n)))
    for end in range(len(raw)):
        try:
            found = undone(decode, raw[:end], n, n)
        except (CodecError, RuntimeError, ValueError, zlib.error, lzma.LZMAError, OSError):
            continue
        assert name == "lzma raw", end  # only a raw stream has neither a length nor a checksum at its end
        assert found == content(n)


@pytest.mark.parametrize("name", ["gzip", "bz2", "lzma"])
@pytest.mark.parametrize("padding", [0, 1, 4, 100_000])
def test_streams_one_after_another(name, padding):
    """As in files of the tools of these names, which may fill blocks with zeros."""
    pack = {"gzip": gzip.compress, "bz2": bz2.compress, "lzma": lzma.compress}[name]
    decode = bounded_decoder(pair(name)[1])
    parts = [content(300), b"", content(17)]
    raw = b"".join(pack(part) + bytes(padding) for part in parts)
    data = b"".join(parts)
    assert undone(decode, raw, None, len(data)) == data
    with pytest.raises(CodecError, match="holds more than 316 bytes"):
        decode(raw, None, len(data) - 1)


@pytest.mark.parametrize(("more", "n_random"), [(0, 0), (1, 0), (0, 2_000_000), (1, 2_000_000)])
def test_streams_are_as_many_as_their_bytes_allow(more, n_random):
    """1000, and one for each 1000 bytes."""
    first, empty = gzip.compress(content(n_random), 0), gzip.compress(b"")
    n = 1000
    while n + 1 <= 1000 + (len(first) + n * len(empty)) // 1000:
        n += 1
    decode = bounded_decoder(pair("gzip")[1])
    raw = first + empty * (n - 1 + more)
    if more:
        with pytest.raises(CodecError, match=f"more than {n} parts"):
            decode(raw, None, n_random)
    else:
        assert undone(decode, raw, None, n_random) == content(n_random)


@pytest.mark.parametrize("name", ["lzma", "imagecodecs_lzma"])
def test_lzma_takes_at_most_a_gibibyte(name):
    """The header says how much memory a decoder needs, whatever comes back."""
    form = lzma.FORMAT_ALONE if name == "imagecodecs_lzma" else lzma.FORMAT_XZ
    decode = bounded_decoder(Codec.from_config(f"numcodecs.{name}", format=form))
    assert undone(decode, lzma.compress(b"data", form), 4, 4) == b"data"
    if form == lzma.FORMAT_ALONE:
        raw = bytearray(lzma.compress(b"data", form))
        raw[1:5] = (3 << 29).to_bytes(4, "little")
        with pytest.raises(lzma.LZMAError, match="Memory usage limit"):
            decode(bytes(raw), 4, 4)


def test_a_deflate_stream_is_one():
    """What follows is not read, as by zlib."""
    decode = bounded_decoder(pair("zlib")[1])
    assert undone(decode, zlib.compress(b"data") + b"more", 4, 4) == b"data"


@pytest.mark.parametrize("n", LENGTHS[1:])
@pytest.mark.parametrize("name", [*COMPRESSORS, *CHECKSUMS, "shuffle"])
def test_the_length_of_encoded_bytes(name, n):
    """What is said to be known is what the library writes, and nothing that it writes is longer than the limit."""
    library, codec = pair(name, **COMPRESSORS.get(name, {}))
    n = n // 4 * 4 if name == "shuffle" else n
    n_encoded = len(bytes(library.encode(np.frombuffer(content(n), "u1"))))
    size, most = encoded_size(codec, n, n)
    assert size == (None if name in COMPRESSORS else n_encoded)
    assert n_encoded == most if size is not None else n_encoded <= most
    assert encoded_size(codec, None, n) == (None, most)


@pytest.mark.parametrize("n", LENGTHS[1:])
def test_checksums_of_bytes_of_every_length(n):
    library, codec = pair("fletcher32")
    data, decode = content(n), bounded_decoder(codec)
    raw = bytes(library.encode(np.frombuffer(data, "u1")))
    assert undone(decode, raw, n, n) == data
    assert undone(decode, bytes(4), 0, 0) == b""  # the checksum of nothing, which numcodecs does not take
    for cut in range(4):
        with pytest.raises(CodecError, match=f"a fletcher32 checksum has 4 bytes; the chunk has {cut}"):
            decode(raw[:cut], n, n)


@pytest.mark.parametrize("width", [0, 1, 2, 3, 4, 8])
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 16, 24, 25, 240])
def test_shuffled_bytes(width, n):
    """Whole elements as numcodecs shuffles them; the bytes that fill no element stay at the end."""
    data = content(n)
    whole = n // max(width, 1) * max(width, 1)
    raw = bytes(numcodecs.Shuffle(max(width, 1)).encode(np.frombuffer(data[:whole], "u1"))) + data[whole:]
    for name in ("numcodecs.shuffle", "virtualstack.shuffle"):
        codec = Codec.from_config(name, elementsize=width)
        assert undone(bounded_decoder(codec), raw, n, n) == data
        assert encoded_size(codec, n, n) == (n, n)
