"""Tools that read a vstack through xarray: each row of the page names a test here or elsewhere."""

import asyncio
import re

import fsspec
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.docs.page import ROOT
from tests.serve.running import serving_app

PAGE = ROOT / "docs" / "explanation" / "works-with.md"


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    """Return the URL of three days of a model, and the values that xarray reads from the files."""
    folder = tmp_path_factory.mktemp("works_with")
    files = vs.sample.model(folder / "model")
    vs.open_virtual_mfdataset(files).virtual.to_vstack(folder / "model.vstack")
    parts = [xr.open_dataset(file, engine="h5netcdf")["tas"].values for file in files]
    return str(folder / "model.vstack"), np.concatenate(parts)


def open_cube(url, **options):
    return xr.open_dataset(url, engine="virtualstack", **options)


def test_dask(cube):
    """Chunks of dask are merged stored ones, or the stored ones, and computations read them in parallel."""
    url, values = cube
    for options, n in (({}, (12,)), ({"task_bytes": 0}, (1,) * 12)):
        tas = open_cube(url, chunks={}, **options)["tas"]
        assert tas.chunks == (n, (30,), (60,))
        np.testing.assert_array_equal(tas.compute(), values)


def test_cubed(cube, tmp_path):
    """cubed computes a mean in bounded memory."""
    cubed = pytest.importorskip("cubed", reason="cubed is not installed")
    pytest.importorskip("cubed_xarray", reason="xarray finds cubed by the package cubed-xarray, which is not installed")
    url, values = cube
    spec = cubed.Spec(work_dir=str(tmp_path), allowed_mem="200MB")
    tas = open_cube(url, chunks={}, chunked_array_type="cubed", from_array_kwargs={"spec": spec})["tas"]
    assert isinstance(tas.data, cubed.Array)
    np.testing.assert_allclose(tas.mean("time").compute(), values.mean(axis=0), rtol=1e-5)


def test_intake(cube, tmp_path):
    """A catalog names the engine, and gives the dataset to readers of the catalog."""
    intake = pytest.importorskip("intake", reason="intake is not installed")
    from intake.readers.datatypes import FileData
    from intake.readers.readers import XArrayDatasetReader

    url, values = cube
    catalog = intake.entry.Catalog()
    catalog["model"] = XArrayDatasetReader(FileData(url=url), engine="virtualstack")
    catalog.to_yaml_file(str(tmp_path / "catalog.yaml"))
    found = intake.open_catalog(str(tmp_path / "catalog.yaml"))["model"].read()
    np.testing.assert_array_equal(found["tas"], values)


def test_xbatcher(cube):
    """Batches for training are read one by one."""
    xbatcher = pytest.importorskip("xbatcher", reason="xbatcher is not installed")
    url, values = cube
    batches = xbatcher.BatchGenerator(open_cube(url)[["tas"]], {"time": 4, "lat": 30, "lon": 60})
    np.testing.assert_array_equal(np.concatenate([batch["tas"].values for batch in batches]), values)


@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")  # rioxarray with the newest affine
def test_rioxarray(tmp_path):
    """The reference system of scenes is that of rioxarray, and clipping to a box reads its part."""
    pytest.importorskip("rioxarray", reason="rioxarray is not installed")
    pytest.importorskip("tifffile", reason="the reader of TIFF needs tifffile")
    (scene, *_) = vs.sample.scenes(tmp_path / "scenes")
    vs.open_virtual_dataset(scene).virtual.to_vstack(tmp_path / "scene.vstack")
    found = open_cube(tmp_path / "scene.vstack")["band_data"].isel(band=0)
    assert found.rio.crs.to_epsg() == 32632
    west, south, east, north = found.rio.bounds()
    part = found.rio.clip_box(west, south, (west + east) / 2, (south + north) / 2)
    np.testing.assert_array_equal(part, found.isel(y=slice(128, None), x=slice(None, 128)))


def test_load_async(cube):
    """Several selections are read at the same time."""
    url, values = cube

    async def load():
        tas = open_cube(url)["tas"]
        return await asyncio.gather(tas.isel(time=0).load_async(), tas.isel(time=11).load_async())

    first, last = asyncio.run(load())
    np.testing.assert_array_equal(first, values[0])
    np.testing.assert_array_equal(last, values[11])


def test_xpublish(cube):
    """An application of xpublish serves cubes beside its datasets."""
    xpublish = pytest.importorskip("xpublish", reason="xpublish is not installed")
    url, values = cube
    rest = xpublish.Rest({"model": open_cube(url)})
    rest.app.mount("/cubes", vs.serve.app({"model": url}))
    with serving_app(rest.app) as server:
        assert fsspec.filesystem("http").cat(f"{server}/datasets") == b'["model"]'
        for root in ("cubes", "cubes/zarr2"):
            with xr.open_zarr(f"{server}/{root}/model", chunks=None) as found:
                np.testing.assert_array_equal(found["tas"], values)


def test_each_row_of_the_page_names_a_test():
    """That is there."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 10
    for row in rows:
        found = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert found, row
        for file, name in found:
            assert f"def {name}(" in (ROOT / file).read_text(), row
