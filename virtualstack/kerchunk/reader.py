"""Reading of kerchunk references, JSON or parquet, as groups.

Record files of parquet become pages of a manifest; a page is read on demand.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from virtualstack.errors import (
    MalformedFileError,
    Remedy,
    SourceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from virtualstack.formats.base import ReadOptions, check_references, permitted
from virtualstack.kerchunk.parquet_table import check_size, parse_zmetadata, read_record
from virtualstack.kerchunk.references import (
    FOLDER_SUFFIXES,
    WHOLE,
    References,
    build_manifest,
    is_one_file,
    place_rows,
    with_sizes,
)
from virtualstack.kerchunk.table import ReferenceTable
from virtualstack.kerchunk.text import load_json, split_text
from virtualstack.location import BYTES, Location, absolute_url, join_url
from virtualstack.manifests import ENTRY, FIRST, ChunkManifest, Manifest, ManifestGroup, Refusal
from virtualstack.printable import counted
from virtualstack.storage import Bytes, Source, Storage
from virtualstack.storage.threads import concurrently
from virtualstack.zarr.metadata.array import ArrayMetadata, paged_manifest
from virtualstack.zarr.metadata.attributes import parse_json
from virtualstack.zarr.metadata.hierarchy import array_paths, build_group

_CACHES = frozenset({"simplecache", "filecache", "blockcache"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFiles:
    """The record files of one array, which are the pages of its manifest."""

    url: str
    path: str
    metadata: ArrayMetadata
    record_size: int
    base: str
    version: Location
    storage: Storage

    def read(self, page: int, /) -> ChunkManifest:
        """Read a record file; the chunks of a missing file are EMPTY, as in fsspec."""
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
        entries = np.broadcast_to(np.zeros((), ENTRY), n_rows)  # metadata can declare any number of rows
        return ChunkManifest(entries=entries, fills=(self.metadata.fill,), encodings=(self.metadata.encoding,))

    def _check_version(self) -> None:
        """Read a byte of ``.zmetadata``, which is written last: the storage checks that its version is the same."""
        self.storage.source(self.version.url, expected=self.version).read(0, 1)

    def complete(self, entries: ChunkManifest, rows: NDArray[np.int64], /) -> ChunkManifest:
        """Return the entries with the sizes of sources that are referred to as a whole."""
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
    """Return the location of a URL in references; a relative URL refers to the folder ``base``.

    If ``base`` is a protocol, such as ``"s3://"``, the URL lacks only the protocol: it begins with its bucket or host.
    """
    url = _without_caches(url)
    if base.endswith("://") and "://" not in url:
        return Location(absolute_url(base + url.lstrip("/")))
    return Location(join_url(base, url))


def measure_sources(storage: Storage, locations: Sequence[Location], /) -> list[Location]:
    """Return locations with their sizes: one request for each, in several threads if they are remote."""
    urls = [location.url for location in locations]
    return [source.location for source in concurrently(storage.source, urls, urls)]


def _without_caches(url: str) -> str:
    *outer, inner = url.split("::")
    if all(name in _CACHES for name in outer):
        return inner
    if "[" in outer[0] or ("://" not in outer[0] and "/" in outer[0]):
        return url  # the address of an IPv6 host, or a file name that happens to have '::'
    raise UnsupportedFeatureError(
        f"'{url}' is reached through '{outer[0]}', where byte ranges are not those of the file itself: unpack the "
        "file first",
        url=url,
        feature=outer[0],
    )


_PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
_PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}
_MAX_TEXT_BYTES = 1 << 33
_FREE_UNPACKED_BYTES = 1 << 26
"""Unpacked bytes that are accepted for compressed references of any size."""
_MAX_RATIO = 250
"""Unpacked bytes that are accepted for each stored byte of larger references.

References have 10 to 70, and up to 200 if URLs have 700 characters and all chunks one length.
"""
_PIECE_BYTES = 1 << 22
_MIN_SPLIT_BYTES = 1 << 16  # bytes, as stored; below, the JSON library alone is quicker
_DEFAULTS = ReadOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kerchunk:
    """Reader of kerchunk references of version 0 and 1: JSON, or a parquet directory.

    JSON may be compressed with zstd or gzip. Relative locations refer to the folder that holds the references.

    When to use: this reader is chosen automatically. Pass it to change an option.

    Parameters
    ----------
    masks_fill_value
        If true, ``fill_value`` of zarr v2 metadata is treated as ``_FillValue``: values that are equal to it are
        missing, as in xarray. Set it to false for references whose ``fill_value`` is a mere default, such as 0.
    remote_protocol
        Protocol of locations that have none, as in fsspec: with ``"s3"``, ``bucket/a.nc`` is ``s3://bucket/a.nc``. With
        ``"file"``, locations refer to the working directory.
    base_url
        Folder to which relative locations refer, instead of the folder that holds the references. The references may
        name everything in it.

    Raises
    ------
    ValueError
        ``remote_protocol`` is not a protocol, or ``base_url`` is given too.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"t": ("x", [1.0, 2.0])}).virtual.to_kerchunk("refs.json")
    >>> vds = vs.open_virtual_dataset("refs.json", reader=vs.readers.Kerchunk(masks_fill_value=False))
    >>> dict(vds.sizes)
    {'x': 2}
    """

    name: ClassVar[str] = "kerchunk"

    masks_fill_value: bool = True
    remote_protocol: str | None = None
    base_url: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.remote_protocol is None:
            return
        if not _PROTOCOL.fullmatch(self.remote_protocol):
            raise ValueError(f"remote_protocol={self.remote_protocol!r} is not a protocol. Pass one such as 's3'")
        if self.base_url is not None:
            raise ValueError(
                f"remote_protocol={self.remote_protocol!r} and base_url={os.fspath(self.base_url)!r} both define the "
                "folder of relative locations: pass only one of them"
            )

    @property
    def places(self) -> tuple[str, ...]:
        """The URL of ``base_url``, if it was given. References may name it, because the user has named it."""
        return () if self.base_url is None else (absolute_url(self.base_url),)

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return references as a group of virtual arrays.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.
        Only the sizes of sources are requested, and only if a reference means a whole source.

        For parquet references, only ``.zmetadata`` is read; record files are read when their chunks are needed.

        Raises
        ------
        MalformedFileError
            The file has no kerchunk references, or they contradict themselves.
        StorageError
            The references cannot be read.
        """
        url = url.rstrip("/")
        base = self._base(absolute_url(".") if url.startswith(BYTES) else url.rpartition("/")[0])
        zmetadata = None if is_one_file(url) else _directory(url, storage)
        if zmetadata is None:
            source = storage.source(url)
            return self._from_table(_parse(source), base, storage, options, url)
        metadata, record_size = parse_zmetadata(zmetadata.read(0, zmetadata.size), where=url)
        # a storage without the caches of this one read
        lasting = Storage(storage.given, storage.carried, permissions=storage.permissions, named=storage.named)

        def read(path: str, described: ArrayMetadata) -> tuple[Manifest, int]:
            records = RecordFiles(
                url=url,
                path=path,
                metadata=described,
                record_size=record_size,
                base=base,
                version=zmetadata.location,
                storage=lasting,
            )
            return paged_manifest(records, described, path=path, where=url, page_size=record_size), 0

        return build_group(
            metadata,
            read,
            where=url,
            url=url,
            wanted=options.wants,
            masks_fill_value=self.masks_fill_value,
        )

    def read_references(
        self, references: Mapping[str, Any], /, *, base_url: str | None = None, storage: Storage, options: ReadOptions
    ) -> ManifestGroup:
        """Read a set of references in memory; see :func:`read_references`."""
        base = self._base(absolute_url("." if base_url is None else base_url))
        table = ReferenceTable.from_references(references, where="references")
        return self._from_table(table, base, storage, options, None)

    def _base(self, folder: str) -> str:
        """Return where relative locations refer to: a folder with its slash, or a protocol."""
        if self.base_url is not None:
            folder = absolute_url(self.base_url)
        elif self.remote_protocol in ("file", "local"):
            folder = absolute_url(".")
        elif self.remote_protocol is not None:
            return f"{self.remote_protocol}://"
        return f"{folder.rstrip('/')}/"

    def _from_table(
        self, table: ReferenceTable, base: str, storage: Storage, options: ReadOptions, url: str | None
    ) -> ManifestGroup:
        metadata = table.metadata()
        if not metadata:
            raise MalformedFileError(
                f"'{table.where}' holds no zarr metadata ('.zgroup', '.zarray' or 'zarr.json'): it is not a set of "
                "kerchunk references",
                Remedy("check the URL"),
                url=url,
            )
        strays = table.strays(array_paths(metadata))

        @cache  # arrays have many URLs in common
        def locate(url: str) -> Location:
            return locate_reference(base, table.render(url))

        def read(path: str, described: ArrayMetadata) -> tuple[Manifest, int]:
            n_outside = 0

            def parts() -> Iterator[References]:
                nonlocal n_outside
                for part in table.read(path, described, once=True):
                    n_outside += part.n_outside
                    yield part

            at = f"{path}' of '{table.where}"
            measure = partial(measure_sources, storage)
            return build_manifest(parts(), described, locate=locate, measure=measure, where=at), n_outside

        return build_group(
            metadata,
            read,
            where=table.where,
            url=url,
            wanted=options.wants,
            masks_fill_value=self.masks_fill_value,
            refusals=[
                Refusal(path=f"/{folder}", reason=f"{counted(n, 'reference')} outside of all arrays", kind="noted")
                for folder, n in strays.items()
            ],
        )


def read_references(
    references: Mapping[str, Any],
    /,
    *,
    base_url: str | None = None,
    storage: object = None,
    options: ReadOptions = _DEFAULTS,
) -> ManifestGroup:
    """Read a set of references in memory, as :meth:`xarray.Dataset.virtual.to_kerchunk` returns it."""
    base = absolute_url("." if base_url is None else base_url)
    reached = permitted(Storage.from_option(storage), f"{base.rstrip('/')}/references-in-memory", options.allow)
    group = Kerchunk().read_references(references, base_url=base, storage=reached, options=options)
    check_references(group, reached)
    return group.with_access(reached.access(f"{base}/"))


def _directory(url: str, storage: Storage) -> Source | None:
    """Return ``.zmetadata`` of a parquet directory; ``None`` if it is absent and the name has no parquet suffix."""
    found = storage.existing(f"{url}/.zmetadata")
    return storage.source(f"{url}/.zmetadata") if found is None and url.endswith(FOLDER_SUFFIXES) else found


def _parse(source: Source) -> ReferenceTable:
    url = source.location.url
    parts = split_text(_pieces(source)) if source.size >= _MIN_SPLIT_BYTES else None
    if parts is not None:
        references, plain = parts
        return ReferenceTable.from_references(references, plain=plain, where=url)
    data = b"".join(_pieces(source))
    try:
        references = load_json(data)
    except ValueError:
        references = parse_json(data, where=url)  # allows NaN, and explains errors
    return ReferenceTable.from_references(references, where=url)


def _pieces(source: Source) -> Iterator[bytes]:
    """Yield the text of references piece by piece, decompressed if it is compressed."""
    first = source.read(0, min(_PIECE_BYTES, source.size))
    packing = next((x for start, x in _PACKED.items() if first.startswith(start)), None)
    if packing is None:
        yield first
        for at in range(len(first), source.size, _PIECE_BYTES):
            yield source.read(at, min(_PIECE_BYTES, source.size - at))
    else:
        packed = first if len(first) == source.size else source.read(0, source.size)
        yield from _unpacked(packed, packing, source.location.url)


def _unpacked(data: bytes, packing: str, url: str) -> Iterator[bytes]:
    """Decompress data piece by piece: pyarrow would otherwise allocate the largest possible size at once."""
    most = left = min(_MAX_TEXT_BYTES, max(_FREE_UNPACKED_BYTES, _MAX_RATIO * len(data)))
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(data), packing)
        while left and (
            piece := stream.read_buffer(min(_PIECE_BYTES, left)).to_pybytes()
        ):  # read() leaks the part of its buffer that it cannot fill
            yield piece
            left -= len(piece)
    except OSError as error:
        raise MalformedFileError(
            f"'{url}' cannot be decompressed ({packing}): {error}", Remedy("write the references again"), url=url
        ) from error
    if not left:
        raise MalformedFileError(
            f"'{url}' has {len(data)} bytes but decompresses to more than {most} bytes, which is the most that is "
            "read. Decompress it yourself, or write the references as parquet",
            url=url,
        )
