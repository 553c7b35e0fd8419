"""Present a group as a zarr v3 hierarchy for any zarr tool: loaded arrays with chunks, virtual arrays without."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

import numpy as np
from numcodecs.zstd import Zstd
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class

from virtualstack.manifests import ChunkGrid, ManifestArray, ManifestGroup, ManifestNode
from virtualstack.manifests.grid import chunk_key
from virtualstack.reading import read_array
from virtualstack.storage import StorageLike
from virtualstack.zarr.chunk_key_encoding import ManifestKeys
from virtualstack.zarr.client import Client
from virtualstack.zarr.documents import array_document, dump_document, encode_chunk, group_document, why_refused
from virtualstack.zarr.metadata.encode import filled_up
from virtualstack.zarr.present import present

CHUNK_BYTES = 1 << 20
"""Largest size in bytes of a loaded array with a single chunk."""

_ZSTD_LEVEL = 3
_ZSTD = {"name": "zstd", "configuration": {"level": _ZSTD_LEVEL, "checksum": True}}
_HIDDEN = ".vstack"
_CONTROL = re.compile(r"[\0-\x1f\x7f]")


def _has_every_reader(codec: str) -> bool:
    """Return whether a codec comes with zarr or virtualstack, so that every reader of the array has it."""
    try:
        return get_codec_class(codec).__module__.partition(".")[0] in ("zarr", "virtualstack")
    except (UnknownCodecError, ImportError):
        return False


_READER = Client(decodes=_has_every_reader, needs_all=False)
"""Reader of the metadata of a virtual array: its chunks are not under keys of zarr."""


def is_inline(array: ManifestArray, /) -> bool:
    """Return whether all chunks of an array are INLINE and fit their cells.

    The result is false if this could be found out only by reading pages.
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
    existing: Set[str] = frozenset(),
    storage: StorageLike = None,
) -> Iterator[tuple[str, bytes | None]]:
    """Yield keys and bytes of a zarr hierarchy that shows a group.

    Loaded arrays have chunks. Virtual arrays have only metadata, with a chunk key encoding that makes zarr fail instead
    of returning fill values; no entry of their manifests is read.

    If the objects are written in this order, a reader never finds metadata without its chunks, or with the chunks of
    other metadata: it finds the old array, the new array, or none. If an array changes in another way than by growing
    along its first axis, its metadata is deleted before its chunks are written.
    """
    new, old = _View(group, is_loaded), _View(previous or ManifestGroup(), was_loaded or is_loaded)
    there: dict[str, bytes | None] = {key: None for key in existing if key.endswith("zarr.json")}
    chunks, wanted = old.chunk_keys() | (existing - there.keys()), new.chunk_keys()
    there |= old.documents if previous is not None else {}
    for key in in_the_way(there.keys() | chunks, new.documents.keys() | wanted):
        there.pop(key, None)
        chunks.discard(key)
        yield key, None
    for path, (array, shape) in new.loaded.items():
        before = old.loaded.get(path)
        n_kept = None if before is None else _rows_kept(array, before[0], storage)
        if n_kept is None and f"{path}/zarr.json" in there:
            del there[f"{path}/zarr.json"]
            yield f"{path}/zarr.json", None
        yield from _chunks(path, array, shape, n_kept or 0, storage)
    yield from ((key, data) for key, data in new.documents.items() if there.get(key) != data)
    yield from ((key, None) for key in sorted(there.keys() - new.documents.keys()))
    yield from ((key, None) for key in sorted(chunks - wanted))


def view_keys(group: ManifestGroup, is_loaded: Callable[[ManifestArray], bool], /) -> set[str]:
    """Return the keys of a hierarchy that shows a group; no chunk is read."""
    view = _View(group, is_loaded)
    return view.documents.keys() | view.chunk_keys()


def in_the_way(there: Set[str], wanted: Set[str], /) -> list[str]:
    """Return the keys to delete before others are written, documents first: on a file system a file has no children.

    >>> in_the_way({"a/zarr.json", "a/c/0", "b/c/0"}, {"a/zarr.json", "a/c"})
    ['a/zarr.json', 'a/c/0']
    """
    folders = {folder for key in wanted for folder in find_folders(key)}
    found = {key for key in there - wanted if key in folders or not wanted.isdisjoint(find_folders(key))}
    documents = {f"{array_at(key)}/zarr.json" for key in found} & there
    return [*sorted(documents), *sorted(found - documents)]


def find_folders(key: str, /) -> Iterator[str]:
    """Yield the folders that an object is in, if it is stored as a file."""
    return (key[:at] for at, letter in enumerate(key) if letter == "/")


def array_at(key: str, /) -> str:
    """Return the path of the array of a chunk."""
    return f"{key}/".rpartition("/c/")[0]


def left_out(group: ManifestGroup, /) -> dict[str, str]:
    """Return the paths of the arrays and groups that are not in the view of a group, and why."""
    return {path: why for path, _, why in _walk(group) if why is not None}


class _View:
    """Metadata by key, arrays first, and loaded arrays by path, with their chunks in the view."""

    def __init__(self, group: ManifestGroup, is_loaded: Callable[[ManifestArray], bool]) -> None:
        nodes = [(path, node) for path, node, why in _walk(group) if why is None]
        self.loaded: dict[str, tuple[ManifestArray, tuple[int, ...]]] = {}
        self.documents: dict[str, bytes] = {}
        for path, node in nodes:
            if isinstance(node, ManifestArray) and is_loaded(node):
                chunks = chunk_shape(node.shape, node.dtype.itemsize)
                self.loaded[path] = node, chunks
                document = array_document(node, name=path, chunks=chunks, compressors=[_ZSTD])
                self.documents[f"{path}/zarr.json"] = dump_document(document)
            elif isinstance(node, ManifestArray):
                found = present(node, _READER, path=path).documents["zarr.json"]
                keys = {"chunk_key_encoding": {"name": ManifestKeys.name}}
                self.documents[f"{path}/zarr.json"] = dump_document({**found, **keys})
        for path, node in nodes:
            if isinstance(node, ManifestGroup):
                self.documents[f"{path}/zarr.json".lstrip("/")] = dump_document(group_document(node))

    def chunk_keys(self) -> set[str]:
        return {
            chunk_key(path, cell)
            for path, (array, chunks) in self.loaded.items()
            for cell in np.ndindex(ChunkGrid.regular(array.shape, chunks).shape)
        }


def _walk(group: ManifestGroup, path: str = "") -> Iterator[tuple[str, ManifestNode, str | None]]:
    """Yield all nodes with their paths, parents first, and why a node and its children are not in the view."""
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
    """Return why a name cannot be part of a key, or ``None``."""
    n_bytes = len(name.encode(errors="replace"))
    if not name.strip(".") or "/" in name:
        return f"zarr has no node with the name {name!r}"
    if _CONTROL.search(name):
        return f"{name!r} has a control character, and keys of buckets cannot have any"
    if name == "zarr.json" or path == _HIDDEN:
        return f"{name!r} is a name that the store itself uses"
    return f"a name of {n_bytes} bytes is longer than the 255 bytes of a file name" if n_bytes > 255 else None


def chunk_shape(shape: tuple[int, ...], itemsize: int, /) -> tuple[int, ...]:
    """Return the chunks of a loaded array; if there are several, they do not depend on the length of the first axis.

    >>> chunk_shape((180, 360), 8), chunk_shape((10**6,), 8), chunk_shape((2, 4096, 4096), 4)
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
    """Return how many rows along the first axis exist already; ``None`` if the new array replaces them."""
    if new is old:
        return _n_rows(old)
    if new.dtype != old.dtype or new.ndim != old.ndim or new.shape[1:] != old.shape[1:]:
        return None
    rows = (slice(0, _n_rows(old)),) if old.ndim else ()
    is_kept = encode_chunk(read_array(new, rows, storage)) == encode_chunk(read_array(old, rows, storage))
    return _n_rows(old) if is_kept else None


def _n_rows(array: ManifestArray) -> int:
    return array.shape[0] if array.ndim else 1


def _chunks(
    path: str, array: ManifestArray, chunks: tuple[int, ...], n_kept: int, storage: StorageLike
) -> Iterator[tuple[str, bytes]]:
    """Yield the chunks that have more rows than the kept ones; cells that several of them share are read once."""
    zstd = Zstd(level=_ZSTD_LEVEL, checksum=True)
    n_rows, length = _n_rows(array), chunks[0] if chunks else 1
    grid = ChunkGrid.regular(array.shape, chunks)
    there: tuple[slice, ...] | None = None
    values = np.zeros(0)
    for cell in np.ndindex(grid.shape):
        if (min((cell[0] + 1) * length, n_rows) if cell else n_rows) <= n_kept:
            continue
        box = grid.box(cell)
        met = [axis.cover(side.start, side.stop) for axis, side in zip(array.grid.axes, box, strict=True)]
        wanted = tuple(axis.span(cells.start, cells.stop) for axis, cells in zip(array.grid.axes, met, strict=True))
        if wanted != there:
            values = np.zeros(0)  # before others take memory
            there, values = wanted, read_array(array, wanted, storage)
        own: Any = (slice(a.start - b.start, a.stop - b.start) for a, b in zip(box, wanted, strict=True))
        yield chunk_key(path, cell), zstd.encode(encode_chunk(filled_up(values[(*own, ...)], chunks)))
