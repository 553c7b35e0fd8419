import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from virtualstack.formats.hdf5.byte_readers import ServerSpeed, merge_ranges

NEAR = 16 * 1024


def edges_of(gaps, length=1000):
    """Stretches of one length with gaps between them."""
    starts = np.append(0, np.cumsum(np.array(gaps, np.int64) + length))
    return np.stack([starts, starts + length], axis=1)


def seconds(edges, speed):
    """How long the pace says that these stretches take."""
    return float(speed.seconds(np.array(len(edges)), (edges[:, 1] - edges[:, 0]).sum()))


gap_lists = st.lists(st.one_of(st.integers(1, 40_000), st.integers(1, 5_000_000)), max_size=40)


@given(gaps=gap_lists, latency=st.floats(1e-3, 1), bandwidth=st.floats(1e6, 1e9), max_waste=st.integers(0, 1 << 24))
def test_no_other_choice_of_gaps_takes_less_time(gaps, latency, bandwidth, max_waste):
    """Of all lengths up to which gaps could be fetched, within what may be wasted, none is estimated to be faster."""
    edges = edges_of(gaps)
    speed = ServerSpeed(latency=latency, bandwidth=bandwidth, n_parallel=4)
    found = merge_ranges(edges, speed, max_waste=max_waste)
    assert set(found[:, 0]) <= set(edges[:, 0])
    assert set(found[:, 1]) <= set(edges[:, 1])
    assert (found[0, 0], found[-1, 1]) == (0, edges[-1, 1])
    waste = int((found[:, 1] - found[:, 0]).sum() - (edges[:, 1] - edges[:, 0]).sum())
    assert waste <= max(max_waste, sum(gap for gap in gaps if gap <= NEAR))
    for longest in {NEAR, *(gap for gap in gaps if gap > NEAR)}:
        is_cut = np.array(gaps) > longest
        if sum(gap for gap in gaps if gap <= longest) <= max_waste:
            other = np.stack([edges[np.append(True, is_cut), 0], edges[np.append(is_cut, True), 1]], axis=1)
            assert seconds(found, speed) <= seconds(other, speed)


def test_requests_that_fit_side_by_side_are_not_merged_at_the_cost_of_many_bytes():
    """Where the server is slow to answer and quick to send, more is merged; where it is not, less."""
    edges = edges_of([500_000] * 50)
    assert len(merge_ranges(edges, ServerSpeed(latency=0.5, bandwidth=1e9, n_parallel=4), max_waste=1 << 30)) < 10
    assert len(merge_ranges(edges, ServerSpeed(latency=0.01, bandwidth=1e7), max_waste=1 << 30)) == 51


def test_pace_is_learnt_from_answers():
    """A short answer tells of latency, a long one of bandwidth; neither leaves its bounds."""
    speed = ServerSpeed(work=0.0).after(10, 10_000, 0.2)
    assert (speed.latency, speed.bandwidth) == (0.2, ServerSpeed().bandwidth)
    assert speed.after(1, 50_000_000, 1.2).bandwidth == 50e6
    assert speed.after(1, 10_000, 1e-9).latency == 1e-3
    assert speed.after(1, 10_000, 60.0).latency == 1.0
    assert speed.after(1, 1 << 30, 0.0).bandwidth == 1e9
    assert speed.after(1, 1 << 20, 60.0).bandwidth == 10e6
