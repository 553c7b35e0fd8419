import json
import math

import numpy as np
import pytest

from virtualstack.errors import WriterError
from virtualstack.zarr.metadata.attributes import json_attributes, restore_cf, restore_dtypes


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.1), float(np.float32(0.1))),
        (np.int64(-5), -5),
        (np.True_, True),
        (np.array([1, 2], "i2"), [1, 2]),
        (np.array(3.5), 3.5),
        (np.array([[1, 2]]).view(np.matrix), [[1, 2]]),
        (np.ma.array([1, 2], mask=[False, True]), [1, 2]),
        (np.array([b"a", b"bc"]), ["a", "bc"]),
        (np.str_("text"), "text"),
        ("°C".encode("latin-1"), "°C"),
        ("°C".encode(), "°C"),
        (1 + 2j, [1.0, 2.0]),
        (np.datetime64("2001-02-03"), "2001-02-03"),
        (np.array("2001-02-03", "M8[ns]"), "2001-02-03T00:00:00.000000000"),
        (np.timedelta64(3, "s"), "3 seconds"),
        (np.timedelta64("NaT", "ns"), "NaT"),
        (np.array([3, 4], "m8[ns]"), ["3 nanoseconds", "4 nanoseconds"]),
        ({"a": (1, np.int8(2))}, {"a": [1, 2]}),
        (None, None),
    ],
)
def test_attribute_values_survive_json(value, expected):
    """numpy and bytes values become what the json module writes and reads back."""
    got = json_attributes({"name": value}, variable="v")
    assert json.loads(json.dumps(got)) == {"name": expected}


def test_nan_stays_a_float():
    """NaN and infinities come back from JSON as floats, neither text nor null."""
    got = json.loads(json.dumps(json_attributes({"a": np.float32("nan"), "b": [-np.inf]}, variable="v")))
    assert math.isnan(got["a"])
    assert got["b"] == [-math.inf]


def test_attribute_without_json_form_is_refused_by_name():
    """Opaque values are refused with the variable and attribute."""
    with pytest.raises(WriterError, match=r"attribute 'v.blob' is a void, which JSON cannot hold") as caught:
        json_attributes({"blob": np.void(b"ab")}, variable="v")
    assert caught.value.variable == "v"


def test_value_changing_attributes_are_restored():
    """What xarray dropped on joining comes back from the source."""
    assert restore_cf({"a": 1}, {"scale_factor": 0.5}, variable="v") == {"a": 1, "scale_factor": 0.5}


@pytest.mark.parametrize(
    ("user", "source"),
    [(np.nan, np.float32(np.nan)), ([5], np.int8(5)), (5, np.array([5])), (np.array([1, 2]), [1, 2])],
)
def test_equal_values_of_other_types_agree(user, source):
    """Lists of one, numpy scalars and NaN compare by value."""
    assert restore_cf({"_FillValue": user}, {"_FillValue": source}, variable="v").keys() == {"_FillValue"}


def test_attribute_that_contradicts_the_source_is_refused():
    """A scale_factor set by hand cannot change what stored bytes mean."""
    with pytest.raises(WriterError, match=r"'v' has scale_factor = 2, but its stored values have 0.5"):
        restore_cf({"scale_factor": 2}, {"scale_factor": 0.5}, variable="v")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(0.5, "<i2"), (0.1, "<f4"), (70000, "<f2"), (1e40, "<f4"), ([1, 2.5], "|u1"), (16777217, "<f4")],
)
def test_attributes_changed_since_keep_their_value(value, dtype):
    """A dtype that stands beside an attribute from before does not change what it says."""
    assert restore_dtypes({"a": value}, {"a": dtype}) == {"a": value}
    assert type(restore_dtypes({"a": value}, {"a": dtype})["a"]) is type(value)
