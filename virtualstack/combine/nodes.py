"""The groups of a store, one by one, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from virtualstack.combine.part import Part
from virtualstack.dataset import to_group
from virtualstack.errors import CombineError
from virtualstack.manifests import ChunkManifest, ManifestArray, ManifestGroup

__all__ = ["bundled_in", "each_node", "group_from", "labels_by_path", "with_inherited", "with_labels"]


def each_node(
    stored: ManifestGroup,
    groups: Sequence[ManifestGroup],
    change: Callable[[str, ManifestGroup, Sequence[ManifestGroup]], ManifestGroup],
    /,
) -> ManifestGroup:
    """Change each group of a store by those of other trees that have its path.

    Raises
    ------
    CombineError
        The trees have not the same groups; or what ``change`` raises, with a note that names the group.
    """
    nodes, others = dict(stored.walk()), [dict(group.walk()) for group in groups]
    for group, its in zip(groups, others, strict=True):
        for path in sorted(nodes.keys() ^ its.keys()):
            having, other = (stored, group) if path in nodes else (group, stored)
            raise CombineError(
                f"group '{path}' is in '{having.url}' and not in '{other.url}'; what is added to a store has its "
                "groups: leave the group out, or write a store of its own",
                variable=path,
                property="presence",
                left=path in nodes,
                right=path in its,
                left_url=stored.url,
                right_url=group.url,
            )
    made = {}
    for path, node in nodes.items():
        with _naming(path):
            made[path] = change(path, node, [its[path] for its in others])
    return _tree(made, stored, "")


def _tree(made: dict[str, ManifestGroup], like: ManifestGroup, path: str) -> ManifestGroup:
    below = {name: _tree(made, child, f"{path}/{name}") for name, child in like.groups.items()}
    return replace(made[path], groups=below)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except CombineError as error:
        if path:
            error.add_note(f"in the group '{path}'")
        raise


def group_from(part: Part, stored: ManifestGroup, unchanged: Collection[str], /) -> ManifestGroup:
    """Give the group of a part; variables that are as they were in the store stay the very same."""
    known = {(x.path, x.kind): x for x in reversed((*stored.refusals, *part.refusals))}  # the store's own word holds
    made = to_group(replace(part, refusals=tuple(reversed(known.values()))).dataset())
    arrays = {name: stored.arrays[name] if name in unchanged else array for name, array in made.arrays.items()}
    return replace(made, arrays=arrays, loaded=made.loaded | (stored.loaded & arrays.keys()), not_text=stored.not_text)


def bundled_in(group: ManifestGroup, /) -> set[str]:
    """Name the variables whose values came with the group."""
    return {name for name, array in group.arrays.items() if isinstance(array.manifest, ChunkManifest)}


def labels_by_path(tree: ManifestGroup, dim: str, /) -> dict[str, ManifestArray | None]:
    """Give the coordinate that each group has of its own, or of the nearest group that it lies in."""
    found: dict[str, ManifestArray | None] = {}
    for path, node in tree.walk():
        found[path] = node.arrays.get(dim, found.get(path.rpartition("/")[0]))
    return found


def with_labels(group: ManifestGroup, dim: str, labels: ManifestArray | None, /) -> ManifestGroup:
    """Give a group that has a dimension the coordinate that it inherits."""
    sizes = {
        n for x in group.arrays.values() for d, n in zip(x.dimension_names or (), x.shape, strict=False) if d == dim
    }
    if labels is None or dim in group.arrays or sizes != set(labels.shape):
        return group
    return replace(group, arrays={**group.arrays, dim: labels}, loaded=group.loaded | {dim})


def with_inherited(tree: ManifestGroup, /) -> dict[str, ManifestGroup]:
    """Give the groups of a tree by path, each with the coordinates that its dimensions inherit."""
    found = dict(tree.walk())
    dims = {dim for node in found.values() for x in node.arrays.values() for dim in x.dimension_names or ()}
    for dim in sorted(dims):
        labels = labels_by_path(tree, dim)
        found = {path: with_labels(node, dim, labels[path]) for path, node in found.items()}
    return found
