"""``virtualstack survey``: show what many files share, and which of them stand out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from virtualstack.cli.options import AddCommand, add_allow, add_reader, scanning
from virtualstack.cli.output import show, wants_progress
from virtualstack.errors import StorageError
from virtualstack.surveying import survey

__all__ = ["add_commands"]


def add_commands(add: AddCommand, /) -> None:
    """Add the command ``survey``."""
    command = add("survey", _survey, help="show what many files share, and what stands out", parents=[scanning()])
    command.add_argument(
        "files", nargs="+", metavar="FILE", help="path, glob or URL; @LIST for a file of such lines, @- for stdin"
    )
    command.add_argument(
        "--dim", metavar="DIM", help="dimension along which files follow each other (default: detected)"
    )
    add_reader(command)
    add_allow(command)
    command.add_argument("--all", action="store_true", help="show every line, not only the first ones of each part")
    command.add_argument("--table", metavar="FILE", help="write one line a file to a table, as CSV")


def _survey(options: argparse.Namespace) -> int:
    found = survey(
        [file for text in options.files for file in _listed(text)],
        reader=options.reader,
        executor=options.executor,
        cache=options.cache,
        progress=wants_progress(),
        dim=options.dim,
        allow=options.allow,
    )
    show(found.text() if options.all else found)
    if options.table:
        try:
            found.table.to_csv(options.table, index=False)
        except OSError as error:
            raise StorageError(f"'{options.table}' cannot be written: {error}", url=options.table) from error
    return 1 if len(found.failures) else 0


def _listed(text: str) -> list[str]:
    """Return the lines of a list that are not empty, or the argument itself if it is not a list."""
    if not text.startswith("@"):
        return [text]
    if text == "@-" and sys.stdin is None:
        raise StorageError("the list '-' cannot be read: stdin is closed", url="-")
    try:
        lines = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"the list '{text[1:]}' cannot be read: {error}", url=text[1:]) from error
    return [line for line in map(str.strip, lines.splitlines()) if line]
