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

__all__ = ["Group", "Variable", "find_variable", "read_tree"]

_MAX_DEPTH = 100

type _FileNumber = tuple[int, ...]
type _Identity = tuple[_FileNumber, tuple[int, ...]]


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
        here = _identity(root.group.id)
    _fill(root, {here: "/"}, here[0], depth=0)
    return root


def find_variable(file: h5py.File, path: str, /) -> Variable | None:
    """Give the dataset at a path of a file; ``None`` where there is none, or where it is in another file.

    Raises
    ------
    LibraryError
        It cannot be opened.
    """
    with library_errors():
        if path not in file:
            return None
        oid = h5o.open(file.id, path.encode())
        here, root = _identity(oid), _identity(file["/"].id)
    if here[0] != root[0]:
        return None
    return _variable(path.rpartition("/")[2], path, oid, here[1][0])


def _fill(node: Group, seen: dict[_Identity, str], file_number: _FileNumber, *, depth: int) -> None:
    """Add what the links of a group lead to, then what those of its children do."""
    for raw, kind in _links(node):
        name = decode_text(raw)
        path = f"{node.path}/{name}"
        try:
            with library_errors():
                oid = None if kind == h5l.TYPE_EXTERNAL else h5o.open(node.group.id, raw)
                here = None if oid is None else _identity(oid)
                variable = None if here is None else _variable(name, path, oid, here[1][0])
        except LibraryError as error:
            _lost(node, raw, kind, path, error)
            continue
        if here is None or here[0] != file_number:
            _note(node, path, f"a link to '{_target(node, raw)}', which is in another file")
            continue
        first = seen.setdefault(here, path)
        if first != path:
            _note(node, path, f"another name of '{first}'")
        if variable is not None:
            node.variables[name] = variable
        elif isinstance(oid, h5g.GroupID) and first == path:
            if depth < _MAX_DEPTH:
                node.groups[name] = Group(path=path, group=h5py.Group(oid))
            else:
                node.notes.append(Refusal(path=path, reason=f"groups are nested more than {_MAX_DEPTH} deep"))
    for child in node.groups.values():
        _fill(child, seen, file_number, depth=depth + 1)


def _identity(oid: h5py.h5g.GroupID | h5py.h5d.DatasetID) -> _Identity:
    """Give the numbers of file and object header; unlike `h5o.get_info`, this does not walk a chunk index."""
    info = h5g.get_objinfo(oid)
    return tuple(map(int, info.fileno)), tuple(map(int, info.objno))


def _lost(node: Group, raw: bytes, kind: int, path: str, error: LibraryError) -> None:
    if kind == h5l.TYPE_SOFT:
        _note(node, path, f"a soft link to '{_target(node, raw)}', where there is nothing")
    else:
        node.notes.append(Refusal(path=path, reason=f"the object cannot be opened: {error}"))


def _target(node: Group, raw: bytes) -> str:
    try:
        with library_errors():
            target = node.group.id.links.get_val(raw)
    except LibraryError:
        return "?"
    return decode_text(target) if isinstance(target, bytes) else " of ".join(decode_text(x) for x in reversed(target))


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


def _links(node: Group) -> list[tuple[bytes, int]]:
    """Give names and types of links in order of creation where it is tracked, else of names, as netCDF-C does."""
    found: list[tuple[bytes, int]] = []
    gid = node.group.id
    try:
        with library_errors():
            tracked = gid.get_create_plist().get_link_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
            order = h5py.h5.INDEX_CRT_ORDER if tracked else h5py.h5.INDEX_NAME
            # h5py hands over one information object, changed for each link
            gid.links.iterate(lambda name, info: found.append((name, int(info.type))), idx_type=order, info=True)
    except LibraryError as error:
        if not node.path:
            raise
        node.notes.append(Refusal(path=node.path, reason=f"the links of the group cannot be read: {error}"))
    return found
