"""The order in which libraries are loaded."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["pyproj_before_eccodes", "pyproj_if_safe"]

_ECCODES = {"eccodes", "gribapi"}


class _PyprojFirst:
    """Among the finders of modules: finds none, but loads pyproj when somebody looks for eccodes."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name in _ECCODES:
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(cls)
            with contextlib.suppress(ImportError):
                importlib.import_module("pyproj")


def pyproj_before_eccodes() -> None:
    """See to it that pyproj, where it is installed, is loaded before eccodes, whoever loads that.

    Otherwise a process that has both aborts when it ends (seen with the wheels of eccodes 2.50 and pyproj 3.8). Each
    has a library of PROJ. eccodes' package `findlibs` loads its own with ``RTLD_GLOBAL``, so that the one of pyproj,
    loaded later, takes the global objects of PROJ from it: both make them, and at the end both destroy them.
    xarray loads engines in the order of their names, so that cfgrib and with it eccodes come before rioxarray. The
    engine has a second name, ``VirtualStack``, as capital letters sort first. Nothing is done where eccodes is there
    already, and nothing is loaded by this.
    """
    if not _ECCODES & sys.modules.keys() and _PyprojFirst not in sys.meta_path:
        sys.meta_path.insert(0, _PyprojFirst)


def pyproj_if_safe() -> Any:
    """Import pyproj; ``None`` where it is not installed, or where eccodes was loaded before it."""
    if _ECCODES & sys.modules.keys() and "pyproj" not in sys.modules:
        return None
    try:
        return importlib.import_module("pyproj")
    except ImportError:
        return None
