"""Open files by a recipe, and place those that fit together, in a store or as its first content."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.api.each import open_all, preprocessed
from virtualstack.combine import CombineOptions, combine_datasets
from virtualstack.combine.addition import growing_dimension
from virtualstack.combine.fitting import Fitting
from virtualstack.combine.precedence import Candidate, IsGone
from virtualstack.combine.update import updated
from virtualstack.dataset import loaded_dataset, to_group
from virtualstack.dataset.opening import Opening
from virtualstack.errors import (
    AccessDeniedError,
    CombineError,
    MissingDependencyError,
    ReaderError,
    SourceNotFoundError,
    StorageError,
    VirtualStackError,
    WriterError,
    rendered_by,
)
from virtualstack.formats.base import ReadOptions
from virtualstack.location import Location, local_path
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.manifest import Overlay
from virtualstack.planning import Duplicates
from virtualstack.printable import counted
from virtualstack.progress import Progress
from virtualstack.reading.nameless import inline_nameless
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """The options of a run; see :meth:`Repository.sync`."""

    storage: Storage
    allow: Allow = ()
    retry: bool = False
    reopen: bool = False
    sample: int = 8
    executor: ExecutorLike = None
    cache: Any = None
    progress: Progress | bool | None = None
    message: str | None = None


# -- opening --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that was opened, as it will be placed."""

    url: str
    dataset: xr.Dataset
    file: Location

    def labels(self, dim: str, /) -> NDArray[Any]:
        """Its labels along a dimension."""
        return np.atleast_1d(self.dataset[dim].values)

    def kind(self, dim: str | None, /) -> frozenset[tuple[Any, ...]]:
        """Names, dimensions and dtypes of its variables, and lengths and labels along all dimensions but one."""
        found: set[tuple[Any, ...]] = {(name, x.dims, x.dtype) for name, x in self.dataset.variables.items()}
        if dim is not None:
            found |= {size for size in self.dataset.sizes.items() if size[0] != dim}
            indexes = {name: index for name, index in self.dataset.indexes.items() if name != dim}
            found |= {(name, pd.util.hash_pandas_object(x).to_numpy().tobytes()) for name, x in indexes.items()}
        return frozenset(found)


def open_files(
    files: Mapping[str, Location], recipe: Recipe, how: Sync, /
) -> tuple[list[Opened], dict[str, Exception]]:
    """Open files by a recipe; return the parts, and the errors by URL."""
    if not files:
        return [], {}
    opening = Opening.from_options(
        group=recipe.group,
        storage=how.storage,
        drop_variables=recipe.drop_variables,
        decode_times=recipe.decode_times,
        unpack=recipe.unpack is True,
        unsupported=recipe.unsupported,
        inline_limit=recipe.inline_limit,
        allow=how.allow,
    )
    preprocess, new_dim = recipes.found_preprocess(recipe), recipes.found_new_dim(recipe)
    joining = CombineOptions.from_options(
        new_dim=new_dim, labels=recipe.labels, unpack=recipe.unpack, decode_times=recipe.decode_times
    )
    opened = open_all(
        xr.Dataset,
        list(files),
        lambda node, opening: opening.dataset(node),
        opening,
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
    errors, parts = dict(opened.errors), []
    for url, dataset in zip([x for x in files if x not in errors], cast(list[xr.Dataset], opened.nested), strict=True):
        try:
            if preprocess is not None:
                dataset = preprocessed(xr.Dataset, dataset, preprocess, url)
            if new_dim or recipe.labels:
                dataset = combine_datasets([dataset], joining, storage=opened.storage)
                dataset.encoding.setdefault("source", url)
            recipes.check_labels(recipe, dataset)
            parts.append(Opened(url, dataset, files[url]))
        except (VirtualStackError, TypeError) as error:
            errors[url] = error
    return parts, errors


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
        self._groups: dict[str, ManifestGroup] = {}
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

    def attempt(self, parts: Sequence[Opened], /) -> Made:
        """Place parts, or raise the error of the first that does not fit."""
        if self.is_new:
            return self._joined(parts), {}
        groups = [self._group(part.url, part.dataset) for part in parts]
        return updated(self._store.group, groups, self.dim, None, self._fitting, self._prefer, self._is_gone)

    def left(self, old: Old, parts: Sequence[Opened], /) -> pd.Index[Any] | list[Any]:
        """Return the labels at which the store shows old versions of files, and that no part has."""
        index = loaded_dataset(self._store.group, self._how.storage, {self.dim}).indexes[self.dim]
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

    def _group(self, url: str, dataset: xr.Dataset) -> ManifestGroup:
        if url not in self._groups:
            self._groups[url] = self._as_group(dataset)
        return self._groups[url]

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
        joining = CombineOptions.from_options(
            join=recipe.join,
            tolerance=pd.Timedelta(recipe.tolerance) if isinstance(recipe.tolerance, str) else recipe.tolerance,
            duplicates=duplicates,
            unpack=recipe.unpack,
            decode_times=recipe.decode_times,
            combine_options=recipe.combine_options or None,
        )
        joined = combine_datasets([part.dataset for part in parts], joining, storage=storage)
        return self._as_group(_growing(joined, recipe.dim))

    def _as_group(self, dataset: xr.Dataset) -> ManifestGroup:
        group = to_group(dataset)
        return inline_nameless(group, storage=self._how.storage.with_entries(*group.accesses()))

    def _key(self, part: Opened) -> Any:
        modified = part.file.last_modified
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
    todo = [list(parts)] if parts else []
    order = {part.url: number for number, part in enumerate(parts)}
    while todo:
        some = todo.pop()
        try:
            made = placing.attempt(sorted([*kept, *some], key=lambda part: order[part.url]))
            kept += some
        except (CombineError, ReaderError, StorageError, WriterError) as error:
            if len(some) == 1:
                errors[some[0].url] = error
                continue
            if not placing.is_new and not kept and not errors:
                placing.attempt([])  # raises what is wrong with the store
            if placing.is_new and not kept and not errors:
                kinds = {part.url: part.kind(placing.recipe.dim) for part in some}
                counts = Counter(kinds.values())
                some = sorted(some, key=lambda part: -counts[kinds[part.url]])
            half = len(some) // 2
            todo += [some[half:], some[:half]]
    for group in _partners([part for part in parts if part.url in errors and waits(errors[part.url])]):
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
