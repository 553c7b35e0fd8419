"""Warnings, which point to the line of the user's that led to them."""

from __future__ import annotations

import warnings
from pathlib import Path

import xarray as xr

__all__ = ["warn"]

_NOT_THEIRS = str(Path(__file__).parent), str(Path(xr.__file__).parent)


def warn(message: str, kind: type[Warning] = UserWarning, /) -> None:
    """Warn, with the last line that is neither here nor in xarray, however deep this is called."""
    warnings.warn(message, kind, skip_file_prefixes=_NOT_THEIRS)
