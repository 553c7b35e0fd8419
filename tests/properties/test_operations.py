"""Every operation on a virtual array, against the same operation on its values: read(op(v)) == op(read(v))."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from virtualstack.errors import CombineError
from virtualstack.manifests import ManifestArray, inline_array
from virtualstack.testing.strategies import KnownArray, basic_keys, known_arrays, model_read

MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def check(array, values, sources):
    assert array.shape == values.shape
    assert array.dtype == values.dtype
    array.validate()
    np.testing.assert_array_equal(model_read(array, sources), values)


@st.composite
def siblings(draw, count=3, **options):
    """Several arrays of one dtype whose shapes differ along one axis at most."""
    first = draw(known_arrays(**options))
    if not first.values.ndim:
        shape = (draw(st.integers(0, 5)),)
        first = draw(known_arrays(shape=shape, dtype=first.values.dtype.str))
    axis = draw(st.integers(0, first.values.ndim - 1))
    parts = [first]
    for _ in range(draw(st.integers(0, count - 1))):
        shape = list(first.values.shape)
        shape[axis] = draw(st.integers(0, 6))
        parts.append(draw(known_arrays(shape=tuple(shape), dtype=first.values.dtype.str)))
    return axis, parts


def merged(parts):
    return {url: raw for part in parts for url, raw in part.sources.items()}


@MANY
@given(st.data())
def test_basic_indexing_equals_numpy(data):
    """Integers and slices of any step give what numpy gives."""
    known = data.draw(known_arrays())
    key = data.draw(basic_keys(known.values.shape))
    check(known.array[key], known.values[(*key, ...)], known.sources)


@MANY
@given(siblings())
def test_concatenate_equals_numpy(parts):
    """Arrays of any chunk lengths, codecs, byte orders, storage orders and holes join as their values do."""
    axis, parts = parts
    joined = np.concatenate([part.array for part in parts], axis)
    check(joined, np.concatenate([part.values for part in parts], axis), merged(parts))


@MANY
@given(st.data())
def test_stack_equals_numpy(data):
    """Arrays of one shape join along a new axis."""
    first = data.draw(known_arrays())
    parts = [first, data.draw(known_arrays(shape=first.values.shape, dtype=first.values.dtype.str))]
    axis = data.draw(st.integers(-first.values.ndim - 1, first.values.ndim))
    joined = np.stack([part.array for part in parts], axis)
    check(joined, np.stack([part.values for part in parts], axis), merged(parts))


@MANY
@given(st.data())
def test_axes_can_be_permuted_inserted_and_removed(data):
    """transpose, expand_dims, moveaxis and squeeze give what numpy gives."""
    array, values, sources = data.draw(known_arrays())
    order = data.draw(st.permutations(range(values.ndim)))
    check(array.transpose(order), values.transpose(order), sources)
    check(array.T, values.T, sources)
    axis = data.draw(st.integers(-values.ndim - 1, values.ndim))
    wider = np.expand_dims(array, axis)
    check(wider, np.expand_dims(values, axis), sources)
    check(np.squeeze(wider), np.squeeze(values), sources)
    check(np.squeeze(wider, axis), values, sources)
    source, target = (data.draw(st.integers(-values.ndim - 1, values.ndim)) for _ in range(2))
    moved = np.moveaxis(np.expand_dims(values, axis), source, target)
    check(np.moveaxis(wider, source, target), moved, sources)


@MANY
@given(st.data())
def test_broadcast_equals_numpy(data):
    """Axes of one element stretch to any length, new axes come in front."""
    array, values, sources = data.draw(known_arrays(max_side=2))
    shape = tuple(data.draw(st.integers(0, 4)) if n == 1 else n for n in values.shape)
    shape = (*data.draw(st.lists(st.integers(0, 3), max_size=2)), *shape)
    check(np.broadcast_to(array, shape), np.broadcast_to(values, shape), sources)


@MANY
@given(st.data())
def test_chains_of_operations_equal_numpy(data):
    """Operations compose: what one gives, the next takes."""
    array, values, sources = data.draw(known_arrays())
    for _ in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from(["index", "transpose", "expand", "concatenate", "broadcast"]))
        if kind == "index":
            key = data.draw(basic_keys(values.shape))
            array, values = array[key], values[(*key, ...)]
        elif kind == "transpose":
            order = data.draw(st.permutations(range(values.ndim)))
            array, values = array.transpose(order), values.transpose(order)
        elif kind == "expand" and values.ndim < 5:
            array, values = np.expand_dims(array, 0), np.expand_dims(values, 0)
        elif kind == "broadcast" and values.ndim < 5 and values.size < 500:
            shape = (data.draw(st.integers(0, 2)), *values.shape)
            array, values = np.broadcast_to(array, shape), np.broadcast_to(values, shape)
        elif kind == "concatenate" and values.ndim and values.size < 500:
            axis = data.draw(st.integers(0, values.ndim - 1))
            shape = list(values.shape)
            shape[axis] = data.draw(st.integers(0, 4))
            other = data.draw(known_arrays(shape=tuple(shape), dtype=values.dtype.str))
            array = np.concatenate([other.array, array], axis)
            values = np.concatenate([other.values, values], axis)
            sources |= other.sources
        check(array, values, sources)
    compacted = array.with_chunks(array.chunks_of()._replace(manifest=array.in_memory().compact()))
    check(compacted, values, sources)
    assert compacted.equals(array)


@MANY
@given(st.data())
def test_slicing_then_joining_is_the_identity(data):
    """An array cut anywhere and joined again is equal to itself, structurally."""
    array, values, sources = data.draw(known_arrays())
    if not values.ndim:
        return
    axis = data.draw(st.integers(0, values.ndim - 1))
    cut = data.draw(st.integers(0, values.shape[axis]))
    before = (slice(None),) * axis
    joined = np.concatenate([array[(*before, slice(None, cut))], array[(*before, slice(cut, None))]], axis)
    check(joined, values, sources)
    assert joined.equals(array)
    assert array[(*before, slice(None, None, -1))][(*before, slice(None, None, -1))].equals(array)


@MANY
@given(st.data())
def test_equal_arrays_have_equal_values(data):
    """``equals`` is true only where values are: never for arrays of other chunks with other values."""
    first = data.draw(known_arrays())
    second = data.draw(known_arrays(shape=first.values.shape, dtype=first.values.dtype.str))
    assert first.array.equals(first.array)
    assert first.array.equals(first.array[...])
    if first.array.equals(second.array):
        np.testing.assert_array_equal(first.values, second.values)


@MANY
@given(siblings(max_dims=2))
def test_xarray_concat_equals_concat_of_values(parts):
    """xr.concat joins virtual datasets as it joins loaded ones."""
    axis, parts = parts
    dims = tuple("xyz"[: parts[0].values.ndim])
    virtual = xr.concat([xr.Dataset({"v": (dims, part.array)}) for part in parts], dims[axis])
    loaded = xr.concat([xr.Dataset({"v": (dims, part.values)}) for part in parts], dims[axis])
    assert isinstance(virtual.v.variable._data, ManifestArray)
    check(virtual.v.variable._data, loaded.v.values, merged(parts))


def test_text_and_numbers_never_join():
    """Nothing is reinterpreted."""
    text = inline_array(np.array([b"ab"]), name="a", dims=("x",), attributes={})
    number = inline_array(np.array([1.5]), name="a", dims=("x",), attributes={})
    with pytest.raises(CombineError, match="dtype"):
        np.concatenate([text, number])


def test_known_array_is_what_it_says():
    """The strategy's own values are what the model reads: the test kit checks itself."""

    @MANY
    @given(known_arrays())
    def run(known: KnownArray) -> None:
        check(known.array, known.values, known.sources)

    run()
