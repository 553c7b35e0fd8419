"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtualstack.cli.commands import choice, complete_files, complete_names, option
from virtualstack.options import OnAbsent, OnError, Unsupported

if TYPE_CHECKING:
    import pandas as pd

    from virtualstack.readers import Reader

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


def _partition(text: str) -> tuple[int, int]:
    number, _, n_parts = text.partition("/")
    if not (number.isdecimal() and n_parts.isdecimal() and 1 <= int(number) <= int(n_parts)):
        raise ValueError(f"{text!r} is not a number from 1 and the number of all parts, such as 17/100")
    return int(number), int(n_parts)


def _sample(text: str) -> int | float:
    found = re.fullmatch(r"([1-9][0-9]{0,11})|([0-9]{1,3}(?:\.[0-9]+)?)%", text)
    if found is None or (found[2] and not 0 < float(found[2]) <= 100):
        raise ValueError(f"'{text}' is not a count of chunks, or a percentage up to 100%")
    return int(found[1]) if found[1] else float(found[2]) / 100


def _place(text: str) -> str:
    if not text:
        raise ValueError("the place is empty")
    return text


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


def _new_dim(text: str) -> tuple[str, str, str | None]:
    """Return the name of a dimension, a regular expression or ``@`` and an attribute, and the format of dates."""
    found = re.fullmatch(r"(\w+)=(.+?)(?::(%.*))?", text)
    if found is None:
        raise ValueError(f"'{text}' is not NAME=PATTERN, such as 'member=_r(\\d+)' or 'time=(\\d{{8}}):%Y%m%d'")
    if found[2].startswith("@"):
        return found[1], found[2], found[3]
    try:
        groups = re.compile(found[2]).groups
    except re.error as error:
        raise ValueError(f"'{found[2]}' is not a regular expression: {error}") from error
    if groups > 1:
        raise ValueError(f"'{found[2]}' has {groups} groups, and one is needed. Write the other groups as (?:...)")
    return found[1], found[2], found[3]


def _labels(text: str) -> tuple[str, str]:
    """Return the name of a dimension, and of the variable that gives its labels."""
    dim, equals, name = text.partition("=")
    if not (dim and equals and name):
        raise ValueError(f"'{text}' is not DIM=NAME, such as Time=Times")
    return dim, name


def _bytes(text: str) -> int:
    from virtualstack.sizes import byte_count

    try:
        return byte_count(text, option="bytes")
    except ValueError as error:
        raise ValueError(f"'{text}' is not a number of bytes, such as 65536 or '1 MiB'") from error


def _folder(text: str) -> str:
    if not text:
        raise ValueError("the path of the folder is empty")
    return text


def _target(text: str) -> str:
    from virtualstack.conversion import SUFFIXES

    if not text.rstrip("/").endswith(SUFFIXES):
        raise ValueError(f"'{text}' has none of the suffixes {', '.join(SUFFIXES)}")
    return text


def _budget(text: str) -> str:
    from virtualstack.zarr.rewrite.rewrite import rewrite_limit

    rewrite_limit(text, 0)
    return text


def _storage(text: str) -> dict[str, Any] | str:
    """Return options by URL prefix, or a word for an archive. The text is not shown, as it may have secrets."""
    if re.fullmatch(r"[a-z_]+", text):
        if text not in ("earthdata", "planetary_computer"):
            raise ValueError(f"'{text}' is neither earthdata nor planetary_computer, nor a JSON object")
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all("://" in key and isinstance(found[key], dict) for key in found):
        raise ValueError("""this is no JSON object such as {"s3://bucket/": {"endpoint": "https://host"}}""")
    return found


def _distance(text: str) -> float | pd.Timedelta:
    try:
        return float(text)
    except ValueError:
        import pandas as pd

        try:
            return pd.Timedelta(text)
        except ValueError:
            raise ValueError(f"'{text}' is neither a number nor a duration such as 10min") from None


def refuse_repeated_names(_: click.Context, param: click.Parameter, values: tuple[tuple[Any, ...], ...]) -> Any:
    """Check that no two values of a repeatable option are for the same name; it is the callback of such options."""
    names = [value[0] for value in values]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise click.BadParameter(f"'{twice}' is given {names.count(twice)} times. Give it once", param=param)
    return values


POSITIVE = Value(_count)
"""A whole number from 1."""

PARTITION = Value(_partition)
"""A number from 1 and the number of all parts, such as ``17/100``."""

SAMPLE = Value(_sample)
"""A number of chunks, or a percentage, as a float."""

PLACE = Value(_place)
"""What references may refer to. An empty text, as of a variable that is not set, would be the current folder."""

DURATION = Value(_duration)
"""A duration such as ``30m``."""

AGE = Value(_age)
"""A duration, or a time."""

SNAPSHOT = Value(_snapshot)
"""The number of a snapshot, or a time at which it was the newest."""

LABELS = Value(_labels)
"""Dimension and the variable that gives its labels, such as ``Time=Times``."""

NEW_DIM = Value(_new_dim)
"""Dimension with its labels in the names or attributes of files, such as ``time=(\\d{8}):%Y%m%d``."""

TARGET = Value(_target)
"""A target for references, whose suffix decides the form."""


# -- options --------------------------------------------------------------------------------------------------


def _reader_names() -> list[str]:
    from virtualstack.readers import list_readers

    return [each.name for each in list_readers()]


JOINING, READING, STORAGE = "Joining the files", "Reading the files", "Access to buckets and servers"

as_json = option("--json", "as_json", is_flag=True, help="Print the result as JSON; see the page of its schemas.")

allow = option(
    "--allow",
    metavar="PLACE",
    type=PLACE,
    multiple=True,
    help="Folder, file or host that references or a store may refer to. Repeatable.",
)


def _reader(text: str) -> str | Reader | None:
    """Read the name of a reader, or a table with its options as a recipe has it."""
    if not text.startswith("{"):
        return text
    from virtualstack.vstack.recipe import Recipe, found_reader

    return found_reader(Recipe.from_toml(f"files = ['*']\nreader = {text}"))


reader = option(
    "--reader",
    shell_complete=complete_names(_reader_names),
    type=Value(_reader),
    metavar="NAME",
    section=READING,
    help="Name of a reader, see 'virtualstack readers', or a table of TOML with its options, as in a recipe "
    "[default: detected].",
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

no_decode_times = option(
    "--no-decode-times",
    is_flag=True,
    section=READING,
    help="Keep times as the numbers in the files, such as months since a date, which are no dates.",
)

inline_limit = option(
    "--inline-limit",
    metavar="BYTES",
    type=Value(_bytes),
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


def absent(*, default: str | None, told: str) -> Callable[[Callable[..., Any]], Any]:
    """Return ``--absent``, with a default and its description."""
    return option(
        "--absent",
        type=choice(OnAbsent),
        default=default,
        help="What to do with ABSENT chunks if the target cannot express them: an error, or the fill value "
        f"[default: {told}].",
    )


absent_or_default = absent(default=None, told="raise for Icechunk, fill for kerchunk references")

expand = option(
    "--expand",
    metavar="NAME",
    multiple=True,
    section=JOINING,
    help="Variable without the dimension of the join that gets it, with the values of each file. Repeatable.",
)

unsupported = option(
    "--unsupported",
    type=choice(Unsupported),
    default="inline",
    section=READING,
    help="What to do with a variable that cannot be referenced [default: inline its values if they are small].",
)

on_error = option(
    "--on-error",
    type=choice(OnError),
    default="raise",
    section=READING,
    help="What to do with a file that cannot be opened; skip leaves it out with a warning [default: raise].",
)

checksums = option(
    "--checksums",
    is_flag=True,
    help="Read all bytes of the files once more, and record a checksum of each, which tells every later change.",
)
relative = option("--relative", is_flag=True, help="Write locations of sources relative to the target.")

dry_run = option("--dry-run", is_flag=True, help="Write nothing, and show what would be written.")

tolerance = option(
    "--tolerance",
    metavar="DISTANCE",
    section=JOINING,
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
    shell_complete=complete_files,
    metavar="DIR",
    type=Value(_folder),
    section=READING,
    help="Folder that keeps results; the next call reads only files that changed.",
)

executor = option(
    "--executor",
    type=click.Choice(["threads", "processes"]),
    section=READING,
    help="What reads the files [default: threads for remote files and with --cache, else one after another].",
)


sample = option(
    "--sample",
    metavar="N",
    type=click.IntRange(min=0),
    default=8,
    help="Number of new chunks to compare with what the format's library reads [default: 8].",
)


def workers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of processes that open files."""
    for each in (
        option(
            "--timeout",
            metavar="SECONDS",
            type=click.FloatRange(min=0, min_open=True),
            section=READING,
            help="Longest time for a partition of files; a file that takes longer is left out.",
        ),
        option(
            "--workers",
            metavar="N",
            type=POSITIVE,
            section=READING,
            help="Number of processes that open files, if these are many [default: none].",
        ),
    ):
        function = each(function)
    return function


_BUCKET = re.compile(r"\b(?:s3a?|gs|gcs|az|azure|abfss?|adl)://[^/?*\[\]]+")


def storage(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of access to buckets and servers, which the function gets as ``storage``.

    The short ones hold for the buckets that the command line names, and for no others: references may name buckets of
    strangers.
    """

    @wraps(function)
    def run(
        *,
        storage: dict[str, Any] | str | None,
        endpoint: str | None,
        anonymous: bool,
        profile: str | None,
        **given: Any,
    ) -> Any:
        short = {"endpoint": endpoint, "anonymous": anonymous, "profile": profile}
        short = {name: value for name, value in short.items() if value}
        if short:
            if isinstance(storage, str):
                raise click.UsageError(f"--storage {storage} has no --{next(iter(short))}; leave one of them out")
            if "files" in given:
                given["files"] = tuple(line for text in given["files"] for line in read_list(text))
            buckets = dict.fromkeys(f"{x}/" for text in _texts(given.values()) for x in _BUCKET.findall(text))
            if not buckets:
                raise click.UsageError(
                    f"--{next(iter(short))} is for buckets on the command line, which has none. "
                    "Give the options of others with --storage"
                )
            known = storage or {}
            storage = {**known, **{x: {**known.get(x, {}), **short} for x in buckets}}
        return function(storage=storage, **given)

    for each in (
        option("--profile", metavar="NAME", section=STORAGE, help="Profile of AWS to use at the named buckets."),
        option("--anonymous", is_flag=True, section=STORAGE, help="Send no credentials to the named buckets."),
        option("--endpoint", metavar="URL", section=STORAGE, help="Server of the named buckets, such as MinIO."),
        option(
            "--storage",
            metavar="JSON",
            type=Value(_storage),
            section=STORAGE,
            help='Options by URL prefix, such as \'{"s3://bucket/": {"region": "eu-west-1"}}\'; or earthdata, or '
            "planetary_computer.",
        ),
    ):
        run = each(run)
    return run


def _texts(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from _texts(value)


def read_list(text: str, /) -> list[str]:
    """Return the lines of a list that are not empty, or the argument itself if it is not a list.

    Parameters
    ----------
    text
        ``@LIST`` for a file, ``@-`` for stdin, or anything else.

    Raises
    ------
    StorageError
        The list cannot be read, or is empty.
    """
    from virtualstack.errors import Remedy, StorageError

    if not text.startswith("@"):
        return [text]
    if text == "@-" and sys.stdin is None:
        raise StorageError("the list '-' cannot be read: stdin is closed", url="-")
    try:
        lines = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"the list '{text[1:]}' cannot be read: {error}", url=text[1:]) from error
    found = [line for line in map(str.strip, lines.removeprefix("\ufeff").splitlines()) if line]
    if not found:
        raise StorageError(
            f"the list '{text[1:]}' is empty", Remedy("write one path, pattern or URL on each line"), url=text[1:]
        )
    return found


def choose_reader(reader: str | Reader | None, remote_protocol: str | None, /) -> str | Reader | None:
    """Return the reader that ``--reader`` and ``--remote-protocol`` name.

    Raises
    ------
    UsageError
        ``--remote-protocol`` is not a protocol, or stands with another reader than kerchunk's.
    """
    from virtualstack.readers import Kerchunk

    if remote_protocol is None:
        return reader
    if reader not in (None, Kerchunk.name):
        raise click.UsageError(
            f"--remote-protocol is for kerchunk references, not for --reader {reader}; leave one out"
        )
    try:
        return Kerchunk(remote_protocol=remote_protocol)
    except ValueError as error:
        raise click.UsageError(f"--remote-protocol {remote_protocol} is not a protocol, such as s3") from error
