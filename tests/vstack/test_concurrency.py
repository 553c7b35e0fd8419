"""Processes that write to one store at once, and processes that are killed as they write."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.data.watching import before_next_call
from tests.vstack import processes
from tests.vstack.stores import Change, create, objects_of, opened, values_of, virtual, written
from virtualstack.errors import WriterError
from virtualstack.vstack.format.names import HINT
from virtualstack.vstack.log import read_log
from virtualstack.vstack.recipe import Recipe
from virtualstack.vstack.repository import Repository
from virtualstack.vstack.save import Stored

N_WRITERS = 8


def place_of(where, tmp_path, request):
    """Give the URL of a new store, and how it is reached."""
    if where == "disk":
        return f"file://{tmp_path}/x.vstack", None
    s3 = request.getfixturevalue("s3")
    return f"s3://bucket/{tmp_path.name}/x.vstack", {"s3://bucket/": s3.options}


def sizes(n):
    """A few commits in each run of the tests, and as many as asked for with ``-m apart``."""
    return [3, pytest.param(n, marks=pytest.mark.apart)]


@pytest.mark.parametrize("n", sizes(50))
@pytest.mark.parametrize("where", ["disk", "s3"])
def test_writers_of_different_things(where, n, tmp_path, request):
    """Regions of one variable, and variables: every commit is a snapshot, and none is lost."""
    url, storage = place_of(where, tmp_path, request)
    half = N_WRITERS // 2
    create(url, {"v": virtual(tmp_path, range(half * n))}, storage)
    calls = [(processes.write_regions, (url, tmp_path, storage, i * n, n)) for i in range(half)]
    calls += [(processes.write_variables, (url, tmp_path, storage, f"w{i}", n)) for i in range(half)]
    calls.append((processes.read_meanwhile, (url, storage, n)))
    processes.run(processes.call, calls, at_most=600)
    log = read_log(objects_of(url, storage), None)
    assert [entry.number for entry in log] == list(range(N_WRITERS * n, -1, -1))
    wanted = [f"row {row}" for row in range(half * n)] + [f"w{i} {value}" for i in range(half) for value in range(n)]
    assert sorted(entry.message for entry in log[:-1]) == sorted(wanted)
    assert values_of(url, storage=storage) == list(range(1000, 1000 + half * n))
    for i in range(half):
        assert values_of(url, f"w{i}", storage=storage) == [n - 1]
    shown = json.loads(objects_of(url, storage).get(HINT, most=1 << 20))["attributes"]["virtualstack"]["snapshot"]
    assert shown == N_WRITERS * n  # the last hint that was written


@pytest.mark.parametrize("where", ["disk", "s3"])
def test_writers_of_different_labels(where, tmp_path, request):
    """They place their elements again where others were faster, and none is lost."""
    url, storage = place_of(where, tmp_path, request)
    Repository.create(url, processes.day(50), storage=storage)
    labels = [*range(7, 0, -1), 101]
    with processes.CONTEXT.Manager() as manager:
        barrier = manager.Barrier(N_WRITERS)
        calls = [(processes.add_at_once, (url, storage, label, barrier)) for label in labels]
        processes.run(processes.call, calls, at_most=240)
    found = Repository.open(url, storage=storage)
    assert found.snapshot.number == N_WRITERS
    wanted = sorted([*labels, 50])
    assert found.open_dataset()["time"].values.tolist() == wanted
    assert found.open_dataset()["v"][:, 0].values.tolist() == wanted


def day_file(folder, label):
    path = folder / f"{label}.nc"
    processes.day(label).to_netcdf(path, engine="h5netcdf")
    return path


@pytest.mark.parametrize("is_alike", [True, False])
def test_two_who_build_one_store(is_alike, tmp_path, monkeypatch):
    """By one recipe they make one store with all files; by two recipes the second is told."""
    url, recipe = tmp_path / "x.vstack", Recipe([f"{tmp_path}/*.nc"], dim="time")
    other = recipe if is_alike else replace(recipe, misfit="raise", text="")
    day_file(tmp_path, 0)

    def first():
        Repository.build(url, other)
        day_file(tmp_path, 1)

    before_next_call(monkeypatch, Stored, "write", first)
    if is_alike:
        assert Repository.build(url, recipe).repository.open_dataset()["time"].values.tolist() == [0, 1]
    else:
        with pytest.raises(WriterError, match="by another recipe"):
            Repository.build(url, recipe)


@pytest.mark.apart
def test_writers_while_snapshots_are_expired(tmp_path):
    """Nothing of what is written is lost, though all else is deleted as soon as it may be."""
    url, n = f"file://{tmp_path}/x.vstack", 40
    create(url, {"v": virtual(tmp_path, range(4 * n))})
    calls = [(processes.write_regions, (url, tmp_path, None, i * n, n)) for i in range(4)]
    calls.append((processes.expire_meanwhile, (url, None, 60, 20)))
    processes.run(processes.call, calls, at_most=600)
    assert values_of(url) == list(range(1000, 1000 + 4 * n))
    assert opened(url)[1].number == 4 * n
    assert Repository.open(url).expire(keep=1, grace=timedelta(0))
    assert values_of(url) == list(range(1000, 1000 + 4 * n))


@pytest.mark.parametrize("where", ["disk", "s3"])
def test_writers_of_one_chunk(where, tmp_path, request):
    """One of them wins, all others are told."""
    url, storage = place_of(where, tmp_path, request)
    create(url, {"v": virtual(tmp_path, range(4))}, storage)
    with processes.CONTEXT.Manager() as manager:
        barrier, results = manager.Barrier(N_WRITERS), manager.Queue()
        calls = [
            (processes.write_at_once, (url, tmp_path, storage, value, barrier, results)) for value in range(N_WRITERS)
        ]
        processes.run(processes.call, calls, at_most=120)
        found = [results.get() for _ in range(N_WRITERS)]
    (winner,) = (value for value in found if value is not None)
    assert values_of(url, storage=storage)[0] == winner
    assert opened(url, storage=storage)[1].number == 1


@pytest.mark.parametrize("n", [10, pytest.param(200, marks=pytest.mark.apart)])
def test_writers_that_are_killed(n, tmp_path):
    """Whatever they were at: what they said was committed is there, it is whole, and the next writer goes on."""
    url, said = f"file://{tmp_path}/x.vstack", tmp_path / "said"
    create(url, {"v": virtual(tmp_path, range(4))})
    said.write_text("0\n")
    dice = random.Random(1)
    seen = 0
    for _ in range(n):
        processes.kill_after(processes.write_for_ever, (url, tmp_path, str(said)), 0.1 + 0.3 * dice.random())
        number = opened(url)[1].number
        told = int(said.read_text().split()[-1])
        assert told <= number <= max(told, seen) + 1
        assert values_of(url) == list(range(4))
        seen = max(seen, number)
    assert seen >= n // 2
    assert [entry.number for entry in Repository.open(url).log()] == list(range(seen, -1, -1))
    Change(url, processes.same, overlays=written("v", 1, virtual(tmp_path, [7]))).commit()
    done = Repository.open(url).expire(keep=1, grace=timedelta(0))
    assert len(done.snapshots) == seen + 1
    assert values_of(url) == [0, 7, 2, 3]
    assert not list((tmp_path / "x.vstack" / ".vstack").rglob(".virtualstack-*"))
