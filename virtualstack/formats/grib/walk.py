"""Walking through a file from message to message, by headers alone; what lies between them is junk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from virtualstack.codecs.grib.fields import MAGIC
from virtualstack.formats.grib.ahead import Ahead
from virtualstack.formats.grib.messages import Field, MessageError, fields_of, message_length
from virtualstack.formats.grib.sidecars import Sidecar
from virtualstack.location import is_remote
from virtualstack.storage import Source

__all__ = ["SMALL_FILE", "Damage", "Walk"]

SMALL_FILE = 1 << 20
"""Bytes of a remote file that is read whole: that takes one request."""

_BLOCK = 1 << 12  # bytes that are read at once of local files
_FRONT = (1 << 10) + (1 << 7)  # of remote ones: the end of a message, and of the next one what is looked at first
_MOST_FRONT = 1 << 14
_BEHIND = 1 << 7  # sections 6 and 7 begin behind the grid and the packing
_SMALL_MESSAGE = 1 << 14  # read whole rather than passed over
_RUN = 1 << 16, 1 << 20  # bytes that are read at once of a row of such
_JUNK = 1 << 20  # bytes that are searched at once for the next message, at most
_MOST_AHEAD = 1 << 11  # messages whose headers are read side by side
_MOST_GUESSES = 1 << 8
_GUESS_FROM = 1 << 16  # bytes of messages from which on wrong guesses cost nothing


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
    """Reads a source in blocks, of which one is kept, where it was not read ahead."""

    def __init__(self, source: Source, block: int) -> None:
        self._source = source
        self.block = block
        self.ahead = Ahead(source)
        self._begin, self._data = 0, b""

    def read(self, offset: int, length: int, /) -> bytes:
        begin = offset - self._begin
        if begin < 0 or begin + length > len(self._data):
            found = self.ahead.read(offset, length)
            if found is not None:
                return found
            n = self.block if length <= self.block else length + self.block
            n = min(n, self._source.size - offset)
            if n <= 0:
                return b""
            self._begin, self._data, begin = offset, self._source.read(offset, n), 0
        return self._data[begin : begin + length]

    def rest(self, offset: int, /) -> bytes:
        """Give what needs no reading from an offset on, nothing perhaps."""
        begin = offset - self._begin
        return self._data[begin:] if 0 <= begin < len(self._data) else self.ahead.rest(offset)


class _Guide:
    """Says where the next messages may begin: what an index lists, else so far apart as the last ones were."""

    def __init__(self, window: _Window, size: int, sidecar: Sidecar | None, *, is_far: bool) -> None:
        self._window, self._size = window, size
        self._sidecar, self._is_far = sidecar, is_far
        self._listed = list(sidecar.lengths) if sidecar is not None else []
        self._until = 0  # all that may begin before is read
        self._length = 0  # of the last message
        self._n_guesses = 1

    def reach(self, at: int, /) -> None:
        """Read ahead, where a walk comes to what is not read yet."""
        if at < self._until:
            return
        begin = bisect_left(self._listed, at)
        if offsets := self._listed[begin : begin + _MOST_AHEAD]:
            self._until = offsets[-1] + 1
            if self._window.ahead.fetch(offsets) is not None:
                self._listed, self._until = [], 0
        elif self._n_guesses > 1:
            n = min(self._n_guesses, (self._size - at) // self._length)
            offsets = [at + i * self._length for i in range(n)]
            if offsets:
                self._until = offsets[-1] + 1
                self._window.ahead.fetch(offsets)

    def passed(self, at: int, length: int, /) -> None:
        """Take notice of a message; some files have all of one length."""
        if not self._is_far or length < _GUESS_FROM or length != self._length:
            self._n_guesses, self._length = 1, length
            if not self._listed:
                self._until = 0
        elif at + 1 >= self._until:
            self._n_guesses = min(2 * self._n_guesses, _MOST_GUESSES)


@dataclass(slots=True)
class Walk:
    """What a file has: iterate to walk through it.

    Parameters
    ----------
    source
        The file.
    sidecar
        An index of the file. Headers are read side by side where it says that they are; what is found does not depend
        on it.
    n_junk
        Bytes that belong to no message, so far.
    damages
        Messages that are damaged, so far; their bytes are junk.
    lengths
        Of the messages, so far, by offset, where there is an index to compare with.
    """

    source: Source
    sidecar: Sidecar | None = None
    n_junk: int = 0
    damages: list[Damage] = field(default_factory=list)
    lengths: dict[int, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Field]:
        """Give all fields in the order of the file; data are not read, junk is."""
        at, n, size = 0, 0, self.source.size
        is_far = is_remote(self.source.location.url)
        block = (size if size <= SMALL_FILE else _FRONT) if is_far else _BLOCK
        window = _Window(self.source, block)
        guide = _Guide(window, size, self.sidecar, is_far=is_far and size > SMALL_FILE)
        while at < size:
            guide.reach(at)
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
            if self.sidecar is not None:
                self.lengths[at] = length
            guide.passed(at, length)
            at, n = at + length, n + 1
            window.block = _front(length, at, n, fields[0].described) if is_far and size > SMALL_FILE else block

    def contradiction(self) -> str | None:
        """Say after the walk what is wrong with the index; ``None`` where it is right, or there is none."""
        if self.sidecar is None:
            return None
        listed, found = self.sidecar.lengths, self.lengths
        wrong = [offset for offset in listed if offset not in found]
        lost = [offset for offset in found if offset not in listed]
        longer = [offset for offset, length in listed.items() if length is not None and length != found.get(offset)]
        words = []
        if wrong:
            words.append(f"no message begins at {len(wrong)} of its {len(listed)} offsets, the first {wrong[0]}")
        if lost:
            words.append(f"it lacks {len(lost)} of {len(found)} messages, the first at byte {lost[0]}")
        if longer and not wrong:
            words.append(f"{len(longer)} of its lengths are not those of the messages, the first at byte {longer[0]}")
        return (
            f"'{self.sidecar.url}' is no index of the file as it is, and not relied on: {'; '.join(words)}"
            if words
            else None
        )

    def _next(self, window: _Window, at: int) -> int:
        """Find where the next message may begin; the end of the file where none does."""
        size = self.source.size
        block = max(window.block, _JUNK)  # there may be much of it
        window.block = min(4 * window.block, block)
        while at < size:
            data = window.rest(at)
            if len(data) < len(MAGIC):
                window.block = min(4 * window.block, block)
                data = window.read(at, min(window.block, size - at))
            found = data.find(MAGIC)
            if found >= 0:
                return at + found
            at += max(len(data) - len(MAGIC) + 1, 1)
        return size


def _front(length: int, at: int, n: int, described: int) -> int:
    """Choose how much of a remote file is read from the end of a message on, of ``n`` in ``at`` bytes."""
    if length < _SMALL_MESSAGE and at < n * _SMALL_MESSAGE:
        return min(max(at, _RUN[0]), _RUN[1])
    return min(max(_FRONT, described + _BEHIND), _MOST_FRONT)
