"""Put several manifests onto shared tables; the only module that rewrites codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.equivalence import agreed
from virtualstack.location import Location
from virtualstack.manifests.cells import replaced
from virtualstack.manifests.chunk_manifest import ENTRY, FIRST, INLINE, MAX_SPARE_ROWS, ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding, Fill


class _Tables(TypedDict):
    locations: tuple[Location, ...]
    encodings: tuple[ChunkEncoding, ...]
    fills: tuple[Fill, ...]
    inline: bytes


class _Recoding(NamedTuple):
    """Maps from the codes of one manifest to codes of the shared tables; ``None`` if no code changes."""

    locations: NDArray[np.uint32] | None
    rows: NDArray[np.uint32] | None
    fills: NDArray[np.uint32] | None
    heap_offset: int

    @property
    def is_identity(self) -> bool:
        return self.locations is None and self.rows is None and self.fills is None and not self.heap_offset

    def apply(self, entries: NDArray[np.void], manifest: ChunkManifest) -> None:
        """Rewrite ``entries``, a copy of the entries of the manifest, in place."""
        location, row = entries["location"], entries["encoding"]
        if self.heap_offset:
            entries["offset"] += np.where(location == INLINE, self.heap_offset, 0)
        if self.rows is not None or self.fills is not None:
            holes = manifest.holes
            rows = np.arange(len(manifest.encodings)) if self.rows is None else self.rows
            fills = np.arange(len(manifest.fills)) if self.fills is None else self.fills
            if rows.size:
                row[...] = np.where(holes, fills[np.where(holes, row, 0)], rows[np.where(holes, 0, row)])
            else:
                row[...] = fills[row]
        if self.locations is not None:
            if len(self.locations) == 1 and location.size and location.min() >= FIRST:
                location[...] = self.locations[0] + FIRST  # the usual file: one source, only references
            else:
                codes = np.concatenate([np.arange(FIRST, dtype=np.uint32), self.locations + np.uint32(FIRST)])
                location[...] = codes[location]


def _number[T](
    manifests: Sequence[ChunkManifest],
    get_table: Callable[[ChunkManifest], tuple[T, ...]],
    used: Callable[[ChunkManifest], NDArray[np.uint32]],
    number: Callable[[T], int],
) -> list[NDArray[np.uint32] | None]:
    """Return the new number of each row of a table, for each manifest; ``None`` if no number changes.

    A table object that several manifests share is processed once. If a table is longer than all entries that use it,
    unused rows get no number.
    """
    users: dict[int, list[ChunkManifest]] = {}
    for manifest in manifests:
        users.setdefault(id(get_table(manifest)), []).append(manifest)
    found: dict[int, NDArray[np.uint32] | None] = {}
    for key, sharing in users.items():
        table = get_table(sharing[0])
        if len(table) > MAX_SPARE_ROWS + sum(x.entries.size for x in sharing):
            is_used = np.zeros(len(table), np.bool_)
            for manifest in sharing:
                is_used[used(manifest)] = True
            rows = np.flatnonzero(is_used)
            numbers = np.zeros(len(table), np.uint32)
            numbers[rows] = [number(table[i]) for i in rows.tolist()]
            found[key] = numbers
        else:
            new = [number(item) for item in table]
            found[key] = None if new == list(range(len(new))) else np.array(new, np.uint32)
    return [found[id(get_table(manifest))] for manifest in manifests]


def _share(manifests: Sequence[ChunkManifest]) -> tuple[_Tables, list[ChunkManifest], list[_Recoding]]:
    """Collect the tables of all manifests, without unused bytes, and how their codes change; no loop is over chunks."""
    manifests = list(_without_unseen_bytes(manifests))
    locations: dict[Location, int] = {}
    kept: list[ChunkEncoding] = []
    decodings: dict[ChunkEncoding, int] = {}
    fills: dict[Fill, int] = {}

    def number_encoding(encoding: ChunkEncoding) -> int:
        number = decodings.setdefault(encoding.decoding(), len(decodings))
        if number == len(kept):
            kept.append(encoding)
        elif kept[number].codecs != encoding.codecs:
            kept[number] = replace(kept[number], codecs=agreed(kept[number].codecs, encoding.codecs))
        return number

    of_locations = _number(
        manifests,
        lambda x: x.locations,
        lambda x: x.entries["location"][x.entries["location"] >= FIRST] - FIRST,
        lambda x: locations.setdefault(x, len(locations)),
    )
    of_rows = _number(manifests, lambda x: x.encodings, lambda x: x.entries["encoding"][~x.holes], number_encoding)
    of_fills = _number(
        manifests,
        lambda x: x.fills,
        lambda x: np.append(x.entries["encoding"][x.holes], np.uint32(0)),
        lambda x: fills.setdefault(x, len(fills)),
    )
    heaps: dict[bytes, int] = {}  # offset of each heap; equal heaps are kept once (bytes cache their hash)
    size = 0
    for manifest in manifests:
        if manifest.inline and manifest.inline not in heaps:
            heaps[manifest.inline] = size
            size += len(manifest.inline)
    tables = _Tables(locations=tuple(locations), encodings=tuple(kept), fills=tuple(fills), inline=b"".join(heaps))
    recodings = [
        _Recoding(location_map, row_map, fill_map, heap_offset=heaps.get(manifest.inline, 0))
        for location_map, row_map, fill_map, manifest in zip(of_locations, of_rows, of_fills, manifests, strict=True)
    ]
    return tables, manifests, recodings


def _without_unseen_bytes(manifests: Sequence[ChunkManifest]) -> Sequence[ChunkManifest]:
    """Compact heaps that are used by less than half, counted over all manifests that share them."""
    shown: dict[int, int] = {}
    for manifest in manifests:
        if manifest.inline:
            shown[id(manifest.inline)] = shown.get(id(manifest.inline), 0) + manifest.inline_nbytes()
    if not shown:
        return manifests
    return [x.compact() if x.inline and len(x.inline) > 2 * shown[id(x.inline)] else x for x in manifests]


def unify(manifests: Sequence[ChunkManifest], /) -> list[ChunkManifest]:
    """Rewrite several manifests onto shared tables.

    The fill of the first manifest becomes row 0. Encodings that decode alike share a row, and equal locations share a
    row. A table object that manifests share is processed once. If many rows are unused, they are left out.
    """
    if all(_same_tables(manifests[0], other) for other in manifests[1:]):
        return list(manifests)
    tables, manifests, recodings = _share(manifests)
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
    """
    tables, manifests, recodings = _share(manifests)
    ends = np.cumsum([manifest.shape[axis] for manifest in manifests]).tolist()
    shape = replaced(manifests[0].shape, axis, ends[-1])
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


def _same_tables(a: ChunkManifest, b: ChunkManifest) -> bool:
    return a.locations is b.locations and a.encodings is b.encodings and a.fills is b.fills and a.inline is b.inline
