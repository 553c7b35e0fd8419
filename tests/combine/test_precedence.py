"""Cells of a file and of a store that have the same elements: which are the same, contradict, and are preferred."""

from dataclasses import replace

import numpy as np
import pytest

from tests.data.arrays import one_inline_chunk, referenced
from virtualstack.combine.precedence import Candidate, Meeting, check_prefer, compare_cells, is_preferred
from virtualstack.errors import CombineError
from virtualstack.location import Location
from virtualstack.manifests import ABSENT, EMPTY, ChunkManifest, Fill


def stored(url, offset, length=4):
    return referenced([offset], [length], (4,), location=f"s3://bucket/{url}.nc")


def inline(number):
    return one_inline_chunk(bytes([number] * 4), (4,), "u1")


def hole(code, fill=0):
    one = inline(0)
    return replace(one, manifest=ChunkManifest.empty((1,), Fill.from_value(fill, "u1"), code=code))


CELLS = {
    "same": [
        (stored("a", 0), stored("a", 0)),
        (inline(1), inline(1)),
        (hole(EMPTY), hole(EMPTY)),
        (hole(ABSENT), hole(ABSENT)),
        (stored("a", 0), hole(ABSENT)),
        (inline(1), hole(ABSENT)),
        (hole(EMPTY), hole(ABSENT)),
    ],
    "take": [
        (stored("a", 0), stored("a", 9)),
        (stored("a", 0), stored("a", 0, 3)),
        (hole(ABSENT), stored("a", 0)),
        (hole(ABSENT), inline(1)),
        (hole(ABSENT), hole(EMPTY)),
    ],
    "clashing": [(stored("a", 0), stored("b", 0)), (stored("a", 0), stored("b", 9))],
    "unknown": [
        (stored("a", 0), hole(EMPTY)),
        (stored("a", 0), inline(1)),
        (hole(EMPTY), stored("a", 0)),
        (hole(EMPTY), inline(1)),
        (hole(EMPTY), hole(EMPTY, 7)),
        (inline(1), inline(2)),
        (inline(1), stored("a", 0)),
        (inline(1), hole(EMPTY)),
    ],
}
PAIRS = [(name, old, new) for name, pairs in CELLS.items() for old, new in pairs]


@pytest.mark.parametrize("seed", range(4))
def test_each_cell_has_one_answer(seed):
    """In any order of cells, and wherever the bytes of INLINE chunks are."""
    pairs = [PAIRS[i] for i in np.random.default_rng(seed).permutation(len(PAIRS))]
    old = np.concatenate([x for _, x, _ in pairs])
    new = np.concatenate([inline(9), *(x for *_, x in pairs)])[4:]
    found = compare_cells(old, new)
    masks = {"take": found.take, "clashing": found.clashing, "unknown": found.unknown}
    answers = [[key for key, mask in masks.items() if mask[i]] for i in range(len(pairs))]
    assert answers == [[] if name == "same" else [name] for name, *_ in pairs]


@pytest.mark.parametrize("code", [EMPTY, ABSENT])
def test_a_file_that_has_nothing_else_changes_nothing(code):
    old = np.concatenate([old for old, _ in CELLS["same"]])
    assert compare_cells(old, old) is None
    assert compare_cells(old, np.concatenate([new for _, new in CELLS["same"]])) is None
    lacking = np.concatenate([hole(ABSENT), old[4:]])
    assert compare_cells(old, lacking) is None
    assert compare_cells(np.concatenate([hole(code), old[4:]]), old).take.any() == (code == ABSENT)


OLD, NEW = (Location(f"s3://bucket/{name}.nc", last_modified=time) for name, time in (("old", 1.0), ("new", 2.0)))
TIMELESS = Location("s3://bucket/timeless.nc")


def preferred(prefer, new, old):
    read = {"s3://bucket/old.nc": {"version": 2}, "s3://bucket/new.nc": {"version": 1}}.__getitem__
    return is_preferred(prefer, new, old, read, name="v", where="time 3")


@pytest.mark.parametrize(
    ("prefer", "is_new"),
    [
        ("first", False),
        ("last", True),
        ("newest", True),
        (lambda file: file.attributes["version"], False),
        (lambda file: -file.attributes["version"], True),
        (lambda file: file.last_modified, True),
        (lambda file: file.url, False),
    ],
)
def test_a_rule_prefers_one_of_two_files(prefer, is_new):
    check_prefer(prefer)
    assert preferred(prefer, NEW, OLD) is is_new


@pytest.mark.parametrize(
    ("prefer", "new", "old", "reason"),
    [
        (None, NEW, OLD, "from 's3://bucket/old.nc', which differ from those of 's3://bucket/new.nc'. To resolve"),
        (
            "newest",
            NEW,
            None,
            "from the store itself, .* of 's3://bucket/new.nc'; prefer= cannot choose, because not both",
        ),
        ("newest", None, OLD, "of the values in memory; prefer= cannot choose, because not both come from files"),
        ("newest", NEW, TIMELESS, "because the keys are None and 2.0"),
        ("newest", TIMELESS, OLD, "because the keys are 1.0 and None"),
        ("newest", OLD, OLD, "because the keys are 1.0 and 1.0"),
        (len, NEW, None, "because not both come from files"),
        (lambda file: 7, NEW, OLD, "because the keys are 7 and 7"),
    ],
)
def test_a_rule_that_cannot_choose_is_an_error_with_both_files(prefer, new, old, reason):
    with pytest.raises(CombineError, match=reason) as caught:
        preferred(prefer, new, old)
    error = caught.value
    assert (error.left, error.right) == (error.left_url, error.right_url)
    assert (error.left_url, error.right_url) == tuple(None if x is None else x.url for x in (old, new))
    assert ("'newest' takes" in str(error)) is (prefer is None or None not in (old, new))


@pytest.mark.parametrize("prefer", ["oldest", "", 1, True, ("first",)])
def test_other_rules_are_refused(prefer):
    with pytest.raises(ValueError, match="it must be 'first', 'last', 'newest' or a function of a file"):
        check_prefer(prefer)


def test_a_candidate_shows_its_url_and_time():
    """How its attributes are read is nobody's concern."""
    assert repr(Candidate("a.nc", None, len)) == "Candidate(url='a.nc', last_modified=None)"
    assert Candidate("a.nc", None, len) == Candidate("a.nc", None, max)


@pytest.mark.parametrize("old_starts", [None, [1, 2]])
@pytest.mark.parametrize("new_starts", [None, [3, 4]])
@pytest.mark.parametrize("take", [[True, False], [False, True], [True, True]])
def test_cells_that_are_taken_keep_their_starts(old_starts, new_starts, take):
    array = referenced([0, 4], [4, 4], (4,))
    old, new = (
        replace(array.in_memory(), starts=None if starts is None else np.array(starts))
        for starts in (old_starts, new_starts)
    )
    take, no = np.array(take), np.zeros(2, bool)
    merged = Meeting(old=old, new=new, grid=array.grid, take=no, clashing=no, unknown=no).merged(array, take)
    starts = np.where(
        take, np.zeros(2) if new_starts is None else new_starts, np.zeros(2) if old_starts is None else old_starts
    )
    found = merged.in_memory().starts
    assert (found is None) == (old_starts is new_starts is None)
    assert (np.zeros(2) if found is None else found).tolist() == starts.tolist()
