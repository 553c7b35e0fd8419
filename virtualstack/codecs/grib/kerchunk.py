"""The codec ``grib`` of kerchunk: how many bytes it makes of a message, before it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import check_size
from virtualstack.codecs.grib.library import import_eccodes

__all__ = ["message_check"]


def message_check(options: Mapping[str, Any], /) -> Callable[[NDArray[Any], int | None, int], None]:
    """Make what compares the size of a message with the one that is expected, as kerchunk's codec reads it."""
    var, dtype = options.get("var"), options.get("dtype")
    key = f"{var}s" if var in ("latitude", "longitude") else "values"
    width = np.dtype(dtype or ("f4" if key == "values" else "f8")).itemsize

    def check(data: NDArray[Any], size: int | None, limit: int) -> None:
        eccodes = import_eccodes()
        handle = eccodes.codes_new_from_message(data.tobytes())
        try:
            check_size("the GRIB message", width * eccodes.codes_get_size(handle, key), size, limit)
        finally:
            eccodes.codes_release(handle)

    return check
