"""Split uncompressed chunks into smaller ones, as a part of an uncompressed chunk is also a byte range."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.pipeline import split_elementwise
from virtualstack.manifests import INLINE, ChunkEncoding, ChunkManifest, ManifestArray
from virtualstack.manifests.indexing import refine
from virtualstack.manifests.plain import longest_cells, match_axes

_MAX_CELL_GROWTH = 1024
"""Largest number of cells after splitting, as a multiple of the number before."""
_MIN_PART_BYTES = 1 << 14
"""Smallest part in bytes: smaller parts take longer to look up than to read."""


def split_uncompressed(array: ManifestArray, /) -> ManifestArray | None:
    """Split uncompressed chunks along their slowest axis into equal parts that fit one regular grid.

    Files of 31, 28 and 31 days that each hold a variable in one piece become chunks of one day. A slice along that
    axis that cuts such chunks becomes a shift of their offsets.
    """
    manifest = array.in_memory().compact()
    rows = _raw_rows(manifest, array)
    if not rows:
        return None
    entries = manifest.entries
    is_raw = np.isin(entries["encoding"], list(rows)) & ~manifest.holes & (entries["location"] != INLINE)
    counts = np.bincount(entries["encoding"][is_raw], minlength=len(manifest.encodings))
    axis = rows[int(counts.argmax())] if counts.any() else -1
    rows = {row: a for row, a in rows.items() if a == axis}
    is_raw &= np.isin(entries["encoding"], list(rows))
    if not is_raw.any():
        return None
    cells = array.grid.axes[axis]
    has_raw = is_raw.any(tuple(i for i in range(array.ndim) if i != axis))
    lines = cells.lines()
    chunk = math.gcd(*np.unique(np.concatenate([lines[:-1][has_raw], lines[1:][has_raw]])).tolist())
    least = min(_row_bytes(manifest.encodings[row], axis) for row in rows)
    inner = np.arange(0, cells.length, chunk, dtype=np.int64)
    new_lines = np.union1d(lines, inner[has_raw[cells.find(inner)]])
    n_cells = manifest.entries.size // cells.n_cells * (new_lines.size - 1)
    if chunk * least < _MIN_PART_BYTES or n_cells > _MAX_CELL_GROWTH * max(manifest.entries.size, 1024):
        return None
    cut = refine(array.as_chunks(), axis, new_lines)
    cuttable = {manifest.encodings[row] for row in rows}
    return replace(array, manifest=_parts(cut.manifest, axis, chunk, cuttable), grid=cut.grid)


def subchunk(array: ManifestArray, axis: int, length: int, /) -> ManifestArray | str:
    """Split all stored chunks along an axis into parts of ``length`` elements; or return why that is not possible."""
    manifest = array.in_memory().compact()
    stored = ~manifest.holes & (manifest.entries["location"] != INLINE)
    rows = _raw_rows(manifest, array)
    for row in np.unique(manifest.entries["encoding"][stored]).tolist():
        if not _is_raw(manifest.encodings[row]):
            return "its chunks are compressed"
        if rows.get(row, axis) != axis:
            return f"only parts along the slowest axis of a chunk are byte ranges, which is axis {rows[row]}"
    cells = array.grid.axes[axis]
    lines, at = cells.lines(), np.arange(cells.length, dtype=np.int64)
    cut = refine(array.as_chunks(), axis, np.union1d(lines, at[(at - lines[cells.find(at)]) % length == 0]))
    cuttable = {manifest.encodings[row] for row in rows}
    return replace(array, manifest=_parts(cut.manifest, axis, length, cuttable), grid=cut.grid)


def _raw_rows(manifest: ChunkManifest, array: ManifestArray) -> dict[int, int]:
    """Return the axis along which chunks of each uncompressed encoding can be split, by the row of the encoding."""
    found = {}
    longest = longest_cells(manifest, array.grid)
    for row, encoding in enumerate(manifest.encodings):
        if not _is_raw(encoding) or match_axes(encoding, longest[row].tolist()) is None:
            continue
        steps = [step if n > 1 else 0 for step, n in zip(encoding.strides, longest[row].tolist(), strict=True)]
        if any(steps):
            found[row] = int(np.argmax(steps))
    return found


def _is_raw(encoding: ChunkEncoding) -> bool:
    if encoding.dtype.kind == "T":
        return False
    return not split_elementwise(encoding.codecs, encoding.dtype).codecs


def _row_bytes(encoding: ChunkEncoding, axis: int) -> int:
    """Return the bytes of all elements under one index along the axis."""
    return encoding.strides[axis] * split_elementwise(encoding.codecs, encoding.dtype).stored.itemsize


def _parts(manifest: ChunkManifest, axis: int, chunk: int, cuttable: set[ChunkEncoding]) -> ChunkManifest:
    """Return entries in which each cell within an uncompressed chunk points to its part of the chunk."""
    entries = manifest.entries.copy()
    starts = np.zeros(manifest.shape, np.int64) if manifest.starts is None else manifest.starts.copy()
    encodings = list(manifest.encodings)
    points = ~manifest.holes & (entries["location"] != INLINE)
    for row, encoding in enumerate(manifest.encodings):
        step = encoding.strides[axis]
        if encoding not in cuttable or step < 1 or encoding.size % step or step * chunk > encoding.size:
            continue
        at: NDArray[np.bool_] = points & (entries["encoding"] == row) & (starts % step == 0)
        at &= starts <= encoding.size - step * chunk  # a part that the stored chunk does not hold whole stays
        if not at.any():
            continue
        part = _shorten_encoding(encoding, step, chunk)
        if part is None:
            continue
        itemsize = split_elementwise(encoding.codecs, encoding.dtype).stored.itemsize
        entries["offset"][at] += starts[at] * itemsize
        entries["length"][at] = step * chunk * itemsize
        entries["encoding"][at] = len(encodings)
        starts[at] = 0
        encodings.append(part)
    return replace(manifest, entries=entries, starts=starts if starts.any() else None, encodings=tuple(encodings))


def _shorten_encoding(encoding: ChunkEncoding, step: int, chunk: int) -> ChunkEncoding | None:
    """Return the encoding of a part: shorter along the stored axis that advances by ``step`` elements."""
    inner = 1
    for i in range(len(encoding.shape) - 1, -1, -1):
        if inner == step and encoding.shape[i] > 1:
            if math.prod(encoding.shape[:i]) != 1:
                return None  # it is not the slowest axis
            return replace(encoding, shape=(*encoding.shape[:i], chunk, *encoding.shape[i + 1 :]))
        inner *= encoding.shape[i]
    return None
