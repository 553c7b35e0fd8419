"""Output for users: text and tables on stdout; errors, warnings and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from virtualstack.printable import printable

__all__ = ["OutputError", "say", "show", "show_warning", "table", "wants_progress"]

_BAR_CHARACTERS = 30  # length of a bar


class OutputError(Exception):
    """Error of writing to stdout."""


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
    """Return whether a progress bar is drawn: only if stderr is a terminal."""
    return sys.stderr.isatty()


def show(text: object, *, end: str = "\n") -> None:
    """Print to stdout, and flush it."""
    line = printable(f"{text}{end}")  # this may read data, and may raise other errors
    try:
        print(line, end="", flush=True)
    except OSError as error:
        raise OutputError(f"stdout cannot be written: {error}") from error


def say(kind: str, text: str) -> None:
    """Print one line to stderr, over the rest of a progress bar."""
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{clear}virtualstack: {kind}: {printable(' '.join(text.split()))}", file=sys.stderr)


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning to stderr, instead of :func:`warnings.showwarning`."""
    say("warning", str(message))
