"""``virtualstack build`` and ``append``: join files to one cube, write its references, and add files to it."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import click
from click.core import ParameterSource

from virtualstack.cli import options
from virtualstack.cli.commands import choice, command, complete_files, option
from virtualstack.cli.joining import NAMES, joining_files, joining_to_store, taken
from virtualstack.cli.options import JOINING
from virtualstack.options import JoinToStore

FILES_HELP = "Path, pattern, URL, or sample:model; @LIST for a file of such lines, @- for stdin."


def reading_files(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument and the options of commands that read many files."""
    for each in (
        options.storage,
        options.cache,
        options.executor,
        options.on_error,
        options.inline_limit,
        options.no_decode_times,
        options.unsupported,
        options.drop_variables,
        options.group,
        options.reader,
    ):
        function = each(function)
    return function


@command(
    "build",
    examples=[
        "virtualstack build 'data/*.nc' -o cube.vstack --verify",
        "virtualstack build 's3://bucket/2020/**/*.nc' -o refs.parq --concat-dim time",
        "virtualstack build jan.nc feb.nc -o cube.vstack --keep-last",
        "virtualstack build 'data/*.nc' -o cube.vstack --dry-run",
        "virtualstack build 'tiles/*.tif' -o tiles.vstack --new-dim 'time=(\\d{8}):%Y%m%d'",
    ],
)
@click.argument("files", shell_complete=complete_files, metavar="[FILE...]", nargs=-1, help=FILES_HELP)
@option(
    "--recipe",
    metavar="FILE",
    shell_complete=complete_files,
    help="Build a vstack by a recipe, which it keeps; no files and no other options of reading or joining are given.",
)
@option(
    "-o",
    "--output",
    shell_complete=complete_files,
    metavar="OUTPUT",
    required=True,
    type=options.TARGET,
    help="cube.vstack, cube.icechunk, refs.parq or refs.json: the suffix decides the form.",
)
@option("--overwrite", is_flag=True, help="Replace an existing output.")
@option(
    "--append",
    "append_dim",
    metavar="DIM",
    help="Append to an existing output after its last label along a dimension.",
)
@option("--verify", is_flag=True, help="Compare every value with the source files: netCDF and HDF5 only.")
@options.rewrite
@options.absent_or_default
@options.relative
@options.checksums
@options.allow
@options.message
@options.dry_run
@options.as_json
@options.sample
@options.workers
@joining_files
@option(
    "--join",
    type=click.Choice(["exact", "outer", "inner", "left", "right"]),
    default="exact",
    section=JOINING,
    help="Which coordinates along other dimensions to keep where they differ [default: exact, an error].",
)
@options.tolerance
@options.expand
@reading_files
def build(recipe: str | None, **given: Any) -> int:
    """Join files to one cube, and write references to them.

    The cube is opened from the references, and shown. Labels such as times decide how the files join, and their order.
    """
    from virtualstack.cli.building import Build, run

    if recipe is not None:
        return _build_by_recipe(recipe, **given)
    if odd := _typed(_RUNNING):
        raise click.UsageError(f"without --recipe, leave out {odd}")
    given = {name: value for name, value in given.items() if name not in _RUNNING}
    if not given["files"]:
        raise click.UsageError("Missing argument 'FILE...', or --recipe")
    if given["overwrite"] and given["append_dim"]:
        raise click.UsageError("--overwrite and --append cannot be used together; leave one out")
    if given["append_dim"] and given["join"] in ("inner", "right"):
        raise click.UsageError(
            f"--append cannot be used with --join {given['join']}, as its labels stay. Use exact, left or outer"
        )
    return run(Build(is_append=given["append_dim"] is not None, **_taken(given)))


_RUNNING = {"sample", "timeout", "workers"}
_BESIDE_RECIPE = {"allow", "storage", "as_json", "dry_run", "message", "cache", "executor", *_RUNNING}


def _typed(names: Set[str]) -> str:
    """Return which of some parameters the user gave, as they are called on the command line."""
    ctx = click.get_current_context()
    given = {name for name in names if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    return ", ".join(sorted(x.opts[-1] for x in ctx.command.params if x.name in given))


def _build_by_recipe(recipe: str, **given: Any) -> int:
    from virtualstack.cli.sync import run

    if others := _typed(given.keys() - {"output", *_BESIDE_RECIPE}):
        raise click.UsageError(f"--recipe says how files open and join; leave out {others}")
    if not given["output"].rstrip("/").endswith(".vstack"):
        raise click.UsageError("Only a vstack keeps a recipe; give an OUTPUT that ends in .vstack")
    return run(given["output"], recipe, is_new=True, **{name: given[name] for name in _BESIDE_RECIPE})


def _taken(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a build: the options of joining are one of them."""
    others = {name: value for name, value in given.items() if name not in NAMES}
    return {**others, "unpack": given["unpack"], "how": taken(given)}


@command(
    "append",
    examples=[
        "virtualstack append cube.vstack feb.nc",
        "virtualstack append cube.vstack 's3://bucket/2020/02/*.nc' -m 'February' --dry-run",
    ],
)
@click.argument(
    "store",
    shell_complete=complete_files,
    metavar="STORE",
    type=options.TARGET,
    help="vstack, Icechunk repository or references.",
)
@click.argument("files", shell_complete=complete_files, metavar="FILE...", nargs=-1, required=True, help=FILES_HELP)
@option("--dim", metavar="DIM", help="Dimension to append along [default: the one that the store was built along].")
@options.rewrite
@options.absent_or_default
@options.relative
@options.checksums
@options.allow
@options.message
@options.dry_run
@options.as_json
@joining_to_store
@option(
    "--join",
    type=choice(JoinToStore),
    default="exact",
    section=JOINING,
    help="What may differ from the store along other dimensions: nothing; left leaves out labels that the store lacks; "
    "with outer, files may lack labels and variables [default: exact].",
)
@options.expand
@reading_files
def append(store: str, dim: str | None, **given: Any) -> int:
    """Append files to an existing cube, after its last label.

    Files that come late or again are for 'virtualstack update'. The result is that of 'virtualstack build --append'.
    """
    from virtualstack.cli.building import Build, run

    others: dict[str, Any] = {"overwrite": False, "verify": False, "tolerance": None}
    return run(Build(output=store, append_dim=dim, is_append=True, **others, **_taken(given)))
