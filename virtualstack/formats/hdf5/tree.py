"""Build the tree of groups and datasets of a file, with each object once, whatever its links are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.datatypes import ElementType
from virtualstack.formats.hdf5.filters import Filter
from virtualstack.formats.hdf5.structures.chunk_table import ChunkTable
from virtualstack.formats.hdf5.structures.layout_message import Layout
from virtualstack.formats.hdf5.structures.messages import FillMessage
from virtualstack.formats.hdf5.structures.requests import decode_text
from virtualstack.formats.hdf5.structures.virtual_mappings import VirtualMapping
from virtualstack.manifests import Refusal

__all__ = [
    "Attributes",
    "DanglingReferenceError",
    "FileView",
    "HDF5Group",
    "HDF5Variable",
    "LinkTarget",
    "LostObjectError",
    "Scale",
    "build_tree",
    "decode_text",
    "reference_paths",
]


class DanglingReferenceError(Exception):
    """A reference leads to no object that has a path; the message is half a sentence."""


def reference_paths(references: NDArray[np.uint64], paths: Mapping[int, str], /) -> list[str]:
    """Return the paths of objects that references lead to; ``""`` for a null reference.

    Examples
    --------
    >>> reference_paths(np.array([96, 0], "<u8"), {96: "/"})
    ['/', '']
    """
    addresses = references.reshape(-1).tolist()
    lost = next((address for address in addresses if address and address not in paths), None)
    if lost is not None:
        raise DanglingReferenceError(
            f"a reference leads to address {lost}, which is not the address of an object with a path"
        )
    return [paths[address] if address else "" for address in addresses]


_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """The attributes of an object as netCDF-4 shows them.

    Parameters
    ----------
    values
        Values by name.
    notes
        Notes on attributes that cannot be shown.
    references
        Attributes that are object references: addresses of shape ``(n,)``, with 0 for a null reference. `build_tree`
        replaces them by paths, which it adds to the values.
    damaged
        Names of attributes that are damaged, and the reasons; they have notes, too.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Refusal, ...] = ()
    references: Mapping[str, NDArray[np.uint64]] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)

    def own_values(self) -> dict[str, Any]:
        """Return a copy of the values, which may be shared with other objects and files."""
        return {
            key: copy.deepcopy(value) if isinstance(value, np.ndarray | list) else value
            for key, value in self.values.items()
        }

    def with_paths(self, path: str, paths: Mapping[int, str], /) -> Attributes:
        """Replace references by the paths of objects; references to unknown objects become notes."""
        if not self.references:
            return self
        values, notes = dict(self.values), list(self.notes)
        for name, addresses in self.references.items():
            try:
                found = reference_paths(addresses, paths)
            except DanglingReferenceError as error:
                notes.append(Refusal(path=f"{path}@{name}", reason=f"attribute: {error}", kind="noted"))
            else:
                values[name] = found[0] if len(found) == 1 else found
        return replace(self, values=values, notes=tuple(notes), references={})


class Scale(NamedTuple):
    """The dimension scale that the attributes of a dataset describe."""

    is_scale: bool = False
    name: bytes = b""
    number: int | None = None
    coordinates: tuple[int, ...] = ()
    attached: tuple[tuple[int, ...], ...] | None = None
    fault: str = ""


class HDF5Variable(NamedTuple):
    """A dataset under one of its names."""

    name: str
    path: str
    raw_path: bytes
    address: int
    element: ElementType
    is_read_by_netcdf: bool
    space: tuple[int, ...] | None
    limits: tuple[int | None, ...]
    layout: Layout
    filters: tuple[Filter, ...]
    fill: FillMessage
    external: tuple[tuple[bytes, int, int], ...]
    attributes: Attributes
    scale: Scale
    list_chunks: Callable[[], ChunkTable]
    list_mappings: Callable[[], Sequence[VirtualMapping]] = tuple
    read_texts: Callable[[bytes, int], list[bytes]] | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape with the axes of array types; ``None`` for a null dataspace."""
        return None if self.space is None else self.space + self.element.subshape

    @property
    def maxshape(self) -> tuple[int | None, ...]:
        """Maximum shape, with ``None`` for an unlimited axis."""
        return () if self.space is None else self.limits + self.element.subshape


@dataclass(slots=True, kw_only=True)
class HDF5Group:
    """A group with its datasets and child groups in the order in which netCDF-C numbers them."""

    path: str
    address: int
    attributes: Attributes
    variables: dict[str, HDF5Variable] = field(default_factory=dict)
    groups: dict[str, HDF5Group] = field(default_factory=dict)
    external_links: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    notes: list[Refusal] = field(default_factory=list)

    def walk(self) -> Iterator[HDF5Group]:
        """Yield this group and all groups below, parents first."""
        yield self
        for child in self.groups.values():
            yield from child.walk()

    def paths(self) -> dict[int, str]:
        """Return the first path of each object of this tree by its address."""
        paths: dict[int, str] = {}
        for group in self.walk():
            paths.setdefault(group.address, group.path or "/")
            for variable in group.variables.values():
                paths.setdefault(variable.address, variable.path)
        return paths

    def note(self, path: str, reason: str, /) -> None:
        """Add a note about a link that is left out, or another remark about a path."""
        self.notes.append(Refusal(path=path, reason=reason, kind="noted"))


class LinkTarget(NamedTuple):
    """The target of a link."""

    kind: Literal["group", "dataset", "datatype", "nothing", "lost"]
    address: int = -1
    reason: str = ""
    is_soft: bool = False
    outside: tuple[bytes, bytes] | None = None
    handle: Any = None


class FileView(Protocol):
    """A view of the objects of a file, by the parsers or by the HDF5 library."""

    @property
    def root(self) -> LinkTarget:
        """The root group."""

    def links(self, group: LinkTarget, node: HDF5Group, /) -> Iterable[tuple[bytes, LinkTarget]]:
        """Return the links of a group in netCDF-C's order: of creation if it is tracked, else of names."""

    def attributes(self, group: LinkTarget, raw_path: bytes, path: str, /) -> Attributes:
        """Return the attributes of a group, or raise `LostObjectError`."""

    def variable(self, dataset: LinkTarget, name: str, raw_path: bytes, path: str, /) -> HDF5Variable:
        """Describe a dataset, or raise `LostObjectError`."""

    def find(self, path: str, /) -> HDF5Variable | None:
        """Return the dataset at a path, a source of a virtual dataset; ``None`` if no dataset exists there."""


class LostObjectError(Exception):
    """An object cannot be opened; the message states the reason."""


def build_tree(view: FileView, /) -> HDF5Group:
    """Follow all links from the root, and return the tree; no chunk index is read."""
    root = HDF5Group(path="", address=view.root.address, attributes=_group_attributes(view, view.root, b"/", "/"))
    names = _Names({view.root.address: "/"})
    _fill(root, view.root, b"", names, view, depth=0)
    for node, path, address in names.soft:
        node.note(path, f"another name of '{names.first.get(address, '?')}'")
    for group in root.walk():
        group.attributes = group.attributes.with_paths(group.path or "/", names.first)
        for name, variable in group.variables.items():
            if variable.attributes.references:
                attributes = variable.attributes.with_paths(variable.path, names.first)
                group.variables[name] = variable._replace(attributes=attributes)
    return root


def _group_attributes(view: FileView, group: LinkTarget, raw_path: bytes, path: str) -> Attributes:
    """Return the attributes of a group; if they are damaged, return a refusal instead."""
    try:
        return view.attributes(group, raw_path, path)
    except LostObjectError as error:
        return Attributes(notes=(Refusal(path=path, reason=f"the group cannot be opened: {error}"),))


@dataclass(slots=True)
class _Names:
    """The first path of each object that hard links alone lead to, and the positions of soft links."""

    first: dict[int, str]
    soft: list[tuple[HDF5Group, str, int]] = field(default_factory=list)


def _fill(node: HDF5Group, target: LinkTarget, raw_path: bytes, names: _Names, view: FileView, *, depth: int) -> None:
    """Add the targets of the links of a group, then the targets of the links of its children."""
    children: list[tuple[HDF5Group, LinkTarget, bytes]] = []
    for raw, found in view.links(target, node):
        name = decode_text(raw)
        path = f"{node.path}/{name}"
        raw_child = raw_path + b"/" + raw
        if found.outside is not None:
            node.external_links[name] = found.outside
            continue
        if found.kind == "nothing":
            node.note(path, found.reason)
            continue
        try:
            if found.kind == "lost":
                raise LostObjectError(found.reason)
            variable = view.variable(found, name, raw_child, path) if found.kind == "dataset" else None
        except LostObjectError as error:
            node.notes.append(Refusal(path=path, reason=f"the object cannot be opened: {error}"))
            continue
        if variable is not None:
            node.variables[name] = variable
        if found.is_soft:
            names.soft.append((node, path, found.address))
            continue
        first = names.first.setdefault(found.address, path)
        if first != path:
            node.note(path, f"another name of '{first}'")
        elif found.kind == "group":
            if depth >= _MAX_DEPTH:
                node.notes.append(Refusal(path=path, reason=f"groups are nested more than {_MAX_DEPTH} deep"))
                continue
            attributes = _group_attributes(view, found, raw_child, path)
            child = HDF5Group(path=path, address=found.address, attributes=attributes)
            node.groups[name] = child
            children.append((child, found, raw_child))
    for child, found, raw_child in children:
        _fill(child, found, raw_child, names, view, depth=depth + 1)
