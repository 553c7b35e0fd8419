"""scaleoffset: integers and floats, with and without fill values, against the HDF5 library."""

import itertools

import h5py
import numpy as np
import pytest
from h5py import h5z
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.codecs.hdf5_pipelines import check_chunks, filters_of, in_memory
from tests.data.hdf5_parts import dataset_of, properties
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.formats.hdf5.filters import filter_codecs

INTEGERS = [f"{order}{kind}{size}" for order, kind, size in itertools.product("<>", "iu", (1, 2, 4, 8))]
FLOATS = ["<f4", ">f4", "<f8", ">f8"]
DECIMALS, FILL_AVAILABLE = 1, 7


def create(data, chunk, kind, factor, *, fill=None, change=None):
    """Write values, and change parameters in the file; what a chunk decodes to depends on these alone."""

    def write(file):
        dcpl = properties(chunk=((chunk,),), scaleoffset=(kind, factor))
        if fill is not None:
            dcpl.set_fill_value(np.array(fill, data.dtype))
        dataset_of(file, "x", h5py.h5t.py_create(data.dtype), data.shape, dcpl)[...] = data
        steps.extend(filters_of(file["x"].id.get_create_plist()))

    def changed(image):
        (step,) = steps
        values = [*step.values]
        for i, value in (change or {}).items():  # h5py does not ask for everything
            values[i] = value
        old, new = (np.array(x, "<u4").tobytes() for x in (step.values, values))
        assert image.count(old) == 1
        return image.replace(old, new)

    steps = []
    return in_memory(write, changed)


def check(dataset):
    return check_chunks(dataset.id, dataset[...])


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_any_integers(data):
    """Of every size, sign and byte order, in any range, with as many bits as asked for or as are needed."""
    dtype = np.dtype(data.draw(st.sampled_from(INTEGERS)))
    info = np.iinfo(dtype)
    low = data.draw(st.integers(int(info.min), int(info.max)))
    high = data.draw(st.integers(low, int(info.max)) | st.integers(low, min(low + 300, int(info.max))))
    numbers = data.draw(st.lists(st.integers(low, high), min_size=1, max_size=60))
    fill = data.draw(st.none() | st.sampled_from(numbers) | st.integers(int(info.min), int(info.max)))
    bits = data.draw(st.just(0) | st.integers(0, 8 * dtype.itemsize))
    values = np.array(numbers, dtype)
    chunk = data.draw(st.integers(1, len(values)))
    change = data.draw(st.sampled_from([{}, {FILL_AVAILABLE: 0}]))
    check(create(values, chunk, h5z.SO_INT, bits, fill=fill, change=change))


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_any_floats(data):
    """Of both sizes and byte orders, to decimals before and behind the point."""
    dtype = np.dtype(data.draw(st.sampled_from(FLOATS)))
    scale = data.draw(st.sampled_from([1e-6, 1.0, 1e3, 1e9]))
    numbers = st.floats(-1, 1, allow_subnormal=False).map(lambda x: x * scale)
    values = np.array(data.draw(st.lists(numbers, min_size=1, max_size=60)), dtype)
    fill = data.draw(st.none() | st.sampled_from(values.tolist()) | st.just(-9999.0))
    decimals = data.draw(st.integers(0, 9))
    chunk = data.draw(st.integers(1, len(values)))
    change = data.draw(st.sampled_from([{}, {FILL_AVAILABLE: 0}]))
    check(create(values, chunk, h5z.SO_FLOAT_DSCALE, decimals, fill=fill, change=change))


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_number_of_decimals(dtype):
    """Powers of ten are those of the C library, to the last bit."""
    values = (np.linspace(-1, 1, 50) * 1000).astype(dtype)
    for decimals in range(-30, 50):
        check(create(values, 20, h5z.SO_FLOAT_DSCALE, 2, change={DECIMALS: decimals % (1 << 32)}))


def test_integers_of_all_bits_are_stored_as_they_are():
    """The parameters say so, and no codec is there."""
    assert filter_codecs(check(create(np.arange(10, dtype="i4"), 5, h5z.SO_INT, 32))) == ()


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("fill", [None, 5])
@pytest.mark.parametrize("change", [{}, {FILL_AVAILABLE: 0}])
def test_values_that_need_all_bits(dtype, fill, change):
    """They are stored as they are, least significant byte first, behind the header."""
    kind = np.dtype(dtype).kind
    if kind == "f":
        values = np.array([-3e30, 3e30, 1.5, 5, -0.25, 7], dtype)
    else:
        info = np.iinfo(dtype)
        values = np.array([info.min, info.max, 5, 0, 1, 100], dtype)
    check(create(values, 3, h5z.SO_FLOAT_DSCALE if kind == "f" else h5z.SO_INT, 0, fill=fill, change=change))
    check(create(values[2:], 4, h5z.SO_FLOAT_DSCALE if kind == "f" else h5z.SO_INT, 0, fill=fill, change=change))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("fill", [None, 3])
def test_equal_values_take_no_bits(dtype, fill):
    check(create(np.full(10, 7, dtype), 5, h5z.SO_INT, 0, fill=fill))
    check(create(np.full(10, 3, dtype), 5, h5z.SO_INT, 0, fill=fill))
    check(create(np.array([3, 7, 7, 3, 3, 3, 8, 7], dtype), 4, h5z.SO_INT, 0, fill=fill))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:20], "20 bytes; its header alone has 21"),
        (lambda raw: raw[:23], "2 bytes of numbers; 10 of 7 bits"),
        (lambda raw: b"\x41" + raw[1:], "10 of 65 bits"),
    ],
)
def test_chunks_that_are_cut_short(damage, message):
    """What is not there is not made up."""
    dataset = create(np.arange(0, 1000, 100, dtype="i4") // 10, 10, h5z.SO_INT, 0)
    codecs = filter_codecs(filters_of(dataset.id.get_create_plist()))
    raw = dataset.id.read_direct_chunk((0,))[1]
    with pytest.raises(CodecError, match=message):
        decode(damage(raw), codecs, dataset.dtype, (10,))
    with pytest.raises(CodecError, match="says that it holds 40 bytes; 36 are expected at most"):
        decode(raw, codecs, dataset.dtype, (9,))
    assert codecs[0].name == "virtualstack.scaleoffset"
    assert Codec.from_json(codecs[0].to_json()) == codecs[0]
