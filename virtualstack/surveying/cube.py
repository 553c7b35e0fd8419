"""Timeline of a cube: from its coordinate along a dimension, and from the manifests of its variables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.drawing import Timeline, TimelineDuplicate, TimelineEra
from virtualstack.errors import CombineError, VirtualStackError
from virtualstack.location import Location
from virtualstack.manifests import ABSENT, ChunkAxis, ChunkEncoding, ManifestArray, ManifestGroup
from virtualstack.manifests.cells import distinct_rows
from virtualstack.manifests.chunk_map import Numbering, number_blocks, stored_alike
from virtualstack.planning.dimension import main_dimension
from virtualstack.planning.gaps import missing_steps
from virtualstack.planning.groups import declared_facts
from virtualstack.planning.labels import Labels, usable
from virtualstack.storage import Storage, StorageLike
from virtualstack.surveying.coordinate import check_bytes, label, places_of, read_labels
from virtualstack.surveying.facts import Facts, Key, codec_names, describe_changes, find_periods, stored_dtypes
from virtualstack.surveying.timeline import MAX_ITEMS, PlaceAxis, most_missing, shorten

_MAX_ROWS = 1 << 14
"""Largest number of files that are compared one by one."""
_MAX_VARIABLES = 256
_NO_CELL = np.iinfo(np.int32).max


def cube_timeline(group: ManifestGroup, dim: str | None = None, /, *, storage: StorageLike = None) -> Timeline:
    """Return the timeline of a cube: from its coordinate along a dimension, and from the manifests of its variables.

    The values of the coordinate are read, and no other chunk. Manifests that are not in memory are read block by
    block, and not kept.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> for day, level in enumerate([1, 1, 9]):
    ...     part = xr.Dataset({"rain": ("time", [1.0])}, {"time": [day]})
    ...     encoding = {"rain": {"zlib": level > 1}, "time": {"chunksizes": (1,)}}
    ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4", encoding=encoding)
    >>> group = vs.open_virtual_mfdataset("day*.nc").virtual.to_group()
    >>> [(era.first, era.last, era.n_files, era.changes) for era in cube_timeline(group, "time").eras]
    [('0', '1', 2, ''), ('2', '2', 1, 'codecs of rain: none -> shuffle + zlib')]
    """
    arrays = {path: x for path, x in group.all_arrays().items() if x.size}
    if dim is None:
        dim = main_dimension([declared_facts(group)])
    elif not any(dim in (x.dimension_names or ()) for x in arrays.values()):
        present = sorted({name for x in arrays.values() for name in x.dimension_names or ()})
        raise CombineError(f"no variable has a dimension '{dim}'; they have {present}", property="dimension", left=dim)
    axes = {
        path: (x.dimension_names or ()).index(dim) for path, x in arrays.items() if dim in (x.dimension_names or ())
    }
    length = max((arrays[path].shape[axis] for path, axis in axes.items()), default=0)
    labels, unread = _labels(group, dim, Storage.from_option(storage)) if length else (None, None)
    places = _Places.from_labels(labels, length)
    runs = _Runs(length)
    for path, axis in list(axes.items())[:_MAX_VARIABLES]:
        if arrays[path].shape[axis] == length and path.rpartition("/")[2] != dim:
            runs.add(path, arrays[path], axis)
    eras, n_eras = runs.eras(places) if length else ((), 0)
    gaps = missing_steps(str(dim), [places.labels[~runs.is_lost]]) if places.is_to_scale else []
    duplicates, n_duplicates = places.duplicates()
    cut = [f"more than {_MAX_ROWS:,} changes along '{dim}': only the first ones are compared"] if runs.is_cut else []
    remarks = [str(x) for x in (unread, gaps) if isinstance(x, Exception | str)] + cut
    known = [("", x) for x in gaps] if not isinstance(gaps, str) else []
    ends = ("", "")
    if labels is not None and not places.is_to_scale:
        ends = label(labels[0]), label(labels[-1])
    elif length:
        ends = places.span(0, length)[:2]
    return Timeline(
        dim=dim,
        first=ends[0],
        last=ends[1],
        is_to_scale=places.is_to_scale,
        n_files=len(runs.begin),
        n_failed=0,
        eras=eras,
        n_eras=n_eras,
        gaps=most_missing(known, places.axis),
        n_gaps=len(known),
        n_missing=sum(x.n_steps for _, x in known),
        duplicates=duplicates,
        n_duplicates=n_duplicates,
        remarks=tuple(map(shorten, remarks)),
    )


def _labels(group: ManifestGroup, dim: str | None, storage: Storage) -> tuple[Labels | None, Exception | None]:
    """Return the coordinate along the dimension, or why it is not known."""
    if (error := check_bytes([group], dim)[0]) is not None:
        return None, error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", xr.SerializationWarning)  # dates beyond datetime64 show in the labels
            return read_labels(group, dim, storage), None
    except VirtualStackError as error:
        return None, error


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Places of the elements along the dimension on the axis of a timeline, and their text."""

    labels: Labels
    numbers: NDArray[Any]
    is_to_scale: bool
    axis: PlaceAxis

    @classmethod
    def from_labels(cls, labels: Labels | None, length: int) -> _Places:
        """Return the places of the elements of a coordinate. Without usable labels, they are in their order."""
        is_to_scale = labels is not None and len(usable(labels)) == length and places_of(labels) is not None
        if labels is None or not is_to_scale:
            labels = pd.RangeIndex(length)
        numbers = np.asarray(places_of(labels))
        low, high = (float(numbers.min()), float(numbers.max())) if length else (0.0, 1.0)
        return cls(labels, numbers, is_to_scale, PlaceAxis(low, high))

    def span(self, begin: int, stop: int) -> tuple[str, str, float, float]:
        """Return the text and the places of the least and the greatest label of some elements."""
        part = self.numbers[begin:stop]
        low, high = (begin + int(k) for k in (part.argmin(), part.argmax()))
        first, last = (label(self.labels[k]) for k in (low, high))
        return first, last, self.axis.at(float(self.numbers[low])), self.axis.at(float(self.numbers[high]))

    def duplicates(self) -> tuple[tuple[TimelineDuplicate, ...], int]:
        """Return the first labels that exist more than once, and the number of all."""
        if not self.is_to_scale:
            return (), 0
        values, first, counts = np.unique(self.numbers, return_index=True, return_counts=True)
        again = np.flatnonzero(counts > 1)
        return tuple(
            TimelineDuplicate(
                text=label(self.labels[first[i]]), at=self.axis.at(float(values[i])), n_values=int(counts[i])
            )
            for i in again[:MAX_ITEMS].tolist()
        ), again.size


class _Runs:
    """Runs of elements along a dimension in which chunks are stored alike, and the files that they are in."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._sources: Numbering[Location] = Numbering(lambda location: location.url)
        self.begin = np.zeros(0, np.int64)  # first element of each source
        self.stop = np.zeros(0, np.int64)
        self._changes: list[NDArray[np.int64]] = []
        self._variables: list[_StoredVariable] = []
        self._lost: list[NDArray[np.bool_]] = []
        self.is_cut = False

    @property
    def is_lost(self) -> NDArray[np.bool_]:
        """Whether all chunks of an element are ABSENT, in all variables that refer to sources."""
        return np.logical_and.reduce(self._lost) if self._lost else np.zeros(self._length, np.bool_)

    def add(self, path: str, array: ManifestArray, axis: int) -> None:
        """Read the manifest of a variable."""
        lines, encodings = array.grid.axes[axis], Numbering(stored_alike)
        low, high = np.full(lines.n_cells, _NO_CELL, np.int32), np.full(lines.n_cells, -1, np.int32)
        is_lost, n_referenced = np.ones(lines.n_cells, np.bool_), 0
        for block in number_blocks(array.manifest, self._sources, encodings):
            shape, cells = tuple(side.stop - side.start for side in block.box), block.box[axis]
            number, state, source = (
                np.moveaxis(each.reshape(shape), axis, 0).reshape(shape[axis], -1)
                for each in (block.encoding, block.state, block.source)
            )
            np.maximum(high[cells], number.max(1), out=high[cells])
            np.minimum(low[cells], np.where(number < 0, _NO_CELL, number).min(1), out=low[cells])
            is_lost[cells] &= (state == ABSENT).all(1)
            n_referenced += int(np.count_nonzero(source >= 0))
            at = np.broadcast_to(np.arange(cells.start, cells.stop)[:, None], source.shape)[source >= 0]
            self._extend(source[source >= 0], lines.starts(at), lines.starts(at) + lines.lengths(at))
        known = np.flatnonzero(high >= 0)
        low, high = low[known], high[known]
        first, number = distinct_rows([low, high])
        rows = list(encodings.rows.values())
        pairs = [{rows[low[i]], rows[high[i]]} for i in first.tolist()]
        form = np.full(lines.n_cells, -1, np.intp)
        form[known] = number
        self._variables.append(_StoredVariable(path, lines, form, pairs))
        changed = np.flatnonzero(number[1:] != number[:-1]) + 1
        self._changes.append(lines.starts(known[changed]))
        if n_referenced:
            self._lost.append(np.repeat(is_lost, lines.lengths()))

    def _extend(self, source: NDArray[np.int32], begin: NDArray[np.int64], stop: NDArray[np.int64]) -> None:
        """Extend the span of each source by the spans of some chunks."""
        more = int(source.max(initial=-1)) + 1 - self.begin.size
        if more > 0:
            self.begin = np.append(self.begin, np.full(more, self._length))
            self.stop = np.append(self.stop, np.zeros(more, np.int64))
        np.minimum.at(self.begin, source, begin)
        np.maximum.at(self.stop, source, stop)

    def eras(self, places: _Places) -> tuple[tuple[TimelineEra, ...], int]:
        """Return the first eras, and the number of all of them."""
        changes = [np.zeros(1, np.int64), *self._changes]
        rows = np.unique(np.concatenate([*changes, self.begin]))
        if rows.size > _MAX_ROWS:
            rows = np.unique(np.concatenate(changes))
            self.is_cut, rows = rows.size > _MAX_ROWS, rows[:_MAX_ROWS]
        columns = [column for variable in self._variables for column in variable.columns(rows)]
        codes = np.stack([codes for *_, codes in columns], axis=1) if columns else np.zeros((rows.size, 0), np.int32)
        facts = Facts(tuple(key for key, *_ in columns), codes, tuple(values for _, values, _ in columns))
        periods = find_periods(codes, np.ones(len(columns), np.bool_))
        n_eras = len(periods.typical)
        first_rows = np.searchsorted(periods.era, np.arange(n_eras + 1))
        edges = np.append(rows, self._length)[first_rows].tolist()
        eras = []
        for i in range(min(n_eras, MAX_ITEMS)):
            first, last, begin, end = places.span(edges[i], edges[i + 1])
            old, new = periods.typical[max(i - 1, 0)], periods.typical[i]
            eras.append(
                TimelineEra(
                    series="",
                    number=i + 1,
                    first=first,
                    last=last,
                    begin=begin,
                    end=end,
                    n_files=int(np.count_nonzero((self.begin < edges[i + 1]) & (self.stop > edges[i]))),
                    n_outliers=int(np.count_nonzero(periods.is_outlier[first_rows[i] : first_rows[i + 1]])),
                    changes=shorten(describe_changes(facts, (old != new) & ~periods.varies, old, new)),
                )
            )
        return tuple(eras), n_eras


@dataclass(frozen=True, slots=True, eq=False)
class _StoredVariable:
    """How the chunks of a variable are stored along the dimension."""

    path: str
    lines: ChunkAxis
    form: NDArray[np.intp]
    encodings: list[set[ChunkEncoding]]

    def columns(self, elements: NDArray[np.int64]) -> Iterator[tuple[Key, tuple[Hashable, ...], NDArray[np.int32]]]:
        """Yield the properties of the chunks at some elements: key, values, and the number of the value of each."""
        form = self.form[self.lines.find(elements)]
        readers: dict[str, Callable[[set[ChunkEncoding]], Hashable]] = {
            "dtype": stored_dtypes,
            "chunks": lambda found: min(x.shape for x in found),
            "codecs": codec_names,
        }
        for name, read in readers.items():
            numbers: dict[Hashable, int] = {}
            codes = [numbers.setdefault(read(found), len(numbers)) for found in self.encodings]
            yield (self.path, name), tuple(numbers), np.array([*codes, -1], np.int32)[form]
