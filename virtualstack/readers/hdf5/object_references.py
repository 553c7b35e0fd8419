"""References to objects as the paths of these: an address means nothing outside of its file."""

from __future__ import annotations

from collections.abc import Mapping

import h5py
import numpy as np
from h5py import h5g, h5l
from numpy.typing import NDArray

from virtualstack.readers.hdf5.attributes import decode_text
from virtualstack.readers.hdf5.faults import library_errors

__all__ = ["DanglingReferenceError", "object_paths", "reference_paths"]


class DanglingReferenceError(Exception):
    """A reference leads to no object that has a path; the message is half a sentence."""


def object_paths(file: h5py.File, /) -> dict[int, str]:
    """Give the path of each object by the address of its object header, counted from the end of the user block.

    One with several hard links has the first of them in the order of names. No object but groups is looked at.

    Raises
    ------
    LibraryError
        The links cannot be read.
    """
    with library_errors():
        root = file["/"]
        paths = {int(h5g.get_objinfo(root.id).objno[0]): "/"}

        def add(name: bytes, link: h5l.LinkInfo) -> None:
            if link.type == h5l.TYPE_HARD:
                paths.setdefault(int(link.u), f"/{decode_text(name)}")

        root.id.links.visit(add, info=True)
    return paths


def reference_paths(references: NDArray[np.uint64], paths: Mapping[int, str], /) -> list[str]:
    """Give the paths of objects that are referred to; ``""`` for a reference to nothing.

    Parameters
    ----------
    references
        Stored elements (HDF5 spec IV.A.2.d, class 7, type 0): little-endian addresses of object headers, counted
        from the end of the user block; of any shape.
    paths
        By address, as `object_paths` gives them.

    Raises
    ------
    DanglingReferenceError
        See there.

    Examples
    --------
    >>> reference_paths(np.array([96, 0], "<u8"), {96: "/"})
    ['/', '']
    """
    addresses = references.reshape(-1).tolist()
    lost = next((address for address in addresses if address and address not in paths), None)
    if lost is not None:
        raise DanglingReferenceError(f"a reference leads to address {lost}, where no object with a path is")
    return [paths[address] if address else "" for address in addresses]
