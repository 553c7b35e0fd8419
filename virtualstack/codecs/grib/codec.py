"""The codec ``virtualstack.grib``: a message to the values of its last field, or to the coordinates of its grid."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import ChildDiedError, run_in_child
from virtualstack.codecs.codec import Bytes, CodecError, shortened
from virtualstack.codecs.grib.fields import described, has_harmonics, is_safe, last_field
from virtualstack.codecs.grib.library import import_eccodes
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

_LIBRARY = "virtualstack.codecs.grib.child"


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
        import_eccodes()
        library = importlib.import_module(_LIBRARY)
    except (ImportError, RuntimeError) as error:  # the package without the library behind it
        raise MissingDependencyError("decoding GRIB", extra="grib") from error
    size = None if shape is None else math.prod(shape)

    def decode(raw: Bytes, /) -> NDArray[Any]:
        message = bytes(raw)
        values: NDArray[Any] | None
        try:
            if key != "values":
                values = run_in_child(f"{_LIBRARY}:coordinates", described(message), key, size)
            else:
                message = last_field(message)
                arguments = message, size, row, has_harmonics(message)
                is_own = is_safe(message)
                values = library.values(*arguments) if is_own else run_in_child(f"{_LIBRARY}:values", *arguments)
        except LibraryError as error:
            raise CodecError(f"eccodes cannot decode the GRIB message: {error}") from error
        except ChildDiedError as error:
            raise CodecError(f"the GRIB message is damaged: eccodes, which was to decode it, {error}") from error
        if values is None:
            raise CodecError(f"eccodes has no {key} of the grid of the GRIB message")
        return values if shape is None else values.reshape(shape)

    return decode
