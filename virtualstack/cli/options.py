"""Options that several commands have."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from virtualstack.conversion import SUFFIXES
from virtualstack.writers.rewrite import Budget

__all__ = ["AddCommand", "add_allow", "add_at", "add_reader", "add_rewrite", "output", "scanning", "snapshot", "time"]


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


def _budget(text: str) -> str:
    try:
        Budget.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def output(text: str, /) -> str:
    """Take what references are written to, for :mod:`argparse`."""
    if not text.rstrip("/").endswith(SUFFIXES):
        raise argparse.ArgumentTypeError(f"'{text}' ends in none of {', '.join(SUFFIXES)}")
    return text


def add_at(command: argparse.ArgumentParser, /) -> None:
    """Add the option that chooses a snapshot of a manifest store."""
    command.add_argument(
        "--at",
        metavar="SNAPSHOT",
        type=snapshot,
        help="number of a snapshot of a manifest store, or a time when it was the newest (default: the newest now)",
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
