"""Decode fetched chunks into their places in the result; small equal pieces are placed many at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from virtualstack.codecs.pipeline import CodecError, Elementwise
from virtualstack.errors import ChunkDecodeError, Remedy, StorageError
from virtualstack.manifests.cells import outer
from virtualstack.reading.fetch import StoredBytes, named
from virtualstack.reading.plan import Decoding, Plan, Steps, strided, undecodable
from virtualstack.reading.selection import Selection
from virtualstack.storage import Bytes
from virtualstack.storage.coalesce import read_blocks

_MIN_PIECES = 8  # placing pieces together is faster from this number of pieces on
_SMALL_PIECE_BYTES = 1 << 13  # up to this size, copying a piece once more is faster than reading it separately
_LARGE_PIECE_BYTES = 1 << 18  # from this size on, the overhead for each piece hardly matters
_BATCH_BYTES = 1 << 20  # bytes that are placed together: they stay in the cache of the processor


def equal_pieces(plan: Plan, begin: int, end: int, out: NDArray[Any], /) -> list[tuple[int, int]]:
    """Find consecutive chunks of uncompressed values that differ only in their places."""
    chunks, axes, which = plan.chunks, plan.selection.axes, slice(begin, end)
    if end - begin < _MIN_PIECES or out.dtype.hasobject or any(axis.begin is None for axis in axes):
        return []
    fits = chunks.is_raw[which] & (chunks.length[which] <= _LARGE_PIECE_BYTES)
    if np.count_nonzero(fits) < _MIN_PIECES:
        return []
    first = chunks.first[begin : end + 1]
    part, fits = first[:-1], fits & (np.diff(first) == 1)
    alike = fits[1:] & fits[:-1]
    for values in (
        *(chunks.location[which], chunks.length[which], chunks.decoding[which]),
        *(plan.parts.base[part], *plan.parts.strides[part].T),
        *(axis.count[at[part]] for axis, at in zip(axes, plan.parts.position, strict=True)),
    ):
        alike &= values[1:] == values[:-1]
    edges = begin + np.flatnonzero(np.concatenate([[True], ~alike, [True]]))
    runs = [(a, b) for a, b in pairwise(edges.tolist()) if b - a >= _MIN_PIECES]
    most = [_BATCH_BYTES // max(chunks.length.item(a), 1) for a, _ in runs]
    return [(i, min(i + n, b)) for (a, b), n in zip(runs, most, strict=True) for i in range(a, b, n)]


def place_pieces(plan: Plan, begin: int, end: int, got: list[StoredBytes], out: NDArray[Any], /) -> None:
    """Write pieces that `equal_pieces` found to the result."""
    chunks, parts, axes = plan.chunks, plan.parts, plan.selection.axes
    part, places, joint = chunks.first[begin:end], plan.selection.places, plan.selection.joint
    offset, length = chunks.offset[begin:end], chunks.length.item(begin)
    decoding, base, strides = plan.decodings[chunks.decoding[begin]], parts.base.item(part[0]), parts.strides[part[0]]
    counts = [axis.count.item(at[part[0]]) for axis, at in zip(axes, parts.position, strict=True)]
    shape = [counts[i] for i in places]  # points are single elements along all their axes
    goal = [x[parts.position[i][part]] for i in places if (x := axes[i].begin) is not None]
    source = got[0]
    if isinstance(source, bytes | memoryview):
        raw: Bytes = b"".join(x for x in got if isinstance(x, bytes | memoryview))
    elif length > _SMALL_PIECE_BYTES and _is_stretch(decoding, shape, strides[list(places)].tolist(), out):
        whole = memoryview(out.reshape(-1).view(np.uint8))
        starts = np.stack(goal, axis=1) @ np.array(out.strides)
        for position, start in zip(offset.tolist(), starts.tolist(), strict=True):
            source.read_into(position, whole[start : start + length])
        return
    else:
        raw = read_blocks(source.read_ranges, offset, length).reshape(-1).data
    pitch = length // decoding.itemsize
    values = strided(decoding.numbers(raw), base, (end - begin, *counts), [pitch, *strides.tolist()])
    values = values.transpose(0, *(i + 1 for i in (*joint, *(i for i in range(len(axes)) if i not in joint))))
    _write(out, goal, decoding.elementwise(values.reshape(end - begin, *shape)))


def _is_stretch(decoding: Decoding, shape: list[int], strides: list[int], out: NDArray[Any]) -> bool:
    """Return whether the stored bytes of a piece are consecutive bytes of the result."""
    if not decoding.is_value or decoding.dtype != out.dtype:
        return False
    size = 1
    for n, stride, nbytes in zip(shape[::-1], strides[::-1], out.strides[::-1], strict=True):
        if n > 1 and (stride != size or nbytes != size * out.itemsize):
            return False
        size *= n
    return True


def _write(out: NDArray[Any], goal: list[NDArray[np.int64]], values: NDArray[Any]) -> None:
    """Write pieces: ``values[i]`` begins at index ``goal[axis][i]`` of each axis."""
    item = np.dtype((np.void, out.itemsize))  # strided views would change compounds
    last = [n - m + 1 for n, m in zip(out.shape, values.shape[1:], strict=True)]
    windows = as_strided(out.view(item), (*last, *values.shape[1:]), out.strides * 2)
    windows[tuple(goal)] = values.astype(out.dtype, copy=False).view(item)


# from this number of EMPTY and ABSENT cells on, the most frequent fill is written everywhere first
_MIN_COMMON_HOLES = 64
# from this number of parts on, the parts of a chunk that are single elements are written together
_MIN_TOGETHER_PARTS = 16
_LARGE_CHUNK_BYTES = 16 << 20  # from this size on, threads do not keep the memory into which they read a chunk
_UNPACKED_BYTES = 1 << 18  # bytes of numbers that steps unpack at a time
_SCRATCH = threading.local()


def fill_holes(plan: Plan, out: NDArray[Any], steps: Steps, /) -> None:
    """Write the fill values of all chunks that are not stored.

    If there are many, the most frequent fill value is written everywhere first.
    """
    rows, position = plan.holes
    if not rows.size:
        return

    def value(row: int) -> Any:
        fill = plan.fills[row]
        return reduce(lambda x, step: step(x), steps, np.full(1, fill.value, fill.dtype))[0] if steps else fill.value

    if rows.size > _MIN_COMMON_HOLES:
        common = int(np.bincount(rows).argmax())
        out[...] = value(common)
        other = np.flatnonzero(rows != common)
        rows, position = rows[other], tuple(at[other] for at in position)
    places = [[plan.selection.axes[axis].target(i) for i in position[axis]] for axis in plan.selection.places]
    for i, row in enumerate(rows.tolist()):
        out[outer([place[i] for place in places])] = value(row)


class _Lists(NamedTuple):
    """The columns of a batch: the decoding and the first part of each chunk, and what each part has."""

    decoding: list[int]
    parts: list[int]
    base: list[int]
    strides: list[list[int]]
    position: list[list[int]]
    counts: list[list[int]]
    goal: list[list[int] | None]


class DecodeBatch:
    """Stored chunks that were fetched together; any thread can decode them and write them to the result."""

    def __init__(self, plan: Plan, begin: int, end: int, got: list[StoredBytes], out: NDArray[Any]) -> None:
        self._plan = plan
        self._begin = begin
        self._end = end
        self._got = got
        self._out = out
        self._places = plan.selection.places
        self.nbytes = int(plan.chunks.length[begin:end].sum())

    @cached_property
    def _lists(self) -> _Lists:
        """Return lists, whose elements take less time than those of arrays; pieces placed at once need none."""
        plan = self._plan
        first = plan.chunks.first[self._begin : self._end + 1].tolist()
        which = slice(first[0], first[-1])
        axes, position = plan.selection.axes, plan.parts.position
        begins = [(axes[i].begin, position[i][which]) for i in self._places]
        return _Lists(
            plan.chunks.decoding[self._begin : self._end].tolist(),
            first,
            plan.parts.base[which].tolist(),
            plan.parts.strides[which].tolist(),
            [at[which].tolist() for at in position],
            [axis.count[at[which]].tolist() for axis, at in zip(axes, position, strict=True)],
            [None if begin is None else begin[at].tolist() for begin, at in begins],
        )

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield first and last (exclusive) of the chunks that `place` takes at once, in order."""
        begin, end = self._begin, self._begin + len(self._got)
        for run in (*equal_pieces(self._plan, begin, end, self._out), (end, end)):
            yield from ((chunk, chunk + 1) for chunk in range(begin, run[0]))
            if run[0] < end:
                yield run
            begin = run[1]

    def place(self, begin: int, end: int, /) -> None:
        """Decode stored chunks and write their selected elements to the result."""
        if end > begin + 1:
            got = self._got[begin - self._begin : end - self._begin]
            # the error is raised below, with the single chunk that caused it
            with contextlib.suppress(CodecError, StorageError):
                place_pieces(self._plan, begin, end, got, self._out)
                return
        for chunk in range(begin, end):
            self._place_chunk(chunk)

    def _place_chunk(self, chunk: int) -> None:
        at = chunk - self._begin
        decoding = self._plan.decodings[self._lists.decoding[at]]
        got = self._got[at]
        try:
            takes_out = decoding.takes_out
            target = self._target_of_all_bytes(at, decoding) if decoding.is_raw or takes_out else None
            if not isinstance(got, bytes | memoryview):
                offset, length = self._plan.chunks.offset.item(chunk), self._plan.chunks.length.item(chunk)
                if target is not None and decoding.is_raw:
                    got.read_into(offset, target.data)
                    return
                scratch = _scratch("stored", length)
                got.read_into(offset, scratch)
                got = scratch
            if target is not None and target.size != decoding.nbytes:
                target = None
            if target is None and takes_out:
                flat = decoding.numbers(got, np.frombuffer(_scratch("decoded", decoding.nbytes), np.uint8))
            else:
                flat = decoding.numbers(got, target)
            if target is None or not np.may_share_memory(flat, target):
                self._place(at, flat, decoding.elementwise)
        except CodecError as error:
            raise _does_not_decode(self._plan, chunk, str(error), error.remedy) from error
        except MemoryError as error:  # a chunk may decode to much more than the array shows of it
            why = f"there is no memory for its {decoding.nbytes} bytes"
            remedies = CodecError.remedy, Remedy("read it where there is more")
            raise _does_not_decode(self._plan, chunk, why, *remedies) from error
        except StorageError as error:
            raise named(self._plan, chunk, error) from error

    def _place(self, chunk: int, flat: NDArray[Any], unpack: Elementwise) -> None:
        """Write the selected elements of a chunk; others are not unpacked, since they may be beyond the array."""
        zero, begin, end = self._lists.parts[0], self._lists.parts[chunk], self._lists.parts[chunk + 1]
        parts: Any = range(begin - zero, end - zero)
        if end - begin > _MIN_TOGETHER_PARTS and self._lists.counts:
            parts = (_place_elements(self._plan, begin, end, flat, unpack, self._out) - zero).tolist()
        axes = self._plan.selection.axes
        for part in parts:
            position = [at[part] for at in self._lists.position]
            shape = tuple([count[part] for count in self._lists.counts])
            view = strided(flat, self._lists.base[part], shape, self._lists.strides[part])
            sources = [axis.source(i) for axis, i in zip(axes, position, strict=True)]
            if self._plan.selection.joint:
                view = _points(view, self._plan.selection, sources)
            elif any(source is not None for source in sources):
                view = view[outer([slice(0, n) if x is None else x for x, n in zip(sources, shape, strict=True)])]
            target = self._target(part)
            if all(isinstance(item, slice) for item in target):
                unpack_into(self._out[(*target, ...)], view, unpack)
            else:
                self._out[target] = unpack(view)

    def _target(self, part: int) -> tuple[Any, ...]:
        key: list[slice | NDArray[np.int64]] = []
        for i, goal in zip(self._places, self._lists.goal, strict=True):
            if goal is None:
                key.append(self._plan.selection.axes[i].target(self._lists.position[i][part]))
            else:
                key.append(slice(goal[part], goal[part] + self._lists.counts[i][part]))
        return outer(key)

    def _target_of_all_bytes(self, chunk: int, decoding: Decoding) -> NDArray[np.uint8] | None:
        """Return the bytes of the result that equal the decoded bytes of a chunk; ``None`` if there are none."""
        part, end = self._lists.parts[chunk] - self._lists.parts[0], self._lists.parts[chunk + 1] - self._lists.parts[0]
        if self._plan.selection.joint or end != part + 1 or self._lists.base[part]:
            return None
        shape = [count[part] for count in self._lists.counts]
        if None in self._lists.goal or not _is_stretch(decoding, shape, self._lists.strides[part], self._out):
            return None
        target = self._out[(*self._target(part), ...)]  # a view, also if there are no axes
        return target.reshape(-1).view(np.uint8)


def unpack_into(out: NDArray[Any], numbers: NDArray[Any], unpack: Elementwise, /) -> None:
    """Write the values of numbers, some at a time: what steps make in between stays in the cache of the processor."""
    if not unpack.steps or numbers.nbytes <= _UNPACKED_BYTES:
        out[...] = unpack(numbers)
        return
    axis = next(i for i, n in enumerate(numbers.shape) if n > 1)
    half = numbers.shape[axis] // 2
    for part in (slice(half), slice(half, None)):
        key = (*[slice(None)] * axis, part)
        unpack_into(out[key], numbers[key], unpack)


def _scratch(name: str, length: int) -> memoryview:
    """Return a buffer of this thread for the bytes of a chunk: new memory costs a page fault every 4 KiB."""
    if length > _LARGE_CHUNK_BYTES:
        return memoryview(np.empty(length, np.uint8))
    buffer: bytearray | None = getattr(_SCRATCH, name, None)
    if buffer is None or not length <= len(buffer) <= max(4 * length, 1 << 20):
        buffer = bytearray(max(length, 1 << 16))
        setattr(_SCRATCH, name, buffer)
    return memoryview(buffer)[:length]


def _does_not_decode(plan: Plan, chunk: int, why: str, *remedies: Remedy) -> ChunkDecodeError:
    chunks = plan.chunks
    stored = plan.locations, int(chunks.location[chunk]), int(chunks.offset[chunk]), int(chunks.length[chunk])
    return undecodable(plan.name, plan.cell(chunk), stored, why, *remedies)


def _place_elements(
    plan: Plan, begin: int, end: int, flat: NDArray[Any], unpack: Elementwise, out: NDArray[Any]
) -> NDArray[np.intp]:
    """Write all parts that are single elements at once; return the numbers of all other parts."""
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
    """Take points of a view: the axis of the points comes first, then all axes that are not indexed by points."""
    joint = selection.joint
    others = [i for i in range(view.ndim) if i not in joint]
    single = np.zeros(1, np.int64)
    indexes = [single if (source := sources[axis]) is None else source for axis in joint]
    return view.transpose(*joint, *others)[tuple(indexes)]
