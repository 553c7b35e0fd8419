"""References to ranges of files as columns, by key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError

__all__ = ["PlainReferences", "ReferenceColumns", "are_metadata", "below", "narrow"]

_METADATA = ".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"
_INDEX = "0123456789."
_AT_ONCE = 1 << 16  # references, or up to one part more


type ReferenceColumns = tuple[pa.Array, NDArray[np.integer], NDArray[np.int64], NDArray[np.integer]]
"""Keys, rows of URLs, offsets and lengths in bytes."""


def _by_stem(columns: ReferenceColumns) -> tuple[ReferenceColumns, Sequence[str], Sequence[int]]:
    """Sort columns by the stems of their keys; give the stems, and where each begins."""
    keys, rows, offsets, lengths = columns
    encoded = pc.ascii_rtrim(keys, _INDEX).dictionary_encode()
    stems = encoded.dictionary.to_pylist()
    order = sorted(range(len(stems)), key=stems.__getitem__)
    ranks = np.argsort(order)[encoded.indices.to_numpy()]
    if (ranks[1:] < ranks[:-1]).any():
        by = np.argsort(ranks, kind="stable")
        keys, rows, offsets, lengths = keys.take(pa.array(by)), rows[by], offsets[by], lengths[by]
    starts = [0, *np.bincount(ranks, minlength=len(stems)).cumsum().tolist()]
    return (keys, narrow(rows), offsets, lengths), [stems[i] for i in order], starts


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainReferences:
    """References ``[url, offset, length]`` as columns, in parts.

    Parameters
    ----------
    parts
        By number; each sorted by stem.
    left
        References of each part that may be asked for.
    urls
        As they stand in the references.
    stems
        What keys are without the digits and dots at their ends, sorted: all up to the last ``/``, and seldom more.
    places
        For each stem the parts that have it, and from where to where.
    """

    parts: dict[int, ReferenceColumns]
    left: list[int]
    urls: Sequence[str]
    stems: Sequence[str]
    places: Sequence[Sequence[tuple[int, int, int]]]

    @classmethod
    def of(cls, parts: Iterable[ReferenceColumns], urls: Sequence[str]) -> Self:
        """Sort columns by the stems of their keys, distinct strings; each part has less than 2 GiB of them."""
        made, places = dict[int, ReferenceColumns](), dict[str, list[tuple[int, int, int]]]()
        for i, columns in enumerate(parts):
            made[i], names, starts = _by_stem(columns)
            for stem, start, stop in zip(names, starts, starts[1:], strict=False):
                places.setdefault(stem, []).append((i, start, stop))
        stems = sorted(places)
        left = [len(keys) for keys, *_ in made.values()]
        return cls(parts=made, left=left, urls=urls, stems=stems, places=[places[stem] for stem in stems])

    def counts(self) -> NDArray[np.int64]:
        """Count the references of each stem."""
        return np.array([sum(stop - start for _, start, stop in places) for places in self.places], np.int64)

    def below(self, path: str, /, *, once: bool = False) -> Iterator[ReferenceColumns]:
        """Give the references with keys below a path, some at a time.

        Parameters
        ----------
        path
            Of an array.
        once
            Whether they are asked for this one time only: parts of which all was given are let go.

        Raises
        ------
        MalformedFileError
            They were let go.
        """
        some: list[tuple[int, int, int]] = []
        n = 0
        for places in self.places[below(self.stems, path)]:
            for place in places:
                some.append(place)
                n += place[2] - place[1]
                if n >= _AT_ONCE:
                    yield self._columns(some, once=once)
                    some, n = [], 0
        if some:
            yield self._columns(some, once=once)

    def _columns(self, places: Sequence[tuple[int, int, int]], *, once: bool) -> ReferenceColumns:
        if any(i not in self.parts for i, _, _ in places):
            raise MalformedFileError("references lie below two arrays, one within the other: write them anew")
        parts = [(self.parts[i], slice(start, stop)) for i, start, stop in places]
        for i, start, stop in places if once else ():
            self.left[i] -= stop - start
            if not self.left[i]:
                del self.parts[i]
        keys, rows, offsets, lengths = zip(*(tuple(x[at] for x in part) for part, at in parts), strict=True)
        return (
            pa.concat_arrays(keys).cast(pa.large_string()),
            np.concatenate(rows),
            np.concatenate(offsets),
            np.concatenate(lengths),
        )


def narrow(numbers: NDArray[np.integer], /) -> NDArray[np.integer]:
    """Give whole numbers of 0 and more in few bytes."""
    return numbers.astype(np.uint32) if int(numbers.max(initial=0)) < 1 << 32 else numbers.copy()


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
