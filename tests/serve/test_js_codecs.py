"""The JavaScript reader decodes what h5py and xarray decode: filters of HDF5, packing, and times."""

import base64
import warnings

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.serve.javascript import JavaScriptError, through_zarrita, url_of

hdf5plugin = pytest.importorskip("hdf5plugin")

FILTERS = {
    "lzf": {"compression": "lzf"},
    "lzf_shuffle": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "gzip": {"compression": "gzip", "shuffle": True},
    "bzip2": dict(hdf5plugin.BZip2()),
    "lz4": dict(hdf5plugin.LZ4(nbytes=256)),
    "zstd": dict(hdf5plugin.Zstd()),
    "blosc": dict(hdf5plugin.Blosc(cname="lz4", shuffle=2)),
    "blosc_zlib": dict(hdf5plugin.Blosc(cname="zlib", shuffle=1)),
    "bitshuffle": dict(hdf5plugin.Bitshuffle(cname="none")),
    "bitshuffle_lz4": dict(hdf5plugin.Bitshuffle(cname="lz4")),
    "bitshuffle_zstd": dict(hdf5plugin.Bitshuffle(cname="zstd", nelems=128)),
}


def test_filters_of_hdf5(node, disk, tmp_path):
    """Values that compress well, and others; chunks that are not a whole number of blocks."""
    rng = np.random.default_rng(0)
    values = {"even": np.arange(2500) // 9, "odd": rng.integers(-(2**30), 2**30, 2500), "same": np.zeros(2500)}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, options in FILTERS.items():
            for kind, data in values.items():
                for dtype in ("<i4", ">f8", "<u2"):
                    file.create_dataset(
                        f"{name}_{kind}_{dtype[1:]}", data=data.astype(dtype), chunks=(1111,), **options
                    )
    vs.open_virtual_dataset(tmp_path / "a.h5", loadable_variables=[]).virtual.to_vstack(
        tmp_path / "x.vstack", relative=True
    )
    found = node("everything", url_of(disk.root, tmp_path / "x.vstack"))
    assert len(found["arrays"]) == 3 * 3 * len(FILTERS)
    with h5py.File(tmp_path / "a.h5") as file:
        for array in found["arrays"]:
            np.testing.assert_array_equal(through_zarrita(array), file[array["path"]][:], err_msg=array["path"])


PACKED = {
    "two_fills": ("i2", {"missing_value": np.array([1, 2], "i2"), "_FillValue": np.int16(-1)}),
    "wide": ("i4", {"_FillValue": np.int32(2)}),
    "scale32": ("i2", {"scale_factor": np.float32(0.1)}),
    "scale_and_offset32": ("i2", {"scale_factor": np.float32(0.1), "add_offset": np.float32(3)}),
    "scale32_of_i4": ("i4", {"scale_factor": np.float32(0.1), "add_offset": np.float32(3)}),
    "scale64_of_f4": ("f4", {"scale_factor": np.float64(0.1), "_FillValue": np.float32(3)}),
    "mixed": ("i2", {"scale_factor": np.float32(0.1), "add_offset": np.float64(3), "_FillValue": np.int16(4)}),
    "large_fill": ("i4", {"scale_factor": np.float32(0.1), "_FillValue": np.int32(2**31 - 7), "first": 2**31 - 12}),
    "large_fill_and_offset": (
        "i4",
        {"scale_factor": np.float32(1), "add_offset": np.float32(1), "_FillValue": np.int32(2**31 - 7)}
        | {"first": 2**31 - 12},
    ),
    "whole": ("i2", {"scale_factor": np.int64(2)}),
    "unsigned": ("i1", {"_Unsigned": "true", "_FillValue": np.int8(-1), "scale_factor": np.float64(0.1)}),
    "signed": ("u1", {"_Unsigned": "false", "scale_factor": np.array([0.1])}),
    "days": ("i4", {"units": "days since 2000-01-01 06:00", "_FillValue": np.int32(3)}),
    "hours": ("f8", {"units": "hours since 1900-1-1", "calendar": "gregorian"}),
    "fractions": ("f4", {"units": "days since 1850-01-01 00:00:00", "_FillValue": np.float32(2), "first": 730.3}),
    "zone": ("i8", {"units": "seconds since 1970-01-01T00:00:00Z"}),
    "julian": ("i4", {"units": "days since 0001-01-01", "calendar": "standard", "first": 730000}),
    "julian_march": ("i4", {"units": "hours since 1500-02-28 12:00", "first": 4_000_000}),
    "proleptic": ("i8", {"units": "days since 0001-01-01", "calendar": "proleptic_gregorian", "first": 730000}),
}


def write_packed(path, dtype, attributes):
    """Write numbers as they are stored; return what xarray reads."""
    attributes = dict(attributes)
    first = attributes.pop("first", -2)
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 12)
        v = file.createVariable("v", dtype, ("x",), fill_value=attributes.pop("_FillValue", None), chunksizes=(5,))
        v.set_auto_maskandscale(False)
        v.setncatts(attributes)
        v[:] = (first + np.arange(12)).clip(max=np.iinfo(dtype).max if dtype[0] == "i" else None).astype(dtype)
    with warnings.catch_warnings(action="ignore"):
        return xr.load_dataset(path, engine="netcdf4", decode_timedelta=False)["v"]


@pytest.mark.parametrize("name", PACKED)
def test_packed_values(name, node, disk, tmp_path):
    """Bit by bit those of xarray."""
    wanted = write_packed(tmp_path / "a.nc", *PACKED[name])
    with warnings.catch_warnings(action="ignore"):
        vds = vs.open_virtual_dataset(tmp_path / "a.nc", unpack=True, loadable_variables=[])
    vds.virtual.to_vstack(tmp_path / "x.vstack", relative=True)
    (found,) = node("everything", url_of(disk.root, tmp_path / "x.vstack"))["arrays"]
    shown = through_zarrita(found)
    if wanted.dtype.kind == "M":
        assert found["zarr"]["attributes"]["dict"][-2:] == [
            ["units", "nanoseconds since 1970-01-01"],
            ["calendar", "proleptic_gregorian"],
        ]
        shown = shown.view("M8[ns]")
    assert shown.dtype == wanted.dtype
    np.testing.assert_array_equal(shown.view("u1"), wanted.values.view("u1"))


def test_times_before_the_reform_are_refused(node, disk, tmp_path):
    """For these xarray shows objects of cftime; a number would be a wrong date."""
    write_packed(tmp_path / "a.nc", "i4", {"units": "days since 0001-01-01"})
    with warnings.catch_warnings(action="ignore"):
        vds = vs.open_virtual_dataset(tmp_path / "a.nc", unpack=True, loadable_variables=[])
    vds.virtual.to_vstack(tmp_path / "x.vstack", relative=True)
    with pytest.raises(JavaScriptError, match="cftime") as caught:
        node("everything", url_of(disk.root, tmp_path / "x.vstack"))
    assert (caught.value.name, caught.value.variable) == ("UnsupportedFeatureError", "/v")


def test_a_codec_that_is_missing_is_named(node, disk, tmp_path):
    """Such as szip."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=np.arange(100), chunks=(50,), scaleoffset=4)
    vs.open_virtual_dataset(tmp_path / "a.h5", loadable_variables=[]).virtual.to_vstack(
        tmp_path / "x.vstack", relative=True
    )
    with pytest.raises(JavaScriptError, match=r"no codec 'virtualstack\.scaleoffset'") as caught:
        node("everything", url_of(disk.root, tmp_path / "x.vstack"))
    assert caught.value.name == "UnsupportedFeatureError"


@pytest.mark.parametrize("compression", [None, "gzip", "lzf", dict(hdf5plugin.BZip2()), dict(hdf5plugin.Zstd())])
def test_damaged_chunks_are_errors(compression, node, disk, tmp_path):
    """Or other values, where a bit flips that is part of one."""
    options = compression if isinstance(compression, dict) else {"compression": compression}
    values = np.arange(400, dtype="i4") // 3
    with h5py.File(tmp_path / "a.h5", "w") as file:
        v = file.create_dataset("v", data=values, chunks=(400,), fletcher32=True, **options)
        info = v.id.get_chunk_info(0)
    vs.open_virtual_dataset(tmp_path / "a.h5", loadable_variables=[]).virtual.to_vstack(
        tmp_path / "x.vstack", relative=True
    )
    whole = (tmp_path / "a.h5").read_bytes()
    for at in range(info.byte_offset, info.byte_offset + info.size, max(1, info.size // 16)):
        data = bytearray(whole)
        data[at] ^= 1 << (at % 8)
        (tmp_path / "a.h5").write_bytes(data)
        with pytest.raises(JavaScriptError) as caught:
            node("cells", url_of(disk.root, tmp_path / "x.vstack"), path="/v", cells=[[0]])
        assert caught.value.name == "ChunkDecodeError"
    (tmp_path / "a.h5").write_bytes(whole)
    (found,) = node("cells", url_of(disk.root, tmp_path / "x.vstack"), path="/v", cells=[[0]])
    assert base64.b64decode(found) == values.tobytes()
