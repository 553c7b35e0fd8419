"""Read an array in the order of another chunk grid, within a budget of memory: each stored chunk is decoded once.

Parts of the array in which both grids end are read one after the other. A part that is larger than the budget is read
along its stored chunks, kept in a temporary file, and returned along the other grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests import ChunkAxis
from virtualstack.manifests.grid import union

type Box = tuple[slice, ...]
"""Elements from ``start`` to before ``stop`` along each axis."""

type Lines = Sequence[NDArray[np.int64]]
"""For each axis the elements at which something begins, followed by the end."""


def read_blocks(
    read: Callable[[Box], NDArray[Any]],
    region: Box,
    stored: Sequence[ChunkAxis],
    wanted: Sequence[ChunkAxis],
    most: int,
    /,
) -> Iterator[tuple[Box, NDArray[Any]]]:
    """Yield the values of a region in blocks of whole ``wanted`` chunks, which begin and end the region.

    ``read`` returns the values of a box. Each box that it is asked for, and each block, has at most ``most`` elements,
    or one wanted chunk.
    """
    lines, targets = _lines(stored, region), _lines(wanted, region)
    common = [np.intersect1d(a, b, assume_unique=True) for a, b in zip(lines, targets, strict=True)]
    for part in boxes(grouped(common, most)):
        if _size(part) <= most:
            yield part, read(part)
        else:
            own, other = ([_between(x, side) for x, side in zip(each, part, strict=True)] for each in (lines, targets))
            yield from _turned(read, _divided(own, most), grouped(other, most), most)


def _turned(
    read: Callable[[Box], NDArray[Any]], slabs: Lines, groups: Lines, most: int
) -> Iterator[tuple[Box, NDArray[Any]]]:
    """Yield the blocks of one grid from slabs of another one, by way of a temporary file."""
    blocks = list(boxes(groups))
    if len(blocks) == 1:
        yield blocks[0], read(blocks[0])
        return
    kept: list[list[tuple[int, Box]]] = [[] for _ in blocks]
    with TemporaryFile(prefix="virtualstack-") as file:
        for slab in boxes(grouped(slabs, most)):
            values = read(slab)
            for block, pieces in zip(blocks, kept, strict=True):
                both = meet(slab, block)
                if both is not None:
                    pieces.append((file.tell(), both))
                    file.write(np.ascontiguousarray(values[within(both, slab)]).reshape(-1).view(np.uint8))
            dtype = values.dtype
            del values
        for block, pieces in zip(blocks, kept, strict=True):
            out = np.empty([side.stop - side.start for side in block], dtype)
            for at, box in pieces:
                file.seek(at)
                own = out[within(box, block)]
                piece = own if own.flags.c_contiguous else np.empty(own.shape, dtype)
                file.readinto(piece.reshape(-1).view(np.uint8))
                if piece is not own:
                    own[...] = piece
            yield block, out


def boxes(lines: Lines, /) -> Iterator[Box]:
    """Yield the boxes between lines, in C order."""
    runs = [[slice(a, b) for a, b in itertools.pairwise(x.tolist())] for x in lines]
    return itertools.product(*runs)


def meet(a: Box, b: Box, /) -> Box | None:
    """Return what two boxes share, or ``None``."""
    both = tuple(slice(max(x.start, y.start), min(x.stop, y.stop)) for x, y in zip(a, b, strict=True))
    return both if all(side.start < side.stop for side in both) else None


def within(box: Box, outer: Box, /) -> Box:
    """Return a box of elements relative to the first element of another one."""
    return tuple(slice(x.start - y.start, x.stop - y.start) for x, y in zip(box, outer, strict=True))


def grouped(lines: Lines, most: int, /) -> Lines:
    """Drop lines, those of the last axes first, while no box between the others has more than ``most`` elements.

    >>> [x.tolist() for x in grouped([np.array([0, 2, 4]), np.array([0, 3, 6, 9])], 12)]
    [[0, 2, 4], [0, 6, 9]]
    """
    longest = [int(np.diff(x).max(initial=1)) for x in lines]
    size, found = math.prod(longest), list(lines)
    for axis in reversed(range(len(lines))):
        found[axis] = _merged(lines[axis], longest[axis] * max(most // size, 1))
        size = size // longest[axis] * int(np.diff(found[axis]).max(initial=1))
    return found


def _merged(lines: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    kept = [int(lines[0])]
    for before, line in itertools.pairwise(lines.tolist()):
        if line - kept[-1] > most and before > kept[-1]:
            kept.append(before)
    return np.array([*kept, int(lines[-1])], np.int64)


def _divided(lines: Lines, most: int) -> Lines:
    """Add lines, those of the first axes first, until no box between them has more than ``most`` elements."""
    longest = [int(np.diff(x).max(initial=1)) for x in lines]
    size, found = math.prod(longest), list(lines)
    for axis, n in enumerate(longest):
        if size > most:
            step = max(n * most // size, 1)
            found[axis] = union(lines[axis], np.arange(lines[axis][0], lines[axis][-1], step))
            size = size // n * step
    return found


def _lines(axes: Sequence[ChunkAxis], region: Box) -> Lines:
    return [_between(axis.lines(), side) for axis, side in zip(axes, region, strict=True)]


def _between(lines: NDArray[np.int64], side: slice) -> NDArray[np.int64]:
    return union(np.array([side.start, side.stop]), lines[(lines > side.start) & (lines < side.stop)])


def _size(box: Box) -> int:
    return math.prod(side.stop - side.start for side in box)
