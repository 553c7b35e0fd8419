"""``--dry-run``: it says what would be written, and writes nothing."""

import json
import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.cli.command import main
from virtualstack.cli.group import cli
from virtualstack.storage.dry_run import dry_run


def write(path, start):
    data = xr.Dataset({"t": (("time", "x"), np.arange(8.0).reshape(2, 4) + start)}, {"time": [start, start + 1]})
    data.to_netcdf(path, unlimited_dims=["time"], engine="netcdf4")


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """Three files, and a store of the first two."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for i in range(3):
        write(f"data/f{i}.nc", 2 * i)
    for name in ("a.vstack", "a.json", "a.parq"):
        assert main(["build", "data/f0.nc", "data/f1.nc", "-o", name]) == 0
    assert main(["write", "a.vstack", "t", "5", "--region", "time=0"]) == 0
    capsys.readouterr()
    return tmp_path


def everything(folder):
    return {str(x): x.read_bytes() if x.is_file() else None for x in folder.rglob("*")}


COMMANDS = {
    "build": ["build", "data/*.nc", "-o", "b.vstack"],
    "build, kerchunk": ["build", "data/*.nc", "-o", "b.json"],
    "build, parquet": ["build", "data/*.nc", "-o", "b.parq"],
    "build --overwrite": ["build", "data/*.nc", "-o", "a.vstack", "--overwrite"],
    "build --append": ["build", "data/f2.nc", "-o", "a.json", "--append", "time"],
    "append": ["append", "a.vstack", "data/f2.nc", "--dim", "time"],
    "append, parquet": ["append", "a.parq", "data/f2.nc", "--dim", "time"],
    "update": ["update", "a.vstack", "data/f2.nc", "--dim", "time"],
    "write": ["write", "a.vstack", "t", "7", "--region", "time=1"],
    "rechunk": ["rechunk", "a.vstack", "t", "--chunks", "time=-1", "--name", "t_series"],
    "convert": ["convert", "a.json", "c.vstack"],
    "convert, kerchunk": ["convert", "a.vstack", "c.parq"],
    "relocate": ["relocate", "a.vstack", "data", "elsewhere"],
    "compact": ["compact", "a.vstack"],
    "refresh": ["refresh", "a.vstack"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_written_and_the_bytes_are_those_of_the_command(name, folder, capsys):
    """The same command without the option writes as many objects and bytes."""
    arguments = COMMANDS[name]
    if name == "relocate":
        Path("data").rename("elsewhere")
    if name == "refresh":
        with h5py.File("data/f1.nc", "r+") as file:
            file["t"][0, 0] = 99
        os.utime("data/f1.nc", (1, 1))
    before = everything(folder)
    assert main([*arguments, "--dry-run"]) == 0
    assert "dry run: nothing is written. It would write " in capsys.readouterr().out
    assert main([*arguments, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["dry_run"]
    assert everything(folder) == before
    assert main(arguments) == 0
    after = everything(folder)
    written = {path: data for path, data in after.items() if data is not None and before.get(path) != data}
    assert told["objects"] == len(written)
    assert told["bytes"] == pytest.approx(sum(map(len, written.values())), rel=0.01)  # ids and times differ in length


def test_an_icechunk_repository_is_not_made(folder, capsys):
    """The objects of a new one are counted; what Icechunk would add to one that is there is not known."""
    pytest.importorskip("icechunk")
    before = everything(folder)
    assert main(["build", "data/f0.nc", "-o", "c.icechunk", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["dry_run"]
    assert everything(folder) == before
    assert main(["build", "data/f0.nc", "-o", "c.icechunk"]) == 0
    made = [path.stat().st_size for path in Path("c.icechunk").rglob("*") if path.is_file()]
    assert told == {"objects": len(made), "bytes": pytest.approx(sum(made), rel=0.02), "deleted": 0}
    before = everything(folder)
    assert main(["append", "c.icechunk", "data/f1.nc", "--dim", "time", "--dry-run"]) == 0
    assert "would commit to 'c.icechunk'" in capsys.readouterr().out
    assert main(["append", "c.icechunk", "data/f1.nc", "--dim", "time", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dry_run"] == {"objects": None, "bytes": None, "deleted": 0}
    assert everything(folder) == before


def test_a_dry_run_refuses_what_the_command_refuses(folder, capsys):
    """The same error, and the same exit status."""
    for arguments in (
        ["build", "data/*.nc", "-o", "a.vstack"],
        ["append", "a.vstack", "data/f0.nc", "--dim", "time"],
        ["relocate", "a.vstack", "gone", "data"],
    ):
        said = []
        for more in ([], ["--dry-run"]):
            assert main([*arguments, *more]) == 1
            said.append(capsys.readouterr().err)
        assert said[0] == said[1]


def test_a_repository_that_was_opened_before_writes_nothing_in_a_dry_run_and_writes_after_it(folder):
    """The store is asked whether a dry run is active when it writes, not when it is opened."""
    repo = vs.Repository.open("a.vstack")
    before = everything(folder)
    with dry_run() as would:
        repo.write("t", {"time": 0}, 9.0)
    assert would.written
    assert everything(folder) == before
    assert repo.write("t", {"time": 0}, 9.0).open_dataset()["t"].values[0].tolist() == [9.0] * 4


def test_objects_of_a_dry_run_are_seen_in_it(tmp_path):
    """Those that would be written are read and listed, and those that would be deleted are gone."""
    from virtualstack.errors import SourceNotFoundError
    from virtualstack.storage import Storage

    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "old").write_bytes(b"old")
    with dry_run() as would:
        target = Storage.from_option().target(f"file://{tmp_path}/")
        target.put("a/c/new", b"new")
        assert not target.put_if_absent("a/b/old", b"x")
        assert target.put_if_absent("z", b"x")
        assert target.list() == ["a/b/old", "a/c/new", "z"]
        assert target.list("a") == ["a/b/old", "a/c/new"]
        assert sorted(target.entries("a")) == [("b", True), ("c", True)]
        assert sorted(target.contents("a")) == ["a/b/old", "a/c/new"]
        assert target.get("a/c/new") == b"new"
        target.delete("a/b/old")
        target.delete("z")
        with pytest.raises(SourceNotFoundError):
            target.get("a/b/old")
        assert target.first() == "a/c/new"
        assert would.deleted == {f"file://{tmp_path}/a/b/old"}
    assert (tmp_path / "a" / "b" / "old").read_bytes() == b"old"
    assert not (tmp_path / "a" / "c").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "a.vstack", "-o", "a.html"],
        ["inspect", "a.vstack", "--html", "a.html"],
        ["survey", "data/f0.nc", "data/f1.nc", "--table", "a.csv", "--cache", "scans"],
        ["sample", "monthly", "new"],
    ],
)
def test_other_commands_write_nothing_either(arguments, folder, capsys):
    """They say what they would write."""
    before = everything(folder)
    assert main([*arguments, "--dry-run"]) == 0
    seen = capsys.readouterr()
    assert "dry run: nothing is written. It would " in seen.out + seen.err
    assert everything(folder) == before


def test_every_command_that_writes_has_a_dry_run():
    """The others only read, or serve."""
    dry = {name for name, command in cli.commands.items() if "dry_run" in {x.name for x in command.params}}
    reading = {"readers", "log", "diff", "verify", "config", "completion", "serve", "ledger", "health", "recipe"}
    reading |= {"segment", "watch"}  # segments are no part of a store; `sync --dry-run` says what `watch` would do
    assert cli.commands.keys() - dry == reading


def test_expire_says_how_many_bytes_go(folder, capsys):
    """They are those of the files that are gone afterwards; one of them is the leftover of a killed writer."""
    assert main(["compact", "a.vstack"]) == 0
    capsys.readouterr()
    leftover = Path("a.vstack", ".virtualstack-0123456789abcdef0123456789abcdef")
    leftover.write_bytes(bytes(1000))
    os.utime(leftover, (1, 1))
    expire = ["expire", "a.vstack", "--keep", "1", "--grace", "0"]
    before = everything(folder)
    assert main([*expire, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert everything(folder) == before
    assert main(expire) == 0
    gone = [len(data) for path, data in before.items() if data is not None and not Path(path).exists()]
    assert not leftover.exists()
    assert told["dry_run"] == {"objects": 0, "bytes": sum(gone), "deleted": len(gone)}
    assert len(told["objects"]) + len(told["snapshots"]) == len(gone)


def test_no_cache_is_written(folder):
    """A cache that is there is used; results of the dry run are not added to it."""
    for more in (["build", "data/*.nc", "-o", "b.vstack"], ["update", "a.vstack", "data/f2.nc", "--dim", "time"]):
        before = everything(folder)
        assert main([*more, "--dry-run", "--cache", "scans"]) == 0
        assert everything(folder) == before
    assert main(["build", "data/f0.nc", "data/f1.nc", "-o", "b.vstack", "--cache", "scans"]) == 0
    before = everything(folder)
    assert main(["append", "a.vstack", "data/f2.nc", "--dim", "time", "--dry-run", "--cache", "scans"]) == 0
    assert everything(folder) == before


def test_large_chunks_do_not_go_to_an_icechunk_repository_before_the_commit(folder):
    """Icechunk stores chunks that are too large for a manifest as soon as they are set."""
    pytest.importorskip("icechunk")
    values = np.random.default_rng(0).random(20_000)
    xr.Dataset({"b": ("y", [1.0, 2.0])}).virtual.to_icechunk("r.icechunk")
    before = everything(folder)
    large = xr.Dataset({"a": ("x", values)})
    with dry_run() as would:
        large.virtual.to_icechunk("r.icechunk", group="g")
    assert would.is_uncounted
    assert everything(folder) == before
    large.virtual.to_icechunk("r.icechunk", group="g")
    np.testing.assert_array_equal(vs.open_virtual_dataset("r.icechunk", group="g").virtual.open()["a"], values)


@pytest.mark.parametrize("command", [["convert", "a.vstack"], ["build", "data/*.nc", "-o"]])
@pytest.mark.parametrize(
    "target", ["in_the_way.json", "in_the_way.parq", "file.parq", "data/f0.nc/x.json", "data/f0.nc/x.vstack"]
)
def test_what_is_in_the_way_is_an_error_too(folder, command, target, capsys):
    """A folder or a file at the place of the target, or of its folder."""
    for name in ("in_the_way.json", "in_the_way.parq"):
        Path(name).mkdir()
        Path(name, "precious").write_text("x")
    Path("file.parq").write_text("x")
    before, said = everything(folder), []
    for more in (["--dry-run"], []):
        assert main([*command, target, *more]) == 1
        said.append(re.sub(r"segments/\w+", "segments/ID", capsys.readouterr().err))
        assert everything(folder) == before
    assert said[0] == said[1]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_an_error_too(folder):
    """The dry run writes nothing, and still sees that the command could not write."""
    Path("closed").mkdir(mode=0o500)
    for name in ("x.vstack", "x.icechunk"):
        for more in (["--dry-run"], []):
            assert main(["build", "data/*.nc", "-o", f"closed/{name}", *more]) == 1


def test_samples_of_installed_packages_are_never_written(folder, capsys):
    """They have no folder, and a dry run does not say that it would write them."""
    assert main(["sample", "nemo", "elsewhere"]) == 2
    assert "leave FOLDER out" in capsys.readouterr().err
    pytest.importorskip("iris_sample_data")
    assert main(["sample", "nemo", "--dry-run"]) == 0
    assert "nothing is ever written" in capsys.readouterr().out
    assert main(["sample", "nemo", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["dry_run"] == {"objects": 0, "bytes": 0, "deleted": 0}
    assert all(Path(path).exists() for path in told["files"])
