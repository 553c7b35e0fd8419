"""Other labels for virtual datasets: what xarray makes of the decoded file, chunk by chunk and without a mask."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.arrays import referenced_array
from tests.data.netcdf4 import netcdf4_file
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError
from virtualstack.manifests import EMPTY

pytestmark = pytest.mark.filterwarnings("ignore:.*multiple fill values:xarray.SerializationWarning")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    sizes = {"time": 7, "lat": 5, "n": 3}
    variables = {
        "f": ("f4", "time lat", {"coordinates": "where"}),
        "packed": ("i2", "lat time", {"_FillValue": -9, "scale_factor": 0.5, "add_offset": 1.0}),
        "missing": ("u1", "time", {"missing_value": np.uint8(3)}),
        "both": ("i2", "time", {"_FillValue": -9, "missing_value": np.int16(3), "scale_factor": np.float32(0.1)}),
        "unsigned": ("i1", "lat", {"_FillValue": -1, "_Unsigned": "true", "scale_factor": 0.5}),
        "plain": ("i4", "time n", {}),
        "short": ("i2", "lat", {}),
        "run": ("i8", "time", {"_FillValue": -1, "units": "hours since 1990-01-01"}),
        "late": ("f8", "time", {"units": "hours since 1990-01-01"}),
        "wait": ("i8", "time", {"_FillValue": -1, "units": "hours", "dtype": "timedelta64[ns]"}),
        "const": ("f4", "n", {}),
        "where": ("f4", "lat", {}),
    }
    made = {
        "time": ("i4", "time", np.arange(7), {"units": "days since 2000-01-01"}),
        "lat": ("f4", "lat", [50, 40, 30, 20, 10]),
    }
    for name, (dtype, dims, attributes) in variables.items():
        shape = [sizes[dim] for dim in dims.split()]
        values = np.arange(np.prod(shape)).reshape(shape) % 100
        made[name] = (dtype, dims, values, attributes, {"zlib": True, "chunksizes": [2] * len(shape)})
    return netcdf4_file(tmp_path_factory.mktemp("reindex") / "a.nc", sizes, made)


INDEXERS = {
    "longer": {"lat": [60, 50, 40, 30, 20, 10, 0]},
    "shorter": {"lat": [40, 10]},
    "turned": {"lat": [10.0, 20, 30, 40, 50]},
    "twice": {"lat": [10.0, 10, 50, 70, 70]},
    "none": {"lat": []},
    "nothing known": {"lat": [1.0, 2.0]},
    "dates": {"time": np.array(["1999-12-31", "2000-01-03", "2000-01-02", "2001-01-01"], "M8[ns]")},
    "both": {"time": np.array(["2000-01-07", "2000-01-08"], "M8[ns]"), "lat": [10, 11, 20]},
    "a dimension that is not there": {"z": [1, 2]},
}


def check(vds, expected):
    found = vds.virtual.open().load()
    xr.testing.assert_equal(found, expected)
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype, name
        assert found[name].dims == expected[name].dims, name


@pytest.mark.parametrize("unpack", [False, True])
@pytest.mark.parametrize("indexers", INDEXERS)
def test_labels_are_looked_up_as_xarray_does(path, indexers, unpack):
    """All kinds of packing, fills, dates; labels that are not there read as missing."""
    labels = INDEXERS[indexers]
    vds = vs.open_virtual_dataset(path, unpack=unpack).virtual.reindex(labels)
    assert all(virtual_array(vds[name].variable) is not None for name in vds.data_vars)
    check(vds, xr.load_dataset(path).reindex(labels))


@pytest.mark.parametrize("method", ["nearest", "ffill", "bfill"])
@pytest.mark.parametrize("tolerance", [None, 2.0])
def test_methods_and_tolerances_are_those_of_xarray(path, method, tolerance):
    labels = [51.0, 41, 35, 12, 5]
    vds = vs.open_virtual_dataset(path).virtual.reindex(lat=labels, method=method, tolerance=tolerance)
    check(vds, xr.load_dataset(path).reindex(lat=labels, method=method, tolerance=tolerance))


def test_loaded_variables_are_reindexed_too(path):
    vds = vs.open_virtual_dataset(path, loadable_variables=["time", "lat", "f", "plain", "where"])
    labels = {"lat": [10.0, 60.0], "time": np.array(["2000-01-03", "2010-01-01"], "M8[ns]")}
    check(vds.virtual.reindex(labels), xr.load_dataset(path).reindex(labels))


def test_a_fill_value_is_one_of_decoded_values(path):
    names = ["f", "packed", "short", "where"]
    for fill_value in (-4, {"f": -4, "packed": 7.5, "short": 5}):
        vds = vs.open_virtual_dataset(path)[names].virtual.reindex(lat=[0.0, 10], fill_value=fill_value)
        expected = xr.load_dataset(path)[names].reindex(lat=[0.0, 10], fill_value=fill_value)
        xr.testing.assert_equal(vds.virtual.open().load(), expected)


def test_a_fill_value_without_a_place_is_refused(path):
    vds = vs.open_virtual_dataset(path)
    with pytest.raises(CombineError, match=r"'packed' .* no stored value of dtype 'int16' with .* decodes to 0\.3"):
        vds[["packed"]].virtual.reindex(lat=[0.0], fill_value=0.3)
    with pytest.raises(CombineError, match=r"'short' has dtype 'int16', which cannot store fill_value=100000"):
        vds[["short"]].virtual.reindex(lat=[0.0], fill_value=100000)
    text = xr.Dataset({"t": ("lat", referenced_array((5,), (5,), "S3", fill=b""))}, coords={"lat": np.arange(5)})
    with pytest.raises(
        CombineError,
        match=r"'t' has missing elements to fill, but dtype '\|S3' has no missing value. Set fill_value=",
    ):
        text.virtual.reindex(lat=[9])
    assert text.virtual.reindex(lat=[9], fill_value=b"-").t.dtype == "S3"


def test_text_is_not_filled_with_what_reads_as_missing(tmp_path):
    path = tmp_path / "text.nc"
    encoding = {"v": {"dtype": "S1", "_FillValue": b"x"}}
    text = xr.Dataset({"v": ("lat", np.array([b"ab", b"cd"]))}, {"lat": [1.0, 2.0]})
    text.to_netcdf(path, engine="netcdf4", encoding=encoding)
    vds = vs.open_virtual_dataset(path)
    with pytest.raises(CombineError, match=r"cannot store fill_value=b'x': its attributes say that it is missing"):
        vds.virtual.reindex(lat=[1.0, 3.0], fill_value=b"x")
    filled = vds.virtual.reindex(lat=[1.0, 3.0], fill_value=b"y").virtual.open()
    assert filled.v.values.tolist() == [b"ab", b"y"]


@pytest.mark.parametrize(("values", "empty"), [([b"ab", b"cd"], b""), (["ab", "cd"], "")])
def test_text_is_filled_with_text_alone(values, empty, tmp_path):
    """As xarray reads it: bytes, or strings where they have an encoding."""
    path = tmp_path / "text.nc"
    text = xr.Dataset({"v": ("lat", np.array(values))}, {"lat": [1.0, 2.0]})
    text.to_netcdf(path, engine="netcdf4", encoding={"v": {"dtype": "S1"}})
    vds = vs.open_virtual_dataset(path)
    for letters in ("", "x", "xyz"):
        text = letters if empty == "" else letters.encode()
        check(
            vds.virtual.reindex(lat=[1.0, 3.0], fill_value=text),
            xr.load_dataset(path).reindex(lat=[1.0, 3.0], fill_value=text),
        )
    for fill_value in (0, 7, b"x" if empty == "" else "x", np.nan):
        with pytest.raises(
            CombineError, match=rf"text cannot be filled with .*\. Set fill_value={{'v': {empty!r}}}, or in"
        ):
            vds.virtual.reindex(lat=[1.0, 3.0], fill_value=fill_value)


def test_booleans_are_filled_with_one_or_loaded(tmp_path):
    """What the error says helps, and no more."""
    path = tmp_path / "flags.nc"
    xr.Dataset({"v": ("lat", [True, False])}, {"lat": [1.0, 2.0]}).to_netcdf(path, engine="netcdf4")
    expected = xr.load_dataset(path)
    for unpack in (False, True):
        vds = vs.open_virtual_dataset(path, unpack=unpack)
        with pytest.raises(CombineError, match=r"Set fill_value={'v': False}, .*Or load it with loadable_variables"):
            vds.virtual.reindex(lat=[1.0, 3.0])
        filled = vds.virtual.reindex(lat=[1.0, 3.0], fill_value={"v": False})
        check(filled, expected.reindex(lat=[1.0, 3.0], fill_value={"v": False}))
    loaded = vs.open_virtual_dataset(path, loadable_variables=["lat", "v"])
    check(loaded.virtual.reindex(lat=[1.0, 3.0]), expected.reindex(lat=[1.0, 3.0]))


def test_labels_that_are_virtual_or_absent_are_refused(path):
    bare = vs.open_virtual_dataset(path, loadable_variables=[])
    with pytest.raises(CombineError, match=r"coordinate 'lat' is virtual.*loadable_variables=\['lat'\]"):
        bare.virtual.reindex(lat=[1.0])
    with pytest.raises(ValueError, match=r"no index|cannot reindex"):
        vs.open_virtual_dataset(path).isel(lat=[0, 0, 1]).virtual.reindex(lat=[1.0])


def test_holes_are_empty_and_cells_stay_few(path):
    """A label that is not there is no loss: EMPTY, not ABSENT."""
    array = virtual_array(vs.open_virtual_dataset(path).virtual.reindex(lat=[60.0, 50, 40])["f"].variable)
    count = array.manifest.summary()
    assert (count.n_absent, count.n_empty > 0) == (0, True)
    assert array.manifest.entries["location"].min() == EMPTY


def test_a_trillion_elements_are_reindexed_within_a_hundred_megabytes():
    """No mask: cost is that of the cells."""
    array = referenced_array((10_000, 10_000, 10_000), (100, 1000, 1000))
    vds = xr.Dataset({"v": (("time", "y", "x"), array)}, coords={"time": np.arange(10_000), "y": np.arange(10_000)})
    tracemalloc.start()
    try:
        made = vds.virtual.reindex(time=np.arange(-500, 9_000), y=np.arange(500, 11_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.sizes == {"time": 9_500, "y": 10_500, "x": 10_000}
    assert peak < 100e6
