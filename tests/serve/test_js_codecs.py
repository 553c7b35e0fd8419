"""The JavaScript reader decodes what h5py and xarray decode: filters of HDF5, packing, and times."""

import base64
import random
import warnings

import h5py
import netCDF4
import numcodecs
import numpy as np
import pytest
import xarray as xr
from h5py import h5t
from hypothesis import given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from tests.codecs.hdf5_pipelines import filters_of
from tests.codecs.test_elements import N, random_float, record, stored_bytes
from tests.codecs.test_hdf5_nbit import NUMBERS, create
from tests.codecs.test_hdf5_scaleoffset import FLOATS, INTEGERS
from tests.data.hdf5_parts import bfloat16, dataset_of, properties, reduced, text
from tests.serve.javascript import JavaScriptError, through_zarrita, url_of
from virtualstack.codecs.pipeline import decode
from virtualstack.formats.hdf5.datatypes import element_type
from virtualstack.formats.hdf5.filters import filter_codecs

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
        file.create_dataset("v", data=np.arange(100), chunks=(50,), **hdf5plugin.Zfp(reversible=True))
    vs.open_virtual_dataset(tmp_path / "a.h5", loadable_variables=[]).virtual.to_vstack(
        tmp_path / "x.vstack", relative=True
    )
    with pytest.raises(JavaScriptError, match=r"no codec 'virtualstack\.zfp'") as caught:
        node("everything", url_of(disk.root, tmp_path / "x.vstack"))
    assert caught.value.name == "UnsupportedFeatureError"


def decoded(node, raw, dtype, n, codecs):
    """Return the bytes that the reader decodes a chunk to."""
    documents = [{"name": name, "configuration": options} for name, options in codecs]
    text = base64.b64encode(raw).decode()
    return base64.b64decode(node("decode", "", bytes=text, dtype=dtype, n=n, codecs=documents))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_scaleoffset(dtype, node, disk, tmp_path):
    """Values in narrow and in wide ranges, with a fill value and without, to decimals before and behind the point."""
    rng = np.random.default_rng(0)
    factors, spans = ([0, 1, 3, 6], [1.0, 1e3, 1e9]) if "f" in dtype else ([0, 4], [0, 1, 9, 250, 2**15, 2**40])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for i, (factor, span, fill) in enumerate((x, y, z) for x in factors for y in spans for z in (None, 5)):
            if "f" in dtype:
                numbers = (rng.uniform(-1, 1, 100) * span).astype(dtype)
            else:
                info = np.iinfo(dtype)
                low = max(info.min, -span // 2)
                numbers = rng.integers(low, min(info.max, low + span), 100, endpoint=True, dtype="i8").astype(dtype)
            numbers[7:11] = 5
            file.create_dataset(f"v{i}", data=numbers, chunks=(37,), scaleoffset=factor, fillvalue=fill)
    with h5py.File(tmp_path / "a.h5") as file:
        values = {f"/{name}": file[name][:] for name in file}
    vds = vs.open_virtual_dataset(tmp_path / "a.h5", loadable_variables=[])
    vds.virtual.to_vstack(tmp_path / "x.vstack", relative=True)
    found = {
        x["path"]: through_zarrita(x) for x in node("everything", url_of(disk.root, tmp_path / "x.vstack"))["arrays"]
    }
    assert found.keys() == values.keys()
    for path, wanted in values.items():
        assert found[path].tobytes() == wanted.astype(found[path].dtype).tobytes(), path


@settings(max_examples=examples(150), deadline=None)
@given(tid=NUMBERS, n=st.integers(1, 40), seed=st.integers(0, 1 << 31))
def test_nbit(node, tid, n, seed):
    """Numbers decode to the bytes that virtualstack's own codec makes of them."""
    dataset = create(tid, n, n, np.random.default_rng(seed))
    codecs = filter_codecs(filters_of(dataset.get_create_plist()))
    _, raw = dataset.read_direct_chunk((0,))
    dtype = f"|V{tid.get_size()}"
    wanted = decode(raw, codecs, np.dtype(dtype), (n,)).tobytes()
    assert decoded(node, raw, dtype, n, [(x.name, x.options()) for x in codecs]) == wanted


def assert_elements(node, tid, raw):
    """Compare elements with those that virtualstack's own codec makes."""
    found = element_type(tid.encode())
    dtype = found.stored
    wanted = decode(raw.tobytes(), found.codecs, dtype, (N,))
    codecs = [(x.name, x.options()) for x in found.codecs]
    got = np.frombuffer(decoded(node, raw.tobytes(), f"|V{dtype.itemsize}", N, codecs), dtype)
    if dtype.kind == "f":  # with other bits of NaN
        np.testing.assert_array_equal(got, wanted)
        assert np.array_equal(np.signbit(got[got == got]), np.signbit(wanted[got == got]))
    else:
        assert got.tobytes() == wanted.tobytes()


def test_floats_of_any_layout(node):
    """Parts of any size in any order, subnormal numbers, infinities and NaN, in both byte orders."""
    rng = random.Random(0)
    made = [tid for tid in (random_float(rng) for _ in range(400)) if tid is not None]
    assert {element_type(tid.encode()).stored.itemsize for tid in made} == {2, 4, 8}
    for tid in [*made, bfloat16()]:
        assert_elements(node, tid, stored_bytes(rng, tid.get_size()))


def test_integers_of_any_bits(node):
    """Any number of bits anywhere in up to 8 bytes."""
    rng = random.Random(0)
    for flags in [0, 1, 8, 9] * 60:
        size = rng.randint(1, 8)
        precision = rng.randint(1, 8 * size)
        offset = rng.randint(0, 8 * size - precision)
        numbers = b"".join(n.to_bytes(k, "little") for n, k in ((size, 4), (offset, 2), (precision, 2)))
        tid = h5t.decode(b"\x03\x00" + bytes([0x10, flags, 0, 0]) + numbers)
        assert_elements(node, tid, stored_bytes(rng, size))


@pytest.mark.parametrize("padding", [h5t.STR_NULLTERM, h5t.STR_SPACEPAD])
@pytest.mark.parametrize("size", [2, 5, 33])
def test_strings_end_where_the_library_ends_them(padding, size, node):
    rng = random.Random(size)
    for letters in (b"\0 a", b" a", b"\0b", b"c", b" ", b"\0"):
        assert_elements(node, text(size, padding), np.frombuffer(bytes(rng.choices(letters, k=N * size)), "u1"))


def test_members_are_converted_where_they_lie(node):
    rng = random.Random(1)
    assert_elements(node, record(), np.frombuffer(bytes(rng.choices(b"\0ab\xff\x80", k=N * 40)), "u1"))


def test_a_file_of_reduced_numbers_and_strings_of_c(node, disk, tmp_path):
    """Packed by nbit, or compressed."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        tid = reduced(h5t.STD_I16BE, 12, 2)
        packed = dataset_of(file, "n", tid, (100,), properties(chunk=((30,),), filter=(5,)))
        packed[...] = np.arange(-50, 50)
        dataset_of(file, "s", text(6), (100,), properties(chunk=((30,),), deflate=(4,)))[...] = np.arange(100).astype(
            "S6"
        )
        small = dataset_of(file, "b", bfloat16(), (100,), properties(chunk=((30,),), deflate=(4,)))
        small[...] = np.arange(-50, 50) / 4
    vds = vs.open_virtual_dataset(tmp_path / "a.h5", loadable_variables=[])
    vds.virtual.to_vstack(tmp_path / "x.vstack", relative=True)
    found = {x["path"]: x for x in node("everything", url_of(disk.root, tmp_path / "x.vstack"))["arrays"]}
    with h5py.File(tmp_path / "a.h5") as file:
        for name in "nb":
            np.testing.assert_array_equal(through_zarrita(found[f"/{name}"]), file[name][:])
        assert [x.encode() for x in through_zarrita(found["/s"])] == file["s"][:].tolist()


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
@pytest.mark.parametrize("astype", ["<f4", "<f8", "<i2", "|u1", ">i4", "<i8"])
def test_fixedscaleoffset(astype, dtype, node):
    """Bit by bit what numcodecs computes, in float32 and in float64."""
    rng = np.random.default_rng(0)
    encoded = (
        rng.integers(0, 200, 500).astype(astype) if "f" not in astype else (rng.normal(size=500) * 1e3).astype(astype)
    )
    for scale, offset in [(10, 273.15), (0.1, 0.3), (3, 1e9 / 7), (1 / 3, -5)]:
        codec = numcodecs.FixedScaleOffset(offset=offset, scale=scale, dtype=dtype, astype=astype)
        options = {"offset": offset, "scale": scale, "dtype": dtype, "astype": astype}
        found = decoded(node, encoded.tobytes(), dtype, 500, [("numcodecs.fixedscaleoffset", options)])
        assert found == codec.decode(encoded.tobytes()).tobytes(), (scale, offset)


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
