"""Encodings and fills: equal where they decode alike, by bytes where values are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from virtualstack.codecs.metadata import Codec, decoding_part
from virtualstack.errors import ManifestError
from virtualstack.manifests import ChunkEncoding, Fill, same_value, value_changing


def test_nan_is_nan_and_minus_zero_is_not_zero():
    """Fills compare by bytes."""
    assert Fill.of(float("nan"), "f4") == Fill.of(np.float32("nan"), ">f4")
    assert Fill.of(-0.0, "f8") != Fill.of(0.0, "f8")


@given(
    npst.scalar_dtypes()
    .filter(lambda t: t.kind in "biufcSmM" and t.itemsize <= 16)
    .flatmap(lambda t: npst.arrays(t, ()))
)
def test_a_fill_gives_its_value_back(value):
    """Any scalar survives, bit for bit."""
    fill = Fill.of(value, value.dtype)
    assert np.asarray(fill.value, fill.dtype).tobytes() == value.astype(value.dtype.newbyteorder("=")).tobytes()


def test_structured_and_string_fills():
    """Records and strings are fills too."""
    record = np.array((1, 2.5), [("a", "<i4"), ("b", ">f8")])
    assert Fill.of(record, record.dtype).value.tolist() == (1, 2.5)
    assert Fill.of("é", np.dtypes.StringDType()).value == "é"
    assert Fill.zero(np.dtypes.StringDType()).value == ""
    assert Fill.zero("S3").value == b""


@pytest.mark.parametrize(("value", "dtype"), [("abc", "f4"), (1e99, "i2"), (300, "u1")])
def test_values_that_do_not_fit_are_refused(value, dtype):
    """A fill value that the dtype cannot hold is an error, not another value."""
    with pytest.raises(ManifestError, match="does not fit dtype"):
        Fill.of(value, dtype)


@given(st.integers(0, 9), st.integers(0, 9))
def test_settings_of_the_encoder_alone_do_not_matter(a, b):
    """Zlib of any level decodes alike; a shuffle of another element size does not."""
    assert decoding_part((Codec.of("numcodecs.zlib", level=a),)) == decoding_part(
        (Codec.of("numcodecs.zlib", level=b),)
    )
    shuffles = [(Codec.of("numcodecs.shuffle", elementsize=n),) for n in (a, b)]
    assert (decoding_part(shuffles[0]) == decoding_part(shuffles[1])) == (a == b)


def test_lzma_keeps_what_its_decoder_needs():
    """A raw lzma stream cannot be decoded without its filters."""
    codec = Codec.of("numcodecs.lzma", format=3, preset=9, filters=[{"id": 33}])
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
    encoding = ChunkEncoding.of(">i2", (2, 3), [Codec.of("numcodecs.zlib", level=4)])
    assert encoding.size == 6
    assert encoding.strides == (3, 1)
    assert encoding == ChunkEncoding.of(np.dtype(">i2"), [2, 3], (Codec.of("numcodecs.zlib", level=4),))
    assert len({encoding, encoding.decoding(), encoding.with_strides((1, 2))}) == 3


def test_units_change_values_of_times_alone():
    """K and degC are the reader's business, epochs are ours."""
    assert value_changing({"units": "K", "calendar": "noleap"}) == {}
    attributes = {"units": "days since 2000-01-01", "calendar": "noleap", "axis": "T"}
    assert value_changing(attributes) == {"units": "days since 2000-01-01", "calendar": "noleap"}
    assert same_value([1, 2], np.array([1, 2]))
    assert not same_value([1, 2], [1, 2, 3])
