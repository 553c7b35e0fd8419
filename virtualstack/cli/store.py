"""Commands for a vstack: its history, its sources, and the removal of old snapshots."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import click

from virtualstack.cli import options
from virtualstack.cli.commands import Command, command, option
from virtualstack.cli.output import show, wants_progress

if TYPE_CHECKING:
    from virtualstack.vstack import Repository

__all__ = ["compact", "diff", "expire", "log", "refresh", "relocate", "verify"]


def store_command(name: str, /, *, examples: list[str], **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that makes a command on a vstack, which is its first argument."""

    def decorate(function: Callable[..., Any]) -> Command:
        store = click.argument("store", metavar="STORE", help="vstack: path or URL.")
        return command(name, examples=examples, **settings)(store(options.allow(function)))

    return decorate


def open_store(store: str, allow: tuple[str, ...], at: Any = None, /) -> Repository:
    """Return the repository of a command."""
    from virtualstack.vstack import Repository

    return Repository.open(store, at=at, allow=allow)


@store_command("log", examples=["virtualstack log cube.vstack", "virtualstack log cube.vstack --limit 1"])
@option("-n", "--limit", metavar="N", type=options.POSITIVE, default=50, help="How many [default: 50].")
def log(store: str, allow: tuple[str, ...], limit: int) -> None:
    """List the snapshots of a vstack, newest first."""
    show("\n".join(open_store(store, allow).log(limit).lines()))


@store_command(
    "diff",
    examples=["virtualstack diff cube.vstack 0", "virtualstack diff cube.vstack 2026-01-31 -1"],
    context_settings={"ignore_unknown_options": True},  # -1 is a snapshot
)
@click.argument(
    "before",
    metavar="BEFORE",
    type=options.SNAPSHOT,
    help="Number of a snapshot (-1: the newest), or a time when it was the newest.",
)
@click.argument("after", metavar="[AFTER]", type=options.SNAPSHOT, default=-1, help="The same [default: the newest].")
def diff(store: str, allow: tuple[str, ...], before: Any, after: Any) -> None:
    """Show what two snapshots of a vstack differ in."""
    show(open_store(store, allow).diff(before, after))


@store_command("verify", examples=["virtualstack verify cube.vstack", "virtualstack verify cube.vstack --sample 1%"])
@options.at
@option(
    "--sample",
    metavar="N",
    type=options.SAMPLE,
    default=0,
    help="Number of chunks, or percentage (1%), to compare with what the format's library reads.",
)
def verify(store: str, allow: tuple[str, ...], at: Any, sample: int | float) -> int:
    """Show which sources of a vstack have changed or are missing."""
    found = open_store(store, allow, at).verify(sample=sample, progress=wants_progress())
    show(found)
    return 0 if found.is_good else 1


@store_command(
    "refresh", examples=["virtualstack refresh cube.vstack", "virtualstack refresh cube.vstack --missing mask"]
)
@option(
    "--missing",
    type=click.Choice(["keep", "mask"]),
    default="keep",
    help="What to do with chunks of missing sources [default: keep; mask makes them missing values].",
)
@option("--unpack", type=click.Choice(["all"]), help="If the store was built with --unpack all.")
@options.message
@options.reader
@options.executor
def refresh(
    store: str,
    allow: tuple[str, ...],
    missing: Literal["keep", "mask"],
    unpack: str | None,
    message: str | None,
    reader: str | None,
    executor: Any,
) -> int:
    """Scan changed sources of a vstack again, and replace their chunks."""
    done = open_store(store, allow).refresh(
        missing=missing, reader=reader, executor=executor, unpack=unpack is not None, message=message
    )
    show(done)
    return 0 if done.is_complete else 1


@store_command("relocate", examples=["virtualstack relocate cube.vstack /old/folder s3://bucket/folder/"])
@click.argument("old", metavar="OLD", help="Old folder: path or URL.")
@click.argument("new", metavar="NEW", help="New folder: path or URL.")
@options.message
def relocate(store: str, allow: tuple[str, ...], old: str, new: str, message: str | None) -> None:
    """Change the folders in which sources of a vstack are."""
    made = open_store(store, allow).relocate({old: new}, message=message)
    show_snapshot(store, made)


@store_command(
    "expire",
    examples=[
        "virtualstack expire cube.vstack --keep 10 --dry-run",
        "virtualstack expire cube.vstack --older-than 30d",
    ],
)
@option("--keep", metavar="N", type=options.POSITIVE, help="Number of newest snapshots to keep.")
@option(
    "--older-than",
    metavar="AGE",
    type=options.AGE,
    help="Keep snapshots that were the newest since then: an age such as 30d, or a time.",
)
@option(
    "--grace",
    metavar="AGE",
    type=options.DURATION,
    default=timedelta(days=1),
    help="Longest time that readers and writers need; younger objects are kept [default: 1d].",
)
@option("--dry-run", is_flag=True, help="Delete nothing, and show what would be deleted.")
def expire(
    store: str, allow: tuple[str, ...], keep: int | None, older_than: Any, grace: timedelta, dry_run: bool
) -> None:
    """Delete old snapshots of a vstack, and all objects that no remaining snapshot uses."""
    show(open_store(store, allow).expire(keep=keep, older_than=older_than, grace=grace, dry_run=dry_run))


@store_command("compact", examples=["virtualstack compact cube.vstack", "virtualstack compact cube.vstack temperature"])
@click.argument("variables", metavar="[VARIABLE...]", nargs=-1, help="Name or path [default: all].")
@options.message
def compact(store: str, allow: tuple[str, ...], variables: tuple[str, ...], message: str | None) -> None:
    """Rewrite the references of a vstack in one place."""
    made = open_store(store, allow).compact(variables or None, message=message)
    show_snapshot(store, made)


def show_snapshot(store: str, made: Repository, /) -> None:
    """Show the number of a new snapshot."""
    show(f"{store}: snapshot {made.snapshot.number}")
