"""Decompress an image that is stored in tiles, by astropy in a child process: its decoders are written in C."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError


def tiled_image(hdu: bytes, /) -> NDArray[Any]:
    """Return the values of an HDU, scaled as astropy scales them."""
    primary = io.BytesIO()
    fits.PrimaryHDU().writeto(primary)
    try:
        with warnings.catch_warnings(action="ignore"), fits.open(io.BytesIO(primary.getvalue() + hdu)) as file:
            return np.ascontiguousarray(file[1].data)
    except Exception as error:  # noqa: BLE001 - astropy may raise any error
        raise LibraryError(f"{type(error).__name__}: {error}") from None
