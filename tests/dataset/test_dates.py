"""Loaded times are the dates, or durations, that xarray reads."""

import warnings

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file

SINCE = ("2000-01-01", "1850-01-01 00:00:00", "1990-06-01T12:30:00Z", "0001-01-01", "1970-01-01 00:00:0.5")
TIMES = {
    "whole": ("i4", [0, 1, 40], {}),
    "fractions": ("f8", [0.1, 1 / 3, 40.25], {}),
    "short": ("f4", [0.1, 1 / 3, 40.25], {}),
    "missing": ("f8", [0.5, np.nan, 2], {}),
    "filled": ("i8", [5, -9, 7], {"_FillValue": -9}),
    "filled floats": ("f8", [5, -9, 7.5], {"_FillValue": -9.0}),
    "packed": ("i2", [1, 2, 4], {"scale_factor": 0.25, "add_offset": 100.0}),
    "unsigned": ("u4", [0, 1, 40], {}),
    "too far": ("f8", [0, 1e6, 2e6], {}),
}


@pytest.mark.parametrize("calendar", [None, "proleptic_gregorian", "noleap"])
@pytest.mark.parametrize("units", ["days", "hours", "seconds", "milliseconds"])
def test_dates_are_those_of_xarray(tmp_path, units, calendar):
    named = {} if calendar is None else {"calendar": calendar}
    variables = {
        f"{name} {i}".replace(" ", "_"): (dtype, "x", values, {"units": f"{units} since {since}"} | named | more)
        for i, since in enumerate(SINCE)
        for name, (dtype, values, more) in TIMES.items()
        if not ("0001" in since or calendar == "noleap")
        or not name.startswith(("filled", "missing"))  # cftime has no NaT
    }
    variables["duration"] = "f8", "x", [0, 0.5, 2], {"units": units}
    path = netcdf4_file(tmp_path / "t.nc", {"x": 3}, variables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_dataset(path, engine="netcdf4") as wanted:
            found = vs.open_virtual_dataset(path, loadable_variables=list(wanted.variables))
            xr.testing.assert_identical(found, wanted.load())
            for name, variable in wanted.variables.items():
                assert found[name].dtype == variable.dtype
                assert {key: found[name].encoding.get(key) for key in ("units", "calendar", "dtype")} == {
                    key: variable.encoding.get(key) for key in ("units", "calendar", "dtype")
                }
