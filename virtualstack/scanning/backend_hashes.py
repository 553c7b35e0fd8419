"""What tells one storage from another that serves the same URL, as hashes that give no secret away."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from virtualstack.storage import Storage
from virtualstack.storage.options import CLIENT_OPTIONS, OWN_OPTIONS

__all__ = ["hash_backends", "hash_environment"]

_HOW = (CLIENT_OPTIONS - {"default_headers"}) | OWN_OPTIONS  # and not where, or who asks
_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")
_PLACES = ("ENDPOINT", "ACCOUNT_NAME", "BASE_URL", "EMULATOR")
_HASH_ROUNDS = 100_000  # 40 ms: a hash of a short password must not be found by trying


def hash_backends(storage: Storage, /) -> dict[str, str]:
    """Give a hash of the options, store or filesystem for each URL prefix.

    One whose content cannot be told, as a store in memory, has another hash each time.
    """
    return {prefix: _mark(prefix, backend) for prefix, backend in (*storage.remembered, *storage.given)}


def hash_environment() -> str:
    """Give a hash of the variables that say which servers the URLs of buckets mean, where ``storage=`` does not."""
    found = [
        item
        for item in os.environ.items()
        if item[0].startswith(_PREFIXES) and any(word in item[0] for word in _PLACES)
    ]
    return _hash(repr(sorted(found)), "") if found else ""


def _mark(prefix: str, backend: object) -> str:
    if isinstance(backend, Mapping):
        backend = {key: value for key, value in backend.items() if str(key).lower() not in _HOW}
    try:
        text = repr((type(backend).__qualname__, _plain(backend)))
    except Exception:  # noqa: BLE001 - classes of others raise what they like
        text = uuid.uuid4().hex
    return _hash(text, prefix)


def _hash(text: str, salt: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", text.encode(errors="backslashreplace"), salt.encode(), _HASH_ROUNDS, 16).hex()


def _plain(value: object) -> object:
    """Give what has the same ``repr`` in each process: mappings sorted, objects as what they are made of."""
    if value is None or isinstance(value, str | bytes | int | float | PurePath):
        return value
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(x)) for key, x in value.items())
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    made: Any = value.__reduce_ex__(2)
    return [made[0].__qualname__, *map(_plain, made[1:])]
