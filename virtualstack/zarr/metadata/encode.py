"""Encode values as the stored bytes of one chunk: the inverse of decoding, and checked by decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.cast import CAST, cast_dtypes
from virtualstack.codecs.cf import Packing, parse_packing
from virtualstack.codecs.cf_times import datetime_scale
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.pipeline import CodecError, Elementwise, decode, split_elementwise
from virtualstack.manifests import ChunkEncoding, Fill
from virtualstack.manifests.encoding import native
from virtualstack.zarr.metadata.version2_codecs import ENCODE_ERRORS, codecs_to_zarr2, encode_zarr2

MAX_FILL_BYTES = 1 << 28

_NANOSECONDS = {
    "days": 86_400_000_000_000,
    "hours": 3_600_000_000_000,
    "minutes": 60_000_000_000,
    "seconds": 1_000_000_000,
    "milliseconds": 1_000_000,
    "microseconds": 1_000,
    "nanoseconds": 1,
}


def encode_chunk(values: NDArray[np.generic], encoding: ChunkEncoding, /) -> bytes:
    """Return bytes that decode to exactly the same values; this is checked by decoding them again."""
    values = np.ascontiguousarray(values).reshape(encoding.shape)
    try:
        front = split_elementwise(encoding.codecs, encoding.dtype)
        stored = _stored_numbers(values, encoding.codecs[: len(encoding.codecs) - len(front.codecs)])
        raw = _encoded(stored, front)
        back = decode(raw, encoding.codecs, encoding.dtype, encoding.shape)
    except ENCODE_ERRORS as error:
        raise CodecError(f"values cannot be stored as {_names(encoding)}: {error}") from error
    if not _are_same(values, back):
        raise CodecError(f"values cannot be stored as {_names(encoding)}: other values would be read back")
    return raw


def encode_cell(
    values: NDArray[np.generic], chunks: Sequence[int], order: tuple[int, ...] | None, encoding: ChunkEncoding, /
) -> bytes:
    """Return the bytes of a chunk as :func:`encode_chunk` does, from its elements on the axes of the array."""
    values = filled_up(values, chunks)
    return encode_chunk(values if order is None else values.transpose(order), encoding)


def filled_up(values: NDArray[Any], chunks: Sequence[int], /) -> NDArray[Any]:
    """Return a whole chunk; past the end of the array it repeats the last values, which every encoding can hold."""
    beyond = [(0, n - found) for n, found in zip(chunks, values.shape, strict=True)]
    return np.pad(values, beyond, mode="edge") if any(n for _, n in beyond) else values


def can_encode(encoding: ChunkEncoding, /) -> bool:
    """Return whether all codecs have an encoder; some can only decode."""
    try:
        front = split_elementwise(encoding.codecs, encoding.dtype)
        _encoded(np.zeros(1, front.stored), front)
    except ENCODE_ERRORS:
        return False
    return True


def encode_fill(fill: Fill, encoding: ChunkEncoding, /) -> bytes:
    """Return bytes of a chunk full of one value, as :func:`encode_chunk` does."""
    nbytes = encoding.size * encoding.dtype.itemsize
    if nbytes > MAX_FILL_BYTES:
        raise CodecError(f"one such chunk has {nbytes} bytes, more than {MAX_FILL_BYTES}")
    return encode_chunk(np.full(encoding.size, fill.value, native(encoding.dtype)), encoding)


def can_hold(fill: Fill, encoding: ChunkEncoding, /) -> bool:
    """Return whether a chunk full of one value can be encoded."""
    try:
        encode_fill(fill, encoding)
    except CodecError:
        return False
    return True


def _encoded(stored: NDArray[np.generic], front: Elementwise) -> bytes:
    filters, compressor = codecs_to_zarr2(front.codecs, variable="")
    values = stored.astype(object if front.stored.kind == "T" else front.stored).reshape(-1)
    return encode_zarr2(values, filters, compressor)


def _names(encoding: ChunkEncoding) -> str:
    return " + ".join(codec.name for codec in encoding.codecs) or "uncompressed"


def _are_same(values: NDArray[np.generic], back: NDArray[np.generic]) -> bool:
    if values.dtype.kind == "T":
        return bool(np.array_equal(values, back))
    return back.astype(values.dtype).tobytes() == values.tobytes()


def _stored_numbers(values: NDArray[np.generic], codecs: tuple[Codec, ...]) -> NDArray[np.generic]:
    """Return the stored numbers, by undoing the codecs that make each value from one stored number."""
    for codec in codecs:
        dtypes = cast_dtypes(codec) if codec.name == CAST else None
        with np.errstate(all="ignore"):
            values = _packed(values, parse_packing(codec)) if dtypes is None else values.astype(dtypes[0])
    return values


def _packed(values: NDArray[np.generic], packing: Packing) -> NDArray[np.generic]:
    """Return the stored numbers that come closest to the values; the caller checks them by decoding."""
    stored = packing.stored.newbyteorder("=")
    numbers, missing = _numbers(values, packing)
    if packing.offset is not None:
        numbers = numbers - packing.offset
    if packing.scale is not None:
        numbers = numbers / packing.scale
    if stored.kind in "iu":
        whole = np.rint(numbers) if numbers.dtype.kind == "f" else numbers
        found = whole.astype(packing.unsigned or stored).view(stored)
    else:
        found = numbers.astype(stored)
    declared = [x for key in ("_FillValue", "missing_value") for x in np.ravel(packing.attributes.get(key, ()))]
    if declared:
        found = np.where(missing, np.asarray(declared[0]).astype(stored), found)
    return found


def _numbers(values: NDArray[np.generic], packing: Packing) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
    """Return values as numbers in their units, and a mask of missing values."""
    if packing.dtype.kind not in "mM":
        return values.astype(np.float64) if values.dtype.kind == "f" else values, values != values
    origin, step = 0, _NANOSECONDS.get(str(packing.units), 1)
    if packing.dtype.kind == "M":
        line = datetime_scale(str(packing.units), packing.calendar)
        if line is None:
            raise ValueError(f"dates in '{packing.units}' cannot be converted to numbers exactly")
        origin, step = line
    resolution = "M8[ns]" if packing.dtype.kind == "M" else "m8[ns]"
    nanoseconds = values.astype(resolution).view(np.int64) - origin
    units, rest = np.divmod(nanoseconds, step)
    return units + rest / step if rest.any() else units, np.isnat(values)
