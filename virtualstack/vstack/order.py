"""Which cells of a store refer to some sources, and whether they lie in the order of their file."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import CombineError, ManifestError
from virtualstack.location import Location
from virtualstack.manifests import FIRST, INLINE, ChunkGrid, ChunkManifest, ManifestArray
from virtualstack.manifests.cells import distinct_rows
from virtualstack.vstack.shown import Shown

__all__ = ["WRITE_AGAIN", "Cells", "cells_of_sources", "check_order"]

WRITE_AGAIN = "write the store again, from all of its files, with vds.virtual.to_vstack(..., mode='w')"
"""What helps where elements of a source have no place in a store."""

_MAX_FOUND_CHUNKS = 1 << 27  # cells: a few bytes may say that they are many


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of an array.

    Parameters
    ----------
    array
        The array.
    numbers
        Int64, shape ``(n, ndim)``, each once.
    """

    array: ManifestArray
    numbers: NDArray[np.int64]

    @property
    def low(self) -> tuple[int, ...]:
        """First cell of their box."""
        return tuple(self.numbers.min(0).tolist())

    @property
    def high(self) -> tuple[int, ...]:
        """Last cell of their box, and one more."""
        return tuple((self.numbers.max(0) + 1).tolist())

    def mask(self) -> NDArray[np.bool_]:
        """Tell which cells of their box they are."""
        low = np.array(self.low, np.int64)
        found = np.zeros(tuple(np.array(self.high, np.int64) - low), np.bool_)
        found[tuple((self.numbers - low).T)] = True
        return found


def cells_of_sources(shown: Shown, segments: Mapping[int, frozenset[Location]], /) -> dict[tuple[str, str], Cells]:
    """Find the cells that refer to some sources of some segments, by URL and path of the array.

    The rows of these segments are read, and no others.
    """
    found: dict[tuple[str, str], list[NDArray[np.int64]]] = {}
    arrays: dict[str, ManifestArray] = {}
    n_found = 0
    for number, wanted in segments.items():
        for use in shown.uses[number]:
            arrays[use.path] = use.array
            for box in use.boxes():
                picked = use.array.manifest.read(box)
                first = np.array([side.start for side in box], np.int64)
                wanted_rows = [i for i, location in enumerate(picked.locations) if location in wanted]
                for row, numbers in _cells_by_code(picked.entries["location"], np.array(wanted_rows, np.intp) + FIRST):
                    url = picked.locations[row - FIRST].url
                    found.setdefault((url, use.path), []).append(numbers + first)
                    n_found += len(numbers)
                    if n_found > _MAX_FOUND_CHUNKS:
                        raise ManifestError(
                            f"more than {_MAX_FOUND_CHUNKS} chunks of '{use.path}' and others are in sources that "
                            f"changed, such as '{url}': {WRITE_AGAIN}"
                        )
    return {(url, path): Cells(arrays[path], _each_once(np.concatenate(parts))) for (url, path), parts in found.items()}


def _each_once(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return numbers[distinct_rows(numbers.T)[0]]


def _cells_by_code(
    codes: NDArray[np.unsignedinteger[Any]], wanted: NDArray[np.intp]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Give the cells that have each of some codes; the codes are gone through once, however many are wanted."""
    is_wanted = np.zeros(int(max(codes.max(initial=0), wanted.max(initial=0))) + 1, np.bool_)
    is_wanted[wanted] = True
    cells = np.argwhere(is_wanted[codes])
    own = codes.reshape(-1)[np.flatnonzero(is_wanted[codes])]
    order = np.argsort(own, kind="stable")
    cells, own = cells[order], own[order]
    lines = [0, *(np.flatnonzero(own[1:] != own[:-1]) + 1).tolist(), len(own)]
    return ((int(own[a]), cells[a:b]) for a, b in itertools.pairwise(lines) if a < b)


def check_order(
    was: ChunkManifest, now: ChunkManifest, own: NDArray[np.bool_], grid: ChunkGrid, axes: Collection[int], /
) -> None:
    """Refuse chunks that lay in a store turned round or in another order, where those of the file do not.

    The file as it was is gone: that chunks lie one behind the other in it is as they are written. Where they did not,
    the new ones must lie as they did.

    Parameters
    ----------
    was, now
        Cells of the store, and those of the file that would take their places.
    own
        Which of them are of the file.
    grid
        Of these cells.
    axes
        Without labels.

    Raises
    ------
    CombineError
        Elements would come to other places.
    """
    both = own & (was.entries["location"] >= INLINE) & (now.entries["location"] >= INLINE)
    if not both.any():
        return
    new = both & ~_same_places(was, now)  # a file that is changed in place has its other chunks where they were
    for axis in axes:
        lengths = grid.axes[axis].lengths().reshape([-1 if i == axis else 1 for i in range(both.ndim)])
        is_turned = (lengths > 1) & (_directions(was, both, axis) != _directions(now, both, axis))
        is_in_order = (~new | (_ranks(was, new, axis) == np.cumsum(new, axis) - 1)).all(axis, keepdims=True)
        is_other = ~is_in_order & (_ranks(was, both, axis) != _ranks(now, both, axis))
        if (both & (is_turned | is_other)).any():
            raise CombineError(
                "its chunks lay in another order than they do now, along a dimension without labels, so that it is not "
                f"known where its elements belong: {WRITE_AGAIN}"
            )


def _same_places(was: ChunkManifest, now: ChunkManifest) -> NDArray[np.bool_]:
    """Tell which cells are in the same bytes of the file."""
    is_same = was.entries["offset"] == now.entries["offset"]
    is_same &= was.entries["length"] == now.entries["length"]
    starts = [np.int64(0) if x.starts is None else x.starts for x in (was, now)]
    return np.asarray(is_same & (starts[0] == starts[1]), np.bool_)


def _directions(manifest: ChunkManifest, stored: NDArray[np.bool_], axis: int) -> NDArray[np.int64]:
    """Give the sign of the stride of stored cells along an axis."""
    signs = np.array([np.sign(encoding.strides[axis]) for encoding in manifest.encodings], np.int64)
    return signs[np.where(stored, manifest.entries["encoding"], 0)]


def _ranks(manifest: ChunkManifest, stored: NDArray[np.bool_], axis: int) -> NDArray[np.int64]:
    """Count from 0 where stored cells lie among those of their line along an axis; in the same place they are equal."""
    starts = np.zeros(stored.shape, np.int64) if manifest.starts is None else manifest.starts
    places = [manifest.entries["offset"][stored], starts[stored]]
    keys = np.full(stored.shape, len(places[0]), np.int64)  # others come behind
    keys[stored] = distinct_rows(places)[1]
    order = np.argsort(keys, axis, kind="stable")
    in_order = np.take_along_axis(keys, order, axis)
    found = np.empty_like(keys)
    np.put_along_axis(
        found, order, np.cumsum(np.diff(in_order, axis=axis, prepend=in_order.min(axis, keepdims=True)) > 0, axis), axis
    )
    return found
