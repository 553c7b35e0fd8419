"""Bring a store up to date whenever its files change, until it is told to stop."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from virtualstack.errors import StorageError
from virtualstack.location import absolute_url, local_path
from virtualstack.storage.folders import MAGIC
from virtualstack.vstack.recipe import Recipe, covers, kept
from virtualstack.vstack.sync import Synced

_FOLDER_SECONDS, _SERVER_SECONDS = 1.0, 60.0
"""Seconds between two listings, of folders on this machine and of others."""

_LOOK_SECONDS = 0.2


def watch(
    run: Callable[[], Synced[Any]], recipe: Recipe, stop: threading.Event, interval: float | None, /
) -> Iterator[Synced[Any] | StorageError]:
    """Yield the report of the first run, and of each later one that finds something, or a server that does not answer.

    A run begins when a file that the recipe names has changed, if watchfiles is installed and the files are in folders
    of this machine. Else, and for files that are not settled yet, it begins when the interval is over.
    """
    recipe = kept(recipe)
    folders = {local_path(f"{MAGIC.split(x, maxsplit=1)[0].rpartition('/')[0]}/") for x in recipe.files}
    is_local, changed = None not in folders, threading.Event()
    is_watched = is_local and _is_watched([x for x in folders if x is not None], recipe, changed, stop)
    is_first = True
    while not stop.is_set():
        changed.clear()
        begin = time.monotonic()
        try:
            found: Synced[Any] | StorageError = run()
        except StorageError as error:
            if is_first:
                raise
            found = error
        if is_first or isinstance(found, StorageError) or not found.table.empty:
            yield found
        is_first = False
        has_pending = isinstance(found, Synced) and bool(found.pending)
        is_near = is_local and (has_pending or not is_watched)
        pause = interval or (_FOLDER_SECONDS if is_near else _SERVER_SECONDS)
        end = time.monotonic() + max(pause, time.monotonic() - begin)  # listings take half of the time at most
        while time.monotonic() < end and not changed.is_set() and not stop.wait(_LOOK_SECONDS):
            pass


def _is_watched(folders: Sequence[Path], recipe: Recipe, changed: threading.Event, stop: threading.Event) -> bool:
    """Begin to watch folders, and return whether watchfiles is there to do it."""
    try:
        watchfiles: Any = importlib.import_module("watchfiles")
    except ModuleNotFoundError:
        return False

    def is_ours(_: object, path: str) -> bool:
        url = absolute_url(path)
        return covers(recipe.files, url.removesuffix(recipe.sidecar or "")) or covers(recipe.files, url)

    def ring() -> None:
        for _ in watchfiles.watch(*folders, watch_filter=is_ours, stop_event=stop, raise_interrupt=False):
            changed.set()

    threading.Thread(target=ring, name="virtualstack-watch", daemon=True).start()
    return True
