"""Which placements of a store show rows of a segment, beside painting them."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.vstack import shown
from virtualstack.vstack.format.rows import Placements


def test_placements_that_are_apart_hide_nothing():
    """As painting boxes one after the other tells; boxes in a row along an axis are known to be apart."""
    random = np.random.default_rng(0)
    n_apart = 0
    for _ in range(300):
        ndim, n = int(random.integers(0, 4)), int(random.integers(0, 5))
        begins, counts = random.integers(0, 12, (n, ndim)), random.integers(1, 3, (n, ndim))
        table = np.concatenate([np.zeros((n, 4)), np.zeros((n, ndim)), begins, counts], 1).astype(np.int64)
        painted = np.zeros((14,) * ndim, int)
        for row in zip(begins, counts, strict=True):
            painted[tuple(slice(b, b + c) for b, c in zip(*row, strict=True))] += 1
        if Placements(table).are_apart:
            n_apart += n > 1
            assert painted.max(initial=0) <= 1
    assert n_apart > 50
    row = np.array([[0, 0, 0, 0, 1, 1, i, 0, 1, 9] for i in (2, 0, 1)], np.int64)
    assert Placements(row).are_apart


@settings(max_examples=examples(300))
@given(st.data())
def test_rows_of_a_placement_are_a_run_if_they_follow_each_other(data):
    """In any order of axes; whatever the strides of axes with one cell are."""
    counts = data.draw(st.lists(st.integers(1, 3), max_size=3))
    order = data.draw(st.permutations(range(len(counts))))
    strides, step = [0] * len(counts), 1
    for axis in order:
        strides[axis] = step if counts[axis] > 1 else data.draw(st.integers(-3, 9))
        step *= counts[axis]
    if data.draw(st.booleans()) and counts:
        strides[data.draw(st.integers(0, len(counts) - 1))] = data.draw(st.integers(-3, 9))
    first = data.draw(st.integers(10, 20))
    table = np.array([[0, first, 0, 0, *strides, *[5] * len(counts), *counts]], np.int64)
    cells = itertools.product(*map(range, counts))
    rows = sorted(first + sum(i * step for i, step in zip(cell, strides, strict=True)) for cell in cells)
    follow = rows == list(range(first, first + len(rows)))
    assert shown._run(Placements(table), 0) == ((first, first + len(rows)) if follow else None)


@settings(max_examples=examples(300))
@given(st.sets(st.tuples(st.integers(0, 8), st.integers(1, 5)), max_size=5), st.integers(0, 9))
def test_runs_cover_all_rows(runs, n):
    runs = {(begin, begin + length) for begin, length in runs}
    rows = {row for begin, end in runs for row in range(begin, end)}
    reach = max((end for _, end in runs), default=0)
    has_gap = not set(range(reach)) <= rows
    assert shown._is_all(runs, n) == (not has_gap and reach >= n)
