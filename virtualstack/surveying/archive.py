"""Survey of files: scan them, find the dimension along which they follow each other, and compare them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from virtualstack.errors import CombineError
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.progress import Progress
from virtualstack.scanning import scan
from virtualstack.scanning.workers import ExecutorLike
from virtualstack.storage import Allow, Storage, StorageLike
from virtualstack.storage.handles import Handle, is_one
from virtualstack.storage.listing import find_urls, is_pattern
from virtualstack.surveying.coordinate import CoordinateLine, read_line
from virtualstack.surveying.facts import (
    NONE,
    STRUCTURE,
    Facts,
    Periods,
    collect_facts,
    describe_changes,
    describe_fact,
    find_periods,
)
from virtualstack.surveying.result import Survey, shortened
from virtualstack.surveying.sequence import FileSequence, find_url, read_version
from virtualstack.surveying.timeline import survey_timeline

__all__ = ["common_dimension", "data_variables", "survey"]

_NOT_DATA = ("bounds", "climatology", "grid_mapping", "ancillary_variables", "cell_measures", "coordinates")
"""Attributes that name variables which describe other variables."""

_MIN_SHARE = 0.9
"""Smallest share of files that must have a dimension, relative to the files with the most common one."""


def data_variables(group: ManifestGroup, /) -> dict[str, ManifestArray]:
    """Return the data variables of a file by path, without coordinates, bounds and similar variables."""
    found: dict[str, ManifestArray] = {}
    helpers = set(group.coordinates)
    for path, node in group.walk():
        for name, array in node.arrays.items():
            found[f"{path[1:]}/{name}" if path else name] = array
            texts = (array.attributes.get(key) for key in _NOT_DATA)
            helpers.update(word for text in texts if isinstance(text, str) for word in text.split())
    return {name: x for name, x in found.items() if name not in helpers and x.dimension_names != (name,)}


def common_dimension(groups: Sequence[ManifestGroup], /) -> str | None:
    """Return the dimension along which files follow each other, or ``None`` if there is none.

    Candidates are dimensions that the data variables of most files have. The first of these kinds that has a candidate
    decides: an unlimited dimension with times, an unlimited one with a coordinate, any dimension with times, any
    unlimited one. If there are several candidates, the one that has this kind in most files is chosen. On a tie, it is
    the first one among the axes of data variables. Without a candidate, a scalar time coordinate that most files have
    is chosen. Among several of these, ``time`` is preferred.
    """
    files: Counter[str] = Counter()
    in_data: Counter[str] = Counter()
    kinds: list[Counter[str]] = [Counter() for _ in range(4)]
    axes: dict[str, int] = {}
    for group in groups:
        coordinates = {name for name, x in group.arrays.items() if x.dimension_names == (name,)}
        times = {name for name in coordinates if _is_time(group.arrays[name])}
        unlimited = {name for _, node in group.walk() for name in node.unlimited}
        own: dict[str, int] = {}
        for array in data_variables(group).values():
            for axis, name in enumerate(array.dimension_names or ()):
                own[name] = min(axis, own.get(name, axis))
        files.update(times | unlimited)
        in_data.update((times | unlimited) & own.keys())
        for kind, names in zip(kinds, (unlimited & times, unlimited & coordinates, times, unlimited), strict=True):
            kind.update(names)
        for name, axis in own.items():
            axes[name] = max(axis, axes.get(name, 0))
    counts = in_data or files
    most = _MIN_SHARE * max(counts.values(), default=0)
    common = sorted((name for name, n in counts.items() if n >= most), key=lambda name: (axes.get(name, 0), name))
    for kind in kinds:
        if usual := [name for name in common if 2 * kind[name] >= files[name]]:
            return max(usual, key=kind.__getitem__)
    return _common_scalar(groups)


def _common_scalar(groups: Sequence[ManifestGroup]) -> str | None:
    files: Counter[str] = Counter()
    for group in groups:
        about = data_variables(group).keys()
        files.update(name for name, x in group.arrays.items() if not x.shape and name not in about and _is_time(x))
    usual = [name for name, n in files.items() if n >= _MIN_SHARE * len(groups)]
    return min(usual, key=lambda name: (name != "time", name), default=None)


def _is_time(array: ManifestArray) -> bool:
    return " since " in str(array.cf.get("units", ""))


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
    allow: Allow = (),
) -> Survey:
    """Compare many files before they are joined: what they share, where that changes, and which files stand out.

    The call reads the same metadata as :func:`virtualstack.scan`, and the coordinate of one dimension. It may also read
    small coordinates of files that overlap. A file that fails does not stop the others.

    Parameters
    ----------
    files
        A pattern such as ``"data/*.nc"`` or ``"s3://bucket/2020/**/*.nc"``, or paths, URLs and patterns in any order.
    reader
        Name of a reader (see :func:`list_readers`), or a reader with options. By default it is detected for each file.
    storage
        Access to the files: credentials, endpoint and retries, such as ``{"s3://bucket/": {...}}``, or an obstore or
        fsspec object.
    executor
        Executor that scans the files: ``"threads"``, ``"processes"``, ``"dask"``, a ``distributed.Client`` or a
        ``concurrent.futures.Executor``. By default remote files use 64 threads. Local files are
        read one after another, or in threads if there is a ``cache``.
    cache
        Directory or URL that keeps scan results. A later call reads only files that are new or have changed. Results
        are kept separately from those of :func:`virtualstack.open_virtual_mfdataset`, whose options differ.
    progress
        ``True`` for a progress bar in a notebook or on stderr, or a function of the number of finished files and of
        all files.
    dim
        Dimension along which the files follow each other. By default it is chosen among the dimensions that the data
        variables of most files have, in this order: an unlimited one with times, an unlimited one with another
        coordinate, any one with times, any unlimited one. If there is none, a scalar time of most files is chosen.
    allow
        URLs or paths that references from a network may name, although they are local files or private hosts. With
        `vs.Listed`, only these may be read, and the folder of the references (docs/explanation/permission.md).

    Returns
    -------
    Survey
        Tables of files, eras, variables, outliers, duplicates, gaps, failures and more. Print it for a summary.

    Raises
    ------
    CombineError
        No file has a dimension ``dim``.
    SourceNotFoundError, StorageError
        No file matches a pattern, or its folder cannot be listed.

    See Also
    --------
    open_virtual_mfdataset : Join the files.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> for day in (0, 1, 2, 4):
    ...     part = xr.Dataset({"rain": ("time", [1.0])}, {"time": [day]})
    ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4", unlimited_dims=["time"])
    >>> vs.survey("day*.nc").gaps[["after", "before", "steps"]].values.tolist()
    [['2', '4', 1]]
    >>> vs.survey(["/nowhere/a.nc"]).failures["error"].tolist()
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
        options=ReadOptions.from_options(allow=allow),
    )
    groups = list(scanned)
    if dim is None:
        dim = common_dimension(groups)
    elif groups and not any(dim in _lengths(group) for group in groups):
        present = sorted({name for group in groups for name in _lengths(group)})
        raise CombineError(f"no file has a dimension '{dim}'; they have {present}", property="dimension", left=dim)
    store = Storage.from_option(storage)
    lines = read_line(groups, dim, store)
    errors = [
        (find_url(group), type(x).__name__, str(x))
        for group, x in zip(groups, lines, strict=True)
        if isinstance(x, Exception)
    ]
    failures = pd.concat([scanned.failures, pd.DataFrame(errors, columns=["url", "error", "message"])])
    found = [x if isinstance(x, CoordinateLine) else None for x in lines]
    return _Comparison(dim, groups, found, store).survey(failures.reset_index(drop=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Series:
    """Files with the same kind of data: their indexes in order, and their eras."""

    name: str
    files: NDArray[np.intp]
    eras: Periods


class _Comparison(FileSequence):
    """A sequence of files whose properties are compared."""

    __slots__ = ()

    def survey(self, failures: pd.DataFrame) -> Survey:
        facts = collect_facts(self.groups, self.dim)
        is_structure = np.array([name in STRUCTURE for _, name in facts.keys], np.bool_)
        series = [
            _Series(name, files, find_periods(facts.codes[files], is_structure))
            for name, members in _split(self.groups, self.dim).items()
            for files in [np.array(self._ordered(members), np.intp)]
        ]
        members = {one.name: one.files.tolist() for one in series}
        gaps, irregular = self.gaps(members)
        duplicates, interleaved, has_all_pairs = self.duplicates(members)
        eras = self._eras(series, facts, is_structure)
        table = [(x.series, x.line.label(x.gap.after), x.line.label(x.gap.before), x.gap.n_steps) for x in gaps]
        return Survey(
            dim=self.dim,
            table=self._table(series),
            eras=eras,
            variables=self._variables(series, facts),
            outliers=self._outliers(series, facts, is_structure),
            duplicates=duplicates,
            interleaved=interleaved,
            has_all_pairs=has_all_pairs,
            gaps=pd.DataFrame(table, columns=["series", "after", "before", "steps"]),
            irregular=irregular,
            failures=failures,
            timeline=survey_timeline(
                self,
                [[one.files[one.eras.era == i].tolist() for i in range(len(one.eras.typical))] for one in series],
                eras=eras,
                gaps=gaps,
                duplicates=duplicates,
                remarks=irregular["reason"].tolist(),
                n_failed=len(failures),
            ),
        )

    # -- order --------------------------------------------------------------------------------------------

    def _ordered(self, members: Sequence[int]) -> list[int]:
        """Return files sorted by their least coordinate value. Files without one come last, in the order given."""
        first = {i: x.least for i in members if (x := self.lines[i]) is not None and not np.isnan(x.least)}
        return sorted(first, key=first.__getitem__) + [i for i in members if i not in first]

    def _labels(self, i: int) -> tuple[str, str]:
        line = self.lines[i]
        return ("", "") if line is None else line.labels

    def _span(self, members: Sequence[int]) -> tuple[str, str]:
        """Return the least and greatest value of files, or the first and last label of values without an order."""
        lines = [x for i in members if (x := self.lines[i]) is not None]
        numbers = [x for x in lines if not np.isnan(x.least)]
        if numbers:
            return min(numbers, key=lambda x: x.least).ends[0], max(numbers, key=lambda x: x.greatest).ends[1]
        return (lines[0].labels[0], lines[-1].labels[1]) if lines else ("", "")

    # -- tables -------------------------------------------------------------------------------------------

    def _table(self, series: Sequence[_Series]) -> pd.DataFrame:
        rows = []
        for one in series:
            for i, era, is_outlier in zip(one.files.tolist(), one.eras.era, one.eras.is_outlier, strict=True):
                group = self.groups[i]
                rows.append(
                    {
                        "url": find_url(group),
                        "series": one.name,
                        "era": int(era) + 1,
                        "is_outlier": bool(is_outlier),
                        "steps": _lengths(group).get(self.dim or ""),
                        "first": self._labels(i)[0],
                        "last": self._labels(i)[1],
                        "size": read_version(group)[0],
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
                first, last = self._span(members)
                changed = np.zeros(len(facts.keys), np.bool_)
                if era:
                    changed = one.eras.typical[era] != one.eras.typical[era - 1]
                    changed &= is_structure & ~one.eras.varies
                rows.append(
                    {
                        "series": one.name,
                        "era": era + 1,
                        "first": first,
                        "last": last,
                        "files": len(members),
                        "outliers": int(np.count_nonzero(one.eras.is_outlier[one.eras.era == era])),
                        "first_url": find_url(self.groups[members[0]]),
                        "last_url": find_url(self.groups[members[-1]]),
                        "changes": describe_changes(facts, changed, one.eras.typical[era - 1], one.eras.typical[era]),
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
                rows.append(
                    (find_url(self.groups[i]), self._span([i])[0], describe_changes(facts, differs, usual, own))
                )
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
                    "first_url": find_url(self.groups[int(order[odd[0]])]) if odd.size else "",
                }
            )
        rows.sort(key=lambda row: (rank.get(str(row["property"]), len(rank)), row["variable"], row["property"]))
        columns = ["variable", "property", "values", "most", "files", "changes", "varies", "first_url"]
        return pd.DataFrame(rows, columns=columns)


def _expanded(files: Any, storage: StorageLike) -> list[Any]:
    """Return files with patterns replaced by their matches. Other items are kept, so that each fails alone."""
    found: list[Any] = []
    for file in [files] if is_one(files) else files:
        is_some = isinstance(file, str | os.PathLike) and is_pattern(file)
        found += map(Handle, find_urls([file], storage=storage)) if is_some else [file]
    return found


# -- of one file ----------------------------------------------------------------------------------------------


def _lengths(group: ManifestGroup) -> dict[str, int]:
    found = dict(group.dimensions)
    for array in group.arrays.values():
        found.update(zip(array.dimension_names or (), array.shape, strict=True))
    return found


def _split(groups: Sequence[ManifestGroup], dim: str | None) -> dict[str, list[int]]:
    """Return files by series, which share no data variable. A series is named by its variables."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    of_file = []
    for group in groups:
        names = _names_of_data(group, dim) or ["nothing"]
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


def _names_of_data(group: ManifestGroup, dim: str | None) -> list[str]:
    """Return the names of data variables with the dimension, or of all data variables if none has it."""
    data = data_variables(group)
    return sorted(name for name, x in data.items() if dim in (x.dimension_names or ())) or sorted(data)
