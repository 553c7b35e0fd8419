"""``virtualstack survey``: show what many files share, and which of them stand out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from virtualstack.cli import options
from virtualstack.cli.commands import command, complete_files, option
from virtualstack.cli.facts import plain
from virtualstack.cli.output import report, wants_progress
from virtualstack.errors import StorageError

__all__ = ["read_list", "survey"]

_TABLES = "eras", "variables", "outliers", "duplicates", "interleaved", "gaps", "irregular", "failures"


@command(
    "survey",
    examples=[
        "virtualstack survey 'data/*.nc'",
        "virtualstack survey @files.txt --table files.csv",
    ],
)
@click.argument(
    "files",
    shell_complete=complete_files,
    metavar="FILE...",
    nargs=-1,
    required=True,
    help="Path, pattern or URL; @LIST for a file of such lines, @- for stdin.",
)
@option("--dim", metavar="DIM", help="Dimension along which files follow each other [default: detected].")
@option("--all", "show_all", is_flag=True, help="Show every line, not only the first ones of each part.")
@option("--table", metavar="FILE", help="Write one line for each file to a table, as CSV.")
@options.allow
@options.reader
@options.executor
@options.cache
@options.storage
@options.as_json
def survey(
    files: tuple[str, ...],
    dim: str | None,
    show_all: bool,
    table: str | None,
    allow: tuple[str, ...],
    reader: str | None,
    executor: Any,
    cache: str | None,
    storage: Any,
    as_json: bool,
) -> int:
    """Show what many files share, and which of them stand out."""
    from virtualstack import surveying

    found = surveying.survey(
        [file for text in files for file in read_list(text)],
        reader=reader,
        executor=executor,
        cache=cache,
        progress=wants_progress(),
        dim=dim,
        allow=allow,
        storage=storage,
    )

    def facts() -> dict[str, Any]:
        tables = {name: plain(getattr(found, name)) for name in _TABLES}
        return {"dim": found.dim, "has_all_pairs": found.has_all_pairs, "files": plain(found.table), **tables}

    report(facts, lambda: found.text() if show_all else found, as_json=as_json)
    if table:
        try:
            found.table.to_csv(table, index=False)
        except OSError as error:
            raise StorageError(f"'{table}' cannot be written: {error}", url=table) from error
    return 1 if len(found.failures) else 0


def read_list(text: str, /) -> list[str]:
    """Return the lines of a list that are not empty, or the argument itself if it is not a list.

    Parameters
    ----------
    text
        ``@LIST`` for a file, ``@-`` for stdin, or anything else.

    Raises
    ------
    StorageError
        The list cannot be read.
    """
    if not text.startswith("@"):
        return [text]
    if text == "@-" and sys.stdin is None:
        raise StorageError("the list '-' cannot be read: stdin is closed", url="-")
    try:
        lines = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"the list '{text[1:]}' cannot be read: {error}", url=text[1:]) from error
    return [line for line in map(str.strip, lines.splitlines()) if line]
