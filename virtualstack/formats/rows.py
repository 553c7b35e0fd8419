"""Values that follow one another in C order, as chunks of whole rows: in one byte range, or in several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.location import Location
from virtualstack.manifests import (
    ENTRY,
    FIRST,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Chunks,
    Fill,
    Runs,
    Tile,
    place_tiles,
)
from virtualstack.sizes import chunk_byte_count, equal_chunk_length

_AUTO_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReader:
    """The option of readers that divide values which follow one another into chunks."""

    chunk_size: int | str | None = "auto"

    def __post_init__(self) -> None:
        self._most_bytes()  # raises an error if the size is not valid

    def _most_bytes(self) -> int | None:
        return chunk_byte_count(self.chunk_size, auto=_AUTO_CHUNK_BYTES)


def row_chunks(
    shape: Sequence[int], itemsize: int, chunk_size: int | None, /, *, is_equal: bool = False
) -> tuple[int, ...]:
    """Return the shape of chunks that are one byte range each: whole along the last axes, one element along the first.

    A length that divides the axis is preferred to a length up to four times as long, so that all chunks have one
    shape. With ``is_equal`` they always have: if no suitable length divides the axis, it stays whole.

    Examples
    --------
    >>> row_chunks((365, 180, 360), 4, 1 << 20), row_chunks((24, 1000), 8, 100_000), row_chunks((3, 1_003), 1, 500)
    ((1, 180, 360), (12, 1000), (1, 500))
    >>> row_chunks((365, 1000), 4, 100_000), row_chunks((365, 1000), 4, 100_000, is_equal=True)
    ((25, 1000), (5, 1000))
    """
    chunks, row = list(shape), math.prod(shape) * itemsize
    for axis, n in enumerate(shape):
        if chunk_size is None or row <= chunk_size:
            break
        row //= n
        most = max(chunk_size // row, 1)
        least = -(-most // (256 if is_equal else 4))
        chunks[axis] = equal_chunk_length(n, least, most) or (n if is_equal else most)
        if chunks[axis] > 1:
            break
    return tuple(chunks)


def place_rows(
    location: Location,
    offset: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    fill: Fill,
    /,
    *,
    record_step: int | None = None,
) -> Chunks:
    """Return the byte range of each chunk; records of several variables are ``record_step`` bytes apart."""
    grid = ChunkGrid.regular(shape, [max(n, 1) for n in chunks])
    cells = grid.shape
    if not math.prod(shape):
        return Chunks(ChunkManifest.empty(cells, fill), grid)
    entries = np.empty(cells, ENTRY)
    entries[...] = (FIRST, 0, offset, math.prod(chunks) * dtype.itemsize)
    encodings = [ChunkEncoding.c_order(dtype, chunks)]
    step = dtype.itemsize
    for axis in reversed(range(len(shape))):
        if cells[axis] > 1:
            _move(entries, axis, chunks[axis] * (record_step if axis == 0 and record_step else step))
        if shape[axis] % chunks[axis]:
            encodings.append(_cut_last(entries, axis, shape, chunks, dtype))
        step *= shape[axis]
    return Chunks(
        ChunkManifest(entries=entries, fills=(fill,), encodings=tuple(encodings), locations=(location,)), grid
    )


def _move(entries: NDArray[np.void], axis: int, step: int) -> None:
    """Move the chunks along an axis to their positions, ``step`` bytes apart."""
    offsets = np.arange(entries.shape[axis], dtype=np.int64) * step
    entries["offset"] += offsets.reshape(-1, *[1] * (entries.ndim - axis - 1))


def _cut_last(
    entries: NDArray[np.void], axis: int, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype[Any]
) -> ChunkEncoding:
    """Set encoding and length of the last chunks along the axis that chunks do not divide; return the encoding."""
    cut = (*chunks[:axis], shape[axis] % chunks[axis], *chunks[axis + 1 :])
    last = entries[(*[slice(None)] * axis, slice(-1, None))]
    last["encoding"], last["length"] = 1, math.prod(cut) * dtype.itemsize
    return ChunkEncoding.c_order(dtype, cut)


class Segment(NamedTuple):
    """A byte range that holds values in C order."""

    location: Location
    offset: int
    length: int


def place_segments(
    segments: Iterable[Segment],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fill: Fill,
    /,
    *,
    chunk_size: int | None = None,
) -> Chunks:
    """Return chunks of values that continue from each byte range to the next; cells end where ranges end.

    Raises
    ------
    CombineError
        Ranges end within rows so often that the cells would be too many.
    """
    tiles, first = [], 0
    for location, offset, length in segments:
        end = min(first + length // dtype.itemsize, math.prod(shape))
        for begin, box in _boxes(first, end, shape):
            at, inner = offset + (begin - first) * dtype.itemsize, tuple(runs.size for runs in box)
            chunks = row_chunks(inner, dtype.itemsize, chunk_size)
            tiles.append(Tile(place_rows(location, at, dtype, inner, chunks, fill), box))
        first = end
    return place_tiles(shape, tiles, fill).chunks


def _boxes(begin: int, end: int, shape: tuple[int, ...]) -> Iterator[tuple[int, tuple[Runs, ...]]]:
    """Divide elements that follow one another into boxes whose elements do, too; yield the first element of each."""
    if begin == end:
        return
    if not shape:
        yield 0, ()
        return
    row = math.prod(shape[1:])
    number, last = begin // row, end // row
    if begin % row or number == last:
        stop = min(end, (number + 1) * row)
        for at, inner in _boxes(begin - number * row, stop - number * row, shape[1:]):
            yield number * row + at, (Runs.one(number, 1), *inner)
    else:
        stop = last * row
        yield begin, (Runs.one(number, last - number), *(Runs.one(0, n) for n in shape[1:]))
    yield from _boxes(stop, end, shape)
