import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.data.arrays import referenced_array
from virtualstack.errors import CombineError
from virtualstack.manifests import ChunkGrid, Fill, ManifestArray
from virtualstack.manifests.indexing import Chunks
from virtualstack.manifests.mosaic import Runs, Tile, place_tiles, take_runs
from virtualstack.testing.strategies import known_arrays, model_read, store_array

MANY = settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))


def runs_of(index) -> Runs:
    return Runs.from_starts(index, np.ones(len(index), np.int64))


@st.composite
def runs(draw, n: int, size: int | None = None):
    """Some elements of an axis, in order."""
    size = draw(st.integers(0, n)) if size is None else size
    return runs_of(np.sort(draw(st.permutations(range(n)))[:size]).astype(np.int64))


def elements(runs: Runs) -> np.ndarray:
    return np.concatenate(
        [np.arange(a, a + n) for a, n in zip(runs.starts, runs.lengths, strict=True)] or [np.zeros(0, int)]
    ).astype(int)


def array_of(chunks: Chunks, dtype) -> ManifestArray:
    array = ManifestArray(manifest=chunks.manifest, grid=chunks.grid, dtype=dtype)
    array.validate()
    return array


@MANY
@given(st.data())
def test_taking_runs_equals_numpy(data):
    """Any elements in order along one axis: single ones, with a step, or runs of any length."""
    known = data.draw(known_arrays(shape=tuple(data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=3)))))
    axis = data.draw(st.integers(0, known.values.ndim - 1))
    picked = data.draw(runs(known.values.shape[axis]))
    array = array_of(take_runs(known.array.as_chunks(), axis, picked), known.array.dtype)
    expected = known.values.take(elements(picked), axis)
    np.testing.assert_array_equal(model_read(array, known.sources), expected)


@MANY
@given(st.data())
def test_a_mosaic_equals_numpy(data):
    """Tiles of any chunks, codecs and holes at any elements of each axis, overlapping or not: later ones are seen."""
    shape = tuple(data.draw(st.lists(st.integers(0, 7), max_size=3)))
    dtype = data.draw(st.sampled_from(["i2", "f8", "S3"]))
    fill = Fill.from_value(data.draw(st.integers(0, 9)), dtype)
    expected = np.full(shape, fill.value, dtype)
    covered = np.zeros(shape, bool)
    tiles, sources = [], {}
    for _ in range(data.draw(st.integers(0, 4))):
        places = tuple(data.draw(runs(n)) for n in shape)
        known = data.draw(known_arrays(shape=tuple(x.size for x in places), dtype=np.dtype(dtype).str))
        tiles.append(Tile(known.array.as_chunks(), places))
        sources |= known.sources
        place = np.ix_(*map(elements, places))
        expected[place], covered[place] = known.values, True
    made = place_tiles(shape, tiles, fill)
    array = array_of(made.chunks, np.dtype(dtype))
    assert array.shape == shape
    assert array.manifest.fill == fill
    assert made.n_covered == covered.sum()
    np.testing.assert_array_equal(model_read(array, sources), expected)


def chunked(shape, chunks) -> Chunks:
    return referenced_array(shape, chunks, "i1").as_chunks()


FILL = Fill.zero("i1")


def test_whole_chunks_stay_whole():
    """Tiles that meet on chunk lines give the grid of one array, without starts."""
    tiles = [
        Tile(chunked((4, 6), (2, 3)), (Runs.from_starts([4 * i], [4]), Runs.from_starts([6 * j], [6])))
        for i in (0, 1)
        for j in (0, 1)
    ]
    made = place_tiles((8, 12), tiles, FILL).chunks
    assert made.grid == ChunkGrid.regular((8, 12), (2, 3))
    assert made.manifest.starts is None
    assert len(made.manifest.encodings) == 1


def test_what_would_be_too_many_cells_is_refused(monkeypatch):
    """Tiles along a diagonal, or one that is cut at every element."""
    diagonal = [
        Tile(chunked((1, 1), (1, 1)), (Runs.from_starts([2 * i], [1]), Runs.from_starts([2 * i], [1])))
        for i in range(100)
    ]
    with pytest.raises(CombineError, match=r"of 100 arrays do not meet\. .* 40000 cells instead of 100"):
        place_tiles((200, 200), diagonal, FILL)
    monkeypatch.setattr("virtualstack.manifests.mosaic.MAX_MOSAIC_CELLS", 100)
    odd = Runs.from_starts(np.arange(101) * 2, np.ones(101, np.int64))
    with pytest.raises(CombineError, match=r"chunk grid of 101 cells; .* at most 100"):
        place_tiles((1 << 28,), [Tile(chunked((101,), (101,)), (odd,))], FILL)
    with pytest.raises(CombineError, match="chunk grid of 403 cells"):
        take_runs(chunked((1000,), (1000,)), 0, Runs.from_starts(np.arange(202) * 3, np.full(202, 2)))


def test_places_that_are_none_are_refused():
    """Runs that do not ascend, and tiles outside of the array or of other sizes than their place."""
    for starts, lengths in (
        ([3, 1], [1, 1]),
        ([0, 1], [2, 1]),
        ([-1], [1]),
        ([1 << 62], [1 << 62]),
        ([0, 6, 8], [5, 4, 4]),
    ):
        with pytest.raises(ValueError, match="must ascend from 0 on"):
            Runs.from_starts(starts, lengths)
    with pytest.raises(IndexError, match=r"a tile ends at \(5,\), the array at \(4,\)"):
        place_tiles((4,), [Tile(chunked((2,), (1,)), (Runs.from_starts([3], [2]),))], FILL)
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 2"):
        take_runs(chunked((2,), (1,)), 0, Runs.from_starts([1], [2]))
    with pytest.raises(ValueError, match=r"a tile of \(2,\) elements cannot stand for 3 on axis 0"):
        place_tiles((4,), [Tile(chunked((2,), (1,)), (Runs.from_starts([0], [3]),))], FILL)


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_any_elements_of_an_axis_are_taken(chunk):
    """All subsets of seven elements."""
    known = store_array(np.arange(7, dtype="i2"), (chunk,), url=f"memory://mosaic/{chunk}")
    for bits in range(1 << 7):
        index = np.array([i for i in range(7) if bits >> i & 1], np.int64)
        array = array_of(take_runs(known.array.as_chunks(), 0, runs_of(index)), known.array.dtype)
        np.testing.assert_array_equal(model_read(array, known.sources), known.values[index])
