"""Labels of new dimensions that nanoseconds cannot count."""

from datetime import UTC, date, datetime, timedelta, timezone

import cftime
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import CombineError

_EAST, _WEST = (timezone(timedelta(hours=hours)) for hours in (5, -5))


def iso(texts):
    return np.array(texts, "M8[s]")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([date(1, 1, 1), date(9999, 12, 31)], iso(["0001-01-01", "9999-12-31"])),
        ([np.datetime64("0001", "Y"), np.datetime64("9999", "Y")], iso(["0001-01-01", "9999-01-01"])),
        (iso(["-0044-03-15", "2000-01-01T06:07:08"]), iso(["-0044-03-15", "2000-01-01T06:07:08"])),
        (iso(["2000-01-01", "30000-02-29"]), iso(["2000-01-01", "30000-02-29"])),
        ([datetime(1, 1, 1, tzinfo=_EAST), datetime(2, 1, 1, tzinfo=UTC)], iso(["0000-12-31T19", "0002-01-01"])),
        (
            [datetime(2000, 1, 1, 3, tzinfo=_EAST), datetime(9999, 12, 31, 23, tzinfo=_WEST)],
            iso(["1999-12-31T22", "10000-01-01T04"]),
        ),
    ],
    ids=["dates", "years", "before 1", "after 9999", "zone in year 1", "zone in year 9999"],
)
def test_dates_of_all_years_are_labels(labels, expected, tmp_path):
    """They stand in the store as they are in numpy."""
    parts = [xr.Dataset({"v": ("x", [i, 1.0])}, attrs={"i": i}) for i in range(len(labels))]
    vds = vs.combine_datasets(parts, new_dim={"time": lambda ds: labels[ds.attrs["i"]]})
    vds.virtual.to_vstack(tmp_path / "a.vstack")
    dates = cftime.num2date(expected.astype("i8"), "seconds since 1970-01-01", calendar="proleptic_gregorian")
    coder = xr.coders.CFDatetimeCoder(use_cftime=True)
    with xr.open_dataset(tmp_path / "a.vstack", engine="virtualstack", decode_times=coder) as found:
        assert found["time"].values.tolist() == dates.tolist()
        assert found["v"].values[:, 0].tolist() == list(range(len(labels)))


@pytest.mark.parametrize("kind", [cftime.DatetimeNoLeap, cftime.Datetime360Day, cftime.DatetimeGregorian])
def test_dates_of_cftime_stay(kind):
    """Beside dates of numpy's calendar they are of another kind."""
    labels = [kind(year, 2, 28) for year in (1, 2000, 9999)]
    parts = [xr.Dataset({"v": ("x", [i, 1.0])}, attrs={"i": i}) for i in range(3)]
    vds = vs.combine_datasets(parts, new_dim={"time": lambda ds: labels[ds.attrs["i"]]})
    assert vds["time"].values.tolist() == labels
    labels[1] = datetime(2000, 2, 28)
    with pytest.raises(CombineError, match="of several kinds"):
        vs.combine_datasets(parts, new_dim={"time": lambda ds: labels[ds.attrs["i"]]})


@pytest.mark.parametrize(
    "label", [np.datetime64("400000", "Y"), np.datetime64("1970-01-01T00:00:00.000000000001", "ps")]
)
def test_dates_that_are_too_far_or_too_fine_are_refused(label):
    """A rounded one would be another label."""
    parts = [xr.Dataset({"v": ("x", [i, 1.0])}, attrs={"i": i}) for i in range(2)]
    with pytest.raises(CombineError, match="a date that microseconds do not count") as caught:
        vs.combine_datasets(parts, new_dim={"time": lambda ds: [np.datetime64("2000-01-01"), label][ds.attrs["i"]]})
    assert (caught.value.variable, caught.value.property) == ("time", "labels")


@pytest.mark.parametrize("label", ["1677-09-21T00:12:43.145224193", "2000-01-01T00:00:00.000000001"])
def test_nanoseconds_beside_years_that_they_do_not_count_are_refused(label):
    labels = [np.datetime64(label, "ns"), np.datetime64("0500-01-01")]
    parts = [xr.Dataset({"v": ("x", [i, 1.0])}, attrs={"i": i}) for i in range(2)]
    with pytest.raises(CombineError, match="a date that microseconds do not count"):
        vs.combine_datasets(parts, new_dim={"time": lambda ds: labels[ds.attrs["i"]]})
