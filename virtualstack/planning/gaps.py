"""Missing steps between values that should be regularly spaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.planning.labels import Labels, in_a_row, kind_of, numbers_of, usable

_MIN_REGULAR_SHARE = 0.9
_MAX_DEVIATION = 0.15
_MIN_OTHER_STEPS = 3
"""Number of longer steps at an end from which they are another step of the series."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing steps between two values that follow each other."""

    after: float
    before: float
    n_steps: int


def find_gaps(numbers: NDArray[Any], /) -> list[Gap] | None:
    """Return the missing steps in regularly spaced numbers, which may be in any order.

    The result is ``None`` if the numbers are not regularly spaced, or are only two, which define no usual step. Months
    of 28 to 31 days count as regular. Several longer steps at an end are no gaps: forecasts have an hour between their
    first steps, and three hours between the last ones.

    >>> find_gaps(np.array([0, 1, 2, 3, 6, 7, 8]))
    [Gap(after=3, before=6, n_steps=2)]
    >>> find_gaps(np.array([0, 1, 2, 3, 4, 6, 7, 10, 13, 16]))
    [Gap(after=4, before=6, n_steps=1)]
    """
    values, _ = np.unique(numbers, return_index=True)  # this sorts; else numpy hashes, a hundred times slower for times
    if values.size < 2:
        return []
    steps = _steps(values)
    usual = float(np.median(steps))
    if steps.size < 2 or not np.isfinite(usual):
        return None
    is_usual = np.abs(steps - usual) <= _MAX_DEVIATION * usual
    is_long = steps > 1.5 * usual
    rest = np.flatnonzero(~is_long)
    at = np.flatnonzero(is_long)
    if (
        np.count_nonzero(is_usual) + at.size < _MIN_REGULAR_SHARE * steps.size
        or np.count_nonzero(is_usual) * 2 < steps.size
    ):
        return None
    if rest[0] >= _MIN_OTHER_STEPS:
        at = at[at > rest[0]]
    if steps.size - 1 - rest[-1] >= _MIN_OTHER_STEPS:
        at = at[at < rest[-1]]
    ends = zip(values[at].tolist(), values[at + 1].tolist(), strict=True)
    step = Fraction(usual)
    return [Gap(after, before, round((Fraction(before) - Fraction(after)) / step) - 1) for after, before in ends]


def _steps(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return differences of neighbours in rising order; integers are subtracted modulo 2^64, which is always exact."""
    if values.dtype.kind in "iu":
        whole = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
        return np.diff(whole).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.diff(values).astype(np.float64)


@dataclass(frozen=True, slots=True)
class MissingSteps:
    """Missing steps between two labels of a dimension; see :class:`Gap`."""

    dim: str
    after: Any
    before: Any
    n_steps: int


def missing_steps(dim: str, parts: Sequence[Labels], /) -> list[MissingSteps] | str:
    """Return the missing steps of labels of one kind in any order, or the reason why they are not known."""
    whole = usable(in_a_row(parts)).unique()
    numbers = numbers_of(whole)
    if not len(whole):
        return []
    if numbers is None:
        return f"labels of type {kind_of(whole)} have no steps"
    gaps = find_gaps(numbers)
    if gaps is None:
        return "two labels do not determine a step" if len(whole) == 2 else "the labels have no regular step"
    at = {number: k for k, number in enumerate(numbers.tolist())}
    return [MissingSteps(dim, whole[at[gap.after]], whole[at[gap.before]], gap.n_steps) for gap in gaps]
