"""Name the readers, which turn formats into groups of virtual arrays.

The readers' classes are available here by name, and imported on first use: ``virtualstack.readers.HDF5()``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from virtualstack.formats.base import Assembler, Reader, ReadOptions
from virtualstack.formats.registry import BUILT_IN, Format, find_reader, list_readers

if TYPE_CHECKING:
    from virtualstack.formats.dmrpp.reader import DMRPP
    from virtualstack.formats.fits.reader import FITS
    from virtualstack.formats.grib.reader import GRIB
    from virtualstack.formats.grib.template import GRIBTemplate
    from virtualstack.formats.hdf4.reader import HDF4
    from virtualstack.formats.hdf5.reader import HDF5
    from virtualstack.formats.netcdf3.reader import NetCDF3
    from virtualstack.formats.npy.reader import NumPy
    from virtualstack.formats.packed.reader import Packed
    from virtualstack.formats.tiff.reader import TIFF
    from virtualstack.icechunk.reader import Icechunk
    from virtualstack.kerchunk.driver import KerchunkDriver
    from virtualstack.kerchunk.reader import Kerchunk
    from virtualstack.vstack.reader import VStack
    from virtualstack.zarr.reader import Zarr
    from virtualstack.zarr.virtualizarr import VirtualiZarr

__all__ = [
    "DMRPP",
    "FITS",
    "GRIB",
    "HDF4",
    "HDF5",
    "TIFF",
    "Assembler",
    "Format",
    "GRIBTemplate",
    "Icechunk",
    "Kerchunk",
    "KerchunkDriver",
    "NetCDF3",
    "NumPy",
    "Packed",
    "ReadOptions",
    "Reader",
    "VStack",
    "VirtualiZarr",
    "Zarr",
    "find_reader",
    "list_readers",
]

_CLASSES = {target.partition(":")[2]: target for row in BUILT_IN if (target := row.target) is not None}
_CLASSES["GRIBTemplate"] = "virtualstack.formats.grib.template:GRIBTemplate"
_CLASSES["KerchunkDriver"] = "virtualstack.kerchunk.driver:KerchunkDriver"
_CLASSES["VirtualiZarr"] = "virtualstack.zarr.virtualizarr:VirtualiZarr"


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'; the readers are {sorted(_CLASSES)}")
    return getattr(importlib.import_module(_CLASSES[name].partition(":")[0]), name)


def __dir__() -> list[str]:
    return list(__all__)
