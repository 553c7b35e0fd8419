import pickle
import subprocess
import sys

import fsspec
import pytest
from obstore.store import LocalStore, MemoryStore, S3Store

from virtualstack.errors import StorageError
from virtualstack.storage import LocalSource, LocalTarget, Storage, open_source

SECRET = {"secret_access_key": "s3cr3t", "endpoint": "http://e"}


def served(storage, url):
    return storage.find(url)[1]


def test_the_longest_prefix_serves():
    """Prefixes end at slashes."""
    storage = Storage.from_option({"s3://b": {"n": 1}, "s3://b/a/": {"n": 2}, "s3://": {"n": 3}})
    for url, n in [("s3://b/x", 1), ("s3://b/a/x", 2), ("s3://b/ab", 1), ("s3://bc/x", 3), ("s3://b/a", 2)]:
        assert served(storage, url) == {"n": n}
    assert served(storage, "gs://b/x") is None


def test_a_bare_store_serves_all_but_local_files(tmp_path):
    """A cloud store does not stand in the way of local references."""
    (tmp_path / "x").write_bytes(b"abc")
    storage = Storage.from_option(S3Store("b"))
    assert isinstance(storage.source(tmp_path / "x"), LocalSource)
    assert isinstance(storage.target(tmp_path), LocalTarget)
    assert isinstance(served(storage, "s3://b/x"), S3Store)
    assert isinstance(served(Storage.from_option(fsspec.filesystem("file")), "file:///x"), fsspec.AbstractFileSystem)


@pytest.mark.parametrize("backend", [LocalStore(), fsspec.filesystem("file")])
def test_a_bare_local_store_serves_local_files_only(tmp_path, backend):
    """Buckets are no folders: whoever names 's3://x/etc/passwd' gets no file of this machine."""
    path = tmp_path / "a"
    path.write_bytes(b"local")
    storage = Storage.from_option(backend)
    assert storage.source(path).read(0, 5) == b"local"
    assert storage.find("file:///a")[1] is backend
    for url in (f"s3://bucket{path}", f"https://8.8.8.8{path}", f"memory://bucket{path}"):
        assert storage.find(url)[1] is None


def test_a_storage_stays_one():
    """Passing a storage on changes nothing; what was given is not changed either."""
    options = {"s3://b": {"n": 1}}
    storage = Storage.from_option(options)
    assert Storage.from_option(storage) is storage
    options["s3://b"]["n"] = 2
    assert served(storage, "s3://b/x") == {"n": 1}
    assert storage == Storage.from_option({"s3://b": {"n": 1}})


def test_a_url_is_opened_once_where_that_is_asked_for(tmp_path):
    """Who reads one source by several steps opens it once; other URLs, and versions, are opened as ever."""
    for name in "xy":
        (tmp_path / name).write_bytes(b"abc")
    storage = Storage.from_option()
    once = storage.once(tmp_path / "x")
    assert once == storage
    assert once.source(tmp_path / "x") is once.source(tmp_path / "x")
    assert once.source(tmp_path / "y") is not once.source(tmp_path / "y")
    assert storage.source(tmp_path / "x") is not storage.source(tmp_path / "x")
    location = once.source(tmp_path / "x").location
    assert once.source(tmp_path / "x", expected=location) is not once.source(tmp_path / "x")
    assert storage.once(tmp_path / "x").source(tmp_path / "x") is not once.source(tmp_path / "x")
    assert pickle.loads(pickle.dumps(once)).source(tmp_path / "x").read(0, 3) == b"abc"


def test_a_storage_goes_to_workers():
    """A storage pickles with its options, captured when it was made."""
    copy = pickle.loads(pickle.dumps(Storage.from_option({"s3://b": SECRET})))
    assert served(copy, "s3://b/x") == SECRET
    with_store = pickle.loads(
        pickle.dumps(Storage.from_option({"s3://b": S3Store("b"), "s3://c": fsspec.filesystem("memory")}))
    )
    assert served(with_store, "s3://b/x") == S3Store("b")


def test_a_repr_has_no_secrets():
    """Names of options are shown, values are not."""
    carried = Storage.from_option({"s3://c": SECRET}).access("s3://c/x")
    text = repr(Storage.from_option({"s3://b": SECRET, "gs://c": MemoryStore()}).with_access(carried))
    assert text == (
        "Storage({'gs://c': MemoryStore, 's3://b': ['endpoint', 'secret_access_key']}, "
        "carried={'s3://c': ['endpoint', 'secret_access_key']})"
    )


@pytest.mark.parametrize("url", ["bar://host/x", "foo://x"])
def test_unknown_schemes(url):
    """The known ones are named."""
    with pytest.raises(
        StorageError,
        match=f"no storage is known for '{url[:3]}://'. The known schemes are file, memory, .*https, .* fsspec",
    ):
        open_source(url)
    with pytest.raises(StorageError, match=r"For other schemes give an fsspec filesystem"):
        Storage.from_option().target(url)


@pytest.mark.parametrize("storage", [3, "s3://b", {"s3://b": 3}, {"s3://b": "key"}, [("s3://b", {})]])
def test_what_storage_does_not_take(storage):
    """A wrong argument is named."""
    with pytest.raises(TypeError, match=r"storage= for '.*' is a (int|str|list)\. Give a mapping of options"):
        Storage.from_option(storage)
    with pytest.raises(TypeError, match=r"storage= maps URL prefixes to options; 3 is not a string"):
        Storage.from_option({3: {}})


def test_local_prefixes_may_be_paths(tmp_path):
    """A path is made absolute."""
    assert Storage.from_option({str(tmp_path): {}}).given[0][0] == f"file://{tmp_path}"
    (tmp_path / "x").write_bytes(b"abc")
    assert Storage.from_option({str(tmp_path): {}}).source(tmp_path / "x").read(0, 1) == b"a"


def test_importing_storage_loads_no_backend():
    """Obstore and fsspec are loaded by the URLs that need them."""
    code = (
        "import sys, xarray, zarr; before = set(sys.modules); "
        "import virtualstack.storage as s; s.open_source(__import__('os').__file__); "
        "print([m for m in ('obstore', 'fsspec', 'urllib.request') if m in set(sys.modules) - before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
