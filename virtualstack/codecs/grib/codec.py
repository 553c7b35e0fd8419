"""The codec ``virtualstack.grib``: a message to the values of its last field, or to the coordinates of its grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.decoder import Bytes, CodecError
from virtualstack.codecs.grib.fields import described, has_harmonics, last_field
from virtualstack.codecs.grib.library import eccodes_of
from virtualstack.codecs.metadata import shortened
from virtualstack.errors import MissingDependencyError, UnsupportedFeatureError

__all__ = ["DTYPES", "GRIB", "GribDecoder", "grib_decoder"]

GRIB = "virtualstack.grib"
DTYPES: dict[str, np.dtype[Any]] = {
    "values": np.dtype(np.float32),
    "latitudes": np.dtype(np.float64),
    "longitudes": np.dtype(np.float64),
}
"""What each key decodes to."""

type GribDecoder = Callable[[Bytes], NDArray[Any]]

_MISSING = float(np.finfo(np.float32).max)
_EXACT_BITS = 24
_EXACT = ("grid_simple", "grid_ccsds")
_MOST_BITS = 64
_SIMPLE = (*_EXACT, "grid_jpeg", "grid_png")


def grib_decoder(options: Mapping[str, Any], shape: tuple[int, ...] | None = None, /) -> GribDecoder:
    """Make the decoder of messages of one grid.

    Parameters
    ----------
    options
        ``key``: "values", the default, which decodes as cfgrib does, to float32 with NaN where there is none; or
        "latitudes" or "longitudes" of all points in float64, from the beginning of a message that describes its grid.
        ``row``: how many points a row has (a column, where the message has columns one after another), which is turned
        around where the message says that every other one is.
        ``grid``: a name of the grid; coordinates of equal ones are equal.
        ``plain``: whether kerchunk's codec ``grib`` decodes the same; for writers.
    shape
        Of the decoded chunk, in elements; points in a row without.

    Raises
    ------
    UnsupportedFeatureError
        The options are others.
    MissingDependencyError
        eccodes is not installed.
    """
    key, row = options.get("key", "values"), options.get("row", 1)
    is_key = isinstance(key, str) and key in DTYPES  # that of a damaged store may be a list
    is_known = not options.keys() - {"grid", "key", "plain", "row"} and is_key and type(row) is int and row > 0
    if not is_known or (shape is not None and math.prod(shape) % row):
        raise UnsupportedFeatureError(
            f"codec '{GRIB}' does not take the configuration {shortened(dict(options))}", feature=GRIB
        )
    try:
        eccodes = eccodes_of()
    except (ImportError, RuntimeError) as error:  # the package without the library behind it
        raise MissingDependencyError("decoding GRIB", extra="grib") from error
    size = None if shape is None else math.prod(shape)

    def decode(raw: Bytes, /) -> NDArray[Any]:
        message = bytes(raw)
        message = last_field(message) if key == "values" else described(message)
        handle = None
        try:
            handle = eccodes.codes_new_from_message(message)
            if key == "values":
                values = _values(eccodes, handle, size, row, is_whole=has_harmonics(message))
            else:
                _check_count(eccodes.codes_get_size(handle, key), size)
                values = _checked(eccodes.codes_get_double_array(handle, key), size)
            return values if shape is None else values.reshape(shape)
        except eccodes.CodesInternalError as error:
            raise CodecError(f"eccodes cannot decode the GRIB message: {error}") from error
        finally:
            if handle is not None:
                eccodes.codes_release(handle)

    return decode


def _checked(values: NDArray[Any], size: int | None) -> NDArray[Any]:
    _check_count(values.size, size)
    return values


def _check_count(found: int, size: int | None) -> None:
    if size is not None and found != size:
        raise CodecError(f"the GRIB message has {found} points; {size} are expected")


def _values(eccodes: Any, handle: Any, size: int | None, row: int, *, is_whole: bool) -> NDArray[Any]:
    """Decode values, of which none is missing where they are whole; that spares what short messages take long for."""
    found = eccodes.codes_get_size(handle, "values")
    if (size is not None and found != size) or found % row:
        raise CodecError(f"the GRIB message has {found} points; {size or f'rows of {row}'} are expected")
    if is_whole:
        with np.errstate(over="ignore"):
            return _checked(eccodes.codes_get_double_array(handle, "values"), found).astype(np.float32)
    packing = _packing(eccodes, handle)
    if packing is not None and packing.is_constant:
        with np.errstate(over="ignore"):
            one = np.float64(eccodes.codes_get_double_element(handle, "values", 0)).astype(np.float32)
        return np.full(found, np.nan if one == np.float32(_MISSING) else one, np.float32)
    eccodes.codes_set_double(handle, "missingValue", _MISSING)
    if packing is not None and packing.is_exact:
        values = _checked(eccodes.codes_get_float_array(handle, "values"), found)
    else:
        with np.errstate(over="ignore"):
            values = _checked(eccodes.codes_get_double_array(handle, "values"), found).astype(np.float32)
    if packing is None or packing.may_miss:
        values[values == np.float32(_MISSING)] = np.nan  # of bitmaps, and of packings that have missing values
    if row > 1 and _number(eccodes, handle, "alternativeRowScanning") not in (0, None):
        lines = values.reshape(-1, row)
        lines[1::2] = lines[1::2, ::-1].copy()
    return values


def _number(eccodes: Any, handle: Any, key: str) -> int | None:
    try:
        return int(eccodes.codes_get_long(handle, key))
    except eccodes.KeyValueNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class _Packing:
    """How values are packed as numbers: a value is (reference + number * 2^binary) / 10^decimal."""

    kind: str
    bits: int
    binary: int
    decimal: int
    reference: float
    has_bitmap: bool

    @property
    def is_constant(self) -> bool:
        """Whether all points have one value, for which no bits are kept."""
        return self.kind == "grid_simple" and self.bits == 0 and not self.has_bitmap

    @property
    def may_miss(self) -> bool:
        """Whether there may be missing values, or some as large as what stands for one."""
        if self.has_bitmap or not -500 <= self.binary <= 500:
            return True
        largest = abs(self.reference) + 2.0 ** (_MOST_BITS + self.binary)
        return not largest < _MISSING / 2 * 10.0 ** min(self.decimal, 0)

    @property
    def is_exact(self) -> bool:
        """Tell whether eccodes' arithmetic in float32 gives what rounding its arithmetic in float64 gives.

        With D = 0 and a packed number that float32 holds, the sum is the one operation that rounds; where float64 holds
        it exactly, both round it once.
        """
        if self.kind not in _EXACT or self.decimal != 0:
            return False
        bits, scale, reference = self.bits, self.binary, self.reference
        if not 0 < bits <= _EXACT_BITS or not -100 <= scale <= 100 or abs(reference) > _MISSING:
            return False
        if reference == 0:
            return True
        exponent = math.frexp(reference)[1]
        lowest, highest = min(scale, exponent - 24), max(scale + bits, exponent) + 1
        return bool(lowest > -120 and highest - lowest <= 53 and float(np.float32(reference)) == reference)


def _packing(eccodes: Any, handle: Any) -> _Packing | None:
    """Read how values are packed, where each is packed for itself."""
    kind = eccodes.codes_get_string(handle, "packingType")
    if kind not in _SIMPLE:
        return None
    names = "bitsPerValue", "binaryScaleFactor", "decimalScaleFactor"
    bits, binary, decimal = (eccodes.codes_get_long(handle, name) for name in names)
    reference = eccodes.codes_get_double(handle, "referenceValue")
    return _Packing(kind, bits, binary, decimal, reference, eccodes.codes_get_long(handle, "bitmapPresent") != 0)
