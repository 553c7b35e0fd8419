"""Read a vstack as a group."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import numpy as np

from virtualstack.errors import Remedy, SourceNotFoundError, UnsupportedFeatureError
from virtualstack.formats.base import ReadOptions
from virtualstack.location import Location
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.serialised.headers import ArrayHeader
from virtualstack.storage import ObjectStore, Storage
from virtualstack.storage.permission import Allow, Permission, read_allowed_urls
from virtualstack.vstack.format.history import (
    find_newest,
    newest,
    number_at,
    open_archive,
    read_group,
    read_snapshot,
)
from virtualstack.vstack.format.names import Moment, count_seconds
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.format.sources import Prefixes

_MAX_LABEL_BYTES = 1 << 32
"""Maximum bytes of dimension coordinates that are read when a store is opened."""

type At = int | Moment
"""A snapshot by its number, or by a time at which it was the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VStack:
    """A reader of vstacks, at the newest or at another snapshot.

    When to use: as ``reader=`` of functions that open a source, to choose an earlier snapshot. Alternatives:
    :meth:`virtualstack.Repository.open`, and ``xr.open_dataset(..., at=...)``.

    Parameters
    ----------
    at
        Number of the snapshot, or a time. Numbers begin at 0; ``-1`` is the newest snapshot, ``-2`` the one before it.
        A time means the snapshot that was the newest then: a text in ISO 8601 or a `numpy.datetime64`, in UTC if it has
        no time zone, or a `datetime` with a time zone. The default is the newest snapshot.
    allow
        URLs or paths that a store from a network may name, although they are local files or private hosts. With
        `vs.Listed`, only these may be read, and the folder of the store (docs/explanation/permission.md).

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> repo = vs.Repository.create("rain.vstack", xr.Dataset({"rain": ("time", [1.0])}))
    >>> repo = repo.append(xr.Dataset({"rain": ("time", [2.0])}), "time")
    >>> vs.open_virtual_dataset("rain.vstack", reader=vs.readers.VStack(at=0)).sizes["time"]
    1
    """

    name: ClassVar[str] = "vstack"

    at: At | None = None
    allow: Allow = ()

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return a snapshot of a store as a group of virtual arrays, with three requests, whatever its size.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        SourceNotFoundError
            The store or the snapshot does not exist.
        MalformedFileError
            The store is damaged.
        ForbiddenLocationError
            The store names locations that are not allowed.
        """
        allow = (*read_allowed_urls(self.allow), *options.allow)
        objects = ObjectStore(url, storage, allow)
        return snapshot_group(objects, open_snapshot(objects, self.at), options, is_chosen=self.at is not None)


def snapshot_group(
    objects: ObjectStore, snapshot: Snapshot, options: ReadOptions, /, *, is_chosen: bool
) -> ManifestGroup:
    """Return the group of a snapshot; of the store only the bundle of loaded variables is read."""
    permission = _limited(objects.permission, snapshot)
    check_labels(snapshot, objects.url.rstrip("/"), options.drops)
    group = read_group(snapshot, open_archive(snapshot, objects, permission), is_chosen=is_chosen)
    return group if is_chosen else replace(group, version=(snapshot.number, snapshot.time))


def check_labels(snapshot: Snapshot, url: str, is_dropped: Callable[[str], bool] | None = None, /) -> None:
    """Check the size of coordinates that opening or changing a store reads: a small store may claim a large one."""
    sizes = {
        path: _read_size(node.header)
        for path, node in snapshot.arrays.items()
        if node.bundled is None
        and node.header.dimension_names == (path.rpartition("/")[2],)
        and not (is_dropped and is_dropped(path))
    }
    if sum(sizes.values()) > _MAX_LABEL_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        raise UnsupportedFeatureError(
            f"'{url}' has dimension coordinates of {sum(sizes.values())} bytes, such as '{largest}'; at most "
            f"{_MAX_LABEL_BYTES} bytes are read when a store is opened",
            Remedy("open it without the largest with", drop_variables=[largest.rpartition("/")[2]]),
            url=url,
            variable=largest,
            feature="large coordinates",
        )


def _read_size(header: ArrayHeader) -> int:
    """Return the bytes of an array, or of its largest compressed chunk if that is larger: it is decoded whole."""
    chunks = [x.size * x.dtype.itemsize for x in header.encodings if x.codecs]
    return max(math.prod(header.grid.array_shape) * max(header.dtype.itemsize, 1), *chunks, 0)


def open_snapshot(objects: ObjectStore, at: At | None, /) -> Snapshot:
    """Read a snapshot of a store; ``None`` is the newest."""
    if at is not None:
        return read_numbered(objects, find_snapshot_number(objects, at))
    found = find_newest(objects)
    if found is None:
        raise no_store(objects)
    if found.data is None:
        return read_numbered(objects, found.number)
    return Snapshot.decode(found.data, number=found.number, url=objects.url + found.key)


def find_snapshot_number(objects: ObjectStore, at: At | None, /) -> int:
    """Return the number of a snapshot; a number of 0 or more is returned unchecked, without a request."""
    count, moment = _counted(at)
    if count >= 0:
        return count
    url, last = objects.url.rstrip("/"), newest(objects)
    if last is None:
        raise no_store(objects)
    number = last + 1 + count if moment is None else number_at(objects, last, moment)
    if number < 0:
        raise _no_snapshot(
            url, f"{at}, counted from the newest one, which is {last}" if moment is None else f"as old as {at}"
        )
    return number


def _counted(at: At | None) -> tuple[int, float | None]:
    """Return a number, which counts from the newest if it is negative, or a time in seconds since 1970."""
    if at is None:
        return -1, None
    if isinstance(at, str | datetime | np.datetime64):
        return -1, count_seconds(at)
    try:
        if not isinstance(at, bool):
            return operator.index(at), None
    except TypeError:
        pass
    raise TypeError(
        f"{at!r} is not a snapshot. Give its number, or a time when it was the newest, as text such as "
        "'2026-01-31T12:00:00Z' or a datetime"
    )


def read_numbered(objects: ObjectStore, number: int, /) -> Snapshot:
    """Read a snapshot by its number."""
    try:
        return read_snapshot(objects, number)
    except SourceNotFoundError as error:
        url = objects.url.rstrip("/")
        raise (no_store(objects) if newest(objects) is None else _no_snapshot(url, str(number))) from error


def no_store(objects: ObjectStore, /) -> SourceNotFoundError:
    """Return the error for a place without a snapshot, which may be a file of another kind."""
    url = objects.url.rstrip("/")
    (found,) = objects.storage.look_up([url])
    if isinstance(found, Location):
        what, first = "it is a file", Remedy("add to references with", "vds.virtual.to_kerchunk", append_dim=...)
    else:
        what, first = "it does not exist, or has no snapshot", Remedy("check the URL")
    return SourceNotFoundError(
        f"'{url}' is not a vstack: {what}",
        first,
        Remedy("write a vstack with", "vds.virtual.to_vstack"),
        url=url,
    )


def _no_snapshot(url: str, which: str) -> SourceNotFoundError:
    return SourceNotFoundError(
        f"'{url}' has no snapshot {which}: it has expired or never existed",
        Remedy("see", "vs.Repository.log"),
        url=url,
    )


def permission_for_snapshot(url: str, snapshot: Snapshot, allow: Allow) -> Permission:
    """Return the permission of a snapshot: the rule for all references, see `Permission`."""
    return _limited(Permission.from_allow(url, allow), snapshot)


def _limited(permission: Permission, snapshot: Snapshot) -> Permission:
    """Return the permission of a store for the locations that a snapshot names, which are checked."""
    prefixes = Prefixes(store=permission.store, table=snapshot.prefixes, moved=snapshot.moved)
    begins = [prefixes.root(begin) for begin in prefixes.begins()]
    permission.check_prefixes(begins)
    return permission
