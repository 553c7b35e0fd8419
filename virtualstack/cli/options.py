"""Options that several commands share."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

import pandas as pd

from virtualstack.conversion import SUFFIXES
from virtualstack.errors import ReaderError
from virtualstack.readers import Kerchunk, Reader
from virtualstack.zarr.rewrite.rewrite import Budget

__all__ = [
    "AddCommand",
    "add_allow",
    "add_at",
    "add_drop_variable",
    "add_inline_limit",
    "add_reader",
    "add_remote_protocol",
    "add_rewrite",
    "choose_reader",
    "output",
    "scanning",
    "snapshot",
    "time",
    "tolerance",
    "with_options",
]

# An argument of a Python function in a message, with its value. Text in quotes, such as the name of a file, is
# skipped.
_ARGUMENT = re.compile(
    r"""(?<![^\s(])(?:'[^']*'|(?P<name>[a-z_]+)=(?P<value>'[^']*'|"[^"]*"|\[[^]]*\]|pd\.Timedelta\('[^']*'\)|True|\d[\d.e+-]*\d|\d)?"""
    r"""|(?P<bare>drop_variables|concat_dim|append_dim|inline_limit|on_error)\b)"""
)
_OPTIONS = {
    ("drop_variables", None): "--drop-variable",
    ("append_dim", None): "--append",
    ("mode", "'w'"): "--overwrite",
    ("combine", "'nested'"): "--in-order",
    ("unpack", "True"): "--unpack all",
}
"""Options whose names differ from the argument names in Python."""


class AddCommand(Protocol):
    """Function that adds a command to the command line, and returns the parser for its options."""

    def __call__(
        self,
        name: str,
        run: Callable[[argparse.Namespace], int],
        /,
        *,
        help: str,
        parents: Sequence[argparse.ArgumentParser] = (),
    ) -> argparse.ArgumentParser:
        """Add a command, and return the parser for its options.

        Parameters
        ----------
        name, help
            Name and description of the command, for users.
        run
            Function that runs the command and returns the exit status.
        parents
            Parsers with options that the command shares with others.
        """
        ...


def scanning() -> argparse.ArgumentParser:
    """Return the options of commands that read the metadata of many files."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument(
        "--cache", metavar="DIR", help="folder that keeps results; the next call reads only files that changed"
    )
    options.add_argument(
        "--executor",
        choices=["threads", "processes"],
        help=(
            "executor that reads the files (default: threads for remote files and with --cache, else one after another)"
        ),
    )
    return options


def add_reader(command: argparse.ArgumentParser, /) -> None:
    """Add the option for the reader."""
    command.add_argument("--reader", metavar="NAME", help="see 'virtualstack readers' (default: detected)")


def add_remote_protocol(command: argparse.ArgumentParser, /) -> None:
    """Add the option for references whose locations have no protocol; see `choose_reader`."""
    command.add_argument(
        "--remote-protocol",
        metavar="PROTOCOL",
        help="protocol of locations that have none in kerchunk references, such as s3",
    )


def choose_reader(options: argparse.Namespace, /) -> str | Reader | None:
    """Return the reader that ``--reader`` and ``--remote-protocol`` name.

    Raises
    ------
    ReaderError
        ``--remote-protocol`` is not a protocol, or stands with another reader than kerchunk's.
    """
    reader: str | None = options.reader
    if options.remote_protocol is None:
        return reader
    if reader not in (None, Kerchunk.name):
        raise ReaderError(f"--remote-protocol is for kerchunk references, not for --reader {reader}; leave one out")
    try:
        return Kerchunk(remote_protocol=options.remote_protocol)
    except ValueError as error:
        raise ReaderError(str(error)) from error


def add_allow(command: argparse.ArgumentParser, /) -> None:
    """Add the option for URLs that sources may refer to."""
    command.add_argument(
        "--allow",
        metavar="URL",
        action="append",
        default=[],
        help="folder, file or host that references or a store may refer to; repeatable",
    )


def add_rewrite(command: argparse.ArgumentParser, /) -> None:
    """Add the option for re-encoding chunks."""
    command.add_argument(
        "--rewrite",
        metavar="BUDGET",
        type=_budget,
        help="re-encode what kerchunk cannot store, and put it into the references: 1%% of a variable, or 64MiB",
    )


def add_drop_variable(command: argparse.ArgumentParser, /) -> None:
    """Add the option for leaving variables out."""
    command.add_argument(
        "--drop-variable", metavar="NAME", action="append", default=[], help="variable to leave out; may be repeated"
    )


def add_inline_limit(command: argparse.ArgumentParser, /) -> None:
    """Add the option for the largest size of inlined values."""
    command.add_argument(
        "--inline-limit",
        metavar="BYTES",
        type=int,
        default=1 << 20,
        help=(
            "largest size of a variable without byte ranges whose values are put into the references (default: 1 MiB)"
        ),
    )


def tolerance(text: str, /) -> float | pd.Timedelta:
    """Return the number or time span (such as ``1min``) of an argument, for :mod:`argparse`."""
    try:
        return float(text)
    except ValueError:
        return pd.Timedelta(text)


def with_options(message: str, options: argparse.Namespace, /) -> str:
    """Return a message in which options of the command replace arguments of Python functions.

    Examples
    --------
    >>> with_options("leave it out with drop_variables=['x']", argparse.Namespace(drop_variable=[]))
    'leave it out with --drop-variable x'
    >>> with_options("use drop_variables=['x']", argparse.Namespace(command="inspect"))
    "use drop_variables=['x'] (this command has no option for drop_variables, which exists only in Python)"
    """
    others: list[str] = []

    def option(match: re.Match[str]) -> str:
        name, value = match["name"] or match["bare"], match["value"]
        if name is None:
            return match[0]
        flag = _OPTIONS.get((name, value)) or _OPTIONS.get((name, None)) or f"--{name.replace('_', '-')}"
        if not hasattr(options, flag.split()[0].strip("-").replace("-", "_")):
            others.append(name)
            return match[0]
        if value is None or (name, value) in _OPTIONS:
            return flag
        given = ast.literal_eval(value.removeprefix("pd.Timedelta(").removesuffix(")"))
        return " ".join(f"{flag} {shlex.quote(str(x))}" for x in (given if isinstance(given, list) else [given]))

    said = _ARGUMENT.sub(option, message)
    if not others:
        return said
    named = ", ".join(dict.fromkeys(others))
    return f"{said} (this command has no option for {named}, which exists only in Python)"


def _budget(text: str) -> str:
    try:
        Budget.from_option(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def output(text: str, /) -> str:
    """Check the suffix of a target for references, and return it, for :mod:`argparse`."""
    if not text.rstrip("/").endswith(SUFFIXES):
        raise argparse.ArgumentTypeError(f"'{text}' has none of the suffixes {', '.join(SUFFIXES)}")
    return text


def add_at(command: argparse.ArgumentParser, /) -> None:
    """Add the option for a snapshot of a vstack."""
    command.add_argument(
        "--at",
        metavar="SNAPSHOT",
        type=snapshot,
        help="number of a snapshot of a vstack, or a time when it was the newest (default: the newest now)",
    )


def snapshot(text: str, /) -> int | datetime:
    """Return the number of a snapshot, or a time at which it was the newest, for :mod:`argparse`."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else time(text)


def time(text: str, /) -> datetime:
    """Return the time of an argument, in UTC if it has no time zone, for :mod:`argparse`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time such as 2026-01-31 or 2026-01-31T12:00Z") from error
    return found.replace(tzinfo=found.tzinfo or UTC)
