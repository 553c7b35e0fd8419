"""Many trees of virtual datasets as one, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import xarray as xr

from virtualstack.combine.datasets import Nested, combine_parts, flatten, nest_like
from virtualstack.combine.differing import unpack_differing
from virtualstack.combine.merge import merge_parts
from virtualstack.combine.new_dim import make_labels, with_new_dim
from virtualstack.combine.options import CombineOptions
from virtualstack.combine.order import have_an_order
from virtualstack.combine.part import Part
from virtualstack.errors import CombineError
from virtualstack.storage import Storage, StorageLike

__all__ = ["combine_trees"]


def combine_trees(
    trees: Nested[xr.DataTree], how: CombineOptions | None = None, /, *, storage: StorageLike = None
) -> xr.DataTree:
    """Combine trees node by node.

    Nodes see the coordinates of those above them. A node without the dimension that the others are joined along must
    be the same in all trees.

    Raises
    ------
    CombineError
        A node is absent in some trees, or nodes do not fit; a note on the error names the node.
    StorageError
        Values to be compared cannot be read.
    """
    how = how or CombineOptions()
    dims, rules = how.dims, how.rules
    flat = list(flatten(trees))
    if not flat:
        raise CombineError("there are no trees to combine")
    paths = _common_paths(flat)
    store = Storage.of(storage)
    nodes = {path: _parts(flat, path) for path in paths}
    for dim, labelling in how.new_dim.items():
        nodes = _with_new_dim(nodes, dim, make_labels(nodes["/"], dim, labelling))
    combined = {}
    ordered = {path for path, parts in nodes.items() if dims is None and have_an_order(parts, rules)}
    for path, parts in nodes.items():
        if how.unpack_where_differing:
            parts = unpack_differing(parts, decode_times=how.decode_times)
        own = {str(name) for tree in flat for name in _node(tree, path).to_dataset(inherit=False).variables}
        try:
            if ordered and path not in ordered:
                part = merge_parts(parts, rules, store)
            else:
                part = combine_parts(nest_like(trees, parts), parts, _find_joined_dims(path, nodes, dims), rules, store)
        except CombineError as error:
            error.add_note(f"in the group '{path}'")
            raise
        combined[path] = _without_inherited(part, own | {*how.new_dim, *filter(None, dims or ())}).dataset()
    return xr.DataTree.from_dict(combined)


def _common_paths(trees: Sequence[xr.DataTree]) -> list[str]:
    paths = [{node.path for node in tree.subtree} for tree in trees]
    everything = dict.fromkeys(node.path for tree in trees for node in tree.subtree)
    for path in everything:
        absent = [i for i, present in enumerate(paths) if path not in present]
        if absent:
            having = next(tree for tree, present in zip(trees, paths, strict=True) if path in present)
            left, right = (x.to_dataset().encoding.get("source") for x in (having, trees[absent[0]]))
            raise CombineError(
                f"group '{path}' is absent in {len(absent):,} of {len(trees):,} files: '{left}' has it, '{right}' has "
                "not; join the files that have the same groups, or open one group with open_virtual_mfdataset(group=)",
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
        part = Part.of(_node(tree, path).to_dataset(inherit=True))
        parts.append(part if part.source else replace(part, source=tree.to_dataset().encoding.get("source")))
    return parts


def _with_new_dim(nodes: Mapping[str, Sequence[Part]], dim: str, labels: Sequence[Any]) -> dict[str, list[Part]]:
    """Put a dimension on all nodes that hold data."""
    return {
        path: [
            with_new_dim(part, dim, label) if part.variables.keys() - part.coordinates else part
            for part, label in zip(parts, labels, strict=True)
        ]
        for path, parts in nodes.items()
    }


def _find_joined_dims(
    path: str, nodes: Mapping[str, Sequence[Part]], dims: Sequence[str | None] | None
) -> list[str | None] | None:
    """Give the dimensions that a node is joined along; none where others have it and the node has not."""
    if dims is None:
        return None
    elsewhere = {dim for parts in nodes.values() for dim in parts[0].sizes}
    return [dim if dim in nodes[path][0].sizes or dim not in elsewhere else None for dim in dims]


def _without_inherited(part: Part, own: set[str]) -> Part:
    return replace(
        part,
        variables={name: x for name, x in part.variables.items() if name in own},
        coordinates=part.coordinates & own,
        indexes={name: x for name, x in part.indexes.items() if name in own},
    )
