"""The order in which libraries are loaded."""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from importlib.util import find_spec
from typing import Any, NoReturn

_ECCODES = {"eccodes", "gribapi"}


def before_eccodes() -> None:
    """Import pyproj and rasterio, as far as they are installed, if eccodes is installed too and not loaded yet.

    eccodes' package `findlibs` loads its libraries with ``RTLD_GLOBAL``, so that libraries that are loaded later use
    them in place of their own (seen with the wheels of eccodes 2.50). pyproj 3.8 and eccodes then both destroy the
    global objects of one PROJ, and the process aborts when it ends. rasterio crashes when it reads from a server.
    """
    if not _ECCODES & sys.modules.keys() and find_spec("eccodes") is not None:
        for module in ("pyproj", "rasterio"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)


def __getattr__(name: str) -> NoReturn:
    """Import libraries for the entry point ``VirtualStack`` of xarray, which is no engine: it has no object.

    xarray loads the entry points of engines in the order of their names, so that of cfgrib loads eccodes before that
    of rioxarray loads pyproj and rasterio. It warns of entry points without an object, and goes on without them.
    """
    if name == "libraries":
        before_eccodes()
        warnings.filterwarnings("ignore", "Engine 'VirtualStack' loading failed", RuntimeWarning)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def pyproj_if_safe() -> Any:
    """Import pyproj; return ``None`` if it is not installed, or if eccodes was loaded before it."""
    if _ECCODES & sys.modules.keys() and "pyproj" not in sys.modules:
        return None
    try:
        return importlib.import_module("pyproj")
    except ImportError:
        return None
