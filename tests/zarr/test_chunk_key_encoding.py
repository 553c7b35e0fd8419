"""Virtual arrays through plain zarr: metadata are read, values are refused, and nothing is written."""

import asyncio
import pickle
import subprocess
import sys
from dataclasses import replace

import dask.array
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.sync import sync

from tests.zarr.views import LOADED, a_group, write
from virtualstack.errors import VirtualValuesError
from virtualstack.manifests import ManifestGroup

HOW = r'xr\.open_dataset\("x\.vstack", engine="virtualstack"\)'


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views") / "x.vstack"
    write(a_group(), folder)
    return str(folder)


@pytest.fixture
def array(url):
    return zarr.open_group(url)["plain"]


def test_zarr_finds_the_encoding_by_its_entry_point(url):
    """In a process that has not imported virtualstack; and showing metadata imports nothing that reads files."""
    program = (
        "import sys, zarr\n"
        "group = zarr.open_group(sys.argv[1], mode='r')\n"
        "print(group['cut'].shape, group['lat'][0], 'virtualstack.manifests' in sys.modules)\n"
        "group['cut'][0]"
    )
    found = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, timeout=300, cwd=url)
    assert found.stdout == "(3, 3) -1.0 False\n", found.stderr
    assert "virtualstack.errors.VirtualValuesError: this array of a vstack is virtual" in found.stderr


def test_groups_list_what_is_in_them(url):
    """Arrays, groups, shapes."""
    group = zarr.open_group(url)
    assert {name for name, _ in group.members()} == {*a_group().arrays, "inner"}
    assert "plain (4, 5) int32" in str(group.tree())
    assert "plain" in group
    assert group["plain"].nbytes_stored() > 0
    assert "(4, 5)" in repr(group["plain"].info)


MASK = np.ones((4, 5), bool)
READS = {
    "everything": lambda x: x[...],
    "one": lambda x: x[0, 0],
    "a part": lambda x: x[1:2, 0],
    "oindex": lambda x: x.oindex[[0, 1], [2]],
    "vindex": lambda x: x.vindex[[0], [1]],
    "blocks": lambda x: x.blocks[0, 0],
    "basic": lambda x: x.get_basic_selection((0, slice(None))),
    "orthogonal": lambda x: x.get_orthogonal_selection((0, [1, 2])),
    "coordinates": lambda x: x.get_coordinate_selection(([0], [0])),
    "mask": lambda x: x.get_mask_selection(MASK),
    "numpy": np.asarray,
    "iterated": lambda x: next(iter(x)),
    "async": lambda x: sync(x._async_array.getitem((0, 0))),
    "opened as an array": lambda x: zarr.open_array(str(x.store_path))[...],
    "without fill values": lambda x: zarr.open_array(str(x.store_path), config={"read_missing_chunks": False})[...],
    "load": lambda x: zarr.load(str(x.store_path)),
    "pickled": lambda x: pickle.loads(pickle.dumps(x))[...],
    "dask": lambda x: dask.array.from_zarr(x).compute(scheduler="threads"),
    "stored chunks": lambda x: x.nchunks_initialized,
}


@pytest.mark.parametrize("read", READS)
def test_values_are_refused_however_they_are_asked_for(read, array):
    """By an error that says how to open the store."""
    with pytest.raises(VirtualValuesError, match=HOW):
        READS[read](array)


@pytest.mark.parametrize("name", ["point", "mixed", "uneven", "holey", "paged", "inner/plain"])
def test_values_of_every_kind_are_refused(name, url):
    """Scalars, too, and arrays of any grid."""
    with pytest.raises(VirtualValuesError, match=HOW):
        zarr.open_group(url)[name][...]


WRITES = {
    "a value": lambda x: x.__setitem__((0, 0), 1),
    "everything": lambda x: x.__setitem__(..., np.zeros((4, 5), "i4")),
    "append": lambda x: x.append(np.zeros((1, 5), "i4")),
    "longer": lambda x: x.resize((5, 5)),
    "shorter": lambda x: x.resize((1, 1)),
    "attributes": lambda x: x.attrs.update(a=1),
    "consolidated": lambda x: zarr.consolidate_metadata(x.store_path.store),
    "copy": lambda x: zarr.from_array({}, data=x),
    "another": lambda x: zarr.create_array(
        {}, shape=(2,), dtype="i1", chunk_key_encoding={"name": "virtualstack.manifest"}
    ),
}


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("change", WRITES)
def test_nothing_is_written(change, array, url):
    """Neither values nor metadata, which the next commit would undo."""
    with pytest.raises(VirtualValuesError, match=HOW):
        WRITES[change](array)
    again = zarr.open_group(url)["plain"]
    assert (again.shape, dict(again.attrs)) == ((4, 5), {"units": "K"})


XARRAY = {
    "load": lambda ds: ds.load(),
    "values": lambda ds: ds["plain"].values,
    "a part": lambda ds: ds["plain"].isel(plain0=[0, 2], plain1=0).load(),
    "a point": lambda ds: ds["point"].item(),
    "mean": lambda ds: ds["plain"].mean().compute(),
    "async": lambda ds: asyncio.run(ds.load_async()),
    "to netCDF": lambda ds: ds[["plain"]].drop_attrs().to_netcdf(),
}


@pytest.mark.parametrize("chunks", [None, {}])
@pytest.mark.parametrize("read", XARRAY)
def test_xarray_is_refused_values(read, chunks, url):
    """The view opens, coordinates and other loaded variables are read, and virtual ones are not."""
    ds = xr.open_zarr(url, consolidated=False, chunks=chunks, drop_variables=["zero"])
    np.testing.assert_array_equal(ds["lat"], LOADED["lat"])
    np.testing.assert_array_equal(ds["plane"], LOADED["plane"])
    assert ds["plain"].dims == ("plain0", "plain1")
    with pytest.raises(VirtualValuesError, match=HOW):
        XARRAY[read](ds)


def test_xarray_writes_nothing(url):
    """A region of a virtual variable."""
    part = xr.Dataset({"plain": (("plain0", "plain1"), np.zeros((1, 5), "i4"))})
    with pytest.raises(VirtualValuesError, match=HOW):
        part.to_zarr(url, region={"plain0": slice(0, 1)}, consolidated=False)


def test_a_virtual_coordinate_refuses_opening(tmp_path):
    """Since xarray would make an index of its values."""
    coordinate = replace(a_group().arrays["plain"][:, 0], dimension_names=("x",))
    write(ManifestGroup(arrays={"x": coordinate}), tmp_path)
    with pytest.raises(VirtualValuesError, match=HOW):
        xr.open_zarr(str(tmp_path), consolidated=False)
