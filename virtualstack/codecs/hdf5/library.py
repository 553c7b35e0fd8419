"""The package that decodes what numpy, numcodecs and the standard library do not."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

from virtualstack.errors import MissingDependencyError

__all__ = ["check_installed", "imagecodecs"]

_PACKAGE, _EXTRA = "imagecodecs", "hdf5"


def check_installed(codec: str, /) -> None:
    """Raise where the package is not installed, without importing it.

    Raises
    ------
    MissingDependencyError
        It is not.
    """
    if importlib.util.find_spec(_PACKAGE) is None:
        raise MissingDependencyError(f"codec '{codec}'", extra=_EXTRA)


@functools.cache
def imagecodecs() -> Any:
    """Import the package, at the first chunk."""
    return importlib.import_module(_PACKAGE)
