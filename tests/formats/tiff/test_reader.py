import imagecodecs
import numpy as np
import pytest
import tifffile

import virtualstack as vs
from tests.data.make_tiff import GRAY, RGB, TILE, TILES, gdal, ramp, tiff
from tests.formats.groups import group_of, stored_values
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError
from virtualstack.manifests import EMPTY
from virtualstack.readers import TIFF
from virtualstack.testing.readers import ReaderTests

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


class TestTIFF(ReaderTests):
    reader = TIFF()

    def files(self, folder):
        for name, make in {
            "tiles": tiff(GRAY, tile=TILE, compression="zlib"),
            "strips": tiff(GRAY, rowsperstrip=30, byteorder=">"),
            "predictor": tiff(GRAY, tile=TILE, compression="lzw", predictor=2, bigtiff=True),
            "jpeg": gdal(RGB.transpose(2, 0, 1), **TILES, compress="jpeg", photometric="ycbcr"),
        }.items():
            make(folder / f"{name}.tif")
            yield folder / f"{name}.tif"

    def expected(self, path):
        values = tifffile.imread(path)
        return {"/band_data": values.transpose(2, 0, 1) if values.ndim == 3 else values[None]}


class TestPages(ReaderTests):
    reader = TIFF()
    truncated_to = (0.02,)  # pages that are whole stay

    def files(self, folder):
        yield tiff(np.stack([GRAY, GRAY + 1]), photometric="minisblack", compression="zlib")(folder / "pages.tif")

    def expected(self, path):
        return {"/image": tifffile.imread(path)}


def test_strips_that_follow_each_other_are_merged(tmp_path):
    """Rows divide the image where they can; larger strips are cut."""
    path = tiff(GRAY, rowsperstrip=1)(tmp_path / "a.tif")
    assert group_of(path, TIFF(), is_tree=False).arrays["band_data"].grid.shape == (1, 1, 1)
    cut = group_of(path, TIFF(chunk_size=26 * 260), is_tree=False)
    assert [axis.chunk for axis in cut.arrays["band_data"].grid.axes] == [1, 25, 130]
    tiff(GRAY, rowsperstrip=100)(path)
    vds = vs.open_virtual_dataset(path, reader=TIFF(chunk_size="2 kB"))
    np.testing.assert_array_equal(stored_values(vds)[0], GRAY)
    with pytest.raises(ValueError, match="chunk_size=0"):
        TIFF(chunk_size=0)


def test_tiles_that_were_never_written_are_empty(tmp_path):
    """And read as nodata."""
    path = tmp_path / "a.tif"
    values = np.full((300, 260), 9, "u2")
    values[:64, :64] = 7
    gdal(values, **TILES, compress="deflate", nodata=9, SPARSE_OK=True)(path)
    array = group_of(path, TIFF(), is_tree=False).arrays["band_data"]
    assert np.count_nonzero(array.in_memory().entries["location"] == EMPTY) == 24
    np.testing.assert_array_equal(stored_values(vs.open_virtual_dataset(path))[0], values)


def test_bands_are_variables_on_request(tmp_path):
    path = tiff(RGB, tile=TILE, photometric="rgb", compression="zlib", predictor=2)(tmp_path / "a.tif")
    vds = vs.open_virtual_dataset(path, reader=TIFF(band_as_variable=True), drop_variables="band_2")
    assert list(vds.variables) == ["band_1", "band_3"]
    np.testing.assert_array_equal(stored_values(vds, "band_3"), RGB[..., 2])


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({259: 9}, r"image 0 has compression 9 \(tag 259\), JBIG, which is not decoded"),
        ({259: 6}, "old-style JPEG"),
        ({259: 7777}, "compression 7777 .* not known"),
        ({259: 32809}, "compression 32809"),
        ({266: 3}, "fill order 3"),
        ({317: 9, 259: 8}, "predictor 9"),
        ({258: 48}, "samples of 48 bits in sample format 1"),
        ({339: 7}, "sample format 7"),
        ({284: 3}, "planar configuration 3"),
    ],
)
def test_what_cannot_be_decoded_is_refused_when_opened(tags, reason, tmp_path):
    """By the number of the image and in words of TIFF."""
    path = tiff(GRAY, predictor=2, compression="zlib", extratags=[])(tmp_path / "a.tif")
    with_tags(path, {284: 1, 266: 1, **tags})
    with pytest.raises(UnsupportedFeatureError, match=rf"a\.tif.*'/band_data': .*{reason}"):
        vs.open_virtual_dataset(path)


def with_tags(path, tags):
    """Change values of tags that stand in the first directory, or put them in place of others."""
    data = bytearray(path.read_bytes())
    order = "big" if data[:2] == b"MM" else "little"
    at = int.from_bytes(data[4:8], order)
    n = int.from_bytes(data[at : at + 2], order)
    codes = {int.from_bytes(data[i : i + 2], order): i for i in range(at + 2, at + 2 + 12 * n, 12)}
    spare = [code for code in codes if code in (254, 270, 282, 283, 296, 305, 306)]
    for code, value in tags.items():
        i = codes[code] if code in codes else codes[spare.pop()]
        fields = [code.to_bytes(2, order), (3).to_bytes(2, order), (1).to_bytes(4, order), value.to_bytes(2, order)]
        data[i : i + 12] = b"".join(fields) + b"\0\0"
    path.write_bytes(data)


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("dtype", "expected"), [("i2", "c8"), ("i4", "c16")])
def test_pairs_of_integers_are_complex_numbers(dtype, expected, order, compression, tmp_path):
    """Radar images have them in sample format 5; every integer is exact."""
    limits = np.iinfo(dtype)
    pairs = np.random.default_rng(5).integers(limits.min, limits.max, (100, 130, 2), endpoint=True)
    stored = pairs.astype(f"{order}{dtype}").view(f"{order}i{2 * np.dtype(dtype).itemsize}")[..., 0]
    path = tiff(stored, tile=TILE, byteorder=order, compression=compression)(tmp_path / "a.tif")
    with_tags(path, {339: 5})
    vds = vs.open_virtual_dataset(path)
    assert vds["band_data"].dtype == expected
    np.testing.assert_array_equal(stored_values(vds)[0], pairs[..., 0] + 1j * pairs[..., 1])


def test_strips_beyond_the_end_are_malformed(tmp_path):
    path = tiff(GRAY, tile=TILE, compression="zlib")(tmp_path / "a.tif")
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(MalformedFileError, match=r"a\.tif' is not a whole TIFF file: of image 0, strip or tile 11"):
        vs.open_virtual_dataset(path)


def test_a_stack_is_read_page_by_page(tmp_path):
    """Of pages that are alike."""
    stack = np.stack([GRAY + n for n in range(5)])
    path = tiff(stack, photometric="minisblack", compression="zlib", tile=TILE)(tmp_path / "a.tif")
    vds = vs.open_virtual_dataset(path)
    assert vds["image"].dims == ("page", "y", "x")
    np.testing.assert_array_equal(stored_values(vds.isel(page=[3, 1]), "image"), stack[[3, 1]])


def test_masked_values_are_those_of_xarray(tmp_path):
    """Scale, offset and nodata are decoded when opened, as by rioxarray's engine."""
    path = gdal(ramp((100, 130), "i2"), scales=(0.5,), offsets=(20.0,), nodata=7)(tmp_path / "a.tif")
    found = vs.open_virtual_dataset(path).virtual.open()["band_data"].values[0]
    expected = np.where(ramp((100, 130), "i2") == 7, np.nan, ramp((100, 130), "i2") * 0.5 + 20)
    np.testing.assert_array_equal(found, expected)


def test_lossless_jpeg_of_two_samples_side_by_side(tmp_path):
    """DNG writes columns of a plane as samples; the file was called damaged when it was read."""
    values = (np.arange(64 * 64).reshape(64, 64) * 7 % 4096).astype("u2")
    stream = imagecodecs.ljpeg_encode(values, bitspersample=12)
    frame, scan = stream.index(b"\xff\xc3"), stream.index(b"\xff\xda")
    component = stream[frame + 11 : frame + 13]
    two = b"\xff\xc3\0\x0e" + stream[frame + 4 : frame + 7] + b"\0\x20\2" + b"\0" + component + b"\1" + component
    data = stream[:frame] + two + stream[frame + 13 : scan] + b"\xff\xda\0\x0a\2\0\0\1\0\6\0\0" + stream[scan + 10 :]
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        options = {"compression": "jpeg", "photometric": 32803, "tile": (64, 64)}
        file.write(iter([data]), shape=(64, 64), dtype="u2", **options)
    (found,) = vs.open_virtual_dataset(path).virtual.open().data_vars.values()
    np.testing.assert_array_equal(found.values.squeeze(), tifffile.imread(path))
