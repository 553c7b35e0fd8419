"""Decide which URLs references may make their reader open: one rule for references of every kind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from virtualstack.errors import ForbiddenLocationError, Remedy, WriterError
from virtualstack.location import absolute_url, are_plain, flaw, is_remote, outermost, split_url
from virtualstack.storage.hosts import is_host, why_not_public
from virtualstack.storage.named import EVERYWHERE, place, places
from virtualstack.storage.registry import OBJECT_STORES, WEB
from virtualstack.storage.signatures import without_signature
from virtualstack.storage.standing import standing_places

type Allow = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
"""Type of ``allow=``, an option of all functions that open references or stores.

A value is one URL or path, or a sequence of them; ``None`` allows nothing more. References that come over a network may
name these places too: see `Permission`."""

_LISTED = "listed://"
"""Item of ``allow=`` that stands for `Listed`; no URL of a source has this scheme."""

_BATCH_URLS = 65_536  # URLs that are checked as one text
_FILE = "file://"
_BEGUN = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.\-]*(?::/?)?)?")
_EMPTY = re.compile(r"(?<![:/])/{2,}")  # empty segments
_BUCKET = re.compile(
    r"[A-Za-z0-9$][A-Za-z0-9._$\-]*(?:@[a-z0-9-]+\.(?:dfs|blob)\.(?:core\.windows\.net|fabric\.microsoft\.com))?"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a URL is refused, and the URL that ``allow=`` would need (``None``: nothing helps)."""

    why: str
    allow: str | None = None


def why_refused(
    references: str, url: str, allowed: Sequence[str] = (), /, *, is_listed: bool = False
) -> Refusal | None:
    """Return why references may not name a URL; ``None`` if they may. This is the whole rule.

    Examples
    --------
    >>> why_refused("file:///x.json", "http://10.0.0.1/a.nc")
    >>> why_refused("s3://bucket/x.json", "http://10.0.0.1/a.nc")
    Refusal(why='whose host is private', allow='http://10.0.0.1/')
    >>> why_refused("s3://bucket/x.json", "http://10.0.0.1/a.nc", ["http://10.0.0.1/"])
    """
    if not (is_listed or is_remote(references)):
        return None
    url, own = _canonical(outermost(url)), own_places(references, is_listed=is_listed)
    if not is_listed and url.startswith(own):
        return None
    if found := _flaw(url):
        return Refusal(f"which {found}")
    if _is_local(url):
        return _why_not_within(url, [x for x in (*own, *allowed) if _is_local(x)])
    if any(_is_in(url, x) for x in (*own, *allowed)):
        return None
    root = split_url(url)[0]
    scheme, _, authority = root.removesuffix("/").partition("://")
    if scheme in WEB and not is_host(authority):
        return Refusal("whose host is not spelt plainly, or has a user before it")
    if scheme in OBJECT_STORES and not _BUCKET.fullmatch(authority):
        return Refusal("which has no plain name of a bucket")
    if is_listed:
        return Refusal("which is not one of the listed places", root)
    if scheme in WEB:
        kind = why_not_public(authority)
        return None if kind is None else Refusal(f"whose host {kind}", root)
    if scheme in OBJECT_STORES:
        return None
    where = "in this process's memory" if scheme == "memory" else "in no object store and on no web server"
    return Refusal(f"which is {where}", root)


def _flaw(url: str) -> str | None:
    return flaw(_EMPTY.sub("/", url))  # keys in buckets may have empty segments


def named_in(references: str, url: str, /) -> str:
    """Return a URL as references name it: without a signature."""
    url = without_signature(url)
    plain = _canonical(outermost(url)) if is_remote(references) else ""
    if plain and not plain.startswith(own_places(references, is_listed=False)) and (found := _flaw(plain)):
        raise WriterError(
            f"'{url}' {found}, so references at '{references}' may not name it. Rename the source, or write the "
            "references to a local disk",
            feature="location",
        )
    return url


def _why_not_within(url: str, named: Sequence[str]) -> Refusal | None:
    """Return why a local URL is in none of some places, by its path and after all links."""
    real = [_real(x) for x in named]
    if not any(_is_in(url, x) for x in (*named, *real)):  # checked before a link is read, which may mount a file system
        return Refusal("which is a local file", url[: url.rfind("/") + 1])
    found = _real(url)
    if any(_is_in(found, x) for x in real):
        return None
    return Refusal(f"which is a link to {_shown(found)}", f"{found}/" if url.endswith("/") else f"{_parent(found)}")


def own_places(references: str, /, *, is_listed: bool) -> tuple[str, ...]:
    """Return what references may name without being asked: their server or bucket, or with a list only their folder."""
    if not is_listed:
        return (split_url(outermost(references))[0],)
    folder = _parent(references.rstrip("/"))
    return (references,) if folder == "file:///" else (references, folder)  # the whole disk is not their folder


class Listed(tuple[str | os.PathLike[str], ...]):
    """Places for ``allow=`` beside which references may name nothing but their own folder.

    When to use: in a service that opens references for other people. Alternatives: a list for ``allow=`` adds places
    to those that are allowed anyway.

    Parameters
    ----------
    places
        URLs or paths of files and folders.

    Examples
    --------
    >>> import virtualstack as vs
    >>> permission = vs.storage.Permission.from_allow("/srv/x.vstack", vs.Listed("/srv/data"))
    >>> permission.check(["file:///srv/a.nc", "file:///srv/data/b.nc"])
    >>> permission.check(["s3://other/c.nc", "file:///old/d.nc"])
    Traceback (most recent call last):
    virtualstack.errors.ForbiddenLocationError: '/srv/x.vstack' refers to 's3://other/c.nc', which is not one of the \
listed places. Open it with allow=vs.Listed("file:///srv/data", "file:///old/", "s3://other/")
    """

    __slots__ = ()

    def __new__(cls, *places: str | os.PathLike[str]) -> Self:
        """Make a list of places."""
        return super().__new__(cls, (*places, _LISTED))

    def __getnewargs__(self) -> tuple[str | os.PathLike[str], ...]:
        return tuple(self)[:-1]


@dataclass(frozen=True, slots=True)
class Permission:
    """The URLs that references may make their reader open; made by `from_allow`.

    The same rule holds for every format:

    1. References on a local disk or in memory may name any local file and any server.
    2. References that came over a network may name everything on their own web server or in their own bucket, other
       buckets, and web servers on public hosts. They may not name local files, memory, or hosts that are loopback,
       link-local, private or multicast. ``allow=``, ``VIRTUALSTACK_ALLOW`` and the configuration file name exceptions.
    3. With `Listed`, references may name only their own folder and the listed places, wherever they are.

    What references name on web servers is read through `PublicWeb`, which checks the address of each connection of rule
    2, and each redirect. Symbolic links below allowed local folders are followed, and must not lead out of them. Hard
    links, mounts, and links that change between the check and the read are not detected.

    Parameters
    ----------
    store
        Absolute URL of the references.
    allowed
        Absolute URLs of folders and files that the user allowed.
    is_listed
        If true, only ``allowed`` and the folder of the references may be read; see `Listed`.

    Examples
    --------
    >>> permission = Permission.from_allow("s3://bucket/x.vstack", "/data")
    >>> permission.check(["s3://bucket/a.nc", "file:///data/b.nc", "https://8.8.8.8/c.nc"])
    >>> permission.check(["https://8.8.8.8/c.nc", "http://10.0.0.1/d.nc"])
    Traceback (most recent call last):
    virtualstack.errors.ForbiddenLocationError: 's3://bucket/x.vstack' refers to 'http://10.0.0.1/d.nc', whose host is \
private. Open it with allow=["file:///data", "http://10.0.0.1/"]
    """

    store: str
    allowed: tuple[str, ...] = ()
    is_listed: bool = False

    @classmethod
    def from_allow(cls, store: str | os.PathLike[str], allow: Allow = None, /) -> Self:
        """Make a permission from the arguments of a user, the environment and the configuration file."""
        url, places = _canonical(absolute_url(store)), read_allowed_urls(allow)
        if _LISTED in places:
            return cls(url, tuple(x for x in places if x != _LISTED), is_listed=True)
        return cls(url, tuple(dict.fromkeys((*places, *map(_canonical, standing_places())))))

    @property
    def named(self) -> tuple[str, ...]:
        """Places to which credentials of this account are sent: see `virtualstack.storage.named`."""
        own = place(self.store) if is_remote(self.store) else EVERYWHERE
        return tuple(sorted({own, *(_folder(x) for x in self.allowed if is_remote(x))}))

    def check(self, urls: Sequence[str], /) -> None:
        """Raise an error if a URL is not allowed.

        Most URLs take less than a microsecond. Names of web hosts are looked up later, for each connection: see
        `PublicWeb`.
        """
        refused: dict[str, Refusal] = {}
        for begin in range(0, 0 if self._is_free else len(urls), _BATCH_URLS):
            refused |= self._refused(urls[begin : begin + _BATCH_URLS])
        if refused:
            raise self._error(refused)

    def check_prefixes(self, prefixes: Sequence[str], /) -> None:
        """Raise an error for beginnings of URLs with which no allowed URL can begin.

        Each complete URL must still pass `check`.
        """
        self.check([x[: x.rfind("/") + 1] for x in prefixes if not (self._is_free or self._may_begin(x))])

    @property
    def _is_free(self) -> bool:
        return not (self.is_listed or is_remote(self.store))

    def _may_begin(self, prefix: str) -> bool:
        url = _canonical(prefix)
        named = (*own_places(self.store, is_listed=self.is_listed), *self.allowed)
        is_host_begun = url.count("/") == 2 and url.partition("://")[0] in (*OBJECT_STORES, *WEB)
        return bool(_BEGUN.fullmatch(prefix)) or is_host_begun or any(x.startswith(url) for x in named)

    def _refused(self, urls: Sequence[str]) -> Mapping[str, Refusal]:
        if are_plain(urls):  # then all files of a folder are as the folder is, apart from links
            folders = {url[: url.rfind("/") + 1] for url in urls}
            good = {x for x in folders if x == _canonical(x) and self._refusal(x) is None}
            urls = [url for url in urls if url[: url.rfind("/") + 1] not in good or _is_link(url)]
        return {url: found for url in urls if (found := self._refusal(url)) is not None}

    def _refusal(self, url: str) -> Refusal | None:
        return why_refused(self.store, url, self.allowed, is_listed=self.is_listed)

    def _error(self, refused: Mapping[str, Refusal]) -> ForbiddenLocationError:
        url, first = next(iter(refused.items()))
        who = self.store.removeprefix(_FILE).rstrip("/")
        missing: list[str] = []
        for each in sorted({x.allow for x in refused.values() if x.allow is not None}):
            if not missing or not each.startswith(missing[-1]):
                missing.append(each)
        needed = [*self.allowed, *missing]  # whoever copies the option replaces what was given
        remedy = Remedy("references should name no such URL: ask who wrote it")
        if first.allow and self.is_listed:
            remedy = Remedy("open it with", f"allow=vs.Listed({', '.join(map(repr, places(*needed)))})", allow=needed)
        elif first.allow:
            remedy = Remedy("open it with", allow=places(*needed))
        return ForbiddenLocationError(f"'{who}' refers to {_shown(url)}, {first.why}", remedy, url=url)


def read_allowed_urls(allow: Allow, /) -> tuple[str, ...]:
    """Return the absolute URLs of ``allow=``."""
    given: list[Any] = list(allow) if isinstance(allow, Iterable) and not isinstance(allow, str) else [allow]
    given = [] if allow is None else given
    if not all(isinstance(x, str | os.PathLike) and os.fspath(x) for x in given):
        raise TypeError(f"allow= takes URLs or paths of files and folders, not {allow!r}")
    return tuple(x if x == _LISTED else _canonical(absolute_url(x)) for x in given)


def _canonical(url: str) -> str:
    """Return a URL with its scheme and web host in lower case."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    if scheme.lower() in WEB:
        host, slash, path = rest.partition("/")
        rest = host.lower() + slash + path
    return scheme.lower() + mark + rest


def _folder(url: str) -> str:
    return url if url.endswith("/") else f"{url}/"


def _parent(url: str) -> str:
    root, key = split_url(url)
    return root + "".join(key.rpartition("/")[:2])


def _is_in(url: str, prefix: str) -> bool:
    return url == prefix.rstrip("/") or url.startswith(_folder(prefix))


def _is_local(url: str) -> bool:
    return url.startswith(_FILE)


def _is_link(url: str) -> bool:
    return _is_local(url) and os.path.islink(url.removeprefix(_FILE))  # noqa: PTH114 - no path for each


def _real(url: str) -> str:
    """Return a local URL with its symbolic links resolved."""
    return _FILE + os.path.realpath(url.removeprefix(_FILE))


def _shown(url: str) -> str:
    return repr(url if len(url) <= 300 else f"{url[:300]}...")
