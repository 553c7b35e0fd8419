"""``virtualstack readers``: list formats, and the dependencies of each format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from virtualstack.cli import options
from virtualstack.cli.commands import command
from virtualstack.cli.output import report, table

if TYPE_CHECKING:
    from virtualstack.readers import Format

_MAX_SUFFIXES = 5


@command("readers", examples=["virtualstack readers", "virtualstack readers --json"])
@options.as_json
def readers(as_json: bool) -> None:
    """List the formats that can be read, and what each one needs."""
    from virtualstack.readers import list_readers

    rows: list[dict[str, Any]] = [
        {
            "name": x.name,
            "format": x.title,
            "suffixes": list(x.suffixes),
            "extra": x.extra or None,
            "installed": _installed(x),
        }
        for x in list_readers()
    ]
    lines = [("name", "format", "suffixes", "pip extra", "installed")]
    lines += [(x["name"], x["format"], _first(x["suffixes"]), x["extra"] or "-", x["installed"]) for x in rows]
    report(lambda: {"readers": rows}, lambda: "\n".join(table(lines, right=())), as_json=as_json)


def _first(suffixes: list[str]) -> str:
    """Return the first suffixes as text; JSON has all."""
    return " ".join(suffixes[:_MAX_SUFFIXES]) + " ..." * (len(suffixes) > _MAX_SUFFIXES)


def _installed(row: Format) -> str:
    from virtualstack.errors import MissingDependencyError, ReaderError
    from virtualstack.formats.registry import load_reader

    if row.target is None:
        return "not read yet"
    try:
        load_reader(row)
    except MissingDependencyError:
        return "no"
    except ReaderError:
        return "broken"
    return "yes"
