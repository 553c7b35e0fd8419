import json
import math

import numpy as np
import pytest
from zarr.dtype import parse_dtype

from virtualstack.codecs.codec import Codec
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError, WriterError
from virtualstack.manifests import Fill
from virtualstack.zarr.metadata.version2_codecs import dtype_from_zarr2, dtype_to_zarr2, fill_from_zarr2, fill_to_zarr2

STRUCTURED = np.dtype([("a", ">f4"), ("b", "S2"), ("c", [("d", "<i2")])])
FILLS = [
    *[(dtype, value) for dtype in ("<f2", ">f4", "<f8") for value in (0.0, -0.0, 1.5, math.nan, math.inf, -math.inf)],
    *[(dtype, value) for dtype in ("|i1", "<i2", ">i4", "<i8") for value in (0, -1, 127)],
    *[(dtype, value) for dtype in ("|u1", ">u2", "<u4") for value in (0, 255)],
    ("<u8", 2**64 - 1),
    ("<i8", -(2**63)),
    ("|b1", True),
    ("<c8", complex(1, math.nan)),
    (">c16", complex(-math.inf, 0.1)),
    ("|S3", b"ab"),
    ("|S3", b""),
    ("<U3", "äb"),
    ("|V3", np.void(b"a\0c")),
    ("<M8[ns]", np.datetime64("2001-01-01", "ns")),
    (">m8[s]", np.timedelta64("NaT", "s")),
]


@pytest.mark.parametrize(("dtype", "value"), FILLS, ids=str)
def test_fill_values_round_trip_and_zarr_reads_them(dtype, value):
    """Every fill value comes back byte by byte, and zarr reads the same value from the JSON."""
    stored = np.dtype(dtype)
    fill = Fill.from_value(value, stored)
    text = json.loads(json.dumps(fill_to_zarr2(fill, stored), allow_nan=False))
    assert fill_from_zarr2(text, stored, where="w") == fill
    kind = parse_dtype(stored, zarr_format=2)
    assert Fill.from_value(kind.from_json_scalar(text, zarr_format=2), stored) == fill


def test_structured_fill_round_trips_in_stored_byte_order():
    """Fields of a fill value are written in the byte order of the chunks."""
    value = np.array((1.5, b"xy", (7,)), STRUCTURED)
    fill = Fill.from_value(value[()], STRUCTURED)
    text = fill_to_zarr2(fill, STRUCTURED)
    assert fill_from_zarr2(text, STRUCTURED, where="w") == fill
    flat = np.dtype([("a", ">f4"), ("b", "S2")])
    fill = Fill.from_value(np.array((1.5, b"xy"), flat)[()], flat)
    read = parse_dtype(flat, zarr_format=2).from_json_scalar(fill_to_zarr2(fill, flat), zarr_format=2)
    assert (read["a"], read["b"]) == (1.5, b"xy")


def test_null_and_zero_are_zero_bytes():
    """Null is what zarr reads as zero, of times as NaT; old references have 0 for text."""
    for stored in ("<f4", "|S3", STRUCTURED, np.dtypes.StringDType()):
        assert fill_from_zarr2(None, np.dtype(stored), where="w") == Fill.zero(stored)
    for stored in (">M8[ns]", "<m8[D]"):
        assert fill_from_zarr2(None, np.dtype(stored), where="w") == Fill.from_value(
            np.array("NaT", stored)[()], stored
        )
    assert fill_from_zarr2(0, np.dtype("S3"), where="w") == Fill.zero("S3")
    assert fill_from_zarr2(5, np.dtype("c8"), where="w") == Fill.from_value(5, "c8")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("x", "<f4"),
        (300, "|u1"),
        (1.5, "<i4"),
        ("NaN", "<i4"),
        ([1], "<c8"),
        ("a", "|S3"),
        ("YWI=", "|V3"),
        (5, "<U2"),
        ({}, "<f8"),
    ],
)
def test_fill_value_that_does_not_fit(value, dtype):
    """A fill value of another kind is named with the dtype."""
    with pytest.raises(MalformedFileError, match=r"'a' has fill_value .* or a value of dtype"):
        fill_from_zarr2(value, np.dtype(dtype), where="a")


@pytest.mark.parametrize(
    "dtype", ["<f4", ">f8", "|i1", "<u8", "|b1", "<c16", "|S4", ">U2", "|V5", "<M8[us]", STRUCTURED]
)
def test_dtypes_round_trip(dtype):
    """Dtypes come back with their byte order."""
    dtype = np.dtype(dtype)
    text = json.loads(json.dumps(dtype_to_zarr2(dtype, variable="v")))
    assert dtype_from_zarr2(text, (), where="w") == dtype


def test_strings_are_objects_of_vlen_utf8():
    """StringDType is zarr v2's object dtype, known by its codec."""
    strings = np.dtypes.StringDType()
    assert dtype_to_zarr2(strings, variable="v") == "|O"
    assert dtype_from_zarr2("|O", (Codec("vlen-utf8"),), where="w") == strings
    with pytest.raises(UnsupportedFeatureError, match=r"'w' holds Python objects made by 'numcodecs.pickle'"):
        dtype_from_zarr2("|O", (Codec("numcodecs.pickle"),), where="w")


def test_arrays_in_fields_are_read():
    """FITS tables have arrays in fields, some with fields of their own."""
    got = dtype_from_zarr2([["a", ">f4", [2, 3]], ["b", [["c", "|u1"]]]], (), where="w")
    assert got == np.dtype([("a", ">f4", (2, 3)), ("b", [("c", "u1")])])


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype({"names": ["a", "b"], "formats": ["u1", "f4"], "offsets": [0, 4], "itemsize": 8}),
        np.dtype([("a", "f4", (2,))]),
        np.dtype("O"),
        np.dtype(np.longdouble),
    ],
    ids=str,
)
def test_dtypes_without_zarr2_form_are_refused(dtype):
    """Padding, arrays in fields, objects and long doubles are refused by name."""
    with pytest.raises(WriterError, match="variable 'v' has a dtype that zarr v2 metadata cannot express"):
        dtype_to_zarr2(dtype, variable="v")


@pytest.mark.parametrize("value", ["<q9", [["a"]], 5, {"a": 1}, [["a", "<f4", "x"]]])
def test_malformed_dtypes(value):
    """What is not a dtype is named."""
    with pytest.raises(MalformedFileError, match="'w' has dtype"):
        dtype_from_zarr2(value, (), where="w")


def test_missing_dtype():
    """numpy takes None for float64; metadata without dtype is malformed all the same."""
    with pytest.raises(MalformedFileError, match="'w' has dtype None"):
        dtype_from_zarr2(None, (), where="w")
