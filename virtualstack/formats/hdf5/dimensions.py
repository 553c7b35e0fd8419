"""Name the dimensions of each variable, by netCDF-4's rules for dimension scales, and by names of a product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from virtualstack.formats.hdf5.tree import HDF5Group, HDF5Variable

NON_COORDINATE = "_nc4_non_coord_"
"""Prefix of a dataset whose variable has the name of a dimension, but is not its coordinate."""

# netCDF-4 on HDF5, "dimension without a coordinate variable": beginning of the NAME of such a scale
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable."


@dataclass(slots=True, kw_only=True)
class HDF5Dimension:
    """A dimension that a group declares. An axis gets a dimension of a product by name, never by its length alone."""

    name: str
    length: int
    is_unlimited: bool
    number: int
    address: int | None = None
    has_variable: bool = True
    is_of_product: bool = False


@dataclass(slots=True)
class Dimensions:
    """Dimensions by group path, and dimensions of each dataset by its path.

    Parameters
    ----------
    declared
        Dimensions of each group in order of declaration. Phony dimensions, which name axes without scales, come last.
    axes
        One dimension for each axis of a dataset.
    not_variables
        Paths of datasets that only declare a dimension.
    """

    declared: dict[str, list[HDF5Dimension]] = field(default_factory=dict)
    axes: dict[str, tuple[HDF5Dimension, ...]] = field(default_factory=dict)
    not_variables: set[str] = field(default_factory=set)

    def names(self, path: str, /) -> tuple[str, ...]:
        """Return the dimension names of a dataset."""
        return tuple(dim.name for dim in self.axes[path])


def resolve_dimensions(root: HDF5Group, of_product: Mapping[str, Sequence[str]], /) -> Dimensions:
    """Name the axes of each dataset as netCDF-C does.

    Scales attached to an axis name it. Axes without a scale share phony dimensions by length in their group. Phony
    dimensions are numbered through the file after all declared dimensions, child groups first.
    """
    found = Dimensions()
    next_number = 0
    for group in root.walk():
        dims = found.declared[group.path] = []
        for variable in group.variables.values():
            if variable.space and variable.scale.is_scale:
                number = variable.scale.number
                number = next_number if number is None else number
                next_number = max(next_number, number + 1)
                dims.append(_declare(variable, number))
                if not dims[-1].has_variable:
                    found.not_variables.add(variable.path)
    namer = _Namer(found, next_number, of_product)
    for read_by_netcdf in (True, False):  # variables that netCDF-C skips must not change its numbers
        namer.name_group(root, (), read_by_netcdf=read_by_netcdf)
    _find_lengths(root, found)
    return found


def _declare(variable: HDF5Variable, number: int) -> HDF5Dimension:
    length, longest = (variable.space or (0,))[0], variable.maxshape[0]
    return HDF5Dimension(
        name=variable.name,
        length=length,
        is_unlimited=longest is None,
        number=number,
        address=variable.address,
        has_variable=not variable.scale.name.startswith(_NO_VARIABLE),
    )


class _Scope:
    """The dimensions that variables of a group see: dimensions of the group, and of its parents unless hidden."""

    def __init__(self, declared: Sequence[list[HDF5Dimension]]) -> None:
        self.here = declared[0]
        self.by_name = {dim.name: dim for dims in reversed(declared) for dim in dims}
        self.by_number = {dim.number: dim for dims in reversed(declared) for dim in dims}
        self.by_address = {dim.address: dim for dims in reversed(declared) for dim in dims if dim.address is not None}


class _Namer:
    """State of the naming of axes, with the next number of a phony dimension, which counts through the file."""

    def __init__(self, found: Dimensions, next_number: int, of_product: Mapping[str, Sequence[str]]) -> None:
        self.found = found
        self.next_number = next_number
        self.of_product = of_product

    def name_group(self, group: HDF5Group, parents: tuple[HDF5Group, ...], *, read_by_netcdf: bool) -> None:
        for child in group.groups.values():
            self.name_group(child, (*parents, group), read_by_netcdf=read_by_netcdf)
        variables = [
            variable
            for variable in group.variables.values()
            if variable.is_read_by_netcdf is read_by_netcdf and variable.path not in self.found.not_variables
        ]
        if variables:
            scope = _Scope([self.found.declared[x.path] for x in (group, *reversed(parents))])
            for variable in variables:
                self.found.axes[variable.path] = self._axes(variable, scope)

    def _axes(self, variable: HDF5Variable, scope: _Scope) -> tuple[HDF5Dimension, ...]:
        rank = len(variable.shape or ())
        if not rank:
            return ()
        numbers = variable.scale.coordinates
        if len(numbers) == rank and all(number in scope.by_number for number in numbers):
            return tuple(scope.by_number[number] for number in numbers)
        own = next((dim for dim in scope.here if dim.address == variable.address), None)
        chosen: list[HDF5Dimension | None] = [own] + [None] * (rank - 1)
        if own is None:
            for axis, scales in enumerate(variable.scale.attached or ()):
                chosen[axis] = next((scope.by_address[x] for x in scales if x in scope.by_address), None)
        if chosen == [None] * rank:
            chosen = self._of_product(variable, scope)
        return tuple(self._with_phony(variable, chosen, scope.here))

    def _of_product(self, variable: HDF5Variable, scope: _Scope) -> list[HDF5Dimension | None]:
        """Return the dimensions that a product names; no two axes of a dataset get the same dimension."""
        chosen: list[HDF5Dimension | None] = [None] * len(variable.maxshape)
        for axis, name in enumerate(self.of_product.get(variable.path, ())):
            length, longest = (variable.shape or ())[axis], variable.maxshape[axis]
            dim = scope.by_name.get(name)
            if name and dim is None:
                dim = scope.by_name[name] = self._new(name, length, longest, is_of_product=True)
                scope.here.append(dim)
            if dim is None or dim.length != length or any(dim is x for x in chosen):
                continue
            if dim.is_of_product:
                dim.is_unlimited |= longest is None
            if dim.is_of_product or not dim.is_unlimited:  # a growing dimension would add records of the fill value
                chosen[axis] = dim
        return chosen

    def _new(self, name: str, length: int, longest: int | None, *, is_of_product: bool = False) -> HDF5Dimension:
        self.next_number += 1
        return HDF5Dimension(
            name=name,
            length=int(length),
            is_unlimited=longest is None,
            number=self.next_number - 1,
            is_of_product=is_of_product,
        )

    def _with_phony(
        self, variable: HDF5Variable, chosen: list[HDF5Dimension | None], dims: list[HDF5Dimension]
    ) -> Iterator[HDF5Dimension]:
        taken = {dim.number for dim in chosen if dim is not None}
        for dim, length, longest in zip(chosen, variable.shape or (), variable.maxshape, strict=True):
            if dim is None:
                # netCDF-C, create_phony_dims: any dimension of the group with this length that the variable
                # does not have yet, including declared dimensions
                dim = next(
                    (
                        x
                        for x in dims
                        if x.length == length
                        and x.is_unlimited is (longest is None)
                        and x.number not in taken
                        and not x.is_of_product
                    ),
                    None,
                )
            if dim is None:
                dim = self._new(f"phony_dim_{self.next_number}", length, longest)
                dims.append(dim)
            taken.add(dim.number)
            yield dim


def _find_lengths(root: HDF5Group, found: Dimensions) -> None:
    """Set the length of each unlimited dimension to the longest variable along it, as netCDF-C does."""
    for dims in found.declared.values():
        for dim in dims:
            if dim.is_unlimited and not dim.has_variable:
                dim.length = 0
    for group in root.walk():
        for variable in group.variables.values():
            axes = found.axes.get(variable.path, ())  # a dataset that is not a variable has no axes
            for dim, length in zip(axes, variable.shape or (), strict=False):
                if dim.is_unlimited:
                    dim.length = max(dim.length, length)
