"""Make the group of a file that is like an earlier one: all is the same but chunks and the attributes of groups."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from virtualstack.child.errors import LibraryError
from virtualstack.errors import ManifestError
from virtualstack.formats.hdf5.hdfeos import EOS_INFORMATION
from virtualstack.formats.hdf5.parsed_view import ParsedView
from virtualstack.formats.hdf5.references import FileContext
from virtualstack.formats.hdf5.structures.chunk_table import empty_table
from virtualstack.formats.hdf5.structures.requests import LostValuesError, NoReferencesError
from virtualstack.formats.hdf5.tree import HDF5Group, HDF5Variable
from virtualstack.formats.hdf5.variables import read_references
from virtualstack.manifests import Fill, ManifestArray, ManifestGroup


class _Member(NamedTuple):
    """A variable of every file of a product, and what its array has beside the manifest."""

    number: int
    variable: HDF5Variable
    fill: Fill
    dtype: np.dtype[Any]
    dimension_names: tuple[str, ...] | None
    cf: Mapping[str, Any]

    def array(self, view: ParsedView, context: FileContext) -> ManifestArray:
        """Return the array of this variable in another file."""
        variable = view.moved(self.variable, self.number)
        manifest, grid = read_references(variable, variable.shape or (), self.fill, context)
        return ManifestArray(
            manifest=manifest,
            grid=grid,
            dtype=self.dtype,
            name=variable.path,
            dimension_names=self.dimension_names,
            attributes=variable.attributes.own_values(),
            cf=dict(self.cf),
        )


class _Product(NamedTuple):
    """A group of every file of a product; numbers are those of objects in the order in which links lead to them."""

    path: str
    number: int
    members: Mapping[str, _Member]
    groups: Mapping[str, _Product]
    dimensions: Mapping[str, int]
    unlimited: frozenset[str]

    @classmethod
    def learn(cls, tree: HDF5Group, group: ManifestGroup, numbers: Mapping[int, int], /) -> _Product | None:
        """Return what a group has that was read; ``None`` if more than the likeness of its file decides it."""
        by_path = {variable.path: variable for variable in tree.variables.values()}
        members = {}
        for name, array in group.arrays.items():
            variable = by_path[array.name or ""]
            if array.shape != variable.shape:  # extended to the length of its dimension
                return None
            bare = variable._replace(list_chunks=empty_table, list_mappings=tuple, read_texts=None)
            members[name] = _Member(
                numbers[variable.address],
                bare,
                array.in_memory().fill,
                array.dtype,
                array.dimension_names,
                dict(array.cf),
            )
        groups = {name: cls.learn(tree.groups[name], child, numbers) for name, child in group.groups.items()}
        known = {name: child for name, child in groups.items() if child is not None}
        if group.refusals or tree.external_links or len(known) < len(groups):
            return None
        return cls(tree.path, numbers[tree.address], members, known, dict(group.dimensions), group.unlimited)

    def group(self, view: ParsedView, context: FileContext) -> ManifestGroup | None:
        """Return this group of another file; ``None`` if its attributes need more than their values."""
        attributes = view.attributes_of(self.number, self.path)
        groups = {name: child.group(view, context) for name, child in self.groups.items()}
        known = {name: child for name, child in groups.items() if child is not None}
        if attributes.notes or attributes.references or len(known) < len(groups):
            return None
        return ManifestGroup(
            arrays={name: member.array(view, context) for name, member in self.members.items()},
            groups=known,
            attributes=attributes.own_values(),
            dimensions=dict(self.dimensions),
            unlimited=self.unlimited,
            url=context.location.url,
        )


_MAX_PRODUCTS = 256
PRODUCTS: dict[tuple[object, ...], _Product] = {}


class ProductFile(NamedTuple):
    """A file of a product; ``key`` has the reader, its options and the likeness of the file."""

    view: ParsedView
    key: tuple[object, ...]

    def group(self, context: FileContext) -> ManifestGroup | None:
        """Return the group of the file; ``None`` if no other file of the product is known, or it must be read."""
        product = PRODUCTS.get(self.key)
        with suppress(LibraryError, LostValuesError, ManifestError, NoReferencesError):
            return None if product is None else product.group(self.view, context)
        return None

    def learnt(self, tree: HDF5Group, group: ManifestGroup) -> ManifestGroup:
        """Return the group that was read, after learning from it."""
        product = None if EOS_INFORMATION in tree.groups else _Product.learn(tree, group, self.view.numbers)
        if product is not None:
            if len(PRODUCTS) >= _MAX_PRODUCTS:
                PRODUCTS.clear()
            PRODUCTS[self.key] = product
        return group
