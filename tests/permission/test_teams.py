"""Who opens whose stores, without ``allow=``: copies, colleagues, accounts, containers, CI and workers of dask."""

from __future__ import annotations

import os
import pickle
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.vstack.archive import as_read, days, join
from virtualstack.cli.command import main
from virtualstack.errors import ForbiddenLocationError
from virtualstack.storage import places

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


@contextmanager
def process(home: Path | None, **variables: str) -> Iterator[None]:
    """Act as a new process of an account, which has a home folder or none."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "XDG_STATE_HOME", "VIRTUALSTACK_PLACES", "VIRTUALSTACK_ALLOW"):
            patch.delenv(name, raising=False)
        where = {} if home is None else {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
        for name, value in {**where, **variables}.items():
            patch.setenv(name, value)
        patch.setattr(places, "_PROCESS", places._Process())  # what a process remembers
        yield


def create(store: Path, path: Path) -> None:
    vs.open_virtual_dataset(path).virtual.to_vstack(store, relative=False)


def test_two_accounts_that_write_to_one_store_in_turn(tmp_path):
    """Each has its own state folder; in the end both open it, since both have used the data."""
    paths = days(tmp_path / "data", 4)
    homes = tmp_path / "home-a", tmp_path / "home-b"
    store = tmp_path / "shared" / "x.vstack"
    with process(homes[0]):
        create(store, paths[0])
    with process(homes[1]), pytest.raises(ForbiddenLocationError, match=f"virtualstack allow {tmp_path}/data/"):
        vs.Repository.open(store).append(paths[1], "time")
    with process(homes[1]):
        create(tmp_path / "own" / "y.vstack", paths[1])  # now the account uses the data, too
    for home, path in ((homes[1], paths[1]), (homes[0], paths[2]), (homes[1], paths[3])):
        with process(home):
            vs.Repository.open(store).append(path, "time")
            vs.Repository.open(store).open_dataset().load()
    expected = float(as_read(paths)["t"].sum())
    for home in homes:
        with process(home):
            assert float(vs.Repository.open(store).open_dataset()["t"].sum()) == expected
        text = (home / "state" / "virtualstack" / "places.txt").read_text()
        assert f"written file://{tmp_path}/data/*" in text


@pytest.mark.parametrize("kind", ["read-only", "absent", "none"])
def test_a_container_without_a_home_to_write_to(tmp_path, data, kind):
    """The process that wrote reads again; another one needs the environment."""
    home = {"read-only": tmp_path / "file", "absent": tmp_path / "file" / "nowhere", "none": None}[kind]
    (tmp_path / "file").write_text("")  # a folder for which even root cannot write
    record = {} if kind != "none" else {"VIRTUALSTACK_PLACES": str(tmp_path / "file" / "places.txt")}
    expected = as_read(data[:1])["t"].values
    store = tmp_path / "out" / "x.vstack"
    with process(home, **record):
        create(store, data[0])
        np.testing.assert_array_equal(values(store), expected)
    with process(home, **record), pytest.raises(ForbiddenLocationError, match="virtualstack allow "):
        values(store)
    with process(home, VIRTUALSTACK_ALLOW=str(tmp_path / "data"), **record):
        np.testing.assert_array_equal(values(store), expected)


_WRITE_AND_READ = """
import sys, xarray as xr, virtualstack as vs
store, path = sys.argv[1:]
if path != "-":
    vs.open_virtual_dataset(path).virtual.to_vstack(store, relative=False)
print(float(xr.load_dataset(store, engine="virtualstack")["t"].sum()))
"""


def run(code: str, *arguments: object, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a real process of an account."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    variables["PYTHONPATH"] = os.pathsep.join([str(Path(vs.__file__).parents[1]), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**kept, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_process_without_a_home_remembers_what_it_wrote(tmp_path, data):
    """As the tests before, with real processes."""
    home, store = tmp_path / "file" / "nowhere", tmp_path / "out" / "x.vstack"
    (tmp_path / "file").write_text("")
    made = run(_WRITE_AND_READ, store, data[0], home=home)
    assert (made.stdout, made.stderr) == (f"{float(as_read(data[:1])['t'].sum())}\n", "")
    again = run(_WRITE_AND_READ, store, "-", home=home)
    assert "ForbiddenLocationError" in again.stderr


@pytest.mark.parametrize("form", ["json", "vstack"])
def test_ci_reads_references_beside_data_that_are_checked_out(tmp_path, data, form):
    """In a new home, and where the repository was checked out to another folder."""
    expected = as_read(data[:1])["t"].values
    vds = vs.open_virtual_dataset(data[0]).virtual
    write_to = vds.to_vstack if form == "vstack" else vds.to_kerchunk
    write_to(tmp_path / "data" / f"x.{form}", relative=True)
    (tmp_path / "data").rename(tmp_path / "checkout")
    (tmp_path / "home").mkdir()
    with process(tmp_path / "home"):
        np.testing.assert_array_equal(values(tmp_path / "checkout" / f"x.{form}"), expected)
    assert not (tmp_path / "home" / "state").exists()


_UNPICKLE = """
import pickle, sys
for path in sys.argv[1:]:
    print(float(pickle.load(open(path, "rb"))["t"].sum()))
"""


def test_arrays_that_were_pickled_are_read_where_the_record_is_another(tmp_path, data):
    """As tasks of dask are: a worker may run as another account, with another home."""
    for form in FORMS:
        store = write(data, tmp_path / "mine" / f"x.{form}")
        with xr.open_dataset(store, engine="virtualstack", chunks={}) as dataset:
            (tmp_path / form).write_bytes(pickle.dumps(dataset))
    (tmp_path / "home").mkdir()
    done = run(_UNPICKLE, *(tmp_path / form for form in FORMS), home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == len(FORMS) * [str(float(as_read(data)["t"].sum()))]


def test_workers_of_dask_read_what_the_client_may_read(tmp_path, data, monkeypatch):
    """In processes of dask's own scheduler, whose record is another."""
    store = write(data, tmp_path / "mine" / "x.vstack")
    with xr.open_dataset(store, engine="virtualstack", chunks={}) as dataset:
        use(monkeypatch, tmp_path, "worker")
        with dask.config.set(scheduler="processes", num_workers=1):
            total = float(dataset["t"].sum())
    assert total == float(as_read(data)["t"].sum())
