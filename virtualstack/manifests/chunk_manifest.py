"""The manifest in memory: where every chunk of an array is, and how its bytes become values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from virtualstack.errors import ManifestError, Remedy
from virtualstack.location import Location, absolute_url
from virtualstack.manifests.cells import CellBox, CellNumbers, ManifestSummary, blocks, distinct_rows, first_cell
from virtualstack.manifests.columns import pack, unpack
from virtualstack.manifests.encoding import ChunkEncoding, Fill
from virtualstack.manifests.grid import cell_of_key

ENTRY: np.dtype[Any] = np.dtype([("location", "<u4"), ("encoding", "<u4"), ("offset", "<i8"), ("length", "<i8")])
"""One chunk, 24 bytes: location code, row of its encoding, offset and length in bytes.

An EMPTY or ABSENT entry has the row of its fill value in ``encoding``.
"""

EMPTY, ABSENT, INLINE, FIRST = 0, 1, 2, 3
"""Codes in ``location``: never written; expected, but no source has it; bytes in ``inline``; row 0 of the sources."""

MAX_SPARE_ROWS = 16
"""Number of table rows that are kept although no chunk uses them."""


_BLOCK_CELLS = 1 << 19  # cells that are counted at a time


class Usage(NamedTuple):
    """What the entries of a manifest use: encodings, and numbers of cells of some kinds."""

    encodings: tuple[ChunkEncoding, ...]
    n_holes: int
    n_absent: int
    n_other_fill: int
    is_cut: bool


def count_entries(shape: tuple[int, ...], read: Callable[[CellBox], ChunkManifest], own: Fill, /) -> Usage:
    """Count the entries of a manifest with a fill value of its own, one block at a time."""
    encodings: dict[ChunkEncoding, None] = {}
    n_holes = n_absent = n_other_fill = 0
    is_cut = False
    for box in blocks(shape, _BLOCK_CELLS):
        part = read(box)
        row, holes = part.entries["encoding"].reshape(-1), part.holes.reshape(-1)
        fills = row[holes]
        used = _used(row[~holes] if fills.size else row, len(part.encodings))
        encodings |= dict.fromkeys(_picked(part.encodings, used))
        n_holes += fills.size
        n_absent += int(np.count_nonzero(part.entries["location"] == ABSENT)) if fills.size else 0
        n_other_fill += int(np.count_nonzero(np.array([fill != own for fill in part.fills])[fills]))
        is_cut = is_cut or (part.starts is not None and bool(part.starts.any()))
    return Usage(tuple(encodings), n_holes, n_absent, n_other_fill, is_cut)


@dataclass(frozen=True, eq=False)
class ChunkManifest:
    """One entry for each cell of a chunk grid, and the tables to which the entries refer.

    When to use: in a reader, to list where each chunk is. :meth:`from_arrays`, :meth:`from_dict` and :meth:`from_bytes`
    make one, and :class:`ManifestArray` takes it. docs/explanation/chunk-states.md explains EMPTY, ABSENT and INLINE.

    Parameters
    ----------
    entries
        Array of dtype :data:`ENTRY` in the shape of the chunk grid, read-only from now on. The field ``location`` is 0
        (EMPTY), 1 (ABSENT), 2 (INLINE), or for a byte range 3 (:data:`FIRST`) plus the row of its source.
    fills
        Table of fill values; row 0 is that of the array. For EMPTY and ABSENT entries, ``encoding`` is a row of it.
    encodings
        Table of encodings. For INLINE entries and byte ranges, the field ``encoding`` is a row of it.
    locations
        Table of sources.
    starts
        Element of the decoded chunk where each cell begins: int64, same shape. ``None`` if all are 0.
    inline
        Bytes of all INLINE chunks. Offset and length of an INLINE entry are a range of it.

    Raises
    ------
    ManifestError
        Shapes or dtypes do not match, or there is no fill. Only :meth:`validate` checks the entries.

    Examples
    --------
    >>> import virtualstack as vs
    >>> chunks = {"0": {"path": "s3://bucket/day.nc", "offset": 4000, "length": 40}}
    >>> how = {"encoding": vs.ChunkEncoding.c_order("<f4", (10,)), "fill": vs.Fill.zero("f4")}
    >>> vs.ChunkManifest.from_dict(chunks, shape=(2,), **how).summary().n_empty
    1
    """

    entries: NDArray[np.void]
    fills: tuple[Fill, ...]
    encodings: tuple[ChunkEncoding, ...] = ()
    locations: tuple[Location, ...] = ()
    starts: NDArray[np.int64] | None = None
    inline: bytes = b""

    def __post_init__(self) -> None:
        entries = self.entries
        if not isinstance(entries, np.ndarray) or entries.dtype != ENTRY:
            raise ManifestError(f"entries have dtype '{getattr(entries, 'dtype', type(entries))}'; expected ENTRY")
        if not self.fills:
            raise ManifestError("a manifest needs at least one fill: the fill value of its array")
        object.__setattr__(self, "entries", _read_only(entries))
        if self.starts is not None:
            if self.starts.shape != entries.shape or self.starts.dtype != np.int64:
                raise ManifestError(
                    f"starts have shape {self.starts.shape} and dtype '{self.starts.dtype}'; "
                    f"expected {entries.shape} and 'int64'"
                )
            object.__setattr__(self, "starts", _read_only(self.starts))

    def __reduce__(self) -> tuple[Any, ...]:
        x = self.compact() if self._is_loose() else self
        return _restore, (type(x), pack(x.entries, x.starts), x.shape, x.fills, x.encodings, x.locations, x.inline)

    def _is_loose(self) -> bool:
        """Return whether tables are longer than the entries, or most of the heap is unused."""
        n_rows = len(self.locations) + len(self.encodings) + len(self.fills)
        return n_rows > MAX_SPARE_ROWS + self.entries.size or (
            bool(self.inline) and len(self.inline) > 2 * self.inline_nbytes()
        )

    def __deepcopy__(self, memo: object) -> ChunkManifest:
        return self  # a manifest cannot change; a copy would be packed and unpacked

    # -- making one -------------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        offsets: ArrayLike,
        lengths: ArrayLike,
        *,
        location: Location | str | Sequence[Location],
        encoding: ChunkEncoding | Sequence[ChunkEncoding],
        fill: Fill,
        location_codes: ArrayLike | None = None,
        encoding_codes: ArrayLike | None = None,
        starts: ArrayLike | None = None,
        inline: bytes = b"",
    ) -> ChunkManifest:
        """Make a manifest from arrays of offsets and lengths.

        Parameters
        ----------
        offsets, lengths
            Offsets and lengths in bytes, in the shape of the chunk grid. A negative length makes a cell EMPTY. Both are
            0 for cells whose code in ``location_codes`` is EMPTY or ABSENT.
        location
            The source of all chunks, or the table of sources.
        encoding
            The encoding of all chunks, or the table of encodings.
        fill
            Fill value of the array.
        location_codes, encoding_codes
            A location code for each cell: 3 plus the row of its source in ``location``, or 0 (EMPTY), 1 (ABSENT) or 2
            (INLINE). An encoding code for each cell: its row in ``encoding``. By default all cells have the first
            source and the first encoding.
        starts, inline
            The same as in :class:`ChunkManifest`.

        Raises
        ------
        ManifestError
            An entry is invalid, for example past the end of its table or source.
        """
        offsets, lengths = np.asarray(offsets), np.asarray(lengths)
        for name, values in (("offsets", offsets), ("lengths", lengths)):
            if values.size and values.dtype.kind == "u" and values.max() > np.iinfo(np.int64).max:
                raise ManifestError(f"{name} reach {int(values.max())} bytes; a place in a file must be below 2^63")
            if values.size and values.dtype.kind not in "iu":
                raise ManifestError(f"{name} have dtype '{values.dtype}'; expected whole numbers of bytes")
        if offsets.shape != lengths.shape:
            raise ManifestError(f"offsets have shape {offsets.shape}, lengths {lengths.shape}; they must be equal")
        entries = np.zeros(offsets.shape, ENTRY)
        entries["location"] = FIRST if location_codes is None else location_codes
        entries["encoding"] = 0 if encoding_codes is None else encoding_codes
        entries["offset"] = offsets
        entries["length"] = lengths
        entries[lengths < 0] = np.zeros((), ENTRY)
        if isinstance(location, str):
            location = Location(location)
        manifest = cls(
            entries=entries,
            fills=(fill,),
            encodings=(encoding,) if isinstance(encoding, ChunkEncoding) else tuple(encoding),
            locations=(location,) if isinstance(location, Location) else tuple(location),
            starts=None if starts is None else np.asarray(starts, np.int64),
            inline=inline,
        )
        manifest.validate()
        return manifest

    @classmethod
    def from_dict(
        cls,
        chunks: Mapping[str, Mapping[str, Any]],
        /,
        *,
        shape: Sequence[int],
        encoding: ChunkEncoding,
        fill: Fill,
        separator: str = ".",
    ) -> ChunkManifest:
        """Make a manifest from ``{"0.0": {"path": url, "offset": bytes, "length": bytes}}``.

        Use it for tests and small manifests: it is a Python loop over chunks. Chunks without a key are EMPTY.

        Parameters
        ----------
        chunks
            Mapping of keys to chunks. A key is an index in the grid joined by ``separator``; for a scalar it is
            ``"0"`` or ``""``.
        shape
            Number of cells along each axis of the chunk grid.
        encoding, fill
            Encoding of all chunks, and fill value of the array.
        separator
            Text between the numbers of a key.

        Raises
        ------
        ManifestError
            A key is not an index of the grid, or an entry is invalid.
        """
        shape = tuple(int(n) for n in shape)
        offsets, lengths = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
        codes = np.full(shape, EMPTY, np.uint32)
        table: dict[Location, int] = {}
        for key, chunk in chunks.items():
            cell = cell_of_key(key, shape, separator)
            if not {"path", "offset", "length"} <= chunk.keys():
                raise ManifestError(f"chunk '{key}' needs 'path', 'offset' and 'length', not {sorted(chunk)}")
            codes[cell] = table.setdefault(Location(chunk["path"]), len(table) + FIRST)
            offsets[cell], lengths[cell] = chunk["offset"], chunk["length"]
        return cls.from_arrays(
            offsets, lengths, location=tuple(table), encoding=encoding, fill=fill, location_codes=codes
        )

    @classmethod
    def empty(cls, shape: Iterable[int], fill: Fill, /, *, code: int = EMPTY) -> ChunkManifest:
        """Make a manifest without chunks; ``shape`` is that of the chunk grid, and ``code`` is EMPTY or ABSENT."""
        entries = np.zeros(tuple(shape), ENTRY)
        entries["location"] = code
        return cls(entries=entries, fills=(fill,))

    @classmethod
    def from_bytes(
        cls, chunks: Sequence[bytes], *, shape: Sequence[int], encoding: ChunkEncoding, fill: Fill
    ) -> ChunkManifest:
        """Make a manifest of INLINE chunks from their encoded bytes in C order; ``shape`` is that of the chunk grid."""
        lengths = np.array([len(chunk) for chunk in chunks], np.int64).reshape(tuple(shape))
        offsets = (np.cumsum(lengths.reshape(-1)) - lengths.reshape(-1)).reshape(tuple(shape))
        return cls.from_arrays(
            offsets,
            lengths,
            location=(),
            encoding=encoding,
            fill=fill,
            location_codes=np.full(tuple(shape), INLINE, np.uint32),
            inline=b"".join(chunks),
        )

    # -- content --------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the chunk grid, in cells."""
        return self.entries.shape

    @property
    def fill(self) -> Fill:
        """The array's own fill value."""
        return self.fills[0]

    @property
    def url(self) -> str | None:
        """URL of the first source, to name in messages; ``None`` if there are no sources."""
        return self.locations[0].url if self.locations else None

    @property
    def encoding_rows(self) -> NDArray[np.uint32]:
        """Row of the encoding of each chunk; 0 for cells without bytes, whose row is one of fills."""
        return np.where(self.holes, np.uint32(0), self.entries["encoding"])

    @property
    def all_starts(self) -> NDArray[np.int64]:
        """Element of the decoded chunk where each cell begins, also if all are 0; read-only."""
        return np.broadcast_to(np.int64(0), self.shape) if self.starts is None else self.starts

    @cached_property
    def holes(self) -> NDArray[np.bool_]:
        """True for EMPTY and ABSENT cells; has the shape of the grid."""
        return np.asarray(self.entries["location"] < INLINE)

    @cached_property
    def usage(self) -> Usage:
        """What the entries use."""
        return count_entries(self.shape, self.read, self.fill)

    def inline_nbytes(self) -> int:
        """Return the number of bytes of all INLINE chunks; a chunk counts once for each cell that shows it."""
        return int(self.entries["length"][self.entries["location"] == INLINE].sum())

    def inline_fits(self) -> bool:
        """Return whether each INLINE chunk without codecs has exactly the bytes of its values."""
        entries = self.entries[self.entries["location"] == INLINE]
        for code in np.unique(entries["encoding"]).tolist():
            encoding = self.encodings[code]
            lengths = entries["length"][entries["encoding"] == code]
            if not encoding.codecs and (lengths != encoding.size * encoding.dtype.itemsize).any():
                return False
        return True

    def read(self, box: CellBox, /) -> ChunkManifest:
        """Return the entries of a box of cells (one slice for each axis) as a view; no chunk is read."""
        view: Any = (*box, ...)  # the dots keep an array without axes an array
        return self.map_cells(lambda x: x[view])

    def pick(self, cells: CellNumbers, /) -> ChunkManifest:
        """Return the entries of some cells; index arrays for each axis are broadcast together, as in numpy."""
        at: Any = (*cells, ...)
        return self.map_cells(lambda x: x[at])

    def reshape(self, shape: tuple[int, ...], /) -> ChunkManifest:
        """Return the same entries in another grid shape. Encodings stay: change their strides to fit the new axes."""
        return self.map_cells(lambda x: x.reshape(shape))

    def map_cells(self, change: Callable[[NDArray[Any]], NDArray[Any]], /) -> ChunkManifest:
        """Return the manifest whose entries and starts are the results of a function of each of both arrays."""
        return replace(self, entries=change(self.entries), starts=None if self.starts is None else change(self.starts))

    @property
    def tables(self) -> ChunkManifest:
        """The manifest itself, which has all its tables in memory."""
        return self

    def summary(self) -> ManifestSummary:
        """Count references, inline chunks, EMPTY and ABSENT cells, and their bytes."""
        location = self.entries["location"]
        holes, inline = int(np.count_nonzero(location < INLINE)), int(np.count_nonzero(location == INLINE))
        missing = int(np.count_nonzero(location == ABSENT))
        return ManifestSummary(
            n_chunks=location.size,
            n_references=location.size - holes - inline,
            n_inline=inline,
            n_empty=holes - missing,
            n_absent=missing,
            nbytes=int(self.entries["length"].sum()),
        )

    def validate(self) -> None:
        """Check all entries, and whether the encodings fit the axes of the grid.

        Call it for a manifest that you made or were given. :class:`ManifestArray` checks cells against chunks.

        Raises
        ------
        ManifestError
            An entry is invalid (see :meth:`validate_entries`), or an encoding does not fit the axes of the grid.
        """
        self.validate_entries()
        for encoding in self.encodings:
            if len(encoding.strides) != self.entries.ndim:
                raise ManifestError(
                    f"an encoding has {len(encoding.strides)} strides; the grid has {self.entries.ndim} axes"
                )

    def validate_entries(self) -> None:
        """Check that each entry refers to an encoding, a fill value and a byte range that exist.

        :meth:`validate` also checks the encodings themselves.

        Raises
        ------
        ManifestError
            A code is beyond its table, an offset or length is negative, a byte range ends after the end of its source
            or of ``inline``, or an EMPTY or ABSENT entry has an offset, length or start.
        """
        unknown = np.iinfo(np.int64).max
        sizes = [0, 0, len(self.inline)] + [unknown if x.size is None else x.size for x in self.locations]
        faults: list[tuple[int, tuple[int, ...], str]] = []
        for box in blocks(self.shape):
            for rank, (bad, what) in enumerate(self._checks(box, np.array(sizes, np.int64))):
                if bad.any():
                    faults.append((rank, first_cell(box, bad), what))
                    break  # each rule relies on those before
        if faults:
            _, cell, what = min(faults)
            self._refuse(cell, what)

    def _checks(self, box: CellBox, sizes: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.bool_], str]]:
        """Yield which cells of a box break each rule, and the rule; ``sizes`` are sizes of sources by location code."""
        view: Any = (*box, ...)
        entries = self.entries[view]
        location, row, offset, length = (entries[name] for name in ENTRY.names or ())
        holes = location < INLINE
        yield location >= sizes.size, "has a location code beyond the table of locations"
        yield row >= np.where(holes, len(self.fills), len(self.encodings)), "has a code beyond its table"
        yield (offset < 0) | (length < 0), "has a negative offset or length"
        yield offset > np.iinfo(np.int64).max - length, "ends at 2^63 bytes or more"
        yield holes & ((offset != 0) | (length != 0)), "is a hole with an offset or a length"
        yield (offset + length > sizes[location]) & ~holes, "reaches past the end of its source"
        if self.starts is not None:
            yield holes & (self.starts[view] != 0), "is a hole with a start"

    def _refuse(self, cell: tuple[int, ...], what: str) -> NoReturn:
        entry = dict(zip(ENTRY.names or (), self.entries[cell].tolist(), strict=True))
        code = entry["location"] - FIRST
        where = f" in '{self.locations[code].url}'" if 0 <= code < len(self.locations) else ""
        raise ManifestError(f"chunk {cell}{where} {what}: {entry}")

    # -- changing tables --------------------------------------------------------------------------------------

    def rename(self, change: Mapping[str, str] | Callable[[str], str], /) -> ChunkManifest:
        """Rename sources by a mapping from old URL to new, or by a function of the URL; entries do not change.

        The new file must be a copy. When it is read, its size is compared, but not its etag and modification time.

        Raises
        ------
        ManifestError
            A new name is not a URL or path of a file.
        """
        rename = change if callable(change) else lambda url: change.get(url, url)
        urls = [_renamed(x.url, rename(x.url)) for x in self.locations]
        pairs = zip(self.locations, urls, strict=True)
        moved = (x if x.url == url else Location(url, x.size, checksums=x.checksums) for x, url in pairs)
        return replace(self, locations=tuple(moved))

    def compact(self) -> ChunkManifest:
        """Return a manifest without unused rows in its tables and without unused bytes of INLINE chunks.

        The first fill stays: it is the fill value of the array. Rows keep their order.
        """
        entries = self.entries.copy()
        flat, holes = entries.reshape(-1), self.holes.reshape(-1)
        location, row = flat["location"], flat["encoding"]
        used = _used(location, len(self.locations) + FIRST)
        used[:FIRST] = True
        if not used.all():
            location[...] = (np.cumsum(used) - 1)[location]
        rows_used = _used(row[~holes], len(self.encodings))
        fills_used = _used(row[holes], len(self.fills))
        fills_used[0] = True
        if not (rows_used.all() and fills_used.all()):
            row[holes] = (np.cumsum(fills_used) - 1)[row[holes]]
            row[~holes] = (np.cumsum(rows_used) - 1)[row[~holes]]
        return ChunkManifest(
            entries=entries,
            fills=_picked(self.fills, fills_used),
            encodings=_picked(self.encodings, rows_used),
            locations=_picked(self.locations, used[FIRST:]),
            starts=self.starts if self.starts is not None and self.starts.any() else None,
            inline=self._compact_heap(entries),
        )

    def _compact_heap(self, entries: NDArray[np.void]) -> bytes:
        """Return a heap with the INLINE chunks of ``entries``, each once, and rewrite their offsets in place."""
        if not self.inline:
            return b""
        inline = entries["location"] == INLINE
        spans = np.stack([entries["offset"][inline], entries["length"][inline]], axis=1)
        first, which = distinct_rows(spans.T)
        spans = spans[first]
        if int(spans[:, 1].sum()) == len(self.inline):
            return self.inline
        place: dict[bytes, int] = {}
        size, offsets = 0, []
        for offset, length in spans.tolist():
            chunk = self.inline[offset : offset + length]
            at = place.setdefault(chunk, size)
            size += length if at == size else 0
            offsets.append(at)
        entries["offset"][inline] = np.array(offsets, np.int64)[which]
        return b"".join(place)

    def drop_unused_encodings(self) -> ChunkManifest:
        """Return a compact manifest if its encodings are many more than its entries, otherwise the manifest itself."""
        if len(self.encodings) <= MAX_SPARE_ROWS + self.entries.size:
            return self
        return self.compact()

    def __repr__(self) -> str:
        count = self.summary()
        kinds = {
            "references": count.n_references,
            "inline": count.n_inline,
            "empty": count.n_empty,
            "absent": count.n_absent,
        }
        shown = ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n) or "no chunks"
        return f"ChunkManifest(shape={self.shape}, {shown}, {len(self.locations)} sources)"


def _restore(
    cls: type[ChunkManifest],
    columns: bytes,
    shape: tuple[int, ...],
    fills: tuple[Fill, ...],
    encodings: tuple[ChunkEncoding, ...],
    locations: tuple[Location, ...],
    inline: bytes,
) -> ChunkManifest:
    entries, starts = unpack(columns, shape, ENTRY)
    return cls(entries, fills, encodings, locations, starts, inline)


def _read_only[T: np.generic](array: NDArray[T]) -> NDArray[T]:
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _used(codes: NDArray[np.unsignedinteger[Any]], n: int) -> NDArray[np.bool_]:
    return np.bincount(codes, minlength=n)[:n] > 0


def _picked[T](table: tuple[T, ...], used: NDArray[np.bool_]) -> tuple[T, ...]:
    return table if used.all() else tuple(table[i] for i in np.flatnonzero(used).tolist())


def _renamed(old: str, new: Any) -> str:
    text = os.fsdecode(new) if isinstance(new, str | os.PathLike) else ""
    if not text.strip() or text.endswith("/"):
        raise ManifestError(
            f"source '{old}' would become {new!r}, which is not a URL or path of a file", Remedy("name one")
        )
    return absolute_url(text)
