"""What GDAL masks and scales: masks, alpha, nodata and scales of bands, and files beside an image."""

import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr

import virtualstack as vs
from virtualstack.errors import CombineError, ReaderError
from virtualstack.readers import TIFF

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::rasterio.errors.NodataShadowWarning"),
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
    pytest.mark.filterwarnings("ignore:(Scales|Offsets) differ across bands:UserWarning"),
]
PAM = """<PAMDataset><Metadata><MDI key="A">1</MDI></Metadata>
<PAMRasterBand band="2"><NoDataValue>66</NoDataValue><Scale>2</Scale><Offset>1</Offset><Description>two</Description>
<UnitType>m</UnitType></PAMRasterBand></PAMDataset>"""
NODATA = """<PAMDataset><PAMRasterBand band="2"><NoDataValue>66</NoDataValue></PAMRasterBand></PAMDataset>"""

RGB = {"photometric": "RGB", "count": 4}
KINDS = {
    "internal mask": {"mask": "internal"},
    "external mask": {"mask": "external"},
    "mask of one band": {"mask": "internal", "count": 1, "dtype": "float32"},
    "mask and nodata": {"mask": "internal", "nodata": 7},
    "tiled mask": {"mask": "internal", "tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate"},
    "alpha": RGB | {"alpha": "YES"},
    "premultiplied alpha": RGB | {"alpha": "PREMULTIPLIED"},
    "alpha in planes": RGB | {"alpha": "YES", "interleave": "band"},
    "alpha of 16 bits": RGB | {"alpha": "YES", "dtype": "uint16"},
    "alpha of floats": RGB | {"alpha": "YES", "dtype": "float32"},
    "alpha and nodata": RGB | {"alpha": "YES", "nodata": 3},
    "grey and alpha": {"count": 2, "photometric": "MINISBLACK", "alpha": "YES"},
    "no alpha": RGB | {"alpha": "UNSPECIFIED"},
    "scales": {"dtype": "int16", "scales": (0.5, 1.0, 0.3), "offsets": (0.0, 10.0, 0.1)},
    "scales and nodata": {"dtype": "int16", "scales": (0.5, 1.0, 0.3), "nodata": 5},
    "scales and mask": {"dtype": "uint16", "scales": (0.5, 1.0, 0.3), "mask": "internal"},
    "scales of long integers": {"dtype": "int32", "scales": (0.5, 1.0, 0.3)},
    "scales and one offset": {"dtype": "int16", "scales": (0.5, 1.0, 0.3), "offsets": (1.5, 1.5, 1.5)},
    "one scale and offsets": {"dtype": "int16", "scales": (0.5, 0.5, 0.5), "offsets": (1.0, 0.0, 2.0)},
    "one offset and alpha": RGB | {"alpha": "YES", "scales": (0.5,) * 4, "offsets": (1.5,) * 4},
    "one offset and mask": {"mask": "internal", "scales": (0.5,) * 3, "offsets": (1.5,) * 3},
    "one scale and PAM": {"pam": NODATA, "dtype": "int16", "scales": (0.5,) * 3, "offsets": (2.0,) * 3},
    "PAM": {"pam": PAM},
    "PAM and nodata": {"pam": PAM, "nodata": 5},
    "PAM and scales": {"pam": PAM, "dtype": "int16", "scales": (0.5, 1.0, 0.3)},
}


def image(path, *, seed=0, mask=None, scales=None, offsets=None, pam=None, count=3, dtype="uint8", **options):
    """Write an image with rasterio."""
    data = np.random.default_rng(seed).integers(0, 200, (count, 40, 50)).astype(dtype)
    options = {"photometric": "MINISBLACK", **options}
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=mask == "internal"),
        rasterio.open(path, "w", driver="GTiff", height=40, width=50, count=count, dtype=dtype, **options) as file,
    ):
        file.write(data)
        if scales:
            file.scales, file.offsets = scales, offsets or (0.0,) * count
        if mask:
            file.write_mask(np.where(np.arange(50) + seed < 20, 0, 255).astype("u1") * np.ones((40, 1), "u1"))
    if pam:
        path.with_name(f"{path.name}.aux.xml").write_text(pam)
    return path


def bands(path, **options):
    return xr.open_dataset(path, engine="rasterio", **options)["band_data"]


@pytest.mark.parametrize("kind", KINDS)
def test_decoded_values_are_those_of_rioxarray(kind, tmp_path):
    """Whole and in parts; the stored values stay on request, and the references are virtual."""
    path = image(tmp_path / "a.tif", **KINDS[kind])
    expected = bands(path)
    vds = vs.open_virtual_dataset(path)
    for found in (xr.open_dataset(path, engine="virtualstack"), vds.virtual.open()):
        np.testing.assert_array_equal(found["band_data"].values, expected.values)
        for part in ({"band": 0, "x": slice(5, 30, 2)}, {"y": [3, 1, 7], "x": 15}, {"band": [0], "y": slice(2, 4)}):
            np.testing.assert_array_equal(found["band_data"].isel(part).values, expected.isel(part).values)
        points = {"y": xr.DataArray([3, 9], dims="p"), "x": xr.DataArray([10, 30], dims="p")}
        np.testing.assert_array_equal(found["band_data"].isel(points).values, expected.isel(points).values)
    raw = xr.open_dataset(path, engine="virtualstack", mask_and_scale=False)["band_data"]
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(raw.values, file.read())
    assert vds["band_data"].dtype == raw.dtype


@pytest.mark.parametrize("kind", KINDS)
def test_bands_as_variables_are_those_of_rioxarray(kind, tmp_path):
    """Each with its own scale, and masked by the mask or the last band."""
    path = image(tmp_path / "a.tif", **KINDS[kind])
    expected = bands(path)
    found = vs.open_virtual_dataset(path, reader=TIFF(band_as_variable=True)).virtual.open()
    for n, values in enumerate(expected.values, 1):
        np.testing.assert_allclose(found[f"band_{n}"].values, values, rtol=1e-6)


@pytest.mark.parametrize("kind", ["internal mask", "external mask", "alpha", "scales and mask", "PAM"])
def test_scenes_joined_and_stored_are_masked_as_each_of_them(kind, tmp_path):
    """Through a vstack, and cut afterwards."""
    paths = [image(tmp_path / f"s{n}.tif", seed=n, **KINDS[kind]) for n in range(2)]
    joined = vs.open_virtual_mfdataset(paths, new_dim={"n": vs.FromName(r"s(\d)")})
    expected = np.stack([bands(path).values for path in paths])
    np.testing.assert_array_equal(joined.virtual.open()["band_data"].values, expected)
    joined.virtual.to_vstack(tmp_path / "x.vstack")
    found = xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack")["band_data"]
    np.testing.assert_array_equal(found.isel(n=1, x=slice(10, 30)).values, expected[1, :, :, 10:30])
    cut = joined.isel(x=slice(10, 30), band=slice(1, None)).virtual.open()["band_data"]
    np.testing.assert_array_equal(cut.values, expected[:, 1:, :, 10:30])


def test_kerchunk_references_keep_what_is_masked(tmp_path):
    """Read back by this engine."""
    path = image(tmp_path / "a.tif", mask="internal", count=1)
    vs.open_virtual_dataset(path).virtual.to_kerchunk(tmp_path / "a.json")
    found = xr.open_dataset(tmp_path / "a.json", engine="virtualstack")["band_data"]
    np.testing.assert_array_equal(found.values, bands(path).values)


def test_images_with_and_without_a_mask_do_not_join_silently(tmp_path):
    """Stored values of one would be masked by nothing."""
    paths = [image(tmp_path / "s0.tif", mask="internal"), image(tmp_path / "s1.tif")]
    with pytest.raises(CombineError, match="mask"):
        vs.open_virtual_mfdataset(paths, new_dim={"n": vs.FromName(r"s(\d)")})


@pytest.mark.parametrize(
    ("kind", "cut", "what"),
    [
        ("internal mask", lambda vds: vds.drop_vars("mask"), "without 'mask', its mask"),
        ("alpha", lambda vds: vds.isel(band=slice(3)), "without band 4, its alpha band"),
        ("scales", lambda vds: vds.drop_vars("band"), "without the numbers of its bands"),
        ("scales", lambda vds: vds.assign_coords(band=["r", "g", "b"]), "without the numbers of its bands"),
    ],
)
def test_what_decoding_needs_is_missed_loudly(kind, cut, what, tmp_path):
    """And the option of the message gives the stored values."""
    cut = cut(vs.open_virtual_dataset(image(tmp_path / "a.tif", **KINDS[kind])))
    with pytest.raises(ReaderError, match=f"band_data.*{what}.*mask_and_scale=False"):
        cut.virtual.open()
    assert cut.virtual.open(mask_and_scale=False)["band_data"].dtype == cut["band_data"].dtype


def test_files_beside_an_image_can_be_left_out(tmp_path):
    """On request; and a mask with other bands is no mask of the image."""
    path = image(tmp_path / "a.tif", mask="external")
    plain = vs.open_virtual_dataset(path, reader=TIFF(sidecars=False))
    assert "mask" not in plain
    image(tmp_path / "b.tif", mask=None)
    image(tmp_path / "b.tif.msk", count=2)
    assert "mask" not in vs.open_virtual_dataset(tmp_path / "b.tif")


@pytest.mark.parametrize(
    "pam", ["<!DOCTYPE a [<!ENTITY b 'c'>]><PAMDataset/>", "<PAMDataset>", "<PAMDataset><SRS>x</SRS></PAMDataset>"]
)
def test_auxiliary_files_that_are_not_read_are_noted(pam, tmp_path):
    """The image opens, and the report says what is left out."""
    path = image(tmp_path / "a.tif", pam=pam)
    assert ".aux.xml" in vs.open_virtual_dataset(path).virtual.report().to_string()


def test_overviews_have_masks_of_their_own(tmp_path):
    """As GDAL opens them."""
    path = image(tmp_path / "a.tif", mask="internal", tiled=True, blockxsize=16, blockysize=16)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "r+") as file:
        file.build_overviews([2])
    tree = vs.open_virtual_datatree(path).virtual.open()
    for n, level in enumerate(({}, {"overview_level": 0})):
        expected = rioxarray.open_rasterio(path, masked=True, **level)
        np.testing.assert_array_equal(tree[f"{n}/band_data"].values, expected.values)
