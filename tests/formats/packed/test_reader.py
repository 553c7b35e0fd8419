"""Files that are compressed as a whole; the oracle is xarray on the unpacked file."""

import bz2
import gzip
import random

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.files import file_of
from tests.formats.groups import STORAGE, group_of, reasons, values_of
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError, VirtualStackError
from virtualstack.readers import Packed, find_reader

PACK = {"gz": gzip.compress, "bz2": bz2.compress}


@pytest.fixture
def day(tmp_path):
    """A file with times, packed numbers and a group."""
    times = xr.date_range("2020-01-01", periods=3)
    dataset = xr.Dataset({"rain": (("time", "x"), np.arange(12.0).reshape(3, 4))}, {"time": times}, {"title": "a day"})
    encoding = {"rain": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "zlib": True}}
    dataset.to_netcdf(tmp_path / "day.nc", engine="netcdf4", encoding=encoding)
    xr.Dataset({"t": ("y", [1.0])}).to_netcdf(tmp_path / "day.nc", engine="netcdf4", group="inner", mode="a")
    return tmp_path / "day.nc"


@pytest.mark.parametrize("packing", PACK)
def test_values_are_those_of_the_unpacked_file(day, packing, tmp_path):
    """Whatever the name; they survive the file, since they are in the manifest."""
    path = file_of(tmp_path / f"day.{packing}.bin", PACK[packing](day.read_bytes()))
    assert find_reader(path, STORAGE) == Packed()
    with xr.open_dataset(day, engine="netcdf4") as file:
        expected = file.load()
    with xr.open_dataset(day, engine="netcdf4", group="inner") as file:
        inner = file.load()
    vds = vs.open_virtual_dataset(path)
    tree = vs.open_virtual_datatree(path)
    path.unlink()
    xr.testing.assert_identical(vds.virtual.open().load(), expected)
    xr.testing.assert_identical(tree["inner"].to_dataset(inherit=False).virtual.open().load(), inner)


def test_netcdf3_and_files_in_a_list(tmp_path):
    """They join as others do."""
    paths = []
    for day in range(2):
        dataset = xr.Dataset({"rain": ("time", [day + 0.5])}, {"time": [day]})
        dataset.to_netcdf(tmp_path / "a.nc", format="NETCDF3_CLASSIC", engine="netcdf4")
        paths.append(file_of(tmp_path / f"{day}.nc.gz", gzip.compress((tmp_path / "a.nc").read_bytes())))
    assert vs.open_virtual_mfdataset(paths).virtual.open()["rain"].values.tolist() == [0.5, 1.5]


def test_large_variables_are_refused(day, tmp_path):
    """With the limit that would accept them."""
    path = file_of(tmp_path / "a.nc.gz", gzip.compress(day.read_bytes()))
    group = group_of(path, Packed(), inline_limit=23)
    assert set(reasons(group)) == {"/rain", "/time"}
    assert not group.arrays
    assert {x.inline_size for x in group.refusals if x.kind == "refused"} == {24}
    with pytest.raises(UnsupportedFeatureError, match="inline"):
        vs.open_virtual_dataset(path, inline_limit=1)


def test_what_cannot_be_unpacked(day, tmp_path):
    data = gzip.compress(day.read_bytes())
    for name, content, error in (
        ("cut", data[:-20], MalformedFileError),
        ("twice", gzip.compress(data), UnsupportedFeatureError),
        ("text", gzip.compress(b"no data at all"), VirtualStackError),
        ("none", gzip.compress(b""), MalformedFileError),
        ("plain", day.read_bytes(), MalformedFileError),
    ):
        path = file_of(tmp_path / f"{name}.nc.gz", content)
        with pytest.raises(error) as caught:
            group_of(path, Packed())
        assert caught.value.url == f"file://{path}", name


def test_a_packed_file_may_name_no_other(tmp_path):
    """An external link would read a file of the machine that opens it."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = np.arange(3)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "x")
        file["y"] = np.arange(2)
    path = file_of(tmp_path / "a.h5.gz", gzip.compress((tmp_path / "a.h5").read_bytes()))
    group = group_of(path, Packed())
    assert set(group.arrays) == {"y"}


def test_flipped_bytes(day, tmp_path):
    """The checksum of gzip notices all of them but those in its header."""
    data, rng = gzip.compress(day.read_bytes(), mtime=0), random.Random(1)
    expected = {name: values_of(x) for name, x in group_of(file_of(tmp_path / "a.gz", data), Packed()).arrays.items()}
    n_errors = 0
    for _ in range(40):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            group = group_of(file_of(tmp_path / "b.gz", bytes(changed)), Packed())
        except VirtualStackError:
            n_errors += 1
            continue
        for name, values in expected.items():
            np.testing.assert_array_equal(values_of(group.arrays[name]), values)
    assert n_errors > 30
