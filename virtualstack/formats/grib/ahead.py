"""Headers of many messages at once, before a walk comes to them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

from virtualstack.formats.grib.messages import MessageError, fields_of, message_length
from virtualstack.storage import Bytes, Source

__all__ = ["Ahead"]

_BEFORE = 1 << 7  # the end of the message before, and a heading
_FRONT = 1 << 10
_BEYOND = 1 << 5  # looking for sections of short messages reaches into the next one
_MOST = 1 << 16  # bytes that one message may ask for at a time, besides
_ROUNDS = 8


class _MissingError(Exception):
    def __init__(self, offset: int, length: int) -> None:
        self.offset, self.length = offset, length


class Ahead:
    """Bytes of a source that were fetched side by side; those of the last `fetch` are kept.

    It changes when bytes are read, and never what a walk finds: they are what the source has there.

    Parameters
    ----------
    source
        The file.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._begins: list[int] = []
        self._pieces: list[Bytes] = []

    def fetch(self, offsets: Sequence[int], /) -> int | None:
        """Fetch all that a walk needs of the messages that may begin at some offsets, in ascending order.

        1 KiB each, in one go; what lies elsewhere, behind bitmaps and in long headers, in one more for each step, and
        what is between two of them.

        Returns
        -------
        int or None
            The first offset where no whole message begins.
        """
        self._begins, self._pieces = [], []
        size = self._source.size
        ends = [*(offset + _BEYOND for offset in offsets[1:]), size]
        wanted = [
            (max(offset - _BEFORE, 0), min(offset + _FRONT, end, size))
            for offset, end in zip(offsets, ends, strict=True)
        ]
        left, wrong = list(offsets), None
        following = dict(pairwise(offsets))
        for _ in range(_ROUNDS):
            self._keep(wanted)
            asking, wanted = left, []
            left = []
            for offset in asking:
                try:
                    if message_length(head := self._need(offset, 16)) is None:
                        raise MessageError("there is none")
                    end = offset + fields_of(self._need, offset, size, head)[0]
                    gap = following.get(offset, end) - end
                    if 0 < gap <= _MOST and self.read(end, gap) is None:
                        wanted.append((end, end + gap))
                except MessageError:
                    wrong = offset if wrong is None else min(wrong, offset)
                except _MissingError as missing:
                    if missing.length <= _MOST:
                        wanted.append((missing.offset, min(missing.offset + missing.length + _FRONT, size)))
                        left.append(offset)
            if not wanted:
                break
        return wrong

    def read(self, offset: int, length: int, /) -> bytes | None:
        """Give bytes, fewer where the file ends; ``None`` where they are not here."""
        length = min(length, self._source.size - offset)
        if length <= 0:
            return b""
        i = bisect_right(self._begins, offset) - 1
        # the piece that begins last may be short, and the one before it reach further
        for j in (i, i - 1):
            if j >= 0 and offset + length <= self._begins[j] + len(self._pieces[j]):
                begin = offset - self._begins[j]
                return bytes(self._pieces[j][begin : begin + length])
        return None

    def rest(self, offset: int, /) -> bytes:
        """Give what is here from an offset on, nothing perhaps."""
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
