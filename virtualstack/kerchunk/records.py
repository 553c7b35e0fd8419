"""Record files of kerchunk parquet as pages of a manifest, and where references point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import (
    MalformedFileError,
    ManifestError,
    SourceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from virtualstack.kerchunk.parquet_table import check_size, read_record
from virtualstack.kerchunk.references import WHOLE, place_rows, with_sizes
from virtualstack.location import Location, join_url
from virtualstack.manifests import ENTRY, FIRST, ChunkManifest, PagedManifest
from virtualstack.storage import Bytes, Storage
from virtualstack.storage.concurrently import concurrently
from virtualstack.zarr.metadata.array import ArrayMetadata

__all__ = ["RecordFiles", "locate_reference", "measure_sources"]

_CACHES = frozenset({"simplecache", "filecache", "blockcache"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFiles:
    """The record files of one array: its pages.

    Parameters
    ----------
    url
        Of the directory of references.
    path
        Of the array in it.
    metadata
        Of the array.
    record_size
        Chunks in a file.
    base
        Folder that relative locations are taken from.
    version
        ``.zmetadata``, as it was when the references were opened.
    storage
        How files, and sources that are referred to whole, are reached.
    """

    url: str
    path: str
    metadata: ArrayMetadata
    record_size: int
    base: str
    version: Location
    storage: Storage

    def manifest(self) -> PagedManifest:
        """Give the manifest; no file is read.

        Raises
        ------
        UnsupportedFeatureError
            The grid has more chunks than can be counted.
        """
        try:
            return PagedManifest(
                source=self,
                shape=self.metadata.grid.shape,
                page_size=self.record_size,
                tables=self._empty(0),
                url=f"{self.url}/{self.path}",
            )
        except ManifestError as error:
            raise UnsupportedFeatureError(
                f"'{self.path}' of '{self.url}': {error}", variable=self.path, feature="chunk grid"
            ) from error

    def read(self, page: int, /) -> ChunkManifest:
        """Read a file; the chunks of one that is not there are EMPTY, as fsspec has it.

        Raises
        ------
        MalformedFileError
            It is no parquet of references, too short, or has a reference to no place in a file.
        UnsupportedFeatureError
            A reference to what has no byte ranges.
        SourceChangedError
            The references were written anew since they were opened: the file may be one of others.
        StorageError
            It cannot be read.
        """
        name = f"{self.path}/refs.{page}.parq" if self.path else f"refs.{page}.parq"
        url, where = f"{self.url}/{name}", f"{name}' of '{self.url}"
        n_rows = min(self.record_size, math.prod(self.metadata.grid.shape) - page * self.record_size)
        try:
            data = self._bytes(url, where)
            self._check_version()
            if data is None:
                return self._empty(n_rows)
            references = read_record(data, n_rows, self.record_size, where=where)
            locate = partial(locate_reference, self.base)
            manifest = place_rows([references], n_rows, self.metadata, locate=locate, where=where)
            self.storage.check([location.url for location in manifest.locations])
            return manifest
        except MalformedFileError as error:
            error.url = error.url or url
            raise
        except UnsupportedFeatureError as error:
            raise UnsupportedFeatureError(
                f"'{where}': {error}", url=url, variable=self.path, feature=error.feature
            ) from error

    def _bytes(self, url: str, where: str) -> Bytes | None:
        try:
            source = self.storage.source(url)
            check_size(source.size, where)
            return source.read(0, source.size)
        except SourceNotFoundError:
            return None

    def _empty(self, n_rows: int) -> ChunkManifest:
        entries = np.broadcast_to(np.zeros((), ENTRY), n_rows)  # metadata can promise any number of them
        return ChunkManifest(entries=entries, fills=(self.metadata.fill,), encodings=(self.metadata.encoding,))

    def _check_version(self) -> None:
        """Read a byte of ``.zmetadata``, which is written last: its storage sees whether it is the one that was."""
        self.storage.source(self.version.url, expected=self.version).read(0, 1)

    def complete(self, entries: ChunkManifest, rows: NDArray[np.int64], /) -> ChunkManifest:
        """Give whole files the sizes of their sources.

        Raises
        ------
        StorageError
            A source cannot be had.
        """
        try:
            return with_sizes(entries, partial(measure_sources, self.storage))
        except StorageError as error:
            of_source = [code for code, x in enumerate(entries.locations, FIRST) if x.url == error.url]
            wanted = rows[(entries.entries["length"] == WHOLE) & np.isin(entries.entries["location"], of_source)]
            if not wanted.size:
                raise
            cell = np.unravel_index(int(wanted[0]), self.metadata.grid.shape)
            raise error.of_chunk(self.path, tuple(map(int, cell)), offset=0, length=None) from error


def locate_reference(base: str, url: str, /) -> Location:
    """Make a location out of a URL as it stands in references; one that is relative is taken from ``base``.

    Raises
    ------
    UnsupportedFeatureError
        It is that of a member of an archive.
    """
    return Location(join_url(base, _without_caches(url)))


def measure_sources(storage: Storage, locations: Sequence[Location], /) -> list[Location]:
    """Give locations their sizes: one request for each, side by side where they are remote.

    Raises
    ------
    StorageError
        A source cannot be had.
    """
    urls = [location.url for location in locations]
    return [source.location for source in concurrently(storage.source, urls, urls)]


def _without_caches(url: str) -> str:
    *outer, inner = url.split("::")
    if all(name in _CACHES for name in outer):
        return inner
    if "://" not in outer[0] and "/" in outer[0]:
        return url  # a file name that happens to have '::'
    raise UnsupportedFeatureError(
        f"'{url}' is reached through '{outer[0]}', which has no byte ranges of its own: unpack it",
        url=url,
        feature=outer[0],
    )
