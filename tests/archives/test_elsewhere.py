"""Cubes open for others: with another home, with none, at another mount point, from copies, and after ``touch``."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.advice import options_named
from virtualstack.errors import SourceChangedError

FORMS = ("vstack", "icechunk", "parq", "json")
READ = """
import json, sys
import xarray as xr
found = xr.open_dataset(sys.argv[1], engine="virtualstack")
print(json.dumps({name: float(found[name].sum()) for name in ("tas", "lat_bnds")}))
"""


@pytest.fixture(scope="module")
def files(archive):
    return [Path(path) for path in archive("cmip-members")[:2]]


@pytest.fixture(scope="module")
def expected(files):
    """The sums of both variables."""
    cube = vs.open_virtual_mfdataset(files).virtual.open()
    return {name: float(cube[name].sum()) for name in ("tas", "lat_bnds")}


@pytest.fixture
def share(tmp_path, files):
    """A folder with the files of the archive in one folder, and stores of them in another one."""
    data = tmp_path / "share" / "data"
    data.mkdir(parents=True)
    for path in files:
        shutil.copy2(path, data)
    return data.parent


def build(share, form, *, relative):
    """Write a cube of the files of a folder in one form: beside the folder of the files, or in a folder beside it."""
    cube = vs.open_virtual_mfdataset(sorted((share / "data").iterdir()))
    store = (share if relative else share / "cubes") / f"cube.{form}"
    store.parent.mkdir(exist_ok=True)
    if form == "vstack":
        cube.virtual.to_vstack(store, relative=relative)
    elif form == "icechunk":
        cube.virtual.to_icechunk(store)
    else:
        cube.virtual.to_kerchunk(store, relative=relative)
    return store


def read(store, home):
    """Read a cube in another process, with a home or none."""
    env = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH", "SYSTEMROOT") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ, str(store)],
        env=env | ({} if home is None else {"HOME": str(home)}),
        cwd=store.parent.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("form", [x if x == "vstack" else pytest.param(x, marks=pytest.mark.apart) for x in FORMS])
def test_a_colleague_opens_a_cube(tmp_path, share, expected, form):
    """With a home of her own, in which nothing is, and in a container without a home."""
    store = build(share, form, relative=False)
    (tmp_path / "colleague").mkdir()
    np.testing.assert_equal(read(store, tmp_path / "colleague"), expected)
    np.testing.assert_equal(read(store, None), expected)


def sums(store, **options):
    """Read a cube in this process."""
    with xr.open_dataset(store, engine="virtualstack", **options) as cube:
        return {name: float(cube[name].sum()) for name in ("tas", "lat_bnds")}


@pytest.mark.parametrize("form", ["vstack", "parq", "json"])
def test_a_cube_moves_with_its_files(tmp_path, share, expected, form):
    """To another mount point, by a new name or by a link; locations are relative to the store."""
    store = build(share, form, relative=True)
    (tmp_path / "linked").symlink_to(share)
    assert sums(tmp_path / "linked" / store.name) == expected
    share.rename(tmp_path / "mnt")
    assert sums(tmp_path / "mnt" / store.name) == expected


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_was_only_touched_is_read(share, expected, form, relative):
    """Its time is another one, and its bytes are the same."""
    store = build(share, form, relative=relative and form != "icechunk")
    for path in (share / "data").iterdir():
        os.utime(path, (1e9, 1e9))
    assert sums(store) == expected


@pytest.mark.parametrize("copy", ["cp -a", "cp -r", "rsync -a"])
@pytest.mark.parametrize("form", FORMS)
def test_copies_are_read(tmp_path, share, expected, form, copy):
    """Files that were restored in their place, and a folder with files and a relative store that was copied."""
    program = copy.split()
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed")
    store = build(share, form, relative=False)
    (share / "data").rename(tmp_path / "backup")
    subprocess.run([*program, f"{tmp_path}/backup/", str(share / "data")], check=True)
    if (form, copy) == ("icechunk", "cp -r"):  # newer files, and Icechunk keeps no digest of the old ones
        with pytest.raises(SourceChangedError) as caught:
            sums(store)
        (option,) = options_named(str(caught.value), ["stale"])
        with pytest.warns(UserWarning, match="changed"):
            assert sums(store, **option) == expected
    else:
        assert sums(store) == expected
    if form != "icechunk":
        store = build(share, form, relative=True)
        subprocess.run([*program, f"{share}/", str(tmp_path / "copied")], check=True)
        shutil.rmtree(share)
        assert sums(tmp_path / "copied" / store.name) == expected
