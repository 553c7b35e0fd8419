"""Present a source as a Python file, for libraries that need one (h5py, tifffile)."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from virtualstack.location import is_remote
from virtualstack.storage.source import Source

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK_BYTES = 64 * 1024
_CACHE_BYTES = 64 * 1024 * 1024
_WHOLE_BYTES = 4 * 1024 * 1024  # a smaller file is one block


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

    def __init__(self, source: Source, *, block_size: int | None = None) -> None:
        super().__init__()
        if block_size is None:
            is_far = is_remote(source.location.url)
            block_size = (max(1, source.size) if source.size <= _WHOLE_BYTES else _BLOCK_BYTES) if is_far else 0
        self._source = source
        self._block_size = block_size
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
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
        with self._lock:
            position = offset + (0, self._position, self.size)[whence]
            if position < 0:
                raise ValueError(f"position {position} lies before the start of '{self.name}'")
            self._position = position
            return position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes from the position; a damaged file may ask for any number, which takes no memory."""
        left = max(0, self.size - self._position)
        return super().read(left if size is None or size < 0 else min(size, left)) or b""

    def readall(self) -> bytes:
        """Read from the position to the end."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill a buffer from the position, and return the number of bytes; only at the end of the file it is less."""
        if self.closed:
            raise ValueError(f"the file over '{self.name}' is closed")
        view = memoryview(buffer).cast("B")
        with self._lock:
            length = max(0, min(len(view), self.size - self._position))
            view[:length] = self._read_at(self._position, length)
            self._position += length
            return length

    def _read_at(self, offset: int, length: int) -> bytes:
        size = self._block_size
        if not size or not length:
            return self._source.read(offset, length) if length else b""
        numbers, most = range(offset // size, (offset + length - 1) // size + 1), max(1, _CACHE_BYTES // size)
        if len(numbers) > most:
            return self._source.read(offset, length)  # keeping these blocks would push out all others
        missing = [number for number in numbers if number not in self._blocks]
        if missing:
            ranges = [(number * size, min(size, self.size - number * size)) for number in missing]
            self._blocks.update(zip(missing, map(bytes, self._source.read_ranges(ranges)), strict=True))
        for number in numbers:
            self._blocks.move_to_end(number)
        data = b"".join([self._blocks[number] for number in numbers]) if len(numbers) > 1 else self._blocks[numbers[0]]
        while len(self._blocks) > most:
            self._blocks.popitem(last=False)
        begin = offset - numbers[0] * size
        return data[begin : begin + length]

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self._source, self._block_size, self._position)

    def __repr__(self) -> str:
        return f"SourceFile('{self.name}', {self.size} bytes)"


def _reopened(source: Source, block_size: int, position: int) -> SourceFile:
    file = SourceFile(source, block_size=block_size)
    file.seek(position)
    return file
