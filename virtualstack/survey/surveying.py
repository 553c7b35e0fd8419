"""From files to a survey: scan, read the coordinate, compare."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from virtualstack.storage.listing import find_urls, is_pattern
from virtualstack.survey.coverage import count_shared, find_gaps, find_interleaved
from virtualstack.survey.eras import Eras, find_eras
from virtualstack.survey.facts import NONE, STRUCTURE, Facts, collect_facts, describe_fact
from virtualstack.survey.line import TEXT, Line, common_dimension, read_line, read_values
from virtualstack.survey.result import Survey, shortened

__all__ = ["survey"]

_NOT_DATA = frozenset({"bounds", "climatology", "grid_mapping", "ancillary_variables", "cell_measures"})


def survey(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
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
        A pattern such as ``"data/*.nc"`` or ``"s3://bucket/2020/**/*.nc"``, or paths, URLs and patterns in any order.
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
    SourceNotFoundError, StorageError
        Nothing matches a pattern, or its folder cannot be listed.

    Examples
    --------
    >>> survey(["/nowhere/a.nc"]).failures["error"].tolist()
    ['SourceNotFoundError']
    """
    scanned = scan(
        _expanded(files, storage),
        reader=reader,
        storage=storage,
        executor=executor,
        on_error="skip",
        cache=cache,
        progress=progress,
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
        duplicates, interleaved = self._duplicates(series)
        return Survey(
            dim=self.dim,
            table=self._table(series),
            eras=self._eras(series, facts, is_structure),
            variables=self._variables(series, facts),
            outliers=self._outliers(series, facts, is_structure),
            duplicates=duplicates,
            interleaved=interleaved,
            gaps=gaps,
            irregular=irregular,
            failures=failures,
        )

    # -- order --------------------------------------------------------------------------------------------

    def _ordered(self, members: Sequence[int]) -> list[int]:
        """Sort files by their first coordinate value; those without one come last, in the order given."""
        first = {i: x.first for i in members if (x := self.lines[i]) is not None and not np.isnan(x.first)}
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
                labels = [self._labels(i) for i in members if any(self._labels(i))] or [("", "")]
                changed = np.zeros(len(facts.keys), np.bool_)
                if era:
                    changed = one.eras.typical[era] != one.eras.typical[era - 1]
                    changed &= is_structure & ~one.eras.varies
                rows.append(
                    {
                        "series": one.name,
                        "era": era + 1,
                        "first": labels[0][0],
                        "last": labels[-1][1],
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

    def _by_unit(self, files: Iterable[int]) -> dict[str | None, list[tuple[int, Line]]]:
        """Give files that have values, those together whose values can be compared."""
        found: dict[str | None, list[tuple[int, Line]]] = {}
        for i in files:
            if (line := self.lines[i]) is not None and line.numbers is not None:
                found.setdefault(line.unit, []).append((i, line))
        return found

    def _gaps(self, series: Sequence[_Series]) -> tuple[pd.DataFrame, pd.DataFrame]:
        rows, unknown = [], []
        for one in series:
            by_unit = self._by_unit(one.files.tolist())
            if not by_unit and self.dim is not None:
                unknown.append((one.name, f"no file has values of '{self.dim}' that can be compared"))
            if len(by_unit) > 1:
                kinds = ", ".join(lines[0][1].kind for lines in by_unit.values())
                unknown.append((one.name, f"values of several kinds, between which no gaps are seen: {kinds}"))
            for unit, lines in by_unit.items():
                values = np.concatenate([_values(x) for _, x in lines])
                text = lines[0][1].label
                gaps = None if unit == TEXT else find_gaps(values)
                if gaps is None:
                    unknown.append((one.name, _why_no_gaps(lines[0][1], values)))
                else:
                    rows += [(one.name, text(gap.after), text(gap.before), gap.n_steps) for gap in gaps]
        irregular = pd.DataFrame(unknown, columns=["series", "reason"])
        return pd.DataFrame(rows, columns=["series", "after", "before", "steps"]), irregular

    def _duplicates(self, series: Sequence[_Series]) -> tuple[pd.DataFrame, pd.DataFrame]:
        rows: list[tuple[int, int, str, int | None]] = []
        interleaved: list[tuple[int, int]] = []
        for one in series:
            files = one.files.tolist()
            lines = {i: x for i in files if (x := self.lines[i]) is not None and x.numbers is not None}
            unread = [i for i in files if i not in lines]
            versions = [None if None in (v := _version(self.groups[i])) else v for i in unread]
            rows += [(unread[i], unread[j], "same size and etag", None) for i, j in _pairs(versions)]
            same = [(files[i], files[j]) for i, j in _pairs(lines[i].key if i in lines else None for i in files)]
            found = [(i, j, "same values", len(_values(lines[i]))) for i, j in same]
            again = {j for _, j in same}
            for unit, members in self._by_unit(i for i in files if i not in again).items():
                parts = [_values(x) for _, x in members]
                numbers = [i for i, _ in members]
                shared = count_shared(parts)
                for (a, b), n in shared.items():
                    found.append((numbers[a], numbers[b], "overlap" if a != b else "repeats", n))
                if unit != TEXT:
                    pairs = (
                        pair for pair in find_interleaved(parts) if pair not in shared and pair[::-1] not in shared
                    )
                    interleaved += [(numbers[a], numbers[b]) for a, b in pairs]
            rows += self._told_apart(found)
        named = [(_url(self.groups[i]), _url(self.groups[j]), kind, n) for i, j, kind, n in rows]
        duplicates = pd.DataFrame(named, columns=["url", "other", "kind", "values"]).astype({"values": "Int64"})
        urls = [(_url(self.groups[i]), _url(self.groups[j])) for i, j in interleaved]
        return duplicates, pd.DataFrame(urls, columns=["url", "other"])

    def _told_apart(self, pairs: Sequence[tuple[int, int, str, int]]) -> list[tuple[int, int, str, int | None]]:
        """Say of files that share values along the dimension whether another coordinate, or their size, differs."""
        files = sorted({i for a, b, *_ in pairs if a != b for i in (a, b)})
        asked = [
            (i, name, array)
            for i in files
            for name, array in sorted(self.groups[i].arrays.items())
            if array.dimension_names == (name,) and name != self.dim
        ]
        places: dict[int, dict[str, list[Any] | None]] = {i: {} for i in files}
        for (i, name, _), values in zip(asked, read_values((x for *_, x in asked), self.storage), strict=True):
            places[i][name] = values.tolist() if isinstance(values, np.ndarray) else None
        told: list[tuple[int, int, str, int | None]] = []
        for i, j, kind, n in pairs:
            version = _version(self.groups[i])
            if i != j and (place := _compare_places(places[i], places[j])):
                kind = f"{kind}, {place}"
            elif kind == "same values" and None not in version and version == _version(self.groups[j]):
                kind = "same values, size and etag"
            told.append((i, j, kind, n))
        return told


def _compare_places(a: dict[str, list[Any] | None], b: dict[str, list[Any] | None]) -> str:
    """Say whether other coordinates tell files apart; ``None`` stands for one that was not read."""
    if a.keys() != b.keys():
        return "other place"
    pairs = [(repr(a[name]), repr(b[name])) for name in a if a[name] is not None and b[name] is not None]
    if any(x != y for x, y in pairs):
        return "other place"
    return "" if len(pairs) == len(a) else "place unknown"


def _values(line: Line) -> NDArray[Any]:
    return np.zeros(0) if line.numbers is None else line.numbers


def _why_no_gaps(line: Line, values: NDArray[Any]) -> str:
    if line.unit == TEXT:
        return "text has no steps"
    return "two values, whose step may be any" if np.unique(values).size == 2 else f"no regular steps of {line.kind}"


def _expanded(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], storage: StorageLike
) -> list[str | os.PathLike[str]]:
    """Put what patterns match in their places; what is none stays as it is, that it may fail alone."""
    found: list[str | os.PathLike[str]] = []
    for file in [files] if isinstance(files, str | os.PathLike) else files:
        found += find_urls([file], storage=storage) if is_pattern(file) else [file]
    return found


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
