"""Make and read the keys of the objects of a vstack, and convert times of its history to and from text."""

from __future__ import annotations

import re
import secrets
import struct
import time
import zlib
from datetime import UTC, datetime, timedelta

import numpy as np

from virtualstack.errors import ManifestError

FORMAT = 1
"""Version of the format."""

FOLDER = ".vstack"
HINT = f"{FOLDER}/zarr.json"
ROOT_KEY = "zarr.json"
SNAPSHOTS = f"{FOLDER}/snapshots"
SEGMENTS = f"{FOLDER}/segments"
PAGES = f"{FOLDER}/pages"
BUNDLES = f"{FOLDER}/bundles"
LEDGER = f"{FOLDER}/ledger"
INCOMING = f"{FOLDER}/incoming"
_LAST_SNAPSHOT = 10**12 - 1


def snapshot_key(number: int, /) -> str:
    """Return the key of a snapshot; keys descend, so that the newest is the first of a listing.

    >>> snapshot_key(0)
    '.vstack/snapshots/999999999999.json.gz'
    """
    if not 0 <= number <= _LAST_SNAPSHOT:
        raise ManifestError(f"{number} is not the number of a snapshot: numbers go from 0 to {_LAST_SNAPSHOT}")
    return f"{SNAPSHOTS}/{_LAST_SNAPSHOT - number:012d}.json.gz"


def snapshot_number(key: str, /) -> int | None:
    """Return the number of the snapshot at a key; ``None`` if the key is not the key of a snapshot."""
    found = re.fullmatch(rf"{re.escape(SNAPSHOTS)}/([0-9]{{12}})\.json\.gz", key)
    return None if found is None else _LAST_SNAPSHOT - int(found[1])


def new_id() -> str:
    """Return a unique name; it begins with the time, in milliseconds since 1970 (UTC), as 12 hexadecimal digits."""
    return f"{time.time_ns() // 10**6:012x}{secrets.token_hex(6)}"


def made_at(name: str, /) -> float:
    """Return the time at which :func:`new_id` made a name, in seconds since 1970."""
    return int(name[:12], 16) / 1000


def _checked(name: str) -> str:
    if len(name) != 24 or not set(name) <= set("0123456789abcdef"):
        raise ManifestError(f"{name[:100]!r} is not a name of an object of a vstack")
    return name


def segment_folder(segment: str, /) -> str:
    """Return the folder of all objects of a segment."""
    return f"{SEGMENTS}/{_checked(segment)}"


def refs_key(segment: str, shard: int, /) -> str:
    """Return the key of a shard of rows."""
    return f"{segment_folder(segment)}/refs/c/0/{shard}"


def shard_mark(segment: str, shard: int, /) -> bytes:
    """Return the 16 bytes that identify a shard: the name of its segment, and its number."""
    return bytes.fromhex(_checked(segment)) + struct.pack("<I", shard)


def sources_key(segment: str, page: int, /) -> str:
    """Return the key of a page of sources."""
    return f"{segment_folder(segment)}/sources/{page}.json.gz"


def heap_key(segment: str, part: int, /) -> str:
    """Return the key of a part of the heap."""
    return f"{segment_folder(segment)}/heap/{part}"


def values_key(segment: str, part: int, /) -> str:
    """Return the key of a part of the chunks that were written into the store itself."""
    return f"{FOLDER}/segments/{_checked(segment)}/values/{part}"


def heap_seed(segment: str, part: int, /) -> int:
    """Return the seed of the CRC-32 of chunks in a part of the heap, which is different for each part."""
    return zlib.crc32(f"{_checked(segment)}/{part}".encode())


def page_key(name: str, /) -> str:
    """Return the key of a page of a table."""
    return f"{PAGES}/{_checked(name)}.json.gz"


def bundle_key(name: str, /) -> str:
    """Return the key of a bundle of loaded variables."""
    return f"{BUNDLES}/{_checked(name)}"


def ledger_key(name: str, /) -> str:
    """Return the key of a page of the ledger of files."""
    return f"{LEDGER}/{_checked(name)}.parquet"


type Moment = str | datetime | np.datetime64
"""A time: ISO 8601 (in UTC without a time zone), a `datetime` with a time zone, or `numpy.datetime64` in UTC."""


def count_seconds(moment: Moment, /) -> float:
    """Return the seconds since 1970 of a moment; a text without a time zone is in UTC, like the times of a log.

    >>> count_seconds("1970-01-02"), count_seconds(np.datetime64("1970-01-02T00:00:00.5"))
    (86400.0, 86400.5)
    """
    if not isinstance(moment, str | datetime | np.datetime64):
        raise TypeError(f"{moment!r} is not a time. Give a text such as '2026-01-31T12:00:00Z', or a datetime")
    if moment != moment:
        raise ValueError(f"{moment!r} is not a time. Give one such as '2026-01-31T12:00:00Z'")
    if isinstance(moment, np.datetime64):
        return float((moment - np.datetime64(0, "s")) / np.timedelta64(1, "s"))
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError as error:
            raise ValueError(
                f"{moment!r} is not a time. Give one such as '2026-01-31' or '2026-01-31T12:00:00Z'; numbers of "
                "snapshots are integers, not text"
            ) from error
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    if moment.tzinfo is None:
        raise ValueError(
            f"{moment!r} has no time zone. Give one with a time zone, such as datetime.now(timezone.utc); or a text, "
            "which is in UTC"
        )
    return moment.timestamp()


def format_time(seconds: float, /) -> str:
    """Return a moment as text in UTC, rounded up, so that a snapshot is found by the text of its time.

    >>> format_time(86400.5)
    '1970-01-02 00:00:00.500000Z'
    """
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
        if moment.timestamp() < seconds:
            moment += timedelta(microseconds=1)
        return moment.strftime("%Y-%m-%d %H:%M:%S.%fZ")
    except (ValueError, OverflowError, OSError):  # the store is damaged, or its time is out of range
        return f"{seconds} s"
