"""Describe one array by its zarr metadata, of either version, in the terms of the data model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.errors import MalformedFileError, ManifestError, Remedy, UnsupportedFeatureError, WriterError
from virtualstack.manifests import (
    ENTRY,
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
from virtualstack.manifests.cells import along
from virtualstack.manifests.paged import PageSource
from virtualstack.printable import counted
from virtualstack.zarr.metadata.shards import Shards

_RESERVED = {2: ("", ".z"), 3: ("zarr.json", "__")}
"""A name, and the beginning of names, that each version of zarr keeps for itself."""

_MAX_ITEMSIZE = 1 << 24
_MAX_AXES = 32  # the limit of HDF5, and of numpy's broadcasting


def malformed(where: str, key: str, value: object, expected: str, /) -> MalformedFileError:
    """Return the error for metadata in which a key has a value that zarr does not allow."""
    return MalformedFileError(
        f"'{where}' has {key} {repr(value)[:200]}; expected {expected}", Remedy("write its metadata again")
    )


def check_name(name: str, key: str, zarr_format: Literal[2, 3], /) -> None:
    """Raise `WriterError` if no array or group can have a name in zarr; zarr takes a backslash for a slash."""
    reserved, beginning = _RESERVED[zarr_format]
    if name in ("", ".", "..", reserved) or "/" in name or "\\" in name or name.startswith(beginning):
        raise WriterError(
            f"'{name}' cannot be a name in zarr. Names have no '/' or '\\', and do not begin with '{beginning}'. "
            "Other reserved names are '', '.', '..' and 'zarr.json'",
            Remedy("rename it"),
            variable=key,
            feature="name",
        )


def check_itemsize(dtype: np.dtype[Any], /, *, where: str) -> None:
    """Raise an error for a dtype of very large elements, which a few bytes of metadata can declare."""
    if dtype.itemsize > _MAX_ITEMSIZE:
        raise UnsupportedFeatureError(
            f"'{where}' has values of {dtype.itemsize} bytes each; at most {_MAX_ITEMSIZE} are read",
            feature="dtype",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayMetadata:
    """An array without its chunks."""

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
        """The number of objects (chunks or shards) that chunk keys name, along each axis."""
        return self.grid.shape if self.shards is None else self.shards.shape

    @property
    def grid(self) -> ChunkGrid:
        """The grid of chunks."""
        if self.edges is None:
            return ChunkGrid.regular(self.shape, self.chunks)
        return ChunkGrid(tuple(_cut(edges, length) for edges, length in zip(self.edges, self.shape, strict=True)))

    def encodings(self) -> tuple[ChunkEncoding, ...]:
        """Return the encodings of chunks, one for each shape that a chunk may have."""
        if self.edges is None:
            return (self.encoding,)
        lengths = [np.unique(edges).tolist() for edges in self.edges]
        return tuple(
            ordered_encoding(self.encoding.dtype, chunks, self.encoding.codecs, self.order)
            for chunks in itertools.product(*lengths)
        )

    def encoding_rows(self) -> NDArray[np.int64]:
        """Return the row of the encoding of each cell of the grid."""
        shape = self.grid.shape
        rows = np.zeros((1,) * len(shape), np.int64)
        for axis, edges in enumerate(self.edges or ()):
            lengths, row = np.unique(edges, return_inverse=True)
            rows = rows * len(lengths) + along(row[: shape[axis]], axis, len(shape))
        return np.broadcast_to(rows, shape)

    def array(self, manifest: Manifest, /, *, path: str) -> ManifestArray:
        """Return the array with a manifest of its chunks."""
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
    """Return an axis of chunks; the part of chunks beyond the end of the axis is cut off."""
    ends = np.cumsum(edges)
    n = int(np.searchsorted(ends, length)) + 1 if length else 0
    lengths = edges[:n].copy()
    if n:
        lengths[-1] -= ends[n - 1] - length
    return ChunkAxis.from_lengths(lengths)


def ordered_encoding(
    dtype: np.dtype[Any], chunks: tuple[int, ...], codecs: tuple[Codec, ...], order: tuple[int, ...] | None
) -> ChunkEncoding:
    """Return the encoding of chunks that were transposed by ``order`` (axes of the array) before they were stored."""
    if order is None:
        return ChunkEncoding.c_order(dtype, chunks, codecs)
    stored = ChunkEncoding.c_order(dtype, (chunks[axis] for axis in order), codecs)
    return stored.with_strides(stored.strides[order.index(axis)] for axis in range(len(chunks)))


def read_object(value: object, key: str, where: str, /) -> Mapping[str, Any]:
    """Return an object from metadata."""
    if not isinstance(value, Mapping):
        raise malformed(where, key, value, "an object")
    return value


def read_counts(data: Mapping[str, Any], key: str, *, least: int, where: str, n: int | None = None) -> tuple[int, ...]:
    """Return a list of element counts from metadata, one for each of ``n`` axes."""
    value = data.get(key)
    if not isinstance(value, list) or not all(
        isinstance(x, int) and not isinstance(x, bool) and least <= x < 1 << 63 for x in value
    ):
        raise malformed(where, key, value, f"a list of whole numbers from {least} to 2^63")
    if len(value) > _MAX_AXES:
        raise UnsupportedFeatureError(
            f"'{where}' has {len(value)} axes; at most {_MAX_AXES} are read",
            feature="number of axes",
        )
    if n is not None and len(value) != n:
        raise malformed(where, key, value, f"as many as axes, {n}")
    return tuple(value)


def read_names(value: object, ndim: int, /, *, key: str, where: str) -> tuple[str | None, ...] | None:
    """Return names of dimensions from metadata."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != ndim or not all(isinstance(name, str | None) for name in value):
        raise malformed(where, key, value, f"{counted(ndim, 'name')}, or null")
    return tuple(value)


def paged_manifest(
    source: PageSource, metadata: ArrayMetadata, /, *, path: str, where: str, page_size: int | None = None
) -> PagedManifest:
    """Return the manifest of an array whose source has one page, or pages of a size; nothing is read."""
    shape = metadata.grid.shape
    try:
        return PagedManifest(
            source=source,
            shape=shape,
            page_size=max(math.prod(shape), 1) if page_size is None else page_size,
            tables=ChunkManifest(entries=np.zeros(0, ENTRY), fills=(metadata.fill,), encodings=metadata.encodings()),
            url=f"{where}/{path}",
        )
    except ManifestError as error:
        raise UnsupportedFeatureError(f"'{path}' of '{where}': {error}", variable=path, feature="chunk grid") from error
