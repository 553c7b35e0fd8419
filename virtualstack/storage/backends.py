"""Recognise the objects that ``storage=`` takes for a prefix of URLs: options, words, stores and filesystems."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from virtualstack.storage.memory import HeldBytes
from virtualstack.storage.named import UnnamedBucket
from virtualstack.storage.web.public_web import PublicWeb

__all__ = ["WORDS", "is_backend", "is_local_backend", "kind_of_backend", "read_backend", "registered"]

WORDS: dict[str, dict[str, object]] = {
    "earthdata": {"earthdata": "known"},
    "planetary_computer": {"planetary_computer": True},
}
"""Options of a ``storage=`` that is one word."""


def read_backend(value: object, prefix: str, /) -> object:
    """Return what a user gave for a prefix of URLs, with a word replaced by its options.

    Raises
    ------
    TypeError
        The object is none of these.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str) and value in WORDS:
        return dict(WORDS[value])
    if is_backend(value):
        return value
    raise TypeError(
        f"storage= for '{prefix or 'every URL'}' is a {type(value).__name__}; give a mapping of options, an obstore or "
        f"obspec store, an fsspec filesystem or one of the words {', '.join(WORDS)}"
    )


def is_backend(value: object, /) -> bool:
    """Return whether an object reaches sources: a store of obstore or obspec, or an fsspec filesystem."""
    return isinstance(value, HeldBytes) or kind_of_backend(value) is not None


def kind_of_backend(value: object, /) -> str | None:
    """Return the module of this folder that reads from an object, or ``None`` if none does."""
    libraries = {name.partition(".")[0] for name in _lineage(value)}
    if isinstance(value, PublicWeb | UnnamedBucket) or ("obstore" in libraries and "fsspec" not in libraries):
        return "remote"
    is_obspec = callable(getattr(value, "head", None)) and callable(getattr(value, "get_ranges", None))
    return "fsspec" if "fsspec" in libraries else "obspec" if is_obspec else None


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


def _lineage(value: object) -> list[str]:
    return [kind.__module__ for kind in type(value).__mro__]
