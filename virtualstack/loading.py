"""The order in which libraries are loaded."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from importlib.util import find_spec
from typing import Any, NoReturn

from virtualstack.errors import StorageError

__all__ = ["before_eccodes", "pycurl_beside_eccodes", "pyproj_if_safe"]

_ECCODES = {"eccodes", "gribapi"}


def before_eccodes(*modules: str) -> None:
    """Import modules that are installed, if eccodes is installed too and not loaded yet.

    eccodes' package `findlibs` loads its libraries with ``RTLD_GLOBAL``, so that libraries that are loaded later use
    them in place of their own (seen with the wheels of eccodes 2.50). pyproj 3.8 and eccodes then both destroy the
    global objects of one PROJ, and the process aborts when it ends. rasterio reads from servers by another libcurl.
    """
    if not _ECCODES & sys.modules.keys() and find_spec("eccodes") is not None:
        for module in (*modules, *(() if hasattr(os, "RTLD_DEEPBIND") else ("pycurl",))):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)


def __getattr__(name: str) -> NoReturn:
    """Import libraries for the entry point ``VirtualStack`` of xarray, which is no engine: it has no object.

    xarray loads the entry points of engines in the order of their names, so that of cfgrib loads eccodes before that
    of rioxarray loads pyproj and rasterio. It warns of entry points without an object, and goes on without them.
    """
    if name == "libraries":
        before_eccodes("pyproj", "rasterio")
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


def pycurl_beside_eccodes() -> None:
    """Import pycurl with its own libcurl, also after eccodes.

    eccodes' package `findlibs` loads another libcurl with ``RTLD_GLOBAL``, an older one (seen with eccodes 2.50 and
    pycurl 7.49). pycurl would call the functions of that library, which it notices, and raise ``ImportError``. If the
    loader has no ``RTLD_DEEPBIND``, as on macOS and with musl, pycurl is loaded before eccodes.

    Raises
    ------
    StorageError
        The caller has loaded eccodes, and pycurl cannot be loaded after it.
    """
    if "pycurl" in sys.modules or not _ECCODES & sys.modules.keys():
        return
    deep = getattr(os, "RTLD_DEEPBIND", 0)
    flags = sys.getdlopenflags() if deep else 0
    try:
        if deep:
            sys.setdlopenflags(flags | deep)
        importlib.import_module("pycurl")
    except ImportError as error:
        raise StorageError(f"pycurl cannot be loaded after eccodes ({error}). Import it before eccodes") from error
    finally:
        if deep:
            sys.setdlopenflags(flags)
