"""Reading from a server that fails: the error says which chunk, and no chunk that failed becomes fill values."""

import h5py
import numpy as np
import pytest

import virtualstack as vs
from tests.servers import RangeServer
from virtualstack.errors import (
    AccessDeniedError,
    ChunkDecodeError,
    SourceChangedError,
    SourceNotFoundError,
    StorageError,
)
from virtualstack.reading import read_array


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("remote") / "a.h5"
    with h5py.File(path, "w") as file:
        values = np.arange(4000.0).reshape(40, 100)
        file.create_dataset("v", data=values, chunks=(4, 100), compression="gzip", fletcher32=True)
    return path.read_bytes()


def shorter(server, raw):
    server.files["a.h5"] = raw[:-500]


def gone(server, raw):
    server.files.clear()


def forbidden(server, raw):
    server.mode, server.status = "status", 403


def cut(server, raw):
    server.fault = lambda path: "cut"


def written_again(server, raw):
    server.files["a.h5"] = raw[:-1] + bytes([raw[-1] ^ 1])
    server.modified += 1


def written_at_once(server, raw):
    """Write it again within the second of ``Last-Modified``, as a replica with another etag would look."""
    server.files["a.h5"] = raw[:-1] + bytes([raw[-1] ^ 1])


FAILURES = {
    gone: SourceNotFoundError,
    forbidden: AccessDeniedError,
    cut: StorageError,
    shorter: SourceChangedError,
    written_again: SourceChangedError,
    written_at_once: SourceChangedError,
}


@pytest.mark.parametrize("key", [slice(None), (13, 5), ([13, 1], slice(3))], ids=["all", "one cell", "some cells"])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.__name__)
def test_every_failure_names_the_chunk(stored, failure, key):
    with RangeServer({"a.h5": stored}) as server:
        (group,) = vs.scan([server.url("a.h5")])
        array = group.arrays["v"]
        failure(server, stored)
        with pytest.raises(FAILURES[failure], match=r"cell \(\d, 0\) of variable '/v' \(bytes \d+ to \d+\)") as caught:
            read_array(array, key)
        url = server.url("a.h5")
    error = caught.value
    assert type(error) is FAILURES[failure]
    assert error.variable == "/v"
    assert error.url == url
    entry = array.manifest.entries[error.cell]
    assert (error.offset, error.length) == (entry["offset"], entry["length"])


@pytest.mark.parametrize("key", [slice(None), (13, 5)], ids=["all", "one cell"])
@pytest.mark.parametrize("failure", [gone, forbidden, written_again], ids=lambda failure: failure.__name__)
def test_failed_requests_are_not_repeated(stored, failure, key):
    """A server that is slow to fail is waited for once, however little is read."""
    with RangeServer({"a.h5": stored}) as server:
        (group,) = vs.scan([server.url("a.h5")])
        failure(server, stored)
        server.reset()
        with pytest.raises(FAILURES[failure]):
            read_array(group.arrays["v"], key)
        assert server.n_requests == 1


@pytest.mark.parametrize("key", [slice(None), (13, 5)], ids=["all", "one cell"])
def test_an_etag_alone_is_asked_for_again(stored, key):
    """Replicas behind one name would answer with several; the values are requested once."""
    with RangeServer({"a.h5": stored}) as server:
        (group,) = vs.scan([server.url("a.h5")])
        written_at_once(server, stored)
        server.reset()
        with pytest.raises(SourceChangedError, match=r"its ETag is \w+ instead of \w+"):
            read_array(group.arrays["v"], key)
        assert server.requests == {"GET": 1, "HEAD": 20}


@pytest.mark.parametrize("key", [slice(None), (13, 5)], ids=["all", "one cell"])
def test_a_checksum_that_differs_names_the_chunk(stored, key):
    """Where neither size nor etag tell: the bytes were damaged before they were indexed."""
    with RangeServer({"a.h5": stored}) as server:
        (group,) = vs.scan([server.url("a.h5")])
        entry = group.arrays["v"].manifest.entries[3, 0]
        damaged = bytearray(stored)
        damaged[int(entry["offset"] + entry["length"]) - 1] ^= 1
        server.files["a.h5"] = bytes(damaged)
        (group,) = vs.scan([server.url("a.h5")])
        message = r"cell \(3, 0\) of variable '/v', bytes .* does not decode"
        with pytest.raises(ChunkDecodeError, match=message) as caught:
            read_array(group.arrays["v"], key)
    assert (caught.value.cell, caught.value.offset) == ((3, 0), entry["offset"])
