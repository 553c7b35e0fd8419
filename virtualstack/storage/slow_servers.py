"""Wait for busy or slow servers within limits."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Self

from virtualstack.errors import Remedy, StorageError
from virtualstack.storage.named import options_at
from virtualstack.storage.obstore_errors import what_was_answered
from virtualstack.storage.source import Bytes
from virtualstack.storage.threads import is_ending, wait_for

__all__ = ["BUSY_STATUSES", "Arrival", "Busy", "BusyError", "Patience", "read_retry_after"]


class BusyError(StorageError):
    """Status 429 or 503, of an answer whose headers are known."""

    retry_after: float | None = None
    """Seconds that the server asks to wait, if it says so."""


def read_retry_after(headers: Message | Mapping[str, str], /) -> float | None:
    """Return the seconds of a ``Retry-After`` header: a number, or a date (RFC 9110, 10.2.3) by the server's clock."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch("[0-9]{1,9}", text):
        return float(text)
    try:
        now = parsedate_to_datetime(headers["Date"]) if "Date" in headers else datetime.now(UTC)
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError):  # TypeError: only one of the two times has a time zone
        return None


_BUSY_SECONDS, _MIN_BYTES_PER_SECOND = 60.0, 1024.0
_RATE_SECONDS = 20.0  # seconds over which the rate of an answer is measured
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 10.0  # seconds between requests to a busy server
_STEP_SECONDS = 0.5  # seconds between checks of whether the process ends
BUSY_STATUSES = 429, 503
"""HTTP statuses of servers that are asked again."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of how long to wait for a server."""

    root: str
    busy_seconds: float = _BUSY_SECONDS
    min_rate: float = _MIN_BYTES_PER_SECOND

    @classmethod
    def from_options(cls, options: Mapping[str, Any], root: str, /) -> Self:
        """Make limits from normalised options. If ``max_retries`` is set, obstore's retries are the only ones."""
        busy = 0.0 if "max_retries" in options else float(options.get("retry_timeout", _BUSY_SECONDS))
        return cls(root, busy, float(options.get("min_rate", _MIN_BYTES_PER_SECOND)))

    def read(self, arriving: Iterable[Bytes], most: int, url: str, /) -> memoryview:
        """Join the parts of an answer as they arrive; stop if it is longer than requested or too slow."""
        answer = self.arrival(most, url)
        for part in arriving:
            answer.add(part)
        return answer.joined()

    def arrival(self, most: int, url: str, /) -> Arrival:
        """Return a collector of the parts of an answer; see `read`."""
        return Arrival(self, most, url)


class Arrival:
    """The parts of an answer as they arrive; made by :meth:`Patience.arrival`."""

    def __init__(self, patience: Patience, most: int, url: str, /) -> None:
        self._patience = patience
        self._most = most
        self._url = url
        self._parts: list[Bytes] = []
        self._n_bytes = self._before = 0
        self._began = time.monotonic()

    def add(self, part: Bytes, /) -> None:
        """Keep a part."""
        self._parts.append(part)
        self._n_bytes += len(part)
        if self._n_bytes > self._most:
            raise StorageError(
                f"'{self._url}': {self._most} bytes were requested, but its server sends more. Download the file "
                "first, or use another server",
                url=self._url,
            )
        took = time.monotonic() - self._began
        if took < _RATE_SECONDS:
            return
        n_new, least = self._n_bytes - self._before, self._patience.min_rate
        if n_new < least * took:
            raise StorageError(
                f"'{self._url}': {n_new} bytes arrived in {took:.0f} s, fewer than {least:.0f} per second",
                Remedy("try again later"),
                Remedy("allow it:", storage=options_at(self._patience.root, min_rate=0)),
                url=self._url,
            )
        self._before, self._began = self._n_bytes, self._began + took

    def joined(self) -> memoryview:
        """Return all bytes that have arrived."""
        return memoryview(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))


class Busy:
    """A repeater of requests to a server while it is busy. It is safe to use from many threads."""

    def __init__(self, patience: Patience, told: Callable[[str], float | None] = lambda url: None, /) -> None:
        self._patience = patience
        self._told = told
        self._since = self._last = -math.inf

    def ask[T](self, url: str, ask: Callable[[], T], /) -> T:
        """Send a request, and repeat it after growing pauses or the pauses that the server asks for."""
        began, length = time.monotonic(), _FIRST_PAUSE_SECONDS
        while True:
            try:
                answer = wait_for(ask)
            except StorageError as error:
                if error.status not in BUSY_STATUSES:
                    raise
                now = time.monotonic()
                if now - self._last > self._patience.busy_seconds:
                    self._since = now
                self._last = now
                left = min(began, self._since) + self._patience.busy_seconds - now
                if left <= 0:
                    raise
                told = error.retry_after if isinstance(error, BusyError) else wait_for(partial(self._told, url))
                wait = length * random.uniform(0.5, 1.5) if told is None else told
                if wait > left:
                    raise self._given_up(url, error, told, now - began) from error
                _pause(wait)
                length = min(2 * length, _MAX_PAUSE_SECONDS)
            else:
                self._last = -math.inf
                return answer

    def _given_up(self, url: str, error: StorageError, told: float | None, waited: float) -> StorageError:
        longer = 2 * max(self._patience.busy_seconds, told or 0)
        asks = "" if told is None else f" It asked to wait {told:.0f} s."
        return StorageError(
            f"'{url}' could not be read within {waited:.0f} s: {what_was_answered(str(error.__cause__))}.{asks}",
            Remedy("try again later"),
            Remedy("wait longer:", storage=options_at(self._patience.root, retry_timeout=round(longer))),
            url=url,
        )


def _pause(seconds: float) -> None:
    """Wait, but stop when the process ends, as its end waits for its threads."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if is_ending():
            raise InterruptedError("the process ends")
        time.sleep(min(left, _STEP_SECONDS))
