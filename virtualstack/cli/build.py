"""``virtualstack build``: join files to one cube and write its references. ``sample:model`` names example files."""

from __future__ import annotations

from typing import Any

import click

from virtualstack.cli import options
from virtualstack.cli.commands import command, option

__all__ = ["build"]


@command(
    "build",
    examples=[
        "virtualstack build 'data/*.nc' -o cube.vstack --verify",
        "virtualstack build 's3://bucket/2020/**/*.nc' -o refs.parq --concat-dim time",
        "virtualstack build jan.nc feb.nc -o cube.vstack --unpack differing",
        "virtualstack build mar.nc -o cube.vstack --append time",
    ],
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, help="Path, pattern, URL, or sample:model.")
@option(
    "-o",
    "--output",
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
@option("--verify", is_flag=True, help="Compare every value with the source files.")
@options.rewrite
@options.allow
@option(
    "--concat-dim",
    metavar="DIM",
    section="Joining the files",
    help="Dimension to join along [default: the unlimited dimension; GRIB: all fields are one index].",
)
@option(
    "--in-order",
    is_flag=True,
    section="Joining the files",
    help="Join files in the given order, whatever their labels [default: labels determine the order].",
)
@option(
    "--join",
    type=click.Choice(["exact", "outer", "inner", "left", "right"]),
    default="exact",
    section="Joining the files",
    help="Which coordinates along other dimensions to keep where they differ [default: exact, an error].",
)
@options.tolerance
@option(
    "--unpack",
    type=click.Choice(["all", "differing"]),
    section="Joining the files",
    help="Decode missing values, scale, offset and times in the chunks: of all variables, or where files differ.",
)
@options.reader
@options.group
@options.drop_variables
@option(
    "--unsupported",
    type=click.Choice(["inline", "raise", "skip"]),
    default="inline",
    section=options.READING,
    help="What to do with a variable that cannot be referenced [default: inline its values if they are small].",
)
@options.inline_limit
@option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    section=options.READING,
    help="What to do with a file that cannot be opened; skip leaves it out with a warning [default: raise].",
)
@options.executor
@options.cache
def build(**given: Any) -> int:
    """Join files to one cube, and write references to them.

    The cube is opened from the references, and shown. Labels such as times decide the order of the files.
    """
    from virtualstack.cli.building import Build, run

    if given["overwrite"] and given["append_dim"]:
        raise click.UsageError("--overwrite and --append cannot be used together; leave one out")
    return run(Build(**given))
