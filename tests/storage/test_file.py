import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtualstack.storage import MemorySource, SourceFile
from virtualstack.testing.sources import RecordingSource

DATA = bytes(np.random.default_rng(0).integers(0, 256, 1000, dtype=np.uint8))
STEPS = st.lists(
    st.tuples(st.sampled_from(["seek", "from", "end", "read", "into"]), st.integers(-50, 1100)), max_size=30
)


def remote(data: bytes = DATA) -> RecordingSource:
    return RecordingSource(MemorySource(data, "https://host/file"))


@given(STEPS, st.sampled_from([0, 1, 7, 64, 2000, None]), st.sampled_from([1, 100, 500]))
def test_it_behaves_like_bytesio(steps, block_size, cache_size):
    """Any chain of seeks and reads gives what `io.BytesIO` gives, whatever is kept."""
    with patch("virtualstack.storage.file._CACHE_BYTES", cache_size):
        check_steps(SourceFile(remote(), block_size=block_size), steps, cache_size)


def check_steps(file, steps, cache_size):
    model = io.BytesIO(DATA)
    for verb, number in steps:
        if verb == "read":
            assert file.read(number) == model.read(number)
        elif verb == "into":
            ours, theirs = bytearray(abs(number)), bytearray(abs(number))
            assert file.readinto(ours) == model.readinto(theirs)
            assert ours == theirs
        elif verb == "seek":
            assert file.seek(abs(number)) == model.seek(abs(number))
        elif verb == "from":
            number = max(number, -model.tell())
            assert file.seek(number, io.SEEK_CUR) == model.seek(number, io.SEEK_CUR)
        else:
            assert file.seek(number + 50, io.SEEK_END) == model.seek(number + 50, io.SEEK_END)
        assert file.tell() == model.tell()
        assert sum(map(len, file._blocks.values())) <= max(cache_size, file._block_size)


def test_local_sources_are_read_as_asked():
    """Nothing is kept and no byte too many is read."""
    source = RecordingSource(MemorySource(DATA))
    file = SourceFile(source)
    file.seek(10)
    assert file.read(5) == DATA[10:15]
    assert source.reads == [(10, 5)]


def test_remote_sources_are_read_in_blocks_that_are_kept():
    """A block is fetched once, several missing ones together, the last one as long as it is."""
    source = remote()
    file = SourceFile(source, block_size=300)
    file.seek(310)
    file.read(10)
    file.seek(590)
    file.read(20)
    file.seek(0)
    assert file.read() == DATA
    assert source.reads == [(300, 300), (600, 300), (0, 300), (900, 100)]


def test_small_files_are_fetched_whole():
    """One request serves all reads of a small file."""
    source = remote()
    file = SourceFile(source)
    for _ in range(3):
        file.seek(100)
        file.read(1)
    assert source.reads == [(0, 1000)]


def test_a_read_larger_than_the_cache_goes_past_it(monkeypatch):
    """The blocks that are kept stay."""
    monkeypatch.setattr("virtualstack.storage.file._CACHE_BYTES", 200)
    source = remote()
    file = SourceFile(source, block_size=100)
    file.read(1)
    file.seek(0)
    assert file.read(900) == DATA[:900]
    file.seek(0)
    file.read(1)
    assert source.reads == [(0, 100), (0, 900)]


def test_h5py_reads_through_it():
    """The values are those written."""
    buffer = io.BytesIO()
    values = np.arange(50_000.0).reshape(100, 500)
    with h5py.File(buffer, "w") as file:
        file.create_dataset("x", data=values, chunks=(10, 500), compression="gzip")
    with h5py.File(SourceFile(remote(buffer.getvalue()), block_size=1000)) as file:
        assert np.array_equal(file["x"][...], values)


def test_it_is_a_read_only_binary_file():
    """Its protocol is that of files; writing is refused."""
    file = SourceFile(remote())
    assert (file.readable(), file.seekable(), file.writable(), file.size) == (True, True, False, 1000)
    assert repr(file) == "SourceFile('https://host/file', 1000 bytes)"
    assert io.BufferedReader(file).read(10) == DATA[:10]
    with pytest.raises(ValueError, match=r"position -1 lies before the start of 'https://host/file'"):
        file.seek(-1)
    with pytest.raises(ValueError, match=r"whence must be 0, 1 or 2, not 7"):
        file.seek(0, 7)
    file.close()
    with pytest.raises(ValueError, match=r"the file over 'https://host/file' is closed"):
        file.read(1)


def test_threads_may_share_it(monkeypatch):
    """Reads in parallel take each byte once."""
    monkeypatch.setattr("virtualstack.storage.file._CACHE_BYTES", 50)
    file = SourceFile(remote(), block_size=10)
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: file.read(10), range(100)))
    assert sorted(parts) == sorted(DATA[n : n + 10] for n in range(0, 1000, 10))


def test_it_is_pickled_with_its_position():
    """As dask needs it for files that fsspec opens."""
    file = SourceFile(MemorySource(DATA), block_size=7)
    file.seek(3)
    assert pickle.loads(pickle.dumps(file)).read(5) == DATA[3:8]
