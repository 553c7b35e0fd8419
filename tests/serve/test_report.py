"""A report is one file that holds what the server says about a cube."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

import virtualstack as vs
from tests.serve.groups import large_group
from tests.serve.unlike import cube, write_files
from virtualstack.cli.command import main
from virtualstack.errors import SourceNotFoundError, WriterError
from virtualstack.manifests.chunk_map import map_chunks


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    paths = write_files(tmp_path_factory.mktemp("report"))
    url = Path(paths[0]).with_name("cube.vstack")
    vs.Repository.create(url, cube(paths), message="four months").write("x", {"x": 0}, -1.0, message="mend x")
    return url


def embedded(path):
    (text,) = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', path.read_text())
    return json.loads(text)


def test_facts_of_a_report(store, tmp_path):
    """They are what Python says, for all variables, sources and snapshots."""
    vs.serve.report(store, tmp_path / "page.html")
    found = embedded(tmp_path / "page.html")
    (group,) = vs.scan([store])
    answers = found["answers"]
    assert found["cubes"][0]["name"] == "cube"
    assert [x["path"] for x in answers["variables?offset=0"]["items"]] == list(group.arrays)
    for name, array in group.arrays.items():
        assert answers[f"map?variable={name}"]["n_chunks"] == map_chunks(array).n_chunks
    assert answers["sources?limit=100&offset=0"]["total"] == 4
    assert [x["message"] for x in answers["snapshots?"]["items"]] == ["mend x", "four months"]
    assert answers["diff?after=1&before=0"]["lines"] == repr(vs.Repository.open(store).diff(0, 1)).splitlines()[1:]
    assert answers["timeline?"]["n_eras"] == 4


def test_facts_as_json(store, tmp_path, capsys):
    """The same as in a report; the cube itself is not replaced."""
    vs.serve.report(store, tmp_path / "page.html")
    assert main(["report", str(store), "-o", str(tmp_path / "facts.JSON")]) == 0
    assert "page.html?store=URL&facts=URL" in capsys.readouterr().err
    facts = json.loads((tmp_path / "facts.JSON").read_text())
    assert {**facts, "made": ""} == {**embedded(tmp_path / "page.html"), "made": ""}
    vs.open_virtual_dataset(store.with_name("part0.nc")).virtual.to_kerchunk(tmp_path / "refs.json")
    before = (tmp_path / "refs.json").read_bytes()
    with pytest.raises(WriterError, match="would replace the cube itself"):
        vs.serve.report(tmp_path / "refs.json", tmp_path / "refs.json")
    assert (tmp_path / "refs.json").read_bytes() == before


def test_a_report_is_one_file(store, tmp_path):
    """It names no other file, and its policy lets it load none."""
    vs.serve.report(store, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert [x.name for x in tmp_path.iterdir()] == ["page.html"]


def test_a_report_on_a_snapshot_and_on_files(store, tmp_path):
    """Any cube that the server takes, at any version."""
    vs.serve.report(store, tmp_path / "old.html", at=0, name="old cube")
    found = embedded(tmp_path / "old.html")
    assert found["cubes"][0]["name"] == "old cube"
    assert found["answers"]["variables?offset=0"]["version"] == "0"
    vs.serve.report(store.with_name("part0.nc"), tmp_path / "file.html")
    assert "snapshots?" not in embedded(tmp_path / "file.html")["answers"]
    with pytest.raises(SourceNotFoundError, match="has no snapshots"):
        vs.serve.report(store.with_name("part0.nc"), tmp_path / "no.html", at=1)
    assert not (tmp_path / "no.html").exists()


def test_text_of_strangers_stays_text(tmp_path):
    """An attribute cannot end the element that holds the facts."""
    evil = "</script><script>alert(1)</script>{{script}}"
    xr.Dataset({"rain": ("x", [1.0], {"note": evil})}, attrs={"title": evil}).virtual.to_vstack(tmp_path / "a.vstack")
    vs.serve.report(tmp_path / "a.vstack", tmp_path / "page.html", name="<b>a</b>")
    found = embedded(tmp_path / "page.html")
    assert found["answers"]["variables?offset=0"]["items"][0]["attributes"]["note"] == evil
    assert "<script>alert" not in (tmp_path / "page.html").read_text()
    assert "<title>&lt;b&gt;a&lt;/b&gt; · virtualstack report</title>" in (tmp_path / "page.html").read_text()


def test_a_report_on_a_large_cube_is_bounded(tmp_path):
    """10^6 chunks in 3,000 sources."""
    vs.serve.report(large_group(), tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 2_000_000
    assert len([x for x in embedded(tmp_path / "page.html")["answers"] if x.startswith("sources")]) == 30


def test_sources_with_long_names(tmp_path):
    """Fewer of them fit on a page; the report holds all pages, each where the one before says."""
    vs.serve.report(large_group(150, 150, "long" * 1250), tmp_path / "page.html")
    answers, offset, n = embedded(tmp_path / "page.html")["answers"], 0, 0
    while offset is not None:
        page = answers[f"sources?limit=100&offset={offset}"]
        offset, n = page["next"], n + len(page["items"])
    assert (n, page["total"]) == (150, 150)


def test_the_command(store, tmp_path, capsys):
    """``virtualstack report CUBE -o FILE``."""
    assert main(["report", str(store), "-o", str(tmp_path / "page.html"), "--at", "0"]) == 0
    assert "is written" in capsys.readouterr().err
    assert embedded(tmp_path / "page.html")["answers"]["variables?offset=0"]["version"] == "0"
    assert main(["report", str(tmp_path / "nothing.vstack"), "-o", str(tmp_path / "no.html")]) == 1
    pattern = str(store.with_name("part[02].nc"))
    assert main(["report", pattern, "-o", str(tmp_path / "joined.html"), "--name", "joined", "--unpack", "all"]) == 0
    assert embedded(tmp_path / "joined.html")["answers"]["sources?limit=100&offset=0"]["total"] == 2


def test_a_report_needs_no_server(store, tmp_path):
    """The extra `serve` is needed for the server alone."""
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "import virtualstack as vs\n"
        f"vs.serve.report({str(store)!r}, {str(tmp_path / 'page.html')!r})\n"
        "vs.serve.app({})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (tmp_path / "page.html").exists()
    assert "MissingDependencyError" in done.stderr
    assert "virtualstack[serve]" in done.stderr
