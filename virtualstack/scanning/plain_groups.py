"""Groups as plain bytes: JSON and packed columns, with nothing that is executed on reading."""

from __future__ import annotations

import math

import numpy as np

from virtualstack.errors import ManifestError
from virtualstack.location import Location, Reads
from virtualstack.manifests import ENTRY, ChunkManifest, ManifestArray, ManifestGroup
from virtualstack.manifests.columns import pack, unpack
from virtualstack.manifests.serialised.headers import (
    ArrayHeader,
    from_array_header,
    from_group_header,
    to_array_header,
    to_text,
)
from virtualstack.manifests.serialised.headers import to_group as read_group
from virtualstack.manifests.serialised.values import Heap, Json, UnstorableError, cut_heap, to_mapping

_MAX_CELLS = 1 << 27  # in all arrays: 3 GiB of entries; forged data of a few bytes could ask for more


def from_group(group: ManifestGroup, heap: Heap, /) -> Json:
    """Return the JSON of a group. Chunk references go to the heap in packed columns."""
    n_cells = sum(math.prod(array.grid.shape) for _, node in group.walk() for array in node.arrays.values())
    if n_cells > _MAX_CELLS:
        raise UnstorableError(f"{n_cells} chunks")
    return _from_group(group, heap)


def _from_group(group: ManifestGroup, heap: Heap) -> Json:
    return {
        "arrays": {name: _from_array(array, heap) for name, array in group.arrays.items()},
        "groups": {name: _from_group(child, heap) for name, child in group.groups.items()},
        **from_group_header(group, heap),
        "url": group.url,
    }


def to_group(data: Json, heap: memoryview, /) -> ManifestGroup:
    """Return the group, with every entry checked."""
    return _to_group(data, heap, _Room())


class _Room:
    """Counter of the chunks that may still be read into memory."""

    def __init__(self) -> None:
        self.n_cells = _MAX_CELLS

    def take(self, shape: tuple[int, ...]) -> None:
        self.n_cells -= math.prod(shape)
        if self.n_cells < 0:
            raise ManifestError(f"more than {_MAX_CELLS} chunks")


def _to_group(data: Json, heap: memoryview, room: _Room) -> ManifestGroup:
    return read_group(
        data,
        heap,
        arrays={name: _to_array(array, heap, room) for name, array in to_mapping(data["arrays"]).items()},
        groups={name: _to_group(child, heap, room) for name, child in to_mapping(data["groups"]).items()},
        url=None if data["url"] is None else to_text(data["url"]),
    )


def _from_location(location: Location) -> Json:
    x = location
    reads = None if x.reads is None else x.reads.edges().tolist()
    return [x.url, x.size, x.etag, x.last_modified, x.unmodified_since, reads]


def _to_location(data: Json) -> Location:
    url, size, etag, last_modified, unmodified_since, reads = data
    return Location(
        to_text(url),
        None if size is None else int(size),
        None if etag is None else to_text(etag),
        _to_number(last_modified),
        _to_number(unmodified_since),
        reads=None if reads is None else Reads(np.array(reads, np.int64).reshape(-1, 2)),
    )


def _to_number(data: Json) -> float | None:
    return None if data is None else float(data)


def _from_array(array: ManifestArray, heap: Heap) -> Json:
    if not isinstance(array.manifest, ChunkManifest):
        raise UnstorableError("chunks in pages")  # which are read as quickly from their source
    manifest = array.manifest
    return {
        **from_array_header(ArrayHeader.from_array(array), heap),
        "name": array.name,
        "chunks": heap.add(pack(manifest.entries, manifest.starts)),
        "inline": heap.add(manifest.inline),
        "locations": [_from_location(x) for x in manifest.locations],
    }


def _to_array(data: Json, heap: memoryview, room: _Room) -> ManifestArray:
    name = None if data["name"] is None else to_text(data["name"])
    header = to_array_header(data, heap, name=name)
    room.take(header.grid.shape)
    entries, starts = unpack(cut_heap(heap, data["chunks"]), header.grid.shape, ENTRY)
    manifest = ChunkManifest(
        entries=entries,
        starts=starts,
        fills=header.fills,
        encodings=header.encodings,
        locations=tuple(map(_to_location, data["locations"])),
        inline=bytes(cut_heap(heap, data["inline"])),
    )
    array = header.array(manifest)
    array.validate()
    return array
