"""The readers of virtualstack as a parser of VirtualiZarr."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from virtualstack.dataset.opening import account_for
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.icechunk.references import inline_chunks
from virtualstack.location import is_remote
from virtualstack.manifests import FIRST, INLINE, ChunkManifest, ManifestArray, ManifestGroup
from virtualstack.reading.nameless import inline_nameless
from virtualstack.scanning.one import read_one
from virtualstack.sizes import byte_count
from virtualstack.storage import StorageLike
from virtualstack.zarr.client import Client
from virtualstack.zarr.forms import make_document, make_group_document, with_text_fill
from virtualstack.zarr.rewrite.rewrite import fitting

_VIRTUALIZARR = Client(name="arrays of VirtualiZarr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """Parser of VirtualiZarr for every format that virtualstack reads.

    When to use: in programs that are written for VirtualiZarr. Alternatives:
    :func:`virtualstack.open_virtual_dataset`, whose arrays join files that differ in codecs, chunks and packing, which
    arrays of VirtualiZarr cannot.

    Parameters
    ----------
    reader
        Name of the format or a reader, as in :func:`virtualstack.open_virtual_dataset`. By default it is found out.
    drop_variables
        Names of variables that are left out.
    storage
        Access to the source. By default: the store of VirtualiZarr's registry if it is one of obstore, otherwise the
        credentials of the environment.
    inline_limit
        Largest size, such as ``"1 MiB"``, of a variable whose values are read and kept in the manifest because zarr
        metadata cannot express its chunks.
    rewrite
        Largest size of the chunks of a variable that are encoded again, as in ``vds.virtual.to_icechunk``.
    absent
        ``"fill"``: chunks that should exist but have no source read as the fill value. ``"raise"``: they are an error.

    Examples
    --------
    >>> import os
    >>> import virtualizarr
    >>> import xarray as xr
    >>> from obspec_utils.registry import ObjectStoreRegistry
    >>> from obstore.store import LocalStore
    >>> from virtualstack.virtualizarr import Parser
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
    >>> registry = ObjectStoreRegistry({"file://": LocalStore()})
    >>> vds = virtualizarr.open_virtual_dataset(f"file://{os.getcwd()}/day.nc", registry, Parser())
    >>> vds["rain"].data
    ManifestArray<shape=(2,), dtype=float64, chunks=(2,)>
    """

    reader: str | Reader | None = None
    drop_variables: Iterable[str] = ()
    storage: StorageLike = None
    inline_limit: int | str = "1 MiB"
    rewrite: str | float | None = None
    absent: Literal["raise", "fill"] = "raise"

    def __call__(self, url: str, registry: Any) -> Any:
        """Read a source, and return VirtualiZarr's ``ManifestStore`` of it.

        Raises
        ------
        WriterError
            The chunks of a variable cannot be described by metadata of zarr.
        ReaderError, StorageError
            The source cannot be read.
        """
        from virtualizarr.manifests import ManifestStore

        limit = byte_count(self.inline_limit, option="inline_limit")
        options = ReadOptions.from_options(drop_variables=self.drop_variables, inline_limit=limit)
        given = self.storage if self.storage is not None else _store(url, registry)
        group, storage = read_one(url, reader=self.reader, storage=given, options=options)
        account_for(group, "inline", with_children=True)
        group = inline_nameless(group, storage=storage, inline_limit=limit)
        fitted = fitting(_VIRTUALIZARR, inline_limit=limit, rewrite=self.rewrite, absent=self.absent, storage=storage)
        made = group.map_arrays(lambda array: fitted(with_text_fill(array)))
        return ManifestStore(_group(made, ""), registry=registry)


def _store(url: str, registry: Any) -> StorageLike:
    if not is_remote(url):
        return None
    store, path = registry.resolve(url)
    return {url.removesuffix(str(path)): store} if type(store).__module__.startswith("obstore") else None


def _group(group: ManifestGroup, path: str) -> Any:
    from virtualizarr.manifests import ManifestGroup as Group

    return Group(
        arrays={name: _array(array, f"{path}/{name}".lstrip("/")) for name, array in group.arrays.items()},
        groups={name: _group(child, f"{path}/{name}".lstrip("/")) for name, child in group.groups.items()},
        attributes=json.loads(make_group_document(group, path=path))["attributes"],
    )


def _array(array: ManifestArray, path: str) -> Any:
    from virtualizarr.manifests import ManifestArray as Array
    from zarr.core.metadata.v3 import ArrayV3Metadata

    document, manifest = make_document(array, path=path)
    return Array(ArrayV3Metadata.from_dict(json.loads(document)), _manifest(manifest))


def _manifest(manifest: ChunkManifest) -> Any:
    from virtualizarr.manifests import ChunkManifest as Chunks

    states = ["", "", "__inlined__"]
    names = np.array([*states, *(x.url for x in manifest.locations)], np.dtypes.StringDType())
    kinds = manifest.entries["location"]
    is_inline = kinds == INLINE
    return Chunks.from_arrays(
        paths=names[kinds.reshape(-1)].reshape(kinds.shape),
        offsets=np.where(kinds >= FIRST, manifest.entries["offset"], 0).astype(np.uint64),
        lengths=np.where(kinds >= INLINE, manifest.entries["length"], 0).astype(np.uint64),
        inlined=dict(inline_chunks(manifest, is_inline)),
    )
