"""Plan a read: which stored chunks a selection needs, how they decode, and where their elements go in the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec, CodecError, check_text
from virtualstack.codecs.pipeline import Decoder, Elementwise, make_decoder, split_elementwise
from virtualstack.codecs.shards import with_fill
from virtualstack.errors import ChunkDecodeError, ManifestError, Remedy, StorageError
from virtualstack.location import Location
from virtualstack.manifests import ABSENT, FIRST, INLINE, ChunkEncoding, ChunkManifest, Fill, ManifestArray
from virtualstack.manifests.cells import begins_run
from virtualstack.manifests.grid import as_range
from virtualstack.options import OnAbsent
from virtualstack.printable import counted
from virtualstack.reading.selection import Selection
from virtualstack.storage import Bytes

type Steps = tuple[Callable[[NDArray[Any]], NDArray[Any]], ...]
"""Functions that make each value from one value, whatever other values are in the array."""


class Decoding(NamedTuple):
    """How chunks of an encoding are decoded; the strides of the encoding do not matter here.

    Parameters
    ----------
    dtype, shape
        Dtype and shape of the decoded chunk.
    elementwise
        Steps that make each value from one stored number.
    is_raw
        If true, numbers are consecutive in the source, so that any part of a chunk can be read alone.
    is_value
        If true, the decoded bytes equal the values in memory.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    elementwise: Elementwise
    is_raw: bool
    is_value: bool

    @property
    def itemsize(self) -> int:
        """Bytes of a stored number."""
        return self.elementwise.stored.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of a decoded chunk, before values are made from its numbers."""
        return math.prod(self.shape) * self.itemsize

    @property
    def takes_out(self) -> bool:
        """Whether `numbers` can write to memory that is given."""
        return not self.is_raw and self._decoder().takes_out

    def numbers(self, raw: Bytes, out: NDArray[np.uint8] | None = None, /) -> NDArray[Any]:
        """Decode bytes to the numbers that values are made from, as a 1-D array, whose memory may be ``out``."""
        stored = self.elementwise.stored
        if not self.is_raw:
            return self._decoder()(raw, out).reshape(-1)
        if stored.kind == "b":
            return make_decoder((), stored, (len(raw),))(raw)
        return check_text(np.frombuffer(raw, stored))

    def then(self, steps: Steps, /) -> Decoding:
        """Return the decoding that makes each value by further steps."""
        if not steps:
            return self
        elementwise = self.elementwise._replace(steps=(*self.elementwise.steps, *steps))
        return self._replace(elementwise=elementwise, is_value=False)

    def _decoder(self) -> Decoder:
        return make_decoder(self.elementwise.codecs, self.elementwise.stored, self.shape)


@lru_cache(maxsize=4096)
def find_decoding(
    dtype: np.dtype[Any], shape: tuple[int, ...], codecs: tuple[Codec, ...], fill: bytes | None, /
) -> Decoding:
    """Return the decoding of chunks of an encoding; equal encodings share one object."""
    elementwise = split_elementwise(with_fill(codecs, () if fill is None else (fill,)), dtype)
    is_raw = not dtype.hasobject and dtype.itemsize > 0 and not elementwise.codecs
    stored = elementwise.stored
    is_value = (
        not dtype.hasobject
        and dtype.itemsize > 0
        and not elementwise.steps
        and stored.isnative
        and stored.kind not in "bT"
    )
    return Decoding(dtype, shape, elementwise, is_raw, is_value)


def only_fill(fills: tuple[Fill, ...], /) -> bytes | None:
    """Return the bytes of the one fill value of an array; ``None`` if the array has several."""
    first = fills[0].raw
    return first if len(fills) == 1 or all(x.raw == first for x in fills) else None


def strided(flat: NDArray[Any], base: int, shape: tuple[int, ...], strides: list[int], /) -> NDArray[Any]:
    """Return a strided view of a decoded chunk (strings: a copy); the plan has checked its bounds."""
    if flat.dtype.kind == "T":  # no views of another shape of its buffer: gather
        index = np.asarray(base)
        for n, step in zip(shape, strides, strict=True):
            index = index[..., None] + np.arange(n) * step
        return np.asarray(flat[index])
    itemsize = flat.itemsize
    # `as_strided` would name the padding of compounds "f1", which members are named too
    view: NDArray[Any] = np.ndarray(shape, flat.dtype, flat, base * itemsize, [step * itemsize for step in strides])
    return view


class ChunkPart(NamedTuple):
    """Parts of the result; each is a strided view of a decoded chunk.

    Part i begins at element ``base[i]`` of its decoded chunk and belongs to segment ``position[axis][i]`` of each axis.
    """

    base: NDArray[np.int64]
    strides: NDArray[np.int64]
    position: tuple[NDArray[np.intp], ...]


@dataclass(frozen=True, slots=True, eq=False)
class StoredChunks:
    """Chunks to fetch and decode, sorted by location and offset."""

    location: NDArray[np.uint32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    decoding: NDArray[np.intp]
    is_raw: NDArray[np.bool_]
    first: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.location)


class Plan(NamedTuple):
    """A plan of all that has to be done to read a selection.

    Parameters
    ----------
    name
        Name of the variable, for messages.
    selection
        The selection, by axis.
    chunks, parts
        Chunks to fetch, and the parts of the result that they hold.
    holes
        For each EMPTY or ABSENT chunk: the row of its fill value, and the number of its segment along each axis.
    decodings, locations, fills
        Tables to which the rows and codes refer.
    inline
        Bytes of INLINE chunks.
    """

    name: str | None
    selection: Selection
    chunks: StoredChunks
    parts: ChunkPart
    holes: tuple[NDArray[np.uint32], tuple[NDArray[np.intp], ...]]
    decodings: tuple[Decoding, ...]
    locations: tuple[Location, ...]
    fills: tuple[Fill, ...]
    inline: bytes

    def cell(self, chunk: int, /) -> tuple[int, ...]:
        """Return the index in the chunk grid of a cell that uses a stored chunk."""
        part = self.chunks.first[chunk]
        return _cell(self.selection, tuple(position[part] for position in self.parts.position))


def undecodable(
    name: str | None,
    cell: tuple[int, ...],
    stored: tuple[Sequence[Location], int, int, int],
    why: str,
    /,
    *remedies: Remedy,
) -> ChunkDecodeError:
    """Return the error for a chunk that does not decode."""
    locations, code, offset, length = stored
    url = locations[code - FIRST].url if code >= FIRST else None
    return ChunkDecodeError(
        f"cell {cell} of variable '{name}', bytes {offset} to {offset + length} of "
        f"{'the manifest' if url is None else repr(url)}, does not decode: {why}",
        *remedies,
        variable=name,
        cell=cell,
        url=url,
        offset=offset,
        length=length,
    )


def _cell(selection: Selection, position: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(int(axis.cells[at]) for axis, at in zip(selection.axes, position, strict=True))


_PIECE_BYTES = 4 << 20
"""Approximate bytes of uncompressed values that are fetched as one piece: they fit in the cache of the processor."""

_MIN_SPARSE_BYTES = 1 << 20
"""Bytes of uncompressed values above which they are fetched separately if gaps are longer than `_MAX_GAP_BYTES`."""

_MAX_GAP_BYTES = 1 << 14
"""Maximum bytes of a gap between values that are fetched together: copying a gap costs as much as another read."""


def make_plan(array: ManifestArray, selection: Selection, /, *, absent: OnAbsent) -> Plan:
    """Find the stored chunks that a selection needs; no bytes are read."""
    plan = _plan(array, selection, absent)
    cut: tuple[int, ...] = ()
    for _ in selection.axes:
        wanted = _axis_to_cut(plan)
        if wanted is None:
            break
        axis, n = wanted
        cut = (*(x for x in cut if x != axis), axis)
        selection = plan.selection.cut(axis, n)
        del plan
        plan = _plan(array, selection, absent, cut)
    return plan


def _axis_to_cut(plan: Plan) -> tuple[int, int] | None:
    """Return the axis along which to cut the longest range of raw values, and the elements of a piece, or ``None``."""
    chunks, parts = plan.chunks, plan.parts
    length = np.where(chunks.is_raw, chunks.length, 0)
    if not length.size or length.max() <= _MIN_SPARSE_BYTES:
        return None
    chunk = int(length.argmax())
    part = int(chunks.first[chunk])
    counts = np.array([axis.count[at[part]] for axis, at in zip(plan.selection.axes, parts.position, strict=True)])
    strides = np.abs(parts.strides[part])
    if not (counts > 1).any():
        return None
    axis = int(np.where(counts > 1, strides, -1).argmax())
    stride, extents = int(strides[axis]), (counts - 1) * strides
    inner = int(extents.sum() - extents[axis]) + 1
    itemsize = plan.decodings[chunks.decoding[chunk]].itemsize
    if 2 * inner <= stride and (stride - inner) * itemsize > _MAX_GAP_BYTES:
        return axis, 1
    n = max(_PIECE_BYTES // max(stride * itemsize, 1), 1)
    return (axis, n) if length[chunk] > _PIECE_BYTES and n < counts[axis] else None


def _plan(array: ManifestArray, selection: Selection, absent: OnAbsent, cut: tuple[int, ...] = ()) -> Plan:
    manifest = _entries(array, selection)
    entries = manifest.entries.reshape(-1)
    grid = manifest.shape  # one axis for each axis of the result

    def positions(cells: NDArray[np.intp]) -> tuple[NDArray[np.intp], ...]:
        return selection.of_axes(np.unravel_index(cells, grid)) if grid else ()

    code = entries["location"]
    is_hole = code < INLINE
    holes = np.flatnonzero(is_hole)
    at_hole = positions(holes)
    if absent == "raise" and (lost := np.flatnonzero(code == ABSENT)).size:
        cell = _cell(selection, tuple(at[0] for at in positions(lost[:1])))
        verb, them = ("is", "it") if lost.size == 1 else ("are", "them")
        raise StorageError(
            f"{counted(lost.size, 'chunk')} of variable '{array.name}' {verb} ABSENT: the source should hold {them} "
            f"and does not (the first is cell {cell})",
            Remedy("restore the source"),
            Remedy("read with", absent="fill"),
            variable=array.name,
            cell=cell,
        )
    real = np.flatnonzero(~is_hole) if holes.size else np.arange(code.size)
    table: dict[Decoding, int] = {}
    fill = only_fill(manifest.fills)
    decodings = (find_decoding(x.dtype, x.shape, x.codecs, fill) for x in manifest.encodings)
    ids = np.array([table.setdefault(x, len(table)) for x in decodings], np.intp)
    of_hole = entries["encoding"][holes]
    entries = entries[real] if holes.size else entries
    rows = entries["encoding"]
    position = positions(real)
    piece = np.zeros(real.size, np.intp)
    if cut:  # pieces of uncompressed chunks are fetched separately
        lengths = tuple(selection.axes[axis].cells.size for axis in cut)
        piece = np.ravel_multi_index(tuple(position[axis] for axis in cut), lengths)
        piece = np.where(np.array([x.is_raw for x in table], np.bool_)[ids[rows]], piece, 0)
    order = np.lexsort((piece, ids[rows], entries["length"], entries["offset"], entries["location"]))
    base = manifest.all_starts.reshape(-1)[real[order]]
    manifest = replace(manifest, entries=entries[order], starts=None)  # releases the unsorted entries
    entries = manifest.entries
    rows = entries["encoding"]
    piece = piece[order]
    position = tuple(at[order] for at in position)
    del code, is_hole, real, order  # there may be 10^6 parts
    parts, low, high = _parts(selection, manifest.encodings, rows, base, position)
    _check_reach(array, selection, manifest.encodings, rows, low, high, position)
    chunks, parts = _chunks(array, selection, manifest, entries, ids[rows], piece, parts, low, high, tuple(table))
    return Plan(
        array.name,
        selection,
        chunks,
        parts,
        (of_hole, at_hole),
        tuple(table),
        manifest.locations,
        manifest.fills,
        manifest.inline,
    )


def _entries(array: ManifestArray, selection: Selection) -> ChunkManifest:
    """Return the entries of the selected cells; their shape is the number of segments along each axis of the result."""
    box = [_run(axis.cells) for axis in selection.axes]
    if not selection.joint and all(side is not None for side in box):
        return array.manifest.read(tuple(side for side in box if side is not None))
    places = selection.places
    shapes = selection.of_axes([[-1 if i == place else 1 for i in places] for place in places])
    cells = (axis.cells.reshape(shape) for axis, shape in zip(selection.axes, shapes, strict=True))
    return array.manifest.pick(tuple(cells))


def _run(cells: NDArray[np.intp]) -> slice | None:
    """Return cells as a slice if they are consecutive, else ``None``."""
    found = as_range(cells)
    return None if found is None or found.step != 1 else slice(found.start, found.stop)


def _parts(
    selection: Selection,
    encodings: tuple[ChunkEncoding, ...],
    rows: NDArray[np.uint32],
    base: NDArray[np.int64],
    position: tuple[NDArray[np.intp], ...],
) -> tuple[ChunkPart, NDArray[np.int64], NDArray[np.int64]]:
    """Return the parts, and the least and greatest element of the decoded chunk that each part uses."""
    n_axes = len(selection.axes)
    table = np.array([x.strides for x in encodings], np.int64).reshape(len(encodings), n_axes)
    steps = table[rows]
    low, high = np.zeros_like(base), np.zeros_like(base)
    for i, (axis, at) in enumerate(zip(selection.axes, position, strict=True)):
        base = base + axis.first[at] * steps[:, i]
        steps[:, i] *= axis.step[at]
        extent = (axis.count[at] - 1) * steps[:, i]
        low += np.minimum(extent, 0)
        high += np.maximum(extent, 0)
    return ChunkPart(base, steps, position), base + low, base + high


def _check_reach(
    array: ManifestArray,
    selection: Selection,
    encodings: tuple[ChunkEncoding, ...],
    rows: NDArray[np.uint32],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    position: tuple[NDArray[np.intp], ...],
) -> None:
    most = np.iinfo(np.int64).max  # forged metadata may promise more
    sizes = np.array([min(x.size, most) for x in encodings], np.int64)[rows]
    bad = (low < 0) | (high >= sizes)
    if bad.any():
        i = int(bad.argmax())
        cell = _cell(selection, tuple(at[i] for at in position))
        raise ManifestError(
            f"cell {cell} of variable '{array.name}' shows elements {int(low[i])} to {int(high[i])} of a decoded chunk "
            f"of {int(sizes[i])}: the manifest is damaged, scan the source again"
        )


def _are_members(
    locations: tuple[Location, ...],
    codes: NDArray[np.uint32],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return which chunks are members of an archive; they are fetched whole, as only a whole member can be checked."""
    found = np.zeros(codes.size, np.bool_)
    for row, location in enumerate(locations):
        if location.checksums is not None:
            here = np.flatnonzero(codes == row + FIRST)
            found[here] = location.checksums.members(offset[here], length[here]) >= 0
    return found


def _chunks(
    array: ManifestArray,
    selection: Selection,
    manifest: ChunkManifest,
    entries: NDArray[np.void],
    ids: NDArray[np.intp],
    piece: NDArray[np.intp],
    parts: ChunkPart,
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    decodings: tuple[Decoding, ...],
) -> tuple[StoredChunks, ChunkPart]:
    """Group parts, sorted by place in storage, by stored chunk; of raw chunks only the selected range is fetched."""
    n = entries.size
    is_new = begins_run(n, entries["location"], entries["offset"], entries["length"], ids, piece)
    first = np.flatnonzero(is_new)
    location, offset, length, rows = (
        entries["location"][first],
        entries["offset"][first],
        entries["length"][first],
        ids[first],
    )
    raw = np.array([x.is_raw for x in decodings], np.bool_)[rows] if n else np.zeros(0, np.bool_)
    if raw.any():
        itemsize = np.array([x.itemsize for x in decodings], np.int64)[rows]
        size = np.array([math.prod(x.shape) for x in decodings], np.int64)[rows]
        bad = raw & (length != size * itemsize)
        if bad.any():
            i = int(bad.argmax())
            decoding = decodings[rows[i]]
            raise undecodable(
                array.name,
                _cell(selection, tuple(at[first[i]] for at in parts.position)),
                (manifest.locations, int(location[i]), int(offset[i]), int(length[i])),
                f"it is stored uncompressed in {int(length[i])} bytes; {decoding.shape} of '{decoding.dtype}' are "
                f"{int(size[i] * itemsize[i])}",
                CodecError.remedy,
            )
        raw &= ~_are_members(manifest.locations, location, offset, length)
        least, greatest = np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)
        skipped = np.where(raw, least, 0)
        offset = offset + skipped * itemsize
        length = np.where(raw, (greatest - least + 1) * itemsize, length)
        base = parts.base - np.repeat(skipped, np.diff(first, append=n))
        parts = ChunkPart(base, parts.strides, parts.position)
    return StoredChunks(location, offset, length, rows, raw, np.append(first, n)), parts
