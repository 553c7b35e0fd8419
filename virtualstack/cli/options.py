"""Options that several commands have."""

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
from virtualstack.zarr.rewrite.rewrite import Budget

__all__ = [
    "AddCommand",
    "add_allow",
    "add_at",
    "add_drop_variable",
    "add_inline_limit",
    "add_reader",
    "add_rewrite",
    "output",
    "scanning",
    "snapshot",
    "time",
    "tolerance",
    "with_options",
]

# An argument of a function of Python, as messages name it, with the value that they give it. What stands in quotes,
# such as the name of a file, is passed over.
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
"""Options that are not called as the argument of Python."""


class AddCommand(Protocol):
    """Adds a command to the command line, and gives what its options are added to."""

    def __call__(
        self,
        name: str,
        run: Callable[[argparse.Namespace], int],
        /,
        *,
        help: str,
        parents: Sequence[argparse.ArgumentParser] = (),
    ) -> argparse.ArgumentParser:
        """Add it.

        Parameters
        ----------
        name, help
            As people see them.
        run
            Does it, and gives the exit status.
        parents
            Options that it shares with others.
        """
        ...


def scanning() -> argparse.ArgumentParser:
    """Give the options of commands that read the metadata of many files."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--cache", metavar="DIR", help="keep what was found; the next call reads what has changed")
    options.add_argument(
        "--executor",
        choices=["threads", "processes"],
        help="who reads the files (default: threads for remote ones, one after the other for local ones)",
    )
    return options


def add_reader(command: argparse.ArgumentParser, /) -> None:
    """Add the option that names a reader."""
    command.add_argument("--reader", metavar="NAME", help="see 'virtualstack readers' (default: found out)")


def add_allow(command: argparse.ArgumentParser, /) -> None:
    """Add the option that allows what sources may refer to."""
    command.add_argument(
        "--allow",
        metavar="URL",
        action="append",
        default=[],
        help="folder, file or host that references or a store may refer to; repeatable",
    )


def add_rewrite(command: argparse.ArgumentParser, /) -> None:
    """Add the option that lets chunks be encoded anew."""
    command.add_argument(
        "--rewrite",
        metavar="BUDGET",
        type=_budget,
        help="encode anew, and put into the references, what kerchunk cannot take: 1%% of a variable, or 64MiB",
    )


def add_drop_variable(command: argparse.ArgumentParser, /) -> None:
    """Add the option that leaves variables out."""
    command.add_argument(
        "--drop-variable", metavar="NAME", action="append", default=[], help="leave out; may be repeated"
    )


def add_inline_limit(command: argparse.ArgumentParser, /) -> None:
    """Add the option that says how much may be put into the references."""
    command.add_argument(
        "--inline-limit",
        metavar="BYTES",
        type=int,
        default=1 << 20,
        help="put values of at most so many bytes of a variable into the references, where they cannot be referenced "
        "(default: 1 MiB)",
    )


def tolerance(text: str, /) -> float | pd.Timedelta:
    """Take a number, or a span of time such as ``1min``, for :mod:`argparse`."""
    try:
        return float(text)
    except ValueError:
        return pd.Timedelta(text)


def with_options(message: str, options: argparse.Namespace, /) -> str:
    """Return a message that names the options of a command in place of the arguments of functions of Python.

    Examples
    --------
    >>> with_options("leave it out with drop_variables=['x']", argparse.Namespace(drop_variable=[]))
    'leave it out with --drop-variable x'
    >>> with_options("leave it out with drop_variables=['x']", argparse.Namespace(command="inspect"))
    "leave it out with drop_variables=['x'] (this command has no option for drop_variables, which is one of Python)"
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
    return f"{said} (this command has no option for {named}, which is one of Python)"


def _budget(text: str) -> str:
    try:
        Budget.from_option(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def output(text: str, /) -> str:
    """Take what references are written to, for :mod:`argparse`."""
    if not text.rstrip("/").endswith(SUFFIXES):
        raise argparse.ArgumentTypeError(f"'{text}' ends in none of {', '.join(SUFFIXES)}")
    return text


def add_at(command: argparse.ArgumentParser, /) -> None:
    """Add the option that chooses a snapshot of a vstack."""
    command.add_argument(
        "--at",
        metavar="SNAPSHOT",
        type=snapshot,
        help="number of a snapshot of a vstack, or a time when it was the newest (default: the newest now)",
    )


def snapshot(text: str, /) -> int | datetime:
    """Take the number of a snapshot, or a time at which it was the newest, for :mod:`argparse`."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else time(text)


def time(text: str, /) -> datetime:
    """Take a time, which is in UTC where it has no time zone, for :mod:`argparse`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no time such as 2026-01-31 or 2026-01-31T12:00Z") from error
    return found.replace(tzinfo=found.tzinfo or UTC)
