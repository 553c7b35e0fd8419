"""Sections of GRIB as eccodes makes them: each kind of grid, product and packing is accepted, and nothing longer."""

import contextlib

import eccodes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.data.make_grib import ABSENT, GRIB1, GRIB2, edited, merged, message, opened, section, values_of_message
from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import run_in_child
from virtualstack.codecs.codec import CodecError
from virtualstack.codecs.grib.fields import (
    check_grid_1,
    check_grid_2,
    check_product_2,
    described,
    is_safe,
    last_field,
    message_1,
    short_data,
)

imagecodecs = pytest.importorskip("imagecodecs")

SAFE_GRIDS = [
    "regular_ll", "rotated_ll", "stretched_ll", "stretched_rotated_ll", "regular_gg", "rotated_gg", "stretched_gg",
    "stretched_rotated_gg", "mercator", "polar_stereographic", "lambert",
]  # fmt: skip
GAUSSIAN = [name for name in SAFE_GRIDS if name.endswith("gg")]
REDUCED = ["reduced_gg", "reduced_rotated_gg", "reduced_stretched_gg", "reduced_stretched_rotated_gg", "reduced_ll"]
PRODUCTS = [0, 1, 2, 8, 11, 12]
ROWS = [4, 8, 12, 12, 8, 4]
LEVELS = {"PVPresent": 1, "pv": np.arange(4.0)}


def number(data, at, n):
    return int.from_bytes(data[at : at + n], "big")


def changed(raw, at, new):
    return raw[:at] + new + raw[at + len(new) :]


def grid_of(raw):
    """Return where the section of the grid begins, and its length."""
    if raw[7] == 1:
        at = 8 + number(raw, 8, 3)
        return at, number(raw, at, 3)
    at = section(raw, 3)
    return at, number(raw, at, 4)


def resized(raw, at, length):
    """Cut a section, or fill it with zeros, and write its new length in front."""
    n_bytes = 3 if raw[7] == 1 else 4
    old = number(raw, at, n_bytes)
    body = raw[at + n_bytes : at + old][: length - n_bytes].ljust(length - n_bytes, b"\0")
    made = raw[:at] + length.to_bytes(n_bytes, "big") + body + raw[at + old :]
    return made if raw[7] == 1 else changed(made, 8, len(made).to_bytes(8, "big"))


def keys_of(raw, *keys):
    with opened(raw) as handle:
        return [eccodes.codes_get(handle, key) for key in keys]


@pytest.mark.parametrize("grid", [*SAFE_GRIDS, "albers", "space_view"])
def test_grids_of_edition_1(grid):
    """Each has as many bytes as eccodes writes, and then coordinates of levels; without the last byte it is unsafe."""
    raw = edited(GRIB1, {"gridType": grid})
    assert is_safe(last_field(raw)) == (grid in SAFE_GRIDS)
    at, length = grid_of(raw)
    assert is_safe(resized(raw, at, length + 1)) == (grid in SAFE_GRIDS)
    if grid not in ("mercator", "lambert", "polar_stereographic", "albers", "space_view"):
        assert not is_safe(resized(raw, at, length - 1))
    raw = edited(raw, LEVELS)
    assert is_safe(last_field(raw)) == (grid in SAFE_GRIDS)
    at, length = grid_of(raw)
    assert raw[at + 3] == 4
    short = resized(raw, at, length - 1)
    assert not is_safe(short)
    for make in (last_field, described):
        with pytest.raises(CodecError, match=f"a section of {length - 1} bytes has no room for the 4 coordinates"):
            make(short)


@pytest.mark.parametrize("flags", [0, 1, 0x3F])
def test_messages_of_edition_1_without_a_grid(flags):
    """Only the first bit of the flags says that there is one."""
    raw = message(sample=GRIB1)
    at, length = grid_of(raw)
    bare = changed(raw[:at] + raw[at + length :], 15, bytes((flags,)))
    assert last_field(bare) is bare
    assert is_safe(bare)
    assert described(bare)[15] == flags
    with pytest.raises(CodecError, match="no data: it is cut short"):
        is_safe(bare[: at + 10])


@pytest.mark.parametrize("template", PRODUCTS)
def test_products_of_edition_2(template):
    """Coordinates of levels stand behind the product, and end with the section."""
    raw = edited(GRIB2, {"productDefinitionTemplateNumber": template})
    assert is_safe(last_field(raw))
    raw = edited(raw, LEVELS)
    at = section(raw, 4)
    assert number(raw, at + 5, 2) == 4
    assert is_safe(last_field(raw))
    for odd in (changed(raw, at + 5, b"\0\5"), resized(raw, at, number(raw, at, 4) - 1)):
        for make in (last_field, described):
            with pytest.raises(CodecError, match=r"has no room for the . coordinates of levels"):
                make(odd)


@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
@pytest.mark.parametrize("grid", [*SAFE_GRIDS, *REDUCED])
def test_a_message_without_data_describes_the_same_grid(grid, sample):
    """As eccodes reads it; data are cut off, and bits of a bitmap too."""
    raw = reduced(sample, grid, ROWS) if "reduced" in grid else edited(sample, {"gridType": grid})
    keys = "gridType", "md5GridSection", "shortName", "dataDate", "level"
    assert keys_of(described(raw[: sum(grid_of(raw))] if raw[7] == 1 else raw), *keys) == keys_of(raw, *keys)


def check_whole(raw):
    """Sections fill a message, and its length is the one in front."""
    if raw[7] == 1:
        at = 8
        for is_there in (True, raw[15] & 0x80, raw[15] & 0x40, True):
            at += number(raw, at, 3) if is_there else 0
        assert number(raw, 4, 3) == len(raw)
    else:
        at = 16
        while raw[at : at + 4] != b"7777":
            at += number(raw, at, 4)
        assert number(raw, 8, 8) == len(raw)
    assert raw[at:] == b"7777"


def stub_of(raw):
    """A message of edition 1 without its values."""
    at = sum(grid_of(raw))
    return message_1(raw[8:at], short_data(raw[at : at + 42]))


@pytest.mark.parametrize("origin", ["sh_pl_grib1", "sh_ml_grib1", "sh_sfc_grib1"])
@pytest.mark.parametrize("packing", ["spectral_simple", "spectral_complex"])
def test_a_stub_of_harmonics_says_how_they_are_packed(origin, packing):
    """As eccodes reads it."""
    raw = edited(origin, {"packingType": packing})
    keys = (
        "packingType",
        "gridType",
        "md5GridSection",
        "J",
        "K",
        "M",
        "referenceValue",
        "binaryScaleFactor",
        "shortName",
    )
    if packing == "spectral_complex":
        keys += "subSetJ", "subSetK", "subSetM", "laplacianOperator"
    stub = stub_of(raw)
    check_whole(stub)
    assert keys_of(stub, *keys) == keys_of(raw, *keys)


@pytest.mark.parametrize("unused", [0, 1, 15])
def test_a_stub_of_values_has_no_values(unused):
    raw = message(sample=GRIB1)
    at = sum(grid_of(raw))
    raw = changed(raw, at + 3, bytes((unused,)))
    stub = stub_of(raw)
    check_whole(stub)
    assert len(stub) == at + 12 + 4
    keys = "packingType", "referenceValue", "binaryScaleFactor", "bitsPerValue", "md5GridSection"
    assert keys_of(stub, *keys) == [*keys_of(raw, *keys[:3]), 0, *keys_of(raw, keys[-1])]
    is_safe(raw[: at + 11])
    with pytest.raises(CodecError, match="no data: it is cut short"):
        is_safe(raw[: at + 10])


@pytest.mark.parametrize("make", [described, last_field])
@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
def test_made_messages_are_whole(make, sample):
    """With a bitmap or without one."""
    for raw in (message(sample=sample), message(sample=sample, values=np.where(np.arange(24) % 5, 2.0, np.nan))):
        if make is described and sample == GRIB1:
            raw = raw[: sum(grid_of(raw))]
        check_whole(make(raw if sample == GRIB1 else raw + b"more"))


def test_the_bitmap_of_an_earlier_field_is_used_again():
    """Section 6 of the second field says so; the message of this field has the bitmap."""
    values = np.where(np.arange(24) % 5 == 3, np.nan, np.arange(24.0))
    first, second = message(values=values), message(values=values * 2)
    at = section(second, 6)
    again = second[:at] + b"\0\0\0\6\6\xfe" + second[at + number(second, at, 4) :]
    found = last_field(merged([first, again]))
    check_whole(found)
    assert found[16:] == second[16:]
    assert is_safe(found)


@pytest.mark.parametrize("at", [(3, 6), (5, 5)])
def test_numbers_of_points_and_values_have_4_bytes(at):
    raw = message(values=np.full(24, 2.0))
    begin = section(raw, at[0]) + at[1]
    assert raw[begin : begin + 4] == b"\0\0\0\x18"
    assert is_safe(last_field(raw))
    for i in range(3):
        assert not is_safe(last_field(changed(raw, begin + i, b"\1")))


@pytest.mark.parametrize("at", [19, 35, 36, 46])
@pytest.mark.parametrize("packing", ["grid_simple", "grid_complex", "grid_complex_spatial_differencing"])
def test_numbers_of_complex_packing_have_at_most_64_bits(packing, at):
    """Those of values, groups and lengths; other packings have none of these."""
    raw = message(after={"packingType": packing})
    begin = section(raw, 5)
    if at >= number(raw, begin, 4):
        return
    last_field(changed(raw, begin + at, b"\x40"))
    if packing == "grid_simple":
        last_field(changed(raw, begin + at, b"\x41"))
    else:
        with pytest.raises(CodecError, match="its complex packing has numbers of more than 64 bits"):
            last_field(changed(raw, begin + at, b"\x41"))


@pytest.mark.parametrize("sign", [0, 0x8000])
@pytest.mark.parametrize(("sample", "kind", "at"), [(GRIB2, 5, 15), (GRIB2, 5, 17), (GRIB1, None, 4)])
def test_scales_are_at_most_500(sample, kind, at, sign):
    raw = message(sample=sample)
    begin = (sum(grid_of(raw)) if kind is None else section(raw, kind)) + at
    for scale in (0, 200, 255, 256, 500):
        assert is_safe(last_field(changed(raw, begin, (sign | scale).to_bytes(2, "big"))))
    for scale in (501, 512, 0x7FFF):
        assert not is_safe(last_field(changed(raw, begin, (sign | scale).to_bytes(2, "big"))))


def test_only_floats_have_a_precision():
    """Other packings have a reference value at this byte."""
    raw = message()
    begin = section(raw, 5)
    for first in (1, 2, 3):
        assert is_safe(last_field(changed(raw, begin + 11, bytes((first,)))))
    short = resized(changed(raw, begin + 9, b"\0\4"), begin, 11)
    assert not is_safe(last_field(short))


def test_a_grid_of_edition_1_begins_with_28_bytes():
    grid = bytes((0, 0, 28, 9, 1)) + bytes(23)
    check_grid_1(grid[:27])
    with pytest.raises(CodecError, match="a section of 28 bytes has no room for the 9 coordinates of levels"):
        check_grid_1(grid)


def test_a_product_begins_with_its_number_of_levels():
    check_product_2(bytes((0, 0, 0, 13, 4, 0, 1, 255, 255)) + bytes(4))
    for size in (8, 9):
        product = bytes((0, 0, 0, size, 4, 0, 1, 255, 255))[:size]
        if size == 8:
            check_product_2(product)
        else:
            with pytest.raises(CodecError, match="has no room for the 1 coordinates"):
                check_product_2(product)


# -- Gaussian and reduced grids ----------------------------------------------------------------------------------


def check_grid(raw):
    at, length = grid_of(raw)
    (check_grid_1 if raw[7] == 1 else check_grid_2)(raw[at : at + length])


def parallels_at(raw):
    return grid_of(raw)[0] + (25 if raw[7] == 1 else 67)


@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
@pytest.mark.parametrize("grid", GAUSSIAN)
def test_gaussian_grids_have_at_most_16384_parallels_in_a_hemisphere(grid, sample):
    raw = edited(sample, {"gridType": grid})
    width = 2 if raw[7] == 1 else 4
    assert number(raw, parallels_at(raw), width) == keys_of(raw, "N")[0]
    check_grid(changed(raw, parallels_at(raw), (1 << 14).to_bytes(width, "big")))
    with pytest.raises(CodecError, match="16385 parallels"):
        check_grid(changed(raw, parallels_at(raw), (1 + (1 << 14)).to_bytes(width, "big")))


def reduced(sample, grid, lengths):
    """Make a reduced grid whose rows have these lengths."""
    keys = {"gridType": grid, "pl": np.array(lengths), "Nj": len(lengths)}
    if sample == GRIB2:
        keys["numberOfDataPoints"] = sum(lengths)
    if grid != "reduced_ll":
        keys["N"] = 3
    raw = edited(sample, keys)
    at, length = grid_of(raw)
    if grid == "reduced_stretched_rotated_gg" and raw[7] == 1:
        assert raw[at + 5] == 34
    assert length == number(raw, at, 3 if raw[7] == 1 else 4)
    return raw


@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
@pytest.mark.parametrize("grid", REDUCED)
def test_reduced_grids(grid, sample):
    """All lengths of rows are there, and they are those of the points."""
    raw = reduced(sample, grid, ROWS)
    at, length = grid_of(raw)
    check_grid(raw)
    n_rows_at = at + (8 if raw[7] == 1 else 34)
    width = 2 if raw[7] == 1 else 4
    assert number(raw, n_rows_at, width) == 6
    assert number(raw, at + length - 2, 2) == 4
    with pytest.raises(CodecError, match=r"its grid has 7 rows, and lengths of 6"):
        check_grid(changed(raw, n_rows_at, (7).to_bytes(width, "big")))
    with pytest.raises(CodecError, match=r"its grid has 6 rows, and lengths of 5"):
        check_grid(resized(raw, at, length - 1))
    last = at + length - 2
    if grid == "reduced_ll":
        if raw[7] == 2:
            with pytest.raises(CodecError, match="rows of its grid have 49 points together, and the grid has 48"):
                check_grid(changed(raw, last, b"\0\5"))
        return
    check_grid(changed(raw, last, (88).to_bytes(2, "big")))  # 8 for each of 3 parallels, and 64
    check_grid(changed(raw, last, b"\0\0"))
    for odd, what in ((89, "a row of its Gaussian grid of 3 parallels has 89 points"), (1, "a single point")):
        with pytest.raises(CodecError, match=what):
            check_grid(changed(raw, last, odd.to_bytes(2, "big")))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("grid", ["reduced_gg", "reduced_ll"])
def test_lengths_of_rows_of_edition_2_have_1_2_or_4_bytes(grid, size):
    raw = reduced(GRIB2, grid, ROWS)
    at, length = grid_of(raw)
    section_3 = raw[at : at + length - 12] + b"".join(n.to_bytes(max(size, 1), "big") for n in ROWS)
    section_3 = changed(section_3, 10, bytes((size,)))
    if size in (1, 2, 4):
        check_grid_2(section_3)
        with pytest.raises(CodecError, match="its grid has 6 rows, and lengths of 5"):
            check_grid_2(section_3[:-1])
    else:
        with pytest.raises(CodecError, match=f"lengths of rows of its grid have {size} bytes"):
            check_grid_2(section_3)
    other = changed(section_3, 12, b"\0\x1e")  # a grid whose rows are alike
    check_grid_2(other)
    regular = changed(section_3, 30, bytes(4))  # rows have one length
    if not size:
        check_grid_2(regular)


@pytest.mark.parametrize("grid", [name for name in SAFE_GRIDS if name.endswith(("ll", "gg"))])
def test_lengths_of_rows_of_edition_2_follow_any_grid(grid):
    """Plain, rotated, stretched and both."""
    raw = edited(GRIB2, {"gridType": grid})
    at, length = grid_of(raw)
    regular = raw[at : at + length]
    check_grid_2(regular)
    section_3 = changed(changed(regular, 30, b"\xff" * 4), 34, (6).to_bytes(4, "big"))
    section_3 = changed(section_3, 10, b"\2") + np.array(ROWS, ">u2").tobytes()
    section_3 = changed(section_3, 6, sum(ROWS).to_bytes(4, "big"))
    check_grid_2(section_3)
    check_grid_2(section_3[: length - 1])  # too short to have rows
    with pytest.raises(CodecError, match="its grid has 6 rows, and lengths of 5"):
        check_grid_2(section_3[:-1])


@pytest.mark.parametrize("lists", [0, 255])
def test_lists_of_a_long_section_of_edition_1(lists):
    """0 and 255 say that there are none, even if the section is so long that one could begin there."""
    raw = reduced(GRIB1, "reduced_ll", ROWS)
    at, _ = grid_of(raw)
    with pytest.raises(CodecError, match="its grid has 6 rows, and lengths of 0"):
        check_grid(changed(resized(raw, at, 600), at + 4, bytes((lists,))))
    check_grid(changed(changed(resized(raw, at, 600), at + 4, b"\xfe"), at + 8, (173).to_bytes(2, "big")))
    with pytest.raises(CodecError, match="its grid has 174 rows, and lengths of 173"):
        check_grid(changed(changed(resized(raw, at, 600), at + 4, b"\xfe"), at + 8, (174).to_bytes(2, "big")))


# -- packings ------------------------------------------------------------------------------------------------------

WALKS = st.integers(0, 1 << 31).map(np.random.default_rng)


def walk(rng, n, roughness):
    """Return values of which some parts vary more than others."""
    return np.cumsum(rng.normal(size=n) * np.repeat(rng.integers(0, roughness + 1, -(-n // 7)), 7)[:n]) + 200


@pytest.mark.parametrize("packing", ["grid_simple", "grid_complex", "grid_complex_spatial_differencing", "grid_ccsds"])
@settings(max_examples=examples(60), deadline=None)
@given(
    rng=WALKS,
    size=st.tuples(st.integers(2, 9), st.integers(2, 100)),
    roughness=st.sampled_from([0, 1, 50]),
    bits=st.integers(1, 25),
    holes=st.booleans(),
    order=st.integers(1, 2),
)
@example(rng=np.random.default_rng(365), size=(9, 9), roughness=1, bits=9, holes=True, order=1)
def test_messages_of_eccodes_are_safe(packing, rng, size, roughness, bits, holes, order):
    """Of any size, with groups of any widths and lengths; without a byte of their groups they are not."""
    n_rows, n_columns = size
    values = walk(rng, n_rows * n_columns, roughness)
    if holes:
        values[rng.random(values.size) < 0.3] = np.nan
        values[0] = 1
    raw = message({"Ni": n_columns, "Nj": n_rows, "bitsPerValue": bits}, values=values, after={"packingType": packing})
    if "differencing" in packing:  # packs them again
        raw = edited(raw, {"orderOfSpatialDifferencing": order}, values=np.nan_to_num(values, nan=ABSENT))
    assert is_safe(last_field(raw))
    at = section(raw, 5)
    n_values, template = number(raw, at + 5, 4), number(raw, at + 9, 2)
    for new in (n_values + 1, n_values - 1):
        assert is_unsafe(changed(raw, at + 5, new.to_bytes(4, "big")))
    if template not in (2, 3):
        return
    for begin, width, steps in (
        (31, 4, (1, -1)),  # number of groups
        (37, 4, (1,)),  # shortest group
        (42, 4, (1, -1)),  # last group
        (46, 1, (1,)),  # bits of lengths
    ):
        for step in steps:
            old = number(raw, at + begin, width)
            if (begin == 37 and number(raw, at + 31, 4) == 1) or old + step < 0:
                continue  # a single group is the last
            if begin in (31, 46) and number(raw, at + 31, 4) < 3:
                continue  # the same numbers fit two groups, or one
            other = changed(raw, at + begin, (old + step).to_bytes(width, "big"))
            assert is_unsafe(other) or (begin in (31, 46) and survives(other)), (begin, step)
    data = section(raw, 7)
    length = number(raw, data, 4)
    if length > 6:
        with pytest.raises(CodecError, match="packed values take"):
            is_safe(last_field(resized(raw, data, length - 2)))


def survives(raw):
    """Whether eccodes decodes a message, or refuses it: other numbers of groups, and of bits, fit now and then."""
    with contextlib.suppress(LibraryError):
        run_in_child("virtualstack.codecs.grib.child:values", raw, None, 1)
    return True


def is_unsafe(raw):
    try:
        return not is_safe(last_field(raw))
    except CodecError:
        return True


@pytest.mark.parametrize("n", [1, 7, 8, 9, 24, 31, 63, 64, 65])
@pytest.mark.parametrize("bits", [1, 3, 8, 12, 16, 24])
@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
def test_bitmaps_have_a_bit_for_each_point(sample, n, bits):
    """With as many packed values as bits; the bytes may end up to 31 bits later in edition 1."""
    rng = np.random.default_rng(n)
    values = np.where(rng.random(2 * n) < 0.4, np.nan, rng.random(2 * n))
    values[:2] = 1, np.nan
    raw = message({"Ni": n, "Nj": 2, "bitsPerValue": bits}, sample=sample, values=values)
    assert is_safe(last_field(raw))
    n_values = int(np.isfinite(values).sum())
    if sample == GRIB2:
        at = section(raw, 6) + 6
        byte = raw[at]
        assert byte & 0xC0 == 0x80  # the second point is missing
        assert not is_safe(changed(raw, at, bytes((byte ^ 0x40,))))
        assert not is_safe(changed(raw, at, bytes((byte ^ 0x80,))))
        assert not is_safe(resized(raw, at - 6, 6 + 2 * n // 8)) or not 2 * n % 8
        return
    at = sum(grid_of(raw))
    data = at + number(raw, at, 3)
    bits = raw[data + 10]
    length = number(raw, data, 3)
    spare = 8 * (length - 11) - (raw[data + 3] & 15) - n_values * bits
    assert 0 <= spare < 32
    for more in range(6):
        assert is_safe(resized(raw, data, length + more)) == (spare + 8 * more < 32)
    assert not is_safe(resized(raw, data, length - 1 - spare // 8))


@pytest.mark.parametrize("packing", ["grid_complex", "grid_complex_spatial_differencing"])
def test_groups_of_more_than_255_values(packing):
    """Their lengths take more than a byte."""
    rng = np.random.default_rng(0)
    values = np.concatenate([np.full(900, 7.0), rng.normal(size=300) * 1000, np.full(600, 9.0), rng.normal(size=200)])
    raw = message({"Ni": 1000, "Nj": 2, "bitsPerValue": 16}, values=values, after={"packingType": packing})
    assert raw[section(raw, 5) + 46] > 8
    assert is_safe(last_field(raw))


@pytest.mark.parametrize(("precision", "n_bytes"), [(1, 4), (2, 8), (3, 16)])
def test_floats_have_room(precision, n_bytes):
    """Such messages are left to another process, but not those that end early."""
    unknown = message(after={"packingType": "grid_ieee"})
    unknown = changed(unknown, section(unknown, 5) + 11, bytes((3 + precision,)))
    assert not is_safe(last_field(resized(unknown, section(unknown, 7), 5)))
    raw = message(after={"packingType": "grid_ieee", "precision": min(precision, 2)})
    raw = changed(raw, section(raw, 5) + 11, bytes((precision,)))
    at = section(raw, 7)
    assert not is_safe(last_field(resized(raw, at, 5 + 24 * n_bytes)))
    with pytest.raises(CodecError, match=f"packed values take {24 * 8 * n_bytes} bits, and it has"):
        is_safe(last_field(resized(raw, at, 4 + 24 * n_bytes)))


def with_image(image, bits, template):
    """Make a message whose values are the pixels of an image."""
    n = np.prod(image[0])
    raw = message({"Ni": int(n) // 2, "Nj": 2, "bitsPerValue": bits}, values=np.arange(n))
    at = section(raw, 5)
    raw = changed(raw, at + 9, template.to_bytes(2, "big"))
    raw = changed(raw, at + 11, bytes(8) + bytes((bits,)))  # no reference value, no scales
    if template in (40, 40000):
        raw = changed(resized(raw, at, 23), at + 21, b"\0\xff")  # lossless
    at = section(raw, 7)
    body = raw[:at] + (5 + len(image[1])).to_bytes(4, "big") + b"\7" + image[1] + b"7777"
    return changed(body, 8, len(body).to_bytes(8, "big"))


PIXELS = np.random.default_rng(0).integers(0, 250, (4, 6, 4), dtype="u1")


def png(bits):
    """A PNG image of pixels of so many bits, and their values."""
    values = {8: PIXELS[..., 0], 16: PIXELS[..., 0] * np.uint16(257), 24: PIXELS[..., :3], 32: PIXELS}[bits]
    whole = (
        values.astype(int)
        if bits < 17
        else sum(values[..., i].astype(int) << bits - 8 - 8 * i for i in range(bits // 8))
    )
    return ((4, 6), bytes(imagecodecs.png_encode(np.ascontiguousarray(values)))), whole.reshape(-1)


@pytest.mark.parametrize("template", [41, 40010])
@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_png_images_of_values(bits, template):
    """eccodes reads whole bytes of a pixel; an image of other pixels, or that has no end, is not safe."""
    image, values = png(bits)
    raw = with_image(image, bits, template)
    if template == 41:  # of the other, an older number, eccodes has no definition
        np.testing.assert_array_equal(values_of_message(raw), values.astype("f4"))
    assert is_safe(last_field(raw))
    assert is_safe(last_field(with_image(image, bits - 7, template)))
    for odd in {bits - 8, bits + 1} - {0}:
        assert not is_safe(last_field(with_image(image, odd, template))), odd
    n = len(image[1])
    for end in (7, 8, 32, 33, n - 12, n - 1):
        assert not is_safe(last_field(with_image((image[0], image[1][:end]), bits, template))), end
    assert is_safe(last_field(with_image((image[0], image[1] + b"more"), bits, template)))
    for at, new in (
        (0, b"\x88"),
        (11, b"\x0e"),
        (12, b"J"),
        (19, b"\7"),
        (23, b"\5"),
        (24, b"\4"),
        (25, b"\3"),
        (26, b"\1"),
        (27, b"\1"),
    ):
        assert not is_safe(last_field(with_image((image[0], changed(image[1], at, new)), bits, template))), at


def test_png_images_of_more_values_than_their_bytes_can_hold():
    """1032 bytes for each compressed one; the size of an image alone would take memory."""
    for n, is_enough in ((4 * 1032, True), (6 * 1032, False)):
        image = imagecodecs.png_encode(np.zeros((2, n * 16), "u1"), level=9)
        shape = 2, n * 16
        assert is_safe(last_field(with_image((shape, bytes(image)), 8, 41)))
        header = bytes(image)
        short = header[:33] + header[-12:]  # no pixels at all
        n_most = 1032 * len(short)
        width = n_most // 2 if is_enough else n_most // 2 + 1
        short = changed(changed(short, 16, width.to_bytes(4, "big")), 20, (2).to_bytes(4, "big"))
        assert is_safe(last_field(with_image(((2, width), short), 8, 41))) == is_enough


@pytest.mark.parametrize("template", [40, 40000])
@pytest.mark.parametrize("bits", [1, 7, 8, 12, 16])
def test_jpeg_2000_images_of_values(bits, template):
    values = (PIXELS[..., 0].astype("u2") * 257) >> 16 - bits
    stored = values.astype("u1" if bits <= 8 else "u2")
    raw = bytes(imagecodecs.jpeg2k_encode(stored, level=0, codecformat="j2k", bitspersample=bits))
    image = (4, 6), raw
    made = with_image(image, bits, template)
    if template == 40:
        np.testing.assert_array_equal(values_of_message(made), values.reshape(-1).astype("f4"))
    assert is_safe(last_field(made))
    assert not is_safe(last_field(with_image(image, bits + 1, template)))
    assert not is_safe(last_field(with_image(((4, 6), raw[:42]), bits, template)))
    for at, new in (
        (0, b"\xfe"),
        (11, b"\7"),
        (15, b"\5"),
        (19, b"\1"),
        (23, b"\1"),
        (41, b"\2"),
        (43, b"\2"),
        (44, b"\2"),
    ):
        assert not is_safe(last_field(with_image(((4, 6), changed(raw, at, new)), bits, template))), at


@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
def test_the_beginning_of_a_message(sample):
    """16 bytes are enough to tell what it is, and too few for anything else."""
    raw = message(sample=sample)
    with pytest.raises(CodecError, match="the magic is missing"):
        last_field(raw[:15])
    if sample == GRIB1:
        assert last_field(raw[:16]) == raw[:16]
    else:
        with pytest.raises(CodecError, match="no data, or no description of it"):
            last_field(raw[:16])
