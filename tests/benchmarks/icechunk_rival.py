"""Icechunk as a rival: a repository whose one array is virtual chunks."""

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from virtualstack.manifests import ManifestArray

HAS_ICECHUNK = importlib.util.find_spec("icechunk") is not None


def write_icechunk(
    array: ManifestArray, path: Path, folder: str, *, chunks: tuple[int, ...], compressors: Sequence[Any] = ()
) -> Path:
    """Write the references of an array; ``folder`` is the URL that all its sources lie below."""
    icechunk, zarr = importlib.import_module("icechunk"), importlib.import_module("zarr")
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)), config=_config(folder))
    session = repository.writable_session("main")
    zarr.create_array(
        session.store,
        name="v",
        shape=array.shape,
        chunks=chunks,
        dtype=array.dtype,
        compressors=list(compressors) or None,
        dimension_names=array.dimension_names,
    )
    manifest = array.in_memory()
    for i in range(manifest.shape[0]):
        rows = manifest.entries[i].reshape(-1)
        cells = [(i, *cell) for cell in np.ndindex(manifest.shape[1:])]
        locations = [manifest.locations[code - 3].url for code in rows["location"].tolist()]
        spots = zip(cells, locations, rows["offset"].tolist(), rows["length"].tolist(), strict=True)
        specs = [icechunk.VirtualChunkSpec(list(cell), url, offset, length) for cell, url, offset, length in spots]
        session.store.set_virtual_refs("v", specs, validate_containers=False)
    session.commit("all")
    return path


def open_icechunk(path: Path, folder: str) -> Any:
    """Give the zarr store of the newest snapshot; its chunks may be read."""
    icechunk = importlib.import_module("icechunk")
    repository = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(path)),
        config=_config(folder),
        authorize_virtual_chunk_access={folder: None},
    )
    return repository.readonly_session("main").store


def _config(folder: str) -> Any:
    icechunk = importlib.import_module("icechunk")
    is_local = folder.startswith("file://")
    store = icechunk.local_filesystem_store(folder[7:]) if is_local else icechunk.s3_store(region="us-east-1")
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(folder, store))
    return config
