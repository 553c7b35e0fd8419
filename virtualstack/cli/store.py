"""Commands for a vstack: its history, its sources, and the removal of old snapshots."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from virtualstack.cli import options
from virtualstack.cli.commands import Command, choice, command, complete_files, option
from virtualstack.cli.facts import dry_facts, dry_text, iso_time, maybe_dry, plain
from virtualstack.cli.output import report, short_paths, wants_progress
from virtualstack.options import OnMissing
from virtualstack.sizes import human_bytes

if TYPE_CHECKING:
    from virtualstack.storage.dry_run import DryRun
    from virtualstack.vstack.expire import Expired
    from virtualstack.vstack.repository import Repository


def store_command(name: str, /, *, examples: list[str], **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that makes a command on a vstack, which is its first argument."""

    def decorate(function: Callable[..., Any]) -> Command:
        store = click.argument("store", shell_complete=complete_files, metavar="STORE", help="vstack: path or URL.")
        return command(name, examples=examples, **settings)(store(function))

    return decorate


def with_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options with which a store is opened, and that of JSON."""
    for each in (options.storage, options.as_json, options.allow):
        function = each(function)
    return function


def open_store(store: str, allow: tuple[str, ...], storage: Any, at: Any = None, /) -> Repository:
    """Return the repository of a command."""
    from virtualstack.vstack.repository import Repository

    return Repository.open(store, at=at, allow=allow, storage=storage)


def report_snapshot(
    store: str, before: Repository, made: Repository, record: DryRun | None, /, *, as_json: bool, **more: Any
) -> None:
    """Show the number of a new snapshot, or what a dry run would write."""
    number = made.snapshot.number
    is_new = number != before.snapshot.number
    facts = {"store": store, "snapshot": number, "is_new": is_new, **more, "dry_run": dry_facts(record)}

    def text() -> str:
        if record is not None:
            return dry_text(record, store)
        return f"{store}: snapshot {number}" if is_new else f"{store}: nothing to do, snapshot {number} stays"

    report(lambda: facts, text, as_json=as_json)


@store_command("log", examples=["virtualstack log cube.vstack", "virtualstack log cube.vstack --limit 1"])
@option("-n", "--limit", metavar="N", type=options.POSITIVE, default=50, help="How many [default: 50].")
@with_store
def log(store: str, allow: tuple[str, ...], storage: Any, limit: int, as_json: bool) -> None:
    """List the snapshots of a vstack, newest first."""
    found = open_store(store, allow, storage).log(limit)
    entries = [{**plain(entry), "time": iso_time(entry.time)} for entry in found.entries]
    report(lambda: {"store": found.url, "snapshots": entries}, lambda: "\n".join(found.lines()), as_json=as_json)


@store_command(
    "diff",
    examples=[
        "virtualstack diff cube.vstack",
        "virtualstack diff cube.vstack 0",
        "virtualstack diff cube.vstack 2026-01-31 -1",
    ],
    context_settings={"ignore_unknown_options": True},  # -1 is a snapshot
)
@click.argument(
    "before",
    metavar="[BEFORE]",
    type=options.SNAPSHOT,
    default=None,
    help="Number of a snapshot (-1: the newest), or a time when it was the newest [default: the one before AFTER].",
)
@click.argument("after", metavar="[AFTER]", type=options.SNAPSHOT, default=-1, help="The same [default: the newest].")
@with_store
def diff(store: str, allow: tuple[str, ...], storage: Any, before: Any, after: Any, as_json: bool) -> None:
    """Show what two snapshots of a vstack differ in."""
    found = open_store(store, allow, storage).diff(before, after)

    def facts() -> dict[str, Any]:
        changed = [{"path": path, **plain(each)} for path, each in found.changed.items()]
        return {**plain(found), "changed": changed}

    report(facts, lambda: found, as_json=as_json)


@store_command("verify", examples=["virtualstack verify cube.vstack", "virtualstack verify cube.vstack --sample 1%"])
@options.at
@option(
    "--sample",
    metavar="N",
    type=options.SAMPLE,
    default=0,
    help="Number of chunks, or percentage (1%), to compare with what the format's library reads.",
)
@with_store
def verify(store: str, allow: tuple[str, ...], storage: Any, at: Any, sample: int | float, as_json: bool) -> int:
    """Show which sources of a vstack have changed or are missing."""
    found = open_store(store, allow, storage, at).verify(sample=sample, progress=wants_progress())

    def facts() -> dict[str, Any]:
        facts = {"is_good": found.is_good, **plain(found), "time": iso_time(found.time)}
        facts["sources"] = [{"url": url, "status": status} for url, status in facts.pop("statuses").items()]
        return {**facts, "problems": plain(found.table), "chunks": plain(found.chunk_table)}

    report(facts, lambda: found, as_json=as_json)
    return 0 if found.is_good else 1


@store_command(
    "refresh", examples=["virtualstack refresh cube.vstack", "virtualstack refresh cube.vstack --missing mask"]
)
@option(
    "--missing",
    type=choice(OnMissing),
    default="keep",
    help="What to do with chunks of missing sources [default: keep; mask makes them missing values].",
)
@option(
    "--changed",
    type=choice(OnMissing),
    default="keep",
    help="What to do with chunks of changed sources that do not fit [default: keep; mask makes them missing values].",
)
@options.message
@options.dry_run
@options.reader
@options.executor
@with_store
def refresh(
    store: str,
    allow: tuple[str, ...],
    storage: Any,
    missing: OnMissing,
    changed: OnMissing,
    message: str | None,
    dry_run: bool,
    reader: str | None,
    executor: Any,
    as_json: bool,
) -> int:
    """Scan changed sources of a vstack again, and replace their chunks."""
    with maybe_dry(dry_run) as record:
        done = open_store(store, allow, storage).refresh(
            missing=missing,
            changed=changed,
            reader=reader,
            executor=executor,
            message=message,
            progress=wants_progress(),
        )

    def facts() -> dict[str, Any]:
        return {
            "store": store,
            "snapshot": done.repository.snapshot.number,
            "is_complete": done.is_complete,
            "sources": plain(done.table),
            "dry_run": dry_facts(record),
        }

    report(
        facts,
        lambda: short_paths(done if record is None else f"{dry_text(record, store)}\n{done}"),
        as_json=as_json,
    )
    return 0 if done.is_complete else 1


@store_command("relocate", examples=["virtualstack relocate cube.vstack /old/folder s3://bucket/folder/"])
@click.argument("old", shell_complete=complete_files, metavar="OLD", help="Old folder: path or URL.")
@click.argument("new", shell_complete=complete_files, metavar="NEW", help="New folder: path or URL.")
@options.message
@options.dry_run
@with_store
def relocate(
    store: str,
    allow: tuple[str, ...],
    storage: Any,
    old: str,
    new: str,
    message: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Change the folders in which sources of a vstack are."""
    repository = open_store(store, allow, storage)
    _check_folder(new, repository)
    with maybe_dry(dry_run) as record:
        made = repository.relocate({old: new}, message=message)
    report_snapshot(store, repository, made, record, as_json=as_json)


def _check_folder(folder: str, repository: Repository) -> None:
    """Refuse a new folder that does not exist, or has no file. Web servers cannot list theirs."""
    from virtualstack.errors import Remedy, SourceNotFoundError
    from virtualstack.location import absolute_url, join_url
    from virtualstack.storage.target import UnlistableError

    is_beside = f"{folder}/".startswith("../")  # relative to the store
    url = join_url(repository.url, folder) if is_beside else absolute_url(folder)
    try:
        first = repository.objects.storage.target(f"{url.rstrip('/')}/").first()
    except UnlistableError:
        return
    if first is None:
        raise SourceNotFoundError(
            f"there is no file in the new folder '{url}'",
            Remedy("copy or move the files first, or correct NEW"),
            url=url,
        )


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
@with_store
def expire(
    store: str,
    allow: tuple[str, ...],
    storage: Any,
    keep: int | None,
    older_than: Any,
    grace: timedelta,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete old snapshots of a vstack, and all objects that no remaining snapshot uses."""
    repository = open_store(store, allow, storage)
    done = repository.expire(keep=keep, older_than=older_than, grace=grace, dry_run=dry_run)
    deleted = len(done.snapshots) + len(done.objects)
    would = {"objects": 0, "bytes": _size(repository, done), "deleted": deleted} if dry_run else None
    report(
        lambda: {**plain(done), "dry_run": would},
        lambda: short_paths(done if would is None else f"{done}\nThey take {human_bytes(would['bytes'])}"),
        as_json=as_json,
    )


def _size(repository: Repository, done: Expired) -> int:
    """Return the bytes of the objects that would be deleted."""
    from virtualstack.errors import StorageError
    from virtualstack.vstack.format.names import snapshot_key

    objects = repository.objects
    keys = (*done.objects, *(snapshot_key(number) for number in done.snapshots))
    found = objects.storage.look_up([objects.url + key for key in keys])
    return sum(0 if isinstance(x, StorageError) else x.size or 0 for x in found)


@store_command("compact", examples=["virtualstack compact cube.vstack", "virtualstack compact cube.vstack temperature"])
@click.argument("variables", metavar="[VARIABLE...]", nargs=-1, help="Name or path [default: all].")
@options.message
@options.dry_run
@with_store
def compact(
    store: str,
    allow: tuple[str, ...],
    storage: Any,
    variables: tuple[str, ...],
    message: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Rewrite the references of a vstack in one place."""
    repository = open_store(store, allow, storage)
    with maybe_dry(dry_run) as record:
        made = repository.compact(variables or None, message=message)
    report_snapshot(store, repository, made, record, as_json=as_json)
