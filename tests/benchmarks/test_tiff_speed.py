"""Opening and reading TIFF files beside tifffile's references, virtual-tiff and rasterio.

Run with VIRTUALSTACK_BENCHMARK=full for 1,600 and 25,600 tiles, 1,000 pages, and 10,240 x 10,240 pixels.
"""

import importlib.util
import io

import numpy as np
import pytest
import rasterio
import tifffile

import virtualstack as vs
from tests.benchmarks.timing import IS_FULL, interleaved
from virtualstack.location import absolute_url
from virtualstack.readers import TIFF, ReadOptions
from virtualstack.storage import Storage

pytestmark = pytest.mark.filterwarnings("ignore")  # of rasterio and virtual-tiff


def references(path):
    """Give tifffile's own references."""
    written = io.StringIO()
    with tifffile.TiffFile(path) as file, file.series[0].aszarr() as store:
        store.write_fsspec(written, url=path.parent.as_uri())
    return written


def virtual_tiff(path):
    import obstore.store
    from obspec_utils.registry import ObjectStoreRegistry
    from virtual_tiff import VirtualTIFF

    registry = ObjectStoreRegistry({"file://": obstore.store.LocalStore()})
    return VirtualTIFF(ifd=0)(url=f"file://{path}", registry=registry)


def rivals(path):
    found = {
        "virtualstack": lambda: TIFF().read(absolute_url(path), Storage.from_option(None), ReadOptions()),
        "tifffile": lambda: references(path),
    }
    if importlib.util.find_spec("virtual_tiff") is not None:
        found["virtual-tiff"] = lambda: virtual_tiff(path)
    return found


@pytest.mark.parametrize("n", [40, 160] if IS_FULL else [4])
def test_tiles(n, tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((16 * n, 16 * n), "u1"), tile=(16, 16), compression="zlib", metadata=None)
    got = interleaved(f"{n * n} tiles", rivals(path), repeats=15)
    assert got["virtualstack"].result.arrays["band_data"].grid.shape == (1, n, n)


def test_pages(tmp_path):
    path, n = tmp_path / "a.tif", 1000 if IS_FULL else 5
    with tifffile.TiffWriter(path) as file:
        for k in range(n):
            file.write(np.full((32, 32), k, "u2"), compression="zlib", metadata=None, contiguous=False)
    got = interleaved(f"{n} pages", rivals(path), repeats=15)
    assert got["virtualstack"].result.arrays["image"].grid.shape == (n, 1, 1)


@pytest.mark.parametrize(
    "options", [{"compress": "deflate", "predictor": 2}, {"compress": "lzw"}, {"compress": "zstd"}]
)
def test_reading(options, tmp_path):
    path, n = tmp_path / "a.tif", 10240 if IS_FULL else 256
    values = (np.add.outer(np.arange(n), np.arange(n)) // 7).astype("u2")
    values += np.random.default_rng(0).integers(0, 8, values.shape, "u2")
    size = {"count": 1, "height": n, "width": n, "dtype": "uint16", "tiled": True, "blockxsize": 512, "blockysize": 512}
    with rasterio.open(path, "w", driver="GTiff", **size, **options) as file:
        file.write(values, 1)

    def by_rasterio():
        with rasterio.open(path, num_threads=2) as file:
            return file.read(1)

    vds = vs.open_virtual_dataset(path)
    got = interleaved(
        f"{n} x {n} pixels, {options}",
        {
            "virtualstack": lambda: vds.virtual.open(mask_and_scale=False)["band_data"].values[0],
            "rasterio": by_rasterio,
            "tifffile": lambda: tifffile.imread(path, maxworkers=2),
        },
    )
    for timing in got.values():
        np.testing.assert_array_equal(timing.result, values)


@pytest.mark.parametrize("compress", ["deflate", "lzw", "zstd", "webp", "jpeg"])
def test_windows(compress, tmp_path):
    """Windows of some tiles, beside rasterio with its cache of blocks, and without: opened for each window."""
    n, side = (4096, 600) if IS_FULL else (256, 60)
    values = (np.add.outer(np.arange(n), np.arange(n)) // 7 + np.random.default_rng(0).integers(0, 8, (n, n))) % 256
    n_bands = 3 if compress in ("webp", "jpeg") else 1
    size = {"count": n_bands, "height": n, "width": n, "dtype": "uint8", "blockxsize": n // 16, "blockysize": n // 16}
    how = {"interleave": "pixel", "tiled": True, "compress": compress}
    with rasterio.open(tmp_path / "a.tif", "w", driver="GTiff", **size, **how) as file:
        file.write(np.stack([values.astype("u1")] * n_bands))
    opened = vs.open_virtual_dataset(tmp_path / "a.tif").virtual.open(mask_and_scale=False)["band_data"]
    places = np.random.default_rng(1).integers(0, n - side, (20, 2)).tolist()

    def window(file, y, x):
        return file.read(window=rasterio.windows.Window(x, y, side, side))

    def by_rasterio():
        with rasterio.open(tmp_path / "a.tif") as file:
            return [window(file, y, x) for y, x in places]

    def one_by_one(y, x):
        with rasterio.open(tmp_path / "a.tif") as file:
            return window(file, y, x)

    got = interleaved(
        f"20 windows of {side} x {side}, {compress}",
        {
            "rasterio": by_rasterio,
            "virtualstack": lambda: [opened[:, y : y + side, x : x + side].values for y, x in places],
            "no cache": lambda: [one_by_one(y, x) for y, x in places],
        },
    )
    np.testing.assert_array_equal(got["virtualstack"].result, got["rasterio"].result)
