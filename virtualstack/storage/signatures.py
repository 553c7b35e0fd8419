"""Knowing again what was written on this account: a signature with a key that only its owner can read."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
from pathlib import Path

__all__ = ["is_signed", "sign"]

_LENGTH = 32  # bytes: as long as what SHA-256 gives, RFC 2104 section 3


def sign(data: bytes, /) -> str | None:
    """Give the HMAC-SHA256 of some bytes, with the user's key, in hexadecimal; ``None`` where there is no key.

    The key is made when something is signed for the first time, as ``virtualstack/key`` in ``$XDG_STATE_HOME`` or
    ``~/.local/state``; the environment variable ``VIRTUALSTACK_KEY_FILE`` names another file. Accounts that share the
    file trust each other. There is no key where that file cannot be made, where others may read or write it, or where
    it does not have 32 bytes: then nothing is trusted.

    What is signed can be copied with its signature: sign with it what it is good for, such as the URL of the store.
    """
    path = _key_file()
    key = None if path is None else _read(path) or _make(path)
    return None if key is None else hmac.new(key, data, "sha256").hexdigest()


def is_signed(data: bytes, signature: str | None, /) -> bool:
    """Tell whether `sign` gave this signature to these bytes, on this account; no key is made."""
    path = _key_file()
    key = None if path is None or not isinstance(signature, str) else _read(path)
    if key is None or signature is None:
        return False
    return hmac.compare_digest(hmac.new(key, data, "sha256").hexdigest().encode(), signature.encode(errors="replace"))


def _key_file() -> Path | None:
    if named := os.environ.get("VIRTUALSTACK_KEY_FILE"):
        return Path(named)
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # the XDG base directory specification: one that is not is to be ignored
        try:
            state = Path.home() / ".local" / "state"
        except RuntimeError:
            return None
    return state / "virtualstack" / "key"


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would wait for its writer
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
            key = file.read(_LENGTH + 1) if is_own else b""
    except (OSError, ValueError):
        return None
    return key if len(key) == _LENGTH else None


def _make(path: Path) -> bytes | None:
    """Make a key unless there is a file, all of it at once; give the one that is there then."""
    try:
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_LENGTH))
                file.flush()
                os.fsync(descriptor)
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(temporary)
        finally:
            temporary.unlink()
    except (OSError, ValueError):
        return None
    return _read(path)
