"""URLs and patterns of them as the URLs of what is there."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import absolute_url, local_path
from virtualstack.storage.registry import Storage, StorageLike

__all__ = ["find_urls", "is_pattern", "natural_key"]

_MAGIC = re.compile(r"[*?\[]")
_WEB = ("http://", "https://")


def find_urls(patterns: Iterable[str | os.PathLike[str]], /, *, storage: StorageLike = None) -> list[str]:
    """Give the URLs that patterns match, one pattern after the other; what is no pattern is given as its own URL.

    ``*`` and ``?`` stand for characters within one folder, ``**`` for any folders, ``[0-9]`` for one character of a
    set. What one pattern matches is in natural order: ``9.nc`` before ``10.nc``. Remote folders are listed whole, from
    the last folder before the first such character on.

    Parameters
    ----------
    patterns
        Local paths or URLs.
    storage
        How remote folders are reached; see :func:`virtualstack.open_virtual_dataset`.

    Raises
    ------
    SourceNotFoundError
        Nothing matches a pattern.
    StorageError
        A folder cannot be listed, as on web servers.
    """
    found: list[str] = []
    for pattern in patterns:
        if is_pattern(pattern):
            found += _matches(os.fspath(pattern), Storage.of(storage))
        else:
            found.append(absolute_url(pattern))
    return found


def is_pattern(path: str | os.PathLike[str], /) -> bool:
    """Tell whether a path or URL is a pattern; what there is by that very name is none, and ``?`` in a web URL neither.

    >>> is_pattern("data/*.nc"), is_pattern("https://example.org/get?file=1")
    (True, False)
    """
    text = os.fspath(path)
    if text.lower().startswith(_WEB):
        return "*" in text.partition("?")[0]
    if _MAGIC.search(text) is None:
        return False
    local = local_path(absolute_url(text))
    return local is None or not local.exists()


def natural_key(text: str, /) -> list[tuple[int, int, str]]:
    """Give a key that sorts numbers in names by their value.

    >>> sorted(["b10.nc", "b9.nc", "a.nc"], key=natural_key)
    ['a.nc', 'b9.nc', 'b10.nc']
    """
    parts = re.split(r"([0-9]+)", text)
    return [(0, int(x), x) if i % 2 else (1, 0, x) for i, x in enumerate(parts)]


def _matches(pattern: str, storage: Storage) -> list[str]:
    url = absolute_url(pattern)
    if url.startswith(_WEB):
        raise StorageError(
            f"'{pattern}': a web server has no list of its files that could be matched; give a list of URLs",
            url=url,
        )
    if local_path(url) is not None:
        found = [absolute_url(path) for path in _local(str(local_path(url)))]
    else:
        found = _remote(url, storage)
    if not found:
        raise SourceNotFoundError(f"nothing matches '{pattern}'; check the folder and the pattern", url=url)
    return sorted(found, key=natural_key)


def _local(pattern: str) -> list[str]:
    """Match local files, and folders that bear a suffix: references as parquet are such."""
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    return [path for path in found if not os.path.isdir(path) or "." in Path(path).name]


def _remote(pattern: str, storage: Storage) -> list[str]:
    first = _MAGIC.search(pattern)
    root = pattern[: pattern.rindex("/", 0, first.start() if first else None) + 1]
    if root.endswith("://"):
        raise StorageError(f"'{pattern}': the name of a bucket cannot be a pattern", url=pattern)
    expression = re.compile(_translated(pattern[len(root) :]), re.DOTALL)
    return [root + key for key in storage.target(root).list() if expression.fullmatch(key)]


def _translated(pattern: str) -> str:
    """Write a pattern of paths as a regular expression."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.split(r"(\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\])", pattern)
    return "".join(parts.get(x) or (_character_set(x) if i % 2 else re.escape(x)) for i, x in enumerate(tokens) if x)


def _character_set(token: str) -> str:
    inside = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
    return f"[^/{inside[1:]}]" if inside.startswith("!") else f"(?!/)[{inside}]"
