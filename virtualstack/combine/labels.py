"""Labels of one dimension in many files: which are the same, how the others differ, and what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from virtualstack.combine.conflict_rules import Rules
from virtualstack.combine.label_distance import KINDS, Labels, distance, first_within
from virtualstack.combine.part import Part
from virtualstack.errors import CombineError

__all__ = [
    "Distinct",
    "check_calendars",
    "check_kinds",
    "common_labels",
    "distinct_labels",
    "is_jitter",
    "misfit",
    "span",
]


@dataclass(frozen=True, slots=True, eq=False)
class Distinct:
    """Labels that occur, each once, and which of them each file has.

    Parameters
    ----------
    labels
        In the order in which they occur first.
    which
        Shape ``(files,)``: number in ``labels``.
    """

    labels: tuple[Labels, ...]
    which: NDArray[np.intp]

    def first(self, number: int) -> int:
        """Give the first file that has labels of a number."""
        return int(np.argmax(self.which == number))

    @property
    def n_differing(self) -> int:
        """Number of files whose labels are not those of the first."""
        return int(np.count_nonzero(self.which))


def distinct_labels(indexes: Sequence[Labels], /, tolerance: Any = None) -> Distinct:
    """Find which labels are equal; within a tolerance, those of the file that comes first stand for the others."""
    buckets: dict[object, list[int]] = {}
    seen: list[Labels] = []
    which = np.empty(len(indexes), np.intp)
    for i, index in enumerate(indexes):
        bucket = buckets.setdefault(_key(index), [])
        number = next((n for n in bucket if seen[n] is index or seen[n].equals(index)), None)
        if number is None:
            number = len(seen)
            bucket.append(number)
            seen.append(index)
        which[i] = number
    if tolerance is None or len(seen) == 1:
        return Distinct(tuple(seen), which)
    stand_for = first_within(seen, tolerance)
    kept = np.unique(stand_for)
    return Distinct(tuple(seen[n] for n in kept.tolist()), np.searchsorted(kept, stand_for)[which])


def _key(labels: Labels) -> object:
    """Give what equal labels share and others hardly do, so that few are compared."""
    kind = labels.dtype.kind
    if kind in "iuf":
        return len(labels), hash((labels.values.astype(np.float64) + 0.0).tobytes())  # -0.0 is 0.0
    if kind in "mM":
        return len(labels), kind, hash(labels.values.astype(f"{kind}8[s]").tobytes())  # all fit into seconds
    return len(labels), hash(tuple(labels))


def is_jitter(found: Distinct, /) -> bool:
    """Tell whether labels are those of the first file but for less than half a step."""
    first = found.labels[0]
    if len(first) < 2 or any(distance(first, x) is None for x in found.labels[1:]):
        return False
    step = np.abs(np.diff(first.values)).min()
    return all(distance(first, x) < step / 2 for x in found.labels[1:])


def misfit(
    dim: str, parts: Sequence[Part], found: Distinct, tolerance: Any, /, *, remedy: str | None = None
) -> CombineError:
    """Explain how the labels of files differ, in how many, and what can be done."""
    n = f"{found.n_differing:,} of {len(parts):,} files"
    number = int(found.which[np.argmax(found.which != 0)])
    first, other = parts[0], parts[found.first(number)]
    a, b = found.labels[0], found.labels[number]
    far = [distance(a, x) for x in found.labels[1:]]
    how, by_tolerance = f"differs in {n}", ""
    if all(x is not None for x in far):
        most = max(far)
        how += f", by at most {most if isinstance(most, pd.Timedelta) else format(most, '.3g')}"
    if is_jitter(found):
        by_tolerance = f"{_shorten(tolerance, max(far))}takes the labels of {first.called} where all lie as close, "
    else:
        how += f": {_extent(a)} in {first.called}, {_extent(b)} there"
    if remedy is None:
        remedy = f"{by_tolerance}join='outer' fills what files lack with missing values, 'inner' keeps what all have"
    return CombineError(
        f"coordinate '{dim}' {how}, first in {other.called}; {remedy}",
        variable=dim,
        property="labels",
        left=len(a),
        right=len(b),
        left_url=first.source,
        right_url=other.source,
    )


def _shorten(tolerance: Any, far: Any) -> str:
    is_dates = isinstance(far, pd.Timedelta)
    enough = f"tolerance=pd.Timedelta('{far}')" if is_dates else f"tolerance={_rounded_up(far):.3g}"
    if tolerance is None:
        return f"{enough} "
    if isinstance(tolerance, pd.Timedelta) == is_dates:
        return f"tolerance={tolerance!r} is less, and {enough} "
    return f"tolerance={tolerance!r} is no distance of {'dates' if is_dates else 'numbers'}; {enough} "


def _rounded_up(distance: float) -> float:
    """Return a distance of three digits that is not less."""
    return float(Context(prec=3, rounding=ROUND_CEILING).create_decimal_from_float(float(distance)))


def _extent(labels: Labels) -> str:
    if not len(labels):
        return "no labels"
    return f"{len(labels):,} label{'s' * (len(labels) > 1)} from {labels[0]} to {labels[-1]}"


def check_kinds(dim: str, parts: Sequence[Part], indexes: Sequence[Labels], /) -> None:
    """Refuse labels that have no order among them, such as dates of two calendars.

    Raises
    ------
    CombineError
        Labels are of several kinds; the message names a file and a label of each.
    """
    first: tuple[str, Part, Labels] | None = None
    for part, labels in zip(parts, indexes, strict=True):
        if not len(labels):
            continue
        if first is None:
            first = _kind(labels), part, labels
        elif _kind(labels) != first[0]:
            kind, other, known = first
            is_cftime = "cftime" in kind + _kind(labels)
            how = " such as ds.convert_calendar('noleap'), which takes one calendar for all files" if is_cftime else ""
            raise CombineError(
                f"labels of '{dim}' are of several kinds and have no order: {known[0]!s} ({kind}) in {other.called}, "
                f"{labels[0]!s} ({_kind(labels)}) in {part.called}; convert those of one kind with preprocess={how}, "
                "or join the files of each kind by themselves",
                variable=dim,
                property="labels",
                left=known[0],
                right=labels[0],
                left_url=other.source,
                right_url=part.source,
            )


def check_calendars(name: str, parts: Sequence[Part], values: Sequence[NDArray[Any]], /) -> None:
    """Refuse loaded dates of several calendars: joined, they would be objects of several types.

    Parameters
    ----------
    name
        Of the variable.
    parts, values
        Its values in each file.

    Raises
    ------
    CombineError
        Calendars differ; the message names them, and a file of each.
    """
    if all(x.dtype.kind != "O" for x in values):
        return
    first: tuple[str, Part] | None = None
    for part, x in zip(parts, values, strict=True):
        some = next((x for x in x.flat if not pd.isnull(x)), None) if x.dtype.kind == "O" else None
        calendar = "standard" if x.dtype.kind == "M" else getattr(some, "calendar", None)
        if calendar is None:
            continue
        kind = "datetime64" if x.dtype.kind == "M" else f"cftime, calendar '{calendar}'"
        first = first or (kind, part)
        if kind != first[0]:
            raise CombineError(
                f"variable '{name}' has dates of several calendars: {first[0]} in {first[1].called}, {kind} in "
                f"{part.called}; leave it out with drop_variables=['{name}'], convert those of one with preprocess=, "
                "or join the files of each calendar by themselves",
                variable=name,
                property="calendar",
                left=first[0],
                right=kind,
                left_url=first[1].source,
                right_url=part.source,
            )


def _kind(labels: Labels) -> str:
    if labels.dtype.kind in KINDS:
        return "datetime64" if labels.dtype.kind == "M" else KINDS[labels.dtype.kind]
    label = labels[0]
    calendar = getattr(label, "calendar", None)
    return type(label).__name__ if calendar is None else f"cftime, calendar '{calendar}'"


def common_labels(found: Distinct, dim: str, rules: Rules, parts: Sequence[Part], /) -> tuple[Labels, list[Labels]]:
    """Give the labels that all files are brought to, as ``xr.align`` finds them, and those that files then have.

    Raises
    ------
    CombineError
        ``join`` is "exact", or they cannot be brought together.
    """
    labels = list(found.labels)
    if len(labels) == 1:
        return labels[0], labels
    check_kinds(dim, [parts[found.first(number)] for number in range(len(labels))], labels)
    if rules.join == "exact" or (rules.join == "override" and any(len(x) != len(labels[0]) for x in labels)):
        raise misfit(dim, parts, found, rules.tolerance, remedy=rules.remedy)
    if rules.join == "override":
        return labels[0], [labels[0]] * len(labels)
    for number, x in enumerate(labels):
        if not x.is_unique:
            part = parts[found.first(number)]
            raise CombineError(
                f"coordinate '{dim}' has label {x[x.duplicated()][0]} more than once in {part.called}, and other files "
                "have other labels; leave one out with preprocess=, such as drop_duplicates",
                variable=dim,
                property="labels",
                left_url=part.source,
            )
    if rules.tolerance is not None:
        labels = _snapped(labels, rules.tolerance)
    if rules.join == "left":
        return labels[0], labels
    if rules.join == "right":
        return labels[int(found.which[-1])], labels
    if rules.join == "outer":
        return reduce(lambda a, b: a.union(b), labels), labels
    return reduce(lambda a, b: a.intersection(b), labels), labels


def _snapped(labels: Sequence[Labels], tolerance: Any) -> list[Labels]:
    """Replace each label by one of an earlier file that lies within a tolerance."""
    known = labels[0]
    snapped = [known]
    for x in labels[1:]:
        base = known.sort_values()
        if base.dtype == x.dtype and len(base) and base.dtype.kind in KINDS:
            try:
                at = base.get_indexer(x, method="nearest", tolerance=tolerance)
            except (TypeError, ValueError):  # a number is no tolerance of dates
                at = np.full(len(x), -1)
            moved = pd.Index(np.where(at >= 0, base.values[at], x.values), name=x.name)
            x = moved if moved.is_unique else x
        snapped.append(x)
        known = known.union(x)
    return snapped


def span(labels: Labels, /) -> str:
    """Write the first and the last label."""
    return f"{labels[0]} to {labels[-1]}" if len(labels) > 1 else f"{labels[0]}"
