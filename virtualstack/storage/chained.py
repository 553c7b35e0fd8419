"""Open members of zip and tar archives: ``zip://day.nc::s3://bucket/days.zip``."""

from __future__ import annotations

import bz2
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import Remedy, SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage.file import SourceFile
from virtualstack.storage.memory import MemorySource
from virtualstack.storage.source import ByteRange, Bytes, ManyRangesSource, Source, check_ranges, check_version
from virtualstack.storage.zip_index import IS_ENCRYPTED, member_starts, read_zip_index

_MAX_MEMBER_BYTES = 64 << 20
_MAX_TAR_BYTES = 256 << 20
_SHOWN_NAMES = 5
_PACKINGS: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\0", lzma.LZMADecompressor),
)


@dataclass(frozen=True, slots=True)
class MemberSource(ManyRangesSource):
    """A member that is stored without compression, and so is a byte range of its archive."""

    archive: Source
    offset: int
    location: Location

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges of the member in the order given."""
        table = check_ranges(ranges, url=self.location.url, size=self.size).copy()
        table[:, 0] += self.offset
        return self.archive.read_ranges(table)

    def in_file(self) -> tuple[Location, int]:
        """Return the location of the outermost file, and the byte of it where the member begins.

        An archive that is itself a compressed member is not a file; its location then is a chained URL.
        """
        if isinstance(self.archive, MemberSource):
            location, offset = self.archive.in_file()
            return location, offset + self.offset
        return self.archive.location, self.offset


def open_member(url: str, open_source: Callable[[str], Source], expected: Location | None, /) -> Source:
    """Open a member of an archive; a small compressed member is read into memory."""
    scheme, _, rest = url.partition("://")
    name, _, outer = rest.partition("::")
    archive = open_source(outer)
    name = name.strip("/")
    try:
        found = _in_zip(archive, name, url) if scheme == "zip" else _in_tar(archive, name, url)
    except StorageError:
        raise
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError) as error:
        raise StorageError(
            f"'{url}': '{outer}' is damaged, or is not a {scheme} archive: {error}. Fetch it again, or use the "
            "scheme of its kind of archive",
            url=url,
        ) from error
    except (RuntimeError, NotImplementedError) as error:  # of zipfile, for methods that Python does not have
        raise StorageError(
            f"'{url}' cannot be unpacked: {error}", Remedy("unpack the archive first"), url=url
        ) from error
    check_version(expected, found.location, found.read)
    return found


def _in_zip(archive: Source, name: str, url: str) -> Source:
    with read_zip_index(archive) as index:
        try:
            member = index.getinfo(name)
        except KeyError:
            raise _missing(url, name, [x.filename for x in index.infolist() if not x.is_dir()]) from None
        if member.flag_bits & IS_ENCRYPTED:
            raise StorageError(f"'{url}' is encrypted", Remedy("unpack the archive first"), url=url)
        if member.compress_type != zipfile.ZIP_STORED:
            _check_small(member.file_size, url)
            with index.open(member) as file:
                return _whole(file.read(_MAX_MEMBER_BYTES + 1), url)
        (begin,) = member_starts(archive, np.array([member.header_offset], np.int64), [name]).tolist()
        return _stored(archive, begin, member.file_size, url)


def _in_tar(archive: Source, name: str, url: str) -> Source:
    head = archive.read(0, min(archive.size, 8))
    packing = next((make for magic, make in _PACKINGS if head.startswith(magic)), None)
    file: io.RawIOBase | io.BytesIO = SourceFile(archive) if packing is None else _unpacked_tar(archive, packing, url)
    with tarfile.open(fileobj=file, mode="r:") as index:
        names: list[str] = []
        for member in index:
            names.append(member.name)
            if member.name.removeprefix("./").strip("/") != name or not member.isreg():
                continue
            if member.issparse():
                raise StorageError(
                    f"'{url}' is stored as a sparse file, which is not read",
                    Remedy("unpack the archive first"),
                    url=url,
                )
            if packing is None:
                return _stored(archive, member.offset_data, member.size, url)
            _check_small(member.size, url)
            file.seek(member.offset_data)
            return _whole(file.read(member.size), url)
    raise _missing(url, name, names)


def _unpacked_tar(archive: Source, make: Callable[[], Any], url: str) -> io.BytesIO:
    if archive.size <= _MAX_MEMBER_BYTES:
        data = make().decompress(archive.read(0, archive.size), _MAX_TAR_BYTES + 1)
        if len(data) <= _MAX_TAR_BYTES:
            return io.BytesIO(data)
    raise StorageError(
        f"'{url}' is in a compressed tar archive, which has no byte ranges. It has more than "
        f"{_MAX_MEMBER_BYTES >> 20} MiB, or {_MAX_TAR_BYTES >> 20} MiB after unpacking",
        Remedy("unpack it first"),
        url=url,
    )


def _stored(archive: Source, begin: int, size: int, url: str) -> MemberSource:
    check_ranges([(begin, size)], url=archive.location.url, size=archive.size)
    outer = archive.location
    return MemberSource(archive, begin, Location(url, size, outer.etag, outer.last_modified))


def _whole(data: bytes, url: str) -> MemorySource:
    _check_small(len(data), url)
    return MemorySource(data, url)


def _check_small(size: int, url: str) -> None:
    if size > _MAX_MEMBER_BYTES:
        raise StorageError(
            f"'{url}' is compressed, so it has no byte ranges. Its {size} bytes are more than the "
            f"{_MAX_MEMBER_BYTES >> 20} MiB that are read into memory. Unpack it first, or pack it without "
            "compression",
            url=url,
        )


def _missing(url: str, name: str, names: Sequence[str]) -> SourceNotFoundError:
    shown = ", ".join(f"'{x}'" for x in names[:_SHOWN_NAMES])
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return SourceNotFoundError(f"'{url}': the archive has no member '{name}'; it has {shown}{more}", url=url)
