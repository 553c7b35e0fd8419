import asyncio
import re

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file, opened
from virtualstack.errors import ChunkDecodeError, CombineError, WriterError
from virtualstack.manifests import ManifestArray
from virtualstack.reading.plan import make_plan
from virtualstack.reading.selection import select

TIMES = "days since 2000-01-01"


def write(path, variables, sizes=None):
    """Write variables as netcdf4_file has them, in chunks of two times and three of each other dimension."""
    made, sizes = {}, sizes or {"t": None, "x": 4}
    for name, (dtype, dims, values, attributes, *options) in variables.items():
        chunks = [2 if dim == "t" else min(sizes[dim], 3) for dim in dims.split()]
        options = ({"chunksizes": chunks} if chunks else {}) | dict(*options)
        made[name] = (dtype, dims, values, attributes, options)
    return netcdf4_file(path, sizes, made)


def packed_file(path, *, scale, missing, units="days since 2000-01-01", dtype="i2", first=0):
    """Write a file of a packed variable, dates, and numbers that nothing is done to."""
    values = np.arange(first, first + 12, dtype="i4").reshape(3, 4)
    values[1, 2] = missing
    attributes = {"scale_factor": scale, "add_offset": type(scale)(10), "_FillValue": np.dtype(dtype).type(missing)}
    return write(
        path,
        {
            "t": ("f8", "t", np.arange(first, first + 3.0), {"units": TIMES}),
            "temperature": (dtype, "t x", values, {**attributes, "units": "K"}),
            "run": ("i4", "t", np.arange(first, first + 3), {"units": units}),
            "count": ("i4", "t x", values, {"long_name": "count"}),
        },
    )


def assert_same_bytes(found, expected):
    xr.testing.assert_identical(found, expected)
    for name, variable in expected.variables.items():
        assert found.variables[name].dtype == variable.dtype, name
        if variable.dtype.kind != "O":
            assert found.variables[name].values.tobytes() == variable.values.tobytes(), name


def virtual(dataset, name):
    return dataset.variables[name]._data


@pytest.fixture
def path(tmp_path):
    return packed_file(tmp_path / "a.nc", scale=np.float32(0.01), missing=-99)


def test_a_virtual_variable_has_the_dtype_and_attributes_of_the_decoded_one(path):
    vds = vs.open_virtual_dataset(path, unpack=True, loadable_variables=[])
    expected = opened(path)
    for name, variable in expected.variables.items():
        assert isinstance(virtual(vds, name), ManifestArray)
        assert vds.variables[name].dtype == variable.dtype
        assert vds.variables[name].attrs == variable.attrs
        kept = {key: x for key, x in variable.encoding.items() if key in vds.variables[name].encoding}
        assert kept == vds.variables[name].encoding
        assert virtual(vds, name).cf == {}
    assert {"scale_factor", "add_offset", "_FillValue", "dtype"} <= vds["temperature"].encoding.keys()


def test_values_are_those_of_xarray_on_every_way(path, tmp_path):
    vds = vs.open_virtual_dataset(path, unpack=True, loadable_variables=[])
    expected = opened(path)
    assert_same_bytes(vds.virtual.open().load(), expected)
    assert_same_bytes(vds.virtual.load(list(expected.variables)).set_xindex("t"), expected)
    store = vs.ManifestStore(vds.virtual.to_group())
    assert_same_bytes(xr.open_zarr(store, consolidated=False, zarr_format=3).load(), expected)
    vds.virtual.to_kerchunk(tmp_path / "refs.json")
    assert_same_bytes(xr.open_dataset(tmp_path / "refs.json", engine="virtualstack").load(), expected)


def test_other_readers_of_references_get_the_attributes(tmp_path):
    """JSON has no float32, so the packing is one of float64."""
    path = packed_file(tmp_path / "a.nc", scale=np.float64(0.01), missing=-99)
    vs.open_virtual_dataset(path, unpack=True).virtual.to_kerchunk(tmp_path / "refs.json")
    found = xr.open_dataset(str(tmp_path / "refs.json"), engine="kerchunk").load()
    xr.testing.assert_equal(found, opened(path))
    assert found["temperature"].values.tobytes() == opened(path)["temperature"].values.tobytes()


def test_zarr_gets_stored_bytes_and_the_codec(path):
    """Chunks are not decoded for it: the codec stands in the metadata, and zarr finds it by entry point."""
    vds = vs.open_virtual_dataset(path, unpack=True, loadable_variables=[])
    store = vs.ManifestStore(vds.virtual.to_group())
    array = zarr.open_group(store, mode="r")["temperature"]
    assert [codec.to_dict()["name"] for codec in array.metadata.codecs] == ["virtualstack.cf", "bytes"]
    assert asyncio.run(store.getsize("temperature/c/0/0")) == 2 * 3 * np.dtype(np.int16).itemsize
    np.testing.assert_array_equal(array[1:, 2], opened(path)["temperature"].values[1:, 2])


def test_files_that_pack_differently_join_as_they_are_decoded(tmp_path):
    """Scale, missing value, unit of time and stored dtype differ; float32 and float64 join to float64."""
    paths = [
        packed_file(tmp_path / "a.nc", scale=np.float32(0.01), missing=-99),
        packed_file(tmp_path / "b.nc", scale=np.float32(0.5), missing=7, first=3, units="hours since 2001-01-01"),
        packed_file(tmp_path / "c.nc", scale=np.float64(0.1), missing=-1, first=6, dtype="i4"),
    ]
    expected = xr.concat([opened(path) for path in paths], "t", data_vars="all")
    vds = xr.concat([vs.open_virtual_dataset(path, unpack=True) for path in paths], "t", data_vars="all")
    assert isinstance(virtual(vds, "temperature"), ManifestArray)
    assert vds["temperature"].dtype == np.float64
    assert_same_bytes(vds.virtual.open().load(), expected)
    assert_same_bytes(
        vds.isel(t=slice(1, 8, 2), x=slice(None, None, -1)).virtual.open().load(),
        expected.isel(t=slice(1, 8, 2), x=slice(None, None, -1)),
    )
    store = vs.ManifestStore(vds.virtual.to_group())
    assert_same_bytes(xr.open_zarr(store, consolidated=False, zarr_format=3).load(), expected)


def test_without_unpacking_they_do_not_join_and_the_error_says_how(tmp_path):
    paths = [
        packed_file(tmp_path / "a.nc", scale=np.float32(0.01), missing=-99),
        packed_file(tmp_path / "b.nc", scale=np.float32(0.5), missing=-99, first=3),
    ]
    with pytest.raises(CombineError, match=r"'/temperature' has scale_factor = .*unpack=True"):
        xr.concat([vs.open_virtual_dataset(path) for path in paths], "t", data_vars="all")


def test_an_unpacked_dataset_does_not_join_a_packed_one(tmp_path):
    """Dtypes are cast for decoded numbers alone."""
    path = packed_file(tmp_path / "a.nc", scale=np.float32(0.01), missing=-99)
    datasets = [vs.open_virtual_dataset(path, unpack=unpack) for unpack in (True, False)]
    with pytest.raises(CombineError, match=r"numbers are packed by \['_FillValue', 'add_offset', 'scale_factor'\]"):
        xr.concat([x[["temperature"]] for x in datasets], "t", data_vars="all")


def test_kerchunk_takes_what_is_packed_alike_and_refuses_the_rest(tmp_path):
    """Written with the attributes of the files; a small variable is written out, so the limit is zero here."""
    paths = [
        packed_file(tmp_path / f"{first}.nc", scale=np.float32(scale), missing=-99, first=first)
        for first, scale in ((0, 0.01), (3, 0.01), (6, 0.5))
    ]
    datasets = [vs.open_virtual_dataset(path, unpack=True)[["temperature"]].isel(t=slice(0, 2)) for path in paths]
    alike = xr.concat(datasets[:2], "t", data_vars="all")
    references = alike.virtual.to_kerchunk(inline_limit=0)["refs"]
    assert '"scale_factor"' in references["temperature/.zattrs"]
    expected = xr.concat([opened(path)[["temperature"]].isel(t=slice(0, 2)) for path in paths], "t", data_vars="all")
    assert_same_bytes(
        xr.open_dataset({"version": 1, "refs": references}, engine="virtualstack").load(), expected.isel(t=slice(0, 4))
    )
    differing = xr.concat(datasets, "t", data_vars="all")
    with pytest.raises(WriterError, match=r"'temperature' cannot be written .* 2 encodings"):
        differing.virtual.to_kerchunk(inline_limit=0)
    written_out = differing.virtual.to_kerchunk()
    assert_same_bytes(xr.open_dataset(written_out, engine="virtualstack").load(), expected)


def test_dates_of_two_units_are_written_out_for_kerchunk(tmp_path):
    paths = [
        packed_file(tmp_path / f"{n}.nc", scale=np.float32(0.01), missing=-99, units=f"{units} since 2000-01-01")
        for n, units in enumerate(("days", "hours"))
    ]
    vds = xr.concat([vs.open_virtual_dataset(x, unpack=True)[["run"]] for x in paths], "t", data_vars="all")
    expected = xr.concat([opened(x)[["run"]] for x in paths], "t", data_vars="all")
    refs = vds.virtual.to_kerchunk()
    assert_same_bytes(xr.open_dataset(refs, engine="virtualstack").load(), expected)


def test_holes_read_as_their_fill_value_decoded(tmp_path):
    """The fill value of the file is not a missing value: never written numbers are scaled as all others."""
    path = write(
        tmp_path / "a.nc",
        {
            "masked": ("i2", "t x", None, {"scale_factor": 0.5, "_FillValue": np.int16(-5)}),
            "scaled": ("i2", "t x", None, {"scale_factor": 0.5, "missing_value": np.int16(-5)}),
            "date": ("i4", "t", None, {"units": TIMES, "_FillValue": np.int32(-1)}),
            "grow": ("i1", "t", [1, 2, 3], {}),
        },
    )
    vds = vs.open_virtual_dataset(path, unpack=True)
    assert vds.virtual.open().masked.isnull().all()
    assert_same_bytes(vds.virtual.open().load(), opened(path))


def test_dates_without_a_place_in_nanoseconds_raise_when_they_are_read(tmp_path):
    """The first chunk is fine; the remedy is in the message."""
    path = write(tmp_path / "a.nc", {"run": ("i4", "t", [0, 1, 2, 200_000], {"units": TIMES})})
    opened_virtually = vs.open_virtual_dataset(path, unpack=True).virtual.open()
    assert opened_virtually.run.dtype == "datetime64[ns]"
    assert opened_virtually.run[1] == np.datetime64("2000-01-02")
    with pytest.raises(ChunkDecodeError, match=r"cell \(1,\) of variable 'run'.*2262-04-11.*decode_times=False"):
        opened_virtually.run.load()


@pytest.mark.parametrize("unpack", [False, True])
def test_times_can_be_left_as_they_are_stored(path, unpack):
    """Both ways of opening then decode as xarray does; other variables are unpacked."""
    vds = vs.open_virtual_dataset(path, unpack=unpack, decode_times=False)
    assert vds["run"].dtype == np.int32
    assert (vds["temperature"].dtype == np.float32) == unpack
    assert_same_bytes(vds.virtual.open(decode_times=False).load(), opened(path, decode_times=False))


def test_what_has_no_fixed_dtype_stays_packed_and_is_reported(tmp_path):
    path = write(
        tmp_path / "a.nc",
        {
            "leap": ("i4", "t", [1, 2, 3], {"units": TIMES, "calendar": "noleap"}),
            "letters": ("S1", "t x", np.full((3, 4), b"a"), {"_FillValue": b"x"}),
        },
    )
    vds = vs.open_virtual_dataset(path, unpack=True)
    report = vds.virtual.report().set_index("variable")
    assert dict(report["state"]) == {"leap": "packed", "letters": "packed"}
    assert "calendar 'noleap'" in report["detail"]["leap"]
    assert "'|S4' are no numbers" in report["detail"]["letters"]
    assert vds["leap"].dtype == np.int32
    xr.testing.assert_identical(vds.virtual.open().load(), opened(path))


@pytest.mark.parametrize("loadable", [[], None, ["t_bounds"]])
def test_bounds_are_dates_of_the_units_of_their_times(tmp_path, loadable):
    """CF lets them go without; the calendar too is that of the times where they have none."""
    path = write(
        tmp_path / "a.nc",
        {
            "t": ("f8", "t", [0, 1], {"units": TIMES, "bounds": "t_bounds", "calendar": "proleptic_gregorian"}),
            "t_bounds": ("f8", "t x", [[0, 1], [1, 2]], {}),
            "s": ("f8", "t", [0, 1], {"units": TIMES, "bounds": "s_bounds", "calendar": "noleap"}),
            "s_bounds": ("f8", "t x", [[0, 1], [1, 2]], {"units": TIMES}),
        },
        {"t": None, "x": 2},
    )
    vds = vs.open_virtual_dataset(path, unpack=True, loadable_variables=loadable)
    assert vds["t_bounds"].dtype == "datetime64[ns]"
    assert_same_bytes(vds.virtual.open().load(), opened(path))


def test_variables_that_need_nothing_are_untouched(path):
    left, right = (vs.open_virtual_dataset(path, unpack=x) for x in (True, False))
    assert virtual(left, "count").equals(virtual(right, "count"))
    assert virtual(left, "count").in_memory().encodings == virtual(right, "count").in_memory().encodings
    assert left["count"].attrs == right["count"].attrs


def test_a_fill_value_of_nan_needs_no_codec(tmp_path):
    """Nothing is masked, so chunks stay readable for all; the attribute is in the encoding as in xarray."""
    nan = np.float32("nan")
    path = write(tmp_path / "a.nc", {"v": ("f4", "t x", np.ones((2, 4)), {"_FillValue": nan})})
    vds = vs.open_virtual_dataset(path, unpack=True)
    assert all(x.codecs == () for x in virtual(vds, "v").in_memory().encodings)
    np.testing.assert_equal(vds["v"].encoding["_FillValue"], nan)
    assert "_FillValue" not in vds["v"].attrs
    assert_same_bytes(vds.virtual.open().load(), opened(path))


def test_writing_what_was_opened_packs_it_again(path, tmp_path):
    """The encoding is that of xarray, so netCDF gets the stored numbers."""
    found = vs.open_virtual_dataset(path, unpack=True, loadable_variables=[]).virtual.open()
    expected = opened(path)
    for name, variable in expected.variables.items():
        for key in ("scale_factor", "add_offset", "_FillValue", "units", "calendar", "dtype"):
            assert variable.encoding.get(key) == found.variables[name].encoding.get(key)
    found.to_netcdf(tmp_path / "b.nc", engine="netcdf4")
    raw = {"mask_and_scale": False, "decode_times": False}
    xr.testing.assert_equal(opened(tmp_path / "b.nc", **raw), opened(path, **raw))


def test_what_was_packed_in_two_ways_has_no_packing_to_write_with(tmp_path):
    """The packing of the first file might not hold the values of the second."""
    paths = [
        packed_file(tmp_path / f"{first}.nc", scale=np.float32(scale), missing=-99, first=first)
        for first, scale in ((0, 0.01), (3, 1000))
    ]
    vds = xr.concat([vs.open_virtual_dataset(x, unpack=True) for x in paths], "t", data_vars="all")
    assert not {"scale_factor", "_FillValue"} & vds.virtual.open()["temperature"].encoding.keys()
    assert vds.virtual.open()["temperature"].encoding["dtype"] == np.float32


def test_packed_numbers_that_are_not_compressed_are_read_in_part(tmp_path):
    """Of a contiguous variable only what is asked for is fetched."""
    values = np.arange(4000, dtype="i2")
    options = {"contiguous": True, "chunksizes": None, "endian": "big"}
    v = (">i2", "y", values, {"scale_factor": np.float32(0.5)}, options)
    path = write(tmp_path / "a.nc", {"v": v}, {"y": 4000})
    vds = vs.open_virtual_dataset(path, unpack=True)
    some = slice(3990, 3000, -7)
    assert_same_bytes(vds.virtual.open().isel(y=some).load(), opened(path).isel(y=some))
    array = virtual(vds, "v")
    plan = make_plan(array, select(array.grid, [slice(3000, 3010)]), absent="fill")
    assert plan.chunks.length.tolist() == [20]


def test_a_tree_is_unpacked_in_every_group(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for group in (file, file.createGroup("deep/er")):
            group.createDimension("x", 3)
            variable = group.createVariable("v", "i2", ("x",))
            variable.set_auto_maskandscale(False)
            variable.setncatts({"scale_factor": 0.5})
            variable[:] = [1, 2, 3]
    tree = vs.open_virtual_datatree(tmp_path / "a.nc", unpack=True)
    assert tree["deep/er/v"].dtype == np.float64
    with xr.open_datatree(tmp_path / "a.nc", engine="netcdf4") as expected:
        xr.testing.assert_identical(tree.virtual.open().load(), expected.load())


def test_the_codec_says_what_it_does(path):
    """A person who reads the metadata sees the attributes."""
    vds = vs.open_virtual_dataset(path, unpack=True)
    (encoding,) = virtual(vds, "temperature").in_memory().encodings
    assert re.search(r'"scale_factor":\{"float32":0.00999', encoding.codecs[0].configuration)
