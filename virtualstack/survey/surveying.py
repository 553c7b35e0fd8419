"""From files to a survey: scan, read the coordinate, compare."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from virtualstack.errors import CombineError
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.readers.base import Reader
from virtualstack.scan import scan
from virtualstack.scan.progress import Progress
from virtualstack.scan.workers import ExecutorLike
from virtualstack.storage import Storage, StorageLike
from virtualstack.survey.eras import Eras, find_eras
from virtualstack.survey.facts import NONE, STRUCTURE, Facts, collect_facts, describe_fact
from virtualstack.survey.line import Line, common_dimension, find_gaps, read_line, read_values
from virtualstack.survey.result import Survey, shortened

__all__ = ["survey"]

_NOT_DATA = frozenset({"bounds", "climatology", "grid_mapping", "ancillary_variables", "cell_measures"})


def survey(
    files: Iterable[str | os.PathLike[str]],
    /,
    *,
    reader: str | Reader | None = None,
    storage: StorageLike = None,
    executor: ExecutorLike = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | bool | None = None,
    dim: str | None = None,
) -> Survey:
    """Look over many files before they are joined: what they share, where that changes, and what stands out.

    Reads what :func:`virtualstack.scan` reads, and the coordinate of one dimension. A file that fails does not stop
    the others.

    Parameters
    ----------
    files
        URLs or local paths, in any order.
    reader, storage, executor, cache, progress
        As in :func:`virtualstack.scan`.
    dim
        Dimension along which the files follow each other; by default the unlimited one that most of them have, else
        one with times.

    Returns
    -------
    Survey
        Tables, and a text to print.

    Raises
    ------
    CombineError
        No file has a dimension ``dim``.

    Examples
    --------
    >>> survey(["/nowhere/a.nc"]).failures["error"].tolist()
    ['SourceNotFoundError']
    """
    scanned = scan(
        files, reader=reader, storage=storage, executor=executor, on_error="skip", cache=cache, progress=progress
    )
    groups = list(scanned)
    if dim is None:
        dim = common_dimension(groups)
    elif groups and not any(dim in _lengths(group) for group in groups):
        present = sorted({name for group in groups for name in _lengths(group)})
        raise CombineError(f"no file has a dimension '{dim}'; they have {present}", property="dimension", left=dim)
    store = Storage.of(storage)
    lines = read_line(groups, dim, store)
    errors = [
        (_url(group), type(x).__name__, str(x))
        for group, x in zip(groups, lines, strict=True)
        if isinstance(x, Exception)
    ]
    failures = pd.concat([scanned.failures, pd.DataFrame(errors, columns=["url", "error", "message"])])
    found = [x if isinstance(x, Line) else None for x in lines]
    return _Comparison(dim, groups, found, store).survey(failures.reset_index(drop=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Series:
    """Files with the same kind of data: their indexes in order, and their eras."""

    name: str
    files: NDArray[np.intp]
    eras: Eras


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    dim: str | None
    groups: list[ManifestGroup]
    lines: list[Line | None]
    storage: Storage

    def survey(self, failures: pd.DataFrame) -> Survey:
        facts = collect_facts(self.groups, self.dim)
        is_structure = np.array([name in STRUCTURE for _, name in facts.keys], np.bool_)
        series = [
            _Series(name, files, find_eras(facts.codes[files], is_structure))
            for name, members in _split(self.groups, self.dim).items()
            for files in [np.array(self._ordered(members), np.intp)]
        ]
        gaps, irregular = self._gaps(series)
        return Survey(
            dim=self.dim,
            table=self._table(series),
            eras=self._eras(series, facts, is_structure),
            variables=self._variables(series, facts),
            outliers=self._outliers(series, facts, is_structure),
            duplicates=self._duplicates(series),
            gaps=gaps,
            irregular=irregular,
            failures=failures,
        )

    # -- order --------------------------------------------------------------------------------------------

    def _ordered(self, members: Sequence[int]) -> list[int]:
        """Sort files by their first coordinate value; those without one come last, in the order given."""
        first = {i: x.first for i in members if (x := self.lines[i]) is not None and x.numbers is not None}
        return sorted(first, key=first.__getitem__) + [i for i in members if i not in first]

    def _labels(self, i: int) -> tuple[str, str]:
        line = self.lines[i]
        return ("", "") if line is None else line.labels

    # -- tables -------------------------------------------------------------------------------------------

    def _table(self, series: Sequence[_Series]) -> pd.DataFrame:
        rows = []
        for one in series:
            for i, era, is_outlier in zip(one.files.tolist(), one.eras.era, one.eras.is_outlier, strict=True):
                group = self.groups[i]
                rows.append(
                    {
                        "url": _url(group),
                        "series": one.name,
                        "era": int(era) + 1,
                        "is_outlier": bool(is_outlier),
                        "steps": _lengths(group).get(self.dim or ""),
                        "first": self._labels(i)[0],
                        "last": self._labels(i)[1],
                        "size": _version(group)[0],
                        "variables": sum(len(node.arrays) for _, node in group.walk()),
                    }
                )
        columns = ["url", "series", "era", "is_outlier", "steps", "first", "last", "size", "variables"]
        return pd.DataFrame(rows, columns=columns).astype({"steps": "Int64", "size": "Int64"})

    def _eras(self, series: Sequence[_Series], facts: Facts, is_structure: NDArray[np.bool_]) -> pd.DataFrame:
        rows = []
        for one in series:
            for era in range(len(one.eras.typical)):
                members = one.files[one.eras.era == era].tolist()
                changed = np.zeros(len(facts.keys), np.bool_)
                if era:
                    changed = one.eras.typical[era] != one.eras.typical[era - 1]
                    changed &= is_structure & ~one.eras.varies
                rows.append(
                    {
                        "series": one.name,
                        "era": era + 1,
                        "first": self._labels(members[0])[0],
                        "last": self._labels(members[-1])[1],
                        "files": len(members),
                        "outliers": int(np.count_nonzero(one.eras.is_outlier[one.eras.era == era])),
                        "first_url": _url(self.groups[members[0]]),
                        "last_url": _url(self.groups[members[-1]]),
                        "changes": _changes(facts, changed, one.eras.typical[era - 1], one.eras.typical[era]),
                    }
                )
        columns = ["series", "era", "first", "last", "files", "outliers", "first_url", "last_url", "changes"]
        return pd.DataFrame(rows, columns=columns)

    def _outliers(self, series: Sequence[_Series], facts: Facts, is_structure: NDArray[np.bool_]) -> pd.DataFrame:
        rows = []
        for one in series:
            for at in np.flatnonzero(one.eras.is_outlier).tolist():
                i, own, usual = int(one.files[at]), one.eras.codes[at], one.eras.typical[one.eras.era[at]]
                differs = (own != usual) & is_structure & ~one.eras.varies
                rows.append((_url(self.groups[i]), self._labels(i)[0], _changes(facts, differs, usual, own)))
        return pd.DataFrame(rows, columns=["url", "first", "differs"])

    def _variables(self, series: Sequence[_Series], facts: Facts) -> pd.DataFrame:
        rank = {name: i for i, name in enumerate(STRUCTURE)}
        rows = []
        n_changes = np.sum([one.eras.n_changes for one in series], axis=0, dtype=np.int64) if series else np.zeros(0)
        varies = np.any([one.eras.varies for one in series], axis=0) if series else np.zeros(0, np.bool_)
        order = np.concatenate([one.files for one in series]) if series else np.zeros(0, np.intp)
        for column, (variable, name) in enumerate(facts.keys):
            codes = facts.codes[order, column]
            said = codes[codes >= 0]
            if not said.size or facts.values[column] == (NONE,):
                continue
            counts = np.bincount(said)
            most = int(counts.argmax())
            odd = np.flatnonzero((codes >= 0) & (codes != most))
            rows.append(
                {
                    "variable": variable,
                    "property": name,
                    "values": int(np.count_nonzero(counts)),
                    "most": describe_fact(name, facts.values[column][most]),
                    "files": int(counts[most]),
                    "changes": int(n_changes[column]),
                    "varies": bool(varies[column]),
                    "first_url": _url(self.groups[int(order[odd[0]])]) if odd.size else "",
                }
            )
        rows.sort(key=lambda row: (rank.get(str(row["property"]), len(rank)), row["variable"], row["property"]))
        columns = ["variable", "property", "values", "most", "files", "changes", "varies", "first_url"]
        return pd.DataFrame(rows, columns=columns)

    # -- along the dimension ------------------------------------------------------------------------------

    def _gaps(self, series: Sequence[_Series]) -> tuple[pd.DataFrame, tuple[str, ...]]:
        rows, irregular = [], []
        for one in series:
            lines = [x for i in one.files if (x := self.lines[i]) is not None and x.numbers is not None]
            if not lines:
                continue
            is_one_kind = len({x.unit for x in lines}) == 1
            gaps = (
                find_gaps(np.concatenate([x.numbers for x in lines if x.numbers is not None])) if is_one_kind else None
            )
            if gaps is None:
                irregular.append(one.name)
                continue
            text = lines[0].label
            rows += [(one.name, text(gap.after), text(gap.before), gap.n_steps) for gap in gaps]
        return pd.DataFrame(rows, columns=["series", "after", "before", "steps"]), tuple(irregular)

    def _duplicates(self, series: Sequence[_Series]) -> pd.DataFrame:
        rows = [
            (i, j, "same bytes") for i, j in _pairs(map(_version, self.groups)) if None not in _version(self.groups[i])
        ]
        known = {(i, j) for i, j, _ in rows}
        for one in series:
            files = one.files.tolist()
            lines = {i: x for i in files if (x := self.lines[i]) is not None and x.numbers is not None}
            keys = [lines[i].key if i in lines else None for i in files]
            same = [(files[i], files[j]) for i, j in _pairs(keys)]
            same = [pair for pair in same if pair not in known and pair[::-1] not in known]
            rows += self._told_apart(same)
            again = {j for _, j in same}
            rest = [(i, x) for i, x in lines.items() if i not in again]
            for (i, x), (j, y) in pairwise(rest):
                if x.overlaps(y) and (i, j) not in known and (j, i) not in known:
                    rows.append((i, j, "overlap"))
        named = [(_url(self.groups[i]), _url(self.groups[j]), kind) for i, j, kind in rows]
        return pd.DataFrame(named, columns=["url", "other", "kind"])

    def _told_apart(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int, str]]:
        """Compare the other coordinates of files that have the same values along the dimension."""
        files = sorted({i for pair in pairs for i in pair})
        asked = [
            (i, name, array)
            for i in files
            for name, array in sorted(self.groups[i].arrays.items())
            if array.dimension_names == (name,) and name != self.dim
        ]
        places: dict[int, list[Any]] = {i: [] for i in files}
        for (i, name, _), values in zip(asked, read_values((x for *_, x in asked), self.storage), strict=True):
            places[i].append((name, str(values.tolist()) if isinstance(values, np.ndarray) else str(values)))
        return [(i, j, "same values" if places[i] == places[j] else "same values, other place") for i, j in pairs]


# -- of one file ----------------------------------------------------------------------------------------------


def _url(group: ManifestGroup) -> str:
    return group.url or next((x.a_url() or "" for x in group.arrays.values()), "")


def _lengths(group: ManifestGroup) -> dict[str, int]:
    found = dict(group.dimensions)
    for array in group.arrays.values():
        found.update(zip(array.dimension_names or (), array.shape, strict=True))
    return found


def _version(group: ManifestGroup) -> tuple[int | None, str | None]:
    """Give size and etag of the file, where an array points into it."""
    for array in group.arrays.values():
        for location in array.manifest.read(tuple(slice(0, 0) for _ in array.shape)).locations:
            if location.url == group.url:
                return location.size, location.etag
    return None, None


def _split(groups: Sequence[ManifestGroup], dim: str | None) -> dict[str, list[int]]:
    """Part files that have no data variable in common; each part is named by its variables."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    of_file = []
    for group in groups:
        names = _data_variables(group, dim) or ["nothing"]
        for name in names:
            parent.setdefault(name, name)
        for name in names[1:]:
            parent[root(name)] = root(names[0])
        of_file.append(names[0])
    members: dict[str, list[int]] = {}
    for i, name in enumerate(of_file):
        members.setdefault(root(name), []).append(i)
    named: dict[str, list[str]] = {}
    for name in sorted(parent):
        named.setdefault(root(name), []).append(name)
    return {shortened(named[name]): files for name, files in members.items()}


def _data_variables(group: ManifestGroup, dim: str | None) -> list[str]:
    """Name the variables that a file is about: with the dimension, and no coordinate, bounds or the like."""
    found: dict[str, ManifestArray] = {}
    helpers = set(group.coordinates)
    for path, node in group.walk():
        for name, array in node.arrays.items():
            found[f"{path[1:]}/{name}" if path else name] = array
            helpers.update(_named_by(array))
    data = {name: x for name, x in found.items() if name not in helpers and x.dimension_names != (name,)}
    return sorted(name for name, x in data.items() if dim in (x.dimension_names or ())) or sorted(data)


def _named_by(array: ManifestArray) -> set[str]:
    texts = (array.attributes.get(key) for key in (*_NOT_DATA, "coordinates"))
    return {word for text in texts if isinstance(text, str) for word in text.split()}


def _pairs(keys: Iterable[Any]) -> list[tuple[int, int]]:
    """Give the pairs of the first of several equal keys, and each other one; ``None`` is equal to nothing."""
    first: dict[Any, int] = {}
    found = []
    for i, key in enumerate(keys):
        if key is not None and first.setdefault(key, i) != i:
            found.append((first[key], i))
    return found


def _changes(facts: Facts, changed: NDArray[np.bool_], old: NDArray[np.int32], new: NDArray[np.int32]) -> str:
    """Say what has changed, variables with the same change together."""
    said: dict[tuple[str, str], list[str]] = {}
    for column in np.flatnonzero(changed).tolist():
        variable, name = facts.keys[column]
        texts = (_text(facts, column, int(x[column])) for x in (old, new))
        said.setdefault((name, " -> ".join(texts)), []).append(variable)
    rank = {name: i for i, name in enumerate(STRUCTURE)}
    lines = sorted(said.items(), key=lambda item: (rank[item[0][0]], item[1]))
    told = (
        (shortened(names) if name == "present" else f"{name} of {shortened(names)}", x) for (name, x), names in lines
    )
    return "; ".join(f"{what}: {change}" for what, change in told)


def _text(facts: Facts, column: int, code: int) -> str:
    return "unknown" if code < 0 else describe_fact(facts.keys[column][1], facts.values[column][code])
