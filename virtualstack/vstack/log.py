"""List the snapshots of a store, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import overload

import numpy as np

from virtualstack.errors import StorageError, check_type
from virtualstack.printable import MAX_SHOWN_ITEMS, counted, printable
from virtualstack.storage import ObjectStore
from virtualstack.storage.threads import concurrently
from virtualstack.vstack.format.history import LogEntry, listed_numbers, newest, read_entry
from virtualstack.vstack.format.names import format_time

_MAX_MISSING_SNAPSHOTS = 1000


@dataclass(frozen=True, slots=True, repr=False)
class Log(Sequence[LogEntry]):
    """Snapshots of a store, newest first.

    Parameters
    ----------
    url
        URL of the store.
    entries
        One entry for each snapshot.
    """

    url: str
    entries: tuple[LogEntry, ...]

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int, /) -> LogEntry: ...
    @overload
    def __getitem__(self, index: slice, /) -> Log: ...
    def __getitem__(self, index: int | slice, /) -> LogEntry | Log:
        return Log(self.url, self.entries[index]) if isinstance(index, slice) else self.entries[index]

    def lines(self) -> list[str]:
        """Return one line for each snapshot, and one for each of its changes."""
        lines = [f"<{counted(len(self), 'snapshot')} of '{self.url}'>"]
        for entry in self.entries:
            message = "" if entry.message is None else f"  {_line(entry.message)}"
            lines.append(f"{entry.number:>6}  {format_time(entry.time)}{message}")
            lines += [f"        {_line(change)}" for change in entry.changes]
        return lines

    def __repr__(self) -> str:
        lines = self[:MAX_SHOWN_ITEMS].lines()
        lines[0] = f"<{counted(len(self), 'snapshot')} of '{self.url}'>"
        return "\n".join([*lines, *([f"   ... {len(self) - MAX_SHOWN_ITEMS} more"] * (len(self) > MAX_SHOWN_ITEMS))])


def _line(line: str) -> str:
    return printable(" ".join(line.splitlines()))


def read_log(objects: ObjectStore, limit: int | None, /) -> Log:
    """Read the log of a store, or only its newest ``limit`` entries."""
    wanted = "a positive whole number. Give the number of snapshots to show, or None for all"
    check_type("limit", limit, int | np.integer | None, wanted)
    if limit is not None and limit < 0:
        raise ValueError(f"limit={limit}: give the number of snapshots to show, or None for all")
    last = newest(objects)
    if last is None or limit == 0:
        return Log(objects.url.rstrip("/"), ())
    numbers: Sequence[int] = range(last, -1 if limit is None else max(last - limit, -1), -1)
    if limit is None:
        numbers = _listed(objects) or numbers
    entries = _read(objects, numbers)
    if len(entries) < len(numbers):  # some were expired: older ones may exist
        entries = _read(objects, _listed(objects)[:limit]) or entries
    return Log(objects.url.rstrip("/"), entries)


def _read(objects: ObjectStore, numbers: Sequence[int]) -> tuple[LogEntry, ...]:
    """Read entries, and stop after a batch of numbers that are all missing, because they were expired."""
    entries: list[LogEntry] = []
    for begin in range(0, len(numbers), _MAX_MISSING_SNAPSHOTS):
        some = numbers[begin : begin + _MAX_MISSING_SNAPSHOTS]
        found = concurrently(partial(read_entry, objects), some, urls=[objects.url])
        there = [entry for entry in found if entry is not None]
        if not there:
            break
        entries += there
    return tuple(entries)


def _listed(objects: ObjectStore) -> list[int]:
    try:
        return listed_numbers(objects)
    except StorageError:  # a web server has no listing: all numbers are tried
        return []
