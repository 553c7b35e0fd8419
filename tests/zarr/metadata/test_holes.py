from dataclasses import replace

import numcodecs
import numpy as np
import pytest

from tests.data.arrays import referenced
from virtualstack.codecs.codec import Codec
from virtualstack.errors import WriterError
from virtualstack.manifests import EMPTY, INLINE, Fill, ManifestGroup
from virtualstack.zarr.metadata.holes import choose_fill
from virtualstack.zarr.metadata.version2 import make_hierarchy


@pytest.mark.parametrize(
    ("dtype", "fill", "holes", "attributes", "expected"),
    [
        ("f4", 0, False, {"_FillValue": 5}, (5, False)),
        ("f4", 5, True, {"_FillValue": np.float32(5)}, (5, False)),
        ("f4", np.nan, True, {"_FillValue": np.array([np.nan])}, (np.nan, False)),
        ("f4", 0, True, {"_FillValue": 5}, (None, True)),
        ("f4", 0, False, {}, (None, False)),
        ("f4", np.nan, True, {}, (np.nan, False)),
        ("f4", 0, True, {}, (None, True)),
        ("i4", 0, True, {}, (None, True)),
        ("i4", 7, True, {"missing_value": [7, 8]}, (7, False)),
        ("i4", 7, True, {"missing_value": 8}, (None, True)),
        ("i4", 7, False, {"_FillValue": "seven"}, (None, False)),
        ("i4", 7, False, {"_FillValue": 7.5}, (None, False)),
        ("i4", 7, False, {"_FillValue": [7, 8]}, (None, False)),
        ("i1", -1, True, {"_FillValue": 255}, (None, True)),
        ("i4", 0, False, {"_FillValue": b"x"}, (None, False)),
        ("i8", 2**62, True, {"_FillValue": 2**62 + 1}, (None, True)),
        ("f4", 0, False, {"_FillValue": np.float64(0.1)}, (None, False)),
    ],
)
def test_fill_value_masks_only_what_the_source_masks(dtype, fill, holes, attributes, expected):
    """zarr v2's fill value is set only where it is the source's _FillValue, or masks nothing more."""
    got, is_written_out = choose_fill(Fill.from_value(fill, dtype), attributes, np.dtype(dtype), has_holes=holes)
    value, expected_written_out = expected
    assert got == (None if value is None else Fill.from_value(value, dtype))
    assert is_written_out is expected_written_out


def test_text_fill_is_exact_only_for_text():
    """A number is not a fill value of strings."""
    strings = np.dtypes.StringDType()
    own = Fill.zero(strings)
    assert choose_fill(own, {"_FillValue": ""}, strings, has_holes=True) == (own, False)
    assert choose_fill(own, {"_FillValue": 0}, strings, has_holes=True) == (None, True)


def group(*, chunk=10, dtype="i4", fill=0, **options):
    """One chunk that is there, and three holes."""
    array = referenced([0, 0, 0, 0], [9, -1, -1, -1], (chunk,), dtype, fill=fill, **options)
    return ManifestGroup(arrays={"v": array})


@pytest.mark.parametrize(
    "codecs",
    [(), (Codec.from_config("numcodecs.shuffle", elementsize=4), Codec.from_config("numcodecs.zlib", level=1))],
)
def test_holes_are_written_out_as_the_encoded_fill_value(codecs):
    """Chunks written in the place of holes decode to the fill value, and stand in the heap once."""
    written = make_hierarchy(group(codecs=codecs, dtype=">i4", fill=7)).manifests["v"]
    assert written.entries["location"].tolist() == [3, INLINE, INLINE, INLINE]
    assert len(set(written.entries["offset"][1:].tolist())) == 1
    chunk = written.inline
    for codec in reversed(codecs):
        chunk = numcodecs.get_codec({"id": codec.name.removeprefix("numcodecs."), **codec.options()}).decode(chunk)
    assert np.frombuffer(chunk, ">i4").tolist() == [7] * 10


def test_holes_of_a_declared_fill_stay_absent():
    """With _FillValue equal to the fill value nothing is written out."""
    source = group()
    array = replace(source.arrays["v"], attributes={"_FillValue": 0})
    written = make_hierarchy(replace(source, arrays={"v": array})).manifests["v"]
    assert written.entries["location"].tolist() == [3, EMPTY, EMPTY, EMPTY]


def test_budget_of_fill_chunks():
    """Chunks beyond the budget are refused with the numbers; forms that hold equal chunks once count one."""
    with pytest.raises(
        WriterError,
        match=r"'v' has chunks without bytes .* 3 chunks take 120 bytes, more than fill_budget=119\. Allow .*=120\. Or",
    ):
        make_hierarchy(group(), fill_budget=119)
    with pytest.raises(
        WriterError, match=r"its 3 chunks take 40 bytes, more than fill_budget=39\. Allow fill_budget=40$"
    ):
        make_hierarchy(group(), fill_budget=39, shares_chunks=True)
    make_hierarchy(group(), fill_budget=40, shares_chunks=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codecs": (Codec("numcodecs.no_such_codec"),)}, "cannot be stored as numcodecs.no_such_codec"),
        (
            {
                "codecs": (Codec.from_config("numcodecs.quantize", digits=1, dtype="<f4"),),
                "dtype": "f4",
                "fill": 0.123456,
            },
            "other values would be read back",
        ),
        ({"chunk": 1 << 27}, "one such chunk has 536870912 bytes, more than 268435456"),
    ],
)
def test_fill_chunks_that_cannot_be_made(options, message):
    """Codecs that do not encode, or lose the fill value, and huge chunks are refused."""
    with pytest.raises(WriterError, match=f"chunks without bytes whose fill value is not its '_FillValue'.*{message}"):
        make_hierarchy(group(**options))
