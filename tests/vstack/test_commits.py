"""Two writers on one store: both succeed where they change different things, or one is told."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from tests.vstack.stores import (
    ALLOW,
    Change,
    added,
    appended,
    create,
    create_rows,
    labels,
    objects_of,
    opened,
    removed,
    values_of,
    virtual,
    written,
)
from virtualstack.errors import ConflictError, SourceNotFoundError, StorageError, WriterError
from virtualstack.manifests import ManifestGroup
from virtualstack.vstack.format.history import OpenStore
from virtualstack.vstack.format.names import SEGMENTS, SNAPSHOTS, refs_key, snapshot_key, values_key
from virtualstack.vstack.reader import permission_for_snapshot
from virtualstack.vstack.repository import Repository
from virtualstack.vstack.write import commit as commits
from virtualstack.vstack.write.write import write_group


@pytest.fixture
def url(tmp_path):
    return create_rows(tmp_path)


def with_attributes(name, **attributes):
    def change(group):
        array = group.arrays[name]
        return added(**{name: replace(array, attributes={**array.attributes, **attributes})})(group)

    return change


def same(group):
    return group


def test_new_variables_are_both_there(url, tmp_path):
    """Each writer has its own variable: none is lost."""
    a = Change(url, added(a=virtual(tmp_path, [1, 2, 3, 4], "a")))
    b = Change(url, added(b=virtual(tmp_path, [5, 6, 7, 8], "b")))
    assert [a.commit().number, b.commit().number] == [1, 2]
    assert values_of(url, "a") == [1, 2, 3, 4]
    assert values_of(url, "b") == [5, 6, 7, 8]
    assert values_of(url) == [0, 1, 2, 3]


ROW = "a row that another writer puts new values into"
CONFLICTS = {
    "the same name": (
        lambda folder: [added(a=virtual(folder, [n, 2, 3, 4], "a")) for n in (1, 5)],
        "changed variable '/a'",
        {"a": [1, 2, 3, 4], "v": [0, 1, 2, 3]},
    ),
    "both are the rows behind the fourth": (
        lambda folder: [appended(range(5), v=virtual(folder, [n])) for n in (10, 20)],
        "another writer changed variable",
        {"v": [0, 1, 2, 3, 10]},
    ),
    "a new variable as long as time was": (
        lambda folder: [appended(range(5), v=virtual(folder, [10])), added(w=virtual(folder, range(4), "w"))],
        "the length of dimension 'time'",
        {"v": [0, 1, 2, 3, 10]},
    ),
    "values for labels that are others now": (
        lambda folder: [added(time=labels([7, 8, 9, 10])), ROW],
        "the labels '/time' of variable '/v'",
        {"v": [0, 1, 2, 3], "time": [7, 8, 9, 10]},
    ),
    "values of a variable that was removed": (
        lambda folder: [removed("v"), ROW],
        "changed variable '/v'",
        {"time": [0, 1, 2, 3]},
    ),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_the_second_of_two_changes_is_told(url, tmp_path, case):
    """It was begun before the first one, which stays; nothing of the second is there."""
    make, message, wanted = CONFLICTS[case]
    overlays = written("v", 1, virtual(tmp_path, [20]))
    a, b = (Change(url, same, overlays=overlays) if x is ROW else Change(url, x) for x in make(tmp_path))
    a.commit()
    with pytest.raises(ConflictError, match=message):
        b.commit()
    assert opened(url)[1].number == 1
    found = {name: values_of(url, name) for name in opened(url)[2].arrays}
    assert found == {"time": found["time"], **wanted}


def test_regions_of_one_variable(url, tmp_path):
    """Chunks apart from each other are both written; the same chunk is not."""
    changes = [
        Change(url, same, overlays=written("v", first, virtual(tmp_path, [value])))
        for first, value in ((0, 10), (2, 20), (0, 30))
    ]
    changes[0].commit()
    changes[1].commit()
    with pytest.raises(ConflictError, match="the same chunks of variable '/v'"):
        changes[2].commit()
    assert values_of(url) == [10, 1, 20, 3]
    assert values_of(url, at=1) == [10, 1, 2, 3]


@pytest.mark.parametrize("append_first", [True, False])
def test_a_region_is_written_while_another_writer_appends(url, tmp_path, append_first):
    """Neither moves the chunks of the other."""
    a = Change(url, appended(range(5), v=virtual(tmp_path, [10])))
    b = Change(url, same, overlays=written("v", 1, virtual(tmp_path, [20])))
    for change in (a, b) if append_first else (b, a):
        change.commit()
    assert values_of(url) == [0, 20, 2, 3, 10]
    assert values_of(url, "time") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("attributes_first", [True, False])
def test_attributes_of_another_writer_stay(url, tmp_path, attributes_first):
    """Who writes chunks of a variable does not bring its old attributes back; other ones meanwhile conflict."""
    a = Change(url, with_attributes("v", title="new"))
    b = Change(url, same, overlays=written("v", 1, virtual(tmp_path, [20])))
    c = Change(url, with_attributes("v", title="other"))
    for change in (a, b) if attributes_first else (b, a):
        change.commit()
    assert opened(url)[2].arrays["v"].attributes == {"title": "new"}
    assert values_of(url) == [0, 20, 2, 3]
    with pytest.raises(ConflictError, match="metadata of variable '/v'"):
        c.commit()


@pytest.mark.parametrize("removed_first", [True, False])
def test_a_group_that_one_removes_and_another_adds_to(url, tmp_path, removed_first):
    """The store stays a tree: what was added is not left without its group."""
    Change(url, lambda group: replace(group, groups={"g": ManifestGroup()})).commit()
    a = Change(url, lambda group: replace(group, groups={}))
    w = virtual(tmp_path, [1], "w")
    b = Change(url, lambda group: replace(group, groups={"g": replace(group.groups["g"], arrays={"w": w})}))
    first, second = (a, b) if removed_first else (b, a)
    first.commit()
    with pytest.raises(ConflictError, match="the groups around '/g/w'"):
        second.commit()
    found = {name: [*group.arrays] for name, group in opened(url)[2].groups.items()}
    assert found == ({} if removed_first else {"g": ["w"]})


def test_two_first_commits(tmp_path):
    """Of two writers that find no store one makes it."""
    base = commits.EMPTY_STORE
    a, b = ({"v": virtual(tmp_path, [n])} for n in (1, 2))
    create(tmp_path / "x.vstack", a)
    objects = objects_of(tmp_path / "x.vstack")
    with pytest.raises(ConflictError):
        write_group(OpenStore(objects, permission_for_snapshot(objects.url, base, ())), base, ManifestGroup(arrays=b))
    assert values_of(tmp_path / "x.vstack") == [1]


class Lossy:
    """A target whose answers to a create are lost."""

    def __init__(self, target, *, before: bool) -> None:
        self.target, self.before = target, before

    def __getattr__(self, name):
        return getattr(self.target, name)

    def put_if_absent(self, key, data):
        if not self.before:
            self.target.put_if_absent(key, data)
        raise StorageError("the connection broke", url=key)


def test_a_commit_whose_answer_is_lost(url, tmp_path):
    """It was made: the writer sees that it is there. It was not: the error is raised, and nothing is there."""
    for before, number in ((False, 1), (True, 1)):
        change = Change(url, added(a=virtual(tmp_path, [1] * 4, "a")) if not before else removed("a"))
        target = change.objects.target
        change.objects.__dict__["_target"] = Lossy(target, before=before)
        if before:
            with pytest.raises(StorageError, match="the connection broke"):
                change.commit()
        else:
            assert change.commit().number == number
        assert opened(url)[1].number == number
    assert values_of(url, "a") == [1] * 4


def test_a_request_that_is_sent_twice(url, tmp_path, monkeypatch):
    """The first was answered too late, the second finds what the first made: that is the commit."""
    change = Change(url, added(a=virtual(tmp_path, [1] * 4, "a")))
    target = change.objects.target
    put = type(target).put_if_absent
    monkeypatch.setattr(type(target), "put_if_absent", lambda *a: put(*a) and put(*a))
    assert change.commit().number == 1
    assert opened(url)[1].number == 1


def test_a_number_that_was_expired_is_not_taken_again(url, tmp_path):
    """A writer that slept while others committed and expired does not commit into the past."""
    slow = Change(url, same, overlays=written("v", 0, virtual(tmp_path, [50])))
    for n in range(3):
        Change(url, same, overlays=written("v", 3, virtual(tmp_path, [60 + n]))).commit()
    (url / snapshot_key(1)).unlink()
    assert slow.commit().number == 4
    assert values_of(url) == [50, 1, 2, 62]


def test_a_base_that_was_expired(url, tmp_path):
    """What the change points to may be gone with it."""
    slow = Change(url, same, overlays=written("v", 0, virtual(tmp_path, [50])))
    Change(url, same, overlays=written("v", 3, virtual(tmp_path, [60]))).commit()
    (url / snapshot_key(0)).unlink()
    with pytest.raises(ConflictError, match=r"snapshot 0 .* has expired"):
        slow.commit()


def test_chunks_of_a_snapshot_that_was_expired(url, tmp_path):
    """A dataset of an earlier snapshot is not saved once that was expired: its rows may be gone."""
    old = opened(url)[2].arrays["v"]
    Change(url, removed("v")).commit()
    Change(url, added(w=old)).commit()
    assert values_of(url, "w") == [0, 1, 2, 3]
    (url / snapshot_key(0)).unlink()
    with pytest.raises(ConflictError, match=r"snapshot 0 .* has expired"):
        Change(url, added(u=old)).commit()


@pytest.mark.parametrize("key", [lambda name: refs_key(name, 0), lambda name: values_key(name, 0)])
def test_a_segment_that_was_taken_for_a_left_one(url, monkeypatch, key):
    """What took longer than the grace period may have been deleted before its commit."""
    monkeypatch.setattr(commits, "GRACE_SECONDS", -1.0)
    store = Repository.open(url, allow=ALLOW).write("v", {"time": 0}, 5)
    assert store.snapshot.number == 1  # it is there
    check = commits._check_kept

    def expired(segment, keys, objects):
        objects.target.delete(key(segment.name))
        check(segment, keys, objects)

    monkeypatch.setattr(commits, "_check_kept", expired)
    with pytest.raises(ConflictError, match="by an expire before the commit"):
        store.write("v", {"time": 1}, 5)
    assert opened(url)[1].number == 1
    assert values_of(url) == [5, 1, 2, 3]


def test_times_ascend_though_clocks_do_not(url, monkeypatch):
    """A writer whose clock is behind does not commit before its predecessor."""
    first = opened(url)[1].time
    monkeypatch.setattr(commits.time, "time", lambda: 5.0)
    change = Change(url, removed("v"))
    assert change.commit().time == round(first + 1e-6, 6)


def test_times_have_whole_microseconds(url, monkeypatch):
    """As texts and `datetime` have them."""
    now = opened(url)[1].time + 100.12345678
    monkeypatch.setattr(commits.time, "time", lambda: now)
    assert Change(url, removed("v")).commit().time == round(now, 6) != now


def test_datasets_that_are_opened_at_one_time(url, tmp_path):
    """Whole datasets that are put back hold what their writers saw: what others committed since is not lost."""
    vs.open_virtual_dataset(str(url)).virtual.to_vstack(url.parent / "y.vstack")
    url = url.parent / "y.vstack"
    a, b, c = (vs.open_virtual_dataset(str(url)) for _ in range(3))
    make = virtual(tmp_path, [1, 2, 3, 4])
    a.assign(a=(("time", "x"), make)).virtual.to_vstack(url, mode="w")
    b.assign(b=(("time", "x"), make)).virtual.to_vstack(url, mode="w")
    assert values_of(url, "a") == values_of(url, "b") == [1, 2, 3, 4]
    with pytest.raises(ConflictError, match="changed variable '/b'"):
        c.assign(b=(("time", "x"), make)).virtual.to_vstack(url, mode="w")
    xr.testing.assert_identical(vs.open_virtual_dataset(str(url))[["v", "time"]], c)


def test_datasets_that_were_opened_at_several_times(url, tmp_path):
    """What the newest of them shows is what its writer saw, so that nobody else has changed it."""
    vs.open_virtual_dataset(str(url)).virtual.to_vstack(url.parent / "y.vstack")
    url = url.parent / "y.vstack"
    first = vs.open_virtual_dataset(str(url))
    changed = first.assign(v=(("time", "x"), virtual(tmp_path, [5, 6, 7, 8])), w=(("time", "x"), first.v.data))
    changed.virtual.to_vstack(url, mode="w")
    second = vs.open_virtual_dataset(str(url))
    second.assign(old=(("time", "x"), first.v.data)).drop_vars("w").virtual.to_vstack(url, mode="w")
    newest = vs.open_virtual_dataset(str(url))
    assert set(newest.variables) == {"time", "v", "old"}
    assert (values_of(url), values_of(url, "old")) == ([5, 6, 7, 8], values_of(url, at=0))


def test_a_snapshot_that_was_asked_for_is_put_back(url, tmp_path):
    """It comes into the place of all that was committed since, wherever the store says that its files are now."""
    Change(url, appended(range(5), v=virtual(tmp_path, [9]))).commit()
    Change(url, added(w=virtual(tmp_path, [1, 2, 3, 4, 5], "w"))).commit()
    Change(url, with_attributes("time", note="wrong")).commit()
    old = vs.open_virtual_dataset(str(url), reader=vs.readers.VStack(at=0))
    old.virtual.to_vstack(url, mode="w", message="back to 0")
    assert [(x.number, x.message) for x in Repository.open(url).log(limit=1)] == [(4, "back to 0")]
    newest = vs.open_virtual_dataset(str(url))
    xr.testing.assert_identical(newest, old)
    assert "w" not in newest
    assert values_of(url) == [0, 1, 2, 3]
    assert values_of(url, at=3) == [0, 1, 2, 3, 9]
    vs.open_virtual_dataset(str(url), reader=vs.readers.VStack(at=-2)).virtual.to_vstack(url, mode="w")
    assert values_of(url) == [0, 1, 2, 3, 9]
    assert values_of(url, "w") == [1, 2, 3, 4, 5]
    of_newest = vs.open_virtual_dataset(str(url))["w"].isel(time=slice(0, 4))
    old.assign(w=of_newest, note=((), 1)).drop_vars("v").virtual.to_vstack(url, mode="w")
    assert set(vs.open_virtual_dataset(str(url)).variables) == {"time", "w", "note"}
    assert values_of(url, "w") == [1, 2, 3, 4]


def test_a_store_that_was_opened_long_ago_puts_nothing_back(url, tmp_path):
    """It would be a snapshot that is the same as the one before, which nobody asks for."""
    first = vs.open_virtual_dataset(str(url))
    first.virtual.to_vstack(url.parent / "y.vstack")
    url = url.parent / "y.vstack"
    old = vs.open_virtual_dataset(str(url))
    Change(url, appended(range(5), v=virtual(tmp_path, [9]))).commit()
    with pytest.raises(ConflictError, match=r"nothing was changed since snapshot 0.*VStack\(at=0\)"):
        old.virtual.to_vstack(url, mode="w")
    assert vs.open_virtual_dataset(str(url)).sizes["time"] == 5
    assert len(Repository.open(url).log()) == 2


def test_datasets_whose_variables_are_all_loaded(tmp_path):
    """They know what they were opened from, too."""
    url = tmp_path / "x.vstack"
    xr.Dataset({"q": ("x", [1.0, 2.0])}, {"x": [0, 1]}).virtual.to_vstack(url)
    a, b = (vs.open_virtual_dataset(url) for _ in range(2))
    a.assign(a=("x", [3.0, 4.0])).virtual.to_vstack(url, mode="w")
    b.assign(b=("x", [5.0, 6.0])).virtual.to_vstack(url, mode="w")
    assert set(vs.open_virtual_dataset(url).variables) == {"x", "q", "a", "b"}
    with pytest.raises(ConflictError, match="nothing was changed since snapshot 0"):
        b.virtual.to_vstack(url, mode="w")
    with pytest.raises(ConflictError, match="changed variable '/b'"):
        a.assign(b=("x", [7.0, 8.0])).virtual.to_vstack(url, mode="w")
    earlier = vs.open_virtual_dataset(url, reader=vs.readers.VStack(at=0))
    earlier.virtual.to_vstack(url, mode="w")
    xr.testing.assert_identical(vs.open_virtual_dataset(url), earlier)


def test_what_two_writers_say_of_a_group(url, tmp_path):
    """Attributes, coordinates and dimensions of each are there; of one attribute there is one value."""
    a = Change(url, lambda group: replace(group, attributes={"a": 1}, coordinates={"a"}, dimensions={"time": 4}))
    b = Change(url, lambda group: replace(group, attributes={"b": np.arange(3)}, coordinates={"b"}, loaded={"time"}))
    c = Change(url, lambda group: replace(group, attributes={"a": 2}))
    a.commit()
    b.commit()
    group = opened(url)[2]
    assert group.attributes["a"] == 1
    assert group.attributes["b"].tolist() == [0, 1, 2]
    assert (group.coordinates, group.dimensions, group.loaded) == ({"a", "b"}, {"time": 4}, {"time"})
    with pytest.raises(ConflictError, match="'a' of the attributes of group '/'"):
        c.commit()
    Change(url, lambda group: replace(group, attributes={"b": 1})).commit()
    assert opened(url)[2].attributes == {"b": 1}


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_changes_in_any_order(tmp_path_factory, data):
    """Each is committed as if it were made then, or not at all; whenever it was begun."""
    folder = tmp_path_factory.mktemp("order")
    url, serial = create_rows(folder), iter(range(1000, 9000))
    rows, attributes = list(range(4)), {}
    begun = []
    for _ in range(data.draw(st.integers(2, 10))):
        value, n = next(serial), len(rows)
        match data.draw(st.sampled_from(["append", "write", "note", "compact", "commit", "commit", "commit"])):
            case "append":
                begun.append((Change(url, appended(range(n + 1), v=virtual(folder, [value]))), "append", n, value))
            case "write":
                row = data.draw(st.integers(0, n - 1))
                change = Change(url, same, overlays=written("v", row, virtual(folder, [value])))
                begun.append((change, "write", row, value))
            case "note":
                begun.append((Change(url, with_attributes("v", note=value)), "note", None, value))
            case "compact":
                begun.append((Repository.open(url, allow=ALLOW), "compact", None, None))
            case "commit" if begun:
                change, kind, row, value = begun.pop(data.draw(st.integers(0, len(begun) - 1)))
                try:
                    change.compact() if kind == "compact" else change.commit()
                except ConflictError:
                    kind = None
                if kind == "append":
                    assert row == len(rows)
                    rows.append(value)
                elif kind == "write":
                    rows[row] = value
                elif kind == "note":
                    attributes["note"] = value
                assert values_of(url) == rows
                assert values_of(url, "time") == list(range(len(rows)))
                assert opened(url)[2].arrays["v"].attributes == attributes


def test_dask_tells_two_snapshots_apart(url):
    """Xarray names dask's chunks by the time of modification of what it opens: each commit is another one."""
    pytest.importorskip("dask")
    before = xr.open_dataset(url, engine="virtualstack", chunks={})
    was = before["v"].values
    Repository.open(url).write("v", {"time": slice(0, 2)}, was[:2] + 1)
    after = xr.open_dataset(url, engine="virtualstack", chunks={})
    np.testing.assert_array_equal((after["v"] - before["v"]).values, after["v"].values - was)
    assert (after["v"].values != was).any()


def test_a_message_that_is_no_text(url):
    """Is refused: the store could not be opened any more."""
    with pytest.raises(TypeError, match="message=3 is not a text"):
        Repository.open(url).write("v", {"time": 0}, 7, message=3)
    assert Repository.open(url).snapshot.number == 0


def test_what_could_not_be_read_is_not_committed(tmp_path, monkeypatch):
    """Whatever it is: a snapshot that no reader takes would hide those before it."""
    monkeypatch.setattr("virtualstack.vstack.format.snapshot._MAX_NODES", 1)
    with pytest.raises(
        WriterError,
        match=r"could not be read with this change, and nothing was committed: it has \d groups and arrays; at most 1",
    ):
        create(tmp_path / "y.vstack", {"v": virtual(tmp_path, [0])})
    with pytest.raises(SourceNotFoundError):
        Repository.open(tmp_path / "y.vstack")


def test_a_commit_that_returned_outlives_a_loss_of_power(tmp_path, monkeypatch):
    """The names of its objects are synchronised before the snapshot gets its name, and that name before it returns."""
    events, fsync, link = [], os.fsync, os.link

    def record_sync(number):
        path = Path(f"/proc/self/fd/{number}").readlink()
        if path.is_dir():
            events.append(path)
        fsync(number)

    def record_link(source, target, **options):
        link(source, target, **options)
        if SNAPSHOTS in str(target):  # another link makes the key of this account
            events.append("commit")

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "link", record_link)
    store = tmp_path / "new" / "newer" / "x.vstack"
    create(store, {"v": virtual(tmp_path, range(4)), "time": labels(range(4))})
    before, after = events[: events.index("commit")], events[events.index("commit") + 1 :]
    objects = {path for path in (store / SEGMENTS).rglob("*") if path.is_file()}
    assert objects
    assert {path.parent for path in objects} | {store / SEGMENTS, store, *store.parents[:3]} <= set(before)
    assert store / SNAPSHOTS in after
    assert len(set(before)) == len(before)


def test_what_another_writer_changed_is_not_removed(tmp_path):
    """A variable, or a group."""
    url = create_rows(tmp_path)
    Change(url, lambda group: replace(group, groups={"g": ManifestGroup(attributes={"a": 1})})).commit()
    gone = Change(url, removed("v"))
    no_group = Change(url, lambda group: replace(group, groups={}))
    Change(url, lambda group: group, overlays=written("v", 0, virtual(tmp_path, [9]))).commit()
    with pytest.raises(ConflictError, match="variable '/v'"):
        gone.commit()
    Change(url, lambda group: replace(group, groups={"g": ManifestGroup(attributes={"a": 2})})).commit()
    with pytest.raises(ConflictError, match="group '/g'"):
        no_group.commit()
    assert values_of(url) == [9, 1, 2, 3]
    assert opened(url)[2].groups["g"].attributes == {"a": 2}


def test_two_writers_may_make_one_group_alike(tmp_path):
    """But not unlike."""
    url = create_rows(tmp_path)
    first, same, other = (
        Change(url, lambda group, a=a: replace(group, groups={"g": ManifestGroup(attributes={"a": a})}))
        for a in (1, 1, 2)
    )
    first.commit()
    same.commit()
    with pytest.raises(ConflictError, match="group '/g'"):
        other.commit()
    assert opened(url)[2].groups["g"].attributes == {"a": 1}


def test_a_store_that_is_deleted_meanwhile_is_not_begun_again(tmp_path):
    """With a snapshot that refers to objects that are gone."""
    url = create_rows(tmp_path)
    change = Change(url, removed("v"))
    shutil.rmtree(url / SNAPSHOTS)
    with pytest.raises(StorageError, match="were deleted during this write"):
        change.commit()


def test_a_group_that_only_one_writer_makes(tmp_path):
    """The other one has changed other data since; the new group does not stand in its way."""
    url = tmp_path / "x.vstack"
    xr.Dataset({"q": ("x", [1.0, 2.0])}).virtual.to_vstack(url)
    ours = vs.open_virtual_datatree(url)
    theirs = vs.open_virtual_dataset(url)
    theirs.assign(a=("x", [3.0, 4.0])).virtual.to_vstack(url, mode="w")
    ours["g"] = xr.DataTree(xr.Dataset({"b": ("y", [5.0])}))
    ours.virtual.to_vstack(url, mode="w")
    found = vs.open_virtual_datatree(url)
    assert set(found.ds.variables) == {"q", "a"}
    assert found["g/b"].values.tolist() == [5.0]
    without, titled = (vs.open_virtual_datatree(url) for _ in range(2))
    titled["g"].attrs["title"] = "theirs"
    titled.virtual.to_vstack(url, mode="w")
    del without["g"]
    with pytest.raises(ConflictError, match="changed group '/g'"):
        without.virtual.to_vstack(url, mode="w")
