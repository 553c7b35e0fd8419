"""Fetched chunks to their places in the result."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.pipeline import CodecError, Elementwise, decode
from virtualstack.errors import ChunkDecodeError
from virtualstack.manifests import FIRST
from virtualstack.reading.plan import Decoding, Plan

__all__ = ["fill_holes", "place_chunk"]

_MANY_HOLES = 64
_MANY_ELEMENTS = 16  # parts of a chunk from which on those that are single elements are written together
_DAMAGED = "The source is damaged or is not the one that was indexed: restore it or scan it again"


def fill_holes(plan: Plan, out: NDArray[Any], /) -> None:
    """Write the fills of all holes; where there are many, the most frequent one goes everywhere first."""
    rows, position = plan.holes
    if not rows.size:
        return
    fills = plan.manifest.fills
    if rows.size > _MANY_HOLES:
        common = int(np.bincount(rows).argmax())
        out[...] = fills[common].value
        other = np.flatnonzero(rows != common)
        rows, position = rows[other], tuple(at[other] for at in position)
    places = [[axis.target[i] for i in at] for axis, at in zip(plan.selection.axes, position, strict=True)]
    for i, row in enumerate(rows.tolist()):
        out[_outer(tuple(place[i] for place in places))] = fills[row].value


def place_chunk(plan: Plan, chunk: int, raw: bytes | memoryview, out: NDArray[Any], /) -> None:
    """Decode one stored chunk and write all that the selection shows of it.

    Raises
    ------
    ChunkDecodeError
        The bytes do not decode.
    """
    decoding = plan.decodings[plan.chunks.decoding[chunk]]
    try:
        _place(plan, chunk, _stored_numbers(decoding, raw), decoding.elementwise, out)
    except CodecError as error:
        code = int(plan.chunks.location[chunk])
        url = plan.locations[code - FIRST].url if code >= FIRST else None
        offset, length = int(plan.chunks.offset[chunk]), int(plan.chunks.length[chunk])
        cell = plan.cell(chunk)
        raise ChunkDecodeError(
            f"cell {cell} of variable '{plan.name}', bytes {offset} to {offset + length} of "
            f"{'the manifest' if url is None else repr(url)}, does not decode: {error}. "
            f"{error.remedy or _DAMAGED}",
            variable=plan.name,
            cell=cell,
            url=url,
            offset=offset,
            length=length,
        ) from error


def _stored_numbers(decoding: Decoding, raw: bytes | memoryview) -> NDArray[Any]:
    """Decode up to the numbers that values are made of, one by one; flat."""
    stored, codecs = decoding.elementwise.stored, decoding.elementwise.codecs
    if not decoding.is_raw:
        return decode(raw, codecs, stored, decoding.shape).reshape(-1)
    if stored.kind == "b":
        return decode(raw, (), stored, (len(raw),))
    return np.frombuffer(raw, stored)


def _place(plan: Plan, chunk: int, flat: NDArray[Any], unpack: Elementwise, out: NDArray[Any]) -> None:
    """Write what is shown of a chunk; only that is unpacked, since numbers beyond the array need not mean anything."""
    parts, axes = plan.parts, plan.selection.axes
    begin, end = plan.chunks.first[chunk : chunk + 2].tolist()
    which: slice | NDArray[np.intp] = slice(begin, end)
    if axes and end - begin > _MANY_ELEMENTS:
        which = begin + _place_elements(plan, begin, end, flat, unpack, out)
    bases, strides = parts.base[which].tolist(), parts.strides[which].tolist()
    positions = zip(*(at[which].tolist() for at in parts.position), strict=True) if axes else iter([()] * len(bases))
    for base, steps, position in zip(bases, strides, positions, strict=True):
        shape = tuple(int(axis.count[at]) for axis, at in zip(axes, position, strict=True))
        view = _view(flat, base, shape, steps)
        sources = tuple(axis.source[at] for axis, at in zip(axes, position, strict=True))
        if any(source is not None for source in sources):
            view = view[_outer(tuple(slice(0, n) if x is None else x for x, n in zip(sources, shape, strict=True)))]
        out[_outer(tuple(axis.target[at] for axis, at in zip(axes, position, strict=True)))] = unpack(view)


def _place_elements(
    plan: Plan, begin: int, end: int, flat: NDArray[Any], unpack: Elementwise, out: NDArray[Any]
) -> NDArray[np.intp]:
    """Write those of some parts that are single elements, all at once; give the numbers of all others."""
    is_single = np.ones(end - begin, np.bool_)
    places = []
    for axis, position in zip(plan.selection.axes, plan.parts.position, strict=True):
        if axis.begin is None:
            return np.arange(end - begin)
        at = position[begin:end]
        is_single &= axis.count[at] == 1
        places.append(axis.begin[at])
    if is_single.any():
        out[tuple(at[is_single] for at in places)] = unpack(flat[plan.parts.base[begin:end][is_single]])
    return np.flatnonzero(~is_single)


def _view(flat: NDArray[Any], base: int, shape: tuple[int, ...], strides: list[int]) -> NDArray[Any]:
    """Give the strided view that a part shows; the plan has checked that it stays within the chunk."""
    if flat.dtype.kind == "T":  # no views of another shape of its buffer: gather
        index = np.asarray(base)
        for n, step in zip(shape, strides, strict=True):
            index = index[..., None] + np.arange(n) * step
        return np.asarray(flat[index])
    itemsize = flat.itemsize
    # `as_strided` would name the padding of compounds "f1", which members are named too
    view: NDArray[Any] = np.ndarray(shape, flat.dtype, flat, base * itemsize, [step * itemsize for step in strides])
    return view


def _outer(key: tuple[slice | NDArray[np.int64], ...]) -> tuple[Any, ...]:
    """Write slices and index arrays as a key that numpy reads as an outer product."""
    arrays = [i for i, item in enumerate(key) if not isinstance(item, slice)]
    if len(arrays) < 2:
        return key
    # Slices between arrays would move axes: make arrays of all.
    return np.ix_(*(_whole(item) for item in key))


def _whole(item: slice | NDArray[np.int64]) -> NDArray[np.int64]:
    return item if not isinstance(item, slice) else np.arange(item.start, item.stop)
