"""Placement of the parts of an update in the variables of a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, cast

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.combine.fitting import Fitting, joint_dtype, lacking
from virtualstack.combine.part import Part
from virtualstack.combine.precedence import IsGone, Meeting, Prefer, compare_cells, is_preferred
from virtualstack.combine.region import Box, Side, overlay_on
from virtualstack.dataset import loaded_variable, virtual_array
from virtualstack.errors import ChunkAlignmentError
from virtualstack.formats.base import ReadOptions
from virtualstack.location import Location
from virtualstack.manifests import CF_KEYS, EMPTY, FIRST, ManifestArray, packed_encoding
from virtualstack.manifests.cells import replaced
from virtualstack.manifests.manifest import Overlay
from virtualstack.scanning.one import read_one
from virtualstack.verify import values_differ

type _Cell = tuple[int, ...]
"""Numbers of segments, one for each axis."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoreAxis:
    """The labels along a dimension, and the positions of each part's labels among them.

    A segment is a run of labels of which each part has either all, in the same order, or none.
    """

    dim: str
    labels: pd.Index[Any]
    dtype: np.dtype[Any]
    at: Sequence[NDArray[np.intp]]
    bounds: NDArray[np.intp]
    starts: Sequence[Mapping[int, int]]

    @classmethod
    def from_labels(
        cls, dim: str, labels: pd.Index[Any], dtype: np.dtype[Any], at: Sequence[NDArray[np.intp]], /
    ) -> StoreAxis:
        """Return the axis with its segments."""
        lines = [np.array([0, len(labels)], np.intp)]
        for own in at:
            if len(own):
                ends = np.flatnonzero(np.diff(own) != 1)
                lines += [own[:1], own[ends + 1], own[ends] + 1, own[-1:] + 1]
        bounds = np.unique(np.concatenate(lines))
        starts: list[dict[int, int]] = []
        for own in at:
            if not len(own):
                starts.append({})
                continue
            first, last = np.searchsorted(bounds, [own[0], own[-1] + 1])
            begins = bounds[first:last]
            found = np.minimum(np.searchsorted(own, begins), len(own) - 1)
            is_there = own[found] == begins
            segments = first + np.flatnonzero(is_there)
            starts.append(dict(zip(segments.tolist(), found[is_there].tolist(), strict=True)))
        return cls(dim=dim, labels=labels, dtype=dtype, at=at, bounds=bounds, starts=starts)

    @property
    def is_same(self) -> bool:
        """True if the result has no labels that the store lacks."""
        return len(self.labels) == len(self.at[0])

    def span(self, segment: int) -> tuple[int, int]:
        """Return the begin and the end of a segment."""
        return int(self.bounds[segment]), int(self.bounds[segment + 1])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Placing:
    """The parts of an update, and their positions in a store."""

    dim: str
    axes: Mapping[str, StoreAxis]
    parts: Sequence[Part]
    fitting: Fitting
    prefer: Prefer
    is_gone: IsGone
    _under: dict[int, frozenset[Location]] = field(default_factory=dict)

    def placed_axes(self, name: str) -> list[tuple[int, StoreAxis]]:
        """Return the axes of a variable along which parts are placed, with their numbers."""
        dims = map(str, self.parts[0].variables[name].dims)
        return [(number, self.axes[dim]) for number, dim in enumerate(dims) if dim in self.axes]

    def where(self, name: str, begin: Sequence[int]) -> str:
        """Return the labels at an element of the result as text, for messages."""
        found = [(axis.dim, axis.labels[begin[number]]) for number, axis in self.placed_axes(name)]
        return ", ".join(f"{dim} {label!s}" for dim, label in found)

    # -- precedence ---------------------------------------------------------------------------------------------

    def locations(self, number: int) -> frozenset[Location]:
        """Return the sources of a part."""
        arrays = [virtual_array(x) for x in self.parts[number].variables.values()]
        return frozenset(x for array in arrays if array is not None for x in array.in_memory().compact().locations)

    def under(self, number: int) -> frozenset[Location]:
        """Return the sources of the store at the labels of a part."""
        if number not in self._under:
            found: set[Location] = set()
            for name in self.parts[number].variables:
                array = virtual_array(self.parts[0].variables[name])
                for cell, starts in (
                    self._list_cells(name, number) if array is not None and self.placed_axes(name) else ()
                ):
                    box = self._stored_box(name, cell)
                    if box is not None and starts is not None and array is not None:
                        found.update(array[box].in_memory().compact().locations)
            self._under[number] = frozenset(found)
        return self._under[number]

    def is_read_again(self, number: int) -> bool:
        """Return whether a part is of a file that the store shows at its labels, or all that it shows there is gone."""
        under, own = self.under(number), {x.url for x in self.locations(number)}
        return any(x.url in own for x in under) or (bool(under) and all(map(self.is_gone, under)))

    def wins(self, number: int, name: str, where: str) -> bool:
        """Return whether a part is preferred to the store at its labels, for values without a source."""
        if self.is_read_again(number):
            return True
        mine: list[Location | None] = sorted(self.locations(number), key=str)
        theirs: list[Location | None] = sorted((x for x in self.under(number) if not self.is_gone(x)), key=str)
        found = {
            is_preferred(self.prefer, a, b, self.attributes, name=name, where=where)
            for a in (mine or [None])
            for b in (theirs or [None])
        }
        return found == {True}

    def attributes(self, url: str) -> Mapping[str, Any]:
        """Read the global attributes of a file."""
        return read_one(url, storage=self.fitting.storage, options=ReadOptions())[0].attributes

    # -- virtual variables ------------------------------------------------------------------------------------

    def virtual(self, name: str, *, is_changed: bool) -> xr.Variable | list[Overlay]:
        """Return overlays on a variable if its labels, chunks and packing stay the same, otherwise the new variable.

        With ``is_changed``, its packing or dtype is not that of the store.
        """
        variable = self.parts[0].variables[name]
        array = cast(ManifestArray, virtual_array(variable))
        cells: dict[_Cell, list[tuple[int, tuple[int, ...]]]] = {}
        for number in range(1, len(self.parts)):
            for cell, starts in self._list_cells(name, number):
                cells.setdefault(cell, []).append((number, starts))
        merged = {cell: self._merged(name, array, cell, sources) for cell, sources in cells.items()}
        merged = {cell: (shown, over) for cell, (shown, over) in merged.items() if over}
        if all(axis.is_same for _, axis in self.placed_axes(name)) and not (is_changed and merged):
            dims = variable.dims
            try:
                return [
                    overlay_on(
                        name, array, part, {str(d): Side(a, b) for d, (a, b) in zip(dims, box, strict=True)}, dims
                    )
                    for _, over in merged.values()
                    for box, part in over
                ]
            except ChunkAlignmentError:
                pass  # the chunks of the store are cut
        data: Any = self._assembled(name, array, {cell: shown for cell, (shown, _) in merged.items()}, (), ())
        is_changed |= data.dtype != array.dtype
        kept = {key: x for key, x in variable.encoding.items() if key not in CF_KEYS or not is_changed}
        return xr.Variable(variable.dims, data, variable.attrs, {**kept, **packed_encoding(data)}, fastpath=True)

    def _list_cells(self, name: str, number: int) -> Iterator[tuple[_Cell, tuple[int, ...]]]:
        """Yield the cells of segments in which a part has a variable, and the part's first elements in each."""
        if name in self.parts[number].variables:
            for each in product(*(axis.starts[number].items() for _, axis in self.placed_axes(name))):
                yield tuple(segment for segment, _ in each), tuple(start for _, start in each)

    def _stored_box(self, name: str, cell: _Cell) -> tuple[slice, ...] | None:
        """Return the elements of the store in a cell of segments, or ``None`` if the store does not have the cell."""
        box = [slice(None)] * self.parts[0].variables[name].ndim
        for segment, (number, axis) in zip(cell, self.placed_axes(name), strict=True):
            begin, end = axis.span(segment)
            start = axis.starts[0].get(segment)
            if start is None:
                return None
            box[number] = slice(start, start + end - begin)
        return tuple(box)

    def _merged(
        self, name: str, array: ManifestArray, cell: _Cell, sources: Sequence[tuple[int, tuple[int, ...]]]
    ) -> tuple[ManifestArray, list[tuple[Box, ManifestArray]]]:
        """Return the array shown in a cell of segments, and the boxes that parts overwrite, in result elements."""
        stored = self._stored_box(name, cell)
        shown = None if stored is None else array[stored]
        whole = [(0, n) for n in array.shape]
        for segment, (number, axis) in zip(cell, self.placed_axes(name), strict=True):
            whole[number] = axis.span(segment)
        over: list[tuple[Box, ManifestArray]] = []
        for part, starts in sources:
            box = [slice(None)] * array.ndim
            for start, (number, _) in zip(starts, self.placed_axes(name), strict=True):
                box[number] = slice(start, start + whole[number][1] - whole[number][0])
            its = cast(ManifestArray, virtual_array(self.parts[part].variables[name]))[tuple(box)]
            if shown is None:
                shown = its
                over.append((tuple(whole), its))
                continue
            meeting = compare_cells(shown, its)
            if meeting is None:
                continue
            take = self._taken(name, part, meeting, [a for a, _ in whole], shown, its)
            if take.all():
                shown = its
                over.append((tuple(whole), its))
            elif take.any():
                for own in meeting.boxes(take):
                    at = tuple((a + first, b + first) for (a, b), (first, _) in zip(own, whole, strict=True))
                    over.append((at, its[tuple(slice(a, b) for a, b in own)]))
                shown = meeting.merged(shown, take)
        return cast(ManifestArray, shown), over

    def _taken(
        self, name: str, number: int, meeting: Meeting, begin: Sequence[int], old: ManifestArray, new: ManifestArray
    ) -> NDArray[np.bool_]:
        """Return a mask of the cells of a part that are shown."""
        take = meeting.take.copy()
        dims = tuple(map(str, self.parts[0].variables[name].dims))
        is_repeated = not self.axes.keys() | {self.dim} <= set(dims)  # each file of a run repeats values
        is_open = (meeting.clashing | meeting.unknown).any()
        if is_open and is_repeated and not any(map(self.is_gone, old.in_memory().compact().locations)):
            storage, source = self.fitting.storage, self.parts[number].source
            named = (replace(x, dimension_names=dims) for x in (old, new))
            a, b = (loaded_variable(name, x, storage, url=source) for x in named)
            if values_differ(np.asarray(a.values), np.asarray(b.values)) is None:
                return take
        for then, now, mask in meeting.pairs():
            first = [a for a, _ in meeting.boxes(mask)[0]]
            where = self.where(name, [a + b for a, b in zip(begin, first, strict=True)])
            if then.url.startswith(f"{self.parts[0].source or '?'}/") and self.is_read_again(number):
                continue  # values written into the store stay, as when a file is refreshed
            if self.is_gone(then) or is_preferred(self.prefer, now, then, self.attributes, name=name, where=where):
                take |= mask
        unknown = meeting.unknown
        own = {x.url for x in self.locations(number)}
        if len(own) > 1:  # an EMPTY cell of a joined dataset may be missing in all of its files
            holes = unknown & (meeting.new.entries["location"] == EMPTY)
            codes = [i + FIRST for i, x in enumerate(meeting.old.locations) if x.url in own]
            take |= holes & np.isin(meeting.old.entries["location"], codes)
            unknown = unknown & ~holes
        if unknown.any() and self.wins(number, name, self.where(name, begin)):
            take |= unknown
        return take

    def _assembled(
        self,
        name: str,
        array: ManifestArray,
        cells: Mapping[_Cell, ManifestArray],
        sizes: tuple[int, ...],
        stored: tuple[slice, ...] | None,
    ) -> ManifestArray:
        """Assemble a variable from the store, cells of parts, and ABSENT elements, axis by axis."""
        axes = self.placed_axes(name)
        if len(sizes) == len(axes):
            return _in_whole_chunks(array, self._box(name, stored or ())) if not cells else cells[()]
        _, axis = axes[len(sizes)]
        below: dict[int, dict[_Cell, ManifestArray]] = {}
        for cell, shown in cells.items():
            below.setdefault(cell[0], {})[cell[1:]] = shown
        pieces: list[ManifestArray] = []
        segment, n_segments = 0, len(axis.bounds) - 1
        while segment < n_segments:
            first, start = segment, axis.starts[0].get(segment)
            own = below.get(segment, {})
            segment += 1
            while not own and segment < n_segments and segment not in below:
                following = axis.starts[0].get(segment)
                n = int(axis.bounds[segment] - axis.bounds[first])
                if (following is None) != (start is None) or (start is not None and following != start + n):
                    break
                segment += 1
            n = int(axis.bounds[segment] - axis.bounds[first])
            box = None if stored is None or start is None else (*stored, slice(start, start + n))
            if box is None and not own:
                pieces.append(self._hole(name, (*sizes, n)))
            else:
                pieces.append(self._assembled(name, array, own, (*sizes, n), box))
        if len(pieces) == 1:
            return pieces[0]
        joined: Any = np.concatenate(cast(Any, pieces), axes[len(sizes)][0])
        return cast(ManifestArray, joined)

    def _box(self, name: str, stored: tuple[slice, ...]) -> tuple[slice, ...]:
        box = [slice(None)] * self.parts[0].variables[name].ndim
        for side, (number, _) in zip(stored, self.placed_axes(name), strict=True):
            box[number] = side
        return tuple(box)

    def _hole(self, name: str, sizes: tuple[int, ...]) -> ManifestArray:
        """Return ABSENT elements, in the whole length along the remaining axes."""
        old = self.parts[0]
        lengths = {axis.dim: len(axis.labels) for _, axis in self.placed_axes(name)}
        lengths |= {axis.dim: n for n, (_, axis) in zip(sizes, self.placed_axes(name), strict=False)}
        return cast(ManifestArray, virtual_array(lacking(name, old, {**old.sizes, **lengths}, self.fitting)))

    # -- loaded variables -------------------------------------------------------------------------------------

    def loaded(self, name: str) -> xr.Variable:
        """Return a loaded variable with the values of parts; the variable itself if nothing changes."""
        old = self.parts[0].variables[name]
        axes = [self.axes.get(str(dim)) for dim in old.dims]
        shape = [n if axis is None else len(axis.labels) for axis, n in zip(axes, old.shape, strict=True)]
        having = {n: part.variables[name].values for n, part in enumerate(self.parts) if name in part.variables}
        values = np.zeros(shape, joint_dtype([own.dtype for own in having.values()]))
        is_there = np.zeros(shape, np.bool_)
        is_changed = not all(axis.is_same for _, axis in self.placed_axes(name))
        for number, own in having.items():
            positions = [np.arange(n) if axis is None else axis.at[number] for axis, n in zip(axes, shape, strict=True)]
            at = np.ix_(*positions)
            own = own.astype(values.dtype)
            take = self._taken_values(name, number, positions, values[at], own, is_there[at])
            is_changed |= number > 0 and bool(take.any())
            values[at] = np.where(take, own, values[at])
            is_there[at] = True
        if not is_changed:
            return old
        if not is_there.all():
            one = dict.fromkeys(map(str, old.dims), 1)
            hole = lacking(name, self.parts[0], {**self.parts[0].sizes, **one}, self.fitting).values.ravel()
            values = values.astype(joint_dtype([values.dtype, hole.dtype]))
            values[~is_there] = hole
        return xr.Variable(old.dims, values, dict(old.attrs), dict(old.encoding))

    def _taken_values(
        self,
        name: str,
        number: int,
        positions: Sequence[NDArray[np.intp]],
        old: NDArray[Any],
        new: NDArray[Any],
        is_there: NDArray[np.bool_],
    ) -> NDArray[np.bool_]:
        """Return a mask of the values of a part that are shown: new ones, and others if the part is preferred."""
        take = ~is_there
        if take.all():
            return take
        differ = is_there.copy()
        differ[is_there] = ~((old[is_there] == new[is_there]) | (pd.isnull(old[is_there]) & pd.isnull(new[is_there])))
        fill_value = self.fitting.rules.fill(name)
        blank = pd.isnull(old[differ])
        if fill_value is not None:
            blank |= old[differ] == fill_value
        take[differ] = blank  # absent elements of loaded variables are missing values in stores
        differ &= ~take
        if differ.any():
            first = [x[0] for x in np.nonzero(differ)]
            where = self.where(name, [int(own[i]) for own, i in zip(positions, first, strict=True)])
            if self.wins(number, name, where):
                take |= differ
        return take


def _in_whole_chunks(array: ManifestArray, box: tuple[slice, ...]) -> ManifestArray:
    """Return elements of a store, split where the first whole chunk begins: elements before it must be read."""
    for axis, (side, cells) in enumerate(zip(box, array.grid.axes, strict=True)):
        begin, end, _ = side.indices(cells.length)
        lines = cells.lines()
        line = int(lines[np.searchsorted(lines, begin)])
        if begin < line < end:
            parts = [replaced(box, axis, slice(a, b)) for a, b in ((begin, line), (line, end))]
            joined: Any = np.concatenate(cast(Any, [_in_whole_chunks(array, part) for part in parts]), axis)
            return cast(ManifestArray, joined)
    return array[box]
