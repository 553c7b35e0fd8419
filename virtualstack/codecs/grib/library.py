"""eccodes and cfgrib, imported when they are needed."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

__all__ = ["cfgrib_of", "eccodes_of"]


@functools.cache
def eccodes_of() -> ModuleType:
    """Import eccodes."""
    return importlib.import_module("eccodes")


@functools.cache
def cfgrib_of(name: str) -> ModuleType:
    """Import a module of cfgrib, such as ``"dataset"``."""
    eccodes_of()
    return importlib.import_module(f"cfgrib.{name}")
