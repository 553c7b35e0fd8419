"""Output for users: text, tables and JSON on stdout; errors, warnings, notes and progress on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from virtualstack.cli.remedies import MAX_CHARACTERS, in_command_words
from virtualstack.printable import printable

if TYPE_CHECKING:
    import click

    from virtualstack.errors import Option

__all__ = [
    "SETTINGS",
    "OutputError",
    "OutputSettings",
    "detail",
    "heading",
    "in_options",
    "report",
    "say",
    "show",
    "step",
    "table",
    "wants_progress",
    "worded",
    "worded_lines",
    "write",
]

_STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1m", "heading": "\x1b[1m"}
_RESET = "\x1b[0m"


class OutputError(Exception):
    """Error of writing to stdout."""


@dataclass(slots=True)
class OutputSettings:
    """How the running command shows things.

    Parameters
    ----------
    debug
        If true, errors are raised with their traceback.
    level
        -1 for errors and results only, 0 also for notes and progress, 1 also for each step.
    command
        The command that runs.
    """

    debug: bool = False
    level: int = 0
    command: click.Command | None = None

    def reset(self) -> None:
        """Set all of them to their defaults."""
        self.debug, self.level, self.command = False, 0, None


SETTINGS = OutputSettings()
"""Settings of the process: messages also come from threads, which do not see the context of click."""


def table(rows: Sequence[tuple[str, ...]], *, right: Iterable[str]) -> list[str]:
    """Return the lines of a table. Columns are aligned at the left, or at the right if ``right`` has their heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    at_right = [heading in right for heading in rows[0]]
    return [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, at_right, strict=True)
        ).rstrip()
        for row in rows
    ]


def wants_progress() -> bool:
    """Return whether a progress bar is drawn: only if stderr is a terminal, and not with ``--quiet``."""
    return SETTINGS.level >= 0 and sys.stderr.isatty()


def show(text: object, *, end: str = "\n") -> None:
    """Print to stdout, and flush it."""
    write(printable(f"{text}{end}"))  # the text may read data, and may raise other errors


def write(line: str) -> None:
    """Print text of this package to stdout as it is, with its style."""
    try:
        print(line, end="", flush=True)
    except OSError as error:
        raise OutputError(f"stdout cannot be written: {error}") from error


def report(facts: Callable[[], Any], text: Callable[[], object], /, *, as_json: bool) -> None:
    """Print what a command found: as one JSON document, or as text.

    Parameters
    ----------
    facts
        Function that returns the facts: dicts, lists, text, numbers, booleans and ``None``.
    text
        Function that returns the text for people.
    as_json
        If true, JSON is printed.
    """
    show(json.dumps(facts(), indent=2) if as_json else text())  # JSON in ASCII has nothing for show() to escape


def say(kind: str, text: str) -> None:
    """Print one line to stderr, over the rest of a progress bar. ``--quiet`` leaves all but errors out."""
    if kind != "error" and SETTINGS.level < 0:
        return
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{clear}virtualstack: {_styled(kind, sys.stderr)}: {printable(' '.join(text.split()))}", file=sys.stderr)


def in_options(text: str, options: Iterable[Option], /) -> str:
    """Return a text that names options of the command instead of arguments in Python."""
    for option in options:
        text = text.replace(option.argument, option.command)
    return text


def worded(message: object) -> str:
    """Return a message in the words of the running command, in three lines unless ``--verbose`` asks for all of it."""
    options = [x for x in getattr(message, "options", ()) if x.argument in str(message)]
    text = in_options(str(message), options)
    text = in_command_words(text, SETTINGS.command, most=None if SETTINGS.level > 0 else MAX_CHARACTERS)
    named = {word for option in options for word in option.command.split() if word.startswith("--") and word in text}
    own = {name for parameter in (SETTINGS.command.params if SETTINGS.command else ()) for name in parameter.opts}
    if SETTINGS.command is None or not (lacking := " and ".join(sorted(named - own))):
        return text
    return f"{text} (this command has no {lacking}; 'virtualstack build' has)"


def worded_lines(text: object) -> str:
    """Return lines of a report in the words of the running command."""
    return "\n".join(in_command_words(line, SETTINGS.command) for line in str(text).split("\n"))


def detail(text: str) -> None:
    """Print a note about a step, if ``--verbose`` asks for it."""
    if SETTINGS.level > 0:
        say("note", text)


@contextmanager
def step(text: str, /) -> Iterator[None]:
    """Show how long the block took, if ``--verbose`` asks for it."""
    began = time.monotonic()
    yield
    detail(f"{text}: {time.monotonic() - began:.2f} s")


def heading(text: str, /) -> str:
    """Return a heading for stdout, in bold letters on terminals."""
    return _styled("heading", sys.stdout, text)


def _styled(kind: str, stream: TextIO, text: str | None = None) -> str:
    """Return a text in the style of its kind, on terminals that show colours; ``NO_COLOR`` turns them off."""
    text = kind if text is None else text
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"{_STYLES[kind]}{text}{_RESET}"
