"""Readers that misbehave, and one that keeps a list of what it read; in a module that worker processes can import."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from virtualstack.location import local_path
from virtualstack.manifests import ManifestGroup
from virtualstack.readers import HDF5, ReadOptions
from virtualstack.storage import Storage

RELEASED = threading.Event()
"""Ends the readers that hang in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noting:
    """Reads HDF5, and appends the name of each file to a file."""

    name: ClassVar[str] = "noting"
    log: str

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        with Path(self.log).open("a") as file:
            file.write(url.rpartition("/")[2] + "\n")
        return HDF5().read(url, storage, options)


class OddError(Exception):
    """Pickles, but does not come back: its constructor wants two arguments."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left} and {right}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubled:
    """Reads HDF5, but a file's name may say what happens instead.

    Parameters
    ----------
    parent
        Process that must not be ended.
    """

    name: ClassVar[str] = "troubled"
    parent: int = 0

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        name = url.rpartition("/")[2]
        if name.startswith("bug"):
            raise KeyError("a bug")
        if name.startswith("odd"):
            raise OddError(1, 2)
        if name.startswith("exit"):
            raise SystemExit(3)
        if name.startswith("interrupt"):
            raise KeyboardInterrupt
        if name.startswith("close"):
            raise GeneratorExit
        if name.startswith("hang"):
            Path(f"{local_path(url)}.begun").touch()
            RELEASED.wait(100)
        if name.startswith("stuck"):
            ctypes.PyDLL(None).sleep(100)  # which keeps the lock of the interpreter
        if name.startswith("killer") and os.getpid() != self.parent:
            time.sleep(0.1)  # so that others are under way
            os._exit(3)
        if name.startswith("closure"):
            return ManifestGroup(attributes={"f": lambda: None}, url=url)
        return HDF5().read(url, storage, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backwards:
    """Fails at each file, the first one last."""

    name: ClassVar[str] = "backwards"
    seconds: float = 0.1

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        path = local_path(url)
        assert path is not None
        time.sleep(self.seconds * (9 - int(path.stem[-1])))
        if int(path.stem[-1]) in (0, 1):
            return HDF5().read(url, storage, options)
        raise ValueError(f"number {path.stem[-1]}")
