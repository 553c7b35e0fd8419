"""References to objects as the paths of these: an address means nothing outside of its file."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["DanglingReferenceError", "reference_paths"]


class DanglingReferenceError(Exception):
    """A reference leads to no object that has a path; the message is half a sentence."""


def reference_paths(references: NDArray[np.uint64], paths: Mapping[int, str], /) -> list[str]:
    """Give the paths of objects that are referred to; ``""`` for a reference to nothing.

    Parameters
    ----------
    references
        Stored elements (HDF5 spec IV.A.2.d, class 7, type 0): little-endian addresses of object headers, counted
        from the end of the user block; of any shape.
    paths
        Of all objects of the file, by address.

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
