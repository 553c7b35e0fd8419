import numpy as np
import pytest

from virtualstack.errors import SourceChangedError, StorageError
from virtualstack.location import Location
from virtualstack.storage import MemorySource, Source, check_version
from virtualstack.storage.source import check_lengths, check_ranges


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 11), (10, 1), (11, 0), (-1, 2), (0, -1), (2**63 - 1, 2), (2**63, 1), (0, 2**64), (5, 2**63 - 1)],
)
def test_a_range_outside_of_the_source_is_refused(offset, length):
    """The error names the URL, the range and the size, whatever the numbers."""
    message = (
        f"'memory://x' has 10 bytes, but {length} bytes? from offset {offset} were requested. The source is shorter"
    )
    with pytest.raises(StorageError, match=message) as caught:
        check_ranges([(0, 10), (offset, length)], url="memory://x", size=10)
    assert caught.value.url == "memory://x"


def test_ranges_within_the_source_come_back_as_a_table():
    """Pairs and arrays are the same; the end of the source is within."""
    assert check_ranges([(0, 10), (10, 0)], url="u", size=10).tolist() == [[0, 10], [10, 0]]
    assert check_ranges(np.array([[3, 4]]), url="u", size=10).tolist() == [[3, 4]]
    assert check_ranges([], url="u", size=10).shape == (0, 2)


def test_a_short_answer_is_an_error():
    """The lengths of all answers are compared with what was asked for."""
    with pytest.raises(StorageError, match=r"'u': 4 bytes were requested, but 3 arrived"):
        check_lengths([2, 4], [b"ab", b"abc"], url="u")


@pytest.mark.parametrize("found", [Location("u", 11, "a"), Location("u", 10, "b")])
def test_a_changed_source_is_noticed(found):
    """Size and etag tell versions apart."""
    with pytest.raises(
        SourceChangedError, match=r"'u' changed after it was indexed: (11 B instead of 10 B|its ETag is b instead of a)"
    ):
        check_version(Location("u", 10, "a", 1.0), found)


@pytest.mark.parametrize(
    "found", [Location("u", 10, "a", 9.0), Location("u", 10), Location("u", None, '"a"'), Location("u", 10, 'W/"b"')]
)
def test_what_is_not_known_or_only_written_otherwise_is_no_change(found):
    """Time, missing values, quotes and weak etags do not make a version."""
    check_version(Location("u", 10, "a", 1.0), found)
    check_version(None, found)


def test_sources_follow_the_protocol():
    """The protocol can be checked at run time."""
    assert isinstance(MemorySource(b""), Source)
    assert not isinstance(b"", Source)
