"""What is at many URLs now, and how many requests it takes to know."""

import os
import subprocess
import sys
from unittest.mock import Mock

import fsspec
import obstore.store
import pytest

from tests.servers import RangeServer
from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage import MemoryTarget, Storage


@pytest.fixture(params=["local", "memory", "http", "s3", "obstore", "fsspec"])
def place(request, tmp_path):
    """A storage, a folder, and what puts bytes there."""
    match request.param:
        case "local" | "obstore" | "fsspec":

            def put(name, data):
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

            backends = {"fsspec": fsspec.filesystem("file"), "obstore": obstore.store.LocalStore()}
            yield Storage.from_option(backends.get(request.param)), f"file://{tmp_path}/", put
        case "memory":
            target = MemoryTarget(f"memory://{tmp_path.name}")
            yield Storage.from_option(), target.url, target.put
        case "http":
            files = {}
            with RangeServer(files) as server:
                yield Storage.from_option(), server.root, files.__setitem__
        case "s3":
            s3 = request.getfixturevalue("s3_server")
            folder = f"look/{tmp_path.name}/"
            yield (
                Storage.from_option({"s3://bucket": s3.options}),
                f"s3://bucket/{folder}",
                lambda name, data: s3.put(folder + name, data),
            )


def test_it_says_what_opening_says(place):
    """Size, etag and time, and what is not there; in the order of the URLs, those that come twice too."""
    storage, folder, put = place
    names = ["b/1.nc", "a.nc", "b/10.nc", "b/2.nc", "b/c/d é.nc", "b/z.nc"]
    for i, name in enumerate(names):
        put(name, b"x" * (i + 1))
        put(name + "-other", b"y")
    urls = [folder + name.replace(" é", "%20%C3%A9" if folder.startswith("http") else " é") for name in names]
    gone = [folder + name for name in ("0.nc", "b/11.nc", "b/zz.nc", "c/x.nc", "b", "b/c/d")]
    found = storage.look_up([*gone, *urls, urls[0]])
    assert all(isinstance(x, StorageError) for x in found[: len(gone)])
    assert [isinstance(x, SourceNotFoundError) for x in found[:4]] == [True] * 4
    opened = [storage.source(url).location for url in urls]
    plain = [Location(x.url, x.size, x.etag and x.etag.strip('"'), x.last_modified) for x in found[len(gone) :]]
    for location, expected in zip(plain, [*opened, opened[0]], strict=True):
        etag = expected.etag and expected.etag.strip('"')
        assert location == Location(expected.url, expected.size, etag, expected.last_modified)


def test_nothing_is_looked_up_without_a_request():
    """No URLs."""
    assert Storage.from_option().look_up([]) == []


def test_a_web_server_is_asked_for_each(tmp_path):
    """Heads alone; a server that knows none of them is asked for a byte."""
    files = {f"{i}.nc": b"x" * i for i in range(20)}
    with RangeServer(files) as server:
        urls = [server.url(name) for name in files]
        assert [x.size for x in Storage.from_option().look_up(urls)] == list(range(20))
        assert server.requests == {"HEAD": 20}
        assert server.bytes_sent == 0
        server.mode = "no_head"
        assert [x.size for x in Storage.from_option().look_up(urls)] == list(range(20))
        assert server.bytes_sent == 19


def test_a_place_that_gives_no_answer_is_not_asked_for_ever(monkeypatch):
    """What is not asked for is not said to be missing."""
    with RangeServer({}, mode="status", status=403) as server:
        found = Storage.from_option().look_up([server.url(f"{i}.nc") for i in range(1000)])
        assert server.n_requests < 400
    assert not any(isinstance(x, Location | SourceNotFoundError) for x in found)
    assert "was not requested, because 100 files before it could not be read" in str(found[-1])


@pytest.fixture
def many(s3_server, monkeypatch):
    """A bucket with 325 objects, in folders of five; a listing has fifty."""
    monkeypatch.setattr("virtualstack.storage.obstore.PAGE_KEYS", 50)
    names = [f"year={i // 5}/{i:05}.nc" for i in range(325)]
    if "many" not in [x["Name"] for x in s3_server.client.list_buckets()["Buckets"]]:
        s3_server.client.create_bucket(Bucket="many")
        for name in names:
            s3_server.put(name, name.encode(), bucket="many")
    return names


class Requests:
    """Counts what a storage asks S3 for."""

    def __init__(self, monkeypatch):
        self.pages = self.heads = 0
        original, head = obstore.list, obstore.head

        def listed(*args, **options):
            for page in original(*args, **options):
                self.pages += 1
                yield page

        def headed(*args):
            self.heads += 1
            return head(*args)

        monkeypatch.setattr(obstore, "list", listed)
        monkeypatch.setattr(obstore, "head", headed)


def test_a_bucket_is_listed(many, s3_server, monkeypatch):
    """Many keys a request, whatever the folders; what is not listed is missing, without being asked for."""
    storage = Storage.from_option({"s3://many": s3_server.options})
    asked = Requests(monkeypatch)
    urls = [f"s3://many/{name}" for name in many]
    found = storage.look_up([*urls, "s3://many/year=3/00301.nd", "s3://many/zzz"])
    assert [x.size for x in found[:-2]] == [len(name) for name in many]
    assert all(isinstance(x, SourceNotFoundError) for x in found[-2:])
    assert asked.heads == 0
    assert asked.pages <= 10


def test_few_among_many_are_asked_for_one_by_one(many, s3_server, monkeypatch):
    """A listing that is about others is given up; and one begins where the first key is."""
    storage = Storage.from_option({"s3://many": s3_server.options})
    asked = Requests(monkeypatch)
    few = sorted(many)[::65]
    assert [x.size for x in storage.look_up([f"s3://many/{name}" for name in few])] == [len(name) for name in few]
    assert (asked.pages, asked.heads) == (5, 1)
    asked = Requests(monkeypatch)
    last = sorted(many)[-3:]
    assert len([x for x in storage.look_up([f"s3://many/{name}" for name in last]) if isinstance(x, Location)]) == 3
    assert (asked.pages, asked.heads) == (1, 0)


def test_where_no_list_is_given_each_is_asked_for(s3_server, monkeypatch):
    """Buckets that let everybody read, and nobody list."""
    monkeypatch.setattr(obstore, "list", Mock(side_effect=PermissionError("status code: 403 Forbidden")))
    s3_server.put("open/a.nc", b"abc")
    storage = Storage.from_option({"s3://bucket": s3_server.options})
    there, gone = storage.look_up(["s3://bucket/open/a.nc", "s3://bucket/open/b.nc"])
    assert there.size == 3
    assert isinstance(gone, SourceNotFoundError)


def test_a_local_file_must_be_one_that_can_be_read(tmp_path):
    """Not a folder, nor one that may not be read."""
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "a").chmod(0)
    folder, file = Storage.from_option().look_up([f"file://{tmp_path}", f"file://{tmp_path}/a"])
    assert "is a directory, not a file" in str(folder)
    assert os.geteuid() == 0 or "permission denied" in str(file)


def test_errors_hold_no_frames(tmp_path):
    """There may be one for each of a million files that are gone."""
    (gone,) = Storage.from_option().look_up([f"file://{tmp_path}/a"])
    assert gone.__cause__ is not None
    assert gone.__traceback__ is gone.__cause__.__traceback__ is None


def test_an_unknown_scheme_is_an_error_of_each():
    """As it is when one is opened."""
    (found,) = Storage.from_option().look_up(["gopher://h/a"])
    assert "no storage is known for 'gopher://'" in str(found)


def test_local_files_are_looked_at_without_obstore(tmp_path):
    """Nothing heavy is imported for them, nor for filesystems of fsspec."""
    code = (
        "import sys, fsspec; from virtualstack.storage import Storage;"
        f"Storage.from_option().look_up(['file://{tmp_path}/a']);"
        f"Storage.from_option(fsspec.filesystem('memory')).look_up(['memory://a']);"
        "print('obstore' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
