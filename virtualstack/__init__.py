"""Archives of netCDF/HDF5, GRIB and TIFF as one virtual xarray dataset, without a copy of the data.

The import registers ``vds.virtual`` and ``tree.virtual`` with xarray. All other names are imported when first used.
"""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if Path(*getattr(sys, "argv", [])[:1]).stem != "virtualstack":
    # This import registers ``vds.virtual``, and imports xarray. The command line does it after it handles Ctrl-C.
    importlib.import_module("virtualstack.accessor")

if TYPE_CHECKING:
    from virtualstack import errors, readers, sample, serve, stac
    from virtualstack.api.combine import combine_datasets
    from virtualstack.api.many import open_virtual_mfdataset, open_virtual_mfdatatree
    from virtualstack.api.one import open_virtual_dataset, open_virtual_datatree
    from virtualstack.combine import FromAttribute, FromName
    from virtualstack.conversion import convert
    from virtualstack.formats.registry import list_readers
    from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray, ManifestGroup
    from virtualstack.scanning.many import scan
    from virtualstack.scanning.result import ScanResult
    from virtualstack.storage.permission import Listed
    from virtualstack.surveying import Survey, survey
    from virtualstack.vstack.recipe import Recipe
    from virtualstack.vstack.repository import Repository
    from virtualstack.zarr.store import ManifestStore

__all__ = [
    "ChunkEncoding",
    "ChunkGrid",
    "ChunkManifest",
    "Fill",
    "FromAttribute",
    "FromName",
    "Listed",
    "ManifestArray",
    "ManifestGroup",
    "ManifestStore",
    "Recipe",
    "Repository",
    "ScanResult",
    "Survey",
    "combine_datasets",
    "convert",
    "errors",
    "list_readers",
    "open_virtual_dataset",
    "open_virtual_datatree",
    "open_virtual_mfdataset",
    "open_virtual_mfdatatree",
    "readers",
    "sample",
    "scan",
    "serve",
    "stac",
    "survey",
]

_NAMES = {
    "api.combine": ("combine_datasets",),
    "api.many": ("open_virtual_mfdataset", "open_virtual_mfdatatree"),
    "api.one": ("open_virtual_dataset", "open_virtual_datatree"),
    "combine": ("FromAttribute", "FromName"),
    "conversion": ("convert",),
    "manifests": ("ChunkEncoding", "ChunkGrid", "ChunkManifest", "Fill", "ManifestArray", "ManifestGroup"),
    "formats.registry": ("list_readers",),
    "vstack.recipe": ("Recipe",),
    "vstack.repository": ("Repository",),
    "scanning.many": ("scan",),
    "scanning.result": ("ScanResult",),
    "zarr.store": ("ManifestStore",),
    "storage.permission": ("Listed",),
    "surveying": ("Survey", "survey"),
}
"""Public names by the module that defines them."""

_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # takes 30 ms to import

        return version(__name__)
    if name in ("errors", "readers", "sample", "serve", "stac"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
