"""The page of the server in Chromium: every panel is used, and its numbers are what Python says."""

import filecmp
import re
import subprocess
from urllib.parse import quote

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.serve.browser import SOURCES, eventually, needs_packages
from tests.serve.groups import large_group, states_group
from tests.serve.running import serving
from tests.serve.unlike import cube, joined, write_files
from virtualstack.manifests.chunk_map import count_sources, map_chunks
from virtualstack.serve.facts import ASSETS
from virtualstack.surveying.cube import cube_timeline

PANELS = ["Quick look", "Variables", "Chunk map", "Timeline", "Sources", "Snapshots", "Open this"]


@pytest.fixture
def browser(chromium):
    """The browser; at the end the page must have had no error, and no large answer."""
    yield chromium
    seen = chromium.seen()
    assert seen["errors"] == []
    assert max(seen["sizes"].values()) < 1_000_000


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """URL of a server, and the values of its cubes."""
    folder = tmp_path_factory.mktemp("page")
    paths = write_files(folder)
    repo = vs.Repository.create(folder / "cube.vstack", cube(paths), message="four months")
    repo.write("x", {"x": 0}, -1.0, message="mend x")
    vs.open_virtual_dataset(paths[3]).virtual.to_kerchunk(folder / "packed.json")
    cubes = {
        "cube": folder / "cube.vstack",
        "packed": folder / "packed.json",
        "states": states_group(),
        "large": large_group(),
    }
    with serving(cubes) as url:
        yield url, folder / "cube.vstack", {"cube": joined(paths), "packed": joined(paths[3:])}


def test_the_committed_assets_are_what_the_build_makes(tmp_path):
    """Whoever changes the sources of the page builds it."""
    needs_packages()
    done = subprocess.run(
        ["node", SOURCES / "build.mjs", tmp_path / "assets"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    made = sorted(path.name for path in (tmp_path / "assets").iterdir())
    assert made == sorted(path.name for path in ASSETS.iterdir())
    assert filecmp.cmpfiles(ASSETS, tmp_path / "assets", made, shallow=False)[0] == made


def test_parts_that_need_no_browser():
    """What ``npm test`` runs."""
    needs_packages()
    done = subprocess.run(
        ["node", "--test", "test/unit.test.js"], cwd=SOURCES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_variables(browser, served):
    """Each variable is listed with dimensions, size and attributes."""
    url, store, _ = served
    (group,) = vs.scan([store])
    browser.open(f"{url}/#panel=variables")
    maps = {name: map_chunks(array) for name, array in group.arrays.items()}
    assert browser.stat("variables") == str(len(maps))
    assert browser.stat("chunks") == str(sum(x.n_chunks for x in maps.values()))
    browser.run("await page.click('[data-variable=t] summary')")
    text = browser.text("[data-variable=t]")
    assert "time 120 × y 5 × x 6" in text
    assert f"{maps['t'].n_chunks} referenced" in text
    assert f"Stored in {maps['t'].n_encodings} forms" in text
    assert "units\nK" in text


def test_first_view(chromium, tmp_path):
    """What the cube is: title, extent, and a picture on the first screen of a phone; storage is behind tabs."""
    values = np.random.default_rng(0).random((2, 90, 180)).astype("f4")
    coordinates = {
        "time": ("time", [0, 1], {"units": "days since 2024-01-01", "bounds": "time_bnds"}),
        "lat": ("lat", np.arange(-89.0, 90, 2), {"units": "degrees_north"}),
        "lon": ("lon", np.arange(0.0, 360, 2), {"units": "degrees_east"}),
    }
    data = {
        "time_bnds": (("time", "bnds"), np.zeros((2, 2))),
        "crs": ((), 0),
        "expver": ("time", np.zeros(2)),
        "rain": (("time", "lat", "lon"), values, {"grid_mapping": "crs"}),
    }
    xr.Dataset(data, coordinates, {"title": "Rain of two days"}).to_netcdf(tmp_path / "a.nc")
    with serving({"a": tmp_path / "a.nc"}) as url:
        chromium.open(url, width=400, height=844)
        chromium.run("await page.locator('[data-image][data-ready=yes]').waitFor()")
        chromium.run("await page.locator('[data-extent]').waitFor()")
        assert chromium.text(".title") == "Rain of two days"
        extent = "time 2024-01-01 to 2024-01-02; lat 89 °S to 89 °N; lon 0° to 358 °E"
        assert chromium.text("[data-extent]") == extent
        edge = "return page.locator(given).evaluate((x) => x.getBoundingClientRect().bottom)"
        assert chromium.run(edge, "[data-image]") <= 844
        rows = "return page.getByRole('tab').evaluateAll((all) => new Set(all.map((x) => x.offsetTop)).size)"
        assert chromium.run(rows) == 1
        first = "return page.locator('select').first().evaluate((x) => [...x.children].map((y) => y.label || y.text))"
        assert chromium.run(first) == ["rain", "Coordinates and others"]
        assert chromium.run("return page.locator('[data-stat]').count()") == 0
        chromium.run("await page.getByRole('button', { name: 'how to open it' }).click()")
        assert f"{url}/a" in chromium.text("[data-url=zarr3]")
        assert chromium.seen()["errors"] == []


def test_chunk_map(browser, served):
    """The counts are those of `map_chunks`, and each box says what it is, under the pointer and by keyboard."""
    url, _, _ = served
    found = map_chunks(states_group().arrays["wind"])
    browser.open(f"{url}/#cube=states&panel=chunks")
    for name in ("n_referenced", "n_inline", "n_empty", "n_absent"):
        assert browser.stat(f"map-{name}") == str(getattr(found, name))
    n_columns, n_rows = browser.run(
        "const x = page.locator('[data-map]'); "
        "return [await x.getAttribute('data-columns'), await x.getAttribute('data-rows')]"
    )
    assert (int(n_rows), int(n_columns)) == found.states.shape[:2] == (3, 12)
    point = (
        "const box = await page.locator('[data-map]').boundingBox();"
        "await page.mouse.move(box.x + box.width * (given[1] + 0.5) / 12, box.y + box.height * (given[0] + 0.5) / 3)"
    )
    said = {(0, 0): "inline", (1, 2): "never written", (2, 7): "lost", (2, 11): "referenced"}
    for (row, column), state in said.items():
        browser.run(point, [row, column])
        text = browser.text("[data-readout=chunk]")
        assert text.startswith(
            f"time chunk {column} (elements {5 * column} to {5 * column + 4}), cell chunk {row}: {state}."
        )
    assert "Source part1.nc. Stored as >f4, no codec, in chunks of 5 × 5." in text
    for name, legend in (("source", "part1.nc"), ("stored form", ">f4, no codec, chunks of 5 × 5")):
        browser.run("await page.getByLabel(given, { exact: true }).check()", name)
        assert legend in browser.text(".legend.wide")
    browser.run(
        "await page.locator('[data-map]').focus(); for (let i = 0; i < 3; i++) await page.keyboard.press('Home')"
    )
    browser.run("await page.keyboard.press('ArrowRight'); await page.keyboard.press('ArrowUp')")
    assert browser.text("[data-readout=chunk]").startswith("time chunk 1 (elements 5 to 9), cell chunk 1: referenced")


def test_colours_of_the_map_are_those_of_the_states(browser, served):
    """A lost chunk has another colour than one that is referenced, and the colours follow the theme."""
    url, _, _ = served
    pick = (
        "return page.locator('[data-map]').evaluate((at, cells) => { const copy = document.createElement('canvas');"
        "[copy.width, copy.height] = [at.width, at.height];"
        "const c = copy.getContext('2d', { willReadFrequently: true }); c.drawImage(at, 0, 0);"
        "return cells.map(([row, column]) => "
        "[...c.getImageData(at.width * (column + .3) / 12, at.height * (row + .3) / 3, 1, 1).data]) }, given)"
    )
    cells = [[0, 0], [1, 2], [2, 7], [2, 11]]
    browser.open(f"{url}/#cube=states&panel=chunks")
    browser.stat("map-n_absent")
    light = browser.run(pick, cells)
    assert light[0][:3] == [0xDD, 0xAA, 0x33]
    assert light[3][:3] == [0x44, 0x77, 0xAA]
    assert len({tuple(x) for x in light}) == 4
    browser.open(f"{url}/#cube=states&panel=chunks", dark=True)
    browser.stat("map-n_absent")
    assert browser.run(pick, cells)[1] != light[1]
    assert (
        browser.run("return page.evaluate(() => getComputedStyle(document.body).backgroundColor)") == "rgb(21, 25, 29)"
    )


def test_timeline(browser, served):
    """Eras, gaps and duplicates are those of `cube_timeline`."""
    url, store, _ = served
    (group,) = vs.scan([store])
    wanted = cube_timeline(group)
    browser.open(f"{url}/#cube=cube&panel=timeline")
    assert browser.stat("eras") == str(wanted.n_eras) == "4"
    assert browser.stat("gaps") == str(wanted.n_gaps)
    assert browser.run("return page.locator('[data-era]').count()") == len(wanted.eras)
    text = browser.text(".eras")
    for era in wanted.eras:
        assert era.first in text
        for change in era.changes.split("; "):
            assert " ".join(change.split()) in " ".join(text.split())


def test_sources(browser, served):
    """Each source has its chunks and bytes, and is not said to be verified."""
    url, store, _ = served
    (group,) = vs.scan([store])
    wanted = count_sources(group.all_arrays()).rows()
    browser.open(f"{url}/#cube=cube&panel=sources")
    rows = browser.run(
        "await page.locator('.sources').waitFor(); return page.locator('.sources tbody tr').allInnerTexts()"
    )
    assert [row.split()[0] for row in rows] == [x.url for x in wanted]
    assert [row.split("\t")[2].strip() for row in rows] == [str(x.n_chunks) for x in wanted]
    assert browser.text("[data-note=verified]").startswith("Not verified")


def test_snapshots(browser, served):
    """Messages are those of the log, differences those of `diff`, and an older snapshot can be shown."""
    url, store, _ = served
    repo = vs.Repository.open(store)
    browser.open(f"{url}/#cube=cube&panel=snapshots")
    for entry in repo.log():
        assert entry.message in browser.text(f"[data-snapshot='{entry.number}']")
    browser.run("await page.getByRole('button', { name: 'Compare with snapshot 0' }).click()")
    assert browser.text("[data-diff='1']").split() == " ".join(repr(repo.diff(0, 1)).splitlines()[1:]).split()
    browser.run("await page.getByRole('button', { name: 'Show snapshot 0' }).click()")
    browser.run("await page.getByText('This is snapshot 0.').waitFor()")
    assert "@ 0" in browser.text("h1")
    browser.tab("Open this")
    assert f"{url}/cube@0" in browser.text("[data-url=zarr3]")
    assert "at=0" in browser.text(".panel")


def test_health(browser, tmp_path, monkeypatch):
    """The panel of a store with a recipe has what `health` says; it is reached by keys, also at 400 dark pixels."""
    monkeypatch.chdir(tmp_path)
    for day in (0, 1, 4):
        times = np.array(["2020-01-01"], "M8[ns]") + np.timedelta64(day, "D")
        xr.Dataset({"rain": ("time", [1.0])}, {"time": times}).to_netcdf(f"d{day}.nc")
    (tmp_path / "d5.nc").write_bytes(b"no file")
    expected = {"time": {"every": "1D", "late": "1h", "missing": "1D", "last": "2020-01-05"}}
    repo = vs.Repository.build("a.vstack", vs.Recipe(["d*.nc"], dim="time", expected=expected)).repository
    wanted = repo.health()
    vs.serve.report("a.vstack", tmp_path / "page.html")
    with serving({"a": tmp_path / "a.vstack", "states": states_group()}) as url:
        for at in (url, (tmp_path / "page.html").as_uri()):
            browser.open(f"{at}#panel=sources", width=400, dark=True)
            browser.run("await page.getByRole('tab', { name: 'Health' }).waitFor()")  # once the cube is known
            browser.run(
                "await page.getByRole('tab', { name: 'Sources' }).focus(); await page.keyboard.press('ArrowRight')"
            )
            assert (
                browser.text("[data-list=missing]") == "time 2020-01-03 00:00:00 to time 2020-01-04 00:00:00: 2 labels"
            )
            assert [browser.stat(f"files-{x}") for x in ("placed", "quarantined")] == ["3", "1"]
            assert browser.stat("labels-missing") == str(wanted.labels["missing"])
            assert browser.text("[data-list=odd]").startswith("quarantined: file:///")
            assert browser.text("[data-list=growth] td").startswith("3")
            assert browser.run("return page.evaluate(() => document.documentElement.scrollWidth)") == 400
            colours = "const x = getComputedStyle(document.body); return [x.color, x.backgroundColor]"
            text, ground = browser.run(f"return page.evaluate(() => {{ {colours} }})")
            assert sum(map(int, re.findall(r"\d+", text))) > sum(map(int, re.findall(r"\d+", ground)))
        browser.open(f"{url}/#cube=states&panel=sources")
        browser.run("await page.getByRole('tab', { name: 'Sources' }).waitFor()")
        assert browser.run("return page.getByRole('tab', { name: 'Health' }).count()") == 0


@pytest.mark.parametrize("name", ["cube", "packed"])
def test_quick_look(browser, served, name):
    """The value at a point of a slice, and the series there, are what xarray reads; missing values are hatched."""
    url, _, values = served
    wanted = values[name]["t"]
    browser.open(f"{url}/#cube={name}&panel=look&variable=t")
    image = "[data-image][data-ready=yes]"
    browser.run("await page.locator(given).waitFor()", image)
    if name == "packed":
        assert "scale_factor 0.01, add_offset 280, _FillValue -9999" in browser.text("[data-note=packing]")
    x = np.r_[-1.0 if name == "cube" else 0.0, wanted["x"].values[1:]]
    edges = np.r_[1.5 * x[0] - x[1] / 2, (x[1:] + x[:-1]) / 2, 1.5 * x[-1] - x[-2] / 2]
    pixels = browser.run(
        "return page.locator('[data-image]').evaluate((x, given) => { const { width, height } = x;"
        "const all = x.getContext('2d').getImageData(0, 0, width, height).data;"
        "const at = (part, length) => Math.floor(part * length);"
        "return Array.from({ length: 30 }, (_, i) => at((Math.floor(i / 6) + .5) / 5, height) * width"
        " + at(given[i % 6], width)).map((i) => [...all.subarray(4 * i, 4 * i + 4)]) }, given)",
        ((x - edges[0]) / (edges[-1] - edges[0])).tolist(),
    )
    is_hatched = [x in ([0xEC, 0xEA, 0xE6, 255], [0xB9, 0xB4, 0xAB, 255]) for x in pixels]
    assert np.reshape(is_hatched, (5, 6)).tolist() == np.isnan(wanted[0]).values.tolist()
    browser.run("await page.getByRole('button', { name: 'Range of this slice' }).click()")
    np.testing.assert_allclose(float(browser.text("[data-scale=low]")), float(wanted[0].min()), rtol=1e-6)
    browser.run("await page.locator('[data-dim=time]').fill('7')")
    eventually(lambda: np.testing.assert_allclose(float(browser.text("[data-scale=low]")), wanted[7].min(), rtol=1e-6))
    browser.run(
        "const box = await page.locator(given).boundingBox();"
        "await page.mouse.click(box.x + box.width * 4.5 / 6, box.y + box.height * 2.5 / 5)",
        image,
    )
    text = browser.text("[data-readout=point]")
    np.testing.assert_allclose(float(text.split()[0]), float(wanted[7, 2, 4]), rtol=1e-6)
    assert text.split()[1] == "K"
    browser.run("await page.getByText('Values as a table').click()")
    series = browser.run("return page.locator('[data-value]').evaluateAll((all) => all.map((x) => x.dataset.value))")
    np.testing.assert_allclose([float(x) for x in series], wanted[:, 2, 4].values, rtol=1e-6)
    browser.run("await page.locator('[data-limit=from]').fill('270')")
    assert browser.text("[data-scale=low]") == "270"


def test_quick_look_at_a_line(browser, served):
    """A variable of one dimension is a line."""
    url, _, values = served
    browser.open(f"{url}/#cube=cube&panel=look&variable=x")
    browser.run("await page.getByText('Values as a table').click()")
    series = browser.run("return page.locator('[data-value]').evaluateAll((all) => all.map((x) => x.dataset.value))")
    assert [float(x) for x in series] == [-1.0, *values["cube"]["x"].values[1:]]


def test_quick_look_at_a_failing_source(chromium, served):
    """The page says what the server says, and which source it is."""
    url, _, _ = served
    chromium.open(f"{url}/#cube=states&panel=look&variable=wind")
    chromium.run("await page.getByRole('alert').waitFor()")
    assert "s3://bucket/archive/part" in chromium.text("[role=alert]")


def test_a_cube_that_cannot_be_opened(chromium, served, tmp_path):
    """The page says why, and other cubes can be chosen."""
    _, store, _ = served
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"version": 1, "refs": {".zgroup": "{"}}')
    with serving({"damaged": damaged, "cube": store}) as url:
        chromium.open(url)
        chromium.run("await page.getByRole('alert').waitFor()")
        assert "damaged.json" in chromium.text("[role=alert]")
        chromium.run("await page.getByLabel('Cube').selectOption('cube')")
        chromium.tab("Variables")
        assert chromium.stat("variables") == "3"


def test_every_panel_by_keyboard_at_400_pixels(browser, served):
    """Nothing but keys; no panel scrolls to the side; all controls have names."""
    url, _, _ = served
    browser.open(url, width=400)
    unnamed = (
        "return page.evaluate(() => [...document.querySelectorAll('button, select, input, canvas, summary')]"
        ".filter((x) => !(x.getAttribute('aria-label') || x.labels?.length || x.textContent.trim()) "
        "&& x.getAttribute('role') !== 'img').map((x) => x.outerHTML))"
    )
    over = "return page.evaluate(() => document.documentElement.scrollWidth - innerWidth)"
    tab_to = (
        "for (let i = 0; i < 60; i++) { await page.keyboard.press('Tab');"
        "if (await page.evaluate((x) => document.activeElement.matches(x), given)) return true } return false"
    )
    assert browser.run(tab_to, "[role=tab]")
    for name in PANELS:
        assert browser.run("return page.evaluate(() => document.activeElement.textContent)") == name
        browser.run(
            "await page.waitForLoadState('networkidle');"
            "await page.waitForFunction(() => !document.body.textContent.includes('Loading …'))"
        )
        assert browser.text(".panel h2")
        assert browser.run(over) <= 0, name
        assert browser.run(unnamed) == []
        browser.run("await page.keyboard.press('ArrowRight')")
    browser.run("await page.keyboard.press('Home')")
    browser.run("await page.locator('[data-image][data-ready=yes]').waitFor()")
    assert browser.run(tab_to, "[data-dim]")
    browser.run("await page.keyboard.press('ArrowRight'); await page.keyboard.press('ArrowRight')")
    assert browser.text(".slider output") == "2000-01-03"
    assert browser.run(tab_to, "[data-image]")
    browser.run("await page.keyboard.press('ArrowRight'); await page.keyboard.press('Enter')")
    assert "t along time at" in browser.text(".series h3")
    browser.run("await page.keyboard.press('Shift+Tab')")
    assert browser.run(tab_to, "details > summary")
    browser.run("await page.keyboard.press('Enter')")
    assert browser.run("return page.locator('.values tbody tr').count()") == 120


def test_a_large_cube(browser, served):
    """10^6 chunks and 3,000 sources: nothing that is sent is large; it prints when the page is first painted."""
    url, _, _ = served
    browser.open(f"{url}/#cube=large")
    browser.run("await page.locator('[data-variable=rain]').waitFor()")
    paint, listed = browser.run(
        "return page.evaluate(() => "
        "[performance.getEntriesByName('first-contentful-paint')[0].startTime, performance.now()])"
    )
    print(f"first paint after {paint:.0f} ms, variables after {listed:.0f} ms")
    assert browser.stat("chunks") == "1,000,000"
    browser.tab("Chunk map")
    assert browser.stat("map-n_referenced") == "1,000,000"
    browser.tab("Sources")
    assert browser.text("[data-pages=text]") == "1 to 100 of 3,000"
    browser.run("await page.getByRole('button', { name: 'Next' }).first().click()")
    browser.run("await page.getByText('101 to 200 of 3,000').first().waitFor()")
    assert "year00100.nc" in browser.text(".sources tbody")


def test_sources_with_long_names(browser, tmp_path):
    """Fewer of them fit on a page; the buttons lead through all of them, and keep the focus."""
    with serving({"long": large_group(150, 150, "long" * 1250)}) as url:
        browser.open(f"{url}/#panel=sources")
        seen, pages = 0, []
        while seen < 150:
            browser.run("await page.getByText(given).first().waitFor()", f"{seen + 1} to ")
            pages.append(browser.text("[data-pages=text]"))
            assert f"year{seen:05d}.nc" in browser.text(".sources tbody tr")
            seen += browser.run("return page.locator('.sources tbody tr').count()")
            if seen < 150:
                browser.run("await page.getByRole('button', { name: 'Next' }).first().press('Enter')")
        assert len(pages) == 2
        assert pages[-1].endswith("to 150 of 150")
        browser.run("await page.getByRole('button', { name: 'Previous' }).first().press('Enter')")
        browser.run("await page.getByText('1 to ').first().waitFor()")
        assert browser.text("[data-pages=text]") == pages[0]
        assert browser.run("return page.evaluate(() => document.activeElement.tagName)") == "BUTTON"


def test_the_focus_stays(browser, served):
    """What opens another view leads the keys there; a choice keeps them."""
    url, _, _ = served
    focused = "return page.evaluate(() => document.activeElement.id || document.activeElement.tagName)"
    in_panel = "await page.waitForFunction(() => document.activeElement.id === 'panel')"  # it moves once it is drawn
    browser.open(f"{url}/#panel=variables")
    browser.run("await page.getByLabel('Cube').focus(); await page.getByLabel('Cube').selectOption('states')")
    browser.run("await page.locator('[data-variable=wind]').waitFor()")
    assert browser.run(focused) == "SELECT"
    browser.run(
        "await page.getByLabel('Cube').selectOption('cube'); await page.locator('[data-variable=t] summary').click()"
    )
    browser.run("await page.getByRole('button', { name: 'Chunk map of t' }).press('Enter')")
    browser.run("await page.getByRole('tab', { name: 'Chunk map', selected: true }).waitFor()")
    browser.run(in_panel)
    assert browser.run(focused) == "panel"
    browser.tab("Quick look")
    browser.run("await page.getByLabel('Variable').focus(); await page.getByLabel('Variable').selectOption('x')")
    browser.run("await page.locator('.series').waitFor()")
    assert browser.run(focused) == "SELECT"
    browser.tab("Snapshots")
    browser.run("await page.getByRole('button', { name: 'Show snapshot 0' }).press('Enter')")
    browser.run("await page.getByText('This is snapshot 0.').waitFor()")
    browser.run(in_panel)
    assert browser.run(focused) == "panel"
    browser.run("await page.getByRole('button', { name: 'Show the newest one' }).press('Enter')")
    browser.run("await page.getByText('This is snapshot 0.').waitFor({ state: 'detached' })")
    browser.run(in_panel)
    assert browser.run(focused) == "panel"


def test_a_click_that_is_answered_late(browser, served):
    """The series is that of the last click, also if the values of one before come after its own."""
    url, _, values = served
    browser.open(f"{url}/#cube=cube&panel=look&variable=t")
    image = "[data-image][data-ready=yes]"
    browser.run("await page.locator(given).waitFor()", image)
    browser.run(
        "let isSlow = true; await page.route('**/cube/t/c/**', async (x) => {"
        "if (isSlow) await new Promise((done) => setTimeout(done, 1000)); await x.continue() });"
        "const [at, box] = [page.locator(given), await page.locator(given).boundingBox()];"
        "await at.click({ position: { x: 3, y: 3 } }); await page.waitForTimeout(200);"
        "isSlow = false;"
        "await at.click({ position: { x: box.width - 3, y: box.height - 3 } });"
        "await page.locator('.series').waitFor(); await page.waitForTimeout(1500)",
        image,
    )
    browser.run("await page.getByText('Values as a table').click()")
    series = browser.run("return page.locator('[data-value]').evaluateAll((all) => all.map((x) => x.dataset.value))")
    np.testing.assert_allclose([float(x) for x in series], values["cube"]["t"][:, 4, 5].values, rtol=1e-6)


def test_a_series_by_keyboard(browser, served):
    """Arrow keys say each value of a series."""
    url, _, values = served
    browser.open(f"{url}/#cube=cube&panel=look&variable=x")
    browser.run("await page.locator('[data-series]').focus()")
    for key, i in (("ArrowRight", 0), ("ArrowRight", 1), ("End", -1), ("ArrowLeft", -2), ("Home", 0)):
        browser.run("await page.keyboard.press(given)", key)
        wanted = -1.0 if i == 0 else float(values["cube"]["x"].values[i])
        code = "await page.locator('[data-readout=series] strong').getByText(given, { exact: true }).waitFor()"
        browser.run(code, f"{wanted:g}")


def test_forms_that_differ_in_settings_alone_share_a_line(browser, tmp_path):
    """The key of the map has one line for them, with the colours of all."""
    for day, scale in enumerate((0.1, 0.2, 0.4)):
        encoding = {"a": {"dtype": "i2", "scale_factor": scale, "_FillValue": -1, "chunksizes": (1,)}}
        dataset = xr.Dataset({"a": ("time", [1.0])}, {"time": ("time", [day], {"units": "days since 2000-01-01"})})
        dataset.to_netcdf(tmp_path / f"{day}.nc", encoding=encoding)
    with serving({"a": str(tmp_path / "*.nc")}, build={"unpack": True}) as url:
        browser.open(f"{url}/#panel=chunks&variable=a")
        browser.run("await page.getByLabel('stored form', { exact: true }).check()")
        assert browser.run("return page.locator('.legend.wide li').allInnerTexts()") == [
            "<i2, packed, chunks of 1, 3 settings"
        ]
        assert browser.run("return page.locator('.legend.wide .swatch').count()") == 3


def test_a_token(chromium, served):
    """A link with the token opens the page, which then sends it by itself."""
    _, store, _ = served
    with serving({"cube": store}, token="sesame") as url:
        chromium.open(f"{url}/?token=sesame")
        chromium.run("await page.locator('[data-image][data-ready=yes]').waitFor()")
        assert chromium.seen()["errors"] == []


def test_stored_chunks_of_all_common_codecs(browser, tmp_path):
    """zarrita decodes them with what the page brings along, and the policy of the page lets it."""
    zarr = pytest.importorskip("zarr")
    values = np.arange(60.0).reshape(6, 10)
    codecs = {
        "blosc": zarr.codecs.BloscCodec(),
        "gzip": zarr.codecs.GzipCodec(),
        "zstd": zarr.codecs.ZstdCodec(),
    }
    dataset = xr.Dataset(dict.fromkeys(codecs, (("y", "x"), values)))
    encoding = {name: {"compressors": [codec]} for name, codec in codecs.items()}
    dataset.to_zarr(tmp_path / "a.zarr", encoding=encoding, zarr_format=3, consolidated=False)
    with serving({"a": tmp_path / "a.zarr"}) as url:
        for name in codecs:
            browser.open(f"{url}/#cube=a&panel=look&variable={name}")
            browser.run("await page.locator('[data-image][data-ready=yes]').waitFor()")
            assert browser.text("[data-scale=high]") == "59"
        assert not any(x.startswith("http") and not x.startswith(url) for x in browser.seen()["urls"])


def test_quick_look_at_names_that_urls_change(browser, tmp_path):
    """They are quoted, as zarrita reads paths as parts of URLs; types that zarrita cannot read are said."""
    names = ["a b", "c#d", "e?f", "g%41", "h%", "i:j", "k/ü+@"]
    data = {name: xr.Dataset({name.rpartition("/")[2]: ("x", [i, 1.0 + i])}) for i, name in enumerate(names)}
    groups = {
        "/": xr.merge([data[x] for x in names[:-1]]).assign(text=("x", np.array([b"l", b"m"]))),
        "k": data[names[-1]],
    }
    xr.DataTree.from_dict(groups).virtual.to_vstack(tmp_path / "a.vstack")
    with serving({"a": tmp_path / "a.vstack"}) as url:
        for i, name in enumerate(names):
            browser.open(f"{url}/#cube=a&panel=look&variable={quote(name)}")
            browser.run("await page.getByText('Values as a table').click()")
            code = "return page.locator('[data-value]').evaluateAll((all) => all.map((x) => x.dataset.value))"
            assert browser.run(code) == [f"{i}", f"{i + 1}"]
        browser.open(f"{url}/#cube=a&panel=look&variable=text")
        assert "Values of type |S1 cannot be drawn." in browser.text("[role=alert]")


def test_a_cube_without_variables(browser, tmp_path):
    """The panels of variables say so."""
    xr.Dataset().virtual.to_vstack(tmp_path / "a.vstack")
    with serving({"a": tmp_path / "a.vstack"}) as url:
        for panel in ("variables", "chunks", "look"):
            browser.open(f"{url}/#cube=a&panel={panel}")
            browser.run("await page.getByText('This cube has no variable that can be shown.').waitFor()")


def test_a_report(browser, served, tmp_path):
    """The same page from one file, without the quick look, and with the same numbers."""
    _, store, _ = served
    (group,) = vs.scan([store])
    vs.serve.report(store, tmp_path / "page.html")
    browser.open((tmp_path / "page.html").as_uri(), width=400)
    maps = {name: map_chunks(array) for name, array in group.arrays.items()}
    assert browser.stat("chunks") == str(sum(x.n_chunks for x in maps.values()))
    tabs = browser.run("return page.getByRole('tab').allInnerTexts()")
    assert tabs == [name for name in PANELS if name != "Quick look"]
    for name in tabs:
        browser.tab(name)
        assert browser.run("return page.locator('.panel h2').first().innerText()")
        assert browser.run("return page.locator('.failure').count()") == 0
        assert browser.run("return page.evaluate(() => document.documentElement.scrollWidth - innerWidth)") <= 0
    browser.tab("Chunk map")
    assert browser.stat("map-n_referenced") == str(maps["t"].n_referenced)
    browser.tab("Snapshots")
    browser.run("await page.getByRole('button', { name: 'Compare with snapshot 0' }).click()")
    assert "overwritten: x 0:1" in browser.text("[data-diff='1']")
    browser.tab("Sources")
    browser.run("await page.locator('.sources tbody tr').nth(3).waitFor()")
    assert browser.run("return page.locator('.sources tbody tr').count()") == 4
    assert all(x.startswith("file:") for x in browser.seen()["urls"])


def test_the_map_of_a_report(browser, tmp_path):
    """It is the one of notebooks, in the styles of the page, and has words for those who do not see it."""
    lat, lon = np.linspace(-60, 60, 30), np.linspace(0, 100, 60)
    coords = {"lat": ("lat", lat, {"units": "degrees_north"}), "lon": ("lon", lon, {"units": "degrees_east"})}
    xr.Dataset({"<v>": (("lat", "lon"), np.add.outer(lat, lon))}, coords).virtual.to_vstack(tmp_path / "x.vstack")
    vs.serve.report(tmp_path / "x.vstack", tmp_path / "page.html")
    browser.open((tmp_path / "page.html").as_uri(), width=400)
    said = browser.run("return page.locator('.map svg[role=img]').getAttribute('aria-label')")
    assert said.startswith("map of <v>: 0.8475 °W to 100.8 °E, 62.07 °S to 62.07 °N; values from -160 to 160")
    image = "return page.locator('.map image').first().evaluate((x) => getComputedStyle(x).imageRendering)"
    assert browser.run(image) == "pixelated"
    assert browser.run("return page.evaluate(() => document.documentElement.scrollWidth - innerWidth)") <= 0
    assert browser.seen()["errors"] == []
