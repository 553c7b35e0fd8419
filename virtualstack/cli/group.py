"""The group of all commands, in the order of the help. Modules of commands import heavy libraries when they run."""

from __future__ import annotations

import click

from virtualstack.cli.build import append, build
from virtualstack.cli.change import rechunk, update, write
from virtualstack.cli.commands import Group, Option
from virtualstack.cli.completion import completion
from virtualstack.cli.config import config
from virtualstack.cli.convert import convert
from virtualstack.cli.inspect import inspect
from virtualstack.cli.output import show
from virtualstack.cli.output import write as write_text
from virtualstack.cli.readers import readers
from virtualstack.cli.sample import sample
from virtualstack.cli.serve import report, serve
from virtualstack.cli.store import compact, diff, expire, log, refresh, relocate, verify
from virtualstack.cli.survey import survey
from virtualstack.cli.sync import commit, health, ledger, recipe, segment, sync, watch


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from virtualstack import __version__

        show(f"virtualstack {__version__}")
        ctx.exit()


def _without_command() -> None:
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is None:
        write_text(f"{ctx.get_help()}\n")


cli = Group(
    "virtualstack",
    callback=_without_command,
    help="Open archives of netCDF, HDF5, GRIB and TIFF files as one virtual cube, and copy no data.",
    tasks={
        "Look at files": [inspect, survey, recipe, readers, sample],
        "Make a cube": [build, convert],
        "Add to a cube": [append, update, sync, watch, segment, commit, write, rechunk],
        "Look at a vstack": [log, ledger, health, diff, verify],
        "Maintain a vstack": [refresh, relocate, compact, expire],
        "Share a cube": [serve, report],
        "Settings": [config, completion],
    },
    examples=[
        "virtualstack survey 'data/*.nc'",
        "virtualstack build 'data/*.nc' -o cube.vstack --verify",
        "virtualstack log cube.vstack",
        "virtualstack serve cube.vstack",
    ],
    params=[
        Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version.",
        )
    ],
)
"""The command line."""
