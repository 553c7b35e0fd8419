"""The order in which libraries are loaded."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from importlib.util import find_spec
from typing import Any

from virtualstack.errors import StorageError

__all__ = ["pycurl_beside_eccodes", "pyproj_before_eccodes", "pyproj_if_safe"]

_ECCODES = {"eccodes", "gribapi"}


def pyproj_before_eccodes() -> None:
    """Import pyproj if both it and eccodes are installed and eccodes is not loaded yet; see `pycurl_beside_eccodes`.

    A process that loads eccodes before pyproj aborts when it ends (seen with the wheels of eccodes 2.50 and pyproj
    3.8). Each has its own PROJ library. eccodes' package `findlibs` loads its PROJ with ``RTLD_GLOBAL``. If pyproj is
    loaded later, its PROJ uses the global objects of that library: both create them, and at the end both destroy them.
    """
    if not _ECCODES & sys.modules.keys() and find_spec("eccodes") is not None:
        for name in ("pyproj", *(() if hasattr(os, "RTLD_DEEPBIND") else ("pycurl",))):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


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
