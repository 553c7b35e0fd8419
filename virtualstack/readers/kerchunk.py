"""Kerchunk references, JSON or parquet, become groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson
import pyarrow as pa

from virtualstack.errors import MalformedFileError, ReaderError, SourceNotFoundError, UnsupportedFeatureError
from virtualstack.formats.hierarchy import array_paths, build_group
from virtualstack.formats.parquet_table import ParquetTable
from virtualstack.formats.reference_table import ReferenceTable, parse_json
from virtualstack.location import Location, absolute_url, join_url
from virtualstack.manifests import ManifestGroup, Refusal
from virtualstack.readers.base import ReadOptions
from virtualstack.storage import Storage

__all__ = ["Kerchunk", "read_references"]

_PARQUET = ".parq", ".parquet"
_ZSTD = b"\x28\xb5\x2f\xfd"
_MAX_TEXT = 1 << 33
_CACHES = frozenset({"simplecache", "filecache", "blockcache"})
_DEFAULTS = ReadOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kerchunk:
    """Reads kerchunk references of version 0 and 1: a JSON file, also compressed with zstd, or a parquet directory.

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
        locate = _locator(url.rpartition("/")[0] + "/", storage)
        zmetadata = None if ".json" in url.rpartition("/")[2] else _directory(url, storage)
        if zmetadata is None:
            source = storage.source(url)
            data = _parse(source.read(0, source.size), url)
            return self._from_table(ReferenceTable.of(data, where=url), locate, options, url)
        table = ParquetTable.of(zmetadata, _fetcher(url, storage), where=url)
        return build_group(
            table.metadata,
            table.read,
            locate=locate,
            where=url,
            url=url,
            wanted=_filter(options),
            masks_fill_value=self.masks_fill_value,
        )

    def read_references(
        self, references: Mapping[str, Any], /, *, base_url: str | None = None, storage: Storage, options: ReadOptions
    ) -> ManifestGroup:
        """Read a set of references that is in memory; see :func:`read_references`."""
        base = absolute_url("." if base_url is None else base_url)
        table = ReferenceTable.of(references, where="references")
        return self._from_table(table, _locator(f"{base}/", storage), options, None)

    def _from_table(
        self, table: ReferenceTable, locate: Callable[[str, bool], Location], options: ReadOptions, url: str | None
    ) -> ManifestGroup:
        metadata = table.metadata()
        if not metadata:
            raise MalformedFileError(
                f"'{table.where}' holds no zarr metadata ('.zgroup', '.zarray' or 'zarr.json'): it is no set of "
                "kerchunk references",
                url=url,
            )
        strays = table.strays(array_paths(metadata))
        return build_group(
            metadata,
            table.read,
            locate=locate,
            where=table.where,
            url=url,
            wanted=_filter(options),
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
    """
    return Kerchunk().read_references(references, base_url=base_url, storage=Storage.of(storage), options=options)


def _directory(url: str, storage: Storage) -> bytes | None:
    """Give ``.zmetadata`` of a parquet directory; ``None`` where there is none, and the name does not ask for one."""
    try:
        source = storage.source(f"{url}/.zmetadata")
        return source.read(0, source.size)
    except SourceNotFoundError:
        if url.endswith(_PARQUET):
            raise
        return None


def _fetcher(url: str, storage: Storage) -> Callable[[list[str]], Iterable[bytes | None]]:
    def fetch_one(key: str) -> bytes | None:
        try:
            source = storage.source(f"{url}/{key}")
        except SourceNotFoundError:
            return None
        return source.read(0, source.size)

    def fetch(keys: list[str]) -> Iterable[bytes | None]:
        if len(keys) < 2:
            return map(fetch_one, keys)
        with ThreadPoolExecutor(min(len(keys), 8)) as pool:
            return list(pool.map(fetch_one, keys))

    return fetch


def _parse(data: bytes, url: str) -> Any:
    if data.startswith(_ZSTD):
        try:
            data = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(_MAX_TEXT)
        except OSError as error:
            raise MalformedFileError(f"'{url}' is damaged zstd: {error}; write the references anew", url=url) from error
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return parse_json(data, where=url)  # NaN, which orjson refuses; or the reason


def _filter(options: ReadOptions) -> Callable[[str], bool]:
    prefix = f"{options.group.strip('/')}/" if options.group and options.group.strip("/") else ""

    def wanted(path: str) -> bool:
        names = {path, f"/{path}", path.rpartition("/")[2]}
        return path.startswith(prefix) and not names & options.drop_variables

    return wanted


def _locator(base: str, storage: Storage) -> Callable[[str, bool], Location]:
    """Make locations out of URLs as they stand in references; each once."""
    known: dict[tuple[str, bool], Location] = {}

    def locate(url: str, needs_size: bool) -> Location:
        location = known.get((url, needs_size))
        if location is None:
            absolute = join_url(base, _without_caches(url))
            location = storage.source(absolute).location if needs_size else Location(absolute)
            known[url, needs_size] = location
        return location

    return locate


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
