"""What every target does, for all of them."""

import pickle

import fsspec
import obstore.store
import pytest

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.storage import Storage, Target

KINDS = ["local", "memory", "s3", "fsspec", "fsspec-local", "obstore-memory"]


@pytest.fixture(params=KINDS)
def target(request, tmp_path):
    match request.param:
        case "local":
            return Storage.from_option().target(tmp_path / "store")
        case "memory":
            return Storage.from_option().target(f"memory://{tmp_path.name}")
        case "s3":
            s3 = request.getfixturevalue("s3")
            return Storage.from_option({"s3://bucket": s3.options}).target(f"s3://bucket/{tmp_path.name}")
        case "fsspec":
            filesystem = fsspec.filesystem("memory")
            return Storage.from_option({"memory://": filesystem}).target(f"memory://{tmp_path.name}")
        case "fsspec-local":
            return Storage.from_option(fsspec.filesystem("file")).target(tmp_path / "store")
        case _:
            return Storage.from_option({"memory://m": obstore.store.MemoryStore()}).target("memory://m/deep")


def test_what_was_put_is_what_is_got(target):
    """Objects come back whole, listed, replaced and deleted."""
    assert isinstance(target, Target)
    assert target.url.endswith("/")
    assert target.list() == []
    target.put("a/b c.bin", b"one")
    target.put("a/d", memoryview(b"two"))
    target.put("ab/c", bytearray(b""))
    assert target.get("a/b c.bin") == b"one"
    assert target.get("ab/c") == b""
    target.put("a/b c.bin", b"three")
    assert target.get("a/b c.bin") == b"three"
    assert target.list() == ["a/b c.bin", "a/d", "ab/c"]
    assert target.list("a") == target.list("a/") == ["a/b c.bin", "a/d"]
    assert target.list("zzz") == []
    target.delete("a/d")
    target.delete("a/d")
    assert target.list("a") == ["a/b c.bin"]


@pytest.mark.parametrize(
    "keys",
    [
        ["s/0007", "s/0012", "s/0003", "r/1"],
        ["s/b", "s/a.json", "s/a/x"],  # '.' comes before '/'
        ["s/b", "s/a/z/y", "s/a/z/x"],
        ["s2/a", "r"],
        [f"s/{n * 7 % 120:03}" for n in range(120)],
    ],
)
def test_the_first_key_is_the_first_of_the_list(target, keys):
    """In the folder, at the root, and where there is nothing."""
    assert target.first() is None
    for key in keys:
        target.put(key, b"")
    for prefix in ("s", "s/", "", "zzz", "s/0007"):
        assert target.first(prefix) == next(iter(target.list(prefix)), None)
    assert target.first("s") == min((key for key in keys if key.startswith("s/")), default=None)


def test_put_if_absent_lets_the_first_one_win(target):
    """The second writer is told so, and changes nothing."""
    assert target.put_if_absent("x/first", b"1") is True
    assert target.put_if_absent("x/first", b"2") is False
    assert target.get("x/first") == b"1"
    assert target.list() == ["x/first"]


def test_a_missing_object_is_not_found(target):
    """The error names the URL of the object."""
    with pytest.raises(SourceNotFoundError, match=r"there is no.*nope") as caught:
        target.get("nope")
    assert caught.value.url == target.url + "nope"


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/./b", "a/..", "a\0"])
def test_keys_stay_under_the_root(target, key):
    """No key climbs out of its target."""
    for act in (
        target.get,
        target.delete,
        lambda key: target.put(key, b""),
        lambda key: target.put_if_absent(key, b""),
    ):
        with pytest.raises(StorageError, match=r"is not a key under"):
            act(key)


def test_targets_pickle(target):
    """A copy writes to the same place."""
    if target.url.startswith("memory://m/"):
        pytest.skip("obstore's MemoryStore does not pickle")
    target.put("k", b"v")
    assert pickle.loads(pickle.dumps(target)).get("k") == b"v"
