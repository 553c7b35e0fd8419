import itertools
import random

import h5py
import numpy as np
import pytest
from h5py import h5t

from tests.data.hdf5_parts import ANY_TEXT, bfloat16, compound, enumeration, opaque, reduced, text
from virtualstack.formats.hdf5.structures.datatype_message import Datatype, FloatLayout, parse_datatype
from virtualstack.formats.hdf5.structures.requests import StructureError

_KINDS = {
    h5t.INTEGER: "integer",
    h5t.FLOAT: "float",
    h5t.TIME: "time",
    h5t.STRING: "string",
    h5t.BITFIELD: "bitfield",
    h5t.OPAQUE: "opaque",
    h5t.COMPOUND: "compound",
    h5t.REFERENCE: "reference",
    h5t.ENUM: "enum",
    h5t.VLEN: "vlen",
    h5t.ARRAY: "array",
}
if hasattr(h5t, "COMPLEX"):
    _KINDS[h5t.COMPLEX] = "complex"
_ORDERS = {h5t.ORDER_LE: "<", h5t.ORDER_BE: ">", h5t.ORDER_VAX: "vax"}
_PADDINGS = {h5t.STR_NULLTERM: "nullterm", h5t.STR_NULLPAD: "nullpad", h5t.STR_SPACEPAD: "spacepad"}
_CHARSETS = {h5t.CSET_ASCII: "ascii", h5t.CSET_UTF8: "utf-8"}
_NORMALISATIONS = {h5t.NORM_NONE: "none", h5t.NORM_MSBSET: "msbset", h5t.NORM_IMPLIED: "implied"}


NUMBERS = {
    name: getattr(h5t, name)
    for name in dir(h5t)
    if name.startswith(("STD_", "IEEE_F", "UNIX_D", "NATIVE_", "COMPLEX_IEEE", "LDOUBLE"))
}
INNER = compound(12, ("x", 0, h5t.STD_I16BE), ("yy", 4, h5t.array_create(h5t.IEEE_F16LE, (2, 2))))
MADE = {
    "12 bits": reduced(h5t.STD_I32LE, 12, 4),
    "5 bits": reduced(h5t.STD_U16BE, 5, 11),
    "bfloat16": bfloat16(h5t.IEEE_F32BE),
    "null-terminated": text(7, h5t.STR_NULLTERM),
    "null-padded": text(1, h5t.STR_NULLPAD, h5t.CSET_UTF8),
    "space-padded": text(1000, h5t.STR_SPACEPAD),
    "text": ANY_TEXT,
    "ascii text": h5t.py_create(h5py.string_dtype("ascii"), logical=True),
    "opaque": opaque(3, b""),
    "tagged": opaque(8, b"NUMPY:<M8[s]"),
    "long tag": opaque(8, b"x" * 200),
    "ragged": h5t.vlen_create(h5t.STD_I16LE),
    "ragged ragged": h5t.vlen_create(h5t.vlen_create(INNER)),
    "compound": INNER,
    "nested": compound(70000, ("in", 60000, INNER), ("a name of twenty ch", 2, h5t.IEEE_F64BE), ("é", 0, h5t.STD_U8LE)),
    "with text": compound(
        20,
        ("r", 0, h5t.STD_REF_OBJ),
        ("s", 8, ANY_TEXT),
        ("eightsss", 16, h5t.STD_B8LE),
    ),
    "complex": h5t.py_create(np.dtype(">c16")),
    "array": h5t.array_create(h5t.STD_I8LE, (3,)),
    "arrays of arrays": h5t.array_create(h5t.array_create(INNER, (1, 2)), (4, 5, 6)),
    "enum": enumeration(h5t.STD_I16BE, A=-1, **{"name of eight": 500}),
    "no names": enumeration(h5t.STD_U8LE),
    "bool": h5t.py_create(np.dtype("?"), logical=True),
}


def same(found: Datatype, tid) -> None:
    """Compare with what the HDF5 library says of a datatype."""
    kind = tid.get_class()
    is_text = kind == h5t.STRING and tid.is_variable_str()
    assert found.kind == ("vlen" if is_text else _KINDS[kind])
    assert found.size == tid.get_size()
    if kind in (h5t.INTEGER, h5t.FLOAT):
        assert found.order == _ORDERS[tid.get_order()]
        assert (found.bit_offset, found.precision) == (tid.get_offset(), tid.get_precision())
    if kind == h5t.BITFIELD:
        assert found.order == _ORDERS[tid.get_order()]
    if kind == h5t.INTEGER:
        assert found.is_signed == (tid.get_sign() == h5t.SGN_2)
    if kind == h5t.FLOAT:
        assert found.layout == FloatLayout(*tid.get_fields(), tid.get_ebias(), _NORMALISATIONS[tid.get_norm()])
    if kind == h5t.STRING:
        assert (found.padding, found.charset) == (_PADDINGS[tid.get_strpad()], _CHARSETS[tid.get_cset()])
        assert found.variant == ("string" if is_text else "")
    if kind == h5t.OPAQUE:
        assert found.tag == tid.get_tag()
    if kind == h5t.REFERENCE:
        assert (found.variant == "object") == tid.equal(h5t.STD_REF_OBJ)
        assert (found.variant == "region") == tid.equal(h5t.STD_REF_DSETREG)
    if kind == h5t.COMPOUND:
        names = [tid.get_member_name(i).decode() for i in range(tid.get_nmembers())]
        assert [member.name for member in found.members] == names
        for i, member in enumerate(found.members):
            assert member.offset == tid.get_member_offset(i)
            same(member.datatype, tid.get_member_type(i))
    if kind == h5t.ENUM:
        n = tid.get_nmembers()
        assert found.names == tuple(tid.get_member_name(i) for i in range(n))
        values = np.frombuffer(found.values, f"{found.base.order}{'i' if found.base.is_signed else 'u'}{found.size}")
        assert values.tolist() == [tid.get_member_value(i) for i in range(n)]
    if kind == h5t.ARRAY:
        assert found.dims == tid.get_array_dims()
    if kind in (h5t.ENUM, h5t.ARRAY, h5t.VLEN, getattr(h5t, "COMPLEX", -1)):
        same(found.base, tid.get_super())


def message(tid) -> bytes:
    return tid.encode()[2:]


@pytest.mark.parametrize("name", [*NUMBERS, *MADE])
def test_a_datatype_is_what_the_library_says(name):
    """All classes, in the version of the message that the library encodes, with bytes behind it or not."""
    tid = (NUMBERS | MADE)[name]
    for behind in (b"", bytes(5)):
        same(parse_datatype(message(tid) + behind), tid)


@pytest.mark.parametrize("libver", ["earliest", "v108", "v110", "v112", "v114", "latest"])
def test_every_version_of_the_message_is_read(libver, tmp_path):
    """A file of each version of the library: the message in its object header, found by its bytes."""
    usable = {name: tid for name, tid in (NUMBERS | MADE).items() if "COMPLEX" not in name or libver == "latest"}
    del usable["no names"]  # which the library does not put into a file
    high = {"earliest": "v108"}.get(libver, libver)
    with h5py.File(tmp_path / "x.h5", "w", libver=(libver, high)) as file:
        for i, tid in enumerate(usable.values()):
            tid.copy().commit(file.id, str(i).encode())
    versions = set()
    with h5py.File(tmp_path / "x.h5") as file:
        for i in range(len(usable)):
            tid = file[str(i)].id
            body = message(tid)
            same(parse_datatype(body), tid)
            versions.add(body[0] >> 4)
    assert max(versions) == {"earliest": 2, "v108": 3, "v110": 3, "latest": max(4, *versions)}.get(libver, 4)


def test_members_with_a_shape_are_arrays():
    """In version 1 of the message, the shape of a member stands beside it."""
    member = b"ab".ljust(8, b"\0") + (4).to_bytes(4, "little") + bytes([2]) + bytes(11)
    member += b"".join(n.to_bytes(4, "little") for n in (2, 3, 0, 0)) + message(h5t.STD_I16LE)
    body = bytes([0x16, 1, 0, 0]) + (16).to_bytes(4, "little") + member
    found = parse_datatype(body)
    (only,) = found.members
    assert (only.name, only.offset, only.datatype.dims, only.datatype.size) == ("ab", 4, (2, 3), 12)
    same(found, h5t.decode(b"\x03\x00" + body))


def test_references_of_hdf5_1_12_are_told_apart():
    """Their values need more than an address, so they are not taken for the older ones."""
    for variant, name in ((2, "object2"), (3, "region2"), (4, "attribute")):
        found = parse_datatype(bytes([0x47, 0x10 | variant, 0, 0, 18, 0, 0, 0]))
        assert (found.kind, found.variant, found.size) == ("reference", name, 18)
        with pytest.raises(StructureError, match=f"references of type {variant}"):
            parse_datatype(bytes([0x37, 0x10 | variant, 0, 0, 18, 0, 0, 0]))


def changed(tid, *changes) -> bytes:
    body = bytearray(message(tid))
    for at, value in changes:
        body[at] = value
    return bytes(body)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "ends before its fields do"),
        (message(h5t.STD_I32LE)[:-1], "ends before its fields do"),
        (changed(h5t.STD_I32LE, (0, 0x00)), "version 0 and class 0"),
        (changed(h5t.STD_I32LE, (0, 0x60)), "version 6 and class 0"),
        (changed(h5t.STD_I32LE, (0, 0x1C)), "version 1 and class 12"),
        (changed(h5t.STD_I32LE, (4, 0)), "class 0 have 0 bytes"),
        (changed(h5t.STD_I32LE, (1, 0x18)), "integers have reserved bits set: 0x18"),
        (changed(h5t.STD_B8LE, (1, 8)), "bitfields have reserved bits set"),
        (changed(h5t.STD_I32LE, (10, 33)), "33 bits from bit 0 are none of 4 bytes"),
        (changed(h5t.STD_I32LE, (8, 1)), "32 bits from bit 1 are none of 4 bytes"),
        (changed(h5t.STD_I32LE, (10, 0)), "0 bits from bit 0"),
        (changed(h5t.IEEE_F32LE, (1, 0x30)), "normalisation 3 and byte order 0"),
        (changed(h5t.IEEE_F32LE, (1, 0x60)), "byte order 2 of floats"),
        (changed(h5t.IEEE_F32LE, (0, 0x31), (1, 0x60)), "normalisation 2 and byte order 2"),
        (changed(h5t.IEEE_F32LE, (2, 32)), "do not fit 32 bits from bit 0"),
        (changed(h5t.IEEE_F32LE, (2, 30)), "do not fit 32 bits from bit 0"),
        (changed(h5t.IEEE_F32LE, (13, 0)), "do not fit 32 bits from bit 0"),
        (changed(h5t.IEEE_F32LE, (15, 24)), "do not fit 32 bits from bit 0"),
        (changed(h5t.UNIX_D32LE, (1, 2)), "times have reserved bits"),
        (changed(h5t.C_S1, (1, 3)), "padding 3 and character set 0 of strings"),
        (changed(h5t.C_S1, (1, 0x20)), "padding 0 and character set 2 of strings"),
        (changed(opaque(3, b"abc"), (1, 16)), "ends before its fields do"),
        (changed(opaque(3, b"abc"), (1, 4)), "a tag of 4 bytes of opaque elements is not padded"),
        (changed(INNER, (8, 0)), "a name in a datatype message is empty"),
        (changed(INNER, (1, 0)), "a compound has no members"),
        (changed(INNER, (1, 3)), "in the middle of it|has no end"),
        (changed(INNER, (4, 11)), "the member 'yy' of a compound of 11 bytes ends at 12"),
        (changed(h5t.STD_REF_OBJ, (1, 2)), "references of type 2 in encoding 0"),
        (changed(h5t.STD_REF_OBJ, (4, 9)), "references of type 0 have 9 bytes"),
        (changed(h5t.STD_REF_DSETREG, (4, 8)), "references of type 1 have 8 bytes"),
        (changed(MADE["ragged"], (1, 1)), "strings of variable length of integer letters of 2 bytes"),
        (changed(MADE["ragged"], (4, 17)), "elements of variable length are 17 bytes"),
        (changed(h5t.STD_REF_OBJ, (1, 0x10)), "references of type 0 in encoding 1"),
        (changed(MADE["enum"], (4, 4)), "an enumeration of 4 bytes has integer values of 2"),
        (message(MADE["enum"])[:-1], "ends before its fields do"),
        (changed(MADE["ragged"], (1, 2)), "variable length have the unknown form 0x2"),
        (changed(MADE["ragged"], (2, 1)), "variable length have the unknown form 0x100"),
        (changed(MADE["array"], (4, 4)), r"an array type of 4 bytes has \(3,\) elements of 1"),
        (changed(MADE["array"], (8, 0)), "an array type of 0 axes"),
        (changed(MADE["array"], (8, 33)), "an array type of 33 axes"),
        (changed(MADE["array"], (0, 0x1A)), "in version 1 of the message"),
        (changed(MADE["array"], (12, 0)), r"an array type has the shape \(0,\)"),
        (changed(MADE["array"], (1, 1)), "array types have reserved bits"),
    ],
)
def test_what_contradicts_the_format_is_an_error(body, reason):
    """The caller asks the HDF5 library then; nothing is guessed."""
    with pytest.raises(StructureError, match=reason):
        parse_datatype(body)


def test_the_byte_order_of_vax_is_read_since_version_3():
    """The HDF5 library says so too, and nothing of ours reads them."""
    body = changed(h5t.IEEE_F32LE, (0, 0x31), (1, 0x61))
    assert parse_datatype(body).order == "vax"
    assert h5t.decode(b"\x03\x00" + body).get_order() == h5t.ORDER_VAX


def member(name: bytes, offset: int) -> bytes:
    return name.ljust(8, b"\0") + offset.to_bytes(4, "little") + bytes(28) + message(h5t.STD_I16LE)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([(b"a", 0), (b"a", 2)], "two members of a compound have one name"),
        ([(b"b", 1), (b"a", 0)], "the members 'a' and 'b' of a compound overlap"),
        ([(b"a", 0), (b"b", 3)], "the member 'b' of a compound of 4 bytes ends at 5"),
    ],
)
def test_members_of_a_compound_have_their_own_place(members, reason):
    """One name each, apart from each other, and inside."""
    body = bytes([0x16, len(members), 0, 0, 4, 0, 0, 0]) + b"".join(itertools.starmap(member, members))
    with pytest.raises(StructureError, match=reason):
        parse_datatype(body)


@pytest.mark.skipif(not hasattr(h5t, "COMPLEX"), reason="no complex numbers before HDF5 2.0")
def test_complex_numbers_have_two_equal_parts():
    """Of half their size, in the one form that there is."""
    tid = h5t.COMPLEX_IEEE_F32LE
    for change, reason in {
        (1, 3): "complex numbers of form 0x3",
        (0, 0x4B): "in version 4 of the message",
        (4, 10): "complex numbers of 10 bytes have float parts of 4",
    }.items():
        with pytest.raises(StructureError, match=reason):
            parse_datatype(changed(tid, change))


def test_nesting_is_bounded():
    """A message of sequences of sequences of sequences ends in an error of ours."""
    body = bytes([0x19, 0, 0, 0, 16, 0, 0, 0]) * 40 + message(h5t.STD_I8LE)
    with pytest.raises(StructureError, match="nested more than 32 deep"):
        parse_datatype(body)


def test_large_messages_are_not_kept():
    """A file may have as many as it likes; only small ones are cached."""
    tid = enumeration(h5t.STD_U16LE, **{f"name number {i}": i for i in range(1000)})
    assert parse_datatype(message(tid)) is not parse_datatype(message(tid))
    assert parse_datatype(message(h5t.STD_I8LE)) is parse_datatype(message(h5t.STD_I8LE))


def test_damaged_messages_end_in_a_datatype_or_an_error():
    """Every byte of every message flipped in some bits: never another exception,"""
    rng = random.Random(7)
    n_errors = 0
    for tid in (NUMBERS | MADE).values():
        body = message(tid)
        if len(body) > 4096:
            continue
        for at in range(len(body)):
            damaged = changed(tid, (at, body[at] ^ 1 << rng.randrange(8)))
            try:
                parse_datatype(damaged)
            except StructureError:
                n_errors += 1
    assert n_errors > 500
