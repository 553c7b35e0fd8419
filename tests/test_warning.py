"""Warnings point to the line of the user's that led to them."""

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file


@pytest.fixture
def long_texts(tmp_path):
    """A file with variables of text that have no byte-range form, in one piece and in several."""
    pieces = ("S1", "t k", None, {}, {"chunksizes": (1, 32)})
    path = netcdf4_file(tmp_path / "a.nc", {"t": 2, "k": 64}, {"pieces": pieces})
    with h5py.File(path, "a") as file:
        file["text"] = np.array(["x" * 40] * 4, object)
    return path


@pytest.mark.parametrize("open_it", [vs.open_virtual_dataset, vs.open_virtual_datatree])
def test_what_is_left_out_is_said_where_the_file_is_opened(long_texts, open_it):
    with pytest.warns(UserWarning, match="left out") as caught:
        open_it(long_texts, unsupported="skip", inline_limit=64)
    assert [x.filename for x in caught] == [__file__] * 2


def test_what_is_left_out_of_many_files_is_said_where_they_are_opened(long_texts):
    with pytest.warns(UserWarning, match="left out") as caught:
        vs.open_virtual_mfdataset([long_texts], unsupported="skip", inline_limit=64)
    assert [x.filename for x in caught] == [__file__] * 2


def test_what_the_engine_leaves_out_is_said_where_xarray_is_called(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["text"] = np.array(["x" * 40] * 40_000, object)
    with pytest.warns(UserWarning, match="left out") as caught:
        xr.open_dataset(tmp_path / "a.h5", engine="virtualstack", unsupported="skip")
    assert [x.filename for x in caught] == [__file__]
