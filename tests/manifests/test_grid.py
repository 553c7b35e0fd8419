"""Chunk grids, regular and rectilinear."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtualstack.errors import ManifestError
from virtualstack.manifests import ChunkAxis, ChunkGrid


@given(st.lists(st.integers(1, 9), max_size=12))
def test_an_axis_of_lengths_has_those_lengths(lengths):
    """Cells are as long as they were said to be, regular or not; every element is found in its cell."""
    axis = ChunkAxis.from_lengths(lengths)
    assert axis.lengths().tolist() == lengths
    assert axis.n_cells == len(lengths)
    assert axis.length == sum(lengths)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    assert axis.find(np.arange(axis.length)).tolist() == owners.tolist()
    assert axis.is_regular == (
        all(n == lengths[0] for n in lengths[:-1]) and (not lengths or lengths[-1] <= lengths[0])
    )


@given(st.integers(0, 40), st.integers(1, 12))
def test_regular_and_listed_axes_are_equal(length, chunk):
    """An axis has one form, however it was made."""
    axis = ChunkAxis.regular(length, chunk)
    same = ChunkAxis.from_lengths(axis.lengths())
    assert axis == same
    assert hash(axis) == hash(same)
    assert pickle.loads(pickle.dumps(axis)) == axis


def some_axes():
    made = {ChunkAxis.regular(n, chunk): None for n in range(8) for chunk in (1, 2, 3, 5)}
    lists = ([1, 2], [2, 1], [2, 1, 2], [2, 2, 1], [2, 2, 1, 2], [3, 1], [3, 1, 3], [1, 1, 2], [1, 1, 2, 1])
    return [*made, *(ChunkAxis.from_lengths(x) for x in lists)]


@pytest.mark.parametrize("axis", some_axes(), ids=repr)
def test_an_axis_begins_another_one_if_its_cells_do(axis):
    own = axis.lengths().tolist()
    for other in some_axes():
        assert axis.begins(other) == (other.lengths().tolist()[: len(own)] == own), other


@pytest.mark.parametrize("axis", some_axes(), ids=repr)
def test_the_usual_length_covers_most_elements(axis):
    lengths = axis.lengths().tolist()
    most = max(sorted(set(lengths)), key=lambda n: n * lengths.count(n), default=None)
    assert axis.usual_length() == (axis.chunk or most)


def test_rectilinear_axes_compare_by_their_lines():
    """Axes of the same number of cells and elements still differ by where the lines are."""
    assert ChunkAxis.from_lengths([1, 3, 2]) == ChunkAxis.from_lengths([1, 3, 2])
    assert ChunkAxis.from_lengths([1, 3, 2]) != ChunkAxis.from_lengths([1, 2, 3])
    assert ChunkAxis.from_lengths([1, 3]) != "1,3"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ChunkAxis.regular(-1, 2), "an axis of -1 elements"),
        (lambda: ChunkAxis.regular(4, 0), "chunks of 0"),
        (lambda: ChunkAxis.from_lengths([3, 0]), "cells of 0 elements"),
        (lambda: ChunkAxis(2**63, 1), "an axis of 9223372036854775808 elements"),
        (lambda: ChunkAxis.regular(2**70, 1), "an axis of 1180591620717411303424 elements"),
        (lambda: ChunkAxis.from_lengths([2**70]), "an axis of 1180591620717411303424 elements"),
        (lambda: ChunkAxis.from_lengths([2**62, 2**62]), "an axis of 9223372036854775808 elements"),
        (lambda: ChunkAxis.from_lengths([2**62, 5, 2**62]), "an axis of 9223372036854775813 elements"),
        (lambda: ChunkAxis.from_lengths([2**62] * 7 + [1, 2**62]), "an axis of 36893488147419103233 elements"),
    ],
)
def test_impossible_axes_are_refused(make, message):
    """Cells have at least one element, and an axis no more than an index can count."""
    with pytest.raises(ManifestError, match=message):
        make()


@pytest.mark.parametrize("chunk", [2**62 + 1, 2**61, 2**63 - 1])
def test_the_longest_axis_has_lines_in_order(chunk):
    """The end of its last chunk may be past what can be counted."""
    axis = ChunkAxis.regular(2**63 - 1, chunk)
    assert np.diff(axis.lines()).min() > 0
    assert sum(axis.lengths().tolist()) == axis.lines()[-1] == 2**63 - 1


def test_a_grid_knows_its_cells():
    """Shapes of array, grid and single cells."""
    grid = ChunkGrid.regular((31, 10), (1, 4))
    assert (grid.array_shape, grid.shape) == ((31, 10), (31, 3))
    assert [axis.span(i) for axis, i in zip(grid.axes, (30, 2), strict=True)] == [slice(30, 31), slice(8, 10)]
    assert repr(grid) == "ChunkGrid(31/1 x 10/4)"
    assert repr(ChunkGrid(())) == "ChunkGrid(scalar)"
    assert repr(ChunkAxis.from_lengths([1, 3, 2, 2, 5])) == "13/(1,3,2,2,...)"
    assert not grid.replace(0, ChunkAxis.from_lengths([1, 30])).is_regular


def test_pieces_reach_the_end_of_the_longest_axis():
    """Where the last chunk would end is not a number of 64 bits."""
    axis = ChunkAxis.regular(2**63 - 1, 2**61 + 1)
    picked = range(2**62, 2**63 - 1, 2**61)
    cells, first, count, at = axis.pieces(picked)
    assert [cell * (2**61 + 1) + i for cell, i in zip(cells.tolist(), first.tolist(), strict=True)] == list(picked)
    assert (count.tolist(), at.tolist()) == ([1, 1], [0, 1])


@pytest.mark.parametrize("picked", [range(5, 2**62, 2**60), range(2**62 - 1, 0, -(2**60))], ids=["up", "down"])
def test_pieces_far_apart_do_not_count_the_cells_between(picked):
    """Else every thousandth of 10^8 time steps would take memory for all of them."""
    axis = ChunkAxis.regular(2**62, 3)
    cells, first, count, at = axis.pieces(picked)
    found = {n: cell * 3 + i for cell, i, n in zip(cells.tolist(), first.tolist(), at.tolist(), strict=True)}
    assert [found[n] for n in range(len(picked))] == list(picked)
    assert (count == 1).all()


@pytest.mark.parametrize("step", [1, 2, 3, 4, 7, 20])
def test_pieces_of_unequal_cells(step):
    """Each element that is picked is in one piece, however many cells a step goes over."""
    axis = ChunkAxis.from_lengths([1, 5, 2, 9, 1, 1, 3])
    for picked in (range(2, 22, step), range(21, -1, -step)):
        cells, first, count, at = axis.pieces(picked)
        assert (np.diff(cells) > 0).all()
        assert (count > 0).all()
        found = {
            n + i: int(axis.lines()[cell]) + begin + i * picked.step
            for cell, begin, m, n in zip(*(x.tolist() for x in (cells, first, count, at)), strict=True)
            for i in range(m)
        }
        assert [found[n] for n in range(len(picked))] == list(picked)


@pytest.mark.parametrize("axis", [ChunkAxis.regular(22, 5), ChunkAxis.from_lengths([1, 5, 2, 9, 1, 1, 3])])
def test_cells_of_elements_and_elements_of_cells_agree(axis):
    """The cells that a run of elements lies in begin and end where the lines say."""
    lines = axis.lines().tolist()
    for start in range(axis.length):
        for stop in range(start + 1, axis.length + 1):
            met = axis.cover(start, stop)
            span = axis.span(met.start, met.stop)
            assert (met.start, met.stop - 1) == (int(axis.find(start)), int(axis.find(stop - 1)))
            assert (span.start, span.stop) == (lines[met.start], lines[met.stop])
            assert axis.lines(met.start, met.stop).tolist() == lines[met.start : met.stop + 1]
    cells = np.arange(axis.n_cells)
    assert axis.starts(cells).tolist() == lines[:-1]
    assert axis.lengths(cells).tolist() == axis.lengths().tolist() == np.diff(lines).tolist()


def test_the_last_cell_of_the_longest_axis_ends_with_it():
    """Where the last chunk would end is not a number of 64 bits."""
    axis = ChunkAxis.regular(2**63 - 1, 2**61 + 1)
    assert axis.lines().tolist() == [*(i * (2**61 + 1) for i in range(4)), 2**63 - 1]
    assert axis.span(3) == slice(3 * (2**61 + 1), 2**63 - 1)
    assert axis.cover(2**63 - 2, 2**63 - 1) == range(3, 4)
