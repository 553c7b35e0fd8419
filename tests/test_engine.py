"""``engine="virtualstack"`` opens files as :func:`virtualstack.open_virtual_dataset` does."""

import inspect
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile
import xarray as xr
from xarray.backends.plugins import guess_engine

import virtualstack as vs
from tests.data.make_grib import message, write
from virtualstack.engine import VirtualStackBackendEntrypoint
from virtualstack.errors import ReaderError, UnsupportedFeatureError

READING = {"absent", "at", "task_bytes"}
"""Parameters about reading values."""
DECODING = {"mask_and_scale", "concat_characters", "decode_coords", "use_cftime", "decode_timedelta"}
"""Parameters of xarray's own."""


@pytest.mark.parametrize(
    ("method", "opener"),
    [
        (VirtualStackBackendEntrypoint.open_dataset, vs.open_virtual_dataset),
        (VirtualStackBackendEntrypoint.open_groups_as_dict, vs.open_virtual_datatree),
    ],
)
def test_parameters_are_those_of_opening(method, opener):
    """Apart from what is about values, each one means the same and has the same default."""
    ours = inspect.signature(method).parameters
    theirs = inspect.signature(opener).parameters
    shared = ours.keys() & theirs.keys()
    assert ours.keys() - shared <= {"self", "filename_or_obj", "others", *READING, *DECODING}
    same = shared - {"decode_times", "drop_variables"}  # for xarray, None is a default of the latter
    assert {"group", "reader", "storage", "unsupported", "inline_limit", "allow", "stale"} == same
    assert {name: ours[name].default for name in same} == {name: theirs[name].default for name in same}


def test_a_tiff_file_is_one_dataset(tmp_path):
    """It was an empty dataset, as if a tree of its images had been asked for."""
    values = np.arange(12, dtype="u2").reshape(3, 4)
    tifffile.imwrite(tmp_path / "a.tif", values)
    found = xr.open_dataset(tmp_path / "a.tif", engine="virtualstack")
    xr.testing.assert_identical(found, vs.open_virtual_dataset(tmp_path / "a.tif").virtual.open())
    np.testing.assert_array_equal(found["band_data"].values.squeeze(), values)


def test_a_file_with_groups_alone_names_them(tmp_path):
    """Each opening function warns, and the advice opens the values."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["one/v"], file["two/w"] = np.arange(3), np.arange(4)
    for open_ in (
        vs.open_virtual_dataset,
        lambda path: vs.open_virtual_mfdataset([path]),
        lambda path: xr.open_dataset(path, engine="virtualstack"),
    ):
        with pytest.warns(UserWarning, match=r"group '/' has no variables, but .*'/one', '/two'.*group='/one'"):
            assert not open_(path).variables
    opened = xr.open_dataset(path, engine="virtualstack", group="/one")
    np.testing.assert_array_equal(opened["v"].values, np.arange(3))


@pytest.mark.parametrize("unsupported", ["inline", "skip"])
def test_an_empty_root_names_what_cannot_be_read_below_it(unsupported, tmp_path):
    """Each variable of a group is refused, so that no group has variables."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("g/v", (2,), h5py.vlen_dtype("i4"))
    for open_ in (vs.open_virtual_dataset, partial(xr.open_dataset, engine="virtualstack")):
        with pytest.warns(
            UserWarning, match="group '/' has no variables; 1 variable cannot be read: '/g/v': sequences"
        ):
            assert not open_(path, unsupported=unsupported).variables


def test_groups_that_do_not_align_are_a_typed_error(tmp_path):
    """The same as by open_virtual_datatree."""
    path = tmp_path / "a.nc"
    tree = {"/": xr.Dataset(coords={"x": [1, 2]}), "/g": xr.Dataset({"v": ("y", [1.0])})}
    xr.DataTree.from_dict(tree).to_netcdf(path, engine="netcdf4")
    with h5py.File(path, "a") as file:
        file["g/x"] = np.array([5, 6])
        file["g/x"].make_scale("x")
    for open_ in (vs.open_virtual_datatree, partial(xr.open_datatree, engine="virtualstack")):
        with pytest.raises(ReaderError, match=r"(?s)a\.nc': its groups do not form one tree.*'/g' is not .*group="):
            open_(path)


def test_grib_fields_that_form_no_dataset_are_an_error(tmp_path):
    """It was an empty dataset."""
    kinds = [{"typeOfLevel": "surface"}, {"typeOfLevel": "isobaricInhPa", "level": 500}]
    fields = [message({"shortName": "t", **kind}, seed=n) for n, kind in enumerate(kinds)]
    path = write(tmp_path / "a.grib2", fields)
    with pytest.raises(UnsupportedFeatureError, match="open_virtual_datatree"):
        vs.open_virtual_dataset(path)
    with pytest.raises(UnsupportedFeatureError, match="open_virtual_datatree"):
        xr.open_dataset(path, engine="virtualstack")
    tree = xr.open_datatree(path, engine="virtualstack")
    assert tree.groups == vs.open_virtual_datatree(path).groups
    assert len(tree.groups) > 2


# -- options of other engines, where only engine= was changed --------------------------------------------------------


def test_options_of_cfgrib(tmp_path):
    """`filter_by_keys` chooses fields as in the reader, also in `backend_kwargs`; an index file has no meaning here."""
    path, keys = vs.sample.analyses(tmp_path)[0], {"typeOfLevel": "surface"}
    expected = xr.open_dataset(path, engine="virtualstack", reader=vs.readers.GRIB(filter_by_keys=keys))
    for options in ({"filter_by_keys": keys}, {"backend_kwargs": {"filter_by_keys": keys, "indexpath": ""}}):
        xr.testing.assert_identical(xr.open_dataset(path, engine="virtualstack", **options), expected)
    tree = xr.open_datatree(path, engine="virtualstack", filter_by_keys=keys)
    assert set(expected.data_vars) <= {name for node in tree.subtree for name in node.data_vars}


@pytest.mark.parametrize("consolidated", [True, False, None])
def test_consolidated_is_the_option_of_the_zarr_reader(tmp_path, consolidated):
    """Stale consolidated metadata are read only if they are wanted, and other sources have none."""
    path = tmp_path / "x.zarr"
    xr.Dataset({"v": ("x", [1.0, 2.0])}).to_zarr(path, zarr_format=2, consolidated=True)
    xr.Dataset({"w": ("x", [3.0, 4.0])}).to_zarr(path, zarr_format=2, consolidated=False, mode="a")
    found = xr.open_dataset(path, engine="virtualstack", consolidated=consolidated)
    assert set(found) == ({"v", "w"} if consolidated is False else {"v"})
    vs.open_virtual_dataset(path).virtual.to_kerchunk(tmp_path / "x.json")
    assert set(xr.open_dataset(tmp_path / "x.json", engine="virtualstack", consolidated=consolidated)) == {"v"}


def test_storage_options_are_of_the_place_of_the_url(s3_server, tmp_path):
    """As fsspec names them; not beside `storage=`."""
    path = tmp_path / "a.nc"
    xr.Dataset({"v": ("x", [1.0, 2.0])}).to_netcdf(path, engine="h5netcdf")
    s3_server.put("storage_options/a.nc", path.read_bytes())
    url = "s3://bucket/storage_options/a.nc"
    found = xr.open_dataset(url, engine="virtualstack", storage_options=s3_server.options)
    np.testing.assert_array_equal(found["v"], [1.0, 2.0])
    xr.testing.assert_identical(
        xr.open_dataset(path, engine="virtualstack", storage_options=None), xr.open_dataset(path)
    )
    with pytest.raises(TypeError, match=r"xr.open_dataset\('r.json', engine='virtualstack'\)"):
        xr.open_dataset("reference://", engine="virtualstack", storage_options={"fo": "r.json"})
    with pytest.raises(TypeError, match=r"storage= and storage_options= were given; leave out storage_options="):
        xr.open_dataset(url, engine="virtualstack", storage={"s3://bucket": s3_server.options}, storage_options={})


@pytest.mark.parametrize(
    "option", [{"phony_dims": "sort"}, {"filter_by_keys": {}}, {"backend_kwargs": {"lock": False}}]
)
def test_other_options_say_what_to_do(tmp_path, option):
    """One sentence names the option, and where those that exist are listed."""
    xr.Dataset({"v": ("x", [1.0, 2.0])}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    name = next(iter(option.get("backend_kwargs", option)))
    for open_ in (xr.open_dataset, xr.open_datatree):
        with pytest.raises(TypeError, match=rf"{name}=.* is .*Leave it out; help\(vs\.open_virtual_dataset\)"):
            open_(tmp_path / "a.nc", engine="virtualstack", **option)


@pytest.mark.parametrize("name", ["a.json.gz", "a.parq", "a.parq/", "a.vstack", "a.icechunk"])
def test_finds_the_engine_of_references(name, tmp_path):
    ds = xr.Dataset({"t": ("x", [1.0, 2.0])})
    path = f"{tmp_path}/{name}"
    if name.endswith("icechunk"):
        ds.virtual.to_icechunk(path)
    elif name.endswith("vstack"):
        ds.virtual.to_vstack(path)
    else:
        ds.virtual.to_kerchunk(path.rstrip("/"))
    assert xr.open_dataset(path)["t"].values.tolist() == [1.0, 2.0]
    assert xr.open_dataset(Path(path))["t"].values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["a.nc.dmrpp", "A.PARQ", "a.json.zst"])
def test_finds_the_engine_by_suffix(name, tmp_path):
    assert guess_engine(f"{tmp_path}/{name}") == "virtualstack"


def test_is_asked_after_the_engine_of_kerchunk(tmp_path):
    engines = list(xr.backends.list_engines())
    assert engines.index("kerchunk") < engines.index("virtualstack")
    assert guess_engine(f"{tmp_path}/a.json") == "kerchunk"
    assert VirtualStackBackendEntrypoint().guess_can_open(tmp_path / "a.json")


@pytest.mark.parametrize("name", ["a.zarr", "a.nc", "a.grib2", "a.tif", "a.zip", "a.hdf", "a"])
def test_leaves_files_and_zarr_to_other_engines(name, tmp_path):
    assert not VirtualStackBackendEntrypoint().guess_can_open(tmp_path / name)
