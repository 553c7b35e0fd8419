"""Which chunks of a plan are fetched together, and by how many tasks."""

from types import SimpleNamespace

import numpy as np
import pytest

from virtualstack.location import Location
from virtualstack.manifests import FIRST, INLINE
from virtualstack.reading import fetch as fetching
from virtualstack.reading.plan import StoredChunks

LOCATIONS = tuple(Location(f"{scheme}://{i}") for i in range(4) for scheme in ("file", "memory"))


def plan_of(location, length):
    zeros = np.zeros(len(location), np.intp)
    chunks = StoredChunks(
        location=np.array(location, np.uint32),
        offset=zeros.astype(np.int64),
        length=np.array(length, np.int64),
        decoding=zeros,
        is_raw=zeros.astype(bool),
        first=np.append(zeros, 0),
    )
    return SimpleNamespace(chunks=chunks, locations=LOCATIONS)


def batches_one_by_one(location, length, most_bytes, most_files, most_chunks):
    """Return the batches of a walk over the chunks: a chunk more, as long as no limit is passed.

    The first chunk counts as a file, whatever it is.
    """
    found, begin = [], 0
    while begin < len(location):
        end, files = begin, 1
        while end < len(location):
            is_file = location[end] >= FIRST and LOCATIONS[location[end] - FIRST].url.startswith("file")
            files += is_file and end > begin and location[end] != location[end - 1]
            is_full = sum(length[begin : end + 1]) > most_bytes or files > most_files or end - begin == most_chunks
            if end > begin and is_full:
                break
            end += 1
        found.append((begin, end))
        begin = end
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_is_as_long_as_its_limits_allow(monkeypatch, seed):
    rng = np.random.default_rng(seed)
    limits = int(rng.integers(20, 60)), int(rng.integers(1, 4)), int(rng.integers(2, 9))
    for name, limit in zip(("BATCH_BYTES", "_MAX_BATCH_FILES", "_MAX_BATCH_CHUNKS"), limits, strict=True):
        monkeypatch.setattr(fetching, name, limit)
    codes = [INLINE, *range(FIRST, FIRST + len(LOCATIONS))]
    location = np.repeat(rng.choice(codes, 12), rng.integers(1, 4, 12)).tolist()
    length = rng.choice([1, 5, 20, 70], len(location), p=[0.5, 0.3, 0.15, 0.05]).tolist()
    found = list(fetching.batches(plan_of(location, length)))
    assert found == batches_one_by_one(location, length, *limits)


def test_no_chunks_are_no_batch():
    assert list(fetching.batches(plan_of([], []))) == []
