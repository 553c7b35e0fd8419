"""The archives have what makes them hard: what xarray sees of their files is what the real ones show."""

import h5py
import pytest
import xarray as xr

from tests.archives.hdfeos import SWATH
from tests.archives.usual import MAKERS

SCALARS = {"era5": "number", "cmip": "height", "goes": "t", "goes-scenes": "t", "cmip-members": "height"}


@pytest.mark.parametrize("name", MAKERS)
def test_an_archive_has_its_files(archive, name):
    """In the order of their names; all are there."""
    paths = archive(name)
    assert 3 <= len(paths) <= 12
    assert paths == sorted(paths) == sorted(set(archive(name)))


@pytest.mark.parametrize(("name", "scalar"), SCALARS.items())
def test_files_have_a_scalar_coordinate(archive, name, scalar):
    """Which the joins of xarray have to compare."""
    with xr.open_dataset(archive(name)[0], engine="netcdf4") as dataset:
        assert dataset.coords[scalar].dims == ()


def test_the_packing_of_era5_differs_file_by_file(archive):
    """And the version of the data is text along the time."""
    scales = set()
    for path in archive("era5"):
        with xr.open_dataset(path, engine="netcdf4") as dataset:
            scales.add(dataset["t2m"].encoding["scale_factor"])
            assert dataset.coords["expver"].dims == ("valid_time",)
    assert len(scales) == len(archive("era5"))


def test_a_swath_has_no_dimension_scales(archive):
    """So that only its structural metadata names dimensions."""
    with h5py.File(archive("hdfeos")[0]) as file:
        assert file[f"{SWATH}/Data Fields/ColumnAmountO3"].dims[0].label == ""
        assert len(file[f"{SWATH}/Data Fields/ColumnAmountO3"].dims[0]) == 0
        assert b'DimList=("nTimes","nXtrack")' in file["HDFEOS INFORMATION/StructMetadata.0"][()]
