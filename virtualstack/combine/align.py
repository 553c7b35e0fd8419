"""Bringing many files to common labels along the dimensions that they are not joined along.

All of them at once, before they are joined: along several dimensions one after the other, what one step drops, as
``join="left"`` does, the next would fill in.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from xarray.indexes import PandasIndex

from virtualstack.combine.conflict_rules import Rules
from virtualstack.combine.labels import common_labels, distinct_labels
from virtualstack.combine.part import Part
from virtualstack.combine.reindex import ReindexTarget, reindex_part
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError

__all__ = ["align"]

_MAX_PIECES = 1 << 26
"""Pieces that chunks of all files are cut into along a dimension: 2.1 GB, and as much again while they are joined."""


def align(parts: Sequence[Part], rules: Rules, /, *, but: Collection[str | None] = ()) -> list[Part]:
    """Give all parts the same labels; those that lack a dimension are left alone.

    Dimensions without labels in all parts are not looked at: lengths are compared where variables are joined.

    Parameters
    ----------
    parts
        In the order of the files.
    rules
        With ``join`` and ``tolerance``.
    but
        Dimensions that the parts are joined along.

    Raises
    ------
    CombineError
        Labels differ and ``join`` is "exact", or they cannot be brought together; the message says where and how far.
    """
    aligned = list(parts)
    for dim in dict.fromkeys(name for part in parts for name in part.sizes if name not in but):
        having = [i for i, part in enumerate(aligned) if dim in part.indexes]
        if len(having) > 1:
            _align_along(aligned, having, dim, rules)
    return aligned


def _align_along(parts: list[Part], having: Sequence[int], dim: str, rules: Rules) -> None:
    """Replace the parts that have a dimension."""
    members = [parts[i] for i in having]
    indexes = [part.indexes[dim].index for part in members]
    found = distinct_labels(indexes, rules.tolerance)
    target, labels = common_labels(found, dim, rules, members)
    own_indexes = [part.indexes[dim] for part in members]
    index = own_indexes[0] if len(labels) == 1 else _index(target, own_indexes, dim, rules)
    targets: dict[int, ReindexTarget] = {}
    moved: dict[int, ReindexTarget] = {}
    for i, part, own, number in zip(having, members, indexes, found.which.tolist(), strict=True):
        if part.indexes[dim].coord_dtype == index.coord_dtype and (own is target or own.equals(target)):
            continue
        if number not in targets:
            targets[number] = ReindexTarget(index, _positions(target, labels[number], dim, part), len(own))
        moved[i] = targets[number]
    _check_pieces(dim, [(parts[i], target) for i, target in moved.items()])
    for i, its in moved.items():
        parts[i] = reindex_part(parts[i], {dim: its}, rules)


def _check_pieces(dim: str, moved: Sequence[tuple[Part, ReindexTarget]]) -> None:
    """Refuse labels of many files that alternate: each label by itself is a piece of a chunk, which costs memory."""
    breaks = {id(target): int(np.count_nonzero(np.diff(target.positions, n=2))) for _, target in moved}
    n_pieces = 0
    for part, target in moved:
        for variable in part.variables.values():
            array = virtual_array(variable) if breaks[id(target)] and dim in variable.dims else None
            if array is not None:
                axis = variable.dims.index(dim)
                rest = math.prod(x.n_cells for i, x in enumerate(array.grid.axes) if i != axis)
                n_pieces += breaks[id(target)] * rest
        if n_pieces > _MAX_PIECES:
            raise CombineError(
                f"labels of '{dim}' alternate between files: to bring {len(moved):,} of them to common labels cuts "
                f"their chunks into {n_pieces:,} pieces and more, with {part.called} the last that was counted, and "
                f"at most {_MAX_PIECES:,} fit into memory; take labels that are nearly equal for the same "
                "(tolerance=), keep those that all have (join='inner'), or join the files of one grid by themselves",
                variable=dim,
                property="labels",
                left=n_pieces,
                right=_MAX_PIECES,
                left_url=moved[0][0].source,
                right_url=part.source,
            )


def _index(target: pd.Index[Any], indexes: Sequence[PandasIndex], dim: str, rules: Rules) -> PandasIndex:
    """Give labels in the dtype that :func:`xarray.align` gives them."""
    dtypes = dict.fromkeys(index.coord_dtype for index in indexes)
    if rules.join in ("left", "override"):
        dtype = indexes[0].coord_dtype
    elif rules.join == "right":
        dtype = indexes[-1].coord_dtype
    elif all(isinstance(x, np.dtype) for x in dtypes):
        dtype = reduce(np.result_type, dtypes)
    else:  # of pandas alone, such as categories
        dtype = None
    if target.dtype != dtype and target.dtype.kind in "iuf":
        target = target.astype(dtype)
    return PandasIndex(target, dim, coord_dtype=dtype)


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
