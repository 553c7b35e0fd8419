"""eccodes and cfgrib, imported when they are needed."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from virtualstack.errors import MissingDependencyError
from virtualstack.loading import before_eccodes


@functools.cache
def import_eccodes() -> ModuleType:
    """Import eccodes, and before it what would crash after it."""
    before_eccodes()
    return _imported("eccodes")


@functools.cache
def import_cfgrib(name: str) -> ModuleType:
    """Import a module of cfgrib, such as ``"dataset"``."""
    import_eccodes()
    return _imported(f"cfgrib.{name}")


def _imported(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:  # RuntimeError: the package is installed without its library
        raise MissingDependencyError("GRIB", extra="grib") from error


def message_owner(message: int, /) -> Any:
    """Return an object with which a message of eccodes is released.

    The library releases it without a step in Python; a step in Python, such as ``__del__``, would lose Ctrl-C.
    """
    bindings = importlib.import_module("gribapi.bindings")
    return bindings.ffi.gc(bindings.ffi.cast("grib_handle*", message), bindings.lib.grib_handle_delete)
