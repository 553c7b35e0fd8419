import pickle

import pytest

from virtualstack.errors import SourceChangedError, SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage import MemorySource, MemoryTarget, open_source


def test_ranges_of_bytes():
    """Ranges come without copies, in the order asked for."""
    source = MemorySource(b"abcdefgh", "memory://x")
    assert source.read(1, 3) == b"bcd"
    assert source.read_ranges([(6, 2), (0, 0), (0, 8)]) == [b"gh", b"", b"abcdefgh"]
    assert source.location.url == "memory://x"
    assert source.location.size == source.size == 8
    assert repr(source) == "MemorySource('memory://x', 8 bytes)"
    with pytest.raises(StorageError, match=r"'memory://x' has 8 bytes, but 9 bytes from offset 0"):
        source.read(0, 9)
    with pytest.raises(StorageError, match=r"'memory://x' has 8 bytes, but 9 bytes from offset 0"):
        source.read_ranges([(0, 9)])


def test_pickling_takes_the_bytes_along():
    """A worker has the same source."""
    source = MemorySource(b"abc")
    assert pickle.loads(pickle.dumps(source)) == source


def test_what_was_written_to_memory_can_be_opened():
    """memory:// is shared by the process, and a rewritten object has another etag."""
    target = MemoryTarget("memory://mine")
    target.put("a", b"one")
    location = open_source("memory://mine/a").location
    target.put("a", b"two")
    assert open_source("memory://mine/a").read(0, 3) == b"two"
    with pytest.raises(SourceChangedError, match=r"its ETag is"):
        open_source("memory://mine/a", expected=location)
    with pytest.raises(SourceNotFoundError, match=r"there is nothing at 'memory://mine/b'; memory:// holds what"):
        open_source("memory://mine/b", expected=Location("memory://mine/b", 3))
