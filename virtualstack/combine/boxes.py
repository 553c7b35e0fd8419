"""Boxes of elements: begin and end an axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Box", "bounding", "clipped", "find_boxes", "grown", "merged"]

type Box = tuple[tuple[int, int], ...]


def grown(before: Sequence[int], after: Sequence[int], /) -> list[Box]:
    """Give what a shape has beyond another one, in boxes that do not overlap.

    >>> grown((4, 5), (6, 5))
    [((4, 6), (0, 5))]
    """
    found: list[Box] = []
    inner = [(0, n) for n in after]
    for axis, (n, m) in enumerate(zip(before, after, strict=True)):
        if m > n:
            found.append((*inner[:axis], (n, m), *inner[axis + 1 :]))
        inner[axis] = (0, min(n, m))
    return [box for box in found if all(a < b for a, b in box)]


def clipped(boxes: Iterable[Box], shape: Sequence[int], /) -> list[Box]:
    """Give the parts of boxes that lie in a shape.

    >>> clipped([((2, 6),), ((5, 7),)], (4,))
    [((2, 4),)]
    """
    cut = (tuple((a, min(b, n)) for (a, b), n in zip(box, shape, strict=True)) for box in boxes)
    return [box for box in cut if all(a < b for a, b in box)]


def merged(boxes: Iterable[Box], /) -> list[Box]:
    """Put boxes together that touch or overlap along one axis and are equal along the others; sorted.

    >>> merged([((4, 5), (0, 3)), ((0, 4), (0, 3)), ((7, 8), (0, 3))])
    [((0, 5), (0, 3)), ((7, 8), (0, 3))]
    """
    found = sorted(set(boxes))
    for axis in range(len(found[0]) if found else 0):
        found.sort(key=lambda box: (box[:axis], box[axis + 1 :], box[axis]))
        joined: list[Box] = []
        for box in found:
            last = joined[-1] if joined else None
            if (
                last is not None
                and last[:axis] == box[:axis]
                and last[axis + 1 :] == box[axis + 1 :]
                and box[axis][0] <= last[axis][1]
            ):
                stop = max(last[axis][1], box[axis][1])
                joined[-1] = (*last[:axis], (last[axis][0], stop), *last[axis + 1 :])
            else:
                joined.append(box)
        found = joined
    return sorted(found)


def bounding(differ: NDArray[np.bool_], /) -> list[Box]:
    """Give the least box that holds all elements that are true; none where none is.

    >>> bounding(np.array([False, True, False, True]))
    [((1, 4),)]
    """
    if not differ.any():
        return []
    return [tuple((int(where.min()), int(where.max()) + 1) for where in np.nonzero(differ))] if differ.ndim else [()]


def find_boxes(mask: NDArray[np.bool_], /) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Give boxes, first cells and last cells and one more, that hold what is marked and nothing else.

    >>> list(find_boxes(np.array([[True, True], [True, True], [False, True]])))
    [((0, 0), (2, 2)), ((2, 1), (3, 2))]
    """
    if not mask.ndim or mask.all():
        if mask.size and mask.all():
            yield (0,) * mask.ndim, mask.shape
        return
    rows = mask.reshape(len(mask), -1)
    lines = [0, *(np.flatnonzero((rows[1:] != rows[:-1]).any(1)) + 1).tolist(), len(mask)]
    for begin, end in itertools.pairwise(lines):
        if mask.ndim == 1:
            if mask[begin]:
                yield (begin,), (end,)
        else:
            for low, high in find_boxes(mask[begin]):
                yield (begin, *low), (end, *high)
