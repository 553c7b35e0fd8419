"""What new values of a region change: the cells that it meets, whole, as the array stores them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from virtualstack.combine.region_bounds import Side, read_region
from virtualstack.dataset.packing import stored_values
from virtualstack.errors import StorageError, WriterError
from virtualstack.manifests import ManifestArray
from virtualstack.reading import read_array
from virtualstack.storage import Storage

__all__ = ["Patch"]


@dataclass(frozen=True, slots=True)
class Patch:
    """New values of a region of an array.

    Parameters
    ----------
    array
        That they are part of.
    sides
        The region, one an axis; none of them is empty.
    values
        As the array stores them, in its dtype; shape of the region, with all axes.
    """

    array: ManifestArray
    sides: list[Side]
    values: NDArray[Any]

    @classmethod
    def of(cls, path: str, array: ManifestArray, region: object, values: Any, /, *, raw: bool) -> Self | None:
        """Read a region and pack its values; ``None`` where the region is empty.

        Raises
        ------
        ValueError, IndexError
            The region is none of the array's.
        WriterError
            Values have another shape, or no place in the array.
        """
        sides = read_region(region, array.dimension_names or (), array.shape)
        given = _values(path, array, sides, values)
        return cls(array, sides, stored_values(array, given, raw=raw)) if given.size else None

    def cells(self) -> tuple[tuple[int, ...], list[NDArray[np.int64]]]:
        """Give the first cell that the region meets, and along each axis the lines of all that it meets."""
        axes = self.array.grid.axes
        met = [axis.cover(side.start, side.stop) for axis, side in zip(axes, self.sides, strict=True)]
        lines = [axis.lines(cells.start, cells.stop) for axis, cells in zip(axes, met, strict=True)]
        return tuple(cells.start for cells in met), lines

    def whole(self, lines: list[NDArray[np.int64]], storage: Storage, /) -> NDArray[Any]:
        """Give the values of all cells that the region meets; what lies around it is read.

        Raises
        ------
        StorageError
            It cannot be read, or is ABSENT.
        """
        low, high = [int(x[0]) for x in lines], [int(x[-1]) for x in lines]
        whole = np.empty([b - a for a, b in zip(low, high, strict=True)], self.array.dtype)
        box = [(side.start, side.stop) for side in self.sides]
        whole[_within(box, low)] = self.values
        for axis, side in enumerate(self.sides):
            rest = [(low[i], high[i]) for i in range(axis + 1, len(self.sides))]
            for begin, end in ((low[axis], side.start), (side.stop, high[axis])):
                if begin < end:
                    slab = [*box[:axis], (begin, end), *rest]
                    whole[_within(slab, low)] = _read(self.array, slab, storage)
        return whole


def _values(path: str, array: ManifestArray, sides: list[Side], values: Any) -> NDArray[Any]:
    """Give values in the shape of a region."""
    if isinstance(values, xr.DataArray | xr.Variable):
        dims = [dim for dim, side in zip(array.dimension_names or (), sides, strict=True) if not side.is_one]
        if set(values.dims) == set(dims):
            values = values.transpose(*dims)
        given = values.values
    else:  # as xarray takes arrays: what is masked is missing, and dates are times
        values = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        given = xr.Variable([f"dim_{i}" for i in range(values.ndim)], values).values
        if given.dtype.kind == "f" and values.dtype.kind in "iu":
            _check_exact(path, values)
    shape = tuple(side.length for side in sides if not side.is_one)
    if given.ndim and given.shape != shape:
        raise WriterError(
            f"values of shape {given.shape} are given for a region of shape {shape} of variable '{path}', which has "
            f"shape {array.shape}",
            variable=path,
            feature="shape",
        )
    return np.broadcast_to(given, shape).reshape([side.length for side in sides])


def _check_exact(path: str, values: np.ma.MaskedArray[Any, Any]) -> None:
    """Refuse integers with a mask that are others as floats, which they become for what is missing among them."""
    own = values.compressed()
    if own.size and max(-int(own.min()), int(own.max())) > 1 << 53:
        raise WriterError(
            f"values with a mask for variable '{path}' have integers beyond 2^53, which are not kept exactly where "
            "some are missing: give stored numbers, with the fill value where they are masked, and raw=True",
            variable=path,
            feature="masked integers",
        )


def _within(box: list[tuple[int, int]], low: list[int]) -> tuple[slice, ...]:
    return tuple(slice(a - first, b - first) for (a, b), first in zip(box, low, strict=True))


def _read(array: ManifestArray, box: list[tuple[int, int]], storage: Storage) -> NDArray[Any]:
    try:
        return read_array(array, tuple(slice(a, b) for a, b in box), storage, absent="raise")
    except StorageError as error:
        error.add_note(
            f"chunks of variable '{array.name}' that the region covers in part are read and written whole; give a "
            "region that covers whole chunks, and nothing is read"
        )
        raise
