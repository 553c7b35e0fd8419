"""The page from static files alone: it finds its numbers with the JavaScript reader, and they are what Python says."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.arrays import referenced_array
from tests.serve import javascript
from tests.serve.groups import large_group, states_group
from tests.serve.running import serving_by_nginx
from tests.serve.test_page import Browser, needs_packages
from tests.serve.unlike import cube, joined, write_files
from tests.servers import RangeServer
from tests.vstack.archive import change_snapshot
from virtualstack.manifests import ManifestGroup, Refusal, count_sources, map_chunks
from virtualstack.serve.browser import ASSETS
from virtualstack.vstack import save


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """URL and folder of a static web server: vstacks, their files, and a copy of the page."""
    folder = tmp_path_factory.mktemp("site")
    paths = write_files(folder)
    cube(paths).virtual.to_vstack(folder / "cube.vstack", relative=True, message="four months")
    vs.Repository.open(folder / "cube.vstack").write("x", {"x": 0}, -1.0, message="mend x")
    save(states_group(), folder / "states.vstack")
    save(large_group(), folder / "large.vstack")
    shutil.copytree(ASSETS, folder / "page")
    if shutil.which("nginx"):
        with serving_by_nginx(folder, tmp_path_factory.mktemp("nginx")) as url:
            yield url, folder, joined(paths)
    else:
        with RangeServer(folder, cors="always") as server:
            yield server.root, folder, joined(paths)


@pytest.fixture(scope="module")
def chromium():
    needs_packages()
    program = javascript.chromium()
    if program is None:
        pytest.skip("there is no Chromium")
    found = Browser(program)
    yield found
    found.close()


@pytest.fixture
def browser(chromium):
    """The browser; the page must have had no error, but for snapshots that do not exist."""
    yield chromium
    seen = chromium.seen()
    assert all("404" in x for x in seen["errors"]), seen["errors"]


def group_of(store):
    (group,) = vs.scan([store])
    return group


def test_variables_and_counts(browser, site):
    """Numbers of the heading and of each variable, and attributes."""
    url, folder, _ = site
    group = group_of(folder / "cube.vstack")
    browser.open(f"{url}page/page.html?store=../cube.vstack")
    maps = {name: map_chunks(array) for name, array in group.arrays.items()}
    assert browser.stat("variables") == str(len(maps))
    assert browser.stat("chunks") == str(sum(x.n_chunks for x in maps.values()))
    assert browser.text("[data-stat=values]").split()[0] in f"{sum(x.nbytes for x in group.arrays.values()) / 1000:.1f}"
    assert f"at {url}cube.vstack, snapshot 1" in browser.text(".place")
    assert browser.run("return page.getByRole('tab').allInnerTexts()") == [
        "Variables", "Chunk map", "Quick look", "Sources", "Snapshots", "Open this"
    ]  # fmt: skip
    for name, found in maps.items():
        browser.run("await page.click(`[data-variable=${given}] summary`)", name)
        text = browser.text(f"[data-variable={name}]")
        for state in ("referenced", "inline"):
            if n := getattr(found, f"n_{state}"):
                assert f"{n} {state}" in text
        assert f"Stored in {found.n_encodings} forms" in text or found.n_encodings == 1
        for form in found.encodings:
            codecs = " + ".join(form.codecs) or "no codec"
            chunks = " × ".join(map(str, form.chunk_shape)) or "1"
            assert f"{form.dtype} in chunks of {chunks}, {codecs}: {form.n_chunks} chunk" in text
    text = browser.text("[data-variable=t]")
    assert "time 120 × y 5 × x 6" in text
    assert "units\nK" in text


def test_notes_of_the_reader(browser, site):
    """What could not be expressed is listed as the store has it."""
    url, folder, _ = site
    group = group_of(folder / "states.vstack")
    notes = [
        Refusal(path=f"/lost{i}", reason=f"variable {i} has <b>no</b> zarr dtype", kind=kind)
        for i, kind in enumerate(("refused", "inlined", "packed"))
    ]
    save(replace(group, refusals=tuple(notes)), folder / "noted.vstack")
    stored = group_of(folder / "noted.vstack").refusals
    browser.open(f"{url}page/page.html?store=../noted.vstack")
    browser.run("await page.getByText('3 notes of the reader').click()")
    text = browser.text("details[open] .pairs")
    assert text.split("\n") == [x for note in stored for x in (note.path, f"{note.kind}: {note.reason}")]


def test_chunk_map(browser, site):
    """Counts, boxes and what a box says are those of `map_chunks`."""
    url, folder, _ = site
    found = map_chunks(group_of(folder / "states.vstack").arrays["wind"])
    browser.open(f"{url}page/page.html?store={url}states.vstack#panel=chunks")
    for name in ("n_referenced", "n_inline", "n_empty", "n_absent"):
        assert browser.stat(f"map-{name}") == str(getattr(found, name))
    assert browser.run("return page.locator('[data-map]').getAttribute('data-rows')") == "3"
    browser.run("await page.locator('[data-map]').focus()")
    said = {0: "EMPTY", 1: "ABSENT", 2: "INLINE", 3: "referenced"}
    words = {"EMPTY": "never written", "ABSENT": "lost", "INLINE": "inline", "referenced": "referenced"}
    for row in range(3):
        browser.run("await page.keyboard.press('Home')")
        for column in range(12):
            text = browser.text("[data-readout=chunk]")
            state = said[int(found.states[row, column].argmax())]
            assert text.startswith(
                f"time chunk {column} (elements {5 * column} to {5 * column + 4}), cell chunk {row}: {words[state]}."
            )
            if state == "referenced":
                assert f"Source {found.sources[found.source[row, column]]}." in text
                assert f"Stored as {found.encodings[found.encoding[row, column]].dtype}, no codec" in text
            browser.run("await page.keyboard.press('ArrowRight')")
        browser.run("await page.keyboard.press('ArrowDown')")


def test_sources(browser, site):
    """Each file with its chunks and bytes."""
    url, folder, _ = site
    browser.open(f"{url}page/page.html?store=../cube.vstack#panel=sources")
    rows = browser.run(
        "await page.locator('.sources').waitFor(); return page.locator('.sources tbody tr').allInnerTexts()"
    )
    wanted = count_sources(group_of(folder / "cube.vstack").all_arrays()).page().sources
    assert [row.split()[0] for row in rows] == [x.url.replace(f"file://{folder}/", url) for x in wanted]
    assert [row.split("\t")[2].strip() for row in rows] == [str(x.n_chunks) for x in wanted]


def test_secrets_of_sources_are_not_shown(browser, site):
    """Neither a login nor a query, though the URLs differ in the middle of it."""
    url, folder, _ = site
    locations = [f"https://user:word{i}@{i}.example/a/{i}.nc?token=a/secret{i}" for i in (1, 2)]
    sources = {"prefix": [0, 0], "suffix": locations}
    group = ManifestGroup(
        arrays={"v": referenced_array((18,), (9,), "u1", urls=["https://a/1", "https://b/2"], dimension_names=("x",))}
    )
    store = folder / "secret.vstack"
    save(group, store)

    def edit(document):
        document["prefixes"] = [""]
        (segment,) = document["segments"]["tail"]
        segment["prefixes"] = [0]
        segment["sources"].update(sources)

    change_snapshot(store, edit)
    texts = []
    browser.open(f"{url}page/page.html?store=../secret.vstack#panel=sources")
    texts.append(browser.run("await page.locator('.sources').waitFor(); return page.content()"))
    browser.open(f"{url}page/page.html?store=../secret.vstack#panel=chunks&variable=v")
    browser.run("await page.locator('[data-map]').focus()")
    for key in ("Home", "ArrowRight"):
        texts.append(browser.run("await page.keyboard.press(given); return page.content()", key))
        assert "Source " in browser.text("[data-readout=chunk]")
    for text in texts:
        assert not re.search("word[12]|secret[12]", text)
    assert "2.example" in texts[0]
    assert "2.example" in texts[2]


def test_snapshots(browser, site):
    """Messages and changes are those of the log, and an older snapshot can be shown."""
    url, folder, _ = site
    browser.open(f"{url}page/page.html?store=../cube.vstack#panel=snapshots")
    for entry in vs.Repository.open(folder / "cube.vstack").log():
        text = browser.text(f"[data-snapshot='{entry.number}']")
        assert entry.message in text
        assert all(" ".join(change.split()) in " ".join(text.split()) for change in entry.changes)
    browser.run("await page.getByRole('button', { name: 'Show snapshot 0' }).click()")
    browser.run("await page.getByText('This is snapshot 0.').waitFor()")
    browser.tab("Open this")
    assert f'xr.open_dataset("{url}cube.vstack", engine="virtualstack", at=0)' in browser.text(".panel")


def test_quick_look(browser, site):
    """Values of files that differ in chunks, codecs and packing are those that xarray reads."""
    url, _, wanted = site
    browser.open(f"{url}page/page.html?store=../cube.vstack#panel=look&variable=t")
    image = "[data-image][data-ready=yes]"
    for time in (0, 7, 119):
        browser.run("await page.locator('[data-dim=time]').fill(String(given))", time)
        browser.run("await page.waitForTimeout(200); await page.locator(given).waitFor()", image)
        low, high = (float(browser.text(f"[data-scale={x}]").split()[0]) for x in ("low", "high"))
        np.testing.assert_allclose([low, high], [wanted["t"][time].min(), wanted["t"][time].max()], rtol=1e-6)
    browser.run("await page.locator(given).click({ position: { x: 3, y: 3 } })", image)
    browser.run("await page.getByText('Values as a table').click()")
    series = browser.run("return page.locator('[data-value]').evaluateAll((all) => all.map((x) => x.dataset.value))")
    np.testing.assert_allclose([float(x) for x in series], wanted["t"][:, 0, 0].values, rtol=1e-6)


def test_a_large_store(browser, site):
    """10^6 chunks in 3,000 sources: the first paint is soon, and no answer is large."""
    url, _, _ = site
    browser.open(f"{url}page/page.html?store=../large.vstack")
    assert browser.stat("chunks") == "1,000,000"
    paint = "return page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime)"
    print(f"first paint after {browser.run(paint):.0f} ms")
    assert browser.run(paint) <= 1000
    browser.tab("Chunk map")
    assert browser.stat("map-n_referenced") == "1,000,000"
    browser.tab("Sources")
    assert browser.text("[data-pages=text]") == "1 to 100 of 3,000"
    assert max(browser.seen()["sizes"].values()) < 1_000_000


def test_a_page_without_a_store_says_so(browser, site):
    """Also one whose store does not exist."""
    url, _, _ = site
    browser.open(f"{url}page/page.html")
    assert "page.html?store=URL" in browser.text("[role=alert]")
    browser.open(f"{url}page/page.html?store=../no.vstack")
    assert "is no vstack" in browser.text("[role=alert]")


def test_a_store_of_another_server(browser, site, tmp_path):
    """The other server allows pages of all servers to read it."""
    dataset = xr.Dataset({"n": ("x", np.arange(3.0))})
    dataset.virtual.to_vstack(tmp_path / "other.vstack")
    url, _, _ = site
    with RangeServer(tmp_path, cors="always") as server:
        browser.open(f"{url}page/page.html?store={server.url('other.vstack')}#panel=look&variable=n")
        browser.run("await page.getByText('Values as a table').click()")
        code = "return page.locator('[data-value]').evaluateAll((all) => all.map((x) => x.dataset.value))"
        assert browser.run(code) == ["0", "1", "2"]
