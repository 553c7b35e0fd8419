"""The short way to values in a single cell: no tables, no threads."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.pipeline import CodecError
from virtualstack.codecs.shards import with_fill
from virtualstack.errors import StorageError, UnsupportedFeatureError
from virtualstack.manifests import FIRST, INLINE, ChunkAxis, ChunkEncoding, ChunkManifest, ManifestArray
from virtualstack.reading.decoding import find_decoding, strided
from virtualstack.reading.plan import DAMAGED, undecodable
from virtualstack.storage import Storage

__all__ = ["read_cell"]

_MOST = 1 << 20
"""Bytes of uncompressed values that are fetched so; of more than that, a plan may find that few are needed."""


def read_cell(array: ManifestArray, items: list[Any], storage: Storage, /) -> NDArray[Any] | None:
    """Read a selection of integers and slices that lies in one stored chunk.

    Parameters
    ----------
    array
        Any virtual array.
    items
        One for each axis.
    storage
        How sources are reached.

    Returns
    -------
    numpy.ndarray or None
        New, with an axis for each axis of the array. ``None`` where the selection is empty, has other keys, lies in
        several cells or in a hole, or the manifest is wrong: planning says what.

    Raises
    ------
    StorageError
        The bytes cannot be had, or do not decode (`ChunkDecodeError`). Planning would ask for them once more.
    """
    ranges = list(_ranges(array.shape, items))
    if len(ranges) != len(items):
        return None
    cells, first = [], []
    for axis, picked in zip(array.grid.axes, ranges, strict=True):
        found = _find_cell(axis, picked)
        if found is None:
            return None
        cells.append(found[0])
        first.append(picked[0] - found[1])
    manifest, at = array.manifest, tuple(cells)
    if not isinstance(manifest, ChunkManifest):
        manifest, at = manifest.read(tuple([slice(i, i + 1) for i in cells])), (0,) * len(cells)
    code, row, offset, length = manifest.entries[at].item()
    if code < INLINE or not row < len(manifest.encodings):
        return None
    encoding = manifest.encodings[row]
    base = int(manifest.starts[at]) if manifest.starts is not None else 0
    base += sum(map(operator.mul, first, encoding.strides))
    shape = tuple(map(len, ranges))
    strides = [picked.step * step for picked, step in zip(ranges, encoding.strides, strict=True)]
    return _values(array, manifest, encoding, (cells, code, offset, length), (base, shape, strides), storage)


def _ranges(shape: tuple[int, ...], items: list[Any]) -> Iterator[range]:
    """Give the elements that keys pick, up to the first key that is no integer in bounds and no slice of some."""
    for n, item in zip(shape, items, strict=True):
        if isinstance(item, slice):
            picked = range(n)[item]
            if not picked:
                return
            # the step of a single element may be longer than can be counted
            yield picked if len(picked) > 1 else range(picked[0], picked[0] + 1)
        elif isinstance(item, int | np.integer) and not isinstance(item, bool) and -n <= item < n:
            at = int(item) % n
            yield range(at, at + 1)
        else:
            return


def _find_cell(axis: ChunkAxis, picked: range) -> tuple[int, int] | None:
    """Return the one cell that some elements lie in, and where it begins."""
    low, high = (picked[0], picked[-1]) if picked.step > 0 else (picked[-1], picked[0])
    met = axis.cover(low, high + 1)
    return (met.start, axis.span(met.start).start) if len(met) == 1 else None


def _values(
    array: ManifestArray,
    manifest: ChunkManifest,
    encoding: ChunkEncoding,
    stored: tuple[list[int], int, int, int],
    view: tuple[int, tuple[int, ...], list[int]],
    storage: Storage,
) -> NDArray[Any] | None:
    (cells, code, offset, length), (base, shape, strides) = stored, view
    extents = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    low, high = base + sum(x for x in extents if x < 0), base + sum(x for x in extents if x > 0)
    size = encoding.size
    if low < 0 or high >= size:
        return None
    try:
        codecs = with_fill(encoding.codecs, (x.raw for x in manifest.fills))
        decoding = find_decoding(encoding.dtype, encoding.shape, codecs)
        if decoding.is_raw:
            itemsize = decoding.itemsize
            if length != size * itemsize:
                return None
            if code == INLINE or manifest.locations[code - FIRST].checksums is None:
                offset, length, base = offset + low * itemsize, (high - low + 1) * itemsize, base - low
            if length > _MOST:
                return None
        if code == INLINE:
            raw: Any = memoryview(manifest.inline)[offset : offset + length]
        else:
            raw = storage.read(offset, length, expected=manifest.locations[code - FIRST])
        values = decoding.elementwise(strided(decoding.numbers(raw), base, shape, strides))
    except (UnsupportedFeatureError, MemoryError):
        return None
    except CodecError as error:
        where = manifest.locations, code, offset, length
        raise undecodable(array.name, tuple(cells), where, f"{error}. {error.remedy or DAMAGED}") from error
    except StorageError as error:
        raise error.of_chunk(array.name, tuple(cells), offset=offset, length=length) from error
    out = np.ndarray(shape, array.dtype)
    out[...] = values
    return out
