"""eccodes and cfgrib, imported in an order that does not abort the process at its end."""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from types import ModuleType

__all__ = ["cfgrib_of", "eccodes_of"]

_LOCK = threading.RLock()


@functools.cache
def eccodes_of() -> ModuleType:
    """Import eccodes; pyproj first, where it is installed.

    Where both are in a process, and eccodes came first, it aborts when it exits.
    """
    with _LOCK:
        with contextlib.suppress(ImportError):
            importlib.import_module("pyproj")
        return importlib.import_module("eccodes")


@functools.cache
def cfgrib_of(name: str) -> ModuleType:
    """Import a module of cfgrib, such as ``"dataset"``."""
    eccodes_of()
    return importlib.import_module(f"cfgrib.{name}")
