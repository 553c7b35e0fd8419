"""Search local folders by patterns in linear time; a folder that cannot be read is an error and is not skipped."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from virtualstack.errors import StorageError
from virtualstack.location import absolute_url

__all__ = ["MAGIC", "files_below", "find_local", "is_there", "list_folder", "path_expression"]

MAGIC = re.compile(r"[*?\[]")
"""Characters that make a path a pattern."""

_NOT_HIDDEN = r"(?!\.)"
_FOLDERS = rf"(?:{_NOT_HIDDEN}[^/]*+/)*?"
_TOKENS = re.compile(r"(\*+|\?|\[!?\]?[^\]]*\])")


def path_expression(pattern: str, /) -> re.Pattern[str]:
    """Translate a pattern as in :func:`glob.glob`: ``**`` is any folders, and names with a leading dot are hidden.

    The text between two stars matches at its first occurrence only (an atomic group). The rest that remains to be
    matched is then the longest, so no match is lost, and the search never has to go back.

    >>> bool(path_expression("**/t[0-9]*.nc").fullmatch("a/b/t12.nc"))
    True
    """
    blocks: list[list[str]] = [[]]
    for segment in pattern.split("/"):
        if segment == "**":
            blocks.append([])
        else:
            blocks[-1].append(_segment(segment))
    first, *others = ("/".join(block) for block in blocks)
    if not others:
        return re.compile(first, re.DOTALL)
    made = [f"{first}/"] if first else []
    made += [f"(?>{_FOLDERS}{block}/)" for block in others[:-1] if block]
    made.append(_FOLDERS + (others[-1] or f"{_NOT_HIDDEN}[^/]*"))
    return re.compile("".join(made), re.DOTALL)


def _segment(pattern: str) -> str:
    """Translate the part of a pattern between two slashes."""
    pieces = [""]
    for i, token in enumerate(_TOKENS.split(pattern)):
        if token.startswith("*"):
            pieces.append("")
        elif i % 2:
            pieces[-1] += "[^/]" if token == "?" else _character_set(token[1:-1])
        else:
            pieces[-1] += re.escape(token)
    first, *others = pieces
    hides = _NOT_HIDDEN if _TOKENS.match(pattern) else ""
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1] if piece)
    return hides + first + middle + (f"[^/]*{others[-1]}" if others else "")


def _character_set(inside: str) -> str:
    """Translate a character set; a set with only empty ranges, such as ``z-a``, matches no character."""
    is_negated, chars = inside.startswith("!"), inside.removeprefix("!")
    made = ""
    while chars:
        is_range = len(chars) > 2 and chars[1] == "-"
        low, high = chars[0], chars[2] if is_range else chars[0]
        made += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
        chars = chars[3 if is_range else 1 :]
    if is_negated:
        return f"[^/{made}]"
    return f"(?!/)[{made}]" if made else r"(?!)"


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


def find_local(pattern: str, /) -> dict[str, bool]:
    """Find the paths that match an absolute pattern, as :func:`glob.glob` does; values: whether the path is a folder.

    A folder that contains itself through a link is not entered again.

    Raises
    ------
    StorageError
        A folder cannot be listed, which :func:`glob.glob` ignores, or the pattern is not a valid path.
    """
    anchor, *segments = Path(pattern).parts
    found: dict[str, bool | None] = {anchor: True}  # None: not yet checked
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
    """Return whether a path exists, even as a broken link; raise `StorageError` if that cannot be determined."""
    return _asked(lambda: os.lstat(path), path) is not None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return bool(_asked(entry.is_dir, entry.path))


def _below(top: str) -> Iterator[tuple[str, bool]]:
    """Yield a folder and everything in it that is not hidden, each with whether it is a folder."""
    status = _asked(lambda: Path(top).stat(), top)
    if status is None or not stat.S_ISDIR(status.st_mode):
        return
    visits = _Visits()
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
    return _asked(lambda: list_folder(folder), folder) or []


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


def files_below(top: str, /) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the files in and below a folder, each with its path relative to the folder. Links to folders are followed.

    Raises
    ------
    OSError, StorageError
        A folder cannot be listed, or links lead into a folder too often.
    """
    visits, todo = _Visits(), [(top, "", frozenset[tuple[int, int]]())]
    while todo:
        folder, at, above = todo.pop()
        for entry in list_folder(folder):
            if not entry.is_dir():
                yield at + entry.name, entry
            elif ((status := entry.stat()).st_dev, status.st_ino) not in above:  # otherwise a link leads back
                todo.append((entry.path, f"{at}{entry.name}/", above | {visits.enter(status, entry.path)}))


def _asked[T](ask: Callable[[], T], path: str) -> T | None:
    """Return the answer of the file system, or ``None`` if the path does not exist."""
    try:
        return ask()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _NOT_THERE:
            return None
        reason = getattr(error, "strerror", error)
        raise StorageError(
            f"'{path[:200]}' cannot be listed, so the files that match the pattern are not known: {reason}. Give a "
            "pattern without it, or a list of files",
            url=absolute_url(path),
        ) from error
