import warnings

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data import make_netcdf3
from tests.data.make_netcdf3 import make, raw
from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestGroup
from virtualstack.readers import NetCDF3, ReadOptions, find_reader
from virtualstack.reading import read_array
from virtualstack.storage import Storage
from virtualstack.testing.readers import ReaderTests, difference

STORAGE = Storage.of(None)
FILES = sorted(make_netcdf3.BUILDERS)
RAW = {"mask_and_scale": False, "decode_times": False, "concat_characters": False}
VERSIONS = tuple(make_netcdf3.FORMATS)
pytestmark = pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")


def read(path, reader=NetCDF3(), **options) -> ManifestGroup:  # noqa: B008 - immutable
    return reader.read(absolute_url(path), STORAGE, ReadOptions(**options))


def written(folder, data):
    path = folder / "a.nc"
    path.write_bytes(data)
    return path


def values_of(path):
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        return {f"/{name}": np.asarray(variable[...]) for name, variable in file.variables.items()}


def opened(path, engine="netcdf4", **options):
    with xr.open_dataset(path, engine=engine, **options) as dataset:
        return dataset.load()


def compare_with_netcdf4(path, group):
    """Names, order, dims, lengths, which grow, dtypes, values, and attributes with their types."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        assert dict(group.dimensions) == {name: len(dim) for name, dim in file.dimensions.items()}
        assert group.unlimited == {name for name, dim in file.dimensions.items() if dim.isunlimited()}
        assert list(group.arrays) == list(file.variables)
        compare_attributes(file, group.attributes)
        for name, variable in file.variables.items():
            array = group.arrays[name]
            array.validate()
            array.in_memory().validate()
            assert array.dimension_names == variable.dimensions
            assert array.dtype == variable.dtype.newbyteorder("=")
            assert not difference(np.asarray(variable[...]), read_array(array, (), STORAGE)), name
            compare_attributes(variable, array.attributes)


def compare_attributes(theirs, ours):
    assert list(ours) == theirs.ncattrs()
    for name, value in ours.items():
        expected = theirs.getncattr(name)
        assert type(value) is type(expected), name
        np.testing.assert_array_equal(value, expected)
        assert np.asarray(value).dtype == np.asarray(expected).dtype, name


class TestNetCDF3(ReaderTests):
    reader = NetCDF3()

    def files(self, folder):
        for version in VERSIONS:
            path = folder / f"gap{version}.nc"
            path.write_bytes(raw(version, 40, gap=1 << 16))
            yield path

    def expected(self, path):
        return values_of(path)


@pytest.mark.parametrize("name", FILES)
def test_files_are_as_netcdf4_shows_them(name, tmp_path):
    """The whole model of the file, for every version of the format."""
    path = make(name, tmp_path)
    group = read(path)
    compare_with_netcdf4(path, group)
    assert not group.refusals


@pytest.mark.parametrize("name", FILES)
def test_decoded_datasets_are_those_of_xarray(name, tmp_path):
    """With both of xarray's engines, where they open the file, decoded and raw; what grows is the same."""
    path = make(name, tmp_path)
    expected = opened(path)
    vds = vs.open_virtual_dataset(path)
    assert vds.encoding["unlimited_dims"] >= expected.encoding["unlimited_dims"]
    xr.testing.assert_identical(vds.virtual.open().load(), expected)
    virtual = vs.open_virtual_dataset(path, loadable_variables=[])
    xr.testing.assert_identical(virtual.virtual.open(**RAW).load(), opened(path, **RAW))
    loaded = {name for name, variable in expected.variables.items() if variable.dims == (name,)}
    for variable in loaded:
        xr.testing.assert_identical(vds[variable].variable.load(), expected[variable].variable)


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("names") and "_5" not in name])
def test_decoded_values_are_those_of_scipy(name, tmp_path):
    """A second library that reads CDF-1 and CDF-2, but no names that are not ASCII."""
    pytest.importorskip("scipy", reason="scipy is not installed: pip install scipy")
    path = make(name, tmp_path)
    xr.testing.assert_equal(vs.open_virtual_dataset(path).virtual.open().load(), opened(path, engine="scipy"))


@pytest.mark.parametrize("name", FILES)
def test_raw_values_through_zarr(name, tmp_path):
    """Any zarr tool reads the values that netCDF4 reads without masking and scaling."""
    path = make(name, tmp_path)
    import zarr

    root = zarr.open_group(vs.ManifestStore(vs.scan([path])[0]), mode="r")
    for variable, expected in values_of(path).items():
        assert not difference(expected, np.asarray(root[variable][...])), variable


@pytest.mark.parametrize("suffix", ["json", "parq"])
@pytest.mark.parametrize("name", FILES)
def test_references_decode_to_the_same(name, suffix, tmp_path):
    """Written as kerchunk references, opened by our engine and by xarray's."""
    path = make(name, tmp_path)
    refs = tmp_path / f"refs.{suffix}"
    vs.open_virtual_dataset(path).virtual.to_kerchunk(refs)
    expected = opened(path)
    found = xr.open_dataset(refs, engine="virtualstack").load()
    xr.testing.assert_equal(found, expected)
    assert {k: v.dtype for k, v in found.variables.items()} == {k: v.dtype for k, v in expected.variables.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xr.testing.assert_equal(xr.open_dataset(str(refs), engine="kerchunk").load(), expected)


def test_it_is_found_by_its_first_bytes(tmp_path):
    """Whatever the suffix, and by its name."""
    for version in VERSIONS:
        path = tmp_path / f"data{version}.bin"
        path.write_bytes(raw(version))
        assert find_reader(path, STORAGE) == NetCDF3()
    assert find_reader(path, STORAGE, "netcdf3") == NetCDF3()
