"""References to web servers and buckets, and references kept there."""

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.kerchunk.netcdf_sources import virtual_group
from tests.kerchunk.reading import ENGINE_WARNINGS, needs_engine, read
from tests.servers import RangeServer
from virtualstack.errors import VirtualStackError, WriterError
from virtualstack.kerchunk.writer import write_kerchunk

needs_engine()
pytestmark = ENGINE_WARNINGS[0]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.nc"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(6.0)
        file["x"].make_scale("x")
        file.create_dataset("v", data=np.arange(6, dtype="i4"), chunks=(2,), compression="gzip", shuffle=True)
        file["v"].dims[0].attach_scale(file["x"])
    return path


@pytest.mark.parametrize("suffix", ["json", "parq"])
def test_sources_on_a_web_server(source, suffix, tmp_path):
    """http:// locations open by fsspec, and so does what our reader makes of references that lie beside them."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install aiohttp")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "a.nc").write_bytes(source.read_bytes())
    with RangeServer(tmp_path / "web") as server, xr.open_dataset(source, engine="h5netcdf") as expected:
        group = virtual_group(source, url=server.url("a.nc"))
        write_kerchunk(group, tmp_path / "web" / f"refs.{suffix}")
        with xr.open_dataset(str(tmp_path / "web" / f"refs.{suffix}"), engine="kerchunk") as got:
            xr.testing.assert_identical(got.load(), expected.load())
        found = read(server.url(f"refs.{suffix}"))
        assert all(found.arrays[name].equals(array) for name, array in group.arrays.items())


@pytest.mark.parametrize("suffix", ["json", "parq"])
def test_sources_and_references_in_a_bucket(source, suffix, s3):
    """s3:// locations open by s3fs, references are written to a bucket and replaced there, and read from it."""
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install s3fs")
    s3.put("data/a.nc", source.read_bytes())
    group, storage = virtual_group(source, url="s3://bucket/data/a.nc"), {"s3://bucket/": s3.options}
    for relative in (True, False):
        write_kerchunk(group, f"s3://bucket/refs/a.{suffix}", storage=storage, relative=relative)
        found = read(f"s3://bucket/refs/a.{suffix}", storage)
        assert all(found.arrays[name].equals(array) for name, array in group.arrays.items())
    options = {"key": "key", "secret": "secret", "endpoint_url": s3.endpoint}
    with (
        xr.open_dataset(source, engine="h5netcdf") as expected,
        xr.open_dataset(
            f"s3://bucket/refs/a.{suffix}",
            engine="kerchunk",
            storage_options={"remote_protocol": "s3", "remote_options": dict(options), "target_options": options},
        ) as got,
    ):
        xr.testing.assert_identical(got.load(), expected.load())


@pytest.mark.parametrize("target", ["refs.json", "refs.parq", "x.vstack"])
def test_names_that_no_reader_of_a_bucket_opens(source, target, s3, tmp_path):
    """They are refused before anything is named by them there; a local target takes them, and reads them."""
    path = tmp_path / "a\nb.nc"
    path.write_bytes(source.read_bytes())
    vds, storage = vs.open_virtual_dataset(path), {"s3://bucket/": s3.options}
    write = vds.virtual.to_vstack if target == "x.vstack" else vds.virtual.to_kerchunk
    with pytest.raises(WriterError, match="has a backslash or a control character"):
        write(f"s3://bucket/names/{target}", storage=storage)
    with pytest.raises(VirtualStackError):
        vs.open_virtual_dataset(f"s3://bucket/names/{target}", storage=storage)
    write(tmp_path / target)
    xr.testing.assert_equal(xr.load_dataset(tmp_path / target, engine="virtualstack"), xr.load_dataset(source))
