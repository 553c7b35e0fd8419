"""Which failures may be mended by asking once more, and were not repeated by what asked."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from virtualstack.errors import StorageError

__all__ = ["may_pass"]

_STATUS = {408, 425, 429, 500, 502, 503, 504}
_ERRNO = {errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}
_BROKEN = {"ClientPayloadError", "IncompleteRead", "ServerDisconnectedError"}  # of aiohttp and http.client


def may_pass(error: StorageError, /) -> bool:
    """Tell whether the same question may have another answer soon.

    Statuses such as 503, connections that break and time-outs of object stores are not among them: obstore has asked
    again, with pauses, as often as its options say, before it gave up. fsspec and file systems have not.
    """
    if type(error) is not StorageError:  # what is not there, has changed or is forbidden stays so
        return False
    return error.is_short or any(_is_passing(cause) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__ or error.__context__
    while cause is not None and not type(cause).__module__.startswith("obstore"):
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_passing(error: BaseException) -> bool:
    if isinstance(error, TimeoutError | ConnectionError) or type(error).__name__ in _BROKEN:
        return True
    return getattr(error, "status", None) in _STATUS or getattr(error, "errno", None) in _ERRNO
