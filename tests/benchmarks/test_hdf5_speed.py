"""Opening HDF5 and netCDF-4 files beside VirtualiZarr, kerchunk and xarray.

Run with VIRTUALSTACK_BENCHMARK=full for files of the usual size, and indexes of 10^5 and 10^6 chunks.
"""

import tracemalloc

import pytest
import xarray as xr

import virtualstack as vs
from tests.benchmarks.rivals import needs, virtualizarr
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data import make_hdf5_usual as usual

pytestmark = needs("virtualizarr")


def rivals(path, **options):
    from kerchunk.hdf import SingleHdf5ToZarr

    return {
        "virtualstack": lambda: vs.open_virtual_dataset(path, **options),
        "VirtualiZarr": lambda: virtualizarr(path.as_uri(), **options),
        "kerchunk": lambda: SingleHdf5ToZarr(str(path), inline_threshold=0).translate(),
        "xr.open_dataset": lambda: xr.open_dataset(path, engine="netcdf4").close(),
    }


@pytest.mark.parametrize("loaded", [[], None], ids=["nothing loaded", "coordinates loaded"])
def test_a_daily_file(tmp_path, loaded):
    path = usual.daily(tmp_path / "daily.nc", 10 if IS_FULL else 2)
    got = interleaved(f"13 variables, {loaded}", rivals(path, loadable_variables=loaded), repeats=15)
    assert got["virtualstack"].result.sizes == got["VirtualiZarr"].result.sizes


def test_many_variables(tmp_path):
    path = usual.many_variables(tmp_path / "many.nc", *((30, 164) if IS_FULL else (2, 5)))
    got = interleaved("30 variables, 4,924 chunks", rivals(path, loadable_variables=[]), repeats=7)
    assert got["virtualstack"].result.virtual.nrefs >= (4920 if IS_FULL else 10)


def test_many_groups(tmp_path):
    path = usual.many_groups(tmp_path / "groups.nc", 100 if IS_FULL else 3)
    got = interleaved(
        "100 groups of 4 variables as a tree",
        {
            "virtualstack": lambda: vs.open_virtual_datatree(path),
            "VirtualiZarr": lambda: virtualizarr(path.as_uri(), tree=True),
            "xr.open_datatree": lambda: xr.open_datatree(path, engine="netcdf4").close(),
        },
        repeats=2,
    )
    assert set(got["virtualstack"].result.children) == set(got["VirtualiZarr"].result.children)


@pytest.mark.parametrize("n_chunks", [100_000, 1_000_000] if IS_FULL else [50])
@pytest.mark.parametrize("index", usual.INDEXES)
def test_a_chunk_index(tmp_path, index, n_chunks):
    path = usual.many_chunks(tmp_path / "x.h5", n_chunks, index)
    rivals = {"virtualstack": lambda: vs.open_virtual_dataset(path, loadable_variables=[])}
    if n_chunks <= 100_000:
        rivals["VirtualiZarr"] = lambda: virtualizarr(path.as_uri())
    got = interleaved(f"{n_chunks} chunks, {index}", rivals, repeats=3)
    print(f"  {got['virtualstack'].cpu / n_chunks * 1e9:.0f} ns of CPU a chunk")
    assert got["virtualstack"].result.virtual.nrefs == n_chunks
    tracemalloc.start()
    vs.open_virtual_dataset(path, loadable_variables=[])
    print(f"  peak of memory {tracemalloc.get_traced_memory()[1] / 2**20:.0f} MiB")
    tracemalloc.stop()
