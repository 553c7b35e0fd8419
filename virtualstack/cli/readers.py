"""``virtualstack readers``: list formats, and the dependencies of each format."""

from __future__ import annotations

import argparse

from virtualstack.cli.options import AddCommand
from virtualstack.cli.output import show, table
from virtualstack.errors import MissingDependencyError, ReaderError
from virtualstack.formats.registry import load_reader
from virtualstack.readers import Format, list_readers

__all__ = ["add_commands"]


def add_commands(add: AddCommand, /) -> None:
    """Add the command ``readers``."""
    add("readers", _readers, help="list formats, and what each one needs")


def _readers(options: argparse.Namespace) -> int:
    rows = [("name", "format", "suffixes", "pip extra", "installed")]
    rows += [(x.name, x.title, " ".join(x.suffixes), x.extra or "-", _installed(x)) for x in list_readers()]
    show("\n".join(table(rows, right=())))
    return 0


def _installed(row: Format) -> str:
    if row.target is None:
        return "not read yet"
    try:
        load_reader(row)
    except MissingDependencyError:
        return "no"
    except ReaderError:
        return "broken"
    return "yes"
