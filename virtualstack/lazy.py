"""Present virtual arrays as lazily indexed arrays with values, for xarray and dask."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Mapping
from typing import Any, Literal, Self
from zlib import Z_DEFAULT_COMPRESSION

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.coding.common import _ElementwiseFunctionArray
from xarray.coding.strings import create_vlen_dtype
from xarray.coding.variables import NativeEndiannessArray, _apply_mask, _scale_offset_decoding
from xarray.core import indexing

from virtualstack.codecs.pipeline import codec_names
from virtualstack.manifests import ChunkAxis, ManifestArray, packed_encoding
from virtualstack.options import OnAbsent
from virtualstack.reading import Steps, check_absent, read_array, read_points
from virtualstack.sizes import byte_count
from virtualstack.storage import Storage, StorageLike

_MAX_SEARCHED_CHUNKS = 1 << 16
"""Maximum number of chunks of an array whose pages of references are read to detect whether it has references."""

_STRINGS: np.dtype[Any] = create_vlen_dtype(str)  # type: ignore[no-untyped-call]


class LazyArray(BackendArray):  # type: ignore[misc, unused-ignore]
    """A virtual array whose values are read when xarray asks for them.

    Indexing reads every stored chunk of the selection once. Several threads may use the array, and it can be pickled.

    Parameters
    ----------
    array
        The virtual array.
    storage
        Access to the sources; see :meth:`~virtualstack.storage.Storage.from_option`.
    absent
        If ``"raise"``, reading an ABSENT chunk is an error; otherwise it reads as the fill value.
    steps, dtype
        Functions that the threads that decode chunks apply to values, and the dtype of what they give.
    """

    def __init__(
        self,
        array: ManifestArray,
        storage: StorageLike = None,
        *,
        absent: Literal["fill", "raise"] = "fill",
        steps: Steps = (),
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self.manifest_array = array  # xarray would use an attribute named `array` as its own
        self.storage = Storage.from_option(storage)
        check_absent(absent)
        self.absent: OnAbsent = absent
        self.steps = steps
        self._dtype = dtype or array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each axis."""
        return self.manifest_array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values; strings are objects, as xarray's netCDF backends have them."""
        return _STRINGS if self._dtype.kind == "T" else self._dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        are_points = isinstance(key, indexing.VectorizedIndexer) and not all(isinstance(x, slice) for x in key.tuple)
        read = read_points if are_points else read_array
        values = read(
            self.manifest_array, key.tuple, self.storage, absent=self.absent, steps=self.steps, dtype=self._dtype
        )
        return values.astype(self.dtype) if values.dtype.kind == "T" else values

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Read values in another thread, for ``load_async()``, so that the event loop can continue."""
        return await asyncio.to_thread(self.__getitem__, key)

    def __repr__(self) -> str:
        return f"LazyArray({self.manifest_array!r})"


def decode_by_chunks(variable: xr.Variable, /) -> None:
    """Let the threads that decode chunks mask and scale as xarray would do afterwards, with copies of the whole array.

    Variables that xarray decodes otherwise, such as times, stay as they are.
    """
    layer, steps = variable._data, list[Any]()
    while not isinstance(layer, LazyArray):
        if isinstance(layer, _ElementwiseFunctionArray) and getattr(layer.func, "func", None) in _ELEMENTWISE:
            steps.insert(0, layer.func)
        elif not isinstance(layer, indexing.LazilyIndexedArray | NativeEndiannessArray):
            return
        layer = layer.array
    if steps or variable.dtype != layer.dtype:
        decoded = LazyArray(
            layer.manifest_array, layer.storage, absent=layer.absent, steps=tuple(steps), dtype=variable.dtype
        )
        variable.data = indexing.LazilyIndexedArray(decoded)


_ELEMENTWISE = np.asarray, _apply_mask, _scale_offset_decoding


class TaskChunks(dict[str, int | tuple[int, ...]]):
    """Chunk lengths of dask tasks, as ``preferred_chunks`` in the encoding of a variable: merges of stored chunks.

    xarray calls ``get(dim, length)`` to choose chunks, and ``get(dim)`` to warn where chunks cut the preferred ones.
    Only a cut through a stored chunk is worth that warning: chunks of 10 days cut no file of one day.
    """

    def __init__(
        self, merged: Mapping[str, int | tuple[int, ...]], stored: Mapping[str, int | tuple[int, ...]]
    ) -> None:
        super().__init__(merged)
        self.stored = dict(stored)

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskChunks, (dict(self), self.stored)

    def get(self, dim: str, *length: Any) -> Any:
        """Return the length of chunks along a dimension: merged ones with a default, stored ones without."""
        return super().get(dim, *length) if length else self.stored.get(dim)

    @classmethod
    def from_array(cls, array: ManifestArray, dims: tuple[str, ...], limit: int, /) -> Self:
        """Merge stored chunks, along the last axis first, until a task decodes to about ``limit`` bytes."""
        if (dask := sys.modules.get("dask")) is not None:  # chunks="auto" would cut what is larger
            limit = min(limit, byte_count(str(dask.config.get("array.chunk-size", limit)), option="array.chunk-size"))
        is_packed = not _PACKING.isdisjoint(array.cf)
        size = (8 if is_packed else array.dtype.itemsize) * math.prod(axis.longest for axis in array.grid.axes)
        merged: dict[str, int | tuple[int, ...]] = {}
        stored: dict[str, int | tuple[int, ...]] = {}
        for dim, axis in reversed(list(zip(dims, array.grid.axes, strict=True))):
            stored[dim] = axis.chunk if axis.chunk is not None else tuple(axis.lengths().tolist())
            n = min(axis.n_cells, limit // max(size, 1))
            if n < 2:
                merged[dim] = stored[dim]
                continue
            n = -(-axis.n_cells // -(-axis.n_cells // n))  # tasks of about the same size
            size *= n
            merged[dim] = (
                min(axis.chunk * n, axis.length) if axis.chunk is not None else _merged(axis, axis.longest * n)
            )
        return cls({dim: merged[dim] for dim in dims}, {dim: stored[dim] for dim in dims})


def _merged(axis: ChunkAxis, longest: int) -> tuple[int, ...]:
    """Merge cells of different lengths to as few as possible that are not longer than ``longest``."""
    edges = axis.lines()
    ends = [0]
    while ends[-1] < axis.length:
        ends.append(int(edges[edges.searchsorted(ends[-1] + longest, "right") - 1]))
    return tuple(np.diff(ends).tolist())


_PACKING = frozenset({"scale_factor", "add_offset"})


def lazy_variable(
    array: ManifestArray,
    storage: StorageLike = None,
    *,
    absent: Literal["fill", "raise"] = "fill",
    task_bytes: int | str = "64 MiB",
) -> xr.Variable:
    """Return a variable with lazily indexed raw values; no values are read."""
    lazy = LazyArray(array, storage, absent=absent)
    dims = array.dimension_names or tuple(f"dim_{i}" for i in range(array.ndim))
    return xr.Variable(
        dims,
        indexing.LazilyIndexedArray(lazy),
        attrs={**array.attributes, **array.cf},
        encoding=_encoding(array, lazy.dtype, dims, byte_count(task_bytes, option="task_bytes")),
        fastpath=True,
    )


def _encoding(array: ManifestArray, dtype: np.dtype[Any], dims: tuple[str, ...], task_bytes: int) -> dict[str, Any]:
    encoding: dict[str, Any] = {"dtype": dtype, "original_shape": array.shape, **packed_encoding(array)}
    axes = array.grid.axes
    encoding["preferred_chunks"] = TaskChunks.from_array(array, dims, task_bytes)
    if array.grid.is_regular:
        encoding["chunks"] = tuple(axis.chunk for axis in axes)
    tables = array.manifest.tables
    if array.dtype.kind == "T" and _is_at_hand(array):
        encoding["dtype"] = str  # as in xarray's netCDF backends; xarray makes fixed-width text of values in memory
    if array.dtype.kind == "S" and "_Encoding" in array.cf:
        encoding["dtype"] = np.dtype("S1")  # of strings that are stored as characters, as xarray has it
    if dtype.kind not in "VO":
        encoding["fill_value"] = tables.fill.value
    if len(urls := {location.url for location in tables.locations}) == 1:
        encoding["source"] = urls.pop()
    return encoding | _netcdf_storage(array)


def _netcdf_storage(array: ManifestArray) -> dict[str, Any]:
    """Return chunk sizes and filters in the words of xarray's netCDF backends.

    Chunks of one element are left out: they are records of netCDF-3, not a choice of chunks. Filters that some netCDF
    library lacks are left out, so that every engine can write the array. Chunks may have different filters: those that
    any of them has are kept.
    """
    chunk = tuple(axis.chunk for axis in array.grid.axes if axis.chunk is not None)
    codecs = {codec for encoding in array.manifest.tables.encodings for codec in encoding.codecs}
    filters = {*codec_names(tuple(codecs))} - {"packed"}
    storage: dict[str, Any] = {}
    if array.grid.is_regular and math.prod(chunk) > 1:
        is_contiguous = not filters and math.prod(array.grid.shape) == 1
        storage |= {"contiguous": is_contiguous, "chunksizes": None if is_contiguous else chunk}
    if (storage or filters) and filters <= _NETCDF_FILTERS:
        levels = [x.options().get("level", 1) for x in codecs if x.name == "numcodecs.zlib"]
        level = max((6 if x == Z_DEFAULT_COMPRESSION else x for x in levels), default=0)  # which zlib calls -1
        storage |= {name: name in filters for name in _NETCDF_FILTERS} | {"complevel": level}
    return storage


_NETCDF_FILTERS = frozenset({"zlib", "shuffle", "fletcher32"})


def _is_at_hand(array: ManifestArray) -> bool:
    """Return whether all values are in the manifest; pages of small manifests are read to detect it."""
    count = array.manifest.summary()
    if count is None and math.prod(array.grid.shape) <= _MAX_SEARCHED_CHUNKS:
        count = array.in_memory().summary()
    return count is not None and not count.n_references
