"""Segments of labels: runs that each part has as a whole, in its order, or lacks."""

import numpy as np
import pandas as pd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.combine.placing import StoreAxis


@settings(max_examples=examples(300), deadline=None)
@given(n=st.integers(1, 12), data=st.data())
def test_segments_put_each_part_where_its_labels_are(n, data):
    """And they are as few as possible: at each inner bound, a part begins or ends."""
    subsets = st.lists(st.integers(0, n - 1), unique=True).map(sorted)
    parts = data.draw(st.lists(subsets, min_size=1, max_size=4))
    check(n, parts)


@given(lacking=st.integers(0, 5))
@example(lacking=2)
def test_one_label_that_a_part_lacks(lacking):
    for others in ([], [range(6)], [range(6), range(lacking + 1)], [range(lacking, 6)]):
        check(6, [[i for i in range(6) if i != lacking], *map(list, others)])


def check(n, parts):
    labels = pd.Index(np.arange(n) * 10)
    axis = StoreAxis.from_labels("x", labels, labels.dtype, [np.array(x, np.intp) for x in parts])
    bounds = axis.bounds.tolist()
    assert (bounds[0], bounds[-1]) == (0, n)
    assert bounds == sorted(set(bounds))
    for own, starts in zip(parts, axis.starts, strict=True):
        found = {}
        for segment, start in starts.items():
            begin, end = axis.span(segment)
            found |= {start + i: begin + i for i in range(end - begin)}
        assert [found.get(i) for i in range(len(found))] == own
    for bound in bounds[1:-1]:
        assert any((bound in own) != (bound - 1 in own) for own in parts)
    assert axis.is_same == (len(parts[0]) == n)
