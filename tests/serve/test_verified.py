"""Sources with what ``virtualstack verify`` last said of them, from the file that it wrote."""

import contextlib
import io
import json
import os
import subprocess
from base64 import b64encode
from pathlib import Path
from pickle import dumps

import pytest
import requests
import xarray as xr
from starlette.testclient import TestClient

import virtualstack as vs
from tests.serve.groups import large_group
from tests.serve.running import find_free_port, serving
from tests.serve.test_command import VIRTUALSTACK, first_answer
from tests.serve.test_report import embedded
from tests.serve.unlike import cube, write_files
from virtualstack.cli.command import main
from virtualstack.errors import MalformedFileError, SourceNotFoundError
from virtualstack.manifests.chunk_map import count_sources
from virtualstack.serve import workers
from virtualstack.vstack.save import save


def verify(store, to, *options):
    """Write what the command prints, as its users do."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main(["verify", str(store), "--json", *options])
    Path(to).write_text(out.getvalue())


@pytest.fixture
def archive(tmp_path):
    """Three files and a store; one file is then deleted, one is changed, and the store verified."""
    paths = [Path(x) for x in write_files(tmp_path)]
    later = xr.load_dataset(paths[0], decode_times=False)
    later.assign_coords(time=later["time"] + 90).to_netcdf(paths[3])
    vs.Repository.create(tmp_path / "cube.vstack", cube(paths[:3]), message="three months")
    paths[1].unlink()
    paths[2].write_bytes(paths[2].read_bytes().replace(b"part 2", b"part X"))  # the title, with the same size
    os.utime(paths[2], (1, 1))
    os.utime(paths[0], (1, 1))  # touched, and not changed
    verify(tmp_path / "cube.vstack", tmp_path / "verified.json", "--sample", "100%")
    return paths


def facts(url, kind, cube="cube"):
    answer = requests.get(f"{url}/-/facts/{cube}/{kind}", timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()


def states(url, cube="cube"):
    return [x["status"] for x in facts(url, "sources", cube)["items"]]


def test_states_of_sources(tmp_path, archive):
    """Those of `Repository.verify`; a source that was added later was not verified."""
    repo = vs.Repository.open(tmp_path / "cube.vstack")
    wanted = repo.verify(sample=1.0)
    with serving({"cube": repo.url}, verified={"cube": tmp_path / "verified.json"}, refresh=0) as url:
        assert states(url) == list(wanted.statuses.values()) == ["unchanged", "missing", "changed"]
        found = facts(url, "verified")
        assert found["error"] is None
        found = found["found"]
        assert found["snapshot"] == 0
        assert found["counts"] == {"unchanged": 1, "changed": 1, "missing": 1}
        assert found["chunks"] == {"equal": len(wanted.chunks)} == {"equal": 31}
        for problem, expected in zip(found["problems"], wanted.problems, strict=True):
            assert (problem["url"], problem["status"]) == (expected.url, expected.status)
            what, _, _ = expected.reason.partition(". Or read it")  # the command cannot read it: it has no --stale
            assert problem["reason"].strip(").") == what.strip(").")
        repo.append(archive[3], "time")
        assert states(url) == ["unchanged", "missing", "changed", "not verified"]
        assert states(url, "cube@0") == ["unchanged", "missing", "changed"]
        assert facts(url, "verified")["found"]["counts"]["not verified"] == 1
        assert facts(url, "verified")["found"]["snapshot"] == 0


def test_a_file_that_changes_is_read_again(tmp_path, archive):
    """Also one that is wrong for a while: a note says why, and everything else is served."""
    file = tmp_path / "verified.json"
    text = file.read_text()
    with serving({"cube": tmp_path / "cube.vstack"}, verified={"cube": file}) as url:
        assert states(url) == ["unchanged", "missing", "changed"]
        for wrong, says in (
            ("", "not what 'virtualstack verify STORE --json' writes (Expecting value"),
            (text[:100], "is not what"),
            ("[" * 100_000, "is not what"),
            ("[]", "is not what"),
            ("{}", "it has no 'sources'"),
            (text.replace('"missing"', '"gone"'), "no source has the status 'gone'"),
            (text.replace('"snapshot": 0', '"snapshot": "0"'), "another type"),
            (text.replace("cube.vstack", "other.vstack"), "is about 'file:///"),
        ):
            file.write_text(wrong)
            assert facts(url, "verified")["found"] is None
            assert says in facts(url, "verified")["error"], wrong[:100]
            assert states(url) == [None] * 3
        file.unlink()
        assert "does not exist" in facts(url, "verified")["error"]
        verify(tmp_path / "cube.vstack", file)
        assert states(url) == ["unchanged", "missing", "changed"]
        os.utime(archive[2], (2, 2))
        archive[2].unlink()
        verify(tmp_path / "cube.vstack", file)
        assert states(url) == ["unchanged", "missing", "missing"]


def test_without_a_file_nothing_is_said(tmp_path, archive):
    """Neither of the sources nor of the cube."""
    with serving({"cube": tmp_path / "cube.vstack"}) as url:
        assert states(url) == [None] * 3
        assert facts(url, "verified") == {"found": None, "error": None}


def test_secrets_are_not_shown(tmp_path):
    """Neither in URLs nor in reasons; the states are those of the URLs as they are."""
    group = large_group(20, 2, "a?token=sesame&n=")
    save(group, tmp_path / "cube.vstack")
    urls = [x.url for x in count_sources(group.all_arrays()).locations]
    (tmp_path / "verified.json").write_text(
        json.dumps(
            {
                "url": (tmp_path / "cube.vstack").as_uri(),
                "snapshot": 0,
                "time": "2026-11-27T00:00:00+00:00",
                "sources": [{"url": url, "status": x} for url, x in zip(urls, ["missing", "unknown"], strict=True)],
                "problems": [{"url": urls[0], "status": "missing", "reason": f"'{urls[0]}' is not there"}],
                "chunks": [],
            }
        )
    )
    with serving(
        {"cube": tmp_path / "cube.vstack"}, verified={"cube": tmp_path / "verified.json"}, allow="s3://bucket/"
    ) as url:
        assert states(url) == ["missing", "unknown"]
        found = facts(url, "verified")
        assert found["found"]["problems"] == [
            {"url": "s3://bucket/a?...", "status": "missing", "reason": "'s3://bucket/a?...' is not there"}
        ]
        assert "sesame" not in json.dumps([found, facts(url, "sources")])


def test_mistakes_at_the_start(tmp_path, archive, monkeypatch, capsys):
    """A wrong file, or one for a cube that there is not, is an error before anything is served."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: pytest.fail("it served"))
    Path("bad.json").write_text("{")
    with pytest.raises(MalformedFileError, match=r"bad.json' is not what 'virtualstack verify"):
        vs.serve.app({"cube": "cube.vstack"}, verified={"cube": "bad.json"})
    with pytest.raises(MalformedFileError, match=r"is about 'file:.*/cube.vstack', and the cube is no vstack"):
        vs.serve.app({"cube": large_group()}, verified={"cube": "verified.json"})
    with pytest.raises(SourceNotFoundError, match=r"virtualstack verify STORE --json > none.json"):
        vs.serve.app({"cube": "cube.vstack"}, verified={"cube": "none.json"})
    with pytest.raises(ValueError, match="for a cube 'rain', and the cubes are"):
        vs.serve.app({"cube": "cube.vstack"}, verified={"rain": "verified.json"})
    with pytest.raises(MalformedFileError, match="is not what"):
        vs.serve.report("cube.vstack", "page.html", verified="bad.json")
    assert not Path("page.html").exists()
    for arguments, status, says in (
        (["my cube=cube.vstack", "part0.nc", "--verified", "my cube=bad.json"], 1, "is not what"),
        (["cube.vstack", "--verified", "bad.json"], 1, "is not what"),
        (["cube.vstack", "--verified", "rain=verified.json"], 1, "cubes are ['cube']"),
        (["cube.vstack", "part0.nc", "--verified", "verified.json"], 2, "Name it: --verified NAME=verified.json"),
        (["cube.vstack", "--verified", "verified.json", "--verified", "cube=b.json"], 2, "twice"),
    ):
        assert main(["serve", *arguments]) == status
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("workers", [1, 2])
def test_the_command(tmp_path, archive, workers):
    """Each process reads the file; one that starts while it is wrong serves."""
    port = find_free_port()
    command = [VIRTUALSTACK, "serve", "cube.vstack", f"--port={port}", f"--workers={workers}"]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [*command, "--verified=verified.json"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            first_answer(server, f"{url}/-/cubes")
            assert states(url) == ["unchanged", "missing", "changed"]
            (tmp_path / "verified.json").write_text("")
            assert states(url) == [None] * 3
        finally:
            server.send_signal(2)
            assert "Traceback" not in server.communicate(timeout=30)[1]


def test_a_process_that_starts_while_the_file_is_wrong_serves(tmp_path, archive, monkeypatch):
    """As one of several that takes the place of another."""
    (tmp_path / "verified.json").write_text("")
    options = {"cubes": {"cube": tmp_path / "cube.vstack"}, "verified": {"cube": tmp_path / "verified.json"}}
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setenv("VIRTUALSTACK_SERVE", b64encode(dumps(options)).decode())
    with TestClient(workers.make(), "http://localhost") as client:
        assert client.get("/-/facts/cube/sources").status_code == 200
        assert "is not what" in client.get("/-/facts/cube/verified").json()["error"]


def test_a_report(tmp_path, archive):
    """It holds the states of that time."""
    command = ["report", str(tmp_path / "cube.vstack"), "-o", str(tmp_path / "page.html")]
    assert main([*command, "--verified", str(tmp_path / "verified.json")]) == 0
    answers = embedded(tmp_path / "page.html")["answers"]
    states = [x["status"] for x in answers["sources?limit=100&offset=0"]["items"]]
    assert states == ["unchanged", "missing", "changed"]
    assert answers["verified?"]["found"]["counts"] == {"unchanged": 1, "changed": 1, "missing": 1}


def test_the_page(chromium, tmp_path, archive):
    """It says when which snapshot was verified, and the state of each source, also at the width of a telephone."""
    repo = vs.Repository.open(tmp_path / "cube.vstack")
    file = tmp_path / "verified.json"
    note, rows = "[data-note=verified]", "return page.locator('tbody [data-state]').allInnerTexts()"
    when = json.loads(file.read_text())["time"][:19].replace("T", " ")
    with serving({"cube": repo.url}, verified={"cube": file}, refresh=0) as url:
        chromium.open(f"{url}/#panel=sources", width=400)
        text = chromium.text(note)
        assert f"Snapshot 0 was verified on {when} UTC: 1 unchanged, 1 changed, 1 missing." in text
        assert "Chunks compared with their sources: 31 equal." in text
        assert "This page shows" not in text
        assert chromium.run(rows) == ["unchanged", "missing", "changed"]
        chromium.run("await page.getByText('2 sources with a problem').press('Enter')")
        assert f"file://{archive[1]} missing" in chromium.text(".problems")
        assert chromium.run("return page.evaluate(() => document.documentElement.scrollWidth - innerWidth)") <= 0
        repo.append(archive[3], "time")
        chromium.open(f"{url}/#panel=sources")
        assert "This page shows snapshot 1" in chromium.text(note)
        assert chromium.run(rows) == ["unchanged", "missing", "changed", "not verified"]
        file.write_text(file.read_text()[:200])
        chromium.open(f"{url}/#panel=sources")
        assert "What verify found cannot be shown" in chromium.text(f"{note}[role=alert]")
        assert chromium.run("return page.locator('.sources tbody tr').count()") == 4
        assert chromium.run(rows) == []
        assert chromium.seen()["errors"] == []
