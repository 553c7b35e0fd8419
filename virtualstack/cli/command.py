"""Run the command line: its exit status, and errors as a few lines."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

import click

from virtualstack.cli import interrupts
from virtualstack.cli.completion import COMPLETE_VARIABLE
from virtualstack.cli.group import cli
from virtualstack.cli.output import SETTINGS, OutputError, say, worded
from virtualstack.cli.remedies import in_command_words
from virtualstack.errors import VirtualStackError, rendered_by


def main(arguments: Sequence[str] | None = None, /) -> int:
    """Run the command and return its exit status.

    The status is 0 for success, 1 for an error, 2 for wrong usage, 130 for Ctrl-C, and 141 for a closed pipe.
    Differences and failures that a command reports also have the status 1.

    Parameters
    ----------
    arguments
        Arguments after the name of the command; ``sys.argv`` by default.
    """
    SETTINGS.reset()
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - print() would take stdout instead
    if sys.stdout is None:
        say("error", "stdout is closed, and nothing can be shown")
        return 1
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # text that the encoding of a file or pipe cannot express
    try:
        with rendered_by(lambda remedy: in_command_words(remedy, SETTINGS.command, cli.commands)):
            return _run(sys.argv[1:] if arguments is None else list(arguments))
    except OutputError as error:
        # Python would report the error again when it closes a stream that is not empty.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error.__cause__, BrokenPipeError):
            return 141
        say("error", str(error))
        return 1


def _run(arguments: list[str]) -> int:
    if COMPLETE_VARIABLE in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "virtualstack", COMPLETE_VARIABLE, os.environ[COMPLETE_VARIABLE])
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say("warning", worded(message))
            with cli.make_context("virtualstack", arguments) as context:
                return cli.invoke(context) or 0
    except click.exceptions.Exit as stop:  # the help, the version
        return stop.exit_code
    except click.UsageError as error:
        say("error", _usage(error))
        return 2
    except (VirtualStackError, KeyboardInterrupt) as error:
        if SETTINGS.debug:
            raise
        if isinstance(error, KeyboardInterrupt) or interrupts.was_interrupted():
            interrupts.take()
            say("error", "interrupted")
            return interrupts.INTERRUPTED
        say("error", worded(error))
        return 1


def _usage(error: click.UsageError) -> str:
    """Return what is wrong, the closest right name, and where the right usage is shown."""
    closest = getattr(error, "possibilities", None)
    message = (error.message if closest else error.format_message()).rstrip(".")
    meant = f". Did you mean '{closest[0]}'?" if closest else "."
    path = "virtualstack" if error.ctx is None else error.ctx.command_path
    return f"{message[:1].lower()}{message[1:]}{meant} See '{path} --help'"
