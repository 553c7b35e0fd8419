"""What processes do that write to one store at the same time; each in a module of its own to be found by name."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import xarray as xr

from tests.vstack.stores import ALLOW, Change, added, objects_of, values_of, virtual, written
from virtualstack.errors import ConflictError
from virtualstack.vstack.reader import open_snapshot
from virtualstack.vstack.repository import Repository

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.vstack.processes"])


def run(target: Callable[..., None], calls: Sequence[tuple[object, ...]], *, at_most: float) -> None:
    """Call a function in as many processes, and wait for all."""
    processes = [CONTEXT.Process(target=target, args=call) for call in calls]
    for process in processes:
        process.start()
    end = time.monotonic() + at_most
    for process in processes:
        process.join(max(end - time.monotonic(), 0))
    hanging = [process for process in processes if process.is_alive()]
    for process in hanging:
        process.kill()
    assert not hanging
    assert [process.exitcode for process in processes] == [0] * len(calls)


def call(function: Callable[..., None], arguments: tuple[object, ...]) -> None:
    function(*arguments)


def same(group):
    return group


def write_regions(url: str, folder: Path, storage, first: int, n: int) -> None:
    """Overwrite rows of ``v`` one by one, a commit each."""
    for row in range(first, first + n):
        change = Change(url, same, storage, overlays=written("v", row, virtual(folder, [1000 + row])))
        change.commit(f"row {row}")


def write_variables(url: str, folder: Path, storage, name: str, n: int) -> None:
    """Make a variable anew again and again, a commit each."""
    for value in range(n):
        new = virtual(folder, [value], name, dim=f"{name}_rows")
        Change(url, added(**{name: new}), storage).commit(f"{name} {value}")


def read_meanwhile(url: str, storage, n: int) -> None:
    """Read all that others are writing: each row is what it was or what it became."""
    for _ in range(n):
        values = values_of(url, storage=storage)
        assert all(value in (row, 1000 + row) for row, value in enumerate(values))


def expire_meanwhile(url: str, storage, seconds: float, grace: float) -> None:
    """Expire all that a grace period allows, again and again."""
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        objects = objects_of(url, storage)
        repository = Repository(objects, open_snapshot(objects, None), ALLOW)
        n += len(repository.expire(keep=1, grace=timedelta(seconds=grace)).snapshots)
    assert n


def write_at_once(url: str, folder: Path, storage, value: int, barrier, results) -> None:
    """Overwrite the first row as all others do, and say whether it was done."""
    change = Change(url, same, storage, overlays=written("v", 0, virtual(folder, [value])))
    barrier.wait()
    try:
        change.commit()
    except ConflictError:
        results.put(None)
    else:
        results.put(value)


def add_at_once(url: str, storage, label: int, barrier) -> None:
    """Add a label as all others do, each behind or between those of the others, to the same snapshot."""
    repository, part = Repository.open(url, storage=storage), day(label)
    barrier.wait()
    getattr(repository, "append" if label > 100 else "update")(part, "time")


def day(label: int) -> xr.Dataset:
    """Make an element at a label, which has it as its value."""
    return xr.Dataset({"v": (("time", "x"), np.full((1, 3), float(label)))}, {"time": [label]})


def write_for_ever(url: str, folder: Path, said: str) -> None:
    """Overwrite rows in turn by ascending values; what was committed is said in a file."""
    rows = [virtual(folder, [value]) for value in range(4)]
    for turn in range(10**9):
        change = Change(url, same, overlays=written("v", turn % 4, rows[turn % 4]))
        number = change.commit(f"turn {turn}").number
        with open(said, "a") as file:  # noqa: PTH123 - one write, which a kill does not part
            file.write(f"{number}\n")


def kill_after(target: Callable[..., None], call: tuple[object, ...], seconds: float) -> None:
    """Start a process and kill it, at whatever it is."""
    process = CONTEXT.Process(target=target, args=call)
    process.start()
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
