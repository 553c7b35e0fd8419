"""Files along the dimension: what is missing between them, what is there twice, and what interleaves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from virtualstack.manifests import ManifestGroup
from virtualstack.storage import Storage
from virtualstack.surveying.coordinate import TEXT, CoordinateLine, read_values
from virtualstack.surveying.coverage import count_shared, find_gaps, find_interleaved

__all__ = ["FileSequence", "find_url", "read_version"]

_MAX_PLACE_BYTES = 1 << 24
"""Bytes of another coordinate that are read of a file, to tell it from those with the same values."""


@dataclass(frozen=True, slots=True, eq=False)
class FileSequence:
    """Files, and what they have of the coordinate along which they follow each other.

    Parameters
    ----------
    dim
        The dimension, if there is one.
    groups, lines
        One for each file; a line is ``None`` where the file has none that could be read.
    storage
        How other coordinates are read.
    """

    dim: str | None
    groups: Sequence[ManifestGroup]
    lines: Sequence[CoordinateLine | None]
    storage: Storage

    def _by_unit(self, files: Iterable[int]) -> dict[str | None, list[tuple[int, CoordinateLine]]]:
        """Give files that have values, those together whose values can be compared."""
        found: dict[str | None, list[tuple[int, CoordinateLine]]] = {}
        for i in files:
            if (line := self.lines[i]) is not None and line.numbers is not None:
                found.setdefault(line.unit, []).append((i, line))
        return found

    def gaps(self, series: Mapping[str, Sequence[int]], /) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Give the tables of missing steps, and of why they cannot be known."""
        rows, unknown = [], []
        for name, files in series.items():
            by_unit = self._by_unit(files)
            if not by_unit and self.dim is not None:
                unknown.append((name, f"no file has values of '{self.dim}' that can be compared"))
            if len(by_unit) > 1:
                kinds = ", ".join(lines[0][1].kind for lines in by_unit.values())
                unknown.append((name, f"values of several kinds, between which no gaps are seen: {kinds}"))
            for unit, lines in by_unit.items():
                values = np.concatenate(_comparable([_values(x) for _, x in lines]))
                text = lines[0][1].label
                gaps = None if unit == TEXT else find_gaps(values)
                if gaps is None:
                    unknown.append((name, _why_no_gaps(lines[0][1], values)))
                else:
                    rows += [(name, text(gap.after), text(gap.before), gap.n_steps) for gap in gaps]
        irregular = pd.DataFrame(unknown, columns=["series", "reason"])
        return pd.DataFrame(rows, columns=["series", "after", "before", "steps"]), irregular

    def duplicates(self, series: Mapping[str, Sequence[int]], /) -> tuple[pd.DataFrame, pd.DataFrame, bool]:
        """Give the tables of files with the same values, and of files that interleave, and whether all pairs are told.

        Files without any but the values of an earlier one are paired with that one alone.
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
            found = [(i, j, "same values", len(_values(lines[i]))) for i, j in same]
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

    def _told_apart(self, pairs: Sequence[tuple[int, int, str, int]]) -> list[tuple[int, int, str, int | None]]:
        """Say of files that share values along the dimension whether another coordinate, or their size, differs."""
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
            elif kind == "same values" and None not in version and version == read_version(self.groups[j]):
                kind = "same values, size and etag"
            told.append((i, j, kind, n))
        return told


def _digest(values: NDArray[Any]) -> bytes:
    """Give what is equal where values are, whatever their dtype."""
    return hashlib.blake2b(repr(values.tolist()).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _compare_places(a: dict[str, bytes | None], b: dict[str, bytes | None]) -> str:
    """Say whether other coordinates tell files apart; ``None`` stands for one that was not read."""
    if a.keys() != b.keys():
        return "other place"
    pairs = [(x, b[name]) for name, x in a.items()]
    if any(x != y for x, y in pairs if x is not None and y is not None):
        return "other place"
    return "place unknown" if any(None in pair for pair in pairs) else ""


def _values(line: CoordinateLine) -> NDArray[Any]:
    return np.zeros(0) if line.numbers is None else line.numbers


def _comparable(parts: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Give parts one dtype that holds all their numbers: objects, where integers are too large for float64."""
    dtype = np.result_type(*parts)
    if dtype.kind == "f" and any(x.dtype.kind in "iu" and max(-int(x.min()), int(x.max())) > 1 << 53 for x in parts):
        dtype = np.dtype(object)
    return [x.astype(dtype, copy=False) for x in parts]


def _why_no_gaps(line: CoordinateLine, values: NDArray[Any]) -> str:
    if line.unit == TEXT:
        return "text has no steps"
    return "two values, whose step may be any" if np.unique(values).size == 2 else f"no regular steps of {line.kind}"


def _pairs(keys: Iterable[Any]) -> list[tuple[int, int]]:
    """Give the pairs of the first of several equal keys, and each other one; ``None`` is equal to nothing."""
    first: dict[Any, int] = {}
    found = []
    for i, key in enumerate(keys):
        if key is not None and first.setdefault(key, i) != i:
            found.append((first[key], i))
    return found


# -- of one file ----------------------------------------------------------------------------------------------


def find_url(group: ManifestGroup, /) -> str:
    """Give the URL of the file."""
    return group.url or next((x.a_url() or "" for x in group.arrays.values()), "")


def read_version(group: ManifestGroup, /) -> tuple[int | None, str | None]:
    """Give size and etag of the file, where an array points into it."""
    for array in group.arrays.values():
        for location in array.manifest.tables.locations:
            if location.url == group.url:
                return location.size, location.etag
    return None, None
