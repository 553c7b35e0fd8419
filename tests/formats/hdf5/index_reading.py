"""Reading chunk indexes in tests: a driver over bytes, what the HDF5 library lists, and where the two are compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from virtualstack.formats.hdf5.structures.chunk_index import ChunkTable, read_chunk_index
from virtualstack.formats.hdf5.structures.layout_message import ChunkedLayout, parse_layout
from virtualstack.formats.hdf5.structures.object_header import read_object_header
from virtualstack.formats.hdf5.structures.requests import Blocks, Parse, Span, StructureError
from virtualstack.formats.hdf5.structures.superblock import Superblock, read_superblock

_LAYOUT, _FILTERS = 0x08, 0x0B


type Bytes = bytes | bytearray | memoryview


def run(parser: Parse[Any], data: Bytes, base: int = 0, rounds: list[Any] | None = None) -> Any:
    """Run a parser over the bytes of a file; `rounds` is given the requests of each round."""
    raw = np.frombuffer(data, np.uint8)[base:]
    answers: list[Any] | None = None
    while True:
        try:
            requests = next(parser) if answers is None else parser.send(answers)
            answers = [answer(request, raw) for request in requests]
            if rounds is not None:
                rounds.append(requests)
        except StopIteration as stop:
            return stop.value


def answer(request: Span | Blocks, raw: np.ndarray) -> bytes | np.ndarray:
    if isinstance(request, Span):
        stop = request.address + request.size
        if not 0 <= request.address <= stop or (stop > len(raw) and not request.is_clipped):
            raise StructureError("past the end")
        return raw[request.address : stop].tobytes()
    addresses, size = request
    if len(addresses) == 0:
        return np.zeros((0, size), np.uint8)
    if addresses.min() < 0 or addresses.max() > len(raw) - size:
        raise StructureError("past the end")
    blocks = np.ndarray((len(raw) - size + 1,), f"V{size}", raw, 0, (1,))
    return blocks[addresses].view(np.uint8).reshape(len(addresses), size)


def superblock_of(file: h5py.File, data: Bytes) -> Superblock:
    base = file.userblock_size
    return run(read_superblock(base, len(data)), data, base)


def index_of(dataset: h5py.Dataset, superblock: Superblock, data: Bytes) -> Callable[[], Parse[ChunkTable]] | None:
    """Give what makes parsers of the chunk index of a dataset; None if it is not chunked."""
    address = h5py.h5g.get_objinfo(dataset.id).objno[0]
    messages = run(read_object_header(address, superblock.widths), data, superblock.base)
    bodies = {message.kind: message.body for message in messages}
    layout = parse_layout(bodies[_LAYOUT], superblock.widths)
    if not isinstance(layout, ChunkedLayout):
        return None
    assert layout.chunk == dataset.chunks
    return partial(
        read_chunk_index,
        layout,
        dataset.shape,
        dataset.maxshape,
        is_filtered=_FILTERS in bodies,
        btree1_k=superblock.chunk_k,
        widths=superblock.widths,
        end=superblock.end,
    )


def index_in(path: Path, name: str = "x") -> tuple[bytearray, Callable[[], Parse[ChunkTable]]]:
    """Return the bytes of a file, and what makes parsers of the chunk index of one of its datasets."""
    data = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        index = index_of(file[name], superblock_of(file, data), data)
    assert index is not None
    return data, index


def rows_of(table: ChunkTable, base: int = 0) -> list[tuple[int, ...]]:
    """Give cell, offset from the start of the file, length and mask of each chunk, by cell."""
    return sorted(zip(*(x.tolist() for x in (table.cell, table.offset + base, table.length, table.mask)), strict=True))


def listed(dataset: h5py.Dataset) -> list[tuple[int, ...]]:
    """Give what the HDF5 library lists: cell, offset from the start of the file, length and mask, by cell."""
    grid = [-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True)]
    found: list[tuple[int, ...]] = []

    def keep(chunk: h5py.h5d.StoreInfo) -> None:
        place = [o // c for o, c in zip(chunk.chunk_offset, dataset.chunks, strict=True)]
        cell = int(np.ravel_multi_index(place, grid))
        found.append((cell, chunk.byte_offset, chunk.size, chunk.filter_mask))

    dataset.id.chunk_iter(keep)
    return sorted(found)


def check_direct(dataset: h5py.Dataset, rows: list[tuple[int, ...]], data: Bytes) -> None:
    """Compare with the stored bytes of each chunk, as the library's listing is wrong (HDF5 2.0)."""
    grid = [-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True)]

    def stored(cell: int) -> tuple[int, bytes]:
        place = np.unravel_index(cell, grid)
        return dataset.id.read_direct_chunk(tuple(int(i) * c for i, c in zip(place, dataset.chunks, strict=True)))

    for cell, offset, length, mask in rows:
        assert stored(cell) == (mask, data[offset : offset + length])
    absent = np.setdiff1d(np.arange(math.prod(grid)), [cell for cell, *_ in rows])
    for cell in np.random.default_rng(0).permutation(absent)[:500].tolist():
        with pytest.raises((RuntimeError, MemoryError)):  # the latter where nothing was ever written
            stored(cell)


def is_listed_wrongly(dataset: h5py.Dataset) -> bool:
    """Whether it has one unlimited axis, which is not the first: the library mislists the extensible array."""
    return sum(n is None for n in dataset.maxshape) == 1 and dataset.maxshape[0] is not None
