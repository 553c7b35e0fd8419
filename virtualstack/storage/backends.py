"""Recognise the objects that ``storage=`` takes for a prefix of URLs: options, words, stores and filesystems."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, cast

from virtualstack.location import is_http, split_url
from virtualstack.storage.memory import HeldBytes
from virtualstack.storage.named import UnnamedBucket
from virtualstack.storage.web.public_web import PublicWeb

WORDS: dict[str, dict[str, object]] = {
    "earthdata": {"earthdata": "known"},
    "planetary_computer": {"planetary_computer": True},
}
"""Options of a ``storage=`` that is one word."""

WAITING = frozenset(["connect_timeout", "max_retries", "min_rate", "read_timeout", "retry_timeout", "timeout"])
"""Options that only say how long to wait for a server."""


def read_backend(value: object, prefix: str, /) -> object:
    """Return what a user gave for a prefix of URLs, with a word replaced by its options."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str) and value in WORDS:
        return dict(WORDS[value])
    if is_backend(value):
        return value
    raise TypeError(
        f"storage= for '{prefix or 'every URL'}' is a {type(value).__name__}. Give a mapping of options, an obstore "
        f"or obspec store, an fsspec filesystem, or one of the words {', '.join(WORDS)}"
    )


def is_backend(value: object, /) -> bool:
    """Return whether an object reaches sources: a store of obstore or obspec, or an fsspec filesystem."""
    return kind_of_backend(value) is not None


def kind_of_backend(value: object, /) -> str | None:
    """Return the module of this folder that reads from an object, or ``None`` if none does."""
    if isinstance(value, HeldBytes):
        return "memory"
    libraries = {name.partition(".")[0] for name in _lineage(value)}
    if isinstance(value, PublicWeb | UnnamedBucket) or ("obstore" in libraries and "fsspec" not in libraries):
        return "remote"
    is_obspec = callable(getattr(value, "head", None)) and callable(getattr(value, "get_ranges", None))
    return "fsspec" if "fsspec" in libraries else "obspec" if is_obspec else None


def needs_login(options: Mapping[str, object], root: str, /, *, is_named: bool) -> bool:
    """Return whether a web server is read with a login, or otherwise as options say."""
    if is_named and _login(options):
        return True
    earthdata, azure = (importlib.import_module(f"virtualstack.storage.identities.{x}") for x in ("earthdata", "azure"))
    if is_named and "planetary_computer" in options and azure.blob_account(root) is not None:
        return True
    return bool((is_named or options.get("earthdata")) and earthdata.is_archive(root))


def registered(registry: Any, /) -> Iterator[tuple[str, object]]:
    """Yield the URL prefixes and stores of a registry of obspec-utils."""
    for root, entry in registry.map.items():
        left = [(f"{root.scheme}://{root.netloc}/", entry)]
        while left:
            prefix, node = left.pop()
            if node.store is not None:
                yield prefix, node.store
            left += [(f"{prefix}{name}/", child) for name, child in node.children.items()]


def is_local_backend(backend: object, /) -> bool:
    """Return whether a store or filesystem serves local files; its library is loaded already, as it made the object."""
    obstore = sys.modules.get("obstore.store")
    if obstore is not None and isinstance(backend, obstore.LocalStore):
        return True
    fsspec = sys.modules.get("fsspec.implementations.local")
    return fsspec is not None and isinstance(backend, fsspec.LocalFileSystem)


def is_chosen(prefix: str, backend: object | None, url: str, /) -> bool:
    """Return whether the user chose how a place is read, and not only how long to wait for a web server."""
    if not isinstance(backend, Mapping):
        return backend is not None
    return bool(prefix and (_login(backend) or not is_http(url)))


def _login(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options that say more than how long to wait; empty for a word, which names only hosts it knows."""
    rest = {key: value for key, value in options.items() if key.lower() not in WAITING}
    return {} if rest in WORDS.values() else rest


def without_login(options: Mapping[str, object], /) -> Mapping[str, object]:
    """Return the options without those that identify the user to any web server: words know their hosts."""
    login = _login(options)
    return {key: value for key, value in options.items() if key not in login}


def serves(prefix: str, backend: object, url: str, /) -> bool:
    """Return whether a backend that was given for a prefix serves an absolute URL."""
    if prefix:
        return url == prefix.rstrip("/") or url.startswith(prefix.rstrip("/") + "/")
    return url.startswith("file://") == is_local_backend(backend)  # otherwise s3://x/etc/passwd would be a local file


def key_in(prefix: str, url: str, /) -> str:
    """Return the key of a URL in a store that was given for a prefix of URLs, or for a bucket."""
    return url[len(prefix.rstrip("/")) :].lstrip("/") if prefix else split_url(url)[1]


def is_default(backend: object | None, /) -> bool:
    """Return whether the backend follows from the scheme of a URL alone."""
    return backend is None or isinstance(backend, Mapping)


def with_user(backend: object | None, pair: tuple[str, str], /) -> object:
    """Return the options for a web server with a user name and a password; a store stays as it is."""
    if not is_default(backend):
        return backend  # a store or filesystem has its own user
    options = cast(Mapping[str, object], backend or {})
    return {**options, "username": pair[0], "password": pair[1]}


def _lineage(value: object) -> list[str]:
    return [kind.__module__ for kind in type(value).__mro__]
