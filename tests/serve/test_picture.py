"""The picture of the quick look in Chromium, for six usual archives: its numbers are those of xarray and pyproj."""

import re
from dataclasses import dataclass, field

import numpy as np
import pyproj
import pytest
import xarray as xr

import virtualstack as vs
from tests.archives.cmip import members
from tests.archives.cog import cog
from tests.archives.era5 import era5
from tests.archives.goes import scenes
from tests.archives.nemo import nemo
from tests.archives.wrf import wrf
from tests.serve.browser import eventually
from tests.serve.running import serving

EUROPE = (
    (8.71, 40.9), (-7.573, 55.132), (-4.073, 57.553), (1.449, 51.29), (-4.221, 52.301), (-5.787, 57.818),
    (-4.592, 35.331), (7.738, 36.887), (10.856, 33.769), (12.328, 45.381), (9.704, 44.036), (0.106, 40.124),
    (-6.237, 36.367), (-8.789, 41.184), (-2.227, 47.064), (4.707, 53.093), (9.423, 57.172), (10.939, 54.008),
    (5.665, 58.588), (13.826, 37.105),
)  # fmt: skip
AMERICA = (
    (-67.751, -53.85), (-78.216, 18.455), (-76.524, 21.207), (-78.979, 26.79), (-55.824, 49.587), (-61.724, 50.08),
    (-72.24, 41.12), (-80.679, 25.081), (-96.292, 19.321), (-86.003, 16.005), (-74.908, 11.083), (-57.149, 5.974),
    (-41.989, -22.971), (-65.566, -45.037), (-70.905, -27.641), (-77.478, 6.691), (-87.67, 12.91), (-109.292, 26.443),
    (-115.055, 27.723), (-75.646, -46.648),
)  # fmt: skip
WORLD = (
    (-59.572, -80.041), (-59.888, -63.956), (103.478, -65.701), (-179.917, -16.502), (141.562, -14.561),
    (122.273, -3.53), (-76.366, 18.16), (144.612, 43.961), (-174.928, 67.205), (-97.39, 21.411), (-75.646, -46.648),
    (-139.867, 59.538), (-74.836, 64.678), (172.148, 60.95), (77.943, 8.253), (32.831, -26.742), (35.167, 42.04),
    (21.058, 62.608), (17.595, 77.638), (-27.099, 83.52),
)  # fmt: skip
"""Longitude and latitude of places at a coast, as Natural Earth has it in 1 : 110 million."""

GEOSTATIONARY = "+proj=geos +lon_0=-75 +h=35786023 +sweep=x +ellps=GRS80"


@dataclass
class Archive:
    """What the page must show of a variable."""

    variable: str
    extent: tuple[float, float, float, float]
    """Left, right, bottom and top edge in the plane of the picture."""
    cell: float
    """Size of a cell in the plane."""
    label: str
    """What is written at the last step."""
    dim: str
    units: tuple[str, str]
    """What the ticks of x and y may end with."""
    coast: tuple[tuple[float, float], ...] = ()
    proj: str = "+proj=longlat"
    factor: float = 1.0
    """What the coordinates of the projection are times to be those of the plane."""
    open: dict[str, object] = field(default_factory=dict)
    no_value: tuple[float, float] | None = None
    """Where in the picture no value is: to the right, and down."""
    gaps: int = 0


DEGREES = (" °E| °W|°", " °N| °S|°")
ARCHIVES = {
    "era5": (
        era5,
        Archive("sst", (-10.125, 14.875, 30.125, 60.125), 0.25, "2024-02-29 12:00", "valid_time", DEGREES, EUROPE,
                no_value=(0.9, 0.1)),
    ),
    "goes": (
        scenes,
        Archive("CMI", (-0.152012, 0.151732, -0.151732, 0.152012), 3.36e-4, "2024-06-01 12:55", "t", (" rad",) * 2,
                AMERICA, GEOSTATIONARY, 1 / 35786023, gaps=1),
    ),
    "nemo": (
        nemo,
        Archive("sosstsst", (-21.55, 21.95, 29.95, 60.79), 0.1, "2024-01-02 12:00", "time_counter", DEGREES, EUROPE,
                no_value=(0.08, 0.2)),
    ),
    "wrf": (wrf, Archive("T2", (6.993, 9.8377, 45.915, 47.495), 0.014, "2024-06-01 11:00", "Time", DEGREES)),
    "cmip": (
        members,
        Archive("tas", (0.0, 360.0, -90.0, 90.0), 1.875, "1851-12-16", "time", DEGREES, WORLD),
    ),
    "cog": (
        cog,
        Archive("band_data", (600000.0, 610240.0, 5292360.0, 5300040.0), 10.0, "2024-08-04 10:30", "time",
                (" km",) * 2, proj="EPSG:32632", no_value=(0.1, 0.06),
                open={"new_dim": {"time": vs.FromName(r"(\d{8}T\d{6})", format="%Y%m%dT%H%M%S")}}),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """URL of a server with all archives, and their datasets."""
    folder = tmp_path_factory.mktemp("pictures")
    cubes, datasets = {}, {}
    for name, (make, archive) in ARCHIVES.items():
        (folder / name).mkdir()
        cubes[name] = folder / f"{name}.vstack"
        vs.open_virtual_mfdataset(make(folder / name), **archive.open).virtual.to_vstack(cubes[name])
        datasets[name] = xr.open_dataset(cubes[name], engine="virtualstack", chunks=None)
    with serving(cubes) as url:
        yield url, datasets


SHOWN = """
const image = page.locator('[data-image][data-ready=yes]');
await image.waitFor();
if (given.coast) await page.locator('[data-coast=yes]').waitFor();
const ticks = (axis) => page.locator(`[data-tick=${axis}]`).evaluateAll((all, axis) => all.map((x) =>
  [Number(x.querySelector('line').getAttribute(axis + '1')), x.querySelector('text').textContent]), axis);
const range = () => Promise.all(['low', 'high'].map((end) => page.locator(`[data-scale=${end}]`).innerText()));
const pixel = (x, [i, j]) => [...x.getContext('2d').getImageData(x.width * i, x.height * j, 1, 1).data];
const shown = { x: await ticks('x'), y: await ticks('y'), range: await range(), said: [] };
shown.coast = await page.locator('path.shore').getAttribute('d');
shown.pixel = given.none && await image.evaluate(pixel, given.none);
const slider = page.locator(`[data-dim="${given.dim}"]`);
const first = await image.evaluate((x) => x.toDataURL());
await slider.press('End');
await page.waitForFunction((first) => {
  const now = document.querySelector('[data-image][data-ready=yes]');
  return now && now.toDataURL() !== first;
}, first);
shown.last = [await range(), await page.locator('.slider', { has: slider }).locator('output').innerText()];
const box = shown.box = await image.boundingBox();
for (const [i, j] of given.points) {
  await page.mouse.move(box.x + i * box.width, box.y + j * box.height);
  shown.said.push(await page.locator('[data-readout=point]').innerText());
}
const [i, j] = given.points[0];
await page.mouse.click(box.x + i * box.width, box.y + j * box.height);
await page.locator('.series path').waitFor();
shown.series = [await page.locator('.series path').getAttribute('d'), await page.locator('.series h3').innerText()];
return shown;
"""
"""What a person sees of one picture: ticks, coast, range; the same at the last step; values at points; a series."""


def number(text):
    """The number of a tick: to the west and to the south it is negative, and kilometres are thousands."""
    plain = text.replace("−", "-").replace(",", "")
    found = float(re.match(r"-?[\d.]+", plain)[0])
    return found * (-1 if text.endswith(("W", "S")) else 1000 if text.endswith("km") else 1)


def places(archive, dataset):
    """Longitude, latitude and place in the plane of all cells of the variable."""
    left, right, bottom, top = archive.extent
    variable = dataset[archive.variable]
    if "nav_lat" in dataset:
        x, y = dataset["nav_lon"].values, dataset["nav_lat"].values
    elif "XLAT" in dataset:
        x, y = dataset["XLONG"][0].values, dataset["XLAT"][0].values
    else:
        rows, columns = variable.shape[-2:]
        across = left + (np.arange(columns) + 0.5) / columns * (right - left)
        down = top - (np.arange(rows) + 0.5) / rows * (top - bottom)
        if archive.variable == "tas":
            down = down[::-1]
        x, y = np.meshgrid(across, down)
    lon, lat = pyproj.Proj(archive.proj)(x / archive.factor, y / archive.factor, inverse=True)
    is_space = np.isinf(lon)  # beside the disk of the earth
    return (np.where(is_space, np.nan, a).astype("f8") for a in (lon, lat, x, y))


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_picture(chromium, served, name):
    """Cells, ticks, coast, colours and labels of one archive are where and what Python says."""
    url, datasets = served
    _, archive = ARCHIVES[name]
    dataset = datasets[name]
    left, right, bottom, top = archive.extent
    lon, lat, x, y = places(archive, dataset)
    rng = np.random.default_rng(1)
    cells = [(int(rng.uniform(0.2, 0.8) * x.shape[0]), int(rng.uniform(0.3, 0.7) * x.shape[1])) for _ in range(4)]
    points = [[(x[cell] - left) / (right - left), (top - y[cell]) / (top - bottom)] for cell in cells]
    chromium.open(f"{url}/#cube={name}&panel=look&variable={archive.variable}", width=1200, height=1500)
    given = {"dim": archive.dim, "none": archive.no_value, "points": points, "coast": bool(archive.coast)}
    shown = chromium.run(SHOWN, given)
    assert chromium.seen()["errors"] == []

    width, height = shown["box"]["width"], shown["box"]["height"]
    assert width / height == pytest.approx((right - left) / (top - bottom), rel=0.02)

    for axis, begin, end, length, units in (
        ("x", left, right, width, archive.units[0]),
        ("y", top, bottom, height, archive.units[1]),
    ):
        ticks = shown[axis]
        assert len(ticks) >= 2
        for at, text in ticks:
            assert re.fullmatch(rf"−?[\d.,]+({units})", text), text
            wanted = (number(text) - begin) / (end - begin) * length
            is_turned = name == "cmip" and axis == "x"  # west of Greenwich is on the right
            assert at % length == pytest.approx(wanted % length, abs=1.5) or (is_turned and wanted % length < 1), text

    steps = re.findall(r"[\d.-]+ [\d.-]+", shown["coast"])
    path = np.array([[float(x) for x in step.split()] for step in steps]).reshape(-1, 2)
    for place in archive.coast:
        a, b = pyproj.Proj(archive.proj)(*place) if archive.proj != "+proj=longlat" else place
        a, b = np.multiply((a, b), archive.factor)
        if name == "cmip":
            a %= 360
        at = (a - left) / (right - left) * width, (top - b) / (top - bottom) * height
        assert np.hypot(*(path - at).T).min() <= max(archive.cell / (right - left) * width, 1), place
    is_inside = np.all((path > 0) & (path < (width, height)), axis=-1)
    assert is_inside.any() == bool(archive.coast)

    variable = dataset[archive.variable]
    values = variable.isel({archive.dim: -1}).values.reshape(-1, *x.shape)[0]
    pixel = (right - left) / width
    for asked, text in zip(cells, shown["said"], strict=True):
        lat_said, lon_said = (number(x) for x in re.search(r"at (\S+ °[NS]|\S+°), (\S+ °[EW]|\S+°)", text).groups())
        away = np.hypot((lon - lon_said + 180) % 360 - 180, lat - lat_said)
        cell = np.unravel_index(np.nanargmin(away), away.shape)
        assert away[cell] < 0.2 * max(
            abs(lat[cell[0] + 1, cell[1]] - lat[cell]), abs(lon[cell[0], cell[1] + 1] - lon[cell])
        )
        assert np.hypot(x[cell] - x[asked], y[cell] - y[asked]) <= 1.5 * pixel
        said = re.match(r"(no value|\S+)", text)[0]
        assert said == "no value" if np.isnan(values[cell]) else float(said) == pytest.approx(values[cell], rel=1e-6)

    if archive.no_value:
        assert shown["pixel"] in ([0xEC, 0xEA, 0xE6, 255], [0xB9, 0xB4, 0xAB, 255])
    low, high = (float(x) for x in shown["range"])
    true = [float(variable.min()), float(variable.max())]
    span = true[1] - true[0]
    digit = 1e-6 * max(map(abs, true))
    assert true[0] - digit <= low < true[0] + 0.2 * span
    assert true[1] - 0.2 * span < high <= true[1] + digit
    assert shown["last"] == [shown["range"], archive.label]

    assert "band 1" not in chromium.text("[data-extent]")
    line, title = shown["series"]
    assert line.count("M") == 1 + archive.gaps
    assert line.count("M") + line.count("L") == dataset.sizes[archive.dim]
    assert f"along {archive.dim} at " in title


def test_steps_and_zoom(chromium, served):
    """A date that is written, arrows, play, words as labels; buttons, keys and the pointer change what is shown."""
    url, datasets = served
    chromium.open(f"{url}/#cube=cmip&panel=look&variable=tas", width=1200, height=1500)
    chromium.run("await page.locator('[data-image][data-ready=yes]').waitFor()")
    outputs = "return page.locator('.slider output').allInnerTexts()"
    dates = [f"{x.year:04}-{x.month:02}-{x.day:02}" for x in datasets["cmip"]["time"].values]
    chromium.run("await page.locator('[data-goto=time]').fill('1851-02'); await page.keyboard.press('Enter')")
    assert chromium.run(outputs) == ["r1i1p1f2", dates[13]]
    chromium.run("await page.getByRole('button', { name: 'Next time' }).click()")
    assert chromium.run(outputs) == ["r1i1p1f2", dates[14]]
    chromium.run("for (let i = 0; i < 2; i++) await page.getByRole('button', { name: 'Previous time' }).click()")
    chromium.run("await page.locator('[data-goto=variant_label]').fill('r2'); await page.keyboard.press('Enter')")
    assert chromium.run(outputs) == ["r2i1p1f2", dates[12]]
    chromium.run("await page.locator('[data-play=time]').click()")
    chromium.run(
        "await page.waitForFunction((x) => document.querySelectorAll('.slider output')[1].textContent !== x, given)",
        dates[12],
    )
    chromium.run("await page.locator('[data-play=time]').click()")

    def stands():
        stopped = chromium.run(outputs)
        chromium.run("await page.waitForTimeout(900)")
        assert chromium.run(outputs) == stopped

    eventually(stands)

    view = "return (await page.locator('[data-image]').getAttribute('data-view')).split(',').map(Number)"
    assert chromium.run(view) == [0, 360, -90, 90]
    chromium.run("await page.getByRole('button', { name: 'Zoom in' }).click()")
    assert chromium.run(view) == [90, 270, -45, 45]
    chromium.run(
        "const box = await page.locator('[data-image]').boundingBox(); const [x, y] = [box.x + 300, box.y + 200];"
        "await page.mouse.move(x, y); await page.mouse.down();"
        "await page.mouse.move(x + box.width / 4, y - box.height / 4, { steps: 3 }); await page.mouse.up()"
    )
    np.testing.assert_allclose(chromium.run(view), [45, 225, -67.5, 22.5], atol=0.2)
    assert not chromium.run("return page.locator('.series').count()")  # a drag is no click
    chromium.run("await page.locator('[data-image]').press('0')")
    assert chromium.run(view) == [0, 360, -90, 90]
    assert chromium.seen()["errors"] == []


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """URL of cubes whose dimensions have words, classes, a packing of floats, and one whose chunks are large."""
    folder = tmp_path_factory.mktemp("words")
    times = np.array([f"2024-06-0{day}_06:00:00" for day in (1, 2, 3)], "S19")
    values = np.arange(3 * 4 * 6, dtype="f4").reshape(3, 4, 6)
    flags = {"flag_values": np.array([0, 1, 2], "i1"), "flag_meanings": "water dry_land snow"}
    model = {
        "Times": ("Time", times),
        "t": (("Time", "y", "x"), values),
        "cover": (("y", "x"), (values[0] % 3).astype("i1"), flags),
        "anomaly": (("y", "x"), values[0] - 9),
    }
    bands = {"r": (("band", "y", "x"), values)}
    large = {"v": (("time", "y", "x"), np.zeros((3, 1000, 1000)))}
    datasets = {
        "model": (xr.Dataset(model), {}),
        "bands": (xr.Dataset(bands, {"band": ["B02", "B03", "B08"]}), {}),
        "large": (xr.Dataset(large), {"v": {"zlib": True, "chunksizes": (1, 1000, 1000)}}),
    }
    for name, (dataset, encoding) in datasets.items():
        dataset.to_netcdf(folder / f"{name}.nc", engine="netcdf4", encoding=encoding)
    disk = np.add.outer(np.arange(2400.0), np.arange(2100.0) / 4096)
    arrays = {
        "is_land": (("y", "x"), values[0] > 9),
        "disk": (("row", "column"), disk),
        "p": ("y", 101325 + np.arange(4) / 1024),
    }
    xr.Dataset(arrays).chunk(row=512, column=512).to_zarr(folder / "arrays.zarr", zarr_format=2)
    with serving({name: folder / f"{name}.nc" for name in datasets} | {"arrays": folder / "arrays.zarr"}) as url:
        yield url


def test_words_and_classes(chromium, words):
    """Labels are words of the file, classes have names, and numbers about zero have colours about it."""
    ready = "await page.locator('[data-image][data-ready=yes]').waitFor()"
    for cube, variable, label in (("model", "t", "2024-06-03 06:00"), ("bands", "r", "B08")):
        chromium.open(f"{words}/#cube={cube}&panel=look&variable={variable}")
        chromium.run(ready)
        chromium.run("await page.locator('[data-dim]').press('End')")
        assert chromium.text(".slider output") == label
    chromium.open(f"{words}/#cube=model&panel=look&variable=cover")
    chromium.run(ready)
    assert chromium.text("[data-scale=classes]").split("\n") == ["water", "dry land", "snow"]
    chromium.run("await page.locator('[data-image]').click({ position: { x: 2, y: 2 } })")
    assert chromium.text("[data-readout=point]").startswith("water at ")
    chromium.open(f"{words}/#cube=model&panel=look&variable=anomaly")
    chromium.run(ready)
    assert [chromium.text(f"[data-scale={end}]") for end in ("low", "high")] == ["-14", "14"]
    assert chromium.run("return page.getByRole('combobox', { name: 'Colours' }).inputValue()") == "blue to red"


def test_arrays_of_booleans_large_ones_and_small_differences(chromium, words):
    """Booleans are two classes, a large picture is seen whole, and ticks of a series tell its values apart."""
    ready = "await page.locator('[data-image][data-ready=yes]').waitFor()"
    chromium.open(f"{words}/#cube=arrays&panel=look&variable=is_land")
    chromium.run(ready)
    assert chromium.text("[data-scale=classes]").split("\n") == ["false", "true"]
    chromium.run("await page.locator('[data-image]').click({ position: { x: 2, y: 2 } })")
    assert chromium.text("[data-readout=point]").startswith("false at ")
    chromium.open(f"{words}/#cube=arrays&panel=look&variable=disk")
    chromium.run(ready)
    assert chromium.text("[data-note=part]").startswith("One of 3 × 3 cells is drawn")
    low, high = (float(chromium.text(f"[data-scale={end}]")) for end in ("low", "high"))
    assert (low, high) == pytest.approx((1 + 1 / 4096, 2398 + 2098 / 4096), abs=1e-3)
    chromium.open(f"{words}/#cube=arrays&panel=look&variable=p")
    chromium.run("await page.locator('.series').waitFor()")
    ticks = chromium.run("return page.locator('[data-tick=value]').evaluateAll((all) => all.map((x) => x.textContent))")
    assert ticks == ["101,325", "101,325.0005", "101,325.001", "101,325.0015", "101,325.002", "101,325.0025"]
    assert chromium.seen()["errors"] == []


def test_a_series_of_many_bytes_is_asked_for(chromium, words):
    """It is not read until somebody wants it."""
    chromium.open(f"{words}/#cube=large&panel=look&variable=v")
    image = "[data-image][data-ready=yes]"
    chromium.run("await page.locator(given).click({ position: { x: 9, y: 9 } })", image)
    assert chromium.text("[data-note=asks]").startswith("This series is 3 chunks, 24.0 MB when decoded.")
    assert not chromium.run("return page.locator('.series').count()")
    chromium.run("await page.getByRole('button', { name: 'Read it' }).click(); await page.locator('.series').waitFor()")
    assert not chromium.run("return page.locator('[data-note=asks]').count()")
    assert chromium.seen()["errors"] == []
