"""The page from static files alone: it finds its numbers with the JavaScript reader, and they are what Python says."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.arrays import referenced_array
from tests.serve.browser import eventually
from tests.serve.groups import large_group, states_group
from tests.serve.running import serving_by_nginx
from tests.serve.test_verified import verify
from tests.serve.unlike import cube, joined, write_files
from tests.servers import RangeServer
from tests.vstack.archive import change_snapshot
from virtualstack.manifests import ManifestGroup, Refusal
from virtualstack.manifests.chunk_map import count_sources, map_chunks
from virtualstack.serve.browser import ASSETS
from virtualstack.surveying.cube import cube_timeline
from virtualstack.vstack.save import save

TIMES = np.array([b"2024-06-01_06:00:00", b"2024-06-02_18:30:00"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """URL and folder of a static web server: vstacks, their files, and a copy of the page."""
    folder = tmp_path_factory.mktemp("site")
    paths = write_files(folder)
    cube(paths).virtual.to_vstack(folder / "cube.vstack", relative=True, message="four months")
    vs.Repository.open(folder / "cube.vstack").write("x", {"x": 0}, -1.0, message="mend x")
    words = {"Times": ("Time", TIMES), "t": (("Time", "y", "x"), np.arange(24.0).reshape(2, 3, 4))}
    xr.Dataset(words).virtual.to_vstack(folder / "words.vstack")
    save(states_group(), folder / "states.vstack")
    save(large_group(), folder / "large.vstack")
    shutil.copytree(ASSETS, folder / "page")
    if shutil.which("nginx"):
        with serving_by_nginx(folder, tmp_path_factory.mktemp("nginx")) as url:
            yield url, folder, joined(paths)
    else:
        with RangeServer(folder, cors="always") as server:
            yield server.root, folder, joined(paths)


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
    browser.open(f"{url}page/page.html?store=../cube.vstack#panel=variables")
    maps = {name: map_chunks(array) for name, array in group.arrays.items()}
    assert browser.stat("variables") == str(len(maps))
    assert browser.stat("chunks") == str(sum(x.n_chunks for x in maps.values()))
    assert browser.text("[data-stat=values]").split()[0] in f"{sum(x.nbytes for x in group.arrays.values()) / 1000:.1f}"
    assert f"at {url}cube.vstack, snapshot 1" in browser.text(".place")
    assert browser.run("return page.getByRole('tab').allInnerTexts()") == [
        "Quick look", "Variables", "Chunk map", "Timeline", "Sources", "Snapshots", "Open this"
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
    browser.open(f"{url}page/page.html?store=../noted.vstack#panel=variables")
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
    wanted = count_sources(group_of(folder / "cube.vstack").all_arrays()).rows()
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


def assert_range(browser, values):
    low, high = (float(browser.text(f"[data-scale={x}]").split()[0]) for x in ("low", "high"))
    np.testing.assert_allclose([low, high], [values.min(), values.max()], rtol=1e-6)


def test_quick_look(browser, site):
    """Values of files that differ in chunks, codecs and packing are those that xarray reads."""
    url, _, wanted = site
    browser.open(f"{url}page/page.html?store=../cube.vstack#panel=look&variable=t")
    image = "[data-image][data-ready=yes]"
    browser.run("await page.getByRole('button', { name: 'Range of this slice' }).click()")
    for time in (0, 7, 119):
        browser.run("await page.locator('[data-dim=time]').fill(String(given))", time)
        eventually(partial(assert_range, browser, wanted["t"][time]))
    browser.run("await page.locator(given).click({ position: { x: 3, y: 3 } })", image)
    browser.run("await page.getByText('Values as a table').click()")
    series = browser.run("return page.locator('[data-value]').evaluateAll((all) => all.map((x) => x.dataset.value))")
    np.testing.assert_allclose([float(x) for x in series], wanted["t"][:, 0, 0].values, rtol=1e-6)


def test_labels_that_are_bytes(browser, site):
    """Words of WRF are dates, as on the page of a server."""
    url, _, _ = site
    browser.open(f"{url}page/page.html?store=../words.vstack#panel=look&variable=t")
    browser.run("await page.locator('[data-image][data-ready=yes]').waitFor()")
    assert browser.text(".slider output") == "2024-06-01 06:00"
    browser.run("await page.locator('[data-dim=Time]').press('End')")
    browser.run("await page.locator('.slider output', { hasText: '2024-06-02 18:30' }).waitFor()")


@pytest.fixture(scope="module")
def written(site):
    """A store that was verified, of which one file is gone then, and a file of facts about it."""
    _, folder, _ = site
    (folder / "more").mkdir()
    paths = write_files(folder / "more")
    store = folder / "more" / "cube.vstack"
    cube(paths).virtual.to_vstack(store, relative=True, message="four months")
    repo = vs.Repository.open(store).write("x", {"x": 0}, -1.0, message="mend x")
    source = Path(paths[1]).rename(folder / "gone.nc")
    verify(store, folder / "verified.json")
    source.rename(paths[1])
    vs.serve.report(store, folder / "more" / "facts.json", verified=folder / "verified.json")
    return repo


def made(folder):
    return json.loads((folder / "more" / "facts.json").read_text())["made"]


def test_timeline_from_a_file_of_facts(browser, site, written):
    """Its numbers are what Python says, and it names the snapshot and the time of the file."""
    url, folder, _ = site
    wanted = cube_timeline(group_of(folder / "more" / "cube.vstack"))
    browser.open(f"{url}page/page.html?store=../more/cube.vstack&facts=../more/facts.json#panel=timeline")
    assert browser.stat("eras") == str(wanted.n_eras) == "4"
    assert browser.stat("gaps") == str(wanted.n_gaps)
    assert browser.run("return page.locator('[data-era]').count()") == len(wanted.eras)
    assert all(era.first in browser.text(".eras") for era in wanted.eras)
    assert browser.text("[data-note=facts]") == f"Timeline of snapshot 1, written {made(folder)}."
    seen = [x for x in browser.seen()["urls"] if "/snapshots/" in x]
    assert len(seen) <= 2, seen  # not all of the log to compare a file with the store
    browser.open(f"{url}page/page.html?store=../more/cube.vstack&facts=../more/facts.json#panel=timeline&at=0")
    assert "This page shows snapshot 0." in browser.text("[data-note=facts]")


def test_comparison_from_a_file_of_facts(browser, site, written):
    """Lines are those of `diff`; for a newer snapshot, the page says how to write the file anew."""
    url, folder, _ = site
    later = folder / "later.vstack"
    shutil.copytree(written.url.removeprefix("file://"), later)
    repo = vs.Repository.open(later, allow=folder)
    for i in (1, 2):
        repo = repo.write("x", {"x": i}, -1.0)
    browser.open(f"{url}page/page.html?store=../later.vstack&facts=../more/facts.json#panel=snapshots")
    browser.run("await page.getByRole('button', { name: 'Compare with snapshot 0' }).press('Enter')")
    lines = repr(written.diff(0, 1)).splitlines()[1:]
    assert browser.text("[data-diff='1']").split() == " ".join(lines).split()
    text = f"Comparisons up to snapshot 1, written {made(folder)}. This page shows snapshot 3."
    assert browser.text("[data-note=facts]") == text
    browser.run("await page.getByRole('button', { name: 'Compare with snapshot 2' }).click()")
    text = browser.text("[data-snapshot='3'] [role=alert]")
    assert "is about snapshot 1, so it does not hold this comparison" in text
    assert "virtualstack report CUBE -o NAME.json" in text


def test_verified_sources_from_a_file_of_facts(browser, site, written):
    """States are those of the file, though the files had other URLs where it was written."""
    url, _, _ = site
    browser.open(f"{url}page/page.html?store=../more/cube.vstack&facts=../more/facts.json#panel=sources")
    text = browser.text("[data-note=verified]")
    assert text.startswith("Snapshot 1 was verified on ")
    assert "3 unchanged, 1 missing." in text
    rows = browser.run("return page.locator('.sources tbody tr').allInnerTexts()")
    assert [row.split()[:2] for row in rows] == [
        [f"{url}more/part{i}.nc", "missing" if i == 1 else "unchanged"] for i in range(4)
    ]


@pytest.mark.parametrize(("total", "state"), [(4, "not known"), (3, "not verified")])
def test_a_source_that_a_file_of_facts_does_not_hold(browser, site, written, total, state):
    """Of a file that was too large for all sources, nobody knows; otherwise it was not verified."""
    url, folder, _ = site
    facts = json.loads((folder / "more" / "facts.json").read_text())
    sources = facts["answers"]["sources?limit=100&offset=0"]
    sources["items"].pop()
    sources["total"] = total
    (folder / "more" / "cut.json").write_text(json.dumps(facts))
    browser.open(f"{url}page/page.html?store=../more/cube.vstack&facts=../more/cut.json#panel=sources")
    assert f"2 unchanged, 1 missing, 1 {state}." in browser.text("[data-note=verified]")
    states = browser.run("return page.locator('tbody [data-state]').allInnerTexts()")
    assert states == ["unchanged", "missing", "unchanged", state]


def test_facts_in_the_html_and_of_another_server(browser, site, written, tmp_path):
    """The page can name the store and the file itself; the file may be on a server that allows it (CORS)."""
    url, folder, _ = site
    shutil.copy(folder / "more" / "facts.json", tmp_path)
    with RangeServer(tmp_path, cors="always") as server:
        page = (folder / "page" / "page.html").read_text()
        named = page.replace('data-store=""', 'data-store="../more/cube.vstack"')
        named = named.replace('data-facts=""', f'data-facts="{server.url("facts.json")}"')
        (folder / "page" / "one.html").write_text(named)
        browser.open(f"{url}page/one.html#panel=timeline")
        assert browser.stat("eras") == "4"
        browser.open(f"{url}page/one.html?store=../cube.vstack#panel=timeline")
        assert "virtualstack report" in browser.text("[data-note=facts]")


def test_a_page_without_facts_says_how_to_write_them(browser, site, written):
    """In the panels that need them; nothing can be compared, and all else is there."""
    url, _, _ = site
    browser.open(f"{url}page/page.html?store=../more/cube.vstack#panel=timeline")
    for panel in ("timeline", "snapshots"):
        browser.tab(panel.capitalize())
        note = browser.text(f"[aria-labelledby=tab-{panel}] [data-note=facts]")
        assert f"virtualstack report {url}more/cube.vstack -o facts.json" in note
        assert browser.run("return page.locator('.failure').count()") == 0
    browser.run("await page.locator('[data-snapshot]').first().waitFor()")
    assert browser.run("return page.getByRole('button', { name: 'Compare' }).count()") == 0


@pytest.mark.parametrize(
    ("first", "text", "says"),
    [
        ("timeline", None, "status 404"),
        ("snapshots", "{", "is no JSON"),
        ("sources", "[]", "has no facts about a vstack"),
        ("timeline", "null", "has no facts about a vstack"),
        ("snapshots", '{"made": "now", "answers": {"variables?offset=0": 1}}', "has no facts about a vstack"),
        ("sources", "of another cube", "is about another cube"),
    ],
)
def test_a_wrong_file_of_facts(browser, site, written, first, text, says):
    """A note in the panels that need it, whichever is shown first; all else is there."""
    url, folder, _ = site
    if text == "of another cube":
        vs.serve.report(folder / "cube.vstack", folder / "wrong.json")
    elif text is not None:
        (folder / "wrong.json").write_text(text)
    name = "wrong.json" if text is not None else "404.json"
    browser.open(f"{url}page/page.html?store=../more/cube.vstack&facts=../{name}#panel={first}")
    for panel in (first, "timeline", "snapshots", "sources"):
        browser.tab(panel.capitalize())
        assert says in browser.text(f"[aria-labelledby=tab-{panel}] [role=alert]")
    rows = "const x = page.locator('.sources tbody tr'); await x.first().waitFor(); return x.count()"
    assert browser.run(rows) == 4
    browser.tab("Snapshots")
    assert "mend x" in browser.text("[data-snapshot='1']")
    assert browser.run("return page.getByRole('button', { name: 'Compare' }).count()") == 0


def test_facts_that_a_server_keeps_to_itself(chromium, site, written, tmp_path):
    """The note says that the server may not let the page read them."""
    url, folder, _ = site
    shutil.copy(folder / "more" / "facts.json", tmp_path)
    with RangeServer(tmp_path) as server:
        facts = server.url("facts.json?signature=sesame")
        chromium.open(f"{url}page/page.html?store=../more/cube.vstack&facts={facts}#panel=timeline")
        text = chromium.text(".panel [role=alert]")
    assert "facts.json cannot be read: its server does not answer, or does not let this page read it (CORS)" in text
    assert "sesame" not in text


def test_facts_of_another_form(browser, site, written):
    """What is not as the page knows it is a note in its panel."""
    url, folder, _ = site
    facts = json.loads((folder / "more" / "facts.json").read_text())
    facts["answers"] |= {"timeline?": {"dim": "time"}, "diff?after=1&before=0": {"lines": 1}}
    facts["answers"]["verified?"] = {"found": {"snapshot": 1, "time": 7}}
    (folder / "odd.json").write_text(json.dumps(facts))
    page = f"{url}page/page.html?store=../more/cube.vstack&facts=../odd.json"
    browser.open(f"{page}#panel=timeline")
    assert "has another form" in browser.text(".panel [role=alert]")
    browser.tab("Sources")
    assert "has another form" in browser.text(".panel [role=alert]")
    assert browser.run("return page.locator('.sources tbody tr').count()") == 4
    browser.tab("Snapshots")
    browser.run("await page.getByRole('button', { name: 'Compare with snapshot 0' }).click()")
    assert "has another form" in browser.text("[data-snapshot='1'] [role=alert]")
    browser.tab("Chunk map")
    assert browser.stat("map-n_referenced") == "72"


def test_a_large_store(browser, site):
    """10^6 chunks in 3,000 sources: no answer is large; it prints when the page is first painted."""
    url, _, _ = site
    browser.open(f"{url}page/page.html?store=../large.vstack")
    assert browser.stat("chunks") == "1,000,000"
    paint = "return page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime)"
    print(f"first paint after {browser.run(paint):.0f} ms")
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
