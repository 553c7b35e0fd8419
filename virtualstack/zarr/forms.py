"""Conversion of an array to references of zarr v3: its metadata, and one entry for each chunk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import Remedy, UnsupportedFeatureError, WriterError
from virtualstack.manifests import (
    ChunkGrid,
    ChunkManifest,
    Manifest,
    ManifestArray,
    ManifestGroup,
    value_changing,
)
from virtualstack.manifests.encoding import native
from virtualstack.manifests.plain import PlainArray, longest_cells, match_axes
from virtualstack.zarr.documents import array_document, codec_documents, dump_document, fill_attribute
from virtualstack.zarr.metadata.array import check_name
from virtualstack.zarr.metadata.attributes import json_attributes, keep_unwritable_attributes, restore_cf
from virtualstack.zarr.metadata.version2 import ZarrHierarchy, group_attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """A chunk grid of zarr, with the manifest and codecs of its chunks."""

    manifest: ChunkManifest
    chunks: tuple[int, ...]
    codecs: list[dict[str, Any]] | None
    edges: tuple[list[Any], ...] | None = None


def make_document(array: ManifestArray, /, *, path: str) -> tuple[bytes, ChunkManifest]:
    """Return ``zarr.json`` of an array that ``fitting`` made, and the manifest over its chunk grid."""
    grid = _regular(array) or _rectilinear(array)
    assert grid is not None, "`fitting` changes arrays for which there is no grid"
    return _document(array, grid, path), grid.manifest


def make_group_document(group: ManifestGroup, /, *, path: str) -> bytes:
    """Return ``zarr.json`` of a group."""
    attributes = group_attributes(group, path or "/")
    document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    return _dump(document | keep_unwritable_attributes(group.attributes), path or "/")


def make_hierarchy3(group: ManifestGroup, /) -> ZarrHierarchy:
    """Describe a group, and everything below it, by zarr v3 metadata. EMPTY chunks need no bytes."""
    metadata: dict[str, Mapping[str, Any]] = {}
    manifests: dict[str, Manifest] = {}
    for path, node in group.walk():
        at = path.lstrip("/")
        metadata[f"{at}/zarr.json".lstrip("/")] = json.loads(make_group_document(node, path=at))
        for name in (*node.arrays, *node.groups):
            check_name(name, f"{at}/{name}".lstrip("/"), 3)
        for name, array in node.arrays.items():
            key = f"{at}/{name}".lstrip("/")
            document, manifests[key] = make_document(with_text_fill(array), path=key)
            metadata[f"{key}/zarr.json"] = json.loads(document)
    return ZarrHierarchy(metadata=metadata, manifests=manifests, zarr_format=3)


# -- chunk grids ----------------------------------------------------------------------------------------------


def _regular(array: ManifestArray) -> _Grid | None:
    """Return the regular grid of an array that is plain, otherwise ``None``."""
    plain = PlainArray.from_array(array)
    if isinstance(plain, str):
        return None
    codecs = None if plain.encoding is None else codec_documents(plain.encoding, plain.chunks, plain.order)
    return _Grid(manifest=array.in_memory().compact(), chunks=plain.chunks, codecs=codecs)


def _rectilinear(array: ManifestArray) -> _Grid | None:
    """Return the rectilinear grid of an array if its chunks are whole and have the same codecs, otherwise ``None``."""
    manifest = array.in_memory().compact()
    holes = manifest.holes
    rows = manifest.entries["encoding"]
    if not array.ndim or manifest.starts is not None or not manifest.encodings or bool((holes & (rows != 0)).any()):
        return None
    longest = longest_cells(manifest, array.grid)
    matches = [match_axes(x, n.tolist()) for x, n in zip(manifest.encodings, longest, strict=True)]
    found = [match for match in matches if match is not None]
    dtypes = {encoding.dtype for encoding in manifest.encodings}
    if len(found) < len(matches) or len(dtypes) > 1 or native(dtypes.pop()) != array.dtype:
        return None
    codecs = [codec_documents(x, *match) for x, match in zip(manifest.encodings, found, strict=True)]
    if codecs[0] is None or any(x != codecs[0] for x in codecs):
        return None
    shapes = np.array([chunks for chunks, _ in found], np.int64)
    edges = [_edges(array.grid, axis, shapes[:, axis], rows, holes) for axis in range(array.ndim)]
    known = [x for x in edges if x is not None]
    if len(known) < len(edges):
        return None
    return _Grid(
        manifest=manifest,
        chunks=tuple(int(x.max(initial=1)) for x in known),
        codecs=codecs[0],
        edges=tuple(_listed(x) for x in known),
    )


def takes_grid(array: ManifestArray, /) -> bool:
    """Return whether an array has a rectilinear grid of zarr v3."""
    return _rectilinear(array) is not None


def _edges(
    grid: ChunkGrid, axis: int, lengths: NDArray[np.int64], rows: NDArray[Any], holes: NDArray[np.bool_]
) -> NDArray[np.int64] | None:
    """Return the stored lengths of the chunks along an axis.

    ``None`` is returned if the lengths differ at one index of the axis, or if they differ from the lengths of the
    cells. The last chunk may be longer than its cell.
    """
    others = tuple(i for i in range(rows.ndim) if i != axis)
    stored = lengths[np.where(holes, 0, rows)]
    cells = grid.axes[axis].lengths()
    most = np.where(holes, 0, stored).max(axis=others, initial=0)
    least = np.where(holes, np.iinfo(np.int64).max, stored).min(axis=others, initial=np.iinfo(np.int64).max)
    is_empty = most == 0
    if (~is_empty & (most != least)).any():
        return None
    edges: NDArray[np.int64] = np.where(is_empty, cells, most)
    return edges if bool((edges[:-1] == cells[:-1]).all() and (edges[-1:] >= cells[-1:]).all()) else None


def _listed(edges: NDArray[np.int64]) -> list[Any]:
    """Return chunk lengths for the metadata: equal ones as length and count, others as a list.

    Icechunk 2.3 does not accept a single number for all chunks of an axis.
    """
    if not edges.size:
        return [1]
    return [[int(edges[0]), edges.size]] if bool((edges == edges[0]).all()) else edges.tolist()


# -- metadata -------------------------------------------------------------------------------------------------


def _document(array: ManifestArray, grid: _Grid, path: str) -> bytes:
    try:
        document = array_document(array, name=path, chunks=grid.chunks, codecs=grid.codecs)
    except UnsupportedFeatureError as error:
        raise WriterError(str(error), variable=path, feature=error.feature) from error
    if grid.edges is not None:
        configuration = {"kind": "inline", "chunk_shapes": list(grid.edges)}
        document["chunk_grid"] = {"name": "rectilinear", "configuration": configuration}
    raw = restore_cf(array.attributes, array.cf, variable=path)
    document["attributes"] = _attributes(raw, array.dtype, path)
    return _dump(document | keep_unwritable_attributes(raw, array.dtype), path)


def with_text_fill(array: ManifestArray, /) -> ManifestArray:
    """Return an array of text with ``missing_value`` in place of ``_FillValue``, which xarray reads of numbers only.

    Bytes become text, because JSON has no bytes. The fill value of bytes equals no text, and is left out.
    """
    attributes, is_bytes = dict(array.attributes), array.dtype.kind == "S"
    if array.dtype.kind not in "STU" or "_FillValue" not in attributes:
        return array
    fill = attributes.pop("_FillValue")
    if is_bytes and "_Encoding" not in attributes:
        attributes["_Encoding"] = "utf-8"
    elif isinstance(fill, bytes):
        fill = None
    text = json_attributes({"": fill}, variable=array.name or "")[""]
    if text is not None and attributes.setdefault("missing_value", text) != text:
        raise WriterError(
            f"variable '{array.name}' has _FillValue = {fill!r} and another missing_value, and attributes of zarr can "
            "hold only one of them for text",
            Remedy("write a vstack or kerchunk references"),
            variable=array.name,
            feature="_FillValue",
        )
    return replace(array, attributes=attributes, cf=value_changing(attributes))


def _attributes(raw: Mapping[str, Any], dtype: np.dtype[Any], path: str) -> dict[str, Any]:
    attributes = json_attributes({name: x for name, x in raw.items() if name != "_FillValue"}, variable=path)
    if "_FillValue" in raw:
        coded = fill_attribute(raw["_FillValue"], dtype)
        if coded is None:
            raise WriterError(
                f"variable '{path}' has _FillValue = {raw['_FillValue']!r}, which attributes of zarr cannot hold for "
                f"values of dtype '{dtype}'",
                Remedy("open its files with", unpack=True),
                Remedy("write a vstack or kerchunk references, which can hold it"),
                variable=path,
                feature="_FillValue",
            )
        attributes["_FillValue"] = coded
    return attributes


def _dump(document: Mapping[str, Any], path: str) -> bytes:
    data = dump_document(document)
    try:
        json.loads(data, parse_constant=partial(_refuse_constant, path))
    except RecursionError as error:
        raise WriterError(
            f"'{path}' has attributes that are nested too deeply for JSON", Remedy("remove them"), variable=path
        ) from error
    return data


def _refuse_constant(path: str, constant: str) -> None:
    raise WriterError(
        f"'{path}' has {constant} in an attribute that changes values, such as scale_factor; JSON of zarr v3 cannot "
        f"hold {constant}",
        Remedy("leave the variable out, or write a vstack"),
        variable=path,
        feature=constant,
    )
