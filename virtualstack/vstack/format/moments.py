"""Moments in the history of a store: seconds since 1970 as texts, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

__all__ = ["Moment", "seconds_of", "text_of"]

type Moment = str | datetime | np.datetime64
"""A time: ISO 8601, in UTC where it has no time zone; a `datetime` that has one; or one of numpy, which is in UTC."""


def seconds_of(moment: Moment, /) -> float:
    """Give the seconds since 1970 of a moment; what has no time zone is in UTC, as the times of a log are.

    >>> seconds_of("1970-01-02"), seconds_of(np.datetime64("1970-01-02T00:00:00.5"))
    (86400.0, 86400.5)

    Raises
    ------
    ValueError
        The text is no time of ISO 8601; or a `datetime` has no time zone, so that it could be of any.
    TypeError
        It is something else.
    """
    if not isinstance(moment, str | datetime | np.datetime64):
        raise TypeError(f"{moment!r} is no time: give a text such as '2026-01-31T12:00:00Z', or a datetime")
    if moment != moment:
        raise ValueError(f"{moment!r} is no time")
    if isinstance(moment, np.datetime64):
        return float((moment - np.datetime64(0, "s")) / np.timedelta64(1, "s"))
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError as error:
            raise ValueError(
                f"{moment!r} is no time: give one such as '2026-01-31' or '2026-01-31T12:00:00Z', or a number"
            ) from error
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    if moment.tzinfo is None:
        raise ValueError(
            f"{moment!r} has no time zone: give one, as datetime.now(timezone.utc) does, or a text, which is in UTC"
        )
    return moment.timestamp()


def text_of(seconds: float, /) -> str:
    """Give a moment as a text, in UTC; never one before it, so that what was committed then is found by it.

    >>> text_of(86400.5)
    '1970-01-02 00:00:00.500000Z'
    """
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
        if moment.timestamp() < seconds:
            moment += timedelta(microseconds=1)
        return moment.strftime("%Y-%m-%d %H:%M:%S.%fZ")
    except (ValueError, OverflowError, OSError):  # of a damaged or a strange store
        return f"{seconds} s"
