"""Keys of the objects of a vstack, and times of its history as texts."""

from __future__ import annotations

import secrets
import struct
import time
import zlib
from datetime import UTC, datetime, timedelta

import numpy as np

from virtualstack.errors import ManifestError

__all__ = [
    "BUNDLES",
    "FOLDER",
    "FORMAT",
    "HINT",
    "PAGES",
    "SEGMENTS",
    "SNAPSHOTS",
    "Moment",
    "bundle_key",
    "count_seconds",
    "format_time",
    "heap_key",
    "heap_seed",
    "made_at",
    "new_id",
    "page_key",
    "refs_key",
    "segment_folder",
    "shard_mark",
    "snapshot_key",
    "snapshot_number",
    "sources_key",
    "values_key",
]

FORMAT = 1
"""Version of the format."""

FOLDER = ".vstack"
HINT = f"{FOLDER}/zarr.json"
SNAPSHOTS = f"{FOLDER}/snapshots"
SEGMENTS = f"{FOLDER}/segments"
PAGES = f"{FOLDER}/pages"
BUNDLES = f"{FOLDER}/bundles"
_LAST_SNAPSHOT = 10**12 - 1


def snapshot_key(number: int, /) -> str:
    """Give the key of a snapshot; keys descend, so that the newest is the first of a listing.

    >>> snapshot_key(0)
    '.vstack/snapshots/999999999999.json.gz'

    Raises
    ------
    ManifestError
        There can be none of this number.
    """
    if not 0 <= number <= _LAST_SNAPSHOT:
        raise ManifestError(f"{number} is no number of a snapshot: they count from 0 to {_LAST_SNAPSHOT}")
    return f"{SNAPSHOTS}/{_LAST_SNAPSHOT - number:012d}.json.gz"


def snapshot_number(key: str, /) -> int | None:
    """Give the number of the snapshot at a key; ``None`` where the key is none of a snapshot."""
    digits = key.removeprefix(f"{SNAPSHOTS}/").removesuffix(".json.gz")
    number = _LAST_SNAPSHOT - int(digits) if len(digits) == 12 and digits.isascii() and digits.isdigit() else None
    return number if number is not None and key == snapshot_key(number) else None


def new_id() -> str:
    """Make a name that nobody else makes; it begins with the time, in milliseconds since 1970 (UTC), as 12 digits."""
    return f"{time.time_ns() // 10**6:012x}{secrets.token_hex(6)}"


def made_at(name: str, /) -> float:
    """Give the seconds since 1970 at which :func:`new_id` made a name."""
    return int(name[:12], 16) / 1000


def _checked(name: str) -> str:
    if len(name) != 24 or not set(name) <= set("0123456789abcdef"):
        raise ManifestError(f"{name[:100]!r} is no name of an object of a vstack")
    return name


def segment_folder(segment: str, /) -> str:
    """Give the folder of all objects of a segment."""
    return f"{SEGMENTS}/{_checked(segment)}"


def refs_key(segment: str, shard: int | None = None, /) -> str:
    """Give the key of a shard of rows, or of the metadata of its array."""
    return f"{segment_folder(segment)}/refs/" + ("zarr.json" if shard is None else f"c/0/{shard}")


def shard_mark(segment: str, shard: int, /) -> bytes:
    """Give the 16 bytes by which a shard is known: the name of its segment, and its number."""
    return bytes.fromhex(_checked(segment)) + struct.pack("<I", shard)


def sources_key(segment: str, page: int, /) -> str:
    """Give the key of a page of sources."""
    return f"{segment_folder(segment)}/sources/{page}.json.gz"


def heap_key(segment: str, part: int, /) -> str:
    """Give the key of a part of the heap."""
    return f"{segment_folder(segment)}/heap/{part}"


def values_key(segment: str, part: int, /) -> str:
    """Give the key of a part of the chunks that were written into the store itself."""
    return f"{FOLDER}/segments/{_checked(segment)}/values/{part}"


def heap_seed(segment: str, part: int, /) -> int:
    """Give the CRC-32 that those of the chunks in a part of the heap go on from, so that no other part has them."""
    return zlib.crc32(f"{_checked(segment)}/{part}".encode())


def page_key(name: str, /) -> str:
    """Give the key of a page of a table."""
    return f"{PAGES}/{_checked(name)}.json.gz"


def bundle_key(name: str, /) -> str:
    """Give the key of a bundle of loaded variables."""
    return f"{BUNDLES}/{_checked(name)}"


type Moment = str | datetime | np.datetime64
"""A time: ISO 8601, in UTC where it has no time zone; a `datetime` that has one; or one of numpy, which is in UTC."""


def count_seconds(moment: Moment, /) -> float:
    """Give the seconds since 1970 of a moment; what has no time zone is in UTC, as the times of a log are.

    >>> count_seconds("1970-01-02"), count_seconds(np.datetime64("1970-01-02T00:00:00.5"))
    (86400.0, 86400.5)

    Raises
    ------
    ValueError
        The text is no time of ISO 8601; or a `datetime` has no time zone, so that it could be of any.
    TypeError
        It is something else.
    """
    if not isinstance(moment, str | datetime | np.datetime64):
        raise TypeError(f"{moment!r} is no time: give a text such as '2026-01-31T12:00:00Z', or a datetime")
    if moment != moment:
        raise ValueError(f"{moment!r} is no time")
    if isinstance(moment, np.datetime64):
        return float((moment - np.datetime64(0, "s")) / np.timedelta64(1, "s"))
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError as error:
            raise ValueError(
                f"{moment!r} is no time: give one such as '2026-01-31' or '2026-01-31T12:00:00Z', or a number"
            ) from error
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    if moment.tzinfo is None:
        raise ValueError(
            f"{moment!r} has no time zone: give one, as datetime.now(timezone.utc) does, or a text, which is in UTC"
        )
    return moment.timestamp()


def format_time(seconds: float, /) -> str:
    """Give a moment as a text, in UTC; never one before it, so that what was committed then is found by it.

    >>> format_time(86400.5)
    '1970-01-02 00:00:00.500000Z'
    """
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
        if moment.timestamp() < seconds:
            moment += timedelta(microseconds=1)
        return moment.strftime("%Y-%m-%d %H:%M:%S.%fZ")
    except (ValueError, OverflowError, OSError):  # of a damaged or a strange store
        return f"{seconds} s"
