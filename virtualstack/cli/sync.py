"""``virtualstack sync``, ``ledger`` and ``recipe``: keep a vstack up to date with the files of its recipe."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

import click

from virtualstack.cli import options
from virtualstack.cli.commands import command, complete_files, option
from virtualstack.cli.facts import dry_facts, dry_text, iso_time, maybe_dry, plain
from virtualstack.cli.output import report, say, short_paths, show, wants_progress
from virtualstack.cli.store import open_store, store_command, with_store

if TYPE_CHECKING:
    from virtualstack.storage.dry_run import DryRun
    from virtualstack.vstack.repository import Repository
    from virtualstack.vstack.sync import Synced


@contextmanager
def _pool(n: int | None, executor: Any) -> Iterator[Any]:
    """Yield the processes of ``--workers``, or else the executor."""
    if n is None:
        yield executor
        return
    if executor is not None:
        raise click.UsageError("--workers are processes. Leave out --executor")
    from virtualstack.scanning.job import KillablePool

    with KillablePool(n) as pool:
        yield pool


_recipe = option(
    "--recipe",
    metavar="FILE",
    shell_complete=complete_files,
    help="Recipe to keep in the store; a store that does not exist is built by it [default: that of the store].",
)


@store_command(
    "sync",
    examples=[
        "virtualstack sync cube.vstack",
        "virtualstack sync cube.vstack --dry-run",
        "virtualstack sync cube.vstack --recipe recipe.toml",
        "virtualstack sync cube.vstack --workers 8",
    ],
)
@_recipe
@option("--retry", is_flag=True, help="Open quarantined files again. A new recipe does this too.")
@option("--reopen", is_flag=True, help="Open placed files again, for example because the recipe takes more variables.")
@options.sample
@options.message
@options.dry_run
@options.cache
@options.executor
@options.workers
@with_store
def sync(store: str, recipe: str | None, **given: Any) -> int:
    """Place the new and changed files of a vstack's recipe.

    Files that do not fit are quarantined, and do not stop others. Run it as often as you like, for example every night.
    """
    return run(store, recipe, **given)


def run(
    store: str,
    recipe: str | None,
    /,
    *,
    allow: tuple[str, ...],
    storage: Any,
    as_json: bool,
    dry_run: bool,
    retry: bool = False,
    reopen: bool = False,
    is_new: bool = False,
    workers: int | None = None,
    executor: Any = None,
    **given: Any,
) -> int:
    """Bring a store up to date, or build it, and return the exit status."""
    from virtualstack.errors import SourceNotFoundError
    from virtualstack.vstack.repository import Repository

    given["progress"] = wants_progress()
    with maybe_dry(dry_run) as record, _pool(workers, executor) as given["executor"]:
        repository: Repository | None = None
        try:
            repository = None if is_new else open_store(store, allow, storage)
        except SourceNotFoundError:
            if recipe is None:
                raise
        if repository is None and recipe is not None:
            done = Repository.build(store, recipe, allow=allow, storage=storage, **given)
        elif repository is not None:
            done = repository.sync(recipe=recipe, retry=retry, reopen=reopen, **given)

    text = done if record is None else f"{dry_text(record, store)}\n{done}"
    report(lambda: _facts(store, done, record), lambda: short_paths(text), as_json=as_json)
    return done.exit_code


def _facts(store: str, done: Synced[Repository], record: DryRun | None) -> dict[str, Any]:
    return {
        "store": store,
        "snapshot": done.repository.snapshot.number,
        "exit_code": done.exit_code,
        "files": plain(done.table),
        "expired": done.expired,
        "notes": done.notes,
        "chunks": [{"url": x.url, "variable": x.variable, "status": x.status} for x in done.chunks],
        "dry_run": dry_facts(record),
    }


@store_command(
    "watch",
    examples=["virtualstack watch cube.vstack", "virtualstack watch s3://bucket/cube.vstack --interval 30"],
)
@option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds between two listings [default: 1 for folders that cannot be watched, 3600 with --queue, else 60].",
)
@option(
    "--queue",
    metavar="URL",
    help="Queue of Amazon SQS that gets notifications of the files' buckets; each message begins a run.",
)
@options.sample
@options.cache
@options.executor
@options.workers
@with_store
def watch(
    store: str,
    allow: tuple[str, ...],
    storage: Any,
    as_json: bool,
    interval: float | None,
    queue: str | None,
    workers: int | None,
    executor: Any,
    **given: Any,
) -> None:
    """Place the files of a vstack's recipe as they come, until Ctrl-C or SIGTERM.

    It does what sync does, now and whenever files change, and prints a report of each run that finds something.
    """
    from virtualstack.vstack.sync import Synced

    stop = Event()
    repository = open_store(store, allow, storage)
    with _pool(workers, executor) as pool, _until_signal(stop):
        for found in repository.watch(interval=interval, queue=queue, stop=stop, executor=pool, **given):
            if isinstance(found, Synced):
                report(partial(_facts, store, found, None), partial(short_paths, found), as_json=as_json)
            else:
                say("warning", f"{found}. The next run tries again")


@contextmanager
def _until_signal(stop: Event) -> Iterator[None]:
    """Set an event at Ctrl-C or SIGTERM, so that a run which has begun is finished."""
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@store_command(
    "segment",
    examples=["virtualstack segment s3://bucket/cube.vstack --recipe recipe.toml --partition 17/100"],
)
@_recipe
@option(
    "--partition",
    metavar="I/N",
    type=options.PARTITION,
    default="1/1",
    help="Number of the part of the new files, from 1, and number of all parts [default: 1/1].",
)
@options.cache
@options.executor
@options.workers
@with_store
def segment(store: str, workers: int | None, executor: Any, recipe: str | None, as_json: bool, **given: Any) -> None:
    """Open a part of the new files of a vstack, for a later commit.

    Many machines may do this at the same time. What is done is kept below the vstack, and not done again.
    """
    from virtualstack.vstack.repository import Repository

    with _pool(workers, executor) as pool:
        n = Repository.segment(store, recipe, executor=pool, progress=wants_progress(), **given)
    report(lambda: {"store": store, "files": n}, lambda: f"{store}: {n:,} files opened", as_json=as_json)


@store_command("commit", examples=["virtualstack commit s3://bucket/cube.vstack --recipe recipe.toml"])
@_recipe
@options.sample
@options.message
@options.dry_run
@with_store
def commit(store: str, recipe: str | None, **given: Any) -> int:
    """Place what segment has opened, in one commit. Files that it has not opened stay pending."""
    return run(store, recipe, only_segments=True, **given)


@store_command("ledger", examples=["virtualstack ledger cube.vstack", "virtualstack ledger cube.vstack --json"])
@options.at
@with_store
def ledger(store: str, allow: tuple[str, ...], storage: Any, at: Any, as_json: bool) -> None:
    """Show what became of the files of a vstack's recipe: how many were placed, and why others were not."""
    from virtualstack.vstack.ledger import grouped

    found = open_store(store, allow, storage, at).ledger()

    def text() -> str:
        odd = found.where(["quarantined", "waiting", "masked", "pending", "vanished"]).entries()
        return "\n".join([repr(found), *(f"  {line}" for line in grouped((x.state, x.url, x.reason) for x in odd))])

    report(
        lambda: {"store": store, "counts": found.counts, "files": plain(found.table)},
        lambda: short_paths(text()),
        as_json=as_json,
    )


@store_command(
    "health", examples=["virtualstack health cube.vstack", "virtualstack health cube.vstack --prometheus > cube.prom"]
)
@options.at
@option("--prometheus", is_flag=True, help="Print gauges in the text format of Prometheus.")
@with_store
def health(store: str, allow: tuple[str, ...], storage: Any, at: Any, prometheus: bool, as_json: bool) -> int:
    """Show what a vstack lacks: labels that are late or missing, and files that do not fit."""
    found = open_store(store, allow, storage, at).health()

    def facts() -> dict[str, Any]:
        last = None if found.last_placed is None else iso_time(found.last_placed)
        return {"store": store, **found.to_json(), "time": iso_time(found.time), "last_placed": last}

    report(facts, lambda: found.to_prometheus().rstrip() if prometheus else short_paths(found), as_json=as_json)
    return found.exit_code


@command(
    "recipe",
    examples=[
        "virtualstack recipe init 'data/*.nc' > recipe.toml",
        "virtualstack recipe show cube.vstack > recipe.toml",
    ],
)
@click.argument(
    "action",
    metavar="init|show",
    type=click.Choice(["init", "show"]),
    help="init: write a recipe for files by a survey of them; show: print the recipe of a vstack.",
)
@click.argument(
    "places", shell_complete=complete_files, metavar="PLACE...", nargs=-1, required=True, help="Patterns, or a vstack."
)
@option("--dim", metavar="DIM", help="Dimension along which files follow each other [default: detected].")
@options.allow
@options.reader
@options.executor
@options.cache
@options.storage
def recipe(
    action: Literal["init", "show"],
    places: tuple[str, ...],
    dim: str | None,
    allow: tuple[str, ...],
    reader: str | None,
    executor: Any,
    cache: str | None,
    storage: Any,
) -> None:
    """Write a recipe of files, or print that of a vstack."""
    from virtualstack.errors import RecipeError
    from virtualstack.surveying import survey
    from virtualstack.vstack.recipe import drafted

    if action == "init":
        if not isinstance(reader, str | None):
            raise click.UsageError("init takes the name of a reader; write its options into the recipe")
        how: dict[str, Any] = {"reader": reader, "executor": executor, "cache": cache, "storage": storage}
        found = survey(places, dim=dim, allow=allow, progress=wants_progress(), **how)
        show(drafted(found, places, reader))
        return
    if len(places) > 1:
        raise click.UsageError("show takes one vstack")
    stored = open_store(places[0], allow, storage).recipe
    if stored is None:
        raise RecipeError(
            f"'{places[0]}' has no recipe. Give it one with 'virtualstack sync {places[0]} --recipe FILE'"
        )
    show(stored.text)
