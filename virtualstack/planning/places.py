"""Places of files along dimensions, from their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import Code, CombineError, Remedy
from virtualstack.planning.labels import Distinct, Labels, Named, check_kinds, distinct_labels


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Places of files along one dimension whose labels differ.

    Parameters
    ----------
    dim
        Name of the dimension.
    rank
        Position of each file along the dimension, in shape ``(files,)``. Files that overlap have one position.
    is_disjoint
        If true, no two different labels overlap, so that the files follow each other.
    found
        The distinct labels.
    """

    dim: str
    rank: NDArray[np.intp]
    is_disjoint: bool
    found: Distinct


def labelled_in_all(labels: Sequence[Mapping[str, Any]], /) -> list[str]:
    """Return the dimensions that have labels in all files."""
    return [dim for dim in labels[0] if all(dim in each for each in labels)]


def find_places(
    files: Sequence[Named], labels: Sequence[Mapping[str, Labels]], /, tolerance: Any = None
) -> list[Place]:
    """Return the places of files along each dimension whose labels differ."""
    places = []
    for dim in labelled_in_all(labels):
        found = distinct_labels([each[dim] for each in labels], tolerance)
        if len(found.labels) > 1:
            rank, is_disjoint = _rank(dim, found, files, tolerance)
            places.append(Place(dim, rank[found.which], is_disjoint, found))
    return places


def _rank(dim: str, found: Distinct, files: Sequence[Named], tolerance: Any) -> tuple[NDArray[np.intp], bool]:
    """Return the position of each of the distinct labels, and whether none of them overlap."""
    labels = found.labels
    check_kinds(dim, [files[found.first(number)] for number in range(len(labels))], labels)
    for number, x in enumerate(labels):
        file = files[found.first(number)]
        if x.hasnans:
            raise CombineError(
                f"coordinate '{dim}' of {file.called} has missing labels, {np.count_nonzero(x.isna()):,} of {len(x):,}",
                Remedy(
                    "leave their elements out with", preprocess=Code(f"lambda ds: ds.sel({dim}=ds.{dim}.notnull())")
                ),
                variable=dim,
                property="labels",
                right_url=file.source,
            )
        if not (x.is_monotonic_increasing or x.is_monotonic_decreasing):
            raise CombineError(
                f"coordinate '{dim}' of {file.called} neither ascends nor descends",
                Remedy("sort it with", preprocess=Code(f"lambda ds: ds.sortby('{dim}')")),
                variable=dim,
                property="labels",
                right_url=file.source,
            )
    try:
        order = sorted((n for n, x in enumerate(labels) if len(x)), key=lambda n: lowest(labels[n]))
    except TypeError as error:
        raise CombineError(
            f"labels of '{dim}' such as {labels[0][0]!r} in {files[0].called} have no order: {error}",
            Remedy("join the files in a given order with", combine="nested", concat_dim=dim),
            variable=dim,
            property="labels",
            left_url=files[0].source,
        ) from error
    rank, last, n = np.zeros(len(labels), np.intp), labels[order[0]], 0
    for b in order[1:]:
        n += _is_before(last, labels[b], tolerance)
        rank[b] = n
        last = labels[b] if highest(labels[b]) > highest(last) else last
    if len(labels) == 2 and labels[0][::-1].equals(labels[1]):
        return rank, False  # one place; join= says whether the labels are aligned
    return (n - rank if _descend(dim, found, files) else rank), n + 1 == len(labels)


def _descend(dim: str, found: Distinct, files: Sequence[Named]) -> bool:
    """Return whether labels descend; if some ascend, they have no common order."""
    descends = [n for n, x in enumerate(found.labels) if len(x) > 1 and not x.is_monotonic_increasing]
    ascends = [n for n, x in enumerate(found.labels) if len(x) > 1 and x.is_monotonic_increasing]
    if descends and ascends:
        up, down = files[found.first(ascends[0])], files[found.first(descends[0])]
        raise CombineError(
            f"coordinate '{dim}' ascends in {up.called} and descends in {down.called}",
            Remedy("reverse one of them with", preprocess=...),
            variable=dim,
            property="labels",
            left_url=up.source,
            right_url=down.source,
        )
    return bool(descends)


def _is_before(a: Labels, b: Labels, tolerance: Any) -> bool:
    """Return whether all labels of one index are less than all labels of another, by more than a tolerance."""
    if tolerance is not None:
        try:
            return bool(lowest(b) - highest(a) > tolerance)
        except TypeError:  # dates cannot have a number as tolerance
            pass
    return bool(highest(a) < lowest(b))


def lowest(labels: Labels, /) -> Any:
    """Return the least of labels in rising or falling order."""
    return min(_plain(labels[0]), _plain(labels[-1]))


def highest(labels: Labels, /) -> Any:
    """Return the greatest of labels in rising or falling order."""
    return max(_plain(labels[0]), _plain(labels[-1]))


def _plain(label: Any) -> Any:
    """Return a numpy integer as a Python integer, whose differences are exact."""
    return int(label) if isinstance(label, np.integer) else label
