import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtualstack.storage import coalesce

RANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=30)
BOUNDS = st.none() | st.integers(1, 50)
DATA = bytes(np.random.default_rng(0).integers(0, 256, 400, dtype=np.uint8))


def columns(ranges):
    table = np.array(ranges, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@given(RANGES, st.integers(0, 20), BOUNDS, BOUNDS)
def test_the_ranges_cut_from_the_answers_are_the_ranges_asked_for(ranges, max_gap, enough, max_length):
    """Cutting what the requests bring gives every range, byte for byte and in the order given."""
    offsets, lengths = columns(ranges)
    plan = coalesce(offsets, lengths, max_gap=max_gap, enough=enough, max_length=max_length)
    answers = [DATA[o : o + n] for o, n in zip(plan.offsets, plan.lengths, strict=True)]
    assert [bytes(part) for part in plan.cut(answers, lengths)] == [DATA[o : o + n] for o, n in ranges]


@given(RANGES, st.integers(0, 20), BOUNDS, BOUNDS)
def test_requests_are_sorted_apart_and_bounded(ranges, max_gap, enough, max_length):
    """Requests never overlap or come empty, stay within max_length, and hold no gap wider than max_gap."""
    offsets, lengths = columns(ranges)
    plan = coalesce(offsets, lengths, max_gap=max_gap, enough=enough, max_length=max_length)
    assert (plan.lengths > 0).all()
    assert (plan.offsets[1:] >= plan.offsets[:-1] + plan.lengths[:-1]).all()
    if max_length is not None:
        assert (plan.lengths <= max_length).all()
    wanted = np.zeros(400, bool)
    for offset, length in ranges:
        wanted[offset : offset + length] = True
    for offset, length in zip(plan.offsets, plan.lengths, strict=True):
        gaps = "".join("x" if want else "." for want in wanted[offset : offset + length]).split("x")
        assert max(map(len, gaps)) <= max_gap


@given(RANGES, st.integers(0, 20))
def test_without_bounds_near_ranges_share_one_request(ranges, max_gap):
    """Two neighbouring requests are more than max_gap apart."""
    offsets, lengths = columns(ranges)
    plan = coalesce(offsets, lengths, max_gap=max_gap)
    assert (plan.offsets[1:] - plan.offsets[:-1] - plan.lengths[:-1] > max_gap).all()


def test_enough_opens_another_request_between_ranges():
    """Adjacent ranges are shared out over several requests, none of them cut."""
    plan = coalesce(np.arange(10) * 10, np.full(10, 10), enough=30)
    assert plan.lengths.tolist() == [30, 30, 30, 10]
    assert plan.request.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_a_million_ranges_are_merged_at_once():
    """Adjacent ranges in random order become one request."""
    order = np.random.default_rng(1).permutation(1_000_000)
    plan = coalesce(order * 8, np.full(order.size, 8))
    assert plan.lengths.tolist() == [8_000_000]
    assert (plan.within == order * 8).all()


@pytest.mark.parametrize("bounds", [{"max_gap": -1}, {"enough": 0}, {"max_length": 0}])
def test_bounds_that_make_no_sense(bounds):
    """Bounds are checked."""
    with pytest.raises(ValueError, match=r"are not valid; give max_gap >= 0, enough >= 1 and max_length >= 1"):
        coalesce(np.array([0]), np.array([1]), **bounds)
