"""Walking through a file from message to message, by headers alone; what lies between them is junk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from virtualstack.location import is_remote
from virtualstack.readers.grib.messages import MAGIC, Field, MessageError, fields_of, message_length
from virtualstack.storage import Source

__all__ = ["Damage", "Walk"]

_LOCAL, _REMOTE = 1 << 12, 1 << 10
_MOST_AHEAD = 1 << 14
_SHARE = 24  # one byte is read ahead for so many of the message before
_JUNK = 1 << 16  # bytes that are searched at once for the next message


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that begin like a message and are none.

    Parameters
    ----------
    offset
        Of ``GRIB``, in bytes.
    reason
        What contradicts what.
    """

    offset: int
    reason: str


class _Window:
    """Reads a source in blocks, of which one is kept."""

    def __init__(self, source: Source, block: int) -> None:
        self._source = source
        self.block = block
        self._begin, self._data = 0, b""

    def read(self, offset: int, length: int, /) -> bytes:
        begin = offset - self._begin
        if begin < 0 or begin + length > len(self._data):
            n = min(max(length, self.block), self._source.size - offset)
            if n <= 0:
                return b""
            self._begin, self._data, begin = offset, self._source.read(offset, n), 0
        return self._data[begin : begin + length]


@dataclass(slots=True)
class Walk:
    """What a file has: iterate to walk through it.

    Parameters
    ----------
    source
        The file.
    n_junk
        Bytes that belong to no message, so far.
    damages
        Messages that are damaged, so far; their bytes are junk.
    """

    source: Source
    n_junk: int = 0
    damages: list[Damage] = field(default_factory=list)

    def __iter__(self) -> Iterator[Field]:
        """Give all fields in the order of the file; data are not read, junk is."""
        is_far = is_remote(self.source.location.url)
        window = _Window(self.source, _REMOTE if is_far else _LOCAL)
        at, size = 0, self.source.size
        while at < size:
            head = window.read(at, 16)
            if message_length(head) is None:
                found = self._next(window, at + 1)
                self.n_junk += found - at
                at = found
                continue
            try:
                length, fields = fields_of(window.read, at, size, head)
            except MessageError as error:
                self.damages.append(Damage(at, str(error)))
                found = self._next(window, at + 4)
                self.n_junk += found - at
                at = found
                continue
            yield from fields
            at += length
            if is_far:
                window.block = min(max(_REMOTE, length // _SHARE), _MOST_AHEAD)

    def _next(self, window: _Window, at: int) -> int:
        """Find where the next message may begin; the end of the file where none does."""
        block, window.block = window.block, _JUNK
        size = self.source.size
        try:
            while at < size:
                data = window.read(at, min(_JUNK, size - at))
                found = data.find(MAGIC)
                if found >= 0:
                    return at + found
                at += max(len(data) - len(MAGIC) + 1, 1)
        finally:
            window.block = block
        return size
