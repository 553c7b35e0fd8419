"""Headers that lie anywhere in a file, fetched by few requests."""

from __future__ import annotations

from virtualstack.location import is_remote
from virtualstack.storage import Source

__all__ = ["Ahead"]

_LOCAL, _REMOTE = 1 << 14, 1 << 16
_MOST = 1 << 20
_KEPT, _MOST_KEPT = 1 << 26, 512
_SMALL = 1 << 20


class Ahead:
    """Reads a source in stretches that grow while what is read lies behind what was read before.

    Directories of a stack lie in the order of the file most often, near each other or equally far apart: of the latter,
    the places of the next ones are guessed, and fetched together.

    Parameters
    ----------
    source
        Where the bytes come from.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.size = source.size
        self._is_remote = is_remote(source.location.url)
        self._least = _REMOTE if self._is_remote else _LOCAL
        self._length = self._least
        self._stretches: list[tuple[int, bytes]] = []
        self._kept = 0
        self._last = (0, b"")
        self._asked: list[int] = []

    def read(self, offset: int, length: int, /) -> bytes:
        """Give bytes, fewer only where the file ends."""
        length = max(0, min(length, self.size - offset))
        begin, data = self._last
        if begin <= offset and offset + length <= begin + len(data):
            return data[offset - begin : offset - begin + length]
        for begin, data in reversed(self._stretches):
            if begin <= offset and offset + length <= begin + len(data):
                self._last = (begin, data)
                return data[offset - begin : offset - begin + length]
        if not length:
            return b""
        self._fetch(offset, length)
        begin, data = self._last
        return data[offset - begin : offset - begin + length]

    def _fetch(self, offset: int, length: int) -> None:
        if self._is_remote and self.size <= _SMALL:
            self._keep([(0, bytes(self.source.read(0, self.size)))])
            return
        begin, data = self._last
        near = begin <= offset <= begin + len(data) + self._length
        self._length = min(_MOST, 2 * self._length) if near and data else self._least
        ranges = [(offset, max(length, self._length))]
        if self._is_remote:
            ranges += self._guessed(offset, length)
        ranges = [(at, min(n, self.size - at)) for at, n in ranges]
        if len(ranges) == 1:
            found = [self.source.read(*ranges[0])]
        else:
            found = [bytes(x) for x in self.source.read_ranges(ranges)]
        self._keep([(at, bytes(x)) for (at, _), x in zip(ranges, found, strict=True)])
        self._last = self._stretches[-len(ranges)]

    def _guessed(self, offset: int, length: int) -> list[tuple[int, int]]:
        """Give the places of the next directories, where the last ones lie equally far apart."""
        self._asked = [*self._asked[-2:], offset]
        if len(self._asked) < 3:
            return []
        first, second, third = self._asked
        step = third - second
        if step <= self._least or step != second - first:
            return []
        n = min(256, (self.size - 1 - third) // step)
        self._asked = [third + (n - 1) * step, third + n * step] if n else []
        return [(third + i * step, max(length, 4096)) for i in range(1, n + 1)]

    def _keep(self, stretches: list[tuple[int, bytes]]) -> None:
        self._stretches += stretches
        self._kept += sum(len(data) for _, data in stretches)
        while (self._kept > _KEPT or len(self._stretches) > _MOST_KEPT) and len(self._stretches) > len(stretches):
            self._kept -= len(self._stretches.pop(0)[1])
        self._last = self._stretches[-1]
