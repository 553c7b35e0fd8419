"""Choose the reader of a source: the table of formats, and detection by first bytes, child keys and suffix."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import cast

from virtualstack.errors import (
    AccessDeniedError,
    MalformedFileError,
    MissingDependencyError,
    ReaderError,
    Remedy,
    SourceNotFoundError,
    StorageError,
    UnknownFormatError,
    UnsupportedFeatureError,
)
from virtualstack.formats.base import Reader
from virtualstack.location import absolute_url, is_http, is_remote, local_path
from virtualstack.printable import did_you_mean, printable
from virtualstack.storage import Source, Storage
from virtualstack.storage.folders import files_below
from virtualstack.storage.source import DirectoryError
from virtualstack.warning import warn


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A row of the table of formats; the entry point of a plugin in the group ``virtualstack.readers`` loads one.

    When to use: a package that has a reader of its own makes one, so that files are recognised and ``reader="name"``
    works.

    Parameters
    ----------
    name
        Name of the reader, for ``reader=``.
    title
        Name of the format in messages, such as ``"HDF5 / netCDF-4"``.
    target
        Class of the reader, as ``"module:Class"``; ``None`` for a format that is recognised but not read.
    magic
        Pairs of a signature and the offsets, in bytes, at which it may be.
    children
        Pairs of a file's name in a directory, and bytes that the file must contain.
    suffixes
        Suffixes with their dot, in lower case.
    extra
        Optional dependency group of virtualstack for ``pip install``, if the reader or some codecs need one.
    modules
        Modules of the extra without which the reader can read nothing.

    Examples
    --------
    >>> import virtualstack as vs
    >>> row = vs.readers.Format(name="raw", title="raw numbers", target="my_package:RawNumbers", suffixes=(".bin",))
    >>> row.name, row.suffixes
    ('raw', ('.bin',))
    """

    name: str
    title: str
    target: str | None
    magic: tuple[tuple[bytes, tuple[int, ...]], ...] = ()
    children: tuple[tuple[str, bytes], ...] = ()
    suffixes: tuple[str, ...] = ()
    extra: str | None = None
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            texts = [self.name, self.title, *self.suffixes, *(key for key, _ in self.children)]
            is_sound = (
                all(isinstance(x, str) and x for x in texts)
                and isinstance(self.suffixes, tuple)
                and all(isinstance(x, bytes) for _, x in self.children)
                and all(isinstance(x, bytes) and x and min(offsets) >= 0 for x, offsets in self.magic)
                and (self.target is None or self.target.count(":") == 1)
            )
        except (AttributeError, TypeError, ValueError):  # of fields with unexpected nesting
            is_sound = False
        if not is_sound:
            raise TypeError(f"{self} has a field of another type than the documentation of Format says")


# HDF5 spec II.A: the superblock begins at 0, 512, and each next power of two
_HDF5_OFFSETS = (0, *(512 << n for n in range(12)))

_ZSTD, _GZIP, _BZIP2 = b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"BZh"

BUILT_IN = (
    Format(
        name="hdf5",
        title="HDF5 / netCDF-4",
        target="virtualstack.formats.hdf5.reader:HDF5",
        magic=((b"\x89HDF\r\n\x1a\n", _HDF5_OFFSETS),),
        suffixes=(".nc", ".nc4", ".h5", ".hdf5", ".he5", ".hdf", ".cdf"),
    ),
    Format(
        name="kerchunk",
        title="kerchunk references",
        target="virtualstack.kerchunk.reader:Kerchunk",
        magic=((b"{", (0,)),),
        children=((".zmetadata", b'"record_size"'),),
        suffixes=(".json", ".json.zst", ".json.gz", ".parq", ".parquet"),
    ),
    Format(
        name="netcdf3",
        title="netCDF-3",
        target="virtualstack.formats.netcdf3.reader:NetCDF3",
        magic=((b"CDF\x01", (0,)), (b"CDF\x02", (0,)), (b"CDF\x05", (0,))),
        suffixes=(".nc", ".nc3", ".cdf"),
    ),
    Format(
        name="grib",
        title="GRIB",
        target="virtualstack.formats.grib.reader:GRIB",
        magic=((b"GRIB", tuple(range(256))),),  # bulletins have a heading in front
        suffixes=tuple(
            f".{name}{packing}"
            for name in ("grib", "grib2", "grb", "grb2", "grib1", "grb1")
            for packing in ("", ".gz", ".bz2")
        ),
        extra="grib",
        modules=("cfgrib", "eccodes"),
    ),
    Format(
        name="tiff",
        title="TIFF",
        target="virtualstack.formats.tiff.reader:TIFF",
        magic=tuple((order, (0,)) for order in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
        suffixes=(".tif", ".tiff"),
        extra="tiff",
    ),
    Format(
        name="vstack",
        title="vstack",
        target="virtualstack.vstack.reader:VStack",
        children=((".vstack/zarr.json", b'"virtualstack"'),),
        suffixes=(".vstack",),
    ),
    Format(
        name="icechunk",
        title="Icechunk",
        target="virtualstack.icechunk.reader:Icechunk",
        children=(("repo", "ICE\N{ICE CUBE}CHUNK".encode()), ("refs/branch.main/ref.json", b'"snapshot"')),
        suffixes=(".icechunk",),
        extra="icechunk",
        modules=("icechunk",),
    ),
    Format(
        name="zarr",
        title="zarr",
        target="virtualstack.zarr.reader:Zarr",
        children=(("zarr.json", b""), (".zmetadata", b""), (".zgroup", b""), (".zarray", b"")),
        suffixes=(".zarr",),
    ),
    Format(
        name="hdf4",
        title="HDF4 / HDF-EOS2",
        target="virtualstack.formats.hdf4.reader:HDF4",
        magic=((b"\x0e\x03\x13\x01", (0,)),),
        suffixes=(".hdf", ".hdf4", ".he4"),
    ),
    Format(
        name="fits",
        title="FITS",
        target="virtualstack.formats.fits.reader:FITS",
        magic=((b"SIMPLE  =", (0,)),),
        suffixes=(".fits", ".fit", ".fts"),
        extra="fits",
        modules=("astropy",),
    ),
    Format(
        name="numpy",
        title="NumPy arrays",
        target="virtualstack.formats.npy.reader:NumPy",
        magic=((b"\x93NUMPY", (0,)), (b".npy", tuple(range(31, 286)))),  # the name of the first member of an archive
        suffixes=(".npy", ".npz"),
    ),
    Format(
        name="zarr_zip",
        title="zarr in a zip archive",
        target="virtualstack.zarr.reader:Zarr",
        magic=((b"PK\x03\x04", (0,)), (b"PK\x05\x06", (0,))),
        suffixes=(".zarr.zip", ".zip"),
    ),
    Format(
        name="dmrpp",
        title="DMR++",
        target="virtualstack.formats.dmrpp.reader:DMRPP",
        magic=((b"xmlns:dmrpp=", tuple(range(1024))),),  # in the first element, after comments
        suffixes=(".dmrpp",),
    ),
    Format(
        name="packed",
        title="gzip or bzip2",
        target="virtualstack.formats.packed.reader:Packed",
        magic=((_GZIP, (0,)), (_BZIP2, (0,))),
        suffixes=(".nc.gz", ".nc.bz2"),
    ),
)

_ANY_ZARR = ".zarr"

_HEAD_BYTES = 4096
_PACKED = (_ZSTD, ".zst"), (_GZIP, ".gz"), (_BZIP2, ".bz2")
_LISTED = Remedy("see all readers with", "vs.list_readers()")

_HINTS = (
    (b"\xfd7zXZ\0", "it is compressed with xz: unpack it first"),
    (_ZSTD, "it is compressed with zstd: unpack it first"),
    (b"PAR1", "it is one parquet file; kerchunk references in parquet are a directory"),
    (b"version https://git-lfs", "it is a Git LFS pointer, not the file: run 'git lfs pull'"),
)
_HTML = (b"<!doctype html", b"<html", b"<?xml")


class FormatList(tuple[Format, ...]):
    """Formats as a tuple, which a terminal and a notebook show as a table of names, suffixes and extras."""

    __slots__ = ()

    def __repr__(self) -> str:
        rows = [("name", "format", "suffixes", "extra"), *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ("  ".join(x.ljust(n) for x, n in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows)
        return printable("\n".join(lines))

    def _rows(self) -> list[tuple[str, str, str, str]]:
        suffixes = (
            ", ".join(row.suffixes[:_MAX_SUFFIXES]) + " ..." * (len(row.suffixes) > _MAX_SUFFIXES) for row in self
        )
        return [(row.name, row.title, names, row.extra or "") for row, names in zip(self, suffixes, strict=True)]


_MAX_SUFFIXES = 5


def list_readers() -> FormatList:
    """Return the known formats, first the built-in ones, then those of plugins; ``reader=`` takes the ``name`` of each.

    The result is a tuple of :class:`~virtualstack.readers.Format`. It is shown as a table.

    Examples
    --------
    >>> import virtualstack as vs
    >>> [row.name for row in vs.list_readers() if ".nc" in row.suffixes]
    ['hdf5', 'netcdf3']
    """
    return FormatList(_formats())


def _formats() -> Iterator[Format]:
    """Plugins come last: looking for them reads the metadata of every installed package."""
    yield from BUILT_IN
    yield from _plugins()


@functools.cache
def _plugins() -> tuple[Format, ...]:
    found: list[Format] = []
    for entry in importlib.metadata.entry_points(group="virtualstack.readers"):
        try:
            row = entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken plugin leaves all other formats as they are
            warn(f"the reader plugin '{entry.name}' cannot be loaded: {type(error).__name__}: {error}")
            continue
        if not isinstance(row, Format):
            warn(
                f"the reader plugin '{entry.name}' gives a {type(row).__name__}, which is not a Format: it is left out"
            )
        elif row.name in {x.name for x in (*BUILT_IN, *found)}:
            warn(f"the reader plugin '{entry.name}' has the name of another reader, '{row.name}': it is left out")
        else:
            found.append(row)
    return tuple(found)


def find_reader(url: str | os.PathLike[str], storage: Storage, reader: str | Reader | None = None, /) -> Reader:
    """Return the reader for a source: the given one, or detected by first bytes, by child keys, then by suffix.

    At most 4 KiB are read if the format has its signature at the start.

    Parameters
    ----------
    url
        URL or local path.
    storage
        Storage that opens the URL.
    reader
        Name of a reader, or a reader; the source is then not read.

    Raises
    ------
    UnknownFormatError
        No reader knows the bytes or the name; the message lists what was tried.
    UnsupportedFeatureError
        The format is known, but virtualstack has no reader for it.
    MalformedFileError
        The source is empty, or does not match its suffix.
    MissingDependencyError
        The reader needs an optional dependency.
    ReaderError
        The reader of a plugin cannot be imported or created.
    StorageError
        The bytes could not be read.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> from virtualstack.storage import Storage
    >>> xr.Dataset({"rain": ("time", [1.0])}).to_netcdf("day.nc", engine="netcdf4")
    >>> vs.readers.find_reader("day.nc", Storage.from_option(None)).name
    'hdf5'
    """
    if isinstance(reader, str):
        return load_reader(_named(reader))
    if reader is not None and not callable(getattr(reader, "read", None)):
        raise TypeError(f"reader={reader!r:.1000} is neither the name of a reader nor an object with a method read()")
    if reader is not None:
        return reader
    url = absolute_url(url)
    row = _by_suffix_of_folder(url)
    if row is not None:
        return load_reader(row, url=url)
    try:
        source = _open_file(url, storage)
    except (SourceNotFoundError, AccessDeniedError):  # object stores have no directories
        found = _by_children(url, storage, _possible_stores(url)) if local_path(url) is None else None
        if found is None:
            raise
    else:
        found = _of_directory(url, storage) if source is None else _by_magic(source) or _by_suffix(source)
    return load_reader(found, url=url)


def load_reader(row: Format, /, *, url: str | None = None) -> Reader:
    """Import a reader, with the default options of its format."""
    what = f"'{url}' is {row.title}" if url else row.title
    if row.target is None:
        raise UnsupportedFeatureError(
            f"{what}, which virtualstack cannot read yet",
            _LISTED,
            url=url,
            feature=row.name,
        )
    if row.extra is not None and not all(map(importlib.util.find_spec, row.modules)):
        raise MissingDependencyError(f"reading {row.title}", extra=row.extra, url=url)
    module, _, name = row.target.partition(":")
    try:
        reader = getattr(importlib.import_module(module), name)()
        if not callable(getattr(reader, "read", None)):
            raise TypeError(f"a {type(reader).__name__} has no method read()")
    except Exception as error:  # the module of a plugin may raise any error
        if row.extra is not None and isinstance(error, ModuleNotFoundError):
            raise MissingDependencyError(f"reading {row.title}", extra=row.extra, url=url) from error
        raise ReaderError(
            f"{what}, whose reader '{row.target}' cannot be loaded: {type(error).__name__}: {error}. Repair or remove "
            "its package",
            Remedy("name another reader with", reader=...),
            url=url,
        ) from error
    return cast(Reader, reader)


def _named(name: str) -> Format:
    for row in list_readers():
        if row.name == name:
            return row
    meant = did_you_mean(name, [row.name for row in list_readers()])
    raise UnknownFormatError(f"there is no reader '{name}'.{meant}", _LISTED)


def _open_file(url: str, storage: Storage) -> Source | None:
    """Open the source; return ``None`` if the URL is a directory."""
    path = local_path(url)
    if url.endswith("/") or (path is not None and os.path.isdir(path)):
        return None
    try:
        return storage.source(url)
    except DirectoryError:
        return None


def _by_suffix_of_folder(url: str) -> Format | None:
    """Return the format of a suffix that only folders have, without a request, so that opening takes few requests."""
    name = url.rstrip("/").rpartition("/")[2].lower()
    if name.endswith(_ANY_ZARR) and not is_remote(url):
        return None  # other zarr formats use this suffix as well, and looking at the folder is cheap
    return next((row for row in BUILT_IN if not row.magic and name.endswith(row.suffixes)), None)


def _possible_stores(url: str) -> Sequence[Format]:
    """Return the formats of stores that a URL without a file may have: on a web server, those with its suffix."""
    rows, name = list_readers(), url.partition("?")[0].lower()
    named = [row for row in rows if name.endswith(row.suffixes)] if is_http(url) else []
    return named or rows


def _by_children(url: str, storage: Storage, rows: Sequence[Format]) -> Format | None:
    first = _first_key(url, storage)
    if first is None:
        return None
    children: dict[str, Source | None] = {key: None for row in rows for key, _ in row.children if key < first}
    for row in rows:
        for key, needed in row.children:
            if key not in children:
                children[key] = storage.existing(f"{url.rstrip('/')}/{key}")
            child = children[key]
            if child is not None and (not needed or needed in child.read(0, child.size)):
                return row
    return None


def _first_key(url: str, storage: Storage) -> str | None:
    """Return the first key below a URL in a bucket, or ``None`` if there is none; ``""`` where one request cannot tell.

    Keys in front of it do not exist, so nobody has to ask for them.
    """
    if is_remote(url):
        from virtualstack.storage.remote import RemoteTarget

        with contextlib.suppress(StorageError):
            target = storage.target(f"{url.rstrip('/')}/")
            if isinstance(target, RemoteTarget) and target.is_listed:
                return target.first()
    return ""


def _of_directory(url: str, storage: Storage) -> Format:
    if found := _by_children(url, storage, list_readers()):
        return found
    with contextlib.suppress(SourceNotFoundError):
        storage.source(f"{url.rstrip('/')}/zarr.json")  # raises an error if access is denied
    raise UnknownFormatError(
        f"'{url}' is a directory, and not a store of a known format",
        Remedy(f"name its files, such as '{url.rstrip('/')}/{_pattern_of(url, storage)}'"),
        Remedy("name the reader with", reader=...),
        _LISTED,
        url=url,
    )


def _pattern_of(url: str, storage: Storage) -> str:
    """Return a pattern for the files in a folder, or below it as in ``2020/01/31``, from the first of them."""
    path = local_path(url)
    if path is None:
        first = _first_key(url, storage) or ""
    else:
        first = next((name for name, _ in files_below(str(path)) if not name.startswith(".") and "/." not in name), "")
    return f"{'**/' if '/' in first else ''}*{PurePosixPath(first).suffix or '.nc'}"


def _by_magic(source: Source) -> Format | None:
    url, size = source.location.url, source.size
    path = url.partition("?")[0].lower()
    if not size:
        raise MalformedFileError(
            f"'{url}' is empty (0 bytes): its download or writing failed", Remedy("fetch it again"), url=url, offset=0
        )
    head = source.read(0, min(size, _HEAD_BYTES))
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for row in _formats():
        for magic, offsets in row.magic:
            if any(head.startswith(magic, at) for at in offsets if at < len(head)):
                return row
            if magic == b"{" and text.startswith(magic):
                return row
            if any(head.startswith(x) and path.endswith(row.suffixes) and path.endswith(y) for x, y in _PACKED):
                return row
    _refuse_known(head, text, url)
    return _by_far_magic(source)


def _by_far_magic(source: Source) -> Format | None:
    """Search for signatures after the first 4 KiB, with one request for all of them."""
    spots = [
        (row, magic, at)
        for row in list_readers()
        for magic, offsets in row.magic
        for at in offsets
        if _HEAD_BYTES - len(magic) < at <= source.size - len(magic)
    ]
    if spots:
        found = source.read_ranges([(at, len(magic)) for _, magic, at in spots])
        for (row, magic, _), data in zip(spots, found, strict=True):
            if bytes(data) == magic:
                return row
    return None


def _refuse_known(head: bytes, text: bytes, url: str) -> None:
    hint = next((hint for magic, hint in _HINTS if head.startswith(magic)), None)
    if text[:64].lower().startswith(_HTML):
        folder = Remedy("end the URL of a zarr group or a folder with '/'")
        advice = [Remedy("check the URL and credentials"), *([] if url.endswith("/") else [folder])]
        raise UnknownFormatError(f"'{url}' is a web page, not a data file", *advice, url=url)
    if hint is not None:
        raise UnknownFormatError(f"'{url}' is not a data file: {hint}", url=url)


def _by_suffix(source: Source) -> Format:
    url = source.location.url
    name = url.rpartition("/")[2].partition("?")[0].lower()
    rows = [row for row in list_readers() if name.endswith(row.suffixes)] if name else []
    head = source.read(0, min(source.size, 16))
    for row in rows:
        if not row.magic:
            return row
    if rows:
        raise MalformedFileError(
            f"'{url}' is named like {' or '.join(row.title for row in rows)}, but begins with the bytes "
            f"{head.hex(' ')}: it is damaged or another kind of file",
            Remedy("fetch it again"),
            Remedy("name the reader with", reader=...),
            url=url,
            offset=0,
        )
    raise UnknownFormatError(
        f"'{url}' has no known format, by its first bytes {head.hex(' ')} and its suffix "
        f"'{PurePosixPath(name).suffix}'",
        _LISTED,
        Remedy("if it is one of them, name the reader with", reader=...),
        url=url,
    )
