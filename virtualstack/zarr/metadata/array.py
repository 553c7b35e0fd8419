"""What zarr metadata says of one array, of either version, in the words of the data model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.errors import MalformedFileError, ManifestError, UnsupportedFeatureError
from virtualstack.manifests import (
    ChunkAxis,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    Manifest,
    ManifestArray,
    PagedManifest,
    value_changing,
)
from virtualstack.manifests.paged import PageSource
from virtualstack.zarr.metadata.shards import Shards

__all__ = ["ArrayMetadata", "check_itemsize", "one_page", "ordered_encoding", "read_counts"]

_MAX_ITEMSIZE = 1 << 24
_MAX_AXES = 32  # those of HDF5, and that numpy broadcasts


def check_itemsize(dtype: np.dtype[Any], /, *, where: str) -> None:
    """Refuse a dtype of large values: of each array there is at least one, and a few bytes say how large it is.

    Raises
    ------
    UnsupportedFeatureError
        It has more than 16 MiB.
    """
    if dtype.itemsize > _MAX_ITEMSIZE:
        raise UnsupportedFeatureError(
            f"'{where}' has a dtype of {dtype.itemsize} bytes a value; at most {_MAX_ITEMSIZE} are read",
            feature="dtype",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayMetadata:
    """An array without its chunks.

    Parameters
    ----------
    shape, chunks
        In elements; of chunks that are not all equal, the longest along each axis.
    encoding
        Of every chunk, or of one that is as long as the longest along each axis.
    fill
        What absent chunks read as.
    dimension_names
        One an axis, ``None`` of an axis without one; or ``None`` where the metadata has none.
    attributes
        Without those that hold dimension names.
    key_prefix, separator
        Chunk keys are the prefix, then the indexes in the grid joined by the separator.
    edges
        For each axis, where chunks are not all equal: their lengths as they are stored, in elements; else ``None``.
    order
        Of the axes in a stored chunk, or ``None`` for C order; only given with ``edges``.
    shards
        How chunks lie in the objects that keys name, where those are shards: ``chunks`` are the ones in them.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    encoding: ChunkEncoding
    fill: Fill
    dimension_names: tuple[str | None, ...] | None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    key_prefix: str = ""
    separator: str = "."
    edges: tuple[NDArray[np.int64], ...] | None = None
    order: tuple[int, ...] | None = None
    shards: Shards | None = None

    @property
    def object_grid(self) -> tuple[int, ...]:
        """Objects along each axis, which chunk keys name: chunks, or shards."""
        return self.grid.shape if self.shards is None else self.shards.shape

    @property
    def grid(self) -> ChunkGrid:
        """Lines between chunks."""
        if self.edges is None:
            return ChunkGrid.regular(self.shape, self.chunks)
        return ChunkGrid(tuple(_cut(edges, length) for edges, length in zip(self.edges, self.shape, strict=True)))

    def encodings(self) -> tuple[ChunkEncoding, ...]:
        """Give the encodings of chunks, one for each shape that they may have."""
        if self.edges is None:
            return (self.encoding,)
        lengths = [np.unique(edges).tolist() for edges in self.edges]
        return tuple(
            ordered_encoding(self.encoding.dtype, chunks, self.encoding.codecs, self.order)
            for chunks in itertools.product(*lengths)
        )

    def encoding_rows(self) -> NDArray[np.int64]:
        """Give, for each cell of the grid, the row of its encoding."""
        shape = self.grid.shape
        rows = np.zeros((1,) * len(shape), np.int64)
        for axis, edges in enumerate(self.edges or ()):
            lengths, row = np.unique(edges, return_inverse=True)
            rows = rows * len(lengths) + row[: shape[axis]].reshape((-1,) + (1,) * (len(shape) - axis - 1))
        return np.broadcast_to(rows, shape)

    def array(self, manifest: Manifest, /, *, path: str) -> ManifestArray:
        """Put the chunks in."""
        names = self.dimension_names or (None,) * len(self.shape)
        leaf = path.rpartition("/")[2]
        return ManifestArray(
            manifest=manifest,
            grid=self.grid,
            dtype=self.fill.dtype,
            name=path,
            dimension_names=tuple(f"{leaf}_dim_{i}" if name is None else name for i, name in enumerate(names)),
            attributes=self.attributes,
            cf=value_changing(self.attributes),
        )


def _cut(edges: NDArray[np.int64], length: int) -> ChunkAxis:
    """Make an axis of chunks; what they have beyond its end is cut."""
    ends = np.cumsum(edges)
    n = int(np.searchsorted(ends, length)) + 1 if length else 0
    lengths = edges[:n].copy()
    if n:
        lengths[-1] -= ends[n - 1] - length
    return ChunkAxis.from_lengths(lengths)


def ordered_encoding(
    dtype: np.dtype[Any], chunks: tuple[int, ...], codecs: tuple[Codec, ...], order: tuple[int, ...] | None
) -> ChunkEncoding:
    """Give the encoding of chunks that were transposed by ``order`` (axes of the array) before they were stored."""
    if order is None:
        return ChunkEncoding.c_order(dtype, chunks, codecs)
    stored = ChunkEncoding.c_order(dtype, (chunks[axis] for axis in order), codecs)
    return stored.with_strides(stored.strides[order.index(axis)] for axis in range(len(chunks)))


def read_counts(data: Mapping[str, Any], key: str, *, least: int, where: str) -> tuple[int, ...]:
    """Give a list of element counts out of metadata.

    Raises
    ------
    MalformedFileError
        It is no list of whole numbers from ``least`` up to 2^63.
    UnsupportedFeatureError
        It has more than 32 of them.
    """
    value = data.get(key)
    if not isinstance(value, list) or not all(
        isinstance(n, int) and not isinstance(n, bool) and least <= n < 1 << 63 for n in value
    ):
        raise MalformedFileError(f"'{where}' has {key} {value!r}; a list of whole numbers from {least} is asked for")
    if len(value) > _MAX_AXES:
        raise UnsupportedFeatureError(
            f"'{where}' has {len(value)} axes; at most {_MAX_AXES} are read", feature="number of axes"
        )
    return tuple(value)


def one_page(source: PageSource, metadata: ArrayMetadata, /, *, path: str, where: str) -> PagedManifest:
    """Give the manifest of an array whose source has one page; nothing is read.

    Parameters
    ----------
    source
        Gives all cells, in C order.
    metadata
        Of the array.
    path
        Of the array in ``where``.
    where
        The store, for messages.

    Raises
    ------
    UnsupportedFeatureError
        The grid has more chunks than can be counted.
    """
    tables = ChunkManifest.empty((0,), metadata.fill)
    shape = metadata.grid.shape
    try:
        return PagedManifest(
            source=source,
            shape=shape,
            page_size=max(math.prod(shape), 1),
            tables=ChunkManifest(entries=tables.entries, fills=tables.fills, encodings=metadata.encodings()),
            url=f"{where}/{path}",
        )
    except ManifestError as error:
        raise UnsupportedFeatureError(f"'{path}' of '{where}': {error}", variable=path, feature="chunk grid") from error
