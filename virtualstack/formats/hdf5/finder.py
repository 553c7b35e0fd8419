"""Single datasets of a file by their paths, without a look at all the others."""

from __future__ import annotations

from collections.abc import Mapping

from virtualstack.formats.hdf5.fetch import Metadata
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.obstacles import LostValuesError
from virtualstack.formats.hdf5.paths import OUTSIDE, follow
from virtualstack.formats.hdf5.structures.links import Link
from virtualstack.formats.hdf5.structures.requests import StructureError
from virtualstack.formats.hdf5.tree import LostObjectError, Target, Variable, decode_text
from virtualstack.formats.hdf5.walk import Objects, find_objects, read_object
from virtualstack.formats.hdf5.walked import WalkedView

__all__ = ["DatasetFinder"]


class DatasetFinder:
    """Reads the objects that a path goes through, each once; attributes are left out.

    Parameters
    ----------
    metadata
        Of the file.
    library
        The HDF5 library's view of it, for what the parsers here do not know.
    """

    def __init__(self, metadata: Metadata, library: Library) -> None:
        self._metadata = metadata
        self._library = library
        self._found: Objects | None = None
        self._names: dict[int, Mapping[bytes, Link]] = {}

    def find(self, path: str, /) -> Variable | None:
        """Give the dataset at a path; ``None`` where there is none.

        Raises
        ------
        LostValuesError
            It is in another file, or damaged.
        LibraryError
            The library was asked, and cannot open it.
        """
        try:
            return self._find(path)
        except StructureError:
            return self._library.find(path)
        except LostObjectError as error:
            raise LostValuesError(f"a virtual dataset (VDS) whose source '{path}' is damaged: {error}") from error

    def _find(self, path: str) -> Variable | None:
        objects, root = self._objects(), self._objects().superblock.root
        raw_path = path.encode("utf-8", "surrogateescape")
        address = follow(raw_path, root, root, self._links)
        if address == OUTSIDE:
            raise LostValuesError(f"a virtual dataset (VDS) whose source '{path}' is a link to another file")
        if address is None or read_object(self._metadata, objects, address).kind != "dataset":
            return None
        name = decode_text(raw_path.rpartition(b"/")[2])
        target = Target(kind="dataset", address=address)
        return WalkedView(objects, self._metadata, self._library).variable(target, name, raw_path, path)

    def _objects(self) -> Objects:
        if self._found is None:
            self._found = find_objects(self._metadata)
        return self._found

    def _links(self, address: int) -> Mapping[bytes, Link]:
        if address not in self._names:
            links = read_object(self._metadata, self._objects(), address).links
            self._names[address] = {link.name: link for link in links}
        return self._names[address]
