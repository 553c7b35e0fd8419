"""Messages of GRIB that contradict themselves: refused, or left to the process that may crash."""

import numpy as np
import pytest

pytest.importorskip("eccodes")

from tests.data.make_grib import GRIB1, edited, merged, message, section, values_of_message
from virtualstack.codecs.codec import CodecError
from virtualstack.codecs.grib.fields import check_grid_1, described, is_safe, last_field

HOLES = np.where(np.arange(24) % 5 == 3, np.nan, np.arange(24.0))
ONE, ONE_HOLES = message(sample=GRIB1), message(sample=GRIB1, values=HOLES)
TWO, TWO_HOLES = message(), message(values=HOLES)
PACKINGS = {
    "simple": TWO,
    "holes": TWO_HOLES,
    "constant": message(values=np.full(24, 3.0)),
    "ccsds": message(after={"packingType": "grid_ccsds"}),
    "complex": message(after={"packingType": "grid_complex"}),
    "differences": message(after={"packingType": "grid_complex_spatial_differencing"}),
    "edition 1": ONE,
    "edition 1, holes": ONE_HOLES,
    "edition 1, constant": message(sample=GRIB1, values=np.full(24, 3.0)),
}
GRID_1 = 8 + int.from_bytes(ONE[8:11], "big")
DATA_1 = GRID_1 + int.from_bytes(ONE[GRID_1 : GRID_1 + 3], "big")  # or the bitmap


def changed(raw, at, new):
    return raw[:at] + new + raw[at + len(new) :]


@pytest.mark.parametrize("name", PACKINGS)
def test_usual_packings_are_safe(name):
    raw = PACKINGS[name]
    assert is_safe(last_field(raw))
    assert last_field(raw + b"more")[6:] == raw[6:] or raw[7] == 1
    assert np.isfinite(values_of_message(raw)).all()


@pytest.mark.parametrize(
    ("name", "kind", "at", "new"),
    [
        ("simple", 5, 5, (25).to_bytes(4, "big")),  # number of values
        ("simple", 5, 5, (23).to_bytes(4, "big")),
        ("simple", 3, 6, (25).to_bytes(4, "big")),  # number of points
        ("simple", 5, 19, bytes((65,))),  # bits of a value
        ("simple", 5, 15, (501).to_bytes(2, "big")),  # binary scale
        ("simple", 5, 17, (0x8000 + 501).to_bytes(2, "big")),  # decimal scale
        ("simple", 5, 9, (4).to_bytes(2, "big")),  # template: floats
        ("simple", 5, 9, (2).to_bytes(2, "big")),
        ("simple", 6, 5, b"\0"),  # a bitmap without bits
        ("holes", 6, 5, b"\1"),  # a bitmap of the centre
        ("holes", 6, 6, b"\xff"),  # more points
        ("complex", 5, 31, bytes(4)),  # number of groups
        ("complex", 5, 31, (25).to_bytes(4, "big")),
        ("complex", 5, 36, bytes((33,))),  # bits of widths
        ("complex", 5, 42, (1000).to_bytes(4, "big")),  # length of the last group
        ("differences", 5, 47, b"\3"),  # order of differences
        ("differences", 5, 47, b"\0"),
        ("differences", 5, 48, b"\5"),  # bytes of the first values
        ("differences", 5, 48, b"\0"),
    ],
)
def test_numbers_that_contradict_each_other_are_not_safe(name, kind, at, new):
    raw = PACKINGS[name]
    try:
        assert not is_safe(changed(raw, section(raw, kind) + at, new))
    except CodecError as error:  # the packed values are not all there
        assert "packed values take" in str(error)


SPARE = message(values=np.arange(24.0), after={"bitsPerValue": 12})


@pytest.mark.parametrize(
    ("raw", "at", "new"),
    [
        (PACKINGS["constant"], 19, b"\x10"),  # bits of a value, where there is no value: a sample file was damaged so
        (TWO, 5, (1 << 20).to_bytes(4, "big")),  # number of values
        (SPARE, 19, b"\x40"),
        (message(after={"packingType": "grid_ieee", "precision": 1}), 11, b"\2"),  # floats of 64 bits
        (changed(SPARE, section(SPARE, 5) + 9, b"\0\x3d"), 19, b"\x40"),  # with logarithms
        (changed(SPARE, section(SPARE, 5) + 9, b"\0\x32"), 19, b"\x40"),  # harmonics
    ],
)
def test_values_beyond_the_end_of_their_section_are_refused(raw, at, new):
    """eccodes decodes the memory that follows, without an error."""
    is_safe(last_field(raw))
    with pytest.raises(CodecError, match=r"packed values take \d+ bits, and it has \d+"):
        is_safe(last_field(changed(raw, section(raw, 5) + at, new)))


@pytest.mark.parametrize(
    ("name", "at", "new"),
    [
        ("edition 1", DATA_1 + 3, b"\x80"),  # spherical harmonics
        ("edition 1", DATA_1 + 3, b"\x40"),  # complex packing
        ("edition 1", DATA_1 + 3, b"\x10"),  # more flags
        ("edition 1", DATA_1, (11).to_bytes(3, "big")),  # length of the data
        ("edition 1", DATA_1 + 4, (501).to_bytes(2, "big")),  # scale
        ("edition 1", GRID_1 + 5, bytes((99,))),  # type of grid
        ("edition 1", GRID_1 + 5, bytes((3,))),  # a longer one
        ("edition 1", GRID_1 + 4, bytes((34,))),  # beginning of lists
        ("edition 1, holes", DATA_1 + 4, b"\0\1"),  # a bitmap that is known elsewhere
        ("edition 1, holes", DATA_1 + 6, b"\xff\xff"),  # more points
        ("edition 1, holes", DATA_1 + 6, b"\0\0"),
    ],
)
def test_numbers_of_edition_1_that_contradict_each_other_are_not_safe(name, at, new):
    assert not is_safe(changed(PACKINGS[name], at, new))


@pytest.mark.parametrize("lists", [255, 33, 1])
def test_lists_of_edition_1_may_end_with_their_section(lists):
    """255 says that there are none."""
    assert is_safe(changed(ONE, GRID_1 + 4, bytes((lists,))))


@pytest.mark.parametrize("make", [last_field, described])
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "the magic is missing"),
        (TWO[:15], "the magic is missing"),
        (b"BIRG" + TWO[4:], "the magic is missing"),
        (changed(TWO, 7, b"\3"), "the magic is missing"),
        (changed(TWO, 16, (4).to_bytes(4, "big")), "section 1 at byte 16 of the GRIB message says that it is 4 bytes"),
        (changed(TWO, 16, (1 << 20).to_bytes(4, "big")), "section 1 at byte 16 .* 1048576 bytes long"),
        (changed(TWO, 20, b"\0"), "section 0 at byte 16"),
        (changed(TWO, 20, b"\x08"), "section 8 at byte 16"),
    ],
)
def test_bytes_that_are_no_message_are_refused(make, raw, reason):
    with pytest.raises(CodecError, match=reason):
        make(raw)


@pytest.mark.parametrize("kind", [1, 3, 4, 5, 6, 7])
def test_a_message_that_lacks_a_section_is_cut_short(kind):
    begin = section(TWO, kind)
    length = int.from_bytes(TWO[begin : begin + 4], "big")
    with pytest.raises(CodecError, match="no data, or no description of it: it is cut short"):
        last_field(TWO[:begin] + TWO[begin + length :])


def test_a_message_without_its_end_is_completed():
    """Of one field, or of the last of several."""
    other = message(seed=3)
    for raw, expected in ((TWO[:-4], TWO), (TWO + b"77", TWO), (merged([TWO, other]), other)):
        np.testing.assert_array_equal(values_of_message(last_field(raw)), values_of_message(expected))
    assert last_field(TWO) is TWO


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (changed(ONE, 8, (5).to_bytes(3, "big")), "a section at byte 8 of the GRIB message says that it is 5 bytes"),
        (
            changed(ONE, GRID_1, (0).to_bytes(3, "big")),
            "a section at byte 60 of the GRIB message says that it is 0 bytes",
        ),
        (ONE[: DATA_1 + 10], "the GRIB message has no data: it is cut short"),
        (changed(ONE, 8, (1 << 20).to_bytes(3, "big")), "a section|no data"),
    ],
)
def test_sections_of_edition_1_that_are_cut_are_refused(raw, reason):
    with pytest.raises(CodecError, match=reason):
        is_safe(raw)


def test_levels_need_room():
    """Coordinates of model levels stand behind the product."""
    at = section(TWO, 4)
    with pytest.raises(CodecError, match="has no room for the 1 coordinates of levels"):
        last_field(changed(TWO, at + 5, (1).to_bytes(2, "big")))


@pytest.mark.parametrize(("sample", "n_levels"), [("reduced_gg_ml_grib1", 4), ("reduced_gg_ml_grib2", 4)])
def test_grids_of_model_levels_are_sound(sample, n_levels):
    raw = edited(sample, {"pv": np.arange(float(n_levels))} if "2" in sample else {})
    assert last_field(raw)[:4] == b"GRIB"
    assert described(raw)[:4] == b"GRIB"


@pytest.mark.parametrize("kind", [0, 10, 20, 30])
def test_rows_of_edition_1_are_all_described(kind):
    """Grids by latitude and longitude that are reduced, rotated, stretched or both: eccodes reads past the end."""
    grid = changed(changed(ONE[GRID_1:DATA_1], 5, bytes((kind,))), 6, b"\xff\xff" + (100).to_bytes(2, "big"))
    with pytest.raises(CodecError, match="its grid has 100 rows, and lengths of"):
        check_grid_1(grid)
