"""Which values of a coordinate are in which files: what is missing, what is there twice, what interleaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Gap", "Shared", "count_shared", "find_gaps", "find_interleaved"]

_MIN_REGULAR_SHARE = 0.9
_MAX_DEVIATION = 0.15
_MAX_PAIRS = 1 << 19
"""Pairs of parts that are told, each as often as they have a value in common."""


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
    is_usual = np.abs(steps - usual) <= _MAX_DEVIATION * usual
    at = np.flatnonzero(steps > 1.5 * usual)
    if (
        np.count_nonzero(is_usual) + at.size < _MIN_REGULAR_SHARE * steps.size
        or np.count_nonzero(is_usual) * 2 < steps.size
    ):
        return None
    ends = zip(values[at].tolist(), values[at + 1].tolist(), strict=True)
    step = Fraction(usual)
    return [Gap(after, before, round((Fraction(before) - Fraction(after)) / step) - 1) for after, before in ends]


def _steps(values: NDArray[Any]) -> NDArray[np.float64]:
    """Subtract neighbours in rising order; integers modulo 2^64, which is right however far they lie apart."""
    if values.dtype.kind in "iu":
        whole = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
        return np.diff(whole).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.diff(values).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Shared:
    """Values that parts have in common.

    Parameters
    ----------
    counts
        How many different values two parts have in common, by the numbers of the parts, the lower one first. Of a part
        with itself: how many values it has again.
    has_all
        Whether all pairs are there; else each part is with the nearest one before it, and the nearest one after it,
        that it has values in common with.
    """

    counts: dict[tuple[int, int], int]
    has_all: bool


def count_shared(parts: Sequence[NDArray[Any]], /, most: int = _MAX_PAIRS) -> Shared:
    """Count the values that parts have in common.

    >>> count_shared([np.array([1, 2, 3]), np.array([3, 4, 4]), np.array([1, 3])]).counts
    {(0, 1): 1, (0, 2): 2, (1, 2): 1, (1, 1): 1}
    """
    if not parts:
        return Shared({}, True)
    n = len(parts)
    numbers = np.concatenate(parts)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    part = np.repeat(np.arange(n), [len(x) for x in parts])[order]
    is_same = numbers[1:] == numbers[:-1]
    is_again = is_same & (part[1:] == part[:-1])
    again = np.bincount(part[1:][is_again], minlength=n).tolist()
    is_first = np.append(True, ~is_again)  # of its part
    value, part = np.append(0, np.cumsum(~is_same))[is_first], part[is_first]
    is_shared = value[1:] == value[:-1]
    is_shared = np.append(is_shared, False) | np.append(False, is_shared)
    value, part = value[is_shared], part[is_shared]
    n_parts = np.unique(value, return_counts=True)[1]
    has_all = int(np.sum(n_parts * (n_parts - 1) // 2)) <= most
    if has_all:
        counts = _count_pairs(value, part, n)
    else:
        own = np.split(value[np.argsort(part, kind="stable")], np.cumsum(np.bincount(part, minlength=n))[:-1])
        counts = {(i, j): _count_common(own[i], own[j]) for i, j in _nearest(value, part, n)}
    return Shared(counts | {(i, i): count for i, count in enumerate(again) if count}, has_all)


def _count_pairs(value: NDArray[np.intp], part: NDArray[np.intp], n: int) -> dict[tuple[int, int], int]:
    """Count how often two parts have the same value, given both in the order of values, then of parts."""
    pairs = []
    at = np.arange(len(value))
    for lag in range(1, len(value)):
        at = at[: np.searchsorted(at, len(value) - lag)]
        at = at[value[at] == value[at + lag]]
        if not at.size:
            break
        pairs.append(part[at] * n + part[at + lag])
    found, counts = np.unique(np.concatenate([np.zeros(0, np.intp), *pairs]), return_counts=True)
    return {divmod(pair, n): count for pair, count in zip(found.tolist(), counts.tolist(), strict=True)}


def _nearest(value: NDArray[np.intp], part: NDArray[np.intp], n: int) -> list[tuple[int, int]]:
    """Pair each part with the nearest before, and after it, that has one of its values."""
    is_pair = value[1:] == value[:-1]
    left, right = part[:-1][is_pair], part[1:][is_pair]
    before, after = np.full(n, -1), np.full(n, n)
    np.maximum.at(before, right, left)
    np.minimum.at(after, left, right)
    pairs = {(i, j) for i, j in enumerate(after.tolist()) if j < n}
    return sorted(pairs | {(i, j) for j, i in enumerate(before.tolist()) if i >= 0})


def _count_common(a: NDArray[Any], b: NDArray[Any]) -> int:
    """Count what two rising arrays have in common, in the time of the shorter one."""
    few, many = (a, b) if len(a) < len(b) else (b, a)
    at = np.minimum(np.searchsorted(many, few), len(many) - 1)
    return int(np.count_nonzero(many[at] == few))


def find_interleaved(parts: Sequence[NDArray[Any]], /) -> list[tuple[int, int]]:
    """Find parts, in the order of their least numbers, that begin before an earlier one has ended, with none in both.

    Each is paired with the one that ends last.

    >>> find_interleaved([np.array([0, 9]), np.array([1, 2]), np.array([4, 12]), np.array([13])])
    [(0, 1), (0, 2)]
    """
    spans = sorted((_plain(part.min()), i, _plain(part.max())) for i, part in enumerate(parts))
    found: list[tuple[int, int]] = []
    latest: tuple[Any, int] | None = None  # the greatest end so far, and whose it is
    risen: tuple[int, NDArray[Any]] = -1, np.zeros(0)  # values of that one
    for begin, i, end in spans:
        if latest is not None and begin < latest[0]:
            if risen[0] != latest[1]:
                risen = latest[1], np.sort(parts[latest[1]])
            if not _count_common(np.sort(parts[i]), risen[1]):
                found.append((latest[1], i))
        if latest is None or end > latest[0]:
            latest = end, i
    return found


def _plain(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number
