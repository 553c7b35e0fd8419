"""Which values of a coordinate are in which files: what is missing, what is there twice, what interleaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Gap", "count_shared", "find_gaps", "find_interleaved"]

_REGULAR = 0.9
_NEAR = 0.15


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing steps between two values that follow each other.

    Parameters
    ----------
    after, before
        Numbers of the values.
    n_steps
        Steps that are missing, about where steps are not all equal (months).
    """

    after: float
    before: float
    n_steps: int


def find_gaps(numbers: NDArray[Any], /) -> list[Gap] | None:
    """Find missing steps in regularly spaced numbers of any order.

    ``None`` where they are not regularly spaced, or two, whose one step may be any. Months of 28 to 31 days count as
    regular.

    >>> find_gaps(np.array([0, 1, 2, 3, 6, 7, 8]))
    [Gap(after=3, before=6, n_steps=2)]
    """
    values = np.unique(numbers)
    if values.size < 2:
        return []
    steps = _steps(values)
    usual = float(np.median(steps))
    if steps.size < 2 or not np.isfinite(usual):
        return None
    is_usual = np.abs(steps - usual) <= _NEAR * usual
    at = np.flatnonzero(steps > 1.5 * usual)
    if np.count_nonzero(is_usual) + at.size < _REGULAR * steps.size or np.count_nonzero(is_usual) * 2 < steps.size:
        return None
    return [Gap(values[i].item(), values[i + 1].item(), round(float(steps[i] / usual)) - 1) for i in at.tolist()]


def _steps(values: NDArray[Any]) -> NDArray[np.float64]:
    """Subtract neighbours in rising order; integers modulo 2^64, which is right however far they lie apart."""
    if values.dtype.kind in "iu":
        whole = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
        return np.diff(whole).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.diff(values).astype(np.float64)


def count_shared(parts: Sequence[NDArray[Any]], /) -> dict[tuple[int, int], int]:
    """Count the values that two parts have in common, by the numbers of the parts.

    Of several parts with a value, each is paired with the first one. A part that has values more than once is paired
    with itself.

    >>> count_shared([np.array([1, 2, 3]), np.array([3, 4, 4])])
    {(0, 1): 1, (1, 1): 1}
    """
    if not parts:
        return {}
    value = np.unique(np.concatenate(parts), return_inverse=True)[1]
    part = np.repeat(np.arange(len(parts)), [len(x) for x in parts])
    order = np.lexsort((part, value))
    value, part = value[order], part[order]
    is_first = np.append(True, value[1:] != value[:-1])
    first = part[is_first][np.cumsum(is_first) - 1]
    is_within = np.append(False, part[1:] == part[:-1]) & ~is_first
    is_again = ~is_first & (is_within | (first != part))
    pairs = np.stack([np.where(is_within, part, first), part], 1)[is_again]
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    return {(i, j): n for (i, j), n in zip(found.tolist(), counts.tolist(), strict=True)}


def find_interleaved(parts: Sequence[NDArray[Any]], /) -> list[tuple[int, int]]:
    """Find parts, in the order of their least numbers, that begin before an earlier one has ended.

    Each is paired with the one that ends last.

    >>> find_interleaved([np.array([0, 9]), np.array([1, 2]), np.array([4, 12]), np.array([13])])
    [(0, 1), (0, 2)]
    """
    spans = sorted((part.min().item(), i, part.max().item()) for i, part in enumerate(parts))
    found: list[tuple[int, int]] = []
    latest: tuple[Any, int] | None = None  # the greatest end so far, and whose it is
    for begin, i, end in spans:
        if latest is not None and begin < latest[0]:
            found.append((latest[1], i))
        if latest is None or end > latest[0]:
            latest = end, i
    return found
