"""Touched files of every format: the digest tells other metadata and other chunks, and nothing else."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.vstack.archive import as_read, days, join
from virtualstack.errors import SourceChangedError
from virtualstack.storage.digests import ALL

tifffile = pytest.importorskip("tifffile")

OTHER_TIME = 1_000_000_000


def cube(title="one", scale=2.0):
    values = np.random.default_rng(0).normal(scale=scale, size=(20, 90, 90)).astype("f4")
    return xr.Dataset({"v": (("t", "y", "x"), values)}, {"t": np.arange(20.0)}, {"title": title})


def netcdf3(path, **changes):
    cube(**changes).to_netcdf(path, engine="scipy", unlimited_dims=["t"])


def zarr(path, **changes):
    shutil.rmtree(path, ignore_errors=True)
    encoding = {"v": {"chunks": (5, 90, 90), "compressors": None}}
    cube(**changes).to_zarr(path, zarr_format=3, consolidated=False, encoding=encoding)


def tiff(path, *, compression=None, **changes):
    values = (100 * cube(**changes)["v"].values[0]).astype("i2")
    image, title = np.tile(values, (6, 6)), changes.get("title", "one")
    tifffile.imwrite(path, image, tile=(128, 128), compression=compression, description=title, software=False)


def deflated_tiff(path, **changes):
    """Other values of the first tile have another checksum, at its end."""
    tiff(path, compression="zlib", title=changes.get("title", "one"))
    if "scale" in changes:
        with tifffile.TiffFile(path) as file:
            page = file.pages[0]
            end = page.dataoffsets[0] + page.databytecounts[0]
        data = bytearray(path.read_bytes())
        data[end - 1] ^= 1
        path.write_bytes(data)


def grib(path, **changes):
    """Sixty messages; another title is another forecast time in the header of one of them."""
    paths = vs.sample.forecasts(path.parent / "made")
    data = bytearray(b"".join(Path(x).read_bytes() for x in paths))
    if "title" in changes:
        data[data.index(b"GRIB", 1) + 16 + 12] ^= 1
    if "scale" in changes:
        data[-40:-20] = bytes(x ^ 1 for x in data[-40:-20])
    path.write_bytes(data)


MADE = {
    "netCDF-3": (netcdf3, "x.nc"),
    "GRIB": (grib, "x.grib2"),
    "TIFF": (tiff, "x.tif"),
    "TIFF, deflated": (deflated_tiff, "x.tif"),
    "zarr": (zarr, "x.zarr"),
}


def set_times(path, seconds):
    for file in [path] if path.is_file() else path.rglob("*"):
        os.utime(file, (seconds, seconds))


def sizes(path):
    return {str(x): x.stat().st_size for x in ([path] if path.is_file() else path.rglob("*")) if x.is_file()}


def is_seen(path, store):
    """Return whether reading says that the file changed; a new process has computed no digest."""
    set_times(path, OTHER_TIME)
    vs.storage.digests._KEPT.clear()
    try:
        xr.load_dataset(store, engine="virtualstack")
    except SourceChangedError as error:
        assert "other content, modified 2001-09-09" in str(error)
        return True
    return False


@pytest.mark.parametrize("kind", MADE)
def test_touched_copied_and_rewritten(kind, tmp_path):
    """A touched file and a copy open; other metadata, and other values of a whole chunk, in the same size are told."""
    make, name = MADE[kind]
    path, store = tmp_path / name, tmp_path / "x.vstack"
    make(path)
    vs.open_virtual_dataset(path).virtual.to_vstack(store)
    expected, size = xr.load_dataset(store, engine="virtualstack"), sizes(path)
    for touch in ("touch", "copy"):
        if touch == "copy":
            path.rename(tmp_path / "old")
            (shutil.copytree if (tmp_path / "old").is_dir() else shutil.copy)(tmp_path / "old", path)
        assert not is_seen(path, store)
        xr.testing.assert_identical(xr.load_dataset(store, engine="virtualstack"), expected)
    assert vs.Repository.open(store).verify(sample=1.0).is_good
    if kind != "zarr":  # its metadata are files of their own, to which no chunk refers
        make(path, title="two")
        assert sizes(path) == size
        assert is_seen(path, store)
    make(path, scale=3.0)
    assert sizes(path) == size
    assert is_seen(path, store)


def test_small_files_are_covered_whole(tmp_path):
    """Every changed byte of a file of up to 256 KiB is told, whatever its format."""
    path, store = tmp_path / "x.nc", tmp_path / "x.vstack"
    cube().isel(t=slice(0, 5)).to_netcdf(path, engine="scipy")
    vs.open_virtual_dataset(path).virtual.to_vstack(store)
    data = path.read_bytes()
    assert len(data) < 1 << 18
    for at in np.random.default_rng(0).integers(0, len(data), 20).tolist():
        changed = bytearray(data)
        changed[at] ^= 1
        path.write_bytes(changed)
        assert is_seen(path, store)
    path.write_bytes(data)
    assert not is_seen(path, store)


def recorded(store):
    """Return the ranges of the digest of each source."""
    group = vs.open_virtual_dataset(store).virtual.to_group()
    return {x.url.rpartition("/")[2]: x.fingerprint.ranges for x in group.arrays["t"].in_memory().locations}


@pytest.mark.parametrize("checksums", [False, True])
def test_what_is_added_later(checksums, tmp_path):
    """`create`, `append` and `update` take checksums as `to_vstack` does, and a refresh keeps them."""
    paths, large = days(tmp_path / "data", 4), tmp_path / "x.vstack"
    for path in paths:  # larger than what a digest covers in any case
        with path.open("ab") as file:
            file.write(bytes(1 << 19))
    repository = vs.Repository.create(large, paths[0], checksums=checksums)
    repository = repository.append(paths[1], checksums=checksums)
    repository = repository.update(paths[2:], checksums=checksums)
    paths[1].write_bytes(paths[1].read_bytes() + b"x")
    assert repository.refresh().refreshed == (f"file://{paths[1]}",)
    assert [x == ALL for x in recorded(large).values()] == 4 * [checksums]
    xr.testing.assert_equal(xr.load_dataset(large, engine="virtualstack"), as_read(paths))


def test_a_store_that_is_appended_to_by_to_vstack(tmp_path):
    paths = days(tmp_path / "data", 3)
    join(paths[:2]).virtual.to_vstack(tmp_path / "x.vstack", checksums=True)
    vs.open_virtual_dataset(paths[2]).virtual.to_vstack(tmp_path / "x.vstack", append_dim="time", checksums=True)
    assert set(recorded(tmp_path / "x.vstack").values()) == {ALL}
