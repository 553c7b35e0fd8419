"""Bring a store up to date whenever its files change, until it is told to stop."""

from __future__ import annotations

import importlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import batched
from pathlib import Path
from typing import Any

from virtualstack.errors import MissingDependencyError, StorageError
from virtualstack.location import absolute_url, local_path
from virtualstack.printable import counted
from virtualstack.storage.folders import MAGIC
from virtualstack.vstack.recipe import Recipe, covers, kept
from virtualstack.vstack.sync import Synced

_FOLDER_SECONDS, _SERVER_SECONDS = 1.0, 60.0
"""Seconds between two listings, of folders on this machine and of others."""

_QUEUE_SECONDS = 3600.0
"""Seconds between two listings if a queue tells of new files: a message may be lost."""

_LOOK_SECONDS = 0.2

_MAX_MESSAGES = 1000
"""Messages that one run is for; a queue gives them again after a while, so that it may never be empty."""

_MAX_BATCH = 10
"""Messages that Amazon SQS takes or gives by one request."""

_WAIT_SECONDS = 5
"""Seconds for which a queue may keep a request that waits for messages."""


def watch(
    run: Callable[[], Synced[Any]],
    recipe: Recipe,
    stop: threading.Event,
    interval: float | None,
    queue: str | None,
    /,
) -> Iterator[Synced[Any] | StorageError]:
    """Yield the report of the first run, and of each later one that finds something, or a server that does not answer.

    A run begins when a file that the recipe names has changed, if watchfiles is installed and the files are in folders
    of this machine, or when a queue has a message. Else, and for files that are not settled yet, it begins when the
    interval is over.
    """
    recipe, messages = kept(recipe), None if queue is None else _Queue(queue)
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
        try:
            if messages is not None and isinstance(found, Synced):
                messages.delete()
        except StorageError as error:
            yield error
        is_first = False
        has_pending = isinstance(found, Synced) and bool(found.pending)
        is_near = is_local and (has_pending or not is_watched)
        is_rare = messages is not None and isinstance(found, Synced) and not has_pending
        pause = interval or (_QUEUE_SECONDS if is_rare else _FOLDER_SECONDS if is_near else _SERVER_SECONDS)
        end = time.monotonic() + max(pause, time.monotonic() - begin)  # listings take half of the time at most
        while time.monotonic() < end and not changed.is_set() and not stop.wait(_LOOK_SECONDS):
            try:
                if messages is not None and messages.receive():
                    break
            except StorageError as error:
                yield error
                stop.wait(_SERVER_SECONDS)


class _Queue:
    """A queue of Amazon SQS that gets a message for each new object; what it says of the object is not needed."""

    def __init__(self, url: str) -> None:
        try:
            boto3: Any = importlib.import_module("boto3")
            self._errors: Any = importlib.import_module("botocore.exceptions")
        except ModuleNotFoundError as error:
            raise MissingDependencyError("watching a queue", extra="queue") from error
        scheme, _, rest = url.partition("://")
        region = re.match(r"sqs\.([^./]+)\.", rest)
        self._url, self._received = url, list[str]()
        with self._told():
            server = f"{scheme}://{rest.partition('/')[0]}"
            self._client = boto3.client("sqs", endpoint_url=server, region_name=region and region[1])
            self._client.get_queue_attributes(QueueUrl=url)  # a wrong name is an error at once

    def receive(self) -> bool:
        """Wait a while for messages, and return whether there are some."""
        with self._told():
            while len(self._received) < _MAX_MESSAGES:
                seconds = 0 if self._received else _WAIT_SECONDS
                found = self._client.receive_message(
                    QueueUrl=self._url, MaxNumberOfMessages=_MAX_BATCH, WaitTimeSeconds=seconds
                ).get("Messages", ())
                if not found:
                    break
                self._received += [x["ReceiptHandle"] for x in found]
        return bool(self._received)

    def delete(self) -> None:
        """Delete the messages that were received before the run that has ended; others come again, and so do the rest.

        Those that cannot be deleted begin another run when the queue gives them again.
        """
        received, self._received = self._received, []
        failed: list[Any] = []
        with self._told():
            for some in batched(received, _MAX_BATCH):
                entries = [{"Id": str(number), "ReceiptHandle": x} for number, x in enumerate(some)]
                failed += self._client.delete_message_batch(QueueUrl=self._url, Entries=entries).get("Failed", ())
        if failed:
            why = failed[0].get("Message") or failed[0].get("Code")
            raise StorageError(
                f"{counted(len(failed), 'message')} of the queue '{self._url}' cannot be deleted: {why}", url=self._url
            )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (self._errors.BotoCoreError, self._errors.ClientError) as error:
            raise StorageError(f"the queue '{self._url}' cannot be used: {error}", url=self._url) from error


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
