"""Damaged files, and sources that fail."""

import contextlib
import random
import subprocess
import sys

import h5py
import numpy as np
import pytest

from tests.data.files import overwrite
from tests.data.make_hdf5 import A, make
from tests.formats.groups import STORAGE, group_of
from virtualstack.errors import MalformedFileError, SourceNotFoundError, StorageError, VirtualStackError
from virtualstack.location import absolute_url
from virtualstack.readers import HDF5, ReadOptions
from virtualstack.storage import LocalSource, MemorySource
from virtualstack.testing.sources import FaultySource


@pytest.mark.parametrize("data", [b"", b"no HDF5 at all", b"\x89HDF\r\n\x1a\n"])
def test_what_is_no_hdf5_file_is_malformed(data, tmp_path):
    """The message names the file and what to do."""
    path = tmp_path / "x.nc"
    path.write_bytes(data)
    with pytest.raises(
        MalformedFileError, match=r"x\.nc' is truncated, damaged or not an HDF5 file.*etch it again"
    ) as caught:
        group_of(path)
    assert caught.value.url == absolute_url(path)


def test_missing_files_and_directories(tmp_path):
    """They are errors of storage."""
    with pytest.raises(SourceNotFoundError, match=r"no file at .*nowhere\.nc"):
        group_of(tmp_path / "nowhere.nc")
    with pytest.raises(StorageError, match="is a directory"):
        group_of(tmp_path)


def test_ranges_past_the_end_are_malformed(tmp_path):
    """A chunk index that leads out of the file makes it malformed."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        chunked = file.create_dataset("x", data=A, chunks=(2, 3))
        address = chunked.id.get_chunk_info_by_coord((2, 3)).byte_offset
    data = path.read_bytes()
    path.write_bytes(data.replace(address.to_bytes(8, "little"), (len(data) - 10).to_bytes(8, "little")))
    with pytest.raises(MalformedFileError, match=r"of '/x', .* past the end of the file"):
        group_of(path)


def test_chunk_grids_beyond_memory_are_refused(tmp_path):
    """A dataset of 2^50 chunks, of which none is written, takes no memory."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1 << 50,), "u1", chunks=(1,))
    (refusal,) = group_of(path).refusals
    assert "a chunk grid of 1125899906842624 cells" in refusal.reason


def test_a_chunk_grid_that_memory_has_no_room_for_is_refused(tmp_path, monkeypatch):
    """By name, beside the other datasets of the file."""

    def no_room(*args):
        raise MemoryError

    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("wide", shape=(1 << 20,), chunks=(1,), dtype="i1")
        file["other"] = np.arange(3)
    monkeypatch.setattr("virtualstack.formats.hdf5.references._entries", no_room)
    group = group_of(tmp_path / "x.h5", inline_limit=0)
    assert list(group.arrays) == ["other"]
    assert [x.path for x in group.refusals] == ["/wide"]
    assert "grid of 1048576 cells, whose 25165824 bytes do not fit into memory" in group.refusals[0].reason


def test_an_empty_string_whose_place_is_outside_of_the_file_is_refused(tmp_path):
    """As the HDF5 library refuses it, which looks there even for a string of no letters."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("text", data=["", "abc"], dtype=h5py.string_dtype())
        first = file["text"].id.get_offset()
    overwrite(path, first + 4, (1 << 40).to_bytes(8, "little"))
    (refusal,) = group_of(path).refusals
    assert (refusal.path, refusal.kind) == ("/text", "refused")


def test_failures_of_storage_stay_what_they_are(tmp_path, monkeypatch):
    """A source that fails midway never becomes a refusal or a note."""

    class Failing:
        def __init__(self, after):
            self.after = after

        def source(self, url):
            return FaultySource(STORAGE.source(url), after=self.after)

        def may_open(self, url):
            return True

    monkeypatch.setattr("virtualstack.formats.hdf5.fetch._WHOLE_LOCAL_BYTES", 0)
    path = make("many_attributes", tmp_path)
    for after in (0, 1, 2, 3, 5):
        with pytest.raises(StorageError, match="FaultySource"):
            HDF5().read(absolute_url(path), Failing(after), ReadOptions())


def test_a_file_open_for_writing_elsewhere_is_an_error(tmp_path):
    """The message says what to do."""
    path = make("layouts", tmp_path)
    code = f"import h5py; f = h5py.File({str(path)!r}, 'r+'); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        try:
            with pytest.raises(StorageError, match="is locked: another program has it open for writing"):
                group_of(path)
        finally:
            other.communicate(b"\n")


def test_a_damaged_dataset_is_refused_alone(tmp_path):
    """The others of the file are read."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["good"] = A
        file.create_dataset("bad", data=A, chunks=(2, 3))
    overwrite(path, path.read_bytes().index(b"TREE\x01"), b"EERT")
    group = group_of(path)
    assert set(group.arrays) == {"good"}
    (refusal,) = group.refusals
    assert (refusal.path, refusal.kind) == ("/bad", "refused")
    assert "its chunk index is damaged: a node of a B-tree of chunks does not begin as one" in refusal.reason


@pytest.mark.parametrize("name", ["indexes_latest", "indexes_earliest", "links", "types", "many_attributes"])
def test_flipped_bits_never_raise_anything_unknown(name, tmp_path):
    """Whatever a damaged byte does, it ends as an error of ours or a group."""
    path = make(name, tmp_path)
    data, rng = path.read_bytes(), random.Random(name)
    for _ in range(30):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[rng.randrange(min(len(data), 20000))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with contextlib.suppress(VirtualStackError):
            group_of(path)


def test_sources_that_are_no_local_files(tmp_path):
    """Through `Source` alone the file reads the same."""
    path = make("indexes_latest", tmp_path)

    class Memory:
        def source(self, url):
            return MemorySource(path.read_bytes(), "memory://x.h5")

        def may_open(self, url):
            return True

    local, memory = group_of(path), HDF5().read(absolute_url(path), Memory(), ReadOptions())
    assert isinstance(STORAGE.source(path), LocalSource)
    assert set(local.arrays) == set(memory.arrays)
    for name, array in local.arrays.items():
        ours = memory.arrays[name].manifest
        np.testing.assert_array_equal(array.manifest.entries, ours.entries)
        assert all(location.url == "memory://x.h5" for location in ours.locations)
