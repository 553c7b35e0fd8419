import pickle
from dataclasses import replace

import numpy as np
import pytest

from tests.data.arrays import inline_chunks
from virtualstack.codecs.cf import cf_codec
from virtualstack.manifests import (
    ABSENT,
    EMPTY,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    inline_array,
    packed_encoding,
    repack,
    unpack,
    value_changing,
)
from virtualstack.manifests.plain import PlainArray
from virtualstack.manifests.unpacking import decoded_by_xarray
from virtualstack.reading import read_array

PACKED = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.int16(-1), "long_name": "n"}


def array_of(dtype="<i2", attributes=PACKED, *, fill=0, hole=EMPTY, codecs=()):
    """Give an array of one INLINE chunk of 0 to 3, and one hole."""
    described = {"dimension_names": ("x",), "attributes": attributes, "cf": value_changing(attributes)}
    raw = np.arange(4, dtype=dtype).tobytes()
    chunk = inline_chunks((4,), dtype, raw, codecs=codecs, fill=fill, **described)
    holes = ChunkManifest.empty((1,), Fill.from_value(fill, dtype), code=hole)
    return np.concatenate([chunk, replace(chunk, manifest=holes)])


def with_attributes(array, attributes):
    named = replace(array, name="v", dimension_names=("x",))
    return unpack(replace(named, attributes=attributes, cf=value_changing(attributes)))


@pytest.mark.parametrize("hole", [EMPTY, ABSENT])
@pytest.mark.parametrize(("fill", "wanted"), [(0, 10.0), (-1, np.nan), (7, 13.5)])
def test_holes_read_as_the_decoded_fill_value(hole, fill, wanted):
    array = with_attributes(array_of(fill=fill, hole=hole), PACKED).array
    array.validate()
    np.testing.assert_array_equal(read_array(array, ()), [10, 10.5, 11, 11.5, *[wanted] * 4])


def test_attributes_leave_the_array():
    unpacked = with_attributes(array_of(), PACKED)
    assert unpacked.array.attributes == {"long_name": "n"}
    assert unpacked.array.cf == {}
    assert unpacked.encoding == {key: PACKED[key] for key in PACKED if key != "long_name"} | {"dtype": np.dtype("<i2")}
    assert packed_encoding(unpacked.array) == unpacked.encoding


def test_it_stays_plain_and_pickles():
    array = with_attributes(array_of(), PACKED).array
    plain = PlainArray.from_array(array)
    assert isinstance(plain, PlainArray)
    assert [codec.name for codec in plain.encoding.codecs] == ["virtualstack.cf"]
    assert pickle.loads(pickle.dumps(array)).equals(array)


def test_units_of_durations_still_keep_arrays_from_joining():
    """xarray leaves them numbers, of days or of hours; joined, they would all be those of the first."""
    days, hours = (
        with_attributes(array_of(), {"units": units, "_FillValue": np.int16(-1)}) for units in ("days", "hours")
    )
    assert days.array.dtype == np.int64
    with pytest.raises(ValueError, match="units = 'days'"):
        np.concatenate([days.array, hours.array])


def test_two_packings_and_none_join_to_three_encodings():
    arrays = [
        with_attributes(array_of(), PACKED).array,
        with_attributes(array_of(">i2"), {"scale_factor": 0.25}).array,
        inline_array(np.arange(4.0), name="v", dims=("x",), attributes={}),
    ]
    joined = np.concatenate(arrays)
    joined.validate()
    assert len(joined.in_memory().encodings) == 3
    np.testing.assert_array_equal(read_array(joined, ()), np.concatenate([read_array(x, ()) for x in arrays]))
    assert packed_encoding(joined) == {}
    assert repack(joined) is joined


@pytest.mark.parametrize("fill", [0, -1, 7])
@pytest.mark.parametrize("dtype", ["<i2", ">i2"])
def test_repacking_undoes_unpacking(dtype, fill):
    """After slicing, too."""
    array = with_attributes(array_of(dtype, fill=fill), PACKED).array
    back = repack(array[1:7])
    assert back.dtype == np.int16
    assert back.attributes == PACKED
    assert back.cf == value_changing(PACKED)
    assert back.in_memory().fill.value == fill
    assert [x.codecs for x in back.in_memory().encodings] == [()]
    np.testing.assert_array_equal(read_array(back, ()), [1, 2, 3, fill, fill, fill])


@pytest.mark.parametrize(("dtype", "stored"), [("<i2", -25536), ("<i4", -2_147_483_647), ("|i1", -56)])
def test_repacking_finds_negative_numbers_that_stand_for_unsigned_ones(dtype, stored):
    attributes = {"scale_factor": 0.5, "_Unsigned": "true"}
    array = with_attributes(array_of(dtype, attributes, fill=stored), attributes).array
    assert read_array(array, ())[-1] == (stored + 256 ** np.dtype(dtype).itemsize) * 0.5
    back = repack(array)
    assert back.dtype == dtype
    assert read_array(back, ())[-1] == stored


def test_packings_of_two_byte_orders_are_one():
    joined = np.concatenate([with_attributes(array_of(dtype), PACKED).array for dtype in ("<i2", ">i2")])
    back = repack(joined)
    assert sorted(x.dtype.str for x in back.in_memory().encodings) == ["<i2", ">i2"]
    np.testing.assert_array_equal(read_array(back, ()), [0, 1, 2, 3, 0, 0, 0, 0] * 2)


def test_an_array_that_was_changed_since_is_not_repacked():
    """An attribute of the same name says something else, or a hole reads as no stored number does."""
    array = with_attributes(array_of(), PACKED).array
    named = replace(array, name=None, dimension_names=("x",), attributes={"scale_factor": 2.0}, cf={})
    assert repack(named) is named
    other = ChunkManifest.empty((1,), Fill.from_value(0.3, "f8"))
    odd = np.concatenate(
        [array, ManifestArray(manifest=other, grid=ChunkGrid.regular((4,), (4,)), dtype=np.dtype("f8"))]
    )
    assert repack(odd) is odd


def test_a_fill_value_that_is_no_date_matters_only_where_there_are_holes():
    units = {"units": "days since 2000-01-01"}
    array = array_of("<f8", units, fill=9.96921e36)
    assert "were never written have the value" in str(with_attributes(array, units).obstacle)
    unpacked = with_attributes(array[:4], units)
    assert unpacked.obstacle is None
    assert np.isnat(unpacked.array.in_memory().fill.value)
    np.testing.assert_array_equal(read_array(unpacked.array, ()), np.arange("2000-01-01", "2000-01-05", dtype="M8[D]"))


@pytest.mark.parametrize(
    "attributes", [{}, {"units": "K"}, {"units": "days"}, {"dtype": "float"}, {"_Encoding": "utf-8"}]
)
def test_what_asks_for_nothing_is_untouched(attributes):
    array = inline_array(np.arange(3), name="v", dims=("x",), attributes=attributes)
    unpacked = unpack(array)
    assert unpacked.array is array
    assert unpacked.encoding == {}
    assert unpacked.obstacle is None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.array([b"a"]), "'|S1' are no numbers"),
        (np.array(["a"], np.dtypes.StringDType()), "are no numbers"),
        (np.array([1j]), "'complex128' are no numbers"),
    ],
)
def test_what_is_no_number_stays_as_it_is(values, reason):
    array = inline_array(values, name="v", dims=("x",), attributes={"_FillValue": "a"})
    unpacked = unpack(array)
    assert unpacked.array is array
    assert reason in str(unpacked.obstacle)


@pytest.mark.parametrize("units", ["hours since 1990-01-01", "days since 1950-01-01", "seconds since 1970-01-01"])
@pytest.mark.parametrize("more", [{}, {"_FillValue": 200}, {"scale_factor": 0.5}, {"add_offset": 100}])
@pytest.mark.parametrize("dtype", ["i2", ">i4", "i8", "u4", "f2", "f4", "f8"])
def test_dates_are_compared_with_those_of_xarray_in_the_years_that_it_can_show(dtype, units, more):
    """Not the dates of the largest numbers of the dtype, which neither has."""
    stored = np.dtype(dtype)
    attributes = {k: stored.type(v) if k == "_FillValue" else v for k, v in more.items()} | {"units": units}
    decoded = decoded_by_xarray(cf_codec(stored, attributes))
    assert decoded.attributes == {}
    assert decoded.encoding == attributes | {"dtype": stored}
