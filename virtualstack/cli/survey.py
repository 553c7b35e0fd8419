"""``virtualstack survey``: show what many files share, and which of them stand out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from virtualstack.cli import options
from virtualstack.cli.commands import command, complete_files, option
from virtualstack.cli.facts import dry_text, maybe_dry, plain
from virtualstack.cli.output import report, say, wants_progress

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
@options.dry_run
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
    dry_run: bool,
) -> int:
    """Show what many files share, and which of them stand out."""
    from tempfile import TemporaryDirectory

    from virtualstack import surveying
    from virtualstack.cli.build import build
    from virtualstack.cli.remedies import in_command_words
    from virtualstack.errors import rendered_by
    from virtualstack.storage.atomic import write_file

    group = click.get_current_context().find_root().command
    commands = group.commands if isinstance(group, click.Group) else {}
    # A dry run writes no cache, too. What a survey advises is for the command that joins the files.
    with maybe_dry(dry_run), rendered_by(lambda remedy: in_command_words(remedy, build, commands)):
        found = surveying.survey(
            [file for text in files for file in options.read_list(text)],
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

    if table:  # before the report, whose reader may leave early
        with TemporaryDirectory() as folder, maybe_dry(dry_run) as record:
            path = Path(folder, Path(table).name)  # a suffix such as .gz compresses the table
            found.table.to_csv(path, index=False)
            write_file(table, path.read_bytes())
        if record is not None:
            say("note", dry_text(record, table))
    report(facts, lambda: found.text() if show_all else str(found), as_json=as_json)
    return 1 if len(found.failures) else 0
