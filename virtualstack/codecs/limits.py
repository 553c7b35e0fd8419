"""Limits for decoders of other packages: they get bytes from untrusted sources and must not exceed the expected size.

The codecs in the registry of numcodecs are of four kinds. They were measured with imagecodecs 2026.10, 64 MiB of zeros
and room for 4 KiB:

- streams that imagecodecs decodes into memory that virtualstack provides, and not beyond its end;
- images, whose header is checked before decoding, or which a child process of limited memory and time decodes;
- codecs whose output is at most a few bytes for each input byte, such as differences;
- codecs whose output is as large as their bytes or settings ask for. They are not decoded, except kerchunk's, which are
  checked first.

Headers of JPEG, PNG, WebP and LERC images are parsed here, because imagecodecs makes the array of an image as large as
its header says. libjpeg takes time for scans that none of its settings bounds. A child process decodes images of
OpenJPEG, libjxl and libspng, which take memory for tiles, precincts, hidden frames and texts.

A package that is not listed here is trusted: the user has installed it for its codecs.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from struct import unpack_from
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.child.pool import ChildDiedError, run_in_child
from virtualstack.codecs.aec import aec_block_bytes, check_aec, szip_settings
from virtualstack.codecs.codec import BytesDecoder, BytesLike, CodecError, check_size, raw_bytes, shortened
from virtualstack.errors import UnsupportedFeatureError

_MARKERS_NOT_FRAMES = frozenset({0xC4, 0xC8, 0xCC})
_MAX_SCANS = 100
"""Maximum number of scans of a JPEG image: libjpeg processes the whole image for each. Writers use about 10."""
_MARKERS_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


def image_size(name: str, data: bytes, /) -> tuple[int, int, int] | None:
    """Read rows, columns and samples of an image; return ``None`` if the format is not examined here."""
    match name:
        case "jpeg":
            return _jpeg(data)
        case "png":
            return _png(data)
        case "webp":
            return _webp(data)
    return None


def _jpeg(data: bytes) -> tuple[int, int, int]:
    """Find the frame header (ITU T.81, B.2.2); like libjpeg and liblj92, take the last one."""
    found: tuple[int, int, int] | None = None
    at = 0
    while at + 4 <= len(data):
        marker = data[at + 1]
        if data[at] != 0xFF or not marker:  # libjpeg skips ahead to the next marker here
            raise CodecError(f"the JPEG stream has no marker at byte {at}")
        if marker == 0xFF:  # fill bytes
            at += 1
            continue
        if marker in _MARKERS_WITHOUT_LENGTH:
            at += 2
            continue
        if marker == 0xDA:
            break
        if 0xC0 <= marker <= 0xCF and marker not in _MARKERS_NOT_FRAMES:
            if found is not None:
                raise CodecError("the JPEG stream has a second frame header")
            if at + 10 > len(data):
                break
            rows, columns, samples = unpack_from(">HHB", data, at + 5)
            found = rows, columns, samples
        at += 2 + int(unpack_from(">H", data, at + 2)[0])
    if found is None:
        raise CodecError("the JPEG stream has no frame header: it is cut short or damaged")
    if (n_scans := data.count(b"\xff\xda", at)) > _MAX_SCANS:
        raise CodecError(f"the JPEG stream has {n_scans} scans; more than {_MAX_SCANS} are not decoded")
    return found


def _png(data: bytes) -> tuple[int, int, int]:
    if len(data) < 26 or data[12:16] != b"IHDR":
        raise CodecError("there is no PNG image: its header is missing")
    columns, rows = unpack_from(">II", data, 16)
    return rows, columns, 4


def _webp(data: bytes) -> tuple[int, int, int]:
    """Read the first chunk of the RIFF file (RFC 9649, 2.5 to 2.7)."""
    if len(data) < 30 or data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        raise CodecError("there is no WebP image: its header is missing")
    kind = data[12:16]
    if kind == b"VP8 ":
        columns, rows = unpack_from("<HH", data, 26)
        return rows & 0x3FFF, columns & 0x3FFF, 4
    if kind == b"VP8L":
        (bits,) = unpack_from("<I", data, 21)
        return ((bits >> 14) & 0x3FFF) + 1, (bits & 0x3FFF) + 1, 4
    if data[20] & 2:
        raise CodecError("the WebP image is animated, with a number of frames that its header does not say")
    columns = int.from_bytes(data[24:27], "little") + 1
    return int.from_bytes(data[27:30], "little") + 1, columns, 4


def lerc_size(head: bytes, /) -> tuple[int, int, int]:
    """Read rows, columns and interleaved samples of the first band of a LERC frame."""
    depth = 1
    if head.startswith(b"Lerc2 ") and len(head) >= 26:
        (version,) = unpack_from("<i", head, 6)
        rows, columns, depth = unpack_from("<iii", head, 14 if version >= 3 else 10)
        depth = depth if version >= 4 else 1
    elif head.startswith(b"CntZImage ") and len(head) >= 26:
        rows, columns = unpack_from("<ii", head, 18)
    else:
        raise CodecError("there is no LERC frame: its header is missing")
    if rows < 0 or columns < 0 or depth < 1:
        raise CodecError(f"the LERC frame says that it has {rows} x {columns} x {depth} samples")
    return rows, columns, depth


_IMAGECODECS = "imagecodecs_"
_DECODED_INTO_MEMORY = frozenset(
    f"{_IMAGECODECS}{name}"
    for name in (
        "aec", "bitshuffle", "blosc2", "brotli", "bz2", "deflate", "isal", "lz4", "lz4f", "lz4h5", "lzf",
        "lzfse", "lzw", "packbits", "snappy", "szip", "zlib", "zlibng", "zopfli", "zstd", "zstd1",
    )
)  # fmt: skip
"""Codecs that decode into given memory and stop at its end."""
_IN_CHILD = frozenset(f"{_IMAGECODECS}{name}" for name in ("jpeg2k", "jpegxl", "spng"))
"""Codecs of images that a child process decodes."""
_ANY_DTYPE = frozenset({f"{_IMAGECODECS}jpegxl"})
"""Codecs of images whose samples may be integers or floats of one size."""
_UNSOUND = {
    f"{_IMAGECODECS}jpegls": "CharLS 2.4 may never end",
    f"{_IMAGECODECS}jpegxr": "jxrlib may write beyond its memory",
}
_IMAGES = {f"{_IMAGECODECS}{name}": name for name in ("jpeg", "lerc", "png", "webp")}
_SMALL_OUTPUT = frozenset(
    f"{_IMAGECODECS}{name}"
    for name in (
        "bfloat16", "bitorder", "byteshuffle", "checksum", "delta", "float24", "floatpred", "packints", "quantize",
        "xor",
    )
)  # fmt: skip
"""Codecs that write at most a few bytes for each input byte."""
_UNBOUNDED = frozenset({"FITSAscii", "FITSVarBintable", "json2", "msgpack2", "vlen-array", "zfpy"})


def bounded_plugin(
    name: str, decoder: Any, options: Mapping[str, Any], dtype: np.dtype[Any], shape: tuple[int, ...], /
) -> Any:
    """Make a decoder that uses at most a few times the memory of the expected values."""
    if name in _UNSOUND:
        raise UnsupportedFeatureError(
            f"codec 'numcodecs.{name}' is not decoded: {_UNSOUND[name]} if its bytes are damaged. Write the data "
            "again with another codec",
            feature=f"numcodecs.{name}",
        )
    try:
        if name in _DECODED_INTO_MEMORY:
            if name in _SETTINGS:
                _SETTINGS[name](options)
            return _into(name, decoder, aec_block_bytes(options) if name == _AEC else 1)
        if name in _IN_CHILD:
            return _of_shape(decoder, shape, dtype if name in _ANY_DTYPE else None)
    except (LookupError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise UnsupportedFeatureError(
            f"codec 'numcodecs.{name}' does not take the configuration {shortened(dict(options))}: {shortened(error)}",
            feature=name,
        ) from error
    check = _image(_IMAGES[name], bytes(getattr(decoder, "header", None) or b"")) if name in _IMAGES else None
    if check is None and name.startswith(_IMAGECODECS) and name not in _SMALL_OUTPUT:
        raise _unbounded(name)

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        data = raw_bytes(raw)
        if check is not None:
            check(data, size, limit)
        return raw_bytes(decoder.decode(data))

    return decode


def check_bounded(name: str, /) -> None:
    """Raise an error for a codec of numcodecs whose output is not bounded."""
    if name in _UNBOUNDED:
        raise _unbounded(name)


def _unbounded(name: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"codec 'numcodecs.{name}' returns as many bytes as its data say, without a limit, so it is not decoded. "
        "Write the data again with another codec",
        feature=f"numcodecs.{name}",
    )


type _Check = Callable[[np.ndarray[Any, Any], int | None, int], None]


_BLOSC2_HEADER_BYTES = 16
_AEC = f"{_IMAGECODECS}aec"
_SETTINGS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    _AEC: check_aec,
    f"{_IMAGECODECS}szip": szip_settings,
}


def _into(name: str, decoder: Any, padding: int) -> BytesDecoder:
    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        room = limit if size is None else size
        # One byte more, since some decoders stop silently at the end of the memory; libaec pads to a whole block.
        # blosc2 allocates blocks before it checks.
        if name == f"{_IMAGECODECS}blosc2" and len(raw) >= _BLOSC2_HEADER_BYTES:
            check_size("the blosc2 frame", int.from_bytes(bytes(raw[4:8]), "little"), None, room)
        found = raw_bytes(decoder.decode(raw_bytes(raw), out=np.empty(room + padding, np.uint8)))
        if found.size >= room + padding:
            raise CodecError(f"codec 'numcodecs.{name}' makes more than the {room} bytes that are expected")
        return found[:room]

    return decode


def _of_shape(decoder: Any, shape: tuple[int, ...], dtype: np.dtype[Any] | None) -> BytesDecoder:
    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        image = decode_in_child(decoder.decode, bytes(raw), limit)
        if [n for n in image.shape if n > 1] != [n for n in shape if n > 1]:
            raise CodecError(f"the image has the shape {image.shape}; a chunk of {shape} is expected")
        if dtype is not None and image.dtype != dtype.newbyteorder("="):
            raise CodecError(f"the image has the dtype '{image.dtype}'; '{dtype}' is expected")
        return raw_bytes(image)

    return decode


def decode_in_child(decoder: Callable[[bytes], Any], data: bytes, most: int, /) -> NDArray[Any]:
    """Decode an image in a child process, which limits memory and time, and may crash."""
    try:
        found: NDArray[Any] = run_in_child("virtualstack.codecs.images:decode", decoder, data, most)
    except ChildDiedError as error:
        raise CodecError(f"the image is damaged or too large: its decoder {error}") from error
    except MemoryError as error:
        raise CodecError("the image is damaged or too large: its decoder takes too much memory") from error
    return found


def _image(kind: str, head: bytes) -> _Check:
    def check(data: np.ndarray[Any, Any], size: int | None, limit: int) -> None:
        raw = head + data.tobytes()
        if kind == "lerc":
            rows, columns, samples = lerc_size(raw[:26])
            samples *= max(raw.count(b"Lerc2 "), raw.count(b"CntZImage "), 1)
        else:
            rows, columns, samples = image_size(kind, raw) or (0, 0, 0)
        # the headers of PNG and WebP may claim more samples than the image has
        n = rows * columns * (1 if kind in ("png", "webp") else samples)
        if n > limit:
            raise CodecError(f"the {kind} image has {rows} x {columns} x {samples} samples; {limit} bytes are expected")

    return check


def pcodec(dtype: np.dtype[Any], shape: tuple[int, ...], /) -> Callable[[Any], np.ndarray[Any, Any]]:
    """Make a decoder of numcodecs' ``pcodec`` that decodes into memory that virtualstack provides."""
    try:
        standalone = importlib.import_module("pcodec.standalone")
    except ImportError as error:
        raise UnsupportedFeatureError(
            "codec 'numcodecs.pcodec' needs the package pcodec: pip install pcodec", feature="numcodecs.pcodec"
        ) from error

    def decode(raw: Any, /) -> np.ndarray[Any, Any]:
        n = math.prod(shape)
        values = np.empty(n + 1, dtype.newbyteorder("="))
        done = standalone.simple_decompress_into(raw_bytes(raw).tobytes(), values)
        if done.n_processed != n or not done.finished:
            raise CodecError(f"the pcodec stream does not hold {n} numbers, which are expected")
        return values[:n].reshape(shape)

    return decode
