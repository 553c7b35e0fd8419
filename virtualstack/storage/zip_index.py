"""Read the index of a zip archive, which lists its members."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, Remedy
from virtualstack.location import Location
from virtualstack.storage.file import SourceFile
from virtualstack.storage.source import ByteRange, Bytes, Source

IS_ENCRYPTED = 0x1
"""Flag of a member that needs a password."""
LOCAL_HEADER_BYTES = 30
"""Bytes of a local header in front of name and extra field."""
MAX_INDEX_BYTES = 1 << 28
"""Maximum bytes of an index; about a million members."""

_TAIL_BYTES = 256 * 1024  # bytes at the end that are read with one request: the index of a few thousand members
_MAGIC = b"PK\x03\x04"
_END_RECORD_BYTES = 22  # bytes of the last record, in front of the comment
_END_MAGIC = b"PK\x05\x06"
_SEE_ZIP64 = 0xFFFF


def read_zip_index(source: Source, /) -> zipfile.ZipFile:
    """Return the archive as zipfile opens it, with a checked index.

    Raises
    ------
    MalformedFileError
        The source is not a zip archive, or its index contradicts itself.
    """
    url = source.location.url
    try:
        tail = _WithTail(source)
        archive = zipfile.ZipFile(SourceFile(tail, block_size=0))
    except MalformedFileError:
        raise
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise MalformedFileError(f"'{url}' is not a zip archive: {error}", Remedy("fetch it again"), url=url) from error
    listed = archive.infolist()
    if any(max(x.header_offset, x.compress_size) > source.size or x.header_offset < 0 for x in listed):
        raise MalformedFileError(
            f"'{url}' is damaged: its index lists members past its end", Remedy("fetch it again"), url=url
        )
    if (promised := _count(archive, tail)) not in (None, len(listed)):
        raise MalformedFileError(
            f"'{url}' is damaged: its index lists {len(listed)} members, but its last record says {promised}. "
            "Fetch it again",
            url=url,
        )
    return archive


def _count(archive: zipfile.ZipFile, tail: _WithTail) -> int | None:
    """Return the number of members in the end record, or ``None`` if it is missing or cannot hold the number.

    zipfile does not compare the number: a wrong length in the index may hide all members after it.
    """
    length = _END_RECORD_BYTES + len(archive.comment)
    record = tail.read(tail.size - length, length)
    count = int.from_bytes(record[10:12], "little")
    return count if record.startswith(_END_MAGIC) and count != _SEE_ZIP64 else None


def member_starts(source: Source, headers: NDArray[np.int64], names: Sequence[str], /) -> NDArray[np.int64]:
    """Read the local headers at some offsets, and return where the bytes of the members begin."""
    starts = headers.copy()
    ranges = np.stack([headers, np.full(headers.size, LOCAL_HEADER_BYTES)], 1)
    for i, header in enumerate(source.read_ranges(ranges)):
        if bytes(header[:4]) != _MAGIC:
            url = source.location.url
            raise MalformedFileError(
                f"'{url}' is damaged: it has no member '{names[i]}' where its index says",
                Remedy("fetch it again"),
                url=url,
            )
        name, extra = np.frombuffer(header, "<u2", 2, 26).tolist()
        starts[i] += LOCAL_HEADER_BYTES + name + extra
    return starts


class _WithTail:
    """A source whose last bytes are in memory."""

    def __init__(self, source: Source) -> None:
        self.location: Location = source.location
        self.size = source.size
        self._source = source
        self._start = max(0, source.size - _TAIL_BYTES)
        self._tail = source.read(self._start, source.size - self._start)

    def read(self, offset: int, length: int, /) -> bytes:
        if length > MAX_INDEX_BYTES:  # a sparse file can have any number of bytes
            url = self.location.url
            raise MalformedFileError(
                f"'{url}' has an index of {length} bytes; at most {MAX_INDEX_BYTES} are read. Pack its arrays into "
                "several archives, or unpack it",
                url=url,
            )
        at = offset - self._start
        return self._tail[at : at + length] if at >= 0 else self._source.read(offset, length)

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        return [self.read(int(offset), int(length)) for offset, length in ranges]
