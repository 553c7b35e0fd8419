"""Decoders of other packages, held to the bytes that are expected: those they are given may come from a stranger.

What numcodecs' registry knows falls into these parts (measured with imagecodecs 2026.10, 64 MiB of zeros and room for
4 KiB):

- streams of imagecodecs that are decoded into memory of ours, and go no further;
- images, whose header is compared before they are decoded, or which imagecodecs compares with memory of ours;
- those that make a few bytes of each of theirs, such as differences;
- those that make as much as their bytes or settings say, which are not decoded; kerchunk's are looked into first.

A package that is not known here is taken at its word: somebody has installed it for its codecs.
"""

from __future__ import annotations

import ast
import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from virtualstack.codecs.aec import check_aec, szip_settings
from virtualstack.codecs.decoder import Bytes, BytesDecoder, CodecError, check_size, raw_bytes
from virtualstack.codecs.image_sizes import image_size, lerc_size, png_without_texts
from virtualstack.codecs.jpegxl_frames import check_frames
from virtualstack.codecs.metadata import shortened
from virtualstack.errors import UnsupportedFeatureError

__all__ = ["bounded_plugin", "check_bounded", "pcodec"]

_IMAGECODECS = "imagecodecs_"
_DECODED_INTO_MEMORY = frozenset(
    f"{_IMAGECODECS}{name}"
    for name in (
        "aec", "bitshuffle", "blosc2", "brotli", "bz2", "deflate", "isal", "lz4", "lz4f", "lz4h5", "lzf",
        "lzfse", "lzw", "packbits", "snappy", "szip", "zlib", "zlibng", "zopfli", "zstd", "zstd1",
    )
)  # fmt: skip
"""Take the memory to decode into, and stop where it ends."""
_SHAPE_COMPARED = frozenset(f"{_IMAGECODECS}{name}" for name in ("jpegxl",))
"""Take an array to decode into, and compare its shape before they decode; its frames are ours to look at."""
_UNSOUND = {
    f"{_IMAGECODECS}jpegls": "CharLS 2.4 goes on for ever",
    f"{_IMAGECODECS}jpegxr": "jxrlib reads and writes beyond its memory",
}
_IMAGES = {
    f"{_IMAGECODECS}{name}": kind
    for name, kind in {"jpeg": "jpeg", "jpeg2k": "jpeg2k", "lerc": "lerc", "png": "png",
                       "spng": "png", "webp": "webp"}.items()
}  # fmt: skip
_SMALL_OUTPUT = frozenset(
    f"{_IMAGECODECS}{name}"
    for name in (
        "bfloat16", "bitorder", "byteshuffle", "checksum", "delta", "float24", "floatpred", "packints", "quantize",
        "xor",
    )
)  # fmt: skip
"""Make a few bytes of each byte."""
_UNBOUNDED = frozenset({"json2", "msgpack2", "vlen-array", "zfpy"})


def bounded_plugin(
    name: str, decoder: Any, options: Mapping[str, Any], dtype: np.dtype[Any], shape: tuple[int, ...], /
) -> Any:
    """Make a decoder that takes no more memory than a few times what is expected.

    Parameters
    ----------
    name
        In numcodecs' registry.
    decoder
        Of that registry.
    options
        Its configuration.
    dtype, shape
        Of the array that the codecs make bytes of.

    Returns
    -------
    BytesDecoder
        It raises whatever the package raises.

    Raises
    ------
    UnsupportedFeatureError
        Nothing holds it.
    """
    if name in _UNSOUND:
        raise UnsupportedFeatureError(
            f"codec 'numcodecs.{name}' is not decoded: {_UNSOUND[name]} where its bytes are damaged. Write the data "
            "anew with another codec",
            feature=f"numcodecs.{name}",
        )
    try:
        if name in _DECODED_INTO_MEMORY:
            if name in _SETTINGS:
                _SETTINGS[name](options)
            return _into(name, decoder)
        if name in _SHAPE_COMPARED:
            return _compared(decoder, dtype, shape)
        check = _make_check(name, decoder, options)
    except (LookupError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise UnsupportedFeatureError(
            f"codec 'numcodecs.{name}' does not take the configuration {shortened(dict(options))}: {shortened(error)}",
            feature=name,
        ) from error
    if check is None and name.startswith(_IMAGECODECS) and name not in _SMALL_OUTPUT:
        raise _unbounded(name)

    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        data = raw_bytes(raw)
        if check is not None:
            check(data, size, limit)
        if name == f"{_IMAGECODECS}spng":
            data = raw_bytes(png_without_texts(data.tobytes()))
        return raw_bytes(decoder.decode(data))

    return decode


def check_bounded(name: str, /) -> None:
    """Raise for a codec of numcodecs' own that nothing holds.

    Raises
    ------
    UnsupportedFeatureError
        It is one.
    """
    if name in _UNBOUNDED:
        raise _unbounded(name)


def _unbounded(name: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"codec 'numcodecs.{name}' makes as many bytes as its data say, without a bound; it is not decoded. "
        "Write the data anew with another codec",
        feature=f"numcodecs.{name}",
    )


_CHECKS = {"grib": "virtualstack.codecs.grib.kerchunk:message_check"}
"""What makes the check of a codec of another package, in the folder of the format whose library it needs."""

type _Check = Callable[[np.ndarray[Any, Any], int | None, int], None]


def _make_check(name: str, decoder: Any, options: Mapping[str, Any]) -> _Check | None:
    if name in _IMAGES:
        return _image(_IMAGES[name], bytes(getattr(decoder, "header", None) or b""))
    if name in _CHECKS:
        module, function = _CHECKS[name].split(":")
        check: _Check = getattr(importlib.import_module(module), function)(options)
        return check
    match name:
        case "FITSAscii":
            return _ascii_table(options)
        case "FITSVarBintable":
            return _binary_table(options)
    return None


_BLOSC2_HEADER = 16
_SETTINGS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    f"{_IMAGECODECS}aec": check_aec,
    f"{_IMAGECODECS}szip": szip_settings,
}


def _into(name: str, decoder: Any) -> BytesDecoder:
    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        room = limit if size is None else size
        # one byte more: some stop at the end of what they are given, without a word
        if name == f"{_IMAGECODECS}blosc2" and len(raw) >= _BLOSC2_HEADER:  # it makes room for blocks before it looks
            check_size("the blosc2 frame", int.from_bytes(bytes(raw[4:8]), "little"), None, room)
        found = raw_bytes(decoder.decode(raw_bytes(raw), out=np.empty(room + 1, np.uint8)))
        if found.size > room:
            raise CodecError(f"codec 'numcodecs.{name}' makes more than the {room} bytes that are expected")
        return found

    return decode


def _compared(decoder: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> BytesDecoder:
    kept = [n for n in shape if n > 1]
    shapes = dict.fromkeys((tuple(kept), shape[-2:], shape[-3:], shape[-3:-1]))
    fitting = [found for found in shapes if len(found) > 1 and math.prod(found) == math.prod(shape)]

    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        check_frames(bytes(raw), limit)
        for n, found in enumerate(fitting, start=1):
            try:
                return raw_bytes(decoder.decode(raw_bytes(raw), out=np.empty(found, dtype.newbyteorder("="))))
            except ValueError:  # of another shape
                if n == len(fitting):
                    raise
        raise CodecError(f"an image has rows and columns; a chunk of {shape} is expected")

    return decode


def _image(kind: str, head: bytes) -> _Check:
    def check(data: np.ndarray[Any, Any], size: int | None, limit: int) -> None:
        raw = head + data.tobytes()
        if kind == "lerc":
            rows, columns, samples = lerc_size(raw[:26])
            samples *= max(raw.count(b"Lerc2 "), raw.count(b"CntZImage "), 1)
        else:
            rows, columns, samples = image_size(kind, raw) or (0, 0, 0)
        n = rows * columns * (1 if kind in ("png", "webp") else samples)  # their headers may say more than there is
        if n > limit:
            raise CodecError(f"the {kind} image has {rows} x {columns} x {samples} samples; {limit} bytes are expected")

    return check


def _ascii_table(options: Mapping[str, Any]) -> _Check:
    stored, made = (np.dtype([tuple(field) for field in options[name]]) for name in ("indtypes", "outdtypes"))

    def check(data: np.ndarray[Any, Any], size: int | None, limit: int) -> None:
        check_size("the FITS table", data.size // max(stored.itemsize, 1) * made.itemsize, size, limit)

    return check


def _binary_table(options: Mapping[str, Any]) -> _Check:
    made = np.dtype(ast.literal_eval(options["dt_out"]))

    def check(data: np.ndarray[Any, Any], size: int | None, limit: int) -> None:
        check_size("the FITS table", int(options["nrow"]) * made.itemsize, size, limit)

    return check


def pcodec(dtype: np.dtype[Any], shape: tuple[int, ...], /) -> Callable[[Any], np.ndarray[Any, Any]]:
    """Make a decoder of numcodecs' ``pcodec``, whose streams are decoded into memory of ours.

    Raises
    ------
    UnsupportedFeatureError
        The package is not installed.
    """
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
