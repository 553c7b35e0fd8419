"""Elements that are added, left out or chosen: every small case, beside numpy."""

from itertools import product

import numpy as np
import pytest

from virtualstack.errors import ChunkAlignmentError, ManifestError
from virtualstack.manifests import Fill, indexing
from virtualstack.manifests.filling import pad_axis_by_elements, reindex_axis
from virtualstack.manifests.index_keys import take_axis
from virtualstack.testing.strategies import model_read, store_array


def known(values, chunks):
    array, values, sources = store_array(values, chunks, url=f"memory://filling/{values.flat[0]}-{chunks}")
    return array, values, sources


def check(array, chunks, sources, expected):
    found = array.with_chunks(chunks)
    found.validate()
    np.testing.assert_array_equal(model_read(found, sources), expected)


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric"])
@pytest.mark.parametrize("chunk", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_any_axis_is_padded_by_its_elements(n, chunk, mode):
    array, values, sources = known(np.arange(1, n + 1, dtype="i2"), (chunk,))
    for width in range(2 * n + 3):
        for widths in ((width, 0), (0, width), (width, 1)):
            padded = pad_axis_by_elements(array.as_chunks(), 0, *widths, mode)
            check(array, padded, sources, np.pad(values, [widths], mode=mode))


@pytest.mark.parametrize("chunk", [1, 2, 3])
@pytest.mark.parametrize(("n", "length"), [(3, 3), (2, 4), (4, 2)])
def test_any_elements_are_taken_and_others_are_holes(n, length, chunk):
    array, values, sources = known(np.arange(1, n + 1, dtype="i2"), (chunk,))
    for index in map(np.array, product(range(-1, n), repeat=length)):
        taken = reindex_axis(array.as_chunks(), 0, index, Fill.from_value(-7, "i2"))
        check(array, taken, sources, np.where(index < 0, -7, values[index]))


@pytest.mark.parametrize("chunk", [2, 3])
def test_any_elements_are_taken_in_any_order(chunk):
    array, values, sources = known(np.arange(1, 6, dtype="i2"), (chunk,))
    for length in range(4):
        for index in product(range(5), repeat=length):
            taken = take_axis(array.as_chunks(), 0, np.array(index, np.int64))
            check(array, taken, sources, values[np.array(index, np.int64)])


@pytest.mark.parametrize("chunks", [((2, 2), (2, 1)), ((1, 2), (3, 1)), ((3, 2), (3, 2))])
def test_any_elements_are_chosen_from_two_arrays(chunks):
    (a, left, one), (b, right, two) = (
        known(np.arange(start, start + 6, dtype="i2").reshape(3, 2), chunk)
        for start, chunk in zip((0, 10), chunks, strict=True)
    )
    for flat in product([False, True], repeat=6):
        condition = np.array(flat).reshape(3, 2)
        found = np.where(condition, a, b)
        found.validate()
        np.testing.assert_array_equal(model_read(found, one | two), np.where(condition, left, right))


def test_an_axis_may_become_as_long_as_can_be_counted():
    array, _, _ = known(np.arange(1, 4, dtype="i2"), (2,))
    most = 2**63 - 1
    assert np.pad(array, (2, most - 5), mode="edge").shape == (most,)
    with pytest.raises(ManifestError, match=rf"axis 0 of 3 elements cannot be padded by 2 and {most - 4}: it would be"):
        np.pad(array, (2, most - 4), mode="edge")


def test_pieces_are_counted_before_chunks_are_cut(monkeypatch):
    array, _, _ = known(np.arange(12, dtype="i2"), (5,))
    assert np.reshape(array, (4, 3)).grid.shape == (4, 3)
    monkeypatch.setattr(indexing, "MAX_CUT_CELLS", 11)
    with pytest.raises(ChunkAlignmentError, match="into 12 pieces, and a manifest has at most 11 of 24 bytes each"):
        np.reshape(array, (4, 3))
    monkeypatch.setattr(indexing, "MAX_CUT_CELLS", 12)
    assert np.reshape(array, (4, 3)).grid.shape == (4, 3)
