"""The number that attributes decode to a value, beside what xarray decodes all numbers of a byte to."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.manifests import reads_as, stored_number
from virtualstack.manifests.agreement import is_missing
from virtualstack.manifests.cf import is_nan

NUMBERS = st.integers(-128, 255) | st.sampled_from([np.nan, 300, -9999, 3.5])


def decoded(dtype, cf):
    """What xarray decodes each number to; ``None`` where it cannot."""
    every = np.arange(256).astype("u1").view(dtype)
    try:
        return every, xr.conventions.decode_cf_variable("v", xr.Variable("n", every, dict(cf))).values
    except (ValueError, TypeError, OverflowError):
        return every, None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["i1", "u1"])
@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_any_number_that_decodes_to_a_value_is_found(dtype, data):
    names = st.sampled_from(["_FillValue", "missing_value"])
    cf = data.draw(st.dictionaries(names, NUMBERS, max_size=2))
    cf |= data.draw(
        st.sampled_from([{}, {"scale_factor": 0.5}, {"add_offset": 10.0}, {"scale_factor": -2, "add_offset": 1}])
    )
    cf |= data.draw(st.sampled_from([{}, {}, {"_Unsigned": "true" if dtype == "i1" else "false"}]))
    every, values = decoded(np.dtype(dtype), cf)
    wanted = None if values is None else data.draw(st.none() | st.sampled_from(values.tolist()))
    wanted = None if wanted is not None and pd.isnull(wanted) else wanted
    found = stored_number(np.dtype(dtype), cf, wanted)
    if values is None:
        assert found is None
        return
    fitting = every[pd.isnull(values) if wanted is None else values == wanted]
    if found is not None:
        assert found.value in fitting
        assert reads_as(found.value, cf, wanted)
    else:
        assert not fitting.size


@pytest.mark.parametrize(
    ("dtype", "cf", "value", "number"),
    [
        ("i2", {"missing_value": np.nan}, None, None),
        ("i2", {"_FillValue": np.int16(-9), "missing_value": np.nan}, None, -9),
        ("i2", {"_FillValue": np.int16(-1), "_Unsigned": "true"}, None, -1),
        ("u2", {"_FillValue": np.uint16(65535), "_Unsigned": "false"}, None, 65535),
        ("f4", {}, None, np.nan),
        ("f4", {"_FillValue": np.float32(-9)}, None, -9),
        ("i8", {}, None, None),
        ("i8", {"units": "days since 2000-01-01"}, None, np.iinfo("i8").min),
        ("i4", {"units": "days since 2000-01-01"}, np.datetime64("2000-01-04"), 3),
        ("i4", {"units": "days since 2000-01-01"}, np.datetime64("2000-01-04T12"), None),
        ("u2", {"_Unsigned": "false"}, -2.0, 65534),
        ("i2", {"_Unsigned": "true"}, 65534.0, -2),
        ("i2", {"scale_factor": 0.0}, 1.0, None),
        ("i2", {"scale_factor": 0.5}, 1e9, None),
        ("i2", {"scale_factor": 0.5}, 2.0, 4),
        ("i2", {"scale_factor": 0.5}, 2.25, None),
        ("i2", {"scale_factor": 0.5}, np.inf, None),
    ],
)
def test_the_number_of_a_value(dtype, cf, value, number):
    found = stored_number(np.dtype(dtype), cf, value)
    np.testing.assert_array_equal(None if found is None else found.value, number)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(
            (x, True)
            for x in (np.nan, np.float32("nan"), complex("nan"), np.datetime64("NaT", "s"), np.timedelta64("NaT", "s"))
        ),
        (np.array(np.nan), True),
        (np.array(np.nan, object), True),
        *((x, False) for x in (0, 0.0, 5.5, -1, True, 1j, "a", b"a", None, np.datetime64("2000-01-01"))),
        *((x, False) for x in (np.array([np.nan]), np.array([[np.nan]]), [np.nan])),
    ],
    ids=repr,
)
def test_one_nan_is_a_missing_value(value, expected):
    assert is_missing(value) is expected


@pytest.mark.parametrize("value", [None, np.nan, np.float32("nan"), [np.nan, np.nan], np.array(np.nan)], ids=repr)
def test_nan_marks_nothing_else_as_missing(value):
    assert is_nan(value)


@pytest.mark.parametrize("value", [0, 1.5, -9, "a", [np.nan, 1.0], np.int16(-9), np.datetime64("NaT", "s")], ids=repr)
def test_other_missing_values_are_no_nan(value):
    assert not is_nan(value)
