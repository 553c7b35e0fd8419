"""Decide which URLs a store or a file from a stranger may make its reader open.

A signature, made with a key that only its owner can read, marks data that was written on this account.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from virtualstack.errors import ForbiddenLocationError
from virtualstack.location import BYTES, absolute_url, are_plain, flaw, split_url, way_out
from virtualstack.storage.hosts import MAX_HOSTS, is_host, resolve, why_not_public
from virtualstack.storage.registry import OBJECT_STORES, WEB

__all__ = ["Allow", "Permission", "is_signed", "read_allowed_urls", "sign"]

type Allow = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
"""Type of ``allow=``: see `Permission.from_allow`."""

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


@dataclass(frozen=True, slots=True)
class Permission:
    """The URLs that may be read because a store names them; made by `from_allow`.

    Everything in the folder that holds the store is allowed, and everything that the reader allowed. Beyond that, an
    untrusted store may name:

    - object stores: any bucket, at the endpoint and with the credentials that the reader passed or has in the
      environment. The endpoint is the reader's own choice and is not checked;
    - web servers on public hosts. Loopback, link-local, private and multicast hosts are refused. They are recognised by
      address, by a name that resolves to such an address, or by a name that exists only in a private network;
    - if the store is in memory, everything else in memory;
    - no local files. Hidden files beside the store (names with a leading dot) do not belong to its folder. Symbolic
      links in the store's folder and in allowed folders are followed, and must not lead out;
    - nothing with ``.`` or ``..`` as a segment (encoded too), empty segments, backslashes or control characters.

    A trusted store may name every URL without ``..``, but no local files if the store is remote.

    This check cannot detect redirects of a web server (redirects from ``https`` to ``http`` are never followed), names
    and links that change between the check and the read, hard links, mounts, and names that a proxy rewrites. For
    protection from these, run the process without access to anything that it must not reach.

    Parameters
    ----------
    store
        Absolute URL of the store's folder, ending in ``/``.
    allowed
        Absolute URLs of folders and files.
    is_trusted
        If true, the store is the reader's own work.
    is_document
        If true, the store is a file that refers to other files, such as kerchunk references; see `of_document`.

    Examples
    --------
    >>> permission = Permission.from_allow("s3://bucket/x.vstack", allow="/data")
    >>> permission.check(["s3://bucket/a.nc", "file:///data/b.nc", "https://8.8.8.8/c.nc"])
    >>> permission.check(["https://8.8.8.8/c.nc", "http://10.0.0.1/d.nc"])
    Traceback (most recent call last):
    virtualstack.errors.ForbiddenLocationError: the store 's3://bucket/x.vstack/' refers to 'http://10.0.0.1/d.nc', \
whose host is private. If it may be read, open the store with allow=["http://10.0.0.1/"]
    """

    store: str
    allowed: tuple[str, ...] = ()
    is_trusted: bool = False
    is_document: bool = False

    def __post_init__(self) -> None:
        if not self.store.endswith("/") or any(_canonical(url) != url for url in (self.store, *self.allowed)):
            raise ValueError(f"not what Permission.from_allow gives: {self.store!r}, {self.allowed!r}")

    @classmethod
    def from_allow(cls, store: str | os.PathLike[str], allow: Allow = None, *, is_trusted: bool = False) -> Self:
        """Make a permission from the arguments of a user.

        Parameters
        ----------
        store
            URL or path of the store.
        allow
            URLs or paths that may also be read: files, and folders with everything below them. ``"https://"`` allows
            every web server, also private ones.
        is_trusted
            See `Permission`.
        """
        return cls(_folder(_canonical(absolute_url(store))), read_allowed_urls(allow), is_trusted)

    @classmethod
    def of_document(cls, url: str, allow: Allow = None, /) -> Self | None:
        """Return the permission of a file that refers to others; ``None`` if the file is local or in memory.

        This rule applies to every format except vstack: kerchunk references, Icechunk, DMR++ and HDF5. A local file may
        refer to anything. A remote file may refer to everything on the same web server or in the same bucket.
        Elsewhere, it may refer to the same locations as a store. Empty segments are common in such references.

        Parameters
        ----------
        url
            Absolute URL of the file, or of its folder.
        allow
            URLs or paths that may also be read; see `from_allow`.
        """
        return None if _is_near(url) else replace(cls.from_allow(url, allow), is_document=True)

    def check(self, urls: Sequence[str], /) -> None:
        """Raise an error for the first URL that is not allowed.

        Most URLs take less than a microsecond. Each local file that an untrusted store names is looked up on disk.
        Each name of a web host is resolved at most once a minute.

        Raises
        ------
        ForbiddenLocationError
            A URL is not allowed. The message names the store, the URL, the reason and the value to pass as ``allow=``.
        """
        if self.is_document:
            own = split_url(self.store)[0]
            urls = [_EMPTY.sub("/", url) for url in urls if not _canonical(url).startswith(own)]
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
        if not self.is_trusted:
            asked = [url for url in map(_canonical, prefixes) if url.count("/") > 2]
            named = tuple(map(_folder, self._named()))
            self._resolve({split_url(url)[0].rstrip("/") for url in asked if not url.startswith(named)})
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
        if any(x.startswith(url) for x in (*named, *real)):
            return
        if url.count("/") == 2 and url.partition("://")[0] in (*OBJECT_STORES, *WEB):
            return  # a part of the host name
        if refusal := self._refusal(prefix[: prefix.rfind("/") + 1]):
            raise self._error(prefix, refusal)

    def covers(self, prefix: str, /) -> bool:
        """Return whether every URL with this beginning may be read, wherever names, hosts and links lead.

        The result is False for public hosts, as their names may resolve to another address tomorrow. It is also False
        for local folders, where links may be added, unless the reader allowed all local files.
        """
        if flaw(f"{prefix}x") is not None:
            return False
        url = _canonical(prefix)
        if _is_local(url):
            return "file:///" in self.allowed
        if any(url.startswith(_folder(x)) for x in self._named()):
            return True
        root, mark, _ = split_url(f"{url}x")[0].rpartition("/")
        is_whole = bool(mark) and url.startswith(f"{root}/") and url.count("/") > 2
        scheme = root.partition("://")[0]
        return is_whole and scheme in (*OBJECT_STORES, "memory") and self._refusal_of_root(f"{root}/") is None

    def check_object(self, url: str, /) -> None:
        """Raise an error for an object of the store that a link leads out of the folder that holds the store.

        Raises
        ------
        ForbiddenLocationError
            The object is a link, or behind a link, out of that folder. The message names the value to pass as
            ``allow=``.
        """
        if not _is_local(url):
            return
        found = _real(url)
        if found == url or any(_is_in(found, _real(x)) for x in (self.store, *filter(_is_local, self._named()))):
            return
        raise self._error(url, _Refusal(f"which is a link to {_shown(found)}", found[: found.rfind("/") + 1]))

    def _are_allowed(self, urls: Sequence[str]) -> bool:
        """Return whether all URLs are allowed, judged by folders and hosts; False means that some may be forbidden."""
        plain = tuple(_folder(x) for x in self._named() if not _is_local(x))
        if self.is_trusted:
            schemes = (*OBJECT_STORES, *WEB, "memory")
            plain += (*(f"{scheme}://" for scheme in schemes), *(("file:///",) if _is_near(self.store) else ()))
        others = [url for url in urls if not url.startswith(plain)]
        files = [url for url in others if url.startswith("file:///")]
        roots = {_canonical("/".join(url.split("/", 3)[:3])) for url in others if not url.startswith("file:///")}
        self._resolve(roots)
        return (
            are_plain(urls)
            and all("://" in root and self._refusal_of_root(f"{root}/") is None for root in roots)
            and self._are_allowed_files(files)
        )

    def _resolve(self, roots: Collection[str]) -> None:
        """Resolve the names of web hosts together; a store may name many."""
        hosts = [root.partition("://")[2] for root in roots if root.partition("://")[0] in WEB]
        if len(hosts) > MAX_HOSTS:
            raise ForbiddenLocationError(
                f"{self._who()} refers to {len(hosts)} web servers, more than the {MAX_HOSTS} whose names "
                "are looked up. Name those that may be read: allow=[...]",
                url=self.store,
            )
        resolve(hosts)

    def _are_allowed_files(self, urls: Sequence[str]) -> bool:
        if not urls:
            return True
        named = [x for x in self._named() if _is_local(x)]
        real = tuple(_folder(_real(x)) for x in named)
        folders = {url.rpartition("/")[0] + "/" for url in urls}
        return (
            all(folder.startswith((*map(_folder, named), *real)) for folder in folders)
            and all(_folder(_real(folder)).startswith(real) for folder in folders)
            and not any(map(self._is_hidden, urls))
            and not any(os.path.islink(url.removeprefix(_FILE)) for url in urls)  # noqa: PTH114 - no path for each
        )

    def _refusal(self, url: str) -> _Refusal | None:
        if found := (way_out if self.is_trusted else flaw)(url):
            return _Refusal(f"which {found}")
        url = _canonical(url)
        if _is_local(url):
            return None if self.is_trusted and _is_near(self.store) else self._refusal_of_file(url)
        if self.is_trusted or any(_is_in(url, x) for x in self._named()):
            return None
        return self._refusal_of_root(split_url(url)[0])

    def _refusal_of_file(self, url: str) -> _Refusal | None:
        named = [x for x in self._named() if _is_local(x)]
        real = [_real(x) for x in named]
        if not any(
            _is_in(url, x) for x in (*named, *real)
        ):  # checked before the link is read, which may mount a file system
            why = "which is a local file" if self.is_document else "which is a local file outside of the store's folder"
            return _Refusal(why, url[: url.rfind("/") + 1])
        found = _real(url)
        if any(_is_in(found, x) for x in real):
            if not self._is_hidden(url) and not self._is_hidden(found):
                return None
            return _Refusal("which is a hidden file beside the store", url[: url.rfind("/") + 1])
        folder = _folder(found) if url.endswith("/") else found[: found.rfind("/") + 1]
        return _Refusal(f"which is a link to {_shown(found)}", folder)

    def _is_hidden(self, url: str) -> bool:
        """Return whether a file in the folder of the store is a private one, such as ``.ssh/id``."""
        if "/." not in url:
            return False
        parent, *allowed = self._named()
        for folder in dict.fromkeys((parent, _folder(_real(parent)))):
            parts = url[len(folder) :].split("/") if url.startswith(folder) else ()
            if any(part.startswith(".") and part not in _NOT_HIDDEN for part in parts):
                own = self.store, _folder(_real(self.store))
                return not url.startswith(own) and not any(_is_in(url, x) for x in allowed)
        return False

    def _refusal_of_root(self, root: str) -> _Refusal | None:
        scheme, _, authority = root.removesuffix("/").partition("://")
        if scheme in OBJECT_STORES:
            return None if _BUCKET.fullmatch(authority) else _Refusal("which has no plain name of a bucket")
        if scheme in WEB:
            if not is_host(authority):
                return _Refusal("whose host is not spelt plainly, or has a user before it")
            kind = why_not_public(authority)
            return None if kind is None else _Refusal(f"whose host {kind}", root)
        if scheme == "memory":
            return None if self.store.startswith("memory://") else _Refusal("which is in this process's memory", root)
        return _Refusal("which is in no object store and on no web server", root)

    def _named(self) -> tuple[str, ...]:
        """Return the folders and files that may be read: the store's folder, and those that the reader allowed."""
        root, key = split_url(self.store)
        parent = root + "".join(key.rpartition("/")[0].rpartition("/")[:2])
        return (
            self.store if parent == "file:///" else parent,
            *self.allowed,
        )  # the whole disk is not the store's folder

    def _error(self, url: str, refusal: _Refusal) -> ForbiddenLocationError:
        opened = "it" if self.is_document else "the store"
        remedy = (
            f"No {'references' if self.is_document else 'store'} should name such a URL: ask who wrote it"
            if refusal.allow is None
            else f'If it may be read, open {opened} with allow=["{refusal.allow}"]'
        )
        return ForbiddenLocationError(f"{self._who()} refers to {_shown(url)}, {refusal.why}. {remedy}", url=url)

    def _who(self) -> str:
        return f"'{self.store.removesuffix('/')}'" if self.is_document else f"the store '{self.store}'"


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
    return tuple(_canonical(absolute_url(x)) for x in given)


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


def _is_in(url: str, prefix: str) -> bool:
    return url == prefix or url.startswith(_folder(prefix))


def _is_local(url: str) -> bool:
    return url.startswith(_FILE)


def _is_near(url: str) -> bool:
    return url.startswith((_FILE, "memory://", BYTES))


def _real(url: str) -> str:
    """Return a local URL with its symbolic links resolved."""
    return _FILE + os.path.realpath(url.removeprefix(_FILE))


def _shown(url: str) -> str:
    return repr(url if len(url) <= 300 else f"{url[:300]}...")


_KEY_BYTES = 32  # bytes: the length of a SHA-256 digest, RFC 2104 section 3


def sign(data: bytes, /) -> str | None:
    """Return the HMAC-SHA256 of bytes with the user's key, in hexadecimal; ``None`` if there is no key.

    The key is made on the first signing, as ``virtualstack/key`` in ``$XDG_STATE_HOME`` or ``~/.local/state``. The
    environment variable ``VIRTUALSTACK_KEY_FILE`` names another file. Accounts that share the file trust each other.
    There is no key if the file cannot be made, if others may read or write it, or if it does not have 32 bytes. Without
    a key, nothing is trusted.

    Signed bytes can be copied together with their signature. So they must contain the object that the signature is
    valid for, such as the URL of the store.
    """
    path = _key_file()
    key = None if path is None else _read(path) or _make(path)
    return None if key is None else hmac.new(key, data, "sha256").hexdigest()


def is_signed(data: bytes, signature: str | None, /) -> bool:
    """Return whether `sign` made this signature for these bytes with this account's key; no key is made."""
    path = _key_file()
    key = None if path is None or not isinstance(signature, str) else _read(path)
    if key is None or signature is None:
        return False
    return hmac.compare_digest(hmac.new(key, data, "sha256").hexdigest().encode(), signature.encode(errors="replace"))


def _key_file() -> Path | None:
    if named := os.environ.get("VIRTUALSTACK_KEY_FILE"):
        return Path(named)
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # XDG base directory specification: relative paths are ignored
        try:
            state = Path.home() / ".local" / "state"
        except RuntimeError:
            return None
    return state / "virtualstack" / "key"


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )  # opening a FIFO would wait for its writer
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
            key = file.read(_KEY_BYTES + 1) if is_own else b""
    except (OSError, ValueError):
        return None
    return key if len(key) == _KEY_BYTES else None


def _make(path: Path) -> bytes | None:
    """Make a key file atomically unless it exists; return the key in the file, or ``None`` if it cannot be made."""
    try:
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(descriptor)
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(temporary)
        finally:
            temporary.unlink()
    except (OSError, ValueError):
        return None
    return _read(path)
