"""The checksums of many blocks that were read at once."""

from __future__ import annotations

import numpy as np
from numcodecs.jenkins import jenkins_lookup3
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.requests import StructureError

__all__ = ["verify_blocks"]


def verify_blocks(blocks: NDArray[np.uint8], sizes: NDArray[np.int64] | int, what: str, /) -> None:
    """Check the checksum behind the first bytes of each block.

    HDF5 spec, "checksum" of every structure since version 1.8: Jenkins' lookup3 of all bytes before it, in 4 bytes.

    Parameters
    ----------
    blocks
        Shape ``(n, size)``, C-contiguous.
    sizes
        Bytes before the checksum: shape ``(n,)``, or one number for all.
    what
        Name of the structure, for the error.

    Raises
    ------
    StructureError
        A checksum is wrong.
    """
    n, width = blocks.shape
    flat = blocks.reshape(-1)
    starts = np.arange(n, dtype=np.int64) * width
    ends = starts + sizes
    stored = flat[ends[:, None] + np.arange(4)].view("<u4")[:, 0].tolist()
    data = flat.data
    found = [jenkins_lookup3(data[start:end], 0) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    if found != stored:
        raise StructureError(f"the checksum of {what} is wrong")
