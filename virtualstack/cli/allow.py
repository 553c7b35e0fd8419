"""``virtualstack allow``: show and change the places that references may name."""

from __future__ import annotations

import click

from virtualstack.cli import options
from virtualstack.cli.commands import command, complete_files, option
from virtualstack.cli.output import report, say, table

__all__ = ["allow"]


@command(
    "allow",
    examples=["virtualstack allow", "virtualstack allow s3://bucket/", "virtualstack allow --remove s3://bucket/"],
)
@click.argument(
    "places",
    shell_complete=complete_files,
    metavar="[PLACE...]",
    type=options.PLACE,
    nargs=-1,
    help="Folder, file, bucket or host, with all below it.",
)
@option("--remove", metavar="PLACE", multiple=True, help="Remove a place from the record. Repeatable.")
@options.dry_run
@options.as_json
def allow(places: tuple[str, ...], remove: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Show or grant the places that references and stores may refer to."""
    from virtualstack.errors import StorageError
    from virtualstack.storage import places as record

    path, ignored = record.record_path(), record.why_ignored()
    if ignored is not None and (places or remove):
        raise StorageError(ignored)
    if ignored is not None:
        say("warning", ignored)
    granted = [record.place_from_user(place) for place in places]
    known = {entry[0] for entry in record.listed() if entry[1]}  # those of the record have a date
    spellings = {place: {place, record.place_from_user(place)} for place in remove}
    for place, each in spellings.items():
        if not each & known:
            raise StorageError(f"'{place}' is not in the record '{path}'. 'virtualstack allow' shows its places")
    if remove and not dry_run:
        record.remove([*set().union(*spellings.values())])
    if dry_run:
        say("note", f"dry run: nothing is written. It would grant {granted} and remove {list(remove)} in '{path}'")
    elif granted and not record.grant(granted):
        raise StorageError(
            f"the record '{path}' cannot be written. Set {record.ALLOW_VARIABLE} instead, for example to '{granted[0]}'"
        )
    if (places or remove) and not as_json:
        return
    columns = ("place", "date", "from")
    rows = [tuple(grant) for grant in record.listed()]

    def text() -> str:
        lines = [f"record of places: {path}{'' if rows else ' (nothing is granted)'}"]
        return "\n".join(lines + (table([columns, *rows], right=()) if rows else []))

    report(
        lambda: {"record": str(path), "places": [dict(zip(columns, row, strict=True)) for row in rows]},
        text,
        as_json=as_json,
    )
