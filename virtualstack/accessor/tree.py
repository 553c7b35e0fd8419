"""``tree.virtual`` of a tree: the members of a dataset's, for all groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

from virtualstack.accessor.dataset import VirtualAccessor, require_dask
from virtualstack.accessor.facts import AccessorFacts, checked_letters, tree_to_group, without_refusals
from virtualstack.accessor.targets import Targets

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestGroup
    from virtualstack.storage import StorageLike

__all__ = ["VirtualTreeAccessor"]


@xr.register_datatree_accessor("virtual")  # type: ignore[no-untyped-call]
class VirtualTreeAccessor(Targets, AccessorFacts):
    """``tree.virtual``: values, writers and facts of a tree of virtual datasets.

    Members are those of `VirtualAccessor`. Variables are named by their path, such as ``"group/name"``.
    """

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    def _groups(self) -> dict[str, xr.Dataset]:
        return {_path(key): node.to_dataset(inherit=False) for key, node in self._tree.subtree_with_keys}

    def _changed(self, groups: Mapping[str, xr.Dataset]) -> xr.DataTree:
        """Return the tree with some groups changed."""
        return xr.DataTree.from_dict({path or "/": x for path, x in groups.items()}, name=self._tree.name)

    # -- values -----------------------------------------------------------------------------------------------

    def open(
        self,
        *,
        chunks: Any = None,
        storage: StorageLike = None,
        absent: Literal["fill", "raise"] = "fill",
        **decoding: Any,
    ) -> xr.DataTree:
        """Return the tree as ordinary lazy datasets with values: see :meth:`VirtualAccessor.open`."""
        from virtualstack.engine import OpenedGroupEntrypoint

        require_dask(chunks)
        group: Any = without_refusals(tree_to_group(self._tree))
        return xr.open_datatree(
            group,
            engine=OpenedGroupEntrypoint,
            chunks=chunks,
            storage=storage,
            absent=absent,
            **decoding,
        )

    def load(self, names: str | Iterable[str], /, *, storage: StorageLike = None) -> xr.DataTree:
        """Return the tree with some virtual variables loaded and decoded: see :meth:`VirtualAccessor.load`."""
        wanted = dict.fromkeys([names] if isinstance(names, str) else names)
        groups = self._groups()
        for path, its in self._by_group(wanted).items():
            groups[path] = VirtualAccessor(groups[path]).load(its, storage=storage)
        return self._changed(groups)

    def to_group(self) -> ManifestGroup:
        """Return the tree as the plain group that writers and :class:`virtualstack.ManifestStore` take."""
        return checked_letters(tree_to_group(self._tree))

    # -- changes ----------------------------------------------------------------------------------------------

    def set_encoding(self, encodings: Mapping[str, Mapping[str, Any]], /) -> xr.DataTree:
        """Return a tree that says otherwise how stored numbers become values: see `VirtualAccessor.set_encoding`."""
        groups = self._groups()
        for path, its in self._by_group(encodings).items():
            groups[path] = VirtualAccessor(groups[path]).set_encoding(its)
        return self._changed(groups)

    def reindex(
        self,
        indexers: Mapping[Any, Any] | None = None,
        *,
        fill_value: Any = None,
        method: Literal["nearest", "pad", "ffill", "backfill", "bfill"] | None = None,
        tolerance: Any = None,
        **indexers_kwargs: Any,
    ) -> xr.DataTree:
        """Return the tree with other labels, in each group that has the dimensions: see `VirtualAccessor.reindex`.

        Groups that inherit a coordinate are brought to its new labels. ``fill_value`` may name variables by path.
        """
        labels = {**(indexers or {}), **indexers_kwargs}
        nodes = {_path(key): node.to_dataset() for key, node in self._tree.subtree_with_keys}
        if unknown := sorted(map(str, labels.keys() - {dim for node in nodes.values() for dim in node.dims})):
            raise ValueError(f"no group of the tree has the dimensions {unknown}, which are to have other labels")
        fills = self._by_group(fill_value) if isinstance(fill_value, Mapping) else dict.fromkeys(nodes, fill_value)
        groups = self._groups()
        for path, node in nodes.items():
            its = {dim: x for dim, x in labels.items() if dim in node.dims}
            if its:
                changed = VirtualAccessor(node).reindex(
                    its, fill_value=fills.get(path), method=method, tolerance=tolerance
                )
                groups[path] = changed.drop_vars(node.variables.keys() - groups[path].variables.keys())
        return self._changed(groups)

    def write(
        self,
        name: str,
        region: Any,
        values: Any,
        /,
        *,
        to: str | os.PathLike[str],
        raw: bool = False,
        storage: StorageLike = None,
    ) -> xr.DataTree:
        """Return the tree with other values of the variable ``"group/name"``: see :meth:`VirtualAccessor.write`."""
        groups = self._groups()
        ((path, (leaf,)),) = self._by_group({name: None}).items()
        groups[path] = VirtualAccessor(groups[path]).write(leaf, region, values, to=to, raw=raw, storage=storage)
        return self._changed(groups)

    def rename_locations(self, change: Mapping[str, str] | Callable[[str], str], /) -> xr.DataTree:
        """Return the tree with other URLs of its sources: see :meth:`VirtualAccessor.rename_locations`."""
        groups = self._groups()
        return self._changed({path: VirtualAccessor(x).rename_locations(change) for path, x in groups.items()})

    def _by_group[T](self, by_path: Mapping[str, T]) -> dict[str, dict[str, T]]:
        """Sort what is given by the path of a variable by group, and then by name.

        Raises
        ------
        KeyError
            There is no such group.
        """
        known = {_path(key) for key, _ in self._tree.subtree_with_keys}
        found: dict[str, dict[str, T]] = {}
        for path, x in by_path.items():
            group, _, name = path.strip("/").rpartition("/")
            if group not in known:
                raise KeyError(f"no group '{group}' for variable '{path}'; there are {sorted(known)}")
            found.setdefault(group, {})[name] = x
        return found

    def __repr__(self) -> str:
        return f"<virtual: tree of {sum(1 for _ in self._tree.subtree)} groups>"


def _path(key: str) -> str:
    """Return the path of a group from the key that xarray has for it, which is ``"."`` for the root."""
    return "" if key == "." else key
