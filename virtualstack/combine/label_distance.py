"""How far the labels of files lie apart: numbers, durations and dates; others are equal or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["KINDS", "Labels", "distance", "first_within"]

type Labels = pd.Index[Any]
type _Unit = Literal["ns", "us", "s"]

KINDS = {"i": "number", "u": "number", "f": "number", "m": "duration", "M": "date"}
"""What can be measured, by the kind of its dtype."""

_UNITS: tuple[_Unit, ...] = ("ns", "us", "s")
"""Of dates, from the finest on; all fit into the last."""

_MOST = 1 << 64
"""More than integers may lie apart."""


def first_within(seen: Sequence[Labels], tolerance: Any, /) -> NDArray[np.intp]:
    """Give, for labels of each file, the first that lie within a tolerance of them, each label of that in its place.

    Parameters
    ----------
    seen
        Labels of which no two are equal.
    tolerance
        A number, or a :class:`pandas.Timedelta` for dates and durations.

    Returns
    -------
    numpy.ndarray
        Shape ``(len(seen),)``: numbers in ``seen``; labels that lie within none before stand for themselves.
    """
    stand_for = np.arange(len(seen), dtype=np.intp)
    groups: dict[tuple[str, int], list[int]] = {}
    for number, x in enumerate(seen):
        if _is_measurable(x):
            groups.setdefault((KINDS[x.dtype.kind], len(x)), []).append(number)
    for members in groups.values():
        values, unit = _measured([seen[n] for n in members])
        limit = _limit(values, unit, tolerance)
        if limit is not None:
            stand_for[members] = np.array(members)[_first_near(values, limit)]
    return stand_for


def distance(a: Labels, b: Labels, /) -> Any:
    """Give how far labels lie apart at most, or ``None`` where they cannot be compared one by one."""
    if len(a) != len(b) or not (_is_measurable(a) and _is_measurable(b)):
        return None
    if KINDS[a.dtype.kind] != KINDS[b.dtype.kind]:
        return None
    (left, right), unit = _measured([a, b])
    far = _gaps(left, right).max()
    return far if unit is None else pd.Timedelta(min(int(far), np.iinfo(np.int64).max), unit)


def _first_near(values: NDArray[Any], limit: Any) -> NDArray[np.intp]:
    """Give, for each row of labels, the first that stands for it: none before is within the limit of it.

    Rows whose first labels are too far apart are not compared: the dates of thousands of files are not, pair by pair.
    """
    order = np.argsort(values[:, 0], kind="stable")
    firsts = values[order, 0]
    found = np.full(len(values), -1, np.intp)
    for number, own in enumerate(values):
        if found[number] < 0:
            low, high = _bounds(own[0], limit)
            near = order[np.searchsorted(firsts, low) : np.searchsorted(firsts, high, side="right")]
            near = near[found[near] < 0]
            found[near[(_gaps(values[near], own) <= limit).all(axis=1)]] = number
    return found


def _bounds(label: Any, limit: Any) -> tuple[Any, Any]:
    """Give the least and the greatest number that may be within a limit of a label, in its dtype."""
    if isinstance(label, np.floating):
        return np.nextafter(label - limit, -np.inf), np.nextafter(label + limit, np.inf)
    low, high = int(label) - limit, int(label) + limit
    if isinstance(label, np.integer):
        known = np.iinfo(label.dtype)
        return label.dtype.type(max(low, known.min)), label.dtype.type(min(high, known.max))
    return low, high


def _is_measurable(labels: Labels) -> bool:
    return len(labels) > 0 and labels.dtype.kind in KINDS and not labels.hasnans


def _measured(rows: Sequence[Labels]) -> tuple[NDArray[Any], _Unit | None]:
    """Give labels of one kind and length as rows of numbers that are exact where they are whole; dates in a unit."""
    kinds = {x.dtype.kind for x in rows}
    if kinds & {"m", "M"}:
        unit = next(unit for unit in _UNITS if all(_fits(x, unit) for x in rows))
        return np.stack([cast(Any, x).as_unit(unit).values.view(np.int64) for x in rows]), unit
    if "f" in kinds:
        return np.stack([x.values.astype(np.float64) for x in rows]), None
    return np.stack([x.values if len(kinds) == 1 else x.values.astype(object) for x in rows]), None


def _fits(labels: Labels, unit: _Unit) -> bool:
    try:
        cast(Any, labels).as_unit(unit)
    except (pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta):
        return False
    return True


def _gaps(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Give how far numbers lie apart; of integers even where the difference exceeds their dtype."""
    if a.dtype.kind not in "iu":
        with np.errstate(invalid="ignore"):  # of infinities
            return np.asarray(abs(a - b))
    gaps: NDArray[Any] = np.where(a > b, a - b, b - a)
    return gaps.view(f"u{gaps.itemsize}")


def _limit(values: NDArray[Any], unit: _Unit | None, tolerance: Any) -> Any:
    """Give a tolerance as a number like the gaps of labels, or ``None``: a number is none of dates."""
    if isinstance(tolerance, pd.Timedelta) != (unit is not None):
        return None
    if unit is not None:
        return tolerance // pd.Timedelta(1, unit)
    return float(tolerance) if values.dtype.kind == "f" else math.floor(min(tolerance, _MOST))
