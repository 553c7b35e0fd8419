"""Overwrite a region of a variable: new chunks go into the store, and the originals stay as they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.location import Location
from virtualstack.manifests import (
    ENTRY,
    FIRST,
    ChunkEncoding,
    ChunkManifest,
    Fill,
    ManifestArray,
    ManifestGroup,
    inline_array,
)
from virtualstack.manifests.manifest import Overlay
from virtualstack.manifests.paged import map_in_threads
from virtualstack.reading import read_array
from virtualstack.storage import ObjectStore, Storage
from virtualstack.vstack.format.names import new_id, values_key
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.overwrite import Patch
from virtualstack.vstack.save import Stored

__all__ = ["write", "write_values"]

_OBJECT_BYTES = 64 << 20  # bytes of an object, from which on another one is begun
_ZSTD_LEVEL = 3


def write_values(
    objects: ObjectStore, segment: str, values: NDArray[Any], lines: Sequence[NDArray[np.int64]], fill: Fill, /
) -> ChunkManifest:
    """Write values as compressed chunks, each with its checksum, and give where they are.

    Parameters
    ----------
    objects
        Of the store.
    segment
        Name of the segment that will refer to them.
    values
        In native byte order; text as numpy's ``StringDType``.
    lines
        For each axis, where chunks begin, and the length.
    fill
        Of the array.

    Raises
    ------
    StorageError
        The store cannot be written.
    """
    runs = [list(itertools.pairwise(x.tolist())) for x in lines]
    boxes: list[Any] = [tuple(slice(a, b) for a, b in cell) for cell in itertools.product(*runs)]
    chunks = map_in_threads(lambda box: _compressed(values[(*box, ...)]), boxes)
    codecs = ((Codec("vlen-utf8"),) if values.dtype.kind == "T" else ()) + (
        Codec.from_config("zstd", level=_ZSTD_LEVEL, checksum=True),
    )
    encodings: dict[ChunkEncoding, int] = {}
    entries = np.zeros(len(boxes), ENTRY)
    locations: list[Location] = []
    waiting: list[bytes] = []
    offset = 0

    def put() -> None:
        key = values_key(segment, len(locations))
        objects.target.put(key, b"".join(waiting))
        locations.append(Location(objects.url + key, offset))

    for i, (box, chunk) in enumerate(zip(boxes, chunks, strict=True)):
        encoding = ChunkEncoding.c_order(values.dtype, tuple(side.stop - side.start for side in box), codecs)
        row = encodings.setdefault(encoding, len(encodings))
        if offset >= _OBJECT_BYTES:
            put()
            waiting, offset = [], 0
        entries[i] = (FIRST + len(locations), row, offset, len(chunk))
        waiting.append(chunk)
        offset += len(chunk)
    put()
    return ChunkManifest(
        entries=entries.reshape([len(x) for x in runs]),
        fills=(fill,),
        encodings=tuple(encodings),
        locations=tuple(locations),
    )


def _compressed(values: NDArray[Any]) -> bytes:
    raw = VLenUTF8().encode(values.reshape(-1).astype(object)) if values.dtype.kind == "T" else values.tobytes()
    return bytes(Zstd(_ZSTD_LEVEL, checksum=True).encode(raw))


def write(
    store: Stored, path: str, region: object, values: Any, storage: Storage, /, *, raw: bool, message: str | None
) -> Snapshot:
    """Overwrite a region of a variable; see :meth:`~virtualstack.vstack.Repository.write`."""
    if not isinstance(path, str):
        raise TypeError(f"write() takes the name of a variable, not {path!r}")
    found = store.group[path]
    if not isinstance(found, ManifestArray):
        raise KeyError(f"'{path}' is a group, with the variables {sorted(found.arrays)}")
    patch = Patch.from_region(path, found, region, values, raw=raw)
    if patch is None:
        return store.snapshot
    where = "/" + path.strip("/")
    if isinstance(found.manifest, ChunkManifest):
        return store.write(_with_array(store.group, where, _patched(patch, storage)), message=message)
    segment = new_id()
    first, lines = patch.cells()
    fill = found.manifest.tables.fill
    whole = patch.whole(lines, storage)
    manifest = write_values(store.objects, segment, whole, [x - x[0] for x in lines], fill)
    return store.write(store.group, overlays={where: [Overlay(manifest, first)]}, message=message, segment=segment)


def _patched(patch: Patch, storage: Storage) -> ManifestArray:
    """Give a loaded variable with other values in a region."""
    array = patch.array
    whole = read_array(array, (), storage)
    whole[tuple(side.slice for side in patch.sides)] = patch.values
    return inline_array(
        whole,
        name=array.name or "",
        dims=array.dimension_names or (),
        attributes=array.attributes,
        cf=array.cf,
        fill=array.manifest.tables.fill,
    )


def _with_array(group: ManifestGroup, path: str, array: ManifestArray) -> ManifestGroup:
    """Put an array into the place of another one."""
    name, _, rest = path.removeprefix("/").partition("/")
    if not rest:
        return replace(group, arrays={**group.arrays, name: array})
    return replace(group, groups={**group.groups, name: _with_array(group.groups[name], "/" + rest, array)})
