"""Chunk indexes that contradict themselves, their dataset or their file, with checksums that are right."""

from __future__ import annotations

import struct
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numcodecs.jenkins import jenkins_lookup3

from tests.formats.hdf5.index_reading import index_in, rows_of, run
from virtualstack.formats.hdf5.structures.chunk_index import read_chunk_index
from virtualstack.formats.hdf5.structures.layout_message import ChunkedLayout, ExtensibleArrayParameters
from virtualstack.formats.hdf5.structures.requests import Span, StructureError, Widths

Q = struct.Struct("<Q").pack
UNLIMITED = {"fixed": (40, 6), "extensible": (None, 6), "btree2": (None, None), "btree1": (None, 6)}


class Forgery:
    """A file of one dataset of 20 x 2 chunks of 2 x 4 bytes, whose index can be changed.

    Its structures are numbered as they are read; where there are checksums, they are made right again.
    """

    def __init__(self, folder: Path, kind: str, *, chunks: tuple[int, int] = (2, 4), filtered: bool = False) -> None:
        path = folder / "x.h5"
        shape = tuple(20 * c if i == 0 else 6 for i, c in enumerate(chunks))
        maxshape = tuple(None if m is None else n for n, m in zip(shape, UNLIMITED[kind], strict=True))
        libver = "earliest" if kind == "btree1" else ("v110", "v110")
        with h5py.File(path, "w", libver=libver) as file:
            filters = {"compression": "lzf"} if filtered else {}
            file.create_dataset("x", data=np.ones(shape, "u1"), chunks=chunks, maxshape=maxshape, **filters)
        self.data, index = index_in(path)
        assert isinstance(index, partial)
        self.index = index
        self.layout: ChunkedLayout = index.args[0]
        rounds: list[Any] = []
        self.rows = rows_of(run(index(), self.data, 0, rounds))
        self.places: list[tuple[int, int]] = []
        for request in (request for requests in rounds for request in requests):
            places = [request.address] if isinstance(request, Span) else request.addresses.tolist()
            self.places += [(place, request.size) for place in places]
        self.is_sealed = kind != "btree1"

    def change(self, structure: int, at: int, new: bytes) -> None:
        """Change bytes of a structure, counted from its start."""
        place, size = self.places[structure]
        self.data[place + at : place + at + len(new)] = new
        if self.is_sealed:
            seal = jenkins_lookup3(bytes(self.data[place : place + size - 4]), 0)
            self.data[place + size - 4 : place + size] = seal.to_bytes(4, "little")

    def read(self, **changes: Any) -> list[tuple[int, ...]]:
        return rows_of(run(partial(self.index, **changes)(), self.data))


@pytest.mark.parametrize("kind", UNLIMITED)
@pytest.mark.parametrize("filtered", [False, True])
def test_sealing_again_what_was_not_changed_changes_nothing(kind, filtered, tmp_path):
    """Else the other tests here would see wrong checksums only."""
    forgery = Forgery(tmp_path, kind, filtered=filtered)
    for structure in range(len(forgery.places)):
        forgery.change(structure, 0, b"")
    assert forgery.read() == forgery.rows
    assert len(forgery.rows) == 40


# HDF5 spec III.A and VII: where the fields are in a file with addresses and lengths of 8 bytes
REFUSED = [
    ("fixed", 0, 0, b"FADB", "'FAHD'"),
    ("fixed", 0, 4, b"\x01", "'FAHD'"),
    ("fixed", 0, 5, b"\x01", "'FAHD'"),
    ("fixed", 0, 6, b"\x09", "entry_size 9, where it should be 8"),
    ("fixed", 0, 7, b"\x09", "n_page_bits 9, where it should be 10"),
    ("fixed", 0, 8, Q(41), "n_elements 41, where it should be 40"),
    ("fixed", 0, 16, Q(1 << 40), "past the end"),
    ("fixed", 0, 16, Q((1 << 64) - 2), "a fixed array lies past the end"),
    ("fixed", 1, 0, b"FAHD", "'FADB'"),
    ("fixed", 1, 6, Q(0), "'FADB'"),
    ("fixed", 1, 14, Q(1 << 40), "chunk past the end of the file"),
    ("fixed", 1, 14, Q((1 << 64) - 2), "chunk past the end of the file"),
    ("extensible", 0, 5, b"\x01", "'EAHD'"),
    ("extensible", 0, 6, b"\x09", "entry_size 9, where it should be 8"),
    ("extensible", 0, 7, b"\x21", "n_bits 33, where it should be 32"),
    ("extensible", 0, 44, Q(1 << 62), "an extensible array has 4611686018427387904 elements"),
    ("extensible", 0, 60, Q(1 << 40), "past the end"),
    ("extensible", 1, 6, Q(0), "'EAIB'"),
    ("extensible", 1, 14, Q(1 << 40), "chunk past the end of the file"),
    ("extensible", 1, 46, Q(1 << 40), "data blocks of an extensible array lie past the end"),
    ("extensible", 1, 46, Q((1 << 64) - 2), "data blocks of an extensible array lie past the end"),
    ("extensible", 2, 6, Q(0), "'EADB'"),
    ("btree2", 0, 0, b"BTLF", "'BTHD'"),
    ("btree2", 0, 4, b"\x01", "version 1 of 'BTHD'"),
    ("btree2", 0, 5, b"\x0b", "kind 11, where it should be 10"),
    ("btree2", 0, 6, b"\0\x04", "nodes of another size"),
    ("btree2", 0, 10, b"\0\0", "record_size 0"),
    ("btree2", 0, 10, b"\x19", "records of 25 bytes, not 24"),
    ("btree2", 0, 12, b"\x06", "40 records has a depth of 6"),
    ("btree2", 0, 16, Q((1 << 64) - 1), "40 records is empty"),
    ("btree2", 0, 16, Q((1 << 64) - 2), "lies past the end"),
    ("btree2", 0, 16, Q(1 << 40), "nodes of a B-tree lie past the end"),
    ("btree2", 0, 24, b"\xff", "more records than fit in"),
    ("btree2", 0, 26, Q(39), "more records than its header says"),
    ("btree2", 0, 26, Q(41), "fewer records than its header says"),
    ("btree2", 0, 26, Q(1 << 40), "longer than the file"),
    ("btree2", 1, 0, b"BTIN", "does not begin as one"),
    ("btree2", 1, 6, Q(1 << 40), "chunk past the end of the file"),
    ("btree2", 1, 14, Q((1 << 64) - 2), "outside of the greatest shape"),
    ("btree2", 1, 14, Q(1), "duplicate chunks"),
    ("btree1", 0, 0, b"SNOD", "does not begin as one"),
    ("btree1", 0, 4, b"\0", "does not begin as one"),
    ("btree1", 0, 6, b"\x41", "65 entries, more than 64"),
    ("btree1", 0, 24, b"\x09", "has a wrong size"),
    ("btree1", 0, 32, Q(1), "in the middle of another one"),
    ("btree1", 0, 32, Q(1 << 63), "outside of the greatest shape"),
    ("btree1", 0, 40, Q(8), "outside of the greatest shape"),
    ("btree1", 0, 48, Q(1), "in the middle of an element"),
    ("btree1", 0, 56, Q(1 << 40), "chunk past the end of the file"),
    ("btree1", 0, 40, Q(4), "out of order"),
    ("btree1", 0, 24 + 40 * 40 + 8, Q(0), "out of order"),
]


@pytest.mark.parametrize(("kind", "structure", "at", "new", "message"), REFUSED)
def test_a_field_that_contradicts_another_one_is_refused(kind, structure, at, new, message, tmp_path):
    """Each by its own message, the checksum being right."""
    forgery = Forgery(tmp_path, kind)
    forgery.change(structure, at, new)
    with pytest.raises(StructureError, match=message):
        forgery.read()


@pytest.mark.parametrize(
    ("kind", "at", "new", "message"),
    [
        ("fixed", 22, b"\0", "chunk of no bytes"),
        ("fixed", 22, b"\xff\xff", "chunk past the end of the file"),
        ("extensible", 22, b"\0", "chunk of no bytes"),
    ],
)
def test_a_filtered_chunk_must_have_bytes_of_the_file(kind, at, new, message, tmp_path):
    """The size stands behind the address."""
    forgery = Forgery(tmp_path, kind, filtered=True)
    forgery.change(1, at, new)
    with pytest.raises(StructureError, match=message):
        forgery.read()


def test_chunks_outside_of_the_current_shape_are_left_out(tmp_path):
    """A chunk that lies outside, but where the dataset may grow to, is none of the array."""
    forgery = Forgery(tmp_path, "btree2")
    forgery.change(1, 22, Q(2))
    assert len(forgery.read()) == len(forgery.rows) - 1


def deep_btree1(tmp_path: Path) -> Forgery:
    """Build a tree whose root has two leaves or more."""
    forgery = Forgery(tmp_path, "btree1", chunks=(1, 1))
    assert forgery.data[forgery.places[0][0] + 5] == 1
    return forgery


def test_a_node_that_is_its_own_child_is_refused(tmp_path):
    """The level falls by one from a node to its children, so there is no loop."""
    forgery = deep_btree1(tmp_path)
    root = forgery.places[0][0]
    forgery.change(0, 24 + 32, Q(root))
    with pytest.raises(StructureError, match="nodes of a B-tree overlap"):
        forgery.read()


def test_two_nodes_at_one_place_are_refused(tmp_path):
    """Else a small file has any number of nodes."""
    forgery = deep_btree1(tmp_path)
    forgery.change(0, 24 + 32 + 40, bytes(forgery.data[forgery.places[0][0] + 24 + 32 :][:8]))
    with pytest.raises(StructureError, match="nodes of a B-tree overlap"):
        forgery.read()


def test_a_node_of_another_level_is_refused(tmp_path):
    """A leaf that says that it is none."""
    forgery = deep_btree1(tmp_path)
    forgery.change(1, 5, b"\x01")
    with pytest.raises(StructureError, match="does not begin as one"):
        forgery.read()


@pytest.mark.parametrize(
    ("structure", "at", "new", "message"),
    [
        # between the first two leaves: behind what the second one begins with
        (0, 24 + 40 + 8, Q(119), "out of order"),
        (0, 24 + 40 + 8, Q(1), "out of order"),  # before the last of the first one
        (0, 24 + 40 + 8 + 16, Q(1), "in the middle of an element"),
        (0, 24 + 8, Q(1), "out of order"),
        (0, 6, b"\0\0", "0 entries"),
        (1, 24 + 40 * 3 + 8, Q(1 << 40), "out of order"),  # outside of the shape, as the axis may grow
        (2, 24 + 8, Q(0), "out of order"),
    ],
)
def test_keys_that_lead_elsewhere_are_refused(structure, at, new, message, tmp_path):
    """The HDF5 library would not find the chunks: it searches by these keys."""
    forgery = deep_btree1(tmp_path)
    forgery.change(structure, at, new)
    with pytest.raises(StructureError, match=message):
        forgery.read()


@pytest.mark.parametrize(("level", "n"), [(1, 1000), (2, 5000)])
def test_keys_of_large_trees_are_refused_too(level, n, tmp_path):
    """Those of inner nodes, between leaves and behind the last of a node; and nodes without entries."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("x", data=np.arange(n, dtype="i2"), chunks=(1,), maxshape=(None,))
    data, index = index_in(path)
    assert len(run(index(), data).cell) == n
    refused = {Q(3), Q(n), Q(1 << 40)}
    entry = 24 + 8
    for below in range(level + 1):
        node = data.index(b"TREE\1" + bytes([below]))
        count = int.from_bytes(data[node + 6 : node + 8], "little")
        for number in (1, count // 2, count - 1):
            for new in refused:
                changed = bytearray(data)
                at = node + 24 + number * entry + 8
                if bytes(changed[at : at + 8]) == new:
                    continue
                changed[at : at + 8] = new
                with pytest.raises(StructureError, match=r"out of order|duplicate|middle"):
                    run(index(), bytes(changed))
        if below:
            changed = bytearray(data)
            changed[node + 6 : node + 8] = b"\0\0"
            with pytest.raises(StructureError, match=r"no room for entries|no entries|0 entries"):
                run(index(), bytes(changed))


def test_a_chunk_without_filters_at_an_edge_must_have_its_size(tmp_path):
    """Where a layout message says that chunks that reach past the array have no filters."""
    forgery = Forgery(tmp_path, "fixed", chunks=(50, 4), filtered=True)
    changed = forgery.layout._replace(leaves_edges_unfiltered=True)
    index = partial(forgery.index.func, changed, *forgery.index.args[1:], **forgery.index.keywords)
    with pytest.raises(StructureError, match="without filters of another size than chunks have"):
        run(index(), forgery.data)


SPACE = {"is_filtered": False, "btree1_k": 32, "widths": Widths(), "end": 3000}


def chunked(index: str, chunk: tuple[int, ...] = (1,), **options: Any) -> ChunkedLayout:
    return ChunkedLayout(version=4, chunk=chunk, element_size=1, kind=index, address=0, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout", "shape", "maxshape", "space", "message"),
    [
        (chunked("fixed"), (4, 4), (4, 4), {}, "chunks have 1 axes, the dataset has 2"),
        (chunked("fixed", (1, 1)), (1 << 32, 1 << 31), (1 << 32, 1 << 31), {}, "a grid of"),
        (chunked("single"), (4,), (4,), {}, "a single chunk is for a grid"),
        (chunked("single"), (1,), (1,), {"is_filtered": True}, "filters and no size"),
        (chunked("single", single_size=4), (1,), (1,), {}, "a size without filters"),
        (chunked("implicit"), (4,), (None,), {}, "implicit chunk index"),
        (chunked("implicit"), (4,), (4,), {"is_filtered": True}, "implicit chunk index"),
        (chunked("implicit"), (3001,), (3001,), {}, "past the end"),
        (chunked("implicit"), (4,), (1 << 60,), {}, "past the end"),
        (chunked("fixed", n_page_bits=10), (1,), (None,), {}, "fixed array has an unlimited axis"),
        (chunked("extensible"), (4,), (4,), {}, "0 unlimited axes"),
        (chunked("extensible", (1, 1)), (4, 4), (None, None), {}, "2 unlimited axes"),
    ],
)
def test_a_layout_that_contradicts_the_dataset_is_refused(layout, shape, maxshape, space, message):
    """Before anything is read."""
    with pytest.raises(StructureError, match=message):
        run(read_chunk_index(layout, shape, maxshape, **{**SPACE, **space}), bytes(3000))


def sealed(body: bytes) -> bytes:
    return body + jenkins_lookup3(body, 0).to_bytes(4, "little")


FIXED = sealed(b"FAHD\0\0\x08\x0a" + Q(1 << 40) + Q(28)) + bytes(2000)
EXTENSIBLE = sealed(b"EAHD\0\0\x08\x20\x04\x10\x04\x0a" + bytes(32) + Q(1 << 40) + Q(1 << 40) + Q(72))
SUPER = sealed(b"EAIB\0\0" + Q(0) + b"\xff" * 32 + b"\xff" * 48 + b"\xff" * 192 + Q(0))
BTREE2 = sealed(b"BTHD\0\x0a" + struct.pack("<IHHBBQHQ", 2048, 16, 9, 100, 40, 38, 80, 1 << 40))
PARAMETERS = ExtensibleArrayParameters(n_bits=32, n_index_block=4, n_pointers=4, n_data_block=16, n_page_bits=10)


@pytest.mark.parametrize(
    ("layout", "length", "data", "message"),
    [
        (chunked("fixed", n_page_bits=10), 1 << 40, FIXED, "1099511627776 elements is longer than the file"),
        (chunked("extensible", array=PARAMETERS), None, EXTENSIBLE + SUPER, "longer than the file"),
        (chunked("btree2", node_size=2048), 1 << 40, BTREE2 + bytes(3000), "longer than the file"),
    ],
)
def test_counts_of_a_small_file_do_not_fill_the_memory(layout, length, data, message):
    """No array is made for what the file cannot hold."""
    tracemalloc.start()
    with pytest.raises(StructureError, match=message):
        run(read_chunk_index(layout, (1 << 40,), (length,), **{**SPACE, "end": len(data)}), data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
