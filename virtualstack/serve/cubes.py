"""Open cubes for a server, and follow stores that grow."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import xarray as xr

from virtualstack import accessor  # noqa: F401 - registers vds.virtual
from virtualstack.api.many import open_virtual_mfdataset
from virtualstack.errors import SourceNotFoundError
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.formats.registry import find_reader
from virtualstack.icechunk.reader import Icechunk
from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestGroup
from virtualstack.scanning.one import read_one
from virtualstack.serve.content import Content
from virtualstack.serve.http import shown_url
from virtualstack.serve.verified import VerifiedFile
from virtualstack.storage import Allow, ObjectStore, Storage, StorageLike, read_allowed_urls
from virtualstack.storage.listing import is_pattern
from virtualstack.vstack.format.history import newest
from virtualstack.vstack.format.names import snapshot_key
from virtualstack.vstack.reader import VStack
from virtualstack.vstack.repository import Repository
from virtualstack.zarr.client import Client, ZarrFormat

type CubeLike = str | os.PathLike[str] | xr.Dataset | xr.DataTree | ManifestGroup | Repository | list[Any]
"""What :func:`virtualstack.serve.app` takes as a cube."""

_METADATA = ".zmetadata", "zarr.json", ".zgroup"
"""Files of which one changes when the metadata of a folder change: parquet references, and zarr stores."""

_MAX_VERSIONS = 8
"""Number of old snapshots of a cube that are kept open."""


def name_in_url(text: str, /) -> str:
    """Return a name of a cube that needs no quotes in a URL.

    >>> name_in_url("rain & snow")
    'rain---snow'
    """
    return "".join(x if x.isalnum() or x in "._-" else "-" for x in text).strip("-") or "cube"


def name_from_url(url: str, /) -> str:
    """Return the name of a cube for the URL or path of its file: that of the file without its suffixes.

    >>> name_from_url("s3://bucket/rain.icechunk/"), name_from_url("air.2m.1999.nc")
    ('rain', 'air.2m.1999')
    """
    return name_in_url(re.sub(r"(\.[A-Za-z]+\d?)+$", "", PurePosixPath(url.rstrip("/")).name).strip("."))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A group, access to its sources, and an identity of its version."""

    group: ManifestGroup
    storage: Storage
    tag: str


@dataclass(eq=False, kw_only=True)
class Cube:
    """A cube that is served, at any of its versions."""

    name: str
    url: str | None
    kind: str
    clients: Mapping[ZarrFormat, Client]
    open_newest: Callable[[], _Opened]
    stamp: Callable[[], str] | None = None
    open_at: Callable[[str], _Opened] | None = None
    open_repository: Callable[[], Repository] | None = None
    refresh: float = 1.0
    n_threads: int = 32
    verified: VerifiedFile | None = None
    executor: ThreadPoolExecutor = field(init=False)
    describer: ThreadPoolExecutor = field(init=False)
    opener: ThreadPoolExecutor = field(init=False)
    _newest: Content | None = None
    _checked: float = 0.0
    _checking: asyncio.Task[Content] | None = None
    _snapshots: OrderedDict[str, asyncio.Future[Content]] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        # Opening has a thread of its own: chunks of a source that stalls may take all others.
        self.executor = ThreadPoolExecutor(self.n_threads, f"serve-{self.name}")
        self.opener = ThreadPoolExecutor(2, f"open-{self.name}")
        self.describer = ThreadPoolExecutor(2, f"describe-{self.name}")

    @property
    def about(self) -> dict[str, Any]:
        """What the page lists of the cube."""
        url = None if self.url is None else shown_url(self.url)
        return {"name": self.name, "kind": self.kind, "url": url, "has_snapshots": self.open_repository is not None}

    @property
    def fresh(self) -> Content | None:
        """The newest version, if no store has to be asked for it."""
        is_fresh = self.stamp is None or time.monotonic() - self._checked < self.refresh
        return self._newest if is_fresh else None

    def open(self, at: str | None = None, /) -> Content:
        """Open the newest version, or a snapshot, and keep nothing."""
        if at is None:
            opened = self.open_newest()
        elif self.open_at is None:
            raise SourceNotFoundError(f"cube '{self.name}' has no snapshots: leave out '@{at}'")
        else:
            try:
                opened = self.open_at(at)
            except SourceNotFoundError as error:  # which names the path of the store
                raise SourceNotFoundError(f"cube '{self.name}' has no snapshot '{at}'") from error
        return Content(opened.group, opened.storage, self.clients, tag=opened.tag, is_fixed=at is not None)

    async def content(self, at: str | None = None, /) -> Content:
        """Return the newest version, or a snapshot."""
        if at is not None:
            return await self._snapshot(at)
        if self.fresh is not None:
            return self.fresh
        if self._checking is None or self._checking.done():
            self._checking = asyncio.get_running_loop().create_task(self._look())
        return await asyncio.shield(self._checking)

    def open_now(self) -> None:
        """Open the newest version, and keep it: to see before serving that it can be opened; see `open`."""
        self._newest = self.open()

    async def _look(self) -> Content:
        loop = asyncio.get_running_loop()
        begin = time.monotonic()
        if self._newest is None or await loop.run_in_executor(self.opener, self._is_old, self._newest.tag):
            self._newest = await loop.run_in_executor(self.opener, self.open)
        self._checked = begin
        return self._newest

    def _is_old(self, tag: str) -> bool:
        return self.stamp is not None and self.stamp() != tag

    async def _snapshot(self, at: str) -> Content:
        opening = self._snapshots.get(at)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            opening = self._snapshots[at] = asyncio.get_running_loop().run_in_executor(self.opener, self.open, at)
        self._snapshots.move_to_end(at)
        while len(self._snapshots) > _MAX_VERSIONS:
            self._snapshots.popitem(last=False)
        return await asyncio.shield(opening)

    def close(self) -> None:
        """Stop the threads; those that wait for a source end with their request."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        self.opener.shutdown(wait=False, cancel_futures=True)
        self.describer.shutdown(wait=False, cancel_futures=True)


def make_cube(
    name: str,
    source: CubeLike | Cube,
    /,
    *,
    clients: Mapping[ZarrFormat, Client],
    storage: StorageLike,
    allow: Allow,
    options: Mapping[str, Any],
    refresh: float,
    n_threads: int,
) -> Cube:
    """Return the cube for what a user named; nothing is opened yet."""
    if isinstance(source, Cube):
        return source
    settings: dict[str, Any] = {"name": name, "clients": clients, "refresh": refresh, "n_threads": n_threads}
    reached = Storage.from_option(storage)
    if isinstance(source, Repository):
        allow = (*read_allowed_urls(source.allow), *read_allowed_urls(allow))
        chosen = source.snapshot.number if source.is_chosen else None
        return _stored_cube(source.url, source.objects.storage, allow, settings, chosen)
    if isinstance(source, ManifestGroup | xr.Dataset | xr.DataTree):
        group = source if isinstance(source, ManifestGroup) else source.virtual.to_group()
        opened = _Opened(group=group, storage=reached, tag=os.urandom(8).hex())
        return Cube(url=None, kind="memory", open_newest=lambda: opened, **settings)
    if isinstance(source, list | tuple) or is_pattern(os.fspath(source)):
        urls = source if isinstance(source, list | tuple) else os.fspath(source)

        def join() -> _Opened:
            joined = open_virtual_mfdataset(urls, storage=reached, allow=allow, **options)
            return _Opened(group=joined.virtual.to_group(), storage=reached, tag=os.urandom(8).hex())

        return Cube(url=None, kind="files", open_newest=join, **settings)
    return _stored_cube(absolute_url(source), reached, allow, settings)


def _stored_cube(
    url: str, storage: Storage, allow: Allow, settings: Mapping[str, Any], chosen: int | None = None
) -> Cube:
    reader = find_reader(url, storage)
    options = ReadOptions.from_options(allow=allow)
    version: Callable[[str], Reader] | None = None
    open_repository: Callable[[], Repository] | None = None

    def read(chosen: Reader, tag: str) -> _Opened:
        group, reached = read_one(url, reader=chosen, storage=storage, options=options)
        return _Opened(group=group, storage=reached, tag=tag)

    if isinstance(reader, VStack):
        objects = ObjectStore(url, storage, options.allow)
        reader = reader if chosen is None else VStack(at=chosen)
        version, open_repository = _snapshot, partial(Repository.open, url, allow=allow, storage=storage)

        def stamp() -> str:
            number = newest(objects)  # another store may have the same number
            return "" if number is None else f"{number}-{_state(objects.url + snapshot_key(number), storage)}"
    elif isinstance(reader, Icechunk):
        stamp = partial(reader.snapshot_id, url, storage)
        version = _icechunk_snapshot
    else:
        inner = (f"{url.rstrip('/')}/{name}" for name in _METADATA)
        watched = next((x for x in (url, *inner) if not isinstance(storage.look_up([x])[0], Exception)), url)
        stamp = partial(_state, watched, storage)

    def open_newest() -> _Opened:
        tag = stamp()  # before reading: a change in between is seen at the next look
        return read(_icechunk_snapshot(tag) if isinstance(reader, Icechunk) else reader, tag)

    return Cube(
        url=url,
        kind=reader.name,
        open_newest=open_newest,
        stamp=stamp if chosen is None else None,
        open_at=None if version is None else lambda text: read(version(text), text),
        open_repository=open_repository,
        **settings,
    )


def _state(url: str, storage: Storage) -> str:
    """Return what changes when a file does."""
    found = storage.look_up([url])[0]
    if isinstance(found, Exception):
        raise found
    return f"{found.size}-{found.etag}-{found.last_modified}"


def _icechunk_snapshot(text: str) -> Icechunk:
    return Icechunk(snapshot=text)


def _snapshot(text: str) -> VStack:
    if not (text.isascii() and text.isdigit() and len(text) < 13 and str(int(text)) == text):
        raise SourceNotFoundError("snapshots have numbers")
    return VStack(at=int(text))
