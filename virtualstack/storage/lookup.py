"""What is at many URLs of an object store or web server now: by listings where there are some, and never by reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage.concurrently import concurrently
from virtualstack.storage.limited_lookup import LimitedLookup
from virtualstack.storage.obstore import Connection, connect

__all__ = ["look_up"]

_LISTED_KEYS = 4096  # keys of a listing: four requests, where there is nothing else


def look_up(urls: Sequence[str], backend: object | None, prefix: str, /) -> list[Location | StorageError]:
    """Say of each URL of one bucket or host which version of it is there; see :meth:`Storage.look_up`."""
    found: dict[str, Location | StorageError] = {}
    by_key: dict[str, str] = {}
    connection, _ = connect(urls[0], backend, prefix)
    if not connection.is_web:
        by_key = {connect(url, backend, prefix)[1]: url for url in urls}
        keys = sorted(by_key)
        runs = [keys[begin : begin + _LISTED_KEYS] for begin in range(0, len(keys), _LISTED_KEYS)]
        for listed in concurrently(lambda run: _listed(connection, run, by_key), runs, urls[:1]):
            found |= listed

    def ask(url: str) -> Location:
        own, key = connect(url, backend, prefix)
        return own.look_up(url, key)

    left = [url for url in dict.fromkeys(urls) if url not in found]
    found |= zip(left, concurrently(LimitedLookup(ask), left, urls[:1]), strict=True)
    return [found[url] for url in urls]


def _listed(connection: Connection, keys: Sequence[str], urls: dict[str, str]) -> dict[str, Location | StorageError]:
    """Give what a listing says of keys, as far as it goes; nothing where there is none."""
    try:
        found, end = connection.between(urls[keys[0]], keys)
    except StorageError:
        return {}  # no list for everyone who may read: they are asked for one by one
    answers: dict[str, Location | StorageError] = {}
    for key in keys:
        url = urls[key]
        if key in found:
            answers[url] = replace(found[key], url=url)
        elif end is None or key <= end:
            answers[url] = SourceNotFoundError(f"there is nothing at '{url}', as the list of its folder says", url=url)
    return answers
