"""Kerchunk references, JSON or parquet, become groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import pyarrow as pa

from virtualstack.errors import MalformedFileError, ReaderError, SourceNotFoundError
from virtualstack.formats.base import ReadOptions, check_references, permitted
from virtualstack.kerchunk.parquet_table import ParquetTable
from virtualstack.kerchunk.records import RecordFiles, locate_reference, measure_sources
from virtualstack.kerchunk.references import References, build_manifest
from virtualstack.kerchunk.table import ReferenceTable
from virtualstack.kerchunk.text import load_json, split_text
from virtualstack.location import Location, absolute_url
from virtualstack.manifests import Manifest, ManifestGroup, Refusal
from virtualstack.storage import Source, Storage
from virtualstack.zarr.metadata.array import ArrayMetadata
from virtualstack.zarr.metadata.hierarchy import array_paths, build_group
from virtualstack.zarr.metadata.json_text import parse_json

__all__ = ["Kerchunk", "read_references"]

_PARQUET = ".parq", ".parquet"
_PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}
_MAX_TEXT_BYTES = 1 << 33
_MIN_UNPACKED = 1 << 26
"""Bytes that compressed references of any size may have, once unpacked."""
_MAX_RATIO = 1000
"""Bytes that larger ones may have, for each byte that is stored; honest references have about 100 at most."""
_PIECE_BYTES = 1 << 22
_LONG_TEXT = 1 << 16  # bytes, as stored; below, the JSON library alone is quicker
_DEFAULTS = ReadOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kerchunk:
    """Reads kerchunk references of version 0 and 1: JSON, also compressed with zstd or gzip, or a parquet directory.

    Locations that are relative are taken from the folder that holds the references.

    Parameters
    ----------
    masks_fill_value
        Whether the ``fill_value`` of zarr v2 metadata also is the attribute ``_FillValue``, so that equal values are
        missing: xarray reads it so. Turn it off for references whose ``fill_value`` is a mere default, such as 0.
    """

    name: ClassVar[str] = "kerchunk"

    masks_fill_value: bool = True

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Read references; the sources are not touched, but for the sizes of those that are referred to whole.

        Of parquet references ``.zmetadata`` alone is read: record files are when chunks in them are asked for.

        Raises
        ------
        MalformedFileError
            They are no kerchunk references, or contradict themselves.
        StorageError
            They cannot be had.
        """
        url = url.rstrip("/")
        try:
            return self._read(url, storage, options)
        except ReaderError as error:
            error.url = error.url or url  # parts of the references do not know where they stand
            raise

    def _read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        base = url.rpartition("/")[0] + "/"
        zmetadata = None if ".json" in url.rpartition("/")[2] else _directory(url, storage)
        if zmetadata is None:
            source = storage.source(url)
            return self._from_table(_parse(source), base, storage, options, url)
        table = ParquetTable.of(zmetadata.read(0, zmetadata.size), where=url)
        # without what is kept for this one reading
        lasting = Storage(storage.given, storage.remembered, permissions=storage.permissions)

        def read(path: str, metadata: ArrayMetadata) -> tuple[Manifest, int]:
            records = RecordFiles(
                url=url,
                path=path,
                metadata=metadata,
                record_size=table.record_size,
                base=base,
                version=zmetadata.location,
                storage=lasting,
            )
            return records.manifest(), 0

        return build_group(
            table.metadata,
            read,
            where=url,
            url=url,
            wanted=options.wants,
            masks_fill_value=self.masks_fill_value,
        )

    def read_references(
        self, references: Mapping[str, Any], /, *, base_url: str | None = None, storage: Storage, options: ReadOptions
    ) -> ManifestGroup:
        """Read a set of references that is in memory; see :func:`read_references`."""
        base = absolute_url("." if base_url is None else base_url)
        table = ReferenceTable.of(references, where="references")
        return self._from_table(table, f"{base}/", storage, options, None)

    def _from_table(
        self, table: ReferenceTable, base: str, storage: Storage, options: ReadOptions, url: str | None
    ) -> ManifestGroup:
        metadata = table.metadata()
        if not metadata:
            raise MalformedFileError(
                f"'{table.where}' holds no zarr metadata ('.zgroup', '.zarray' or 'zarr.json'): it is no set of "
                "kerchunk references",
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
                Refusal(path=f"/{folder}", reason=f"{n} references belong to no array", kind="noted")
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
    """Read a set of references that is in memory, as :meth:`xarray.Dataset.virtual.to_kerchunk` gives it.

    Parameters
    ----------
    references
        Version 0 or 1; not changed.
    base_url
        Folder that relative locations are taken from; by default the working directory, as fsspec has it.
    storage
        As in :meth:`~virtualstack.storage.Storage.of`; asked only for the sizes of sources that are referred to whole.
    options
        Group and variables that are wanted.

    Raises
    ------
    MalformedFileError
        They are no kerchunk references, or contradict themselves.
    ForbiddenLocationError
        ``base_url`` is not local, and they refer to what may not be read.
    """
    base = absolute_url("." if base_url is None else base_url)
    reached = permitted(Storage.of(storage), f"{base}/", options.allow)
    group = Kerchunk().read_references(references, base_url=base, storage=reached, options=options)
    check_references(group, reached)
    return group


def _directory(url: str, storage: Storage) -> Source | None:
    """Give ``.zmetadata`` of a parquet directory; ``None`` where there is none, and the name does not ask for one."""
    try:
        return storage.source(f"{url}/.zmetadata")
    except SourceNotFoundError:
        if url.endswith(_PARQUET):
            raise
        return None


def _parse(source: Source) -> ReferenceTable:
    url = source.location.url
    parts = split_text(_pieces(source)) if source.size >= _LONG_TEXT else None
    if parts is not None:
        references, plain = parts
        return ReferenceTable.of(references, plain=plain, where=url)
    data = b"".join(_pieces(source))
    try:
        references = load_json(data)
    except ValueError:
        references = parse_json(data, where=url)  # with NaN; or it says why not
    return ReferenceTable.of(references, where=url)


def _pieces(source: Source) -> Iterator[bytes]:
    """Read text piece after piece, and unpack it where it is packed."""
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
    """Decompress, piece after piece: the library would make room for the most that there may be at once."""
    most = left = min(_MAX_TEXT_BYTES, max(_MIN_UNPACKED, _MAX_RATIO * len(data)))
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(data), packing)
        while left and (
            piece := stream.read_buffer(min(_PIECE_BYTES, left)).to_pybytes()
        ):  # read() leaks what it cannot fill
            yield piece
            left -= len(piece)
    except OSError as error:
        raise MalformedFileError(
            f"'{url}' is damaged {packing}: {error}; write the references anew", url=url
        ) from error
    if not left:
        raise MalformedFileError(
            f"'{url}' has {len(data)} bytes and holds more than {most} bytes of references, which is more than is "
            "unpacked. Unpack it, or write the references as parquet",
            url=url,
        )
