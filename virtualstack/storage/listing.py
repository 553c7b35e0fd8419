"""Turn paths, URLs and patterns into the URLs of existing files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

from virtualstack.errors import Remedy, SourceNotFoundError, StorageError
from virtualstack.location import ARCHIVES, Location, absolute_url, is_http, local_path
from virtualstack.storage.folders import MAGIC, Entry, LocalTree, find, is_there, matcher
from virtualstack.storage.registry import Storage, StorageLike
from virtualstack.storage.threads import concurrently

_CACHES = frozenset({"simplecache", "filecache", "blockcache", "cached"})
_CHECK = Remedy("check the folder and the pattern")
_MARKS = (".zgroup", ".zarray", ".zmetadata", "zarr.json")
"""Names of files that mark a folder as a store, of zarr or of references as parquet."""

_STORES = (".zarr", ".parq", ".parquet")
"""Endings of folder names that are meant to be stores: a damaged store is not skipped."""


def find_urls(patterns: Iterable[str | os.PathLike[str]], /, *, storage: StorageLike = None) -> list[str]:
    """Return the URLs that patterns match, pattern by pattern; a path without wildcards becomes its own URL.

    ``*`` and ``?`` match characters within one folder, ``**`` any number of folders, ``[0-9]`` one character of a set.
    The matches of one pattern are in natural order: ``9.nc`` before ``10.nc``. A folder that is a store counts as a
    file; other folders are not matched. A file that has the pattern as its name is the only match.

    Remote folders are listed level by level, from the last folder before the first wildcard, and from ``**`` on
    with all folders below.
    """
    return list(chain.from_iterable(find_each(patterns, storage=storage)))


def find_each(patterns: Iterable[str | os.PathLike[str]], /, *, storage: StorageLike = None) -> list[list[str]]:
    """Return the URLs of each pattern; see `find_urls`."""
    storage, patterns = Storage.from_option(storage), list(patterns)
    remote = [url for url in (absolute_url(x) for x in patterns if is_pattern(x)) if local_path(url) is None]
    names = {answer.url for answer in storage.look_up(remote) if isinstance(answer, Location)}
    return [
        _matches(os.fspath(x), storage) if is_pattern(x) and absolute_url(x) not in names else [found_url(x)]
        for x in patterns
    ]


def list_files(patterns: Iterable[str], /, *, storage: Storage) -> dict[str, Location]:
    """Return the files that patterns match, by URL, with size, etag and modification time; see `find_urls`.

    Each pattern takes one listing of everything below the folder before its first wildcard. A folder is never a match.
    """
    found: dict[str, Location] = {}
    for pattern in map(absolute_url, patterns):
        first = MAGIC.search(pattern)
        if first is None or not is_pattern(pattern):
            (answer,) = storage.look_up([pattern])
            if isinstance(answer, StorageError):
                raise answer
            found[pattern] = answer
            continue
        top = pattern[: first.start()].rpartition("/")[0]
        contents = storage.target(top).contents()
        own = {x.url: x for x in contents.values() if fits_pattern(x.url, pattern)}
        if not own:
            raise SourceNotFoundError(f"nothing matches '{pattern}'", _CHECK, url=pattern)
        found |= sorted(own.items(), key=lambda item: natural_key(item[0]))
    return found


def fits_pattern(url: str, pattern: str, /) -> bool:
    """Return whether a URL matches an absolute pattern; hidden files and folders match only if they are named.

    >>> fits_pattern("s3://b/2020/01/a.nc", "s3://b/**/*.nc"), fits_pattern("s3://b/2020/a.nc", "s3://b/*.nc")
    (True, False)
    """
    return _fit(tuple(url.split("/")), tuple(pattern.split("/")))


def _fit(names: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    if not segments or not names:
        return not segments and not names
    if segments[0] == "**":
        is_shown = not names[0].startswith(".")
        return _fit(names, segments[1:] or ("*",)) or (is_shown and _fit(names[1:], segments))
    return matcher(segments[0])(names[0]) and _fit(names[1:], segments[1:])


def find_url(path: str | os.PathLike[str], /, *, storage: StorageLike = None) -> str:
    """Return the URL of one file; a pattern has to be its name."""
    if is_pattern(path) and find_urls([path], storage=storage) != [absolute_url(path)]:
        raise SourceNotFoundError(
            f"'{path}' is a pattern, which may match many files. Open them with open_virtual_mfdataset or "
            "open_virtual_mfdatatree, or name one of them"
        )
    return found_url(path)


def _matches(pattern: str, storage: Storage) -> list[str]:
    url = absolute_url(pattern)
    local = local_path(url)
    if local is None:
        found = _remote(url, storage)
    else:
        found = _local(local) or (_local(Path(unquote(str(local)))) if _is_url(pattern) else [])
    if not found:
        raise SourceNotFoundError(f"nothing matches '{pattern}'", _CHECK, url=url)
    return sorted(found, key=natural_key)


def _remote(pattern: str, storage: Storage) -> list[str]:
    first = MAGIC.search(pattern)
    top = pattern[: first.start() if first else None].rpartition("/")[0]
    if top.endswith("/"):
        raise StorageError(f"'{pattern}': the name of a bucket cannot be a pattern", url=pattern)
    tree = RemoteTree(storage, top)
    found = find(tree, top, pattern[len(top) + 1 :].split("/"))
    return _sources(found, tree.stores([x for x, is_folder in found.items() if is_folder]))


class RemoteTree:
    """The folders below a URL, which are listed for one pattern."""

    def __init__(self, storage: Storage, top: str, /) -> None:
        self._storage, self._target = storage, storage.target(top)
        self._listed: dict[str, Iterable[Entry]] = {}  # paths in a folder

    def entries(self, folders: Sequence[str], matches: Callable[[str], bool], /) -> Iterable[Entry]:
        """Return the paths in folders whose names match."""
        listed = concurrently(self._entries, folders, folders[:1])
        return (x for entries in listed for x in entries if matches(x[0].rpartition("/")[2]))

    def _entries(self, folder: str) -> Iterable[Entry]:
        known = self._listed.get(folder)
        return [(f"{folder}/{x}", y) for x, y in self._target.entries(self._key(folder))] if known is None else known

    def _key(self, path: str) -> str:
        return path[len(self._target.url) :]

    def below(self, top: str, /) -> Iterator[Entry]:
        """Yield a folder and everything in and below it that is not hidden."""
        if top not in self._listed:
            listed: dict[str, dict[Entry, None]] = {top: {}}
            for key in self._target.list(self._key(top)):
                entry = self._target.url + key, False
                while entry[0] != top and entry not in (known := listed.setdefault(entry[0].rpartition("/")[0], {})):
                    known[entry] = None
                    entry = entry[0].rpartition("/")[0], True
            self._listed |= listed
        todo = [(top, True)]
        while todo:
            path, is_folder = todo.pop()
            yield path, is_folder
            todo += [x for x in self._listed.get(path, ()) if is_folder and "/." not in x[0][len(path) :]]

    def kind(self, path: str, /) -> bool | None:
        """Return whether a path is a folder; ``None`` if it does not exist."""
        answer = self._storage.look_up([path])[0]
        if isinstance(answer, StorageError) and not isinstance(answer, SourceNotFoundError):
            raise answer
        return False if isinstance(answer, Location) else bool(self._entries(path)) or None

    def stores(self, folders: Sequence[str], /) -> set[str]:
        """Return the folders that are stores."""
        unnamed = [x for x in folders if not x.endswith(_STORES)]
        marked = self.entries(unnamed, _MARKS.__contains__)
        return {*folders} - {*unnamed} | {path.rpartition("/")[0] for path, _ in marked}


def is_pattern(path: str | os.PathLike[str], /) -> bool:
    """Return whether a path or URL is a pattern; the name of an existing file is not, nor is ``?`` in a web URL.

    >>> is_pattern("data/*.nc"), is_pattern("https://example.org/get?file=1")
    (True, False)
    """
    text = os.fspath(path)
    if is_http(text.lower()):
        return "*" in text.partition("?")[0]
    if MAGIC.search(text) is None:
        return False
    local = local_path(absolute_url(text))
    return local is None or not os.path.exists(local)


def natural_key(text: str, /) -> str:
    """Return a sort key that orders numbers in names by their value; it is short, as there may be millions.

    >>> sorted(["b10.nc", "b9.nc", "a.nc"], key=natural_key)
    ['a.nc', 'b9.nc', 'b10.nc']
    """
    return re.sub("[0-9]+", _by_value, text)


def _by_value(found: re.Match[str]) -> str:
    """Return digits after their value, and that after its length; what goes on with a number is before other text."""
    value = found[0].lstrip("0")
    return f"\0{len(value):04}{value}{found[0]}\0"


def found_url(path: str | os.PathLike[str], /) -> str:
    """Return the absolute URL of a path or URL; a local URL may be percent-encoded as :meth:`Path.as_uri` writes it."""
    text = os.fspath(path)
    if not text:
        raise StorageError("'' is no URL or path; the working directory is '.'")
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


def _local(pattern: Path) -> list[str]:
    """Return the URLs of the files, and of the folders that are stores, that match a pattern."""
    found = find(LocalTree(), pattern.anchor.rstrip("/\\"), pattern.parts[1:])
    stores = {path for path, is_folder in found.items() if is_folder and _is_store(path)}
    return [absolute_url(path) for path in _sources(found, stores)]


def _is_store(folder: str) -> bool:
    return folder.endswith(_STORES) or any(is_there(os.path.join(folder, name)) for name in _MARKS)


def _sources(found: Mapping[str, bool], stores: Collection[str]) -> list[str]:
    """Return the stores, and the files that are not inside one of them."""
    paths = [path for path, is_folder in found.items() if path in stores or not is_folder]
    return [x for x in paths if not any(x[: slash.start()] in stores for slash in re.finditer(r"[/\\]", x))]
