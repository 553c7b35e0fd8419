"""Survey of files: scan them, find the dimension along which they follow each other, and compare them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.combine.conflicts import Rules
from virtualstack.combine.part import Part
from virtualstack.combine.planned import Planning, plan_of
from virtualstack.dataset import to_dataset
from virtualstack.errors import CombineError, VirtualStackError, folding
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.manifests import ManifestGroup
from virtualstack.planning import FileFacts, Plan
from virtualstack.planning.dimension import main_dimension
from virtualstack.planning.groups import data_variables, declared_facts
from virtualstack.planning.labels import Labels, usable
from virtualstack.progress import Progress
from virtualstack.scanning.many import scan
from virtualstack.scanning.workers import ExecutorLike
from virtualstack.storage import Allow, Storage, StorageLike
from virtualstack.storage.handles import Handle, is_one
from virtualstack.storage.listing import find_urls, is_pattern
from virtualstack.storage.threads import concurrently
from virtualstack.surveying.coordinate import check_bytes, label, places_of, read_labels
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
from virtualstack.surveying.sequence import find_duplicates, find_missing, find_url, read_version
from virtualstack.surveying.timeline import survey_timeline


@folding
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

    The call reads the same metadata as :func:`virtualstack.scan`, and the coordinates that
    :func:`virtualstack.open_virtual_mfdataset` reads. A file that fails does not stop the others.

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
        coordinate, any one with times, any unlimited one. If there is none, a scalar time of most files is chosen. If
        the files have the same labels there, it is the dimension that they are joined along, such as the step of runs.
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
    declared = [declared_facts(group) for group in groups]
    wanted = () if dim is None else (dim,)
    if dim is None:
        dim = main_dimension(declared)
    elif groups and not any(dim in facts.sizes for facts in declared):
        present = sorted({name for facts in declared for name in facts.sizes})
        raise CombineError(f"no file has a dimension '{dim}'; they have {present}", property="dimension", left=dim)
    store = Storage.from_option(storage)
    opened = _opened(groups, dim, store)
    failed = [(group, error) for group, its in zip(groups, opened, strict=True) if (error := its.error) is not None]
    facts, plan = declared, Plan()
    parts = [its.part for its in opened if its.part is not None]
    if len(groups) > 1 and not failed:
        _, facts, plan = plan_of({"/": parts}, Planning(along=wanted), Rules(), store)
    labels = [its.labels for its in opened]
    if dim is not None and not wanted and plan.grows not in (None, dim) and dim not in plan.dims:
        read = zip(groups, parts, strict=True)
        others = [read_labels(group, plan.grows, store, part.variables) for group, part in read]
        if all(x is not None for x in others):  # the files differ in these, and have the same labels along the other
            dim, labels = plan.grows, others
    rows = [(find_url(group), type(x).__name__, str(x)) for group, x in failed]
    failures = pd.concat([scanned.failures, pd.DataFrame(rows, columns=["url", "error", "message"])])
    comparison = _Comparison(dim=dim, groups=groups, labels=labels, declared=declared, facts=facts, plan=plan)
    return comparison.survey(failures.reset_index(drop=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """A file as joining opens it, its labels along the dimension, and the error of what cannot be read."""

    part: Part | None
    labels: Labels | None
    error: Exception | None


def _opened(groups: Sequence[ManifestGroup], dim: str | None, storage: Storage) -> list[_Opened]:
    def read(i: int) -> _Opened:
        group, part, labels, error = groups[i], None, None, too_large[i]
        if error is None:
            try:
                part = Part.from_dataset(to_dataset(group, storage=storage, skips=True))
            except VirtualStackError as found:
                error = found
            try:
                labels = read_labels(group, dim, storage, {} if part is None else part.variables)
            except VirtualStackError as found:
                error = found
        return _Opened(part, labels, error)

    too_large: list[Exception | None] = [*check_bytes(groups, dim)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xr.SerializationWarning)  # dates beyond datetime64 show in the labels
        return list(concurrently(read, range(len(groups)), urls=map(find_url, groups)))


def _sentences(plan: Plan, facts: Sequence[FileFacts]) -> list[str]:
    """Return how files join."""
    said = [f"along {' x '.join(map(repr, plan.dims))}"] if plan.dims else []
    said += plan.notes(facts, gaps=False)
    return said if plan.question is None else [*said, str(plan.question)]


@dataclass(frozen=True, slots=True, eq=False)
class _Series:
    """Files with the same kind of data: their indexes in order, and their eras."""

    name: str
    files: NDArray[np.intp]
    eras: Periods


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Comparison:
    """Files whose properties are compared."""

    dim: str | None
    groups: Sequence[ManifestGroup]
    labels: Sequence[Labels | None]
    declared: Sequence[FileFacts]
    facts: Sequence[FileFacts]
    plan: Plan

    def survey(self, failures: pd.DataFrame) -> Survey:
        facts = collect_facts(self.groups, self.dim)
        is_structure = np.array([name in STRUCTURE for _, name in facts.keys], np.bool_)
        is_packing = np.array([name == "packing" for _, name in facts.keys], np.bool_)
        known = {i: its for i, x in enumerate(self.labels) if x is not None and len(its := usable(x))}
        places = {i: numbers for i, its in known.items() if (numbers := places_of(its)) is not None}
        series = [
            _Series(name, files, find_periods(facts.codes[files], is_structure, is_packing))
            for name, members in _split(self.groups, self.dim).items()
            for files in [np.array(_ordered(members, places), np.intp)]
        ]
        span = partial(self._span, known=known, places=places)
        members = {one.name: one.files.tolist() for one in series}
        missing, irregular = find_missing(members, known, self.dim)
        duplicates, interleaved, has_all_pairs = find_duplicates(members.values(), known, self.groups, self._are_apart)
        eras = self._eras(series, facts, is_structure, span)
        return Survey(
            dim=self.dim,
            table=self._table(series),
            eras=eras,
            variables=self._variables(series, facts),
            outliers=self._outliers(series, facts, is_structure, span),
            duplicates=duplicates,
            interleaved=interleaved,
            has_all_pairs=has_all_pairs,
            gaps=pd.DataFrame(
                [(name, label(gap.after), label(gap.before), gap.n_steps) for name, gap in missing],
                columns=["series", "after", "before", "steps"],
            ),
            irregular=irregular,
            failures=failures,
            timeline=survey_timeline(
                self.dim,
                places,
                [[one.files[one.eras.era == i].tolist() for i in range(len(one.eras.typical))] for one in series],
                urls=[find_url(group) for group in self.groups],
                eras=eras,
                gaps=missing,
                duplicates=duplicates,
                remarks=irregular["reason"].tolist(),
                n_failed=len(failures),
            ),
            plan=tuple(_sentences(self.plan, self.declared)),
        )

    def _are_apart(self, i: int, j: int) -> bool:
        return self.plan.are_apart(i, j, self.facts, but=self.dim)

    def _ends(self, i: int) -> tuple[str, str]:
        """Return the first and the last label of a file as text."""
        labels = self.labels[i]
        return ("", "") if labels is None else (label(labels[0]), label(labels[-1]))

    def _span(
        self, members: Sequence[int], known: Mapping[int, Labels], places: Mapping[int, NDArray[np.float64]]
    ) -> tuple[str, str]:
        """Return the least and greatest label of files, or the first and last one of labels without an order."""
        placed = [i for i in members if i in places]
        if placed:
            least, greatest = min(placed, key=lambda i: places[i].min()), max(placed, key=lambda i: places[i].max())
            first, last = int(places[least].argmin()), int(places[greatest].argmax())
            return label(known[least][first]), label(known[greatest][last])
        return self._ends(members[0])[0], self._ends(members[-1])[1]

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
                        "steps": self.declared[i].sizes.get(self.dim or ""),
                        "first": self._ends(i)[0],
                        "last": self._ends(i)[1],
                        "size": read_version(group)[0],
                        "variables": sum(len(node.arrays) for _, node in group.walk()),
                    }
                )
        columns = ["url", "series", "era", "is_outlier", "steps", "first", "last", "size", "variables"]
        return pd.DataFrame(rows, columns=columns).astype({"steps": "Int64", "size": "Int64"})

    def _eras(
        self,
        series: Sequence[_Series],
        facts: Facts,
        is_structure: NDArray[np.bool_],
        span: Callable[[Sequence[int]], tuple[str, str]],
    ) -> pd.DataFrame:
        rows = []
        for one in series:
            for era in range(len(one.eras.typical)):
                members = one.files[one.eras.era == era].tolist()
                first, last = span(members)
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

    def _outliers(
        self,
        series: Sequence[_Series],
        facts: Facts,
        is_structure: NDArray[np.bool_],
        span: Callable[[Sequence[int]], tuple[str, str]],
    ) -> pd.DataFrame:
        rows = []
        for one in series:
            for at in np.flatnonzero(one.eras.is_outlier).tolist():
                i, own, usual = int(one.files[at]), one.eras.codes[at], one.eras.typical[one.eras.era[at]]
                differs = (own != usual) & is_structure & ~one.eras.varies
                rows.append((find_url(self.groups[i]), span([i])[0], describe_changes(facts, differs, usual, own)))
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


def _ordered(members: Sequence[int], places: Mapping[int, NDArray[np.float64]]) -> list[int]:
    """Return files sorted by their least label. Files without one come last, in the order given."""
    placed = sorted((i for i in members if i in places), key=lambda i: places[i].min())
    return placed + [i for i in members if i not in places]


def _expanded(files: Any, storage: StorageLike) -> list[Any]:
    """Return files with patterns replaced by their matches. Other items are kept, so that each fails alone."""
    found: list[Any] = []
    for file in [files] if is_one(files) else files:
        is_some = isinstance(file, str | os.PathLike) and is_pattern(file)
        found += map(Handle, find_urls([file], storage=storage)) if is_some else [file]
    return found


# -- of one file ----------------------------------------------------------------------------------------------


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
