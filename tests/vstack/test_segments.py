"""Segments: what workers make of partitions of files is what a run in one process makes of them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import xarray as xr

import virtualstack as vs
from tests.archives import living
from tests.object_server import ObjectServer
from tests.vstack.test_sync import check, days, put, state_of, write_day
from virtualstack.cli.command import main
from virtualstack.errors import AccessDeniedError, MalformedFileError, SourceNotFoundError, StorageError
from virtualstack.scanning.job import KillablePool
from virtualstack.vstack import files, segments
from virtualstack.vstack.files import Placing

__all__ = ["days"]


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    """Partitions of four files, so that a few files are many."""
    monkeypatch.setattr("virtualstack.vstack.segments.N_FILES", 4)
    monkeypatch.setattr("virtualstack.vstack.sync.N_FILES", 4)


@pytest.fixture
def many(days):
    """Eleven files, of which two have the same label, one has another grid, and one is no file of HDF5."""
    for day in range(3, 10):
        write_day(day)
    write_day(8, value=88, name="day8_again.nc")
    xr.Dataset({"rain": (("time", "x"), [[1.0]])}, {"time": [20], "x": [9]}).to_netcdf("day4.nc", engine="h5netcdf")
    Path("day5.nc").write_bytes(b"no file of HDF5")
    return days


@pytest.fixture
def opened(monkeypatch):
    """Names of the files that are opened."""
    found = []

    def open_files(given, *rest, **options):
        found.extend(url.rpartition("/")[2] for url in given)
        return files.open_files(given, *rest, **options)

    monkeypatch.setattr("virtualstack.vstack.segments.open_files", open_files)
    monkeypatch.setattr("virtualstack.vstack.sync.open_files", open_files)
    return found


@pytest.mark.parametrize("prefer", [None, "newest"])
def test_a_build_by_segments_is_that_of_one_process(many, monkeypatch, prefer):
    recipe = vs.Recipe(["day*.nc"], dim="time", prefer=prefer)
    with ThreadPoolExecutor(2) as threads:
        done = vs.Repository.build("a.vstack", recipe, executor=threads)
    monkeypatch.setattr("virtualstack.vstack.sync.N_FILES", 100)
    alone = vs.Repository.build("b.vstack", recipe)
    xr.testing.assert_identical(*(x.repository.open_dataset().load() for x in (done, alone)))
    assert state_of("a.vstack")[1] == state_of("b.vstack")[1]
    assert (len(done.placed), len(done.quarantined)) == ((8, 3) if prefer is None else (9, 2))
    assert {x.status for x in done.chunks} == {"equal"}
    assert not Path("a.vstack/.vstack/incoming").exists()


@pytest.mark.parametrize("by", ["attribute", "name", "position"])
def test_members_that_only_an_attribute_or_their_names_tell(tmp_path, monkeypatch, by):
    """A partition has files of several members, some with labels of their own; the next run adds to each of them."""
    monkeypatch.chdir(tmp_path)

    def write(member, times):
        attrs = {"realization_index": member} if by == "attribute" else {}
        if by == "position":
            attrs = {"DOMAIN_position_first": [1 + 2 * member, 1], "DOMAIN_size_local": [2, 1]}
        for time in times:
            values = ("time", "y", "x"), [[[100.0 * member + time] * 2]]
            dataset = xr.Dataset({"rain": values}, {"time": [time]}, attrs)
            dataset.to_netcdf(f"f_r{member}_t{time:02}.nc" if by == "name" else f"{time:02}_{member % 2}{member}.nc")

    all_times = [range(5)] * 3 if by == "position" else [[0, 1, 2, 5, 8, 9], [3, 4, 5, 6, 8, 9], [3, 4, 5, 7, 9]]
    for member, times in enumerate(all_times):
        write(member, times)
    recipe = vs.Recipe(["*.nc"], dim="time", join="outer")
    done = vs.Repository.build("a.vstack", recipe)
    if by == "attribute":
        for member in range(3):
            write(member, [10, 11])
        assert len(done.repository.sync().placed) == 6
    monkeypatch.setattr("virtualstack.vstack.sync.N_FILES", 100)
    alone = vs.Repository.build("b.vstack", recipe)
    assert done.quarantined == alone.quarantined == ()
    xr.testing.assert_identical(*(vs.Repository.open(x).open_dataset().load() for x in ("a.vstack", "b.vstack")))


@pytest.mark.parametrize(
    "make", [living.scenes, *(pytest.param(x, marks=pytest.mark.apart) for x in (living.days, living.runs))]
)
def test_nights_by_segments(make, tmp_path, monkeypatch):
    """Every run goes by way of segments, and each night shows what a loop over the files gives."""
    monkeypatch.setattr("virtualstack.vstack.segments.N_FILES", 2)
    monkeypatch.setattr("virtualstack.vstack.sync.N_FILES", 0)
    archive = make(tmp_path / "files")
    (tmp_path / "recipe.toml").write_text(archive.recipe)
    for number in range(6):
        archive.night(number)
    vs.Repository.build(tmp_path / "a.vstack", tmp_path / "recipe.toml")
    check(archive, tmp_path / "a.vstack", 5)
    for number in range(6, 24):
        archive.night(number)
        if number % 6 == 5:
            vs.Repository.open(tmp_path / "a.vstack").sync()
            check(archive, tmp_path / "a.vstack", number)


def test_a_run_that_was_killed_goes_on(many, monkeypatch, opened):
    make, made = segments.make_segment, []

    def killed(url, recipe, given, how):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(make(url, recipe, given, how))
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr("virtualstack.vstack.segments.make_segment", killed)
        with pytest.raises(KeyboardInterrupt):
            vs.Repository.build("a.vstack", many)
    assert len(opened) == 8
    with pytest.raises(SourceNotFoundError):
        vs.Repository.open("a.vstack")
    write_day(1, value=11)  # its version in a segment does not count any more
    opened.clear()
    done = vs.Repository.build("a.vstack", many)
    assert sorted(opened) == ["day1.nc", "day8.nc", "day8_again.nc", "day9.nc"]
    assert done.repository.open_dataset()["rain"].values[:, 0].tolist() == [0, 11, 2, 3, 6, 7, 8, 9]
    assert not Path("a.vstack/.vstack/incoming").exists()


def test_a_partition_is_made_once(days, opened):
    """A task that is started again opens only what the first one left out."""
    assert [vs.Repository.segment("a.vstack", days, partition=(1, 1)) for _ in range(2)] == [3, 3]
    assert len(opened) == 3


@pytest.mark.parametrize("by", ["build", "segment"])
def test_files_that_could_not_be_reached_are_tried_again(many, monkeypatch, by):
    """A segment that says that files could not be reached holds for its run, even if it says so of all its files."""

    def down(given, recipe, how, **_):
        up = [url for url in given if "day0" not in url and "day9" not in url]
        parts, errors = files.open_files({url: given[url] for url in up}, recipe, how) if is_partly_up else ([], {})
        lost = given.keys() - {*errors, *(x.url for x in parts)}
        return parts, errors | {url: AccessDeniedError("the server refuses", url=url) for url in lost}

    for is_partly_up in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr("virtualstack.vstack.segments.open_files", down)
            if by == "segment":
                vs.Repository.segment("a.vstack", many)
            elif not is_partly_up:
                with pytest.raises(StorageError, match="refuses"):
                    vs.Repository.build("a.vstack", many)
    done = vs.Repository.build("a.vstack", many)
    assert (len(done.placed), len(done.quarantined), done.failed) == (8, 3, ())
    assert not Path("a.vstack/.vstack/incoming").exists()


@pytest.mark.parametrize("option", [{"timeout": 0}, {"timeout": -1}, {"sample": -1}])
def test_numbers_that_are_not_valid(days, option):
    """They are refused before files are opened."""
    with pytest.raises(ValueError, match=f"{next(iter(option))}="):
        vs.Repository.build("a.vstack", days, **option)
    assert not Path("a.vstack").exists()


def test_one_way_to_open_files(days, capsys):
    Path("recipe.toml").write_text(days.text)
    assert main(["sync", "a.vstack", "--recipe", "recipe.toml", "--workers", "2", "--executor", "threads"]) == 2
    assert "--executor" in capsys.readouterr().err


def test_a_commit_without_segments(days):
    with pytest.raises(SourceNotFoundError, match="opened by segment"):
        vs.Repository.build("a.vstack", days, only_segments=True)


def test_segments_that_no_run_places_expire(many):
    vs.Repository.build("a.vstack", vs.Recipe(["day[012].nc"], dim="time"))
    assert vs.Repository.segment("a.vstack", many) == 8
    assert Path("a.vstack/.vstack/incoming").exists()
    vs.Repository.open("a.vstack").expire()
    assert Path("a.vstack/.vstack/incoming").exists()
    vs.Repository.open("a.vstack").expire(grace=timedelta(0))
    assert not Path("a.vstack/.vstack/incoming").exists()
    assert len(vs.Repository.open("a.vstack").sync(recipe=many).placed) == 5


def test_segments_of_a_batch_system(many, capsys, opened):
    Path("recipe.toml").write_text(many.text)
    for number in (1, 2):
        assert main(["segment", "a.vstack", "--recipe", "recipe.toml", "--partition", f"{number}/3"]) == 0
    assert sorted(opened) == ["day0.nc", "day1.nc", "day2.nc", "day3.nc", "day4.nc", "day5.nc", "day6.nc"]
    opened.clear()
    capsys.readouterr()
    assert main(["commit", "a.vstack", "--recipe", "recipe.toml", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    states = [x["status"] for x in found["files"]]
    assert (states.count("placed"), states.count("pending"), states.count("quarantined")) == (5, 4, 2)
    assert main(["segment", "a.vstack"]) == 0
    assert sorted(opened) == ["day7.nc", "day8.nc", "day8_again.nc", "day9.nc"]
    opened.clear()
    assert main(["sync", "a.vstack"]) == 3
    assert not opened
    assert main(["segment", "a.vstack", "--partition", "4/3"]) == 2
    with pytest.raises(ValueError, match="partition="):
        vs.Repository.segment("a.vstack", partition=(0, 3))
    with pytest.raises(SourceNotFoundError):
        vs.Repository.segment("none.vstack")


def test_another_commit_comes_between(many, monkeypatch, opened):
    repository = vs.Repository.build("a.vstack", vs.Recipe(["day[012].nc"], dim="time")).repository
    write, others = Placing.write, [repository.update]
    opened.clear()

    def late(self, *arguments):
        if others:
            write_day(15, name="other.nc")
            others.pop()("other.nc", "time")
        return write(self, *arguments)

    monkeypatch.setattr(Placing, "write", late)
    done = repository.sync(recipe=many)
    assert done.repository.snapshot.number == 2
    assert done.repository.open_dataset()["time"].values.tolist() == [0, 1, 2, 3, 6, 7, 8, 9, 15]
    assert len(opened) == len(set(opened)) == 8


def test_a_damaged_segment(many):
    vs.Repository.segment("a.vstack", many, partition=(1, 3))
    (snapshot,) = Path("a.vstack").rglob("incoming/**/snapshots/*")
    snapshot.write_bytes(snapshot.read_bytes()[:-3])
    with pytest.raises(MalformedFileError):
        vs.Repository.build("a.vstack", many)


def test_a_file_that_hangs(many, monkeypatch):
    """The other files of its partition are placed; a thread cannot be stopped, but is not waited for."""
    monkeypatch.setattr("virtualstack.vstack.segments.N_FILES", 2)
    write_day(30, name="hang.nc")
    recipe = vs.Recipe(["*.nc"], dim="time", preprocess="tests.vstack.recipes:deadly")
    done = vs.Repository.build("a.vstack", recipe, timeout=3)
    (why,) = [why for url, why in done.quarantined if url.endswith("hang.nc")]
    assert "not read within timeout=3 seconds" in why
    assert len(done.placed) == 8


def test_a_file_that_hangs_in_a_task(many, capsys):
    """The task goes on, and the commit quarantines the file."""
    write_day(30, name="hang.nc")
    recipe = vs.Recipe(["*.nc"], dim="time", preprocess="tests.vstack.recipes:deadly")
    Path("recipe.toml").write_text(recipe.text)
    assert vs.Repository.segment("a.vstack", recipe, partition=(2, 2), timeout=3) == 6
    capsys.readouterr()
    assert main(["segment", "a.vstack", "--recipe", "recipe.toml", "--partition", "1/2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 6
    done = vs.Repository.build("a.vstack", recipe, only_segments=True)
    (why,) = [why for url, why in done.quarantined if url.endswith("hang.nc")]
    assert "not read within timeout=3 seconds" in why
    assert (len(done.placed), done.pending) == (8, ())


def test_a_build_by_processes(days, capsys):
    Path("recipe.toml").write_text(days.text)
    options = ["--workers", "2", "--timeout", "100", "--sample", "2", "--json"]
    assert main(["build", "--recipe", "recipe.toml", "-o", "a.vstack", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert ([x["status"] for x in found["files"]], len(found["chunks"])) == (["placed"] * 3, 2)


@pytest.mark.parametrize("name", ["build", "sync", "watch"])
def test_options_that_a_run_does_not_have(days, name):
    run = vs.Repository.build if name == "build" else getattr(vs.Repository.build("b.vstack", days).repository, name)
    with pytest.raises(TypeError, match=rf"Repository\.{name}\(\) .*'timeot'\. Did you mean 'timeout'"):
        run(*["a.vstack", days][: 2 * (name == "build")], timeot=3)


@pytest.mark.apart
def test_a_file_that_ends_its_worker(many):
    write_day(30, name="kill.nc")
    recipe = vs.Recipe(["*.nc"], dim="time", preprocess="tests.vstack.recipes:deadly")
    with KillablePool(1) as pool:
        done = vs.Repository.build("a.vstack", recipe, executor=pool)
    (why,) = [why for url, why in done.quarantined if url.endswith("kill.nc")]
    assert "ended with its worker" in why
    assert "kill.nc" in why
    assert len(done.placed) == 8
    assert done.repository.sync(recipe=recipe).exit_code == 0


def test_an_executor_that_is_shut_down(many):
    pool = KillablePool(1)
    pool.shutdown()
    with pytest.raises(Exception, match="could not be started"):
        vs.Repository.build("a.vstack", many, executor=pool)


def test_a_store_in_a_bucket(monkeypatch):
    with ObjectServer() as server:
        storage = {"s3://bucket/": server.options}
        for day in range(6):
            put(server, day)
        recipe = vs.Recipe(["s3://bucket/files/*.nc"], dim="time")
        for number in (1, 2):
            vs.Repository.segment("s3://bucket/a.vstack", recipe, partition=(number, 2), storage=storage)
        assert any("/incoming/" in x for x in server.objects)
        done = vs.Repository.build("s3://bucket/a.vstack", recipe, storage=storage, only_segments=True)
        assert len(done.placed) == 6
        assert not any("/incoming/" in x for x in server.objects)


def test_local_files_in_a_store_of_a_bucket(many):
    with ObjectServer() as server:
        done = vs.Repository.build("s3://bucket/a.vstack", many, storage={"s3://bucket/": server.options}, sample=0)
        assert len(done.placed) == 8
