"""Which placement shows a cell, beside a look at each of them."""

import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.errors import MalformedFileError
from virtualstack.vstack.format.rows import Placements


def placements(boxes, ndim):
    """Placements of boxes, each ``(begin, count)`` an axis."""
    rows = [[0, 0, 0, 0, *[1] * ndim, *(x for x, _ in box), *(n for _, n in box)] for box in boxes]
    return Placements.from_json(rows, ndim, where="here")


def latest(boxes, cell):
    """Number of the last box that a cell lies in, or -1."""
    shows = [all(a <= x < a + n for (a, n), x in zip(box, cell, strict=True)) for box in boxes]
    return max((i for i, shown in enumerate(shows) if shown), default=-1)


@st.composite
def boxes_and_cells(draw):
    ndim = draw(st.integers(0, 3))
    size = draw(st.sampled_from([3, 12, 40]))
    side = st.tuples(st.integers(0, size), st.integers(1, draw(st.sampled_from([1, 3, size]))))
    whole = st.just((0, 2 * size))  # as most boxes have it along most axes
    sides = [draw(st.sampled_from([side, whole, st.sampled_from([(0, 2), (2, 3)])])) for _ in range(ndim)]
    boxes = draw(st.lists(st.tuples(*sides), max_size=40))
    if draw(st.booleans()):
        boxes.sort()
    return boxes, ndim, draw(st.lists(st.tuples(*[st.integers(0, 2 * size)] * ndim), min_size=1, max_size=30))


@settings(max_examples=examples(300))
@example(([((0, 1),), ((5, 4),), ((6, 1),)], 1, [(n,) for n in range(12)]))
@example(([((5, 4),), ((6, 1),), ((20, 1),)], 1, [(n,) for n in range(22)]))
@example(([((0, 4), (0, 1)), ((0, 2), (5, 1))], 2, [(1, 5)]))
@given(boxes_and_cells())
def test_the_latest_placement_shows_a_cell(drawn):
    boxes, ndim, cells = drawn
    columns = [np.array([cell[axis] for cell in cells], np.int64) for axis in range(ndim)]
    found = placements(boxes, ndim).find(columns)
    wanted = [latest(boxes, cell) for cell in (cells if ndim else [()])]
    assert found.tolist() == wanted


@settings(max_examples=examples(200))
@example(([((0, 2),), ((0, 4),), ((1, 1),)], 1, [(0,), (1,), (2,), (4,)]))
@example(([((0, 2),), ((0, 5),), ((1, 1),)], 1, [(0,), (4,)]))
@example(([((0, 2), (0, 2)), ((0, 3), (1, 1)), ((1, 1), (0, 3))], 2, [(0, 0), (1, 1), (2, 2)]))
@given(boxes_and_cells())
def test_placements_within_a_box_show_its_cells(drawn):
    """Those that meet it, from the last one on that covers it."""
    boxes, ndim, cells = drawn
    cells = cells if ndim else [()]
    for low, high in [(min(cells), max(cells)), (cells[0], cells[0])]:
        sides = [(min(a, b), max(a, b) + 1) for a, b in zip(low, high, strict=True)]
        meets = [all(a < end and a + n > begin for (a, n), (begin, end) in zip(x, sides, strict=True)) for x in boxes]
        covers = [
            all(a <= begin and a + n >= end for (a, n), (begin, end) in zip(x, sides, strict=True)) for x in boxes
        ]
        last = max((i for i, covered in enumerate(covers) if covered), default=0)
        found = placements(boxes, ndim).within(*np.array(sides, np.int64).reshape(ndim, 2).T)
        wanted = [box for i, (box, met) in enumerate(zip(boxes, meets, strict=True)) if met and i >= last]
        assert found.table.tolist() == placements(wanted, ndim).table.tolist()


@settings(max_examples=examples(100))
@given(st.data())
def test_rows_of_cells(data):
    """The first row, and as many strides as there are cells from the first one."""
    ndim, number = data.draw(st.integers(0, 3)), st.integers(0, 9)
    rows = [[0, *(data.draw(number) for _ in range(3)), *(data.draw(number) - 4 for _ in range(ndim))] for _ in "ab"]
    rows = [[*row, *(data.draw(number) for _ in range(ndim)), *[9] * ndim] for row in rows]
    which = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=4))
    cells = [[data.draw(number) for _ in range(ndim)] for _ in which]
    found = Placements(np.array(rows, np.int64))
    columns = [np.array(column, np.int64) for column in zip(*cells, strict=True)]
    wanted = [
        rows[i][1] + sum((cell[k] - rows[i][4 + ndim + k]) * rows[i][4 + k] for k in range(ndim))
        for i, cell in zip(which, cells, strict=True)
    ]
    assert found.find_rows(np.array(which), columns).tolist() == wanted
    assert found.find_rows(which[0], [column[:1] for column in columns]).reshape(-1).tolist() == wanted[:1]


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_many_placements_are_found_together(is_shuffled):
    """Files that are placed in any order are as many placements, of which none follows the one before."""
    n = 30_000
    begin = np.random.default_rng(0).permutation(n) if is_shuffled else np.arange(n)
    table = np.zeros((n, 4 + 6), np.int64)
    table[:, 6], table[:, 8:] = begin, [1, 2]
    cells = [np.arange(n).repeat(2), np.tile([0, 1], n)]
    assert (begin[Placements(table).find(cells)] == cells[0]).all()


@pytest.mark.parametrize("ndim", [1, 2])
def test_boxes_over_one_another_take_no_hours(ndim):
    """A store of a stranger may have any boxes; cells of some are compared with a look at each box."""
    n, random = 100_000 if ndim == 1 else 30_000, np.random.default_rng(0)
    table = np.zeros((n, 4 + 3 * ndim), np.int64)
    table[:, 4 + ndim : 4 + 2 * ndim], table[:, 4 + 2 * ndim :] = random.integers(1, n, (2, n, ndim))
    cells = random.integers(0, 2 * n, (ndim, 10 * n))
    found, begin = Placements(table), time.process_time()
    shown = found.find(list(cells))
    assert time.process_time() - begin < 10
    for i in range(100):
        shows = ((found.begins <= cells[:, i]) & (found.ends > cells[:, i])).all(1)
        assert shown[i] == np.flatnonzero([True, *shows])[-1] - 1


@pytest.mark.parametrize("n_missing", [0, 1])
@pytest.mark.parametrize("ndim", [2, 3])
def test_thin_boxes_that_cross_take_no_minutes(ndim, n_missing):
    """Rows that were added along one axis, and columns along another, are all within every part of the grid."""
    n, random = 10_000, np.random.default_rng(0)
    table = np.zeros((2 * n, 4 + 3 * ndim), np.int64)
    table[:, 4 + 2 * ndim :] = n - n_missing
    for axis, half in enumerate([slice(None, n), slice(n, None)]):
        table[half, 4 + ndim + axis], table[half, 4 + 2 * ndim + axis] = np.arange(n), 1
    random.shuffle(table)
    cells = random.integers(0, n, (ndim, 500_000))
    found, begin = Placements(table), time.process_time()
    shown = found.find(list(cells))
    assert time.process_time() - begin < 4
    for i in range(100):
        shows = ((found.begins <= cells[:, i]) & (found.ends > cells[:, i])).all(1)
        assert shown[i] == np.flatnonzero([True, *shows])[-1] - 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0, 0, 0, 0, 1 << 61, 0, 9], "beyond all rows"),
        ([0, 1 << 61, 0, 0, 1 << 61, 0, 4], "beyond all rows"),
        ([0, 1 << 61, 0, 0, 1 << 61, 0, 3], "beyond all rows"),
        ([0, 0, 0, 0, -(1 << 61), 0, 4], "beyond all rows"),
        ([0, (1 << 62) + 1, 0, 0, 1, 0, 1], "invalid numbers"),
        ([-1, 0, 0, 0, 1, 0, 1], "invalid numbers"),
        ([0, 0, 0, -1, 1, 0, 1], "invalid numbers"),
        ([0, 0, 0, 0, 1, -1, 2], "invalid numbers"),
        ([0, 0, 0, 0, 1, 0, 0], "invalid numbers"),
        ([0, 0, 0, 0, 1, 0], "invalid placements"),
        ([0, 0, 0, 0, 1, 0, 0.5], "invalid placements"),
    ],
)
def test_damaged_placements_are_an_error(row, message):
    with pytest.raises(MalformedFileError, match=message):
        Placements.from_json([row], 1, where="here")


@pytest.mark.parametrize(
    "row", [[0, 1 << 61, 0, 0, 1 << 61, 0, 2], [0, 1 << 62, 0, 0, 1, 0, 1], [1, 0, 2, 3, -2, 0, 1]]
)
def test_placements_may_be_large(row):
    assert Placements.from_json([row], 1, where="here").table.tolist() == [row]
