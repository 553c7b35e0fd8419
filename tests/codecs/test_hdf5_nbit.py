"""nbit: bits of reduced integers and floats, alone and in arrays and compounds, against the HDF5 library."""

import itertools

import numpy as np
import pytest
from h5py import h5s, h5t
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.codecs.hdf5_pipelines import check_chunks, filters_of, in_memory
from tests.data.hdf5_parts import dataset_of, properties, reduced, text
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.hdf5.packed_bits import PADDING_BYTES, gather, parse_layout, parse_scaling, unpack
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.formats.hdf5.filters import filter_codecs, obstacle


def least_bits(size):
    """Give the bits that a number of a size has at least: the library opens no file where half the bytes would do."""
    return 1 if size == 1 else 8 * (1 << (size - 1).bit_length() - 1) + 1


@st.composite
def integers(draw):
    size = draw(st.sampled_from([1, 2, 3, 4, 5, 8]))
    base = getattr(h5t, f"STD_{draw(st.sampled_from('IU'))}64{draw(st.sampled_from(['LE', 'BE']))}").copy()
    base.set_precision(draw(st.integers(least_bits(size), 8 * size)))
    base.set_size(size)
    base.set_offset(draw(st.integers(0, 8 * size - base.get_precision())))
    return base


@st.composite
def floats(draw):
    base = getattr(h5t, f"IEEE_F{draw(st.sampled_from(['32', '64']))}{draw(st.sampled_from(['LE', 'BE']))}").copy()
    bits = 8 * base.get_size()
    n = draw(st.integers(least_bits(bits // 8), bits))
    n_exponent = draw(st.integers(2, 11))
    n_mantissa = n - n_exponent - 1
    offset = draw(st.integers(0, bits - n))
    base.set_fields(n - 1, n_mantissa, n_exponent, 0, n_mantissa)  # from the offset
    base.set_precision(n)
    base.set_offset(offset)
    return base


@st.composite
def others(draw):
    size = draw(st.integers(1, 9))
    if draw(st.booleans()):
        return h5t.create(h5t.OPAQUE, size)
    return text(size)


def arrays(base):
    return st.tuples(base, st.lists(st.integers(1, 5), min_size=1, max_size=2)).map(
        lambda x: h5t.array_create(x[0], tuple(x[1]))
    )


@st.composite
def compounds(draw, base):
    members = draw(st.lists(base, min_size=1, max_size=3))
    gaps = draw(st.lists(st.integers(0, 3), min_size=len(members) + 1, max_size=len(members) + 1))
    record = h5t.create(h5t.COMPOUND, sum(gaps) + sum(member.get_size() for member in members))
    at = 0
    for i, (member, gap) in enumerate(zip(members, gaps, strict=False)):
        at += gap
        record.insert(f"m{i}".encode(), at, member)
        at += member.get_size()
    return record


NUMBERS = integers() | floats()
TYPES = NUMBERS | st.recursive(NUMBERS | others(), lambda base: arrays(base) | compounds(base), max_leaves=6).filter(
    lambda tid: tid.get_class() in (h5t.ARRAY, h5t.COMPOUND)
)


class LibraryError(Exception):
    """The HDF5 library cannot do this, and may write where it must not."""


def create(tid, n, chunk, rng):
    """Write random bytes as elements of a datatype, without conversion, through nbit."""

    def fill(file):
        dataset = dataset_of(file, "x", tid, (n,), properties(chunk=((chunk,),), filter=(5,))).id
        if "of which HDF5 itself loses bits" in (obstacle(filters_of(dataset.get_create_plist())) or ""):
            raise LibraryError
        raw = np.frombuffer(rng.bytes(n * tid.get_size()), f"V{tid.get_size()}")
        dataset.write(h5s.ALL, h5s.ALL, raw, tid)

    return in_memory(fill).id


def stored(dataset):
    """Read elements without conversion."""
    out = np.zeros(dataset.shape, f"V{dataset.get_type().get_size()}")
    dataset.read(h5s.ALL, h5s.ALL, out, dataset.get_type())
    return out


def check(dataset):
    check_chunks(dataset, stored(dataset))


@settings(max_examples=examples(300), deadline=None)
@given(tid=TYPES, n=st.integers(1, 60), chunk=st.integers(1, 40), seed=st.integers(0, 1 << 31))
def test_any_datatype_decodes_to_the_elements_that_the_library_has(tid, n, chunk, seed):
    """Of each number only its own bits come back; strings and opaque bytes come back whole.

    HDF5 2.0 itself loses bits of what follows an array of arrays or compounds in a compound, and may crash; that is
    no codec's.
    """
    try:
        dataset = create(tid, n, min(n, chunk), np.random.default_rng(seed))
    except LibraryError:
        reject()
    check(dataset)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_every_precision_and_offset(size):
    """Of integers in both byte orders."""
    for order, precision in itertools.product(["LE", "BE"], range(least_bits(size), 8 * size + 1)):
        for offset in {0, 1, (8 * size - precision) // 2, 8 * size - precision - 1, 8 * size - precision}:
            if 0 <= offset <= 8 * size - precision:
                tid = reduced(getattr(h5t, f"STD_U{8 * size}{order}"), precision, offset)
                check(create(tid, 21, 13, np.random.default_rng(precision)))


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 16])
def test_precisions_that_the_library_no_longer_opens(size):
    """Numbers of fewer bits than half their bytes hold, packed by hand: the first bit is the most significant."""
    rng, n = np.random.default_rng(size), 19
    for order, precision in itertools.product([0, 1], range(1, 8 * size + 1)):
        offset = (8 * size - precision) // 3
        numbers = [int.from_bytes(rng.bytes(16)) % (1 << precision) for _ in range(n)]
        packed = 0
        for number in numbers:
            packed = packed << precision | number
        n_bytes = -(-n * precision // 8)
        raw = (packed << 8 * n_bytes - n * precision).to_bytes(n_bytes)
        codec = Codec.from_config("virtualstack.nbit", values=[8, 0, n, 1, size, order, precision, offset])
        expected = b"".join((number << offset).to_bytes(size, "big" if order else "little") for number in numbers)
        assert decode(raw, (codec,), np.dtype(f"V{size}"), (n,)).tobytes() == expected


def test_a_datatype_that_uses_all_bits_is_stored_as_it_is():
    """The parameters say so, and no codec is there."""
    dataset = create(h5t.STD_I32LE, 20, 7, np.random.default_rng(0))
    assert filter_codecs(filters_of(dataset.get_create_plist())) == ()
    check(dataset)


@given(
    n=st.integers(0, 200),
    first=st.integers(0, 20),
    stride=st.integers(1, 100),
    width=st.integers(1, 64),
    seed=st.integers(0, 1000),
)
@example(n=0, first=3, stride=8, width=7, seed=0)
def test_bits_anywhere(n, first, stride, width, seed):
    """Both ways of reading packed numbers give what Python's integers say."""
    n_bits = first + n * stride + width
    data = np.frombuffer(np.random.default_rng(seed).bytes(n_bits // 8 + 1 + PADDING_BYTES), np.uint8)
    whole, total = int.from_bytes(data.tobytes(), "big"), 8 * data.size
    starts = [first + i * stride for i in range(n)]
    expected = [whole >> (total - at - width) & ((1 << width) - 1) for at in starts]
    out = np.zeros(n, "u8")
    unpack(data, out, first=first, stride=stride, width=width)
    assert out.tolist() == expected
    assert gather(data, np.array(starts, np.int64), width=width).tolist() == expected


def record(*members):
    """A compound of members that follow each other with a byte between."""
    made = h5t.create(h5t.COMPOUND, sum(member.get_size() + 1 for member in members))
    at = 0
    for i, member in enumerate(members):
        made.insert(f"m{i}".encode(), at, member)
        at += member.get_size() + 1
    return made


FEW_BITS, BYTES = reduced(h5t.STD_U16LE, 9, 3), h5t.create(h5t.OPAQUE, 7)


@pytest.mark.parametrize(
    "tid",
    [
        record(FEW_BITS, BYTES, FEW_BITS),
        record(BYTES, text(5), reduced(h5t.STD_I32BE, 17, 0)),
        record(FEW_BITS, record(BYTES, FEW_BITS), FEW_BITS),
        record(FEW_BITS, h5t.array_create(FEW_BITS, (2, 3)), text(1)),
        record(h5t.array_create(BYTES, (3,)), FEW_BITS),
        h5t.array_create(record(FEW_BITS, BYTES), (3, 2)),
        h5t.array_create(h5t.array_create(FEW_BITS, (3,)), (2,)),
        h5t.array_create(record(text(1), FEW_BITS), (1, 1)),
    ],
)
@pytest.mark.parametrize(("n", "chunk"), [(1, 1), (5, 2), (9, 9)])
def test_bytes_between_numbers(tid, n, chunk):
    """Bytes that are no numbers come back whole wherever their first bit lies."""
    check(create(tid, n, chunk, np.random.default_rng(n)))


ATOMIC, ARRAY, COMPOUND, OTHER = 1, 2, 3, 4
INT = 4, 0, 3, 5  # bytes, byte order, bits, first bit


def layout(kind, *datatype, n_elements=7, unchanged=0):
    """The client data values of the filter for a datatype."""
    return [4 + len(datatype), unchanged, n_elements, kind, *datatype]


@pytest.mark.parametrize(("kind", "one"), [(ARRAY, [4]), (COMPOUND, [4, 1, 0])])
def test_datatypes_have_at_most_33_levels(kind, one):
    """Of arrays of one element, or of compounds of one member."""
    found = parse_layout(layout(kind, *(31 * [*one, kind]), *one, ATOMIC, *INT))
    assert (found.n_elements, found.size, found.n_bits, found.n_bytes) == (7, 4, 3, 28)
    with pytest.raises(ValueError, match="a datatype of more than 32 levels"):
        parse_layout(layout(kind, *(32 * [*one, kind]), *one, ATOMIC, *INT))


def test_arrays_of_compounds_in_a_compound_are_refused_but_not_after_it():
    """The HDF5 library loses their bits. An array of compounds alone is fine, and so are numbers in a compound."""
    compound = [4, 1, 0, ATOMIC, *INT]
    assert parse_layout(layout(ARRAY, 12, COMPOUND, *compound)).n_bits == 9
    assert parse_layout(layout(COMPOUND, 8, 1, 0, ARRAY, 8, ATOMIC, *INT)).n_bits == 6
    found = parse_layout(layout(COMPOUND, 8, 2, 0, COMPOUND, *compound, 4, ATOMIC, *INT))
    assert (found.n_bits, [field.at for field in found.fields], [field.first for field in found.fields]) == (
        6, [0, 4], [0, 3]
    )  # fmt: skip
    for member in ([ARRAY, 4, COMPOUND, *compound], [ARRAY, 4, ARRAY, 4, ATOMIC, *INT]):
        with pytest.raises(ValueError, match="of which HDF5 itself loses bits"):
            parse_layout(layout(COMPOUND, 4, 1, 0, *member))
        with pytest.raises(ValueError, match="of which HDF5 itself loses bits"):
            parse_layout(layout(COMPOUND, 8, 2, 0, COMPOUND, *compound, 4, *member))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (layout(ATOMIC, *INT)[:-1], "has 7 parameters, which do not describe a datatype"),
        ([4, 0, 1, ATOMIC], "has 4 parameters, which do not describe a datatype"),
        (layout(OTHER, 4), "has elements of class 4 with 4 bytes"),
        (layout(ATOMIC, 0, 0, 3, 5), "has elements of class 1 with 0 bytes"),
        (layout(ATOMIC, 4, 0, 3), "has 7 parameters, which are too few for its datatype"),
        (layout(ARRAY, 4, ATOMIC, 0, 0, 3, 5), "a datatype of no bytes"),
        (layout(ATOMIC, 4, 2, 3, 5), "in byte order 2"),
        (layout(ATOMIC, 4, 0, 0, 5), "numbers of 0 bits"),
        (layout(ATOMIC, 4, 0, 3, 30), "numbers of 3 bits at bit 30 of 4 bytes"),
        (layout(COMPOUND, 7, 1, 4, ATOMIC, *INT), "a member of 4 bytes at byte 4 of a compound of 7"),
        (layout(5, *INT), "a datatype of class 5"),
        ([*layout(ATOMIC, *INT)[:-1], 1 << 32], "not words of 32 bits"),
    ],
)
def test_datatypes_that_contradict_themselves(values, reason):
    with pytest.raises(ValueError, match=reason):
        parse_layout(values)


def test_datatypes_at_their_limits():
    """All bits of a number, a member at the end, bytes that are no numbers; more parameters are not allowed."""
    assert parse_layout(layout(ATOMIC, 4, 1, 32, 0)).n_bits == 32
    assert parse_layout(layout(ATOMIC, 4, 1, 3, 29)).n_bits == 3
    assert parse_layout(layout(COMPOUND, 8, 1, 4, ATOMIC, *INT)).fields[0].at == 4
    assert parse_layout(layout(COMPOUND, 8, 1, 1, OTHER, 7)).n_bits == 56
    assert parse_layout(layout(ARRAY, 7, OTHER, 4)).n_bits == 56  # H5Znbit.c uses the size of the array alone
    assert parse_layout(layout(ATOMIC, *INT, unchanged=1)) is None
    assert parse_layout([2, 1]) is None


@pytest.mark.parametrize("size", [256, 257])
def test_numbers_of_many_bytes(size):
    values = layout(ATOMIC, size, 0, 8 * size, 0)
    if size == 256:
        assert parse_layout(values).n_bits == 2048
    else:
        with pytest.raises(ValueError, match="of 257 bytes in byte order 0"):
            parse_layout(values)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9])
def test_a_chunk_has_all_bits_of_its_elements(n):
    """3 bits of each; a byte less is cut short."""
    codec = Codec.from_config("virtualstack.nbit", values=layout(ATOMIC, *INT, n_elements=n))
    n_bytes = -(-3 * n // 8)
    whole = np.full(n, 7 << 5, "<u4")
    assert decode(b"\xff" * n_bytes, (codec,), np.dtype("<u4"), (n,)).tobytes() == whole.tobytes()
    if n:
        with pytest.raises(
            CodecError, match=f"the nbit chunk has {n_bytes - 1} bytes; {n} elements of 3 bits are more"
        ):
            decode(b"\xff" * (n_bytes - 1), (codec,), np.dtype("<u4"), (n,))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((2, 3, 7, 0, 4, 1, 0, 0, *12 * [0]), None),
        ((2, 32, 7, 0, 4, 1, 0, 0, *12 * [0]), "nothing"),
        ((2, 33, 7, 0, 4, 1, 0, 0, *12 * [0]), "has integers of 33 bits in 4 bytes"),
        ((2, 3, 7, 0, 4, 1, 0, 0, *11 * [0]), "has 19 parameters; 20 are expected"),
        ((2, 3, 7, 0, 4, 1, 0, 2, *12 * [0]), "says with 2, not 0 or 1"),
        ((2, 3, 7, 0, 4, 2, 0, 0, *12 * [0]), "with 4 bytes, sign 2"),
        ((2, 3, 7, 0, 4, 1, 2, 0, *12 * [0]), "byte order 2"),
        ((0, 3, 7, 0, 4, 1, 0, 0, *12 * [0]), "scaling 0 of numbers of class 0"),
        ((0, 3, 7, 1, 2, 1, 0, 0, *12 * [0]), "numbers of class 1 with 2 bytes"),
        ((2, 3, 7, 0, 4, 1, 0, 0, *11 * [0], 1 << 32), "not words of 32 bits"),
    ],
)
def test_scalings_that_contradict_themselves(values, reason):
    if reason is None:
        assert parse_scaling(values).n_bytes == 28
    elif reason == "nothing":
        assert parse_scaling(values) is None
    else:
        with pytest.raises(ValueError, match=reason):
            parse_scaling(values)
