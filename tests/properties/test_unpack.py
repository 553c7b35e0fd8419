"""Random packings: chunks decode one by one to what xarray makes of the whole variable."""

import warnings

import numpy as np
import xarray as xr
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from xarray import conventions

from tests.amount import examples
from tests.data.arrays import inline_chunks
from virtualstack.codecs.cf_times import UnfitTimeError
from virtualstack.codecs.pipeline import decode
from virtualstack.manifests import unpack, value_changing

DTYPES = ("i1", "u1", ">i2", "<u2", ">i4", "<u4", "<i8", ">u8", "<f4", ">f8", "<f2")
SCALES = (np.float32(0.01), np.float64(0.1), 0.25, np.float32(-3), np.int16(2), np.float64(1e6), np.array([0.5]))
OFFSETS = (np.float32(273.15), np.float64(-0.1), 10, np.float32(0), np.array([1.5]))
EPOCHS = ("2000-01-01", "1970-01-01T00:00:00Z", "1700-01-01", "0001-01-01", "1-1-1", "1900-01-01 06:30:00.5")
STEPS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds", "day", "hrs")
CALENDARS = ("standard", "gregorian", "proleptic_gregorian", "Standard")
DEPENDS_ON_VALUES = "no stored number is a date", "are rounded depending", "another dtype", "is not a single number"
"""Why something stays packed that xarray decodes to one dtype or another."""


def numbers(dtype):
    """Draw one stored number, often a small one."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        width = dtype.itemsize * 8
        return st.one_of(st.integers(-2000, 2000).map(float), st.floats(width=width), st.sampled_from([0.5, 1e4, -0.0]))
    limits = np.iinfo(dtype)
    small = st.integers(max(limits.min, -3), 100)
    return st.one_of(small, small, st.integers(limits.min, limits.max))


@st.composite
def missing_values(draw, dtype):
    """Draw a fill value, of the stored dtype or of another, one or several."""
    native = np.dtype(dtype).newbyteorder("=")
    value = native.type(draw(numbers(dtype)))
    kind = draw(st.sampled_from(["own", "own", "own", "double", "python", "several", "nan"]))
    match kind:
        case "double":
            return np.float64(value)
        case "python":
            return value.item()
        case "several":
            return np.array([value, native.type(7)])
        case "nan":
            return np.float32("nan")
    return value


@st.composite
def packings(draw):
    """Draw a stored dtype, attributes, and stored values."""
    dtype = draw(st.sampled_from(DTYPES))
    attributes = {}
    for key in ("_FillValue", "missing_value"):
        if draw(st.booleans()):
            attributes[key] = draw(missing_values(dtype))
    if draw(st.integers(0, 3)) == 0:
        attributes["_Unsigned"] = draw(st.sampled_from(["true", "false", "True"]))
    if draw(st.booleans()):
        attributes["scale_factor"] = draw(st.sampled_from(SCALES))
    if draw(st.booleans()):
        attributes["add_offset"] = draw(st.sampled_from(OFFSETS))
    match draw(st.sampled_from(["", "", "date", "duration", "decoded duration", "bool"])):
        case "date":
            attributes["units"] = f"{draw(st.sampled_from(STEPS))} since {draw(st.sampled_from(EPOCHS))}"
            if draw(st.booleans()):
                attributes["calendar"] = draw(st.sampled_from(CALENDARS))
        case "duration":
            attributes["units"] = draw(st.sampled_from(STEPS))
        case "decoded duration":
            attributes["units"] = draw(st.sampled_from(STEPS[:7]))
            attributes["dtype"] = f"timedelta64[{draw(st.sampled_from(['s', 'ms', 'us', 'ns']))}]"
        case "bool":
            attributes["dtype"] = "bool"
    values = draw(st.lists(numbers(dtype), min_size=1, max_size=12))
    fills = [x for key in ("_FillValue", "missing_value") for x in np.ravel(attributes.get(key, ()))]
    with np.errstate(all="ignore"):
        own = [np.asarray(x).astype(dtype) for x in fills if draw(st.booleans())]
        stored = np.concatenate([np.array(values, dtype), np.array(own, dtype)]).astype(dtype)
    return dtype, attributes, stored


def decoded_by_xarray(stored, attributes):
    """Give the variable as xarray decodes it, or ``None`` where it cannot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            variable = conventions.decode_cf_variable("v", xr.Variable(("x",), stored, dict(attributes)))
            variable.load()
        except (ValueError, TypeError, OverflowError, KeyError, AttributeError):
            return None
    return variable


def array_of(stored, attributes):
    """Give an array of one chunk stored in its byte order."""
    described = {"attributes": attributes, "cf": value_changing(attributes), "dimension_names": ("x",)}
    return inline_chunks(stored.shape, stored.dtype, stored.tobytes(), **described)


def decoded_chunks(array, stored, n):
    """Decode pieces of ``n`` stored values, each alone."""
    manifest = array.in_memory()
    (encoding,) = manifest.encodings
    parts = [stored[i : i + n] for i in range(0, len(stored), n)]
    return np.concatenate([decode(x.tobytes(), encoding.codecs, encoding.dtype, x.shape) for x in parts])


@settings(max_examples=examples(300), deadline=None)
@given(packing=packings(), n=st.integers(1, 14))
def test_chunks_decode_as_xarray_decodes_the_variable(packing, n):
    """Bit by bit, and attributes are where xarray has them; or xarray has no values of a fixed dtype, or it raises."""
    _, attributes, stored = packing
    expected = decoded_by_xarray(stored.astype(stored.dtype.newbyteorder("=")), attributes)
    array = array_of(stored, attributes | {"long_name": "n"})
    unpacked = unpack(array)
    if unpacked.obstacle is not None:
        event("stays packed")
        assert "other rules" not in unpacked.obstacle
        assert unpacked.array is array
        depends = any(text in unpacked.obstacle for text in DEPENDS_ON_VALUES)
        assert expected is None or expected.dtype.kind == "O" or depends, unpacked.obstacle
        return
    assume(expected is not None)
    try:
        found = decoded_chunks(unpacked.array, stored, n)
    except UnfitTimeError:
        event("does not fit")
        assert unpacked.array.dtype.kind in "mM"
        return
    event(f"decoded to {found.dtype}")
    if expected.dtype.kind == "O":
        # one value that does not fit makes objects of all that xarray reads with it
        assert unpacked.array.dtype.kind == "M"
        return
    assert found.dtype == expected.dtype == unpacked.array.dtype
    assert found.tobytes() == expected.values.tobytes()
    assert unpacked.array.attributes == expected.attrs | {"long_name": "n"}
    wanted = {key: value for key, value in expected.encoding.items() if key != "dtype"}
    np.testing.assert_equal({key: unpacked.encoding[key] for key in wanted}, wanted)
