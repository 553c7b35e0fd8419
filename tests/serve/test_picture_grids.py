"""Pictures of grids of every kind in Chromium: where each value is, and what is written there, as Python says."""

import re

import numpy as np
import pandas as pd
import pyproj
import pytest
import xarray as xr

from tests.serve.running import serving

RNG = np.random.default_rng(7)
DEGREES_NORTH, DEGREES_EAST = {"units": "degrees_north"}, {"units": "degrees_east"}
NAMES = ["Zugspitze", "Hohenpeissenberg", "Helgoland", "Potsdam"]
DEPTHS = np.array([0.5, 1.5, 4.0, 10.0, 30.0, 90.0, 250.0, 700.0, 1500.0, 4000.0])
ROTATED = {
    "grid_mapping_name": "rotated_latitude_longitude",
    "grid_north_pole_latitude": 39.25,
    "grid_north_pole_longitude": -162.0,
}


def triangles():
    """Triangles that share edges, each with the latitude and longitude of its corners, as ICON writes them."""
    lon, lat = np.meshgrid(np.arange(0.0, 12, 2), np.arange(40.0, 50, 2))
    corners = []
    for row, column in np.ndindex(4, 5):
        a, b, c, d = [(row + i, column + j) for i in (0, 1) for j in (0, 1)]
        corners += [[a, b, c], [b, d, c]]
    x, y = (np.array([[values[at] for at in triangle] for triangle in corners]) for values in (lon, lat))
    attributes = {"units": "radian", "standard_name": "longitude", "bounds": "clon_vertices"}
    return xr.Dataset(
        {
            "t": (("time", "cell"), RNG.random((2, len(x))), {"coordinates": "clat clon"}),
            "clon_vertices": (("cell", "nv"), np.deg2rad(x)),
            "clat_vertices": (("cell", "nv"), np.deg2rad(y)),
            "clon": ("cell", np.deg2rad(x.mean(axis=1)), attributes),
            "clat": (
                "cell",
                np.deg2rad(y.mean(axis=1)),
                attributes | {"standard_name": "latitude", "bounds": "clat_vertices"},
            ),
        }
    )


def stations():
    """Series of stations that have names."""
    values = 280 + RNG.normal(0, 4, (4, 365))
    return xr.Dataset(
        {
            "tas": (("station", "time"), values, {"coordinates": "lat lon"}),
            "station_name": ("station", np.array(NAMES, "S18"), {"cf_role": "timeseries_id"}),
            "lat": ("station", [47.42, 47.8, 54.17, 52.38], DEGREES_NORTH),
            "lon": ("station", [10.98, 11.02, 7.89, 13.06], DEGREES_EAST),
        },
        {"time": pd.date_range("2023-01-01", periods=365)},
    )


def section():
    """Depths that are uneven, by latitude; and a value for each day and latitude."""
    lat = np.arange(-85.0, 90, 10)
    return xr.Dataset(
        {
            "thetao": (("depth", "lat"), RNG.random((10, 18))),
            "olr": (("time", "lat"), RNG.random((365, 18))),
        },
        {
            "time": pd.date_range("2023-01-01", periods=365),
            "depth": ("depth", DEPTHS, {"units": "m", "positive": "down"}),
            "lat": ("lat", lat, DEGREES_NORTH),
        },
    )


def radar():
    """Rays of a radar at 50 °N, 4 °E."""
    return xr.Dataset(
        {
            "dbz": (("azimuth", "range"), RNG.random((360, 100))),
            "latitude": ((), 50.0, DEGREES_NORTH),
            "longitude": ((), 4.0, DEGREES_EAST),
        },
        {
            "azimuth": ("azimuth", np.arange(0.5, 360), {"standard_name": "ray_azimuth_angle", "units": "degrees"}),
            "range": (
                "range",
                np.arange(500.0, 100_500, 1000),
                {"standard_name": "projection_range_coordinate", "units": "m"},
            ),
        },
    )


LAT_BOUNDS = np.array([[-90, -80], [-80, -20], [-20, 0], [0, 50], [50, 90]], "f8")


def bounds():
    """Latitudes that are not in the middle of their cells, and numbers that a float is too short for."""
    values = RNG.integers(2**60, 2**61, (5, 36))
    lat = ("lat", [-85.0, -30, -10, 10, 70], DEGREES_NORTH | {"bounds": "lat_bnds"})
    lon = ("lon", np.arange(5.0, 360, 10), DEGREES_EAST)
    return xr.Dataset(
        {"n": (("lat", "lon"), values), "lat_bnds": (("lat", "two"), LAT_BOUNDS)}, {"lat": lat, "lon": lon}
    )


def rotated():
    """A grid of CORDEX, of four months."""
    axes = {
        "rlon": ("rlon", np.arange(-20.0, 15, 2), {"standard_name": "grid_longitude", "units": "degrees"}),
        "rlat": ("rlat", np.arange(-20.0, 20, 2), {"standard_name": "grid_latitude", "units": "degrees"}),
        "time": pd.date_range("2000-01-01", periods=4, freq="MS"),
    }
    tas = 280 + RNG.random((4, 20, 18))
    data = {"tas": (("time", "rlat", "rlon"), tas, {"grid_mapping": "pole"}), "pole": ((), 0, ROTATED)}
    return xr.Dataset(data, axes)


def covers():
    """Classes that change at one place, a value that is none of them, and none at all."""
    values = np.zeros((6, 4, 8), "i1")
    values[:, 1, 2] = [2, 2, 0, -1, 7, 7]
    flags = {
        "flag_values": np.array([0, 1, 2], "i1"),
        "flag_meanings": "open_water bare forest",
        "_FillValue": np.int8(-1),
    }
    lat, lon = ("lat", np.arange(10.0, 50, 10), DEGREES_NORTH), ("lon", np.arange(0.0, 80, 10), DEGREES_EAST)
    axes = {"time": pd.date_range("2010", periods=6, freq="YS"), "lat": lat, "lon": lon}
    return xr.Dataset({"cover": (("time", "lat", "lon"), values, flags)}, axes)


def line():
    """A series and nothing else."""
    return xr.Dataset({"co2": ("time", np.arange(315.0, 415))}, {"time": pd.date_range("1958", periods=100, freq="YS")})


def pyramid(folder):
    """A tree with an image of 2048 x 2048 cells, and its overview."""
    fine = np.add.outer(np.arange(2048.0) * 4096, np.arange(2048.0))
    groups = {}
    for name, values in (("0", fine), ("1", fine[2::4, 2::4])):
        side = 2048 / len(values)
        at = (np.arange(len(values)) + 0.5) * side * 10
        axes = {
            "x": ("x", at, {"units": "m", "standard_name": "projection_x_coordinate"}),
            "y": ("y", -at, {"units": "m", "standard_name": "projection_y_coordinate"}),
        }
        groups[name] = xr.Dataset({"v": (("y", "x"), values)}, axes).chunk(x=256, y=256)
    xr.DataTree.from_dict(groups).to_zarr(folder, zarr_format=2)


@pytest.fixture(scope="module")
def grids(tmp_path_factory):
    """URL of a server, and the datasets."""
    folder = tmp_path_factory.mktemp("grids")
    datasets = {x.__name__: x() for x in (triangles, stations, section, radar, bounds, rotated, covers, line)}
    cubes = {name: folder / f"{name}.nc" for name in datasets}
    for name, dataset in datasets.items():
        dataset.to_netcdf(cubes[name], engine="netcdf4")
    many = np.add.outer(np.arange(1200.0) * 4096, np.arange(1200.0))
    xr.Dataset({"v": (("row", "column"), many)}).chunk(row=40, column=40).to_zarr(folder / "many.zarr", zarr_format=2)
    pyramid(folder / "pyramid.zarr")
    cubes |= {name: folder / f"{name}.zarr" for name in ("many", "pyramid")}
    with serving(cubes) as url:
        yield url, datasets


SAID = """
const image = page.locator('[data-image][data-ready=yes]');
await image.waitFor();
const view = (await image.getAttribute('data-view')).split(',').map(Number);
const box = await image.boundingBox();
const said = [];
for (const [x, y] of given) {
  await page.mouse.move(
    box.x + (x - view[0]) / (view[1] - view[0]) * box.width,
    box.y + (view[3] - y) / (view[3] - view[2]) * box.height,
  );
  said.push(await page.locator('[data-readout=point]').innerText());
}
return said;
"""
"""What the line below the picture says at places of its plane."""

TICKS = """
await page.locator('[data-image][data-ready=yes]').waitFor();
return page.locator(`[data-tick=${given}]`).evaluateAll((all) => all.map((x) =>
  [Number(x.dataset.at), x.querySelector('text').textContent]));
"""


def look(chromium, url, cube, variable):
    chromium.open(f"{url}/#cube={cube}&panel=look&variable={variable}", width=1200, height=1500)
    chromium.run("await page.locator('[data-image][data-ready=yes]').waitFor()")


def values(said):
    """The numbers that lines begin with."""
    return [float(x.split()[0]) for x in said]


def test_triangles_are_cells(chromium, grids):
    """Each covers what its corners say, with longitudes in radians."""
    url, datasets = grids
    data = datasets["triangles"]
    look(chromium, url, "triangles", "t")
    places = [[*np.rad2deg([lon, lat])] for lon, lat in zip(data.clon.values, data.clat.values, strict=True)]
    np.testing.assert_allclose(values(chromium.run(SAID, places)), data.t[0].values, rtol=1e-6)
    corner = [0.9 * np.rad2deg(data["clon_vertices"].values[0, k]) + 0.1 * places[0][0] for k in range(3)]
    other = [0.9 * np.rad2deg(data["clat_vertices"].values[0, k]) + 0.1 * places[0][1] for k in range(3)]
    said = values(chromium.run(SAID, [[*x] for x in zip(corner, other, strict=True)]))
    np.testing.assert_allclose(said, [data.t[0, 0].item()] * 3, rtol=1e-6)
    assert chromium.text("[data-extent]") == "40 °N to 48 °N, 0° to 10 °E"
    assert chromium.seen()["errors"] == []


def test_stations_are_points_with_names(chromium, grids):
    """A point says its name, and its series has dates below it."""
    url, datasets = grids
    data = datasets["stations"]
    look(chromium, url, "stations", "tas")
    assert chromium.text("[data-extent]").endswith("47.42 °N to 54.17 °N, 7.89 °E to 13.06 °E")
    said = chromium.run(SAID, [[x, y] for x, y in zip(data.lon.values.tolist(), data.lat.values.tolist(), strict=True)])
    np.testing.assert_allclose(values(said), data.tas[:, 0].values, rtol=1e-6)
    assert [re.search(r"at (\w+) \(", x)[1] for x in said] == NAMES
    chromium.run("await page.mouse.down(); await page.mouse.up(); await page.locator('.series').waitFor()")
    assert chromium.text(".series h3").startswith("tas along time at Potsdam (52.38 °N, 13.06 °E)")
    ticks = chromium.run(TICKS, "along")
    assert len(ticks) >= 3
    (first, begin), (last, end) = ticks[0], ticks[-1]
    assert begin == "2023-01-01"
    width = (last - first) / (pd.Timestamp(end) - pd.Timestamp(begin)).days
    for at, text in ticks:
        assert text.endswith("-01")
        assert at == pytest.approx(first + width * (pd.Timestamp(text) - pd.Timestamp(begin)).days, abs=0.5)
    assert chromium.seen()["errors"] == []


def test_a_section_is_drawn_at_its_depths(chromium, grids):
    """Depth goes down, latitude to the right; the axis of a day and a latitude has months."""
    url, datasets = grids
    data = datasets["section"]
    look(chromium, url, "section", "thetao")
    ticks = chromium.run(TICKS, "y")
    assert [(at, text) for at, text in ticks] == [(-x, f"{x:,} m") for x in range(0, 5001, 1000)]
    assert [text for _, text in chromium.run(TICKS, "x")][:2] == ["90 °S", "60 °S"]
    edges = np.r_[0, (DEPTHS[1:] + DEPTHS[:-1]) / 2, 5250]
    for depth in (800.0, 1200, 2700, 2800, 5000):
        (said,) = chromium.run(SAID, [[15.0, -depth]])
        row = np.searchsorted(edges, depth) - 1
        assert values([said]) == pytest.approx([data.thetao[row].sel(lat=15).item()], rel=1e-6)
        assert said.endswith(f"at {DEPTHS[row]:g} m, 15 °N")
    look(chromium, url, "section", "olr")
    texts = [text for _, text in chromium.run(TICKS, "x")]
    assert len(texts) >= 3
    assert all(re.fullmatch(r"2023-\d\d-01", x) for x in texts)
    (said,) = chromium.run(SAID, [[chromium.run(TICKS, "x")[1][0], -25.0]])
    assert values([said]) == pytest.approx([data.olr.sel(time=texts[1], lat=-25).item()], rel=1e-6)
    assert chromium.seen()["errors"] == []


def test_rays_of_a_radar(chromium, grids):
    """They are around its place, with north up."""
    url, datasets = grids
    data = datasets["radar"].dbz.values
    look(chromium, url, "radar", "dbz")
    cells = [(20, 50), (100, 90), (250, 30), (359, 70)]
    places = [[r * np.sin(a), r * np.cos(a)] for r, a in ((500 + 1000 * j, np.deg2rad(i + 0.5)) for i, j in cells)]
    said = chromium.run(SAID, places)
    np.testing.assert_allclose(values(said), [data[cell] for cell in cells], rtol=1e-6)
    proj = pyproj.Proj("+proj=aeqd +lat_0=50 +lon_0=4")
    for place, text in zip(places, said, strict=True):
        lat, lon = (float(x) for x in re.search(r"at (\S+) °N, (\S+) °E", text).groups())
        np.testing.assert_allclose([lon, lat], proj(*place, inverse=True), atol=0.002)
    assert chromium.seen()["errors"] == []


def test_bounds_are_edges_and_integers_are_exact(chromium, grids):
    """Cells begin and stop where their bounds say; integers of 64 bits have all of their digits."""
    url, datasets = grids
    data = datasets["bounds"].n.values
    look(chromium, url, "bounds", "n")
    view = chromium.run("return page.locator('[data-image]').getAttribute('data-view')")
    assert view == "0,360,-90,90"
    said = chromium.run(SAID, [[125.0, y] for low, high in LAT_BOUNDS for y in (low + 2, high - 2)])
    assert [int(x.split()[0]) for x in said] == np.repeat(data[:, 12], 2).tolist()
    chromium.run("await page.locator('[data-image]').click({ position: { x: 9, y: 9 } })")
    chromium.run("await page.getByText('Values as a table').click()")
    cells = "return page.locator('[data-value]').allInnerTexts()"
    assert [int(x) for x in chromium.run(cells)] == data[:, 0].tolist()
    assert chromium.seen()["errors"] == []


def test_a_series_of_classes_has_steps_and_names(chromium, grids):
    """Only those that it has, in the order of their values; a series that is all that there is, is shown at first."""
    url, _ = grids
    look(chromium, url, "covers", "cover")
    chromium.run(SAID, [[20.0, 20.0]])
    chromium.run("await page.mouse.down(); await page.mouse.up(); await page.locator('.series path').waitFor()")
    marks = chromium.run(
        "return page.locator('[data-tick=value]').evaluateAll((all) => all.map((x) =>"
        "[x.querySelector('text').textContent, Number(x.querySelector('line').getAttribute('y1')).toFixed(1)]))"
    )
    assert [text for text, _ in marks] == ["open water", "forest", "7"]
    at = dict(marks)
    path = chromium.run("return page.locator('.series path').getAttribute('d')")
    heights = [x[1] or x[2] for x in re.findall(r"([ML][\d.]+ ([\d.]+)|V([\d.]+))", path)]
    assert heights == [at[x] for x in ("forest", "forest", "forest", "open water", "open water", "7", "7", "7")]
    assert [x for x in re.findall("[A-Z]", path) if x != "H"] == list("MVLVLMVL")
    chromium.run("await page.locator('[data-series=line]').press('Home')")
    assert chromium.text("[data-readout=series]") == "forest at 2010-01-01"
    chromium.open(f"{url}/#cube=line", width=1200, height=900)
    chromium.run("await page.locator('.series path').waitFor()")
    assert chromium.text(".series h3") == "co2 along time"
    assert chromium.seen()["errors"] == []


def away(point, path):
    """Distance of a point from lines, each an array of points."""

    def one(line):
        a, b = line[:-1], line[1:]
        along = np.clip(((point - a) * (b - a)).sum(axis=1) / np.maximum(((b - a) ** 2).sum(axis=1), 1e-9), 0, 1)
        return np.hypot(*(a + along[:, None] * (b - a) - point).T).min()

    return min(one(line) for line in path if len(line) > 1)


def test_lines_of_longitude_and_latitude(chromium, grids):
    """A projected picture has them where pyproj says; the heading says what it covers; a middle of colours is named."""
    url, datasets = grids
    look(chromium, url, "rotated", "tas")
    view = [float(x) for x in chromium.run("return page.locator('[data-image]').getAttribute('data-view')").split(",")]
    width, height = chromium.run("return page.locator('[data-image]').evaluate((x) => [x.width, x.height])")
    path = chromium.run("return page.locator('[data-graticule]').getAttribute('d')")
    lines = [np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", x), "f8") for x in path.split("M")[1:]]
    to_plane = pyproj.Transformer.from_crs("EPSG:4326", pyproj.CRS.from_cf(ROTATED), always_xy=True)
    texts = chromium.run("return page.locator('.named').allTextContents()")
    assert "0°" in texts
    north = [int(x.split()[0]) for x in texts if x.endswith("°N")]
    assert north
    for lon, lat in ((0, 42), (0, 58), *((lon, lat) for lat in north for lon in (3, 20))):
        x, y = to_plane.transform(lon, lat)
        at = (x - view[0]) / (view[1] - view[0]) * width, (view[3] - y) / (view[3] - view[2]) * height
        assert away(np.array(at), lines) < 1.5, (lon, lat)
    right = "return page.locator(given).evaluateAll((all) => all.map((x) => x.getBoundingClientRect().right))"
    assert max(chromium.run(right, ".named")) <= chromium.run(right, "[data-image]")[0]
    place = re.search(r"(\S+) °N to (\S+) °N, (\S+) °W to (\S+) °E", chromium.text("[data-extent]"))
    rlon, rlat = np.meshgrid(np.linspace(-21, 15, 200), np.linspace(-21, 19, 200))
    lon, lat = to_plane.transform(rlon, rlat, direction="INVERSE")
    np.testing.assert_allclose(
        [float(x) for x in place.groups()], [lat.min(), lat.max(), -lon.min(), lon.max()], atol=1
    )

    chromium.run("await page.getByRole('combobox', { name: 'Colours' }).selectOption('blue to red')")
    chromium.run("await page.locator('[data-limit=centre]').fill('280.25')")
    low, high = (float(chromium.text(f"[data-scale={end}]")) for end in ("low", "high"))
    tas = datasets["rotated"].tas
    most = max(abs(tas.min() - 280.25), abs(tas.max() - 280.25)).item()
    np.testing.assert_allclose([low, high], [280.25 - most, 280.25 + most], rtol=1e-6)
    chromium.run("await page.locator('[data-goto=time]').fill('2000-03-01')")
    chromium.run("await page.locator('.slider output', { hasText: '2000-03-01' }).waitFor()")
    assert chromium.seen()["errors"] == []


ZOOM = """
for (let i = 0; i < given; i++) await page.getByRole('button', { name: 'Zoom in' }).click();
await page.locator('[data-note=part]').waitFor({ state: 'detached' });
"""


LEFT = """
const cells = /\\/v\\/\\d+\\.\\d+$/;
let release;
const gate = new Promise((resolve) => { release = resolve; });
await page.route(cells, async (route) => { await gate; await route.continue(); });
const asked = page.waitForRequest(cells);
await page.getByRole('button', { name: 'Zoom in' }).click();
await page.getByRole('button', { name: 'Zoom in' }).click();
await asked;
await page.getByRole('button', { name: 'Whole slice' }).click();
await page.locator('[data-image][data-ready=yes]').waitFor();
release();
"""
"""Zoom in, and leave before the part has come: the whole slice is ready."""


def test_many_chunks_are_a_sample(chromium, grids):
    """The whole slice is seen of every second chunk; zooming in, or a button, reads the others."""
    url, _ = grids
    look(chromium, url, "many", "v")
    assert chromium.text("[data-note=part]").startswith("A sample is drawn: 225 of 900 chunks.")
    asked = [x for x in chromium.seen()["urls"] if re.search(r"/v/\d+\.\d+$", x)]
    assert len(asked) == 225
    (said,) = chromium.run(SAID, [[90.0, -250.0]])
    row, column = divmod(int(said.split()[0]), 4096)
    assert max(abs(row - 250), abs(column - 90)) <= 3  # within a pixel; chunks 6 and 2 are among those that were read
    assert (row // 40 % 2, column // 40 % 2) == (0, 0)
    low, high = (float(chromium.text(f"[data-scale={end}]")) for end in ("low", "high"))
    assert low < 100 * 4096
    assert high > 1100 * 4096
    chromium.run(LEFT)
    chromium.run(ZOOM, 2)
    assert chromium.run(SAID, [[601.0, -580.0], [560.0, -650.0]])[0].split()[0] == str(580 * 4096 + 601)
    chromium.run("await page.getByRole('button', { name: 'Whole slice' }).click()")
    chromium.run("await page.getByRole('button', { name: 'Read all' }).click()")
    chromium.run("await page.locator('[data-image][data-ready=yes][data-steps=\"2,2\"]').waitFor()")
    assert chromium.text("[data-note=part]").startswith("One of 2 × 2 cells is drawn")
    assert chromium.seen()["errors"] == []


def test_an_overview_is_drawn_first(chromium, grids):
    """Nothing of the image itself is read before somebody zooms in."""
    url, _ = grids
    look(chromium, url, "pyramid", "0/v")
    assert chromium.text("[data-note=part]") == "The overview 1/v is drawn: zoom in to see all cells."
    assert len([x for x in chromium.seen()["urls"] if re.search(r"/1/v/\d", x)]) == 4
    (said,) = chromium.run(SAID, [[10_020.0, -5_020.0]])
    row, column = divmod(int(said.split()[0]), 4096)
    assert (row % 4, column % 4) == (2, 2)
    assert max(abs(row - 500), abs(column - 1000)) <= 8  # within a pixel or two
    chromium.run(ZOOM, 2)
    (said,) = chromium.run(SAID, [[10_245.0, -9_995.0]])
    assert float(said.split()[0]) == 999 * 4096 + 1024
    assert chromium.seen()["errors"] == []
