"""The chunks of a zarr array, as objects of a store are found to hold them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, ReaderError
from virtualstack.formats.chunk_keys import cells_of_keys
from virtualstack.formats.metadata import ArrayMetadata
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkManifest
from virtualstack.manifests.manifest import check_count
from virtualstack.storage import Storage
from virtualstack.storage.concurrently import concurrently

__all__ = ["Members", "ObjectChunks", "Objects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """Objects below one array; columns of equal length.

    Parameters
    ----------
    keys
        Relative to the array; also of what is no chunk.
    rows
        Row of ``locations``.
    offsets, lengths
        Of the object at its location, in bytes.
    locations
        Files.
    """

    keys: Sequence[str]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    locations: Sequence[Location]


class Members(Protocol):
    """Says which objects are below one array; it pickles, and is used from many threads."""

    def find(self, metadata: ArrayMetadata, /) -> Objects:
        """Look them up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChunks:
    """The chunks of one array, in one page.

    Parameters
    ----------
    members
        Objects below the array.
    path
        Of the array.
    metadata
        Of the array.
    storage
        How shards are reached.
    where
        URL of the store.
    """

    members: Members
    path: str
    metadata: ArrayMetadata
    storage: Storage
    where: str

    def read(self, page: int, /) -> ChunkManifest:
        """Look all chunks up: those without an object are EMPTY.

        Raises
        ------
        MalformedFileError
            A shard is damaged.
        StorageError
            What there is cannot be listed or read.
        """
        where = f"{self.path}' of '{self.where}"
        metadata, n_cells = self.metadata, math.prod(self.metadata.grid.shape)
        check_count(n_cells, self.where)
        try:
            found = self.members.find(metadata)
            cells, at = _chunk_cells(found.keys, metadata, where)
            rows, offsets, lengths = found.rows[at], found.offsets[at], found.lengths[at]
            if metadata.shards is not None and at.size:
                ranges = metadata.shards.index_ranges(cells, lengths, where=where)
                ranges[:, 0] += offsets
                indexes = self._indexes(found.locations, rows, ranges)
                cells, shard, inner, lengths = metadata.shards.places(cells, lengths, indexes, where=where)
                rows, offsets = rows[shard], offsets[shard] + inner
        except ReaderError as error:
            error.url = error.url or self.where
            raise
        entries = np.zeros(n_cells, ENTRY)
        placed: NDArray[Any] = np.zeros(cells.size, ENTRY)
        placed["location"], placed["offset"], placed["length"] = rows + FIRST, offsets, lengths
        placed["encoding"] = metadata.encoding_rows().reshape(-1)[cells]
        entries[cells] = placed
        return ChunkManifest(
            entries=entries,
            fills=(metadata.fill,),
            encodings=metadata.encodings(),
            locations=tuple(found.locations),
        )

    def complete(self, entries: ChunkManifest, rows: Any, /) -> ChunkManifest:
        """Give the entries: there is nothing to add."""
        return entries

    def _indexes(
        self,
        locations: Sequence[Location],
        rows: NDArray[np.int64],
        ranges: NDArray[np.int64],
    ) -> list[bytes | memoryview]:
        """Read the indexes of shards."""
        order = np.argsort(rows, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(rows[order])) + 1)

        def read(group: NDArray[np.int64]) -> list[bytes | memoryview]:
            location = locations[int(rows[group[0]])]
            return self.storage.source(location.url, expected=location).read_ranges(ranges[group])

        indexes: list[bytes | memoryview] = [b""] * rows.size
        urls = [locations[int(rows[group[0]])].url for group in groups]
        for group, parts in zip(groups, concurrently(read, groups, urls), strict=True):
            for i, part in zip(group.tolist(), parts, strict=True):
                indexes[i] = part
        return indexes


def _chunk_cells(
    keys: Sequence[str], metadata: ArrayMetadata, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the cells that keys name, and their rows; keys that are no chunk of the grid are left out, as zarr does."""
    names = pa.array(keys, pa.large_string())
    at = np.flatnonzero(pc.match_substring_regex(names, _expression(metadata)).to_numpy(zero_copy_only=False))
    try:
        cells = cells_of_keys(names.take(pa.array(at)), "", metadata, where=where)
    except MalformedFileError:  # a number of 2^63 or more: names no chunk either
        short = [i for i in at.tolist() if max(map(len, re.findall("[0-9]+", keys[i])), default=0) < 19]
        at = np.array(short, np.int64)
        cells = cells_of_keys(names.take(pa.array(at)), "", metadata, where=where)
    inside = cells >= 0
    return cells[inside], at[inside]


def _expression(metadata: ArrayMetadata) -> str:
    number, ndim = "(0|[1-9][0-9]*)", len(metadata.shape)
    prefix, separator = re.escape(metadata.key_prefix), re.escape(metadata.separator)
    if not ndim:
        return f"^{re.escape(metadata.key_prefix.rstrip(metadata.separator) or '0')}$"
    return f"^{prefix}{separator.join([number] * ndim)}$"
