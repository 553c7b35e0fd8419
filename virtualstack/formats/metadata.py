"""What zarr metadata says of one array, of either version, in the words of the data model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from virtualstack.codecs.metadata import Codec
from virtualstack.errors import MalformedFileError
from virtualstack.manifests import ChunkEncoding, ChunkGrid, Fill, Manifest, ManifestArray, value_changing

__all__ = ["ArrayMetadata", "lengths_of", "ordered_encoding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayMetadata:
    """An array without its chunks.

    Parameters
    ----------
    shape, chunks
        In elements.
    encoding
        Of every chunk.
    fill
        What absent chunks read as.
    dimension_names
        One an axis, or ``None`` where the metadata has none.
    attributes
        Without those that hold dimension names.
    key_prefix, separator
        Chunk keys are the prefix, then the indexes in the grid joined by the separator.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    encoding: ChunkEncoding
    fill: Fill
    dimension_names: tuple[str, ...] | None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    key_prefix: str = ""
    separator: str = "."

    @property
    def grid(self) -> ChunkGrid:
        """Lines between chunks."""
        return ChunkGrid.regular(self.shape, self.chunks)

    def array(self, manifest: Manifest, /, *, path: str) -> ManifestArray:
        """Put the chunks in."""
        names = self.dimension_names
        leaf = path.rpartition("/")[2]
        return ManifestArray(
            manifest=manifest,
            grid=self.grid,
            dtype=self.fill.dtype,
            name=path,
            dimension_names=tuple(f"{leaf}_dim_{i}" for i in range(len(self.shape))) if names is None else names,
            attributes=self.attributes,
            cf=value_changing(self.attributes),
        )


def ordered_encoding(
    dtype: np.dtype[Any], chunks: tuple[int, ...], codecs: tuple[Codec, ...], order: tuple[int, ...] | None
) -> ChunkEncoding:
    """Give the encoding of chunks that were transposed by ``order`` (axes of the array) before they were stored."""
    if order is None:
        return ChunkEncoding.of(dtype, chunks, codecs)
    stored = ChunkEncoding.of(dtype, (chunks[axis] for axis in order), codecs)
    return stored.with_strides(stored.strides[order.index(axis)] for axis in range(len(chunks)))


def lengths_of(data: Mapping[str, Any], key: str, *, least: int, where: str) -> tuple[int, ...]:
    """Give a list of element counts out of metadata.

    Raises
    ------
    MalformedFileError
        It is no list of whole numbers from ``least`` up to 2^63.
    """
    value = data.get(key)
    if not isinstance(value, list) or not all(
        isinstance(n, int) and not isinstance(n, bool) and least <= n < 1 << 63 for n in value
    ):
        raise MalformedFileError(f"'{where}' has {key} {value!r}; a list of whole numbers from {least} is asked for")
    return tuple(value)
