"""Options of adding to a target (append, region): their valid combinations, and the addition itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from virtualstack.combine.align import align_in_order
from virtualstack.combine.concat import concat_parts
from virtualstack.combine.conflicts import of_one_dtype, unpack_differing
from virtualstack.combine.equal_variables import KEEP_STORED, Remedies, the_same
from virtualstack.combine.fitting import (
    WITH_OUTER,
    Fitting,
    check_dimension,
    check_presence,
    completed,
    fitted,
    incomplete,
    labels_of_a_variable,
    load_part,
)
from virtualstack.combine.part import Part, bundled_in, each_node, group_from
from virtualstack.combine.planned import facts_of, planned, with_labels_as_in
from virtualstack.combine.region import Region, check_time, following, placed
from virtualstack.errors import CombineError, Remedy, UnsupportedFeatureError
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.manifest import Overlay
from virtualstack.options import JoinToStore
from virtualstack.planning import make_plan
from virtualstack.planning.dimension import main_dimension
from virtualstack.planning.groups import declared_facts
from virtualstack.planning.labels import check_kinds
from virtualstack.storage import Storage, StorageLike


def check_complete(stored: ManifestGroup, /) -> None:
    """Raise an error if a target has a variable that its reader refuses: written again, the target would lack it."""
    for path, node in stored.walk():
        for refusal in node.refusals:
            if refusal.kind == "refused":
                raise UnsupportedFeatureError(
                    f"'{stored.url}' has '{path}{refusal.path}', which cannot be written again: {refusal.reason}",
                    Remedy("write another target without this variable, and add to that"),
                    url=stored.url,
                    variable=refusal.path,
                    feature=refusal.reason,
                )


def growing_dimension(stored: ManifestGroup, /) -> str:
    """Return the dimension along which a store was built, and which new files continue.

    A store of one dimension has no other.
    """
    dims = {x for _, node in stored.walk() for array in node.arrays.values() for x in array.dimension_names or ()}
    dim = next(iter(dims)) if len(dims) == 1 else main_dimension([declared_facts(stored)])
    name_it = Remedy("name the one that grows with", dim=...)
    if dim is None:
        raise CombineError(
            f"which dimension '{stored.url}' grows along is not known; it has {sorted(dims)}",
            name_it,
            Remedy("give it a new one: build it again with", "vs.open_virtual_mfdataset", new_dim=...),
            property="dimension",
            left_url=stored.url,
        )
    check_dimension(stored, dim, name_it)  # a scalar time is no dimension
    return dim


def appended(
    stored: ManifestGroup,
    group: ManifestGroup,
    dim: str,
    fitting: Fitting,
    /,
    *,
    ordered: bool,
    bundled: Callable[[ManifestGroup], Collection[str]] = bundled_in,
) -> ManifestGroup:
    """Return a group of a store with another group appended along a dimension.

    Variables without the dimension must be the same and are not changed. The attributes of the store are kept.
    """
    check_dimension(stored, dim)
    return each_node(
        stored, [group], lambda _, node, new: _appended(node, new[0], dim, fitting, bundled(node), ordered=ordered)
    )


def _appended(
    stored: ManifestGroup, group: ManifestGroup, dim: str, fitting: Fitting, names: Collection[str], *, ordered: bool
) -> ManifestGroup:
    loaded = set(names)
    old = load_part(stored, fitting.storage, loaded)
    before = old.sizes
    new = load_part(group, fitting.storage, loaded | group.loaded | {dim})
    new = with_labels_as_in(old, new, fitting.storage)
    new = planned(new, 0, make_plan([facts_of(new)], dims=old.sizes), fitting.rules, old.variables)
    old, new = unpack_differing([old, new], fitting.storage, incomplete=incomplete([old, new], dim, fitting))
    if dim in old.sizes and dim not in new.sizes:
        raise CombineError(
            f"{new.called} has no dimension '{dim}' to append along; it has {sorted(new.sizes)}",
            Remedy("add it with", f"expand_dims('{dim}')", new_dim=...),
            property="dimension",
            left=sorted(old.sizes),
            right=sorted(new.sizes),
            left_url=old.source,
            right_url=new.source,
        )
    if ordered:
        check_time(old, [new], dim)
    if ordered and dim not in old.indexes:
        _check_order(dim, _last_label(stored, dim, fitting), new)
    old, [new] = following(old, [new], [dim], fitting)
    if dim in old.indexes and dim not in new.variables:
        raise CombineError(
            f"{old.called} has labels of '{dim}' and {new.called} does not",
            labels_of_a_variable(dim),
            Remedy("give it labels with", f"assign_coords({dim}=...)"),
            variable=dim,
            property="presence",
            left=True,
            right=False,
            left_url=old.source,
            right_url=new.source,
        )
    if fitting.join == "outer":
        old, new = align_in_order([old, new], fitting.rules, but=dim)
        old, new = completed(old, new, dim, fitting), completed(new, old, dim, fitting)
    old, new = of_one_dtype([old, new])
    new = fitted(new, old, fitting, but=[dim])
    if ordered:
        _check_order(dim, old, new)
    check_presence(old, new, sorted(old.variables.keys() ^ new.variables.keys()), WITH_OUTER)
    if dim in old.sizes:
        joined = concat_parts([old, new], dim, fitting.keeping_attributes, fitting.storage, is_append=True)
    else:
        why, remedies = "is in a group without the dimension", Remedies(others=(KEEP_STORED,))
        for name in old.variables:
            if name not in old.indexes:
                the_same(name, [old, new], fitting.storage, fitting.rules, why=why, remedies=remedies)
        joined = old
    grown = {dim, *(name for name, n in joined.sizes.items() if n != before.get(name))}
    unchanged = {name for name, x in joined.variables.items() if grown.isdisjoint(x.dims)} & stored.arrays.keys()
    return group_from(joined, stored, unchanged)


def _last_label(stored: ManifestGroup, dim: str, fitting: Fitting) -> Part:
    """Return the last label of a store whose labels are references, as after a conversion; no other one is read."""
    array = stored.arrays.get(dim)
    if array is None or array.dimension_names != (dim,) or not array.shape[0]:
        return load_part(replace(stored, arrays={}), fitting.storage, ())
    last = replace(array[-1:], dimension_names=(dim,))
    return load_part(replace(stored, arrays={dim: last}), fitting.storage, {dim})


def _check_order(dim: str, old: Part, new: Part) -> None:
    if dim not in old.indexes or dim not in new.indexes:
        return
    before, labels = old.indexes[dim].index, new.indexes[dim].index
    check_kinds(dim, [old, new], [before, labels])
    if not len(labels):
        return
    is_behind = not len(before) or bool(labels[0] > before[-1])
    if is_behind and labels.is_monotonic_increasing and labels.is_unique:
        return
    at = f"start at {labels[0]!s}" if not is_behind else "do not ascend"
    both = before.append(labels)
    descends = len(before) > 1 and both.is_monotonic_decreasing and both.is_unique
    raise CombineError(
        f"the labels of '{dim}' to append {at} in {new.called}, but the labels of {old.called} end at "
        f"{before[-1] if len(before) else None!s}",
        Remedy("in a vstack, use {} to insert data by its labels", "Repository.update"),
        *([Remedy("use {} to append labels that descend, as those of the store", ordered=False)] if descends else []),
        variable=dim,
        property="order",
        left=before[-1] if len(before) else None,
        right=labels[0],
        left_url=old.source,
        right_url=new.source,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """The way in which a group is added to a target: appended along a dimension, or placed over a region.

    The rules are the same for kerchunk, Icechunk and vstack. Additions are made by :meth:`from_options`.
    """

    append_dim: str | None
    region: Region | None
    ordered: bool
    fitting: Fitting

    @classmethod
    def from_options(
        cls,
        *,
        mode: str = "w-",
        append_dim: str | None = None,
        region: Region | None = None,
        ordered: bool,
        join: JoinToStore,
        combine_options: Mapping[str, Any] | None,
        storage: StorageLike,
    ) -> Addition | None:
        """Check the options of a user, and return the addition; ``None`` if the target is written as a whole."""
        if append_dim is None and (join != "exact" or not ordered):
            raise ValueError(f"join={join!r} and ordered={ordered} require append_dim=, which is not given")
        if append_dim is None and region is None:
            if combine_options is not None:
                raise ValueError("combine_options= requires append_dim= or region=, and neither is given")
            return None
        if mode != "w-" or (append_dim is not None and region is not None):
            raise ValueError(
                f"append_dim={append_dim!r}, region={region!r} and mode={mode!r} are different ways to change a "
                "target. Give only one of them"
            )
        fitting = Fitting.from_options(join=join, options=combine_options, storage=Storage.from_option(storage))
        return cls(append_dim=append_dim, region=region, ordered=ordered, fitting=fitting)

    def add(
        self,
        stored: ManifestGroup,
        group: ManifestGroup,
        /,
        *,
        bundled: Callable[[ManifestGroup], Collection[str]] = bundled_in,
    ) -> tuple[ManifestGroup, Mapping[str, Sequence[Overlay]]]:
        """Return the changed group of the target, and overlays on its virtual variables, by their paths."""
        if self.append_dim is not None:
            return appended(stored, group, self.append_dim, self.fitting, ordered=self.ordered, bundled=bundled), {}
        if self.region is None:
            raise TypeError("an addition has a dimension or a region")
        return placed(stored, group, self.region, self.fitting)
