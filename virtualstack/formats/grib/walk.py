"""Walk through a file from message to message by headers alone; bytes between messages are junk.

Headers of many messages are fetched at once, before the walk reaches them. Indexes beside the file list where messages
begin, but the bytes of the file always decide.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from virtualstack.codecs.grib.fields import MAGIC
from virtualstack.errors import MalformedFileError, Remedy
from virtualstack.formats.grib.messages import Field, MessageError, message_length, parse_fields
from virtualstack.formats.grib.sidecars import Sidecar
from virtualstack.location import is_remote
from virtualstack.printable import counted
from virtualstack.storage import Bytes, Source

_PREVIOUS_END_BYTES = 1 << 7  # the end of the previous message, and a heading
_HEADER_BYTES = 1 << 10
_NEXT_HEADING_BYTES = 1 << 5  # the search for sections of a short message extends into the next message
_MAX_BYTES_PER_MESSAGE = 1 << 16  # further bytes that one message may request at a time
_MAX_ROUNDS = 8


class _MissingError(Exception):
    def __init__(self, offset: int, length: int) -> None:
        self.offset, self.length = offset, length


class HeaderPrefetch:
    """Bytes of a source that were fetched at once; only the bytes of the last `fetch` are kept.

    Prefetching changes when bytes are read, but never what a walk finds: the bytes are the bytes of the source.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._begins: list[int] = []
        self._pieces: list[Bytes] = []

    def fetch(self, offsets: Sequence[int], /) -> int | None:
        """Fetch all that a walk needs of messages that may begin at some offsets, in ascending order.

        The first request fetches 1 KiB of each message. Each further request fetches bytes elsewhere, after bitmaps and
        in long headers, and short gaps between two messages.
        """
        self._begins, self._pieces = [], []
        size = self._source.size
        ends = [*(offset + _NEXT_HEADING_BYTES for offset in offsets[1:]), size]
        wanted = [
            (max(offset - _PREVIOUS_END_BYTES, 0), min(offset + _HEADER_BYTES, end, size))
            for offset, end in zip(offsets, ends, strict=True)
        ]
        left, wrong = list(offsets), None
        following = dict(pairwise(offsets))
        for _ in range(_MAX_ROUNDS):
            self._keep(wanted)
            asking, wanted = left, []
            left = []
            for offset in asking:
                try:
                    if message_length(head := self._need(offset, 16)) is None:
                        raise MessageError("there is none")
                    end = offset + parse_fields(self._need, offset, size, head)[0]
                    gap = following.get(offset, end) - end
                    if 0 < gap <= _MAX_BYTES_PER_MESSAGE and self.read(end, gap) is None:
                        wanted.append((end, end + gap))
                except MessageError:
                    wrong = offset if wrong is None else min(wrong, offset)
                except _MissingError as missing:
                    if missing.length <= _MAX_BYTES_PER_MESSAGE:
                        wanted.append((missing.offset, min(missing.offset + missing.length + _HEADER_BYTES, size)))
                        left.append(offset)
            if not wanted:
                break
        return wrong

    def read(self, offset: int, length: int, /) -> bytes | None:
        """Return bytes, fewer at the end of the file; ``None`` if they were not fetched."""
        length = min(length, self._source.size - offset)
        if length <= 0:
            return b""
        i = bisect_right(self._begins, offset) - 1
        # the piece that begins last may be shorter than the piece before
        for j in (i, i - 1):
            if j >= 0 and offset + length <= self._begins[j] + len(self._pieces[j]):
                begin = offset - self._begins[j]
                return bytes(self._pieces[j][begin : begin + length])
        return None

    def rest(self, offset: int, /) -> bytes:
        """Return the fetched bytes from an offset on; empty if there are none."""
        i = bisect_right(self._begins, offset) - 1
        return bytes(self._pieces[i][offset - self._begins[i] :]) if i >= 0 else b""

    def _need(self, offset: int, length: int) -> bytes:
        found = self.read(offset, length)
        if found is None:
            raise _MissingError(offset, length)
        return found

    def _keep(self, wanted: Sequence[tuple[int, int]]) -> None:
        pieces = self._source.read_ranges([(begin, end - begin) for begin, end in wanted])
        for (begin, _), piece in zip(wanted, pieces, strict=True):
            i = bisect_left(self._begins, begin)
            self._begins.insert(i, begin)
            self._pieces.insert(i, piece)


SMALL_FILE_BYTES = 1 << 20
"""Largest size of a remote file that is read as a whole, which takes one request."""

_LOCAL_BLOCK_BYTES = 1 << 12  # read at once from a local file
_REMOTE_BLOCK_BYTES = (1 << 10) + (
    1 << 7
)  # from a remote file: the end of a message, and the headers of the next message
_MAX_REMOTE_BLOCK_BYTES = 1 << 14
_SECTIONS_BEHIND_BYTES = 1 << 7  # the heads of sections 6 and 7, after grid and packing
_SMALL_MESSAGE_BYTES = 1 << 14  # a message up to this size is read, not skipped
_RUN_BYTES = 1 << 16, 1 << 20  # read at once from a sequence of small messages
_JUNK_BYTES = 1 << 20  # largest number of bytes searched at once for the next message
_MAX_MESSAGES_AHEAD = 1 << 11  # largest number of messages whose headers are fetched at once
_MAX_GUESSES = 1 << 8
_MIN_GUESS_BYTES = 1 << 16  # size of messages from which wrong guesses cost nothing


class _Window:
    """Reader of a source in blocks: one block is kept, and prefetched bytes are used first."""

    def __init__(self, source: Source, block: int) -> None:
        self._source = source
        self.block = block
        self.ahead = HeaderPrefetch(source)
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
        """Return bytes from an offset on that need no reading; empty if there are none."""
        begin = offset - self._begin
        if 0 <= begin < len(self._data):
            return self._data[begin : begin + _LOCAL_BLOCK_BYTES]  # a copy, and damaged messages may be short
        return self.ahead.rest(offset)


class _Guide:
    """Guide that prefetches the next messages: at the offsets of an index, or spaced like the last messages."""

    def __init__(self, window: _Window, size: int, sidecar: Sidecar | None, *, is_far: bool) -> None:
        self._window, self._size = window, size
        self._sidecar, self._is_far = sidecar, is_far
        self._listed = list(sidecar.lengths) if sidecar is not None else []
        self._until = 0  # messages that may begin before this offset were prefetched
        self._length = 0  # of the last message
        self._n_guesses = 1

    def reach(self, at: int, /) -> None:
        """Prefetch messages when a walk reaches an offset that was not prefetched yet."""
        if at < self._until:
            return
        begin = bisect_left(self._listed, at)
        if offsets := self._listed[begin : begin + _MAX_MESSAGES_AHEAD]:
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
        """Record a message that the walk has read, to guess the next offsets: messages may have equal lengths."""
        if not self._is_far or length < _MIN_GUESS_BYTES or length != self._length:
            self._n_guesses, self._length = 1, length
            if not self._listed:
                self._until = 0
        elif at + 1 >= self._until:
            self._n_guesses = min(2 * self._n_guesses, _MAX_GUESSES)


def read_messages(source: Source, offsets: Sequence[int], /) -> Iterator[list[Field]]:
    """Yield the fields of the messages at some offsets, in ascending order; of a remote file, all are read at once."""
    window = _Window(source, _LOCAL_BLOCK_BYTES)
    if is_remote(source.location.url):
        window.ahead.fetch(offsets)
    for at in offsets:
        yield parse_fields(window.read, at, source.size, window.read(at, 16))[1]


@dataclass(slots=True)
class Walk:
    """A walk through the fields of a file; iterate over it."""

    source: Source
    sidecar: Sidecar | None = None
    n_junk: int = 0
    lengths: dict[int, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Field]:
        """Yield all fields in the order of the file; data are not read, but junk is."""
        at, n, size = 0, 0, self.source.size
        is_far = is_remote(self.source.location.url)
        block = (size if size <= SMALL_FILE_BYTES else _REMOTE_BLOCK_BYTES) if is_far else _LOCAL_BLOCK_BYTES
        window = _Window(self.source, block)
        guide = _Guide(window, size, self.sidecar, is_far=is_far and size > SMALL_FILE_BYTES)
        while at < size:
            guide.reach(at)
            head = window.read(at, 16)
            if message_length(head) is None:
                found = self._next(window, at + 1)
                self.n_junk += found - at
                at = found
                continue
            try:
                length, fields = parse_fields(window.read, at, size, head)
            except MessageError as error:
                url = self.source.location.url
                raise MalformedFileError(
                    f"'{url}' has a damaged message at byte {at}: {error}", Remedy("fetch it again"), url=url, offset=at
                ) from error
            yield from fields
            if self.sidecar is not None:
                self.lengths[at] = length
            guide.passed(at, length)
            at, n = at + length, n + 1
            window.block = _front(length, at, n, fields[0].described) if is_far and size > SMALL_FILE_BYTES else block

    def contradiction(self) -> str | None:
        """Return how the index contradicts the file after the walk; ``None`` if it does not, or without an index."""
        if self.sidecar is None:
            return None
        listed, found = self.sidecar.lengths, self.lengths
        is_same = {at: at in found and length in (None, found[at]) for at, length in listed.items()}
        wrong = [at for at in {**is_same, **found} if not is_same.get(at)]
        if not wrong:
            return None
        return (
            f"'{self.sidecar.url}' is not an index of this version of the file, so it is not used. It lists "
            f"{counted(len(listed), 'message')}, and the file has {len(found)}. They differ at "
            f"{counted(len(wrong), 'offset')}, the first {min(wrong)}"
        )

    def _next(self, window: _Window, at: int) -> int:
        """Find the offset at which the next message may begin; the end of the file if there is none."""
        size = self.source.size
        block = max(window.block, _JUNK_BYTES)  # there may be much junk
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
    """Choose how many bytes of a remote file to read after ``n`` messages in ``at`` bytes."""
    if length < _SMALL_MESSAGE_BYTES and at < n * _SMALL_MESSAGE_BYTES:
        return min(max(at, _RUN_BYTES[0]), _RUN_BYTES[1])
    return min(max(_REMOTE_BLOCK_BYTES, described + _SECTIONS_BEHIND_BYTES), _MAX_REMOTE_BLOCK_BYTES)
