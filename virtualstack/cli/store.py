"""Commands for a vstack: its history, its sources, and the removal of old snapshots."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import datetime, timedelta

from virtualstack.cli.options import AddCommand, add_allow, add_at, add_reader, snapshot, time
from virtualstack.cli.output import show, wants_progress
from virtualstack.vstack import Repository

__all__ = ["add_commands"]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def add_commands(add: AddCommand, /) -> None:
    """Add the commands ``log``, ``diff``, ``verify``, ``refresh``, ``relocate``, ``expire`` and ``compact``."""

    def add_store(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        command = add(name, run, help=help)
        command.add_argument("store", metavar="STORE", help="vstack; path or URL")
        add_allow(command)
        return command

    command = add_store("log", _log, "list the snapshots of a vstack, newest first")
    command.add_argument("-n", "--limit", metavar="N", type=_count, default=50, help="how many (default: 50)")
    command = add_store("diff", _diff, "show what two snapshots of a vstack differ in")
    which = "number of a snapshot (-1: the newest), or a time when it was the newest"
    command.add_argument("before", metavar="BEFORE", type=snapshot, help=which)
    command.add_argument("after", metavar="AFTER", type=snapshot, nargs="?", default=-1, help="default: the newest")
    command = add_store("verify", _verify, "show which sources of a vstack have changed or are missing")
    add_at(command)
    command.add_argument(
        "--sample",
        metavar="N",
        type=_sample,
        default=0,
        help="number of chunks, or percentage (1%%), to compare with what the format's library reads",
    )
    command = add_store("refresh", _refresh, "scan changed sources of a vstack again")
    command.add_argument(
        "--missing",
        choices=["keep", "mask"],
        default="keep",
        help="what to do with chunks of missing sources (default: keep; mask makes them missing values)",
    )
    command.add_argument("--unpack", action="store_true", help="if the store was built with --unpack all")
    command.add_argument("--executor", choices=["threads", "processes"], help="executor that reads the files")
    add_reader(command)
    _add_message(command)
    command = add_store("relocate", _relocate, "change the folders in which sources of a vstack are")
    command.add_argument("old", metavar="OLD", help="old folder; path or URL")
    command.add_argument("new", metavar="NEW", help="new folder; path or URL")
    _add_message(command)
    command = add_store(
        "expire", _expire, "delete old snapshots of a vstack, and all objects that no remaining snapshot uses"
    )
    command.add_argument("--keep", metavar="N", type=_count, help="number of newest snapshots to keep")
    command.add_argument(
        "--older-than",
        metavar="AGE",
        type=_age,
        help="keep snapshots that were the newest since then: an age such as 30d, or a time",
    )
    command.add_argument(
        "--grace",
        metavar="AGE",
        type=_duration,
        default=timedelta(days=1),
        help="longest time that readers and writers need; younger objects are kept (default: 1d)",
    )
    command.add_argument("--dry-run", action="store_true", help="delete nothing; show what would be deleted")
    command = add_store("compact", _compact, "rewrite the references of a vstack in one place")
    command.add_argument("variables", metavar="VARIABLE", nargs="*", help="name or path (default: all)")
    _add_message(command)


def _add_message(command: argparse.ArgumentParser) -> None:
    command.add_argument("-m", "--message", metavar="TEXT", help="message of the new snapshot")


# -- arguments ------------------------------------------------------------------------------------------------


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,11}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def _sample(text: str) -> int | float:
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?)%", text)
    if found is None:
        return _count(text)
    if not 0 < float(found[1]) <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not a count of chunks, or a percentage up to 100%")
    return float(found[1]) / 100


def _duration(text: str) -> timedelta:
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text if text != "0" else "0s")
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration such as 30m, 12h, 30d or 8w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _age(text: str) -> timedelta | datetime:
    if re.fullmatch(r"[0-9]+[a-z]", text):
        return _duration(text)
    return time(text)


# -- commands -------------------------------------------------------------------------------------------------


def _opened(options: argparse.Namespace) -> Repository:
    return Repository.open(options.store, at=getattr(options, "at", None), allow=options.allow)


def _log(options: argparse.Namespace) -> int:
    show("\n".join(_opened(options).log(options.limit).lines()))
    return 0


def _diff(options: argparse.Namespace) -> int:
    show(_opened(options).diff(options.before, options.after))
    return 0


def _verify(options: argparse.Namespace) -> int:
    found = _opened(options).verify(sample=options.sample, progress=wants_progress())
    show(found)
    return 0 if found.is_good else 1


def _refresh(options: argparse.Namespace) -> int:
    done = _opened(options).refresh(
        missing=options.missing,
        reader=options.reader,
        executor=options.executor,
        unpack=options.unpack,
        message=options.message,
    )
    show(done)
    return 0 if done.is_complete else 1


def _relocate(options: argparse.Namespace) -> int:
    made = _opened(options).relocate({options.old: options.new}, message=options.message)
    return _show_snapshot(options, made)


def _expire(options: argparse.Namespace) -> int:
    done = _opened(options).expire(
        keep=options.keep, older_than=options.older_than, grace=options.grace, dry_run=options.dry_run
    )
    show(done)
    return 0


def _compact(options: argparse.Namespace) -> int:
    made = _opened(options).compact(options.variables or None, message=options.message)
    return _show_snapshot(options, made)


def _show_snapshot(options: argparse.Namespace, made: Repository) -> int:
    show(f"{options.store}: snapshot {made.snapshot.number}")
    return 0
