"""Chunk indexes that are damaged, or made to do harm."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest

from tests.amount import ALL
from tests.data.hdf5_parts import library
from tests.data.make_hdf5_indexes import Build, few, paged, small
from tests.formats.hdf5.index_reading import index_in, rows_of, run
from virtualstack.formats.hdf5.structures import requests
from virtualstack.formats.hdf5.structures.requests import Span, StructureError

MOST = 1000 if ALL else 300  # bytes that are changed of one index


def bytes_read(rounds: list) -> np.ndarray:
    """Give the places of all bytes that were asked for."""
    places = [
        np.arange(request.address, request.address + request.size)
        if isinstance(request, Span)
        else (request.addresses[:, None] + np.arange(request.size)).ravel()
        for requests in rounds
        for request in requests
    ]
    return np.unique(np.concatenate(places))


@pytest.mark.parametrize("libver", ["v110", "latest"])
@pytest.mark.parametrize(
    ("content", "name"),
    [
        *((few, kind + suffix) for kind in ("fixed", "first", "second", "both") for suffix in ("", "_filtered")),
        *((paged, kind + suffix) for kind in ("fixed", "long") for suffix in ("", "_filtered")),
    ],
)
def test_no_changed_byte_passes_where_there_are_checksums(content, name, libver, tmp_path):
    """Each byte of each structure (of large ones some): an error, or the table as it was."""
    data, index = index_in(Build(content, libver)(tmp_path), name)
    rounds: list = []
    rows = rows_of(run(index(), data, 0, rounds))
    places = bytes_read(rounds)
    random = np.random.default_rng(0)
    n_refused = 0
    for place in random.permutation(places)[:MOST].tolist():
        before = data[place]
        data[place] ^= int(random.integers(1, 256))
        try:
            assert rows_of(run(index(), data)) == rows
        except StructureError:
            n_refused += 1
        data[place] = before
    assert n_refused > min(MOST, len(places)) / 2
    assert rows_of(run(index(), data)) == rows


@pytest.mark.parametrize("libver", ["earliest", "v110"])
@pytest.mark.parametrize("suffix", ["", "_filtered"])
@pytest.mark.parametrize("name", ["first", "second", "both"])
def test_a_forger_of_checksums_gets_an_error_or_a_table_within_the_file(name, suffix, libver, tmp_path, monkeypatch):
    """Checksums are taken for right, and up to 3 bytes changed: no other error, no memory that the file cannot need."""
    data, index = index_in(Build(few, libver)(tmp_path), name + suffix)
    layout, shape = index.args[:2]
    n_cells = int(np.prod([-(-n // c) for n, c in zip(shape, layout.chunk, strict=True)]))
    rounds: list = []
    run(index(), data, 0, rounds)
    places = bytes_read(rounds)
    monkeypatch.setattr(requests, "jenkins_lookup3", lambda *_: ANY)
    random = np.random.default_rng(0)
    n_refused = n_read = 0
    tracemalloc.start()
    for _ in range(200):
        changed = data[:]
        for place in random.choice(places, random.integers(1, 4)):
            changed[place] = random.choice([0, 1, 127, 255, random.integers(256)])
        try:
            table = run(index(), changed)
        except StructureError:
            n_refused += 1
            continue
        n_read += 1
        assert len(np.unique(table.cell)) == len(table.cell)
        assert ((table.cell >= 0) & (table.cell < n_cells)).all()
        assert ((table.offset >= 0) & (table.length > 0) & (table.offset + table.length <= len(data))).all()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert n_refused > 0
    assert n_read > 0


LIST = """
import json, sys, h5py
path, name, start = sys.argv[1], sys.argv[2], int(sys.argv[3])
changes = json.load(open(path + ".json"))
data = bytearray(open(path, "rb").read())
for i in range(start, len(changes)):
    place, value = changes[i]
    changed = data[:]
    changed[place] = value
    open(path + ".changed", "wb").write(changed)
    found = []
    print("begin", i, flush=True)
    try:
        with h5py.File(path + ".changed") as file:
            file[name].id.chunk_iter(lambda x: found.append([*x.chunk_offset, x.byte_offset, x.size, x.filter_mask]))
    except Exception as error:
        found = None
    print("end", json.dumps(found), flush=True)
"""


def listings(path: Path, name: str, changes: list[tuple[int, int]]) -> list:
    """Give what the HDF5 library lists after each change of a byte; None for an error, and for a crash."""
    Path(f"{path}.json").write_text(json.dumps(changes))
    found: list = []
    while len(found) < len(changes):
        command = [sys.executable, "-c", LIST, str(path), name, str(len(found))]
        lines = subprocess.run(command, capture_output=True, text=True, timeout=300).stdout.splitlines()
        ended = [json.loads(line[4:]) for line in lines if line.startswith("end ")]
        found += ended
        if len(found) < len(changes):  # it crashed
            found.append(None)
    return found


@pytest.mark.skipif(library() is None, reason="h5py does not wrap a function that is needed, and no library was found")
@pytest.mark.parametrize("name", ["edges_filtered", "second"])
def test_damaged_btrees_without_checksums_read_as_by_the_library_or_not(name, tmp_path):
    """Each byte of each node: an error, or what the library lists of the same bytes, or the table as it was."""
    path = Build(small, "earliest", k=2)(tmp_path)
    data, index = index_in(path, name)
    shape, chunks = index.args[1], index.args[0].chunk
    rounds: list = []
    rows = rows_of(run(index(), data, 0, rounds))
    random = np.random.default_rng(0)
    places = random.permutation(bytes_read(rounds))[:MOST].tolist()
    changes = [(place, data[place] ^ int(random.choice([1, 2, 4, 8, 16, 32, 64, 128, 255]))) for place in places]
    grid = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
    n_refused = 0
    for (place, value), listing in zip(changes, listings(path, name, changes), strict=True):
        before = data[place]
        data[place] = value
        try:
            found = rows_of(run(index(), data))
        except StructureError:
            n_refused += 1
        else:
            assert found == rows or found == inside(listing, shape, chunks, grid), (place, value)
        data[place] = before
    assert n_refused > len(places) / 4


def inside(listing: list | None, shape: tuple, chunks: tuple, grid: list) -> list | None:
    """Give the chunks of a listing that lie inside of an array, as `rows_of` does."""
    if listing is None:
        return None
    return sorted(
        (int(np.ravel_multi_index([o // c for o, c in zip(row, chunks, strict=False)], grid)), *row[-3:])
        for row in listing
        if all(o < n for o, n in zip(row, shape, strict=False))
    )
