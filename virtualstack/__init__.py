"""Archives of netCDF/HDF5, GRIB and TIFF as one virtual xarray dataset, with no byte copied."""

import importlib
from typing import TYPE_CHECKING, Any

from virtualstack import accessor as _accessor  # noqa: F401 - registers vds.virtual
from virtualstack import errors, readers
from virtualstack.api import (
    combine_datasets,
    open_virtual_dataset,
    open_virtual_datatree,
    open_virtual_mfdataset,
    open_virtual_mfdatatree,
)
from virtualstack.combine import FromAttribute, FromName
from virtualstack.loading import pyproj_before_eccodes as _pyproj_before_eccodes
from virtualstack.manifests import (
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    ManifestGroup,
)
from virtualstack.readers.registry import list_readers
from virtualstack.scan import ScanResult, scan
from virtualstack.store import ManifestStore
from virtualstack.survey import Survey, survey

if TYPE_CHECKING:
    from virtualstack.conversion import convert
    from virtualstack.repository import Repository

__version__ = "0.1.0"

__all__ = [
    "ChunkEncoding",
    "ChunkGrid",
    "ChunkManifest",
    "Fill",
    "FromAttribute",
    "FromName",
    "ManifestArray",
    "ManifestGroup",
    "ManifestStore",
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
    "scan",
    "survey",
]


_pyproj_before_eccodes()

_LATE = {"Repository": "virtualstack.repository", "convert": "virtualstack.conversion"}
"""What few sessions need, and what imports much."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_LATE[name]), name)
