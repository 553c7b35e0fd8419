"""Move CF attributes from an array into the encoding of its chunks, and back. No bytes are read.

xarray defines the meaning of the attributes: it decodes a few numbers, and our codec must return the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import cftime
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions

from virtualstack.codecs.cf import CF, NAT, Packing, cf_codec, parse_packing
from virtualstack.codecs.cf_times import CODING_ERRORS, DURATIONS, datetime_scale, datetime_units, quiet
from virtualstack.codecs.codec import Codec
from virtualstack.manifests.agreement import is_missing, stored_number
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.cf import same_value, value_changing
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding, Fill, native


class Decoded(NamedTuple):
    """Attributes and encoding of a variable after xarray has decoded it.

    Parameters
    ----------
    attributes
        Attributes that stay with the values.
    encoding
        Attributes that describe how the values were packed, and the stored ``dtype``.
    """

    attributes: Mapping[str, Any]
    encoding: Mapping[str, Any]


@lru_cache(maxsize=4096)
def decoded_by_xarray(codec: Codec, /) -> Decoded:
    """Compare our decoding with the installed xarray's, on numbers of all sizes.

    It takes about a millisecond, once for each packing.
    """
    packing = parse_packing(codec)
    try:
        numbers = _numbers(packing)
        with quiet():
            packed = xr.Variable(("i",), numbers, dict(packing.attributes), fastpath=True)
            variable = conventions.decode_cf_variable("v", packed, concat_characters=False)
            expected = variable.values
        found = packing(numbers)
    except CODING_ERRORS as error:
        raise ValueError(f"xarray does not decode it: {error}") from error
    if found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
        raise ValueError(f"this version of xarray ({xr.__version__}) decodes it to '{expected.dtype}' by other rules")
    encoding = dict(variable.encoding)
    if encoding.get("dtype") == numbers.dtype:
        encoding["dtype"] = packing.stored
    return Decoded(variable.attrs, encoding)


def _numbers(packing: Packing) -> NDArray[Any]:
    """Return stored numbers that test decoding: missing values, their neighbours, and small and large numbers.

    Dates are limited to the years 1900 to 2100. Missing values are left out if cftime has no date for them.
    """
    native = packing.stored.newbyteorder("=")
    if native.kind == "f":
        limits = np.finfo(native)
        numbers = np.array([0, -0.0, 1, -1, 0.5, 1 / 3, 1e3, -1e3, limits.tiny, limits.max, np.inf, np.nan], native)
    else:
        least, most = np.iinfo(native).min, np.iinfo(native).max
        numbers = np.array([x for x in (0, 1, 2, 3, 7, 100, 1000, -1, -2, -100, -1000) if least <= x <= most], native)
        numbers = np.concatenate([numbers, np.array([least, least + 1, most // 2, most - 1, most], native)])
    with np.errstate(all="ignore"):
        fills = np.array([np.asarray(x).astype(native) for x in packing.fills if not isinstance(x, str)], native)
    # Native: in unsigned numbers of the other byte order, xarray 2026.9 masks the fill value with swapped bytes.
    numbers = np.concatenate([fills, numbers])
    if packing.dtype.kind == "m":
        return _between(packing, numbers, -1e5, 1e5)  # 10^5 days fit into 64 bits of nanoseconds
    if packing.dtype.kind == "M":
        return _dates(packing, numbers)
    return numbers


def _dates(packing: Packing, numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers, and further stored numbers, that decode to dates from 1900 to 2100."""
    units, calendar = str(packing.units), packing.calendar
    line = datetime_scale(units, calendar)
    if line is None:
        days = [cftime.DatetimeGregorian(year, 1, 1) for year in (1900, 2100)]
        low, high = (float(x) for x in cftime.date2num(days, units, calendar or "standard"))
    else:
        origin, step = line
        bounds = np.array(["1900", "2100"], "M8[ns]").view(np.int64).tolist()
        # no more than 285 years from the reference date: xarray has 64 bits for the nanoseconds between
        low, high = (min(max((x - origin) / step, -9e18 / step), 9e18 / step) for x in bounds)
    wanted = (np.linspace(low, high, 50) - float(packing.offset or 0)) / float(packing.scale or 1)
    if numbers.dtype.kind in "iu":
        limits = np.iinfo(numbers.dtype)
        wanted = np.rint(wanted[(wanted > limits.min) & (wanted < limits.max)])
    with np.errstate(all="ignore"):
        stored = np.concatenate([numbers, np.arange(100, dtype=numbers.dtype), wanted.astype(numbers.dtype)])
    stored = _between(packing, stored, low, high, with_missing=line is not None)
    if not stored.size:
        raise ValueError(f"no stored number is a date of the years 1900 to 2100 in '{units}'")
    return stored


def _between(
    packing: Packing, stored: NDArray[Any], low: float, high: float, *, with_missing: bool = True
) -> NDArray[Any]:
    """Return stored numbers whose masked and scaled values are within limits, and missing values."""
    with np.errstate(all="ignore"):
        numbers = packing.numbers(stored)
        is_missing = np.isnan(numbers) if numbers.dtype.kind == "f" else numbers == NAT
        numbers = numbers.astype(np.float64)  # limits are out of range for float16
        is_between = (numbers >= low) & (numbers <= high)
    return stored[is_between | (is_missing & with_missing)]


_MASK_AND_SCALE = ("_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned")


class Unpacked(NamedTuple):
    """An array after :func:`unpack`.

    Parameters
    ----------
    array
        Array with decoded values, or the unchanged array.
    encoding
        Attributes that were moved out of the array, as xarray has them in the encoding of a variable.
    obstacle
        Why the array stays packed although its attributes ask for decoding; ``None`` if there was no obstacle.
    """

    array: ManifestArray
    encoding: Mapping[str, Any]
    obstacle: str | None = None


def unpack(array: ManifestArray, /, *, decode_times: bool = True) -> Unpacked:
    """Make the chunks of an array decode to the values that ``xr.open_dataset`` returns, bit by bit.

    Decoding is an elementwise codec in front of the codecs of the chunks; fill values are decoded.
    """
    attributes = {**array.attributes, **array.cf}
    wanted = _packing_attributes(attributes, decode_times=decode_times)
    if not wanted:
        return Unpacked(array, {})
    manifest = array.in_memory()
    try:
        if array.dtype.kind not in "iuf":
            raise ValueError(f"values of dtype '{array.dtype}' are no numbers")
        stored = {encoding.dtype for encoding in manifest.encodings} or {array.dtype}
        if any(native(dtype) != array.dtype for dtype in stored):
            raise ValueError(f"chunks are stored as {sorted(map(str, stored))}, values are '{array.dtype}'")
        codecs = {dtype: cf_codec(dtype, wanted) for dtype in stored}
        decoded = decoded_by_xarray(next(iter(codecs.values())))
        packing = parse_packing(next(iter(codecs.values())))
        if not packing.is_identity:
            array = replace(array, manifest=_decoded_manifest(manifest, codecs, packing), dtype=packing.dtype)
    except ValueError as error:
        return Unpacked(array, {}, str(error))
    left = {key: x for key, x in attributes.items() if key not in wanted or key in decoded.attributes}
    cf = {**{key: left[key] for key in array.cf if key in left}, **value_changing(left)}
    return Unpacked(replace(array, attributes=left, cf=cf), decoded.encoding)


def _packing_attributes(attributes: Mapping[str, Any], *, decode_times: bool) -> dict[str, Any]:
    """Return the attributes that xarray decodes by default; an empty dict if they change nothing."""
    units, dtype = attributes.get("units"), attributes.get("dtype")
    is_date = datetime_units(units)
    is_duration = isinstance(units, str) and units in DURATIONS
    is_decoded_duration = is_duration and isinstance(dtype, str) and dtype.startswith("timedelta64")
    if not decode_times and (is_date or is_decoded_duration):
        return {}
    keys = [key for key in _MASK_AND_SCALE if key in attributes]
    if is_decoded_duration or (isinstance(dtype, str) and dtype == "bool"):
        keys.append("dtype")
    if keys or is_date:
        # A missing duration differs from a missing temperature, decoded or not.
        keys += ["units"] if is_date or (is_duration and decode_times) else []
        keys += ["calendar"] if is_date and "calendar" in attributes else []
    return {key: attributes[key] for key in keys}


def _decoded_manifest(
    manifest: ChunkManifest, codecs: Mapping[np.dtype[Any], Codec], packing: Packing
) -> ChunkManifest:
    fills = []
    for fill in manifest.fills:
        try:
            fills.append(_decoded_fill(fill, packing))
        except ValueError as error:
            if manifest.holes.any():
                raise ValueError(f"chunks that were never written have the value {fill.value!r}: {error}") from error
            fills.append(Fill(packing.dtype, np.array("NaT", packing.dtype).tobytes()))
    # without chunks, the table still describes how they would be packed; otherwise the encoding would look edited
    stored = manifest.encodings or [ChunkEncoding.c_order(dtype, [1] * len(manifest.shape)) for dtype in codecs]
    encodings = tuple(replace(x, dtype=packing.dtype, codecs=(codecs[x.dtype], *x.codecs)) for x in stored)
    return replace(manifest, fills=tuple(fills), encodings=encodings)


def _decoded_fill(fill: Fill, packing: Packing) -> Fill:
    return Fill(packing.dtype, packing(np.array([fill.value], fill.dtype)).tobytes())


# -- back -----------------------------------------------------------------------------------------------------


def _shared_packing(encodings: tuple[ChunkEncoding, ...]) -> Packing | None:
    """Return the packing that all encodings have in front, whatever the byte order; ``None`` if they differ."""
    firsts = [x.codecs[0] if x.codecs and x.codecs[0].name == CF else None for x in encodings]
    if not firsts or any(codec is None for codec in firsts):
        return None
    packings = [parse_packing(codec) for codec in dict.fromkeys(firsts) if codec is not None]
    meanings = {cf_codec(native(x.stored), x.attributes) for x in packings}
    return packings[0] if len(meanings) == 1 else None


def packed_encoding(array: ManifestArray, /) -> Mapping[str, Any]:
    """Return xarray's encoding of a variable if all chunks were packed in one way; otherwise an empty mapping."""
    packing = _shared_packing(array.manifest.tables.encodings)
    return {} if packing is None else decoded_by_xarray(cf_codec(packing.stored, packing.attributes)).encoding


def repack(array: ManifestArray, /) -> ManifestArray:
    """Undo :func:`unpack` if all chunks are packed in one way, for targets that have attributes but not this codec.

    An array is returned unchanged in three cases: chunks are packed in several ways; an EMPTY or ABSENT chunk reads as
    a value that no stored number decodes to; or its attributes now conflict with the packing.
    """
    if not any(x.codecs and x.codecs[0].name == CF for x in array.manifest.tables.encodings):
        return array
    manifest = array.in_memory().compact()
    packing = _shared_packing(manifest.encodings)
    if packing is None:
        return array
    shared = packing.attributes.keys() & array.attributes.keys()
    if not all(same_value(packing.attributes[key], array.attributes[key]) for key in shared):
        return array
    fills = [_stored_fill(fill, packing) for fill in manifest.fills]
    if not manifest.holes.any():
        fills = [fill or Fill.zero(packing.stored) for fill in fills]
    if any(fill is None for fill in fills):
        return array
    encodings = tuple(
        replace(x, dtype=parse_packing(x.codecs[0]).stored, codecs=x.codecs[1:]) for x in manifest.encodings
    )
    attributes = {**array.attributes, **packing.attributes}
    return replace(
        array,
        manifest=replace(manifest, fills=tuple(x for x in fills if x is not None), encodings=encodings),
        dtype=native(packing.stored),
        attributes=attributes,
        cf={**array.cf, **value_changing(attributes)},
    )


def _stored_fill(fill: Fill, packing: Packing) -> Fill | None:
    """Return a stored number that decodes to a fill value, or ``None`` if no number does."""
    value = None if is_missing(fill.value) else fill.value
    found = stored_number(native(packing.stored), packing.attributes, value)
    return found if found is not None and _decoded_fill(found, packing) == fill else None
