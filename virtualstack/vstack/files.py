"""Open files by a recipe, and place those that fit together, in a store or as its first content."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property, wraps
from inspect import Parameter, signature
from numbers import Integral
from typing import Any, TypedDict, cast

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.api.each import open_all, preprocessed
from virtualstack.combine import CombineOptions, combine_datasets
from virtualstack.combine.addition import growing_dimension
from virtualstack.combine.alike import join_alike
from virtualstack.combine.fitting import Fitting
from virtualstack.combine.precedence import Candidate, IsGone
from virtualstack.combine.update import updated
from virtualstack.dataset import loaded_dataset, to_group
from virtualstack.dataset.opening import Opening, open_groups
from virtualstack.errors import (
    AccessDeniedError,
    CombineError,
    MissingDependencyError,
    ReaderError,
    SourceNotFoundError,
    StorageError,
    VirtualStackError,
    WriterError,
    check_type,
    rendered_by,
)
from virtualstack.formats.base import ReadOptions
from virtualstack.location import Location, local_path
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.manifest import Overlay
from virtualstack.options import RUNNING, with_options
from virtualstack.planning import TELLING, Duplicates, member_words
from virtualstack.printable import counted, did_you_mean
from virtualstack.progress import Progress
from virtualstack.reading.nameless import inline_nameless
from virtualstack.scanning.job import check_timeout
from virtualstack.scanning.one import read_one
from virtualstack.scanning.workers import ExecutorLike
from virtualstack.storage import Allow, Storage
from virtualstack.vstack import recipe as recipes
from virtualstack.vstack.format.ledger import Entry
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.recipe import Recipe
from virtualstack.vstack.save import Stored
from virtualstack.vstack.shown import Shown, cells_of_sources

_MAX_REASON = 500
"""Maximum number of characters of a reason in the ledger."""


class RunOptions(TypedDict, total=False):
    """Options of a run that are the same for a new store and for one that exists."""

    sample: int
    executor: ExecutorLike
    cache: str | os.PathLike[str] | None
    timeout: float | None
    only_segments: bool
    message: str | None
    progress: Progress | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """The options of a run; see :meth:`Repository.sync`."""

    storage: Storage
    allow: Allow = ()
    retry: bool = False
    reopen: bool = False
    sample: int = 8
    executor: ExecutorLike = None
    cache: str | os.PathLike[str] | None = None
    timeout: float | None = None
    only_segments: bool = False
    message: str | None = None
    progress: Progress | bool | None = None

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        check_type("sample", self.sample, Integral, "a number of chunks. Give one from 0")
        if self.sample < 0:
            raise ValueError(f"sample={self.sample} is negative. Give a number of chunks from 0")


def with_run_options[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Complete the help of a function that passes `RunOptions` on, and let it refuse other options by its own name."""
    passed_on = (
        Parameter(x.name, Parameter.KEYWORD_ONLY, default=x.default, annotation=x.type)
        for x in fields(Sync)
        if x.name in RunOptions.__annotations__
    )
    known = signature(function).parameters.keys() | RunOptions.__annotations__.keys()

    @wraps(function)
    def checked(*given: P.args, **options: P.kwargs) -> R:
        if unknown := sorted(options.keys() - known):
            what = f"{function.__qualname__}() got an unexpected keyword argument '{unknown[0]}'"
            raise TypeError(f"{what}.{did_you_mean(unknown[0], known)}")
        return function(*given, **options)

    return with_options(RUNNING, passed_on=passed_on)(checked)


# -- opening --------------------------------------------------------------------------------------------------


type Runs = Mapping[str, Sequence[tuple[int, int]]]
"""The elements of a file in a joined cube: for each dimension, where runs of them begin and end."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that was opened, or a cube of several files, as it will be placed.

    Parameters
    ----------
    url
        URL of the first file.
    dataset
        The virtual dataset.
    files
        The versions of its files, by URL.
    runs
        Where the elements of each file of a cube are.
    scalars
        Dimensions of a cube that its files have as scalar coordinates.
    """

    url: str
    dataset: xr.Dataset
    files: Mapping[str, Location]
    runs: Mapping[str, Runs] = field(default_factory=dict)
    scalars: frozenset[str] = frozenset()

    @property
    def telling(self) -> set[str]:
        """Names of other scalar coordinates of its files, which may be labels of further dimensions."""
        return {
            str(name) for name, x in self.dataset.coords.items() if x.ndim == 1 and x.dims[0] in self.scalars - {name}
        }

    def labels(self, dim: str, /) -> NDArray[Any]:
        """Its labels along a dimension."""
        return np.atleast_1d(self.dataset[dim].values)

    def kind(self, dim: str | None, /) -> frozenset[tuple[Any, ...]]:
        """Return what parts that join along a dimension have in common: variables, other labels, and the member."""
        found: set[tuple[Any, ...]] = {(name, x.dims, x.dtype) for name, x in self.dataset.variables.items()}
        found |= {(name, str(x)) for name, x in self.dataset.attrs.items() if name in TELLING}
        found |= {("name", word) for word in member_words(self.url)}
        if dim is not None:
            found |= {size for size in self.dataset.sizes.items() if size[0] != dim}
            indexes = {name: index for name, index in self.dataset.indexes.items() if name != dim}
            found |= {(name, pd.util.hash_pandas_object(x).to_numpy().tobytes()) for name, x in indexes.items()}
        return frozenset(found)

    def of_labels(self, dim: str, numbers: NDArray[np.intp], /) -> dict[str, set[int]]:
        """Return the numbers of the labels of each file, if each label of the cube has one."""
        whole = [(0, len(numbers))]
        return {
            url: {x for a, b in self.runs[url].get(dim, whole) for x in numbers[a:b].tolist()} for url in self.files
        }

    def only(self, urls: Collection[str], /) -> list[Opened]:
        """Return the cube of some of its files; if they do not fill one, their own cubes."""
        own = [url for url in self.files if url in urls]
        if not own or len(own) == len(self.files):
            return [self] if own else []
        dims = {dim for url in own for dim in self.runs[url]}
        cells = {url: {dim: _elements(self.runs[url][dim]) for dim in dims} for url in own}
        at = {dim: np.unique(np.concatenate([x[dim] for x in cells.values()])) for dim in dims}
        if math.prod(map(len, at.values())) != sum(math.prod(map(len, x.values())) for x in cells.values()):
            return [part for url in own for part in self.only([url])]
        scalars = self.scalars if len(own) == 1 else frozenset()  # one file is as it was opened
        dataset = self.dataset.isel({dim: x[0] if dim in scalars else _as_slice(x) for dim, x in at.items()})
        dataset.encoding = {**self.dataset.encoding, "source": own[0]}
        moved = {
            url: {dim: runs_of(np.searchsorted(at[dim], x)) for dim, x in its.items()} for url, its in cells.items()
        }
        return [Opened(own[0], dataset, {url: self.files[url] for url in own}, moved, self.scalars)]


def _elements(runs: Sequence[tuple[int, int]]) -> NDArray[np.intp]:
    return np.concatenate([np.arange(a, b) for a, b in runs]) if runs else np.arange(0)


def runs_of(positions: NDArray[np.intp], /) -> list[tuple[int, int]]:
    """Return where runs of consecutive positions begin and end.

    >>> runs_of(np.array([0, 1, 5]))
    [(0, 2), (5, 6)]
    """
    if not len(positions):
        return []
    ends = [*(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), len(positions)]
    return [(int(positions[a]), int(positions[b - 1]) + 1) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _as_slice(positions: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    is_run = len(positions) and positions[-1] - positions[0] == len(positions) - 1
    return slice(int(positions[0]), int(positions[-1]) + 1) if is_run else positions


def apart(
    parts: Sequence[Opened], stored: pd.Index[Any] | None, dim: str | None, dims: Collection[str] = (), /
) -> list[Opened]:
    """Return parts of which no cube has a label that a store or another part has, nor one between labels of another.

    Which of two files is shown is decided file by file. Labels may alternate where a store is, but not in a new one.
    Cubes are also divided if scalar coordinates of their files may be labels of further dimensions: of ``dims`` of the
    store, or of others if labels repeat in a new one.
    """
    cubes = [part for part in parts if len(part.files) > 1]
    dim = dim or next((name for part in cubes for runs in part.runs.values() for name in runs), None)
    if dim is None or any(dim not in part.dataset.coords for part in cubes):
        return [each for part in parts for url in part.files for each in part.only([url])]
    having = [pd.Index(part.labels(dim)) for part in parts if dim in part.dataset.coords]
    labels = having[0].append([*having[1:], *([] if stored is None else [stored])])
    repeated, every = labels[labels.duplicated()], labels.unique().sort_values()
    is_open = stored is None and len(repeated) > 0
    made: list[Opened] = []
    for part in parts:
        telling = part.telling
        if len(part.files) == 1:
            made.append(part)
            continue
        if telling.intersection(dims) or (is_open and (telling or len(part.scalars) > 1)):
            made += [each for url in part.files for each in part.only([url])]
            continue
        at = every.get_indexer(pd.Index(part.labels(dim)))
        order = np.argsort(at)
        runs = np.zeros(len(at), np.intp)
        if stored is None:
            runs[order] = np.cumsum(np.diff(at[order], prepend=at[order[0]]) > 1)
        runs[np.isin(part.labels(dim), repeated)] = -1
        together: dict[int, list[str]] = {}
        for url, its in part.of_labels(dim, runs).items():
            number = next(iter(its)) if len(its) == 1 else -1
            if number < 0:
                made += part.only([url])
            else:
                together.setdefault(number, []).append(url)
        made += [each for urls in together.values() for each in part.only(urls)]
    return made


def opening_by(recipe: Recipe, how: Sync, /) -> Opening:
    """Return the options by which a recipe opens files."""
    return Opening.from_options(
        group=recipe.group,
        storage=how.storage,
        drop_variables=recipe.drop_variables,
        decode_times=recipe.decode_times,
        unpack=recipe.unpack is True,
        unsupported=recipe.unsupported,
        inline_limit=recipe.inline_limit,
        allow=how.allow,
    )


def open_files(
    files: Mapping[str, Location], recipe: Recipe, how: Sync, /, *, together: bool = False
) -> tuple[list[Opened], dict[str, Exception]]:
    """Open files by a recipe; return the parts, and the errors by URL.

    With ``together``, files that are alike are one part.
    """
    if not files:
        return [], {}
    preprocess, new_dim = recipes.found_preprocess(recipe), recipes.found_new_dim(recipe)
    joining = CombineOptions.from_options(
        new_dim=new_dim, join=recipe.join, labels=recipe.labels, unpack=recipe.unpack, decode_times=recipe.decode_times
    )
    opened = open_all(
        xr.Dataset,
        list(files),
        lambda node, _: cast(xr.Dataset, node),  # opened below, together or one by one
        opening_by(recipe, how),
        preprocess=None,
        given=(),
        reader=recipes.found_reader(recipe),
        executor=how.executor,
        on_error="skip",
        cache=how.cache,
        progress=how.progress,
        with_children=False,
        is_one_index=False,
    )
    opening, errors, parts = opening_by(recipe, replace(how, storage=opened.storage)), dict(opened.errors), []
    nodes = dict(zip([x for x in files if x not in errors], cast(list[ManifestGroup], opened.nested), strict=True))
    if together and recipe.dim is not None and preprocess is None and not new_dim and not recipe.labels:
        parts = list(_cubes(nodes, files, recipe, recipe.dim, opening))
        for part in parts:
            for url in part.files:
                del nodes[url]

    datasets, _, failed = open_groups(
        list(nodes.values()), list(nodes), opening.dataset, opening, None, on_error="skip"
    )
    errors |= failed
    for url, dataset in zip([x for x in nodes if x not in failed], datasets, strict=True):
        try:
            if preprocess is not None:
                dataset = preprocessed(xr.Dataset, dataset, preprocess, url)
            if new_dim or recipe.labels:
                dataset = combine_datasets([dataset], joining, storage=opened.storage)
                dataset.encoding.setdefault("source", url)
            recipes.check_labels(recipe, dataset)
            parts.append(Opened(url, dataset, {url: files[url]}))
        except (VirtualStackError, TypeError) as error:
            errors[url] = error
    return parts, errors


def _cubes(
    nodes: Mapping[str, ManifestGroup], files: Mapping[str, Location], recipe: Recipe, dim: str, opening: Opening
) -> Iterator[Opened]:
    """Yield cubes of the files that are alike and have valid labels."""
    urls, joining = list(nodes), CombineOptions.from_options(**joining_by(recipe))
    for alike in join_alike(list(nodes.values()), dim, opening, joining):
        own = [urls[i] for i in alike.numbers]
        alike.dataset.encoding["source"] = own[0]
        runs = {url: {dim: [(i * alike.n, (i + 1) * alike.n)]} for i, url in enumerate(own)}
        with contextlib.suppress(CombineError):  # of one of them
            recipes.check_labels(recipe, alike.dataset)
            scalars = frozenset([dim] if alike.is_scalar else [])
            yield Opened(own[0], alike.dataset, {url: files[url] for url in own}, runs, scalars)


def joining_by(recipe: Recipe, /) -> dict[str, Any]:
    """Return the options by which a recipe joins files."""
    return {
        "join": recipe.join,
        "tolerance": pd.Timedelta(recipe.tolerance) if isinstance(recipe.tolerance, str) else recipe.tolerance,
        "unpack": recipe.unpack,
        "decode_times": recipe.decode_times,
        "combine_options": recipe.combine_options or None,
    }


def may_pass(error: Exception, url: str) -> bool:
    """Return whether an error says nothing about the file, so that the next run tries it again."""
    if isinstance(error, MissingDependencyError):
        return True
    if isinstance(error, ReaderError) or not isinstance(error, StorageError):
        return False
    if isinstance(error, SourceNotFoundError | AccessDeniedError) or (error.url is not None and error.url != url):
        return True
    return local_path(url) is None and not error.is_short


def waits(error: Exception, /) -> bool:
    """Return whether a file only lacks others: elements that no file has would have to be filled, and cannot."""
    return isinstance(error, CombineError) and error.property == "fill_value" and error.right is None


def reason_of(error: Exception) -> str:
    """Return an error as the reason of an entry of the ledger."""
    with rendered_by(recipes.in_recipe):
        return str(error)[:_MAX_REASON]


# -- placing --------------------------------------------------------------------------------------------------


type Made = tuple[ManifestGroup, Mapping[str, Sequence[Overlay]]]
"""The group of a store with files placed in it, and what overlays its virtual variables."""

type Old = tuple[Shown, Mapping[int, frozenset[Location]]]
"""Placements of a store, and the old versions of files by number of segment."""


class Placing:
    """The store that files are placed in; a new one is made of all files at once."""

    def __init__(self, store: Stored, recipe: Recipe, how: Sync, is_gone: IsGone) -> None:
        self._store, self.recipe, self._how, self._is_gone = store, recipe, how, is_gone
        self._prefer = recipes.found_prefer(recipe)
        self._groups: dict[tuple[str, ...], ManifestGroup] = {}
        self._fitting = Fitting.from_options(
            join=recipe.join, options=recipe.combine_options or None, storage=how.storage
        )

    @property
    def is_new(self) -> bool:
        """True if the store does not exist yet."""
        return self._store.snapshot.number < 0

    @cached_property
    def dim(self) -> str:
        """Dimension whose labels are added."""
        return self.recipe.dim or growing_dimension(self._store.group)

    @cached_property
    def labels(self) -> pd.Index[Any] | None:
        """Labels of the store along the dimension; ``None`` if the store does not exist yet."""
        if self.is_new:
            return None
        return loaded_dataset(self._store.group, self._how.storage, {self.dim}).indexes.get(self.dim)

    def attempt(self, parts: Sequence[Opened], /) -> Made:
        """Place parts, or raise the error of the first that does not fit."""
        if self.is_new:
            return self._joined(parts), {}
        groups = [self.group(part) for part in parts]
        return updated(self._store.group, groups, self.dim, None, self._fitting, self._prefer, self._is_gone)

    def left(self, old: Old, parts: Sequence[Opened], /) -> pd.Index[Any] | list[Any]:
        """Return the labels at which the store shows old versions of files, and that no part has."""
        index = self.labels
        if index is None:
            return []
        is_left = np.zeros(len(index), np.bool_)
        for cells in cells_of_sources(*old).values():
            for dim, axis, numbers in zip(
                cells.array.dimension_names or (), cells.array.grid.axes, cells.numbers.T, strict=True
            ):
                if dim == self.dim:
                    for number in np.unique(numbers).tolist():
                        is_left[axis.span(number)] = True
        for part in parts:
            is_left &= ~index.isin(part.labels(self.dim))
        return index[is_left]

    def showing(self, labels: Any, parts: Sequence[Opened], /) -> list[Opened]:
        """Return the elements of parts that have some labels."""
        at = [np.flatnonzero(np.isin(part.labels(self.dim), labels)) for part in parts]
        return [
            replace(part, dataset=part.dataset.isel({self.dim: own}) if self.dim in part.dataset.dims else part.dataset)
            for part, own in zip(parts, at, strict=True)
            if len(own)
        ]

    def group(self, part: Opened, /) -> ManifestGroup:
        """Return the group of a part."""
        key = tuple(part.files)
        if key not in self._groups:
            self._groups[key] = self._as_group(part.dataset)
        return self._groups[key]

    def _joined(self, parts: Sequence[Opened]) -> ManifestGroup:
        """Return the first content of a store; of files with the same labels, the most preferred one counts."""
        recipe, storage = self.recipe, self._how.storage
        duplicates: Duplicates | None = None if self._prefer is None else "first" if self._prefer == "first" else "last"
        if self._prefer not in (None, "first", "last"):
            try:
                parts = sorted(parts, key=self._key)
            except TypeError as error:
                raise CombineError(
                    f"prefer= returns keys that cannot be compared: {error}", property="prefer"
                ) from error
        joining = CombineOptions.from_options(duplicates=duplicates, **joining_by(recipe))
        joined = combine_datasets([part.dataset for part in parts], joining, storage=storage)
        return self._as_group(_growing(joined, recipe.dim))

    def _as_group(self, dataset: xr.Dataset) -> ManifestGroup:
        group = to_group(dataset)
        return inline_nameless(group, storage=self._how.storage.with_entries(*group.accesses()))

    def _key(self, part: Opened) -> Any:
        modified = part.files[part.url].last_modified
        if not callable(self._prefer):
            return modified or 0.0
        when = None if modified is None else datetime.fromtimestamp(modified, UTC)
        return self._prefer(Candidate(part.url, when, self._attributes))

    def _attributes(self, url: str) -> Mapping[str, Any]:
        return read_one(url, storage=self._how.storage, options=ReadOptions())[0].attributes

    def write(self, made: Made | None, rows: Sequence[Entry], n_placed: int, /) -> Snapshot:
        """Commit what was placed, the entries of the ledger, and the recipe if it is a new one."""
        store, recipe = self._store, self.recipe
        if made is None and not rows and recipe.text == store.snapshot.recipe:
            return store.snapshot
        group, overlays = (store.group, {}) if made is None else made
        return store.write(
            group,
            overlays=overlays,
            message=self._how.message or f"{counted(n_placed, 'file')} placed",
            relative=recipe.relative,
            checksums=recipe.checksums,
            recipe=None if recipe.text == store.snapshot.recipe else recipe.text,
            ledger=rows,
        )


def _growing(dataset: xr.Dataset, dim: str | None) -> xr.Dataset:
    """Return a dataset with the dimension that a store grows along, if all of its files have the same label.

    Data variables get it, and dates along other dimensions, which may be those of the label and a lead.
    """
    if dim not in dataset.coords or dim in dataset.dims:
        return dataset
    dates = [name for name, x in dataset.coords.items() if x.dtype.kind == "M" and name not in x.dims]
    growing = [name for name in (*dataset.data_vars, *dates) if dataset[name].dims]
    return dataset.assign({name: dataset[name].expand_dims(dim) for name in growing})


def fit_together(parts: Sequence[Opened], placing: Placing) -> tuple[list[Opened], Made | None, dict[str, Exception]]:
    """Place all parts that fit; return them, what was made, and the errors of the others by URL.

    If all do not fit together, halves are tried, so that few misfits among many parts take few attempts. The first
    files of a store are those that most others are like.
    """
    kept: list[Opened] = []
    made: Made | None = None
    errors: dict[str, Exception] = {}
    unplaced: list[Opened] = []
    todo = [list(parts)] if parts else []
    order = {url: number for number, url in enumerate(url for part in parts for url in part.files)}
    while todo:
        some = todo.pop()
        try:
            made = placing.attempt(sorted([*kept, *some], key=lambda part: order[part.url]))
            kept += some
        except (CombineError, ReaderError, StorageError, WriterError) as error:
            if len(some) == 1 and len(some[0].files) == 1:
                errors[some[0].url] = error
                unplaced += some
                continue
            if not placing.is_new and not kept and not errors:
                placing.attempt([])  # raises what is wrong with the store
            if placing.is_new and not kept and not errors:
                kinds = {part.url: part.kind(placing.recipe.dim) for part in some}
                counts = Counter(kinds[part.url] for part in some for _ in part.files)
                some = sorted(some, key=lambda part: -counts[kinds[part.url]])
            if len(some) == 1:
                urls = list(some[0].files)
                half = len(urls) // 2
                todo += [some[0].only(urls[half:]), some[0].only(urls[:half])]
            else:
                half = len(some) // 2
                todo += [some[half:], some[:half]]
    for group in _partners([part for part in unplaced if waits(errors[part.url])]):
        some = [part for part in group if part.url in errors]
        with contextlib.suppress(CombineError, ReaderError, StorageError, WriterError):
            made = placing.attempt(sorted([*kept, *some], key=lambda part: order[part.url]))
            kept += some
            for part in some:
                del errors[part.url]
    return kept, made, errors


def _partners(parts: Sequence[Opened]) -> list[list[Opened]]:
    """Return the parts that have the same labels along a dimension: together they may lack nothing."""
    groups: dict[tuple[str, bytes], list[Opened]] = {}
    for part in parts:
        for dim, index in part.dataset.indexes.items():
            groups.setdefault((str(dim), pd.util.hash_pandas_object(index).to_numpy().tobytes()), []).append(part)
    return [group for group in groups.values() if len(group) > 1]
