"""vstacks become groups."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import numpy as np

from virtualstack.errors import SourceNotFoundError, UnsupportedFeatureError
from virtualstack.formats.base import ReadOptions
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.serialised.headers import ArrayHeader
from virtualstack.storage import ObjectStore, Storage
from virtualstack.storage.permission import Allow, Permission, is_signed, read_allowed_urls
from virtualstack.vstack.format.history import newest, number_at, open_archive, read_group, read_snapshot
from virtualstack.vstack.format.names import Moment, count_seconds
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.format.sources import Prefixes

__all__ = [
    "MAX_LABEL_BYTES",
    "At",
    "VStack",
    "check_labels",
    "find_snapshot_number",
    "open_snapshot",
    "permission_for_snapshot",
    "read_numbered",
    "snapshot_group",
]

MAX_LABEL_BYTES = 1 << 32
"""Bytes of the labels along dimensions that are read when a store is opened."""

type At = int | Moment
"""A snapshot by its number, or by a time at which it was the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VStack:
    """Reads a vstack: its newest snapshot, or another one.

    Parameters
    ----------
    at
        Number of the snapshot, ``-1`` for the newest, ``-2`` for the one before it; or a time, for the one that was the
        newest then: ISO 8601 or `numpy.datetime64` (UTC where there is no time zone), or a `datetime` that has one. The
        newest by default.
    allow
        URLs of folders and files that chunks may be read from, beyond what a store may name without:
        see :mod:`~virtualstack.storage.permission`.
    """

    name: ClassVar[str] = "vstack"

    at: At | None = None
    allow: Allow = ()

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Describe a store: three requests, whatever its size.

        Raises
        ------
        SourceNotFoundError
            There is no store, or no such snapshot.
        MalformedFileError
            It is damaged.
        ForbiddenLocationError
            It names places that are not allowed.
        """
        allow = (*read_allowed_urls(self.allow), *options.allow)
        objects = ObjectStore(url.rstrip("/") + "/", storage, allow)
        return snapshot_group(objects, open_snapshot(objects, self.at), allow, options, is_chosen=self.at is not None)


def snapshot_group(
    objects: ObjectStore, snapshot: Snapshot, allow: Allow, options: ReadOptions, /, *, is_chosen: bool
) -> ManifestGroup:
    """Return what a snapshot holds; nothing is read.

    Parameters
    ----------
    objects, snapshot
        Objects of the store, and the snapshot.
    allow
        What it may read besides.
    options
        Which variables are dropped.
    is_chosen
        Whether the snapshot was asked for, and not taken as the newest: written with ``mode="w"``, it replaces all
        later ones.

    Raises
    ------
    ForbiddenLocationError
        It names places that are not allowed.
    UnsupportedFeatureError
        Its coordinates are too long.
    """
    permission = permission_for_snapshot(objects.url, snapshot, allow)
    check_labels(snapshot, objects.url.rstrip("/"), options.drops)
    group = read_group(snapshot, open_archive(snapshot, objects, permission), is_chosen=is_chosen)
    return group if is_chosen else replace(group, version=(snapshot.number, snapshot.time))


def check_labels(snapshot: Snapshot, url: str, is_dropped: Callable[[str], bool] | None = None, /) -> None:
    """Check how much the coordinates take that whoever opens or changes the store reads: few bytes may say much.

    Raises
    ------
    UnsupportedFeatureError
        It is more than :data:`MAX_LABEL_BYTES`.
    """
    sizes = {
        path: _read_size(node.header)
        for path, node in snapshot.arrays.items()
        if node.bundled is None
        and node.header.dimension_names == (path.rpartition("/")[2],)
        and not (is_dropped and is_dropped(path))
    }
    if sum(sizes.values()) > MAX_LABEL_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        raise UnsupportedFeatureError(
            f"'{url}' has coordinates of {sum(sizes.values())} bytes, such as '{largest}', which would be read now; "
            f"at most {MAX_LABEL_BYTES} are. Open it without them: drop_variables=['{largest.rpartition('/')[2]}']",
            url=url,
            variable=largest,
            feature="large coordinates",
        )


def _read_size(header: ArrayHeader) -> int:
    """Give the bytes of an array, or of one of its chunks, where that is longer: it is decoded whole for any of it."""
    chunks = [x.size * x.dtype.itemsize for x in header.encodings if x.codecs]
    return max(math.prod(header.grid.array_shape) * max(header.dtype.itemsize, 1), *chunks, 0)


def open_snapshot(objects: ObjectStore, at: At | None, /) -> Snapshot:
    """Read a snapshot of a store, the newest for ``None``.

    Raises
    ------
    SourceNotFoundError
        There is no store, or no such snapshot.
    MalformedFileError
        It is damaged.
    ValueError
        A text is no time.
    """
    return read_numbered(objects, find_snapshot_number(objects, at))


def find_snapshot_number(objects: ObjectStore, at: At | None, /) -> int:
    """Give the number of a snapshot; of one that is given by a positive number nothing is asked.

    Raises
    ------
    SourceNotFoundError
        There is no store, or none that was the newest at a time.
    ValueError
        A text is no time.
    TypeError
        It is neither a number nor a time.
    """
    count, moment = _counted(at)
    if count >= 0:
        return count
    url, last = objects.url.rstrip("/"), newest(objects)
    if last is None:
        raise _no_store(url)
    number = last + 1 + count if moment is None else number_at(objects, last, moment)
    if number < 0:
        raise _no_snapshot(url, f"{at}, counted from the newest, {last}" if moment is None else f"as old as {at}")
    return number


def _counted(at: At | None) -> tuple[int, float | None]:
    """Give a number, from the newest where it is negative, or a time in seconds since 1970."""
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
        f"{at!r} is no snapshot: give its number, or a time at which it was the newest, as a text such as "
        "'2026-01-31T12:00:00Z' or a datetime"
    )


def read_numbered(objects: ObjectStore, number: int, /) -> Snapshot:
    """Read a snapshot by its number."""
    try:
        return read_snapshot(objects, number)
    except SourceNotFoundError as error:
        url = objects.url.rstrip("/")
        raise (_no_store(url) if newest(objects) is None else _no_snapshot(url, str(number))) from error


def _no_store(url: str) -> SourceNotFoundError:
    return SourceNotFoundError(
        f"'{url}' is no vstack: it has no snapshot. Check the URL, or write one with vds.virtual.to_vstack(...)",
        url=url,
    )


def _no_snapshot(url: str, which: str) -> SourceNotFoundError:
    return SourceNotFoundError(
        f"'{url}' has no snapshot {which}: it was expired, or never made; see vs.Repository.open('{url}').log()",
        url=url,
    )


def permission_for_snapshot(url: str, snapshot: Snapshot, allow: Allow) -> Permission:
    """Say what a snapshot may make its reader touch: more, where this account has written what places it names.

    Raises
    ------
    ForbiddenLocationError
        It names a place that it may not.
    """
    prefixes = Prefixes(store=url, table=snapshot.prefixes, moved=snapshot.moved)
    signed = prefixes.signed()
    is_trusted = any(is_signed(signed, signature) for signature in snapshot.signatures)
    permission = Permission.from_allow(url, allow, is_trusted=is_trusted)
    permission.check_prefixes([prefixes.root(begin) for begin in prefixes.begins()])
    return permission
