import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from virtualstack.formats.hdf5.byte_readers import FetchedRanges, subtract_ranges

SIZE = 60
DATA = bytes(range(SIZE))
edges = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 12)), max_size=6).map(
    lambda pairs: np.array([(a, min(a + n, SIZE)) for a, n in pairs], np.int64).reshape(-1, 2)
)


def covered(edges):
    """Whether each byte lies in one of the stretches."""
    is_covered = np.zeros(SIZE, bool)
    for start, stop in edges.tolist():
        is_covered[start:stop] = True
    return is_covered


@given(wanted=edges, held=edges)
def test_without_is_the_difference_of_sets_of_bytes(wanted, held):
    """What is left has each wanted byte that is not held, once, in stretches as long as can be."""
    left = subtract_ranges(wanted, held)
    np.testing.assert_array_equal(covered(left), covered(wanted) & ~covered(held))
    assert (left[:, 0] < left[:, 1]).all()
    assert (left[1:, 0] > left[:-1, 1]).all()


@given(rounds=st.lists(edges, max_size=4), offset=st.integers(0, SIZE), size=st.integers(1, 20), data=st.data())
def test_what_is_held_is_given_and_nothing_else(rounds, offset, size, data):
    """Whatever was added in whatever order, bytes are given where all of them were, and are the right ones."""
    held = FetchedRanges()
    is_held = np.zeros(SIZE + 20, bool)
    for added in rounds:
        added = subtract_ranges(added, np.empty((0, 2), np.int64))
        held.add(added, [DATA[start:stop] for start, stop in added.tolist()])
        is_held[:SIZE] |= covered(added)
    np.testing.assert_array_equal(covered(held.edges), is_held[:SIZE])
    assert held.span(offset, size) == (DATA[offset : offset + size] if is_held[offset : offset + size].all() else None)
    offsets = np.array(data.draw(st.lists(st.integers(0, SIZE), min_size=1, max_size=5)))
    blocks = held.blocks(offsets, size)
    if all(is_held[at : at + size].all() for at in offsets):
        assert [bytes(block) for block in blocks] == [DATA[at : at + size] for at in offsets]
    else:
        assert blocks is None
