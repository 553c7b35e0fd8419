"""Opening HDF5 files on a server with latency beside VirtualiZarr; run with VIRTUALSTACK_BENCHMARK=full for 15 GB."""

import numpy as np
import pytest

import virtualstack as vs
from tests.benchmarks.rivals import needs, virtualizarr
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.make_hdf5_large import make_one_after_another, make_sparse
from tests.latency_server import LatencyServer

SMALL = {} if IS_FULL else {"n_variables": 3, "n_times": 2}
FILES = {
    "30 variables, earliest": lambda path: make_one_after_another(path, **SMALL),
    "30 variables, latest": lambda path: make_one_after_another(path, libver="latest", **SMALL),
    "15 GB sparse": lambda path: make_sparse(path, n_chunks=150_000 if IS_FULL else 1000),
}
pytestmark = needs("virtualizarr")


@pytest.fixture(scope="module", params=FILES)
def file(request, tmp_path_factory):
    return FILES[request.param](tmp_path_factory.mktemp("remote") / f"{request.param.replace(' ', '_')}.nc")


def open_ours(url):
    return vs.open_virtual_dataset(url, loadable_variables=[])


@pytest.mark.parametrize("latency", [0.02, 0.1] if IS_FULL else [0.002])
def test_open(file, latency):
    """Opening without loading, both with the same references."""
    traffic = {}
    with LatencyServer(file.parent, latency=latency) as server:

        def counted(name, run):
            server.traffic()
            dataset = run(server.url(file.name))
            traffic[name] = server.traffic()
            return dataset

        results = interleaved(
            f"open {file.stem} ({file.stat().st_size >> 20} MiB) at {latency * 1e3:.0f} ms",
            {
                "virtualstack": lambda: counted("virtualstack", open_ours),
                "VirtualiZarr": lambda: counted("VirtualiZarr", virtualizarr),
            },
            repeats=2,
        )
    for name, seen in traffic.items():
        print(f"  {name:<14} {seen}")
    here, there = results["virtualstack"].result, results["VirtualiZarr"].result
    assert set(there.variables) <= set(here.variables)
    for name, variable in there.variables.items():
        manifest, entries = variable.data.manifest, here.variables[name].data.in_memory().entries
        np.testing.assert_array_equal(entries["offset"].ravel(), manifest._offsets.ravel())
        np.testing.assert_array_equal(entries["length"].ravel(), manifest._lengths.ravel())
