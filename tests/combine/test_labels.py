"""Labels of many files: which are equal, and how far the others lie."""

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from virtualstack import combine_datasets
from virtualstack.combine.concat import check_calendars
from virtualstack.combine.part import Part
from virtualstack.errors import CombineError
from virtualstack.planning.labels import check_kinds, distance, distinct_labels, first_within, is_jitter

DATES = pd.date_range("2000-01-01", periods=3)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 2, 3], [1.0, 2.0, 3.0]),
        ([0.0, 1.0], [-0.0, 1.0]),
        ([1.0, np.nan], [1.0, np.nan]),
        (np.array([0.5, 1.5], "f4"), [0.5, 1.5]),
        (DATES, DATES.as_unit("s")),
        (["a", "b"], ["a", "b"]),
        ([], []),
        (xr.date_range("2000", periods=2, calendar="noleap", use_cftime=True),) * 2,
    ],
)
def test_equal_labels_are_found_whatever_their_dtype(a, b):
    a, b = pd.Index(a), pd.Index(b)
    assert a.equals(b.astype(a.dtype))
    assert distinct_labels([a, b, a]).which.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("a", "b"), [([1, 2], [1, 3]), ([1], [1, 2]), (["a"], ["b"]), ([1], ["1"]), (DATES, DATES + pd.Timedelta(1, "ns"))]
)
def test_other_labels_are_kept_apart(a, b):
    found = distinct_labels([pd.Index(a), pd.Index(b), pd.Index(b), pd.Index(a)])
    assert found.which.tolist() == [0, 1, 1, 0]
    assert (found.first(1), found.n_differing) == (1, 2)


def test_thousands_that_begin_alike_are_compared_in_one_go():
    """Each file has its own noise in all labels but the first."""
    indexes = [pd.Index([0.0, 1 + i * 1e-9, 2.0]) for i in range(3000)]
    assert len(distinct_labels(indexes).labels) == 3000
    assert distinct_labels(indexes, 1e-3).which.tolist() == [0] * 3000


def test_within_a_tolerance_the_first_file_counts():
    indexes = [pd.Index(x) for x in ([5.0, 6.0], [1.0, 2.0], [1.1, 2.0], [5.0, 6.05], [0.9, 2.0])]
    found = distinct_labels(indexes, 0.15)
    assert found.which.tolist() == [0, 1, 1, 0, 1]
    assert found.labels[1].tolist() == [1.0, 2.0]
    chain = distinct_labels([pd.Index([x]) for x in (0.0, 1.0, 2.0)], 1.0)
    assert chain.which.tolist() == [0, 0, 1]


def test_infinite_labels_are_near_to_none_and_an_infinite_tolerance_is_near_to_all():
    indexes = [pd.Index([np.inf, 0.0]), pd.Index([np.inf, 5.0]), pd.Index([1.0, 2.0]), pd.Index([1.05, 2.0])]
    assert first_within(indexes, 0.1).tolist() == [0, 1, 2, 2]
    assert first_within(indexes, np.inf).tolist() == [0, 1, 2, 2]


def test_dates_within_a_tolerance_are_found_whatever_their_unit():
    """Files of one day each have labels of their own, and are not compared pair by pair."""
    days = [DATES[:1] + pd.Timedelta(i, "D") for i in range(5000)]
    assert len(distinct_labels(days, pd.Timedelta("1h")).labels) == 5000
    near = [DATES, (DATES + pd.Timedelta("1h")).as_unit("s"), DATES - pd.Timedelta("61min")]
    assert distinct_labels(near, pd.Timedelta("1h")).which.tolist() == [0, 0, 1]
    far = pd.DatetimeIndex(np.array(["3000-01-01", "1000-01-01"], "M8[s]"))
    assert distance(far, far[::-1]) == pd.Timestamp("3000-01-01").as_unit("s") - pd.Timestamp("1000-01-01").as_unit("s")


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_integers_are_compared_as_integers(dtype):
    """Floats have no place for odd numbers above 2 ** 53."""
    a, b = (pd.Index(np.array([2**53, x], dtype)) for x in (2**60, 2**60 + 1))
    assert distance(a, b) == 1
    assert distinct_labels([a, b], 0.5).which.tolist() == [0, 1]
    assert distinct_labels([a, b], 1).which.tolist() == [0, 0]
    assert distance(pd.Index([-(2**63)]), pd.Index([2**63 - 1])) == 2**64 - 1
    assert distance(pd.Index([-1]), pd.Index(np.array([2**64 - 1], "u8"))) == 2**64


def first_by_pairs(rows, limit):
    """Return for each row the first one that is kept and near, each compared with each."""
    found = [None] * len(rows)
    for i, own in enumerate(rows):
        if found[i] is None:
            for j, other in enumerate(rows):
                if found[j] is None and all(abs(a - b) <= limit for a, b in zip(own, other, strict=True)):
                    found[j] = i
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("dtype", "base"),
    [("f8", -1), ("f4", 1000), ("i1", -128), ("u1", 250), ("i8", 2**63 - 6), ("u8", 0), ("M8[s]", 0), ("m8[ns]", -3)],
)
def test_labels_within_a_tolerance_are_those_of_a_comparison_in_pairs(dtype, base, seed):
    """Numbers at a distance that is exactly the tolerance, and at the ends of their dtype, too."""
    rng = np.random.default_rng(seed)
    scale, is_time = (4 if dtype[0] == "f" else 1), dtype[0] in "mM"
    rows = [[base + x / scale if scale > 1 else base + x for x in row] for row in rng.integers(0, 6, (12, 2)).tolist()]
    rows = [list(row) for row in dict.fromkeys(map(tuple, rows))]
    indexes = [pd.Index(np.array(row, dtype)) for row in rows]
    for n in range(3):
        tolerance = pd.Timedelta(n, dtype[3:-1]) if is_time else n / scale
        assert first_within(indexes, tolerance).tolist() == first_by_pairs(rows, n / scale)


def test_all_labels_must_be_near_to_be_noise():
    """Each of them less than half a step away."""
    first, near, half, far = (pd.Index(x) for x in ([0.0, 1, 3], [0.0, 1.25, 3], [0.0, 1.5, 3], [0.0, 2, 3]))
    assert is_jitter(distinct_labels([first, near]))
    assert is_jitter(distinct_labels([first, near, first]))
    for other in (half, far):
        assert not is_jitter(distinct_labels([first, near, other]))
        assert not is_jitter(distinct_labels([first, other, near]))
    assert not is_jitter(distinct_labels([pd.Index([0.0]), pd.Index([0.1])]))
    assert not is_jitter(distinct_labels([first, near[:2], near]))
    assert is_jitter(distinct_labels([first[:2], near[:2]]))


def test_calendars_are_those_of_the_dates_that_are_there():
    """A file whose dates are all missing has none."""
    dates = {
        x: xr.date_range("2000", periods=2, calendar=x, use_cftime=True).values
        for x in ("noleap", "360_day", "standard")
    }
    nothing, days = np.array([None, np.nan], object), np.array(["2000-01-01"], "M8[s]")
    parts = [Part(variables={}, sizes={}, source=f"{i}.nc") for i in range(3)]
    for first in (nothing, dates["noleap"], np.append(nothing, dates["noleap"])):
        check_calendars("t", parts, [first, nothing, dates["noleap"]])
        with pytest.raises(
            CombineError, match=r"cftime, calendar 'noleap' in '1.nc', cftime, calendar '360_day' in '2.nc'"
        ):
            check_calendars("t", parts, [nothing, dates["noleap"], dates["360_day"]])
    check_calendars("t", parts, [days, days, days])
    with pytest.raises(CombineError, match=r"datetime64 in '0.nc', cftime, calendar 'standard' in '1.nc'"):
        check_calendars("t", parts, [days, dates["standard"], days])


def test_labels_of_several_kinds_have_no_tolerance():
    indexes = [
        pd.Index(["a"]),
        pd.Index([1.0]),
        pd.Index([1.5]),
        DATES[:1],
        xr.date_range("2000", periods=1, use_cftime=True),
    ]
    assert distinct_labels(indexes, 1.0).which.tolist() == [0, 1, 1, 2, 3]
    assert distance(indexes[0], indexes[1]) is None
    assert distance(indexes[3], indexes[4]) is None


def test_dates_of_one_calendar_in_two_types_are_several_kinds():
    """Dates before 1582 are objects, the others are numbers: in one index they would be neither."""
    part = Part(variables={}, sizes={}, source="a.nc")
    old = xr.date_range("1500-01-01", periods=2, calendar="standard", use_cftime=True)
    with pytest.raises(CombineError, match=r"1500-01-01 .*\(cftime, calendar 'standard'\) .* \(datetime64\) in 'a.nc'"):
        check_kinds("time", [part, part, part], [pd.Index([]), old, DATES])
    check_kinds("time", [part, part], [DATES, DATES.as_unit("s")])
    check_kinds("x", [part, part], [pd.Index([1]), pd.Index([1.5])])


def test_distances_are_numbers_or_timedeltas():
    assert distance(pd.Index([1, 2]), pd.Index([1, 5])) == 3
    assert distance(DATES, DATES + pd.Timedelta("2h")) == pd.Timedelta("2h")
    assert distance(pd.Index([1.0, np.nan]), pd.Index([1.0, 2.0])) is None
    assert distance(DATES, pd.DatetimeIndex(["NaT"] * 3)) is None
    assert distance(pd.Index([1]), pd.Index([1, 2])) is None


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "standard"])
@pytest.mark.parametrize("year", ["0001", "2000", "9000"])
@pytest.mark.parametrize("join", ["exact", "outer", "inner", "left", "right"])
@pytest.mark.parametrize("lacks", [0, 1])
def test_dates_of_other_calendars_have_a_tolerance(calendar, year, join, lacks):
    """As those of the standard calendar have."""

    def made(dates, seconds):
        labels = [dates, dates[lacks:] + timedelta(seconds=seconds)]
        return [
            xr.Dataset({"v": (("time", "x"), np.full((1, len(x)), float(i)))}, {"time": [i], "x": x})
            for i, x in enumerate(labels)
        ]

    def joined(parts, tolerance=timedelta(seconds=2)):
        return combine_datasets(parts, combine="nested", concat_dim="time", join=join, tolerance=tolerance)

    dates = xr.date_range(f"{year}-01-01", periods=3, calendar=calendar, use_cftime=True)
    if join == "exact" and lacks:
        with pytest.raises(CombineError, match="'x' differs in 1 of 2 files"):
            joined(made(dates, 1))
        return
    wanted = joined(made(DATES, 1))
    found = joined(made(dates, 1))
    np.testing.assert_array_equal(found["v"].values, wanted["v"].values)
    assert isinstance(found.indexes["x"], xr.CFTimeIndex)
    assert found["x"].values.tolist() == dates[3 - wanted.sizes["x"] :].tolist()
    if join == "exact":
        with pytest.raises(
            CombineError, match=r"by at most 0 days 00:00:03, .*tolerance=pd.Timedelta\('0 days 00:00:03'\)"
        ):
            joined(made(dates, 3))
    elif join == "outer":
        assert joined(made(dates, 3)).sizes["x"] == 6 - lacks
        assert joined(made(dates, 1), tolerance=5).sizes["x"] == 6 - lacks


def test_a_number_as_tolerance_leaves_dates_apart():
    """It holds for the dimensions of numbers; dates are joined as xarray joins them without a tolerance."""

    def part(day, second, lat):
        dates = np.array([f"2000-01-01T00:00:{second:02}", "2000-01-02"], "M8[ns]")
        return xr.Dataset(
            {"v": (("day", "run", "lat"), np.ones((1, 2, 1)))}, {"day": [day], "run": dates, "lat": [lat]}
        )

    parts = [part(0, 0, 1.0), part(1, 1, 1.0 + 1e-9)]
    joined = combine_datasets(parts, tolerance=1e-6, join="outer")
    expected = xr.concat([parts[0], parts[1].assign_coords(lat=[1.0])], "day", join="outer")
    xr.testing.assert_identical(joined.load(), expected)
