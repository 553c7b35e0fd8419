"""What a store was, and when."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from werkzeug.serving import WSGIRequestHandler

import virtualstack as vs
from tests.servers import RangeServer
from tests.vstack.stores import Change, added, appended, create, objects_of, opened, removed, values_of, virtual
from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.storage import ObjectStore, Storage
from virtualstack.vstack.format.history import hint, number_at, read_entry
from virtualstack.vstack.format.names import SNAPSHOTS, count_seconds, format_time, snapshot_key
from virtualstack.vstack.repository import Repository
from virtualstack.vstack.write import commit as commits

DAY = 86400.0


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    """Ten snapshots, a day apart from 2000-01-01 on: the variable ``v`` has one more row in each. Only read it."""
    folder = tmp_path_factory.mktemp("ten")
    clock = count_seconds("2000-01-01")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commits.time, "time", lambda: clock)
        create(folder / "x.vstack", {"v": virtual(folder, [0])})
        for n in range(1, 10):
            clock += DAY
            Change(folder / "x.vstack", appended(range(n + 1), v=virtual(folder, [n]))).commit(f"row {n}")
    return folder / "x.vstack"


@pytest.fixture
def url(ten, tmp_path, monkeypatch):
    """A copy of the ten snapshots, of their last day."""
    monkeypatch.setattr(commits.time, "time", lambda: count_seconds("2000-01-10"))
    return shutil.copytree(ten, tmp_path / "x.vstack")


@pytest.mark.parametrize(
    ("at", "number"),
    [
        (0, 0),
        (9, 9),
        (-1, 9),
        (-10, 0),
        ("2000-01-01", 0),
        ("2000-01-01T23:59:59.999", 0),
        ("2000-01-02", 1),
        ("2000-01-05T12:00", 4),
        ("2000-01-05T02:00+03:00", 3),
        ("2000-01-10", 9),
        ("2031-01-01", 9),
        (np.int64(3), 3),
        (np.datetime64("2000-01-04"), 3),
        (np.datetime64("2000-01-04T12:00:00.123456789"), 3),
        (np.datetime64("9999-01-01", "Y"), 9),
        (pd.Timestamp("2000-01-04", tz="UTC"), 3),
        (datetime(2000, 1, 6, tzinfo=UTC), 5),
        (datetime(2000, 1, 6, tzinfo=timezone(timedelta(hours=1))), 4),
    ],
)
def test_a_store_as_it_was(url, at, number):
    """By number, from the newest, or at a time."""
    assert Repository.open(url, at=at).snapshot.number == number
    assert values_of(url, at=at) == list(range(number + 1))


def test_the_engine_opens_a_store_as_it_was(url):
    """By a time as well as by a number."""
    for at in (3, "2000-01-04T12:00", datetime(2000, 1, 4, tzinfo=UTC), -7):
        with xr.open_dataset(url, engine="virtualstack", at=at, allow=["file:///"]) as ds:
            assert ds["v"][:, 0].values.tolist() == [0, 1, 2, 3]


def test_snapshots_that_never_existed_are_refused(url):
    """Numbers and times that the store does not have are typed errors; what is not a time is another."""
    for at in (10, -11, "1999-12-31"):
        with pytest.raises(SourceNotFoundError, match="has no snapshot"):
            Repository.open(url, at=at)
    with pytest.raises(ValueError, match="'yesterday' is not a time"):
        Repository.open(url, at="yesterday")
    for at in (np.datetime64("NaT", "s"), pd.NaT):
        with pytest.raises(ValueError, match=r"NaT.* is not a time"):
            Repository.open(url, at=at)
    with pytest.raises(ValueError, match="has no time zone"):
        Repository.open(url, at=datetime(2000, 1, 1))
    with pytest.raises(SourceNotFoundError, match="is not a vstack"):
        Repository.open(url.parent / "none", at="2000-01-01")


@pytest.mark.parametrize("at", [4.0, True, date(2000, 1, 4), [0], b"0"])
def test_a_snapshot_that_is_neither_a_number_nor_a_time_is_refused(url, at):
    """The error says what a snapshot is."""
    with pytest.raises(TypeError, match=r"is not a snapshot. Give its number, or a time"):
        Repository.open(url, at=at)
    with pytest.raises(TypeError, match=r"is not a snapshot. Give its number, or a time"):
        xr.open_dataset(url, engine="virtualstack", at=at)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.log("3"), "limit='3' is not a positive whole number. Give the number"),
        (lambda x: x.log(1.5), "limit=1.5 is not a positive whole number. Give the number"),
        (lambda x: x.expire(keep=1.5, dry_run=True), "keep=1.5 is not a whole number. Give the number"),
        (lambda x: x.expire(grace=1, dry_run=True), "grace=1 is not a timedelta"),
        (lambda x: x.expire(older_than=3, dry_run=True), "3 is not a time"),
        (lambda x: x.compact(3), "names of variables, not 3"),
        (lambda x: x.compact([3]), r"names of variables, not \[3\]"),
        (lambda x: x.relocate("data"), "folders='data' is not a mapping of old to new folders"),
        (lambda x: Repository.open(x.objects.url, allow=3), "URLs or paths of files and folders, not 3"),
    ],
)
def test_arguments_of_other_types_are_refused(ten, call, message):
    """A `TypeError` names the argument and what it takes."""
    with pytest.raises(TypeError, match=message):
        call(Repository.open(ten))


def test_a_path_with_a_nul():
    """Is none."""
    with pytest.raises(StorageError, match="has a NUL, which no path has"):
        Repository.open("x.vstack\0")


@pytest.mark.parametrize("at", [None, 0, -1])
def test_a_folder_that_is_no_store_is_refused(tmp_path, at):
    """The error is the same for each snapshot that is asked for."""
    (tmp_path / "refs.json").write_text("{}")
    for name in ("refs.json", "nothing"):
        with pytest.raises(SourceNotFoundError, match=f"{name}' is not a vstack"):
            Repository.open(tmp_path / name, at=at)


def test_a_time_whose_snapshot_was_expired(url):
    """What was the newest then is gone, and another one is not given for it."""
    for number in range(5):
        (url / snapshot_key(number)).unlink()
    assert opened(url, "2000-01-06T12:00")[1].number == 5
    with pytest.raises(SourceNotFoundError, match="has no snapshot 4"):
        opened(url, "2000-01-05T12:00")


def test_few_snapshots_are_read_for_a_time(url):
    """They are found by bisection."""
    with RangeServer(url) as server:
        assert number_at(objects_of(server.root), 9, count_seconds("2000-01-03")) == 2
        assert server.n_requests <= 6


def test_other_objects_among_snapshots_are_ignored(url):
    """File systems and people leave things behind."""
    for name in (".DS_Store", ".nfs0001", "notes.txt", "0/x", "000000000000", "0/000000000000.json.gz"):
        path = url / SNAPSHOTS / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert opened(url)[1].number == 9
    Change(url, removed("v")).commit()
    assert [entry.number for entry in Repository.open(url).log(limit=2)] == [10, 9]


def test_moments_are_texts_and_back():
    """To the microsecond, and never before; what is not a moment is shown as it is."""
    assert count_seconds(format_time(1234567890.125)) == 1234567890.125
    for seconds in np.random.default_rng(0).uniform(0, 4e9, 10_000).tolist():
        assert seconds <= count_seconds(format_time(seconds)) < seconds + 2e-6
    assert format_time(1e300) == "1e+300 s"


def test_times_of_a_log_open_its_snapshots(tmp_path):
    """Those of commits as they come, which are no whole milliseconds."""
    create(tmp_path / "x.vstack", {"v": virtual(tmp_path, [0])})
    for n in range(1, 10):
        Change(tmp_path / "x.vstack", appended(range(n + 1), v=virtual(tmp_path, [n]))).commit()
    lines = [line.split() for line in repr(Repository.open(tmp_path / "x.vstack").log()).splitlines()]
    times = {int(words[0]): " ".join(words[1:3]) for words in lines if words[0].isdecimal()}
    assert list(times) == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    for number, time in times.items():
        assert Repository.open(tmp_path / "x.vstack", at=time).snapshot.number == number


@pytest.mark.parametrize("ahead", [0, 1])
def test_moments_of_entries_open_their_snapshots(tmp_path, monkeypatch, ahead):
    """As texts and as what `datetime` makes of them; where a clock was ahead of the next writer's, too."""
    create(tmp_path / "x.vstack", {"v": virtual(tmp_path, [0])})
    clock = 1795481675.8065581
    for n in range(1, 10):
        monkeypatch.setattr(commits.time, "time", lambda now=clock + (ahead and -n) + n / 7: now)
        Change(tmp_path / "x.vstack", appended(range(n + 1), v=virtual(tmp_path, [n]))).commit()
    for entry in Repository.open(tmp_path / "x.vstack").log():
        for moment in (datetime.fromtimestamp(entry.time, UTC), format_time(entry.time)):
            assert Repository.open(tmp_path / "x.vstack", at=moment).snapshot.number == entry.number


def test_a_log_says_what_changed(url, tmp_path):
    """Newest first: number, time, message, and what each commit changed."""
    Change(url, added(w=virtual(tmp_path, range(10), "w"))).commit("more")
    Change(url, removed("v")).commit()
    log = Repository.open(url).log()
    assert [entry.number for entry in log] == list(range(11, -1, -1))
    assert [entry.changes for entry in log[:3]] == [
        ("v: removed",),
        ("w: new, int32 (time 10, x 4)",),
        ("time, v: time 9 to 10",),
    ]
    assert log[2].message == "row 9"
    assert log[-1].changes == ("v: new, int32 (time 1, x 4)",)
    text = repr(log)
    assert "    11  2000-01-10 00:00:00.000002Z\n        v: removed" in text
    assert "     9  2000-01-10 00:00:00.000000Z  row 9" in text


def test_a_log_of_appended_files(tmp_path):
    """Of the dataset that grows, and of nothing else."""
    for n in range(2):
        ds = xr.Dataset({"t": (("time", "x"), np.full((2, 3), float(n)))}, {"time": [2 * n, 2 * n + 1]}, {"a": 1})
        ds.to_netcdf(tmp_path / f"{n}.nc", engine="netcdf4", encoding={"t": {"chunksizes": (1, 3)}})
        vds = vs.open_virtual_dataset(str(tmp_path / f"{n}.nc"))
        vds.virtual.to_vstack(tmp_path / "y.vstack", append_dim="time" if n else None, message=f"file {n}")
    (last, first) = Repository.open(tmp_path / "y.vstack").log()
    assert (last.message, last.changes) == ("file 1", ("t, time: time 2 to 4",))
    assert set(first.changes) == {"t: new, float64 (time 2, x 3)", "time: new, int64 (time 2)"}


def test_a_log_of_a_few(url):
    """What is not shown is not read."""
    (url / snapshot_key(3)).write_bytes(b"damaged")
    log = Repository.open(url).log(limit=3)
    assert [entry.number for entry in log] == [9, 8, 7]
    assert len(Repository.open(url).log(limit=0)) == 0
    with pytest.raises(ValueError, match="limit=-1"):
        Repository.open(url).log(limit=-1)


def test_a_log_with_gaps(url):
    """Of expired snapshots nothing is said, and the number that was asked for is given nevertheless."""
    for number in (2, 8):
        (url / snapshot_key(number)).unlink()
    assert [entry.number for entry in Repository.open(url).log(limit=4)] == [9, 7, 6, 5]
    assert [entry.number for entry in Repository.open(url).log()] == [9, 7, 6, 5, 4, 3, 1, 0]


def test_a_log_behind_a_web_server(url):
    """Which has no list of what is there."""
    (url / ".vstack/zarr.json").write_bytes(hint(9))
    with RangeServer(url) as server:
        log = Repository.open(server.root).log()
    assert [entry.number for entry in log] == list(range(9, -1, -1))


@pytest.fixture
def served(tmp_path, s3):
    """A store of four files one after the other, which lies in a bucket too, as `opened/x.vstack`."""
    days = xr.Dataset({"t": (("time", "x"), np.ones((3, 4)))}, {"time": [0, 1, 2], "x": np.arange(4.0)})
    days.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    url = tmp_path / "x.vstack"
    first = vs.open_virtual_dataset(tmp_path / "a.nc")
    first.virtual.to_vstack(url)
    for n in range(1, 4):
        first.assign_coords(time=first["time"] + 3 * n).virtual.to_vstack(url, append_dim="time")
    for path in url.rglob("*"):
        if path.is_file():
            s3.put(f"opened/x.vstack/{path.relative_to(url)}", path.read_bytes())
    return url


def test_a_store_in_a_bucket_is_opened_by_three_requests(served, s3, monkeypatch):
    """A listing, the snapshot, and the loaded variables of all; no more with more snapshots."""
    asked = []
    answer = WSGIRequestHandler.run_wsgi
    monkeypatch.setattr(
        WSGIRequestHandler, "run_wsgi", lambda self: (asked.append(f"{self.command} {self.path}"), answer(self))[1]
    )
    storage = {"s3://bucket/": {**s3.options, "allow_http": True, "region": "us-east-1"}}
    options = {"storage": storage, "allow": [served.parent.as_uri() + "/"]}
    with xr.open_dataset("s3://bucket/opened/x.vstack", engine="virtualstack", **options) as made:
        assert made["time"].values.tolist() == list(range(12))
    assert len(asked) == 3, asked


def test_a_store_in_a_bucket_that_may_not_be_listed(served):
    """S3 says of an object that is not there that it is forbidden, to those who may not list the bucket."""

    def fault(path):
        return None if (served.parent / path.removeprefix("b/")).is_file() else 403

    files = {f"b/{x.relative_to(served.parent)}": x.read_bytes() for x in served.rglob("*") if x.is_file()}
    with RangeServer(files, fault=fault) as server:
        storage = {"s3://b/": {"endpoint": server.root, "max_retries": 0}}
        assert len(Repository.open("s3://b/x.vstack", storage=storage).log()) == 4
        (served / snapshot_key(1)).unlink()
        assert [x.number for x in Repository.open("s3://b/x.vstack", storage=storage).log()] == [3, 2, 0]
        with pytest.raises(StorageError, match="access denied: "):
            Repository.open("s3://b/y.vstack", storage=storage)


def test_a_repository_is_shown_by_its_variables(url, tmp_path):
    """In few lines, whatever it holds, and nothing that a terminal takes for a command."""
    Change(url, added(**{"w\x1b[2J": virtual(tmp_path, range(10), "w")})).commit()
    repository = Repository.open(url)
    assert repr(repository).splitlines() == [
        f"<snapshot 10 of 'file://{url}', 2000-01-10 00:00:00.000001Z>",
        "  v: int32 (time 10, x 4)",
        "  time: int64 (time 10)",
        "  w\\x1b[2J: int32 (time 10, x 4)",
    ]
    assert repr(repository.snapshot) == "<snapshot 10 of 2000-01-10 00:00:00.000001Z: 3 variables>"


def test_a_repository_of_many_variables_is_shown_in_part(tmp_path):
    many = {f"v{i:03}": virtual(tmp_path, [0]) for i in range(60)}
    create(tmp_path / "y.vstack", many)
    lines = repr(Repository.open(tmp_path / "y.vstack")).splitlines()
    assert len(lines) == 52
    assert lines[-1] == "  ... 10 more"


def test_a_snapshot_that_may_not_be_read_is_no_missing_one(tmp_path, monkeypatch):
    """Of a local store: a missing file is told otherwise there, and an older time would open a newer snapshot."""
    url = str(tmp_path / "x.vstack")
    for value in range(3):
        xr.Dataset({"a": ("x", np.full(3, value))}).virtual.to_vstack(url, mode="w")
    objects = ObjectStore(f"file://{url}/", Storage.from_option(None))
    get = ObjectStore.get

    def refused(self, key, **options):
        if key == snapshot_key(2):
            raise StorageError("it may not be read", url=key) from PermissionError(13, "Permission denied")
        return get(self, key, **options)

    monkeypatch.setattr(ObjectStore, "get", refused)
    assert read_entry(objects, 1) is not None
    assert read_entry(objects, 9) is None
    with pytest.raises(StorageError, match="may not be read"):
        read_entry(objects, 2)
