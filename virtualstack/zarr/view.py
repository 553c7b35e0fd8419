"""A group as a zarr v3 hierarchy that any zarr tool opens: loaded arrays with their chunks, virtual ones without."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Set

import numpy as np
from numcodecs.zstd import Zstd

from virtualstack.manifests import ChunkGrid, ManifestArray, ManifestGroup, ManifestNode
from virtualstack.reading import read_array
from virtualstack.storage import StorageLike
from virtualstack.zarr.documents import (
    decoded_document,
    dump_document,
    encode_chunk,
    group_document,
    virtual_document,
    why_refused,
)
from virtualstack.zarr.uniform import UniformArray

__all__ = ["array_at", "find_folders", "in_the_way", "is_inline", "left_out", "make_view"]

CHUNK_BYTES = 1 << 20
"""Bytes up to which a loaded array is one chunk."""

_ZSTD_LEVEL = 3
_ZSTD = {"name": "zstd", "configuration": {"level": _ZSTD_LEVEL, "checksum": True}}
_HIDDEN = ".vstack"
_CONTROL = re.compile(r"[\0-\x1f\x7f]")


def is_inline(array: ManifestArray, /) -> bool:
    """Tell whether all chunks of an array are INLINE, and none is plainly broken.

    Where pages would have to be read for it, they are not.
    """
    count = array.manifest.summary()
    return count is not None and count.n_inline == count.n_chunks and array.in_memory().inline_fits()


def make_view(
    group: ManifestGroup,
    is_loaded: Callable[[ManifestArray], bool] = is_inline,
    /,
    *,
    previous: ManifestGroup | None = None,
    was_loaded: Callable[[ManifestArray], bool] | None = None,
    storage: StorageLike = None,
) -> Iterator[tuple[str, bytes | None]]:
    """Give keys and bytes of a zarr hierarchy that shows a group.

    Loaded arrays have chunks. Of virtual arrays there is the metadata, with a chunk key encoding by which readers
    refuse them instead of giving fill values; no entry of their manifests is looked at.

    Written in the order given, there is no time at which a reader finds metadata without the chunks, or with others
    than, they were written for: it finds an array as it was, as it is, or not at all. Where an array changes, and does
    not only grow along its first axis, its metadata goes before its chunks come.

    Parameters
    ----------
    group
        What is to be seen. Arrays and groups that zarr cannot have are not in it; see :func:`left_out`.
    is_loaded
        Tells which arrays have chunks; they are read, and should have no holes.
    previous
        The group whose view is there: only what differs from that is given, and ``None`` for what has to go. By
        default there is none.
    was_loaded
        Tells which arrays of that group have chunks there; as ``is_loaded`` by default.
    storage
        How sources of loaded arrays that are not INLINE are reached.

    Raises
    ------
    StorageError
        A loaded array cannot be read.
    """
    new, old = _View(group, is_loaded), _View(previous or ManifestGroup(), was_loaded or is_loaded)
    there = dict(old.documents) if previous is not None else {}
    chunks, wanted = old.chunk_keys(), new.chunk_keys()
    for key in in_the_way(there.keys() | chunks, new.documents.keys() | wanted):
        there.pop(key, None)
        chunks.discard(key)
        yield key, None
    for path, array in new.loaded.items():
        before = old.loaded.get(path)
        n_kept = 0 if before is None else _rows_kept(array.array, before.array, storage)
        if n_kept is None and f"{path}/zarr.json" in there:
            del there[f"{path}/zarr.json"]
            yield f"{path}/zarr.json", None
        yield from _chunks(path, array, n_kept or 0, storage)
    yield from ((key, data) for key, data in new.documents.items() if there.get(key) != data)
    yield from ((key, None) for key in sorted(there.keys() - new.documents.keys()))
    yield from ((key, None) for key in sorted(chunks - wanted))


def in_the_way(there: Set[str], wanted: Set[str], /) -> list[str]:
    """Give the keys that go before others come, as a file system has nothing below a file: documents first.

    >>> in_the_way({"a/zarr.json", "a/c/0", "b/c/0"}, {"a/zarr.json", "a/c"})
    ['a/zarr.json', 'a/c/0']
    """
    folders = {folder for key in wanted for folder in find_folders(key)}
    found = {key for key in there - wanted if key in folders or not wanted.isdisjoint(find_folders(key))}
    documents = {f"{array_at(key)}/zarr.json" for key in found} & there
    return [*sorted(documents), *sorted(found - documents)]


def find_folders(key: str, /) -> Iterator[str]:
    """Give the folders that an object is in, where it is a file."""
    return (key[:at] for at, letter in enumerate(key) if letter == "/")


def array_at(key: str, /) -> str:
    """Give the path of the array that a chunk is of."""
    return f"{key}/".rpartition("/c/")[0]


def left_out(group: ManifestGroup, /) -> dict[str, str]:
    """Give the paths of the arrays and groups that are not in the view of a group, and why."""
    return {path: why for path, _, why in _walk(group) if why is not None}


class _View:
    """Metadata by key, those of arrays first, and loaded arrays by path, in the chunks that they have in the view."""

    def __init__(self, group: ManifestGroup, is_loaded: Callable[[ManifestArray], bool]) -> None:
        nodes = [(path, node) for path, node, why in _walk(group) if why is None]
        self.loaded: dict[str, UniformArray] = {}
        self.documents: dict[str, bytes] = {}
        for path, node in nodes:
            if isinstance(node, ManifestArray) and is_loaded(node):
                chunks = _chunk_shape(node.shape, node.dtype.itemsize)
                self.loaded[path] = UniformArray(node, ChunkGrid.regular(node.shape, chunks), chunks)
                document = decoded_document(node, name=path, chunks=chunks, compressors=[_ZSTD])
                self.documents[f"{path}/zarr.json"] = dump_document(document)
            elif isinstance(node, ManifestArray):
                self.documents[f"{path}/zarr.json"] = dump_document(virtual_document(node, name=path))
        for path, node in nodes:
            if isinstance(node, ManifestGroup):
                self.documents[f"{path}/zarr.json".lstrip("/")] = dump_document(group_document(node))

    def chunk_keys(self) -> set[str]:
        return {_key(path, cell) for path, array in self.loaded.items() for cell in np.ndindex(array.grid.shape)}


def _walk(group: ManifestGroup, path: str = "") -> Iterator[tuple[str, ManifestNode, str | None]]:
    """Give all nodes with their paths, parents first, and why they are not in the view; then nothing below them is."""
    yield path, group, None
    children: Iterable[tuple[str, ManifestNode]] = [*group.arrays.items(), *group.groups.items()]
    for name, node in children:
        at = f"{path}/{name}".lstrip("/")
        why = _why_no_key(at, name)
        if isinstance(node, ManifestArray):
            yield at, node, why or why_refused(node, name=at)
        elif why is None:
            yield from _walk(node, at)
        else:
            yield at, node, why


def _why_no_key(path: str, name: str) -> str | None:
    """Say why a name cannot be a part of a key."""
    n_bytes = len(name.encode(errors="replace"))
    if not name.strip(".") or "/" in name:
        return f"zarr has no node with the name {name!r}"
    if _CONTROL.search(name):
        return f"{name!r} has a control character, and keys of buckets can have none"
    if name == "zarr.json" or path == _HIDDEN:
        return f"{name!r} is a name of the store's own"
    return f"a name of {n_bytes} bytes is longer than files can have" if n_bytes > 255 else None


def _chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Give the chunks of a loaded array; where there are several, the length of the first axis does not matter.

    >>> _chunk_shape((180, 360), 8), _chunk_shape((10**6,), 8), _chunk_shape((2, 4096, 4096), 4)
    ((180, 360), (131072,), (1, 64, 4096))
    """
    chunks = [max(n, 1) for n in shape]
    for i in range(len(shape)):
        n_rows = -(-CHUNK_BYTES // max(math.prod(chunks[i + 1 :]) * itemsize, 1))
        chunks[i] = min(chunks[i], 1 << (n_rows - 1).bit_length())
        if n_rows > 1:
            break
    return tuple(chunks)


def _rows_kept(new: ManifestArray, old: ManifestArray, storage: StorageLike) -> int | None:
    """Count the rows, along the first axis, that are there already; ``None`` where the new array has others instead."""
    if new is old:
        return _n_rows(old)
    if new.dtype != old.dtype or new.ndim != old.ndim or new.shape[1:] != old.shape[1:]:
        return None
    rows = (slice(0, _n_rows(old)),) if old.ndim else ()
    is_kept = encode_chunk(read_array(new, rows, storage)) == encode_chunk(read_array(old, rows, storage))
    return _n_rows(old) if is_kept else None


def _n_rows(array: ManifestArray) -> int:
    return array.shape[0] if array.ndim else 1


def _chunks(path: str, array: UniformArray, n_kept: int, storage: StorageLike) -> Iterator[tuple[str, bytes]]:
    """Give the chunks that have more rows than those kept."""
    zstd = Zstd(level=_ZSTD_LEVEL, checksum=True)
    n_rows, length = _n_rows(array.array), array.chunks[0] if array.chunks else 1
    cells = [
        cell
        for cell in np.ndindex(array.grid.shape)
        if (min((cell[0] + 1) * length, n_rows) if cell else n_rows) > n_kept
    ]
    for cell, values in zip(cells, array.read_each(cells, storage), strict=True):
        yield _key(path, cell), zstd.encode(encode_chunk(values))


def _key(path: str, cell: tuple[int, ...]) -> str:
    return "/".join((path, "c", *map(str, cell)))
