"""References opened unchanged by fsspec, zarr and xarray's engine "kerchunk", beside xarray on the source."""

import json
from dataclasses import replace
from pathlib import Path

import fsspec
import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from zarr.storage import FsspecStore

from tests.data.arrays import referenced
from tests.data.netcdf4 import netcdf4_file
from tests.kerchunk.netcdf_sources import virtual_group
from tests.kerchunk.reading import ENGINE_WARNINGS, needs_engine
from virtualstack.kerchunk.writer import write_kerchunk

needs_engine()
pytestmark = ENGINE_WARNINGS

VALUES = np.arange(24).reshape(4, 6) - 3


def netcdf(path, dtype, *, fill=None, attrs=None, written=slice(None), **options):
    """Write one variable by netCDF-C; rows outside of ``written`` stay unwritten chunks."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("y", 4)
        file.createDimension("x", 6)
        variable = file.createVariable("v", dtype, ("y", "x"), chunksizes=(1, 3), fill_value=fill, **options)
        variable.set_auto_maskandscale(False)
        variable.setncatts(attrs or {})
        variable[written] = VALUES[written].astype(dtype)
        file.createVariable("x", "f8", ("x",))[:] = np.arange(6) / 2
        file.title = "a small file"


def hdf5(path, dtype, *, fill, attrs=None, written=slice(None), **options):
    """Write one variable by h5py: the fill value of the dataset is not an attribute."""
    with h5py.File(path, "w") as file:
        for name, n in (("y", 4), ("x", 6)):
            file[name] = np.arange(n)
            file[name].make_scale(name)
        variable = file.create_dataset("v", (4, 6), dtype, chunks=(1, 3), fillvalue=fill, **options)
        variable[written] = VALUES[written].astype(dtype)
        for i, name in enumerate(("y", "x")):
            variable.dims[i].attach_scale(file[name])
        variable.attrs.update(attrs or {})


HALF = slice(0, 2)
TIME = {"units": "days since 2001-02-03", "calendar": "standard"}
CASES = {
    "float, _FillValue, no holes": lambda p: netcdf(p, "f4", fill=np.float32(2)),
    "float, _FillValue, holes": lambda p: netcdf(p, "f4", fill=np.float32(-999.5), written=HALF, zlib=True),
    "float, _FillValue NaN, holes": lambda p: netcdf(p, "f8", fill=np.nan, written=HALF),
    "float, no _FillValue, no holes": lambda p: netcdf(p, "f4", zlib=True, shuffle=True, fletcher32=True),
    "float, no _FillValue, holes of 9.97e36": lambda p: netcdf(p, "f4", written=HALF, zlib=True),
    "float, holes of NaN without _FillValue": lambda p: hdf5(p, "f4", fill=np.nan, written=HALF),
    "float, holes of 0 without _FillValue": lambda p: hdf5(p, "f8", fill=0, written=HALF),
    "int, _FillValue, no holes": lambda p: netcdf(p, "i2", fill=np.int16(0)),
    "int, _FillValue, holes": lambda p: netcdf(p, "i4", fill=np.int32(-7), written=HALF),
    "int, no _FillValue, zeros": lambda p: netcdf(p, "i8"),
    "int, no _FillValue, holes of -32767": lambda p: netcdf(p, "i2", written=HALF, zlib=True),
    "int, holes of 0, _FillValue -1": lambda p: hdf5(p, "i4", fill=0, attrs={"_FillValue": np.int32(-1)}, written=HALF),
    "int, holes of 0 with fletcher32": lambda p: hdf5(p, ">i4", fill=0, written=HALF, fletcher32=True, shuffle=True),
    "int, all holes": lambda p: hdf5(p, "u1", fill=3, written=slice(0, 0)),
    "int, missing_value, holes of it": lambda p: hdf5(
        p, "i2", fill=5, attrs={"missing_value": np.int16(5)}, written=HALF
    ),
    "unsigned by attribute": lambda p: netcdf(p, "i1", fill=np.int8(-1), attrs={"_Unsigned": "true"}, written=HALF),
    "packed, _FillValue, holes": lambda p: netcdf(
        p, "i2", fill=np.int16(-9), attrs={"scale_factor": 0.25, "add_offset": 4.0}, written=HALF, zlib=True
    ),
    "time, _FillValue, holes": lambda p: netcdf(p, "i4", fill=np.int32(-99), attrs=TIME, written=HALF),
    "time, no holes, zero": lambda p: netcdf(p, "i8", attrs=TIME),
    "time in floats, holes": lambda p: netcdf(p, "f8", fill=np.nan, attrs=TIME, written=HALF),
    "text, no holes": lambda p: netcdf(p, "S1"),
    "text of 5 bytes, holes": lambda p: hdf5(p, "S5", fill=b"", written=HALF),
    "big-endian": lambda p: netcdf(p, ">f8", fill=1e20, endian="big", written=HALF),
    "uint64 beyond 2^63": lambda p: netcdf(p, "u8", fill=np.uint64(2**64 - 2), written=HALF),
}


@pytest.fixture(scope="module", params=CASES, ids=lambda name: name.replace(" ", "_"))
def source(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "a file.nc"
    CASES[request.param](path)
    return path


@pytest.mark.parametrize("suffix", ["dict", "parq"])
def test_engine_kerchunk_gives_what_xarray_gives_on_the_source(source, suffix, tmp_path):
    """Decoded values, dtypes and attributes equal those of the source, whatever the fill values and holes."""
    target = None if suffix == "dict" else tmp_path / f"refs.{suffix}"
    references = write_kerchunk(virtual_group(source), target)
    opened = references if target is None else str(target)
    with xr.open_dataset(source, engine="h5netcdf") as expected, xr.open_dataset(opened, engine="kerchunk") as got:
        xr.testing.assert_identical(got.load(), expected.load())
        for name, variable in expected.variables.items():
            assert got[name].dtype == variable.dtype
    with (
        xr.open_dataset(source, engine="h5netcdf", decode_cf=False, mask_and_scale=False) as expected,
        xr.open_dataset(
            opened, engine="kerchunk", open_dataset_options={"decode_cf": False, "mask_and_scale": False}
        ) as got,
    ):
        np.testing.assert_array_equal(got["v"].values, expected["v"].values)


@pytest.mark.filterwarnings("ignore:.*Zarr format 3", "ignore:.*in the Zarr version 3 spec")
def test_references_with_metadata_of_zarr_3(source, tmp_path):
    """They give what xarray gives on the source; nothing is written out, because the fill value masks nothing."""
    path = str(tmp_path / "refs.json")
    write_kerchunk(virtual_group(source), path, zarr_format=3, fill_budget=0, inline_limit=0)
    references = json.loads(Path(path).read_text())["refs"]
    assert {key.rpartition("/")[2] for key in references if "/c" not in key} == {"zarr.json"}
    store = FsspecStore(fsspec.filesystem("reference", fo=path, asynchronous=True), read_only=True)
    for opened in (
        {"filename_or_obj": store, "engine": "zarr", "zarr_format": 3, "consolidated": False},
        {"filename_or_obj": path, "engine": "virtualstack"},
    ):
        for options in ({}, {"decode_cf": False, "mask_and_scale": False}):
            with (
                xr.open_dataset(source, engine="h5netcdf", **options) as expected,
                xr.open_dataset(**opened, **options, chunks=None) as got,
            ):
                np.testing.assert_array_equal(got["v"].values, expected["v"].values)
                if not options:
                    xr.testing.assert_identical(got.load(), expected.load())
                    assert got["v"].dtype == expected["v"].dtype


def test_engine_kerchunk_opens_compressed_references(tmp_path):
    """It has to be told that they are compressed; fsspec's gzip needs nothing else, and zstd a library."""
    path = tmp_path / "a.nc"
    netcdf(path, "f4")
    write_kerchunk(virtual_group(path), tmp_path / "refs.json.gz")
    options = {"target_options": {"compression": "gzip"}}
    with (
        xr.open_dataset(path, engine="h5netcdf") as expected,
        xr.open_dataset(str(tmp_path / "refs.json.gz"), engine="kerchunk", storage_options=options) as got,
    ):
        xr.testing.assert_identical(got.load(), expected.load())


def test_packing_by_float32_decodes_in_float64(tmp_path):
    """JSON has no float32, so xarray unpacks in float64: the stored numbers are the same, the results nearly."""
    packing = {"scale_factor": np.float32(0.1), "add_offset": np.float32(273.15)}
    netcdf(tmp_path / "a.nc", "i2", fill=np.int16(-9), attrs=packing, written=HALF)
    with (
        xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as expected,
        xr.open_dataset(write_kerchunk(virtual_group(tmp_path / "a.nc"), None), engine="kerchunk") as got,
    ):
        assert (expected["v"].dtype, got["v"].dtype) == ("float32", "float64")
        np.testing.assert_allclose(got["v"].values, expected["v"].values, rtol=1e-6)


def test_groups_open_by_path(tmp_path):
    """Groups below the root, one named as an attribute, open as groups of the references."""
    path = tmp_path / "groups.nc"
    variables = {
        f"{group}/{name}": (dtype, dims, values)
        for group in ("units", "units/title")
        for name, dtype, dims, values in (("x", "i4", "x", np.arange(5)), ("level", "f4", "", 2.5))
    }
    attributes = {"units": "units", "units/title": "units", "units/title/title": "units/title"}
    netcdf4_file(path, {"units/x": 5, "units/title/x": 5}, variables, **attributes)
    # fsspec looks for the protocol in groups too, where they come first in a set; so name it for parquet
    for target, protocol in ((tmp_path / "refs.json", {}), (tmp_path / "refs.parq", {"remote_protocol": "file"})):
        write_kerchunk(virtual_group(path), target)
        for name in ("units", "units/title"):
            with (
                xr.open_dataset(path, group=name, engine="h5netcdf") as expected,
                xr.open_dataset(
                    str(target), engine="kerchunk", storage_options=protocol, open_dataset_options={"group": name}
                ) as got,
            ):
                xr.testing.assert_identical(got.load(), expected.load())


def test_one_hundred_thousand_rows_then_a_short_file(tmp_path):
    """fsspec reads record files of 100,000 rows and an unpadded last one, at both ends of each."""
    path = tmp_path / "many.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(100_003, dtype="u4"))
        file["v"].make_scale("v")
        start = file["v"].id.get_offset()
    group = virtual_group(path)
    offsets, locations = start + 4 * np.arange(100_003), group.arrays["v"].in_memory().locations
    array = referenced(offsets, np.full_like(offsets, 4), (1,), "u4", location=locations, dims=["v"])
    write_kerchunk(replace(group, arrays={"v": array}), tmp_path / "refs.parq")
    assert sorted(x.name for x in (tmp_path / "refs.parq" / "v").iterdir()) == ["refs.0.parq", "refs.1.parq"]
    files = fsspec.filesystem("reference", fo=str(tmp_path / "refs.parq"), remote_protocol="file")
    for i in (0, 1, 99_999, 100_000, 100_002):
        assert np.frombuffer(files.cat_file(f"v/{i}"), "u4").tolist() == [i]
