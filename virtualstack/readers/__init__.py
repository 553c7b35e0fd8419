"""Formats become groups of virtual arrays.

The readers' classes are here by name, and imported when they are asked for: ``virtualstack.readers.HDF5()``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from virtualstack.readers.base import Assembler, Reader, ReadOptions
from virtualstack.readers.registry import BUILT_IN, Format, find_reader, list_readers

if TYPE_CHECKING:
    from virtualstack.readers.dmrpp.reader import DMRPP
    from virtualstack.readers.grib.reader import GRIB
    from virtualstack.readers.hdf5.reader import HDF5
    from virtualstack.readers.icechunk import Icechunk
    from virtualstack.readers.kerchunk import Kerchunk
    from virtualstack.readers.kerchunk_driver import KerchunkDriver
    from virtualstack.readers.manifest_store import ManifestStore
    from virtualstack.readers.netcdf3.reader import NetCDF3
    from virtualstack.readers.tiff.reader import TIFF
    from virtualstack.readers.zarr.reader import Zarr

__all__ = [
    "DMRPP",
    "GRIB",
    "HDF5",
    "TIFF",
    "Assembler",
    "Format",
    "Icechunk",
    "Kerchunk",
    "KerchunkDriver",
    "ManifestStore",
    "NetCDF3",
    "ReadOptions",
    "Reader",
    "Zarr",
    "find_reader",
    "list_readers",
]

_CLASSES = {target.partition(":")[2]: target for row in BUILT_IN if (target := row.target) is not None}
_CLASSES["KerchunkDriver"] = "virtualstack.readers.kerchunk_driver:KerchunkDriver"


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'; the readers are {sorted(_CLASSES)}")
    return getattr(importlib.import_module(_CLASSES[name].partition(":")[0]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_CLASSES})
