"""Which cells of a store refer to some sources, and sets of cells as boxes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ManifestError
from virtualstack.location import Location
from virtualstack.manifests import FIRST, ManifestArray
from virtualstack.manifests.rows import distinct_rows
from virtualstack.vstack.shown import Shown

__all__ = ["WRITE_AGAIN", "Cells", "cells_of_sources"]

WRITE_AGAIN = "write the store again, from all of its files, with vds.virtual.to_vstack(..., mode='w')"
"""What helps where elements of a source have no place in a store."""

_MOST = 1 << 27  # cells: a few bytes may say that they are many


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
                    if n_found > _MOST:
                        raise ManifestError(
                            f"more than {_MOST} chunks of '{use.path}' and others are in sources that changed, such "
                            f"as '{url}': {WRITE_AGAIN}"
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
