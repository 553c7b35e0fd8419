"""Fetched chunks to their places in the result."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.pipeline import CodecError, Elementwise
from virtualstack.errors import ChunkDecodeError, StorageError
from virtualstack.reading.decoding import Decoding, strided
from virtualstack.reading.fetch import StoredBytes, named
from virtualstack.reading.pieces import equal_pieces, place_pieces
from virtualstack.reading.plan import DAMAGED, Plan, undecodable
from virtualstack.reading.selection import Selection

__all__ = ["DecodeBatch", "fill_holes"]

_MANY_HOLES = 64
_MANY_ELEMENTS = 16  # parts of a chunk from which on those that are single elements are written together
_LARGE_CHUNK_BYTES = 16 << 20  # bytes of a chunk from which on threads do not keep the memory that they read it into
_SCRATCH = threading.local()


def fill_holes(plan: Plan, out: NDArray[Any], /) -> None:
    """Write the fills of all holes; where there are many, the most frequent one goes everywhere first."""
    rows, position = plan.holes
    if not rows.size:
        return
    fills = plan.fills
    if rows.size > _MANY_HOLES:
        common = int(np.bincount(rows).argmax())
        out[...] = fills[common].value
        other = np.flatnonzero(rows != common)
        rows, position = rows[other], tuple(at[other] for at in position)
    places = [[plan.selection.axes[axis].target(i) for i in position[axis]] for axis in plan.selection.places]
    for i, row in enumerate(rows.tolist()):
        out[_outer(tuple(place[i] for place in places))] = fills[row].value


class DecodeBatch:
    """Stored chunks that were fetched together, to be decoded and written to the result from any thread.

    Parameters
    ----------
    plan
        What they are, and where they go.
    begin, end
        Numbers of the chunks.
    got
        What was fetched of each.
    out
        Result, with an axis for each axis of the array.
    """

    def __init__(self, plan: Plan, begin: int, end: int, got: list[StoredBytes], out: NDArray[Any]) -> None:
        self._plan = plan
        self._begin = begin
        self._got = got
        self._out = out
        self._decoding = plan.chunks.decoding[begin:end].tolist()
        self._parts = plan.chunks.first[begin : end + 1].tolist()
        which = slice(self._parts[0], self._parts[-1])
        self._base = plan.parts.base[which].tolist()
        self._strides = plan.parts.strides[which].tolist()
        self._position = [at[which].tolist() for at in plan.parts.position]
        self.nbytes = int(plan.chunks.length[begin:end].sum())
        self._places = plan.selection.places
        axes, position = plan.selection.axes, plan.parts.position
        self._count = [axis.count[at[which]].tolist() for axis, at in zip(axes, position, strict=True)]
        begins = [(axes[i].begin, position[i][which]) for i in self._places]
        self._goal = [None if begin is None else begin[at].tolist() for begin, at in begins]

    def runs(self) -> Iterator[tuple[int, int]]:
        """Give first and last, not included, of the chunks that `place` takes at once; in order."""
        begin, end = self._begin, self._begin + len(self._got)
        for run in (*equal_pieces(self._plan, begin, end, self._out), (end, end)):
            yield from ((chunk, chunk + 1) for chunk in range(begin, run[0]))
            if run[0] < end:
                yield run
            begin = run[1]

    def place(self, begin: int, end: int, /) -> None:
        """Decode stored chunks and write all that the selection shows of them.

        Raises
        ------
        StorageError
            Bytes cannot be read, or do not decode (`ChunkDecodeError`).
        """
        if end > begin + 1:
            got = self._got[begin - self._begin : end - self._begin]
            with contextlib.suppress(CodecError, StorageError):  # it is said of a single chunk what is wrong
                place_pieces(self._plan, begin, end, got, self._out)
                return
        for chunk in range(begin, end):
            self._place_chunk(chunk)

    def _place_chunk(self, chunk: int) -> None:
        at = chunk - self._begin
        decoding = self._plan.decodings[self._decoding[at]]
        got = self._got[at]
        try:
            if isinstance(got, bytes | memoryview):
                self._place(at, decoding.numbers(got), decoding.elementwise)
                return
            offset, length = self._plan.chunks.offset.item(chunk), self._plan.chunks.length.item(chunk)
            target = self._target_of_all_bytes(at, decoding)
            if target is not None:
                got.read_into(offset, target)
                return
            scratch = _scratch(length)
            got.read_into(offset, scratch)
            self._place(at, decoding.numbers(scratch), decoding.elementwise)
        except CodecError as error:
            raise _does_not_decode(self._plan, chunk, f"{error}. {error.remedy or DAMAGED}") from error
        except MemoryError as error:  # a chunk may show little of what it decodes to
            why = f"there is no memory for its {decoding.nbytes} bytes. {DAMAGED}, or read it where there is more"
            raise _does_not_decode(self._plan, chunk, why) from error
        except StorageError as error:
            raise named(self._plan, chunk, error) from error

    def _place(self, chunk: int, flat: NDArray[Any], unpack: Elementwise) -> None:
        """Write what is shown of a chunk; only that is unpacked, as numbers beyond the array need not mean anything."""
        zero, begin, end = self._parts[0], self._parts[chunk], self._parts[chunk + 1]
        parts: Any = range(begin - zero, end - zero)
        if end - begin > _MANY_ELEMENTS and self._count:
            parts = (_place_elements(self._plan, begin, end, flat, unpack, self._out) - zero).tolist()
        axes = self._plan.selection.axes
        for part in parts:
            position = [at[part] for at in self._position]
            shape = tuple([count[part] for count in self._count])
            view = strided(flat, self._base[part], shape, self._strides[part])
            sources = [axis.source(i) for axis, i in zip(axes, position, strict=True)]
            if self._plan.selection.joint:
                view = _points(view, self._plan.selection, sources)
            elif any(source is not None for source in sources):
                view = view[_outer(tuple(slice(0, n) if x is None else x for x, n in zip(sources, shape, strict=True)))]
            self._out[self._target(part)] = unpack(view)

    def _target(self, part: int) -> tuple[Any, ...]:
        key: list[slice | NDArray[np.int64]] = []
        for i, goal in zip(self._places, self._goal, strict=True):
            if goal is None:
                key.append(self._plan.selection.axes[i].target(self._position[i][part]))
            else:
                key.append(slice(goal[part], goal[part] + self._count[i][part]))
        return _outer(tuple(key))

    def _target_of_all_bytes(self, chunk: int, decoding: Decoding) -> memoryview | None:
        """Give the stretch of the result that the bytes of a chunk are, as they are; ``None`` where there is none."""
        part, end = self._parts[chunk] - self._parts[0], self._parts[chunk + 1] - self._parts[0]
        if (
            self._plan.selection.joint
            or end != part + 1
            or not decoding.is_plain
            or decoding.dtype != self._out.dtype
            or self._base[part]
        ):
            return None
        if any(axis.begin is None for axis in self._plan.selection.axes):
            return None
        step = 1
        for count, stride in zip(self._count[::-1], self._strides[part][::-1], strict=True):
            if count[part] != 1 and stride != step:
                return None
            step *= count[part]
        target = self._out[(*self._target(part), ...)]  # a view, also where there are no axes
        if not target.flags.c_contiguous:
            return None
        return memoryview(target.reshape(-1).view(np.uint8))


def _scratch(length: int) -> memoryview:
    """Give bytes of this thread to read a chunk into: fresh memory for each would cost a page fault every 4 KiB."""
    if length > _LARGE_CHUNK_BYTES:
        return memoryview(np.empty(length, np.uint8))
    buffer: bytearray | None = getattr(_SCRATCH, "buffer", None)
    if buffer is None or not length <= len(buffer) <= max(4 * length, 1 << 20):
        buffer = _SCRATCH.buffer = bytearray(max(length, 1 << 16))
    return memoryview(buffer)[:length]


def _does_not_decode(plan: Plan, chunk: int, why: str) -> ChunkDecodeError:
    chunks = plan.chunks
    stored = plan.locations, int(chunks.location[chunk]), int(chunks.offset[chunk]), int(chunks.length[chunk])
    return undecodable(plan.name, plan.cell(chunk), stored, why)


def _place_elements(
    plan: Plan, begin: int, end: int, flat: NDArray[Any], unpack: Elementwise, out: NDArray[Any]
) -> NDArray[np.intp]:
    """Write those of some parts that are single elements, all at once; give the numbers of all others."""
    axes, position = plan.selection.axes, [at[begin:end] for at in plan.parts.position]
    is_single = np.ones(end - begin, np.bool_)
    for axis, at in zip(axes, position, strict=True):
        is_single &= axis.count[at] == 1
    places = []
    for place in plan.selection.places:
        goal = axes[place].begin
        if goal is None:
            return np.arange(begin, end)
        places.append(goal[position[place]])
    if is_single.any():
        out[tuple(at[is_single] for at in places)] = unpack(flat[plan.parts.base[begin:end][is_single]])
    return begin + np.flatnonzero(~is_single)


def _points(view: NDArray[Any], selection: Selection, sources: Sequence[NDArray[np.int64] | None]) -> NDArray[Any]:
    """Take points of a view: their axis comes first, then all that are not theirs."""
    joint = selection.joint
    others = [i for i in range(view.ndim) if i not in joint]
    single = np.zeros(1, np.int64)
    indexes = [single if (source := sources[axis]) is None else source for axis in joint]
    return view.transpose(*joint, *others)[tuple(indexes)]


def _outer(key: tuple[slice | NDArray[np.int64], ...]) -> tuple[Any, ...]:
    """Write slices and index arrays as a key that numpy reads as an outer product."""
    arrays = [i for i, item in enumerate(key) if not isinstance(item, slice)]
    if len(arrays) < 2:
        return key
    # Slices between arrays would move axes: make arrays of all.
    return np.ix_(*(_whole(item) for item in key))


def _whole(item: slice | NDArray[np.int64]) -> NDArray[np.int64]:
    return item if not isinstance(item, slice) else np.arange(item.start, item.stop)
