"""Local folders, walked so that what may not be read is an error, and not left out."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from virtualstack.errors import StorageError
from virtualstack.storage.pattern import MAGIC, path_expression

__all__ = ["Visits", "find_local", "is_there", "sync_folders"]

_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

_LOSSES = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""Errors that tell that something was not written; others tell that folders cannot be synchronised here."""

_MAX_VISITS = 1000


class Visits:
    """Counts how often each folder is entered where links are followed: a few of them can make any number of ways."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, int]] = Counter()

    def enter(self, status: os.stat_result, path: str, /) -> tuple[int, int]:
        """Count a folder, and give what it is known by.

        Raises
        ------
        StorageError
            It was entered too often.
        """
        which = status.st_dev, status.st_ino
        self._counts[which] += 1
        if self._counts[which] > _MAX_VISITS:
            raise StorageError(
                f"links lead to the folder '{path[:200]}' in more than {_MAX_VISITS} ways: remove them, or name the "
                "folders themselves",
                url=f"file://{path}",
            )
        return which


def find_local(pattern: str, /) -> dict[str, bool]:
    """Find what matches an absolute pattern, as :func:`glob.glob` does, and tell of each path whether it is a folder.

    A folder that lies within itself, by a link, is not entered again.

    Raises
    ------
    StorageError
        A folder cannot be listed, which :func:`glob.glob` passes over; or the pattern is no path.
    """
    anchor, *segments = Path(pattern).parts
    found: dict[str, bool | None] = {anchor: True}  # None: not looked at
    for i, segment in enumerate(segments, 1):
        of_folders = [path for path, is_folder in found.items() if is_folder is not False]
        is_last = i == len(segments)
        if segment == "**":
            found = {path: x for folder in of_folders for path, x in _below(folder) if x or is_last}
        elif MAGIC.search(segment):
            matches = path_expression(segment).fullmatch
            found = {x.path: _is_folder(x) for folder in of_folders for x in _entries(folder) if matches(x.name)}
        else:
            found = {os.path.join(folder, segment): None for folder in of_folders}
    looked_at = ((path, os.path.isdir(path) if x is None and is_there(path) else x) for path, x in found.items())
    return {path: x for path, x in looked_at if x is not None}


def is_there(path: str, /) -> bool:
    """Tell whether there is something by a name, be it a link to nothing; that it cannot be told is an error."""
    return _asked(lambda: os.lstat(path), path) is not None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return bool(_asked(entry.is_dir, entry.path))


def _below(top: str) -> Iterator[tuple[str, bool]]:
    """Give a folder, and all in it that is not hidden."""
    status = _asked(lambda: Path(top).stat(), top)
    if status is None or not stat.S_ISDIR(status.st_mode):
        return
    visits = Visits()
    todo = [(top, frozenset({visits.enter(status, top)}))]
    yield top, True
    while todo:
        folder, above = todo.pop()
        for entry in _entries(folder):
            if entry.name.startswith("."):
                continue
            if not _is_folder(entry):
                yield entry.path, False
            elif (status := _asked(entry.stat, entry.path)) and (status.st_dev, status.st_ino) not in above:
                yield entry.path, True
                todo.append((entry.path, above | {visits.enter(status, entry.path)}))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    return _asked(lambda: list(os.scandir(folder)), folder) or []


def _asked[T](ask: Callable[[], T], path: str) -> T | None:
    """Ask the file system; ``None`` where there is nothing."""
    try:
        return ask()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _NOTHING:
            return None
        reason = getattr(error, "strerror", error)
        raise StorageError(
            f"'{path[:200]}' cannot be looked at, so that what matches is not known: {reason}; "
            "give a pattern that leaves it out, or a list of files",
            url=f"file://{path}",
        ) from error


def sync_folders(folders: Collection[Path], root: Path, /) -> None:
    """Write the names in some folders to the disk, and the names of these folders up to the parent of a root.

    The name of a new file is on the disk when its folder was synchronised (POSIX, fsync), not when the file was.

    Raises
    ------
    OSError
        The disk is full or damaged.
    """
    above = {parent for folder in folders for parent in folder.parents if root.parent in (parent, *parent.parents)}
    for folder in sorted({*folders, *above}, reverse=True):  # those within come first
        try:
            number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(number)
            finally:
                os.close(number)
        except OSError as error:
            if error.errno in _LOSSES:
                raise
