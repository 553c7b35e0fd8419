"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from virtualstack.cli.commands import option

if TYPE_CHECKING:
    import pandas as pd

    from virtualstack.readers import Reader

__all__ = [
    "AGE",
    "DURATION",
    "POSITIVE",
    "SAMPLE",
    "SNAPSHOT",
    "TARGET",
    "allow",
    "as_json",
    "at",
    "cache",
    "choose_reader",
    "concat_dim",
    "drop_variables",
    "executor",
    "group",
    "inline_limit",
    "message",
    "reader",
    "remote_protocol",
    "rewrite",
    "tolerance",
]

type Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


# -- types of values ------------------------------------------------------------------------------------------


class Value(click.ParamType[Any]):
    """A type of values that a function reads from text.

    Parameters
    ----------
    read
        Function that returns the value of a text, or raises ValueError with the reason.
    """

    def __init__(self, read: Callable[[str], Any], /) -> None:
        self.name = read.__name__.strip("_")
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text; the default is a value already."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,11}", text):
        raise ValueError(f"'{text}' is not a whole number from 1")
    return int(text)


def _sample(text: str) -> int | float:
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?)%", text)
    if found is None:
        return _count(text)
    if not 0 < float(found[1]) <= 100:
        raise ValueError(f"'{text}' is not a count of chunks, or a percentage up to 100%")
    return float(found[1]) / 100


def _duration(text: str) -> timedelta:
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text if text != "0" else "0s")
    if found is None:
        raise ValueError(f"'{text}' is not a duration such as 30m, 12h, 30d or 8w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _time(text: str) -> datetime:
    """Return a time, in UTC if it has no time zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is not a time such as 2026-01-31 or 2026-01-31T12:00Z") from error
    return found.replace(tzinfo=found.tzinfo or UTC)


def _age(text: str) -> timedelta | datetime:
    return _duration(text) if re.fullmatch(r"[0-9]+[a-z]", text) else _time(text)


def _snapshot(text: str) -> int | datetime:
    return int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else _time(text)


def _target(text: str) -> str:
    from virtualstack.conversion import SUFFIXES

    if not text.rstrip("/").endswith(SUFFIXES):
        raise ValueError(f"'{text}' has none of the suffixes {', '.join(SUFFIXES)}")
    return text


def _budget(text: str) -> str:
    from virtualstack.zarr.rewrite.rewrite import Budget

    Budget.from_option(text)
    return text


def _distance(text: str) -> float | pd.Timedelta:
    try:
        return float(text)
    except ValueError:
        import pandas as pd

        return pd.Timedelta(text)


POSITIVE = Value(_count)
"""A whole number from 1."""

SAMPLE = Value(_sample)
"""A number of chunks, or a percentage, as a float."""

DURATION = Value(_duration)
"""A duration such as ``30m``."""

AGE = Value(_age)
"""A duration, or a time."""

SNAPSHOT = Value(_snapshot)
"""The number of a snapshot, or a time at which it was the newest."""

TARGET = Value(_target)
"""A target for references, whose suffix decides the form."""


# -- options --------------------------------------------------------------------------------------------------

READING = "Reading the files"

as_json = option("--json", "as_json", is_flag=True, help="Print the result as JSON; see the page of its schemas.")

allow = option(
    "--allow",
    metavar="PLACE",
    multiple=True,
    help="Folder, file or host that references or a store may refer to. Repeatable.",
)

reader = option(
    "--reader",
    metavar="NAME",
    section=READING,
    help="Name of a reader; see 'virtualstack readers' [default: detected].",
)

remote_protocol = option(
    "--remote-protocol",
    metavar="PROTOCOL",
    section=READING,
    help="Protocol of locations that have none in kerchunk references, such as s3.",
)

group = option("--group", metavar="PATH", section=READING, help="Group in the files [default: the root].")

drop_variables = option(
    "--drop-variable",
    "drop_variables",
    metavar="NAME",
    multiple=True,
    section=READING,
    help="Variable to leave out. Repeatable.",
)

inline_limit = option(
    "--inline-limit",
    metavar="BYTES",
    type=int,
    default=1 << 20,
    section=READING,
    help="Largest size of a variable without byte ranges whose values are put into the references [default: 1 MiB].",
)

rewrite = option(
    "--rewrite",
    metavar="BUDGET",
    type=Value(_budget),
    help="Re-encode what kerchunk cannot store, and put it into the references: 1% of a variable, or 64MiB.",
)

concat_dim = option("--concat-dim", metavar="DIM", help="Dimension to join the files along.")

tolerance = option(
    "--tolerance",
    metavar="DISTANCE",
    section="Joining the files",
    type=Value(_distance),
    help="How far coordinates may differ and still be equal: a number, or for times such as 1min.",
)

message = option("-m", "--message", metavar="TEXT", help="Message of the new snapshot, for the log.")

at = option(
    "--at",
    metavar="SNAPSHOT",
    type=SNAPSHOT,
    help="Number of a snapshot of a vstack, or a time when it was the newest [default: the newest now].",
)

cache = option(
    "--cache",
    metavar="DIR",
    section=READING,
    help="Folder that keeps results; the next call reads only files that changed.",
)

executor = option(
    "--executor",
    type=click.Choice(["threads", "processes"]),
    section=READING,
    help="What reads the files [default: threads for remote files and with --cache, else one after another].",
)


def choose_reader(reader: str | None, remote_protocol: str | None, /) -> str | Reader | None:
    """Return the reader that ``--reader`` and ``--remote-protocol`` name.

    Raises
    ------
    ReaderError
        ``--remote-protocol`` is not a protocol, or stands with another reader than kerchunk's.
    """
    from virtualstack.errors import ReaderError
    from virtualstack.readers import Kerchunk

    if remote_protocol is None:
        return reader
    if reader not in (None, Kerchunk.name):
        raise ReaderError(f"--remote-protocol is for kerchunk references, not for --reader {reader}; leave one out")
    try:
        return Kerchunk(remote_protocol=remote_protocol)
    except ValueError as error:
        raise ReaderError(str(error)) from error
