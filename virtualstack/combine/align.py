"""Bringing many files to common labels along the dimensions that they are not joined along."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from virtualstack.combine.labels import common_labels, distinct_labels
from virtualstack.combine.part import Part
from virtualstack.combine.reindex import Target, reindex_part
from virtualstack.combine.rules import Rules
from virtualstack.errors import CombineError

__all__ = ["align", "check_sides"]


def align(parts: Sequence[Part], dims: Iterable[str], rules: Rules, /) -> list[Part]:
    """Give all parts the same labels along some dimensions; parts that lack one are left alone.

    Parameters
    ----------
    parts
        In the order of the files.
    dims
        Those without labels in all parts are not looked at: lengths are compared where variables are joined.
    rules
        With ``join`` and ``tolerance``.

    Raises
    ------
    CombineError
        Labels differ and ``join`` is "exact", or they cannot be brought together; the message says where and how far.
    """
    aligned = list(parts)
    for dim in dims:
        having = [i for i, part in enumerate(aligned) if dim in part.indexes]
        if len(having) > 1:
            _align_along(aligned, having, dim, rules)
    return aligned


def check_sides(parts: Sequence[Part], dims: Sequence[str | None], rules: Rules, /) -> None:
    """Refuse to take the labels of the first or last file where files are joined along several dimensions.

    They are joined along one after the other: what one step has dropped would be filled in by the next.

    Raises
    ------
    CombineError
        ``join`` is "left" or "right", there are two dimensions or more, and labels along others differ.
    """
    if rules.join not in ("left", "right") or sum(dim is not None for dim in dims) < 2:
        return
    for dim in dict.fromkeys(name for part in parts for name in part.indexes):
        having = [part for part in parts if dim in part.indexes]
        if dim not in dims and len(distinct_labels([x.indexes[dim].index for x in having], rules.tolerance).labels) > 1:
            raise CombineError(
                f"files are joined along {[x for x in dims if x]}, labels of '{dim}' differ, and join={rules.join!r} "
                "takes those of one file: it does so along one dimension alone; use join='outer' or 'inner', and "
                "select labels from the result",
                variable=dim,
                property="labels",
            )


def _align_along(parts: list[Part], having: Sequence[int], dim: str, rules: Rules) -> None:
    """Replace the parts that have a dimension."""
    members = [parts[i] for i in having]
    indexes = [part.indexes[dim].index for part in members]
    found = distinct_labels(indexes, rules.tolerance)
    target, labels = common_labels(found, dim, rules, members)
    targets: dict[int, Target] = {}
    for i, part, own, number in zip(having, members, indexes, found.which.tolist(), strict=True):
        if own is target or own.equals(target):
            continue
        if number not in targets:
            targets[number] = Target(target, _positions(target, labels[number], dim, part), len(own))
        parts[i] = reindex_part(part, {dim: targets[number]}, rules)


def _positions(target: pd.Index[Any], labels: pd.Index[Any], dim: str, part: Part) -> NDArray[np.int64]:
    """Give where each target label stands among labels; -1 where it does not."""
    if labels.equals(target):
        return np.arange(len(target), dtype=np.int64)
    try:
        return np.asarray(labels.get_indexer(target), np.int64)
    except (TypeError, ValueError) as error:
        raise CombineError(
            f"labels of '{dim}' in {part.called} cannot be compared with those of other files: {error}",
            variable=dim,
            property="labels",
            right_url=part.source,
        ) from error
