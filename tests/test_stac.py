"""Items of a catalog become one cube with the values that rasterio and xarray read, and a cube becomes an item."""

import json

import numpy as np
import pytest
import rasterio
import xarray as xr

import virtualstack as vs
from tests.servers import RangeServer
from virtualstack.errors import CombineError, ForbiddenLocationError, ReaderError

pystac = pytest.importorskip("pystac", reason="pystac is not installed")

DAYS = ["2024-04-06", "2024-05-11", "2024-06-20"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Scenes of one tile, and a GeoJSON file of their items with relative paths, the last day first."""
    made = tmp_path_factory.mktemp("stac")
    vs.sample.scenes(made / "scenes")
    items = [item(day, i) for i, day in reversed(list(enumerate(DAYS)))]
    (made / "items.json").write_text(json.dumps({"type": "FeatureCollection", "features": items}))
    return made


def item(day, number, **properties):
    assets = {
        band: {
            "href": f"./scenes/T32UPU_{day}_{band}.tif",
            "type": "image/tiff; profile=x",
            "roles": ["data"],
        }
        for band in ("B04", "B08")
    }
    assets["thumbnail"] = {"href": "./none.png", "type": "image/png", "roles": ["thumbnail"]}
    properties = {
        "datetime": f"{day}T10:30:00Z",
        "eo:cloud_cover": 10.0 * number,
        "proj:code": "EPSG:32632",
    } | properties
    return {
        "type": "Feature", "stac_version": "1.1.0", "stac_extensions": [], "id": f"scene{number}", "geometry": None,
        "properties": properties, "links": [], "assets": assets,
    }  # fmt: skip


def absolute(folder, *changed):
    """Return the items with absolute paths."""
    for each in changed:
        for asset in each["assets"].values():
            asset["href"] = asset["href"].replace("./", f"{folder}/")
    return list(changed)


def check(cube, folder, days=DAYS):
    np.testing.assert_array_equal(cube["time"], np.array([f"{day}T10:30" for day in days], "M8[ns]"))
    values = cube.virtual.open()
    for band in ("B04", "B08"):
        for i, day in enumerate(days):
            with rasterio.open(folder / "scenes" / f"T32UPU_{day}_{band}.tif") as scene:
                np.testing.assert_array_equal(values[band][i], scene.read(1))


def test_items_of_a_file(folder):
    """By default all data are taken; dates are in order, and paths are relative to the file."""
    cube = vs.stac.open_items(folder / "items.json", properties=["eo:cloud_cover"])
    assert set(cube.data_vars) == {"B04", "B08"}
    assert cube["B04"].dims == ("time", "y", "x")
    np.testing.assert_array_equal(cube["eo:cloud_cover"], [0.0, 10.0, 20.0])
    check(cube, folder)
    cube.virtual.to_vstack(folder / "cube.vstack", mode="w")
    with xr.open_dataset(folder / "cube.vstack", engine="virtualstack", chunks=None) as opened:
        xr.testing.assert_identical(opened.load(), cube.virtual.open().load())


def test_items_of_pystac(folder):
    """A collection, and items with a link to their own file."""
    items = pystac.ItemCollection.from_dict(
        {"type": "FeatureCollection", "features": absolute(folder, *(item(day, i) for i, day in enumerate(DAYS)))}
    )
    check(vs.stac.open_items(items), folder)
    linked = []
    for i, day in enumerate(DAYS):
        linked.append(pystac.Item.from_dict(item(day, i)))
        linked[-1].set_self_href(str(folder / f"{i}.json"))
    check(vs.stac.open_items(linked), folder)


def test_paths_are_relative_to_their_own_item(folder, tmp_path, monkeypatch):
    """A dict after an item with a link to its file is relative to the working directory; ``..`` goes up."""
    monkeypatch.chdir(folder)
    linked = pystac.Item.from_dict(absolute(folder, item(DAYS[0], 0))[0])
    linked.set_self_href(str(tmp_path / "0.json"))
    above = pystac.Item.from_dict(item(DAYS[2], 2))
    for asset in above.assets.values():
        asset.href = asset.href.replace("./", "../")
    above.set_self_href(str(folder / "items" / "2.json"))
    check(vs.stac.open_items([linked, item(DAYS[1], 1), above], ["B04", "B08"]), folder)


def test_an_item_lacks_an_asset(folder):
    """The variable is missing at its date."""
    items = absolute(folder, *(item(day, i) for i, day in enumerate(DAYS)))
    del items[1]["assets"]["B08"]
    cube = vs.stac.open_items(items, ["B04", "B08"])
    values = cube.virtual.open()
    assert values["B08"][1].isnull().all()
    assert not values["B08"][[0, 2]].isnull().any()
    np.testing.assert_array_equal(values["B04"][1], vs.stac.open_items(items, "B04").virtual.open()["B04"][1])


def test_files_with_labels_of_their_own(folder, tmp_path):
    """netCDF files are joined by their labels; two collections that differ in time are one cube."""
    files = vs.sample.model(tmp_path)
    items = [
        {"id": str(i), "properties": {"datetime": f"2024-06-0{i + 1}T00:00:00Z"},
         "assets": {"day": {"href": file, "type": "application/netcdf", "roles": ["data"]}}}
        for i, file in enumerate(files)
    ]  # fmt: skip
    got = vs.combine_datasets([vs.stac.open_items(items[:2]), vs.stac.open_items(items[2:])])
    with xr.open_mfdataset(files, engine="h5netcdf", chunks=None) as wanted:
        xr.testing.assert_equal(got.virtual.open().load(), wanted.load())


def test_properties_are_those_of_the_files_that_count(folder, tmp_path):
    """Of two items with one date, the property comes from the item whose file does; one that is unknown is missing."""
    items = absolute(folder, item(DAYS[0], 1), item(DAYS[0], 2), item(DAYS[1], 3))
    for kept, clouds in (("first", 10.0), ("last", 20.0)):
        cube = vs.stac.open_items(items, "B04", duplicates=kept, properties=["eo:cloud_cover"])
        np.testing.assert_array_equal(cube["eo:cloud_cover"], [clouds, 30.0])
    items[2]["properties"]["eo:cloud_cover"] = None
    cube = vs.stac.open_items(items[1:], "B04", properties=["eo:cloud_cover"])
    np.testing.assert_array_equal(cube["eo:cloud_cover"], np.array([20.0, np.nan]))
    with pytest.raises(ReaderError, match=r"'cloud'.*eo:cloud_cover"):
        vs.stac.open_items(items[1:], "B04", properties=["cloud"])
    day = {"day": {"href": vs.sample.model(tmp_path)[0], "roles": ["data"]}}
    with pytest.raises(CombineError, match="labels of their own"):
        vs.stac.open_items([{**items[0], "assets": day}], properties=["eo:cloud_cover"])


@pytest.mark.parametrize(
    ("longitudes", "west", "east"),
    [
        (np.arange(165, 200, 5), 165, -165),
        (np.arange(10, 205, 5), 10, -160),
        (np.arange(200, 300, 10), -160, -70),
        (np.arange(0, 360, 30), -180, 150),
        (np.arange(-180, 180, 10), -180, 170),
    ],
)
def test_the_place_of_a_cube_beyond_the_date_line(longitudes, west, east):
    """It does not go around the Earth: west is greater than east, and the geometry has two parts."""
    coords = {"lat": ("lat", [0.0, 1.0], {"units": "degrees_north"})}
    coords["lon"] = ("lon", longitudes.astype(float), {"units": "degrees_east"})
    made = vs.stac.make_item(xr.Dataset(coords=coords), "x.vstack", "x")
    assert made["bbox"] == [west, 0, east, 1]
    if west < east:
        assert made["geometry"]["type"] == "Polygon"
    else:
        parts = [[x for x, _ in part[0]] for part in made["geometry"]["coordinates"]]
        assert [(min(x), max(x)) for x in parts] == [(west, 180), (-180, east)]


def test_what_is_refused(folder, tmp_path):
    """Other systems, grids and dates would make wrong cubes."""
    items = absolute(folder, *(item(day, i) for i, day in enumerate(DAYS)))
    with pytest.raises(ReaderError, match="'B99'") as error:
        vs.stac.open_items(items, "B99")
    assert "B04" in str(error.value)
    with pytest.raises(ReaderError, match="no items"):
        vs.stac.open_items([])
    with pytest.raises(ReaderError, match="'x' has no assets"):
        vs.stac.open_items({"id": "x", "properties": {}})
    other = absolute(folder, item(DAYS[1], 1, **{"proj:code": "EPSG:32633"}))
    with pytest.raises(CombineError, match="EPSG:32633"):
        vs.stac.open_items([items[0], *other], "B04")
    twice = absolute(folder, item(DAYS[0], 7))
    with pytest.raises(CombineError, match="2024-04-06"):
        vs.stac.open_items([items[0], *twice], "B04")
    with rasterio.open(folder / "scenes" / f"T32UPU_{DAYS[0]}_B04.tif") as scene:
        profile = scene.profile | {"width": 128, "height": 128, "transform": scene.transform @ scene.transform.scale(2)}
    with rasterio.open(tmp_path / "coarse.tif", "w", **profile) as scene:
        scene.write(np.ones((1, 128, 128), profile["dtype"]))
    mixed = absolute(folder, item(DAYS[0], 0))
    mixed[0]["assets"]["B08"]["href"] = str(tmp_path / "coarse.tif")
    with pytest.raises(CombineError, match="not on one grid"):
        vs.stac.open_items(mixed)


def test_an_item_of_a_cube(folder, tmp_path):
    """pystac takes it, and xarray opens its asset as it says."""
    cube = vs.open_virtual_mfdataset(vs.sample.model(tmp_path / "model"))
    cube.virtual.to_vstack(tmp_path / "model.vstack")
    made = pystac.Item.from_dict(json.loads(json.dumps(vs.stac.make_item(cube, tmp_path / "model.vstack", "model"))))
    assert made.common_metadata.start_datetime < made.common_metadata.end_datetime
    west, south, east, north = made.bbox
    assert (west, east) == (-180, 174)
    assert (south, north) == (float(cube["lat"].min()), float(cube["lat"].max()))
    dims = made.properties["cube:dimensions"]
    assert {name: dims[name]["type"] for name in ("time", "lat", "lon")} == {
        "time": "temporal", "lat": "spatial", "lon": "spatial"
    }  # fmt: skip
    assert made.properties["cube:variables"]["tas"]["dimensions"] == ["time", "lat", "lon"]
    asset = made.assets["cube"]
    with xr.open_dataset(asset.href, **asset.extra_fields["xarray:open_kwargs"]) as opened:
        xr.testing.assert_equal(opened.load(), cube.virtual.open().load())


def test_the_place_of_a_projected_cube(folder):
    """In degrees, from its reference system."""
    pytest.importorskip("pyproj")
    cube = vs.stac.open_items(folder / "items.json", "B04")
    made = vs.stac.make_item(cube, "x.vstack", "tile")
    with rasterio.open(folder / "scenes" / f"T32UPU_{DAYS[0]}_B04.tif") as scene:
        ends = rasterio.warp.transform_bounds(scene.crs, 4326, *scene.bounds)
    np.testing.assert_allclose(made["bbox"], ends, atol=1e-3)
    assert vs.stac.make_item(cube.drop_vars("spatial_ref"), "x.vstack", "tile")["geometry"] is None


@pytest.mark.parametrize("made", [lambda url, _: url, lambda url, item: [pystac.Item.from_dict(item, href=url)]])
def test_items_from_a_network_name_no_local_files(folder, made):
    """The catalog of a stranger would choose which files of this machine become values."""
    (named,) = absolute(folder, item(DAYS[0], 0))
    with RangeServer({"items.json": json.dumps(named).encode()}) as server:
        items = made(server.url("items.json"), named)
        with pytest.raises(ForbiddenLocationError) as caught:
            vs.stac.open_items(items, ["B04", "B08"])
        assert caught.value.url.startswith(f"file://{folder}/scenes/")
        cube = vs.stac.open_items(items, ["B04", "B08"], allow=folder)
    check(cube, folder, DAYS[:1])
