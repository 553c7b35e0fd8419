"""Asking again, after pauses that grow, where storage failed for a reason that may pass."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from virtualstack.errors import StorageError
from virtualstack.location import is_remote, split_url
from virtualstack.storage import Storage

__all__ = ["DEFAULT_RETRIES", "is_transient", "retry", "with_retries"]

DEFAULT_RETRIES = 5  # what storage does of itself, too
_MIN_PATIENCE_SECONDS, _MAX_BACKOFF_SECONDS = 10.0, 3.0  # seconds that obstore asks again at all, and waits in between
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 10.0
_TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}
_TRANSIENT_ERRNOS = {errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}
_BROKEN_CONNECTIONS = {"ClientPayloadError", "IncompleteRead", "ServerDisconnectedError"}  # of aiohttp and http.client


def retry[T](read: Callable[[], T], retries: int, /) -> T:
    """Call, and again up to ``retries`` times where storage fails for a reason that may pass."""
    for attempt in range(retries):
        try:
            return read()
        except StorageError as error:
            if not is_transient(error):
                raise
        # jitter: workers that were turned away together do not come back together
        time.sleep(min(_FIRST_PAUSE_SECONDS * 2**attempt, _MAX_PAUSE_SECONDS) * random.uniform(0.5, 1.5))
    return read()


def is_transient(error: StorageError, /) -> bool:
    """Return whether the same request may succeed soon, and was not repeated by what made it.

    Statuses such as 503, connections that break and time-outs of object stores are not among them: obstore has asked
    again, with pauses, as often as its options say, before it gave up. fsspec and file systems have not.
    """
    if type(error) is not StorageError:  # what is not there, has changed or is forbidden stays so
        return False
    return error.is_short or any(_is_transient(cause) for cause in _find_causes(error))


def _find_causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__ or error.__context__
    while cause is not None and not type(cause).__module__.startswith("obstore"):
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, TimeoutError | ConnectionError) or type(error).__name__ in _BROKEN_CONNECTIONS:
        return True
    status, number = getattr(error, "status", None), getattr(error, "errno", None)
    return status in _TRANSIENT_STATUSES or number in _TRANSIENT_ERRNOS


def with_retries(storage: Storage, urls: Iterable[str], retries: int, /) -> Storage:
    """Let requests to the servers of some URLs be repeated so often, unless their options say how often.

    Stores and filesystems that a user made keep their own way.
    """
    roots = {split_url(url)[0]: url for url in urls if is_remote(url)}
    given = dict(storage.given)
    for url in roots.values():
        prefix, backend = storage.find(url)
        if backend is None or (isinstance(backend, Mapping) and "max_retries" not in backend):
            patience = {
                "max_retries": retries,
                "retry_timeout": max(_MIN_PATIENCE_SECONDS, _MAX_BACKOFF_SECONDS * retries),
            }
            given[prefix] = patience | dict(backend or {})
    return replace(Storage.of(given), remembered=storage.remembered, stale=storage.stale)
