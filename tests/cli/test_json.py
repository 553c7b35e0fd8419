"""``--json``: what each command prints has the keys and types of docs/reference/cli-json.md, and no others."""

import io
import json
import os
import re
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from virtualstack.cli.command import main
from virtualstack.cli.group import cli

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli-json.md"
TYPES = {str: "text", bool: "boolean", int: "number", float: "number", dict: "object", list: "list", type(None): "null"}


def documented():
    """Return the type of each key, for each command."""
    schemas = {}
    for names, section in re.findall(
        r"<!-- json: (.*?) -->\n(.*?)(?=<!-- json|^## What|\Z)", PAGE.read_text(), re.M | re.S
    ):
        rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", section, re.M)
        schemas |= {name: {key: set(kinds.split(" or ")) for key, kinds in rows} for name in names.split()}
    return schemas


SCHEMAS = documented()


def keys(value, schema, path=""):
    """Yield the keys of a document with their types; objects and lists whose type the page gives are one value."""
    if path in schema and not (isinstance(value, list) and f"{path}[]" in schema):
        yield path, TYPES[type(value)]
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from keys(each, schema, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for each in value:
            yield from keys(each, schema, f"{path}[]")
    else:
        yield path, TYPES[type(value)]


def write(path, start, scale=1.0):
    data = xr.Dataset({"t": (("time", "x"), np.arange(8.0).reshape(2, 4) * scale)}, {"time": [start, start + 1]})
    data.to_netcdf(path, unlimited_dims=["time"], engine="h5netcdf")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files with a gap and a copy, and stores with several snapshots."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIRTUALSTACK_CONFIG", str(tmp_path / "config.toml"))
    Path("data").mkdir()
    for i in (0, 1, 3):
        write(f"data/f{i}.nc", 2 * i)
    assert main(["build", "data/f0.nc", "data/f1.nc", "-o", "a.vstack", "-m", "first"]) == 0
    assert main(["append", "a.vstack", "data/f3.nc", "--dim", "time"]) == 0
    return tmp_path


def survey_all(run):
    """Run surveys that have rows in each table."""
    shutil.copy("data/f0.nc", "data/copy.nc")
    write("data/odd.nc", 9, 2.0)
    xr.Dataset({"t": (("time", "x"), np.ones((2, 4), "f4"))}, {"time": [11, 14]}).to_netcdf(
        "data/other.nc", engine="h5netcdf"
    )
    write("data/within.nc", 12)
    Path("data/bad.nc").write_bytes(b"CDF")
    run("survey", "data/*.nc", status=1)
    xr.Dataset({"t": ("y", [1.0])}).to_netcdf("plain.nc")
    run("survey", "plain.nc", status=0)


def spoil():
    """Change a source of the store, and delete another one."""
    write("data/f1.nc", 2, 3.0)
    os.utime("data/f1.nc", (1, 1))
    Path("data/f3.nc").unlink()


def refresh(run):
    spoil()
    run("refresh", "a.vstack", status=1)
    run("refresh", "a.vstack", "--missing", "mask", "--dry-run")
    Path("data/f0.nc").write_bytes(b"no netCDF")
    run("refresh", "a.vstack", status=1)


def verify(run):
    run("verify", "a.vstack", "--sample", "100%")
    spoil()
    run("verify", "a.vstack", status=1)


def diff(run):
    run("diff", "a.vstack", "0")
    main(["write", "a.vstack", "t", "5", "--region", "time=0"])
    data = xr.open_dataset("data/f0.nc").assign(new=("x", np.ones(4))).drop_vars("time")
    data.attrs["title"] = "new"
    data.to_netcdf("other.nc")
    main(["build", "other.nc", "-o", "a.vstack", "--overwrite"])
    shutil.copy("other.nc", "data/other.nc")
    assert main(["relocate", "a.vstack", str(Path.cwd()), "data"]) == 0
    for before in ("0", "1", "2", "3"):
        run("diff", "a.vstack", before)


def expire(run):
    main(["write", "a.vstack", "t", "5", "--region", "time=0"])
    main(["write", "a.vstack", "t", "6", "--region", "time=0"])
    main(["compact", "a.vstack"])
    run("expire", "a.vstack", "--keep", "1")
    run("expire", "a.vstack", "--keep", "1", "--grace", "0", "--dry-run")
    run("expire", "a.vstack", "--keep", "1", "--grace", "0")


def relocate(run):
    Path("data").rename("moved")
    run("relocate", "a.vstack", "data", "moved", "--dry-run")
    run("relocate", "a.vstack", "data", "moved")


def inspect(run):
    import h5py

    with h5py.File("text.h5", "w") as file:
        file["text"] = np.array(["a", "bc"], object)
    run("inspect", "a.vstack", "data/f0.nc", "text.h5")
    Path("refs.json").write_text(
        '{"version":1,"refs":{".zgroup":"{\\"zarr_format\\":2}","v/.zarray":"{\\"shape\\":[2],\\"chunks\\":[2],'
        '\\"dtype\\":\\"<f8\\",\\"zarr_format\\":2,\\"compressor\\":null,\\"filters\\":null,\\"order\\":\\"C\\",\\"fill_value\\":0}",'
        '"v/0":["data/f0.nc",0,16]}}'
    )
    run("inspect", "refs.json")


def sync(run):
    """With a file that does not fit, and one of a dry run."""
    Path("data/f9.nc").write_bytes(b"no file of HDF5")
    Path("recipe.toml").write_text('files = ["data/*.nc"]\ndim = "time"\nprefer = "last"\n')
    run("sync", "s.vstack", "--recipe", "recipe.toml", status=3)
    run("sync", "s.vstack", "--retry", "--dry-run", status=3)


def health(run):
    """With labels that are late, or missing, and a file that does not fit."""
    Path("bad.nc").write_bytes(b"no file of HDF5")
    times = {"time": np.array(["2020-01-02"], "M8[ns]")}
    xr.Dataset({"t": ("time", [1.0])}, times).to_netcdf("good.nc", engine="netcdf4")
    rule = 'every = "1D", first = "2020-01-01", last = "2020-01-20", late = "1D"'
    for more in ("", ', missing = "90000D"'):
        Path("recipe.toml").write_text(f'files = ["*d.nc"]\ndim = "time"\nexpected.time = {{{rule}{more}}}\n')
        assert main(["sync", "h.vstack", "--recipe", "recipe.toml"]) == 3
        run("health", "h.vstack", status=1)


def segment(run):
    Path("recipe.toml").write_text('files = ["data/*.nc"]\ndim = "time"\nprefer = "last"\n')
    run("segment", "s.vstack", "--recipe", "recipe.toml", "--partition", "1/2")


def commit(run):
    Path("data/f1.nc").write_bytes(b"no file of HDF5")
    segment(lambda *x: main([*x[:-1], "1/1"]))
    run("commit", "s.vstack", "--recipe", "recipe.toml", "--dry-run", status=3)
    run("commit", "s.vstack", "--recipe", "recipe.toml", status=3)


def watch(run):
    sync(lambda *x, **_: main([*x]))
    Path("data/f8.nc").write_bytes(b"no file of HDF5")
    shutil.copy("data/f0.nc", "data/f7.nc")
    threading.Timer(2, os.kill, [os.getpid(), signal.SIGTERM]).start()
    run("watch", "s.vstack")


RUNS = {
    "build": lambda run: [
        run("build", "data/*.nc", "-o", "b.vstack", "--verify"),
        run("build", "data/f0.nc", "-o", "c.json", "--dry-run"),
    ],
    "append": lambda run: [
        main(["build", "data/f0.nc", "-o", "b.vstack"]),
        run("append", "b.vstack", "data/f1.nc", "data/f3.nc", "--dim", "time", "--dry-run"),
        run("append", "b.vstack", "data/f1.nc", "--dim", "time"),
        run("build", "data/*.nc", "-o", "d.vstack", "--verify"),
    ],
    "update": lambda run: [
        run("update", "a.vstack", "data/f3.nc", "--dim", "time"),
        run("update", "a.vstack", "data/f3.nc", "--dim", "time", "--dry-run"),
    ],
    "write": lambda run: [
        run("write", "a.vstack", "t", "5", "--region", "time=0", "--dry-run"),
        run("write", "a.vstack", "t", "5", "--region", "time=0"),
    ],
    "rechunk": lambda run: [
        run("rechunk", "a.vstack", "t", "--chunks", "time=-1", "--name", "t_series", "--dry-run"),
        run("rechunk", "a.vstack", "t", "--chunks", "time=-1", "--name", "t_series"),
    ],
    "relocate": relocate,
    "compact": lambda run: [run("compact", "a.vstack", "--dry-run"), run("compact", "a.vstack")],
    "convert": lambda run: [
        run("convert", "a.vstack", "c.parq", "--dry-run"),
        run("convert", "a.vstack", "c.parq"),
    ],
    "inspect": inspect,
    "survey": survey_all,
    "log": lambda run: run("log", "a.vstack"),
    "diff": diff,
    "verify": verify,
    "refresh": refresh,
    "expire": expire,
    "readers": lambda run: run("readers"),
    "sync": sync,
    "segment": segment,
    "commit": commit,
    "watch": watch,
    "ledger": lambda run: [sync(lambda *x, **_: main([*x])), run("ledger", "s.vstack")],
    "health": health,
    "sample": lambda run: [run("sample"), run("sample", "monthly"), run("sample", "monthly", "--dry-run")],
    "config": lambda run: run("config", "s3://bucket/"),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_documents_of_a_command_have_the_keys_of_the_page(name, folder, capsys):
    """Each key of a document is on the page with its type, and each key of the page is in a document."""
    schema, seen = SCHEMAS[name], {}
    capsys.readouterr()

    def run(*arguments, status=0):
        capsys.readouterr()
        assert main([*arguments, "--json"]) == status
        for key, kind in keys(json.loads(capsys.readouterr().out), schema):
            seen.setdefault(key, set()).add(kind)

    RUNS[name](run)
    assert seen.keys() <= schema.keys()
    assert {key: kinds - schema[key] for key, kinds in seen.items() if kinds - schema[key]} == {}
    assert {key for key in schema if key not in seen} <= RARE.get(name, set())


RARE = {"survey": {"irregular[]"}, "diff": {"changed[].appended[]"}}
"""Keys of lists that the runs leave empty."""


def test_every_command_that_prints_facts_has_json():
    """Others serve, write one file, or print a script."""
    assert {name for name, command in cli.commands.items() if "as_json" in {x.name for x in command.params}} == set(
        RUNS
    )
    assert set(cli.commands) - set(RUNS) == {"serve", "report", "completion", "recipe"}
    assert SCHEMAS.keys() == set(RUNS)


def test_a_document_is_the_only_output(folder, capsys):
    """Notes and errors stay on stderr."""
    capsys.readouterr()
    assert main(["build", "data/*.nc", "-o", "a.vstack", "--json"]) == 1
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "already exists" in seen.err


@pytest.mark.parametrize("message", ["wind \x96 gust", "del \x7f", "Grüße \u202e"])
def test_text_with_control_characters_is_json(message, folder, capsys):
    """Control characters are escaped as JSON escapes them, so that the text is read as it was written."""
    assert main(["compact", "a.vstack", "-m", message]) == 0
    capsys.readouterr()
    assert main(["log", "a.vstack", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["snapshots"][0]["message"] == message


def test_text_that_an_encoding_cannot_express_is_escaped(folder, monkeypatch):
    """A redirected stdout may have another encoding than UTF-8."""
    assert main(["compact", "a.vstack", "-m", "Grüße"]) == 0
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stdout)
    assert main(["log", "a.vstack", "--limit", "1"]) == 0
    assert b"Gr\\xfc\\xdfe" in stdout.buffer.getvalue()
