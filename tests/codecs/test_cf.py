import itertools
import threading

import numpy as np
import pytest
import xarray as xr
import zarr
from xarray import conventions
from zarr.registry import get_codec_class

from tests.forks import forked, forking
from virtualstack.codecs.cast import cast_codec
from virtualstack.codecs.cf import attributes_from_json, attributes_to_json, cf_codec, parse_packing
from virtualstack.codecs.cf_codec import CFCodec
from virtualstack.codecs.cf_times import UnfitTimeError, decode_datetimes, quiet, same_dates
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.pipeline import decode, split_elementwise
from virtualstack.errors import UnsupportedFeatureError
from virtualstack.manifests.unpacking import decoded_by_xarray

PACKED = {"_FillValue": np.int16(-1), "scale_factor": np.float32(0.1), "add_offset": np.float32(5)}


def decoded(stored, attributes):
    codec = cf_codec(stored.dtype, attributes)
    return decode(stored.tobytes(), (codec,), parse_packing(codec).dtype, stored.shape)


def expected(stored, attributes):
    return conventions.decode_cf_variable("v", xr.Variable(range(stored.ndim), stored, attributes)).values


def same_bytes(found, wanted):
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", ["<i2", ">i2"])
def test_numbers_of_any_shape_and_byte_order_decode_as_by_xarray(dtype, shape):
    stored = np.arange(-1, np.prod(shape, dtype=int) - 1, dtype=dtype).reshape(shape)
    same_bytes(decoded(stored, PACKED), expected(stored.astype("i2"), PACKED))


@pytest.mark.parametrize(
    ("dtype", "attributes", "wanted"),
    [
        ("i2", {"_FillValue": np.int16(0)}, "f4"),
        ("i4", {"_FillValue": np.int32(0)}, "f8"),
        ("f4", {"_FillValue": np.float64(1e20)}, "f4"),
        ("i2", {"scale_factor": np.float32(0.5)}, "f4"),
        ("i2", {"scale_factor": 0.5}, "f8"),
        ("i2", {"add_offset": np.float32(0.5)}, "f8"),
        ("i4", {"scale_factor": np.float32(0.5), "add_offset": np.float32(1)}, "f8"),
        ("i2", {"scale_factor": np.int16(2)}, "i2"),
        ("u1", {"_Unsigned": "false"}, "i1"),
        ("i1", {"_Unsigned": "true", "_FillValue": np.int8(-1)}, "f4"),
        ("i1", {"dtype": "bool"}, "?"),
        ("i4", {"units": "days", "_FillValue": np.int32(-1)}, "i8"),
        ("i4", {"units": "days", "dtype": "timedelta64[s]"}, "m8[s]"),
        ("i4", {"units": "days since 2000-01-01"}, "M8[ns]"),
        ("u8", {"units": "milliseconds since 2000-01-01"}, "M8[ns]"),
    ],
)
def test_the_dtype_depends_on_attributes_as_in_xarray(dtype, attributes, wanted):
    stored = np.array([0, 1, 100, 1], dtype)
    assert parse_packing(cf_codec(stored.dtype, attributes)).dtype == wanted
    same_bytes(decoded(stored, attributes), expected(stored, attributes))


NUMBERS = None, np.float32(0.1), np.float64(0.1), np.int16(2)


@pytest.mark.filterwarnings("ignore:variable 'v' has multiple fill values")
@pytest.mark.parametrize("missing", [(), ("_FillValue",), ("missing_value",), ("_FillValue", "missing_value")])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "f4", "f8"])
def test_any_scale_offset_and_missing_value_decode_as_by_xarray(dtype, missing):
    """Of any two dtypes, which decide on the dtype of the values."""
    stored = np.array([0, 1, 100, 3, np.iinfo(dtype).max if dtype[0] in "iu" else 1e30], dtype)
    fills = dict(zip(missing, (stored.dtype.type(1), stored.dtype.type(3)), strict=False))
    for scale, offset in itertools.product(NUMBERS, NUMBERS):
        if isinstance(scale, np.int16) and (missing or dtype[0] == "f"):
            continue  # xarray casts NaN to integers
        numbers = {"scale_factor": scale, "add_offset": offset}
        attributes = {**fills, **{key: x for key, x in numbers.items() if x is not None}}
        if attributes:
            wanted = expected(stored, attributes)
            assert parse_packing(cf_codec(stored.dtype, attributes)).dtype == wanted.dtype, attributes
            same_bytes(decoded(stored, attributes), wanted)


@pytest.mark.filterwarnings("ignore:Ambiguous reference date")  # by xarray itself
@pytest.mark.parametrize("units", ["days since 1-1-1", "days since 0001-01-01", "hrs since 2000-01-01"])
def test_dates_that_cftime_has_to_decode_are_those_of_xarray(units):
    """The reference date has no place in nanoseconds, or the unit is not one of numpy's."""
    stored = np.array([730_000.25, 730_000.1])
    same_bytes(decoded(stored, {"units": units}), expected(stored, {"units": units}))


@pytest.mark.parametrize("since", ["1970-01-01", "2000-01-01", "1900-01-01", "1677-09-22"])
@pytest.mark.parametrize(("unit", "step"), [("days", 86400 * 10**9), ("seconds", 10**9), ("milliseconds", 10**6)])
def test_the_first_and_last_date_of_64_bits(unit, step, since):
    """As Python's integers count nanoseconds."""
    origin, limit = int(np.datetime64(since, "ns").astype(np.int64)), 2**63 - 1
    first, last = -((limit + origin) // step), (limit - origin) // step
    for number in (first - 1, first, first + 1, last - 1, last, last + 1, -(limit // step), limit // step):
        date = origin + number * step
        if abs(date) <= limit:
            dates = decode_datetimes(np.array([0, number]), f"{unit} since {since}", None)
            assert dates.dtype == np.dtype("M8[ns]")
            assert dates.astype(np.int64).tolist() == [origin, date]
        else:
            with pytest.raises(UnfitTimeError):
                decode_datetimes(np.array([0, number]), f"{unit} since {since}", None)


@pytest.mark.parametrize(
    ("numbers", "units", "message"),
    [
        ([200_000], "days since 2000-01-01", "not all dates between"),
        ([200_000.5], "days since 2000-01-01", "more nanoseconds than 64 bits"),
        ([2**62], "seconds since 2000-01-01", "more nanoseconds than 64 bits"),
        ([np.inf], "days since 2000-01-01", "more nanoseconds than 64 bits"),
        ([np.nan, 1], "days since 0001-01-01", "is missing"),
        ([1], "days since 0001-01-01", "not all dates between"),
        ([1e30], "days since 0001-01-01", "are not dates"),
    ],
)
def test_dates_that_have_no_place_raise(numbers, units, message):
    with pytest.raises(UnfitTimeError, match=message):
        decode_datetimes(np.array(numbers), units, None)


def test_durations_that_have_no_place_raise():
    stored = np.array([2**31 - 1], "i4")
    with pytest.raises(UnfitTimeError, match=r"cannot be stored as 'timedelta64\[ns\]'"):
        decoded(stored, {"units": "days", "dtype": "timedelta64[ns]"})


def test_integers_far_from_the_reference_date_are_exact():
    """More than 292 years from it, where 64 bits do not hold the nanoseconds between."""
    numbers = np.array([110_000, 120_000])
    same_bytes(
        decode_datetimes(numbers, "days since 1700-01-01", None), expected(numbers, {"units": "days since 1700-01-01"})
    )


@pytest.mark.parametrize(
    ("dtype", "attributes", "message"),
    [
        ("S1", {"_FillValue": "x"}, "not packed numbers"),
        ("i4", {"units": "days since 2000-01-01", "calendar": "noleap"}, "'noleap' are objects"),
        ("i4", {"units": "days since whenever"}, "xarray does not decode it"),
        ("i4", {"units": "since 2000-01-01"}, "xarray does not decode it"),
        ("i4", {"scale_factor": np.array([0.5])}, "not a single number"),
        ("i4", {"scale_factor": "0.5"}, "not a single number"),
        ("i4", {"scale_factor": 0.5, "add_offset": "1"}, "xarray does not decode it"),
        ("i4", {"units": "days", "dtype": "timedelta64[D]"}, "another dtype once decoded"),
        ("i4", {"units": "milliseconds", "dtype": "timedelta64[s]"}, "another dtype once decoded"),
        ("i4", {"units": "days", "dtype": "timedelta64[fortnight]"}, "not a dtype of durations"),
        ("f8", {"units": "days", "dtype": "timedelta64[s]"}, "rounded depending on the values"),
        ("i1", {"units": "days since 1850-01-01", "scale_factor": 1e-9}, "no stored number is a date"),
    ],
)
def test_what_has_no_values_of_a_fixed_dtype_is_refused(dtype, attributes, message):
    with pytest.raises(ValueError, match=message):
        decoded_by_xarray(cf_codec(np.dtype(dtype), attributes))


def test_attributes_keep_their_types():
    attributes = {
        "a": np.float32(0.1),
        "b": np.array([1, 2], "u1"),
        "c": 0.1,
        "d": 7,
        "e": np.float64("inf"),
        "f": float("nan"),
        "g": "text",
        "h": [1, 2.5],
        "i": np.array([np.nan, -0.0]),
        "j": np.uint64(2**64 - 1),
    }
    back = attributes_from_json(Codec.from_config("x", **attributes_to_json(attributes)).options())
    np.testing.assert_equal(back, attributes)
    assert {key: type(x) for key, x in back.items()} == {key: type(x) for key, x in attributes.items()}
    assert back["b"].dtype == np.uint8
    assert np.signbit(back["i"][1])


@pytest.mark.parametrize("value", [b"x", np.array(["x"]), np.zeros((2, 2)), 1j, None])
def test_attributes_that_are_no_numbers_are_refused(value):
    with pytest.raises(ValueError, match="attribute 'a' is"):
        attributes_to_json({"a": value})


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"data_type": "<i2"},
        {"data_type": "<i2", "attributes": {}, "more": 1},
        {"data_type": "nonsense", "attributes": {}},
        {"data_type": "<i2", "attributes": {"scale_factor": {"float32": "much"}}},
        {"data_type": "<i2", "attributes": {"scale_factor": {"object": 1}}},
        {"data_type": "<i2", "attributes": {"scale_factor": {"i4,(": 1}}},
        {"data_type": "<i2", "attributes": {"scale_factor": {"float32": 1, "int8": 1}}},
        {"data_type": "<i2", "attributes": {"scale_factor": 1}},
        {"data_type": "<i2", "attributes": {"_FillValue": {"int16": 70000}}},
        {"data_type": "<i2", "attributes": {"_FillValue": {"int16": True}}},
        {"data_type": "<i2", "attributes": {"_FillValue": {"int16": [1, 2]}, "_Unsigned": "true"}},
        {"data_type": "|O", "attributes": {}},
    ],
)
def test_damaged_metadata_is_refused(configuration):
    codec = Codec.from_config("virtualstack.cf", **configuration)
    with pytest.raises(ValueError, match=r"codec|attribute|not packed"):
        parse_packing(codec)
    with pytest.raises(UnsupportedFeatureError, match="cannot unpack"):
        decode(b"\0\0", (codec,), np.dtype("f4"), (1,))


def test_another_dtype_than_that_of_the_values_is_refused():
    codec = cf_codec(np.dtype("<i2"), PACKED)
    with pytest.raises(UnsupportedFeatureError, match="gives values of 'float32', not 'float64'"):
        decode(b"\0\0", (codec,), np.dtype("f8"), (1,))
    with pytest.raises(ValueError, match="the array has 'float64'"):
        zarr_array(codec, "float64")[:]


def zarr_array(codec, data_type, chunk=None):
    store = zarr.storage.MemoryStore()
    codecs = [codec.to_json(), {"name": "bytes", "configuration": {"endian": "big"}}]
    array = zarr.create_array(
        store, shape=3, dtype=data_type, chunks=2, filters=[codecs[0]], serializer=codecs[1], compressors=None
    )
    for i, raw in enumerate(chunk or ()):
        zarr.core.sync.sync(store.set(f"c/{i}", zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(raw)))
    return array


def test_zarr_decodes_with_it():
    """Found by its entry point; missing chunks are the fill value of the array."""
    assert get_codec_class("virtualstack.cf") is CFCodec
    stored = np.array([1, -1], ">i2")
    array = zarr_array(cf_codec(np.dtype(">i2"), PACKED), "float32", [stored.tobytes()])
    same_bytes(array[:2], expected(stored.astype("i2"), PACKED))
    assert array[2] == 0
    assert array.metadata.codecs[0].compute_encoded_size(2 * array.dtype.itemsize, None) == stored.nbytes
    with pytest.raises(NotImplementedError, match="only decodes"):
        array[:] = 1


def test_what_works_element_by_element_is_told_apart():
    unpack, cast, zlib = cf_codec(np.dtype("<i2"), PACKED), cast_codec(np.dtype("f4"), np.dtype("f8")), Codec("x.zlib")
    split = split_elementwise((cast, unpack, zlib), np.dtype("f8"))
    assert split.codecs == (zlib,)
    assert split.stored == "<i2"
    same_bytes(split(np.array([[3]], "i2")), expected(np.array([[3]], "i2"), PACKED).astype("f8"))
    assert split_elementwise((zlib,), np.dtype("f8")).steps == ()


@forking
def test_a_child_forked_while_another_thread_decodes_times_decodes_them_too():
    """Nobody would give back the lock that the other thread held."""
    held, done = threading.Event(), threading.Event()

    def decode_for_long():
        with quiet():
            held.set()
            done.wait(60)

    def child():
        assert decode_datetimes(np.array([1]), "days since 2003-07-09", None)[0] == np.datetime64("2003-07-10")

    thread = threading.Thread(target=decode_for_long)
    thread.start()
    held.wait(60)
    try:
        assert forked(child)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    ("left", "right", "are_same"),
    [
        (("days since 1970-01-01", None), ("days since 1970-01-01", "standard"), True),
        (("days since 1970-01-01", None), ("days since 1970-01-02", None), False),
        (("days since 1970-01-01", None), ("hours since 1970-01-01", None), False),
        (("24 hours since", None), ("24 hours since", None), True),  # not readable, but the same
        (("24 hours since", None), ("24 hour since", None), False),
        (("days since 2000-01-01", "noleap"), ("days since 2000-1-1", "365_day"), True),
        (("days since 2000-01-01", "noleap"), ("days since 2000-01-01", "360_day"), False),
        (("days since 2000-01-01", "noleap"), ("days since 2000-01-01", None), False),
    ],
)
def test_units_are_the_same_if_their_dates_are(left, right, are_same):
    assert same_dates(left, right) is same_dates(right, left) is are_same
