"""Places, CRS, nodata and attributes of GeoTIFFs that few programs write, beside rioxarray."""

import numpy as np
import pytest
import rioxarray
import tifffile

import virtualstack as vs
from tests.formats.tiff.like_rioxarray import check_place_and_attributes

pytestmark = pytest.mark.filterwarnings("ignore")  # of rioxarray and what it builds on

SCALE, TIES, MATRIX, KEYS, GDAL, NODATA, POLYNOMIALS = 33550, 33922, 34264, 34735, 42112, 42113, 50844
VALUES = np.arange(12, dtype="u1").reshape(3, 4)
TIE = (0.0, 0.0, 0.0, 5e5, 4e6, 0.0)
NORTH_UP = (10.0, 0.0, 0.0, 5e5, 0.0, -10.0, 0.0, 4e6, *(0.0,) * 7, 1.0)
UTM = {1024: 1, 1025: 1, 3072: 32633}
POINT = {**UTM, 1025: 2}


def written(path, doubles, keys, values=VALUES, texts=()):
    table = [1, 1, 0, len(keys)]
    for key, value in keys.items():
        table += [key, 0, 1, value]
    tags = [(code, "d", len(x), x, True) for code, x in doubles.items()]
    tags += [(KEYS, "H", len(table), tuple(table), True)] if keys else []
    tags += [(code, "s", 0, text, True) for code, text in texts]
    tifffile.imwrite(path, values, extratags=tags, metadata=None, photometric="minisblack")
    found = vs.open_virtual_dataset(path).virtual.open(mask_and_scale=False)["band_data"].load()
    expected = rioxarray.open_rasterio(path).load()
    assert np.array_equal(found.values, expected.values)
    return found, expected


@pytest.mark.parametrize("keys", [{}, UTM, POINT, {**UTM, 1025: 0}])
@pytest.mark.parametrize(
    "doubles",
    [
        {SCALE: (10.0, 20.0, 0.0)},
        {SCALE: (10.0, 20.0, 0.0), MATRIX: NORTH_UP},
        {SCALE: (10.0, 20.0, 0.0), TIES: TIE},
        {SCALE: (10.0, 20.0), TIES: TIE[:3]},
        {SCALE: (0.0, 0.0, 0.0), TIES: TIE},
        {SCALE: (10.0,), TIES: TIE},
        {MATRIX: NORTH_UP, TIES: TIE},
        {MATRIX: NORTH_UP[:12], TIES: TIE * 2},
        {TIES: TIE},
        {},
    ],
)
def test_places_are_those_of_rioxarray(doubles, keys, tmp_path):
    """Whatever of scale, tie points and matrix is there; and whether pixels are points is known without a place."""
    check_place_and_attributes(*written(tmp_path / "a.tif", doubles, keys))


@pytest.mark.parametrize(("kind", "scale"), [(5, (20, 2, 20, 1, 0, 0)), (10, (10, 1, 20, 1, 0, 1)), (4, (10, 20, 0))])
def test_places_are_numbers_of_any_type(kind, scale, tmp_path):
    tags = [(SCALE, kind, 3, scale, True), (TIES, 4, 6, (0, 0, 0, 500000, 4000000, 0), True)]
    tifffile.imwrite(tmp_path / "a.tif", VALUES, extratags=tags, metadata=None)
    found = vs.open_virtual_dataset(tmp_path / "a.tif").virtual.open(mask_and_scale=False)["band_data"].load()
    with rioxarray.open_rasterio(tmp_path / "a.tif") as expected:
        check_place_and_attributes(found, expected.load())
    assert found.x[0] == 500005


def test_projected_systems_without_a_code_are_no_geographic_ones(tmp_path):
    system = {1024: 1, 2048: 4326, 3072: 0}
    check_place_and_attributes(*written(tmp_path / "a.tif", {SCALE: (10.0, 10.0, 0.0), TIES: TIE}, system))


@pytest.mark.parametrize(
    ("nodata", "dtype"),
    [
        ("-1.#IND", "f4"),
        ("1.#QNAN", "f8"),
        ("-1.#INF", "f4"),
        ("0,5", "f4"),
        ("7 8", "u1"),
        ("-3.4e38", "f2"),
        ("none", "u1"),
        (" ", "i2"),
        ("1.5", "i2"),
        ("-0.5", "u1"),
        ("9.2e18", "u8"),
        ("1.9", "i8"),
        ("1_0", "u1"),
        ("-nan", "f4"),
        ("1e400", "f4"),
    ],
)
def test_nodata_is_read_as_by_gdal(nodata, dtype, tmp_path):
    check_place_and_attributes(*written(tmp_path / "a.tif", {}, {}, VALUES.astype(dtype), [(NODATA, nodata)]))


def test_items_that_are_named_as_attributes_of_scales_scale_nothing(tmp_path):
    items = '<Item name="scale_factor">5</Item><Item name="add_offset" sample="0">7</Item>'
    check_place_and_attributes(
        *written(tmp_path / "a.tif", {}, {}, texts=[(GDAL, f"<GDALMetadata>{items}</GDALMetadata>")])
    )
    found = vs.open_virtual_dataset(tmp_path / "a.tif").virtual.open()["band_data"]
    assert np.array_equal(found[0], VALUES)


def test_items_are_escaped_twice_and_empty_ones_are_none(tmp_path):
    items = '<Item name="a">&amp;lt;&amp;amp;&amp;#233;</Item><Item name="b"></Item>'
    items += '<Item name="DESCRIPTION" sample="0" role="description">1 &amp;lt; 2</Item>'
    found, expected = written(tmp_path / "a.tif", {}, {}, texts=[(GDAL, f"<GDALMetadata>{items}</GDALMetadata>")])
    check_place_and_attributes(found, expected)
    assert (found.a, found.long_name) == ("<&é", "1 < 2")


@pytest.mark.parametrize(
    "xml",
    [
        '<GDALMetadata><!-- none --><Item name="a">1</Item></GDALMetadata>',
        '<GDALMetadata><Item name="a">  1 x </Item></GDALMetadata>',
        '<GDALMetadata><Group><Item name="a">1</Item></Group></GDALMetadata>',
        '<Metadata><Item name="a">1</Item></Metadata>',
        '<GDALMetadata><Item name="SCALE" sample="0" role="scale">1,5 m</Item></GDALMetadata>',
        '<GDALMetadata><Item name="OFFSET" sample="0" role="offset">none</Item></GDALMetadata>',
    ],
)
def test_items_are_found_as_by_gdal(xml, tmp_path):
    check_place_and_attributes(*written(tmp_path / "a.tif", {}, {}, texts=[(GDAL, xml), (305, "  x ")]))


@pytest.mark.parametrize("sample", ["&#178;", "9" * 5000, "x"])
def test_items_of_samples_that_are_no_number_are_left_out(sample, tmp_path):
    xml = f'<GDALMetadata><Item name="SCALE" sample="{sample}" role="scale">2</Item></GDALMetadata>'
    found, _ = written(tmp_path / "a.tif", {}, {}, texts=[(GDAL, xml)])
    assert "scale_factor" not in found.attrs


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers_have_nodata(dtype, tmp_path):
    check_place_and_attributes(*written(tmp_path / "a.tif", {}, {}, VALUES.astype(dtype), [(NODATA, "5")]))
    found = vs.open_virtual_dataset(tmp_path / "a.tif").virtual.open()["band_data"]
    with rioxarray.open_rasterio(tmp_path / "a.tif", masked=True) as expected:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("keys", [{}, UTM])
def test_rational_polynomials_are_those_of_rioxarray(keys, tmp_path):
    numbers = tuple(np.arange(92) / 3)
    found, expected = written(tmp_path / "a.tif", {POLYNOMIALS: numbers}, keys)
    assert {"x", "y"}.isdisjoint(found.coords)
    attributes = dict(expected.spatial_ref.attrs)
    del attributes["GeoTransform"]  # of no effect
    assert found.spatial_ref.attrs == attributes
    assert found.rio.get_rpcs() == expected.rio.get_rpcs()


def test_images_that_have_a_place_and_polynomials_keep_the_place(tmp_path):
    """Of which rioxarray takes the coordinates away, and says that they are of longitudes and latitudes."""
    doubles = {SCALE: (10.0, 10.0, 0.0), TIES: TIE, POLYNOMIALS: (1.0,) * 92}
    found, expected = written(tmp_path / "a.tif", doubles, UTM)
    assert found.spatial_ref.attrs["rpcs"] == expected.spatial_ref.attrs["rpcs"]
    assert found.rio.crs == "EPSG:32633"
    assert found.x[0] == 500005
