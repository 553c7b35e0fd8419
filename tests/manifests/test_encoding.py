"""Encodings and fills: equal where they decode alike, by bytes where values are."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.equivalence import decoding_part
from virtualstack.errors import ManifestError
from virtualstack.manifests import ChunkEncoding, Fill, same_value, value_changing


def test_nan_is_nan_and_minus_zero_is_not_zero():
    """Fills compare by bytes."""
    assert Fill.from_value(float("nan"), "f4") == Fill.from_value(np.float32("nan"), ">f4")
    assert Fill.from_value(-0.0, "f8") != Fill.from_value(0.0, "f8")


@given(
    npst.scalar_dtypes()
    .filter(lambda t: t.kind in "biufcSmM" and t.itemsize <= 16)
    .flatmap(lambda t: npst.arrays(t, ()))
)
def test_a_fill_gives_its_value_back(value):
    """Any scalar survives, bit for bit."""
    fill = Fill.from_value(value, value.dtype)
    assert np.asarray(fill.value, fill.dtype).tobytes() == value.astype(value.dtype.newbyteorder("=")).tobytes()


def test_structured_and_string_fills():
    """Records and strings are fills too."""
    record = np.array((1, 2.5), [("a", "<i4"), ("b", ">f8")])
    assert Fill.from_value(record, record.dtype).value.tolist() == (1, 2.5)
    assert Fill.from_value("é", np.dtypes.StringDType()).value == "é"
    assert Fill.zero(np.dtypes.StringDType()).value == ""
    assert Fill.zero("S3").value == b""


TEXT = np.dtypes.StringDType()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("abc", "f4"), (1e99, "i2"), (300, "u1"), (-1, "u8"), (1.5, "i4"), (2**63, "i8"), (2.0**63, "i8"),
        (9.3e18, "i8"), (10**30, "i8"), (np.nan, "i4"), (np.inf, "i4"), (3 + 2j, "i4"), (3 + 2j, "f8"),
        (1e99, "f4"), (10**39, "f4"), (10**400, "f8"), (complex(1e99, 0), "c8"), (np.nan, "?"), (2, "?"),
        ("7", "i4"), (b"7", "f4"), (None, "f4"), (np.ma.masked, "f4"), ([1, 2], "f4"),
        (np.datetime64("2000", "ns"), "i8"), (np.timedelta64(1, "s"), "f8"), (b"toolong", "S3"), ("é", "S3"),
        (12345, "S3"), (np.nan, "S3"), (True, "S4"), ("éé", "U1"), (np.nan, TEXT), (None, TEXT), ("\ud800", TEXT),
        (0, "M8[ns]"), ("2000", "M8[ns]"), (np.nan, "M8[ns]"), (np.timedelta64("NaT", "s"), "M8[ns]"),
        (np.datetime64("9999-01-01", "D"), "M8[ns]"), (np.datetime64(1, "ps"), "M8[ns]"),
        (pd.Timestamp("2000", tz="UTC"), "M8[ns]"), (2**63, "m8[ns]"), (1, "V2"), (b"abc", "V2"),
        (np.void(b"abc"), "V2"), (5, "O"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(value, dtype):
    """A fill value that the dtype cannot hold is an error, not another value."""
    with pytest.raises(ManifestError, match=r"fill value .* does not fit dtype") as raised:
        Fill.from_value(value, dtype)
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (0.1, "f4", np.float32(0.1)),
        (10**20, "f4", np.float32(1e20)),
        (3 + 0j, "f4", np.float32(3)),
        (-(2.0**63), "i8", np.int64(-(2**63))),
        (2**64 - 1, "u8", np.uint64(2**64 - 1)),
        (True, "i2", np.int16(1)),
        (0.0, "?", np.False_),
        (b"abc\0", "S3", b"abc"),
        ("ab", "S3", b"ab"),
        (5, "S3", b"5"),
        (b"ab", "U2", "ab"),
        (5, TEXT, "5"),
        ("a\0", TEXT, "a\0"),
        (np.datetime64("2000", "Y"), "M8[ns]", np.datetime64("2000-01-01", "ns")),
        (datetime.datetime(2000, 1, 1), "M8[ns]", np.datetime64("2000-01-01", "ns")),
        (pd.Timestamp(1), "M8[ns]", np.datetime64(1, "ns")),
        (datetime.timedelta(1), "m8[s]", np.timedelta64(86400, "s")),
        (3, "m8[s]", np.timedelta64(3, "s")),
        (b"ab", "V2", np.void(b"ab")),
        (0, "V2", np.void(b"\0\0")),
    ],
)
def test_values_may_change_their_type_but_not_themselves(value, dtype, expected):
    """Only floats are rounded, as numpy does."""
    assert Fill.from_value(value, dtype).value == expected


@pytest.mark.parametrize("value", [np.datetime64("NaT", "s"), np.datetime64("NaT", "D"), pd.NaT])
def test_no_time_of_any_unit_is_no_time(value):
    """NaT has a place in every dtype of datetimes."""
    assert np.isnat(Fill.from_value(value, "M8[ns]").value)


@given(st.integers(0, 9), st.integers(0, 9))
def test_settings_of_the_encoder_alone_do_not_matter(a, b):
    """Zlib of any level decodes alike; a shuffle of another element size does not."""
    assert decoding_part((Codec.from_config("numcodecs.zlib", level=a),)) == decoding_part(
        (Codec.from_config("numcodecs.zlib", level=b),)
    )
    shuffles = [(Codec.from_config("numcodecs.shuffle", elementsize=n),) for n in (a, b)]
    assert (decoding_part(shuffles[0]) == decoding_part(shuffles[1])) == (a == b)


def test_lzma_keeps_what_its_decoder_needs():
    """A raw lzma stream cannot be decoded without its filters."""
    codec = Codec.from_config("numcodecs.lzma", format=3, preset=9, filters=[{"id": 33}])
    (kept,) = decoding_part((codec,))
    assert kept.options() == {"format": 3, "filters": [{"id": 33}]}


def test_codec_metadata_round_trips():
    """Both spellings of zarr v3 codec metadata are read."""
    codec = Codec.from_json({"name": "blosc", "configuration": {"clevel": 5, "cname": "lz4"}})
    assert Codec.from_json(codec.to_json()) == codec
    assert Codec.from_json("crc32c") == Codec("crc32c")
    for wrong in ({"configuration": {}}, {"name": 3}, 7):
        with pytest.raises(ManifestError, match="has no name"):
            Codec.from_json(wrong)


def test_an_encoding_is_hashable_and_counts_elements():
    """Encodings are rows of tables."""
    encoding = ChunkEncoding.c_order(">i2", (2, 3), [Codec.from_config("numcodecs.zlib", level=4)])
    assert encoding.size == 6
    assert encoding.strides == (3, 1)
    assert encoding == ChunkEncoding.c_order(np.dtype(">i2"), [2, 3], (Codec.from_config("numcodecs.zlib", level=4),))
    assert len({encoding, encoding.decoding(), encoding.with_strides((1, 2))}) == 3


def test_units_change_values_of_times_alone():
    """K and degC are the reader's business, epochs are ours."""
    assert value_changing({"units": "K", "calendar": "noleap"}) == {}
    attributes = {"units": "days since 2000-01-01", "calendar": "noleap", "axis": "T"}
    assert value_changing(attributes) == {"units": "days since 2000-01-01", "calendar": "noleap"}
    assert same_value([1, 2], np.array([1, 2]))
    assert not same_value([1, 2], [1, 2, 3])


def test_lists_of_unequal_lists_are_compared_item_by_item():
    """No array holds them."""
    assert same_value([[1], [2, 3]], ([1], [2.0, 3]))
    assert not same_value([[1], [2, 3]], [[1], [2, 4]])
    assert not same_value([[1], [2, 3]], [[1], [2, 3], [4]])
    assert not same_value([[1], [2, 3]], 1)


def test_mappings_are_compared_value_by_value():
    a = {"x": np.nan, "y": np.array([1, 2])}
    assert same_value(a, {"y": [1.0, 2.0], "x": float("nan")})
    assert not same_value(a, {"y": [1, 2]})
    assert not same_value(a, {"y": [1, 3], "x": np.nan})


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_a_codec_with_numbers_that_json_does_not_have_is_an_error(value):
    """A document of JSON may contain 1e400, which Python reads as infinity."""
    with pytest.raises(ManifestError, match="which is not JSON"):
        Codec.from_config("numcodecs.fixedscaleoffset", scale=value)
