"""Emit warnings that point to the user's line that led to them."""

from __future__ import annotations

import warnings
from pathlib import Path

import xarray as xr

_NOT_THEIRS = str(Path(__file__).parent), str(Path(xr.__file__).parent)


def warn(message: str, kind: type[Warning] = UserWarning, /) -> None:
    """Emit a warning for the innermost line that is neither in virtualstack nor in xarray."""
    warnings.warn(message, kind, skip_file_prefixes=_NOT_THEIRS)
