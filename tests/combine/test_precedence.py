"""Cells of a file and of a store that have the same elements: which are the same, and which contradict."""

from dataclasses import replace

import numpy as np
import pytest

from tests.data.arrays import one_inline_chunk, referenced
from virtualstack.combine.precedence import compare_cells
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
