"""Opening HDF5 files on a server with latency beside VirtualiZarr; run with VIRTUALSTACK_BENCHMARK=full for 15 GB."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import virtualstack as vs
from tests.data.make_hdf5_large import make_one_after_another, make_sparse
from tests.latency_server import LatencyServer

sys.path.insert(0, str(Path(__file__).parent))
from timing import IS_FULL, interleaved

SMALL = {} if IS_FULL else {"n_variables": 3, "n_times": 2}
FILES = {
    "30 variables, earliest": lambda path: make_one_after_another(path, **SMALL),
    "30 variables, latest": lambda path: make_one_after_another(path, libver="latest", **SMALL),
    "15 GB sparse": lambda path: make_sparse(path, n_chunks=150_000 if IS_FULL else 1000),
}
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("virtualizarr") is None,
        reason="VirtualiZarr is not installed: pip install virtualizarr",
    ),
    pytest.mark.filterwarnings("ignore"),  # of VirtualiZarr
]


@pytest.fixture(scope="module", params=FILES)
def file(request, tmp_path_factory):
    return FILES[request.param](tmp_path_factory.mktemp("remote") / f"{request.param.replace(' ', '_')}.nc")


def ours(url):
    return vs.open_virtual_dataset(url, loadable_variables=[])


def theirs(url):
    import virtualizarr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore
    from virtualizarr.parsers import HDFParser

    root = url.rpartition("/")[0]
    registry = ObjectStoreRegistry({root: HTTPStore.from_url(root, client_options={"allow_http": True})})
    return virtualizarr.open_virtual_dataset(url, registry=registry, parser=HDFParser(), loadable_variables=[])


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
                "virtualstack": lambda: counted("virtualstack", ours),
                "VirtualiZarr": lambda: counted("VirtualiZarr", theirs),
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
