"""Reading values beside what a user would read them with; run with VIRTUALSTACK_BENCHMARK=full for 597 MB."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import netCDF4
import numcodecs
import numpy as np
import obstore
import pytest
import xarray as xr
import zarr
from obstore.store import HTTPStore
from zarr.codecs.numcodecs import Shuffle, Zlib

import virtualstack as vs
from tests.benchmarks.icechunk_rival import HAS_ICECHUNK, open_icechunk, write_icechunk
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.latency_server import LatencyServer
from virtualstack.reading import read_array

SHAPE = (569, 512, 512) if IS_FULL else (6, 32, 32)
N_FILES = 1000 if IS_FULL else 5
KINDS = {"raw": {}, "zlib": {"compression": "gzip", "compression_opts": 4, "shuffle": True}}
COPIES = {"raw": {}, "zlib": {"filters": [numcodecs.Shuffle(4)], "compressors": numcodecs.Zlib(4)}}

pytestmark = pytest.mark.filterwarnings("ignore")


def fields(n, shape=SHAPE[1:]):
    """Smooth fields with one decimal, as archives have them."""
    rng = np.random.default_rng(0)
    base = np.cumsum(rng.normal(size=(8, *shape)), axis=2).astype("f4")
    for i in range(n):
        yield (base[i % 8] + np.float32(i)).round(1)


def write(path, n=SHAPE[0], shape=SHAPE[1:], chunks=None, **filters):
    with h5py.File(path, "w") as file:
        for name, length in zip("tyx", (n, *shape), strict=True):
            file[name] = np.arange(length)
            file[name].make_scale(name)
        variable = file.create_dataset("v", (n, *shape), "<f4", chunks=chunks or (1, *shape), **filters)
        for axis, name in enumerate("tyx"):
            variable.dims[axis].attach_scale(file[name])
        for i, field in enumerate(fields(n, shape)):
            variable[i] = field
    return path


@pytest.fixture(scope="module", params=KINDS)
def copies(request, tmp_path_factory):
    """One variable as a netCDF-4 file, references to it, and a zarr copy with the same codecs."""
    folder = tmp_path_factory.mktemp(request.param)
    path = write(folder / "a.nc", **KINDS[request.param])
    virtual = vs.open_virtual_dataset(path)
    virtual.virtual.to_vstack(folder / "a.vstack")
    virtual.virtual.to_kerchunk(folder / "a.json")
    options = {"compressors": None, "fill_value": None, **COPIES[request.param]}
    options["attributes"] = {"_ARRAY_DIMENSIONS": ["t", "y", "x"]}
    copy = zarr.create_array(
        folder / "a.zarr", name="v", shape=SHAPE, chunks=(1, *SHAPE[1:]), dtype="f4", zarr_format=2, **options
    )
    for i, field in enumerate(fields(SHAPE[0])):
        copy[i] = field
    if HAS_ICECHUNK:
        codecs = [Shuffle(elementsize=4), Zlib()] if request.param == "zlib" else []
        array = virtual["v"].variable._data
        array = replace(array, dimension_names=("t", "y", "x"))
        write_icechunk(array, folder / "a.ice", folder.as_uri() + "/", chunks=(1, *SHAPE[1:]), compressors=codecs)
    return request.param, folder


def test_whole_variable(copies):
    """Every chunk of a variable, opened and read by xarray in each way."""
    kind, folder = copies

    def by_zarr(store):
        return xr.open_zarr(store, consolidated=False, chunks=None)["v"].to_numpy()

    def by_engine(name, engine):
        return lambda: xr.open_dataset(str(folder / name), engine=engine)["v"].to_numpy()

    rivals = {
        "virtualstack": by_engine("a.vstack", "virtualstack"),
        "zarr copy": lambda: by_zarr(folder / "a.zarr"),
        "netcdf4": by_engine("a.nc", "netcdf4"),
    }
    if importlib.util.find_spec("kerchunk"):
        rivals["kerchunk"] = by_engine("a.json", "kerchunk")
    if HAS_ICECHUNK:
        rivals["icechunk"] = lambda: by_zarr(open_icechunk(folder / "a.ice", folder.as_uri() + "/"))
    results = interleaved(f"read {np.prod(SHAPE) * 4 / 1e6:.0f} MB, {kind}", rivals, repeats=5)
    expected = results["netcdf4"].result
    for timing in results.values():
        np.testing.assert_array_equal(timing.result, expected)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process")
@pytest.mark.parametrize("attrs", [{}, {"_FillValue": np.float32(3)}], ids=["plain", "with a fill value"])
def test_memory(copies, attrs, tmp_path):
    """Peak memory beyond what was there, as a part of the array, and CPU: each in a process of its own."""
    kind, folder = copies
    path = Path(shutil.copy(folder / "a.nc", tmp_path))
    with h5py.File(path, "a") as file:
        file["v"].attrs.update(attrs)
    program = (
        "import os, re, sys, time, pathlib, xarray as xr\n"
        "def peak():\n"
        "    return 1024 * int(re.search(r'VmHWM:\\s*(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])\n"
        "opened = xr.open_dataset(sys.argv[1], engine=sys.argv[2])\n"
        "opened['v'][0].to_numpy()\n"
        "before, cpu = peak(), time.process_time()\n"
        "values = opened['v'].to_numpy()\n"
        "cpu = time.process_time() - cpu\n"
        "print(f'{(peak() - before) / values.nbytes:.2f} x the array, cpu {cpu * 1e3:.1f} ms', flush=True)\n"
        "os._exit(0)"  # xarray has loaded plugins, of which some abort at exit
    )
    for engine in ("virtualstack", "netcdf4"):
        command = [sys.executable, "-W", "ignore", "-c", program, path, engine]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"\npeak memory, {kind}, {engine}: {ran.stdout.strip()}")


@pytest.mark.parametrize("kind", ["uniform", "mixed codecs", "other chunk lengths"])
def test_files_that_differ(kind, tmp_path):
    """Two files joined, that are alike or not."""
    half, (ny, nx) = SHAPE[0] // 4, SHAPE[1:]
    filters = {"compression": "gzip", "compression_opts": 4, "shuffle": True}
    other = {
        "uniform": filters,
        "mixed codecs": {**filters, "compression_opts": 1, "fletcher32": True},
        "other chunk lengths": {**filters, "chunks": (2, ny // 2, nx)},
    }[kind]
    paths = [write(tmp_path / "a.nc", half, **filters), write(tmp_path / "b.nc", half + 1, **other)]
    results = interleaved(
        f"read {kind}",
        {
            "virtualstack": lambda: (
                xr.concat([vs.open_virtual_dataset(path) for path in paths], "t").virtual.open()["v"].to_numpy()
            ),
            "netcdf4": lambda: xr.concat([xr.open_dataset(path) for path in paths], "t")["v"].to_numpy(),
        },
    )
    np.testing.assert_array_equal(results["virtualstack"].result, results["netcdf4"].result)


@pytest.mark.parametrize("n_columns", [2048, 16384])
@pytest.mark.parametrize("key", [np.s_[:, 5], np.s_[:, :1024]], ids=["a column", "1024 columns"])
def test_pieces(n_columns, key, tmp_path):
    """Values of a contiguous dataset that lie near each other, or far apart."""
    n = 20_000 if IS_FULL else 100
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("v", (n, n_columns), "<f4")
        for i in range(0, n, 100):
            dataset[i : i + 100] = np.arange(i, i + 100)[:, None] + np.arange(n_columns)
    array = vs.open_virtual_dataset(tmp_path / "a.h5")["v"].variable._data
    with h5py.File(tmp_path / "a.h5") as file:
        rivals = {"virtualstack": lambda: read_array(array, key), "h5py": lambda: file["v"][key]}
        results = interleaved(f"{n} pieces, {n_columns * 4} bytes apart", rivals)
    np.testing.assert_array_equal(results["virtualstack"].result, results["h5py"].result)


def test_one_chunk(tmp_path):
    """A single chunk of 10 kB, beside its bare reading and decoding."""
    path = write(tmp_path / "a.nc", 50, (50, 50), **KINDS["zlib"])
    virtual = vs.open_virtual_dataset(path)
    array, opened = virtual["v"].variable._data, virtual.virtual.open()
    entry = array.manifest.entries[5, 0, 0]
    number = os.open(path, os.O_RDONLY)
    unshuffle, inflate = numcodecs.Shuffle(4), numcodecs.Zlib()
    n = 200 if IS_FULL else 2

    def bare():
        raw = os.pread(number, int(entry["length"]), int(entry["offset"]))
        return np.array(unshuffle.decode(inflate.decode(raw)).view("<f4").reshape(50, 50))

    def often(read):
        return lambda: [read() for _ in range(n)][-1]

    rivals = {"bare, by zlib": bare, "reading": lambda: read_array(array, 5), "xarray": lambda: opened["v"][5].values}
    results = interleaved(f"one chunk, {n} times", {name: often(read) for name, read in rivals.items()})
    for timing in results.values():
        np.testing.assert_array_equal(timing.result, results["xarray"].result)
    os.close(number)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Files behind a server that takes 20 ms to answer."""
    folder = tmp_path_factory.mktemp("served")
    for i in range(N_FILES):
        write(folder / f"{i}.nc", 1, (100, 100), (1, 50, 50), **KINDS["zlib"])
    write(folder / "many.nc", 25, (100, 100), **KINDS["zlib"])
    with LatencyServer(folder, latency=0.02) as server:
        yield folder, server


def at(server, array):
    return array.rename_locations(lambda url: server.url(url.rpartition("/")[2]))


def test_a_point_in_many_files(served):
    """One chunk of each file, beside bare requests for the same ranges, 64 at a time."""
    folder, server = served
    groups = vs.scan([folder / f"{i}.nc" for i in range(N_FILES)])
    array = at(server, np.concatenate([group.arrays["v"] for group in groups]))
    store = HTTPStore.from_url(server.url(""), client_options={"allow_http": True})
    entries = array.manifest.entries[:, 0, 0]

    async def ask():
        free = asyncio.Semaphore(64)

        async def ask_one(i, entry):
            async with free:
                begin, length = int(entry["offset"]), int(entry["length"])
                return await obstore.get_range_async(store, f"{i}.nc", start=begin, length=length)

        return await asyncio.gather(*(ask_one(i, entry) for i, entry in enumerate(entries)))

    results = interleaved(
        f"a point in {N_FILES} files, at 20 ms",
        {"bare requests": lambda: asyncio.run(ask()), "virtualstack": lambda: read_array(array, (slice(None), 3, 4))},
    )
    expected = [group.arrays["v"] for group in groups]
    np.testing.assert_array_equal(results["virtualstack"].result[0], read_array(expected[0], (0, 3, 4)))


def test_neighbouring_chunks(served):
    """Chunks that lie side by side come in few requests."""
    folder, server = served
    (group,) = vs.scan([folder / "many.nc"])
    server.traffic()
    values = read_array(at(server, group.arrays["v"]), ...)
    traffic = server.traffic()
    print(f"\n25 neighbouring chunks: {traffic}")
    np.testing.assert_array_equal(values, read_array(group.arrays["v"], ...))
    assert traffic.n_requests <= 5
    assert traffic.depth <= 3


def test_zstd(tmp_path):
    """A file of zstd chunks, read directly by each engine."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, n in zip("tyx", SHAPE, strict=True):
            file.createDimension(name, n)
        variable = file.createVariable("v", "f4", ("t", "y", "x"), compression="zstd", chunksizes=(1, *SHAPE[1:]))
        for i, field in enumerate(fields(SHAPE[0])):
            variable[i] = field

    def by_engine(engine):
        return lambda: xr.open_dataset(tmp_path / "a.nc", engine=engine)["v"].to_numpy()

    got = interleaved("read zstd", {"netcdf4": by_engine("netcdf4"), "virtualstack": by_engine("virtualstack")})
    np.testing.assert_array_equal(got["virtualstack"].result, got["netcdf4"].result)
