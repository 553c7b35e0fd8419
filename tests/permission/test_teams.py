"""Local references open without ``allow=``: copies, and those of colleagues, in containers, in CI and on workers."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.vstack.archive import as_read, days, join

FORMS = ["json", "parq", "vstack", "icechunk"]


@pytest.fixture
def data(tmp_path: Path) -> list[Path]:
    """An archive of two files."""
    return days(tmp_path / "data", 2)


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


@pytest.mark.parametrize("form", FORMS)
def test_a_store_opens_after_it_was_copied_moved_or_linked(tmp_path, data, form):
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


def test_a_store_opens_after_it_was_moved_with_its_data(tmp_path, data):
    """It names its files relative to itself."""
    expected = as_read(data)["t"].values
    join(data).virtual.to_vstack(tmp_path / "data" / "x.vstack", relative=True)
    (tmp_path / "data").rename(tmp_path / "moved")
    np.testing.assert_array_equal(values(tmp_path / "moved" / "x.vstack"), expected)


_READ = """
import sys, xarray as xr, virtualstack as vs
for store in sys.argv[1:]:
    print(float(xr.load_dataset(store, engine="virtualstack")["t"].sum()))
vs.Repository.open(sys.argv[1]).append(sys.argv[1] + "/../../data/later.nc", "time")
"""


def run(code: str, *arguments: object, home: Path | None) -> subprocess.CompletedProcess[str]:
    """Run code in a process of an account."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    where = {} if home is None else {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    where["PYTHONPATH"] = os.pathsep.join([str(Path(vs.__file__).parents[1]), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**kept, **where}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "home", ["of a colleague", *(pytest.param(x, marks=pytest.mark.apart) for x in ("read-only", "absent")), None]
)
def test_a_store_opens_on_every_account(tmp_path, data, home):
    """A colleague, a container and a batch node read it, and add to it, without a word."""
    stores = [write(data, tmp_path / "theirs" / f"x.{form}") for form in ["vstack", "json", "parq", "icechunk"]]
    shutil.copy(days(tmp_path / "more", 3)[2], tmp_path / "data" / "later.nc")
    place = None if home is None else tmp_path / home
    if home in ("of a colleague", "read-only"):
        (tmp_path / home).mkdir(mode=0o700 if home == "of a colleague" else 0o500)
    done = run(_READ, *stores, home=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == len(stores) * [str(float(as_read(data)["t"].sum()))]
    assert place is None or not list(place.glob("**/*"))


_UNPICKLE = """
import pickle, sys
for path in sys.argv[1:]:
    print(float(pickle.load(open(path, "rb"))["t"].sum()))
"""


def test_arrays_that_were_pickled_are_read_on_another_account(tmp_path, data):
    """As tasks of dask are: a worker may run as another account, with another home."""
    for form in FORMS:
        store = write(data, tmp_path / "mine" / f"x.{form}")
        with xr.open_dataset(store, engine="virtualstack", chunks={}) as dataset:
            (tmp_path / form).write_bytes(pickle.dumps(dataset))
    (tmp_path / "home").mkdir()
    done = run(_UNPICKLE, *(tmp_path / form for form in FORMS), home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == len(FORMS) * [str(float(as_read(data)["t"].sum()))]
