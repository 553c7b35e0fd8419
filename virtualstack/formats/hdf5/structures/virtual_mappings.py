"""Parse the mappings of a virtual dataset from an object of the global heap, and their selections."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numcodecs.jenkins import jenkins_lookup3
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.requests import Fields, NoReferencesError, Widths, check
from virtualstack.manifests import Runs
from virtualstack.manifests.cells import distinct_rows

_MAX_RUNS = 1 << 24  # runs along an axis: 256 MB


class SelectionError(Exception):
    """Arrays cannot be divided by this selection; the message is half a sentence."""


@dataclass(frozen=True, slots=True)
class HyperslabAxis:
    """Blocks of elements along one axis (H5Sselect_hyperslab)."""

    start: int
    stride: int
    count: int | None
    block: int | None

    @property
    def is_unlimited(self) -> bool:
        """True if the selection extends as far as the dataset does."""
        return self.count is None or self.block is None

    @property
    def is_one_run(self) -> bool:
        """True if the elements of the selection follow one another."""
        return self.block is None or self.count == 1 or self.block == self.stride

    def n_below(self, extent: int) -> int:
        """Return the number of elements of an unlimited selection below an extent (H5S__hyper_get_num_slices)."""
        reach = max(extent - self.start, 0)
        if self.is_one_run or self.block is None:
            return reach
        if 0 < reach < self.block:
            raise SelectionError(f"blocks of {self.block} elements of a source that has {reach} of the first one")
        whole, rest = divmod(reach, self.stride)
        return whole * self.block + min(rest, self.block)

    def extent_for(self, n: int) -> int:
        """Return the end of the first ``n`` elements; 0 if ``n`` is 0 (H5S_hyper_get_clip_extent)."""
        if not n:
            return 0
        if self.is_one_run or self.block is None:
            return self.start + n
        last = (n - 1) // self.block
        return self.start + last * self.stride + n - last * self.block

    def first(self, n: int) -> Runs:
        """Return the first ``n`` elements."""
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
        """Return all elements of a selection that is not unlimited."""
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
        return Runs.from_starts(starts, lengths)
    except (ValueError, OverflowError) as error:
        raise SelectionError(f"a selection whose {error}") from error


class Hyperslab(NamedTuple):
    """A regular selection: one :class:`HyperslabAxis` for each axis."""

    axes: tuple[HyperslabAxis, ...]

    @property
    def unlimited_axis(self) -> int | None:
        """The axis along which the selection is unlimited; ``None`` if no axis is."""
        return next((i for i, axis in enumerate(self.axes) if axis.is_unlimited), None)


@dataclass(frozen=True, slots=True, eq=False)
class BoxSelection:
    """A union of boxes that do not overlap: first and last element of each, of shape ``(n, 2, axes)``."""

    corners: NDArray[np.int64]


type MappedSelection = Hyperslab | BoxSelection | None
"""A selection; ``None`` selects all elements."""


def selection_axes(selection: MappedSelection, shape: tuple[int, ...], /) -> tuple[Runs, ...]:
    """Return the elements along each axis whose outer product is the selection."""
    if selection is None:
        return tuple(_run(0, n) for n in shape)
    if isinstance(selection, Hyperslab):
        return tuple(axis.runs() for axis in selection.axes)
    return _factors(selection.corners)


def _factors(corners: NDArray[np.int64]) -> tuple[Runs, ...]:
    """Return a union of boxes as an outer product of runs along each axis."""
    axes = []
    for axis in range(corners.shape[2]):
        runs = corners[:, :, axis]
        first, last = runs[distinct_rows(runs.T)[0]].T
        end = last + 1
        if (first[1:] < end[:-1]).any():
            raise NoReferencesError(
                "unions of boxes of a source that are not an outer product of elements along each axis"
            )
        axes.append(_runs(first, end - first))
    volume = sum(map(math.prod, (corners[:, 1] - corners[:, 0] + 1).tolist()))
    if volume != math.prod(runs.size for runs in axes):
        raise NoReferencesError("unions of boxes of a source that are not an outer product of elements along each axis")
    return tuple(axes)


_NONE, _POINTS, _HYPERSLABS, _ALL = range(4)
_SHARED_FILE, _SHARED_DATASET, _SAME_FILE = 0x01, 0x02, 0x04
_KNOWN_FLAGS = (0, 1, 2, 3, 4, 6)
_MAX_RANK = 32  # H5S_MAX_RANK
_MAX_BLOCKS = 1 << 20  # boxes of an irregular selection
_MIN_ENTRY_BYTES = 32  # bytes of two selections


class VirtualMapping(NamedTuple):
    """A mapping of elements of a source to elements of a virtual dataset."""

    file: str
    dataset: str
    place: MappedSelection
    source: MappedSelection

    @property
    def growing_axis(self) -> int | None:
        """Axis along which the virtual dataset grows with the source or sources; ``None`` if it does not grow."""
        return self.place.unlimited_axis if isinstance(self.place, Hyperslab) else None


def parse_mappings(block: bytes, widths: Widths, /) -> tuple[VirtualMapping, ...]:
    """Parse the global heap block of a virtual dataset.

    HDF5 spec III.F, version 0. In version 1, of HDF5 2.0, each entry begins with flags. The entry takes the name of the
    file (1) or of the dataset (2) from an earlier entry. With flag 4, its file is the file of the virtual dataset.
    """
    check(len(block) > 4, "they end before their fields do")
    check(jenkins_lookup3(block[:-4], 0) == int.from_bytes(block[-4:], "little"), "their checksum is wrong")
    fields = Fields(block[:-4])
    version = fields.number(1)
    check(version in (0, 1), f"they have the unknown version {version}")
    n_entries = fields.number(widths.length)
    check(n_entries <= len(block) // _MIN_ENTRY_BYTES, f"{n_entries} mappings do not fit into {len(block)} bytes")
    files: list[str] = []
    datasets: list[str] = []
    mappings = []
    for _ in range(n_entries):
        flags = fields.number(1) if version else 0
        check(flags in _KNOWN_FLAGS, f"a mapping has the unknown flags {flags:#x}")
        if flags & _SAME_FILE:
            files.append(".")
        else:
            files.append(_name(fields, files, widths, is_shared=bool(flags & _SHARED_FILE)))
        datasets.append(_name(fields, datasets, widths, is_shared=bool(flags & _SHARED_DATASET)))
        source = _selection(fields)
        mappings.append(VirtualMapping(files[-1], datasets[-1], place=_selection(fields), source=source))
    check(not fields.rest, "bytes are left over after them")
    return tuple(mappings)


def _name(fields: Fields, earlier: list[str], widths: Widths, *, is_shared: bool) -> str:
    if not is_shared:
        return os.fsdecode(fields.text())
    number = fields.number(widths.length)
    check(number < len(earlier), "a mapping refers to the name of a later one")
    return earlier[number]


def _selection(fields: Fields) -> MappedSelection:
    """Parse a serialised selection (HDF5 spec, "Dataspace Selection")."""
    kind, version = fields.number(4), fields.number(4)
    if kind in (_NONE, _ALL):
        check(version == 1, f"a selection of kind {kind} has the unknown version {version}")
        fields.number(8)  # reserved, and the length of nothing
        return None if kind == _ALL else BoxSelection(np.zeros((0, 2, 0), np.int64))
    check(kind != _POINTS, "a selection of single points cannot be in a virtual dataset")
    check(kind == _HYPERSLABS and version in (1, 2, 3), f"a selection of kind {kind} has the version {version}")
    is_regular, width = False, 4
    if version == 1:
        fields.number(8)  # reserved, and the length of the rest
    else:
        flags = fields.number(1)
        check(flags in (0, 1), f"a selection has the unknown flags {flags:#x}")
        is_regular = bool(flags)
        if version == 3:
            width = fields.number(1)
            check(width in (2, 4, 8), f"a selection has numbers of {width} bytes")
        else:
            fields.number(4)
            width = 8 if is_regular else 4
    rank = fields.number(4)
    check(0 < rank <= _MAX_RANK, f"a selection has the rank {rank}")
    return _regular(fields, rank, width) if is_regular else _boxes(fields, rank, width)


def _numbers(fields: Fields, width: int, count: int) -> NDArray[np.unsignedinteger]:
    return np.frombuffer(fields.take(width * count), f"<u{width}")


def _regular(fields: Fields, rank: int, width: int) -> Hyperslab:
    unlimited = (1 << 8 * width) - 1
    numbers = _numbers(fields, width, 4 * rank).tolist()
    axes = []
    for i in range(0, 4 * rank, 4):
        start, stride, count, block = numbers[i : i + 4]
        # H5Sselect_hyperslab: blocks do not overlap
        check(stride > 0 and block > 0 and (count <= 1 or block <= stride or block == unlimited), "blocks overlap")
        axes.append(
            HyperslabAxis(start, stride, None if count == unlimited else count, None if block == unlimited else block)
        )
    check(sum(axis.is_unlimited for axis in axes) <= 1, "a selection is unlimited along two axes")
    return Hyperslab(tuple(axes))


def _boxes(fields: Fields, rank: int, width: int) -> MappedSelection:
    n_boxes = fields.number(width)
    check(n_boxes <= _MAX_BLOCKS, f"a selection has {n_boxes} boxes, more than {_MAX_BLOCKS}")
    corners = _numbers(fields, width, n_boxes * 2 * rank).astype(np.int64).reshape(n_boxes, 2, rank)
    check(bool((corners[:, 0] >= 0).all() and (corners[:, 1] >= corners[:, 0]).all()), "a box ends before it begins")
    return _grid(corners) or BoxSelection(corners)


def _grid(corners: NDArray[np.int64]) -> Hyperslab | None:
    """Return a regular selection if boxes form one, else ``None``; version 1 stores regular selections as boxes."""
    axes = []
    n_cells = 1
    for axis in range(corners.shape[2]):
        starts = np.unique(corners[:, 0, axis])
        steps = np.unique(np.diff(starts))
        sizes = np.unique(corners[:, 1, axis] - corners[:, 0, axis]) + 1
        if len(sizes) != 1 or len(steps) > 1 or (len(steps) and steps[0] < sizes[0]):
            return None
        stride = int(steps[0]) if len(steps) else int(sizes[0])
        axes.append(HyperslabAxis(int(starts[0]), stride, len(starts), int(sizes[0])))
        n_cells *= len(starts)
    is_whole = n_cells == len(corners) and (n_cells == 1 or n_cells == len(distinct_rows(corners[:, 0].T)[0]))
    return Hyperslab(tuple(axes)) if is_whole else None
