"""Add variables and groups to a tree by name, or replace some of them; all others stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Literal

from virtualstack.errors import Remedy, WriterError
from virtualstack.manifests import ManifestArray, ManifestGroup, labels_of, same_value
from virtualstack.reading import read_array
from virtualstack.storage import Storage

type Mode = Literal["w-", "w", "a"]


def with_members(
    stored: ManifestGroup, group: ManifestGroup, path: str, mode: Mode, storage: Storage, /
) -> ManifestGroup:
    """Return a tree with a group at a path: a new one, one in place of the old one, or one that is added to it.

    Raises
    ------
    WriterError
        The group exists and ``mode`` is ``"w-"``, a variable has the name of a group, or dimensions or labels disagree.
    """
    parts = [part for part in path.split("/") if part]
    made = _put(stored, group, parts, mode, storage)
    known = set(_conflicts(stored, {}, ""))  # groups of a file may disagree
    for name, dim, n, other, where in _conflicts(made, {}, ""):
        if (name, dim, n, other, where) not in known:
            raise WriterError(
                f"dimension '{dim}' has length {n} in variable '{name}' and {other} {where}",
                Remedy("place the data by their labels with {}", "Repository.update"),
                Remedy("rename the dimension", f"rename({dim}=...)"),
                variable=name,
                feature="dimension",
            )
    return made


def _put(
    stored: ManifestGroup | None,
    group: ManifestGroup,
    parts: list[str],
    mode: Mode,
    storage: Storage,
) -> ManifestGroup:
    if parts:
        above = ManifestGroup() if stored is None else stored
        below = _put(above.groups.get(parts[0]), group, parts[1:], mode, storage)
        _check_names(above.arrays.keys(), {parts[0]})
        return replace(above, groups={**above.groups, parts[0]: below})
    if stored is None or mode == "w":
        return group
    if mode == "w-" and stored.arrays:
        raise WriterError(
            f"the group exists already in '{stored.url}'",
            Remedy("add variables to it, or replace variables of it, with {}", mode="a"),
            Remedy("replace the whole group with {}", mode="w"),
            feature="existing target",
        )
    return _added(stored, group, storage)


def _added(old: ManifestGroup, new: ManifestGroup, storage: Storage) -> ManifestGroup:
    """Return a group with the variables, groups and attributes of another one, which count if both have them."""
    _check_sizes(old, new)
    _check_labels(old, new, storage)
    groups = {name: _added(old.groups[name], x, storage) if name in old.groups else x for name, x in new.groups.items()}
    _check_names({*old.arrays, *new.arrays}, {*old.groups, *new.groups})
    return replace(
        old,
        arrays={**old.arrays, **new.arrays},
        groups={**old.groups, **groups},
        attributes={**old.attributes, **new.attributes},
        coordinates=old.coordinates - new.arrays.keys() | new.coordinates,
        dimensions={**old.dimensions, **new.dimensions},
        unlimited=old.unlimited | new.unlimited,
        loaded=old.loaded - new.arrays.keys() | new.loaded,
        not_text=old.not_text | new.not_text,
        refusals=(*(x for x in old.refusals if x.path.strip("/") not in new.arrays), *new.refusals),
    )


def _check_names(arrays: Set[str], groups: Set[str]) -> None:
    if both := sorted(arrays & groups):
        raise WriterError(
            f"{both[0]!r} would name both a variable and a group", Remedy("rename one of them"), variable=both[0]
        )


def _check_sizes(old: ManifestGroup, new: ManifestGroup) -> None:
    """Raise an error if a variable would be replaced by one of other dimensions or lengths, as xarray does for zarr."""
    for name in old.arrays.keys() & new.arrays.keys():
        before, after = (
            dict(zip(x.dimension_names or (), x.shape, strict=True)) for x in (old.arrays[name], new.arrays[name])
        )
        if before != after:
            raise WriterError(
                f"variable '{name}' of '{old.url}' has {before}, and the new one has {after}",
                Remedy("append to it with", append_dim=...),
                Remedy("place the data by their labels with {}", "Repository.update"),
                Remedy("replace the whole group with {}", mode="w"),
                variable=name,
                feature="dimension",
            )


def _check_labels(old: ManifestGroup, new: ManifestGroup, storage: Storage) -> None:
    """Raise an error if labels would change that variables have which are not replaced."""
    kept = {dim for name, x in old.arrays.items() if name not in new.arrays for dim in x.dimension_names or ()}
    before, after = labels_of(old), labels_of(new)
    for dim in sorted(kept & before.keys() & after.keys()):
        if not _is_equal(before[dim], after[dim], storage):
            raise WriterError(
                f"the labels of '{dim}' differ from those of '{old.url}', which other variables of the store have",
                Remedy("place the data by their labels with {}", "Repository.update"),
                Remedy("take the labels of the store with", f"reindex({dim}=...)"),
                variable=dim,
                feature="labels",
            )


def _is_equal(a: ManifestArray, b: ManifestArray, storage: Storage) -> bool:
    if a.shape != b.shape or a.cf.keys() != b.cf.keys():
        return False
    x, y = (read_array(array, (slice(None),), storage) for array in (a, b))
    return all(same_value(a.cf[key], b.cf[key]) for key in a.cf) and same_value(x, y)


def _conflicts(group: ManifestGroup, above: Mapping[str, int], path: str) -> Iterator[tuple[str, str, int, int, str]]:
    """Yield dimensions with two lengths in a group, or another length than the labels that the group inherits."""
    sizes = {dim: (n, "in a group above") for dim, n in above.items()}
    for name, array in group.arrays.items():
        for dim, n in zip(array.dimension_names or (), array.shape, strict=True):
            other, where = sizes.setdefault(dim, (n, f"in '{path}{name}'"))
            if other != n:
                yield f"{path}{name}", dim, n, other, where
    labels = {**above, **{dim: x.shape[0] for dim, x in labels_of(group).items()}}
    for name, child in group.groups.items():
        yield from _conflicts(child, labels, f"{path}{name}/")
