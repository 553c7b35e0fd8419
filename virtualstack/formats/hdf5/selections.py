"""Selections of elements in the mappings of virtual datasets, by axis, also those that grow with their source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.obstacles import NoReferencesError
from virtualstack.manifests import Runs
from virtualstack.manifests.rows import distinct_rows

__all__ = ["BoxSelection", "Hyperslab", "HyperslabAxis", "Selection", "SelectionError", "axes_of"]

_MAX_RUNS = 1 << 24  # along an axis: 256 MB


class SelectionError(Exception):
    """A selection is none that arrays can be cut by; the message is half a sentence."""


@dataclass(frozen=True, slots=True)
class HyperslabAxis:
    """Blocks of elements along one axis (H5Sselect_hyperslab).

    Parameters
    ----------
    start, stride
        Of the first block, and from one block to the next; elements.
    count, block
        Blocks, and elements of each; ``None`` for unlimited.
    """

    start: int
    stride: int
    count: int | None
    block: int | None

    @property
    def is_unlimited(self) -> bool:
        """Whether it goes on for as long as the dataset does."""
        return self.count is None or self.block is None

    @property
    def is_one_run(self) -> bool:
        """Whether its elements follow one another."""
        return self.block is None or self.count == 1 or self.block == self.stride

    def n_below(self, extent: int) -> int:
        """Count the elements below an extent, where it is unlimited (H5S__hyper_get_num_slices).

        Raises
        ------
        SelectionError
            Only a part of the first block is there, of which the HDF5 library (2.0) counts all, and then fails.
        """
        reach = max(extent - self.start, 0)
        if self.is_one_run or self.block is None:
            return reach
        if 0 < reach < self.block:
            raise SelectionError(f"blocks of {self.block} elements of a source that has {reach} of the first one")
        whole, rest = divmod(reach, self.stride)
        return whole * self.block + min(rest, self.block)

    def extent_of(self, n: int) -> int:
        """Give the end of the first ``n`` elements; 0 where there are none (H5S_hyper_get_clip_extent)."""
        if not n:
            return 0
        if self.is_one_run or self.block is None:
            return self.start + n
        last = (n - 1) // self.block
        return self.start + last * self.stride + n - last * self.block

    def first(self, n: int) -> Runs:
        """Give the first ``n`` elements.

        Raises
        ------
        SelectionError
            They are too many runs, overlap, or reach beyond 2^63.
        """
        block = self.block
        if self.is_one_run or block is None:
            return _run(self.start, n)
        n_runs = -(-n // block)
        if n_runs > _MAX_RUNS:
            raise SelectionError(f"a selection of {n_runs} blocks along an axis, more than {_MAX_RUNS}")
        if self.start + n_runs * self.stride >= 1 << 62:
            raise SelectionError(f"a selection up to element {self.start + n_runs * self.stride}")
        starts = self.start + np.arange(n_runs, dtype=np.int64) * self.stride
        lengths = np.full(n_runs, block, np.int64)
        lengths[-1:] = n - (n_runs - 1) * block
        return _runs(starts, lengths)

    def runs(self) -> Runs:
        """Give all elements of a selection that is not unlimited."""
        if self.count is None or self.block is None:
            raise SelectionError("an unlimited selection where none may be")
        return self.first(self.count * self.block)


def _run(start: int, length: int) -> Runs:
    try:
        return Runs.one(start, length)
    except (ValueError, OverflowError) as error:
        raise SelectionError(f"a selection whose {error}") from error


def _runs(starts: Sequence[int] | NDArray[np.int64], lengths: Sequence[int] | NDArray[np.int64]) -> Runs:
    try:
        return Runs.of(starts, lengths)
    except (ValueError, OverflowError) as error:
        raise SelectionError(f"a selection whose {error}") from error


@dataclass(frozen=True, slots=True)
class Hyperslab:
    """A regular selection: one :class:`HyperslabAxis` for each axis."""

    axes: tuple[HyperslabAxis, ...]

    @property
    def unlimited_axis(self) -> int | None:
        """The axis along which it is unlimited, of which there is one at most."""
        return next((i for i, axis in enumerate(self.axes) if axis.is_unlimited), None)


@dataclass(frozen=True, slots=True, eq=False)
class BoxSelection:
    """A union of boxes that do not overlap; shape ``(n, 2, axes)``: first and last elements of each."""

    corners: NDArray[np.int64]


type Selection = Hyperslab | BoxSelection | None
"""``None`` selects all elements."""


def axes_of(selection: Selection, shape: tuple[int, ...], /) -> tuple[Runs, ...]:
    """Give the elements along each axis whose outer product is the selection.

    Parameters
    ----------
    selection
        Not unlimited.
    shape
        Of the dataset; what is selected may reach outside.

    Raises
    ------
    SelectionError
        It is unlimited or damaged.
    NoReferencesError
        It is no outer product.
    """
    if selection is None:
        return tuple(_run(0, n) for n in shape)
    if isinstance(selection, Hyperslab):
        return tuple(axis.runs() for axis in selection.axes)
    return _factors(selection.corners)


def _factors(corners: NDArray[np.int64]) -> tuple[Runs, ...]:
    """Write a union of boxes as an outer product of runs along each axis."""
    axes = []
    for axis in range(corners.shape[2]):
        runs = corners[:, :, axis]
        first, last = runs[distinct_rows(runs.T)[0]].T
        end = last + 1
        if (first[1:] < end[:-1]).any():
            raise NoReferencesError("unions of boxes of a source that are no outer product of elements along each axis")
        axes.append(_runs(first, end - first))
    volume = sum(map(math.prod, (corners[:, 1] - corners[:, 0] + 1).tolist()))
    if volume != math.prod(runs.size for runs in axes):
        raise NoReferencesError("unions of boxes of a source that are no outer product of elements along each axis")
    return tuple(axes)
