"""Real netCDF-4 files, decoded: virtual datasets and references give what xr.open_dataset gives, every group."""

import warnings
from pathlib import Path

import netCDF4
import pytest
import xarray as xr

import virtualstack as vs

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "hdf5"
FILES = sorted(p.name for p in CORPUS.glob("*.nc*"))
XARRAY_FAILS = (ValueError, TypeError, KeyError, RuntimeError)

# netCDF4 turns Latin-1 letters of attributes into U+FFFD; we keep them.
OTHER_ATTRIBUTES = {"ref_nc_test_netcdf4_4_0.nc"}

pytestmark = [
    pytest.mark.skipif(not FILES, reason="the shared corpus is not here: ../shared/corpus"),
    pytest.mark.filterwarnings("ignore"),  # xarray's, about old files
]


def groups_of(path):
    found = [None]

    def walk(group):
        for child in group.groups.values():
            found.append(child.path)
            walk(child)

    with netCDF4.Dataset(path) as file:
        walk(file)
    return found


def opened(path, group):
    try:
        with xr.open_dataset(path, engine="netcdf4", group=group) as dataset:
            return dataset.load()
    except XARRAY_FAILS as error:
        warnings.warn(f"xarray cannot open {path.name} {group}: {error}", stacklevel=1)
        return None


def decoded_groups(path):
    """Give each group that xarray opens, and what it reads there."""
    for group in groups_of(path):
        if (expected := opened(path, group)) is not None:
            yield group, expected


@pytest.mark.parametrize("name", FILES)
def test_decoded_values_are_those_of_xarray(name):
    """Dims, coordinates, dtypes, values and attributes of every group."""
    path = CORPUS / name
    n_compared = 0
    for group, expected in decoded_groups(path):
        found = vs.open_virtual_dataset(path, group=group).virtual.open().load()
        check = xr.testing.assert_equal if name in OTHER_ATTRIBUTES else xr.testing.assert_identical
        check(found, expected)
        assert {k: v.dtype for k, v in found.variables.items()} == {k: v.dtype for k, v in expected.variables.items()}
        n_compared += 1
    if not n_compared:
        pytest.skip("xarray itself opens no group of it")


@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.apart) if "compat1" in x else x for x in FILES])
def test_references_decode_to_the_same(name, tmp_path):
    """Written as kerchunk parquet and opened by our engine; what kerchunk cannot express is refused by name."""
    path = CORPUS / name
    expected = opened(path, None)
    if expected is None:
        pytest.skip("xarray itself cannot open it")
    vds = vs.open_virtual_dataset(path)
    try:
        vds.virtual.to_kerchunk(tmp_path / "refs.parq")
    except vs.errors.WriterError as error:
        assert error.variable in vds.variables
        pytest.skip(f"kerchunk cannot express it: {error}")
    found = xr.open_dataset(tmp_path / "refs.parq", engine="virtualstack").load()
    xr.testing.assert_equal(found, expected)
    assert {k: v.dtype for k, v in found.variables.items()} == {k: v.dtype for k, v in expected.variables.items()}
