"""DMR++ documents form by form: what they hold, and what contradicts them."""

import base64
import re
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.data.make_dmrpp import NUMBERS
from tests.formats.groups import group_of, reasons, values_of
from virtualstack.errors import MalformedFileError
from virtualstack.location import absolute_url
from virtualstack.manifests import EMPTY, FIRST, ManifestGroup
from virtualstack.readers import DMRPP
from virtualstack.testing.readers import arrays_by_path

HEAD = (
    '<?xml version="1.0" encoding="ISO-8859-1"?>\n'
    '<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" '
    'dapVersion="4.0" dmrVersion="1.0" name="data" dmrpp:href="OPeNDAP_DMRpp_DATA_ACCESS_URL" dmrpp:version="3.21">'
)
FOUR = '<dmrpp:chunk offset="0" nBytes="16"/>'
SIZES = "<dmrpp:chunkDimensionSizes>2</dmrpp:chunkDimensionSizes>"
FIRST_CHUNK = '<dmrpp:chunk offset="0" nBytes="8" chunkPositionInArray="[0]"/>'
TWO_CHUNKS = f'{SIZES}{FIRST_CHUNK}<dmrpp:chunk offset="8" nBytes="8" chunkPositionInArray="[2]"/>'
LONG_FIELD = f'<Int8 name="a"><Dim size="{2**40}"/></Int8>'
LONG_TEXT = '<dmrpp:FixedLengthStringArray string_length="9999999" pad="null_pad"/>'


@pytest.fixture
def read(tmp_path):
    """Give a function that reads the body of a document about some bytes."""

    def read(body: str, data: bytes = b"", *, head: str = HEAD, end: str = "</Dataset>", **options) -> ManifestGroup:
        (tmp_path / "data").write_bytes(data)
        document = tmp_path / "data.dmrpp"
        document.write_bytes((head + body + end).encode("latin-1", "xmlcharrefreplace"))
        return group_of(document, DMRPP(), **options)

    return read


def variable(inside: str, kind: str = "Int32", dims: str = '<Dim size="4"/>', chunks: str = 'fillValue="-1"') -> str:
    return f'<{kind} name="v">{dims}<dmrpp:chunks {chunks}>{inside}</dmrpp:chunks></{kind}>'


def structure(fields: str, chunks: str, inside: str = "") -> str:
    return variable(inside, "Structure", fields, chunks)


def values(group: ManifestGroup, name: str = "v"):
    return values_of(group[name])


def encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


# -- types ----------------------------------------------------------------------------------------------------


DTYPES = {**{kind: code for code, kind in NUMBERS.items()}, "UByte": "u1", "UInt8": "u1", "Char": "S1"}


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(("order", "mark"), [('byteOrder="LE"', "<"), ('byteOrder="BE"', ">"), ("", "<")])
def test_numbers_of_every_type(read, kind, order, mark):
    """Every type of DAP4 is numpy's, in the byte order of the chunks, which is little where it is not said."""
    expected = np.array([*"ABCD"], "S1") if kind == "Char" else np.array([65, 66, 67, 68], DTYPES[kind])
    stored = expected.astype(expected.dtype.newbyteorder(mark))
    chunk = f'<dmrpp:chunk offset="3" nBytes="{stored.nbytes}"/>'
    found = values(read(variable(chunk, kind, chunks=order), b"xyz" + stored.tobytes()))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_scalars_and_arrays_without_elements(read):
    """A variable without dimensions has one value, one with a dimension of length 0 none."""
    body = (
        '<Float64 name="s"><dmrpp:chunks byteOrder="BE"><dmrpp:chunk offset="0" nBytes="8"/></dmrpp:chunks></Float64>'
    )
    body += '<Dimension name="none" size="0"/><Int32 name="e"><Dim name="/none"/><dmrpp:chunks fillValue="0"/></Int32>'
    group = read(body, np.array(2.5, ">f8").tobytes())
    assert (values(group, "s")[()], values(group, "e").shape) == (2.5, (0,))
    assert group.dimensions == {"none": 0}


@pytest.mark.parametrize(("constants", "dtype"), [({"FALSE": 0, "TRUE": 1}, bool), ({"NO": 0, "TRUE": 1}, "i1")])
def test_enumerations(read, constants, dtype):
    """An enumeration is its integers, found from the group up or by its path; FALSE and TRUE are bool."""
    names = "".join(f'<EnumConst name="{name}" value="{value}"/>' for name, value in constants.items())
    enum = f'<Enumeration name="e" basetype="Int8">{names}</Enumeration>'
    inside = '<dmrpp:chunks><dmrpp:chunk offset="0" nBytes="4"/></dmrpp:chunks>'
    for name in ("e", "/e"):
        body = f'{enum}<Group name="g"><Enum name="v" enum="{name}"><Dim size="4"/>{inside}</Enum></Group>'
        found = values(read(body, bytes([0, 1, 1, 0])), "g/v")
        assert found.dtype == np.dtype(dtype)
        assert found.tolist() == [0, 1, 1, 0]
    never = '<Enum name="v" enum="e"><Dim size="2"/><dmrpp:chunks/></Enum>'  # get_dmrpp leaves out their default, 0
    assert values(read(enum + never)).tolist() == [0, 0]
    with pytest.raises(MalformedFileError, match=r"'/v': there is no Enumeration 'other'"):
        read(enum + never.replace('enum="e"', 'enum="other"'))
    with pytest.raises(MalformedFileError, match="Enumeration has the type 'Float32', which is not an integer"):
        read(enum.replace("Int8", "Float32") + never)


def test_structures(read):
    """Fields lie where structOffset says, in the one byte order, and have one fill value each."""
    stored = np.zeros(
        3, np.dtype({"names": ["a", "b"], "formats": [">i2", (">f4", (2,))], "offsets": [0, 4], "itemsize": 16})
    )
    stored["a"], stored["b"] = [1, 2, 3], [[1, 2], [3, 4], [5, 6]]
    fields = '<Int16 name="a"/><Float32 name="b"><Dim size="2"/></Float32><Dim size="5"/>'
    layout = 'byteOrder="BE" structOffset="4 16" fillValue="7 0.5 -1"'
    inside = SIZES.replace("2", "3") + '<dmrpp:chunk offset="0" nBytes="48" chunkPositionInArray="[0]"/>'
    found = values(read(variable(inside, "Structure", fields, layout), stored.tobytes()))
    assert found["a"].tolist() == [1, 2, 3, 7, 7]
    assert found["b"].tolist() == [[1, 2], [3, 4], [5, 6], [0.5, -1], [0.5, -1]]
    assert found.dtype == np.dtype([("a", "i2"), ("b", "f4", (2,))])
    never = values(read(structure(fields, 'structOffset="4 16" fillValue="0"')))
    assert not never["a"].any()
    assert not never["b"].any()


def test_structures_of_two_floats_are_complex_numbers(read):
    """A Structure of r and i is a complex number, as h5py has it."""
    fields = '<Float32 name="r"/><Float32 name="i"/><Dim size="2"/>'
    inside = '<dmrpp:chunk offset="0" nBytes="16"/>'
    layout = 'structOffset="4 8" fillValue="1 -1"'
    expected = np.array([1 + 2j, 3 - 4j], "c8")
    found = values(read(structure(fields, layout, inside), expected.tobytes()))
    assert found.dtype == "c8"
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(values(read(structure(fields, layout))), [1 - 1j, 1 - 1j])


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ('structOffset="4"', "structOffset has 1 number for the fields"),
        ('structOffset="4 5"', "do not follow each other"),
        ('structOffset="1 16"', "do not follow each other"),
        ('structOffset="x 16"', "structOffset is 'x', which is not a whole number"),
        ('structOffset="4 8" byteOrder="ME"', "byteOrder is 'ME', neither 'LE' nor 'BE'"),
        ('structOffset="4 8" fillValue="1"', "fillValue '1' has fewer numbers than the fields"),
        ('structOffset="4 8" fillValue="1 2 3"', "fillValue '1 2 3' has more numbers than the fields"),
    ],
)
def test_structures_that_contradict_themselves(read, layout, reason):
    """Fields that lie on each other, or outside of the element, are an error."""
    fields = '<Int32 name="a"/><Int32 name="b"/><Dim size="1"/>'
    with pytest.raises(MalformedFileError, match=reason):
        read(structure(fields, layout))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (structure('<Int8 name="a"/>', ""), "a Structure without 'structOffset'"),
        (structure('<String name="a"/>', 'structOffset="4"'), "texts in a Structure, whose length"),
        (structure('<Structure name="a"/>', 'structOffset="4"'), "a Structure in a Structure"),
        (
            '<Structure name="v"><String name="a"/><dmrpp:specialstructuredata/></Structure>',
            "'Structure' of 0 axes in dmrpp:specialstructuredata",
        ),
        (structure(LONG_FIELD, f'structOffset="{2**40}"'), "a Structure with a field of shape"),
        (structure('<Int8 name="a"/>', 'structOffset="9999999"'), "a Structure of 9999999 bytes"),
        (variable("", "String", f'<Dim size="1"/>{LONG_TEXT}'), "texts of 9999999 bytes"),
        ('<Opaque name="v"><dmrpp:chunks/></Opaque>', "the type 'Opaque', whose length"),
        ('<Sequence name="v"><Int8 name="a"/><dmrpp:chunks/></Sequence>', "the type 'Sequence'"),
        ('<Int8 name="v"><Dim size="3"/></Int8>', "the document does not say where its values are"),
        ('<String name="v"><Dim size="3"/><dmrpp:chunks/></String>', "texts whose length or padding"),
        (variable(FOUR, chunks='quantize="3"'), "'quantize of dmrpp:chunks' is not known, and may change"),
        (variable(FOUR.replace("/>", ' byteOrder="BE"/>')), "'byteOrder' of dmrpp:chunk is not known"),
        (variable(FOUR + "<dmrpp:scale/>"), "'dmrpp:scale' is not known, and may change"),
        (variable(FOUR).replace("<Dim", "<dmrpp:vlen/><Dim"), "'dmrpp:vlen' is not known, and may change"),
        (variable(FOUR, chunks='compressionType="szip"'), "no codec for the filter 'szip'"),
        (variable("", chunks='fillValue="unsupported-compound"'), r"could not describe it \(unsupported-compound\)"),
        (variable("", chunks=""), "1 of 1 chunks were never written, and the document does not say what they read as"),
        (variable(f"{SIZES}{FIRST_CHUNK}", chunks=""), "1 of 2 chunks were never written"),
        (variable(FOUR.replace("/>", ' LinkedBlockIndex="0"/>'), chunks='LBChunk="true"'), "linked blocks"),
    ],
)
def test_what_is_not_known_is_refused_by_name(read, body, reason):
    """What has no byte ranges, or may be read otherwise, is refused with the reason; the rest is read."""
    other = '<Int8 name="w"><dmrpp:chunks><dmrpp:chunk offset="0" nBytes="1"/></dmrpp:chunks></Int8>'
    group = read(body + other, b"\7")
    assert list(group.arrays) == ["w"]
    (found,) = reasons(group).items()
    assert found[0] == "/v"
    assert re.search(reason, found[1]), found[1]


# -- chunks ---------------------------------------------------------------------------------------------------


def test_chunks_in_any_order_and_with_holes(read):
    """Chunks stand where chunkPositionInArray says; those that are missing are EMPTY, and read as the fill value."""
    body = (
        '<Int16 name="v"><Dim size="3"/><Dim size="5"/><dmrpp:chunks fillValue="-5" byteOrder="LE">'
        "<dmrpp:chunkDimensionSizes>2 2</dmrpp:chunkDimensionSizes>"
        '<dmrpp:chunk chunkPositionInArray="[2, 4]" nBytes="8" offset="8"/>'
        '<dmrpp:chunk nBytes="8" offset="0" chunkPositionInArray="[0,2]"/></dmrpp:chunks></Int16>'
    )
    group = read(body, np.arange(8, dtype="<i2").tobytes())
    entries = group["v"].in_memory().entries
    assert entries["location"].tolist() == [[EMPTY, FIRST, EMPTY], [EMPTY, EMPTY, FIRST]]
    assert values(group).tolist() == [[-5, -5, 0, 1, -5], [-5, -5, 2, 3, -5], [-5, -5, -5, -5, 4]]
    assert group["v"].in_memory().locations[0].size is None


def test_the_order_of_filters(read):
    """Filters are in the order of the document; in documents without a version, shuffle comes first."""
    raw = np.arange(4, dtype="<i4")
    shuffled = raw.view("u1").reshape(4, 4).T.tobytes()
    data = zlib.compress(shuffled)
    chunk = f'<dmrpp:chunk offset="0" nBytes="{len(data)}"/>'
    group = read(variable(chunk, chunks='compressionType="shuffle deflate" deflateLevel="4" DIO="off"'), data)
    assert values(group).tolist() == [0, 1, 2, 3]
    old = HEAD.replace(' dmrpp:version="3.21"', "")
    group = read(variable(chunk, chunks='compressionType="deflate shuffle" deflate_level="4"'), data, head=old)
    assert values(group).tolist() == [0, 1, 2, 3]
    twice = zlib.compress(zlib.compress(raw.tobytes()))
    chunk = f'<dmrpp:chunk offset="0" nBytes="{len(twice)}"/>'
    group = read(variable(chunk, chunks='compressionType="deflate deflate" deflateLevel="4 9"'), twice)
    assert values(group).tolist() == [0, 1, 2, 3]


def test_filter_masks(read):
    """A bit of fm is set where the filter of that place was left out for the chunk."""
    shuffled = np.array([1, 2], "<i4").view("u1").reshape(2, 4).T.tobytes()
    data = shuffled + np.array([3, 4], "<i4").tobytes()
    inside = TWO_CHUNKS.replace('nBytes="8" chunkPositionInArray="[0]"', 'nBytes="8" fm="2" chunkPositionInArray="[0]"')
    inside = inside.replace('chunkPositionInArray="[2]"', 'chunkPositionInArray="[2]" fm="3"')
    group = read(variable(inside, chunks='compressionType="shuffle deflate"'), data)
    assert values(group).tolist() == [1, 2, 3, 4]
    assert len(group["v"].in_memory().encodings) == 2


def test_chunks_of_several_sources(read, tmp_path):
    """A chunk may lie elsewhere than the document's own data; a relative place counts from the document."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "part").write_bytes(np.array([9, 8], "<i4").tobytes())
    inside = TWO_CHUNKS.replace(
        'nBytes="8" chunkPositionInArray="[0]"', 'nBytes="8" trust="true" href="sub/part" chunkPositionInArray="[0]"'
    )
    group = read(variable(inside), bytes(8) + np.array([3, 4], "<i4").tobytes())
    assert values(group).tolist() == [9, 8, 3, 4]
    assert {x.url for x in group["v"].in_memory().locations} == {
        absolute_url(tmp_path / x) for x in ("data", "sub/part")
    }


def test_a_chunk_of_a_variable_itself(read):
    """In documents of old the one chunk of contiguous data is a child of the variable."""
    group = read(f'<Int32 name="v"><Dim size="4"/>{FOUR}</Int32>', np.arange(4, dtype="<i4").tobytes())
    assert values(group).tolist() == [0, 1, 2, 3]


def test_blocks_one_after_the_other(read):
    """Linked blocks are the values one after the other, cut where rows end."""
    data = np.arange(12, dtype=">i2").tobytes()
    blocks = '<dmrpp:block offset="8" nBytes="16"/><dmrpp:block offset="0" nBytes="8"/>'
    body = variable(blocks, "Int16", '<Dim size="6"/><Dim size="2"/>', 'byteOrder="BE"')
    group = read(body, data)
    assert values(group).reshape(-1).tolist() == [*range(4, 12), *range(4)]
    assert group["v"].grid.shape == (2, 1)
    odd = read(body.replace('"16"', '"14"').replace('"0" nBytes="8"', '"0" nBytes="10"'), data)
    assert reasons(odd) == {"/v": "linked blocks that do not end where its rows of 4 bytes do"}
    packed = read(body.replace("byteOrder", 'compressionType="deflate" byteOrder'), data)
    assert reasons(packed) == {"/v": "linked blocks that were compressed as a whole"}
    with pytest.raises(MalformedFileError, match="'/v': its blocks have 23 bytes, its values 24"):
        read(body.replace('"16"', '"15"'), data)


def test_many_blocks_take_little_memory(read):
    """A block is an entry of the manifest, and no object: a document of 1 GiB lists 10^7 of them."""
    n = 20_000
    blocks = "".join(f'<dmrpp:block offset="{4 * i}" nBytes="4"/>' for i in range(n))
    read(variable(blocks, dims=f'<Dim size="{n}"/>'), np.arange(n, dtype="<i4").tobytes())  # imports
    tracemalloc.start()
    group = read(variable(blocks, dims=f'<Dim size="{n}"/>'), np.arange(n, dtype="<i4").tobytes())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert group["v"].grid.shape == (n,)
    assert peak < 500 * n


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        (FOUR.replace('"16"', '"15"'), r"a chunk has 15 bytes \(nBytes\), its values 16"),
        (FOUR + FOUR, "2 chunks without chunkPositionInArray for a grid of 1"),
        (SIZES + FOUR, "1 chunk without chunkPositionInArray for a grid of 2"),
        (TWO_CHUNKS.replace("[2]", "[0]"), r"two chunks have chunkPositionInArray \[0\]"),
        (TWO_CHUNKS.replace("[2]", "[1]"), r"has chunkPositionInArray \[1\], where no chunk of shape \(2,\)"),
        (TWO_CHUNKS.replace("[2]", "[4]"), r"chunkPositionInArray \[4\], where no chunk"),
        (TWO_CHUNKS.replace("[2]", "[0,2]"), "chunkPositionInArray is not a list of 1 number"),
        (TWO_CHUNKS.replace("[0]", "[0,0]").replace("[2]", "[0,2]"), "chunkPositionInArray has 2 numbers for an array"),
        (TWO_CHUNKS.replace("[2]", "2"), "chunkPositionInArray is not a list"),
        (TWO_CHUNKS.replace("[2]", "[-2]"), "chunkPositionInArray is '-2', which is not a whole number"),
        (TWO_CHUNKS.replace("[2]", "[]"), "chunkPositionInArray is '', which is not a whole number"),
        (TWO_CHUNKS.replace('chunkPositionInArray="[2]"', ""), "dmrpp:chunk has no attribute 'chunkPositionInArray'"),
        (FOUR.replace('offset="0"', ""), "a dmrpp:chunk has no attribute 'offset'"),
        (FOUR.replace('"0"', '"-1"'), "offset is '-1', which is not a whole number"),
        (FOUR.replace('"0"', '""'), "offset is '', which is not a whole number"),
        (FOUR.replace('"0"', '"1 2"'), "offset is '1 2', which is not a whole number"),
        (FOUR.replace('"0"', '"1,2"'), "offset is '1,2', which is not a whole number"),
        (FOUR.replace('"0"', '"1e3"'), "offset is '1e3', which is not a whole number"),
        (FOUR.replace('"0"', '"٣"'), "offset is '٣', which is not a whole number"),
        (FOUR.replace('"0"', '"9223372036854775808"'), "offset is .*, which is not a whole number below 2.63"),
        (FOUR.replace('"0"', '"9223372036854775800"'), "ends at 2.63 bytes or more"),
        (FOUR.replace("/>", ' fm="x"/>'), "fm is 'x', which is not a whole number"),
        (SIZES.replace("2", "0"), r"chunkDimensionSizes is \(0,\) for an array of shape \(4,\)"),
        (SIZES.replace("2", "2 2"), r"chunkDimensionSizes is \(2, 2\) for an array of shape \(4,\)"),
        (SIZES.replace("2", "two"), "chunkDimensionSizes is 'two', which is not a whole number"),
        (SIZES + SIZES.replace("2", "1"), "it has several chunkDimensionSizes"),
        (FOUR + '<dmrpp:block offset="0" nBytes="16"/>', "chunks and blocks are in one element"),
    ],
)
def test_chunks_that_contradict_themselves(read, inside, reason):
    """A number that is none, or a chunk where there can be none, is an error that names document and variable."""
    with pytest.raises(MalformedFileError, match=reason) as caught:
        read(variable(inside), bytes(16))
    assert caught.value.url.endswith("data.dmrpp")
    assert "data.dmrpp'" in str(caught.value)
    assert "'/v'" in str(caught.value) or "one element" in str(caught.value)


def test_values_in_two_places(read):
    """A variable whose values the document has twice is an error."""
    compact = f"<dmrpp:compact>{encoded(bytes(16))}</dmrpp:compact>"
    both = variable(FOUR).replace("</Int32>", f"{compact}</Int32>")
    with pytest.raises(MalformedFileError, match="'/v': its values are in several places"):
        read(both)


# -- fill values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "attribute", "expected"),
    [
        ("Int32", "-2147483648", None, np.int32(-(2**31))),
        ("UInt64", "18446744073709551615", None, np.uint64(2**64 - 1)),
        ("Float32", "9.96921e+36", None, np.float32(9.969209968386869e36)),
        ("Float64", "9.96921e+36", None, 9.969209968386869e36),
        ("Float64", "-1.79769e+308", None, np.finfo("f8").min),
        ("Float32", "-999.123", "-999.12347", np.float32(-999.12347)),
        ("Float32", "-9999", None, np.float32(-9999)),
        ("Float32", "1e+20", None, np.float32(1e20)),
        ("Float64", "-9999.9", None, -9999.9),
        ("Float32", "inf", None, np.float32("inf")),
    ],
)
def test_fill_values(read, kind, text, attribute, expected):
    """A fill value of six digits is that which it was, where that is known."""
    given = f'<Attribute name="_FillValue" type="{kind}"><Value>{attribute}</Value></Attribute>' if attribute else ""
    body = variable("", kind, f'<Dim size="1"/>{given}', f'fillValue="{text}"')
    assert values(read(body)).tobytes() == np.asarray(expected, expected.dtype if attribute else None).tobytes()


def test_not_a_number_as_fill_value(read):
    """A fill value may be NaN."""
    assert np.isnan(values(read(variable("", "Float32", chunks='fillValue="nan"')))).all()


@pytest.mark.parametrize("text", ["-999.999", "1.23457e-05", "123456"])
def test_fill_values_that_lost_digits_are_refused_where_they_are_read(read, text):
    """A float of six digits may have had more: refused where chunks are missing, of no matter where none are."""
    body = variable("", "Float64", chunks=f'fillValue="{text}"')
    (reason,) = reasons(read(body)).values()
    assert f"1 of 1 chunks were never written, and fillValue '{text}' may be a number of more digits" in reason
    whole = variable('<dmrpp:chunk offset="0" nBytes="32"/>', "Float64", chunks=f'fillValue="{text}"')
    assert values(read(whole, np.arange(4.0).tobytes())).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "text"), [("Int8", "200"), ("Int32", "1.5"), ("Int32", "1_0"), ("Float32", "x"), ("Float32", "1e39")]
)
def test_fill_values_that_are_none(read, kind, text):
    """A fill value that is not a value of its type is an error."""
    with pytest.raises(MalformedFileError, match=f"'/v': fillValue has the values .*{text}"):
        read(variable("", kind, chunks=f'fillValue="{text}"'))


# -- texts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pad", "stored", "expected"),
    [
        ("null_pad", b"ab\0dc\0\0\0", [b"ab\0d", b"c"]),
        ("null_term", b"ab\0dc\0xy", [b"ab", b"c"]),
        ("space_pad", b"ab  c   ", [b"ab", b"c"]),
    ],
)
def test_texts_of_a_fixed_length(read, pad, stored, expected):
    """Texts end where their padding begins, as the HDF5 library has it, in the file and in the document."""
    fixed = f'<Dim size="2"/><dmrpp:FixedLengthStringArray string_length="4" pad="{pad}"/>'
    body = variable('<dmrpp:chunk offset="0" nBytes="8"/>', "String", fixed, 'fillValue=""')
    group = read(body, stored)
    assert group["v"].dtype == "S4"
    assert values(group).tolist() == expected
    compact = f'<String name="v">{fixed}<dmrpp:compact>{encoded(stored)}</dmrpp:compact></String>'
    assert values(read(compact)).tolist() == expected
    never = variable("", "String", fixed, 'fillValue="none"')
    assert values(read(never)).tolist() == [b"none", b"none"]
    old = variable('<dmrpp:chunk offset="0" nBytes="8"/>', "String", fixed, 'fillValue="unsupported-string"')
    assert values(read(old, stored)).tolist() == expected
    with pytest.raises(MalformedFileError, match="fillValue 'too long' is longer than its 4 bytes"):
        read(variable("", "String", fixed, 'fillValue="too long"'))


def test_one_text_of_a_fixed_length(read):
    """The padding of one text is not said: it ends at the first NUL, and is refused where it may be spaces."""
    body = variable('<dmrpp:chunk offset="0" nBytes="4"/>', "String", "", 'fillValue=""')
    group = read(body, b"ab\0c")
    assert (values(group)[()], [x.kind for x in group.refusals]) == (b"ab", ["inlined"])
    assert values(read(body, b"ab \0"))[()] == b"ab "
    assert "it ends in spaces" in reasons(read(body, b"ab  "))["/v"]
    assert "more than the inline limit" in reasons(read(body, b"ab\0c", inline_limit=3))["/v"]
    assert "and it cannot be read" in reasons(read(body, b"a"))["/v"]
    assert values(read(body.replace('"4"', '"1"'), b" "))[()] == b" "


def test_texts_of_any_length(read):
    """Texts in the document are repeated by their count, and unpacked where they have a size."""
    long = "longer " * 100
    packed = encoded(zlib.compress(long.encode()))
    vlsa = f'<dmrpp:vlsa><v>&lt;one&gt;</v><v c="3"/><v s="{len(long)}">{packed}</v><dmrpp:v>é</dmrpp:v></dmrpp:vlsa>'
    body = f'<String name="v"><Dim size="2"/><Dim size="3"/>{vlsa}</String>'
    group = read(body)
    assert values(group).reshape(-1).tolist() == ["<one>", "", "", "", long, "é"]
    assert [x.kind for x in group.refusals] == ["inlined"]
    scalar = f'<String name="v"><dmrpp:compact>{encoded("größer".encode())}</dmrpp:compact></String>'
    assert values(read(scalar))[()] == "größer"
    with pytest.raises(MalformedFileError, match=r"dmrpp:vlsa holds 6 texts, its shape \(4, 2\)"):
        read(body.replace('size="2"', 'size="4"').replace('size="3"', 'size="2"'))
    with pytest.raises(MalformedFileError, match=r"dmrpp:vlsa holds 6 texts, its shape \(2, 2\)"):
        read(body.replace('size="3"', 'size="2"'))


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        (f'<v c="{10**12}">x</v>', "more than the inline limit"),
        (f'<v s="{10**12}">{encoded(zlib.compress(b"x"))}</v>', "more than the inline limit"),
    ],
)
def test_many_texts_are_refused(read, inside, reason):
    """A document of some bytes makes no texts of terabytes."""
    group = read(f'<String name="v"><Dim size="{10**12}"/><dmrpp:vlsa>{inside}</dmrpp:vlsa></String>')
    assert reason in reasons(group)["/v"]


# -- values in the document -----------------------------------------------------------------------------------


def test_compact_and_missing_data(read):
    """Values that stand in the document are little-endian; beside them may be chunks that hold nothing."""
    expected = np.arange(4, dtype="<i4")
    compact = f"<dmrpp:chunks fillValue='0'/><dmrpp:compact>{encoded(expected.tobytes())}</dmrpp:compact>"
    missing = f"<dmrpp:missingdata>\n {encoded(zlib.compress(expected.tobytes()))} \n</dmrpp:missingdata>"
    for part in (compact, missing):
        group = read(f'<Int32 name="v"><Dim size="4"/>{part}</Int32>')
        assert values(group).tolist() == [0, 1, 2, 3]
        assert not group["v"].in_memory().locations
    one = f'<Byte name="v"><Dim size="1"/><dmrpp:missingdata>{encoded(bytes([7]))}</dmrpp:missingdata></Byte>'
    assert values(read(one)).tolist() == [7]


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (f"<dmrpp:compact>{encoded(bytes(15))}</dmrpp:compact>", "not those of its shape"),
        ("<dmrpp:compact>!</dmrpp:compact>", "dmrpp:compact is not base64"),
        (f"<dmrpp:missingdata>{encoded(bytes(16))}</dmrpp:missingdata>", "are not a zlib"),
        (f"<dmrpp:missingdata>{encoded(zlib.compress(bytes(17)))}</dmrpp:missingdata>", "are not 16 bytes"),
        (f"<dmrpp:missingdata>{encoded(zlib.compress(bytes(10**7)))}</dmrpp:missingdata>", "are not 16 bytes"),
    ],
)
def test_values_in_the_document_that_are_none(read, part, reason):
    """Values of another length than those of the variable are an error, and unpack to no more than that."""
    with pytest.raises(MalformedFileError, match=f"'/v': .*{reason}"):
        read(f'<Int32 name="v"><Dim size="4"/>{part}</Int32>')


def test_much_missing_data_is_refused(read):
    """Values that unpack to more than the inline limit are refused."""
    packed = encoded(zlib.compress(bytes(2**20)))
    body = f'<Byte name="v"><Dim size="{2**20}"/><dmrpp:missingdata>{packed}</dmrpp:missingdata></Byte>'
    assert not reasons(read(body))
    assert "1048576 bytes in the document are more than the inline limit" in reasons(read(body, inline_limit=10))["/v"]


# -- attributes -----------------------------------------------------------------------------------------------


def test_attributes_of_every_type(read):
    """One number is a scalar of its type, several are an array; texts are as they stand; containers are noted."""
    attributes = {
        ("i", "Int16"): ["1", "-2"],
        ("f", "Float32"): ["0.100000001"],
        ("old", "Float64"): ["nan.", "1."],
        ("b", "Byte"): ["255"],
        ("s", "String"): [" two\nlines "],
        ("ss", "String"): ["a", ""],
        ("none", "String"): [],
        ("_Netcdf4Dimid", "Int32"): ["0"],
    }
    body = "".join(
        f'<Attribute name="{name}" type="{kind}">{"".join(f"<Value>{x}</Value>" for x in texts)}</Attribute>'
        for (name, kind), texts in attributes.items()
    )
    body += (
        '<Attribute name="c" type="Container"><Attribute name="x" type="Int8"><Value>1</Value></Attribute></Attribute>'
    )
    body += '<Attribute name="bad" type="Int8"><Value>300</Value></Attribute>'
    body += '<Attribute name="w" type="Int8"><Value value="3"/></Attribute>'
    group = read(body)
    found = dict(group.attributes)
    np.testing.assert_array_equal(found.pop("i"), np.array([1, -2], "i2"), strict=True)
    np.testing.assert_array_equal(found.pop("old"), [np.nan, 1])
    assert found == {"f": np.float32(0.1), "b": 255, "s": " two\nlines ", "ss": ["a", ""], "none": "", "w": 3}
    assert {key: type(found[key]) for key in ("f", "b", "w")} == {"f": np.float32, "b": np.uint8, "w": np.int8}
    assert {x.path: x.kind for x in group.refusals} == {"/@c": "noted", "/@bad": "noted"}


def test_attributes_that_change_values_are_read_or_fail(read):
    """A scale that is not a number is an error, as leaving it out would change values."""
    bad = '<Dim size="1"/><Attribute name="scale_factor" type="Float32"><Value>x</Value></Attribute>'
    with pytest.raises(MalformedFileError, match="'/v': the attribute 'scale_factor' has the values"):
        read(variable("", dims=bad))
    char = '<Dim size="1"/><Attribute name="_FillValue" type="String"><Value>-</Value></Attribute>'
    char += '<dmrpp:FixedLengthStringArray string_length="1" pad="null_term"/>'
    assert read(variable("", "String", char, 'fillValue="-"'))["v"].attributes == {"_FillValue": b"-"}


# -- groups and dimensions ------------------------------------------------------------------------------------


def test_dimensions_by_path_and_from_the_group_up(read):
    """A dimension is found by its path, or from the group up; its name is the last part."""
    v = variable(FOUR, dims='<Dim name="{}"/>')
    body = (
        '<Dimension name="x" size="4"/><Group name="a"><Dimension name="y" size="4"/><Group name="b">{}</Group></Group>'
    )
    for name, expected in {"/x": "x", "x": "x", "/a/y": "y", "y": "y"}.items():
        group = read(body.format(v.format(name)), bytes(16))
        assert group["a/b/v"].dimension_names == (expected,)
    assert [child.dimensions for _, child in group.walk()] == [{"x": 4}, {"y": 4}, {}]
    for name in ("z", "/a/x", "/c/y", "b/y"):
        with pytest.raises(MalformedFileError, match=f"there is no Dimension '{name}'"):
            read(body.format(v.format(name)))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            '<Dimension name="x" size="1"/><Dimension name="x" size="2"/>',
            "the Dimension '/x' has no valid name, or two",
        ),
        ('<Group name="g"/><Int8 name="g"/>', "the Int8 '/g' has no valid name, or two"),
        ('<Group name="g"><Int8/></Group>', "the Int8 '/g/' has no valid name"),
        ('<Group name="a/b"/>', "the Group '/a/b' has no valid name"),
        ('<Dimension name="x"/>', "it has no size of the Dimension '/x'"),
        ('<Dimension name="x" size="-1"/>', "size of the Dimension '/x' is '-1'"),
        (f'<Int8 name="v">{'<Dim size="1"/>' * 40}</Int8>', "'/v' has 40 dimensions; HDF5 has at most 32"),
        ('<Int8 name="v"><Dim/></Int8>', "it has no size of a Dim of '/v'"),
        (f'<Int8 name="v"><Dim size="{2**62}"/><Dim size="{2**62}"/><dmrpp:chunks fillValue="0"/></Int8>', "x"),
    ],
)
def test_groups_and_dimensions_that_contradict_themselves(read, body, reason):
    """A name of two things, or a length that is none, is an error; an array of any size is not."""
    if reason == "x":
        assert read(body)["v"].shape == (2**62, 2**62)
        return
    with pytest.raises(MalformedFileError, match=reason):
        read(body)


# -- documents ------------------------------------------------------------------------------------------------

ENTITY = '<!DOCTYPE Dataset [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("head", "body", "end", "reason"),
    [
        (HEAD, "", "", "no element found"),
        (HEAD, "<Int8", "", "unclosed token"),
        (HEAD, "<a></b>", "</Dataset>", "mismatched tag"),
        (HEAD, "<other:a/>", "</Dataset>", "unbound prefix"),
        (HEAD, "", "</Dataset>trailing", "junk after document element"),
        ("", "", "", "no element found"),
        ("\x89HDF\r\n\x1a\n", "dmrpp", "", "not well-formed"),
        ("<html>", "", "</html>", "its root is 'html', not 'Dataset'"),
        (HEAD.replace("\n", ENTITY), "&b;", "</Dataset>", "has a document type declaration"),
        (HEAD.replace("ISO-8859-1", "no-such"), "", "</Dataset>", "is not a DMR"),
        (HEAD.replace("ISO-8859-1", "utf-7"), "", "</Dataset>", "is not a DMR"),
        (HEAD, '<Group name="g">' * 200, "</Group>" * 200 + "</Dataset>", "more than 100 nested in each other"),
    ],
)
def test_documents_that_are_none(read, head, body, end, reason):
    """What is not XML, no DMR++, too deep, or has entities, is an error that names the document."""
    with pytest.raises(MalformedFileError, match=reason) as caught:
        read(body, head=head, end=end)
    assert caught.value.url.endswith("data.dmrpp")


def test_documents_in_other_encodings_and_prefixes(read, tmp_path):
    """Names of elements count by their namespace, and text by the encoding of the document."""
    text = HEAD + variable(FOUR) + '<Attribute name="é" type="String"><Value>ü</Value></Attribute></Dataset>'
    text = text.replace("dmrpp:", "d:").replace(":dmrpp", ":d").replace("ISO-8859-1", "UTF-16")
    (tmp_path / "data").write_bytes(np.arange(4, dtype="<i4").tobytes())
    (tmp_path / "data.dmrpp").write_bytes(text.encode("utf-16"))
    group = group_of(tmp_path / "data.dmrpp", DMRPP())
    assert values(group).tolist() == [0, 1, 2, 3]
    assert group.attributes == {"é": "ü"}


def test_many_variables_are_read_in_time_that_grows_with_their_number(read):
    """A document of very many variables and dimensions is not a hang."""
    n = 20_000
    body = "".join(
        f'<Dimension name="d{i}" size="{i}"/><Int8 name="v{i}"><Dim size="{n + i}"/></Int8>' for i in range(n)
    )
    group = read(body)
    assert len(group.dimensions) == 2 * n
    assert len(reasons(group)) == n


def test_many_variables_with_many_chunks(read):
    """Chunks of documents of many megabytes come out in their places, wherever the document is cut for reading."""
    n, body = 3000, ""
    for name in "abcdefgh":
        rows = "".join(f'<dmrpp:chunk offset="{8 * i}" nBytes="8" chunkPositionInArray="[{i}]"/>' for i in range(n))
        sizes = "<dmrpp:chunkDimensionSizes>1</dmrpp:chunkDimensionSizes>"
        body += variable(sizes + rows, "Float64", f'<Dim size="{n}"/>').replace('"v"', f'"{name}"')
    arrays = arrays_by_path(read(body, np.arange(float(n)).tobytes()))
    assert len(arrays) == 8
    for array in arrays.values():
        np.testing.assert_array_equal(values_of(array), np.arange(float(n)))


@settings(deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_long_runs_of_chunks_are_read_as_single_ones(read, data):
    """What stands between chunks, attributes of some, and faults, change nothing but themselves."""
    n = data.draw(st.integers(100, 400))
    rows = [f'<dmrpp:chunk offset="{8 * i}" nBytes="8" chunkPositionInArray="[{i}]"/>' for i in range(n)]
    odd = st.sampled_from(
        [
            (">", ' fm="0">'),
            ("/>", "></dmrpp:chunk>"),
            ("offset", "  offset"),
            ('"8"', '"08"'),
            ('"8"', '"-8"'),
            ('"8"', '"&#56;"'),
            ("[", "[0,"),
            ("[", "[ "),
            (" nBytes", ' nBytes="8" nBytes'),
            ("chunk ", "chunk x='1' "),
            ("<", "<!-- a --><"),
            ("<", "<![CDATA[]]><"),
            ("<", "<?a?><"),
            ("<", "<other/><"),
            ("<", "text<"),
            ("<", " \r\n\t<"),
            ("<", "\x0b<"),
            ("<", "<!--<dmrpp:chunk/>--><"),
            ("<dmrpp:chunk ", "<dmrpp:run n='0'/><dmrpp:chunk "),
        ]
    )
    for at, (old, new) in data.draw(st.lists(st.tuples(st.integers(0, n - 1), odd), max_size=3)):
        rows[at] = rows[at].replace(old, new.replace(">", "/>") if new.endswith('0">') else new, 1)
    for at in data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=3)):
        rows[at] = ""
    sizes = SIZES.replace("2", "1")
    body = variable(sizes + "".join(rows), "Float64", f'<Dim size="{n}"/>')
    found = []
    for text in (body, f"<!-- no runs -->{body}"):
        try:
            group = read(text)
        except MalformedFileError:
            found.append("an error")
        else:
            entries = group["v"].in_memory().entries if "v" in group.arrays else None
            found.append((None if entries is None else entries.tolist(), reasons(group)))
    assert found[0] == found[1]
