"""Putting several manifests onto shared tables: the only place that knows how codes are rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ManifestError
from virtualstack.location import Location
from virtualstack.manifests.chunk_manifest import ENTRY, FIRST, INLINE, ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding, Fill

__all__ = ["join", "unify"]


class _Tables(TypedDict):
    locations: tuple[Location, ...]
    encodings: tuple[ChunkEncoding, ...]
    fills: tuple[Fill, ...]
    inline: bytes


@dataclass(frozen=True, slots=True)
class _Recoding:
    """Maps from the codes of one manifest to those of the shared tables; ``None`` where nothing changes."""

    locations: list[int] | None
    rows: list[int] | None
    fills: list[int] | None
    heap_offset: int

    @property
    def is_identity(self) -> bool:
        return self.locations is None and self.rows is None and self.fills is None and not self.heap_offset

    def apply(self, entries: NDArray[np.void], manifest: ChunkManifest) -> None:
        """Rewrite ``entries``, a copy of the manifest's, in place."""
        location, row = entries["location"], entries["encoding"]
        if self.heap_offset:
            entries["offset"] += np.where(location == INLINE, self.heap_offset, 0)
        if self.rows is not None or self.fills is not None:
            holes = manifest.holes
            rows = np.arange(len(manifest.encodings)) if self.rows is None else np.array(self.rows)
            fills = np.arange(len(manifest.fills)) if self.fills is None else np.array(self.fills)
            if rows.size:
                row[...] = np.where(holes, fills[np.where(holes, row, 0)], rows[np.where(holes, 0, row)])
            else:
                row[...] = fills[row]
        if self.locations is not None:
            if len(self.locations) == FIRST + 1 and location.size and location.min() >= FIRST:
                location[...] = self.locations[FIRST]  # the usual file: one source, no holes
            else:
                location[...] = np.array(self.locations, np.uint32)[location]


def _share(manifests: Sequence[ChunkManifest]) -> tuple[_Tables, list[_Recoding]]:
    """Collect the tables of all manifests, and how the codes of each change; loops over manifests, not chunks."""
    locations: dict[Location, int] = {}
    rows: dict[ChunkEncoding, int] = {}
    kept: list[ChunkEncoding] = []
    decodings: dict[ChunkEncoding, int] = {}
    fills: dict[Fill, int] = {}
    heap: list[bytes] = []
    heap_size = 0
    recodings = []
    for manifest in manifests:
        location_map = [0, 1, 2, *(locations.setdefault(x, len(locations) + FIRST) for x in manifest.locations)]
        for encoding in manifest.encodings:
            if encoding not in rows:
                rows[encoding] = decodings.setdefault(encoding.decoding(), len(decodings))
                if rows[encoding] == len(kept):
                    kept.append(encoding)
        row_map = [rows[x] for x in manifest.encodings]
        fill_map = [fills.setdefault(x, len(fills)) for x in manifest.fills]
        recodings.append(
            _Recoding(
                locations=None if _is_identity(location_map) else location_map,
                rows=None if _is_identity(row_map) else row_map,
                fills=None if _is_identity(fill_map) else fill_map,
                heap_offset=heap_size if manifest.inline else 0,
            )
        )
        if manifest.inline:
            heap.append(manifest.inline)
            heap_size += len(manifest.inline)
    if max(len(locations), len(kept), len(fills)) >= 2**32 - FIRST:
        raise ManifestError(f"{len(locations)} sources are more than a manifest can number; 2^32 is the limit")
    tables = _Tables(
        locations=tuple(locations), encodings=tuple(kept), fills=tuple(fills), inline=b"".join(heap) if heap else b""
    )
    return tables, recodings


def unify(manifests: Sequence[ChunkManifest], /) -> list[ChunkManifest]:
    """Rewrite several manifests onto shared tables.

    The first manifest's fill becomes row 0. Encodings that decode alike share a row. Equal locations share one.

    Parameters
    ----------
    manifests
        Of one number of axes and one value dtype.

    Returns
    -------
    list of ChunkManifest
        The same chunks; all with the same ``locations``, ``encodings``, ``fills`` and ``inline`` objects.
    """
    if all(_same_tables(manifests[0], other) for other in manifests[1:]):
        return list(manifests)
    tables, recodings = _share(manifests)
    unified = []
    for manifest, recoding in zip(manifests, recodings, strict=True):
        entries = manifest.entries
        if not recoding.is_identity:
            entries = entries.copy()
            recoding.apply(entries, manifest)
        unified.append(ChunkManifest(entries=entries, starts=manifest.starts, **tables))
    return unified


def join(manifests: Sequence[ChunkManifest], axis: int, /) -> ChunkManifest:
    """Put the grids of several manifests one after the other along an axis, onto shared tables.

    Entries are copied once.

    Parameters
    ----------
    manifests
        Of one number of axes, one value dtype, and one shape but for ``axis``.
    axis
        Axis of the chunk grid.
    """
    tables, recodings = _share(manifests)
    first = manifests[0].shape
    ends = np.cumsum([manifest.shape[axis] for manifest in manifests]).tolist()
    shape = (*first[:axis], ends[-1], *first[axis + 1 :])
    entries = np.empty(shape, ENTRY)
    starts = np.zeros(shape, np.int64) if any(x.starts is not None for x in manifests) else None
    before = (slice(None),) * axis
    begin = 0
    for manifest, recoding, end in zip(manifests, recodings, ends, strict=True):
        part = entries[(*before, slice(begin, end))]
        part[...] = manifest.entries
        if not recoding.is_identity:
            recoding.apply(part, manifest)
        if starts is not None and manifest.starts is not None:
            starts[(*before, slice(begin, end))] = manifest.starts
        begin = end
    return ChunkManifest(entries=entries, starts=starts, **tables)


def _is_identity(codes: list[int]) -> bool:
    return codes == list(range(len(codes)))


def _same_tables(a: ChunkManifest, b: ChunkManifest) -> bool:
    return a.locations is b.locations and a.encodings is b.encodings and a.fills is b.fills and a.inline is b.inline
