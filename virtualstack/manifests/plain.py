"""Plain arrays, which any zarr reader understands: one encoding, a regular grid, whole chunks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.cast import CAST
from virtualstack.codecs.cf import CF
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.cells import along
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.counted import count_states
from virtualstack.manifests.encoding import ChunkEncoding, Fill, c_strides, native, stored_dtype
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid
from virtualstack.printable import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainArray:
    """Properties of an array for zarr metadata, if its stored chunks are zarr chunks."""

    fill: Fill
    n_holes: int
    chunks: tuple[int, ...]
    order: tuple[int, ...] | None
    encoding: ChunkEncoding | None

    @classmethod
    def from_array(cls, array: ManifestArray, /) -> PlainArray | str:
        """Return the plain form of an array, or the reason why it does not exist, as half a sentence."""
        usage = array.manifest.usage
        if usage.n_other_fill:
            return "holes have other fill values than the array"
        if not usage.encodings:
            return cls._of_holes(array, usage.n_holes)
        if len(usage.encodings) > 1:
            return f"chunks have {len(usage.encodings)} encodings (codecs, dtypes, chunk shapes or byte orders)"
        return cls._of_one_encoding(usage.encodings[0], usage.n_holes, array, is_cut=usage.is_cut)

    @classmethod
    def of_tables(cls, array: ManifestArray, /) -> PlainArray | None:
        """Return the form of an array if all chunks have the only encoding of its tables; no entry is read.

        The result does not show whether a slice cuts chunks or EMPTY chunks have other fill values. The result is
        ``None`` if the tables have several encodings or the form is not plain.
        """
        encodings = array.manifest.tables.encodings
        if len(encodings) != 1:
            return None
        plain = cls._of_one_encoding(encodings[0], 0, array, is_cut=False)
        return plain if isinstance(plain, PlainArray) else None

    @classmethod
    def _of_one_encoding(
        cls, encoding: ChunkEncoding, n_holes: int, array: ManifestArray, *, is_cut: bool
    ) -> PlainArray | str:
        if native(encoding.dtype) != array.dtype:
            return f"chunks are stored as '{encoding.dtype}', values are '{array.dtype}'"
        longest = [axis.chunk or int(axis.lengths().max(initial=1)) for axis in array.grid.axes]
        match = match_axes(encoding, longest)
        if match is None:
            return "chunks are seen with steps, reversed, repeated or through a part of their axes"
        if is_cut:
            return "a slice cuts through chunks"
        chunks, order = match
        for i, (axis, chunk) in enumerate(zip(array.grid.axes, chunks, strict=True)):
            if axis.n_cells and axis != ChunkAxis.regular(axis.length, chunk):
                return f"chunk lengths along axis {i} are not all {chunk}"
        fill = array.manifest.tables.fill
        return cls(fill=fill, n_holes=n_holes, chunks=chunks, order=order, encoding=encoding)

    @classmethod
    def _of_holes(cls, array: ManifestArray, n_holes: int) -> PlainArray | str:
        if not array.grid.is_regular:
            return "the chunk grid is rectilinear"
        chunks = tuple(axis.chunk or 1 for axis in array.grid.axes)
        return cls(fill=array.manifest.tables.fill, n_holes=n_holes, chunks=chunks, order=None, encoding=None)


def match_axes(
    encoding: ChunkEncoding, longest: Sequence[int], /
) -> tuple[tuple[int, ...], tuple[int, ...] | None] | None:
    """Find which array axis runs along which stored axis."""
    steps = c_strides(encoding.shape)
    chunks, taken = [1] * len(longest), []
    for own, (n, step) in enumerate(zip(encoding.shape, steps, strict=True)):
        if n == 1:
            continue
        candidates = [i for i, s in enumerate(encoding.strides) if s == step and i not in taken]
        if not candidates:
            return None
        likely = own if encoding.strides == steps else -1  # neighbouring axes of one element may have the same step
        axis = max(candidates, key=lambda i: (longest[i], i == likely, i))
        chunks[axis] = n
        taken.append(axis)
    if any(longest[i] > 1 for i in range(len(chunks)) if i not in taken):
        return None
    if taken == sorted(taken):
        return tuple(chunks), None
    return tuple(chunks), (*(i for i in range(len(chunks)) if i not in taken), *taken)


def why_not_plain(array: ManifestArray, /) -> str | None:
    """Return why an array has no plain form, or ``None`` if it has one."""
    plain = PlainArray.from_array(array)
    return plain if isinstance(plain, str) else None


def longest_cells(manifest: ChunkManifest, grid: ChunkGrid, /) -> NDArray[np.int64]:
    """Return the elements of the longest cell along each axis: shape ``(encodings, axes)``; 1 if there are no cells."""
    longest = np.ones((len(manifest.encodings), len(grid.axes)), np.int64)
    if len(manifest.encodings) > 1:
        rows = manifest.entries["encoding"][~manifest.holes]
        for i, axis in enumerate(grid.axes):
            lengths = along(axis.lengths(), i, len(grid.axes))
            np.maximum.at(longest[:, i], rows, np.broadcast_to(lengths, manifest.shape)[~manifest.holes])
    elif manifest.encodings:
        longest[0] = [axis.lengths().max(initial=1) for axis in grid.axes]
    return longest


def find_differences(array: ManifestArray, /) -> dict[str, list[str]]:
    """Return how an array differs from a plain one, as lines with numbers of chunks by kind; no bytes are read.

    The kinds are "plain" alone, or some of "rectilinear", "mixed encodings", "unaligned" and "mixed fills".
    """
    if why_not_plain(array) is None:
        return {"plain": ["any zarr, kerchunk or Icechunk target takes it as it is"]}
    manifest = array.in_memory().compact()
    n_chunks = manifest.entries.size
    rows = manifest.entries["encoding"][~manifest.holes]
    counts = np.bincount(rows, minlength=len(manifest.encodings))
    parts: dict[ChunkEncoding, int] = {}
    for encoding, n in zip(manifest.encodings, counts.tolist(), strict=True):
        part = encoding.decoding().with_strides(())
        parts[part] = parts.get(part, 0) + n
    found: dict[str, list[str]] = {}
    for i, axis in enumerate(array.grid.axes):
        if not axis.is_regular:
            length, n = _odd_lengths(array.grid, i)
            line = f"{n:,} of {n_chunks:,} chunks are not {length} long along axis {i}"
            found.setdefault("rectilinear", []).append(line)
    if columns := _differences(sorted(parts, key=lambda part: -parts[part])):
        shown = "; ".join(f"{key}: {_listed(values)}" for key, values in columns.items())
        n = rows.size - max(parts.values())
        found["mixed encodings"] = [f"{n:,} chunks are not stored as most are ({shown})"]
    unaligned = []
    if manifest.starts is not None and (n := int(np.count_nonzero(manifest.starts))):
        unaligned.append(f"{n:,} chunks begin within a stored one: a slice, or other chunks, cut it")
    turned = [
        match_axes(encoding, longest.tolist()) is None
        for encoding, longest in zip(manifest.encodings, longest_cells(manifest, array.grid), strict=True)
    ]
    if n := int(counts[turned].sum()):
        unaligned.append(f"{n:,} chunks are seen with steps, reversed, repeated or in part")
    if unaligned:
        found["unaligned"] = unaligned
    if n := int(np.count_nonzero(manifest.holes & (manifest.entries["encoding"] != 0))):
        found["mixed fills"] = [f"{n:,} holes have another fill value than the array"]
    return found or {"unaligned": [f"{n_chunks:,} chunks are shorter than the stored ones"]}


def _odd_lengths(grid: ChunkGrid, axis: int) -> tuple[int, int]:
    lengths = grid.axes[axis].lengths()
    values, counts = np.unique(lengths, return_counts=True)
    common = int(values[counts.argmax()])
    n_odd = int(np.count_nonzero(lengths[:-1] != common)) + int(lengths[-1] > common)
    return common, n_odd * math.prod(grid.shape[:axis] + grid.shape[axis + 1 :])


def _differences(parts: Sequence[ChunkEncoding]) -> dict[str, tuple[str, ...]]:
    """Return how encodings differ; the values keep their order."""
    columns: dict[str, dict[str, None]] = {}
    for part in parts:
        front = [codec for codec in part.codecs if codec.name in (CAST, CF)]
        packings = [codec.options() for codec in front if codec.name == CF]
        stored = stored_dtype(part)
        facts = {
            "codecs": " + ".join(codec.name for codec in part.codecs if codec not in front) or "uncompressed",
            "dtype": str(native(stored)),
            "byte order": "big" if stored.str.startswith(">") else "little" if stored.itemsize > 1 else "none",
            "chunk shape": " x ".join(map(str, part.shape)) or "scalar",
            "packing": json.dumps(packings[-1]["attributes"]) if packings else "none",
        }
        for key, value in facts.items():
            columns.setdefault(key, {})[value] = None
    found = {key: tuple(values) for key, values in columns.items() if len(values) > 1}
    return found if found or len(parts) < 2 else {"codec settings": ("several",)}


def _listed(values: Sequence[str], most: int = 3) -> str:
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(values[:most]) + more


def describe(array: ManifestArray, /) -> str:
    """Return a description of an array: its chunks, where their bytes are, and how it differs from a plain array.

    Sources are counted if the manifest is in memory.
    """
    count, reason = count_states(array.manifest), why_not_plain(array)
    encodings, sources = array.manifest.usage.encodings, ""
    if isinstance(array.manifest, ChunkManifest):
        sources = f" in {counted(len(array.manifest.compact().locations), 'source')}"
    codecs = sorted({" + ".join(codec.name for codec in x.codecs) or "uncompressed" for x in encodings})
    lines = [
        f"{array.dtype} {array.shape}, {array.grid!r}: {counted(count.n_chunks, 'chunk')}",
        f"{counted(count.n_references, 'reference')}, {count.n_inline} inline, {count.n_empty} EMPTY, "
        f"{count.n_absent} ABSENT; {counted(count.nbytes, 'stored byte')}{sources}",
        f"codecs: {'; '.join(codecs) or 'none'}",
        *([] if reason is None else [f"not plain: {reason}; a vstack takes it as it is"]),
        *(f"{kind}: {line}" for kind, different in find_differences(array).items() for line in different),
    ]
    return "\n".join(lines)
