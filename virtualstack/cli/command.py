"""The command line: its options, its exit status, and errors as one line."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from virtualstack import __version__, accessor  # noqa: F401 - registers vds.virtual
from virtualstack.cli import allow, build, config, convert, inspect, interrupts, readers, serve, store, survey
from virtualstack.cli.options import with_options
from virtualstack.cli.output import OutputError, say, show, show_warning
from virtualstack.errors import VirtualStackError

__all__ = ["main", "make_parser"]

_FAMILIES = tuple(
    family.add_commands for family in (build, convert, inspect, survey, store, serve, readers, config, allow)
)
"""Commands in the order in which the help lists them."""


def main(arguments: Sequence[str] | None = None, /) -> int:
    """Run the command and return its exit status.

    The status is 0 for success, 1 for an error, 2 for wrong usage, 130 for Ctrl-C, and 141 for a closed pipe.
    Differences and failures that a command reports also have the status 1.

    Parameters
    ----------
    arguments
        Arguments after the name of the command; ``sys.argv`` by default.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - print() would take stdout instead
    if sys.stdout is None:
        say("error", "stdout is closed, and nothing can be shown")
        return 1
    try:
        return _run(arguments)
    except OutputError as error:
        # Python would report the error again when it closes a stream that is not empty.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error.__cause__, BrokenPipeError):
            return 141
        say("error", str(error))
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    try:
        options = make_parser().parse_args(arguments)
    except SystemExit as stop:  # argparse has printed the help, the version or an error
        show("", end="")
        return int(stop.code or 0)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: show_warning(with_options(str(message), options))
            status: int = options.run(options)
            return status
    except (VirtualStackError, KeyboardInterrupt) as error:
        if options.debug:
            raise
        if isinstance(error, KeyboardInterrupt) or interrupts.was_interrupted():
            interrupts.take()
            say("error", "interrupted")
            return interrupts.INTERRUPTED
        say("error", with_options(str(error), options))
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser for the arguments of all commands."""
    traceback = "show the traceback of an error"
    common = argparse.ArgumentParser(
        add_help=False
    )  # for --debug after the command; without it the first --debug holds
    common.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=traceback)
    parser = argparse.ArgumentParser(
        prog="virtualstack", description="Archive files as one virtual cube, with no byte copied."
    )
    parser.add_argument("--debug", action="store_true", help=traceback)
    parser.add_argument("--version", action="version", version=f"virtualstack {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str,
        run: Callable[[argparse.Namespace], int],
        /,
        *,
        help: str,
        parents: Sequence[argparse.ArgumentParser] = (),
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[common, *parents], help=help)
        command.set_defaults(run=run)
        return command

    for add_commands in _FAMILIES:
        add_commands(add)
    return parser
