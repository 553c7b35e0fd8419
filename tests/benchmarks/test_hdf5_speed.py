"""Opening HDF5 and netCDF-4 files beside VirtualiZarr, kerchunk and xarray.

Run with VIRTUALSTACK_BENCHMARK=full for files of the usual size, and indexes of 10^5 and 10^6 chunks.
"""

import importlib.util
import sys
import tracemalloc
from pathlib import Path

import pytest
import xarray as xr

import virtualstack as vs
from tests.data import make_hdf5_usual as usual

sys.path.insert(0, str(Path(__file__).parent))
from timing import IS_FULL, interleaved

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("virtualizarr") is None,
        reason="VirtualiZarr is not installed: pip install virtualizarr",
    ),
    pytest.mark.filterwarnings("ignore"),  # of VirtualiZarr and kerchunk
]


def virtualizarr(path, *, tree=False, **options):
    import obstore.store
    import virtualizarr as vz
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": obstore.store.LocalStore()})
    opener = vz.open_virtual_datatree if tree else vz.open_virtual_dataset
    return opener(url=f"file://{path}", parser=HDFParser(), registry=registry, **options)


def kerchunk(path):
    from kerchunk.hdf import SingleHdf5ToZarr

    return SingleHdf5ToZarr(str(path), inline_threshold=0).translate()


def rivals(path, **options):
    return {
        "virtualstack": lambda: vs.open_virtual_dataset(path, **options),
        "VirtualiZarr": lambda: virtualizarr(path, **options),
        "kerchunk": lambda: kerchunk(path),
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
            "VirtualiZarr": lambda: virtualizarr(path, tree=True),
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
        rivals["VirtualiZarr"] = lambda: virtualizarr(path, loadable_variables=[])
    got = interleaved(f"{n_chunks} chunks, {index}", rivals, repeats=3)
    print(f"  {got['virtualstack'].cpu / n_chunks * 1e9:.0f} ns of CPU a chunk")
    assert got["virtualstack"].result.virtual.nrefs == n_chunks
    tracemalloc.start()
    vs.open_virtual_dataset(path, loadable_variables=[])
    print(f"  peak of memory {tracemalloc.get_traced_memory()[1] / 2**20:.0f} MiB")
    tracemalloc.stop()
