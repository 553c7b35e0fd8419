"""``virtualstack allow``: show and change the places that references may name."""

from __future__ import annotations

import argparse

from virtualstack.cli.options import AddCommand
from virtualstack.cli.output import say, show, table
from virtualstack.errors import StorageError
from virtualstack.storage.places import (
    ALLOW_VARIABLE,
    grant,
    listed,
    place_from_user,
    record_path,
    remove,
    why_ignored,
)

__all__ = ["add_commands"]


def add_commands(add: AddCommand, /) -> None:
    """Add the command ``allow``."""
    command = add("allow", _allow, help="show or grant the places that references and stores may refer to")
    command.add_argument("places", metavar="PLACE", nargs="*", help="folder, file, bucket or host, with all below it")
    command.add_argument(
        "--remove", metavar="PLACE", action="append", default=[], help="remove a place from the record; repeatable"
    )


def _allow(options: argparse.Namespace) -> int:
    path, ignored = record_path(), why_ignored()
    if ignored is not None and (options.places or options.remove):
        raise StorageError(ignored)
    if ignored is not None:
        say("warning", ignored)
    missing = [place for place in options.remove if not remove(list({place, place_from_user(place)}))]
    if missing:
        raise StorageError(f"'{missing[0]}' is not in the record '{path}'. 'virtualstack allow' shows its places")
    places = [place_from_user(place) for place in options.places]
    if places and not grant(places):
        raise StorageError(
            f"the record '{path}' cannot be written. Set {ALLOW_VARIABLE} instead, for example to '{places[0]}'"
        )
    if not places and not options.remove:
        rows = [tuple(grant) for grant in listed()]
        lines = [f"record of places: {path}{'' if rows else ' (nothing is granted)'}"]
        show("\n".join(lines + (table([("place", "date", "from"), *rows], right=()) if rows else [])))
    return 0
