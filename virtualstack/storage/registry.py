"""Find the backend and the options that serve a URL, and open the URL as a source or target."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, cast
from urllib.parse import unquote

from virtualstack.errors import (
    AccessDeniedError,
    ForbiddenLocationError,
    Remedy,
    SourceNotFoundError,
    StorageError,
    check_word,
)
from virtualstack.location import (
    ARCHIVES,
    BYTES,
    Access,
    Location,
    Reads,
    Stale,
    absolute_url,
    is_http,
    is_remote,
    outermost,
    split_url,
)
from virtualstack.storage.backends import (
    WAITING,
    WORDS,
    is_chosen,
    is_default,
    kind_of_backend,
    needs_login,
    read_backend,
    registered,
    serves,
    with_user,
    without_login,
)
from virtualstack.storage.dry_run import unless_dry
from virtualstack.storage.local import LocalSource, read_local
from virtualstack.storage.named import EVERYWHERE, Named, UnnamedBucket, in_both, in_either, is_named, place
from virtualstack.storage.signatures import QUERY, split_signature
from virtualstack.storage.source import CheckedSource, Source, warn_of_change
from virtualstack.storage.standing import standing_options
from virtualstack.storage.target import Target
from virtualstack.storage.threads import LimitedLookup
from virtualstack.storage.web.public_web import PublicWeb

__all__ = ["OBJECT_STORES", "SERVERS", "WEB", "CheckedSource", "Stale", "Storage", "StorageLike", "open_source"]

type StorageLike = Storage | Mapping[str, object] | object | None
"""Type of ``storage=``: see `Storage.from_option`."""

OBJECT_STORES = "s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl"
WEB = "http", "https"
SERVERS = "ftp", "sftp", "ssh", "smb"
"""Schemes of fsspec's filesystems of servers, whose options are host, port, username and password."""
_WEB = tuple(f"{scheme}://" for scheme in WEB)
_REMOTE = (*(f"{scheme}://" for scheme in OBJECT_STORES), *_WEB)


class Check(Protocol):
    """A picklable object that decides which URLs may be read."""

    def check(self, urls: Sequence[str], /) -> None:
        """Raise `ForbiddenLocationError` for the first URL that may not be read."""


@dataclass(slots=True)
class _Kept:
    url: str
    source: Source | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Storage:
    """Access to URLs: options, obstore stores or fsspec filesystems, by URL prefix.

    Made by `Storage.from_option`. It pickles with its options, so worker processes have the same access.
    It is never written to references, and its repr has no option values.

    Parameters
    ----------
    given, carried
        Pairs of URL prefix (``""``: every URL) and backend, longest prefix first. ``given`` are those of a call.
        ``carried`` are those that virtual arrays were opened with; ``given`` take precedence.
    kept
        The source that is opened only once; see `once`.
    stale
        Reaction if a source changed after it was indexed; see `with_stale`.
    permissions
        Permissions that every URL must pass; see `only`.
    named
        Prefixes of the places that the user named. Other buckets and web servers are read without credentials of this
        account. ``None``: all places are named. Entries of ``given``, ``carried`` and of the configuration file are
        named too.
    opened
        URL on a web server that the user opened by name, so that its redirects are not checked.
    """

    given: tuple[tuple[str, object], ...] = ()
    carried: tuple[tuple[str, object], ...] = ()
    kept: _Kept | None = field(default=None, compare=False)
    stale: Stale = "error"
    permissions: tuple[Check, ...] = ()
    named: Named = None
    opened: str | None = None

    @classmethod
    def from_option(cls, storage: StorageLike = None, /) -> Self:
        """Make a storage from a user's ``storage=``."""
        if isinstance(storage, cls):
            return storage
        if storage is None:
            return cls()
        if type(storage).__module__ == "obspec_utils.registry":
            storage = dict(registered(cast(Any, storage)))
        if isinstance(storage, Mapping):
            return cls(_sorted({_prefix(key): read_backend(value, key) for key, value in storage.items()}))
        return cls((("", read_backend(storage, "")),))

    def access(self, url: str, /) -> Storage | None:
        """Return the storage that later reads of a source need, or ``None`` if they need no options.

        Functions that open a source call it, and keep the result in the attribute ``access`` of each virtual array. So
        chunks are read later with the same credentials, also after pickling, and without those of other sources.

        A store or filesystem for every URL becomes that of the bucket or host of the source. If it does not serve the
        source itself, such as a bucket for local references, it stays for every URL.
        """
        url = outermost(url)
        root = split_url(url)[0]
        entries = dict((*self.carried, *self.given))
        entries = {x: each for x, each in entries.items() if not x.startswith(BYTES) or x == root}
        if "" in entries and serves("", entries[""], url):
            entries.setdefault(root, entries[""])
            if entries[""] not in WORDS.values():  # words are for the hosts of one archive only
                del entries[""]
        is_needed = entries or self.named is not None or self.stale != "error"
        return Storage(_sorted(entries), named=self.named, stale=self.stale) if is_needed else None

    def joined(self, others: Iterable[Access], /) -> Storage:
        """Return the backends of several storages as one; for equal prefixes, those of the first take precedence.

        A place that one of them names is named.
        """
        entries, others = dict(self.given), list(others)
        for other in others:
            entries = dict(other.given) | entries
        named = in_either([self.named, *(other.named for other in others)])
        return Storage(_sorted(entries), named=named, stale=_chosen(self, *others))

    def with_named(self, urls: Iterable[str], /) -> Self:
        """Return the same storage, for which the user named the buckets and web servers of URLs too."""
        return self if self.named is None else replace(self, named=tuple(sorted({*self.named, *map(place, urls)})))

    def is_named(self, url: str, /) -> bool:
        """Return whether the user named the place of a URL, so that credentials of this account may be sent there."""
        url = outermost(url)
        prefix, backend = self._entry(url)
        if isinstance(backend, PublicWeb):
            return False
        return is_named(url, self.named) or is_chosen(prefix, backend, url) or not url.startswith(_REMOTE)

    def given_for(self, url: str, /) -> object | None:
        """Return the options, store or filesystem that the user gave for a URL, or ``None``."""
        return self._entry(outermost(url))[1]

    def with_access(self, access: Access | None, /) -> Self:
        """Return the storage that reads the sources of an array with the access that it carries along; see `access`.

        Credentials of this account are sent only to the places that the access names.
        """
        if access is None:
            return self
        named, stale = in_both(self.named, access.named), _chosen(self, access)
        return replace(self.with_entries(access), named=named, stale=stale, opened=None)

    def with_entries(self, *accesses: Access | None) -> Self:
        """Return the same storage that also has the entries of the accesses of several arrays.

        It is for what is written and read by name, and sources are read with the access of their own array too.
        """
        found = [access for access in accesses if access is not None and access.given]
        return replace(self, carried=Storage(self.carried).joined(found).given) if found else self

    def with_given(self, entries: Mapping[str, object], /) -> Self:
        """Return the same storage with other backends of the call, by URL prefix."""
        return replace(self, given=_sorted(entries))

    def once(self, url: str | os.PathLike[str], /) -> Self:
        """Return the same storage, but with one URL that is opened at most once.

        Use it if several readers read one source: they see the same version, and the source is opened with one request.
        Ranges that are read from a local file are noted in it.
        """
        return replace(self, kept=_Kept(absolute_url(url)))

    def with_users(self, urls: Sequence[str], /) -> tuple[list[str], Self]:
        """Move user names, passwords and signatures from URLs to the options of their hosts, or of the signed URL.

        So no location, no reference and no message has a secret. The name of a user alone stays, as in
        ``sftp://user@host/``, except in web URLs.
        """
        users: dict[str, tuple[str, str]] = {}
        signatures: dict[str, str] = {}
        plain = []
        for url in urls:
            inner = outermost(url)
            own, signature = split_signature(inner)
            if signature:
                url, inner, signatures[own] = url.removesuffix(inner) + own, own, signature
            root, key = split_url(inner)
            scheme, _, authority = root.partition("://")
            user, at, host = authority.rpartition("@")
            if at and (scheme in WEB or (scheme in SERVERS and ":" in user)):
                url = f"{url.removesuffix(inner)}{scheme}://{host}{key}"
                name, _, password = user.partition(":")
                pair = unquote(name), unquote(password)
                if users.setdefault(self.find(url)[0] or f"{scheme}://{host}", pair) != pair:
                    raise StorageError(
                        f"URLs of '{host}' name different users", Remedy("open the files of each user separately")
                    )
            plain.append(url)
        if not users and not signatures:
            return plain, self
        known = dict(reversed(self.entries()))
        given = {prefix: with_user(known.get(prefix) or known.get(""), pair) for prefix, pair in users.items()}
        for own, signature in signatures.items():
            options = self.find(own)[1]
            if is_default(options):  # a store or filesystem signs by itself
                given[own] = {**cast(Mapping[str, object], options or {}), QUERY: signature}
            elif isinstance(options, PublicWeb):  # the URL comes from references
                given[own] = replace(options, waiting=(*options.waiting, (QUERY, signature)))
        return plain, replace(self, given=_sorted({**dict(self.given), **given}))

    def with_stale(self, stale: Stale | None, /) -> Self:
        """Return the same storage with another reaction to sources that changed after they were indexed."""
        check_word("stale", stale, ("error", "warn", "ignore", None))
        return self if stale in (self.stale, None) else replace(self, stale=stale)

    def only(self, permission: Check, /, *, opened: str | None = None) -> Self:
        """Return the same storage, which refuses every URL that this or an earlier permission forbids.

        Use it to scan sources that an untrusted store names, since a source may name others in turn. Credentials are
        sent only to the places that the permission names too. ``opened`` is a URL that the user opened by name.
        """
        named = in_both(self.named, getattr(permission, "named", None))
        return replace(self, permissions=(*self.permissions, permission), named=named, opened=opened or self.opened)

    def check(self, urls: Sequence[str], /) -> None:
        """Raise an error for the first URL that a permission of `only` forbids."""
        for permission in self.permissions:
            permission.check(urls)

    def may_open(self, url: str, /) -> bool:
        """Return whether the permissions of `only` allow a URL."""
        try:
            self.check([url])
        except ForbiddenLocationError:
            return False
        return True

    def source(self, url: str | os.PathLike[str], /, *, expected: Location | None = None) -> Source:
        """Open the source at a URL or local path.

        A remote source takes one request, or none if ``expected`` has a size.
        """
        url = absolute_url(url)
        if "@" in url or "?" in url:
            (url,), self = self.with_users([url])
        if expected is not None and self.stale != "error":
            source = self._open(url, None)
            if self.stale == "warn":
                warn_of_change(expected, source)
            return source
        if expected is not None:
            source = self._open(url, expected)
            return source if expected.checksums is None else CheckedSource(source, expected.checksums)
        if self.kept is None or self.kept.url != url:
            return self._open(url, None)
        if self.kept.source is None:
            self.kept.source = source = self._open(url, None)
            if isinstance(source, LocalSource):
                source.location = replace(source.location, reads=Reads())
        return self.kept.source

    def existing(self, url: str, /) -> Source | None:
        """Return the source at a URL; ``None`` if it does not exist.

        A bucket that lists nothing denies access to objects that do not exist. So ``None`` also means that access to a
        remote object is denied, and a caller that finds nothing at all opens one of the URLs to raise the error.
        """
        try:
            return self.source(url)
        except SourceNotFoundError:
            return None
        except AccessDeniedError:
            if not is_remote(url):
                raise
            return None

    def read(self, offset: int, length: int, /, *, expected: Location) -> bytes:
        """Read one range of a source, without keeping the source for further reads: see `source`."""
        url = absolute_url(expected.url)
        is_plain = self.stale == "error" and expected.checksums is None
        if is_plain and url.startswith("file://") and is_default(self.find(url)[1]):
            self.check([url])
            return read_local(url, offset, length, expected=expected)
        return self.source(url, expected=expected).read(offset, length)

    def _open(self, url: str, expected: Location | None) -> Source:
        self.check([url])
        if url.startswith(ARCHIVES):
            chained = importlib.import_module("virtualstack.storage.chained")
            return cast(Source, chained.open_member(url, self.source, expected))
        prefix, backend = self.find(url)
        return cast(Source, _module(backend, url).open_source(url, backend, prefix, expected))

    def target(self, url: str | os.PathLike[str], /) -> Target:
        """Return the target at a root URL or local directory; nothing is requested yet. A dry run writes nothing."""
        return unless_dry(self.writing_target(url))

    def writing_target(self, url: str | os.PathLike[str], /) -> Target:
        """Return the target that writes, even while a dry run is active; `unless_dry` decides later whether it does."""
        every = self if self.named is None else replace(self, named=None)  # references name no targets
        (url,), self = every.with_users([absolute_url(url)])
        prefix, backend = self.find(url)
        return cast(Target, _module(backend, url).open_target(url, backend, prefix))

    def look_up(self, urls: Sequence[str], /) -> list[Location | StorageError]:
        """Return the current version of each absolute URL, or the reason why it is not known; no bytes are read.

        Object stores list the keys between the first and the last key: a thousand for each request, several requests at
        a time. If few of the listed keys are wanted, keys are requested one by one. So are all URLs at web servers, and
        URLs that cannot be listed. After a hundred failures in a row, the remaining URLs are not requested.
        """
        places: dict[tuple[str, str, type], list[int]] = {}
        for i, url in enumerate(urls):
            prefix, backend = self.find(url)
            places.setdefault((prefix, split_url(url)[0], type(backend)), []).append(i)
        found: dict[int, Location | StorageError] = {}
        for (prefix, *_), numbers in places.items():
            backend = self.find(urls[numbers[0]])[1]
            found |= zip(numbers, self._look_up([urls[i] for i in numbers], backend, prefix), strict=True)
        return [found[i] for i in range(len(urls))]

    def _look_up(self, urls: Sequence[str], backend: object | None, prefix: str) -> list[Location | StorageError]:
        if urls[0].startswith(ARCHIVES):
            return list(map(LimitedLookup(lambda url: self._open(url, None).location), urls))
        try:
            return cast(list[Location | StorageError], _module(backend, urls[0]).look_up(urls, backend, prefix))
        except StorageError as error:
            return [error] * len(urls)

    def check_known(self, url: str, /) -> None:
        """Raise an error if no backend is known for the scheme of an absolute URL; no request is made."""
        _module(self.find(url)[1], url)

    def entries(self) -> tuple[tuple[str, object], ...]:
        """Return all pairs of prefix and backend; the first that serves a URL is used. Standing options come last."""
        return (*self.given, *self.carried, *standing_options().items())

    def find(self, url: str, /) -> tuple[str, object | None]:
        """Return the prefix that serves an absolute URL, and its options, store or filesystem (``None``: defaults).

        A bucket that only references from a network name is read through `UnnamedBucket`. What references name on a web
        server is read through `PublicWeb`, unless ``storage=`` says how to log in there.
        """
        url = outermost(url)
        prefix, backend = self._entry(url)
        if self.named is None or not url.startswith(_REMOTE) or is_chosen(prefix, backend, url):
            return prefix, backend
        root, is_here = split_url(url)[0], is_named(url, self.named)
        options = cast(Mapping[str, object], backend or {})
        if not is_http(url):
            return prefix, backend if is_here else UnnamedBucket(options)
        told = tuple(x for x in self.named if x != EVERYWHERE)
        if not is_named(url, told):
            if needs_login(options, root, is_named=False):
                return prefix, options
            options = without_login(options)  # a login for every URL is for what the user names
        if (is_here and url == self.opened) or needs_login(options, root, is_named=is_here):
            return prefix, options
        waiting = {key.lower(): value for key, value in options.items() if key.lower() in WAITING}
        return root, PublicWeb((root, *told) if EVERYWHERE in self.named else told, tuple(sorted(waiting.items())))

    def _entry(self, url: str) -> tuple[str, object | None]:
        entry = next((entry for entry in self.entries() if serves(*entry, url)), None)
        return entry or (split_url(url)[0], None)

    def __repr__(self) -> str:
        def words(entries: tuple[tuple[str, object], ...]) -> str:
            return ", ".join(
                f"'{prefix}': {sorted(backend) if isinstance(backend, Mapping) else type(backend).__name__}"
                for prefix, backend in entries
            )

        stale = "" if self.stale == "error" else f", stale='{self.stale}'"
        carried = f", carried={{{words(self.carried)}}}" if self.carried else ""
        return f"Storage({{{words(self.given)}}}{carried}{stale})"


def open_source(
    url: str | os.PathLike[str], /, *, storage: StorageLike = None, expected: Location | None = None
) -> Source:
    """Open the source at a URL or local path; short for ``Storage.from_option(storage).source(url)``."""
    return Storage.from_option(storage).source(url, expected=expected)


def _chosen(*accesses: Access) -> Stale:
    """Return the first reaction to changed sources that is not the default."""
    return next((x.stale for x in accesses if x.stale != "error"), "error")


def _sorted(entries: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(entries.items(), key=lambda entry: (-len(entry[0]), entry[0])))


def _prefix(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"storage= maps URL prefixes to options; {key!r} is not a string")
    return absolute_url(key) if key else ""


_MODULES = {"file": "local", "memory": "memory", **dict.fromkeys((*OBJECT_STORES, *WEB), "remote")}


def _module(backend: object | None, url: str) -> Any:
    """Return the module that opens sources and targets, and looks up URLs."""
    name = _MODULES.get(url.partition("://")[0]) if is_default(backend) else kind_of_backend(backend)
    if name is not None:
        return importlib.import_module(f"virtualstack.storage.{name}")
    if url.startswith(BYTES):
        raise SourceNotFoundError(
            f"'{url}' stands for bytes of an object such as a BytesIO, which this process does not have. Open the "
            "object again",
            url=url,
        )
    module = importlib.import_module("virtualstack.storage.fsspec")
    module.check_scheme(url)
    return module
