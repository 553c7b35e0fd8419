"""Options of all commands that join files, and the arguments of joining that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from virtualstack.cli import options
from virtualstack.cli.commands import option
from virtualstack.cli.options import JOINING

if TYPE_CHECKING:
    from virtualstack.combine import FromAttribute, FromName

making_dimensions: Callable[[Callable[..., Any]], Any] = option(
    "--new-dim",
    metavar="NAME=PATTERN",
    type=options.NEW_DIM,
    callback=options.refuse_repeated_names,
    multiple=True,
    section=JOINING,
    help="Join along a new dimension. The label of a file is the text that a regular expression finds in its name, "
    "such as 'member=_r(\\d+)', or an attribute: 'member=@variant_label'; dates have a format too: "
    "'time=(\\d{8}):%Y%m%d'.",
)
"""The option of new dimensions, with labels from names or attributes of files."""

_TO_STORE: dict[str, Callable[[Callable[..., Any]], Any]] = {
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
    "labels": option(
        "--labels",
        metavar="DIM=NAME",
        type=options.LABELS,
        callback=options.refuse_repeated_names,
        multiple=True,
        section=JOINING,
        help="Variable whose values become the labels of a dimension that has none, such as Time=Times. Repeatable.",
    ),
    "new_dim": making_dimensions,
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


def joining_files(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that join files."""
    for each in _OPTIONS.values():
        function = each(function)
    return function


def joining_to_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that join files to those of a store, which has the dimensions."""
    for each in _TO_STORE.values():
        function = each(function)
    return function


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
        "new_dim": sources_of_labels(given.get("new_dim", ())),
        "labels": dict(given["labels"]),
        "duplicates": "first"
        if keep_first
        else "last"
        if keep_last
        else "raise"
        if in_order and not keep_all
        else None,
        "unpack": {"all": True, "never": False}.get(given["unpack"] or "", "differing"),
    }


def sources_of_labels(given: Iterable[tuple[str, str, str | None]], /) -> dict[str, FromName | FromAttribute]:
    """Return the argument ``new_dim`` that names, patterns and formats of dates stand for."""
    from virtualstack.combine import FromAttribute, FromName

    return {
        name: FromAttribute(text[1:], format=dates) if text.startswith("@") else FromName(text, format=dates)
        for name, text, dates in given
    }
