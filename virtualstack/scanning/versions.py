"""Which version of each file a source was read from, and whether it is that one still."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import Location, absolute_url, local_path
from virtualstack.storage import LocalSource, Source, Storage

__all__ = ["Version", "WatchedStorage", "is_unchanged", "surroundings"]

_CLOCK_TICK_SECONDS = 0.02  # seconds; the clock of a local file system moves on every 1 to 10 ms
_PREFIXES = ("HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX")  # where the HDF5 library looks for other files


@dataclass(frozen=True, slots=True)
class Version:
    """What tells one version of a file from another; ``None`` where it is unknown.

    Parameters
    ----------
    size, etag, last_modified
        See `Location`.
    stamp
        Of a local file, see `LocalSource`: another file may be put in its place with the same size and time.
    """

    size: int | None = None
    etag: str | None = None
    last_modified: float | None = None
    stamp: tuple[int, int] | None = None

    @classmethod
    def of(cls, source: Source, /) -> Version:
        """Give the version that was opened."""
        x: Location = source.location
        return cls(x.size, x.etag, x.last_modified, source.stamp if isinstance(source, LocalSource) else None)

    @property
    def is_known(self) -> bool:
        """Whether there is more than a size."""
        return self.size is not None and (self.etag, self.last_modified, self.stamp) != (None, None, None)


@dataclass(frozen=True, slots=True, repr=False)
class WatchedStorage(Storage):
    """A storage that notes what was opened: URL and version, ``None`` where there was nothing.

    What could not be opened has a version that is not known.
    """

    seen: dict[str, Version | None] = field(default_factory=dict, compare=False)

    def source(self, url: str | os.PathLike[str], /, *, expected: Location | None = None) -> Source:
        """Open what is at a URL or local path."""
        key = absolute_url(url)
        try:
            source = Storage.source(self, url, expected=expected)
        except SourceNotFoundError:
            self.seen.setdefault(key, None)
            raise
        except StorageError:
            self.seen[key] = Version()
            raise
        if key not in self.seen:
            self.seen[key] = Version.of(source)
            _let_pass(source)
        return source


def _let_pass(source: Source) -> None:
    """Wait where a file has changed just now: a change that is yet to come shall have another time."""
    if isinstance(source, LocalSource) and source.stamp is not None:
        age = time.time() - source.stamp[1] / 1e9
        if abs(age) < _CLOCK_TICK_SECONDS:
            time.sleep(_CLOCK_TICK_SECONDS)


def is_unchanged(versions: Mapping[str, Version | None], main: str, storage: Storage, /) -> bool:
    """Whether all files are what they were; one request each.

    Raises
    ------
    StorageError
        The main file cannot be asked; others count as changed then.
    """
    return all(_is_same(url, before, main, storage) for url, before in versions.items())


def _is_same(url: str, before: Version | None, main: str, storage: Storage) -> bool:
    try:
        now = Version.of(storage.source(url))
    except SourceNotFoundError:
        return before is None
    except StorageError:
        if url == main:
            raise
        return False
    if before is None or not before.is_known or (now.size, now.stamp) != (before.size, before.stamp):
        return False
    pairs = [(before.etag, now.etag), (before.last_modified, now.last_modified)]
    known = [(old, new) for old, new in pairs if old is not None and new is not None]
    return bool(known) and all(old == new for old, new in known)


def surroundings(main: str, seen: Mapping[str, Any], /) -> list[str] | None:
    """Give where other local files were looked for, beside what stands in the main one; ``None``: there are none."""
    if not any(url != main and local_path(url) is not None for url in seen):
        return None
    try:
        folder = os.getcwd()
    except OSError:  # it is deleted
        folder = ""
    return [folder, *(os.environ.get(name, "") for name in _PREFIXES)]
