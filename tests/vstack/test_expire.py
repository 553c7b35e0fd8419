"""Old snapshots go, and what only they used; nothing else does."""

from __future__ import annotations

import os
import resource
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
import virtualstack.vstack.expire as expiry
import virtualstack.vstack.save as save
from tests.data.watching import before_next_call
from tests.vstack.archive import change_snapshot, days, join
from tests.vstack.stores import (
    Change,
    added,
    appended,
    create,
    objects_of,
    opened,
    removed,
    values_of,
    virtual,
    written,
)
from virtualstack.errors import ConflictError, MalformedFileError, SourceNotFoundError, StorageError
from virtualstack.reading import read_array
from virtualstack.storage import LocalTarget, Storage
from virtualstack.vstack.format import names
from virtualstack.vstack.format.names import count_seconds
from virtualstack.vstack.reader import VStack
from virtualstack.vstack.repository import Repository
from virtualstack.vstack.write import commit as commits

DAY = timedelta(days=1)


class Clock:
    now = count_seconds("2000-01-01")

    def time(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 10**9)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def set_clock(patch):
    clock = Clock()
    for module in (commits, expiry, names):
        patch.setattr(module, "time", clock)
    patch.setattr(expiry, "_clock", lambda _: clock.now)
    patch.setattr(expiry, "_written", lambda _, keys: [None for _ in keys])
    return clock


@pytest.fixture
def clock(monkeypatch):
    return set_clock(monkeypatch)


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    """Ten snapshots, a day apart: a row more in each."""
    folder = tmp_path_factory.mktemp("ten")
    with pytest.MonkeyPatch.context() as patch:
        clock = set_clock(patch)
        create(folder / "x.vstack", {"v": virtual(folder, [0])})
        for n in range(1, 10):
            clock.now += DAY.total_seconds()
            Change(folder / "x.vstack", appended(range(n + 1), v=virtual(folder, [n]))).commit(f"row {n}")
    return folder


@pytest.fixture
def url(ten, clock):
    """The ten snapshots as they were made, half a day after the last."""
    clock.now += 9.5 * DAY.total_seconds()
    if (ten / "made").exists():
        shutil.rmtree(ten / "x.vstack")
        return shutil.copytree(ten / "made", ten / "x.vstack")
    shutil.copytree(ten / "x.vstack", ten / "made")
    return ten / "x.vstack"


def files(url: Path) -> set[str]:
    return {x.relative_to(url).as_posix() for x in (url / ".vstack").rglob("*") if x.is_file()}


def numbers(url) -> list[int]:
    return [entry.number for entry in Repository.open(url).log()]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, 0),
        ({"keep": 3}, 7),
        ({"keep": 100}, 0),
        ({"keep": 1}, 8),  # the last but one was the newest until half a day ago
        ({"keep": 1, "grace": timedelta(0)}, 9),
        ({"older_than": timedelta(days=3)}, 6),
        ({"older_than": "2000-01-05"}, 4),
        ({"older_than": "2000-01-04T12:00"}, 3),
        ({"older_than": "1999-01-05"}, 0),
        ({"older_than": "2100-01-05"}, 8),
        ({"older_than": timedelta(days=3), "keep": 5}, 5),
        ({"older_than": timedelta(days=8), "keep": 5}, 1),
    ],
)
def test_expire_keeps_snapshots_that_are_in_use(url, options, first):
    """What was the newest at a moment that is asked for, and what was within the grace period."""
    done = Repository.open(url).expire(**options)
    assert done.snapshots == tuple(range(first))
    assert numbers(url) == list(range(9, first - 1, -1))
    for number in range(first, 10):
        assert values_of(url, at=number) == list(range(number + 1))
    with pytest.raises(SourceNotFoundError):
        opened(url, first - 1 if first else 10)
    assert done.spared == ((8,) if options == {"keep": 1} or options == {"older_than": "2100-01-05"} else ())
    assert not done.spared or "1 snapshot stays for now: it was the newest" in repr(done)


def test_a_dry_run_tells_and_does_nothing(url):
    """And then it is done as it was told."""
    before = files(url)
    told = Repository.open(url).expire(keep=2, dry_run=True)
    assert files(url) == before
    assert "8 snapshots" in repr(told)
    assert "would be deleted" in repr(told)
    done = Repository.open(url).expire(keep=2)
    assert (told.snapshots, told.objects) == (done.snapshots, done.objects)
    gone = before - files(url)
    assert gone == {*done.objects, *(names.snapshot_key(number) for number in done.snapshots)}
    assert "were deleted" in repr(done)


def test_segments_that_are_still_used_stay(url, tmp_path):
    """Rows of the first commit are rows of the newest snapshot."""
    done = Repository.open(url).expire(keep=1, grace=timedelta(0))
    assert {key.split("/")[1] for key in done.objects} == {"bundles"}
    assert len(done.objects) == 8  # the first snapshot had no labels
    assert values_of(url) == list(range(10))
    assert values_of(url, "time") == list(range(10))


def test_a_compacted_store_lets_go_of_what_was_written_before(url, clock):
    """Its segments go, and their folders."""
    Repository.open(url).compact()
    clock.now += 2 * DAY.total_seconds()
    assert len(list((url / ".vstack/segments").iterdir())) == 11
    Repository.open(url).expire(keep=1)
    assert values_of(url) == list(range(10))
    assert len(list((url / ".vstack/segments").iterdir())) == 1
    assert Repository.open(url).expire(keep=1).objects == ()


def test_expire_deletes_objects_of_killed_writers(url, tmp_path, clock, monkeypatch):
    """Objects without a snapshot, and files that were not written to their end: once the grace period is over."""

    def killed(*args, **options):
        raise KeyboardInterrupt

    before = files(url)
    with monkeypatch.context() as patch:
        patch.setattr(LocalTarget, "put_if_absent", killed)
        with pytest.raises(KeyboardInterrupt):
            Change(url, appended(range(11), v=virtual(tmp_path, [10]))).commit()
    temporary = url / ".vstack/segments/.virtualstack-0123"
    temporary.write_bytes(b"half")
    os.utime(temporary, (clock.now, clock.now))
    left = files(url) - before
    assert len(left) == 3  # rows, labels, and the temporary file
    clock.now += 0.9 * DAY.total_seconds()
    assert Repository.open(url).expire().objects == ()
    clock.now += 0.2 * DAY.total_seconds()
    assert set(Repository.open(url).expire().objects) == left
    assert files(url) == before
    Change(url, appended(range(11), v=virtual(tmp_path, [10]))).commit()
    assert values_of(url) == list(range(11))


def test_a_writer_that_is_at_work(url, tmp_path, clock, monkeypatch):
    """Its objects stay, though nothing names them yet, and its commit holds."""
    change = Change(url, added(w=virtual(tmp_path, range(10), "w")))

    def expire():
        clock.now += 0.9 * DAY.total_seconds()
        Repository.open(url).expire(keep=1)

    before_next_call(monkeypatch, LocalTarget, "put_if_absent", expire)
    change.commit()
    assert numbers(url) == [10, 9]
    assert values_of(url, "w") == list(range(10))


def overwritten_twice(url, clock) -> xr.Dataset:
    """Overwrite rows and give them, in memory, as they were between; no other snapshot than that has their values."""
    number = Repository.open(url).write("v", {"time": slice(2, 4)}, 50).snapshot.number
    Repository.open(url).write("v", {"time": slice(2, 4)}, 60).compact()
    clock.now += 2 * DAY.total_seconds()
    return vs.open_virtual_dataset(url, reader=VStack(at=number))[["v"]].isel(time=[2, 3])


def test_what_is_put_back_of_an_old_snapshot_meanwhile(url, clock, monkeypatch):
    """Its values stay, though nothing used them when the run began."""
    old = overwritten_twice(url, clock)
    used = expiry._used

    def putting_back(*args):
        monkeypatch.setattr(expiry, "_used", used)
        found = used(*args)
        old.virtual.to_vstack(url, region={"time": slice(2, 4)})
        return found

    monkeypatch.setattr(expiry, "_used", putting_back)
    assert len(Repository.open(url).expire(keep=1).snapshots) == 12
    assert values_of(url) == [0, 1, 50, 50, *range(4, 10)]


def test_what_is_put_back_of_an_expired_snapshot(url, clock):
    """Its values are gone: it is refused, and not committed."""
    old = overwritten_twice(url, clock)
    Repository.open(url).expire(keep=1)
    with pytest.raises(ConflictError, match=r"values that this change would store again have expired .*/values/0'"):
        old.virtual.to_vstack(url, region={"time": slice(2, 4)})
    assert values_of(url) == [0, 1, 60, 60, *range(4, 10)]


def test_what_is_appended_of_an_expired_snapshot(url, clock, monkeypatch):
    """It is refused without more tries: no other writer was faster."""
    old = overwritten_twice(url, clock)
    Repository.open(url).expire(keep=1)
    pauses = []
    monkeypatch.setattr(save.time, "sleep", pauses.append)
    with pytest.raises(ConflictError, match="have expired"):
        Repository.open(url).append(
            old.assign_coords(time=old["time"] + (old["time"][1] - old["time"][0]) * 100), "time"
        )
    assert len(pauses) == 1


@pytest.mark.parametrize("n", range(0, 30, 3))
def test_an_interrupted_run(url, clock, monkeypatch, n):
    """After any number of deletions the store is whole, and the next run does the rest."""
    Repository.open(url).compact()
    clock.now += 2 * DAY.total_seconds()
    whole = Repository.open(url).expire(keep=1, dry_run=True)
    left = [n]
    delete = LocalTarget.delete

    def interrupted(self, key):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        delete(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(LocalTarget, "delete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Repository.open(url).expire(keep=1)
    for number in numbers(url):
        assert values_of(url, at=number) == list(range(min(number, 9) + 1))
    rest = Repository.open(url).expire(keep=1)
    assert len(rest.snapshots) + len(rest.objects) + n == len(whole.snapshots) + len(whole.objects)
    assert values_of(url) == list(range(10))
    assert Repository.open(url).expire(keep=1).objects == ()


def test_values_that_were_written_into_the_store(url, clock):
    """Chunks of the store's own stay as long as rows name them, though their segment's rows are not used any more."""
    Repository.open(url).write("v", {"time": slice(2, 4)}, np.full((2, 4), 50, "<i4"))
    Repository.open(url).compact()
    clock.now += 2 * DAY.total_seconds()
    done = Repository.open(url).expire(keep=1)
    assert not any("/values/" in key for key in done.objects)
    assert values_of(url) == [0, 1, 50, 50, *range(4, 10)]
    Change(url, removed("v")).commit()
    clock.now += 2 * DAY.total_seconds()
    assert any("/values/" in key for key in Repository.open(url).expire(keep=1).objects)
    assert not list((url / ".vstack/segments").iterdir())


def test_pages_of_tables(tmp_path, clock):
    """Those of the newest snapshot stay, and so do the segments that they alone name."""
    url = tmp_path / "x.vstack"
    create(url, {"v": virtual(tmp_path, range(300))})
    parts = [written("v", n, virtual(tmp_path, [1000 + n]))["/v"][0] for n in range(299, 0, -1)]
    for begin in (0, 140):
        Change(url, lambda group: group, overlays={"/v": parts[begin : begin + 140]}).commit()
    clock.now += 2 * DAY.total_seconds()
    done = Repository.open(url).expire(keep=1)
    assert [key.split("/")[1] for key in done.objects] == ["pages"]
    assert values_of(url) == [*range(20), *range(1020, 1300)]


def test_a_damaged_store_is_left_alone(url, clock):
    """What a snapshot uses that cannot be read is not known: nothing is deleted."""
    (url / names.snapshot_key(9)).write_bytes(b"damaged")
    before = files(url)
    with pytest.raises(MalformedFileError):
        Repository(objects_of(url), opened(url, 8)[1]).expire(keep=3)
    assert files(url) == before


def test_nothing_is_expired_where_the_place_of_a_source_is_not_known(url):
    """It may be in the store itself."""
    change_snapshot(url, lambda document: document["prefixes"].pop())
    before = files(url)
    with pytest.raises(MalformedFileError, match="has a source with prefix number"):
        Repository.open(url).expire(keep=1, grace=timedelta(0))
    assert files(url) == before


def test_expire_keeps_objects_that_are_not_of_the_store(url, clock):
    """Their names do not matter; and arguments are checked."""
    others = [".vstack/segments/notes.txt", ".vstack/pages/0123.json.gz", ".vstack/bundles/x/y", "data.nc"]
    for key in others:
        (url / key).parent.mkdir(exist_ok=True)
        (url / key).write_bytes(b"")
    clock.now += 100 * DAY.total_seconds()
    Repository.open(url).expire(keep=1, grace=timedelta(0))
    assert all((url / key).exists() for key in others)
    for options in ({"keep": 0}, {"grace": timedelta(-1)}, {"older_than": "soon"}):
        with pytest.raises(ValueError, match=r"newest snapshot is always kept|Give the longest|is not a time"):
            Repository.open(url).expire(**options)


def test_who_opened_what_was_expired_is_told_so(tmp_path):
    """And not to look for a disk: what is read later is gone."""
    url = tmp_path / "y.vstack"
    create(url, {"v": virtual(tmp_path, [0])})
    old = opened(url)[2].arrays["v"]
    Change(url, lambda group: replace(group, arrays={"v": virtual(tmp_path, [5])})).commit()
    Repository.open(url).expire(keep=1, grace=timedelta(0))
    with pytest.raises(SourceNotFoundError, match="its snapshot has expired since: open the store again"):
        read_array(old, ..., Storage.from_option(None))


@pytest.mark.parametrize("whose", ["writer", "expirer"])
def test_clocks_that_are_off(tmp_path, monkeypatch, whose):
    """What a writer is about to commit stays, though it is old by the clock of the one or the other."""
    url = tmp_path / "x.vstack"
    clock = Clock()
    clock.now = time.time() + (-3 if whose == "writer" else 3) * DAY.total_seconds()
    for module in (commits, names) if whose == "writer" else (expiry,):
        monkeypatch.setattr(module, "time", clock)
    create(url, {"v": virtual(tmp_path, [0])})
    Change(url, appended([0, 1], v=virtual(tmp_path, [1]))).commit()
    change = Change(url, appended([0, 1, 2], v=virtual(tmp_path, [2])))

    def expire_nothing():
        assert not Repository.open(url).expire(keep=1).objects

    before_next_call(monkeypatch, LocalTarget, "put_if_absent", expire_nothing)
    change.commit()
    assert values_of(url) == [0, 1, 2]
    assert values_of(url, "time") == [0, 1, 2]
    assert numbers(url) == [2, 1, 0]  # which were the newest a moment ago
    assert not [x for x in files(url) if "bundles" in x and not (url / x).stat().st_size]
    then = time.time() - 2 * DAY.total_seconds()
    for key in (url / ".vstack/snapshots").iterdir():
        os.utime(key, (then, then))
    assert len(Repository.open(url).expire(keep=1).snapshots) == (2 if whose == "writer" else 0)


@pytest.mark.parametrize("key", [".vstack/bundles/7fffffffffff0123456789ab", "v/.virtualstack-0123"])
def test_what_is_left_goes_by_the_clock_of_the_store(tmp_path, key):
    """Of writers that were killed: one whose clock is in the year 6429, and one of the view that zarr sees."""
    url = tmp_path / "x.vstack"
    create(url, {"v": virtual(tmp_path, [0])})
    left = url / key
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"left")
    assert not Repository.open(url).expire().objects
    then = time.time() - 2 * DAY.total_seconds()
    os.utime(left, (then, then))
    assert Repository.open(url).expire().objects == (key,)
    assert not left.exists()


def test_a_full_disk(tmp_path):
    """It is made room on, though not a byte can be written."""
    url = tmp_path / "x.vstack"
    create(url, {"v": virtual(tmp_path, [0])})
    Change(url, appended(range(2), v=virtual(tmp_path, [1]))).commit()
    change = Change(url, added(w=virtual(tmp_path, [1], "w")))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(StorageError, match="write failed"):
            change.commit()
        done = Repository.open(url).expire(keep=1, grace=timedelta(0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.snapshots == (0,)
    assert values_of(url) == [0, 1]


def test_a_bucket(tmp_path, s3_server):
    """It tells whole seconds, and a grace period of none is none."""
    storage = {"s3://bucket": s3_server.options}
    url = "s3://bucket/expire/x.vstack"
    create(url, {"v": virtual(tmp_path, [0])}, storage)
    for n in range(1, 4):
        Change(url, appended(range(n + 1), v=virtual(tmp_path, [n])), storage=storage).commit()
    repository = Repository.open(url, storage=storage, allow="file:///")
    assert not repository.expire(keep=1).snapshots
    done = repository.expire(keep=1, grace=timedelta(0))
    assert done.snapshots == (0, 1, 2)
    assert len(done.objects) == 2
    assert not repository.expire(keep=1, grace=timedelta(0)).objects
    assert values_of(url, storage=storage) == [0, 1, 2, 3]


def test_nothing_is_expired_where_no_snapshot_is_left(tmp_path):
    """The store was deleted since it was opened."""
    xr.Dataset({"v": ("x", [1.0])}).virtual.to_vstack(tmp_path / "x.vstack")
    store = vs.Repository.open(tmp_path / "x.vstack")
    shutil.rmtree(tmp_path / "x.vstack")
    with pytest.raises(SourceNotFoundError, match="is not a vstack"):
        store.expire(keep=1)


@pytest.mark.parametrize("row", [["a", 0, 0, 0, 1, 0, 1], [], {"0": 1}, 5, [None]])
def test_nothing_is_expired_where_a_placement_is_damaged(tmp_path, row):
    """What it refers to may be all that is there."""
    join(days(tmp_path, 2)).virtual.to_vstack(tmp_path / "x.vstack")
    store = vs.Repository.open(tmp_path / "x.vstack")
    change_snapshot(tmp_path / "x.vstack", lambda x: x["arrays"]["/t"]["placements"].update(tail=[row]))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(MalformedFileError):
        store.expire(keep=1, grace=timedelta(0))
    assert sorted(tmp_path.rglob("*")) == before
