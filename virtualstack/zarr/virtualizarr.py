"""Arrays and parsers of VirtualiZarr: their zarr metadata and chunk manifests become virtual arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import xarray as xr
from obstore.store import LocalStore, from_url
from zarr.core.buffer import default_buffer_prototype

from virtualstack.errors import MalformedFileError, UnsupportedFeatureError
from virtualstack.formats.base import ReadOptions
from virtualstack.location import Location, split_url
from virtualstack.manifests import FIRST, INLINE, ChunkManifest, ManifestArray, ManifestGroup
from virtualstack.manifests.chunk_manifest import EMPTY, ENTRY
from virtualstack.storage import Storage
from virtualstack.zarr.metadata.array import ArrayMetadata
from virtualstack.zarr.metadata.attributes import json_attributes, parse_json
from virtualstack.zarr.metadata.hierarchy import build_group

_STATES = {"": EMPTY, "__inlined__": INLINE}
"""What paths that name no source say about their chunks."""

_PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "units", "calendar")


def array_of(name: str, variable: xr.Variable, /) -> ManifestArray:
    """Return the virtual array that is the same as VirtualiZarr's array of a variable."""
    packing = {key: value for key, value in variable.encoding.items() if key in _PACKING and value is not None}
    attributes = json_attributes({**packing, **variable.attrs}, variable=name)
    changed = {"attributes": attributes, "dimension_names": list(map(str, variable.dims))}
    documents = {f"{name}/zarr.json": {**_document(variable._data), **changed}}
    made = _group(documents, {name: variable._data}, where=f"variable '{name}' of VirtualiZarr", url=None)
    if made.refusals:
        raise UnsupportedFeatureError(made.refusals[0].reason, variable=name, feature="array of VirtualiZarr")
    return made.arrays[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualiZarr:
    """Reader that calls a parser of VirtualiZarr, so that what it finds can be joined with all other data.

    When to use: for a format that virtualstack does not read, and a parser of VirtualiZarr does. Alternatives: a
    dataset that VirtualiZarr has opened already can be given to :func:`virtualstack.combine_datasets`, and has
    ``.virtual``.

    Parameters
    ----------
    parser
        Function of a URL and a registry of stores that returns VirtualiZarr's ``ManifestStore``, such as
        ``virtualizarr.parsers.FITSParser()``.
    registry
        Registry of the stores with which the parser reads, as VirtualiZarr takes it. By default: obstore's store for
        the root of the URL, with the credentials of the environment. Values are read later with ``storage=``.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> from virtualizarr.parsers import HDFParser
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
    >>> reader = vs.readers.VirtualiZarr(parser=HDFParser())
    >>> vs.open_virtual_dataset("day.nc", reader=reader).virtual.open()["rain"].values
    array([1., 2.])
    """

    name: ClassVar[str] = "virtualizarr"
    parser: Callable[[str, Any], Any]
    registry: Any = None

    def detect(self, url: str, storage: Storage, /) -> bool:
        """Return false: the reader is used only if it is named."""
        return False

    def read(self, url: str, storage: Storage, options: ReadOptions, /) -> ManifestGroup:
        """Let the parser read a source."""
        from obspec_utils.registry import ObjectStoreRegistry

        registry = self.registry
        if registry is None:
            root, _ = split_url(url)
            registry = ObjectStoreRegistry({root: LocalStore() if root == "file:///" else from_url(root)})
        documents: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        for path, node in _nodes(self.parser(url, registry)._group):
            documents[f"{path}/zarr.json".lstrip("/")] = _document(node)
            for name, array in node.arrays.items():
                at = f"{path}/{name}".lstrip("/")
                documents[f"{at}/zarr.json"], arrays[at] = _document(array), array
        return _group(documents, arrays, where=url, url=url, wanted=options.wants)


def _document(node: Any) -> Any:
    data = node.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    return parse_json(data, where="zarr.json' of 'VirtualiZarr")


def _nodes(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, group
    for name, child in group.groups.items():
        yield from _nodes(child, f"{path}/{name}".lstrip("/"))


def _group(
    documents: Mapping[str, Any],
    arrays: Mapping[str, Any],
    *,
    where: str,
    url: str | None,
    wanted: Callable[[str], bool] = lambda path: True,
) -> ManifestGroup:
    def read(path: str, described: ArrayMetadata) -> tuple[ChunkManifest, int]:
        return _manifest(arrays[path].manifest, described, f"{path}' of '{where}"), 0

    return build_group(documents, read, where=where, url=url, wanted=wanted)


def _manifest(manifest: Any, described: ArrayMetadata, where: str) -> ChunkManifest:
    paths, inlined = manifest._paths, manifest._inlined
    if paths.shape != described.object_grid:
        raise MalformedFileError(
            f"'{where}' has a manifest of {paths.shape} chunks, and its metadata describe {described.object_grid}"
        )
    codes, names = pd.factorize(paths.reshape(-1).astype(object))
    locations = [Location(str(name)) for name in names if name not in _STATES]
    numbers = itertools.count(FIRST)
    kinds = np.array([_STATES[name] if name in _STATES else next(numbers) for name in names], np.uint32)
    entries = np.zeros(paths.size, ENTRY)
    entries["location"] = kinds[codes]
    is_there = entries["location"] >= FIRST
    entries["offset"][is_there] = manifest._offsets.reshape(-1)[is_there]
    entries["length"][is_there] = manifest._lengths.reshape(-1)[is_there]
    heap = b"".join(inlined.values())
    end = 0
    for index, data in inlined.items():
        entries[np.ravel_multi_index(index, paths.shape) if index else 0] = (INLINE, 0, end, len(data))
        end += len(data)
    return ChunkManifest(
        entries=entries.reshape(paths.shape),
        fills=(described.fill,),
        encodings=described.encodings(),
        locations=tuple(locations),
        inline=heap,
    )
