"""Whether arrays are equal, and values that another library reads."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ReaderError

__all__ = ["values_differ", "values_read"]

_LIBRARY_ERRORS = OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, struct.error
"""What libraries raise for a filter or type that they do not know, or for damage."""


def values_read(read: Callable[[], Any], /) -> NDArray[Any] | str:
    """Return the values that another library reads, or its error as text.

    Raises
    ------
    ReaderError
        The library is not installed, or may not read the source.
    """
    try:
        return np.asarray(read())
    except ReaderError:
        raise
    except _LIBRARY_ERRORS as error:
        return str(error)


def values_differ(ours: NDArray[Any], theirs: NDArray[Any], /) -> str | None:
    """Say how two arrays of one shape differ in dtype or values; ``None`` where they do not.

    Byte order is no difference, nor is the class that holds strings; NaN equals NaN, and NaT equals NaT.

    >>> values_differ(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
    >>> values_differ(np.array([1, 2]), np.array([1, 3]))
    '1 of 2 values differ, the first at (1,): 2 in the cube, 3 in the file'
    """
    if _is_text(ours) and _is_text(theirs):
        ours, theirs = ours.astype(object), theirs.astype(object)
    elif theirs.dtype == "S0" and ours.dtype.kind == "S":
        theirs = theirs.astype(ours.dtype)  # as netCDF4 gives one character that is NUL
    elif ours.dtype.newbyteorder("=") != theirs.dtype.newbyteorder("="):
        return f"dtype '{ours.dtype}' in the cube, '{theirs.dtype}' in the file"
    if ours.dtype.names is not None:
        pairs = [(name, values_differ(ours[name], theirs[name])) for name in ours.dtype.names]
        return next((f"field '{name}': {reason}" for name, reason in pairs if reason), None)
    same = np.asarray((ours == theirs) | ((ours != ours) & (theirs != theirs)), bool)
    if same.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    n_different = int(np.count_nonzero(~same))
    return (
        f"{n_different} of {same.size} values differ, the first at {at}: "
        f"{ours[at]!s} in the cube, {theirs[at]!s} in the file"
    )


def _is_text(values: NDArray[Any]) -> bool:
    if values.dtype.kind == "O":
        return all(isinstance(x, str) for x in values.reshape(-1).tolist())
    return values.dtype.kind in "UT"
