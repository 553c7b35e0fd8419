"""Groups as plain bytes: JSON, packed columns and nothing that runs when it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from virtualstack.codecs.metadata import Codec
from virtualstack.errors import ManifestError
from virtualstack.location import Location
from virtualstack.manifests import (
    ENTRY,
    ChunkAxis,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    ManifestGroup,
    Refusal,
)
from virtualstack.manifests.columns import pack, unpack
from virtualstack.scan.plain_values import Heap, Json, UnstorableError, from_dtype, from_value, to_dtype, to_value

__all__ = ["from_group", "to_group"]

_MAX_CELLS = 1 << 27  # of all arrays: 3 GiB of entries; a few bytes can say that there are so many

_KINDS: dict[str, Literal["refused", "inlined", "noted", "packed"]] = {
    "refused": "refused", "inlined": "inlined", "noted": "noted", "packed": "packed"
}  # fmt: skip


def from_group(group: ManifestGroup, heap: Heap, /) -> Json:
    """Give the JSON of a group; chunks go to the heap in packed columns.

    Raises
    ------
    UnstorableError
        An attribute has no plain form, or there are more than 10^8 chunks.
    """
    n_cells = sum(math.prod(array.grid.shape) for _, node in group.walk() for array in node.arrays.values())
    if n_cells > _MAX_CELLS:
        raise UnstorableError(f"{n_cells} chunks")
    return _from_group(group, heap)


def _from_group(group: ManifestGroup, heap: Heap) -> Json:
    return {
        "arrays": {name: _from_array(array, heap) for name, array in group.arrays.items()},
        "groups": {name: _from_group(child, heap) for name, child in group.groups.items()},
        "attributes": _from_attributes(group.attributes, heap),
        "coordinates": sorted(group.coordinates),
        "dimensions": dict(group.dimensions),
        "unlimited": sorted(group.unlimited),
        "not_text": sorted(group.not_text),
        "refusals": [[x.path, x.reason, x.kind] for x in group.refusals],
        "url": group.url,
    }


def to_group(data: Json, heap: memoryview, /) -> ManifestGroup:
    """Give the group back, every entry checked.

    Raises
    ------
    ManifestError, ValueError, TypeError, KeyError
        The JSON is none of ours.
    """
    return _to_group(data, heap, _Room())


class _Room:
    """For how many more chunks there is memory."""

    def __init__(self) -> None:
        self.n_cells = _MAX_CELLS

    def take(self, shape: tuple[int, ...]) -> None:
        self.n_cells -= math.prod(shape)
        if self.n_cells < 0:
            raise ManifestError(f"more than {_MAX_CELLS} chunks")


def _to_group(data: Json, heap: memoryview, room: _Room) -> ManifestGroup:
    return ManifestGroup(
        arrays={name: _to_array(array, heap, room) for name, array in data["arrays"].items()},
        groups={name: _to_group(child, heap, room) for name, child in data["groups"].items()},
        attributes=_to_attributes(data["attributes"], heap),
        coordinates=frozenset(map(_to_text, data["coordinates"])),
        dimensions={name: int(n) for name, n in data["dimensions"].items()},
        unlimited=frozenset(map(_to_text, data["unlimited"])),
        not_text=frozenset(map(_to_text, data["not_text"])),
        refusals=tuple(
            Refusal(path=_to_text(path), reason=_to_text(reason), kind=_KINDS[kind])
            for path, reason, kind in data["refusals"]
        ),
        url=None if data["url"] is None else _to_text(data["url"]),
    )


def _from_location(location: Location) -> Json:
    return [location.url, location.size, location.etag, location.last_modified]


def _to_location(data: Json) -> Location:
    url, size, etag, last_modified = data
    return Location(
        _to_text(url),
        None if size is None else int(size),
        None if etag is None else _to_text(etag),
        None if last_modified is None else float(last_modified),
    )


def _from_array(array: ManifestArray, heap: Heap) -> Json:
    if not isinstance(array.manifest, ChunkManifest):
        raise UnstorableError("chunks in pages")  # which are as quickly found again where they are
    manifest = array.manifest
    return {
        "name": array.name,
        "dtype": from_dtype(array.dtype),
        "dims": array.dimension_names,
        "attributes": _from_attributes(array.attributes, heap),
        "cf": _from_attributes(array.cf, heap),
        "grid": [_from_axis(axis, heap) for axis in array.grid.axes],
        "chunks": heap.add(pack(manifest.entries, manifest.starts)),
        "inline": heap.add(manifest.inline),
        "locations": [_from_location(x) for x in manifest.locations],
        "encodings": [
            [from_dtype(x.dtype), x.shape, [[c.name, c.configuration] for c in x.codecs], x.strides]
            for x in manifest.encodings
        ],
        "fills": [[from_dtype(x.dtype), heap.add(x.raw)] for x in manifest.fills],
    }


def _to_array(data: Json, heap: memoryview, room: _Room) -> ManifestArray:
    grid = ChunkGrid(tuple(_to_axis(axis, heap) for axis in data["grid"]))
    room.take(grid.shape)
    entries, starts = unpack(_cut(heap, data["chunks"]), grid.shape, ENTRY)
    manifest = ChunkManifest(
        entries=entries,
        starts=starts,
        fills=tuple(Fill(to_dtype(dtype), bytes(_cut(heap, raw))) for dtype, raw in data["fills"]),
        encodings=tuple(
            ChunkEncoding(
                dtype=to_dtype(dtype),
                shape=tuple(map(int, shape)),
                codecs=tuple(Codec(_to_text(name), _to_text(configuration)) for name, configuration in codecs),
                strides=tuple(map(int, strides)),
            )
            for dtype, shape, codecs, strides in data["encodings"]
        ),
        locations=tuple(map(_to_location, data["locations"])),
        inline=bytes(_cut(heap, data["inline"])),
    )
    array = ManifestArray(
        manifest=manifest,
        grid=grid,
        dtype=to_dtype(data["dtype"]),
        name=None if data["name"] is None else _to_text(data["name"]),
        dimension_names=None if data["dims"] is None else tuple(map(_to_text, data["dims"])),
        attributes=_to_attributes(data["attributes"], heap),
        cf=_to_attributes(data["cf"], heap),
    )
    array.validate()
    return array


def _from_axis(axis: ChunkAxis, heap: Heap) -> Json:
    if axis.chunk is not None:
        return [axis.length, axis.chunk]
    return [*heap.add(axis.lengths().tobytes()), 0]


def _to_axis(data: Json, heap: memoryview) -> ChunkAxis:
    if len(data) == 2:
        return ChunkAxis.regular(*data)
    return ChunkAxis.from_lengths(np.frombuffer(_cut(heap, data[:2]), np.int64))


def _to_text(data: Json) -> str:
    if not isinstance(data, str):
        raise ManifestError(f"{data!r} is no text")
    return data


def _cut(heap: memoryview, spot: Json) -> memoryview:
    offset, length = spot
    if not 0 <= offset <= offset + length <= len(heap):
        raise ManifestError(f"{length} bytes at {offset} of a heap of {len(heap)}")
    return heap[offset : offset + length]


def _from_attributes(attributes: Mapping[str, Any], heap: Heap) -> Json:
    return {name: from_value(value, heap) for name, value in attributes.items()}


def _to_attributes(data: Json, heap: memoryview) -> dict[str, Any]:
    return {name: to_value(value, heap) for name, value in data.items()}
