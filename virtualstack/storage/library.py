"""The obstore library as this process may use it. With `obstore`, all that knows that library.

Its threads do not survive a fork: a child's calls would wait for ever, and so would dropping what the parent opened.
The child loads the library once more instead, from a copy of its file, which the loader takes for another one: with
threads, connections and locks of its own. What the parent opened is left as it is, and never dropped. Loading takes
about 25 ms, at the first use, and the library's 15 MB.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import obstore
import obstore.store

from virtualstack.errors import StorageError
from virtualstack.forks import in_forked_children

__all__ = ["keep_in_children", "kind", "library", "of_this_process"]

_NATIVE = "obstore._obstore"
_KINDS = frozenset({"S3Store", "GCSStore", "AzureStore", "HTTPStore", "LocalStore", "MemoryStore"})


class _State:
    """The library of this process, where it has one; after a fork it has none yet."""

    def __init__(self, found: ModuleType | None = None) -> None:
        self.lock = threading.Lock()
        self.library = found


_STATE = _State(obstore)


def keep_in_children(*left: object) -> None:
    """Keep objects for good, also when the process exits; for forked children, of what the parent's library made."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))


@in_forked_children
def _after_fork() -> None:
    global _STATE
    keep_in_children(_STATE)
    _STATE = _State()


def library() -> Any:
    """Give the package `obstore`: the imported one, or a forked process's own.

    Raises
    ------
    StorageError
        A forked process cannot load it.
    """
    state = _STATE
    if state.library is None:
        with state.lock:
            if state.library is None:
                state.library = _load_again()
    return state.library


def kind(store: object) -> str | None:
    """Tell which class of `obstore.store` an object is of, whichever process's library made it."""
    names = (parent.__name__ for parent in type(store).__mro__ if parent.__module__ == "obstore.store")
    return next((name for name in names if name in _KINDS), None)


def of_this_process(store: Any, url: str) -> Any:
    """Give a store that does what one of the parent process does; itself, where this process has made it.

    Parameters
    ----------
    store
        What a user gave as ``storage=``.
    url
        What it serves, for errors.

    Raises
    ------
    StorageError
        It cannot be made anew: it is kept in memory, or of a class of somebody's own.
    """
    name = kind(store)
    if name is None or isinstance(store, getattr(library().store, name)):
        return store
    try:
        _, (made, args, kwargs), *_ = store.__reduce_ex__(4)
        if made is not type(store) or made.__module__ != "obstore.store":
            raise TypeError(f"{type(store).__qualname__} is not of obstore")
        return getattr(library().store, name)(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise StorageError(
            f"'{url}': the {type(store).__name__} in storage= was opened by the process that this one was forked from, "
            f"and cannot be opened again ({error}). Give one that pickles, open it after the fork, or start workers "
            'with multiprocessing.get_context("spawn")',
            url=url,
        ) from error


def _load_again() -> ModuleType:
    try:
        with _own_copy(Path(sys.modules[_NATIVE].__file__ or "")) as path, _imports_apart(path):
            found = importlib.import_module("obstore")
            importlib.import_module("obstore.store")
            return found
    except (ImportError, OSError, KeyError) as error:
        raise StorageError(
            "this process was forked from one that may have used obstore, whose threads do not survive that, and could "
            f'not load it again ({error}). Start workers with multiprocessing.get_context("spawn") or "forkserver"'
        ) from error


@contextmanager
def _own_copy(path: Path) -> Iterator[str]:
    """Give the path of a copy of a file, which may go once it is loaded."""
    if hasattr(os, "memfd_create"):  # also where programs in the folder for temporary files may not run
        with path.open("rb") as source, os.fdopen(os.memfd_create(path.name), "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            yield f"/proc/self/fd/{copy.fileno()}"
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield shutil.copyfile(path, os.path.join(folder, path.name))


@contextmanager
def _imports_apart(path: str) -> Iterator[None]:
    """Import obstore anew, its native part from a path; afterwards everybody finds the modules there were."""

    class Finder:
        @staticmethod
        def find_spec(name: str, folders: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
            if name != _NATIVE:
                return None
            return spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))

    def of_it() -> dict[str, ModuleType]:
        return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "obstore"}

    before = of_it()
    for name in before:
        del sys.modules[name]
    sys.meta_path.insert(0, Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(Finder)
        for name in of_it():
            del sys.modules[name]
        sys.modules.update(before)
