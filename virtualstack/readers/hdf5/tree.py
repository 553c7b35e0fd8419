"""The tree of groups and datasets of a file, each once, whatever its links do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import h5py
from h5py import h5g, h5l, h5o

from virtualstack.manifests import Refusal
from virtualstack.readers.hdf5.attributes import decode_text
from virtualstack.readers.hdf5.datatypes import ElementType, element_type
from virtualstack.readers.hdf5.faults import LibraryError, library_errors

__all__ = ["Group", "Variable", "read_tree"]

_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A dataset under one of its names.

    Parameters
    ----------
    name
        Name in its group.
    path
        Absolute.
    dataset
        Open as long as the file is.
    address
        Of the object header, from the end of the user block.
    element
        What its elements are.
    shape, maxshape
        In elements, with the axes of an array type at the end; ``None`` for a null dataspace, and for unlimited.
    """

    name: str
    path: str
    dataset: h5py.Dataset
    address: int
    element: ElementType
    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]


@dataclass(slots=True, kw_only=True)
class Group:
    """A group, its datasets and child groups in the order in which netCDF-C numbers them.

    Parameters
    ----------
    path
        Absolute; ``""`` for the root.
    group
        Open as long as the file is.
    variables, groups
        By name.
    notes
        Links that lead nowhere, outside of the file, or to what was seen before.
    """

    path: str
    group: h5py.Group
    variables: dict[str, Variable] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    notes: list[Refusal] = field(default_factory=list)

    def walk(self) -> Iterator[Group]:
        """Give this group and all below it, parents first."""
        yield self
        for child in self.groups.values():
            yield from child.walk()


def read_tree(file: h5py.File, /) -> Group:
    """Walk the links of a file; no dataset's chunk index is looked at.

    Raises
    ------
    LibraryError
        The links of the root cannot be read.
    """
    # The address in `objno` comes without a walk of the chunk index, which `h5o.get_info` would make.
    with library_errors():
        root = Group(path="", group=file["/"])
        seen = {int(h5g.get_objinfo(root.group.id).objno[0]): "/"}
    _fill(root, seen, depth=0)
    return root


def _fill(node: Group, seen: dict[int, str], *, depth: int) -> None:
    children: list[Group] = []
    try:
        with library_errors():
            links = _links(node.group)
    except LibraryError as error:
        if not node.path:
            raise
        node.notes.append(Refusal(path=node.path, reason=f"the links of the group cannot be read: {error}"))
        return
    for raw, kind in links:
        name = decode_text(raw)
        path = f"{node.path}/{name}"
        if kind == h5l.TYPE_EXTERNAL:
            target = b" of ".join(reversed(node.group.id.links.get_val(raw)))
            _note(node, path, f"an external link to '{decode_text(target)}', which is another file")
            continue
        try:
            with library_errors():
                oid = h5o.open(node.group.id, raw)
                address = int(h5g.get_objinfo(oid).objno[0])
                variable = _variable(name, path, oid, address)
        except LibraryError as error:
            if kind == h5l.TYPE_SOFT:
                target = node.group.id.links.get_val(raw)
                _note(node, path, f"a soft link to '{decode_text(target)}', where there is nothing")
            else:
                node.notes.append(Refusal(path=path, reason=f"the object cannot be opened: {error}"))
            continue
        first = seen.setdefault(address, path)
        if first != path:
            _note(node, path, f"another name of '{first}'")
        if variable is not None:
            node.variables[name] = variable
        elif isinstance(oid, h5g.GroupID) and first == path:
            if depth >= _MAX_DEPTH:
                node.notes.append(Refusal(path=path, reason=f"groups are nested more than {_MAX_DEPTH} deep"))
                continue
            node.groups[name] = Group(path=path, group=h5py.Group(oid))
            children.append(node.groups[name])
    for child in children:
        _fill(child, seen, depth=depth + 1)


def _variable(name: str, path: str, oid: h5py.h5g.GroupID | h5py.h5d.DatasetID, address: int) -> Variable | None:
    """Describe a dataset; ``None`` for a group or a datatype."""
    if not isinstance(oid, h5py.h5d.DatasetID):
        return None
    dataset = h5py.Dataset(oid)
    element = element_type(dataset.id.get_type())
    shape = dataset.shape
    return Variable(
        name=name,
        path=path,
        dataset=dataset,
        address=address,
        element=element,
        shape=None if shape is None else (*map(int, shape), *element.subshape),
        maxshape=() if shape is None else (*dataset.maxshape, *element.subshape),
    )


def _note(node: Group, path: str, reason: str) -> None:
    node.notes.append(Refusal(path=path, reason=reason, kind="noted"))


def _links(group: h5py.Group) -> list[tuple[bytes, int]]:
    """Give names and types of links in order of creation where it is tracked, else of names, as netCDF-C does."""
    found: list[tuple[bytes, int]] = []
    tracked = group.id.get_create_plist().get_link_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
    order = h5py.h5.INDEX_CRT_ORDER if tracked else h5py.h5.INDEX_NAME
    # h5py hands over one information object, changed for each link
    group.id.links.iterate(lambda name, info: found.append((name, int(info.type))), idx_type=order, info=True)
    return found
