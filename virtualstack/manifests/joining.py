"""Joining chunked arrays along an axis, on shared tables and shared grid lines; no bytes are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.metadata import tells_values
from virtualstack.errors import CombineError
from virtualstack.location import Location
from virtualstack.manifests.chunk_manifest import FIRST, INLINE, ChunkManifest
from virtualstack.manifests.collapsing import drop_lines
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid, union
from virtualstack.manifests.indexing import Chunks, refine
from virtualstack.manifests.unify import join, unify

__all__ = ["align", "concatenate", "equal", "join_axes"]

REFINEMENT_BUDGET = 16
"""Cells after aligning grids, as a multiple of the cells before."""


def concatenate(parts: Sequence[Chunks], axis: int, /) -> Chunks:
    """Join along one axis; shapes must match on the others. Costs a copy of the entries.

    Raises
    ------
    CombineError
        The union of the grid lines on the other axes exceeds the budget.
    """
    parts = align(parts, skip=axis)
    joined = join([part.manifest for part in parts], axis)
    chunks = Chunks(joined, parts[0].grid.replace(axis, join_axes([part.grid.axes[axis] for part in parts])))
    seams = np.cumsum([part.grid.axes[axis].n_cells for part in parts])[:-1]
    return drop_lines(chunks, axis, union(seams[(seams > 0) & (seams < joined.shape[axis])]))


def join_axes(axes: Sequence[ChunkAxis], /) -> ChunkAxis:
    """Put the cells of several axes one after the other."""
    chunk = axes[0].chunk
    if chunk and all(x.chunk == chunk and x.length % chunk == 0 for x in axes[:-1]):
        last = axes[-1]
        if last.chunk == chunk or (last.n_cells == 1 and last.length <= chunk):
            return ChunkAxis.regular(sum(x.length for x in axes), chunk)
    return ChunkAxis.from_lengths(np.concatenate([x.lengths() for x in axes]))


def align(parts: Sequence[Chunks], /, *, skip: int | None = None) -> Sequence[Chunks]:
    """Cut the cells of all parts at the union of their grid lines, on every axis but ``skip``.

    Raises
    ------
    CombineError
        More than :data:`REFINEMENT_BUDGET` times as many cells as before.
    """
    unions: dict[int, NDArray[np.int64]] = {}
    for axis in range(len(parts[0].grid.axes)):
        axes = {id(part.grid.axes[axis]): part.grid.axes[axis] for part in parts}.values()
        first = parts[0].grid.axes[axis]
        if axis != skip and any(other != first for other in axes):
            unions[axis] = union(*(x.lines() for x in set(axes)))
    if not unions:
        return parts
    before = sum(math.prod(part.grid.shape) for part in parts)
    after = sum(
        math.prod(len(unions[i]) - 1 if i in unions else x.n_cells for i, x in enumerate(part.grid.axes))
        for part in parts
    )
    if after > REFINEMENT_BUDGET * max(before, 1):
        raise CombineError(
            f"the chunk grids of {len(parts)} arrays differ on axes {sorted(unions)}: cut at all their lines they "
            f"would have {after} cells instead of {before}, more than {REFINEMENT_BUDGET} times as many; "
            "join the arrays of one chunk shape first, or rewrite the odd ones",
            property="chunks",
            left=before,
            right=after,
        )
    aligned = list(parts)
    for axis, lines in unions.items():
        aligned = [refine(part, axis, lines) for part in aligned]
    return aligned


def equal(a: Chunks, b: Chunks, /) -> bool:
    """Tell whether every element provably comes from the same element of the same stored chunk.

    Holes are equal where they are of one kind and one fill. ``False`` means "not provably equal".
    """
    if a.manifest is b.manifest and a.grid == b.grid:
        return True
    try:
        a, b = align([a, b])
    except CombineError:
        return False
    left, right = _without_known_values(*unify(_without_unknown_versions(a.manifest, b.manifest)))
    x, y = left.entries, right.entries
    if not bool((x["location"] == y["location"]).all()):
        return False
    holes = left.holes
    if bool((holes & (x["encoding"] != y["encoding"])).any()):
        return False
    if not bool(((x["length"] == y["length"]) & (_start(left) == _start(right))).all()):
        return False
    if not _same_bytes(left, right):
        return False
    return _same_decoding(left, right, a.grid)


def _without_unknown_versions(a: ChunkManifest, b: ChunkManifest) -> list[ChunkManifest]:
    """Take a source for the same where its URL is, and one side does not know its size, etag or times."""
    if a.locations is b.locations:
        return [a, b]
    known = {x.url: x for x in a.locations}
    agreed: dict[str, Location] = {}
    for other in b.locations:
        mine = known.get(other.url)
        if mine is not None and mine != other:
            pairs = list(zip(_version(mine), _version(other), strict=True))
            if all(x is None or y is None or x == y for x, y in pairs):
                agreed[other.url] = Location(other.url)
    if not agreed:
        return [a, b]
    return [replace(x, locations=tuple(agreed.get(y.url, y) for y in x.locations)) for x in (a, b)]


def _version(location: Location) -> tuple[int | float | str | None, ...]:
    known = location.fingerprint
    time = location.last_modified if known is None else known.last_modified
    return location.size, location.etag, time, location.unmodified_since


def _without_known_values(left: ChunkManifest, right: ChunkManifest) -> tuple[ChunkManifest, ChunkManifest]:
    """Let chunks lie in one place whose codecs alone say what their values are; of manifests on shared tables."""
    tells = np.array([tells_values(x.codecs) for x in left.encodings], np.bool_)
    if not tells.any():
        return left, right
    known = ~left.holes & ~right.holes
    for manifest in (left, right):
        known &= tells[np.where(manifest.holes, 0, manifest.entries["encoding"])]
    changed = []
    for manifest in (left, right):
        entries = manifest.entries.copy()
        for name, value in (("location", FIRST), ("offset", 0), ("length", 1)):
            entries[name][known] = value
        changed.append(replace(manifest, entries=entries))
    return changed[0], changed[1]


def _start(manifest: ChunkManifest) -> NDArray[np.int64] | int:
    return 0 if manifest.starts is None else manifest.starts


def _same_bytes(left: ChunkManifest, right: ChunkManifest) -> bool:
    """Compare offsets; inline bytes by value. Locations and lengths are equal already."""
    x, y = left.entries, right.entries
    differ = x["offset"] != y["offset"]
    if not differ.any():
        return True
    if bool((differ & (x["location"] != INLINE)).any()):
        return False
    heap = memoryview(left.inline)
    return all(
        heap[i : i + n] == heap[j : j + n]
        for i, j, n in zip(
            x["offset"][differ].tolist(), y["offset"][differ].tolist(), x["length"][differ].tolist(), strict=True
        )
    )


def _same_decoding(left: ChunkManifest, right: ChunkManifest, grid: ChunkGrid) -> bool:
    """Compare encodings of the chunks; strides only on axes where the cell is longer than 1."""
    if not left.encodings or bool(left.holes.all()):
        return True
    i = np.where(left.holes, 0, left.entries["encoding"])
    j = np.where(left.holes, 0, right.entries["encoding"])
    if bool((i == j).all()):
        return True
    parts: dict[Any, int] = {}
    decoding = np.array([parts.setdefault(x.decoding().with_strides(()), len(parts)) for x in left.encodings])
    differ = decoding[i] != decoding[j]
    strides = np.array([x.strides for x in left.encodings], np.int64).reshape(len(left.encodings), len(grid.axes))
    for axis, cells in enumerate(grid.axes):
        long = (cells.lengths() > 1).reshape((-1,) + (1,) * (len(grid.axes) - axis - 1))
        differ = differ | (long & (strides[i, axis] != strides[j, axis]))
    return not bool((differ & ~left.holes).any())
