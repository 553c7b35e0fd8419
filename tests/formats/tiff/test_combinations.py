"""Compressions, predictors, dtypes, layouts, byte orders and edges, beside tifffile and rioxarray."""

import warnings

import imagecodecs
import numpy as np
import pytest
import rasterio
import rioxarray
import tifffile
from packaging.version import Version

import virtualstack as vs
from tests.data.make_tiff import combinations
from tests.formats.tiff.like_rioxarray import check_place_and_attributes

FILES = dict(combinations())
# What tifffile does not decode, or to other values: it leaves out the masks of LERC
BY_GDAL = {"gdal_predictor2_complex_LITTLE", "gdal_predictor2_complex_BIG", "gdal_jpeg_int8", "gdal_jpeg_planes"}
BY_GDAL |= {"gdal_jpeg_no_colors", "gdal_bits24_big"}
BY_GDAL |= {name for name in FILES if name.startswith(("gdal_lerc_nan", "gdal_lerc_alpha"))}


pytestmark = pytest.mark.filterwarnings("ignore")  # of rioxarray and what it builds on


def test_there_are_many():
    assert len(FILES) >= 138


@pytest.mark.parametrize("name", FILES)
def test_values_are_those_of_tifffile(name, tmp_path):
    """Bit for bit; and dims, coordinates, CRS and attributes are those of rioxarray where GDAL reads the file."""
    if name == "jpegxl_big" and Version(imagecodecs.__version__) < Version("2026.10"):
        pytest.skip("older versions of imagecodecs do not encode it")
    path = FILES[name](tmp_path / "a.tif")
    found = vs.open_virtual_dataset(path).virtual.open(mask_and_scale=False)["band_data"].load()
    if name in BY_GDAL:
        with rasterio.open(path) as file:
            expected = file.read()
    else:
        with tifffile.TiffFile(path) as file:
            page = file.pages[0]
            expected = page.asarray()
            is_last = page.samplesperpixel > 1 and page.planarconfig == 1
        expected = (np.moveaxis(expected, -1, 0) if is_last else expected).reshape(found.shape)
    assert found.dtype == (np.uint8 if expected.dtype.kind == "b" else expected.dtype)
    assert np.array_equal(found.values, expected, equal_nan=expected.dtype.kind in "fc")
    if name.startswith("gdal"):  # GDAL reads most others too, but they say nothing of places
        check_like_rioxarray(found, path)


def check_like_rioxarray(found, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = rioxarray.open_rasterio(path).load()
        except (rasterio.errors.RasterioIOError, rasterio.errors.RasterioError):
            return  # GDAL was built without the compression
    assert found.dims == expected.dims
    assert found.dtype == expected.dtype or expected.dtype == np.float32  # of which GDAL makes float16
    check_place_and_attributes(found, expected)
