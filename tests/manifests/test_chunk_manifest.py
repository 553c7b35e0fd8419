"""Manifests in memory: how they are made, what they refuse, and how tables are rewritten."""

import math
import pickle
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from virtualstack.codecs.codec import Codec
from virtualstack.errors import ManifestError
from virtualstack.location import Location
from virtualstack.manifests import (
    ABSENT,
    EMPTY,
    ENTRY,
    FIRST,
    INLINE,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    Manifest,
    ManifestArray,
    unify,
)
from virtualstack.manifests.cells import blocks
from virtualstack.manifests.unify import join

ENCODING = ChunkEncoding.c_order("<i4", (2, 2))
FILL = Fill.from_value(-1, "i4")


def manifest(url="file:///a", offsets=((0, 16), (32, 48)), lengths=((16, 16), (16, 16)), **options):
    options = {"location": url, "encoding": ENCODING, "fill": FILL} | options
    return ChunkManifest.from_arrays(np.array(offsets), np.array(lengths), **options)


def test_it_fills_the_protocol():
    """What is in memory is one form of a manifest."""
    assert isinstance(manifest(), Manifest)


def test_a_negative_length_is_an_empty_chunk():
    """Readers mark chunks that were never written by a length below zero."""
    made = manifest(lengths=((16, -1), (16, 16)), offsets=((0, -1), (32, 48)))
    assert made.entries["location"].tolist() == [[FIRST, EMPTY], [FIRST, FIRST]]
    assert made.entries[0, 1] == np.zeros((), ENTRY)
    summary = made.summary()
    assert (summary.n_chunks, summary.n_references, summary.n_empty, summary.nbytes) == (4, 3, 1, 48)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offsets": ((0, -16), (32, 48))}, r"chunk \(0, 1\) in 'file:///a' has a negative offset or length"),
        ({"location": Location("file:///a", size=60)}, r"chunk \(1, 1\) in 'file:///a' reaches past the end"),
        ({"location_codes": FIRST + 1}, "location code beyond the table"),
        ({"encoding_codes": 1}, "code beyond its table"),
        ({"encoding": ChunkEncoding.c_order("<i4", (2,))}, "an encoding has 1 strides; the grid has 2 axes"),
        ({"offsets": ((0, 16, 1), (32, 48, 1))}, "offsets have shape"),
        ({"offsets": ((0.0, 16.5), (32, 48))}, "whole numbers of bytes"),
        ({"offsets": np.array([[2**63, 0], [0, 0]], "u8")}, "offsets reach 9223372036854775808 bytes; .* below 2"),
        ({"offsets": ((2**62, 16), (32, 48)), "lengths": ((2**62, 1), (1, 1))}, "ends at 2\\^63"),
        ({"location": (), "location_codes": INLINE, "inline": b"short"}, "reaches past the end of its source"),
        ({"location_codes": [[ABSENT] * 2] * 2}, "is a hole with an offset or a length"),
        (
            {
                "location_codes": [[EMPTY] * 2] * 2,
                "offsets": [[0] * 2] * 2,
                "lengths": [[0] * 2] * 2,
                "starts": [[1] * 2] * 2,
            },
            "a hole with a start",
        ),
    ],
)
def test_contradictions_are_refused(options, message):
    """Entries from outside are checked against the tables, naming the chunk and its source."""
    with pytest.raises(ManifestError, match=message):
        manifest(**options)


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0), (2, 3, 4), (5, 1, 6), (1, 1, 1), (3, 11)])
@pytest.mark.parametrize("n", [1, 2, 5, 12, 1000])
def test_blocks_are_the_grid_in_c_order(shape, n):
    """Every cell is in one box of at most n cells, and boxes follow each other in C order."""
    numbers = np.arange(math.prod(shape)).reshape(shape)
    parts = [numbers[box].reshape(-1) for box in blocks(shape, n)]
    assert np.concatenate([*parts, []]).tolist() == numbers.reshape(-1).tolist()
    assert all(part.size <= n for part in parts)


def test_of_many_cells_the_first_bad_one_is_named():
    """In C order, by the first rule that is broken anywhere, also where cells are checked in several blocks."""
    offsets = np.arange(3 * 70_000).reshape(3, 70_000)
    lengths = np.ones_like(offsets)
    whole = manifest(offsets=offsets, lengths=lengths, location=Location("file:///a", size=offsets.size))
    for cells, codes, message in (
        ([(1, 69_000), (1, 69_001), (2, 3)], FIRST, r"chunk \(1, 69000\) in 'file:///a' reaches past the end"),
        ([(0, 5)], ABSENT, r"chunk \(0, 5\) is a hole with an offset"),
        ([(2, 69_999)], FIRST + 1, r"chunk \(2, 69999\) has a location code beyond"),
    ):
        entries = whole.entries.copy()
        # a rule that is broken earlier in the grid, but comes later in the list
        entries["length"][0, 9] = offsets.size
        for cell in cells:
            entries["length"][cell], entries["location"][cell] = offsets.size, codes
        if codes == FIRST:
            entries["length"][0, 9] = 1
        with pytest.raises(ManifestError, match=message):
            replace(whole, entries=entries).validate()


def test_checking_takes_little_memory():
    """Entries are checked some at a time, so that a large manifest needs no more than a small one."""
    empty = ChunkManifest.empty((1 << 21,), FILL)
    array = ManifestArray(
        manifest=replace(empty, encodings=(ChunkEncoding.c_order("<i4", (1,)),), starts=np.zeros(1 << 21, np.int64)),
        grid=ChunkGrid.regular((1 << 22,), (2,)),
        dtype=np.dtype("i4"),
    )
    tracemalloc.start()
    array.validate()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"entries": np.zeros(3), "fills": (FILL,)}, "expected ENTRY"),
        ({"entries": np.zeros(3, ENTRY), "fills": ()}, "at least one fill"),
        ({"entries": np.zeros(3, ENTRY), "fills": (FILL,), "starts": np.zeros(2, "i8")}, r"starts have shape \(2,\)"),
    ],
)
def test_parts_must_fit(parts, message):
    """A manifest of parts that do not fit cannot be made."""
    with pytest.raises(ManifestError, match=message):
        ChunkManifest(**parts)


def test_from_dict_takes_keys_of_any_rank():
    """Small manifests can be written by hand; chunks that are absent are EMPTY."""
    made = ChunkManifest.from_dict(
        {"0.1": {"path": "file:///b", "offset": 1, "length": 16}}, shape=(2, 2), encoding=ENCODING, fill=FILL
    )
    assert made.summary().n_empty == 3
    assert made.entries[0, 1].tolist() == (FIRST, 0, 1, 16)
    scalar = ChunkEncoding.c_order("<i4", ())
    for key in ("0", ""):
        chunk = {key: {"path": "file:///b", "offset": 1, "length": 4}}
        assert ChunkManifest.from_dict(chunk, shape=(), encoding=scalar, fill=FILL).shape == ()


@pytest.mark.parametrize("key", ["0", "0.2", "0.-1", "a.b", "0.1.0", "٠.٠"])
def test_keys_outside_of_the_grid_are_refused(key):
    """A key is an index of the grid or an error."""
    with pytest.raises(ManifestError, match=r"is not an index of a grid of shape \(2, 2\)"):
        ChunkManifest.from_dict(
            {key: {"path": "file:///b", "offset": 1, "length": 16}}, shape=(2, 2), encoding=ENCODING, fill=FILL
        )


@pytest.mark.parametrize("key", ["path", "offset", "length"])
def test_a_chunk_needs_its_path_offset_and_length(key):
    chunk = {"path": "file:///b", "offset": 1, "length": 16}
    rest = sorted(chunk.keys() - {key})
    with pytest.raises(ManifestError, match=re.escape(f"needs 'path', 'offset' and 'length', not {rest}")):
        ChunkManifest.from_dict(
            {"0.0": chunk | {"more": 1}, "0.1": chunk, "1.0": {x: chunk[x] for x in rest}},
            shape=(2, 2),
            encoding=ENCODING,
            fill=FILL,
        )


def test_unify_rewrites_every_code():
    """Locations, encodings, fills and inline offsets of several manifests point into shared tables."""
    other = ChunkEncoding.c_order(">i4", (2, 2))
    inline = ChunkManifest.from_bytes(
        [b"x" * 16, b"y" * 16], shape=(2,), encoding=ChunkEncoding.c_order("<i4", (4,)), fill=FILL
    )
    more = ChunkManifest.from_bytes([b"z" * 16], shape=(1,), encoding=ChunkEncoding.c_order("<i4", (4,)), fill=FILL)
    first, second = unify([inline, more])
    assert first.inline == second.inline == b"x" * 16 + b"y" * 16 + b"z" * 16
    assert second.entries["offset"].tolist() == [32]

    a, b = (
        manifest(),
        manifest("file:///b", encoding=other, fill=Fill.from_value(7, "i4"), lengths=((16, -1), (16, 16))),
    )
    left, right = unify([a, b])
    assert left.locations is right.locations
    assert right.locations[int(right.entries["location"][0, 0]) - FIRST].url == "file:///b"
    assert right.encodings[int(right.entries["encoding"][0, 0])] == other
    assert right.fills[int(right.entries["encoding"][0, 1])].value == 7
    assert left.fill == FILL
    assert np.shares_memory(left.entries, a.entries)


def test_unify_looks_at_a_table_once_and_leaves_unused_rows_out():
    """Of tables that are one object, and longer than the chunks that point into it."""
    many = ChunkManifest.from_arrays(
        np.arange(100).reshape(50, 2) * 16,
        np.full((50, 2), 16),
        location=[Location(f"file:///{i}") for i in range(100)],
        location_codes=np.arange(FIRST, 100 + FIRST).reshape(50, 2),
        encoding=[ChunkEncoding.c_order("<i4", (2, 2 + i)) for i in range(100)],
        encoding_codes=np.arange(100).reshape(50, 2),
        fill=FILL,
    )
    rows = [many.read((slice(i, i + 1), slice(0, 2))) for i in (7, 3)]
    joined = join(rows, 0)
    assert [x.url for x in joined.locations] == [f"file:///{i}" for i in (6, 7, 14, 15)]
    assert joined.entries["location"].tolist() == [[FIRST + 2, FIRST + 3], [FIRST, FIRST + 1]]
    assert [x.shape[1] for x in joined.encodings] == [8, 9, 16, 17]
    assert joined.fills == (FILL,)
    whole = join([many.read((slice(i, i + 1), slice(0, 2))) for i in range(50)], 0)
    assert whole.locations == many.locations
    assert (whole.entries == many.entries).all()
    left, right = unify([rows[0], manifest("file:///14")])
    assert left.locations is right.locations
    assert [x.url for x in left.locations] == ["file:///14", "file:///15"]
    assert right.entries["location"].tolist() == [[FIRST] * 2] * 2


def test_heaps_that_are_equal_are_shared_and_unseen_bytes_dropped():
    """One object, or the same bytes; a part that shows little brings what it shows."""
    encoding = ChunkEncoding.c_order("<i4", (1,))

    def heap(*chunks):
        return ChunkManifest.from_bytes(chunks, shape=(len(chunks),), encoding=encoding, fill=FILL)

    letters = heap(b"aaaa", b"bbbb", b"cccc", b"dddd")
    joined = join([letters, heap(b"eeee"), heap(b"aaaa", b"bbbb", b"cccc", b"dddd"), letters], 0)
    assert joined.inline == b"aaaabbbbccccddddeeee"
    assert joined.entries["offset"].tolist() == [0, 4, 8, 12, 16, 0, 4, 8, 12, 0, 4, 8, 12]
    part = letters.read((slice(2, 3),))
    assert join([heap(b"eeee"), part], 0).inline == b"eeeecccc"
    assert join([part, heap(b"eeee")], 0).inline == b"cccceeee"
    assert unify([heap(b"eeee"), letters.read((slice(0, 0),))])[1].inline == b"eeee"
    assert heap(b"aaaa", b"bbbb", b"aaaa", b"cccc").read((slice(0, 3),)).compact().inline == b"aaaabbbb"


def test_a_part_pickles_without_what_the_whole_has():
    """Of tables longer than its entries it takes the rows in use."""
    n = 1000
    whole = ChunkManifest.from_arrays(
        np.arange(n),
        np.ones(n, int),
        location=[Location(f"file:///{i}") for i in range(n)],
        location_codes=np.arange(FIRST, n + FIRST),
        encoding=ChunkEncoding.c_order("<i4", (1,)),
        fill=FILL,
    )
    data = pickle.dumps(whole.read((slice(5, 7),)))
    assert len(data) < 1000
    assert [x.url for x in pickle.loads(data).locations] == ["file:///5", "file:///6"]
    assert pickle.loads(pickle.dumps(whole)).locations == whole.locations
    values = ChunkManifest.from_bytes(
        [bytes([i]) * 1000 for i in range(9)], shape=(9,), encoding=ChunkEncoding.c_order("<i4", (250,)), fill=FILL
    )
    assert pickle.loads(pickle.dumps(values.read((slice(3, 4),)))).inline == b"\3" * 1000


def test_compact_drops_what_no_chunk_uses():
    """Rows of the tables and bytes of the heap go with the last chunk that shows them; the array's fill stays."""
    parts = unify([manifest(f"file:///{i}", encoding=ChunkEncoding.c_order("<i4", (2, 2 + i))) for i in range(3)])
    compacted = parts[1].compact()
    assert [x.url for x in compacted.locations] == ["file:///1"]
    assert [x.shape for x in compacted.encodings] == [(2, 3)]
    assert compacted.fills == (FILL,)
    heap = ChunkManifest.from_bytes(
        [b"a" * 4, b"b" * 4, b"c" * 4], shape=(3,), encoding=ChunkEncoding.c_order("<i4", (1,)), fill=FILL
    )
    kept = heap.read((slice(1, 2),)).compact()
    assert kept.inline == b"bbbb"
    assert kept.entries["offset"].tolist() == [0]


def test_a_box_shares_memory():
    """Reading a box of a manifest in memory copies nothing."""
    whole = manifest()
    assert np.shares_memory(whole.read((slice(0, 1), slice(0, 2))).entries, whole.entries)


def test_pickling_goes_through_the_constructor():
    """A copy is read-only and its views are packed."""
    part = manifest().read((slice(0, 2), slice(1, 2)))
    copy = pickle.loads(pickle.dumps(part))
    assert copy.entries.tolist() == part.entries.tolist()
    assert not copy.entries.flags.writeable
    assert copy.locations == part.locations


def test_holes_count_by_their_kind():
    """ABSENT is not EMPTY: it should be there."""
    missing = ChunkManifest.empty((3,), FILL, code=ABSENT).summary()
    assert (missing.n_empty, missing.n_absent) == (0, 3)
    assert "3 absent" in repr(ChunkManifest.empty((3,), FILL, code=ABSENT))


@pytest.mark.parametrize(
    ("raws", "codecs", "fits"),
    [
        ([b"abcd", b"efgh"], (), True),
        ([b"abcd", b"efg"], (), False),
        ([b"abcde", b"efgh"], (), False),
        ([b"ab", b"e"], (Codec.from_config("numcodecs.zlib", level=1),), True),
    ],
)
def test_inline_chunks_without_codecs_have_the_bytes_of_their_values(raws, codecs, fits):
    """Each of them: one that has not makes the manifest unfit."""
    encoding = ChunkEncoding.c_order("u1", (4,), codecs)
    manifest = ChunkManifest.from_bytes(raws, shape=(2,), encoding=encoding, fill=Fill.from_value(0, "u1"))
    assert manifest.inline_fits() is fits
