"""Output for users: text, tables and JSON on stdout; errors, warnings, notes and progress on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from virtualstack.errors import Remedy, VirtualStackError, advised
from virtualstack.printable import printable

if TYPE_CHECKING:
    import click

_STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1m", "heading": "\x1b[1m"}
_RESET = "\x1b[0m"

MAX_CHARACTERS = 330
"""Most characters of a message without ``--verbose``: three lines of 110 characters."""

_LEAST_CHARACTERS = 120
_SHOWS_ALL = " (--verbose shows all)"
_BELOW = "\n  "  # advice is on a line of its own
_LONG_PATH = re.compile(r"(?<!\w)'[^']{20,}'")


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
    """Print a line to stderr, over the rest of a progress bar, and advice below. ``--quiet`` leaves all but errors."""
    if kind != "error" and SETTINGS.level < 0:
        return
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    lines = _BELOW.join(" ".join(line.split()) for line in text.split(_BELOW))
    print(f"{clear}virtualstack: {_styled(kind, sys.stderr)}: {printable(lines)}", file=sys.stderr)


def worded(message: object) -> str:
    """Return a message in three lines, unless ``--verbose`` asks for all of it: the last remedies are left out."""
    what, remedies = str(message), tuple[Remedy, ...]()
    if isinstance(message, VirtualStackError):
        what, remedies = message.what, message.remedies
    whole = short_paths(advised(what, *remedies, between=_BELOW))
    if SETTINGS.level > 0 or _length(whole) <= MAX_CHARACTERS:
        return whole
    what = short_paths(what)
    choices = [advised("", *remedies[:n], between=_BELOW) for n in range(len(remedies), 0, -1)] or [""]
    room = MAX_CHARACTERS - min(_length(what), _LEAST_CHARACTERS)  # details go before remedies
    advice = next((x for x in choices if _length(x) <= room), choices[-1])
    return _cut(what, MAX_CHARACTERS - _length(advice)) + advice


def short_paths(message: object, /) -> str:
    """Return a message with local URLs as paths, which are relative if they are in the working directory."""
    here = f"{os.getcwd().rstrip('/')}/"
    plain = re.sub(r"(?<![\w+:])file://(?=/)", "", str(message))
    return plain if here == "/" else plain.replace(f"'{here}", "'")


def _cut(text: str, most: int) -> str:
    """Return the beginning of a text, to the end of a word that is not in quotes; at least 80 characters."""
    if _length(text) <= most:
        return text
    ends = [found.start() for found in re.finditer(" ", re.sub(r"(?<!\w)'[^']*'", lambda x: "_" * len(x[0]), text))]
    fitting = [end for end in ends if _length(text[:end]) <= max(most - len(_SHOWS_ALL), 80) - 2]
    return f"{text[: fitting[-1]].rstrip(' ,;:')} …{_SHOWS_ALL}" if fitting else text


def _length(text: str) -> int:
    """Return the number of characters; the paths of a user may be as long as they are."""
    return len(_LONG_PATH.sub("'...'", text))


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
