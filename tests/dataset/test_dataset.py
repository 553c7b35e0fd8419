"""A file opened as a virtual dataset, and its values: equal to xr.open_dataset on the source, decoded and raw."""

import asyncio
import pickle

import h5py
import netCDF4
import numcodecs
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file, opened
from tests.joins import MINIMAL
from virtualstack.errors import (
    CombineError,
    ReaderError,
    SourceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
    VirtualValuesError,
    WriterError,
)
from virtualstack.manifests import ManifestArray


def make_file(path, *, start=0, n=5, units="days since 2000-01-01", **tos):
    """A small model output: packed values, times with bounds, an auxiliary coordinate, strings, a scalar, a flag."""
    with netCDF4.Dataset(path, "w") as file:
        file.title = "test"
        file.createDimension("time", None)
        file.createDimension("y", 6)
        file.createDimension("x", 7)
        file.createDimension("nb", 2)
        file.createDimension("strlen", 4)
        time = file.createVariable("time", "f8", ("time",))
        time.setncatts({"units": units, "calendar": "standard", "bounds": "time_bounds"})
        time[:] = np.arange(start, start + n)
        bounds = file.createVariable("time_bounds", "f8", ("time", "nb"))
        bounds[:] = np.arange(start, start + n)[:, None] + [0, 1]
        x = file.createVariable("x", "f4", ("x",))
        x[:] = np.arange(7) * 0.1
        lat = file.createVariable("lat", "f4", ("y", "x"), zlib=True)
        lat.units = "degrees_north"
        lat[:] = np.arange(42).reshape(6, 7)
        packed = {"fill_value": -999, "zlib": True, "shuffle": True, "chunksizes": (2, 4, 7)}
        v = file.createVariable("tos", "i2", ("time", "y", "x"), **packed)
        v.setncatts({"scale_factor": 0.01, "add_offset": 273.15, "coordinates": "lat", "units": "K"} | tos)
        v.set_auto_maskandscale(False)
        values = (np.arange(n * 42).reshape(n, 6, 7) + start).astype("i2")
        values[0, 0, 0] = -999
        v[:] = values
        file.createVariable("height", "f8", ()).assignValue(2.0)
        names = file.createVariable("station", str, ("y",))
        names[:] = np.array(["a", "bé", "", "d", "e", "f"], object)
        chars = file.createVariable("code", "S1", ("y", "strlen"))
        chars[:] = netCDF4.stringtochar(np.array(["ab", "abcd", "", "x", "y", "z"], "S4"))
        partly = file.createVariable("partly", "f4", ("time", "x"), chunksizes=(1, 7), fill_value=9.0)
        partly[1] = np.arange(7)
        file.createVariable("never", "i4", ("y", "x"), chunksizes=(2, 2))
        flag = file.createVariable("flag", "u1", ("y",))
        flag[:] = np.arange(6)
    return path


@pytest.fixture
def nc(tmp_path):
    return make_file(tmp_path / "a.nc")


def test_values_equal_those_of_xarray(nc):
    """Decoded values, dtypes, dims, coordinates and attributes are those of xr.open_dataset."""
    found, expected = vs.open_virtual_dataset(nc).virtual.open().load(), opened(nc)
    xr.testing.assert_identical(found, expected)
    assert {k: v.dtype for k, v in found.variables.items()} == {k: v.dtype for k, v in expected.variables.items()}


def test_raw_values_equal_those_of_the_file(nc):
    """Without decoding every variable equals what netCDF4 reads; characters are text since the file was opened."""
    raw = vs.open_virtual_dataset(nc).virtual.open(mask_and_scale=False, decode_times=False, concat_characters=False)
    with netCDF4.Dataset(nc) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        for name, variable in file.variables.items():
            expected = np.ma.getdata(variable[...])
            if name == "code":
                expected = netCDF4.chartostring(expected, encoding="bytes")
            np.testing.assert_array_equal(raw[name].values, expected, err_msg=name)
            assert raw[name].dtype == expected.dtype or expected.dtype == object


@pytest.mark.parametrize("chunks", [{}, {"time": 2}])
def test_dask_reads_the_same(nc, chunks):
    """chunks= gives dask arrays along stored chunks."""
    pytest.importorskip("dask")
    lazy = vs.open_virtual_dataset(nc).virtual.open(chunks=chunks)
    assert lazy.tos.chunks is not None
    xr.testing.assert_identical(lazy.compute(scheduler="threads"), opened(nc))


def test_dimension_coordinates_and_small_coordinates_are_loaded(nc):
    """By default these have values, and dimension coordinates an index; all else is virtual."""
    vds = vs.open_virtual_dataset(nc)
    assert set(vds.indexes) == {"time", "x"}
    virtual = {k for k, v in vds.variables.items() if isinstance(v._data, ManifestArray)}
    assert virtual == set(vds.variables) - {"time", "x", "lat"}
    assert vds.time.dtype == "datetime64[ns]" or vds.time.dtype.kind == "M"
    assert set(vds.coords) == set(opened(nc).coords)


def test_what_is_loaded_can_be_chosen(nc):
    """loadable_variables names what has values beside coordinates, decoded as xarray decodes it."""
    vds = vs.open_virtual_dataset(nc, loadable_variables=["tos", "code", "station"])
    xr.testing.assert_identical(vds.tos.drop_vars(["lat", "time", "x"]), opened(nc).tos.drop_vars(["lat", "time", "x"]))
    for name in ("code", "station"):
        xr.testing.assert_identical(vds[name].variable, opened(nc)[name].variable)
        assert vds[name].dtype == opened(nc)[name].dtype
    assert set(vds.indexes) == set(opened(nc).indexes)
    assert not vs.open_virtual_dataset(nc, loadable_variables=[]).indexes
    xr.testing.assert_identical(vds.virtual.open().load(), opened(nc))
    with pytest.raises(KeyError, match="loadable_variables names \\['nope'\\]"):
        vs.open_virtual_dataset(nc, loadable_variables=["nope"])


def test_one_name_is_one_variable(nc):
    """A text is the name of one loadable variable, not of its letters."""
    assert not isinstance(vs.open_virtual_dataset(nc, loadable_variables="tos").tos.variable._data, ManifestArray)


def test_times_that_cannot_be_decoded_name_the_file(tmp_path):
    """Units that xarray does not know are a typed error with the remedy."""
    path = make_file(tmp_path / "a.nc", units="months since 2000-01-01")
    with pytest.raises(ReaderError, match=r"(?s)'/time' of .*a\.nc.*decode_times=False") as caught:
        vs.open_virtual_dataset(path)
    assert caught.value.url == f"file://{path}"
    assert vs.open_virtual_dataset(path, decode_times=False).time.values[1] == 1


def test_coordinates_may_be_a_list_of_names(tmp_path):
    """CF has one text; files have lists, and other things."""
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        for name, value in {"lat": None, "lon": None, "a": ["lat", "lon"], "b": 5}.items():
            file[name] = np.arange(3)
            if value is not None:
                file[name].attrs["coordinates"] = value
    vds = vs.open_virtual_dataset(path)
    assert set(vds.virtual.open().coords) == set(vds.coords) == {"lat", "lon"}
    assert set(xr.open_dataset(path, engine="virtualstack").coords) == {"lat", "lon"}
    assert vds.virtual.to_kerchunk(None)


def test_loaded_times_are_written_as_they_were(nc):
    """Nothing is added that the source does not have."""
    array = vs.open_virtual_dataset(nc).virtual.to_group().arrays["time"]
    assert "_FillValue" not in array.attributes


@pytest.mark.parametrize("name", ["a/b", "", 5])
def test_names_that_no_format_holds_are_refused(nc, name):
    """A variable is never lost for its name."""
    vds = vs.open_virtual_dataset(nc).rename({"height": name})
    with pytest.raises(WriterError, match="has a name that no format can store"):
        vds.virtual.to_group()


@pytest.mark.parametrize("name", [5, None, ("a", 1)])
def test_dimensions_that_no_format_holds_are_refused(nc, name):
    """Nor does one become text, which may be the name of another one."""
    vds = vs.open_virtual_dataset(nc).assign(flag=xr.Variable((name,), [1, 2]))
    with pytest.raises(WriterError, match=r"'flag' has the dimension .*names must be text. Rename it"):
        vds.virtual.to_group()


def test_nothing_need_be_loaded(nc):
    """Virtual dimension coordinates have no index, and join like all else."""
    vds = vs.open_virtual_dataset(nc, loadable_variables=[])
    assert not vds.indexes
    xr.testing.assert_identical(vds.virtual.open().load(), opened(nc))
    with pytest.raises(VirtualValuesError, match="loadable_variables"):
        np.asarray(vds.time)


def test_times_can_stay_numbers(nc):
    """decode_times=False leaves loaded times as stored."""
    vds = vs.open_virtual_dataset(nc, decode_times=False)
    assert vds.time.values.tolist() == [0, 1, 2, 3, 4]
    assert vds.time.attrs["units"] == "days since 2000-01-01"
    xr.testing.assert_identical(vds.virtual.open().load(), opened(nc))


def test_variables_can_be_left_out(nc):
    """drop_variables are not there, and nothing else changes."""
    vds = vs.open_virtual_dataset(nc, drop_variables=["tos", "station"])
    xr.testing.assert_identical(vds.virtual.open().load(), opened(nc, drop_variables=["tos", "station"]))
    assert "height" not in vs.open_virtual_dataset(nc, drop_variables="height")


def test_load_gives_values_to_some(nc):
    """vds.virtual.load decodes the named variables and leaves the others virtual."""
    loaded = vs.open_virtual_dataset(nc).virtual.load(["tos", "lat"])
    np.testing.assert_array_equal(loaded.tos.values, opened(nc).tos.values)
    assert isinstance(loaded.partly.variable._data, ManifestArray)
    xr.testing.assert_identical(loaded.virtual.open().load(), opened(nc))
    with pytest.raises(KeyError, match="nope"):
        loaded.virtual.load("nope")


def test_files_join_along_time(tmp_path):
    """The three lines of the README give the cube that xarray gives."""
    paths = [make_file(tmp_path / f"{i}.nc", start=5 * i) for i in range(3)]
    options = MINIMAL | {"join": "exact"}
    cube = xr.combine_nested([vs.open_virtual_dataset(p) for p in paths], concat_dim="time", **options)
    expected = xr.combine_nested([opened(p) for p in paths], concat_dim="time", **options)
    xr.testing.assert_identical(cube.virtual.open().load(), expected)
    by_coords = xr.combine_by_coords([vs.open_virtual_dataset(p) for p in reversed(paths)], **options)
    expected = xr.combine_by_coords([opened(p) for p in paths], **options)
    xr.testing.assert_identical(by_coords.virtual.open().load(), expected)


def test_times_of_other_epochs_join_by_their_dates(tmp_path):
    """Loaded times are dates, so files may count from different days; bounds that would lie are refused."""
    a = make_file(tmp_path / "a.nc")
    b = make_file(tmp_path / "b.nc", units="hours since 2000-01-06")
    options = MINIMAL | {"join": "exact"}
    vdss = [vs.open_virtual_dataset(p) for p in (a, b)]
    message = r"time_bounds.* has units = 'days since 2000-01-01' .*hours since 2000-01-06"
    with pytest.raises(CombineError, match=message):
        xr.concat(vdss, "time", **options)
    loaded = [vs.open_virtual_dataset(p, loadable_variables=["time", "x", "time_bounds"]) for p in (a, b)]
    cube = xr.concat(loaded, "time", **options).virtual.open().load()
    expected = xr.concat([opened(a), opened(b)], "time", **options)
    xr.testing.assert_equal(cube, expected)
    assert cube.time.values[5] == np.datetime64("2000-01-06")


@pytest.mark.parametrize("attribute", [{"scale_factor": 0.02}, {"add_offset": 0.0}, {"missing_value": np.int16(3)}])
def test_other_packing_does_not_join(tmp_path, attribute):
    """xarray keeps the first file's attributes silently; joining virtual variables raises."""
    vdss = [
        vs.open_virtual_dataset(make_file(tmp_path / "a.nc")),
        vs.open_virtual_dataset(make_file(tmp_path / "b.nc", start=5, **attribute)),
    ]
    (key,) = attribute
    with pytest.raises(CombineError, match=rf"'/tos' has {key} = ") as caught:
        xr.concat(vdss, "time", join="exact", **MINIMAL)
    assert caught.value.left_url.endswith("a.nc")
    assert caught.value.right_url.endswith("b.nc")


def test_attributes_dropped_by_xarray_are_written_all_the_same(nc):
    """The packing that chunks were written with stands on the array, not only in attrs."""
    vds = vs.open_virtual_dataset(nc).drop_attrs()
    assert "scale_factor" not in vds.tos.attrs
    np.testing.assert_array_equal(vds.virtual.open().tos.values, opened(nc).tos.values)


def test_an_attribute_that_was_changed_counts(nc):
    """Values are those that xarray decodes from the stored numbers by the attributes there are now."""
    vds = vs.open_virtual_dataset(nc)
    vds.tos.attrs["scale_factor"] = 5.0
    with xr.open_dataset(nc, decode_cf=False) as raw:
        raw.tos.attrs["scale_factor"] = 5.0
        xr.testing.assert_equal(vds.virtual.open().tos, xr.decode_cf(raw).tos.load())


@pytest.mark.parametrize("unpack", [False, True])
@pytest.mark.parametrize(
    "added",
    [{"scale_factor": 10.0}, {"missing_value": 2.0}, {"units": "days since 2000-01-01"}, {"dtype": "bool"}],
    ids=lambda x: next(iter(x)),
)
def test_an_attribute_that_was_added_counts(tmp_path, added, unpack):
    """Whichever way it was added, also to what was opened with ``unpack=True`` and had nothing to unpack."""
    path = tmp_path / "a.nc"
    xr.Dataset({"v": ("x", np.array([1.0, 2.0], "f4"))}).to_netcdf(path, encoding={"v": {"_FillValue": None}})
    vds = vs.open_virtual_dataset(path, unpack=unpack)
    changed = vds.assign(v=vds.v.assign_attrs(added))
    with xr.open_dataset(path, decode_cf=False) as raw:
        expected = xr.decode_cf(raw.assign(v=raw.v.assign_attrs(added))).load()
    xr.testing.assert_equal(changed.virtual.open().load(), expected)
    with xr.open_dataset(changed.virtual.to_kerchunk(None), engine="virtualstack") as found:
        xr.testing.assert_equal(found.load(), expected)
    renamed = vds.assign(v=vds.v.assign_attrs(units="seconds", valid_min=2)).virtual.open()
    assert renamed.v.values.tolist() == [1, 2]


def test_values_that_would_be_unpacked_do_not_fill(tmp_path):
    path = tmp_path / "a.nc"
    packed = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
    xr.Dataset({"p": ("x", [1.0, 2.0]), "m": ("x", np.array([1, 2], "i4"))}).to_netcdf(
        path, encoding={"p": packed, "m": {"_FillValue": -7}}
    )
    vds = vs.open_virtual_dataset(path)
    with pytest.raises(CombineError, match=r"'/p' is packed by .*scale_factor"):
        xr.full_like(vds.p, 3)
    with pytest.raises(CombineError, match=r"'/m' is packed by .*_FillValue"):
        vds.m.pad(x=1, constant_values=-7)
    filled = vds[["m"]].pad(x=1, constant_values=5).virtual.open()
    np.testing.assert_array_equal(filled.m, xr.open_dataset(path).m.pad(x=1, constant_values=5))


def test_loaded_variables_that_cannot_be_encoded_are_refused(nc):
    """Objects that CF does not know are named."""
    vds = vs.open_virtual_dataset(nc).assign(odd=("y", np.array([{}, 1, 2, 3, 4, 5], object)))
    with pytest.raises(WriterError, match="'odd'"):
        vds.virtual.to_kerchunk(None)


def test_times_too_far_apart_for_xarray_are_refused_by_name():
    """Nanoseconds of which neither pandas nor Python's own dates hold the difference."""
    times = np.array([-(2**61) - 1, 2**60, 2**62 + 2**61], "i8").view("M8[ns]")
    with pytest.raises(WriterError, match="'far'"):
        xr.Dataset({"far": ("x", times)}).virtual.to_group()


def test_a_changed_time_unit_is_rechecked(nc):
    """Loaded times are written so that they read back, whatever their old encoding can hold."""
    vds = vs.open_virtual_dataset(nc).drop_vars("time_bounds")
    vds = vds.assign_coords(time=vds.time.copy(data=pd.date_range("1999-12-31T12:34:56.789", periods=5, freq="h")))
    vds.time.encoding = {"units": "days since 2000-01-01", "dtype": np.dtype("i4")}
    np.testing.assert_array_equal(vds.virtual.open().time.values, vds.time.values)


def test_a_coordinate_that_is_none_any_more_stays_a_variable(nc):
    """What reset_coords has done is not undone by the attribute in the file."""
    vds = vs.open_virtual_dataset(nc).reset_coords("lat")
    xr.testing.assert_equal(vds.virtual.open().load(), opened(nc).reset_coords("lat"))


OPERATIONS = {
    "isel": lambda ds: ds.isel(time=slice(1, 4), y=slice(None, None, -1), x=2),
    "isel of runs": lambda ds: ds.isel(time=[0, 2, 4], y=[3, 4]),
    "sel": lambda ds: ds.sel(time=slice("2000-01-02", "2000-01-04")),
    "rename": lambda ds: ds.rename(tos="sst", y="row"),
    "expand_dims": lambda ds: ds.expand_dims("member"),
    "transpose": lambda ds: ds.transpose("x", "y", "time", ...),
    "sortby": lambda ds: ds.sortby("time", ascending=False),
    "roll": lambda ds: ds.roll(time=1),
    "reindex": lambda ds: ds.reindex(time=ds.time[[0, 1]]),
    "broadcast": lambda ds: ds[["height"]].broadcast_like(ds.time),
    "merge": lambda ds: xr.merge([ds[["tos"]], ds[["partly"]]], compat="no_conflicts", join="exact"),
    "split and join": lambda ds: xr.concat([ds.isel(y=[0]), ds.isel(y=slice(1, None))], "y", join="exact", **MINIMAL),
    "concat on a new dim": lambda ds: xr.concat([ds, ds], "member", join="exact", **MINIMAL | {"data_vars": "all"}),
    "combine_by_coords": lambda ds: xr.combine_by_coords(
        [ds.isel(time=slice(2, None)), ds.isel(time=slice(0, 2))], join="exact", **MINIMAL
    ),
    "to_dataarray": lambda ds: ds[["tos"]].to_dataarray().to_dataset(name="all"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_xarray_operations_commute_with_opening(nc, operation):
    """An operation on a virtual dataset, then opened, equals the same operation on the loaded one."""
    virtual = OPERATIONS[operation](vs.open_virtual_dataset(nc))
    assert all(isinstance(virtual[name].variable._data, ManifestArray) for name in virtual.data_vars)
    xr.testing.assert_equal(virtual.virtual.open().load(), OPERATIONS[operation](opened(nc)))


def test_groups_open_one_by_one_and_as_a_tree(tmp_path):
    """group= selects one, with the labels that it inherits; open_virtual_datatree has them all."""
    variables = {"science/grids/v": ("f4", "x", np.arange(4)), "x": ("f8", "x", np.arange(4))}
    path = netcdf4_file(tmp_path / "groups.nc", {"x": 4}, variables)
    vds = vs.open_virtual_dataset(path, group="science/grids")
    with xr.open_datatree(path, engine="netcdf4") as source:
        xr.testing.assert_identical(vds.virtual.open().load(), source["science/grids"].to_dataset().load())
    tree = vs.open_virtual_datatree(path)
    assert set(tree.groups) == {"/", "/science", "/science/grids"}
    np.testing.assert_array_equal(tree["science/grids"].to_dataset().virtual.open().v.values, np.arange(4))
    assert repr(tree.virtual) == "<virtual: tree of 3 groups>"
    with xr.open_datatree(path, engine="netcdf4") as source:
        xr.testing.assert_identical(tree.virtual.open().load(), source.load())
        tree.virtual.to_kerchunk(tmp_path / "refs.json")
        refs = xr.open_datatree(tmp_path / "refs.json", engine="virtualstack")
        xr.testing.assert_identical(refs.load(), source.load())
    with pytest.raises(ReaderError, match="there is no array or group 'science/nope'"):
        vs.open_virtual_dataset(path, group="science/nope")
    with pytest.raises(ReaderError, match="is a variable, not a group"):
        vs.open_virtual_dataset(path, group="science/grids/v")


def test_groups_that_form_no_tree_are_named(tmp_path):
    """Coordinates of a group that contradict its parent's are told, with the remedy."""
    labels = {"x": ("f8", "x", np.arange(4)), "g/x": ("f8", "x", np.arange(3))}
    path = netcdf4_file(tmp_path / "clash.nc", {"x": 4, "g/x": 3}, labels)
    with pytest.raises(ReaderError, match=r"(?s)do not form one tree.*group="):
        vs.open_virtual_datatree(path)


def ragged_file(path):
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 2)
        kind = file.createVLType("i4", "ragged_t")
        ragged = file.createVariable("ragged", kind, ("x",))
        ragged[0], ragged[1] = np.arange(2, dtype="i4"), np.arange(3, dtype="i4")
        file.createVariable("fine", "i4", ("x",))[:] = [1, 2]
    return path


def test_what_has_no_byte_range_form_is_loud(tmp_path):
    """A refused variable raises when the file is opened, unless it is dropped or skipped with a warning."""
    path = ragged_file(tmp_path / "ragged.nc")
    with pytest.raises(UnsupportedFeatureError, match=r"'/ragged'.*drop_variables=\['ragged'\]") as caught:
        vs.open_virtual_dataset(path)
    assert caught.value.variable == "/ragged"
    with pytest.warns(UserWarning, match="left out '/ragged'"):
        vds = vs.open_virtual_dataset(path, unsupported="skip")
    report = vds.virtual.report()
    assert report[report.state == "refused"].variable.tolist() == ["/ragged"]
    assert list(vs.open_virtual_dataset(path, drop_variables="ragged").virtual.open()) == ["fine"]


def test_no_way_of_opening_loses_a_variable_silently(tmp_path):
    """The engine raises, or warns on request; a store lists what it does not serve."""
    path = ragged_file(tmp_path / "ragged.nc")
    with pytest.raises(UnsupportedFeatureError, match="'/ragged'"):
        xr.open_dataset(path, engine="virtualstack")
    with pytest.raises(UnsupportedFeatureError, match="'/ragged'"):
        xr.open_datatree(path, engine="virtualstack")
    with pytest.warns(UserWarning, match="left out '/ragged'"):
        assert list(xr.open_dataset(path, engine="virtualstack", unsupported="skip")) == ["fine"]
    assert list(xr.open_dataset(path, engine="virtualstack", drop_variables="ragged")) == ["fine"]
    assert list(xr.open_datatree(path, engine="virtualstack", drop_variables=["ragged"])) == ["fine"]
    (group,) = vs.scan([path])
    with pytest.raises(UnsupportedFeatureError, match="'/ragged'"):
        xr.open_dataset(group, engine="virtualstack")
    assert list(xr.open_dataset(group, engine="virtualstack", drop_variables="ragged")) == ["fine"]
    with pytest.warns(UserWarning, match="left out '/ragged'"):
        opened = vs.open_virtual_dataset(path, unsupported="skip").virtual
    assert list(opened.open()) == ["fine"]  # which was told once
    assert "variable length" in vs.ManifestStore(vs.scan([path])[0]).refused["ragged"]


def test_inlining_has_a_limit_and_can_be_forbidden(nc):
    """Strings are inlined up to the limit a variable."""
    assert vs.open_virtual_dataset(nc).virtual.report().query("state == 'inlined'").variable.tolist() == ["station"]
    with pytest.raises(UnsupportedFeatureError, match="/station"):
        vs.open_virtual_dataset(nc, unsupported="raise")
    with pytest.raises(UnsupportedFeatureError, match="/station"):
        vs.open_virtual_dataset(nc, inline_limit=3)
    for wrong in ("much", "-1", -1, "1 PB"):
        with pytest.raises(ValueError, match="inline_limit="):
            vs.open_virtual_dataset(nc, inline_limit=wrong)
    with pytest.raises(ValueError, match="unsupported='no'"):
        vs.open_virtual_dataset(nc, unsupported="no")


def test_a_source_that_goes_away_is_an_error_never_a_fill_value(nc):
    """Values of a removed file raise when they are read."""
    lazy = vs.open_virtual_dataset(nc).virtual.open()
    nc.unlink()
    with pytest.raises(SourceNotFoundError, match=r"a\.nc"):
        lazy.tos.load()


def test_facts_of_a_virtual_dataset(nc):
    """Counts, sources and renaming."""
    vds = vs.open_virtual_dataset(nc)
    assert vds.virtual.nrefs == sum(vds.virtual.locations.refs)
    assert vds.virtual.nbytes > 0
    (row,) = vds.virtual.locations.to_dict("records")
    assert row["url"] == f"file://{nc}"
    assert row["size"] == nc.stat().st_size
    assert 0 < row["bytes"] <= row["size"]
    moved = nc.rename(nc.with_name("moved.nc"))
    renamed = vds.virtual.rename_locations({f"file://{nc}": f"file://{moved}"})
    xr.testing.assert_identical(renamed.virtual.open().load(), opened(moved))
    assert "virtual and 3 loaded variables" in repr(vds.virtual)
    assert vds.virtual.locations.url.tolist() == [f"file://{nc}"]


def test_virtual_and_lazy_datasets_pickle(nc):
    """Both cross process borders."""
    vds = vs.open_virtual_dataset(nc)
    xr.testing.assert_identical(pickle.loads(pickle.dumps(vds)).virtual.open().load(), opened(nc))
    xr.testing.assert_identical(pickle.loads(pickle.dumps(vds.virtual.open())).load(), opened(nc))


def test_it_works_inside_a_running_event_loop(nc):
    """As in Jupyter."""

    async def cell():
        return vs.open_virtual_dataset(nc).virtual.open().load()

    xr.testing.assert_identical(asyncio.run(cell()), opened(nc))


def test_the_engine_opens_files_groups_and_dicts(nc):
    """engine="virtualstack" takes whatever a reader knows."""
    xr.testing.assert_identical(xr.open_dataset(nc, engine="virtualstack").load(), opened(nc))
    vds = vs.open_virtual_dataset(nc)
    refs = vds.virtual.to_kerchunk(None)
    xr.testing.assert_identical(xr.open_dataset(refs, engine="virtualstack").load(), opened(nc))
    with pytest.raises(StorageError, match="5 is of type 'int', which does not open"):
        xr.open_dataset(5, engine="virtualstack")


@pytest.mark.parametrize("name", ["refs.json", "refs.parq"])
def test_packing_by_float32_decodes_to_float32_from_references_too(tmp_path, name):
    """JSON has no float32; references keep the dtypes of attributes beside them."""
    packing = {"scale_factor": np.float32(0.01), "add_offset": np.float32(273.15), "valid_min": np.int16(0)}
    path = make_file(tmp_path / "a.nc", **packing)
    vs.open_virtual_dataset(path).virtual.to_kerchunk(tmp_path / name)
    refs = xr.open_dataset(tmp_path / name, engine="virtualstack").load()
    assert refs.tos.dtype == opened(path).tos.dtype == np.float32
    xr.testing.assert_identical(refs, opened(path))


def test_loaded_values_stay_packed_without_a_fill_value(tmp_path):
    """What was packed in its file is packed as it was when it is written."""
    path = tmp_path / "a.nc"
    packing = {"scale_factor": 0.5, "add_offset": 1.0}
    xr.Dataset({"a": ("x", np.array([1, 5, -2], "i2"), packing)}).to_netcdf(path, engine="netcdf4")
    made = vs.open_virtual_dataset(path, loadable_variables=["a"]).virtual.to_group().arrays["a"]
    assert made.dtype == np.dtype("i2")
    assert dict(made.cf) == packing


def test_references_may_be_compressed(nc, tmp_path):
    """JSON compressed with zstd is found out by its suffix."""
    vs.open_virtual_dataset(nc).virtual.to_kerchunk(tmp_path / "refs.json")
    packed = tmp_path / "refs.json.zst"
    packed.write_bytes(numcodecs.Zstd().encode((tmp_path / "refs.json").read_bytes()))
    xr.testing.assert_identical(xr.open_dataset(packed, engine="virtualstack").load(), opened(nc))


def test_relative_references_move_with_their_sources(nc, tmp_path):
    """With relative=True references and sources can be moved together."""
    vs.open_virtual_dataset(nc).virtual.to_kerchunk(tmp_path / "refs.json", relative=True)
    expected = opened(nc)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in (nc, tmp_path / "refs.json"):
        path.rename(moved / path.name)
    xr.testing.assert_identical(xr.open_dataset(moved / "refs.json", engine="virtualstack").load(), expected)


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine")  # fsspec's own
@pytest.mark.parametrize("name", ["refs.json", "refs.parq"])
def test_references_open_with_our_engine_and_with_kerchunk(nc, tmp_path, name):
    """The end of the path: written references read back as the source, in both engines."""
    target = tmp_path / name
    vs.open_virtual_dataset(nc).virtual.to_kerchunk(target)
    xr.testing.assert_identical(xr.open_dataset(target, engine="virtualstack").load(), opened(nc))
    pytest.importorskip("kerchunk")
    theirs = xr.open_dataset(str(target), engine="kerchunk").load()
    xr.testing.assert_equal(theirs, opened(nc))


def test_vstack_serves_the_same_through_zarr(nc):
    """Any zarr tool reads a scanned file."""
    store = vs.ManifestStore(vs.scan([nc])[0])
    xr.testing.assert_equal(xr.open_zarr(store, consolidated=False, zarr_format=3).load(), opened(nc))


def test_scanning_keeps_what_failed(nc, tmp_path):
    """One bad file among many is skipped on request, and stands in the table of failures."""
    bad = tmp_path / "bad.nc"
    bad.write_bytes(b"nonsense")
    seen = []
    result = vs.scan([nc, bad, nc], on_error="skip", progress=lambda done, n: seen.append((done, n)))
    assert len(result) == 2
    assert len(result[:1]) == 1
    assert [group.url for group in result] == [f"file://{nc}"] * 2
    assert result.failures.url.tolist() == [f"file://{bad}"]
    assert seen == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(ReaderError, match=r"bad\.nc"):
        vs.scan([nc, bad])


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine")
def test_small_series_of_long_chunks_join_for_kerchunk(tmp_path):
    """NetCDF's default chunks along time are longer than the files; what is small is written out, the rest refused."""
    paths = [tmp_path / f"{i}.nc" for i in range(3)]
    packing, chunks = {"scale_factor": np.float32(0.5)}, {"chunksizes": (1024,), "zlib": True}
    for i, path in enumerate(paths):
        variables = {
            "time": ("f8", "time", np.arange(4) + 4 * i),
            "series": ("f4", "time", np.arange(4) + i, packing, chunks),
            "label": (str, "time", np.array(list("abcd"), object)),
        }
        netcdf4_file(path, {"time": None}, variables)
    options = MINIMAL | {"join": "exact"}
    cube = xr.concat([vs.open_virtual_dataset(p) for p in paths], "time", **options)
    expected = xr.concat([opened(p) for p in paths], "time", **options)
    for name in ("refs.json", "refs.parq"):
        cube.virtual.to_kerchunk(tmp_path / name)
        xr.testing.assert_equal(xr.open_dataset(tmp_path / name, engine="virtualstack").load(), expected)
        xr.testing.assert_equal(xr.open_dataset(str(tmp_path / name), engine="kerchunk").load(), expected)
    with pytest.raises(WriterError, match="'series' cannot be written as kerchunk references: chunk lengths"):
        cube.virtual.to_kerchunk(None, inline_limit=0)


@pytest.mark.parametrize("chunk", [1, 3, 4])
@pytest.mark.parametrize("written", [[], [0], [1, 2], [6]])
def test_records_that_were_never_written_read_as_fill_values(tmp_path, chunk, written):
    """A variable may have fewer records than its unlimited dimension; netCDF-4 pads it, and so do we."""
    path = tmp_path / "records.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 2)
        for name, options in {"a": {"fill_value": 7}, "b": {"fill_value": False}, "c": {"zlib": True}}.items():
            variable = file.createVariable(name, "i4", ("time", "x"), chunksizes=(chunk, 2), **options)
            for i in written if name != "b" else [0, 5]:
                variable[i] = [i, i + 10]
        text = file.createVariable("text", str, ("time",))
        text[1] = "x"
        group = file.createGroup("g")
        group.createVariable("below", "f4", ("time",))[9] = 1
    for where in (None, "g"):
        vds = vs.open_virtual_dataset(path, group=where)
        expected = opened(path, group=where, mask_and_scale=False)
        names = set(expected) - {"b"}  # what was never filled has no value to compare
        xr.testing.assert_identical(
            vds.virtual.open(mask_and_scale=False).load()[sorted(names)], expected[sorted(names)]
        )
    raw = vs.open_virtual_dataset(path).virtual.open(mask_and_scale=False).b.values
    assert raw.shape == (10, 2)
    np.testing.assert_array_equal(raw[[0, 5]], [[0, 10], [5, 15]])


def test_missing_records_along_a_later_axis_are_where_hdf5_has_them(tmp_path):
    """Along an unlimited axis that is not the first netCDF-C 4.9 mixes values up; HDF5 does not."""
    path = tmp_path / "later.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createDimension("time", None)
        file.createVariable("longer", "i4", ("time",))[:] = [1, 2]
        file.createVariable("v", "i4", ("x", "time"), fill_value=-1)[:, 0] = [10, 20, 30]
    values = vs.open_virtual_dataset(path).virtual.open(mask_and_scale=False).v.values
    with h5py.File(path) as file:
        np.testing.assert_array_equal(values[:, :1], file["v"][:])
    assert values[:, 1].tolist() == [-1, -1, -1]


@pytest.mark.parametrize("dtype", ["i1", "i2", "f4", "f8"])
def test_checksums_may_come_before_the_shuffle(tmp_path, dtype):
    """NetCDF-C puts fletcher32 first; its four bytes are shuffled with the values."""
    path = tmp_path / "a.nc"
    values = (np.arange(300_000) % 97).astype(dtype)
    options = {"fletcher32": True, "shuffle": True, "zlib": True, "chunksizes": (99_999,)}
    netcdf4_file(path, {"x": values.size}, {"v": (dtype, "x", values, {}, options)})
    vds = vs.open_virtual_dataset(path, inline_limit=0)
    assert vds.virtual.nrefs == 4
    np.testing.assert_array_equal(vds.virtual.open(mask_and_scale=False).v.values, values)
    store = vs.ManifestStore(vs.scan([path])[0])
    np.testing.assert_array_equal(xr.open_zarr(store, consolidated=False, mask_and_scale=False).v.values, values)
    refs = vds.virtual.to_kerchunk(None)
    np.testing.assert_array_equal(xr.open_dataset(refs, engine="kerchunk", mask_and_scale=False).v.values, values)
    (encoding,) = vds.virtual.to_group().arrays["v"].manifest.tables.encodings
    assert ("virtualstack.shuffle" in [x.name for x in encoding.codecs]) == (dtype == "f8")  # else any zarr decodes it


def test_absent_takes_two_words(nc):
    """A typing error does not read ABSENT chunks as fill values."""
    vds = vs.open_virtual_dataset(nc)
    for make in (lambda: vds.virtual.open(absent="rais"), lambda: vs.ManifestStore(vds.virtual.to_group(), absent="")):
        with pytest.raises(ValueError, match=r"absent=.*; it must be 'fill' or 'raise'"):
            make()


def test_names_that_are_no_utf8_are_refused(tmp_path):
    """References are text."""
    with pytest.raises(vs.errors.StorageError, match="not UTF-8"):
        vs.open_virtual_dataset(tmp_path / "bad\udcff.nc")


def test_chunks_without_dask_name_the_extra(nc, monkeypatch):
    """Dask is an extra: its absence is told with the pip command."""
    monkeypatch.setattr("virtualstack.accessor.dataset.find_spec", lambda name: None)
    with pytest.raises(vs.errors.MissingDependencyError, match=r"pip install 'virtualstack\[dask\]'$"):
        vs.open_virtual_dataset(nc).virtual.open(chunks={})


def test_bounds_of_durations_stay_numbers(tmp_path):
    """Only bounds of times take the units of their parent, as xarray has it; and what load gives is decoded alike."""
    step = ("f8", "step", [0, 6, 12], {"units": "hours", "bounds": "step_bounds"})
    bounds = ("f8", "step nb", [[0, 6], [6, 12], [12, 18]])
    path = netcdf4_file(tmp_path / "steps.nc", {"step": 3, "nb": 2}, {"step": step, "step_bounds": bounds})
    found, expected = vs.open_virtual_dataset(path).virtual.open().load(), opened(path)
    xr.testing.assert_identical(found, expected)
    assert found.step_bounds.dtype == expected.step_bounds.dtype == np.float64


def test_a_huge_coordinate_stays_virtual(tmp_path):
    """A file of two kilobytes may promise 8 GiB; who wants them names them."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1 << 33,), "u1", chunks=(1 << 20,)).make_scale("x")
    assert vs.open_virtual_dataset(path).virtual.nrefs == 0
    assert not vs.open_virtual_dataset(path).indexes


@pytest.mark.parametrize(("first", "second"), [("i4", "i8"), ("f4", "f8")])
def test_a_joined_coordinate_keeps_its_dtype(first, second, tmp_path):
    """The encoding of the first file holds the values, but not their dtype."""
    for i, dtype in enumerate((first, second)):
        variables = {"x": (dtype, "x", [2 * i, 2 * i + 1]), "v": ("i4", "x", 0)}
        netcdf4_file(tmp_path / f"{i}.nc", {"x": 2}, variables)
    joined = xr.concat([vs.open_virtual_dataset(tmp_path / f"{i}.nc") for i in range(2)], "x")
    assert joined.x.dtype == joined.virtual.open().x.dtype == np.dtype(second)


def test_bounds_get_no_units_that_they_had_not(tmp_path):
    """They know those of their coordinate for joining, and stay as they are where these are written as they were."""
    times = np.array(["2000-01-01T12", "2000-01-02T12"], "M8[ns]")
    bounds = np.stack([times - np.timedelta64(12, "h"), times + np.timedelta64(12, "h")], 1)
    dataset = xr.Dataset({"time_bnds": (("time", "nv"), bounds)}, {"time": ("time", times, {"bounds": "time_bnds"})})
    dataset.time.encoding["units"] = "hours since 2000-01-01"
    dataset.to_netcdf(tmp_path / "a.nc")
    vds = vs.open_virtual_dataset(tmp_path / "a.nc")
    assert vds.virtual.to_group()["time_bnds"].attributes.keys() == vds.time_bnds.attrs.keys()
    later = vds.assign_coords(time=vds.time + np.timedelta64(1, "m"))
    later.time.attrs["bounds"] = "time_bnds"
    assert later.virtual.to_group()["time_bnds"].attributes["units"] == "hours since 2000-01-01"


@pytest.mark.parametrize("value", ["yes", "no", [True], np.array([True, False])])
def test_another_value_of_decode_times_is_refused(nc, value):
    """A text counted as true, also "no"."""
    found = vs.scan([nc])
    for open_it in (vs.open_virtual_dataset, vs.open_virtual_datatree, lambda _, **x: found.datasets(**x)):
        with pytest.raises(TypeError, match=r"decode_times=.* is not true, false, a coder of dates, or a map"):
            open_it(nc, decode_times=value)
