"""Boxes of elements: what their functions return is compared with masks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.arrays import referenced_array
from virtualstack.combine.region import (
    Side,
    _present,
    bounding,
    clipped,
    find_boxes,
    grown,
    merged,
    read_region,
    read_side,
)
from virtualstack.manifests import ABSENT, ENTRY
from virtualstack.manifests.manifest import Overlay

SHAPES = st.integers(0, 3).flatmap(lambda n: st.tuples(*n * [st.integers(0, 5)]))


def mask_of(boxes, shape):
    """Return how many boxes cover each element."""
    found = np.zeros(shape, int)
    for box in boxes:
        found[tuple(slice(begin, end) for begin, end in box)] += 1
    return found


@given(st.data(), SHAPES)
def test_what_a_larger_shape_has_in_addition(data, before):
    after = tuple(n + data.draw(st.integers(0, 3)) for n in before)
    expected = np.ones(after, int)
    expected[tuple(slice(n) for n in before)] = 0
    np.testing.assert_array_equal(mask_of(grown(before, after), after), expected)


@given(SHAPES, st.data())
def test_boxes_cover_a_mask_exactly_once(shape, data):
    mask = np.array(
        data.draw(st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))), bool
    )
    mask = mask.reshape(shape)
    boxes = [tuple(zip(low, high, strict=True)) for low, high in find_boxes(mask)]
    np.testing.assert_array_equal(mask_of(boxes, shape), mask)
    around = bounding(mask)
    assert len(around) == mask.any()
    if around:
        where = np.argwhere(mask)
        assert around == [tuple(zip(where.min(0).tolist(), (where.max(0) + 1).tolist(), strict=True))]


BOXES = st.lists(st.tuples(*2 * [st.tuples(st.integers(0, 5), st.integers(1, 4))]), max_size=6)


@given(BOXES, st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_boxes_are_clipped_to_a_shape_and_merged(drawn, shape):
    boxes = [tuple((begin, begin + n) for begin, n in box) for box in drawn]
    whole = mask_of(boxes, (9, 9))
    found = clipped(boxes, shape)
    assert all(a < b <= n for box in found for (a, b), n in zip(box, shape, strict=True))
    np.testing.assert_array_equal(mask_of(found, (9, 9))[: shape[0], : shape[1]], whole[: shape[0], : shape[1]])
    np.testing.assert_array_equal(mask_of(merged(boxes), (9, 9)) > 0, whole > 0)
    assert merged(boxes) == sorted(merged(boxes))


def test_boxes_are_merged_if_they_touch_along_one_axis_only():
    square = ((0, 2), (0, 2))
    assert merged([square, ((2, 4), (0, 2))]) == [((0, 4), (0, 2))]
    assert merged([square, ((0, 2), (2, 3))]) == [((0, 2), (0, 3))]
    assert merged([square, ((1, 2), (0, 2))]) == [square]
    for other in (((2, 4), (0, 3)), ((3, 4), (0, 2)), ((2, 4), (2, 4)), ((0, 2), (3, 4)), ((0, 3), (2, 4))):
        assert merged([other, square]) == sorted([square, other])
    assert merged([]) == []


@given(st.integers(0, 6), st.integers(-8, 8))
def test_an_integer_of_a_region_is_one_element(length, item):
    if -length <= item < length:
        start = range(length)[item]
        assert read_side("x", item, length) == read_side("x", np.int8(item), length) == Side(start, start + 1, True)
    else:
        with pytest.raises(IndexError, match=rf"index {item} is out of bounds for dimension 'x' of {length} elements"):
            read_side("x", item, length)


EDGES = st.none() | st.integers(-8, 8)


@given(st.integers(0, 6), EDGES, EDGES, st.sampled_from([None, 1]))
def test_a_slice_of_a_region_has_the_elements_of_numpy(length, start, stop, step):
    side = read_side("x", slice(start, stop, step), length)
    assert list(range(side.start, side.stop)) == list(range(length))[start:stop]
    assert 0 <= side.start <= side.stop <= length
    assert not side.is_one


@pytest.mark.parametrize("item", [True, False, 1.0, "1", None, slice(None, None, 2), slice(None, None, -1), [1]])
def test_other_items_are_refused(item):
    with pytest.raises(ValueError, match=r"region of 'x' is .*; it must be an integer, or a slice without a step"):
        read_side("x", item, 4)


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ({"y": 1}, [(0, 4), (1, 2), (0, 6)]),
        ({}, [(0, 4), (0, 5), (0, 6)]),
        (2, [(2, 3), (0, 5), (0, 6)]),
        (slice(1, 3), [(1, 3), (0, 5), (0, 6)]),
        (..., [(0, 4), (0, 5), (0, 6)]),
        ((..., 2), [(0, 4), (0, 5), (2, 3)]),
        ((1, ..., 2), [(1, 2), (0, 5), (2, 3)]),
        ((1, 2, 3), [(1, 2), (2, 3), (3, 4)]),
        ((1, 2, 3, ...), [(1, 2), (2, 3), (3, 4)]),
        ((1, ..., 2, 3), [(1, 2), (2, 3), (3, 4)]),
    ],
)
def test_a_region_has_one_item_for_each_dimension(region, expected):
    sides = read_region(region, ["x", "y", "z"], (4, 5, 6))
    assert [(side.start, side.stop) for side in sides] == expected


@pytest.mark.parametrize("region", [(1, 2, 3, 4), (..., 1, ...), (1, 2, 3, 4, ...)])
def test_a_region_of_too_many_items(region):
    with pytest.raises(IndexError, match=rf"region has {len(region)} items"):
        read_region(region, ["x", "y", "z"], (5, 5, 5))


def test_a_region_of_unknown_dimensions():
    with pytest.raises(ValueError, match=r"region names \['a', 'b'\]; the dimensions are \['x'\]"):
        read_region({"b": 1, "a": 2, "x": 0}, ["x"], (5,))


def test_an_overlay_without_its_absent_cells():
    """Every choice of two rows of three cells: the others stand where they stood."""
    for bits in range(1 << 6):
        is_absent = np.array([bits >> i & 1 for i in range(6)], bool).reshape(2, 3)
        entries = referenced_array((2, 3), (1, 1)).in_memory().entries.copy()
        entries[is_absent] = np.array((ABSENT, 0, 0, 0), ENTRY)
        overlay = Overlay(replace(referenced_array((2, 3), (1, 1)).in_memory(), entries=entries), (5, 7))
        found = np.zeros((9, 12), ENTRY)
        for part in _present(overlay):
            box = tuple(slice(a, a + n) for a, n in zip(part.begin, part.manifest.shape, strict=True))
            assert not found["length"][box].any()
            found[box] = part.manifest.read(tuple(slice(0, n) for n in part.manifest.shape)).entries
        expected = np.zeros((9, 12), ENTRY)
        expected[5:7, 7:10] = np.where(is_absent, np.zeros((), ENTRY), entries)
        np.testing.assert_array_equal(found, expected)
