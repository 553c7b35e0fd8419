"""The record of granted places: what is written to it, by whom, and what is read from it."""

import stat
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from virtualstack.cli.command import main
from virtualstack.errors import StorageError
from virtualstack.storage import places
from virtualstack.storage.places import grant, grant_sources, granted, listed, place_from_user, record_path, remove


@pytest.fixture
def record(tmp_path, monkeypatch):
    """A record that does not exist yet."""
    path = tmp_path / "state" / "places.txt"
    monkeypatch.setenv("VIRTUALSTACK_PLACES", str(path))
    return path


def lines(record):
    return [line.split(" ", 2)[1:] for line in record.read_text().splitlines() if not line.startswith("#")]


def test_what_is_written_is_granted(record, tmp_path):
    """Folders of local files, buckets, private hosts; each once, with a date; public hosts need none."""
    urls = [
        "file:///data/a.nc",
        "file:///data/b.nc",
        "s3://bucket/x/c.nc",
        "http://127.0.0.1:80/d",
        "https://8.8.8.8/e",
    ]
    for _ in range(2):
        grant_sources([*urls, "memory://f", "http://user:word@10.0.0.1/g"])
    assert lines(record) == [
        ["written", "file:///data/*"],
        ["written", "http://127.0.0.1:80/"],
        ["written", "s3://bucket/"],
    ]
    assert granted().folders == {"file:///data/"}
    assert granted().roots == ("http://127.0.0.1:80/", "memory://", "s3://bucket/")
    assert granted().explicit == ()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


@pytest.mark.parametrize("n", [1, 100])
def test_links_are_granted_with_where_they_lead(record, tmp_path, n):
    """Of the files that are named: farms of links are common in archives."""
    for folder in ("real", "farm"):
        (tmp_path / folder).mkdir()
    for i in range(n):
        (tmp_path / "farm" / f"{i}.nc").symlink_to(tmp_path / "real" / f"{i}.nc")
    (tmp_path / "farm" / "other").symlink_to("/etc/passwd")
    grant_sources(f"file://{tmp_path}/farm/{i}.nc" for i in range(n))
    assert granted().folders == {f"file://{tmp_path}/farm/", f"file://{tmp_path}/real/"}


def test_reading_writes_nothing(record):
    assert not granted().folders
    assert not listed()
    assert not record.parent.exists()


@pytest.mark.parametrize("why", ["read-only", "no folder"])
def test_a_record_that_cannot_be_written(record, monkeypatch, why, capsys):
    """The process keeps its grants, and the command says what to do."""
    if why == "no folder":
        monkeypatch.setenv("VIRTUALSTACK_PLACES", "not/absolute")
    else:
        record.parent.write_text("a file")
    grant_sources(["file:///data/a.nc"])
    assert granted().folders == {"file:///data/"}
    assert main(["allow", "/data"]) == 1
    assert "Set VIRTUALSTACK_ALLOW instead" in capsys.readouterr().err
    monkeypatch.setenv("VIRTUALSTACK_ALLOW", "/data 's3://a b' http://10.0.0.1:80")
    assert granted().explicit == ("file:///data", "s3://a b/", "http://10.0.0.1:80/")


def test_a_record_that_others_may_write_is_not_read(record, capsys):
    """And the command says so, whether places are listed or granted."""
    grant(["s3://bucket/"])
    assert granted().explicit == ("s3://bucket/",)
    record.chmod(0o620)
    assert granted().explicit == ()
    assert main(["allow"]) == 0
    assert f"'{record}' is ignored: other accounts may write to it" in capsys.readouterr().err
    for arguments in (["/data"], ["--remove", "s3://bucket/"]):
        assert main(["allow", *arguments]) == 1
        assert "is ignored: other accounts may write to it" in capsys.readouterr().err
    record.chmod(0o600)
    assert main(["allow"]) == 0
    assert capsys.readouterr().err == ""
    record.unlink()
    record.mkdir()
    assert main(["allow", "/data"]) == 1
    assert "is ignored: it is not a file" in capsys.readouterr().err


def test_the_configuration_file_and_the_environment_grant(record, tmp_path, monkeypatch, capsys):
    """Each with where it comes from."""
    (tmp_path / "config.toml").write_text('allow = ["/data/x.nc", "s3://bucket"]\n')
    monkeypatch.setenv("VIRTUALSTACK_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("VIRTUALSTACK_ALLOW", str(tmp_path))
    assert main(["allow", "http://10.0.0.1"]) == 0
    assert granted().explicit == (f"file://{tmp_path}/", "file:///data/x.nc", "s3://bucket/", "http://10.0.0.1/")
    assert main(["allow"]) == 0
    shown = capsys.readouterr().out
    for word in ("VIRTUALSTACK_ALLOW", "config.toml", "virtualstack allow", "http://10.0.0.1/", str(record)):
        assert word in shown
    assert main(["allow", "--remove", "http://10.0.0.1"]) == 0
    assert main(["allow", "--remove", "http://10.0.0.1"]) == 1
    assert "is not in the record" in capsys.readouterr().err
    assert main(["allow", "s3://one/", "s3://two/"]) == 0
    before = record.read_text()
    assert main(["allow", "--remove", "s3://one/", "--remove", "s3://typo/"]) == 1
    assert "'s3://typo/' is not in the record" in capsys.readouterr().err
    assert record.read_text() == before
    assert main(["allow", "--remove", "s3://one/", "--remove", "s3://two/"]) == 0
    assert "s3://" not in record.read_text()
    (tmp_path / "wrong.toml").write_text('allow = ["data"]\n')
    monkeypatch.setenv("VIRTUALSTACK_CONFIG", str(tmp_path / "wrong.toml"))
    with pytest.raises(StorageError, match="not a list of URLs and absolute paths"):
        granted()
    monkeypatch.setenv("VIRTUALSTACK_ALLOW", "'/data")
    with pytest.raises(StorageError, match=r"VIRTUALSTACK_ALLOW=.* is not a list of places"):
        granted()


def test_what_is_removed_is_not_granted_again(record):
    """Not by this process either, and other lines stay."""
    grant_sources(["file:///data/a.nc", "s3://bucket/a"])
    assert remove(["s3://bucket/", "s3://other/"]) == ["s3://bucket/"]
    assert lines(record) == [["written", "file:///data/*"]]
    assert granted().roots == ()


def _grant(i):
    grant_sources(f"file:///data/{j}/x.nc" for j in range(i, i + 50))


def test_several_processes_write_at_once(record):
    """No line is lost, torn or there twice."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        list(pool.map(_grant, range(0, 100, 10)))
    assert sorted(lines(record)) == sorted(["written", f"file:///data/{j}/*"] for j in range(140))
    assert record.read_text().count("#") == 3


def test_many_files_cost_little(record):
    """A million files in 10,000 folders."""
    before = time.process_time()
    grant_sources(f"file:///data/{i % 10_000}/{i}.nc" for i in range(1_000_000))
    assert time.process_time() - before < 20
    assert len(granted().folders) == 10_000


def test_places_as_users_write_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert place_from_user(".") == f"file://{tmp_path}/"
    assert place_from_user("a.nc") == f"file://{tmp_path}/a.nc"
    assert place_from_user("gs://bucket") == "gs://bucket/"
    assert [place_from_user(x) for x in ("https://", "file:///")] == ["https://", "file:///"]


def test_the_record_is_in_the_folder_for_states(tmp_path, monkeypatch):
    """As the XDG base directory specification says; without a home there is none."""
    monkeypatch.delenv("VIRTUALSTACK_PLACES")
    for folder in (tmp_path / "a", tmp_path / "b"):
        monkeypatch.setenv("XDG_STATE_HOME", str(folder))
        assert record_path() == folder / "virtualstack" / "places.txt"
    monkeypatch.setattr(places.platformdirs, "user_state_path", lambda name: Path("state", name))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert record_path() is None
