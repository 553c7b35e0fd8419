"""Make references for virtual datasets (VDS): select and place the datasets that their mappings name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from virtualstack.errors import CombineError
from virtualstack.formats.hdf5.structures.requests import LostValuesError, NoReferencesError
from virtualstack.formats.hdf5.structures.virtual_mappings import (
    BoxSelection,
    Hyperslab,
    HyperslabAxis,
    MappedSelection,
    SelectionError,
    VirtualMapping,
    selection_axes,
)
from virtualstack.formats.hdf5.virtual_sources import OpenSource, Sources
from virtualstack.location import local_path
from virtualstack.manifests import Chunks, Fill, ManifestArray, Runs, Tile, place_tiles, take_runs
from virtualstack.manifests.indexing import drop_axis, insert_axis

_MAX_RUNS = 1 << 24  # runs of all mappings together
_MAX_SOURCES = 1 << 20  # sources of one mapping: a server may return a file for every name
_NUMBER = re.compile("%[%b]")


def virtual_chunks(
    mappings: Sequence[VirtualMapping],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fill: Fill,
    open_source: OpenSource,
    /,
    *,
    url: str,
    inline_limit: int,
    subshape: tuple[int, ...] = (),
    is_source: bool = False,
) -> Chunks:
    """Place the selected parts of the sources of a virtual dataset in it; no values are read.

    If mappings overlap, the last mapping is used, as in the HDF5 library.
    """
    try:
        if is_source and any(mapping.growing_axis is not None for mapping in mappings):
            raise SelectionError(
                "places that grow with its sources, and a source itself: the HDF5 library shows it as it was written"
            )
        pieces = _all_pieces(mappings, shape, subshape, Sources(open_source, url, inline_limit))
        made, n_covered = place_tiles((*shape, *subshape), [piece.tile(dtype, subshape) for piece in pieces], fill)
    except SelectionError as error:
        raise LostValuesError(f"a virtual dataset (VDS) with {error}") from error
    except (CombineError, NoReferencesError) as error:
        reason = f"a virtual dataset (VDS): {error}"
        if local_path(url) is None and any(mapping.file != "." for mapping in mappings):
            # The HDF5 library would use the file that it has open for each name, or look on this machine.
            raise LostValuesError(f"{reason}; the HDF5 library reads other files beside local ones only") from error
        raise NoReferencesError(reason) from error
    n_placed = sum(math.prod(runs.size for runs in piece.place) for piece in pieces) * math.prod(subshape)
    if n_placed > n_covered < math.prod((*shape, *subshape)):
        raise LostValuesError(
            "a virtual dataset (VDS) whose mappings overlap and leave elements out, which the HDF5 library does not set"
        )
    return made


def _all_pieces(
    mappings: Sequence[VirtualMapping], shape: tuple[int, ...], subshape: tuple[int, ...], sources: Sources
) -> list[_Piece]:
    """Open all sources, even after an error, before the HDF5 library may be used to read any of them."""
    obstacle: NoReferencesError | None = None
    pieces: list[_Piece] = []
    n_runs = 0
    for mapping in mappings:
        try:
            for piece in _pieces(mapping, shape, sources, len(subshape)):
                pieces.append(piece)
                n_runs += sum(runs.starts.size for runs in (*piece.place, *piece.source))
                if n_runs > _MAX_RUNS:
                    raise SelectionError(f"{n_runs} runs of elements, more than {_MAX_RUNS}")
        except NoReferencesError as error:
            obstacle = obstacle or error
    if obstacle is not None:
        raise obstacle
    grown = _grown(pieces, mappings, shape)
    if grown != shape:
        raise SelectionError(f"shape {shape}, whose sources fill {grown}")
    for piece in pieces:
        piece.check(shape, subshape)
    return pieces


def virtual_shape(
    mappings: Sequence[VirtualMapping],
    shape: tuple[int, ...],
    open_source: OpenSource,
    /,
    *,
    url: str,
    inline_limit: int,
) -> tuple[int, ...]:
    """Return the shape of a virtual dataset that may grow with its sources, from the stored shape."""
    growing = [mapping for mapping in mappings if mapping.growing_axis is not None]
    sources = Sources(open_source, url, inline_limit)
    try:
        pieces = [piece for mapping in growing for piece in _pieces(mapping, shape, sources, 0)]
        return _grown(pieces, mappings, shape)
    except SelectionError as error:
        raise LostValuesError(f"a virtual dataset (VDS) with {error}") from error


class _Piece(NamedTuple):
    """A source and the position of its elements in the virtual dataset."""

    name: str
    array: ManifestArray
    place: tuple[Runs, ...]
    source: tuple[Runs, ...]
    grows: tuple[int, int] | None = None

    def check(self, shape: tuple[int, ...], subshape: tuple[int, ...]) -> None:
        """Raise `SelectionError` if the selections do not fit each other, or the datasets."""
        if self.array.shape[len(self.array.shape) - len(subshape) :] != subshape:
            raise SelectionError(f"a source '{self.name}' of another array type than {subshape}")
        for runs, whole in ((self.place, shape), (self.source, self.array.shape[: self.array.ndim - len(subshape)])):
            if len(runs) != len(whole) or any(x.stop > n for x, n in zip(runs, whole, strict=True)):
                stop = tuple(x.stop for x in runs)
                raise SelectionError(f"a selection up to {stop} where the shape is {whole} (source '{self.name}')")
        n_place, n_source = (math.prod(x.size for x in runs) for runs in (self.place, self.source))
        if n_place != n_source:
            raise SelectionError(f"{n_place} elements mapped to {n_source} of the source '{self.name}'")

    def tile(self, dtype: np.dtype[Any], subshape: tuple[int, ...]) -> Tile:
        """Select the source's elements, and return them with the axes of the virtual dataset; both are in C order."""
        place, source = (tuple(x.size for x in runs) for runs in (self.place, self.source))
        inner = tuple(Runs.one(0, n) for n in subshape)
        chunks = self.array.as_chunks()
        if 0 in place:
            return Tile(chunks, (*(Runs.one(0, 0) for _ in place), *inner))
        if self.array.dtype != dtype:
            raise NoReferencesError(f"values are '{dtype}', those of its source '{self.name}' are '{self.array.dtype}'")
        if [n for n in place if n != 1] != [n for n in source if n != 1]:
            raise NoReferencesError(f"{place} elements are {source} of its source '{self.name}'")
        for axis, runs in enumerate(self.source):
            chunks = take_runs(chunks, axis, runs)
        for axis in reversed(range(len(source))):
            if source[axis] == 1:
                chunks = drop_axis(chunks, axis)
        for axis, n in enumerate(place):
            if n == 1:
                chunks = insert_axis(chunks, axis)
        return Tile(chunks, (*self.place, *inner))


def _pieces(mapping: VirtualMapping, shape: tuple[int, ...], sources: Sources, n_inner: int) -> Iterator[_Piece]:
    """Open the source or sources of a mapping, and yield its pieces, with selections limited to existing elements."""
    place, source, axis = mapping.place, mapping.source, mapping.growing_axis
    names = mapping.file, mapping.dataset
    if axis is None or not isinstance(place, Hyperslab):
        yield _piece(sources.need(*_named(names)), names, selection_axes(place, shape), source, n_inner)
    elif isinstance(source, Hyperslab) and source.unlimited_axis is not None:
        yield _growing_piece(sources.need(*_named(names)), names, place, source, axis)
    else:
        yield from _numbered_pieces(names, place, source, axis, sources, n_inner)


def _piece(
    array: ManifestArray, names: tuple[str, str], place: tuple[Runs, ...], source: MappedSelection, n_inner: int
) -> _Piece:
    whole = array.shape[: max(array.ndim - n_inner, 0)]
    return _Piece(name=names[1], array=array, place=place, source=selection_axes(source, whole))


def _growing_piece(
    array: ManifestArray, names: tuple[str, str], place: Hyperslab, source: Hyperslab, axis: int
) -> _Piece:
    """Return a piece with all elements of the source along the axis of its unlimited selection."""
    along = source.unlimited_axis
    if along is None or along >= array.ndim:
        raise SelectionError(f"a selection on {len(source.axes)} axes where the shape is {array.shape}")
    n = source.axes[along].n_below(array.shape[along])
    return _Piece(
        name=names[1],
        array=array,
        place=tuple(x.first(n) if i == axis else x.runs() for i, x in enumerate(place.axes)),
        source=tuple(x.first(n) if i == along else x.runs() for i, x in enumerate(source.axes)),
        grows=(axis, place.axes[axis].extent_for(n)),
    )


def _numbered_pieces(
    names: tuple[str, str], place: Hyperslab, source: MappedSelection, axis: int, sources: Sources, n_inner: int
) -> Iterator[_Piece]:
    """Yield pieces of sources by number until a source does not exist: without gaps (H5Pset_virtual_printf_gap)."""
    along = place.axes[axis]
    if (
        along.block is None
        or isinstance(source, BoxSelection)
        or not any("%b" in _NUMBER.findall(name) for name in names)
    ):
        raise SelectionError("an unlimited selection for which there is no number of sources")
    number = 0
    while (array := sources.find(*_named(names, number))) is not None:
        block = HyperslabAxis(along.start + number * along.stride, along.stride, 1, along.block)
        axes = (*place.axes[:axis], block, *place.axes[axis + 1 :])
        piece = _piece(array, _named(names, number), selection_axes(Hyperslab(axes), ()), source, n_inner)
        yield piece._replace(grows=(axis, block.start + along.block))
        number += 1
        if number >= _MAX_SOURCES:
            raise SelectionError(f"{number} sources of one mapping, or more")


def _named(names: tuple[str, str], number: int | None = None) -> tuple[str, str]:
    """Replace ``%b`` by a number in the names of a file and a dataset."""

    def fill_in(found: re.Match[str]) -> str:
        if found.group() == "%%":
            return "%"
        if number is None:
            raise SelectionError(f"one selection of many sources, '{found.string}'")
        return str(number)

    return _NUMBER.sub(fill_in, names[0]), _NUMBER.sub(fill_in, names[1])


def _grown(pieces: Iterable[_Piece], mappings: Sequence[VirtualMapping], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a growing dataset: it ends with the last data (H5D_VDS_LAST_AVAILABLE) or fixed selection."""
    growing = {mapping.growing_axis for mapping in mappings if mapping.growing_axis is not None}
    grown = list(shape)
    for axis in growing:
        if axis >= len(shape):
            raise SelectionError(f"a selection on more axes than the shape {shape} has")
        ends = [piece.grows[1] for piece in pieces if piece.grows is not None and piece.grows[0] == axis]
        fixed = [_end(mapping.place, axis) for mapping in mappings if mapping.growing_axis != axis]
        grown[axis] = max([*ends, *fixed], default=0)
    return tuple(grown)


def _end(place: MappedSelection, axis: int) -> int:
    if place is None:
        return 0
    if isinstance(place, Hyperslab):
        return place.axes[axis].runs().stop
    return int(place.corners[:, 1, axis].max(initial=-1)) + 1
