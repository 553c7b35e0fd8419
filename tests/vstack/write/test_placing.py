"""In which order rows of chunks are written: that of their bytes, judged by a sample."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.vstack.stores import create, opened
from tests.vstack.test_large_shapes import array_of
from virtualstack.manifests import ENTRY, FIRST, INLINE
from virtualstack.vstack.write import placing


def cost(cells):
    """Count in plain Python how badly cells are ordered."""
    found = 0
    for (source, offset, length), (other, after, _) in itertools.pairwise(cells):
        follows = source == other and (offset + length == after or source < INLINE)
        found += 2 - follows - (source == other and after > offset)
    return found


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, FIRST + 1), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=8))
def test_cells_that_do_not_follow_each_other_cost(cells):
    entries = np.zeros(len(cells), ENTRY)
    entries["location"], entries["offset"], entries["length"] = zip(*cells, strict=True)
    assert placing._breaks(entries.reshape(1, -1)) == cost(cells)


@pytest.mark.parametrize(
    "shape", [(1 << 14,), (1 << 15,), (128, 128), (128, 129), (3, 9000), (2,) * 14, (2,) * 15, (3, 2, 10**9)]
)
def test_a_sample_is_not_large(shape):
    """Only long sides are halved, so that the sample has cells along each axis."""
    sides = placing._sample_sides(shape)
    n = math.prod(shape)
    assert math.prod(sides) <= placing._SAMPLE_CELLS or max(sides) == 2
    assert all(2 <= side <= length for side, length in zip(sides, shape, strict=True))
    assert sides == list(shape) if n <= placing._SAMPLE_CELLS else math.prod(sides) >= placing._SAMPLE_CELLS // 4


@pytest.mark.parametrize("ndim", [1, 2, 3, 4, 5])
def test_rows_are_in_the_order_of_the_bytes(ndim, tmp_path):
    """Any of up to four axes; more are in C order or its reverse, whichever fits better."""
    axes = tuple(range(ndim))
    orders = list(itertools.permutations(axes)) if ndim < 5 else [axes, axes[::-1], (0, 1, 2, 4, 3), (4, 3, 2, 0, 1)]
    shape = (2, 3, 2, 3, 2)[:ndim]
    create(tmp_path / "x.vstack", {f"v{i}": array_of(order, shape) for i, order in enumerate(orders)})
    group = opened(tmp_path / "x.vstack")[2]
    for i, order in enumerate(orders):
        (strides,) = group.arrays[f"v{i}"].manifest.placements_in((0,) * ndim, shape).strides.tolist()
        wanted = order if ndim < 5 else axes if order[0] == 0 else axes[::-1]
        assert strides == [math.prod(shape[other] for other in wanted[wanted.index(axis) + 1 :]) for axis in axes]
