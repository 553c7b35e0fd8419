"""Sources of a segment: where bytes lie and which version of them was indexed, in pages; and their URLs."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from virtualstack.errors import ForbiddenLocationError, MalformedFileError
from virtualstack.location import Location, split_url

__all__ = ["FEW_SOURCES", "SOURCES_PAGE", "Prefixes", "SourcePage", "SourceRow", "folders_of"]

SOURCES_PAGE = 4096
"""Sources of a page."""

FEW_SOURCES = 16
"""Sources of a segment that stand in the table of segments."""

STORE, PARENT = "./", "../"


type SourceRow = tuple[int, str, int | None, float | None, str | None]
"""Which prefix of its segment, rest of the URL, size in bytes, time of the last modification (s since 1970), etag."""


@dataclass(frozen=True, slots=True)
class SourcePage:
    """Sources, a column each of their properties."""

    rows: tuple[SourceRow, ...]

    def document(self) -> dict[str, Any]:
        """Give the JSON: a list for each property."""
        columns = zip(*self.rows, strict=True) if self.rows else ((),) * 5
        return dict(zip(("prefix", "suffix", "size", "mtime", "etag"), map(list, columns), strict=True))

    @classmethod
    def of(cls, document: dict[str, Any], /, *, where: str) -> SourcePage:
        """Read the JSON.

        Raises
        ------
        MalformedFileError
            It is none of sources.
        """
        try:
            columns = [document[name] for name in ("prefix", "suffix", "size", "mtime", "etag")]
            rows = tuple(zip(*columns, strict=True))
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedFileError(f"'{where}' is no page of sources: {error!r}; restore it") from error
        return cls(tuple(_checked(row, where) for row in rows))


def _checked(row: Sequence[Any], where: str) -> SourceRow:
    match row:
        case (int(prefix), str(suffix), int() | None as size, int() | float() | None as time, str() | None as etag):
            if prefix >= 0 and (size is None or size >= 0):
                return prefix, suffix, size, None if time is None else float(time), etag
    raise MalformedFileError(f"'{where}' has the source {str(row)[:200]}, which is none: restore it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixes:
    """What the URLs of sources begin with, and where they are now.

    Parameters
    ----------
    store
        URL of the store, ending in ``/``.
    table
        Prefixes: URLs, or ``"./..."`` below the store, or ``"../..."`` below the folder that holds it.
    moved
        What relocating has changed: old and new beginning of URLs, and the number of prefixes there were then, to
        which alone it applies. In order.
    """

    store: str
    table: tuple[str, ...] = ()
    moved: tuple[tuple[str, str, int], ...] = ()

    def location(self, row: SourceRow, prefixes: Sequence[int], /) -> Location:
        """Give the location of a source; ``prefixes`` are the numbers of those that its segment counts.

        The time of the last modification is left out where the source was found elsewhere: a copy has another one.

        Raises
        ------
        ForbiddenLocationError
            The URL is relative and climbs.
        MalformedFileError
            There is no such prefix.
        """
        prefix, suffix, size, time, etag = row
        url, is_there = self._url(prefixes[prefix] if prefix < len(prefixes) else len(self.table), suffix)
        return Location(url, size, etag, time if is_there else None)

    def _url(self, prefix: int, suffix: str) -> tuple[str, bool]:
        if prefix >= len(self.table):
            raise MalformedFileError(
                f"'{self.store}' has a source with prefix {prefix} of {len(self.table)}: restore it"
            )
        begin = self.table[prefix]
        url = self.root(begin) + suffix
        is_there = not begin.startswith((STORE, PARENT))
        if not is_there and any(part in ("", ".", "..") for part in url.removeprefix(split_url(url)[0]).split("/")):
            raise ForbiddenLocationError(
                f"'{self.store}' has the relative location '{begin}{suffix}', which is no plain path: it is damaged "
                "or a trap",
                url=self.store,
            )
        for old, new, n in self.moved:
            if prefix < n and url.startswith(old):
                url, is_there = new + url[len(old) :], False
        return url, is_there

    def root(self, prefix: str, /) -> str:
        """Give the URL that a prefix stands for."""
        if prefix.startswith(PARENT):
            return self.parent + prefix[len(PARENT) :]
        return self.store + prefix[len(STORE) :] if prefix.startswith(STORE) else prefix

    @property
    def parent(self) -> str:
        """URL of the folder that holds the store, ending in ``/``."""
        root, key = split_url(self.store)
        folder = key.rstrip("/").rpartition("/")[0]
        return f"{root}{folder}/" if folder else root

    def roots(self) -> list[str]:
        """Give what all URLs begin with, relocations applied; a relocation of a part of a prefix is one more."""
        found = []
        for number, prefix in enumerate(self.table):
            url = self.root(prefix)
            for old, new, n in self.moved:
                if number < n and url.startswith(old):
                    url = new + url[len(old) :]
                elif number < n and old.startswith(url):
                    found.append(new)
            found.append(url)
        return list(dict.fromkeys(found))

    def signed(self) -> bytes:
        """Give what a signature is made of: which places the store names, and its own."""
        return json.dumps([self.store, self.table, self.moved]).encode()

    def relocated(self, old: str, new: str, /) -> Prefixes:
        """Give the prefixes after sources whose URLs begin with ``old`` were moved to ``new``."""
        return Prefixes(store=self.store, table=self.table, moved=(*self.moved, (old, new, len(self.table))))

    def numbers_of(self, wanted: Sequence[str], /) -> tuple[Prefixes, tuple[int, ...]]:
        """Give the numbers of prefixes, entered where they are new.

        Those from before a relocation are not used again: it would apply to what is added now.
        """
        fixed = self.moved[-1][2] if self.moved else 0
        table = list(self.table)
        numbers = []
        for prefix in wanted:
            if prefix not in table[fixed:]:
                table.append(prefix)
            numbers.append(table.index(prefix, fixed))
        return Prefixes(store=self.store, table=tuple(table), moved=self.moved), tuple(numbers)

    def choose(self, urls: Sequence[str], /, *, relative: bool) -> tuple[str, ...]:
        """Choose prefixes for URLs: those that there are, widened where one in the same bucket is near.

        Parameters
        ----------
        urls
            Absolute.
        relative
            Whether those in the folder that holds the store are written relative to it.
        """
        fixed = self.moved[-1][2] if self.moved else 0
        known = {self.root(prefix): prefix for prefix in self.table[fixed:]}
        chosen = []
        for folder in folders_of(urls):
            inside = [root for root in known if folder.startswith(root)]
            if inside:
                chosen.append(known[max(inside, key=len)])
                continue
            for root in known:  # an archive that grows a folder at a time needs one prefix, not one a folder
                wider = folders_of([f"{folder}x", f"{root}x"])
                if len(wider) == 1 and split_url(wider[0])[1]:
                    folder = wider[0]
                    break
            chosen.append(self._written(folder, relative=relative))
        return tuple(dict.fromkeys(chosen))

    def _written(self, folder: str, *, relative: bool) -> str:
        if folder.startswith(self.store):
            return STORE + folder[len(self.store) :]
        if relative and folder.startswith(self.parent):
            return PARENT + folder[len(self.parent) :]
        return folder

    def row(self, location: Location, prefixes: Sequence[str], /) -> SourceRow:
        """Give the row of a location that begins with one of some prefixes."""
        roots = [self.root(prefix) for prefix in prefixes]
        fitting = [i for i, root in enumerate(roots) if location.url.startswith(root)]
        best = max(fitting, key=lambda i: len(roots[i]))
        return best, location.url[len(roots[best]) :], location.size, location.last_modified, location.etag


def folders_of(urls: Iterable[str], /) -> list[str]:
    """Give for each root, such as a bucket, the folder that all URLs of it lie in, ending in ``/``.

    >>> folders_of(["s3://b/x/1.nc", "s3://b/x/y/2.nc", "file:///d/3.nc"])
    ['s3://b/x/', 'file:///d/']
    """
    by_root: dict[str, list[str]] = {}
    for url in urls:
        by_root.setdefault(split_url(url)[0], []).append(url)
    found = []
    for root, each in by_root.items():
        common = posixpath.commonprefix([min(each), max(each)])  # of all, as they are between these
        found.append(root + common[len(root) :].rpartition("/")[0] + "/" if "/" in common[len(root) :] else root)
    return found
