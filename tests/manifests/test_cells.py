"""How many cells operations leave: chunks are cut where they must be, and nowhere else."""

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from tests.data.arrays import referenced_array
from virtualstack.errors import ChunkAlignmentError, ManifestError
from virtualstack.manifests import ABSENT, ChunkGrid, ChunkManifest, Fill, ManifestArray, inline_array, reindex
from virtualstack.manifests.filling import pad_axis_by_elements
from virtualstack.manifests.index_keys import _runs
from virtualstack.manifests.plain import why_not_plain
from virtualstack.testing.strategies import model_read, store_array


def array(shape=(100, 40, 60), chunks=(10, 20, 20), url="file:///a.nc"):
    return referenced_array(shape, chunks, "<i2", urls=url)


def test_runs_inside_a_chunk_are_one_cell():
    """Of any step, also backwards and repeated."""
    v = array()
    assert v[np.r_[0:10, 30:40]].grid.shape == (2, 2, 3)
    assert v[np.r_[3:25, 60:62]].grid.shape == (4, 2, 3)
    assert v[np.array([9, 7, 5, 12, 15, 18, 40, 40, 40])].grid.shape == (3, 2, 3)
    assert v[:, np.arange(40) % 4 == 1].grid.shape == (10, 2, 3)
    assert why_not_plain(v[np.r_[0:10, 30:40]]) is None
    assert v[np.r_[0:50, 50:100]].equals(v)


@pytest.mark.parametrize("seed", range(40))
def test_runs_have_one_step_and_lie_in_one_cell(seed):
    """There are no more of them than changes of step or cell; four elements with one step are never all cut."""
    rng = np.random.default_rng(seed)
    steps = rng.choice([-2, -1, 0, 1, 1, 1, 2, 5], rng.integers(1, 60))
    index = np.cumsum(np.append(100, np.repeat(steps, rng.choice([1, 1, 2, 3], steps.size))))
    cell = index // rng.integers(3, 50)
    found = _runs(np.diff(index), cell[1:] != cell[:-1])
    runs = np.split(np.arange(index.size), found[1:])
    assert found[0] == 0
    for run in runs:
        assert len(set(cell[run].tolist())) == 1
        assert len(set(np.diff(index[run]).tolist())) <= 1
    for i in range(index.size - 3):
        if len(set(cell[i : i + 4].tolist())) == 1 and len(set(np.diff(index[i : i + 4]).tolist())) == 1:
            assert any(len(set(run.tolist()) & {*range(i, i + 4)}) >= 3 for run in runs)


def test_a_shuffle_of_a_large_chunk_takes_few_encodings():
    """Steps that occur in no three elements in a row make no encoding, and encodings that no cell has are dropped."""
    rng = np.random.default_rng(0)
    v = array((10_000,), (10_000,))
    shuffled = v[rng.permutation(10_000)]
    assert 9_900 <= shuffled.manifest.entries.size <= 10_000
    assert len(shuffled.manifest.encodings) < 10
    assert len(pickle.dumps(shuffled[5:15])) < 2000
    plane = array((300, 300), (300, 300))
    assert len(plane[np.ix_(rng.permutation(300), rng.permutation(300))].manifest.encodings) < 50


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_many_steps_have_the_values_of_numpy(seed):
    rng = np.random.default_rng(seed)
    known = store_array(np.arange(900, dtype="i4"), (250,), url="memory://steps")
    runs = [rng.integers(100, 300) + step * np.arange(n) for step in (2, 3, -2, 5) for n in (1, 2, 3, 20 * abs(step))]
    index = np.concatenate([runs[i] for i in rng.permutation(len(runs))])
    taken = known.array[index]
    taken.validate()
    np.testing.assert_array_equal(model_read(taken, known.sources), known.values[index])
    assert taken.manifest.entries.size < index.size / 2


def test_encodings_that_no_chunk_has_go_with_the_chunks():
    """A few elements of an array that has many encodings have few; one that is a view keeps the table."""
    many = np.concatenate([array((2 * n,), (2 * n,), f"file:///{n}.nc")[:5] for n in range(5, 65)])
    assert len(many.manifest.encodings) == 60
    assert many[5:10].manifest.encodings is many.manifest.encodings
    assert len(many[1:4].manifest.encodings) == 1
    assert len(many[np.array([1, 40, 7])].manifest.encodings) == 3


@pytest.mark.parametrize("step", [2**62, 2**63, 2**70, -(2**62), -(2**63), -(2**70)])
def test_steps_have_no_limit(step):
    """As of numpy: one element is left, and its chunk is seen as before."""
    known = store_array(np.arange(12.0).reshape(3, 4), (2, 2), url="memory://steps")
    taken = known.array[::step]
    taken.validate()
    np.testing.assert_array_equal(model_read(taken, known.sources), known.values[::step])
    assert taken.equals(known.array[:1] if step > 0 else known.array[2:])
    assert taken[:, ::step].manifest.encodings[0].strides == known.array.manifest.encodings[0].strides


def test_strides_do_not_multiply_up():
    """Steps over cells of one element each leave strides as they are; others are never longer than a chunk."""
    v = array((10**15,), (10**13,))
    for _ in range(3):
        v = v[:: 10**4]
    assert v.shape == (1000,)
    assert all(abs(step) <= 10**13 for x in v.manifest.encodings for step in x.strides)
    v.validate()
    mixed = np.concatenate([array((10**12,), (10**12,)), array((100,), (1,), "file:///b.nc")])
    for _ in range(3):
        mixed = mixed[:: 10**3][::-1]
    mixed.validate()
    assert mixed.shape == (1001,)


def test_a_hole_is_one_cell_however_long():
    """Reindexing to 10^9 elements takes no memory for them; the holes keep what they are."""
    tracemalloc.start()
    wanted = np.full(1_000_000, -1)
    wanted[500_000:500_100] = np.arange(100)
    made = reindex(array(), {0: wanted}, -9, code=ABSENT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.shape == (1_000_000, 40, 60)
    assert made.grid.shape == (12, 2, 3)
    assert made.manifest.summary().n_absent == 12
    assert made[500_000:500_100].equals(array())
    assert made.in_memory().fill.value == 0
    assert made[0, 0, 0].in_memory().compact().fills[-1].value == -9
    assert peak < 100e6
    with pytest.raises(IndexError, match="positions from 0 to 100 are out of bounds for axis 0 of 100"):
        reindex(array(), {0: np.array([0, 100])}, 0)
    with pytest.raises(ManifestError, match="does not fit dtype 'int16'"):
        reindex(array(), {0: np.array([0, -1])}, np.nan)


def test_conditions_cut_only_where_they_change():
    """A condition along one axis leaves the others whole; one that is true everywhere cuts nothing."""
    v, w = array(), array(url="file:///b.nc")
    t = np.arange(100)[:, None, None]
    assert np.where(np.broadcast_to(t < 50, v.shape), v, w).grid.shape == (10, 2, 3)
    assert np.where(np.broadcast_to(t < 55, v.shape), v, w).grid.shape == (11, 2, 3)
    assert np.where(t < 200, v, w).equals(v)
    assert np.where(t < 200, v, w).grid == v.grid
    assert np.where(t < 0, v, w).equals(w)


def test_values_in_the_manifest_stand_there_once():
    """However often they are cut, repeated and joined; lines that divide nothing go, as with those of files."""
    v = inline_array(np.arange(5000.0), name="v", dims=("t",), attributes={})
    assert len(np.concatenate([v, v]).manifest.inline) == 40_000
    for cuts in ([20], [1, 2, 4000], range(1, 200)):
        joined = np.concatenate([v[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)])
        assert joined.grid == v.grid
        assert why_not_plain(joined) is None
        assert joined.manifest.inline == v.manifest.inline
        assert joined.equals(v)
    other = inline_array(np.arange(5000.0), name="v", dims=("t",), attributes={})
    assert np.concatenate([v, other]).manifest.inline == v.manifest.inline
    assert np.concatenate([v[:20], other[20:]]).grid == v.grid


def test_padding_by_whole_chunks_stays_regular():
    """And plain, where holes read as the array's own fill value."""
    padded = np.pad(array(), [(20, 30), (0, 0), (0, 20)])
    assert padded.grid == ChunkGrid.regular((150, 40, 80), (10, 20, 20))
    assert why_not_plain(padded) is None
    assert why_not_plain(np.pad(array(), 10, constant_values=1)) == "holes have other fill values than the array"
    assert np.pad(array(), [(0, 10**9), (0, 0), (0, 0)]).grid.shape[0] == 11


@pytest.mark.parametrize("length", [10**9, 2**62])
@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric"])
def test_padding_by_elements_costs_those_elements(length, mode):
    """Neither the axis that is padded nor the other one is counted out."""
    chunks = array((length, 10), (length // 16, 5)).as_chunks()
    tracemalloc.start()
    padded = pad_axis_by_elements(chunks, 0, 2, 3, mode)
    padded = pad_axis_by_elements(padded, 1, 0, 1, mode)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert padded.grid.array_shape == (length + 5, 11)
    assert padded.grid.axes[0].n_cells <= 22
    assert peak < 1_000_000


def test_an_axis_that_nothing_is_put_to_is_as_it_was():
    """Of no width, and without elements too."""
    chunks = array().as_chunks()
    assert pad_axis_by_elements(chunks, 0, 0, 0, "wrap") is chunks
    empty = array()[:0].as_chunks()
    assert pad_axis_by_elements(empty, 0, 0, 0, "edge") is empty
    with pytest.raises(ValueError, match="no elements"):
        pad_axis_by_elements(empty, 0, 1, 0, "edge")
    with pytest.raises(ManifestError, match="too long"):
        pad_axis_by_elements(chunks, 0, 2**63 - 50, 0, "edge")
    with pytest.raises(ChunkAlignmentError, match="pieces"):
        pad_axis_by_elements(chunks, 0, 10**12, 0, "wrap")


def test_reshape_keeps_whole_chunks_whole():
    """Merging axes whose chunks are whole rows cuts nothing, nor does splitting on chunk lines."""
    v = array(chunks=(10, 40, 60))
    assert np.reshape(v, (100, 2400)).grid.shape == (10, 1)
    assert np.reshape(v, -1).grid.shape == (10,)
    assert np.reshape(array(), (10, 10, 40, 60)).grid.shape == (10, 1, 2, 3)
    assert np.reshape(np.reshape(array(), (10, 10, 40, 60)), (100, 40, 60)).equals(array())
    assert np.reshape(array(), (100, 2, 20, 60)).grid.shape == (10, 2, 1, 3)
    assert np.reshape(array(), (100, 2400)).grid.shape == (10, 120)


def test_what_was_cut_and_joined_is_as_it_was():
    """Lines at seams that divide nothing go, and the grid is regular again."""
    v = array()
    for cut in (1, 10, 15, 99):
        joined = np.concatenate([v[:cut], v[cut:]])
        assert joined.grid == v.grid
        assert why_not_plain(joined) is None
    assert np.roll(np.roll(v, 7, 0), -7, 0).grid == v.grid
    holes = ManifestArray(
        manifest=ChunkManifest.empty((10,), Fill.zero("i2")),
        grid=ChunkGrid.regular((100,), (10,)),
        dtype=np.dtype("i2"),
    )
    assert np.concatenate([holes[:50], holes[50:]]).grid == holes.grid


@pytest.mark.parametrize(
    "strides", [((4, 1), (9, 1), True), ((4, 1), (4, 2), False), ((4, 1), (9, 2), False)], ids=repr
)
def test_strides_matter_along_cells_of_several_elements(strides):
    """Cells of one element along an axis begin where they begin."""
    *both, is_same = strides
    arrays = [
        replace(made, manifest=replace(made.in_memory(), encodings=(made.in_memory().encodings[0].with_strides(x),)))
        for made, x in zip([referenced_array((3, 4), (1, 4), lengths=16)] * 2, both, strict=True)
    ]
    assert arrays[0].equals(arrays[1]) is is_same
    assert arrays[1].equals(arrays[0]) is is_same


@pytest.mark.parametrize(("before", "lengths"), [(2, [2, 2, 2]), (4, [2, 2, 2, 2]), (6, [6, 2, 2]), (1, [1, 2, 2])])
def test_holes_beside_an_array_are_no_more_cells_than_it_has(before, lengths):
    padded = np.pad(referenced_array((4,), (2,)), (before, 0), constant_values=0)
    assert padded.grid.axes[0].lengths().tolist() == lengths
