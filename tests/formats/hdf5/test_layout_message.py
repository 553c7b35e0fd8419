"""Data layout messages of every version and class."""

from __future__ import annotations

import struct
from collections.abc import Callable

import h5py
import numpy as np
import pytest
from h5py import h5d, h5t

from tests.data.hdf5_parts import dataset_of, properties
from tests.formats.hdf5.index_reading import run, superblock_of
from virtualstack.formats.hdf5.structures.layout_message import (
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
    VirtualLayout,
    parse_layout,
)
from virtualstack.formats.hdf5.structures.object_header import read_object_header
from virtualstack.formats.hdf5.structures.requests import StructureError, Widths

LIBVERS = ["earliest", ("v108", "v108"), ("v110", "v110"), "latest"]


def body_of(path, make: Callable[[h5py.File], h5py.Dataset], libver) -> tuple[bytes, bytes]:
    """Give the bytes of a file with one dataset, and of its layout message."""
    with h5py.File(path, "w", libver=libver) as file:
        dataset = make(file)
        file.flush()
        address = h5py.h5g.get_objinfo(dataset.id).objno[0]
    data = path.read_bytes()
    with h5py.File(path) as file:
        messages = run(read_object_header(address, superblock_of(file, data).widths), data)
    return data, next(message.body for message in messages if message.kind == 8)


def compact(file: h5py.File) -> h5py.Dataset:
    dataset = dataset_of(file, "x", h5t.STD_I16LE, (3,), properties(layout=(h5d.COMPACT,)))
    dataset[...] = [1, 2, 3]
    return dataset


@pytest.mark.parametrize("libver", LIBVERS, ids=str)
def test_compact_values_are_in_the_message(libver, tmp_path):
    """Versions 3 and 4."""
    _, body = body_of(tmp_path / "x.h5", compact, libver)
    layout = parse_layout(body, Widths())
    assert layout == CompactLayout(data=np.array([1, 2, 3], "<i2").tobytes())


@pytest.mark.parametrize("libver", LIBVERS, ids=str)
def test_contiguous_values_are_where_the_message_says(libver, tmp_path):
    """The bytes at the address are the values."""
    values = np.arange(50, dtype="<i4")
    data, body = body_of(tmp_path / "x.h5", lambda file: file.create_dataset("x", data=values), libver)
    layout = parse_layout(body, Widths())
    assert isinstance(layout, ContiguousLayout)
    assert layout.size == values.nbytes
    assert data[layout.address : layout.address + layout.size] == values.tobytes()


@pytest.mark.parametrize("libver", LIBVERS, ids=str)
def test_contiguous_values_that_were_never_written_have_no_address(libver, tmp_path):
    """The undefined address is None, not a number."""
    _, body = body_of(tmp_path / "x.h5", lambda file: file.create_dataset("x", (7,), "i4"), libver)
    assert parse_layout(body, Widths()) == ContiguousLayout(address=None, size=28)


@pytest.mark.parametrize(
    ("maxshape", "index"), [((9, 8), "fixed"), ((None, 8), "extensible"), ((None, None), "btree2")]
)
@pytest.mark.parametrize("libver", LIBVERS, ids=str)
def test_chunks_have_their_shape_and_kind_of_index(maxshape, index, libver, tmp_path):
    """Version 3 has a version 1 B-tree whatever the shape may become."""
    _, body = body_of(
        tmp_path / "x.h5",
        lambda file: file.create_dataset("x", (9, 8), "f8", chunks=(2, 3), maxshape=maxshape, shuffle=True),
        libver,
    )
    layout = parse_layout(body, Widths())
    assert isinstance(layout, ChunkedLayout)
    assert layout.chunk == (2, 3)
    assert layout.element_size == 8
    assert layout.chunk_bytes == 48
    assert layout.kind == (index if layout.version > 3 else "btree1")
    assert layout.version == {"earliest": 3, "latest": 5}.get(libver, 3 if libver == ("v108", "v108") else 4)


def test_a_filtered_single_chunk_says_its_size_and_mask(tmp_path):
    """The bytes at the address are the stored chunk."""

    def make(file: h5py.File) -> h5py.Dataset:
        made = file.create_dataset("x", (4, 5), "u1", chunks=(4, 5), compression="gzip")
        made.id.write_direct_chunk((0, 0), b"stored", filter_mask=1)
        return made

    data, body = body_of(tmp_path / "x.h5", make, "latest")
    layout = parse_layout(body, Widths())
    assert isinstance(layout, ChunkedLayout)
    assert (layout.kind, layout.single_size, layout.single_mask) == ("single", 6, 1)
    assert data[layout.address :][:6] == b"stored"


def test_virtual_datasets_name_an_object_in_the_global_heap(tmp_path):
    """There is a heap collection at the address."""

    def make(file: h5py.File) -> h5py.Dataset:
        layout = h5py.VirtualLayout((4,), "i4")
        layout[:] = h5py.VirtualSource("other.h5", "y", (4,))
        return file.create_virtual_dataset("x", layout)

    data, body = body_of(tmp_path / "x.h5", make, "latest")
    layout = parse_layout(body, Widths())
    assert isinstance(layout, VirtualLayout)
    assert data[layout.address :][:4] == b"GCOL"
    assert layout.number == 1


@pytest.mark.parametrize("version", [1, 2])
def test_messages_of_old_libraries(version):
    """Versions 1 and 2, as the specification writes them: of no library at hand."""
    head = bytes([version, 3])
    chunked = head + bytes([2]) + bytes(5) + struct.pack("<Q3I", 800, 2, 3, 8)
    assert parse_layout(chunked, Widths()) == ChunkedLayout(
        version=version, chunk=(2, 3), element_size=8, kind="btree1", address=800
    )
    contiguous = head + bytes([1]) + bytes(5) + struct.pack("<Q3I", 800, 2, 3, 8)
    assert parse_layout(contiguous, Widths()) == ContiguousLayout(address=800, size=None)
    small = head + bytes([0]) + bytes(5) + struct.pack("<3I", 2, 3, 8) + struct.pack("<I", 4) + b"data"
    assert parse_layout(small, Widths()) == CompactLayout(data=b"data")


CHUNKED = bytes([4, 2, 0, 2, 1, 5, 4])  # version, class, flags, axes, width, length of chunks, bytes of an element
FIXED = CHUNKED + bytes([3, 10]) + struct.pack("<Q", 800)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\x06\x01", "unknown version 6"),
        (b"\x03\x07", "unknown class 7"),
        (b"\x03\x03" + bytes(12), "unknown class 3"),
        (bytes([4, 2, 4]) + FIXED[3:], "unknown flags"),
        (bytes([4, 2, 0, 1]) + FIXED[4:], "0 dimensions"),
        (bytes([4, 2, 0, 34]) + FIXED[4:], "33 dimensions"),
        (bytes([4, 2, 0, 2, 9]) + FIXED[5:], "lengths of 9 bytes"),
        (bytes([4, 2, 0, 2, 1, 0]) + FIXED[6:], "length of 0"),
        (bytes([4, 2, 0, 2, 8]) + struct.pack("<2Q", 1 << 60, 8) + FIXED[7:], "2\\^63 bytes"),
        (CHUNKED + b"\x06" + FIXED[8:], "unknown chunk index type 6"),
        *((FIXED[:n], "ends before its fields do") for n in range(len(FIXED))),
    ],
)
def test_a_message_of_an_unknown_form_is_refused(body, message):
    """Every field is checked, and none is read past the end."""
    with pytest.raises(StructureError, match=message):
        parse_layout(body, Widths())


def test_widths_that_no_other_reader_knows_are_refused():
    """The format allows more than 8 bytes."""
    with pytest.raises(StructureError, match="addresses have 16 bytes"):
        Widths(address=16)
