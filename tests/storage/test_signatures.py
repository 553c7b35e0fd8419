import hashlib
import hmac
import multiprocessing
import os
import stat
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from virtualstack.storage import permission
from virtualstack.storage.permission import is_signed, sign


@pytest.fixture
def key(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "state" / "key"
    monkeypatch.setenv("VIRTUALSTACK_KEY_FILE", str(path))
    return path


def test_what_was_signed_is_known_again(key):
    """By the account that has the key, to the byte; it is HMAC-SHA256."""
    signature = sign(b"data")
    assert signature == hmac.new(key.read_bytes(), b"data", hashlib.sha256).hexdigest() == sign(b"data")
    assert is_signed(b"data", signature)
    assert not is_signed(b"Data", signature)
    key.unlink()
    sign(b"other")
    assert not is_signed(b"data", signature)


def test_the_key_is_its_owners_alone(key):
    """32 bytes that nobody else reads, in a folder that nobody else enters, and nothing beside it."""
    sign(b"")
    assert len(key.read_bytes()) == 32
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert list(key.parent.iterdir()) == [key]


def test_asking_makes_no_key(key):
    """Who only reads leaves nothing behind."""
    assert not is_signed(b"data", "0" * 64)
    assert not key.exists()


@pytest.mark.parametrize("signature", [None, "", "0" * 64, "ä" * 64, "\ud800", 7, b"0" * 64])
def test_what_is_no_signature(key, signature):
    """A store from a stranger can hold anything."""
    sign(b"data")
    assert not is_signed(b"data", signature)


@pytest.mark.parametrize("content", [b"", b"0" * 31, b"0" * 33])
def test_a_key_of_another_length_is_none(key, content):
    """A file that was cut, or is none of ours."""
    key.parent.mkdir()
    key.write_bytes(content)
    key.chmod(0o600)
    assert sign(b"data") is None
    assert not is_signed(b"data", hmac.new(content, b"data", hashlib.sha256).hexdigest())
    assert key.read_bytes() == content


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_key_that_others_reach_is_none(key, mode):
    """They could have signed too."""
    signature = sign(b"data")
    key.chmod(mode)
    assert sign(b"data") is None
    assert not is_signed(b"data", signature)


def test_a_key_of_another_account_is_none(key, monkeypatch):
    """Whoever put it there knows it."""
    signature = sign(b"data")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert sign(b"data") is None
    assert not is_signed(b"data", signature)


@pytest.mark.parametrize("kind", ["folder", "fifo", "file above", "NUL"])
def test_where_no_key_can_be_made(key, monkeypatch, kind):
    """Nothing is signed, nothing is trusted, nothing hangs."""
    key.parent.mkdir()
    match kind:
        case "folder":
            key.mkdir()
        case "fifo":
            os.mkfifo(key, 0o600)
        case "file above":
            key.parent.rmdir()
            key.parent.write_bytes(b"")
        case "NUL":
            monkeypatch.setattr(permission, "_key_file", lambda: Path("a\0b"))
    assert sign(b"data") is None
    assert not is_signed(b"data", "0" * 64)


def test_where_the_disk_is_full(key, monkeypatch):
    """No half of a key stays."""
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError("disk is full")))
    assert sign(b"data") is None
    assert list(key.parent.iterdir()) == []


def test_where_the_key_is(tmp_path, monkeypatch):
    """In the folder for state, by the XDG specification; a relative one counts as none."""
    monkeypatch.delenv("VIRTUALSTACK_KEY_FILE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for state, expected in [
        (str(tmp_path / "state"), "state/virtualstack/key"),
        ("relative", "home/.local/state/virtualstack/key"),
        (None, "home/.local/state/virtualstack/key"),
    ]:
        if state is None:
            monkeypatch.delenv("XDG_STATE_HOME")
        else:
            monkeypatch.setenv("XDG_STATE_HOME", state)
        assert sign(b"data") is not None
        assert (tmp_path / expected).is_file()


def test_without_a_home(monkeypatch):
    """Nothing is signed."""
    monkeypatch.delenv("VIRTUALSTACK_KEY_FILE")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    assert sign(b"data") is None
    assert not is_signed(b"data", "0" * 64)


def test_processes_that_begin_together_have_one_key(key):
    """Whoever comes second takes the key of the first."""
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        signatures = set(pool.map(sign, [b"data"] * 16))
    assert signatures == {sign(b"data")}


def test_tests_do_not_write_to_the_home_folder(tmp_path_factory):
    """The key of the tests is a temporary one."""
    assert Path(os.environ["VIRTUALSTACK_KEY_FILE"]).is_relative_to(tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("name", ["/", ".", "..", "/proc/none/key"])
def test_a_key_that_cannot_be_is_none(name, monkeypatch):
    """What names no file that can be made: nothing is signed, and nothing fails."""
    monkeypatch.setenv("VIRTUALSTACK_KEY_FILE", name)
    assert sign(b"x") is None
