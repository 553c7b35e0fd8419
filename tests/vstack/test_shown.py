"""Which placements of a store show rows of a segment, beside painting them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.vstack import shown
from virtualstack.vstack.format.rows import Placements


@pytest.mark.parametrize("batch", [1, 5, 1 << 22])
def test_later_placements_hide_earlier_ones(batch, monkeypatch):
    """As painting boxes one after the other tells."""
    monkeypatch.setattr(shown, "_BATCH_PAIRS", batch)
    random = np.random.default_rng(0)
    for _ in range(100):
        ndim, n = int(random.integers(0, 4)), int(random.integers(0, 12))
        begins = random.integers(0, 6, (n, ndim))
        counts = random.integers(1, 5, (n, ndim))
        table = np.concatenate([np.zeros((n, 4)), np.zeros((n, ndim)), begins, counts], 1).astype(np.int64)
        is_hidden, is_met = shown._hidden(Placements(table))
        boxes = [tuple(slice(b, b + c) for b, c in zip(*row, strict=True)) for row in zip(begins, counts, strict=True)]
        for i, box in enumerate(boxes):
            later = [np.zeros((12,) * ndim, bool) for _ in boxes[i + 1 :]]
            for painted, other in zip(later, boxes[i + 1 :], strict=True):
                painted[other] = True
            assert is_met[i] == any(painted[box].any() for painted in later)
            assert is_hidden[i] == any(painted[box].all() for painted in later)


@pytest.mark.parametrize(("most", "compared"), [(3, True), (2, False)])
def test_pairs_of_placements_are_bounded(most, compared, monkeypatch):
    """Where more would be compared, none is hidden, and any may share a cell."""
    monkeypatch.setattr(shown, "_MAX_PAIRS", most)
    table = np.array([[0, 0, 0, 0, 1, 0, 2]] * 3, np.int64)
    is_hidden, is_met = shown._hidden(Placements(table))
    assert is_hidden.tolist() == [compared, compared, False]
    assert is_met.tolist() == [True, True, not compared]


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
