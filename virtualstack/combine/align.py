"""Alignment of many files to common labels along the dimensions that they are not joined along.

All files are aligned at once, before they are joined. If dimensions were joined one by one, a step would fill in
elements that ``join="left"`` dropped in the step before.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray.indexes import PandasIndex

from virtualstack.combine.absent import absent_moved, with_missing_value
from virtualstack.combine.conflicts import Rules
from virtualstack.combine.part import Part, over_index
from virtualstack.dataset import declared_dataset, virtual_array
from virtualstack.errors import CombineError, Remedy
from virtualstack.manifests import ABSENT, EMPTY, ManifestArray, reindex
from virtualstack.planning.labels import (
    KINDS,
    Distinct,
    Labels,
    check_kinds,
    distinct_labels,
    is_jitter,
    misfit,
    since_1970,
)

LABELS_REMEDY = Remedy("give it the store's labels with {} if they mean the same", "assign_coords")
"""Remedy for labels that nearly agree with those of the store."""


@dataclass(frozen=True, slots=True, eq=False)
class ReindexTarget:
    """The labels that a dimension should have, and their positions in a dataset.

    Parameters
    ----------
    index
        Labels that the dimension should have, in their dtype.
    positions
        Element of the dataset for each label, in shape ``(labels,)``; -1 if the label has no element.
    n
        Number of elements of the dataset.
    """

    index: PandasIndex
    positions: NDArray[np.int64]
    n: int

    @property
    def is_identity(self) -> bool:
        """True if all elements keep their positions."""
        return len(self.positions) == self.n and bool((self.positions == np.arange(self.n)).all())


def reindex_dataset(
    dataset: xr.Dataset,
    indexers: Mapping[Any, Any],
    /,
    *,
    method: Any = None,
    tolerance: Any = None,
    fill_value: Any = None,
) -> xr.Dataset:
    """Return a dataset with other labels, as :meth:`xarray.Dataset.reindex` does; virtual variables stay virtual.

    Parameters
    ----------
    dataset
        Dataset with virtual variables.
    indexers
        New labels by dimension.
    method, tolerance
        Method and tolerance by which labels are looked up that the dataset lacks.
    fill_value
        Decoded value of new elements, or a map from variable to value; missing values by default.

    Raises
    ------
    CombineError
        A variable has no missing value.
    ValueError
        The labels cannot be looked up, as in xarray.
    """
    dataset = declared_dataset(dataset)
    virtual = [name for name, variable in dataset.variables.items() if virtual_array(variable) is not None]
    bare = {dim for dim in indexers if dim in virtual}
    if bare:
        name = sorted(map(str, bare))[0]
        raise CombineError(
            f"coordinate '{name}' is virtual, but its labels are needed",
            Remedy("open the file with", loadable_variables=[name]),
            variable=name,
            property="labels",
        )
    options: dict[str, Any] = {}
    if fill_value is not None:  # of the types of maps, xarray knows dict
        options["fill_value"] = dict(fill_value) if isinstance(fill_value, Mapping) else fill_value
    labels = dataset.drop_vars(virtual).reindex(indexers, method=method, tolerance=tolerance, **options)
    targets = {}
    for dim in indexers:
        if dim in dataset.dims:
            counted = xr.DataArray(np.arange(dataset.sizes[dim]), dims=[dim], coords={dim: dataset[dim].variable})
            found = counted.reindex({dim: indexers[dim]}, method=method, tolerance=tolerance, fill_value=-1)
            index = cast(PandasIndex, labels.xindexes[dim])
            targets[str(dim)] = ReindexTarget(index, found.values.astype(np.int64), dataset.sizes[dim])
    result = reindex_part(Part.from_dataset(dataset), targets, Rules(fill_value=fill_value)).dataset()
    result = result.assign_coords({dim: x for dim, x in labels.coords.items() if dim not in result.coords})
    result.encoding = dict(dataset.encoding)
    return result


def reindex_part(part: Part, targets: Mapping[str, ReindexTarget], rules: Rules, /, *, code: int = EMPTY) -> Part:
    """Return a part with other labels along some of its dimensions.

    ``code`` is the state of elements at labels that the part lacks: EMPTY or ABSENT.
    """
    changed = {}
    indexes = dict(part.indexes)
    moved = {dim: target for dim, target in targets.items() if not target.is_identity}
    for name, variable in part.variables.items():
        if name in targets and name in indexes:
            indexes[name] = targets[name].index
            changed[name] = over_index(name, indexes[name], variable)
        elif any(dim in moved for dim in variable.dims):
            changed[name] = reindex_variable(name, variable, moved, rules.fill(name), code=code)
    sizes = {dim: len(targets[dim].positions) if dim in targets else n for dim, n in part.sizes.items()}
    absent = absent_moved(part.absent, {dim: target.positions for dim, target in moved.items()})
    return replace(part, variables={**part.variables, **changed}, sizes=sizes, indexes=indexes, absent=absent)


def reindex_variable(
    name: str,
    variable: xr.Variable,
    targets: Mapping[str, ReindexTarget],
    fill_value: Any,
    /,
    *,
    code: int = EMPTY,
) -> xr.Variable:
    """Return a variable with other labels; new elements read as ``fill_value``, or as missing.

    ``code`` is the state of new elements of a virtual variable: EMPTY or ABSENT.
    """
    taken = {axis: targets[str(dim)] for axis, dim in enumerate(variable.dims) if dim in targets}
    if not taken:
        return variable
    array = virtual_array(variable)
    if array is None:
        return _reindex_loaded(variable, {dim: x for dim, x in targets.items() if dim in variable.dims}, fill_value)
    data = _take(array, {axis: x.positions for axis, x in taken.items()}, fill_value, name=name, code=code)
    return xr.Variable(variable.dims, data, variable.attrs, variable.encoding)


def _reindex_loaded(variable: xr.Variable, targets: Mapping[str, ReindexTarget], fill_value: Any) -> xr.Variable:
    """Return a loaded variable reindexed by xarray, along positions instead of labels."""
    options = {} if fill_value is None else {"fill_value": fill_value}
    counted = {dim: np.arange(variable.sizes[dim]) for dim in targets}
    plain = xr.DataArray(variable.to_base_variable()).assign_coords(counted)
    result = plain.reindex({dim: x.positions for dim, x in targets.items()}, **options).variable
    result.encoding = dict(variable.encoding)
    return result


def _take(
    array: ManifestArray, positions: Mapping[int, NDArray[np.int64]], fill_value: Any, /, *, name: str, code: int
) -> ManifestArray:
    """Return the elements of an array at positions along some axes; -1 makes a new element in the state ``code``."""
    if all(bool((x >= 0).all()) for x in positions.values()):
        fill = array.manifest.tables.fill
    else:
        array, fill = with_missing_value(array, fill_value, name=name)
    return reindex(array, positions, fill.value, code=code)


_MAX_PIECES = 1 << 26
"""Largest number of pieces of chunks along a dimension: 2.1 GB of memory, and as much again during the join."""


def align(parts: Sequence[Part], rules: Rules, /, *, but: Collection[str | None] = (), code: int = EMPTY) -> list[Part]:
    """Return all parts with the same labels; parts without a dimension keep their own.

    Dimensions that fewer than two parts have labels of are skipped. Their lengths are compared when variables are
    joined.

    Parameters
    ----------
    parts
        Parts in the order of the files.
    rules
        Rules with ``join`` and ``tolerance``.
    but
        Dimensions that the parts are joined along.
    code
        State of elements at labels that a part lacks: EMPTY or ABSENT.

    Raises
    ------
    CombineError
        Labels differ and ``join`` is "exact", or they cannot be aligned; the message names the position and the
        difference.
    """
    aligned = list(parts)
    for dim in dict.fromkeys(name for part in parts for name in part.sizes if name not in but):
        having = [i for i, part in enumerate(aligned) if dim in part.indexes]
        if len(having) > 1:
            _align_along(aligned, having, dim, rules, code)
    return aligned


def united(own: Labels, others: Sequence[Labels], /) -> Labels:
    """Return the union of labels: sorted like the first ones if these are sorted, else with new labels at the end."""
    labels = own.append(list(others)).unique()
    if own.is_monotonic_increasing:
        return labels.sort_values()
    return labels.sort_values(ascending=False) if own.is_monotonic_decreasing else labels


def align_in_order(parts: Sequence[Part], rules: Rules, /, *, but: str) -> list[Part]:
    """Return all parts with the labels of all, in the order of the first part; what a part lacks is ABSENT there."""
    aligned = list(parts)
    for dim in parts[0].indexes.keys() - {but}:
        having = [i for i, part in enumerate(aligned) if dim in part.indexes]
        indexes = [aligned[i].indexes[dim].index for i in having]
        found = distinct_labels(indexes)
        if len(found.labels) == 1:
            continue
        members = [aligned[i] for i in having]
        check_kinds(dim, members, indexes)
        if is_jitter(found):
            raise misfit(dim, members, found, None, remedies=[LABELS_REMEDY])
        labels = united(indexes[0], indexes[1:])
        target = _index(labels, [part.indexes[dim] for part in members], dim, replace(rules, join="outer"))
        for i, part, own in zip(having, members, indexes, strict=True):
            positions = ReindexTarget(target, _positions(labels, own, dim, part), len(own))
            aligned[i] = reindex_part(part, {dim: positions}, rules, code=ABSENT)
    return aligned


def _align_along(parts: list[Part], having: Sequence[int], dim: str, rules: Rules, code: int) -> None:
    """Replace the parts that have labels of a dimension by aligned ones."""
    members = [parts[i] for i in having]
    indexes = [part.indexes[dim].index for part in members]
    found = distinct_labels(indexes, rules.tolerance)
    target, labels = _common_labels(found, dim, rules, members)
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
        parts[i] = reindex_part(parts[i], {dim: its}, rules, code=code)


def _common_labels(found: Distinct, dim: str, rules: Rules, parts: Sequence[Part], /) -> tuple[Labels, list[Labels]]:
    """Return the labels to which all files are aligned, as ``xr.align`` does, and the distinct labels after snapping.

    Raises
    ------
    CombineError
        ``join`` is "exact", or the labels cannot be aligned.
    """
    labels = list(found.labels)
    if len(labels) == 1:
        return labels[0], labels
    check_kinds(dim, [parts[found.first(number)] for number in range(len(labels))], labels)
    cannot_override = rules.join == "override" and any(
        len(x) != len(labels[0]) or _are_opposite(x, labels[0]) for x in labels
    )
    if rules.join == "exact" or cannot_override:
        remedies = [x for x in rules.remedies if x is not LABELS_REMEDY or is_jitter(found)]
        raise misfit(dim, parts, found, rules.tolerance, remedies=remedies)
    if rules.join == "override":
        return labels[0], [labels[0]] * len(labels)
    for number, x in enumerate(labels):
        if not x.is_unique:
            part = parts[found.first(number)]
            raise CombineError(
                f"coordinate '{dim}' has label {x[x.duplicated()][0]} more than once in {part.called}, and "
                "other files have different labels",
                Remedy("leave the duplicates out with {}, for example by drop_duplicates", preprocess=...),
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


def _are_opposite(a: Labels, b: Labels) -> bool:
    """Return whether labels ascend in one of two files and descend in the other."""
    return len(a) > 1 and (
        (a.is_monotonic_increasing and b.is_monotonic_decreasing)
        or (a.is_monotonic_decreasing and b.is_monotonic_increasing)
    )


def _snapped(labels: Sequence[Labels], tolerance: Any) -> list[Labels]:
    """Return labels in which each label is replaced by an earlier file's label within a tolerance."""
    known = labels[0]
    snapped = [known]
    for x in labels[1:]:
        base = known.sort_values()
        is_cftime = isinstance(base, xr.CFTimeIndex) and isinstance(x, xr.CFTimeIndex) and len(x) > 0
        if len(base) and (is_cftime or (base.dtype.kind in KINDS and x.dtype.kind in KINDS)):
            own, other = (since_1970(y) if is_cftime else y for y in (base, x))
            try:
                at = own.get_indexer(other, method="nearest", tolerance=tolerance)
            except (TypeError, ValueError):  # dates cannot have a number as tolerance
                at = np.full(len(x), -1)
            values = np.where(at >= 0, base.values[at], x.values)
            moved = type(x)(values, name=x.name) if is_cftime else pd.Index(values, name=x.name)
            x = moved if moved.is_unique else x
        snapped.append(x)
        known = known.union(x)
    return snapped


def _check_pieces(dim: str, moved: Sequence[tuple[Part, ReindexTarget]]) -> None:
    """Refuse labels of many files that alternate: each label then cuts a piece from a chunk, which costs memory."""
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
                f"labels of '{dim}' alternate between files: aligning {len(moved):,} files would cut their chunks "
                f"into {n_pieces:,} pieces, counted up to {part.called}. At most {_MAX_PIECES:,} fit into memory",
                Remedy("treat nearly equal labels as the same with", tolerance=...),
                Remedy("keep only common labels with", join="inner"),
                Remedy("join the files of each grid separately"),
                variable=dim,
                property="labels",
                left=n_pieces,
                right=_MAX_PIECES,
                left_url=moved[0][0].source,
                right_url=part.source,
            )


def _index(target: pd.Index[Any], indexes: Sequence[PandasIndex], dim: str, rules: Rules) -> PandasIndex:
    """Return labels in the dtype that :func:`xarray.align` chooses."""
    dtypes = dict.fromkeys(index.coord_dtype for index in indexes)
    if rules.join in ("left", "override"):
        dtype = indexes[0].coord_dtype
    elif rules.join == "right":
        dtype = indexes[-1].coord_dtype
    elif all(isinstance(x, np.dtype) for x in dtypes):
        dtype = reduce(np.result_type, dtypes)
    else:  # a dtype of pandas, such as categories
        dtype = None
    if target.dtype != dtype and target.dtype.kind in "iuf":
        target = target.astype(dtype)
    return PandasIndex(target, dim, coord_dtype=dtype)


def _positions(target: pd.Index[Any], labels: pd.Index[Any], dim: str, part: Part) -> NDArray[np.int64]:
    """Return the position of each target label among labels, or -1 if it is not among them."""
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
