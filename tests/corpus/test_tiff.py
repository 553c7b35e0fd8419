"""Real TIFF files beside tifffile, image by image, and beside rioxarray."""

from pathlib import Path

import numpy as np
import pytest
import rasterio
import rioxarray
import tifffile
import xarray as xr

import virtualstack as vs
from tests.formats.tiff.like_rioxarray import check_place_and_attributes

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "tiff"
FILES = sorted(path.name for path in CORPUS.glob("*"))

pytestmark = [
    pytest.mark.skipif(not FILES, reason=f"no corpus at {CORPUS}"),
    pytest.mark.filterwarnings("ignore"),
]


def pages_of(path):
    with tifffile.TiffFile(path) as file:
        for page in file.pages:
            yield page, page.asarray()
            for below in page.pages or ():
                yield below, below.asarray()


def arrays_of(path):
    """All images of a file, with their axes of samples last, as tifffile has them."""
    tree = vs.open_virtual_datatree(path).virtual.open(mask_and_scale=False)
    for node in tree.subtree:
        for name in node.data_vars:
            array = node[name].load()
            if "band" in array.dims and array.dims[0] == "band":
                array = array.transpose(..., "band")
            pages = [dim for dim in array.dims if dim not in ("y", "x", "band")]
            yield from array.stack(page_=pages).transpose("page_", ...).values if pages else [array.values]


@pytest.mark.parametrize("name", FILES)
def test_every_image_is_in_the_tree_once(name):
    """Overviews and masks too; all values are those of tifffile, bit for bit."""
    found = list(arrays_of(CORPUS / name))
    expected = list(pages_of(CORPUS / name))
    assert len(found) == len(expected)
    for page, values in expected:
        if page.planarconfig == 2 and values.ndim == 3:
            values = np.moveaxis(values, 0, -1)
        same = [x for x in found if np.array_equal(x.squeeze(), values.squeeze(), equal_nan=values.dtype.kind in "fc")]
        assert same, f"{page} is not there"
        found = [x for x in found if x is not same[0]]
    assert not found


@pytest.mark.parametrize("name", FILES)
def test_datasets_are_those_of_rioxarray(name):
    """Dims, dtype, values, coordinates bit for bit, CRS and attributes; and values that are masked and scaled."""
    try:
        expected = rioxarray.open_rasterio(CORPUS / name)
    except rasterio.errors.RasterioIOError:
        pytest.skip("GDAL cannot read it")
    vds = vs.open_virtual_dataset(CORPUS / name)
    if isinstance(expected, xr.Dataset):  # GDAL takes pages for datasets
        assert vds["image"].shape[-2:] == (expected.sizes["y"], expected.sizes["x"])
        return
    found = vds.virtual.open(mask_and_scale=False)["band_data"].load()
    check_like_rioxarray(found, expected)
    with rioxarray.open_rasterio(CORPUS / name, mask_and_scale=True) as decoded:
        np.testing.assert_array_equal(vds.virtual.open()["band_data"].values, decoded.values)


def check_like_rioxarray(found, expected):
    assert found.dims == expected.dims
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.values, expected.values)
    check_place_and_attributes(found, expected)


def test_bands_are_variables_on_request():
    path = CORPUS / "cog_scale.tif"
    expected = rioxarray.open_rasterio(path, band_as_variable=True)
    vds = vs.open_virtual_dataset(path, reader=vs.readers.TIFF(band_as_variable=True))
    found = vds.virtual.open(mask_and_scale=False).load()
    assert list(found.data_vars) == list(expected.data_vars) == ["band_1", "band_2"]
    assert found.attrs.keys() == expected.attrs.keys()
    for name in expected.data_vars:
        check_like_rioxarray(found[name], expected[name])


def test_levels_are_those_of_rioxarray():
    """Overviews have coordinates of their own."""
    tree = vs.open_virtual_datatree(CORPUS / "cog.tif")
    scales = [x["coordinateTransformations"][0]["scale"] for x in tree.attrs["multiscales"][0]["datasets"]]
    assert [path for path in tree.groups if path != "/"] == [f"/{n}" for n in range(len(scales))]
    for n, scale in enumerate(scales[1:], start=1):
        expected = rioxarray.open_rasterio(CORPUS / "cog.tif", overview_level=n - 1)
        found = tree[str(n)].to_dataset().virtual.open(mask_and_scale=False)["band_data"].load()
        check_like_rioxarray(found, expected)
        assert scale[1] == pytest.approx(2**n, rel=0.01)
