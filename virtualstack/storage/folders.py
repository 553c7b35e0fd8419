"""Search folders by patterns, level by level; a folder that cannot be read is an error and is not skipped."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from virtualstack.errors import Remedy, StorageError
from virtualstack.location import absolute_url
from virtualstack.storage.threads import concurrently

MAGIC = re.compile(r"[*?\[]")
"""Characters that make a path a pattern."""

type Entry = tuple[str, bool]
"""A path, and whether it is a folder."""


class Tree(Protocol):
    """Folders in which files are found by patterns."""

    def entries(self, folders: Sequence[str], matches: Callable[[str], bool], /) -> Iterable[Entry]:
        """Return the paths in folders whose names match."""

    def below(self, top: str, /) -> Iterator[Entry]:
        """Yield a folder and everything in and below it that is not hidden."""

    def kind(self, path: str, /) -> bool | None:
        """Return whether a path is a folder; ``None`` if it does not exist."""


def find(tree: Tree, top: str, pattern: Sequence[str], /) -> dict[str, bool]:
    """Find the paths below a folder that match the segments of a pattern; values: whether the path is a folder.

    It does so level by level, as :func:`glob.glob` does. Names with a leading dot are hidden.

    Raises
    ------
    StorageError
        A folder cannot be listed, which :func:`glob.glob` ignores, or the pattern is not a valid path.
    """
    found: dict[str, bool | None] = {top: True}  # None: not yet checked
    for i, segment in enumerate(pattern, 1):
        folders = [path for path, is_folder in found.items() if is_folder is not False]
        if segment == "**":
            found = {path: x for folder in folders for path, x in tree.below(folder) if x or i == len(pattern)}
        elif MAGIC.search(segment):
            found = dict(tree.entries(folders, matcher(segment)))
        else:
            found = {f"{folder}/{segment}": None for folder in folders}
    unknown = [path for path, x in found.items() if x is None]
    found |= zip(unknown, concurrently(tree.kind, unknown, map(absolute_url, unknown[:1])), strict=True)
    return {path: x for path, x in found.items() if x is not None}


@lru_cache(maxsize=64)
def matcher(segment: str, /) -> Callable[[str], bool]:
    """Return a function that tells whether the name of a file or folder fits a segment of a pattern."""
    matches, is_hidden = re.compile(fnmatch.translate(segment)).match, segment.startswith(".")
    return lambda name: name.startswith(".") <= is_hidden and matches(name) is not None


_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

_MAX_VISITS = 1000


class _Visits:
    """Counter of how often each folder is entered, as a few links can lead to a folder in any number of ways."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, int]] = Counter()

    def enter(self, status: os.stat_result, path: str, /) -> tuple[int, int]:
        """Count a visit to a folder, and return its device and inode number.

        Raises
        ------
        StorageError
            The folder was entered too often.
        """
        which = status.st_dev, status.st_ino
        self._counts[which] += 1
        if self._counts[which] > _MAX_VISITS:
            raise StorageError(
                f"links lead to the folder '{path[:200]}' on more than {_MAX_VISITS} paths. Remove the links, or "
                "give the folders themselves",
                url=absolute_url(path),
            )
        return which


def is_there(path: str, /) -> bool:
    """Return whether a path exists, even as a broken link; raise `StorageError` if that cannot be determined."""
    return _asked(lambda: os.lstat(path), path) is not None


class LocalTree:
    """The folders of this machine."""

    def entries(self, folders: Sequence[str], matches: Callable[[str], bool], /) -> Iterable[Entry]:
        """Return the paths in folders whose names match."""
        return ((x.path, _is_folder(x)) for folder in folders for x in _entries(folder) if matches(x.name))

    def below(self, top: str, /) -> Iterator[Entry]:
        """Yield a folder and everything in and below it that is not hidden."""
        if os.path.isdir(f"{top}/"):
            yield top, True
            yield from ((entry.path, is_folder) for entry, is_folder in _walk(top, shows_hidden=False))

    def kind(self, path: str, /) -> bool | None:
        """Return whether a path is a folder; ``None`` if it does not exist."""
        return os.path.isdir(path) if is_there(path) else None


def files_below(top: str, /) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the files in and below a folder, each with its path relative to the folder. Links to folders are followed.

    Raises
    ------
    StorageError
        A folder cannot be listed, or links lead into a folder too often.
    """
    for entry, is_folder in _walk(top, shows_hidden=True):
        if not is_folder:
            yield entry.path[len(top) :].replace(os.sep, "/").lstrip("/"), entry


def _walk(top: str, *, shows_hidden: bool) -> Iterator[tuple[os.DirEntry[str], bool]]:
    """Yield everything in and below a folder; a folder that contains itself through a link is not entered again."""
    visits, todo = _Visits(), [(top, frozenset[tuple[int, int]]())]
    while todo:
        folder, above = todo.pop()
        status = _asked(lambda: Path(f"{folder}/").stat(), folder)  # noqa: B023 - called at once
        if status is None or (status.st_dev, status.st_ino) in above:
            continue
        above |= {visits.enter(status, folder)}
        for entry in _entries(folder):
            if shows_hidden or not entry.name.startswith("."):
                is_folder = _is_folder(entry)
                yield entry, is_folder
                if is_folder:
                    todo.append((entry.path, above))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return bool(_asked(entry.is_dir, entry.path))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    return _asked(lambda: list_folder(f"{folder}/"), folder) or []


def list_folder(folder: str, /) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; an empty list if the folder does not exist.

    Raises
    ------
    OSError
        The folder cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _asked[T](ask: Callable[[], T], path: str) -> T | None:
    """Return the answer of the file system, or ``None`` if the path does not exist."""
    try:
        return ask()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _NOT_THERE:
            return None
        reason = getattr(error, "strerror", error)
        raise StorageError(
            f"'{path[:200]}' cannot be listed: {reason}",
            Remedy("give a pattern without it, or a list of files"),
            url=absolute_url(path),
        ) from error
