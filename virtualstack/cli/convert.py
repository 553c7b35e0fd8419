"""``virtualstack convert``: convert references from any format to another."""

from __future__ import annotations

import argparse

from virtualstack.cli.options import (
    AddCommand,
    add_allow,
    add_at,
    add_drop_variable,
    add_inline_limit,
    add_reader,
    add_remote_protocol,
    add_rewrite,
    choose_reader,
    output,
)
from virtualstack.cli.output import say, show
from virtualstack.conversion import convert
from virtualstack.errors import ReaderError
from virtualstack.readers import VStack

__all__ = ["add_commands"]


def add_commands(add: AddCommand, /) -> None:
    """Add the command ``convert``."""
    command = add("convert", _convert, help="write references in another form, such as kerchunk's or Icechunk's")
    command.add_argument("source", metavar="SOURCE", help="references of any form, a store or a file; path or URL")
    command.add_argument(
        "target",
        metavar="TARGET",
        type=output,
        help="refs.json, refs.parq, cube.vstack or cube.icechunk: the suffix decides",
    )
    add_reader(command)
    add_remote_protocol(command)
    add_at(command)
    add_allow(command)
    command.add_argument("--relative", action="store_true", help="write locations of sources relative to the target")
    command.add_argument(
        "--unsupported",
        choices=["raise", "skip"],
        default="raise",
        help="what to do with a variable that cannot be referenced (default: raise)",
    )
    add_drop_variable(command)
    add_inline_limit(command)
    add_rewrite(command)
    command.add_argument(
        "--absent",
        choices=["raise", "fill"],
        default="raise",
        help=(
            "what to do with ABSENT chunks if the target cannot express them: an error, or the fill value "
            "(default: raise)"
        ),
    )
    command.add_argument("-m", "--message", metavar="TEXT", help="message of the new snapshot of a store or repository")


def _convert(options: argparse.Namespace) -> int:
    reader = choose_reader(options)
    if options.at is not None:
        if reader not in (None, VStack.name):
            raise ReaderError(
                f"--at is an option of vstacks, not of --reader {getattr(reader, 'name', reader)}. Leave one out"
            )
        reader = VStack(at=options.at)
    group = convert(
        options.source,
        options.target,
        reader=reader,
        unsupported=options.unsupported,
        drop_variables=options.drop_variable,
        inline_limit=options.inline_limit,
        relative=options.relative,
        rewrite=options.rewrite,
        absent=options.absent,
        message=options.message,
        allow=options.allow,
    )
    nodes = [node for _, node in group.walk()]
    for refusal in (x for node in nodes for x in node.refusals if x.kind == "noted"):
        say("note", f"'{refusal.path}': {refusal.reason}")
    n = sum(len(node.arrays) for node in nodes)
    show(f"{options.target}: {n} variable{'s' * (n != 1)} of {options.source}")
    return 0
