"""Present a source as a Python file, for libraries that need one (h5py, tifffile)."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from virtualstack.location import is_remote
from virtualstack.storage.source import Source

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["SourceFile"]


class SourceFile(io.RawIOBase):
    """A seekable, read-only binary file over a source.

    Reads of local files and of bytes in memory go straight to the source. Other sources are read in blocks that are
    kept, so that the many small reads of a header cost few requests. The first read fetches a small file whole.

    Examples
    --------
    >>> from virtualstack.storage import MemorySource
    >>> file = SourceFile(MemorySource(b"abcdef"))
    >>> file.seek(-2, io.SEEK_END), file.read()
    (4, b'ef')
    """

    def __init__(
        self,
        source: Source,
        *,
        block_size: int | None = None,
        cache_size: int = 64 * 1024 * 1024,
        whole_size: int = 4 * 1024 * 1024,
    ) -> None:
        super().__init__()
        if block_size is None:
            block_size = 64 * 1024 if is_remote(source.location.url) else 0
        self._source = source
        self._options = (block_size, cache_size, whole_size)
        if block_size and source.size <= whole_size:
            block_size = cache_size = max(1, source.size)
        self._block_size = block_size
        self._n_blocks = max(1, cache_size // block_size) if block_size else 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._position = 0
        self._lock = threading.RLock()

    @property
    def name(self) -> str:
        """The URL of the source."""
        return self._source.location.url

    @property
    def size(self) -> int:
        """The size of the whole file in bytes."""
        return self._source.size

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: the file can be positioned."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position in bytes and return it; past the end, reads return nothing."""
        with self._lock:
            base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}.get(whence)
            if base is None:
                raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
            if base + offset < 0:
                raise ValueError(f"position {base + offset} lies before the start of '{self.name}'")
            self._position = base + offset
            return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes from the position; fewer are returned only at the end of the file."""
        if self.closed:
            raise ValueError(f"the file over '{self.name}' is closed")
        with self._lock:
            left = max(0, self.size - self._position)
            length = left if size is None or size < 0 else min(size, left)
            data = self._read_at(self._position, length)
            self._position += length
            return data

    def readall(self) -> bytes:
        """Read from the position to the end."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into a buffer and return the number of bytes that were read."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _read_at(self, offset: int, length: int) -> bytes:
        size = self._block_size
        if not size or not length:
            return self._source.read(offset, length) if length else b""
        first, last = offset // size, (offset + length - 1) // size
        if last - first + 1 > self._n_blocks:
            return self._source.read(offset, length)  # keeping these blocks would push out all others
        missing = [number for number in range(first, last + 1) if number not in self._blocks]
        if missing:
            ranges = [(number * size, min(size, self.size - number * size)) for number in missing]
            for number, data in zip(missing, self._source.read_ranges(ranges), strict=True):
                self._blocks[number] = bytes(data)
        for number in range(first, last + 1):
            self._blocks.move_to_end(number)
        begin = offset - first * size
        data = (
            b"".join([self._blocks[number] for number in range(first, last + 1)])
            if last > first
            else self._blocks[first]
        )
        while len(self._blocks) > self._n_blocks:
            self._blocks.popitem(last=False)
        return data[begin : begin + length]

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...]]:
        return _reopen, (type(self), self._source, *self._options, self._position)

    def __repr__(self) -> str:
        return f"SourceFile('{self.name}', {self.size} bytes)"


def _reopen[F: SourceFile](
    kind: type[F], source: Source, block_size: int, cache_size: int, whole_size: int, position: int
) -> F:
    file = kind(source, block_size=block_size, cache_size=cache_size, whole_size=whole_size)
    file.seek(position)
    return file
