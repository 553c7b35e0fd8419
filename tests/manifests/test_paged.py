"""Manifests in pages: what is read when, and that it is what the manifest in memory has."""

import copy
import itertools
import math
import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.data.watching import memory_below
from tests.forks import forked, forking, waiting_reader
from virtualstack.cache import ByteCache
from virtualstack.errors import ChunkAlignmentError, ManifestError, StorageError
from virtualstack.manifests import (
    ENTRY,
    FIRST,
    INLINE,
    ChunkAxis,
    ChunkGrid,
    ChunkManifest,
    ManifestArray,
    PagedManifest,
    count_states,
)
from virtualstack.manifests import paged as paged_module
from virtualstack.manifests.joining import JoinedManifest
from virtualstack.manifests.view import ManifestView
from virtualstack.reading import read_array
from virtualstack.storage import MemoryTarget
from virtualstack.testing.strategies import HeldPages, basic_keys, in_pages, known_arrays, model_read, store_array

MANY = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
LAZY = ("cut", "step", "point", "new", "transpose", "join", "stack")


def known(shape=(6, 10), chunks=(1, 5), **options):
    values = np.arange(math.prod(shape), dtype="<i4").reshape(shape)
    return store_array(values, chunks, url=f"memory://paged/{id(values)}", **options)


def paged(page_size=4, **options):
    array, values, sources = known(**options)
    made, pages = in_pages(array, page_size)
    return made, pages, values, sources


@st.composite
def picks(draw, shape):
    """Cells of a grid in any order: outer products, points, and both, as reading asks for them."""
    lists = [draw(st.lists(st.integers(0, n - 1), max_size=4)) if n else [] for n in shape]
    if draw(st.booleans()) or not shape:
        return np.ix_(*(np.array(x, int) for x in lists))
    n = min(map(len, lists))
    points = draw(st.sampled_from([(n,), (n, 1), (1, n, 1)]))
    return tuple(np.array(x[:n], int).reshape(points) for x in lists)


def shown(manifest):
    """What each cell shows, whatever the tables."""
    starts = np.zeros(manifest.shape, int) if manifest.starts is None else manifest.starts
    found = []
    for (code, row, offset, length), start in zip(
        manifest.entries.reshape(-1).tolist(), starts.reshape(-1).tolist(), strict=True
    ):
        if code < INLINE:
            found.append((code, manifest.fills[row]))
            continue
        place = (
            manifest.inline[offset : offset + length] if code == INLINE else (manifest.locations[code - FIRST], offset)
        )
        found.append((place, length, start, manifest.encodings[row].decoding()))
    return manifest.shape, found


@MANY
@given(st.data())
def test_lazy_operations_read_no_page_and_equal_numpy(data):
    """Chains of slices, steps, integers, new axes, transposes, joins read nothing; then they have numpy's values."""
    held, values, sources = data.draw(known_arrays())
    array, pages = in_pages(held.whole(), data.draw(st.integers(1, 7)))
    twin = held.whole()
    for _ in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from(LAZY))
        if kind == "cut":
            bounds = [sorted(data.draw(st.integers(0, n)) for _ in range(2)) for n in values.shape]
            key = (*(slice(low, high) for low, high in bounds), ...)
        elif kind == "step":
            step = st.integers(-4, 4).filter(bool)
            key = (*(slice(None, None, data.draw(step)) for _ in values.shape), ...)
        elif kind == "point":
            key = (
                *(data.draw(st.just(slice(None)) | st.integers(0, n - 1)) if n else slice(None) for n in values.shape),
                ...,
            )
        elif kind == "new":
            key = (*(slice(None) for _ in range(data.draw(st.integers(0, values.ndim)))), None, ...)
        if kind in ("cut", "step", "point", "new"):
            if values.ndim < 6 or kind != "new":
                array, twin, values = array[key], twin[key], values[key]
        elif kind == "transpose":
            order = data.draw(st.permutations(range(values.ndim)))
            array, twin, values = array.transpose(order), twin.transpose(order), values.transpose(order)
        elif values.size < 500 and values.ndim < 6 and (values.ndim or kind == "stack"):
            join = np.concatenate if kind == "join" else np.stack
            axis = data.draw(st.integers(0, values.ndim - (kind == "join")))
            array, twin, values = (join([x, x], axis) for x in (array, twin, values))
    assert array.shape == values.shape
    assert pages.read_pages == []
    box = tuple(slice(*sorted(data.draw(st.integers(0, n)) for _ in range(2))) for n in array.manifest.shape)
    assert array.manifest.read(box).shape == tuple(side.stop - side.start for side in box)
    np.testing.assert_array_equal(model_read(array, sources), values)
    cells = data.draw(picks(array.manifest.shape))
    assert shown(array.manifest.pick(cells)) == shown(array.in_memory().pick(cells))
    assert array.in_memory().fill == twin.in_memory().fill
    assert array.equals(twin)
    array.validate()


@MANY
@given(st.data())
def test_views_in_pages_give_the_entries_of_those_in_memory(data):
    """Any basic key gives the same array, cells and all, and reads no page that the key does not meet."""
    held, values, _ = data.draw(known_arrays())
    page_size = data.draw(st.integers(1, 5))
    array, pages = in_pages(held.whole(), page_size)
    key = data.draw(basic_keys(values.shape))
    found, expected = array[key], held.whole()[key]
    assert found.grid == expected.grid
    assert found.equals(expected)
    met = []
    for axis, item in zip(array.grid.axes, key, strict=True):
        elements = np.arange(axis.length)[item if isinstance(item, slice) else [item]]
        cells = axis.find(elements)
        met.append(np.arange(cells.min(), cells.max() + 1) if cells.size else cells)
    rows = np.arange(math.prod(array.grid.shape)).reshape(array.grid.shape)[np.ix_(*met)]
    assert set(pages.read_pages) <= set((rows.reshape(-1) // page_size).tolist())


def test_a_box_reads_the_pages_that_hold_it():
    """Each once; what was read is kept, for pickled copies too."""
    array, pages, values, sources = paged(shape=(6, 10), chunks=(1, 5), page_size=4)
    row = array[3]
    assert pages.read_pages == []
    np.testing.assert_array_equal(model_read(row, sources), values[3])
    assert pages.read_pages == [1]
    np.testing.assert_array_equal(model_read(pickle.loads(pickle.dumps(array))[2:4], sources), values[2:4])
    assert pages.read_pages == [1]
    np.testing.assert_array_equal(model_read(array, sources), values)
    assert sorted(pages.read_pages) == [0, 1, 2]


def test_rows_may_lie_in_any_order():
    """Strides say in which row a cell is: here those of the transposed grid, in the middle of a longer table."""
    array, _, _ = known(shape=(4, 6), chunks=(1, 2))
    entries = array.in_memory().entries
    table = np.zeros(40, ENTRY)
    table[5 : 5 + entries.size] = entries.T.reshape(-1)
    source = HeldPages(replace(array.in_memory(), entries=table), 7)
    manifest = PagedManifest(
        source=source, shape=(4, 3), page_size=7, tables=array.in_memory(), strides=(1, 4), first_row=5
    )
    whole = manifest.read((slice(0, 4), slice(0, 3)))
    assert replace(array, manifest=whole).equals(array)
    assert manifest.read((slice(1, 3), slice(2, 3))).entries["offset"].tolist() == entries["offset"][1:3, 2:3].tolist()


def test_opening_showing_and_copying_read_nothing():
    """repr, notebooks, copies, pickles and the lazy dataset of a virtual one need the tables alone."""
    array, pages, *_ = paged(shape=(4, 6), chunks=(1, 2))
    dataset = xr.Dataset({"v": (("t", "x"), array)})
    for text in (repr(array), array._repr_inline_(80), array._repr_html_(), repr(dataset), repr(dataset.virtual)):
        assert text
    assert array._repr_inline_(80) == "virtual, chunks (1, 2), uncompressed"
    assert "not counted" in array._repr_html_()
    assert (
        repr(dataset.virtual)
        == "<virtual: 1 virtual and 0 loaded variables, 0 references and others that were not counted>"
    )
    assert copy.deepcopy(array).manifest is array.manifest
    assert dataset.copy(deep=True).identical(dataset)
    assert dataset.virtual.nbytes == 0
    assert array.manifest.summary() is None
    joined = xr.concat([dataset, dataset.isel(t=slice(1, 3))], "t")
    opened = joined.virtual.open()
    assert opened.v.shape == (6, 6)
    assert pages.read_pages == []
    assert dataset.virtual.nrefs == 12
    assert sorted(pages.read_pages) == [0, 1, 2]


def test_xarray_keeps_pages_unread():
    """concat along old and new dimensions, isel and transpose; a point then reads the page that it lies in."""
    parts = [paged(shape=(3, 4), chunks=(1, 2), page_size=2) for _ in range(4)]
    datasets = [xr.Dataset({"v": (("t", "x"), array)}) for array, *_ in parts]
    long, stacked = xr.concat(datasets, "t"), xr.concat(datasets, "run")
    point = stacked.transpose("x", "run", "t").isel(run=2, t=1)
    assert all(pages.read_pages == [] for _, pages, *_ in parts)
    assert long.sizes["t"] == 12
    np.testing.assert_array_equal(model_read(point.v.variable._data, parts[2][3]), parts[2][2][1])
    assert [pages.read_pages for _, pages, *_ in parts] == [[], [], [1], []]
    sources = {url: raw for *_, part in parts for url, raw in part.items()}
    np.testing.assert_array_equal(model_read(long.v.variable._data, sources), np.concatenate([x[2] for x in parts]))


def test_many_parts_are_flat_and_found_by_bisection():
    """Joins of joins are one; a slice keeps the parts that it meets; so a pickle of it is small."""
    array, pages, values, sources = paged(shape=(2, 4), chunks=(1, 2), page_size=4)
    tenfold = np.concatenate([array] * 10)
    joined = np.concatenate([tenfold] * 100)
    assert isinstance(joined.manifest, JoinedManifest)
    assert len(joined.manifest.parts) == 1000
    assert joined[1001].manifest.base is array.manifest
    assert isinstance(joined[1001:1004].manifest, ManifestView)
    assert len(joined[1001:1004].manifest.base.parts) == 2
    assert joined[1000:1002].manifest is array.manifest
    assert pages.read_pages == []
    np.testing.assert_array_equal(model_read(joined[1001:1004], sources), np.tile(values, (3, 1))[1:4])


def test_cells_of_a_join_come_in_the_order_asked_for():
    """Whether they are a product, points, or vary along several axes of the result."""
    parts = [known()[0], known()[0], known()[0]]
    joined = np.concatenate([in_pages(part, 5)[0] for part in parts]).manifest
    whole = np.concatenate(parts).in_memory()
    rows, columns = np.array([13, 2, 7, 7, 0, 17]), np.array([1, 0])
    for cells in (
        np.ix_(rows, columns),
        (rows, np.array([0, 1, 1, 0, 1, 0])),
        (rows.reshape(2, 3), columns.reshape(2, 1)),
        (rows[:2].reshape(1, 2), columns.reshape(2, 1)),
        (np.array(9), columns),
    ):
        assert shown(joined.pick(cells)) == shown(whole.pick(cells))


def test_a_join_keeps_its_fill_where_a_part_has_another():
    """The fill value of an array is that of its first part, whichever part a slice leaves."""
    first, _, _ = known(fill=1)
    other, _, _ = known(fill=2, holes=np.full((6, 2), 1, np.uint8))
    joined, twin = (np.concatenate(x) for x in ([in_pages(first, 3)[0], in_pages(other, 3)[0]], [first, other]))
    for key in (slice(7, 9), 7, slice(None)):
        assert joined[key].manifest.tables.fill.value == twin[key].in_memory().fill.value == 1
        assert joined[key].equals(twin[key])
        assert joined[key].in_memory().fill.value == 1


def test_counts_that_are_known_add_up():
    """A source that knows its counts is asked for nothing more."""
    array, pages, *_ = paged(page_size=5)
    counts = array.whole().manifest.summary()
    pages.read_pages.clear()
    sure = replace(array, manifest=replace(array.manifest, counts=counts))
    joined = np.concatenate([sure, sure])
    assert joined.manifest.summary().n_references == 2 * counts.n_references
    assert joined.T[None].manifest.summary() == joined.manifest.summary()
    assert joined[1:].manifest.summary() is None
    assert np.concatenate([sure, array]).manifest.summary() is None
    assert pages.read_pages == []


def test_equal_without_reading():
    """Copies, pickled or not, and the same part of them, are equal as they are; others by their entries."""
    array, pages, *_ = paged()
    again = pickle.loads(pickle.dumps(array))
    assert again.equals(array)
    assert again[1:, 2:].equals(array[1:, 2:])
    assert pages.read_pages == []
    assert not array[1:3].equals(array[2:4])
    other_lines = array.grid.replace(1, ChunkAxis.from_lengths([3, 7]))
    assert not array.equals(replace(array, grid=other_lines))
    assert array.equals(array.whole())


def test_one_page_is_read_once_for_many_threads():
    """Who asks for a page that is being read waits for it; an error reaches all, and is not kept."""
    array, _, _ = known()

    class Slow(HeldPages):
        def read(self, page, /):
            release.wait(5)
            if fails:
                self.read_pages.append(page)
                raise StorageError("no page")
            return super().read(page)

    release, fails = threading.Event(), True
    source = Slow(array.in_memory(), 12)
    manifest = PagedManifest(source=source, shape=(6, 2), page_size=12, tables=array.in_memory())
    found = []

    def read():
        try:
            found.append(manifest.read((slice(0, 6), slice(0, 2))).shape)
        except StorageError as error:
            found.append(str(error))

    for expected in ("no page", (6, 2)):
        release.clear()
        threads = [threading.Thread(target=read) for _ in range(5)]
        for thread in threads:
            thread.start()
        release.set()
        for thread in threads:
            thread.join()
        assert set(found) == {expected}
        found.clear()
        fails = False
        if expected == (6, 2):
            assert source.read_pages.count(0) < 10


@forking
def test_a_child_forked_while_a_page_is_read_reads_it_itself():
    """It does not wait for what only its parent is reading."""
    array, _, _ = known()
    began, goes_on = threading.Event(), threading.Event()

    class Slow(HeldPages):
        def read(self, page, /):
            began.set()
            goes_on.wait(60)
            return super().read(page)

    manifest = PagedManifest(source=Slow(array.in_memory(), 12), shape=(6, 2), page_size=12, tables=array.in_memory())
    box = (slice(0, 6), slice(0, 2))

    def child():
        goes_on.set()
        assert shown(manifest.read(box)) == shown(array.in_memory())

    with waiting_reader(lambda: manifest.read(box), began, goes_on):
        assert forked(child)


def test_rows_lie_in_the_table():
    """Steps may go back, from a row that leaves room for them; a row before the first is refused, not read."""
    array, _, _ = known(shape=(4, 6), chunks=(1, 2))
    source = HeldPages(array.in_memory(), 5)
    manifest = PagedManifest(
        source=source, shape=(4, 3), page_size=5, tables=array.in_memory(), strides=(3, -1), first_row=2
    )
    expected = array.in_memory().read((slice(None), slice(None, None, -1)))
    assert shown(manifest.read((slice(0, 4), slice(0, 3)))) == shown(expected)
    with pytest.raises(ManifestError, match=r"4, 3\) chunks begins in row -1"):
        PagedManifest(source=source, shape=(4, 3), page_size=5, tables=array.in_memory(), strides=(3, -1), first_row=1)


@pytest.mark.parametrize(("length", "n_reads"), [(10, 1), (100_000, 2)])
def test_pages_are_kept_within_bytes_that_include_urls(monkeypatch, length, n_reads):
    """A page of few chunks can have URLs of any length: it is read again rather than kept beyond the bound."""
    monkeypatch.setattr(paged_module, "_PAGES", ByteCache(50_000, paged_module._nbytes))
    array, pages = in_pages(known()[0].rename_locations(lambda url: url + "x" * length), 12)
    for _ in range(2):
        assert array.in_memory().locations[0].url.endswith("x" * length)
    assert pages.read_pages == [0] * n_reads


def test_too_much_at_once_and_short_pages_are_errors():
    """A grid that metadata invent is refused when it would be read, and a part of it is not."""
    array, _, _ = known(shape=(4,), chunks=(1,))
    source = HeldPages(array.in_memory(), 4)

    def manifest(n, page_size):
        return PagedManifest(source=source, shape=(n,), page_size=page_size, tables=array.in_memory(), url="memory://p")

    long = replace(array, manifest=manifest(2**40, 4), grid=ChunkGrid.regular((2**41,), (2,)))
    assert long[2:6].in_memory().entries.size == long[:-4][3:5].in_memory().entries.size == 2
    with pytest.raises(ChunkAlignmentError, match="variable 'v': a slice from within a chunk has 1099511627776 cells"):
        long[1:]
    with pytest.raises(ManifestError, match=r"1099511627776 chunks of 'memory://p' are requested"):
        manifest(2**40, 4).read((slice(0, 2**40),))
    with pytest.raises(ManifestError, match=r"1048576 pages of 'memory://p' are requested"):
        manifest(2**20, 1).read((slice(0, 2**20),))
    with pytest.raises(ManifestError, match=r"page 0 of 'memory://p' has 4 rows; 8 are needed"):
        manifest(20, 8).read((slice(0, 8),))
    with pytest.raises(ManifestError, match="more of them than can be counted"):
        PagedManifest(source=source, shape=(2**40, 2**40), page_size=1, tables=array.in_memory())


def test_reading_skips_pages_between_chunks():
    """Elements in any order and more than once, of chunks that lie apart."""
    array, pages, values, sources = paged(shape=(9,), chunks=(3,), page_size=1)
    ((url, data),) = sources.items()
    MemoryTarget("memory://paged/").put(url.rpartition("/")[2], data)
    for index in ([0, 2, 0, 8], [8, 0, 1, 0]):
        np.testing.assert_array_equal(read_array(array, (np.array(index),)), values[index])
    assert sorted(pages.read_pages) == [0, 2]


@pytest.mark.parametrize(
    ("key", "pages"),
    [
        (np.array([2, 17, 0, 17]), [0, 5]),
        (slice(None, None, 8), [0, 2, 5]),
        (slice(None, None, -8), [1, 3, 6]),
        (np.arange(20) == 10, [3]),
        (slice(2, 9, 2), [0, 1, 2]),
    ],
)
def test_taking_reads_the_pages_of_the_cells_that_it_meets(key, pages):
    """Not those between; cells are those of the array in memory."""
    values = np.arange(20, dtype="i4")
    held, _, sources = store_array(values, (3,), url="memory://paged/taken")
    array, source = in_pages(held, 1)
    taken = array[key]
    if isinstance(key, slice):  # put off
        assert source.read_pages == []
        taken = taken.whole()
    assert sorted(source.read_pages) == pages
    assert taken.grid == held[key].grid
    assert taken.equals(held[key])
    np.testing.assert_array_equal(model_read(taken, sources), values[key])


def test_steps_and_arrays_of_several_axes_stay_what_they_are():
    """Steps over whole chunks are outer, and do not go together with arrays."""
    values = np.arange(6 * 5 * 4, dtype="i4").reshape(6, 5, 4)
    held, _, sources = store_array(values, (1, 1, 1), url="memory://paged/steps")
    array, _ = in_pages(held, 7)
    for key in (
        (slice(None, None, 4), slice(None, None, 2)),
        (slice(None, None, 3), np.array([4, 0]), np.array([3, 1])),
    ):
        found = array[key]
        assert found.equals(held[key])
        np.testing.assert_array_equal(model_read(found, sources), values[key])


def test_two_elements_of_any_array_are_taken():
    """A grid of 2^40 chunks is not read for them."""
    array, values, sources = known(shape=(4,), chunks=(1,))
    source = HeldPages(array.in_memory(), 4)

    class First(HeldPages):
        def read(self, page, /):
            return source.read(0)

    manifest = PagedManifest(source=First(array.in_memory(), 4), shape=(2**40,), page_size=4, tables=array.in_memory())
    long = replace(array, manifest=manifest, grid=ChunkGrid.regular((2**40,), (1,)))
    for key in (np.array([0, 2**40 - 1, 6]), slice(None, None, 2**38 + 1)):
        expected = [0, 3, 2] if isinstance(key, np.ndarray) else [0, 1, 2, 3]
        np.testing.assert_array_equal(model_read(long[key], sources), values[expected])


def test_a_slice_within_the_first_chunk_begins_there():
    """Elements are skipped in the first cell alone, also of a slice of a slice."""
    array, pages, values, sources = paged(shape=(20,), chunks=(6,), page_size=1)
    cut = array[4:][1:][2:]
    assert (cut.manifest.begins, cut.manifest.picked) == ((1,), (range(1, 14),))
    assert pages.read_pages == []
    np.testing.assert_array_equal(model_read(cut, sources), values[7:])
    np.testing.assert_array_equal(model_read(array[13], sources), values[13])
    assert isinstance(array[30:].manifest, ChunkManifest)
    assert isinstance(array[13], ManifestArray)


@pytest.mark.parametrize("axis", [0, 1])
def test_cuts_within_a_chunk_add_up(axis):
    array, _, values, sources = paged(shape=(5, 10), chunks=(2, 5))
    for first, second in itertools.product(range(4), repeat=2):
        keys = [(slice(None),) * axis + (slice(n, None),) for n in (first, second)]
        twice = array[keys[0]][keys[1]]
        np.testing.assert_array_equal(model_read(twice, sources), values[keys[0]][keys[1]])


def test_cells_of_joined_manifests_come_in_the_order_of_the_request():
    joined = np.concatenate([paged(shape=(2, 4), chunks=(1, 2))[0] for _ in range(3)])
    assert isinstance(joined.manifest, JoinedManifest)
    whole = joined.in_memory()
    for rows in itertools.product([0, 1, 2, 5], repeat=3):
        cells = np.ix_(np.array(rows), np.array([1, 0]))
        assert shown(joined.manifest.pick(cells)) == shown(whole.pick(cells))
        points = np.array(rows), np.array([1, 0, 1])
        assert shown(joined.manifest.pick(points)) == shown(whole.pick(points))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (2**63 - 1,)}, None),
        ({"shape": (2**63 - 1,), "first_row": 1}, "more of them than can be counted"),
        ({"shape": (2, 2), "first_row": 2**63 - 5, "strides": (1, 2)}, None),
        ({"shape": (2, 2), "first_row": 2**63 - 4, "strides": (1, 2)}, "more of them than can be counted"),
        ({"shape": (3, 0), "first_row": 4, "strides": (-2, 9)}, None),
        ({"shape": (3, 0), "first_row": 3, "strides": (-2, 9)}, "begins in row -1, before the first of all pages"),
    ],
)
def test_rows_of_a_grid_are_numbers_that_can_be_counted(options, message):
    array, _, _ = known(shape=(4,), chunks=(1,))

    def made():
        return PagedManifest(source=HeldPages(array.in_memory(), 4), page_size=1, tables=array.in_memory(), **options)

    if message is None:
        made()
    else:
        with pytest.raises(ManifestError, match=message):
            made()


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_elements_at_a_distance_are_those_in_memory(chunk):
    """With equal encodings, so that they join without another one."""
    array, _, values, sources = paged(shape=(9,), chunks=(chunk,))
    twin = known(shape=(9,), chunks=(chunk,))[0]
    for start, step in itertools.product(range(9), (-5, -4, -3, -2, 2, 3, 4, 5)):
        found, wanted = array[start::step], twin[start::step]
        np.testing.assert_array_equal(model_read(found, sources), values[start::step])
        assert found.grid == wanted.grid
        assert set(found.in_memory().encodings) == set(wanted.in_memory().compact().encodings)


@pytest.mark.parametrize("block", [3, 10_000])
def test_counting_takes_one_block_at_a_time(monkeypatch, block):
    """The counts are those of all entries in memory, and they are never in memory together."""
    n = 20 if block == 3 else 600
    entries = np.zeros((n, n), ENTRY)
    entries["location"] = np.arange(n * n).reshape(n, n) % 5  # EMPTY, ABSENT, INLINE, and two sources
    entries["length"] = 10 * (entries["location"] >= INLINE)
    array = known()[0]
    tables = array.in_memory()
    whole = replace(tables, entries=entries, locations=tuple(replace(tables.locations[0], url=x) for x in "ab"))
    grid = ChunkGrid.regular((n, 5 * n), (1, 5))
    made, pages = in_pages(replace(array, manifest=whole, grid=grid), 1000)
    monkeypatch.setattr("virtualstack.manifests.counted._BLOCK_CELLS", block)
    monkeypatch.setattr(paged_module, "_PAGES", ByteCache(1 << 20, paged_module._nbytes))
    with memory_below(entries.nbytes / 2 if block > 3 else math.inf):
        assert count_states(made.manifest) == whole.summary()
    assert sorted(set(pages.read_pages)) == list(range(-(-n * n // 1000)))
    two = np.concatenate([made, replace(array, manifest=whole, grid=grid)])
    assert count_states(two.manifest).n_references == 2 * whole.summary().n_references
