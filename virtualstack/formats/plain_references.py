"""References to ranges of files as columns, by key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["PlainReferences", "are_metadata", "below"]

_METADATA = ".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"
_INDEX = "0123456789."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainReferences:
    """References ``[url, offset, length]``: columns of equal length, sorted by stem.

    Parameters
    ----------
    keys
        Distinct large strings.
    rows
        Row of ``urls``.
    offsets, lengths
        Bytes.
    urls
        As they stand in the references.
    stems
        What keys are without the digits and dots at their ends, sorted: all up to the last ``/``, and seldom more.
    starts
        Where each stem begins, and the number of references.
    """

    keys: pa.Array
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    urls: Sequence[str]
    stems: Sequence[str]
    starts: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        keys: pa.Array,
        rows: NDArray[np.int64],
        offsets: NDArray[np.int64],
        lengths: NDArray[np.int64],
        urls: Sequence[str],
    ) -> Self:
        """Sort columns by the stems of their keys."""
        encoded = pc.ascii_rtrim(keys, _INDEX).dictionary_encode()
        stems = encoded.dictionary.to_pylist()
        order = sorted(range(len(stems)), key=stems.__getitem__)
        ranks = np.argsort(order)[encoded.indices.to_numpy()]
        if (ranks[1:] < ranks[:-1]).any():
            by = np.argsort(ranks, kind="stable")
            keys, rows, offsets, lengths = keys.take(pa.array(by)), rows[by], offsets[by], lengths[by]
        return cls(
            keys=keys,
            rows=rows,
            offsets=offsets,
            lengths=lengths,
            urls=urls,
            stems=[stems[i] for i in order],
            starts=np.append(0, np.bincount(ranks, minlength=len(stems)).cumsum()),
        )

    def span(self, path: str, /) -> slice:
        """Give the part of the columns with keys below a path."""
        stems = below(self.stems, path)
        return slice(int(self.starts[stems.start]), int(self.starts[stems.stop]))


def below(names: Sequence[str], path: str, /) -> slice:
    """Give the part of sorted names that stand below a path: all of them, below the root."""
    if not path:
        return slice(0, len(names))
    return slice(bisect_left(names, f"{path}/"), bisect_left(names, f"{path}0"))  # "0" follows "/"


def are_metadata(keys: pa.Array, /) -> NDArray[np.bool_]:
    """Say which keys are of zarr metadata, by what stands after their last ``/``."""
    found = np.zeros(len(keys), np.bool_)
    for name in _METADATA:
        for i in np.flatnonzero(pc.ends_with(keys, name).to_numpy(zero_copy_only=False)).tolist():
            found[i] = keys[i].as_py().rpartition("/")[2] == name
    return found
