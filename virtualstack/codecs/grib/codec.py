"""The codec ``virtualstack.grib``: a message to the values of its last field, or to the coordinates of its grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.decoder import Bytes, CodecError
from virtualstack.codecs.grib.fields import described, last_field
from virtualstack.codecs.grib.library import eccodes_of
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
    is_known = not options.keys() - {"grid", "key", "plain", "row"} and key in DTYPES and type(row) is int and row > 0
    if not is_known or (shape is not None and math.prod(shape) % row):
        raise UnsupportedFeatureError(f"codec '{GRIB}' does not take the configuration {dict(options)}", feature=GRIB)
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
                values = _values(eccodes, handle, size, row)
            else:
                values = _checked(eccodes.codes_get_double_array(handle, key), size)
            return values if shape is None else values.reshape(shape)
        except eccodes.CodesInternalError as error:
            raise CodecError(f"eccodes cannot decode the GRIB message: {error}") from error
        finally:
            if handle is not None:
                eccodes.codes_release(handle)

    return decode


def _checked(values: NDArray[Any], size: int | None) -> NDArray[Any]:
    if size is not None and values.size != size:
        raise CodecError(f"the GRIB message has {values.size} points; {size} are expected")
    return values


def _values(eccodes: Any, handle: Any, size: int | None, row: int) -> NDArray[Any]:
    found = eccodes.codes_get_size(handle, "values")
    if (size is not None and found != size) or found % row:
        raise CodecError(f"the GRIB message has {found} points; {size or f'rows of {row}'} are expected")
    eccodes.codes_set_double(handle, "missingValue", _MISSING)
    if _is_exact(eccodes, handle):
        values = _checked(eccodes.codes_get_float_array(handle, "values"), found)
    else:
        with np.errstate(over="ignore"):
            values = _checked(eccodes.codes_get_double_array(handle, "values"), found).astype(np.float32)
    values[values == np.float32(_MISSING)] = np.nan  # of bitmaps, and of packings that have their own missing values
    if row > 1 and _number(eccodes, handle, "alternativeRowScanning") not in (0, None):
        lines = values.reshape(-1, row)
        lines[1::2] = lines[1::2, ::-1].copy()
    return values


def _number(eccodes: Any, handle: Any, key: str) -> int | None:
    try:
        return int(eccodes.codes_get_long(handle, key))
    except eccodes.KeyValueNotFoundError:
        return None


def _is_exact(eccodes: Any, handle: Any) -> bool:
    """Tell whether eccodes' arithmetic in float32 gives what rounding its arithmetic in float64 gives.

    A value is (reference + packed * 2^E) / 10^D. With D = 0 and a packed number that float32 holds, the sum is the one
    operation that rounds; where float64 holds it exactly, both round it once.
    """
    if eccodes.codes_get_string(handle, "packingType") not in _EXACT:
        return False
    if eccodes.codes_get_long(handle, "decimalScaleFactor") != 0:
        return False
    bits, scale = eccodes.codes_get_long(handle, "bitsPerValue"), eccodes.codes_get_long(handle, "binaryScaleFactor")
    reference = eccodes.codes_get_double(handle, "referenceValue")
    if not 0 < bits <= _EXACT_BITS or not -100 <= scale <= 100 or abs(reference) > _MISSING:
        return False
    if reference == 0:
        return True
    exponent = math.frexp(reference)[1]
    lowest, highest = min(scale, exponent - 24), max(scale + bits, exponent) + 1
    return bool(lowest > -120 and highest - lowest <= 53 and float(np.float32(reference)) == reference)
