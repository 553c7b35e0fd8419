"""Options of all commands that join files, and the arguments of joining that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import click

from virtualstack.cli import options
from virtualstack.cli.commands import option
from virtualstack.cli.options import JOINING

_LABELLING: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "labels": option(
        "--labels",
        metavar="DIM=NAME",
        type=options.LABELS,
        callback=options.refuse_repeated_names,
        multiple=True,
        section=JOINING,
        help="Variable whose values become the labels of a dimension that has none, such as Time=Times. Repeatable.",
    ),
    "new_dim": option(
        "--new-dim",
        metavar="NAME=PATTERN",
        type=options.NEW_DIM,
        callback=options.refuse_repeated_names,
        multiple=True,
        section=JOINING,
        help="Join along a new dimension. The label of a file is the text that a regular expression finds in its name, "
        "such as 'member=_r(\\d+)', or an attribute: 'member=@variant_label'; dates have a format too: "
        "'time=(\\d{8}):%Y%m%d'.",
    ),
}
NAMES_OF_LABELS = tuple(_LABELLING)
"""Names of the options that say where labels are."""

_TO_STORE = {
    "unpack": option(
        "--unpack",
        type=click.Choice(["all", "differing", "never"]),
        section=JOINING,
        help="Decode missing values, scale, offset and times in the chunks: of all variables, where files differ, or "
        "of none, so that files that differ are an error [default: differing].",
    ),
    "keep_all": option(
        "--keep-all", is_flag=True, section=JOINING, help="With --in-order, let labels repeat in the result."
    ),
    "keep_last": option(
        "--keep-last", is_flag=True, section=JOINING, help="Of files with the same labels, use the last one."
    ),
    "keep_first": option(
        "--keep-first", is_flag=True, section=JOINING, help="Of files with the same labels, use the first one."
    ),
    "in_order": option(
        "--in-order",
        is_flag=True,
        section=JOINING,
        help="Join files in the given order [default: labels determine the order].",
    ),
    **_LABELLING,
}
_OPTIONS = _TO_STORE | {
    "concat_dim": option(
        "--concat-dim",
        metavar="DIM",
        section=JOINING,
        help="Dimension to join along [default: what tells the files apart, such as their times; GRIB: all fields are "
        "one index].",
    ),
}

NAMES = tuple(_OPTIONS)
"""Names of the options."""


def _adding(given: Mapping[str, Callable[[Callable[..., Any]], Any]], /) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that adds options to a command."""
    return lambda function: reduce(lambda command, add: add(command), given.values(), function)


joining_files = _adding(_OPTIONS)
"""The options of commands that join files."""

joining_to_store = _adding(_TO_STORE)
"""The options of commands that join files to those of a store, which has the dimensions."""

labelling_files = _adding(_LABELLING)
"""The options of a command that places files by their labels alone."""


def taken(given: Mapping[str, Any], /) -> dict[str, Any]:
    """Return the arguments of :func:`virtualstack.open_virtual_mfdataset` that options stand for."""
    keep_first, keep_last, keep_all, in_order = (given[x] for x in ("keep_first", "keep_last", "keep_all", "in_order"))
    if keep_first + keep_last + keep_all > 1:
        raise click.UsageError("Give one of --keep-first, --keep-last and --keep-all")
    if keep_all != in_order and (keep_all or keep_first or keep_last):
        raise click.UsageError("--keep-all needs --in-order; --keep-first and --keep-last cannot be used with it")
    if given.get("new_dim") and (given.get("concat_dim") or in_order):
        raise click.UsageError("--new-dim cannot be used with --concat-dim or --in-order; leave one out")
    return {
        "combine": "nested" if in_order else "by_coords",
        "concat_dim": given.get("concat_dim"),
        **labelled(given),
        "duplicates": "first"
        if keep_first
        else "last"
        if keep_last
        else "raise"
        if in_order and not keep_all
        else None,
        "unpack": {"all": True, "never": False}.get(given["unpack"] or "", "differing"),
    }


def labelled(given: Mapping[str, Any], /) -> dict[str, Any]:
    """Return the arguments that name the sources of labels: variables; names and attributes of files."""
    from virtualstack.combine import FromAttribute, FromName

    new_dim = {
        name: FromAttribute(text[1:], format=dates) if text.startswith("@") else FromName(text, format=dates)
        for name, text, dates in given["new_dim"]
    }
    return {"labels": dict(given["labels"]), "new_dim": new_dim}
