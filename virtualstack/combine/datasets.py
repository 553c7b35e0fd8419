"""Combination of many virtual datasets, or of many trees node by node, into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
import xarray as xr

from virtualstack.combine.align import align
from virtualstack.combine.concat import merge_parts
from virtualstack.combine.conflicts import Rules, in_some, unpack_differing
from virtualstack.combine.new_dim import Labelling, check_labellings, make_labels, with_new_dim
from virtualstack.combine.order import combine_by_coords, have_an_order, join_tiles
from virtualstack.combine.part import Part
from virtualstack.combine.planned import (
    Nodes,
    Planning,
    plan_parts,
    with_dims_of_others,
    with_labels_from,
    without_order,
)
from virtualstack.dataset.variables import DecodeTimes
from virtualstack.errors import CombineError, Remedy, check_word, naming_group
from virtualstack.options import Join
from virtualstack.planning import Duplicates, Plan
from virtualstack.storage import Storage, StorageLike

type Combine = Literal["by_coords", "nested"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineOptions:
    """Options for combining datasets or trees.

    Parameters
    ----------
    dims
        Dimension of each level of nested lists, outermost first, ``None`` for a level whose files are merged. Without a
        list, coordinates define the order.
    rules
        Rules for differences between files.
    new_dim
        Dimensions that the files lack, and the source of their labels.
    planning
        What the user says about the plan.
    labels
        Variables that give labels to dimensions without labels, by the name of the dimension.
    unpack_where_differing
        If true, variables that files pack differently are unpacked.
    decode_times
        If true, unpacked numbers with units of time become dates.
    """

    dims: Sequence[str | None] | None = None
    rules: Rules = field(default_factory=Rules)
    new_dim: Mapping[str, Labelling] = field(default_factory=dict)
    planning: Planning = field(default_factory=Planning)
    labels: Mapping[str, str] = field(default_factory=dict)
    unpack_where_differing: bool = True
    decode_times: bool = True

    @classmethod
    def from_options(
        cls,
        *,
        combine: Combine = "by_coords",
        concat_dim: str | Sequence[str | None] | None = None,
        join: Join = "exact",
        tolerance: Any = None,
        new_dim: Mapping[str, Labelling] | None = None,
        labels: Mapping[str, str] | None = None,
        duplicates: Duplicates | None = None,
        unpack: bool | Literal["differing"] | None = None,
        decode_times: DecodeTimes = None,
        combine_options: Mapping[str, Any] | None = None,
    ) -> CombineOptions:
        """Check the options of a user; the parameters are the same as in :func:`virtualstack.open_virtual_mfdataset`.

        Raises
        ------
        ValueError
            An option or its value is not known, or two options exclude each other.
        CombineError
            ``tolerance`` or ``new_dim`` is not valid.
        """
        check_word("unpack", unpack, (False, True, "differing", None))
        if duplicates is not None:
            check_word("duplicates", duplicates, Duplicates)
        if labels is not None and not isinstance(labels, Mapping):
            raise ValueError(f"labels={labels!r}; it must map dimensions to variables, such as {{'Time': 'Times'}}")
        return cls(
            dims=_dims(combine, concat_dim),
            rules=Rules.from_options(join=join, tolerance=tolerance, options=combine_options),
            new_dim=check_labellings(new_dim),
            planning=Planning(along=_along(combine, concat_dim), duplicates=duplicates),
            labels=dict(labels or {}),
            unpack_where_differing=unpack is not False,
            decode_times=decode_times is not False,
        )


def _dims(combine: Combine, concat_dim: str | Sequence[str | None] | None) -> list[str | None] | None:
    check_word("combine", combine, Combine)
    if combine == "by_coords":
        return None
    if concat_dim is None:
        raise ValueError("combine='nested' needs concat_dim=, the dimension that files are joined along")
    return [concat_dim] if isinstance(concat_dim, str) else list(concat_dim)


def _along(combine: Combine, concat_dim: str | Sequence[str | None] | None) -> tuple[str, ...]:
    """Return the dimensions that files ordered by their coordinates must be joined along."""
    if combine != "by_coords" or concat_dim is None:
        return ()
    return tuple(dim for dim in ([concat_dim] if isinstance(concat_dim, str) else concat_dim) if dim is not None)


type Nested[T] = T | Sequence[Nested[T]]


def combine_datasets(
    datasets: Nested[xr.Dataset], how: CombineOptions | None = None, /, *, storage: StorageLike = None
) -> xr.Dataset:
    """Combine virtual datasets.

    The only bytes read are values of variables that must be the same and cannot be proved to be so by their references.

    Raises
    ------
    CombineError
        The datasets do not fit; the message names the place, the files, the difference and a remedy.
    StorageError
        Values to be compared cannot be read.
    """
    return combine_with_plan(datasets, how, storage=storage)[0]


def combine_with_plan(
    datasets: Nested[xr.Dataset], how: CombineOptions | None = None, /, *, storage: StorageLike = None
) -> tuple[xr.Dataset, Plan]:
    """Combine virtual datasets, and return the plan too; it is empty if the lists determine the order."""
    nodes = {"/": [Part.from_dataset(dataset) for dataset in flatten(datasets)]}
    joined, plan = _combined(nodes, datasets, how or CombineOptions(), Storage.from_option(storage))
    return joined["/"].dataset(), plan


def _combined(nodes: Nodes, nested: Nested[Any], how: CombineOptions, storage: Storage) -> tuple[dict[str, Part], Plan]:
    """Return the joined part of each group, and the plan."""
    if not nodes["/"]:
        raise CombineError("there are no datasets to combine")
    for dim, labelling in how.new_dim.items():
        nodes = _with_new_dim(nodes, dim, make_labels(nodes["/"], dim, labelling), how.rules)
    nodes = {path: [with_labels_from(part, how.labels, storage) for part in parts] for path, parts in nodes.items()}
    if how.dims is None:
        nodes, plan = plan_parts(nodes, how.planning, how.rules, storage)
    else:
        nodes, plan = with_dims_of_others(nodes, how.rules), Plan()
    ordered: set[str] = set()
    if how.dims is None and len(nodes) > 1:
        ordered = {path for path, parts in nodes.items() if have_an_order(parts, how.rules)}
    joined = {}
    for path, parts in nodes.items():
        with naming_group(path):
            if how.unpack_where_differing:
                incomplete = in_some(parts) if how.rules.join == "outer" else ()
                parts = unpack_differing(parts, storage, decode_times=how.decode_times, incomplete=incomplete)
            if ordered and path not in ordered:
                part = merge_parts(parts, how.rules, storage)
            elif how.dims is None:
                part = _by_grids(parts, plan.grids, how.rules, storage)
            else:
                dims = _find_joined_dims(path, nodes, how.dims)
                part = combine_parts(nest_like(nested, parts), parts, dims, how.rules, storage)
                if how.planning.duplicates == "raise":
                    _check_repeats(part, dims)
        joined[path] = without_order(part, plan)
    return joined, plan


def combine_parts(
    nested: Nested[Part],
    flat: Sequence[Part],
    dims: Sequence[str | None],
    rules: Rules,
    storage: Storage,
    /,
) -> Part:
    """Combine parts according to their nesting."""
    _check_dims(flat, dims)
    shape = _shape(nested, dims)
    tiles = dict(zip(np.ndindex(*shape), align(flat, rules, but=dims), strict=True))
    return join_tiles(tiles, shape, dims, rules, storage)


def _check_dims(parts: Sequence[Part], dims: Sequence[str | None]) -> None:
    for dim in dims:
        if dim is None:
            continue
        if dims.count(dim) > 1:
            raise CombineError(
                f"concat_dim={list(dims)} names '{dim}' twice",
                Remedy("name another dimension for each level of lists"),
                variable=dim,
                property="dimension",
            )
        for part in parts:
            if dim in part.variables and part.variables[dim].ndim and dim not in part.sizes:
                raise CombineError(
                    f"concat_dim names '{dim}', which is a variable of {part.called} with the dimensions "
                    f"{list(part.variables[dim].dims)}, and not a dimension. Join along one of "
                    f"{sorted(part.sizes)}, or along a new dimension with another name",
                    variable=dim,
                    property="dimension",
                    left_url=part.source,
                )


def _shape(item: Nested[Part], dims: Sequence[str | None]) -> list[int]:
    """Return the lengths of the lists at each level, outermost first.

    Raises
    ------
    CombineError
        There are more or fewer levels than dimensions, or lists of one level differ in length.
    """
    if isinstance(item, Part):
        if dims:
            raise CombineError(
                f"found {item.called} where a list is needed: concat_dim names {list(dims)}, one dimension "
                "for each level of nested lists"
            )
        return []
    if not dims:
        raise CombineError(
            "lists are nested deeper than concat_dim has dimensions", Remedy("name one dimension for each level")
        )
    if not item:
        raise CombineError("there are no datasets to combine")
    shapes = [_shape(x, dims[1:]) for x in item]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            odd, first = (next(flatten(x)) for x in (item[i], item[0]))
            raise CombineError(
                f"lists along {list(dims[1:])} have lengths {shapes[0]} at {first.called} and {shape} at "
                f"{odd.called}, but all lists of one level must have the same length",
                Remedy("fill the grid"),
                Remedy(
                    "order the files by their coordinates with {} if some are missing",
                    combine="by_coords",
                    join="outer",
                ),
                property="hypercube",
                left=tuple(shapes[0]),
                right=tuple(shape),
                left_url=first.source,
                right_url=odd.source,
            )
    return [len(item), *shapes[0]]


def flatten[T](item: Nested[T], /) -> Iterator[T]:
    """Yield the items of nested lists, in order.

    >>> list(flatten([["a", "b"], ["c"]]))
    ['a', 'b', 'c']
    """
    if isinstance(item, Sequence) and not isinstance(item, str):
        for x in item:
            yield from flatten(x)
    else:
        yield cast(T, item)


def nest_like[T](item: Nested[Any], values: Iterable[T], /) -> Nested[T]:
    """Return values nested like the items that they come from.

    >>> nest_like([["a", "b"], ["c"]], [1, 2, 3])
    [[1, 2], [3]]
    """
    rest = iter(values)

    def nest(x: Nested[Any]) -> Nested[T]:
        return [nest(y) for y in x] if isinstance(x, Sequence) and not isinstance(x, str) else next(rest)

    return nest(item)


def combine_trees(
    trees: Nested[xr.DataTree], how: CombineOptions | None = None, /, *, storage: StorageLike = None
) -> xr.DataTree:
    """Combine trees node by node; see :func:`combine_trees_with_plan`."""
    return combine_trees_with_plan(trees, how, storage=storage)[0]


def combine_trees_with_plan(
    trees: Nested[xr.DataTree], how: CombineOptions | None = None, /, *, storage: StorageLike = None
) -> tuple[xr.DataTree, Plan]:
    """Combine trees node by node.

    Nodes have the coordinates of their parents, too. A node without the dimension that the other nodes are joined along
    must be the same in all trees.

    Raises
    ------
    CombineError
        Some trees lack a node, or nodes do not fit; a note on the error names the node.
    StorageError
        Values to be compared cannot be read.
    """
    how = how or CombineOptions()
    flat = list(flatten(trees))
    if not flat:
        raise CombineError("there are no trees to combine")
    nodes = {path: _parts(flat, path) for path in _common_paths(flat)}
    joined, plan = _combined(nodes, trees, how, Storage.from_option(storage))
    new = {*how.new_dim, *plan.new, *filter(None, how.dims or ())}
    datasets = {}
    for path, part in joined.items():
        own = {str(name) for tree in flat for name in _node(tree, path).to_dataset(inherit=False).variables}
        datasets[path] = _without_inherited(part, own | new).dataset()
    return xr.DataTree.from_dict(datasets), plan


def _by_grids(parts: Sequence[Part], grids: Sequence[tuple[str, str]], rules: Rules, storage: Storage) -> Part:
    """Combine parts by their coordinates: tiles of several grids grid by grid, as those of staggered variables."""
    if len(grids) < 2:
        return combine_by_coords(parts, rules, storage)
    every = {dim for dims in grids for dim in dims}
    joined = [
        combine_by_coords([part.without_dims(every - {*dims}) for part in parts], rules, storage) for dims in grids
    ]
    return merge_parts(joined, rules, storage)


def _check_repeats(part: Part, dims: Sequence[str | None]) -> None:
    """Refuse labels that repeat in files that are joined in the given order."""
    for dim in filter(None, dims):
        labels = part.indexes[dim].index if dim in part.indexes else None
        if labels is not None and not labels.is_unique:
            raise CombineError(
                f"label {labels[labels.duplicated()][0]!s} of '{dim}' would repeat",
                Remedy("{} keeps all", duplicates=None),
                variable=dim,
                property="labels",
            )


def _common_paths(trees: Sequence[xr.DataTree]) -> list[str]:
    paths = [{node.path for node in tree.subtree} for tree in trees]
    everything = dict.fromkeys(node.path for tree in trees for node in tree.subtree)
    for path in everything:
        absent = [i for i, present in enumerate(paths) if path not in present]
        if absent:
            having = next(tree for tree, present in zip(trees, paths, strict=True) if path in present)
            left, right = (x.to_dataset().encoding.get("source") for x in (having, trees[absent[0]]))
            raise CombineError(
                f"group '{path}' is missing from {len(absent):,} of {len(trees):,} files: '{left}' has it, "
                f"'{right}' does not",
                Remedy("join only files that have the same groups"),
                Remedy("open one group with", "vs.open_virtual_mfdataset", group=...),
                variable=path,
                property="presence",
                left=True,
                right=False,
                left_url=left,
                right_url=right,
            )
    return list(everything)


def _node(tree: xr.DataTree, path: str) -> xr.DataTree:
    return cast(xr.DataTree, tree[path])


def _parts(trees: Sequence[xr.DataTree], path: str) -> list[Part]:
    parts = []
    for tree in trees:
        part = Part.from_dataset(_node(tree, path).to_dataset(inherit=True))
        parts.append(part if part.source else replace(part, source=tree.to_dataset().encoding.get("source")))
    return parts


def _with_new_dim(nodes: Nodes, dim: str, labels: Sequence[Any], rules: Rules) -> Nodes:
    """Return nodes in which all nodes that have data have a new dimension."""
    return {
        path: [
            with_new_dim(part, dim, label, rules)
            if len(nodes) == 1 or part.variables.keys() - part.coordinates
            else part
            for part, label in zip(parts, labels, strict=True)
        ]
        for path, parts in nodes.items()
    }


def _find_joined_dims(path: str, nodes: Nodes, dims: Sequence[str | None]) -> list[str | None]:
    """Return the dimensions that a node is joined along: ``None`` for a dimension that only other nodes have."""
    elsewhere = {dim for parts in nodes.values() for dim in parts[0].sizes}
    return [dim if dim in nodes[path][0].sizes or dim not in elsewhere else None for dim in dims]


def _without_inherited(part: Part, own: set[str]) -> Part:
    return replace(
        part,
        variables={name: x for name, x in part.variables.items() if name in own},
        coordinates=part.coordinates & own,
        indexes={name: x for name, x in part.indexes.items() if name in own},
    )
