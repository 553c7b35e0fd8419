"""Decide which URLs references may make their reader open: one rule for references of every kind."""

from __future__ import annotations

import os
import re
import shlex
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from virtualstack.errors import ForbiddenLocationError
from virtualstack.location import BYTES, absolute_url, are_plain, flaw, is_remote, split_url
from virtualstack.storage.hosts import is_host, why_not_public
from virtualstack.storage.named import place
from virtualstack.storage.places import granted
from virtualstack.storage.registry import OBJECT_STORES, WEB

__all__ = ["Allow", "Listed", "Permission", "read_allowed_urls"]

type Allow = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
"""Type of ``allow=``, an option of all functions that open references or stores.

A value is one URL or path, or a sequence of them; ``None`` allows nothing more. A reference to a file outside of these
places and of those that are always allowed is refused: see `Permission.from_allow`."""

_LISTED = "listed://"
"""Item of ``allow=`` that stands for `Listed`; no URL of a source has this scheme."""

_NOT_HIDDEN = {".vstack", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}  # files of stores, by their formats
_BATCH_URLS = 65_536  # URLs that are checked as one text
_FILE = "file://"
_BEGUN = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.\-]*(?::/?)?)?")
_EMPTY = re.compile(r"(?<![:/])/{2,}")  # empty segments
_BUCKET = re.compile(
    r"[A-Za-z0-9$][A-Za-z0-9._$\-]*(?:@[a-z0-9-]+\.(?:dfs|blob)\.(?:core\.windows\.net|fabric\.microsoft\.com))?"
)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Reason why a URL is refused, and the URL that ``allow=`` would need (``None``: nothing helps)."""

    why: str
    allow: str | None = None


class Listed(tuple[str | os.PathLike[str], ...]):
    """Places for ``allow=`` beside which references may name nothing but their own folder.

    Without it, references may also name public web servers, any bucket, and all places that the user of this account
    has granted: by the record, the environment or the configuration file.

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
    >>> permission.check(["s3://other/c.nc"])
    Traceback (most recent call last):
    virtualstack.errors.ForbiddenLocationError: the store 'file:///srv/x.vstack/' refers to 's3://other/c.nc', \
which is not one of the listed places. If it may be read, open the store with allow=vs.Listed("s3://other/")
    """

    __slots__ = ()

    def __new__(cls, *places: str | os.PathLike[str]) -> Self:
        """Make a list of places."""
        return super().__new__(cls, (*places, _LISTED))

    def __getnewargs__(self) -> tuple[str | os.PathLike[str], ...]:
        return tuple(self)[:-1]


@dataclass(frozen=True, slots=True)
class Permission:
    """The URLs that references may make their reader open; made by `from_allow` and `of_document`.

    The same rule holds for every format, and for local and remote references. They may name:

    - what lies in their own folder and below it; for a store, that is the folder that holds the store. Hidden files
      (names with a leading dot) do not belong to it. Symbolic links are followed, and must not lead out. References on
      a web server or in a bucket may name everything there;
    - object stores: any bucket, at the endpoint that the reader passed or has in the environment. The endpoint is the
      reader's own choice and is not checked;
    - web servers on public hosts. Loopback, link-local, private and multicast hosts are refused. They are recognised by
      address, or by a name that exists only in a private network. A name that leads to such an address is refused when
      it is connected to;
    - if the references are in memory, everything else in memory. A dict or bytes that a program holds have the working
      directory as their folder, to which relative names refer;
    - places that the user granted: with ``allow=``, by ``virtualstack allow``, by ``VIRTUALSTACK_ALLOW`` or by the
      configuration file;
    - if the references are local or in memory, also places that this account has written into references.

    Nothing may have ``.`` or ``..`` as a segment (encoded too), backslashes or control characters.

    What references name on web servers is read through `PublicWeb`, which checks each connection and redirect. This
    check cannot detect redirects of servers for which ``storage=`` has a login (redirects from ``https`` to ``http``
    are never followed), links that change between the check and the read, hard links, mounts, and names that a proxy
    rewrites. For protection from these, run the process without access to anything that it must not reach.

    Parameters
    ----------
    store
        Absolute URL of the references or the store, ending in ``/``.
    allowed
        Absolute URLs of folders and files that the user granted.
    folders
        Absolute URLs of folders, ending in ``/``, whose files this account has written into references.
    roots
        Absolute URLs of buckets, hosts and folders that this account has written into references.
    is_document
        If true, the store is a file that refers to other files, such as kerchunk references; see `of_document`.
    is_listed
        If true, only ``allowed`` and the folder of the references may be read; see `Listed`.

    Examples
    --------
    >>> permission = Permission.from_allow("s3://bucket/x.vstack", "/data")
    >>> permission.check(["s3://bucket/a.nc", "file:///data/b.nc", "https://8.8.8.8/c.nc"])
    >>> permission.check(["https://8.8.8.8/c.nc", "http://10.0.0.1/d.nc"])
    Traceback (most recent call last):
    virtualstack.errors.ForbiddenLocationError: the store 's3://bucket/x.vstack/' refers to 'http://10.0.0.1/d.nc', \
whose host is private. If it may be read, open the store with allow=["http://10.0.0.1/"], or grant it with the \
command: virtualstack allow http://10.0.0.1/
    """

    store: str
    allowed: tuple[str, ...] = ()
    folders: frozenset[str] = frozenset()
    roots: tuple[str, ...] = ()
    is_document: bool = False
    is_listed: bool = False

    def __post_init__(self) -> None:
        if not self.store.endswith("/") or any(_canonical(url) != url for url in (self.store, *self.allowed)):
            raise ValueError(f"not what Permission.from_allow gives: {self.store!r}, {self.allowed!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a pickle in which thousands of folders are small: it goes with each task of a dataset."""
        folders = zlib.compress("\0".join(sorted(self.folders)).encode("utf-8", "surrogatepass"))
        return _restored, (self.store, self.allowed, folders, self.roots, self.is_document, self.is_listed)

    @classmethod
    def from_allow(cls, store: str | os.PathLike[str], allow: Allow = None, /, *, is_document: bool = False) -> Self:
        """Make a permission from the arguments of a user, and from the places that are granted now.

        Parameters
        ----------
        store
            URL or path of the store.
        allow
            URLs or paths that may also be read: files, and folders with everything below them. ``"https://"`` allows
            every web server, also private ones. With `Listed`, nothing else may be read.
        is_document
            If true, the store is a file that refers to other files; see `of_document`.

        Raises
        ------
        StorageError
            The configuration file or ``VIRTUALSTACK_ALLOW`` cannot be read.
        """
        url = _folder(_canonical(absolute_url(store)))
        places = read_allowed_urls(allow)
        if _LISTED in places:
            return cls(url, tuple(x for x in places if x != _LISTED), is_document=is_document, is_listed=True)
        found = granted()
        allowed = tuple(dict.fromkeys((*places, *map(_canonical, found.explicit))))
        if is_remote(url):
            return cls(url, allowed, is_document=is_document)
        roots = found.roots
        if url.startswith(BYTES) and (working := _folder(absolute_url("."))) != "file:///":
            roots = (*roots, working)  # the whole disk is nobody's own folder
        return cls(url, allowed, found.folders, roots, is_document)

    @classmethod
    def of_document(cls, url: str, allow: Allow = None, /) -> Self:
        """Return the permission of a file that refers to others.

        This applies to every format except vstack: kerchunk references, Icechunk, DMR++, zarr and HDF5. The rule is
        that of a store, except that a remote file may refer to everything on the same web server or in the same bucket.

        Parameters
        ----------
        url
            Absolute URL of the file, or of its folder.
        allow
            URLs or paths that may also be read; see `from_allow`.
        """
        return cls.from_allow(url, allow, is_document=True)

    def for_prefixes(self, prefixes: Sequence[str], /) -> Self:
        """Return a permission for URLs with these beginnings only, which is small when it is pickled."""
        if not self.folders:
            return self
        begins = tuple(x for x in prefixes if _is_local(x) or _FILE.startswith(x))
        above = {begin[: i + 1] for begin in begins for i, letter in enumerate(begin) if letter == "/"}
        kept = self.folders & above | {x for x in self.folders if begins and x.startswith(begins)}
        return replace(self, folders=kept)

    @property
    def named(self) -> tuple[str, ...]:
        """Places to which credentials of this account are sent: that of the references, and granted ones."""
        own = (place(self.store),) if is_remote(self.store) else ()
        return tuple(sorted({_folder(x) for x in (*own, *filter(is_remote, (*self.allowed, *self.roots)))}))

    def check(self, urls: Sequence[str], /) -> None:
        """Raise an error for the first URL that is not allowed.

        Most URLs take less than a microsecond. Each local file that references name is looked up on disk.
        Names of web hosts are looked up later, for each connection: see `PublicWeb`.

        Raises
        ------
        ForbiddenLocationError
            A URL is not allowed. The message names the store, the URL, the reason and the value to pass as ``allow=``.
        """
        own = self.store.removesuffix("/")
        if self.is_document and is_remote(self.store) and not self.is_listed:
            root = split_url(self.store)[0]
            urls = [url for url in urls if not _canonical(url).startswith(root)]
        else:
            urls = [url for url in urls if url != own]
        for begin in range(0, len(urls), _BATCH_URLS):
            together = urls[begin : begin + _BATCH_URLS]
            if not self._are_allowed(together):
                for url in together:
                    if refusal := self._refusal(url):
                        raise self._error(url, refusal)

    def check_prefixes(self, prefixes: Sequence[str], /) -> None:
        """Raise an error for the first beginning of URLs with which no allowed URL can begin.

        Each complete URL must still pass `check`.

        Raises
        ------
        ForbiddenLocationError
            No URL that begins with one of the prefixes could be allowed; the message is the same as that of `check`.
        """
        for begin in range(0, len(prefixes), _BATCH_URLS):
            together = prefixes[begin : begin + _BATCH_URLS]
            if not self._are_allowed([prefix[: prefix.rfind("/") + 1] for prefix in together]):
                for prefix in together:
                    self._check_prefix(prefix)

    def _check_prefix(self, prefix: str) -> None:
        if _BEGUN.fullmatch(prefix):
            return
        url = _canonical(prefix)
        named = self._named()
        real = map(_real, filter(_is_local, named)) if _is_local(url) else ()  # each check needs an access to the disk
        if any(x.startswith(url) for x in (*named, *real, *self.folders)):
            return
        if url.count("/") == 2 and url.partition("://")[0] in (*OBJECT_STORES, *WEB):
            return  # a part of the host name
        if refusal := self._refusal(prefix[: prefix.rfind("/") + 1]):
            raise self._error(prefix, refusal)

    def check_object(self, url: str, /) -> None:
        """Raise an error for an object of the store that a link leads out of the folder that holds the store.

        Raises
        ------
        ForbiddenLocationError
            The object is a link, or behind a link, out of that folder. The message names the value to pass as
            ``allow=``.
        """
        if not _is_local(url) or _is_below(url, (self.store,)):
            return
        found = _real(url)
        if found == url or any(_is_in(found, _real(x)) for x in filter(_is_local, self._named())):
            return
        raise self._error(url, _Refusal(f"which is a link to {_shown(found)}", found[: found.rfind("/") + 1]))

    def _are_allowed(self, urls: Sequence[str]) -> bool:
        """Return whether all URLs are allowed, judged by folders and hosts; False means that some may be forbidden."""
        files = [url for url in urls if url.startswith("file:///")]
        return (
            are_plain(urls)
            and (not files or self._are_allowed_files(files))
            and (len(files) == len(urls) or self._are_allowed_roots(urls))
        )

    def _are_allowed_roots(self, urls: Sequence[str]) -> bool:
        named = (*self._near(), *self.allowed, *self.roots)
        plain = ("file:///", *(_folder(x) for x in named if not _is_local(x)))
        roots = {_canonical("/".join(url.split("/", 3)[:3])) for url in urls if not url.startswith(plain)}
        return all("://" in root and self._refusal_of_root(f"{root}/") is None for root in roots)

    def _are_allowed_files(self, urls: Sequence[str]) -> bool:
        named = tuple(_folder(x) for x in (*self._near(), *self.allowed, *self.roots) if _is_local(x))
        if "file:///" in named:
            return True
        folders = {url[: url.rfind("/") + 1] for url in urls}
        others = [folder for folder in folders - self.folders if not _is_below(folder, named)]
        return (
            (not others or self._are_really_in(others))
            and not any(map(self._is_hidden, urls))
            and not any(os.path.islink(url.removeprefix(_FILE)) for url in urls)  # noqa: PTH114 - no path for each
        )

    def _are_really_in(self, folders: Sequence[str]) -> bool:
        """Return whether folders are in named ones, by their paths or those of real folders, and after all links."""
        named = [x for x in self._named() if _is_local(x)]
        real = tuple(_folder(_real(x)) for x in named)
        return all(x.startswith((*map(_folder, named), *real)) and _folder(_real(x)).startswith(real) for x in folders)

    def _refusal(self, url: str) -> _Refusal | None:
        url = _EMPTY.sub("/", url)  # keys in buckets may have empty segments
        if found := flaw(url):
            return _Refusal(f"which {found}")
        url = _canonical(url)
        if _is_local(url):
            return self._refusal_of_file(url)
        if any(_is_in(url, x) for x in self._named()):
            return None
        return self._refusal_of_root(split_url(url)[0])

    def _refusal_of_file(self, url: str) -> _Refusal | None:
        named = [x for x in self._named() if _is_local(x)]
        real = [_real(x) for x in named]
        folder = url[: url.rfind("/") + 1]
        is_written = folder in self.folders
        if not is_written and not any(
            _is_in(url, x) for x in (*named, *real)
        ):  # checked before the link is read, which may mount a file system
            if self.is_document and not _is_local(self.store):
                return _Refusal("which is a local file", folder)
            whose = "its" if self.is_document else "the store's"
            return _Refusal(f"which is a local file outside of {whose} folder", folder)
        found = _real(url)
        target = _folder(found) if url.endswith("/") else found[: found.rfind("/") + 1]
        is_in_written = target in self.folders or (is_written and target == _folder(_real(folder)))
        if is_in_written or any(_is_in(found, x) for x in real):
            if not self._is_hidden(url) and not self._is_hidden(found):
                return None
            return _Refusal("which is a hidden file", folder)
        return _Refusal(f"which is a link to {_shown(found)}", target)

    def _is_hidden(self, url: str) -> bool:
        """Return whether a file is a private one, such as ``.ssh/id``, in a folder that nobody granted explicitly."""
        if "/." not in url or any(_is_in(url, x) for x in self.allowed):
            return False
        if url.startswith(self.store) or (_is_local(self.store) and url.startswith(_folder(_real(self.store)))):
            return False
        folder, _, name = url.rpartition("/")
        if f"{folder}/" in self.folders:
            return name.startswith(".")
        near = filter(_is_local, (*self._own_folders(), *self.roots))
        for above in dict.fromkeys(x for parent in near for x in (parent, _folder(_real(parent)))):
            parts = url[len(above) :].split("/") if url.startswith(above) else ()
            if any(part.startswith(".") and part not in _NOT_HIDDEN for part in parts):
                return True
        return False

    def _refusal_of_root(self, root: str) -> _Refusal | None:
        scheme, _, authority = root.removesuffix("/").partition("://")
        if scheme in OBJECT_STORES:
            if not _BUCKET.fullmatch(authority):
                return _Refusal("which has no plain name of a bucket")
            return self._unlisted(root)
        if scheme in WEB:
            if not is_host(authority):
                return _Refusal("whose host is not spelt plainly, or has a user before it")
            kind = None if self.is_listed else why_not_public(authority)
            return self._unlisted(root) if kind is None else _Refusal(f"whose host {kind}", root)
        if scheme == "memory":
            is_own = self.store.startswith("memory://") and not self.is_listed
            return None if is_own else _Refusal("which is in this process's memory", root)
        return _Refusal("which is in no object store and on no web server", root)

    def _unlisted(self, root: str) -> _Refusal | None:
        return _Refusal("which is not one of the listed places", root) if self.is_listed else None

    def _named(self) -> tuple[str, ...]:
        """Return the folders and files that may be read with everything below them."""
        return (*self._own_folders(), *self.allowed, *self.roots)

    def _own_folders(self) -> tuple[str, ...]:
        """Return the URL of the references, and the folders that hold them: as named, and behind a link."""
        near = self._near()
        real = _folder(_real(self.store)) if _is_local(self.store) else self.store
        return near if real == self.store else (*near, *_with_parent(real))

    def _near(self) -> tuple[str, ...]:
        """Return the URL of local references and the folder that holds them, or the folder of remote ones."""
        return _with_parent(self.store) if _is_local(self.store) else (_parent(self.store),)

    def _error(self, url: str, refusal: _Refusal) -> ForbiddenLocationError:
        opened = "it" if self.is_document else "the store"
        place = refusal.allow
        if place is None:
            remedy = f"No {'references' if self.is_document else 'store'} should name such a URL: ask who wrote it"
        elif self.is_listed:
            remedy = f'If it may be read, open {opened} with allow=vs.Listed("{place}")'
        else:
            remedy = f'If it may be read, open {opened} with allow=["{place}"]'
            if not place.startswith("memory://"):
                remedy += f", or grant it with the command: virtualstack allow {shlex.quote(place.removeprefix(_FILE))}"
        return ForbiddenLocationError(f"{self._who()} refers to {_shown(url)}, {refusal.why}. {remedy}", url=url)

    def _who(self) -> str:
        return f"'{self.store.removesuffix('/')}'" if self.is_document else f"the store '{self.store}'"


def _restored(store: str, allowed: tuple[str, ...], folders: bytes, *rest: Any) -> Permission:
    text = zlib.decompress(folders).decode("utf-8", "surrogatepass")
    return Permission(store, allowed, frozenset(text.split("\0") if text else ()), *rest)


def read_allowed_urls(allow: Allow, /) -> tuple[str, ...]:
    """Return the absolute URLs of ``allow=``.

    Raises
    ------
    TypeError
        An item is neither a URL nor a path.
    """
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
    return root + "".join(key.rpartition("/")[0].rpartition("/")[:2])


def _with_parent(url: str) -> tuple[str, ...]:
    parent = _parent(url)
    return (url,) if parent == "file:///" else (url, parent)  # the whole disk is not the store's folder


def _is_below(url: str, folders: Sequence[str]) -> bool:
    """Return whether a local URL is in one of some folders, and no part of its path below that folder is a link."""
    above = next((x for x in folders if url.startswith(x)), None)
    if above is None:
        return False
    path = above.removeprefix(_FILE)
    for part in filter(None, url[len(above) :].split("/")):
        path += part
        if part == ".." or os.path.islink(path):  # noqa: PTH114 - no path for each
            return False
        path += "/"
    return True


def _is_in(url: str, prefix: str) -> bool:
    return url == prefix or url.startswith(_folder(prefix))


def _is_local(url: str) -> bool:
    return url.startswith(_FILE)


def _real(url: str) -> str:
    """Return a local URL with its symbolic links resolved."""
    return _FILE + os.path.realpath(url.removeprefix(_FILE))


def _shown(url: str) -> str:
    return repr(url if len(url) <= 300 else f"{url[:300]}...")
