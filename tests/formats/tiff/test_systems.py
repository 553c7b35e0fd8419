"""Coordinate reference systems of GeoTIFFs, beside rioxarray; with rasterio and pyproj, and without them."""

import numpy as np
import pytest
import rasterio
import rioxarray
import tifffile

import virtualstack as vs
from tests.data.files import replace_once
from virtualstack.formats.tiff import georeference

pytestmark = pytest.mark.filterwarnings("ignore")  # of rioxarray and what it builds on

VALUES = np.arange(12, dtype="u1").reshape(3, 4)
SPHERE, CLARKE = "+a=6370000 +b=6370000", "+ellps=clrk66"
WRITTEN = {
    "geocentric": "EPSG:4978",
    "geographic with heights": "EPSG:4979",
    "with heights": "EPSG:7415",
    "with other heights": "EPSG:32632+5773",
    "of heights": "EPSG:5773",
    "Swiss": "EPSG:2056",
    "Malaysian": "EPSG:3375",
    "grads": "EPSG:4807",
    "deprecated": "EPSG:2400",
    "without WKT 1": "EPSG:8857",
    "of ESRI": "ESRI:54030",
    "Mars": "IAU_2015:49900",
    "local": 'LOCAL_CS["x",UNIT["metre",1]]',
    "omerc": f"+proj=omerc +lat_0=4 +lonc=102 +alpha=323 +gamma=320 +k=0.9 +x_0=10 +y_0=20 {CLARKE}",
    "omerc of the origin": f"+proj=omerc +no_uoff +lat_0=4 +lonc=102 +alpha=323 +gamma=320 +k=0.9 +x_0=10 {CLARKE}",
    "somerc": "+proj=somerc +lat_0=46 +lon_0=7 +x_0=6e5 +y_0=2e5 +ellps=bessel +towgs84=674,15,405",
    "nzmg": "+proj=nzmg +lat_0=-41 +lon_0=173 +x_0=2510000 +y_0=6023150 +datum=nzgd49",
    **{
        name: f"+proj={name} +lat_0=45 +lon_0=10 +x_0=100 +y_0=200 {SPHERE}"
        for name in ("poly", "gnom", "ortho", "vandg", "mill", "aeqd", "laea", "cass", "sterea")
    },
    "eqdc": f"+proj=eqdc +lat_0=10 +lon_0=20 +lat_1=30 +lat_2=40 {CLARKE}",
    "tmerc of the south": "+proj=tmerc +axis=wsu +lon_0=29 +datum=WGS84",
    "UTM in feet": "+proj=utm +zone=33 +datum=WGS84 +units=us-ft",
    "UTM in kilometres": "+proj=utm +zone=33 +datum=WGS84 +units=km",
    "tmerc in other units": "+proj=tmerc +lon_0=20 +to_meter=1.5 +datum=WGS84",
    "of Ferro": "+proj=tmerc +lat_0=10 +lon_0=20 +ellps=bessel +pm=ferro",
    "shifted": "+proj=longlat +ellps=bessel +towgs84=598.1,73.7,418.2,0.202,0.045,-2.455,6.7",
    "geocentric of an ellipsoid": "+proj=geocent +ellps=intl",
}
UTM, NAD27 = {1024: 1, 1025: 1, 3072: 32633}, {1024: 2, 1025: 1, 2048: 4267}
AT_ITS_WORD = [{**UTM, 3072: 2263, 3076: 9001}, {1024: 1, 3072: 1025}]  # codes that only a database contradicts
BY_HAND = [
    *AT_ITS_WORD,
    *({**UTM, 3076: unit} for unit in (9001, 9002, 9003, 9036)),
    {**UTM, 3072: 2263, 3076: 9003},
    {**UTM, 2048: 4326},
    {**UTM, 2048: 4267},
    {**UTM, 2048: 4326, 2054: 9105},
    {**UTM, 2056: 7008},
    {**UTM, 3074: 16033},
    {**UTM, 4096: 5030},
    {**UTM, 4096: 5101},
    NAD27,
    *({**NAD27, 2054: unit} for unit in (9101, 9102, 9105)),
    {**NAD27, 2050: 6289},
    {**NAD27, 2051: 8903},
    {**NAD27, 2056: 7022},
    {**NAD27, 3072: 32633},
    {1025: 1},
    {1024: 1, 1025: 1},
    {1024: 2, 1025: 1},
    {1024: 3, 1025: 1, 2048: 4326},
    {1024: 1, 2048: 4326},
    {1024: 1, 3072: 32633, 4096: 4979},
    {3072: 32633},
    {3076: 9002},
]


def write(path, system):
    if isinstance(system, str):
        transform = rasterio.Affine(30, 0, 5e5, 0, -30, 5e6)
        size = {"height": 3, "width": 4, "count": 1, "dtype": "uint8"}
        with rasterio.open(path, "w", driver="GTiff", crs=system, transform=transform, **size) as file:
            file.write(VALUES[None])
    else:
        table = [1, 1, 0, len(system), *(x for key, value in system.items() for x in (key, 0, 1, value))]
        tifffile.imwrite(path, VALUES, extratags=[(34735, "H", len(table), tuple(table), True)], metadata=None)


def opened(path):
    """Attributes of what virtualstack opens, and the notes of its report."""
    found = vs.open_virtual_dataset(path)
    place = found.coords.get("spatial_ref")
    return {} if place is None else dict(place.attrs), found.virtual.report().to_string()


@pytest.mark.parametrize("system", [*WRITTEN.values(), *BY_HAND], ids=str)
def test_attributes_are_those_of_rioxarray(system, tmp_path):
    write(tmp_path / "a.tif", system)
    with rioxarray.open_rasterio(tmp_path / "a.tif") as expected:
        attributes = dict(expected.spatial_ref.attrs)
    found, _ = opened(tmp_path / "a.tif")
    if "GeoTransform" not in found:  # of the files by hand, which rioxarray gives one that is of no effect
        attributes.pop("GeoTransform", None)
    assert {key: str(x) for key, x in found.items()} == {key: str(x) for key, x in attributes.items()}


@pytest.fixture
def nothing_known():
    """Forget what was found out with pyproj, and what without it."""
    known = georeference._wkt_by_pyproj, georeference._of_wkt, georeference._contradiction
    for function in known:
        function.cache_clear()
    yield
    for function in known:
        function.cache_clear()


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize("with_pyproj", [True, False])
@pytest.mark.parametrize("system", [*WRITTEN.values(), *BY_HAND], ids=str)
def test_systems_are_right_or_noted_without_rasterio(system, with_pyproj, tmp_path, monkeypatch):
    write(tmp_path / "a.tif", system)
    with rasterio.open(tmp_path / "a.tif") as file:
        expected = file.crs
    monkeypatch.setattr(georeference, "wkt_by_gdal", lambda *_: None)
    if not with_pyproj:
        monkeypatch.setattr(georeference, "pyproj_if_safe", lambda: None)
    found, report = opened(tmp_path / "a.tif")
    is_noted = "GeoKeys" in report
    text = found.get("crs_wkt", found.get("spatial_ref"))
    if text is None:
        assert is_noted or system == {1025: 1}
    elif system in AT_ITS_WORD and not with_pyproj:
        assert text == f"EPSG:{system[3072]}"
    elif not is_noted:
        assert rasterio.CRS.from_user_input(text).to_dict() == expected.to_dict()


def test_names_of_systems_need_not_be_text(tmp_path):
    """Rasterio opens no file that has such a name."""
    write(tmp_path / "a.tif", WRITTEN["nzmg"])
    replace_once(tmp_path / "a.tif", b"GCS Name = unknown", b"GCS Name = unkn\xf6wn")
    found, _ = opened(tmp_path / "a.tif")
    write(tmp_path / "b.tif", WRITTEN["nzmg"])
    expected, _ = opened(tmp_path / "b.tif")
    assert found["crs_wkt"] == expected["crs_wkt"].replace('GEOGCS["unknown"', 'GEOGCS["unkn?wn"')
