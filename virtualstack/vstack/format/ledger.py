"""Entries of the ledger of files, and references of a snapshot to its pages."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from virtualstack.location import Location

type State = Literal["placed", "quarantined", "waiting", "masked", "pending", "vanished", "forgotten"]

_MAX_PAGE_BYTES = 1 << 28


class LedgerPage(NamedTuple):
    """A page of the ledger: its name, number of rows and bytes, and the CRC-32 of the bytes."""

    name: str
    n: int
    size: int
    crc32: int


class Entry(NamedTuple):
    """What became of a version of a file, and since when, in seconds since 1970."""

    url: str
    size: int | None
    modified: float | None
    etag: str | None
    state: State
    reason: str
    since: float

    @classmethod
    def of(cls, file: Location, state: State, reason: str = "", /, *, since: float) -> Entry:
        """Return the entry of a file that was listed."""
        return cls(file.url, file.size, file.last_modified, file.etag, state, reason, since)

    def is_version(self, file: Location, /) -> bool:
        """Return whether a listed file is the version of the entry: by size and etag, else by its time."""
        if self.size != file.size or None not in (self.etag, file.etag):
            return (self.size, self.etag) == (file.size, file.etag)
        return self.modified == file.last_modified


def check_page(page: Any, /) -> LedgerPage:
    """Return a page of the ledger as a snapshot names it.

    Raises
    ------
    ValueError, TypeError
        It is not valid.
    """
    name, n, size, crc32 = page
    if not isinstance(name, str) or not all(type(x) is int and x >= 0 for x in (n, size, crc32)):
        raise ValueError(f"its page {str(page)[:200]} of the ledger is not valid")
    if size > _MAX_PAGE_BYTES:
        raise ValueError(f"its page of the ledger has {size} bytes; at most {_MAX_PAGE_BYTES} are read")
    return LedgerPage(name, n, size, crc32)
