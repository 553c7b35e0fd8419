"""Moments in the history of a store: seconds since 1970 as texts, and back."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["seconds_of", "text_of"]


def seconds_of(moment: str | datetime, /) -> float:
    """Give the seconds since 1970 of a moment; a text without a time zone is in UTC, as those of a log are.

    >>> seconds_of("1970-01-02")
    86400.0

    Raises
    ------
    ValueError
        The text is no time of ISO 8601; or a `datetime` has no time zone, so that it could be of any.
    """
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
    """Give a moment as a text, in UTC.

    >>> text_of(86400.5)
    '1970-01-02 00:00:00.500Z'
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):  # of a damaged or a strange store
        return f"{seconds} s"
