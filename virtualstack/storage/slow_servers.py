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
        parts: list[Bytes] = []
        n_bytes, before, began = 0, 0, time.monotonic()
        for part in arriving:
            parts.append(part)
            n_bytes += len(part)
            if n_bytes > most:
                raise StorageError(
                    f"'{url}': {most} bytes were requested, but its server sends more. Download the file first, or "
                    "use another server",
                    url=url,
                )
            took = time.monotonic() - began
            if took < _RATE_SECONDS:
                continue
            n_new = n_bytes - before
            if n_new < self.min_rate * took:
                raise StorageError(
                    f"'{url}': {n_new} bytes arrived in {took:.0f} s, fewer than {self.min_rate:.0f} per second",
                    Remedy("try again later"),
                    Remedy("allow it:", storage=options_at(self.root, min_rate=0)),
                    url=url,
                )
            before, began = n_bytes, began + took
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))


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
