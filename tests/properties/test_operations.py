"""Every operation on a virtual array, against the same operation on its values: read(op(v)) == op(read(v))."""

import math

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.errors import CombineError
from virtualstack.manifests import ManifestArray, inline_array, reindex
from virtualstack.manifests.filling import pad_axis_by_elements
from virtualstack.manifests.joining import collapse
from virtualstack.testing.strategies import KnownArray, advanced_keys, basic_keys, known_arrays, model_read

KINDS = ("index", "take", "transpose", "expand", "concatenate", "broadcast", "where", "pad", "reindex", "reshape")
MANY = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


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


@pytest.mark.parametrize("keys", [basic_keys, advanced_keys])
@MANY
@given(st.data())
def test_indexing_equals_numpy(keys, data):
    """Integers and slices of any step; arrays of integers and booleans, in any place, with anything between them."""
    known = data.draw(known_arrays())
    key = data.draw(keys(known.values.shape))
    check(known.array[key], known.values[(*key, ...)], known.sources)


@MANY
@given(st.data())
def test_outer_indexing_equals_numpy(data):
    """What ``np.ix_`` makes of several arrays of any order and length, as xarray hands it over."""
    known = data.draw(known_arrays(shape=tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))))
    index = [np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=6)), int) for n in known.values.shape]
    check(known.array[np.ix_(*index)], known.values[np.ix_(*index)], known.sources)


@MANY
@given(st.data())
def test_where_equals_numpy(data):
    """Any condition, between arrays of any chunks, or an array and a number on either side."""
    known = data.draw(known_arrays())
    values = known.values
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    if data.draw(st.booleans()):
        condition = rng.random(values.shape) < 0.5
    else:
        condition = np.ones(values.shape, bool)
        for axis, n in enumerate(values.shape):
            condition &= (rng.random(n) < 0.7).reshape((-1,) + (1,) * (values.ndim - axis - 1))
    if data.draw(st.booleans()):
        other = data.draw(known_arrays(shape=values.shape, dtype=values.dtype.str))
        got = np.where(condition, known.array, other.array)
        check(got, np.where(condition, values, other.values), merged([known, other]))
        return
    fill = np.array(data.draw(st.integers(0, 9))).astype(values.dtype)[()]
    check(np.where(condition, known.array, fill), np.where(condition, values, fill), known.sources)
    check(np.where(condition, fill, known.array), np.where(condition, fill, values), known.sources)


@MANY
@given(st.data())
def test_pad_equals_numpy(data):
    """By a constant on each side, and by elements of the array."""
    known = data.draw(known_arrays())
    values = known.values
    widths = [tuple(data.draw(st.integers(0, 4)) for _ in range(2)) for _ in values.shape]
    if not values.ndim:
        return
    constants = [tuple(data.draw(st.integers(0, 9)) for _ in range(2)) for _ in values.shape]
    check(
        np.pad(known.array, widths, constant_values=constants),
        np.pad(values, widths, constant_values=constants),
        known.sources,
    )
    if values.size:
        mode = data.draw(st.sampled_from(["edge", "wrap", "reflect", "symmetric"]))
        check(np.pad(known.array, widths, mode=mode), np.pad(values, widths, mode=mode), known.sources)


@MANY
@given(st.data())
def test_padding_an_axis_by_its_elements_equals_numpy(data):
    """Of any width: more than the axis has, too."""
    known = data.draw(known_arrays(shape=tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))))
    values = known.values
    axis = data.draw(st.integers(0, values.ndim - 1))
    widths = [(0, 0)] * values.ndim
    widths[axis] = tuple(data.draw(st.integers(0, 15)) for _ in range(2))
    mode = data.draw(st.sampled_from(["edge", "wrap", "reflect", "symmetric"]))
    padded = pad_axis_by_elements(known.array.as_chunks(), axis, *widths[axis], mode)
    check(known.array.with_chunks(padded), np.pad(values, widths, mode=mode), known.sources)


@MANY
@given(st.data())
def test_reindexing_equals_taking_and_filling(data):
    """Positions in any order along several axes; -1 is the fill value."""
    known = data.draw(known_arrays())
    values = known.values
    fill = np.array(data.draw(st.integers(0, 9))).astype(values.dtype)[()]
    indexers = {
        axis: np.array(data.draw(st.lists(st.integers(-1, n - 1), max_size=8)), int)
        for axis, n in enumerate(values.shape)
        if data.draw(st.booleans())
    }
    expected = values
    for axis, index in indexers.items():
        shape = (*expected.shape[:axis], 1, *expected.shape[axis + 1 :])
        extended = np.concatenate([expected, np.full(shape, fill, values.dtype)], axis)
        expected = extended.take(index, axis)  # -1 is the last one
    check(reindex(known.array, indexers, fill), expected, known.sources)


@MANY
@given(st.data())
def test_reshape_equals_numpy(data):
    """Axes split and merge in any way."""
    known = data.draw(known_arrays())
    values = known.values
    size, shape = values.size, []
    while size > 1 and len(shape) < 4:
        n = data.draw(st.sampled_from([k for k in range(1, size + 1) if size % k == 0]))
        shape.append(n)
        size //= n
    shape.append(size)
    check(np.reshape(known.array, shape), values.reshape(shape), known.sources)
    if values.size:
        check(np.reshape(known.array, -1), values.reshape(-1), known.sources)
    check(np.reshape(np.reshape(known.array, shape), values.shape), values, known.sources)


@MANY
@given(st.data())
def test_flip_roll_take_and_swapaxes_equal_numpy(data):
    """The rest of the structural functions of numpy."""
    known = data.draw(known_arrays(shape=tuple(data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=3)))))
    array, values, sources = known
    axis = data.draw(st.integers(-values.ndim, values.ndim - 1))
    check(np.flip(array), np.flip(values), sources)
    check(np.flip(array, axis), np.flip(values, axis), sources)
    by = data.draw(st.integers(-9, 9))
    check(np.roll(array, by, axis), np.roll(values, by, axis), sources)
    check(np.swapaxes(array, 0, axis), np.swapaxes(values, 0, axis), sources)
    if values.shape[axis]:
        index = np.array(data.draw(st.lists(st.integers(0, values.shape[axis] - 1), max_size=6)), int)
        check(np.take(array, index, axis), np.take(values, index, axis), sources)


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
        kind = data.draw(st.sampled_from(KINDS))
        if values.size > 3000 or math.prod(array.manifest.shape) > 1500:
            kind = "index"
        if kind == "index":
            key = data.draw(basic_keys(values.shape))
            array, values = array[key], values[(*key, ...)]
        elif kind == "take" and values.ndim < 5:
            key = data.draw(advanced_keys(values.shape))
            array, values = array[key], values[(*key, ...)]
        elif kind == "where":
            condition = np.random.default_rng(data.draw(st.integers(0, 99))).random(values.shape) < 0.5
            other = data.draw(known_arrays(shape=values.shape, dtype=values.dtype.str))
            array, values = np.where(condition, array, other.array), np.where(condition, values, other.values)
            sources |= other.sources
        elif kind == "pad" and values.ndim:
            width = data.draw(st.integers(0, 3))
            array, values = np.pad(array, width), np.pad(values, width)
        elif kind == "reindex" and values.ndim and values.shape[0]:
            index = np.array([*data.draw(st.lists(st.integers(0, values.shape[0] - 1), max_size=5)), -1], int)
            array = reindex(array, {0: index}, 7 if values.dtype.kind != "S" else b"7")
            extended = np.concatenate([values, np.full((1, *values.shape[1:]), 7).astype(values.dtype)])
            values = extended.take(index, 0)
        elif kind == "reshape" and values.size and values.ndim:
            array, values = np.reshape(array, -1), values.reshape(-1)
            q = data.draw(st.sampled_from([k for k in range(1, values.size + 1) if values.size % k == 0]))
            array, values = np.reshape(array, (-1, q)), values.reshape(-1, q)
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
    compacted = array.with_chunks(array.as_chunks()._replace(manifest=array.in_memory().compact()))
    check(compacted, values, sources)
    assert compacted.equals(array)
    collapsed = array.with_chunks(collapse(array.as_chunks()))
    check(collapsed, values, sources)
    assert collapsed.equals(array)


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
