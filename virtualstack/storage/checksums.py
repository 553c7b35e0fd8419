"""Bytes of whole members of a zip archive are compared with the CRC-32 that its index has of them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import StorageError
from virtualstack.location import Location, MemberChecksums
from virtualstack.storage.source import ByteRange, Bytes, Source

__all__ = ["CheckedSource"]

_NAME_LENGTH_AT, _NAME_AT = 26, 30  # bytes from the beginning of a local header


@dataclass(frozen=True, slots=True)
class CheckedSource:
    """An archive of which every range that is a whole member is checked.

    It is no `DirectSource`: bytes are checked before anyone decodes them.
    """

    source: Source
    checksums: MemberChecksums

    @property
    def location(self) -> Location:
        """The location of the archive."""
        return self.source.location

    @property
    def size(self) -> int:
        """Bytes of the archive."""
        return self.source.size

    def read(self, offset: int, length: int, /) -> bytes:
        """Read one range, or raise `StorageError`, also where it is a member and damaged."""
        data = self.source.read(offset, length)
        self._check(np.array([(offset, length)]), [data])
        return data

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges, or raise `StorageError`, also where one is a member and damaged."""
        parts = self.source.read_ranges(ranges)
        self._check(np.asarray(ranges, np.int64).reshape(-1, 2), parts)
        return parts

    def _check(self, ranges: NDArray[np.int64], parts: Sequence[Bytes]) -> None:
        members = self.checksums.members(ranges[:, 0], ranges[:, 1])
        for member, data in zip(members.tolist(), parts, strict=True):
            if member < 0:
                continue
            recorded, found = self.checksums.crcs.item(member), zlib.crc32(data)
            if recorded != found:
                url = self.location.url
                raise StorageError(
                    f"the bytes of {self._name(member)} in the archive '{url}' are damaged: their CRC-32 is "
                    f"{found:08x}, and the index of the archive has {recorded:08x}. Fetch the archive again, or pack "
                    "the store anew",
                    url=url,
                )

    def _name(self, member: int) -> str:
        """Return the name that stands in front of a member, for a message."""
        start = self.checksums.starts.item(member)
        header = self.source.read(start, _NAME_AT)
        length = int.from_bytes(header[_NAME_LENGTH_AT : _NAME_LENGTH_AT + 2], "little")
        length = min(length, self.size - start - _NAME_AT)
        return f"member {self.source.read(start + _NAME_AT, length).decode('utf-8', 'replace')!r}"
