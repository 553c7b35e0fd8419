"""Chunks of GRIB and TIFF files, compared with what eccodes and tifffile read."""

import sys
from collections import Counter
from dataclasses import replace

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import merged, message, write
from tests.data.make_tiff import combinations
from tests.servers import RangeServer
from tests.zarr.test_reader import pack
from virtualstack.errors import MissingDependencyError

MAKERS = dict(combinations())


def compared(store, source, **options):
    """What comes of all chunks of a file that is written into a store as a tree."""
    vs.open_virtual_datatree(source).virtual.to_vstack(store)
    found = vs.Repository.open(store, **options).verify(sample=1.0)
    assert found.chunks
    return Counter((chunk.status, chunk.reason) for chunk in found.chunks)


@pytest.mark.parametrize(
    "name",
    ["plain_u2", "plain_big_c16", "zlib_strips", "separate_lzw_tiles", "gdal_ycbcr", "gdal_scale", "one_row_strips"],
)
def test_strips_and_tiles(tmp_path, name):
    """Plain, merged and compressed ones."""
    MAKERS[name](tmp_path / "a.tif")
    assert set(compared(tmp_path / "x.vstack", tmp_path / "a.tif")) == {("equal", "")}


def test_what_tifffile_does_not_read(tmp_path):
    """Is told."""
    MAKERS["gdal_lerc_nan"](tmp_path / "a.tif")
    assert set(compared(tmp_path / "x.vstack", tmp_path / "a.tif")) == {
        ("not compared", "tifffile ignores masks of LERC")
    }


def test_messages(tmp_path):
    """Values with missing ones, of a tree of kinds and members; fields of one message are not compared."""
    holes = np.where(np.arange(24) % 5 == 0, np.nan, np.arange(24.0))
    kinds = [{"productDefinitionTemplateNumber": 10, "stepRange": "0-6", "percentileValue": p} for p in (10, 90)]
    alone = [message(keys, seed=n) for n, keys in enumerate(kinds)] + [message({"shortName": "2d"}, values=holes)]
    write(tmp_path / "a.grib2", alone)
    assert compared(tmp_path / "x.vstack", tmp_path / "a.grib2") == {("equal", ""): 3}
    write(tmp_path / "b.grib2", [merged([message({"shortName": "10u"}), message({"shortName": "10v"}, seed=1)])])
    (found,) = compared(tmp_path / "y.vstack", tmp_path / "b.grib2")
    assert found == ("not compared", "its message has several fields, and eccodes returns only the first")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_members_of_a_zip_of_zarr(tmp_path, zarr_format):
    """The zarr library reads them."""
    source = xr.Dataset({"v": (("y", "x"), np.arange(10.0).reshape(2, 5), {"scale_factor": 0.5})})
    tree = xr.DataTree.from_dict({"/": source, "/g": source})
    tree.to_zarr(tmp_path / "a.zarr", zarr_format=zarr_format, consolidated=False)
    pack(tmp_path / "a.zarr", tmp_path / "a.zarr.zip")
    assert compared(tmp_path / "x.vstack", tmp_path / "a.zarr.zip") == {("equal", ""): 2}


def test_a_zip_of_zarr_at_a_server_is_not_compared(tmp_path):
    xr.Dataset({"v": ("x", np.arange(10.0))}).to_zarr(tmp_path / "a.zarr", consolidated=False)
    pack(tmp_path / "a.zarr", tmp_path / "a.zarr.zip")
    with RangeServer(tmp_path) as server:
        ((status, reason),) = compared(tmp_path / "x.vstack", server.url("a.zarr.zip"))
    assert status == "not compared"
    assert "is a zip archive that is not a local file, which zarr cannot open here" in reason


@pytest.mark.parametrize("name", ["longitude", "lon"])
def test_points_of_a_message(tmp_path, name):
    """Each of them lies in the same bytes, whatever it is called and in which group."""
    grid = {"Ni": 400, "Nj": 400, "iDirectionIncrementInDegrees": 0.1, "jDirectionIncrementInDegrees": 0.1}
    write(tmp_path / "a.grib2", [message({"gridType": "rotated_ll", "angleOfRotationInDegrees": 30, **grid})])
    vds = vs.open_virtual_dataset(tmp_path / "a.grib2")
    vds.rename({"longitude": name}).virtual.to_vstack(tmp_path / "x.vstack")
    found = vs.Repository.open(tmp_path / "x.vstack").verify(sample=1.0)
    assert {chunk.variable: chunk.status for chunk in found.chunks} == {
        "latitude": "equal",
        name: "equal",
        "t": "equal",
    }
    assert compared(tmp_path / "y.vstack", tmp_path / "a.grib2") == {("equal", ""): 3}


def test_a_character_that_is_nul(tmp_path):
    """Which netCDF4 reads as bytes of length 0."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createVariable("crs", "S1", ())
    assert compared(tmp_path / "x.vstack", tmp_path / "a.nc") == {("equal", ""): 1}


def test_files_of_a_web_server(tmp_path):
    """Are read there."""
    MAKERS["zlib_strips"](tmp_path / "a.tif")
    with RangeServer(tmp_path) as server:
        found = compared(tmp_path / "x.vstack", server.url("a.tif"), allow=server.root)
    assert set(found) == {("equal", "")}


def test_a_chunk_that_is_not_what_others_read_is_told(tmp_path):
    """A store that has the wrong order of bytes."""
    MAKERS["plain_u2"](tmp_path / "a.tif")
    vds = vs.open_virtual_dataset(tmp_path / "a.tif")
    (name,) = (name for name in vds.data_vars if vds[name].ndim > 1)
    array = vds[name].variable._data
    manifest = array.in_memory()
    other = tuple(replace(x, dtype=np.dtype(">u2")) for x in manifest.encodings)
    wrong = replace(array, manifest=replace(manifest, encodings=other))
    xr.Dataset({name: (vds[name].dims, wrong)}).virtual.to_vstack(tmp_path / "x.vstack")
    chunk, *_ = vs.Repository.open(tmp_path / "x.vstack").verify(sample=1.0).chunks
    assert chunk.status == "different"
    assert "values differ, the first at" in chunk.reason


def test_the_library_is_asked_for(tmp_path, monkeypatch):
    """Where it is not installed."""
    MAKERS["plain_u2"](tmp_path / "a.tif")
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(MissingDependencyError, match=r"virtualstack\[tiff\]"):
        compared(tmp_path / "x.vstack", tmp_path / "a.tif")
