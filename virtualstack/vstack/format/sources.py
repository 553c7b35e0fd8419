"""Encode and decode the sources of a segment, in pages: their locations, and the versions that were indexed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import unquote

from virtualstack.errors import ForbiddenLocationError, MalformedFileError, Remedy, WriterError
from virtualstack.location import Fingerprint, Location, is_http, split_url

PAGE_SOURCES = 4096
"""Number of sources of a full page."""

MAX_LISTED_SOURCES = 16
"""Maximum number of sources that the table of segments itself holds for a segment."""

MAX_MOVED = 256
"""Maximum number of relocations of a store."""

_MAX_LOCATION_CHARACTERS = 1 << 13
"""Maximum number of characters of a relocated location."""

_MAX_WORK_CHARACTERS = 1 << 29
"""Maximum number of characters that all relocations of all prefixes make, plus 64 for each prefix."""

STORE, PARENT = "./", "../"
_RELATIVE = STORE, PARENT
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_PARTS = re.compile(r"[/\\?#]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_RANGES = re.compile(r"all|[0-9]{1,18}\+[0-9]{1,18}(,[0-9]{1,18}\+[0-9]{1,18})*+")
_ESCAPES = re.compile("(?:%[0-9A-Fa-f]{0,2})+$")


class SourceRow(NamedTuple):
    """A source in its written form."""

    prefix: int
    suffix: str
    size: int | None = None
    mtime: float | None = None
    etag: str | None = None
    unmodified_since: float | None = None
    digest: str | None = None


_COLUMNS = SourceRow._fields[:5]
_OPTIONAL_COLUMNS = SourceRow._fields[5:]
"""Columns that are left out if all their items are null, as in stores of versions without these columns."""


@dataclass(frozen=True, slots=True)
class SourcePage:
    """A page of sources, stored as one column for each property."""

    rows: tuple[SourceRow, ...]

    def document(self) -> dict[str, Any]:
        """Return the page as JSON: a list for each property."""
        columns = {name: [getattr(row, name) for row in self.rows] for name in SourceRow._fields}
        return {name: each for name, each in columns.items() if name in _COLUMNS or each.count(None) < len(each)}

    @classmethod
    def from_json(cls, document: dict[str, Any], /, *, where: str) -> SourcePage:
        """Read a page from JSON."""
        try:
            columns = [document[name] for name in _COLUMNS]
            nulls = [None] * len(columns[0])
            columns += [nulls if document.get(name) is None else document[name] for name in _OPTIONAL_COLUMNS]
            rows = tuple(zip(*columns, strict=True))
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedFileError(f"'{where}' is not a page of sources: {error!r}", Remedy("restore it")) from error
        return cls(tuple(_checked(row, where) for row in rows))


def _checked(row: Sequence[Any], where: str) -> SourceRow:
    match row:
        case (
            int(prefix),
            str(suffix),
            int() | None as size,
            int() | float() | None as time,
            str() | None as etag,
            int() | float() | None as latest,
            str() | None as digest,
        ):
            is_number = not any(isinstance(x, bool) for x in (prefix, size, time, latest))
            if is_number and prefix >= 0 and (size is None or 0 <= size < 1 << 63):
                times = [None if x is None else float(x) for x in (time, latest)]
                return SourceRow(prefix, suffix, size, times[0], etag, times[1], digest)
    raise MalformedFileError(f"'{where}' has the source {str(row)[:200]}, which is not valid", Remedy("restore it"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixes:
    """The prefixes of the locations of sources, and the relocations of the sources.

    A location is a prefix and a suffix, as written. Relocations change its beginning. After that, a location that
    begins with ``./`` or ``../`` is relative to the store. So relative sources move with the store, and only a
    relocation of such a beginning applies to them.
    """

    store: str
    table: tuple[str, ...] = ()
    moved: tuple[tuple[str, str, int], ...] = ()

    def __post_init__(self) -> None:
        if len(self.moved) > MAX_MOVED:
            raise MalformedFileError(
                f"'{self.store}' has {len(self.moved)} relocations; at most {MAX_MOVED} are read", Remedy("restore it")
            )

    def location(self, row: SourceRow, prefixes: Sequence[int], /) -> Location:
        """Return the location of a source; ``prefixes`` are the numbers, in ``table``, of the prefixes of its segment.

        A relative or relocated source has no times, because a copy of a file has other times. The fingerprint of a
        local file counts instead. Fingerprint and etag are left out if the source was relocated to another kind of
        service, or moved with the store to a web server. Each service has its own etags.
        """
        _, suffix, size, time, etag, latest, digest = row
        known = None if digest is None else _fingerprint(time, digest)
        text = self.written(row, prefixes)
        url = self.root(text)
        is_relative = text.startswith(_RELATIVE)
        if _SCHEME.match(url) is None or (is_relative and not is_plain(text)):
            raise ForbiddenLocationError(
                f"'{self.store}' has the location '{text[:1000]}', which is neither a URL nor a plain path below the "
                "folder that contains the store. The store is damaged or malicious: do not use it",
                url=self.store,
            )
        was = self.table[prefixes[row[0]]]
        if not is_relative and text == was + suffix:
            return Location(url, size, etag, time, latest, fingerprint=known)
        is_other = self.root(was).partition("://")[0] != url.partition("://")[0]
        if was.startswith(_RELATIVE):  # a store is never written at a web server, so it was moved there
            is_other = is_other or is_http(url)
        relative_to = self.store if is_relative else None
        etag, known = (None, None) if is_other else (etag, known)
        return Location(url, size, etag, relative_to=relative_to, fingerprint=known)

    def written(self, row: SourceRow, prefixes: Sequence[int], /) -> str:
        """Return the location of a source in its written form, after relocations; see :meth:`location`."""
        number = prefixes[row[0]] if row[0] < len(prefixes) else len(self.table)
        if not 0 <= number < len(self.table):
            raise MalformedFileError(
                f"'{self.store}' has a source with prefix number {number}, but the store has {len(self.table)} "
                "prefixes",
                Remedy("restore it"),
            )
        text = self.table[number] + row[1]
        for old, new, n in self.moved:
            if number < n and text.startswith(old):
                text = self._checked(new + _spelt(text[len(old) :], old, new))
        return text

    def begins(self) -> list[str]:
        """Return all beginnings of locations in their written form, after relocations."""
        found: dict[str, None] = {}
        work = 0
        ends = sorted({0, len(self.table), *(min(n, len(self.table)) for *_, n in self.moved)})
        for low, high in pairwise(ends):  # the same relocations apply to all prefixes of a range
            own = dict.fromkeys(self.table[low:high])
            for old, new, n in self.moved:
                if low < n:
                    own = dict.fromkeys(self._checked(x) for begin in own for x in _moved(begin, old, new))
                    work += sum(map(len, own)) + 64 * len(own)
                if work > _MAX_WORK_CHARACTERS:
                    raise MalformedFileError(
                        f"'{self.store}' has {len(self.table)} prefixes and {len(self.moved)} relocations, which "
                        "make more locations than are read. The store is damaged or malicious: do not use it",
                        url=self.store,
                    )
            found |= own
        return list(found)

    def _checked(self, text: str) -> str:
        """Check the length of a location, or of its beginning, after a relocation, and return it."""
        if len(text) > _MAX_LOCATION_CHARACTERS:
            raise MalformedFileError(
                f"'{self.store}' has relocations that make locations of more than {_MAX_LOCATION_CHARACTERS} "
                f"characters, such as '{text[:200]}...'. The store is damaged or malicious: do not use it",
                url=self.store,
            )
        return text

    def root(self, text: str, /) -> str:
        """Return the URL of a location, or of its beginning, that is given as written."""
        if text.startswith(PARENT):
            begin, folder = PARENT, self.parent
        elif text.startswith(STORE):
            begin, folder = STORE, self.store
        else:
            return text
        path = text[len(begin) :]
        return folder + (_encoded(path) if is_http(folder) else path)

    @property
    def parent(self) -> str:
        """URL of the folder that holds the store, ending in ``/``."""
        root, key = split_url(self.store)
        folder = key.rstrip("/").rpartition("/")[0]
        return f"{root}{folder}/" if folder else root

    def relocated(self, old: str, new: str, /) -> Prefixes:
        """Return the prefixes after a relocation of the sources whose locations begin with ``old`` to ``new``."""
        if len(self.moved) == MAX_MOVED:
            raise WriterError(
                f"'{self.store}' was already relocated {MAX_MOVED} times, which is the maximum",
                Remedy("copy it to a new store with", "vs.convert"),
                feature="relocation",
            )
        return Prefixes(store=self.store, table=self.table, moved=(*self.moved, (old, new, len(self.table))))

    def number_prefixes(self, wanted: Sequence[str], /) -> tuple[Prefixes, tuple[int, ...]]:
        """Return the prefixes with all wanted ones in the table, and the numbers of the wanted ones.

        Prefixes from before a relocation are not used again, because the relocation would apply to the new sources.
        """
        fixed = self.moved[-1][2] if self.moved else 0
        table = list(self.table)
        numbers = []
        for prefix in wanted:
            if prefix not in table[fixed:]:
                table.append(prefix)
            numbers.append(table.index(prefix, fixed))
        return Prefixes(store=self.store, table=tuple(table), moved=self.moved), tuple(numbers)

    def rows(self, locations: Collection[Location], /, *, relative: bool) -> tuple[tuple[str, ...], list[SourceRow]]:
        """Choose prefixes for sources, and return the prefixes and the rows of the sources.

        An existing prefix is used if it fits. Otherwise the new prefix is the common folder of the sources. It is
        widened to contain an existing prefix if both share a folder in one bucket.
        """
        fixed = self.moved[-1][2] if self.moved else 0
        begins = [self._begin(x, relative=relative) for x in locations]
        chosen: dict[str, int] = {}
        places: dict[str, list[tuple[str, int]]] = {}
        for begin in dict.fromkeys(begins):
            own = [x.url for x, its in zip(locations, begins, strict=True) if its == begin]
            near = self._near(own, [x for x in self.table[fixed:] if _relative_begin(x) == begin], begin)
            numbered = [(self.root(x), chosen.setdefault(x, len(chosen))) for x in near]
            places[begin] = sorted(numbered, key=lambda x: -len(x[0]))
        rows = []
        for x, begin in zip(locations, begins, strict=True):
            root, number = next((root, number) for root, number in places[begin] if x.url.startswith(root))
            suffix = x.url[len(root) :]
            known = x.fingerprint
            time = x.last_modified if x.last_modified is not None or known is None else known.last_modified
            digest = None if known is None else f"{known.digest}:{known.ranges}".rstrip(":")
            rows.append(SourceRow(number, suffix, x.size, time, x.etag, x.unmodified_since, digest))
        return tuple(chosen), rows

    def _begin(self, location: Location, *, relative: bool) -> str:
        """Return ``"./"`` or ``"../"`` if a source is written relative to the store, and ``""`` otherwise."""
        may_be = (STORE, PARENT) if relative or location.relative_to == self.store else (STORE,)
        begin = next((begin for begin in may_be if self._fits(location.url, begin)), "")
        if relative and not begin and split_url(location.url)[0] == split_url(self.store)[0]:
            raise WriterError(
                f"'{location.url}' has no location relative to '{self.store}': those are of files below the folder of "
                "the store, with plain names",
                Remedy("write the store beside the folder of its files"),
                Remedy("leave out", relative=True),
            )
        return begin

    def _near(self, urls: Sequence[str], known: Sequence[str], begin: str) -> list[str]:
        """Choose prefixes for URLs whose prefixes begin with ``begin``."""
        roots = {self.root(prefix): prefix for prefix in known}
        chosen = []
        for folder in common_folders(urls):
            inside = [root for root in roots if folder.startswith(root)]
            if inside:
                chosen.append(roots[max(inside, key=len)])
                continue
            for root in roots:  # an archive that grows by folders needs a single prefix, not one for each folder
                wider = common_folders([f"{folder}x", f"{root}x"])
                if len(wider) == 1 and split_url(wider[0])[1]:
                    folder = wider[0]
                    break
            chosen.append(begin + folder.removeprefix(self.root(begin)))
        return chosen

    def _fits(self, url: str, begin: str) -> bool:
        """Return whether a URL can be written relative to the store with a beginning."""
        root = self.root(begin)
        return url.startswith(root) and is_plain(begin + url[len(root) :])


def _fingerprint(time: float | None, digest: str) -> Fingerprint:
    hexadecimal, _, ranges = digest.partition(":")
    is_known = not ranges or _RANGES.fullmatch(ranges) is not None
    return Fingerprint(time, hexadecimal, ranges) if is_known else Fingerprint(time, digest)  # of a later version


def _encoded(path: str) -> str:
    """Percent-encode the characters of a path that have another meaning in the URL of a web server."""
    return path.replace("%", "%25").replace("#", "%23").replace("?", "%3F")


def _relative_begin(prefix: str) -> str:
    return next((begin for begin in _RELATIVE if prefix.startswith(begin)), "")


def is_plain(text: str, /) -> bool:
    """Return whether a relative location stays below its beginning, both as a path and as a web request."""
    rest = unquote(text.partition("/")[2])
    return not any(part in ("", ".", "..") for part in _PARTS.split(rest)) and _CONTROL.search(rest) is None


def _moved(begin: str, old: str, new: str) -> tuple[str, ...]:
    """Return the beginnings of locations after a relocation, which may apply only to some of these locations."""
    if begin.startswith(old):
        rest = begin[len(old) :]
        if is_http(old) and not is_http(new):
            rest = _ESCAPES.sub("", rest)  # with the characters that follow, an escape may decode differently
        return (new + _spelt(rest, old, new),)
    return (begin, new) if old.startswith(begin) else (begin,)


def _spelt(rest: str, old: str, new: str) -> str:
    """Return the rest of a location in its written form at the new location; only URLs of web servers have escapes."""
    was_web, is_web = is_http(old), is_http(new)
    if was_web == is_web:
        return rest
    return _encoded(rest) if is_web else unquote(rest)


def common_folders(urls: Iterable[str], /) -> list[str]:
    """Return, for each root such as a bucket, the folder that contains all of its URLs, ending in ``/``.

    >>> common_folders(["s3://b/x/1.nc", "s3://b/x/y/2.nc", "file:///d/3.nc"])
    ['s3://b/x/', 'file:///d/']
    """
    by_root: dict[str, list[str]] = {}
    for url in urls:
        root = split_url(url)[0]
        by_root.setdefault(root if url.startswith(root) else url.rpartition("/")[0] + "/", []).append(url)
    found = []
    for root, each in by_root.items():
        common = posixpath.commonprefix([min(each), max(each)])  # in sorted order, all URLs are between these two
        found.append(root + common[len(root) :].rpartition("/")[0] + "/" if "/" in common[len(root) :] else root)
    return found
