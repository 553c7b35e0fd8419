"""Opening a GRIB file on a server with latency; run with VIRTUALSTACK_BENCHMARK=full for 468 MB in 1,200 messages."""

from itertools import product
from urllib.request import urlopen

import cfgrib
import numpy as np
import pytest

import virtualstack as vs
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.make_grib import message, noaa_index, with_data
from tests.latency_server import LatencyServer

pytestmark = pytest.mark.filterwarnings("ignore")  # of cfgrib
N_LEVELS, LENGTH = (50, 390_000) if IS_FULL else (2, 60_000)


def make(path, *, is_even, process):
    """Write messages whose data are holes: 24 parameters on some levels, of many lengths, or of one.

    Headers of one process are none of another: keys of both are asked for.
    """
    rng = np.random.default_rng(0)
    offsets, at = [], 0
    with path.open("wb") as file:
        for parameter, level in product(range(24), range(N_LEVELS)):
            place = {"typeOfLevel": "isobaricInhPa", "level": 10 * level + 10, "generatingProcessIdentifier": process}
            one = message({"parameterCategory": 1, "parameterNumber": parameter, **place})
            head, length = with_data(one, LENGTH if is_even else int(rng.integers(LENGTH // 2, LENGTH * 3 // 2)))
            file.seek(at)
            file.write(head)
            file.seek(at + length - 4)
            file.write(b"7777")
            offsets.append(at)
            at += length
    return offsets


def downloaded(url, path):
    """Fetch the file, and index it with cfgrib: what a user does otherwise."""
    with urlopen(url) as answer, path.open("wb") as file:
        while block := answer.read(1 << 20):
            file.write(block)
    return cfgrib.messages.FileIndex.from_indexpath_or_filestream(
        cfgrib.messages.FileStream(str(path)), cfgrib.dataset.INDEX_KEYS, indexpath=""
    )


@pytest.mark.parametrize("is_even", [False, True], ids=["odd", "even"])
def test_open(is_even, tmp_path):
    """With an index, without one, and cfgrib after a download of 100 MB a second; all with the same messages."""
    file, indexed = tmp_path / "plain.grib2", tmp_path / "indexed.grib2"
    make(file, is_even=is_even, process=1 + 2 * is_even)
    offsets = make(indexed, is_even=is_even, process=2 + 2 * is_even)
    (tmp_path / "indexed.grib2.idx").write_bytes(noaa_index(offsets))
    traffic = {}
    with LatencyServer(tmp_path, latency=0.02 if IS_FULL else 0.001, bandwidth=1e8) as server:

        def counted(name, run):
            server.traffic()
            found = run()
            traffic[name] = server.traffic()
            return found

        runs = {
            "with an index": lambda: vs.open_virtual_datatree(server.url(indexed.name)),
            "by a walk": lambda: vs.open_virtual_datatree(server.url(file.name)),
            "cfgrib": lambda: downloaded(server.url(file.name), tmp_path / "copy.grib2"),
        }
        results = interleaved(
            f"open {file.name} ({file.stat().st_size / 1e6:.0f} MB)",
            {name: lambda name=name, run=run: counted(name, run) for name, run in runs.items()},
            repeats=1,
        )
    for name, seen in traffic.items():
        print(f"  {name:<14} {seen}  {seen.n_bytes / file.stat().st_size:.2%} of the file")

    def places(tree):
        arrays = [x for node in tree.subtree for x in node.data_vars.values()]
        return sorted(int(entry["offset"]) for x in arrays for entry in x.variable._data.in_memory().entries.ravel())

    assert sorted(offset for _, found in results["cfgrib"].result.field_ids_index for offset in found) == offsets
    for name in ("with an index", "by a walk"):
        assert places(results[name].result) == offsets
        assert traffic[name].n_bytes < 0.05 * file.stat().st_size
