import pickle

import pytest

from virtualstack.errors import StorageError
from virtualstack.storage import MemorySource, Source
from virtualstack.testing.sources import FaultySource, RecordingSource


def test_every_read_is_recorded():
    """Offsets and lengths are kept in order, also in a copy."""
    source = RecordingSource(MemorySource(b"abcdef", "memory://x"))
    assert isinstance(source, Source)
    assert source.read(1, 2) == b"bc"
    assert source.read_ranges([(0, 1), (4, 2)]) == [b"a", b"ef"]
    assert source.reads == [(1, 2), (0, 1), (4, 2)]
    assert source.bytes_read == 5
    assert (source.size, source.location.url) == (6, "memory://x")
    assert source.overlap([(2, 3)]) == 2
    copy = pickle.loads(pickle.dumps(source))
    copy.read(0, 1)
    assert copy.reads == [*source.reads, (0, 1)]


def test_faults_come_when_told():
    """After a number of reads, or where given bytes are touched."""
    source = FaultySource(MemorySource(b"abcdef", "memory://x"), after=1)
    assert isinstance(source, Source)
    assert source.read(0, 1) == b"a"
    with pytest.raises(StorageError, match=r"'memory://x': reading was made to fail"):
        source.read_ranges([(0, 1)])
    source = FaultySource(MemorySource(b"abcdef", "memory://x"), touching=(2, 2))
    assert source.read_ranges([(0, 2), (4, 2)]) == [b"ab", b"ef"]
    assert (source.size, source.location.size) == (6, 6)
    with pytest.raises(StorageError, match=r"'memory://x': bytes 2 to 4 were made to fail"):
        source.read(3, 1)
