"""Casts: as numpy where it defines them, and an error where C does not."""

import numpy as np
import pytest

from virtualstack.codecs.cast import UnfitNumberError, cast_codec, cast_dtypes, cast_numbers
from virtualstack.codecs.codec import Codec

INTEGERS = "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"


@pytest.mark.parametrize("stored", ["<f2", ">f4", "f4", "f8"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_floats_fit_into_integers_if_their_whole_part_does(stored, dtype):
    """Checked by Python's integers of any length, for the floats next to both limits."""
    limits = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        near = [np.array(x, float).astype(stored) for x in (limits.min - 1, limits.min, 0, limits.max, limits.max + 1)]
    native = np.dtype(stored).newbyteorder("=")
    near = np.array([x for x in near if np.isfinite(x)], native)
    numbers = np.concatenate(
        [near, np.nextafter(near, -np.inf, dtype=native), np.nextafter(near, np.inf, dtype=native)]
    )
    numbers = [*numbers, *(numbers[np.abs(numbers) < 100] - native.type(0.5))]
    for number in numbers:
        one = np.array([1, number], stored)
        if np.isfinite(number) and limits.min <= int(number) <= limits.max:
            assert cast_numbers(one, np.dtype(dtype)).tolist() == [1, int(number)]
        else:
            with pytest.raises(UnfitNumberError, match="cannot be stored as dtype"):
                cast_numbers(one, np.dtype(dtype))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("stored", ["f2", "f4", "f8"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_floats_that_are_no_numbers_fit_into_no_integers(number, stored, dtype):
    with pytest.raises(UnfitNumberError, match=f"{number} cannot be stored"):
        cast_numbers(np.array([0, number], stored), np.dtype(dtype))


def test_other_casts_are_those_of_numpy():
    assert cast_numbers(np.array([300, -1], "i4"), np.dtype("u1")).tolist() == [44, 255]
    assert cast_numbers(np.array([1e300, np.nan]), np.dtype("f4")).tolist()[0] == np.inf
    assert cast_numbers(np.array([2, 0], "u1"), np.dtype("?")).tolist() == [True, False]


@pytest.mark.parametrize(
    ("stored", "dtype", "is_cast"),
    [
        (">f4", "<f8", True), ("|b1", "<c8", True), ("<i2", "<u1", True), ("<i2", "<M8[s]", False),
        ("<m8[s]", "<i8", False), ("|S3", "|S3", True), ("|S3", "|S5", True), ("|S5", "|S3", False),
        ("<U3", "<U4", True), ("<U4", "<U3", False), ("|S3", "<U3", False), ("<U3", "|S20", False),
        ("|V3", "|V5", False), ("<i2", "|S5", False),
    ],
)  # fmt: skip
def test_numbers_are_cast_to_numbers_and_text_to_text_that_is_not_shorter(stored, dtype, is_cast):
    dtypes = np.dtype(stored), np.dtype(dtype)
    assert cast_dtypes(cast_codec(*dtypes)) == (dtypes if is_cast else None)


@pytest.mark.parametrize("options", [{}, {"encode_dtype": "<f4"}, {"encode_dtype": "<f4", "decode_dtype": "x9"}])
def test_dtypes_that_are_not_known_are_not_cast(options):
    assert cast_dtypes(Codec.from_config("numcodecs.astype", **options)) is None
