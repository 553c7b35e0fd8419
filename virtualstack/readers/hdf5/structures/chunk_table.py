"""The chunks of a dataset: what every kind of chunk index says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ChunkTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTable:
    """Allocated chunks of a dataset, in any order, no two for one cell; all arrays of shape ``(n_chunks,)``.

    Parameters
    ----------
    cell
        C-order index in the chunk grid of the current shape.
    offset, length
        Bytes, the offset from the end of the user block.
    mask
        Bit i is set where filter i was left out.
    """

    cell: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    mask: NDArray[np.uint32]
