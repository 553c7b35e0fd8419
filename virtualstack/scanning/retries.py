"""Asking again, after pauses that grow, where storage failed for a reason that may pass."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from virtualstack.errors import StorageError
from virtualstack.location import is_remote, split_url
from virtualstack.storage import Storage
from virtualstack.storage.passing import may_pass

__all__ = ["DEFAULT", "asking_again", "with_retries"]

DEFAULT = 5  # what storage does of itself, too
_LEAST_PATIENCE, _LONGEST_BACKOFF = 10.0, 3.0  # seconds that obstore asks again at all, and waits in between
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0  # seconds


def asking_again[T](read: Callable[[], T], retries: int, /) -> T:
    """Call, and again up to ``retries`` times where storage fails for a reason that may pass."""
    for attempt in range(retries):
        try:
            return read()
        except StorageError as error:
            if not may_pass(error):
                raise
        # jitter: workers that were turned away together do not come back together
        time.sleep(min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE) * random.uniform(0.5, 1.5))
    return read()


def with_retries(storage: Storage, urls: Iterable[str], retries: int, /) -> Storage:
    """Let requests to the servers of some URLs be repeated so often, unless their options say how often.

    Stores and filesystems that a user made keep their own way.
    """
    roots = {split_url(url)[0]: url for url in urls if is_remote(url)}
    given = dict(storage.given)
    for url in roots.values():
        prefix, backend = storage.find(url)
        if backend is None or (isinstance(backend, Mapping) and "max_retries" not in backend):
            patience = {"max_retries": retries, "retry_timeout": max(_LEAST_PATIENCE, _LONGEST_BACKOFF * retries)}
            given[prefix] = patience | dict(backend or {})
    return replace(Storage.of(given), remembered=storage.remembered, stale=storage.stale)
