"""Servers that answer 403 for what does not exist, as buckets do whose readers may not list them."""

import contextlib

import numpy as np
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.servers import RangeServer
from virtualstack.errors import AccessDeniedError

PLACES = "http", "s3"
FOUND = ["a.nc", "two", "two.zarr", "three", "three.zarr", "refs", "refs/", "r.parq", "r.json", "v", "v.vstack"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with the same values as a file, as zarr of both versions, and as references."""
    top = tmp_path_factory.mktemp("secret")
    data = xr.Dataset({"v": (("t", "x"), np.arange(12.0).reshape(4, 3))}, {"t": np.arange(4)})
    with RangeServer(top, mode="secret") as server:
        for place in PLACES:
            folder = top / place
            folder.mkdir()
            data.to_netcdf(folder / "a.nc", engine="netcdf4")
            for name, version in (("two", 2), ("three", 3)):
                for suffix in ("", ".zarr"):
                    with pytest.warns() if version == 3 else contextlib.nullcontext():
                        data.to_zarr(
                            folder / f"{name}{suffix}", zarr_format=version, consolidated=True,
                            encoding={"v": {"chunks": (2, 3)}},
                        )  # fmt: skip
            zarr.create_array(folder / "array", data=np.arange(66.0), zarr_format=2, chunks=(11,))
            vds = vs.open_virtual_dataset(root(server, place) + "a.nc", storage=options(server))
            vds.virtual.to_kerchunk(folder / "r.parq")
            vds.virtual.to_kerchunk(folder / "refs.parq")
            (folder / "refs.parq").rename(folder / "refs")
            vds.virtual.to_kerchunk(folder / "r.json")
            vds.virtual.to_vstack(folder / "v.vstack")
            vds.virtual.to_vstack(folder / "v")
        yield server


def root(server, place):
    return server.url("http/") if place == "http" else "s3://s3/"


def options(server):
    return {"s3://s3/": {"endpoint": server.root.rstrip("/"), "skip_signature": True}}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FOUND)
def test_what_may_be_read_opens(server, place, name):
    """By its name alone."""
    vds = vs.open_virtual_dataset(root(server, place) + name, storage=options(server))
    assert vds.virtual.open().v.values.tolist() == np.arange(12.0).reshape(4, 3).tolist()


@pytest.mark.parametrize("place", PLACES)
def test_one_array_of_zarr_opens(server, place):
    """Of version 2, and without a group."""
    vds = vs.open_virtual_dataset(f"{root(server, place)}array", storage=options(server))
    assert sum(float(x.sum()) for x in vds.virtual.open().variables.values()) == np.arange(66).sum()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["none", "none/", "none.zarr", "none.parq", "none.nc"])
def test_where_nothing_is_found_the_refusal_is_named(server, place, name):
    """And not that there were nothing."""
    with pytest.raises(AccessDeniedError, match="access denied"):
        vs.open_virtual_dataset(root(server, place) + name, storage=options(server))


@pytest.mark.parametrize("place", PLACES)
def test_a_chunk_that_is_refused_is_no_missing_chunk(server, place):
    """It would be read as the fill value."""
    chunk = server.files / place / "two" / "v" / "1.0"
    data = chunk.read_bytes()
    chunk.unlink()
    try:
        vds = vs.open_virtual_dataset(f"{root(server, place)}two", storage=options(server))
        with pytest.raises(AccessDeniedError):
            vds.virtual.open().v.load()
    finally:
        chunk.write_bytes(data)
