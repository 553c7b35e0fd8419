"""Groups of a document, and the dimensions of their variables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from virtualstack.formats.dmrpp.document import BadValueError, Element, read_number

type Axis = tuple[str, int]
"""Name of a dimension, and its length in elements."""

# DAP4 specification, 5.1 and 5.4: types of variables; UByte and Url are alternative spellings
_USUAL = frozenset(
    {"Byte", "Char", "UByte", "Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64"}
    | {"Float32", "Float64", "String", "URL", "Url"}
)
_MAX_RANK = 32  # H5S_MAX_RANK
_VARIABLES = _USUAL | {"Enum", "Opaque", "Structure", "Sequence"}


@dataclass(slots=True, kw_only=True)
class DmrppGroup:
    """A group, and the objects that can be named in it."""

    path: str
    element: Element
    parent: DmrppGroup | None
    variables: dict[str, Element] = field(default_factory=dict)
    axes: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    dimensions: dict[str, int] = field(default_factory=dict)
    enumerations: dict[str, Element] = field(default_factory=dict)
    groups: dict[str, DmrppGroup] = field(default_factory=dict)

    def walk(self) -> Iterator[DmrppGroup]:
        """Yield this group and all below it, parents first."""
        yield self
        for child in self.groups.values():
            yield from child.walk()

    def enumeration(self, name: str, /) -> Element:
        """Find an enumeration that is visible from this group."""
        for group, leaf in self._scopes(name):
            if leaf in group.enumerations:
                return group.enumerations[leaf]
        raise BadValueError(f"there is no Enumeration '{name}'")

    def dimension(self, name: str, /) -> Axis:
        """Find a dimension that is visible from this group."""
        for group, leaf in self._scopes(name):
            if leaf in group.dimensions:
                return leaf, group.dimensions[leaf]
        raise BadValueError(f"there is no Dimension '{name}'")

    def _scopes(self, name: str) -> Iterator[tuple[DmrppGroup, str]]:
        """Yield the groups that may declare a name, and its last part: one group for a path, else all parents, too."""
        group: DmrppGroup | None = self
        if not name.startswith("/"):
            while group is not None:
                yield group, name
                group = group.parent
            return
        *parts, leaf = name[1:].split("/")
        root = self
        while root.parent is not None:
            root = root.parent
        for part in parts:
            if part not in root.groups:
                return
            root = root.groups[part]
        yield root, leaf


def read_tree(root: Element, /) -> DmrppGroup:
    """Collect the groups of a document, and name the axes of its variables.

    Axes without a name share phony dimensions by length in their group, as in netCDF-C. They are numbered through the
    file after all declared dimensions, child groups first.
    """
    tree = _declare(root, "", None)
    _name_axes(tree, itertools.count(sum(len(group.dimensions) for group in tree.walk())))
    return tree


def _declare(element: Element, path: str, parent: DmrppGroup | None) -> DmrppGroup:
    group = DmrppGroup(path=path, element=element, parent=parent)
    for child in element.children:
        name = child.attributes.get("name", "")
        here = f"{path}/{name}"
        if child.name == "Dimension":
            is_taken = name in group.dimensions
        elif child.name == "Enumeration":
            is_taken = name in group.enumerations
        elif child.name == "Group" or child.name in _VARIABLES:
            is_taken = name in group.variables or name in group.groups
        else:
            continue
        if not name or "/" in name or is_taken:
            raise BadValueError(f"the {child.name} '{here}' has no valid name, or two things have this name")
        if child.name == "Dimension":
            group.dimensions[name] = read_number(child.attributes.get("size"), f"size of the Dimension '{here}'")
        elif child.name == "Enumeration":
            group.enumerations[name] = child
        elif child.name == "Group":
            group.groups[name] = _declare(child, here, group)
        else:
            group.variables[name] = child
    return group


def _name_axes(group: DmrppGroup, numbers: Iterator[int]) -> None:
    for child in group.groups.values():
        _name_axes(child, numbers)
    by_length: dict[int, list[Axis]] = {}
    for axis in group.dimensions.items():
        by_length.setdefault(axis[1], []).append(axis)
    for seen_by_netcdf in (True, False):  # variables that netCDF-C skips must not change its numbers
        for name, variable in group.variables.items():
            if (variable.name in _USUAL) is seen_by_netcdf:
                group.axes[name] = tuple(_axes(variable, f"{group.path}/{name}", group, by_length, numbers))


def _axes(
    variable: Element, path: str, group: DmrppGroup, by_length: dict[int, list[Axis]], numbers: Iterator[int]
) -> Iterator[Axis]:
    given: list[Axis | int] = []
    for dim in variable.named("Dim"):
        name, what = dim.attributes.get("name"), f"size of a Dim of '{path}'"
        given.append(group.dimension(name) if name else read_number(dim.attributes.get("size"), what))
    if len(given) > _MAX_RANK:
        raise BadValueError(f"'{path}' has {len(given)} dimensions; HDF5 has at most {_MAX_RANK}")
    taken = {axis for axis in given if not isinstance(axis, int)}
    for axis in given:
        if isinstance(axis, int):
            # netCDF-C, create_phony_dims: any dimension of the group, declared or not, with this length that the
            # variable does not have yet
            usable = by_length.setdefault(axis, [])
            found = next((x for x in usable if x not in taken), None)
            if found is None:
                found = f"phony_dim_{next(numbers)}", axis
                group.dimensions[found[0]] = axis
                usable.append(found)
            taken.add(found)
            yield found
        else:
            yield axis
