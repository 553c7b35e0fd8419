"""Read a file with the HDF5 library in the child process: on a damaged file the library may crash or hang."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from typing import Any, Literal

import h5py
import numpy as np
from h5py import h5d, h5g, h5l, h5o, h5pl, h5s, h5z
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError, library_errors
from virtualstack.formats.hdf5.child.attributes import identity, plain, read_attributes, read_numbers
from virtualstack.formats.hdf5.child.records import (
    FoundAttribute,
    FoundDataset,
    FoundLink,
)

_MAX_SOFT_LINKS = 16  # H5L_NUM_LINKS


class OpenFile:
    """An open file, whose objects are found by their paths.

    A link to another file is never followed, so that no name in a file decides which files are opened.
    All methods raise `LibraryError` if the library fails.
    """

    def __init__(self, place: Any, is_alone: bool, /) -> None:
        with library_errors():
            self._file = h5py.File(place, "r")
        try:
            with library_errors():
                self._is_alone = is_alone
                self._id = self._file.id
                self._number, self._root = identity(self._file["/"].id)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file.

        The library identifies an open file by its device and inode, even if the content has changed. If a damaged file
        does not close, the process ends. Otherwise the library would read the next file at the same place with the old
        content.
        """
        try:
            self._file.close()
        except (OSError, RuntimeError, ValueError):
            os._exit(1)

    def base(self) -> int:
        """Return the size of the user block in bytes."""
        return int(self._file.userblock_size)

    def sizes(self) -> tuple[int, int]:
        """Return the number of bytes of an address and of a length."""
        with library_errors():
            address, length = self._id.get_create_plist().get_sizes()
            return int(address), int(length)

    def root(self) -> int:
        """Return the address of the root group."""
        return self._root

    def links(self, path: bytes, /) -> tuple[list[FoundLink], str]:
        """Return the links of a group in order of creation if it is tracked, else in order of names, as in netCDF-C.

        The second value is empty, or the reason why links are missing.
        """
        found: list[tuple[bytes, int]] = []
        error = ""
        try:
            with library_errors():
                group = self._open(path)
                tracked = group.get_create_plist().get_link_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
                order = h5py.h5.INDEX_CRT_ORDER if tracked else h5py.h5.INDEX_NAME
                # h5py passes one information object, which it changes for each link
                group.links.iterate(lambda name, info: found.append((name, int(info.type))), idx_type=order, info=True)
        except LibraryError as raised:
            error = str(raised)
        return [self._link(group, name, kind) for name, kind in found], error

    def _link(self, group: h5g.GroupID, name: bytes, kind: int) -> FoundLink:
        # `objno` has the address without reading the chunk index, which `h5o.get_info` would read.
        try:
            with library_errors():
                oid = self._follow(name, group)
                number, address = identity(oid)
        except _ElsewhereError:
            return FoundLink(name=name, kind="elsewhere", target=_link_target(group, name))
        except LibraryError as error:
            if kind == h5l.TYPE_SOFT:
                return FoundLink(name=name, kind="nothing", target=_link_target(group, name))
            return FoundLink(name=name, kind="lost", error=str(error))
        if number != self._number:  # a mounted file
            return FoundLink(name=name, kind="elsewhere", target=_link_target(group, name))
        what: Literal["group", "dataset", "datatype"] = "datatype"
        if isinstance(oid, h5g.GroupID | h5d.DatasetID):
            what = "group" if isinstance(oid, h5g.GroupID) else "dataset"
        return FoundLink(name=name, kind=what, address=address, is_soft=kind == h5l.TYPE_SOFT)

    def linked(self) -> dict[int, bytes]:
        """Return the path of each object that hard links lead to, by its address."""
        found: dict[int, bytes] = {}

        def add(name: bytes, link: Any) -> None:
            if link.type == h5l.TYPE_HARD:
                found.setdefault(int(link.u), b"/" + name)  # counted from the end of the user block, as in references

        with library_errors():
            root = self._file["/"]  # `links` does not keep the group open
            root.id.links.visit(add, info=True)
        return found

    # -- objects by path --------------------------------------------------------------------------------------

    def _open(self, path: bytes) -> Any:
        """Open the object at a path, link by link."""
        return self._follow(path, h5g.open(self._id, b"/"))

    def _follow(self, path: bytes, group: Any, n_links: int = 0) -> Any:
        if n_links > _MAX_SOFT_LINKS:
            raise LibraryError("too many soft links lead to each other")
        found = h5g.open(self._id, b"/") if path.startswith(b"/") else group
        for name in path.split(b"/"):
            if name in (b"", b"."):
                continue
            kind = found.links.get_info(name).type if isinstance(found, h5g.GroupID) else h5l.TYPE_HARD
            if kind == h5l.TYPE_SOFT:
                found = self._follow(found.links.get_val(name), found, n_links + 1)
            elif kind == h5l.TYPE_HARD:
                found = h5o.open(found, name)
            else:
                raise _ElsewhereError("a link to another file leads to it")
        return found

    # -- datasets ---------------------------------------------------------------------------------------------

    def _dataset(self, path: bytes) -> h5py.Dataset:
        oid = self._open(path)
        if not isinstance(oid, h5d.DatasetID):
            raise LibraryError("it is not a dataset")
        if self._is_alone:
            self._check_alone(oid)
        return h5py.Dataset(oid)

    def _check_alone(self, oid: h5d.DatasetID) -> None:
        """Raise an error for a dataset whose shape depends on other files, which the library would open to find it."""
        layout = oid.get_create_plist()
        if layout.get_layout() != h5d.VIRTUAL:
            return
        for i in range(layout.get_virtual_count()):
            space = layout.get_virtual_vspace(i)
            is_regular = space.get_select_type() == h5s.SEL_HYPERSLABS and space.is_regular_hyperslab()
            if is_regular and any(h5s.UNLIMITED in axis for axis in space.get_regular_hyperslab()):
                raise LibraryError("its shape depends on other files, which the HDF5 library may not open")

    def _with_values(self, path: bytes) -> h5py.Dataset:
        dataset = self._dataset(path)
        layout = dataset.id.get_create_plist()
        if self._is_alone and (layout.get_external_count() or layout.get_layout() == h5d.VIRTUAL):
            raise LibraryError("its values are in other files, which the HDF5 library may not open")
        return dataset

    def find(self, path: str, /) -> FoundDataset | None:
        """Describe the dataset at a path; return ``None`` if no dataset exists there, or if it is in another file."""
        try:
            with library_errors():
                oid = self._open(path.encode())
        except LibraryError:
            return None
        if identity(oid)[0] != self._number or not isinstance(oid, h5d.DatasetID):
            return None
        return self.dataset(path.encode())

    def dataset(self, path: bytes, /) -> FoundDataset:
        """Describe a dataset."""
        with library_errors():
            dataset = self._dataset(path)
            tid, dcpl, shape = dataset.id.get_type(), dataset.id.get_create_plist(), dataset.shape
            defined = dcpl.fill_value_defined()
            return FoundDataset(
                address=identity(dataset.id)[1],
                datatype=tid.encode(),
                is_committed=bool(tid.committed()),
                shape=None if shape is None else tuple(map(int, shape)),
                maxshape=() if shape is None else tuple(dataset.maxshape),
                filters=tuple(
                    (int(number), name, tuple(map(int, values)))
                    for number, _, values, name in map(dcpl.get_filter, range(dcpl.get_nfilters()))
                ),
                has_fill=defined == h5d.FILL_VALUE_USER_DEFINED,
                is_fill_undefined=defined == h5d.FILL_VALUE_UNDEFINED,
                is_fill_written=dcpl.get_fill_time() != h5d.FILL_TIME_NEVER,
                external=tuple(dcpl.get_external(i) for i in range(dcpl.get_external_count())),
                attributes=tuple(read_attributes(dataset.id)),
            )

    def dtype(self, path: bytes, /) -> np.dtype[Any]:
        """Return the dtype of values in h5py; the dtype ``object`` if h5py makes Python objects of the elements."""
        with library_errors():
            return plain(self._dataset(path).dtype)

    def fill(self, path: bytes, dtype: np.dtype[Any] | None, /) -> NDArray[Any]:
        """Return the fill value of a dataset, converted to a dtype; without a dtype, to the dtype of h5py."""
        with library_errors():
            dataset = self._dataset(path)
            cell = np.zeros((), dataset.dtype if dtype is None else dtype)
            dataset.id.get_create_plist().get_fill_value(cell)
        return cell

    def text_fill(self, path: bytes, /) -> bytes:
        """Return the fill value of a dataset of strings."""
        with library_errors():
            return self._dataset(path).fillvalue or b""

    # -- values -----------------------------------------------------------------------------------------------

    def values(self, path: bytes, /) -> NDArray[Any]:
        """Read all values of a dataset of numbers or compounds."""
        _enable_plugins()
        with library_errors():
            dataset = self._with_values(path)
            if plain(dataset.dtype).hasobject:
                raise LibraryError("its elements are Python objects")
            values = np.asarray(dataset[()])
            return values.astype(plain(values.dtype), copy=False)

    def stored(self, path: bytes, /) -> NDArray[np.void]:
        """Read all elements in their stored form, with the filters undone."""
        _enable_plugins()
        with library_errors():
            dataset = self._with_values(path)
            tid = dataset.id.get_type()
            raw: NDArray[np.void] = np.zeros(dataset.shape, f"V{tid.get_size()}")
            if raw.size:
                dataset.id.read(h5s.ALL, h5s.ALL, raw, tid)
        return raw

    def texts(self, path: bytes, /) -> tuple[tuple[int, ...], list[bytes]]:
        """Read all values of a dataset of strings; return its shape and the strings in order."""
        _enable_plugins()
        with library_errors():
            dataset = self._with_values(path)
            values = np.asarray(_read_texts(dataset), object).reshape(-1).tolist()
            if not all(x is None or isinstance(x, bytes | int) for x in values):
                raise LibraryError("its elements are not strings")
            return dataset.shape, [x or b"" for x in values]

    # -- attributes -------------------------------------------------------------------------------------------

    def attributes(self, path: bytes, /) -> list[FoundAttribute]:
        """Read the attributes of an object."""
        with library_errors():
            return list(read_attributes(self._open(path)))

    def numbers(self, path: bytes, name: bytes, /) -> NDArray[Any]:
        """Read an attribute of numbers that only the library converts."""
        with library_errors():
            return read_numbers(self._open(path), name)

    def elsewhere(self, only_links: bool, /) -> str | None:
        """Describe a part of the file that is in another file, including values of datasets: see `names_elsewhere`."""
        with library_errors():
            return names_elsewhere(self._file, only_links=only_links)


class _ElsewhereError(LibraryError):
    """A path leads over a link to another file."""


def names_elsewhere(file: h5py.File, /, *, only_links: bool = False) -> str | None:
    """Describe a part of a file that the HDF5 library would read from another file: a link, or values of a dataset.

    The library opens local files by such names, wherever the file itself is read from. This function opens none of
    them.
    """
    seen: set[int] = set()
    todo: list[tuple[str, h5g.GroupID]] = [("", h5g.open(file.id, b"/"))]
    while todo:
        path, group = todo.pop()
        found: list[tuple[bytes, int, int]] = []
        if group.get_num_objs():
            group.links.iterate(lambda name, info, found=found: found.append((name, info.type, info.u)), info=True)
        for name, kind, address in found:
            here = f"{path}/{name.decode(errors='replace')}"
            if kind not in (h5l.TYPE_HARD, h5l.TYPE_SOFT):
                return f"'{here[:200]}' is a link to another file"
            if kind == h5l.TYPE_SOFT or address in seen:
                continue
            seen.add(address)
            target = h5o.open(group, name)
            if isinstance(target, h5g.GroupID):
                todo.append((here, target))
            elif isinstance(target, h5d.DatasetID) and not only_links:
                layout = target.get_create_plist()
                if layout.get_external_count() or layout.get_layout() == h5d.VIRTUAL:
                    return f"the values of '{here[:200]}' are in other files"
    return None


def has_filter(number: int, /) -> bool:
    """Return whether the HDF5 library has a filter, either built in or from ``hdf5plugin``."""
    _enable_plugins()
    with library_errors():
        return bool(h5z.filter_avail(number))


@functools.cache
def _enable_plugins() -> None:
    """Enable the filters of the package ``hdf5plugin`` in the HDF5 library, if the package is installed.

    The package ``netCDF4`` also has filters, built for its own HDF5 library. On import it sets an environment variable
    to their folder. In h5py's library these filters fail or crash, but they take precedence over ``hdf5plugin``.
    """
    for i in reversed(range(h5pl.size())):
        if b"netCDF4" in h5pl.get(i):
            h5pl.remove(i)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("hdf5plugin")


def _link_target(group: h5g.GroupID, name: bytes) -> tuple[bytes, ...]:
    try:
        with library_errors():
            target = group.links.get_val(name)
    except LibraryError:
        return ()
    return (target,) if isinstance(target, bytes) else tuple(target)


def _read_texts(dataset: h5py.Dataset) -> Any:
    """Read strings, chunk by chunk if the HDF5 library cannot make the fill values of a chunk that was never written.

    To make a fill value of variable length, the library tries to write to the heap of the file, which is open for
    reading.
    """
    maxshape = dataset.maxshape
    # the library (up to 2.0 at least) lists chunks in the wrong order if an axis other than the first is unlimited
    is_listed_right = maxshape is None or None not in maxshape[1:]
    try:
        return dataset[()]
    except (OSError, RuntimeError):
        if dataset.chunks is None or not is_listed_right:
            raise
    values = np.full(dataset.shape, dataset.fillvalue or b"", object)
    stored: list[Any] = []
    dataset.id.chunk_iter(stored.append)
    for chunk in stored:
        box = tuple(
            slice(first, min(first + n, end))
            for first, n, end in zip(chunk.chunk_offset, dataset.chunks, dataset.shape, strict=True)
        )
        values[box] = dataset[box]
    return values
