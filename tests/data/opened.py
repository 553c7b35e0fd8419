"""Which local files any process opens, also by libraries of C: the kernel of Linux tells (inotify)."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["opened_files"]

_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")


@contextmanager
def opened_files(*paths: Path) -> Iterator[list[str]]:
    """Yield a list that has the path of each of some files that was opened, once the block has ended."""
    found: list[str] = []
    if sys.platform != "linux":
        yield found
        return
    library = ctypes.CDLL(None, use_errno=True)
    watcher = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        watched = {library.inotify_add_watch(watcher, os.fsencode(path), _IN_OPEN): str(path) for path in paths}
        assert watcher >= 0
        assert -1 not in watched
        yield found
        with suppress(BlockingIOError):
            while data := os.read(watcher, 1 << 16):
                at = 0
                while at < len(data):
                    number, _, _, length = _EVENT.unpack_from(data, at)
                    found.append(watched[number])
                    at += _EVENT.size + length
    finally:
        os.close(watcher)
