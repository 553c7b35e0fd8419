"""Files along the dimension: missing values, duplicates, and files that interleave."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from virtualstack.manifests import ManifestGroup
from virtualstack.planning import FileFacts, Plan
from virtualstack.planning.gaps import Gap, find_gaps
from virtualstack.storage import Storage
from virtualstack.surveying.coordinate import TEXT, CoordinateLine, read_values

__all__ = [
    "FileSequence",
    "SeriesGap",
    "Shared",
    "count_shared",
    "find_interleaved",
    "find_url",
    "read_version",
    "why_no_gaps",
]

_MAX_PAIRS = 1 << 19
"""Largest number of pairs of parts that are counted, each once for every value that both have."""


@dataclass(frozen=True, slots=True)
class SeriesGap:
    """Missing steps of a series of files.

    Parameters
    ----------
    series
        Name of the series.
    gap
        The missing steps.
    line
        A coordinate in the unit of their numbers.
    """

    series: str
    gap: Gap
    line: CoordinateLine


@dataclass(frozen=True, slots=True)
class Shared:
    """Values that parts have in common.

    Parameters
    ----------
    counts
        Number of different values that two parts have in common, by the numbers of the parts, the lower one first. For
        a part paired with itself, it is the number of values that the part repeats.
    has_all
        If true, all pairs are counted. If false, each part is paired only with the nearest part before it, and the
        nearest part after it, that shares a value with it.
    """

    counts: dict[tuple[int, int], int]
    has_all: bool


def count_shared(parts: Sequence[NDArray[Any]], /, most: int = _MAX_PAIRS) -> Shared:
    """Count the values that parts have in common.

    >>> count_shared([np.array([1, 2, 3]), np.array([3, 4, 4]), np.array([1, 3])]).counts
    {(0, 1): 1, (0, 2): 2, (1, 2): 1, (1, 1): 1}
    """
    if not parts:
        return Shared({}, True)
    n = len(parts)
    numbers = np.concatenate(parts)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    part = np.repeat(np.arange(n), [len(x) for x in parts])[order]
    is_same = numbers[1:] == numbers[:-1]
    is_again = is_same & (part[1:] == part[:-1])
    again = np.bincount(part[1:][is_again], minlength=n).tolist()
    is_first = np.append(True, ~is_again)  # the first of equal values of a part
    value, part = np.append(0, np.cumsum(~is_same))[is_first], part[is_first]
    is_shared = value[1:] == value[:-1]
    is_shared = np.append(is_shared, False) | np.append(False, is_shared)
    value, part = value[is_shared], part[is_shared]
    n_parts = np.unique(value, return_counts=True)[1]
    has_all = int(np.sum(n_parts * (n_parts - 1) // 2)) <= most
    if has_all:
        counts = _count_pairs(value, part, n)
    else:
        own = np.split(value[np.argsort(part, kind="stable")], np.cumsum(np.bincount(part, minlength=n))[:-1])
        counts = {(i, j): _count_common(own[i], own[j]) for i, j in _nearest(value, part, n)}
    return Shared(counts | {(i, i): count for i, count in enumerate(again) if count}, has_all)


def _count_pairs(value: NDArray[np.intp], part: NDArray[np.intp], n: int) -> dict[tuple[int, int], int]:
    """Count how often two parts have the same value. Both arrays are in the order of values, then of parts."""
    pairs = []
    at = np.arange(len(value))
    for lag in range(1, len(value)):
        at = at[: np.searchsorted(at, len(value) - lag)]
        at = at[value[at] == value[at + lag]]
        if not at.size:
            break
        pairs.append(part[at] * n + part[at + lag])
    found, counts = np.unique(np.concatenate([np.zeros(0, np.intp), *pairs]), return_counts=True)
    return {divmod(pair, n): count for pair, count in zip(found.tolist(), counts.tolist(), strict=True)}


def _nearest(value: NDArray[np.intp], part: NDArray[np.intp], n: int) -> list[tuple[int, int]]:
    """Return pairs of each part with the nearest earlier and the nearest later part that has one of its values."""
    is_pair = value[1:] == value[:-1]
    left, right = part[:-1][is_pair], part[1:][is_pair]
    before, after = np.full(n, -1), np.full(n, n)
    np.maximum.at(before, right, left)
    np.minimum.at(after, left, right)
    pairs = {(i, j) for i, j in enumerate(after.tolist()) if j < n}
    return sorted(pairs | {(i, j) for j, i in enumerate(before.tolist()) if i >= 0})


def _count_common(a: NDArray[Any], b: NDArray[Any]) -> int:
    """Count the values that two rising arrays have in common, in the time of the shorter one."""
    few, many = (a, b) if len(a) < len(b) else (b, a)
    at = np.minimum(np.searchsorted(many, few), len(many) - 1)
    return int(np.count_nonzero(many[at] == few))


def find_interleaved(parts: Sequence[NDArray[Any]], /) -> list[tuple[int, int]]:
    """Return pairs of parts that overlap in range and share no value.

    Parts are in the order of their least numbers. A part that begins before an earlier part has ended is paired with
    the earlier part that ends last.

    >>> find_interleaved([np.array([0, 9]), np.array([1, 2]), np.array([4, 12]), np.array([13])])
    [(0, 1), (0, 2)]
    """
    spans = sorted((_plain(part.min()), i, _plain(part.max())) for i, part in enumerate(parts))
    found: list[tuple[int, int]] = []
    latest: tuple[Any, int] | None = None  # the greatest end so far, and the number of its part
    risen: tuple[int, NDArray[Any]] = -1, np.zeros(0)  # number and sorted values of that part
    for begin, i, end in spans:
        if latest is not None and begin < latest[0]:
            if risen[0] != latest[1]:
                risen = latest[1], np.sort(parts[latest[1]])
            if not _count_common(np.sort(parts[i]), risen[1]):
                found.append((latest[1], i))
        if latest is None or end > latest[0]:
            latest = end, i
    return found


def _plain(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number


_MAX_PLACE_BYTES = 1 << 24
"""Bytes of another coordinate that are read from a file, to distinguish it from files with the same values."""


@dataclass(frozen=True, slots=True, eq=False)
class FileSequence:
    """Files with the values of the coordinate along which they follow each other.

    Parameters
    ----------
    dim
        Name of the dimension, or ``None``.
    groups
        Group of each file.
    lines
        Coordinate of each file; ``None`` for a file without a coordinate that could be read.
    storage
        Access to the values of other coordinates.
    declared
        Facts that the metadata of each file declare.
    plan
        How the files join.
    """

    dim: str | None
    groups: Sequence[ManifestGroup]
    lines: Sequence[CoordinateLine | None]
    storage: Storage
    declared: Sequence[FileFacts]
    plan: Plan

    def _by_unit(self, files: Iterable[int]) -> dict[str | None, list[tuple[int, CoordinateLine]]]:
        """Return files that have values, grouped so that the values in a group can be compared."""
        found: dict[str | None, list[tuple[int, CoordinateLine]]] = {}
        for i in files:
            if (line := self.lines[i]) is not None and line.numbers is not None:
                found.setdefault(line.unit, []).append((i, line))
        return found

    def gaps(self, series: Mapping[str, Sequence[int]], /) -> tuple[list[SeriesGap], pd.DataFrame]:
        """Return the missing steps, and the table of reasons why gaps cannot be known."""
        found, unknown = [], []
        for name, files in series.items():
            by_unit = self._by_unit(files)
            if not by_unit and self.dim is not None:
                unknown.append((name, f"no file has values of '{self.dim}' that can be compared"))
            if len(by_unit) > 1:
                kinds = ", ".join(lines[0][1].kind for lines in by_unit.values())
                unknown.append((name, f"values of several kinds, between which gaps cannot be found: {kinds}"))
            for unit, lines in by_unit.items():
                values = np.concatenate(_comparable([_values(x) for _, x in lines]))
                gaps = None if unit == TEXT else find_gaps(values)
                if gaps is None:
                    unknown.append((name, why_no_gaps(lines[0][1], values)))
                else:
                    found += [SeriesGap(name, gap, lines[0][1]) for gap in gaps]
        return found, pd.DataFrame(unknown, columns=["series", "reason"])

    def duplicates(self, series: Mapping[str, Sequence[int]], /) -> tuple[pd.DataFrame, pd.DataFrame, bool]:
        """Return the tables of duplicates and of files that interleave, and whether all pairs are listed.

        A file with exactly the values of an earlier file is paired only with the first such file.
        """
        rows: list[tuple[int, int, str, int | None]] = []
        interleaved: list[tuple[int, int]] = []
        has_all = True
        for files in series.values():
            lines = {i: x for i in files if (x := self.lines[i]) is not None and x.numbers is not None}
            unread = [i for i in files if i not in lines]
            versions = [None if None in (v := read_version(self.groups[i])) else v for i in unread]
            rows += [(unread[i], unread[j], "same size and etag", None) for i, j in _pairs(versions)]
            same = [(files[i], files[j]) for i, j in _pairs(lines[i].key if i in lines else None for i in files)]
            found = [(i, j, "same labels", len(_values(lines[i]))) for i, j in same]
            again = {j for _, j in same}
            for unit, members in self._by_unit(i for i in files if i not in again).items():
                parts = _comparable([_values(x) for _, x in members])
                numbers = [i for i, _ in members]
                shared = count_shared(parts)
                has_all &= shared.has_all
                for (a, b), n in shared.counts.items():
                    found.append((numbers[a], numbers[b], "overlap" if a != b else "repeats", n))
                if unit != TEXT:
                    interleaved += [(numbers[a], numbers[b]) for a, b in find_interleaved(parts)]
            rows += self._told_apart(found)
        named = [(find_url(self.groups[i]), find_url(self.groups[j]), kind, n) for i, j, kind, n in rows]
        duplicates = pd.DataFrame(named, columns=["url", "other", "kind", "values"]).astype({"values": "Int64"})
        urls = [(find_url(self.groups[i]), find_url(self.groups[j])) for i, j in interleaved]
        return duplicates, pd.DataFrame(urls, columns=["url", "other"]), has_all

    def _are_planned_apart(self, i: int, j: int) -> bool:
        """Return whether the plan tells two files apart by more than their labels, as members and tiles."""
        if any(labels[i] != labels[j] for labels in self.plan.labels.values()):
            return True
        return any(i in its and j in its and not its[i].equals(its[j]) for its in self.plan.along.values())

    def _told_apart(self, pairs: Sequence[tuple[int, int, str, int]]) -> list[tuple[int, int, str, int | None]]:
        """Return pairs of files that share values, with a note if another coordinate, or their size, differs."""
        pairs = [pair for pair in pairs if pair[0] == pair[1] or not self._are_planned_apart(*pair[:2])]
        files = sorted({i for a, b, *_ in pairs if a != b for i in (a, b)})
        asked = [
            (i, name, array)
            for i in files
            for name, array in sorted(self.groups[i].arrays.items())
            if array.dimension_names == (name,) and name != self.dim
        ]
        places: dict[int, dict[str, bytes | None]] = {i: {} for i in files}
        small = (x if x.nbytes <= _MAX_PLACE_BYTES else None for *_, x in asked)
        for (i, name, _), values in zip(asked, read_values(small, self.storage), strict=True):
            places[i][name] = _digest(values) if isinstance(values, np.ndarray) else None
        told: list[tuple[int, int, str, int | None]] = []
        for i, j, kind, n in pairs:
            version = read_version(self.groups[i])
            if i != j and (place := _compare_places(places[i], places[j])):
                kind = f"{kind}, {place}"
            elif kind == "same labels" and None not in version and version == read_version(self.groups[j]):
                kind = "same labels, size and etag"
            told.append((i, j, kind, n))
        return told


def _digest(values: NDArray[Any]) -> bytes:
    """Return a hash that is equal for equal values of any dtype."""
    return hashlib.blake2b(repr(values.tolist()).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _compare_places(a: dict[str, bytes | None], b: dict[str, bytes | None]) -> str:
    """Return text on how other coordinates distinguish two files; ``None`` is a coordinate that was not read."""
    if a.keys() != b.keys():
        return "other place"
    pairs = [(x, b[name]) for name, x in a.items()]
    if any(x != y for x, y in pairs if x is not None and y is not None):
        return "other place"
    return "place unknown" if any(None in pair for pair in pairs) else ""


def _values(line: CoordinateLine) -> NDArray[Any]:
    return np.zeros(0) if line.numbers is None else line.numbers


def _comparable(parts: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the parts in one dtype that holds all their numbers: objects if integers are too large for float64."""
    dtype = np.result_type(*parts)
    if dtype.kind == "f" and any(x.dtype.kind in "iu" and max(-int(x.min()), int(x.max())) > 1 << 53 for x in parts):
        dtype = np.dtype(object)
    return [x.astype(dtype, copy=False) for x in parts]


def why_no_gaps(line: CoordinateLine, values: NDArray[Any], /) -> str:
    """Return the reason why :func:`find_gaps` found no steps in values of a coordinate."""
    if line.unit == TEXT:
        return "text has no steps"
    return (
        "two values, which do not determine a step"
        if np.unique(values).size == 2
        else f"no regular steps of {line.kind}"
    )


def _pairs(keys: Iterable[Any]) -> list[tuple[int, int]]:
    """Return pairs of the first of several equal keys with each other one. ``None`` is equal to nothing."""
    first: dict[Any, int] = {}
    found = []
    for i, key in enumerate(keys):
        if key is not None and first.setdefault(key, i) != i:
            found.append((first[key], i))
    return found


# -- of one file ----------------------------------------------------------------------------------------------


def find_url(group: ManifestGroup, /) -> str:
    """Return the URL of the file."""
    return group.url or next((x.a_url() or "" for x in group.arrays.values()), "")


def read_version(group: ManifestGroup, /) -> tuple[int | None, str | None]:
    """Return the size and etag of the file, if an array refers to it."""
    for array in group.arrays.values():
        for location in array.manifest.tables.locations:
            if location.url == group.url:
                return location.size, location.etag
    return None, None
