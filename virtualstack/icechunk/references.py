"""Writing of virtual references to Icechunk: one call if chunks share a checksum, otherwise one call for each box."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import WriterError
from virtualstack.icechunk.format import choose_checksum
from virtualstack.manifests import FIRST, INLINE, ChunkManifest

_MAX_BOX_RATIO = 4
"""Largest ratio of the cells of a box to its chunks; above it, chunks are written separately."""

_BATCH_CHUNKS = 1 << 17  # chunks that Icechunk returns at a time


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The chunks of an array that must be stored or removed."""

    virtual: NDArray[np.bool_]
    inline: NDArray[np.bool_]
    removed: NDArray[np.int64]


def changes_between(
    old: ChunkManifest | None, old_urls: Sequence[str], new: ChunkManifest, urls: Sequence[str], /
) -> Changes:
    """Compare the chunks that a repository has with the chunks that it should have.

    The checksums of existing chunks are not known. So chunks of sources with a checksum are stored even if the
    repository has the same references already: the existing checksum may belong to a file that was replaced.
    """
    location = new.entries["location"]
    differs = np.ones(new.shape, np.bool_)
    removed = np.zeros((0, location.ndim), np.int64)
    if old is not None:
        box: Any = (*(slice(0, min(a, b)) for a, b in zip(old.shape, new.shape, strict=True)), ...)
        differs[box] = ~_same(old.entries[box], old, old_urls, new.entries[box], new, urls)
        gone = np.zeros(old.shape, np.bool_)
        gone[box] = location[box] < INLINE
        outside = np.ones(old.shape, np.bool_)
        outside[box] = False
        removed = np.argwhere((gone | outside) & ~old.holes)
    return Changes((location >= FIRST) & differs, (location == INLINE) & differs, removed)


def _same(
    a: NDArray[Any],
    old: ChunkManifest,
    old_urls: Sequence[str],
    b: NDArray[Any],
    new: ChunkManifest,
    urls: Sequence[str],
) -> NDArray[np.bool_]:
    """Return a mask of the entries that are the same chunk in two boxes."""
    numbers: dict[str | None, int] = {}

    def codes(names: Sequence[str | None]) -> NDArray[np.int64]:
        table = [numbers.setdefault(name, FIRST + len(numbers)) for name in names]
        return np.array([0, 0, INLINE, *table], np.int64)

    unseen = [url if choose_checksum(x) is None else None for url, x in zip(urls, new.locations, strict=True)]
    left, right = codes(old_urls)[a["location"]], codes(unseen)[b["location"]]
    same = (left == right) & ((left < INLINE) | ((a["offset"] == b["offset"]) & (a["length"] == b["length"])))
    both = (left == INLINE) & (right == INLINE)
    for cell in zip(*np.nonzero(both), strict=True) if both.ndim else [()] * int(both):
        same[cell] = _bytes(old, a[cell]) == _bytes(new, b[cell])
    return np.asarray(same, np.bool_)


def _bytes(manifest: ChunkManifest, entry: Any) -> bytes:
    return manifest.inline[int(entry["offset"]) : int(entry["offset"]) + int(entry["length"])]


def kept_beyond(store: Any, path: str, old: ChunkManifest, new: ChunkManifest, /) -> NDArray[np.int64]:
    """Find chunks that a repository keeps from a longer array of before, and that a longer array would show again."""
    holes = new.holes.copy()
    holes[tuple(slice(0, n) for n in old.shape)] = False
    found = [np.zeros((0, holes.ndim), np.int64)]
    for cells, *_ in store.array_chunk_iterator(path, _BATCH_CHUNKS) if holes.any() else ():
        inside = cells[(cells < holes.shape).all(1)].astype(np.int64)
        found.append(inside[holes[tuple(inside.T)]])
    return np.concatenate(found)


def inline_chunks(manifest: ChunkManifest, chosen: NDArray[np.bool_], /) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Yield the cells and bytes of INLINE chunks."""
    for cell in np.argwhere(chosen).tolist():
        yield tuple(cell), _bytes(manifest, manifest.entries[tuple(cell)])


def set_references(
    store: Any, path: str, manifest: ChunkManifest, urls: Sequence[str], chosen: NDArray[np.bool_], /
) -> None:
    """Store the references of some chunks.

    Icechunk accepts one checksum for each call. So there is one call if all sources have the same checksum or none,
    otherwise one call for the box of each source. References of scattered chunks are passed one by one.
    """
    if not chosen.any():
        return
    names = np.array([""] * FIRST + list(urls), object)
    checksums: dict[str | datetime | None, int] = {}
    checksum_groups = [checksums.setdefault(choose_checksum(x), len(checksums)) for x in manifest.locations]
    group_of_code = np.array([0] * FIRST + checksum_groups, np.int64)
    for checksum, cells in zip(checksums, _by_group(group_of_code, manifest, chosen, len(checksums)), strict=True):
        if not cells.size:
            continue
        index = np.unravel_index(cells, manifest.shape) if manifest.shape else ()
        entries = manifest.entries.reshape(-1)[cells]
        lengths = [int(np.ptp(x)) + 1 for x in index]
        if math.prod(lengths) > _MAX_BOX_RATIO * cells.size:
            failed = _set_each(store, path, index, entries, names, checksum)
        else:
            failed = _set_box(store, path, index, entries, names, checksum, lengths)
        if failed:
            raise WriterError(
                f"Icechunk refuses references of variable '{path}', such as that of chunk {tuple(failed[0])}, "
                "because the repository has no virtual chunk container for them. Call session.discard_changes(), and "
                "add a container",
                variable=path,
                feature="virtual chunk container",
            )


def _by_group(
    group_of_code: NDArray[np.int64], manifest: ChunkManifest, chosen: NDArray[np.bool_], n_groups: int
) -> list[NDArray[np.int64]]:
    """Return the chosen cells of each checksum, by their numbers in C order."""
    flat = np.flatnonzero(chosen)
    if n_groups == 1:
        return [flat]
    group = group_of_code[manifest.entries["location"].reshape(-1)[flat]]
    order = np.argsort(group, kind="stable")
    return np.split(flat[order], np.searchsorted(group[order], np.arange(1, n_groups)))


def _set_box(
    store: Any,
    path: str,
    index: tuple[NDArray[np.intp], ...],
    entries: NDArray[Any],
    names: NDArray[np.object_],
    checksum: str | datetime | None,
    lengths: Sequence[int],
) -> list[tuple[int, ...]] | None:
    """Store the references of cells as the box around them; its other cells get no name and are skipped."""
    begin = tuple(int(x.min()) for x in index)
    box = entries
    if math.prod(lengths) > entries.size:
        box = np.zeros(math.prod(lengths), entries.dtype)
        box[np.ravel_multi_index([x - start for x, start in zip(index, begin, strict=True)], lengths)] = entries
    failed: list[tuple[int, ...]] | None = store.set_virtual_refs_arr(
        path,
        tuple(lengths),
        names[box["location"]].tolist(),
        box["offset"].astype(np.uint64),
        box["length"].astype(np.uint64),
        arr_offset=begin if any(begin) else None,
        checksum=checksum,
    )
    return failed


def _set_each(
    store: Any,
    path: str,
    index: tuple[NDArray[np.intp], ...],
    entries: NDArray[Any],
    names: NDArray[np.object_],
    checksum: str | datetime | None,
) -> list[tuple[int, ...]] | None:
    """Store the references of scattered cells, which Icechunk accepts as one object each."""
    spec = importlib.import_module("icechunk").VirtualChunkSpec
    etag, modified = (checksum, None) if isinstance(checksum, str) else (None, checksum)
    rows = zip(
        np.stack(index, 1).tolist(),
        names[entries["location"]].tolist(),
        entries["offset"].tolist(),
        entries["length"].tolist(),
        strict=True,
    )
    failed: list[tuple[int, ...]] | None = store.set_virtual_refs(path, [spec(*row, etag, modified) for row in rows])
    return failed
