"""Manifests as narrow columns: nothing is lost, and a chunk takes a few bytes."""

import copy
import pickle
import tracemalloc
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from virtualstack.errors import ManifestError
from virtualstack.location import Location
from virtualstack.manifests import ABSENT, EMPTY, ENTRY, FIRST, INLINE, ChunkEncoding, ChunkManifest, Fill
from virtualstack.manifests.columns import pack, unpack

INT64 = st.integers(-(2**63), 2**63 - 1)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


@st.composite
def any_entries(draw):
    """Entries of any bits, with or without starts."""
    shape = draw(SHAPES)
    entries = np.zeros(shape, ENTRY)
    for name in ENTRY.names:
        entries[name] = draw(hnp.arrays(ENTRY[name], shape))
    return entries, draw(st.none() | hnp.arrays(np.int64, shape))


@given(any_entries())
def test_any_entries_come_back(given):
    """Bit by bit, whatever they are, holes and damaged ones included."""
    entries, starts = given
    got, got_starts = unpack(pack(entries, starts), entries.shape, ENTRY)
    assert got.tobytes() == entries.tobytes()
    assert got.shape == entries.shape
    assert (got_starts is None) == (starts is None)
    if starts is not None:
        np.testing.assert_array_equal(got_starts, starts)


@given(any_entries())
def test_a_part_of_packed_entries_is_refused(given):
    """However much is cut off; and so is more than there should be."""
    entries, starts = given
    data = pack(entries, starts)
    ends = {len(pack(entries, None))}  # where only the starts are missing, nobody can see it
    for n in range(len(data)):
        if n not in ends:
            with pytest.raises(ManifestError, match="packed entries"):
                unpack(data[:n], entries.shape, ENTRY)
    with pytest.raises(ManifestError, match="packed entries"):
        unpack(data + b"x", entries.shape, ENTRY)


@given(any_entries(), st.data())
def test_damaged_columns_never_end_in_another_error(given, data):
    """One byte that is another gives entries or a typed error."""
    entries, starts = given
    packed = bytearray(pack(entries, starts))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        got, _ = unpack(bytes(packed), entries.shape, ENTRY)
    except ManifestError:
        return
    assert got.shape == entries.shape


def as_chunks(kind, n):
    """One variable of n chunks in a file, as it is usual."""
    random = np.random.default_rng(0)
    lengths = np.full(n, 4096) if kind == "contiguous" else random.normal(120_000, 9000, n).astype(np.int64)
    between = random.normal(100_000, 3000, n).astype(np.int64) if kind == "interleaved" else np.zeros(n, np.int64)
    ends = 10_000 + np.cumsum(lengths + between)
    return ChunkManifest.from_arrays(
        ends - lengths, lengths, location="file:///a", encoding=ENCODING, fill=Fill.zero("f4")
    )


ENCODING = ChunkEncoding.c_order("<f4", (10,))


@pytest.mark.parametrize(("kind", "n_bytes"), [("contiguous", 0.1), ("compressed", 3), ("interleaved", 4.5)])
@pytest.mark.parametrize("n", [3000, 100_000])
def test_a_chunk_takes_a_few_bytes(kind, n_bytes, n):
    """In a pickle, where 24 are in memory."""
    made = as_chunks(kind, n)
    assert len(pickle.dumps(made)) < 1000 + n_bytes * n
    assert pickle.loads(pickle.dumps(made)).entries.tobytes() == made.entries.tobytes()


def test_zeros_that_zstd_made_of_more_are_no_bomb():
    """What is packed decompresses to what its shape needs, not to what it says."""
    data = pack(as_chunks("compressed", 5000).entries, None)
    with pytest.raises(ManifestError, match="packed entries are damaged"):
        unpack(data, (4000,), ENTRY)


def test_bytes_behind_starts_are_counted():
    data = pack(np.zeros(3, ENTRY), np.arange(3))
    for n in (1, 2):
        with pytest.raises(ManifestError, match=f"packed entries have {n} bytes? too many"):
            unpack(data + bytes(n), (3,), ENTRY)


def mixed():
    """Chunks of two sources, holes of two kinds, inline bytes, and starts."""
    entries = np.zeros((2, 3), ENTRY)
    entries["location"] = [[FIRST, EMPTY, FIRST + 1], [ABSENT, INLINE, FIRST]]
    entries["offset"] = [[100, 0, 7], [0, 1, 140]]
    entries["length"] = [[40, 0, 40], [0, 3, 40]]
    entries["encoding"] = [[0, 1, 0], [0, 0, 0]]
    return ChunkManifest(
        entries=entries,
        fills=(Fill.from_value(1, "f4"), Fill.from_value(2, "f4")),
        encodings=(ENCODING.with_strides((0, 1)),),
        locations=(Location("file:///a", 1000), Location("file:///b", None, "tag", 1.5)),
        starts=np.array([[2, 0, 0], [0, 0, 1]]),
        inline=b"abcd",
    )


def test_a_pickled_manifest_has_the_same_tables_and_is_read_only():
    """Through the constructor, so it is as valid as the one before."""
    made = mixed()
    copied = pickle.loads(pickle.dumps(made))
    assert copied.entries.tobytes() == made.entries.tobytes()
    assert copied.starts.tobytes() == made.starts.tobytes()
    for table in ("fills", "encodings", "locations", "inline"):
        assert getattr(copied, table) == getattr(made, table)
    assert not copied.entries.flags.writeable
    assert not copied.starts.flags.writeable
    copied.validate()


def test_a_view_that_is_not_contiguous_pickles():
    """In the order in which it is seen."""
    made = mixed()
    part = ChunkManifest(made.entries.T[::-1], made.fills, made.encodings, made.locations, inline=made.inline)
    assert pickle.loads(pickle.dumps(part)).entries.tobytes() == part.entries.tobytes()


def test_a_deep_copy_is_the_manifest():
    """Nothing of it can change, so xarray's deep copies cost nothing."""
    made = mixed()
    assert copy.deepcopy(made) is made


def test_a_pickle_of_another_shape_is_refused():
    """As the constructor does."""
    restore, (kind, columns, _, *tables) = mixed().__reduce__()
    with pytest.raises(ManifestError, match="packed entries"):
        restore(kind, columns, (3, 3), *tables)


# -- what a few bytes may claim -----------------------------------------------------------------------------------


def test_holes_by_the_hundred_million_take_no_memory():
    """One entry is repeated, there and back."""
    one = np.zeros((), ENTRY)
    one["location"] = ABSENT
    made = ChunkManifest(np.broadcast_to(one, (10_000, 10_000)), (Fill.zero("f4"),))
    tracemalloc.start()
    copied = pickle.loads(pickle.dumps(made))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert copied.shape == made.shape
    assert (copied.entries[9_999, ::999] == one).all()
    assert not copied.entries.flags.writeable


@pytest.mark.parametrize("shape", [(3, 1), (1, 3), (5,), (1, 1, 4)])
def test_an_entry_that_is_repeated_comes_back(shape):
    """Also along axes of one cell."""
    one = np.zeros((), ENTRY)
    one["offset"], one["length"] = 8, 4
    entries = np.broadcast_to(one, shape)
    got, starts = unpack(pack(entries, None), shape, ENTRY)
    assert starts is None
    np.testing.assert_array_equal(got, entries)


def test_entries_take_the_memory_of_their_table_alone():
    made = as_chunks("contiguous", 1_000_000)
    data = pack(made.entries, None)
    tracemalloc.start()
    got, _ = unpack(data, made.shape, ENTRY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert got.tobytes() == made.entries.tobytes()
    assert peak < 1.1 * got.nbytes


@pytest.mark.parametrize(
    "shape",
    [(2**28 + 1,), (10**30,), (-1,), (-50, -3), (0, 2**62, 2**62), (1,) * 65, (0,) * 65, ("3",), (3.0,), (None,)],
    ids=repr,
)
def test_absurd_shapes_are_refused(shape):
    """Though entries that are all the same take no memory: what is done with them does."""
    with pytest.raises(ManifestError, match="packed entries of shape"):
        unpack(pack(np.zeros(3, ENTRY), None), shape, ENTRY)


def test_what_memory_does_not_hold_is_a_typed_error(monkeypatch):
    data = pack(as_chunks("contiguous", 90_000).entries, None)
    monkeypatch.setattr("virtualstack.manifests.columns._all_rows", Mock(side_effect=MemoryError))
    with pytest.raises(ManifestError, match="packed entries of 90000 chunks take 2 MiB, which this machine does not"):
        unpack(data, (90_000,), ENTRY)
