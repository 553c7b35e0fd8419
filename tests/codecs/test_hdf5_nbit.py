"""nbit: bits of reduced integers and floats, against the HDF5 library."""

import itertools

import numpy as np
import pytest
from h5py import h5s, h5t
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.codecs.hdf5_pipelines import check_chunks, filters_of, in_memory
from tests.data.hdf5_parts import dataset_of, properties, reduced
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.hdf5.packed_bits import PADDING_BYTES, parse_layout, parse_scaling, unpack
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.formats.hdf5.filters import filter_codecs


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


NUMBERS = integers() | floats()


def create(tid, n, chunk, rng):
    """Write random bytes as elements of a datatype, without conversion, through nbit."""

    def fill(file):
        dataset = dataset_of(file, "x", tid, (n,), properties(chunk=((chunk,),), filter=(5,))).id
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
@given(tid=NUMBERS, n=st.integers(1, 60), chunk=st.integers(1, 40), seed=st.integers(0, 1 << 31))
def test_numbers_decode_to_those_that_the_library_has(tid, n, chunk, seed):
    """Of each number only its own bits come back."""
    check(create(tid, n, min(n, chunk), np.random.default_rng(seed)))


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
    """Packed numbers are what Python's integers say."""
    n_bits = first + n * stride + width
    data = np.frombuffer(np.random.default_rng(seed).bytes(n_bits // 8 + 1 + PADDING_BYTES), np.uint8)
    whole, total = int.from_bytes(data.tobytes(), "big"), 8 * data.size
    starts = [first + i * stride for i in range(n)]
    expected = [whole >> (total - at - width) & ((1 << width) - 1) for at in starts]
    out = np.zeros(n, "u8")
    unpack(data, out, first=first, stride=stride, width=width)
    assert out.tolist() == expected


ATOMIC, COMPOUND, OTHER = 1, 3, 4
INT = 4, 0, 3, 5  # bytes, byte order, bits, first bit


def layout(kind, *datatype, n_elements=7, unchanged=0):
    """The client data values of the filter for a datatype."""
    return [4 + len(datatype), unchanged, n_elements, kind, *datatype]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (layout(ATOMIC, *INT)[:-1], "has 7 parameters, which do not describe a number"),
        ([4, 0, 1, ATOMIC], "has 4 parameters, which do not describe a number"),
        (layout(OTHER, *INT), "which do not describe a number"),
        (layout(COMPOUND, 4, 1, 0, ATOMIC, *INT), "has 12 parameters"),
        (layout(ATOMIC, 0, 0, 3, 5), "of 0 bytes"),
        (layout(ATOMIC, 4, 2, 3, 5), "in byte order 2"),
        (layout(ATOMIC, 4, 0, 0, 5), "numbers of 0 bits"),
        (layout(ATOMIC, 4, 0, 3, 30), "numbers of 3 bits at bit 30 of 4 bytes"),
        ([*layout(ATOMIC, *INT)[:-1], 1 << 32], "not words of 32 bits"),
    ],
)
def test_datatypes_that_contradict_themselves(values, reason):
    with pytest.raises(ValueError, match=reason):
        parse_layout(values)


def test_datatypes_at_their_limits():
    """All bits of a number, and its last ones."""
    assert parse_layout(layout(ATOMIC, 4, 1, 32, 0)).n_bits == 32
    assert parse_layout(layout(ATOMIC, 4, 1, 3, 29)).n_bits == 3
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
