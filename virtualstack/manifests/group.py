"""A group of virtual arrays: readers make groups, writers take them, and `store` and `reading` serve them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from virtualstack.errors import ManifestError
from virtualstack.location import Access
from virtualstack.manifests.array import ManifestArray
from virtualstack.printable import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A variable, link or attribute that a reader could not take over as it is, and why.

    Parameters
    ----------
    path
        Path of the variable or object in its source, such as ``/science/winds``.
    reason
        The obstacle, in the words of the format.
    kind
        ``"refused"``: the values are not available. ``"inlined"``: the values were read into the manifest. ``"noted"``:
        an object without values, such as a dangling link, was left out. ``"packed"``: the values are available in
        stored form, although they should have been unpacked.
    inline_size
        Bytes of the values of a refused variable that a larger ``inline_limit`` would accept; else 0.
    """

    path: str
    reason: str
    kind: Literal["refused", "inlined", "noted", "packed"] = "refused"
    inline_size: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class ManifestGroup:
    """Arrays, attributes and child groups by name.

    When to use: a reader makes it, :func:`virtualstack.scan` and ``vds.virtual.to_group()`` return it, and
    :class:`virtualstack.ManifestStore` serves it. Alternatives: :func:`virtualstack.open_virtual_dataset` shows it as
    an xarray dataset.

    Parameters
    ----------
    arrays
        Arrays by name; each has ``dimension_names``.
    groups
        Child groups by name.
    attributes
        Attributes of the group, as the format has them.
    coordinates
        Names of arrays in this group that are coordinates although they do not have the name of a dimension.
    dimensions
        Length of each dimension that the group declares, used or not; empty if the format declares none.
    unlimited
        Names of the unlimited dimensions.
    loaded
        Names of arrays that opening a dataset loads by default, because they were loaded when they were written.
    refusals
        Objects that the reader could not take over from this group; child groups have separate lists.
    not_text
        Names of dimensions whose characters must not be joined to text. xarray joins arrays of characters along their
        last dimension, unless another variable has this dimension in another position. If that variable was left out,
        the arrays that remain do not show it, so the dimension is listed here.
    inherited
        Attributes of the groups above, if this group was selected from a file. Of equal names, the nearest group
        counts.
    url
        URL of the source, or ``None`` if there are several sources.
    version
        Number and time (s since 1970) of the snapshot of a vstack, if it was the newest snapshot.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4", group="gauge")
    >>> (group,) = vs.scan(["day.nc"])
    >>> group["gauge/rain"].shape
    (2,)
    >>> [path for path, child in group.walk()]
    ['', '/gauge']
    >>> moved = group.map_arrays(lambda array: array.rename_locations(lambda url: "s3://bucket/day.nc"))
    >>> moved["gauge/rain"].manifest.locations[0].url
    's3://bucket/day.nc'
    """

    arrays: Mapping[str, ManifestArray] = field(default_factory=dict)
    groups: Mapping[str, ManifestGroup] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    coordinates: frozenset[str] = frozenset()
    dimensions: Mapping[str, int] = field(default_factory=dict)
    unlimited: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    refusals: tuple[Refusal, ...] = ()
    not_text: frozenset[str] = frozenset()
    inherited: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None
    version: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        for name, array in self.arrays.items():
            if array.dimension_names is None:
                raise ManifestError(f"array '{name}' of the group '{self.url}' has no dimension names")
        both = self.arrays.keys() & self.groups.keys()
        if both:
            raise ManifestError(f"{sorted(both)} name both an array and a group")

    def walk(self, path: str = "") -> Iterator[tuple[str, ManifestGroup]]:
        """Yield this group and all groups below it, parents first, each with its path (``""`` for this group)."""
        yield path, self
        for name, group in self.groups.items():
            yield from group.walk(f"{path}/{name}")

    def all_arrays(self) -> dict[str, ManifestArray]:
        """Return the arrays of this group and of all groups below it by path, such as ``"science/winds"``."""
        return {
            f"{path}/{name}"[1:] if path else name: x for path, node in self.walk() for name, x in node.arrays.items()
        }

    def map_arrays(self, change: Callable[[ManifestArray], ManifestArray], /) -> ManifestGroup:
        """Return a new group whose arrays are the results of a function; the arrays of subgroups are changed too.

        Parameters
        ----------
        change
            Function that is called with each array, and returns the array for its place.

        Returns
        -------
        ManifestGroup
            The new group; this one does not change.

        Examples
        --------
        >>> from dataclasses import replace
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> group = xr.Dataset({"rain": ("time", [1.0, 2.0])}).virtual.to_group()
        >>> group.map_arrays(lambda array: replace(array, attributes={"units": "mm"})).arrays["rain"].attributes
        {'units': 'mm'}
        """
        return replace(
            self,
            arrays={name: change(array) for name, array in self.arrays.items()},
            groups={name: group.map_arrays(change) for name, group in self.groups.items()},
        )

    def with_access(self, access: Access | None, /) -> ManifestGroup:
        """Return the group with one access for all its arrays, also in subgroups; ``None`` changes nothing.

        An *access* says how the chunks of an array are reached: the credentials, endpoints and other options of
        ``storage=``. It is not a permission (``allow=``).

        Parameters
        ----------
        access
            A :class:`~virtualstack.storage.Storage`, such as `Storage.from_option` makes of ``storage=``.
        """
        return self if access is None else self.map_arrays(lambda array: array.with_access(access))

    def accesses(self) -> list[Access]:
        """Return the accesses (see `with_access`) of all arrays, each once; arrays with the defaults have none."""
        found = (array.access for _, node in self.walk() for array in node.arrays.values())
        return list({id(access): access for access in found if access is not None}.values())

    def __getitem__(self, path: str, /) -> ManifestArray | ManifestGroup:
        """Return an array or group by its path, such as ``"science/winds"``.

        Raises
        ------
        KeyError
            The path does not exist; the message lists the names that exist.
        """
        node: ManifestArray | ManifestGroup = self
        parts = [x for x in path.split("/") if x]
        for i, part in enumerate(parts, 1):
            if not isinstance(node, ManifestGroup) or (part not in node.arrays and part not in node.groups):
                present = sorted([*node.arrays, *node.groups]) if isinstance(node, ManifestGroup) else []
                raise KeyError(f"there is no array or group '{'/'.join(parts[:i])}'; there are {present}")
            node = node.arrays[part] if part in node.arrays else node.groups[part]
        return node

    def __repr__(self) -> str:
        inside = f"{counted(len(self.arrays), 'array')}, {counted(len(self.groups), 'group')}"
        return f"ManifestGroup({inside}, url={self.url!r})"

    def _repr_html_(self) -> str:
        inside = f"{counted(len(self.arrays), 'array')}, {counted(len(self.groups), 'group')}"
        from virtualstack.manifests.display import group_html

        return group_html(self, f"ManifestGroup: {inside}")


def text_arrays(group: ManifestGroup, /) -> frozenset[str]:
    """Return the names of arrays of characters whose last dimension is the length of a text, by xarray's rule.

    xarray joins characters to text under two conditions. All variables with the dimension must be bytes and have it as
    their last dimension. No variable may have the name of the dimension.
    """
    kinds_and_dims = [(array.dtype.kind, array.dimension_names or ()) for array in group.arrays.values()]
    others = {dim for kind, dims in kinds_and_dims for dim in (dims[:-1] if kind == "S" else dims)}
    others |= group.arrays.keys() | group.not_text
    return frozenset(
        name
        for name, array in group.arrays.items()
        if array.dtype == np.dtype("S1") and array.dimension_names and array.dimension_names[-1] not in others
    )


def unnamed_coordinates(group: ManifestGroup, /) -> list[str]:
    """Return the coordinates that only a ``coordinates`` attribute of the group can name, sorted.

    Dimension coordinates do not need to be named, even if they are texts of characters. By xarray's rule, a
    ``coordinates`` attribute of a variable counts only if all names in it are variables.
    """
    attributes = [str(array.attributes.get("coordinates", "")).split() for array in group.arrays.values()]
    named = {name for names in attributes if group.arrays.keys() >= set(names) for name in names}
    texts = text_arrays(group)
    dims = {
        name
        for name, array in group.arrays.items()
        if array.dimension_names and array.dimension_names[: array.ndim - (name in texts)] == (name,)
    }
    return sorted((group.coordinates & group.arrays.keys()) - named - dims)


type ManifestNode = ManifestGroup | ManifestArray
"""An array or group, as a path in a group names it."""


def inheriting(group: ManifestGroup, above: Mapping[str, ManifestArray], /) -> ManifestGroup:
    """Return a group with those labels of the groups above it whose dimensions it has, as a tree of xarray."""
    sizes: dict[str, set[int]] = {}
    for array in group.arrays.values():
        for dim, n in zip(array.dimension_names or (), array.shape, strict=True):
            sizes.setdefault(dim, set()).add(n)
    more = {dim: x for dim, x in above.items() if dim not in group.arrays and sizes.get(dim) == {*x.shape}}
    return replace(group, arrays={**group.arrays, **more}, loaded=group.loaded | more.keys())


def labels_of(group: ManifestGroup, /) -> dict[str, ManifestArray]:
    """Return the dimension coordinates of a group."""
    return {name: x for name, x in group.arrays.items() if x.dimension_names == (name,)}


def with_inherited(tree: ManifestGroup, /) -> dict[str, ManifestGroup]:
    """Return the groups of a tree by path, each with the coordinates that its dimensions inherit."""
    found: dict[str, ManifestGroup] = {}
    labels: dict[str, dict[str, ManifestArray]] = {}
    for path, node in tree.walk():
        above = labels.get(path.rpartition("/")[0], {})
        labels[path] = {**above, **labels_of(node)}
        found[path] = inheriting(node, above)
    return found
