"""Who opens whose stores, without ``allow=``: copies, colleagues, accounts, containers, CI and workers of dask."""

from __future__ import annotations

import os
import pickle
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.vstack.archive import as_read, days, join
from virtualstack.cli.command import main
from virtualstack.errors import ForbiddenLocationError

FORMS = ["json", "parq", "vstack", "icechunk"]


@pytest.fixture
def data(tmp_path: Path) -> list[Path]:
    """An archive of two files."""
    return days(tmp_path / "data", 2)


@pytest.fixture(autouse=True)
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an account of its own for each test."""
    use(monkeypatch, tmp_path, "me")


def use(patch: pytest.MonkeyPatch, folder: Path, name: str) -> None:
    """Change to another account, which has a record of its own."""
    patch.setenv("VIRTUALSTACK_PLACES", str(folder / f"state-of-{name}" / "places.txt"))


def write(paths: list[Path], store: Path) -> Path:
    """Write references to files in the form that the suffix names."""
    store.parent.mkdir(parents=True, exist_ok=True)
    vds = join(paths)
    form = store.suffix
    if form == ".vstack":
        vds.virtual.to_vstack(store, relative=False)
    elif form == ".icechunk":
        vds.virtual.to_icechunk(store)
    else:
        vds.virtual.to_kerchunk(store)
    return store


def values(store: object) -> np.ndarray:
    """Return the values that the engine reads."""
    with xr.open_dataset(store, engine="virtualstack") as dataset:
        return dataset["t"].values


def command(error: pytest.ExceptionInfo[ForbiddenLocationError]) -> list[str]:
    """Return the arguments of the command that an error names."""
    return shlex.split(str(error.value).rpartition("command: virtualstack ")[2])


@pytest.mark.parametrize("form", FORMS)
def test_my_own_store_opens_after_it_was_copied_moved_or_linked(tmp_path, data, form):
    """The data stay where they are."""
    expected = as_read(data)["t"].values
    store = write(data, tmp_path / "mine" / f"x.{form}")
    copy = shutil.copytree if store.is_dir() else shutil.copy
    (tmp_path / "elsewhere").mkdir()
    copy(store, tmp_path / "elsewhere" / f"copy.{form}")
    (tmp_path / "elsewhere" / f"link.{form}").symlink_to(store)
    for name in ("copy", "link"):
        np.testing.assert_array_equal(values(tmp_path / "elsewhere" / f"{name}.{form}"), expected)
    store.rename(tmp_path / "elsewhere" / f"moved.{form}")
    np.testing.assert_array_equal(values(tmp_path / "elsewhere" / f"moved.{form}"), expected)


def test_my_own_store_opens_after_it_was_moved_with_its_data(tmp_path, data, monkeypatch):
    """Also on another account, because it names its files relative to itself."""
    expected = as_read(data)["t"].values
    join(data).virtual.to_vstack(tmp_path / "data" / "x.vstack", relative=True)
    (tmp_path / "data").rename(tmp_path / "moved")
    np.testing.assert_array_equal(values(tmp_path / "moved" / "x.vstack"), expected)
    use(monkeypatch, tmp_path, "colleague")
    np.testing.assert_array_equal(values(tmp_path / "moved" / "x.vstack"), expected)


@pytest.mark.parametrize("form", FORMS)
def test_another_machine_with_the_same_path_of_data(tmp_path, data, form, monkeypatch):
    """It has another record: the error names one command, or the environment grants the place."""
    store = write(data, tmp_path / "mine" / f"x.{form}")
    expected = as_read(data)["t"].values
    use(monkeypatch, tmp_path, "other-machine")
    with pytest.raises(ForbiddenLocationError, match="virtualstack allow ") as caught:
        values(store)
    with monkeypatch.context() as patch:
        patch.setenv("VIRTUALSTACK_ALLOW", shlex.quote(str(tmp_path / "data")))
        np.testing.assert_array_equal(values(store), expected)
    assert main(command(caught)) == 0
    np.testing.assert_array_equal(values(store), expected)


@pytest.mark.parametrize("form", FORMS)
def test_a_store_of_a_colleague_on_data_that_i_also_use(tmp_path, data, form, monkeypatch):
    """It opens because I have written references to the same files."""
    store = write(data, tmp_path / "theirs" / f"x.{form}")
    use(monkeypatch, tmp_path, "colleague")
    write(data[:1], tmp_path / "mine" / "y.json")
    np.testing.assert_array_equal(values(store), as_read(data)["t"].values)


_APPEND = """
import sys, virtualstack as vs
store, *paths = sys.argv[1:]
for path in paths:
    vs.Repository.open(store).append(path, "time")
vs.Repository.open(store).open_dataset().load()
"""


def run(code: str, *arguments: object, home: Path | None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new process of an account, which has a home folder or none."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    variables["PYTHONPATH"] = os.pathsep.join([str(Path(vs.__file__).parents[1]), *filter(None, sys.path)])
    where = {} if home is None else {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**kept, **where, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_two_accounts_that_write_to_one_store_in_turn(tmp_path):
    """Each has its own state folder; in the end both open it, since both have used the data."""
    paths = days(tmp_path / "data", 4)
    homes = tmp_path / "home-a", tmp_path / "home-b"
    for home in homes:
        home.mkdir()
    store = tmp_path / "shared" / "x.vstack"
    create = (
        "import sys, virtualstack as vs\n"
        "vs.open_virtual_dataset(sys.argv[2]).virtual.to_vstack(sys.argv[1], relative=False)"
    )
    made = run(create, store, paths[0], home=homes[0])
    assert made.returncode == 0, made.stderr
    first = run(_APPEND, store, paths[1], home=homes[1])
    assert first.returncode != 0
    assert f"virtualstack allow {tmp_path}/data/" in first.stderr
    other = run(create, tmp_path / "own" / "y.vstack", paths[1], home=homes[1])  # now the account uses the data, too
    assert other.returncode == 0, other.stderr
    for home, path in ((homes[1], paths[1]), (homes[0], paths[2]), (homes[1], paths[3])):
        done = run(_APPEND, store, path, home=home)
        assert done.returncode == 0, done.stderr
    for home in homes:
        done = run(_APPEND, store, home=home)
        assert done.returncode == 0, done.stderr
        assert (home / "state" / "virtualstack" / "places.txt").exists() or sys.platform != "linux"
    for home in homes:
        text = (home / "state" / "virtualstack" / "places.txt").read_text()
        assert f"written file://{tmp_path}/data/*" in text


_WRITE_AND_READ = """
import sys, xarray as xr, virtualstack as vs
store, path = sys.argv[1:]
if path != "-":
    vs.open_virtual_dataset(path).virtual.to_vstack(store, relative=False)
print(float(xr.load_dataset(store, engine="virtualstack")["t"].sum()))
"""


@pytest.mark.parametrize("kind", ["read-only", "absent", "none"])
def test_a_container_without_a_home_to_write_to(tmp_path, data, kind):
    """The process that wrote reads again; another one needs the environment."""
    home = {"read-only": tmp_path / "file", "absent": tmp_path / "nowhere", "none": None}[kind]
    (tmp_path / "file").write_text("")  # a folder for which even root cannot write
    if kind == "absent":
        home = tmp_path / "file" / "nowhere"
    record = {} if kind != "none" else {"VIRTUALSTACK_PLACES": str(tmp_path / "file" / "places.txt")}
    expected = f"{float(as_read(data[:1])['t'].sum())}\n"
    store = tmp_path / "out" / "x.vstack"
    made = run(_WRITE_AND_READ, store, data[0], home=home, **record)
    assert (made.stdout, made.stderr) == (expected, "")
    again = run(_WRITE_AND_READ, store, "-", home=home, **record)
    assert "ForbiddenLocationError" in again.stderr
    assert "virtualstack allow " in again.stderr
    allowed = run(_WRITE_AND_READ, store, "-", home=home, VIRTUALSTACK_ALLOW=str(tmp_path / "data"), **record)
    assert (allowed.stdout, allowed.stderr) == (expected, "")


@pytest.mark.parametrize("form", ["json", "vstack"])
def test_ci_reads_references_beside_data_that_are_checked_out(tmp_path, data, form):
    """In a new home, and where the repository was checked out to another folder."""
    if form == "vstack":
        vs.open_virtual_dataset(data[0]).virtual.to_vstack(tmp_path / "data" / "x.vstack", relative=True)
    else:
        vs.open_virtual_dataset(data[0]).virtual.to_kerchunk(tmp_path / "data" / "x.json", relative=True)
    shutil.copytree(tmp_path / "data", tmp_path / "checkout")
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "home").mkdir()
    done = run(_WRITE_AND_READ, tmp_path / "checkout" / f"x.{form}", "-", home=tmp_path / "home")
    days(tmp_path / "again", 1)
    assert (done.stdout, done.stderr) == (f"{float(as_read([tmp_path / 'again' / '000.nc'])['t'].sum())}\n", "")
    assert not (tmp_path / "home" / "state").exists()


_UNPICKLE = """
import pickle, sys
dataset = pickle.load(open(sys.argv[1], "rb"))
print(float(dataset["t"].sum()))
"""


@pytest.mark.parametrize("form", FORMS)
def test_arrays_that_were_pickled_are_read_where_the_record_is_another(tmp_path, data, form):
    """As tasks of dask are: a worker may run as another account, with another home."""
    store = write(data, tmp_path / "mine" / f"x.{form}")
    with xr.open_dataset(store, engine="virtualstack", chunks={}) as dataset:
        (tmp_path / "task").write_bytes(pickle.dumps(dataset))
    (tmp_path / "home").mkdir()
    done = run(_UNPICKLE, tmp_path / "task", home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == float(as_read(data)["t"].sum())


def test_workers_of_dask_read_what_the_client_may_read(tmp_path, data, monkeypatch):
    """In processes of dask's own scheduler, whose record is another."""
    store = write(data, tmp_path / "mine" / "x.vstack")
    with xr.open_dataset(store, engine="virtualstack", chunks={}) as dataset:
        use(monkeypatch, tmp_path, "worker")
        with dask.config.set(scheduler="processes", num_workers=1):
            total = float(dataset["t"].sum())
    assert total == float(as_read(data)["t"].sum())
