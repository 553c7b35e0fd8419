"""``virtualstack convert``: convert references from any format to another."""

from __future__ import annotations

from typing import Any, Literal

import click

from virtualstack.cli import options
from virtualstack.cli.commands import command, complete_files, option
from virtualstack.cli.facts import dry_facts, dry_text, maybe_dry
from virtualstack.cli.output import report, say, wants_progress, worded
from virtualstack.options import OnAbsent
from virtualstack.printable import counted


@command(
    "convert",
    examples=[
        "virtualstack convert refs.json cube.vstack",
        "virtualstack convert cube.vstack refs.parq --at 0",
        "virtualstack convert cube.vstack cube.icechunk",
    ],
)
@click.argument(
    "source",
    shell_complete=complete_files,
    metavar="SOURCE",
    help="References of any form, a store or a file: path or URL.",
)
@click.argument(
    "target",
    shell_complete=complete_files,
    metavar="TARGET",
    type=options.TARGET,
    required=False,
    help="refs.json, refs.parq, cube.vstack or cube.icechunk: the suffix decides the form.",
)
@option(
    "-o",
    "--output",
    shell_complete=complete_files,
    metavar="TARGET",
    type=options.TARGET,
    help="The target, as in other commands.",
)
@options.relative
@options.absent(default="raise", told="raise")
@options.rewrite
@options.allow
@options.message
@options.at
@options.reader
@options.remote_protocol
@options.drop_variables
@option(
    "--unsupported",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    section=options.READING,
    help="What to do with a variable that cannot be referenced [default: raise].",
)
@options.inline_limit
@options.storage
@options.dry_run
@options.as_json
def convert(
    source: str,
    target: str | None,
    output: str | None,
    at: Any,
    reader: str | None,
    remote_protocol: str | None,
    relative: bool,
    absent: OnAbsent,
    rewrite: str | None,
    allow: tuple[str, ...],
    message: str | None,
    drop_variables: tuple[str, ...],
    unsupported: Literal["raise", "skip"],
    inline_limit: int,
    storage: Any,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write references in another form, such as kerchunk's or Icechunk's."""
    from virtualstack import conversion
    from virtualstack.cli.files import check_dropped
    from virtualstack.readers import ReadOptions, VStack

    if (target is None) == (output is None):
        raise click.UsageError("name one target: virtualstack convert SOURCE TARGET")
    target = target or output or ""
    if message is not None and not target.rstrip("/").endswith((conversion.STORE, conversion.ICECHUNK)):
        raise click.UsageError("--message is for the log of a vstack or an Icechunk repository. Leave it out")
    chosen = options.choose_reader(reader, remote_protocol)
    if at is not None:
        if chosen not in (None, VStack.name):
            raise click.UsageError(
                f"--at is an option of vstacks, not of --reader {getattr(chosen, 'name', chosen)}. Leave one out"
            )
        chosen = VStack(at=at)
    if drop_variables:
        read = ReadOptions.from_options(allow=allow, inline_limit=inline_limit)
        check_dropped([source], drop_variables, read, reader=chosen, storage=storage)
    with maybe_dry(dry_run) as record:
        group = conversion.convert(
            source,
            target,
            reader=chosen,
            unsupported=unsupported,
            drop_variables=drop_variables,
            inline_limit=inline_limit,
            relative=relative,
            rewrite=rewrite,
            absent=absent,
            message=message,
            allow=allow,
            storage=storage,
            progress=wants_progress(),
        )
    nodes = [node for _, node in group.walk()]
    for refusal in (x for node in nodes for x in node.refusals if x.kind == "noted"):
        say("note", worded(f"'{refusal.path}': {refusal.reason}"))
    n = sum(len(node.arrays) for node in nodes)
    told = f"{target}: {counted(n, 'variable')} of {source}"
    report(
        lambda: {"source": source, "target": target, "variables": n, "dry_run": dry_facts(record)},
        lambda: told if record is None else f"{dry_text(record, target)}\n{told}",
        as_json=as_json,
    )
