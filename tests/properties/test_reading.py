"""Reading: any selection of any virtual array gives what numpy gives on its values."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.reading import decode, read_array, read_points
from virtualstack.reading import decode as decoding
from virtualstack.reading import plan as planning
from virtualstack.storage import DirectSource, MemorySource, MemoryTarget
from virtualstack.testing.strategies import basic_keys, known_arrays

MANY = settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))


def publish(sources):
    """Put sources where `memory://` finds them."""
    for url, raw in sources.items():
        folder, _, key = url.rpartition("/")
        MemoryTarget(folder).put(key, raw)


@st.composite
def outer_keys(draw, shape):
    """Integers, slices and unsorted index arrays with repetitions, one an axis."""
    key = list(draw(basic_keys(shape)))
    for axis, n in enumerate(shape):
        if n and draw(st.booleans()):
            key[axis] = np.array(draw(st.lists(st.integers(-n, n - 1), max_size=6)), np.int64)
    return tuple(key)


def outer(values, key):
    """Numpy's answer, one axis after the other."""
    kept = []
    for axis, item in enumerate(key):
        if isinstance(item, (int, np.integer)):
            values = values.take([item], axis)
        else:
            kept.append(axis)
            values = values[(slice(None),) * axis + (item,)]
    return values.reshape([values.shape[axis] for axis in kept])


def check(array, values, key):
    got = read_array(array, key)
    wanted = outer(values, key)
    assert got.shape == wanted.shape
    assert got.dtype == values.dtype
    assert got.flags.writeable
    np.testing.assert_array_equal(got, wanted)


@st.composite
def point_keys(draw, shape):
    """Slices, and index arrays of points for one axis at least, to be broadcast against each other."""
    n_axes = draw(st.integers(1, 2))
    lengths = tuple(draw(st.integers(0, 4)) for _ in range(n_axes))
    key = [draw(basic_keys((n,)))[0] for n in shape]
    picked = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    for axis, n in enumerate(shape):
        if axis in picked or not isinstance(key[axis], slice):
            own = tuple(draw(st.sampled_from([1, m])) if m else m for m in lengths)
            count = int(np.prod(own))
            index = draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count)) if n else [0] * count
            key[axis] = np.array(index, np.int64).reshape(own)
    return tuple(key)


def points(values, key):
    """Numpy's answer: axes of points first, then those of slices."""
    arrays = [axis for axis, item in enumerate(key) if not isinstance(item, slice)]
    others = [axis for axis, item in enumerate(key) if isinstance(item, slice)]
    cut = values[tuple(item if isinstance(item, slice) else slice(None) for item in key)]
    return cut.transpose(*arrays, *others)[tuple(key[axis] for axis in arrays)]


def check_points(array, values, key):
    wanted = points(values, key)
    got = read_points(array, key)
    assert (got.shape, got.dtype, got.flags.writeable) == (wanted.shape, values.dtype, True)
    np.testing.assert_array_equal(got, wanted)


@MANY
@given(st.data())
def test_any_selection_equals_numpy(data):
    """Integers, slices and index arrays select what they select of the values."""
    array, values, sources = data.draw(known_arrays())
    publish(sources)
    check(array, values, data.draw(outer_keys(values.shape)))
    if values.ndim and values.size:
        check_points(array, values, data.draw(point_keys(values.shape)))
    np.testing.assert_array_equal(read_array(array, ...), values)
    np.testing.assert_array_equal(read_array(array, ()), values)


@pytest.mark.parametrize(("limit", "answers_at_once"), [(0, False), (0, True), (1 << 20, False)])
def test_any_selection_of_any_operation(monkeypatch, limit, answers_at_once):
    """Reading what operations made gives the operations on the values.

    Large raw chunks are cut into pieces or not, single elements and equal pieces are written together or not, and
    sources are read from where chunks are decoded, or before.
    """
    if answers_at_once:
        monkeypatch.setattr(MemorySource, "read_into", read_into, raising=False)
        assert isinstance(MemorySource(b""), DirectSource)
    for name in ("_MIN_PIECES", "_SMALL_PIECE_BYTES"):
        monkeypatch.setattr(decode, name, limit)
    for name in ("_MIN_SPARSE_BYTES", "_PIECE_BYTES", "_MAX_GAP_BYTES"):
        monkeypatch.setattr(planning, name, limit)
    monkeypatch.setattr("virtualstack.reading.read._MAX_ALONE_BYTES", limit)
    monkeypatch.setattr(decoding, "_MIN_TOGETHER_PARTS", limit)
    any_selection_of_any_operation_equals_numpy()


def read_into(self, offset, target):
    target[:] = self.read(offset, target.nbytes)


@MANY
@given(st.data())
def any_selection_of_any_operation_equals_numpy(data):
    array, values, sources = data.draw(known_arrays())
    publish(sources)
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(
            st.sampled_from(["index", "shuffle", "transpose", "expand", "concatenate", "broadcast", "stack"])
        )
        if kind == "index":
            key = data.draw(basic_keys(values.shape))
            array, values = array[key], values[(*key, ...)]
        elif kind == "shuffle" and values.size and values.ndim and values.ndim < 5:
            picked = (data.draw(st.lists(st.integers(0, n - 1), max_size=8)) for n in values.shape)
            index = np.ix_(*(np.array(x, np.int64) for x in picked))
            array, values = array[index], values[index]
        elif kind == "transpose":
            order = data.draw(st.permutations(range(values.ndim)))
            array, values = array.transpose(order), values.transpose(order)
        elif kind == "expand" and values.ndim < 5:
            axis = data.draw(st.integers(0, values.ndim))
            array, values = np.expand_dims(array, axis), np.expand_dims(values, axis)
        elif kind == "broadcast" and values.ndim < 5 and values.size < 500:
            shape = (data.draw(st.integers(0, 3)), *values.shape)
            array, values = np.broadcast_to(array, shape), np.broadcast_to(values, shape)
        elif kind in ("concatenate", "stack") and values.ndim and values.ndim < 5 and values.size < 500:
            axis = data.draw(st.integers(0, values.ndim - 1))
            shape = list(values.shape)
            if kind == "concatenate":
                shape[axis] = data.draw(st.integers(0, 4))
            other = data.draw(known_arrays(shape=tuple(shape), dtype=values.dtype.str))
            publish(other.sources)
            join = np.concatenate if kind == "concatenate" else np.stack
            array, values = join([other.array, array], axis), join([other.values, values], axis)
    check(array, values, data.draw(outer_keys(values.shape)))
    if values.ndim and values.size:
        check_points(array, values, data.draw(point_keys(values.shape)))
    np.testing.assert_array_equal(read_array(array, ...), values)
