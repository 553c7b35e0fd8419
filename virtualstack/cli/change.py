"""``virtualstack update``, ``write`` and ``rechunk``: add files by their labels, write values, write other chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from virtualstack.cli import options
from virtualstack.cli.build import FILES_HELP, reading_files
from virtualstack.cli.commands import choice, command, complete_files, option
from virtualstack.cli.facts import maybe_dry
from virtualstack.cli.joining import NAMES_OF_LABELS, labelled, labelling_files
from virtualstack.cli.output import step, wants_progress
from virtualstack.cli.store import open_store, report_snapshot
from virtualstack.options import JoinToStore

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr


@command(
    "update",
    examples=[
        "virtualstack update cube.vstack 2020-02-03.nc",
        "virtualstack update cube.vstack 'late/*.nc' --prefer newest",
    ],
)
@click.argument("store", shell_complete=complete_files, metavar="STORE", help="vstack: path or URL.")
@click.argument("files", shell_complete=complete_files, metavar="FILE...", nargs=-1, required=True, help=FILES_HELP)
@option("--dim", metavar="DIM", help="Dimension whose labels are added [default: the one of the build].")
@option(
    "--prefer",
    type=click.Choice(["first", "last", "newest"]),
    help="Which file is shown if two have the same labels [default: an error].",
)
@option(
    "--join",
    type=choice(JoinToStore),
    section=options.JOINING,
    help="What to do with labels along other dimensions that the store lacks: an error, leave out, add "
    "[default: that of the recipe, else exact, an error].",
)
@labelling_files
@options.relative
@options.checksums
@options.allow
@options.message
@options.dry_run
@options.as_json
@reading_files
def update(
    store: str,
    dim: str | None,
    prefer: Literal["first", "last", "newest"] | None,
    join: JoinToStore | None,
    relative: bool,
    checksums: bool,
    message: str | None,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Add files to a vstack at the places that their labels name.

    Files may come late, come twice, or be processed again. If the store has a recipe, it says how they open.
    """
    from virtualstack.api.combine import combine_datasets
    from virtualstack.cli.files import Files, expand, open_scanned, open_trees, scan_files

    labels = labelled({name: given.pop(name) for name in NAMES_OF_LABELS})
    files = Files(dry_run=dry_run, unpack=None, **given)
    repository = open_store(store, files.allow, files.storage)
    urls = expand(files.files, files.storage, is_dry=dry_run)
    is_tree = len(repository.snapshot.groups) > 1  # with the root
    if is_tree and any(labels.values()):
        raise click.UsageError("Files of a store of several groups need their labels: leave out --labels and --new-dim")
    if repository.snapshot.recipe is not None and not _gives(*_OPENING):
        with maybe_dry(dry_run) as record:
            how: dict[str, Any] = {"relative": relative, "checksums": checksums, "message": message}
            made = repository.update(urls, dim, prefer=prefer, join=join, progress=wants_progress(), **how)
        report_snapshot(store, repository, made, record, as_json=as_json, files=len(urls))
        return
    with step("scan the files"):
        scanned = scan_files(urls, files, is_tree=is_tree)
    datasets: list[xr.Dataset] | list[xr.DataTree]
    if is_tree:
        datasets = open_trees(scanned, files)
    else:
        opened = open_scanned(scanned, files)
        datasets = [combine_datasets([x], **labels) for x in opened] if any(labels.values()) else opened
    with maybe_dry(dry_run) as record, step(f"write '{store}'"):
        made = repository.update(
            datasets,
            dim,
            prefer=prefer,
            join=join,
            message=message,
            relative=relative,
            checksums=checksums,
            progress=wants_progress(),
        )
    report_snapshot(store, repository, made, record, as_json=as_json, files=len(datasets))


_OPENING = "reader", "group", "drop_variables", "unsupported", "no_decode_times", "inline_limit", *NAMES_OF_LABELS
"""Options of opening files, in whose place the recipe of a store stands."""


def _gives(*names: str) -> bool:
    """Return whether the user has given one of some options."""
    ctx = click.get_current_context()
    return any(ctx.get_parameter_source(name) is not ParameterSource.DEFAULT for name in names)


def _region(text: str) -> tuple[str, slice | int]:
    """Return a dimension and its positions."""
    found = re.fullmatch(r"([^=]+)=(?:(-?[0-9]+)|(-?[0-9]*):(-?[0-9]*))", text)
    if found is None:
        raise ValueError(f"'{text}' is not a dimension and positions, such as time=3 or time=10:20")
    name, number, begin, end = found.groups()
    if number is not None:
        return name, int(number)
    return name, slice(int(begin) if begin else None, int(end) if end else None)


@command(
    "write",
    examples=[
        "virtualstack write cube.vstack rain 0.5 --region time=3 -m 'the gauge was blocked'",
        "virtualstack write cube.vstack rain nan --region time=10:20 --region lat=5",
        "virtualstack write cube.vstack rain corrected.npy --region time=0:24",
    ],
    context_settings={"ignore_unknown_options": True},  # -1.5 is a value
)
@click.argument("store", shell_complete=complete_files, metavar="STORE", help="vstack: path or URL.")
@click.argument("variable", metavar="VARIABLE", help="Name or path of the variable.")
@click.argument(
    "values",
    shell_complete=complete_files,
    metavar="VALUES",
    help="A number, nan, or a file of numpy (.npy) with the values.",
)
@option(
    "--region",
    metavar="DIM=BEGIN:END",
    multiple=True,
    type=options.Value(_region),
    callback=options.refuse_repeated_names,
    help="Positions along a dimension, from 0; a dimension that is not named is written in full. Repeatable.",
)
@option("--raw", is_flag=True, help="The values are stored numbers: do not pack them.")
@options.allow
@options.message
@options.dry_run
@options.as_json
@options.storage
def write(
    store: str,
    variable: str,
    values: str,
    region: tuple[tuple[str, slice | int], ...],
    raw: bool,
    allow: tuple[str, ...],
    message: str | None,
    dry_run: bool,
    as_json: bool,
    storage: Any,
) -> None:
    """Write values into a region of a vstack; source files and earlier snapshots stay as they are."""
    repository = open_store(store, allow, storage)
    new = _values(values)
    with maybe_dry(dry_run) as record, _as_writer_errors():
        made = repository.write(variable, dict(region) or ..., new, raw=raw, message=message)
    report_snapshot(store, repository, made, record, as_json=as_json)


@contextmanager
def _as_writer_errors() -> Iterator[None]:
    """Raise errors of arguments that only the store can tell as errors of the command."""
    from virtualstack.errors import VirtualStackError, WriterError

    try:
        yield
    except (KeyError, ValueError, IndexError) as error:
        if isinstance(error, VirtualStackError):
            raise
        raise WriterError(str(error.args[0] if error.args else error)) from error


def _values(text: str) -> float | np.ndarray[Any, Any]:
    import numpy as np

    from virtualstack.errors import StorageError

    try:
        return float(text)
    except ValueError:
        pass
    if text.startswith("-"):
        raise click.NoSuchOption(text, ctx=click.get_current_context())
    if not text.endswith(".npy"):
        raise click.UsageError(f"'{text}' is neither a number nor a file of numpy that ends in .npy")
    try:
        return np.asarray(np.load(text, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise StorageError(f"the values '{text}' cannot be read: {error}", url=text) from error


def _chunks(text: str) -> dict[str, int]:
    """Return lengths of chunks by dimension."""
    found = dict(re.findall(r"([^=,]+)=(-1|[1-9][0-9]*)(?:,|$)", text))
    if ",".join(f"{dim}={n}" for dim, n in found.items()) != text:
        raise ValueError(f"'{text}' is not a list of dimensions and lengths of chunks, such as time=-1,lat=20")
    return {dim: int(n) for dim, n in found.items()}


@command(
    "rechunk",
    examples=["virtualstack rechunk cube.vstack rain --chunks time=-1,lat=20,lon=20 --name rain_series"],
)
@click.argument("store", shell_complete=complete_files, metavar="STORE", help="vstack: path or URL.")
@click.argument("variable", metavar="VARIABLE", help="Name or path of the variable.")
@option(
    "--chunks",
    metavar="DIM=LENGTH,...",
    required=True,
    type=options.Value(_chunks),
    help="Lengths of the new chunks; -1 is the whole dimension.",
)
@option("--name", metavar="NAME", required=True, help="Name of the second variable.")
@option("--max-bytes", metavar="SIZE", default="256 MiB", help="Values to have in memory [default: 256 MiB].")
@options.allow
@options.message
@options.dry_run
@options.as_json
@options.storage
def rechunk(
    store: str,
    variable: str,
    chunks: dict[str, int],
    name: str,
    max_bytes: str,
    allow: tuple[str, ...],
    message: str | None,
    dry_run: bool,
    as_json: bool,
    storage: Any,
) -> None:
    """Write a variable of a vstack again in other chunks, as a second variable that is kept up to date."""
    repository = open_store(store, allow, storage)
    with maybe_dry(dry_run) as record, step(f"write '{name}'"), _as_writer_errors():
        made = repository.rechunk(variable, chunks, name=name, max_bytes=max_bytes, message=message)
    report_snapshot(store, repository, made, record, as_json=as_json)
