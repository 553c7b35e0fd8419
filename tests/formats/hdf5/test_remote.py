from dataclasses import dataclass, replace

import pytest

import virtualstack as vs
from tests.data.make_hdf5_large import make_one_after_another, make_sparse
from tests.latency_server import LatencyServer
from tests.servers import RangeServer
from virtualstack.formats.base import ReadOptions
from virtualstack.formats.hdf5.reader import HDF5
from virtualstack.storage import open_source
from virtualstack.testing.readers import arrays_by_path
from virtualstack.testing.sources import RecordingSource


def chunks(array):
    """Offset and length of every chunk of a variable."""
    found = array.in_memory().entries
    return found["offset"].tolist(), found["length"].tolist()


def entries(dataset):
    """Offset and length of every chunk of every variable."""
    return {name: chunks(variable.data) for name, variable in dataset.variables.items()}


class Far(RecordingSource):
    """A local file that is taken for a remote one."""

    n_rounds = 0

    @property
    def location(self):
        return replace(super().location, url="https://host/far.nc")

    def read_ranges(self, ranges):
        self.n_rounds += 1
        return super().read_ranges(ranges)


@dataclass
class FarStorage:
    """Gives one source, whatever is asked for."""

    far: Far

    def source(self, url):
        return self.far

    def may_open(self, url):
        return True


@pytest.mark.parametrize(("libver", "n_rounds"), [("earliest", 6), ("latest", 8)])
def test_metadata_all_over_a_file_comes_in_few_rounds(libver, n_rounds, tmp_path):
    """Headers and indexes that lie between the values are fetched side by side, and the values are not."""
    path = make_one_after_another(tmp_path / "far.nc", libver=libver, n_times=5)
    far = Far(open_source(path))
    group = HDF5().read("https://host/far.nc", FarStorage(far), ReadOptions())
    assert far.n_rounds <= n_rounds
    assert far.bytes_read <= 1_000_000 < path.stat().st_size / 10
    with LatencyServer(tmp_path) as server:
        dataset = vs.open_virtual_dataset(server.url(path.name), loadable_variables=[])
    expected = entries(vs.open_virtual_dataset(path, loadable_variables=[]))
    assert entries(dataset) == expected
    assert {name: chunks(array) for name, array in arrays_by_path(group).items()} == {
        f"/{name}": found for name, found in expected.items()
    }


def test_a_chunk_index_all_over_a_file_comes_at_once(tmp_path):
    """Hundreds of nodes of a B-tree are fetched side by side."""
    path = make_sparse(tmp_path / "sparse.nc", n_chunks=20_000)
    with LatencyServer(tmp_path, latency=0.1) as server:
        dataset = vs.open_virtual_dataset(server.url(path.name), loadable_variables=[])
        traffic = server.traffic()
    assert entries(dataset) == entries(vs.open_virtual_dataset(path, loadable_variables=[]))
    assert traffic.most_at_once > 32
    assert traffic.n_bytes <= 4_000_000


def test_a_small_file_comes_by_two_requests(tmp_path):
    """One opens the file and is enough to know its format by, the other has all of it."""
    path = make_one_after_another(tmp_path / "near.nc", n_variables=3, n_times=2)
    with RangeServer(tmp_path) as server:
        dataset = vs.open_virtual_dataset(server.url(path.name), loadable_variables=[])
        ranges = [range_ for _, _, range_, _ in server.log]
    assert entries(dataset) == entries(vs.open_virtual_dataset(path, loadable_variables=[]))
    assert ranges == ["bytes=0-16383", f"bytes=0-{path.stat().st_size - 1}"]
