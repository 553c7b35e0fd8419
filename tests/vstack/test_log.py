"""What a log shows: each snapshot on a line, newest first, and its changes below."""

import pytest

from virtualstack.printable import MAX_SHOWN_ITEMS
from virtualstack.vstack.format.history import LogEntry
from virtualstack.vstack.log import Log


def entries(n, **fields):
    return tuple(
        LogEntry(number=i, time=86400.0 * i, **{"message": None, "changes": ()} | fields) for i in range(n)[::-1]
    )


def test_lines():
    """A message or change of several lines is shown on one, without what moves a cursor."""
    log = Log("memory://x", entries(2, message="one\ntwo\x1b", changes=("added v", "removed w")))
    assert log.lines() == [
        "<2 snapshots of 'memory://x'>",
        "     1  1970-01-02 00:00:00.000000Z  one two\\x1b",
        "        added v",
        "        removed w",
        "     0  1970-01-01 00:00:00.000000Z  one two\\x1b",
        "        added v",
        "        removed w",
    ]
    assert repr(log).splitlines() == log.lines()
    assert Log("memory://x", entries(1)).lines() == [
        "<1 snapshot of 'memory://x'>",
        "     0  1970-01-01 00:00:00.000000Z",
    ]


@pytest.mark.parametrize("more", [0, 1, 3])
def test_long_logs_are_shortened(more):
    log = Log("memory://x", entries(MAX_SHOWN_ITEMS + more))
    lines = repr(log).splitlines()
    assert lines[0] == f"<{len(log)} snapshots of 'memory://x'>"
    assert lines[1 : MAX_SHOWN_ITEMS + 1] == log.lines()[1 : MAX_SHOWN_ITEMS + 1]
    assert lines[MAX_SHOWN_ITEMS + 1 :] == ([f"   ... {more} more"] if more else [])


def test_a_log_is_a_sequence():
    """A part of it is a log, too."""
    log = Log("memory://x", entries(5))
    assert (len(log), log[0].number, log[-1].number, [x.number for x in log]) == (5, 4, 0, [4, 3, 2, 1, 0])
    assert log[1:3] == Log("memory://x", log.entries[1:3])
