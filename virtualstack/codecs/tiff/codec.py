"""The codec ``virtualstack.tiff``: a strip or tile to its samples."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import lzma
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import BytesLike, CodecError
from virtualstack.codecs.limits import decode_in_child, image_size, lerc_size
from virtualstack.codecs.tiff.settings import BY_STREAM, COMPRESSIONS, TIFF, Settings
from virtualstack.errors import MissingDependencyError, UnsupportedFeatureError

__all__ = ["TIFF", "TiffDecoder", "check_installed", "imagecodecs", "tiff_decoder"]

_PACKAGE = "imagecodecs"


def check_installed() -> None:
    """Raise an error if the package is not installed, without importing it."""
    if importlib.util.find_spec(_PACKAGE) is None:
        raise MissingDependencyError("decoding TIFF", extra="tiff")


@functools.cache
def imagecodecs(compression: int, /) -> Any:
    """Import imagecodecs."""
    module = importlib.import_module(_PACKAGE)
    name = COMPRESSIONS[compression]
    codec = getattr(module, {"ccittfax3": "CCITTFAX3"}.get(name, name.upper()), None)
    if name != "none" and codec is not None and not getattr(codec, "available", True):
        raise UnsupportedFeatureError(f"this build of imagecodecs has no {name} (TIFF compression)", feature=name)
    return module


type TiffDecoder = Callable[[BytesLike], NDArray[Any]]

_CCITT = {2: "ccittrle_decode", 3: "ccittfax3_decode", 4: "ccittfax4_decode"}
_PREDICTORS = {2: "delta_decode", 3: "floatpred_decode"}
_JPEG = frozenset({7, 33007, 34892})
_LERC, _WEBP = 34887, 50001
_IN_CHILD = frozenset({"jpeg2k", "jpegxl", "jpegxr"})
"""Formats whose library crashes on damaged images, or takes memory that no header bounds."""
_MIN_SAMPLES = 4  # samples that any image may have: some formats do not store their number
_MAX_LZMA_BYTES = 1 << 30
_RGB = 2  # tag 262
_NAMED = {8: "CIELAB", 9: "ICCLAB", 10: "ITULAB"}


def tiff_decoder(options: Mapping[str, Any], shape: tuple[int, ...] | None = None, /) -> TiffDecoder:
    """Make the decoder of strips or tiles of one shape."""
    settings, own = Settings.from_options(options)
    if shape is not None and math.prod(shape) != math.prod(own):
        raise UnsupportedFeatureError(f"codec '{TIFF}' makes {own}; expected chunks of {shape}", feature=TIFF)
    check_installed()
    decode = _stream_decoder(settings, own) if settings.compression in BY_STREAM else _image_decoder(settings, own)

    def run(raw: BytesLike, /) -> NDArray[Any]:
        if not len(raw):
            raise CodecError("there is no strip or tile: it has no bytes")
        values = decode(raw)
        return values if shape is None else values.reshape(shape)

    return run


def _stream_decoder(settings: Settings, shape: tuple[int, ...]) -> TiffDecoder:
    rows, columns, samples = shape
    dtype = _native(settings)
    # differences of complex numbers are taken in 64 bits, as for integers
    work = np.dtype(np.uint64) if dtype.kind == "c" and settings.predictor == 2 else dtype
    stored = work.newbyteorder(">" if settings.big else "<")
    row = -(-columns * samples * settings.bits // 8)
    # Packed rows may be padded by more than a byte: bytes after the samples of a chunk are left out.
    room = rows * columns * samples * dtype.itemsize if settings.is_packed else rows * row
    undo = _PREDICTORS.get(settings.predictor)

    def decode(raw: BytesLike, /) -> NDArray[Any]:
        library = imagecodecs(settings.compression)
        data: Any = library.bitorder_decode(bytes(raw)) if settings.fill_order == 2 else raw
        if settings.compression == _LERC:
            data = _lerc(library, data, room, samples)
        else:
            data = _decompressed(library, settings.compression, data, room)
        if settings.is_packed:
            values = _unpacked(library, settings, data, stored, columns * samples)
        else:
            raw_order = dtype if settings.predictor == 3 else stored  # predictor 3 stores the bytes of a row apart
            values = np.frombuffer(data, raw_order, min(len(data), rows * row) // dtype.itemsize)
        values = _shaped(values, shape, settings.edge)
        if undo is not None:
            values = values if values.dtype.isnative else values.astype(work)
            values = getattr(library, undo)(values, axis=-2).view(dtype)
        return _padded(values, shape)

    return decode


def _native(settings: Settings) -> np.dtype[Any]:
    dtype = settings.dtype
    if dtype is None:
        raise UnsupportedFeatureError(f"codec '{TIFF}' has no dtype for {settings}", feature=TIFF)
    return dtype


def _decompressed(library: Any, compression: int, data: Any, size: int) -> Any:
    name = BY_STREAM[compression]
    if name == "none":
        return data
    if name == "lzma":  # imagecodecs does not limit its memory
        return lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=_MAX_LZMA_BYTES).decompress(bytes(data), size)
    return getattr(library, f"{name}_decode")(data, out=size)


def _lerc(library: Any, data: Any, size: int, samples: int) -> Any:
    """Decode LERC, which may be compressed a second time (tag 50674); its own frames begin with a name.

    Frames have a mask. libtiff derives it from NaN, and from an opacity that is 0 or 255 everywhere.
    """
    head = bytes(data[:10])
    if not head.startswith((b"Lerc2 ", b"CntZImage")):
        inner = "zstd" if head.startswith(b"\x28\xb5\x2f\xfd") else "deflate"
        data = getattr(library, f"{inner}_decode")(data, out=2 * size + 65536)
    rows, columns, depth = lerc_size(bytes(data[:26]))
    n_frames = max(bytes(data).count(b"Lerc2 "), bytes(data).count(b"CntZImage "))
    if rows * columns * depth > size or n_frames > samples:
        raise CodecError(
            f"there are {n_frames} LERC frames of {rows} x {columns} x {depth} samples; {size} bytes are expected"
        )
    values, mask = library.lerc_decode(data, masks=True)
    if depth == 1 and values.ndim == 3:  # bands one after another, since each has a mask
        values = np.moveaxis(values, 0, -1)
        mask = mask if mask is None or mask.ndim < 3 else np.moveaxis(mask, 0, -1)
    n_bands = values.shape[2] if values.ndim > 2 else 1
    if mask is not None and values.dtype.kind == "f" and not mask.all():
        values[~np.asarray(mask, bool)] = np.nan
    elif values.dtype == np.uint8 and n_bands == samples - 1:
        opacity = np.full(values.shape[:2], 255, np.uint8) if mask is None else mask.astype(np.uint8) * 255
        values = np.dstack([values, opacity])
    if values.nbytes > size:
        raise CodecError(f"the LERC frame holds {values.nbytes} bytes; {size} are expected")
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _unpacked(library: Any, settings: Settings, data: Any, stored: np.dtype[Any], run: int) -> NDArray[Any]:
    order = ">" if settings.big else "<"
    if settings.is_complex_int:
        pairs = np.frombuffer(data, f"{order}i{settings.bits // 16}")
        return pairs.astype(f"f{stored.itemsize // 2}").view(stored.newbyteorder("="))
    if settings.kind == 3:
        values: NDArray[Any] = library.float24_decode(bytes(data), byteorder=order)
        return values
    if settings.bits == 1:
        return np.asarray(library.packints_decode(bytes(data), np.dtype(bool), 1, runlen=run)).view(np.uint8)
    # imagecodecs puts the bytes 8 bits too high, because libtiff reverses them
    if settings.bits == 24 and settings.big:
        triples = np.frombuffer(data, np.uint8, len(data) // 3 * 3).reshape(-1, 3)
        return np.pad(triples, ((0, 0), (0, 1))).view("<u4").reshape(-1)
    unpacked: NDArray[Any] = library.packints_decode(bytes(data), stored, settings.bits, runlen=run)
    return unpacked


def _shaped(values: NDArray[Any], shape: tuple[int, ...], edge: tuple[int, int] | None) -> NDArray[Any]:
    """View samples as rows and columns; at the edge of an image there may be fewer."""
    rows, columns, samples = shape
    size = math.prod(shape)
    if values.size >= size:
        return values[:size].reshape(shape)
    last_rows, last_columns = edge or (rows, columns)
    candidates = {(last_rows, columns), (last_rows, last_columns), (rows, last_columns)}
    fitting = [found for found in candidates if found[0] * found[1] * samples == values.size]
    if len(fitting) != 1:
        raise CodecError(f"the strip or tile has {values.size} samples; {shape} are {size}")
    return values.reshape(*fitting[0], samples)


def _padded(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a tile padded with zeros to the full shape, for the rows and columns outside of the image."""
    if values.shape == shape:
        return values
    whole = np.zeros(shape, values.dtype)
    whole[: values.shape[0], : values.shape[1]] = values
    return whole


def _image_decoder(settings: Settings, shape: tuple[int, ...]) -> TiffDecoder:
    rows, columns, _ = shape
    dtype, name = _native(settings), COMPRESSIONS[settings.compression]
    tables = settings.jpeg_tables()

    def decode(raw: BytesLike, /) -> NDArray[Any]:
        library = imagecodecs(settings.compression)
        data = bytes(raw)
        if settings.compression in _CCITT:
            if settings.fill_order == 2:
                data = library.bitorder_decode(data)
            more = {"t4options": settings.t4} if settings.compression == 3 else {}
            image = getattr(library, _CCITT[settings.compression])(data, rows, columns, **more)
            image = np.asarray(image).view(np.uint8)
        else:
            _check_size(image_size(name, data), name, shape)
            image = _image(library, settings, name, data, shape, tables)
        if image.dtype == np.uint8 and dtype == np.int8:  # JPEG and other formats have no signed samples
            image = image.view(dtype)
        if image.dtype != dtype:
            raise CodecError(f"the {name} image has samples of '{image.dtype}'; '{dtype}' are expected")
        image = image.reshape(*image.shape[:2], -1)
        n_rows, width, n_samples = image.shape
        if settings.compression in _JPEG and shape[2] == 1 < n_samples and width * n_samples == columns:
            image = image.reshape(n_rows, columns, 1)  # DNG 1.7, "Lossless JPEG": samples of a row side by side
        if image.shape[1] == columns:
            image = image[:rows]  # a strip may be written as if it were whole
        if image.shape != shape and not _is_edge(image.shape, shape, settings.edge):
            raise CodecError(f"the {name} image has rows, columns and samples {image.shape}; {shape} are expected")
        return _padded(image, shape)

    return decode


def _image(
    library: Any, settings: Settings, name: str, data: bytes, shape: tuple[int, ...], tables: bytes | None
) -> NDArray[Any]:
    if settings.compression in _JPEG:
        color, out_color = _jpeg_colors(settings, shape[2], is_jfif=data[6:10] == b"JFIF")
        return np.asarray(library.jpeg_decode(data, tables=tables, colorspace=color, outcolorspace=out_color))
    if settings.compression == _WEBP and shape[2] == 4:  # all-opaque tiles may have no alpha
        return np.asarray(library.webp_decode(data, hasalpha=True))
    decode = getattr(library, f"{name}_decode")
    if name in _IN_CHILD:
        rows, columns, samples = shape
        n_bytes = _most_points(rows, columns) * max(samples, _MIN_SAMPLES) * _native(settings).itemsize
        return decode_in_child(decode, data, n_bytes)
    return np.asarray(decode(data))


def _most_points(rows: int, columns: int) -> int:
    """Return how many points an image for a strip or tile may have: a strip may have a few more rows."""
    return 2 * rows * columns + 4096 * columns


def _check_size(declared: tuple[int, int, int] | None, name: str, shape: tuple[int, ...]) -> None:
    """Raise an error for images with more rows and columns than a chunk."""
    rows, columns, samples = shape
    if declared is not None and declared[2] > max(samples, _MIN_SAMPLES):
        raise CodecError(f"the {name} image says that it has {declared[2]} samples; {samples} are expected")
    if declared is not None and (declared[1] > columns or declared[0] * declared[1] > _most_points(rows, columns)):
        raise CodecError(f"the {name} image says that it has {declared[:2]} rows and columns; {shape[:2]} are expected")


def _is_edge(decoded: tuple[int, ...], shape: tuple[int, ...], edge: tuple[int, int] | None) -> bool:
    if edge is None or decoded[2] != shape[2]:
        return False
    return decoded[0] in (shape[0], edge[0]) and decoded[1] in (shape[1], edge[1])


def _jpeg_colors(settings: Settings, samples: int, *, is_jfif: bool) -> tuple[int | None, int | str | None]:
    """Return the colour space of the stream, and the one to return; YCbCr becomes RGB, as in other readers."""
    color: int | None = None
    out_color: int | str | None = None
    if samples == 3 and settings.photometric in (0, 1):  # three bands without colours: libjpeg takes them for YCbCr
        color = out_color = _RGB
    elif not settings.extra:
        match settings.photometric:
            case 6:
                out_color = _RGB
            case 2:
                color, out_color = None if is_jfif else _RGB, _RGB
            case other:
                out_color = _NAMED.get(other)
    return (color, out_color) if settings.planar == 1 else (None, 1)
