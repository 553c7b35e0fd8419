"""Asking a place for many things, and giving up where it gives no answers."""

from __future__ import annotations

import threading
from collections.abc import Callable

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import Location

__all__ = ["LimitedLookup", "forget_frames"]

_MAX_FAILURES = 100


class LimitedLookup:
    """Asks for each URL, until a place could not be reached a hundred times one after the other."""

    def __init__(self, ask: Callable[[str], Location]) -> None:
        self._ask = ask
        self._failures = 0
        self._lock = threading.Lock()

    def __call__(self, url: str, /) -> Location | StorageError:
        """Give what is there, or the error."""
        if self._failures >= _MAX_FAILURES:
            return StorageError(f"'{url}' was not asked for: {_MAX_FAILURES} before it could not be had", url=url)
        try:
            found = self._ask(url)
        except SourceNotFoundError as error:
            self._note(is_failure=False)
            forget_frames(error)
            return error
        except StorageError as error:
            self._note(is_failure=True)
            forget_frames(error)
            return error
        self._note(is_failure=False)
        return found

    def _note(self, *, is_failure: bool) -> None:
        with self._lock:
            self._failures = self._failures + 1 if is_failure else 0


def forget_frames(error: BaseException, /) -> None:
    """Let go of what the frames hold that an error went through: where errors are kept, there may be 10^6 of them."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
