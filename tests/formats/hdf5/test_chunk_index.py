"""Chunk indexes of every kind, beside what the HDF5 library lists."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from tests.data import make_hdf5_indexes
from tests.data.hdf5_parts import library
from tests.data.make_hdf5_indexes import BUILDS, Build, boundaries, deep, paged
from tests.formats.hdf5.index_reading import (
    check_direct,
    index_of,
    is_listed_wrongly,
    listed,
    rows_of,
    run,
    superblock_of,
)
from virtualstack.formats.hdf5.structures import btree1, requests
from virtualstack.formats.hdf5.structures.requests import Blocks, Span

CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "hdf5"
MOVED = "byte_hdf5_starting_at_offset_1024.nc"  # its superblock was not told that it begins there


def needs_library(build: Build) -> bool:
    return build.k is not None or build.content is make_hdf5_indexes.unfiltered_edges


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.name)
def test_every_chunk_is_where_the_library_says(build, tmp_path):
    """All datasets of a file; where the library's listing is wrong, each chunk has the bytes that it reads directly."""
    if needs_library(build) and library() is None:
        pytest.skip("h5py does not wrap a function that is needed, and its library was not found")
    assert compare_all(build(tmp_path)) > 0


def compare_all(path: Path) -> int:
    """Compare all chunked datasets of a file, and give how many there are."""
    data = path.read_bytes()
    n_datasets = 0
    with h5py.File(path) as file:
        superblock = superblock_of(file, data)
        datasets: list[h5py.Dataset] = []
        file.visititems(lambda _, node: datasets.append(node) if isinstance(node, h5py.Dataset) else None)
        for dataset in datasets:
            index = index_of(dataset, superblock, data)
            if index is None:
                continue
            n_datasets += 1
            rows = rows_of(run(index(), data, superblock.base), superblock.base)
            if is_listed_wrongly(dataset):
                check_direct(dataset, rows, data)
            else:
                assert rows == listed(dataset), dataset.name
    return n_datasets


@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS}")
def test_every_chunk_of_the_corpus_is_where_the_library_says():
    """All chunked datasets of all files that the library opens."""
    n_datasets = 0
    for path in sorted(CORPUS.rglob("*")):
        if path.is_file() and h5py.is_hdf5(path) and path.name != MOVED:
            n_datasets += compare_all(path)
    assert n_datasets > 500


@pytest.mark.parametrize(
    "build", [Build(boundaries, "v110"), Build(paged, "latest"), Build(deep, "earliest")], ids=lambda build: build.name
)
def test_more_blocks_than_go_in_memory_come_in_rounds(build, tmp_path, monkeypatch):
    """No round but those of one block has more bytes than is said, and the chunks are the same."""
    path = build(tmp_path)
    data = path.read_bytes()
    most_rounds = 0
    with h5py.File(path) as file:
        superblock = superblock_of(file, data)
        for dataset in file.values():
            index = index_of(dataset, superblock, data)
            rows = rows_of(run(index(), data))
            with monkeypatch.context() as patch:
                patch.setattr(requests, "ROUND_BYTES", 20_000)
                patch.setattr(requests, "SLICE_BYTES", 5_000)
                patch.setattr(btree1, "SLICE_BYTES", 5_000)
                asked: list[list[Span | Blocks]] = []
                assert rows_of(run(index(), data, 0, asked)) == rows
            for round_ in asked:
                blocks = [request for request in round_ if isinstance(request, Blocks)]
                n_bytes = sum(len(request.addresses) * request.size for request in blocks)
                assert n_bytes <= 20_000 or sum(len(request.addresses) for request in blocks) == 1
            most_rounds = max(most_rounds, len(asked))
    assert most_rounds > 4
