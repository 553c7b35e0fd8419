"""What the child process reads with eccodes, here in this process: beside calls of eccodes, and exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("eccodes")

import eccodes
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.codecs.test_grib_fields import PACKINGS
from tests.data.make_grib import GRIB1, edited, message, opened
from virtualstack.child.errors import LibraryError
from virtualstack.codecs.grib import child

MISSING = float(np.finfo("f4").max)
NAN = np.nan
BITS = np.arange(24) % 3 == 1
KINDS = {
    **PACKINGS,
    "one bit": edited(message(), {"bitsPerValue": 1}, values=BITS.astype("f8")),
    "constant, holes": message(values=np.where(BITS, NAN, 3.0)),
    "edition 1, constant, holes": message(sample=GRIB1, values=np.where(BITS, NAN, 3.0)),
    "complex, holes": message(after={"packingType": "grid_complex"}, values=np.where(BITS, NAN, np.arange(24.0))),
}
ALTERNATE = edited(message(values=np.arange(24.0)), {"alternativeRowScanning": 1})


def as_eccodes(raw):
    """Decode a message as cfgrib does: missing values are marked by the largest float32."""
    with opened(raw) as handle:
        eccodes.codes_set_double(handle, "missingValue", MISSING)
        found = eccodes.codes_get_double_array(handle, "values")
    return np.where(found == MISSING, np.nan, found).astype("f4")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("row", [1, 6])
def test_values_are_those_of_eccodes(name, row):
    wanted = as_eccodes(KINDS[name])
    assert len(set(wanted[~np.isnan(wanted)].tolist())) > 1 or "constant" in name
    assert np.isnan(wanted).any() == ("holes" in name)
    for size in (24, None):
        np.testing.assert_array_equal(child.values(KINDS[name], size, row), wanted)
    np.testing.assert_array_equal(child.plain_values(KINDS[name], "values"), wanted)


def test_messages_are_closed(monkeypatch):
    """If eccodes fails, too."""
    release, closed = eccodes.codes_release, []
    monkeypatch.setattr(child.eccodes, "codes_release", lambda handle: closed.append(release(handle)))
    child.values(PACKINGS["simple"], 24, 1)
    with pytest.raises(LibraryError):
        child.values(PACKINGS["simple"], 25, 1)
    assert len(closed) == 2


def test_rows_that_run_the_other_way_are_turned():
    found = child.values(ALTERNATE, 24, 6).reshape(4, 6)
    wanted = as_eccodes(ALTERNATE).reshape(4, 6)
    np.testing.assert_array_equal(found, [row if i % 2 == 0 else row[::-1] for i, row in enumerate(wanted)])
    found = child.values(ALTERNATE, 24, 2).reshape(12, 2)
    np.testing.assert_array_equal(
        found, [row if i % 2 == 0 else row[::-1] for i, row in enumerate(wanted.reshape(12, 2))]
    )
    np.testing.assert_array_equal(child.values(ALTERNATE, 24, 1), wanted.reshape(-1))
    with pytest.raises(LibraryError, match="every other row of the field backwards"):
        child.plain_values(ALTERNATE, "values")


@pytest.mark.parametrize(
    ("size", "row", "what"),
    [(23, 1, "23 are expected"), (25, 1, "25 are"), (None, 5, "rows of 5 are"), (24, 7, "24 are")],
)
def test_points_are_counted(size, row, what):
    with pytest.raises(LibraryError, match=f"the GRIB message has 24 points; {what}"):
        child.values(PACKINGS["simple"], size, row)


def test_coordinates_are_those_of_eccodes():
    raw = PACKINGS["simple"]
    for key in ("latitudes", "distinctLatitudes"):
        with opened(raw) as handle:
            wanted = eccodes.codes_get_double_array(handle, key)
        np.testing.assert_array_equal(child.coordinates(raw, key), wanted)
        np.testing.assert_array_equal(child.plain_values(raw, key), wanted)
    assert child.coordinates(raw, "noSuchKey") is None
    with pytest.raises(LibraryError):
        child.values(b"GRIB", None, 1)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["simple", "holes"])
def test_numbers_of_kerchunk_are_checked(name, dtype):
    dtype, raw = np.dtype(dtype), PACKINGS[name]
    n = 24 * dtype.itemsize
    found = child.kerchunk_values(raw, "values", dtype, n, n)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype("f4"), as_eccodes(raw))
    for size, limit in ((n + 1, 2 * n), (None, n - 1)):
        with pytest.raises(LibraryError, match=f"the GRIB message .* {n} bytes"):
            child.kerchunk_values(raw, "values", dtype, size, limit)


REFERENCES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 273.15, 1.5e38, -3.4e38, 2.0**-126]),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.builds(lambda a, b: a * 2.0**b, st.integers(-(1 << 24), 1 << 24), st.integers(-130, 100)),
)
PACKED = st.tuples(
    REFERENCES, st.integers(0, 30), st.integers(-40, 40) | st.integers(-125, 110) | st.integers(-510, 510)
)


@settings(max_examples=examples(500))
@given(PACKED, st.lists(st.floats(0, 1), max_size=8))
def test_float32_is_exact_where_it_is_used(packing, parts):
    """What eccodes computes in float32 is what it computes in float64, rounded."""
    reference, bits, binary = packing
    if not child._is_exact_sum(*packing):
        return
    most = (1 << bits) - 1
    numbers = np.array([0, 1, most // 2, max(most - 1, 0), most, *(int(x * most) for x in parts)], "f8")
    with np.errstate(over="ignore"):
        rounded = (numbers * 2.0**binary + reference).astype("f4")
        found = numbers.astype("f4") * np.float32(2.0**binary) + np.float32(reference)
    np.testing.assert_array_equal(found, rounded)
    for n in numbers.astype(int).tolist():
        exact = Fraction(reference) + n * Fraction(2) ** binary
        assert Fraction(n * 2.0**binary + reference) == exact


@pytest.mark.parametrize("bits", [1, 8, 24])
def test_float64_holds_each_sum_where_float32_is_used(bits):
    """Of all scales, and references of all sizes with all bits set."""
    most = (1 << bits) - 1
    for binary in range(-130, 111, 7):
        for exponent in range(-140, 104):
            reference = ((1 << 24) - 1) * 2.0**exponent
            if child._is_exact_sum(reference, bits, binary):
                exact = Fraction(reference) + most * Fraction(2) ** binary
                assert Fraction(reference + most * 2.0**binary) == exact


@pytest.mark.parametrize(
    ("bits", "binary", "reference", "is_exact"),
    [
        (16, -5, 273.0, True),
        (24, 0, 0.0, True),
        (25, 0, 0.0, False),
        (16, 0, 273.15, False),  # which float32 does not have
        (16, 64, 0.0, True),
        (16, 500, 0.0, False),
    ],
)
def test_usual_packings_are_read_the_fast_way(bits, binary, reference, is_exact):
    assert child._is_exact_sum(reference, bits, binary) == is_exact


@pytest.mark.parametrize(
    ("keys", "is_exact"),
    [
        ({}, True),
        ({"packingType": "grid_ccsds"}, True),
        ({"packingType": "grid_jpeg"}, False),
        ({"decimalScaleFactor": 1}, False),
    ],
)
def test_simple_packing_without_a_decimal_scale_is_read_the_fast_way(keys, is_exact):
    values = np.arange(24.0)
    with opened(edited(message(values=values), keys)) as handle:
        assert child._is_exact_in_float32(handle) == is_exact
