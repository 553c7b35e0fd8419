"""Turn paths, URLs and patterns into the URLs of existing files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import ARCHIVES, absolute_url, local_path
from virtualstack.storage.folders import MAGIC, find_local, is_there, path_expression
from virtualstack.storage.registry import Storage, StorageLike

__all__ = ["find_urls", "found_url", "is_pattern", "natural_key"]

_CACHES = frozenset({"simplecache", "filecache", "blockcache", "cached"})
_WEB = ("http://", "https://")
_MARKS = (".zgroup", ".zarray", ".zmetadata", "zarr.json")
"""Names of files that mark a folder as a store, of zarr or of references as parquet."""

_STORES = (".zarr", ".parq", ".parquet")
"""Endings of folder names that are meant to be stores: a damaged store is not skipped."""


def find_urls(patterns: Iterable[str | os.PathLike[str]], /, *, storage: StorageLike = None) -> list[str]:
    """Return the URLs that patterns match, pattern by pattern; a path without wildcards becomes its own URL.

    ``*`` and ``?`` match characters within one folder, ``**`` any number of folders, ``[0-9]`` one character of a set.
    The matches of one pattern are in natural order: ``9.nc`` before ``10.nc``. A folder that is a store counts as a
    file; other folders are not matched. Remote folders are listed completely, from the last folder before the first
    wildcard.

    Parameters
    ----------
    patterns
        Local paths or URLs.
    storage
        Access to remote folders; see :func:`virtualstack.open_virtual_dataset`.

    Raises
    ------
    SourceNotFoundError
        Nothing matches a pattern.
    StorageError
        A folder cannot be listed: it is on a web server, or reading it is not permitted.
    """
    found: list[str] = []
    for pattern in patterns:
        if is_pattern(pattern):
            found += _matches(os.fspath(pattern), Storage.from_option(storage))
        else:
            found.append(found_url(pattern))
    return found


def is_pattern(path: str | os.PathLike[str], /) -> bool:
    """Return whether a path or URL is a pattern; the name of an existing file is not, nor is ``?`` in a web URL.

    >>> is_pattern("data/*.nc"), is_pattern("https://example.org/get?file=1")
    (True, False)
    """
    text = os.fspath(path)
    if text.lower().startswith(_WEB):
        return "*" in text.partition("?")[0]
    if MAGIC.search(text) is None:
        return False
    local = local_path(absolute_url(text))
    return local is None or not os.path.exists(local)


def natural_key(text: str, /) -> list[tuple[int, int, str]]:
    """Return a sort key that orders numbers in names by their value.

    >>> sorted(["b10.nc", "b9.nc", "a.nc"], key=natural_key)
    ['a.nc', 'b9.nc', 'b10.nc']
    """
    parts = re.split(r"([0-9]+)", text)
    return [(0, int(x), x) if i % 2 else (1, 0, x) for i, x in enumerate(parts)]


def found_url(path: str | os.PathLike[str], /) -> str:
    """Return the absolute URL of a path or URL; a local URL may be percent-encoded as :meth:`Path.as_uri` writes it."""
    text = os.fspath(path)
    if isinstance(text, str) and "::" in text and not os.path.exists(text):
        outer, _, inner = text.partition("::")
        scheme = outer.partition("://")[0]
        if scheme in _CACHES:
            return found_url(inner)  # references name what is cached
        if outer.startswith(ARCHIVES):
            return f"{outer}::{found_url(inner)}"
    url = absolute_url(path)
    local = local_path(url)
    if local is None or "%" not in url or not _is_url(path) or os.path.exists(local):
        return url
    plain = absolute_url(unquote(url))
    return plain if os.path.exists(local_path(plain) or "") else url


def _is_url(path: str | os.PathLike[str]) -> bool:
    return "://" in os.fspath(path)


def _matches(pattern: str, storage: Storage) -> list[str]:
    url = absolute_url(pattern)
    if url.startswith(_WEB):
        raise StorageError(
            f"'{pattern}': a web server cannot list its files, so a pattern cannot be matched. Give a list of URLs",
            url=url,
        )
    local = local_path(url)
    if local is None:
        found = _remote(url, storage)
    else:
        found = _local(str(local)) or (_local(unquote(str(local))) if _is_url(pattern) else [])
    if not found:
        raise SourceNotFoundError(f"nothing matches '{pattern}'; check the folder and the pattern", url=url)
    return sorted(found, key=natural_key)


def _local(pattern: str) -> list[str]:
    """Return the URLs of the files, and of the folders that are stores, that match a pattern."""
    found = find_local(pattern)
    stores = {path for path, is_folder in found.items() if is_folder and _is_store(path)}
    return [absolute_url(path) for path in _outermost(found, stores) if path in stores or not found[path]]


def _is_store(folder: str) -> bool:
    return folder.endswith(_STORES) or any(is_there(os.path.join(folder, name)) for name in _MARKS)


def _remote(pattern: str, storage: Storage) -> list[str]:
    first = MAGIC.search(pattern)
    root = pattern[: pattern.rindex("/", 0, first.start() if first else None) + 1]
    if root.endswith("://"):
        raise StorageError(f"'{pattern}': the name of a bucket cannot be a pattern", url=pattern)
    expression = path_expression(pattern[len(root) :])
    keys = storage.target(root).list()
    stores = {store for key in keys for store in _find_stores(key) if expression.fullmatch(store)}
    return [root + key for key in _outermost((*stores, *filter(expression.fullmatch, keys)), stores)]


def _find_stores(key: str) -> Iterator[str]:
    """Yield the parent folders of a key that are stores."""
    folders = key.split("/")[:-1]
    for i, folder in enumerate(folders, 1):
        if folder.endswith(_STORES) or (i == len(folders) and key.endswith(_MARKS)):
            yield "/".join(folders[:i])


def _outermost(paths: Iterable[str], stores: Collection[str]) -> list[str]:
    """Return the paths that are not inside one of the stores."""
    return [x for x in paths if not stores or not any(str(above) in stores for above in PurePosixPath(x).parents)]
