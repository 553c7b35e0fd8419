"""Scanning an archive beside VirtualiZarr: serial, in processes, over a slow network, a second time; and pickles.

Run with VIRTUALSTACK_BENCHMARK=full for 1,000 daily files of 243 chunks: eight different ones and hard links to them.
The rival gets a tenth of the files, and its times are multiplied by ten.
"""

import multiprocessing
import os
import pickle
import resource
import time
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest

import virtualstack as vs
from tests.benchmarks.rivals import needs, virtualizarr
from tests.benchmarks.timing import IS_FULL
from tests.data.netcdf4 import netcdf4_file
from tests.latency_server import LatencyServer
from virtualstack.manifests import ChunkEncoding, ChunkManifest, Fill

N_FILES = 1000 if IS_FULL else 12
SHARE = 10 if IS_FULL else 4  # the rival gets one of so many files
needs_virtualizarr, quietly = needs("virtualizarr")


def day(path, number):
    """Write one day of ten packed variables of 24 chunks each."""
    random = np.random.default_rng(number)
    how = {"zlib": True, "shuffle": True, "chunksizes": (1, 30, 90)}
    packing = {"units": "K", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -999}
    variables = {
        "time": ("f8", "time", [number], {"units": "days since 2000-01-01"}),
        "lat": ("f4", "lat", np.arange(180), {"units": "degrees"}),
        "lon": ("f4", "lon", np.arange(360), {"units": "degrees"}),
    }
    for i in range(10):
        values = random.integers(0, 1000, (1, 180, 360))
        variables[f"v{i}"] = ("i2", "time lat lon", values, packing | {"long_name": f"variable {i}"}, how)
    return netcdf4_file(path, {"time": None, "lat": 180, "lon": 360}, variables)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    originals = [day(folder / f"original{i}.nc", i) for i in range(8 if IS_FULL else 2)]
    paths = [folder / f"day{i:04}.nc" for i in range(N_FILES)]
    for i, path in enumerate(paths):
        os.link(originals[i % len(originals)], path)
    return paths


def cpu():
    """Seconds of this process, and of its workers that came to their end."""
    for child in multiprocessing.active_children():
        child.join(10)
    own, workers = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + workers.ru_utime + workers.ru_stime


def timed(name, run, *, n_files=N_FILES, first=None):
    """Run once; print and give wall and CPU seconds as for all files."""
    scale = N_FILES / n_files
    used, began = cpu(), time.perf_counter()
    result = run()
    wall = time.perf_counter() - began
    spent = (wall * scale, (cpu() - used) * scale)
    ratio = "" if first is None else f"  x{spent[0] / first[0]:.1f} wall  x{spent[1] / first[1]:.1f} cpu"
    print(f"  {name:<26} wall {spent[0]:7.2f} s  cpu {spent[1]:7.2f} s{ratio}")
    return spent, result


def n_chunks(groups):
    return sum(array.manifest.summary().n_references for group in groups for array in group.arrays.values())


@needs_virtualizarr
@quietly
def test_daily_files(archive, tmp_path):
    print(f"\n{N_FILES} daily files")
    vs.scan(archive[:2])
    first, result = timed("virtualstack", lambda: vs.scan(archive))
    total = n_chunks(result)
    print(f"  {total} chunks")
    assert total == 243 * N_FILES
    _, again = timed("  processes", lambda: vs.scan(archive, executor="processes"), first=first)
    assert n_chunks(again) == total
    timed("  cache, first time", lambda: vs.scan(archive, cache=tmp_path / "cache"), first=first)
    _, again = timed("  cache, second time", lambda: vs.scan(archive, cache=tmp_path / "cache"), first=first)
    assert n_chunks(again) == total
    some = archive[::SHARE]
    virtualizarr(f"file://{some[0]}")
    _, theirs = timed(
        "VirtualiZarr", lambda: [virtualizarr(f"file://{path}") for path in some], n_files=len(some), first=first
    )
    same = [
        set(map(str, dataset.variables)) == set(group.arrays) for dataset, group in zip(theirs, result, strict=False)
    ]
    assert all(same)


def walk_with_h5py(path):
    """Read what a virtual dataset needs with h5py: attributes, shapes, filters and chunks of all datasets."""
    found = []

    def visit(_, item):
        attributes = dict(item.attrs)
        if isinstance(item, h5py.Dataset):
            chunks = [] if item.chunks is None else [0] * item.id.get_num_chunks()
            if chunks:
                item.id.chunk_iter(chunks.append)
            found.append((item.shape, item.dtype, item.chunks, item.compression, item.fillvalue, attributes, chunks))

    with h5py.File(path) as file:
        visit("/", file)
        file.visititems(visit)
    return found


@needs_virtualizarr
@quietly
def test_files_of_one_product(archive):
    """CPU of a file of 13 variables in a long series, to groups and to one dataset, and bytes of their pickles."""
    print(f"\n{N_FILES} files of one product")
    vs.open_virtual_mfdataset(archive[:2])
    first, scanned = timed("virtualstack, groups", lambda: vs.scan(archive))
    _, cube = timed("  one dataset", lambda: vs.open_virtual_mfdataset(archive, duplicates="last"), first=first)
    timed("h5py", lambda: [walk_with_h5py(path) for path in archive], first=first)
    some = archive[::SHARE]
    timed("VirtualiZarr", lambda: [virtualizarr(f"file://{x}") for x in some], n_files=len(some), first=first)
    n_bytes = len(pickle.dumps(list(scanned))) / N_FILES
    print(f"  {first[1] / N_FILES * 1e3:.2f} ms of CPU and {n_bytes:.0f} B of pickles a file")
    assert set(cube.variables) == set(scanned[0].arrays)


@pytest.mark.parametrize("latency", [0.05 if IS_FULL else 0.002])
@needs_virtualizarr
@quietly
def test_remote_files(archive, tmp_path, latency):
    print(f"\n{N_FILES} daily files at {latency * 1e3:.0f} ms")
    with LatencyServer(archive[0].parent, latency=latency) as server:
        urls = [server.url(path.name) for path in archive]
        vs.scan(urls[:2])
        server.traffic()
        first, result = timed("virtualstack", lambda: vs.scan(urls, cache=tmp_path / "cache"))
        print(f"    {server.traffic()}")
        timed("  cache, second time", lambda: vs.scan(urls, cache=tmp_path / "cache"), first=first)
        print(f"    {server.traffic()}")
        some = urls[::SHARE]
        with ThreadPoolExecutor(64) as pool:
            timed(
                "VirtualiZarr, 64 threads", lambda: list(pool.map(virtualizarr, some)), n_files=len(some), first=first
            )
        print(f"    {server.traffic()} for {len(some)} files")
    assert len(result) == N_FILES


KINDS = ("compressed", "contiguous", "interleaved", "GRIB-like")


@pytest.mark.parametrize("n", [1000, 1_000_000] if IS_FULL else [1000])
def test_pickles_of_manifests(n):
    """Bytes and nanoseconds a chunk, beside a pickle of the plain entries."""
    print(f"\n{n} chunks")
    for kind in KINDS:
        random = np.random.default_rng(0)
        mean = 900_000 if kind == "GRIB-like" else 120_000
        lengths = np.full(n, 4096) if kind == "contiguous" else random.normal(mean, mean / 12, n).astype(np.int64)
        between = random.normal(mean, mean / 12, n).astype(np.int64) if kind == "interleaved" else 0
        ends = 10_000 + np.cumsum(lengths + between)
        made = ChunkManifest.from_arrays(
            ends - lengths, lengths, location="file:///a", encoding=ENCODING, fill=Fill.zero("f4")
        )
        began = time.perf_counter()
        data = pickle.dumps(made)
        middle = time.perf_counter()
        got = pickle.loads(data)
        end = time.perf_counter()
        print(
            f"  {kind:<12} {len(data) / n:5.2f} B a chunk  {(middle - began) / n * 1e9:6.1f} ns out  "
            f"{(end - middle) / n * 1e9:6.1f} ns in  (24 B as they are in memory)"
        )
        assert got.entries.tobytes() == made.entries.tobytes()


ENCODING = ChunkEncoding.c_order("<f4", (10,))
