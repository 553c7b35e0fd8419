"""Digests of sources: recorded when a store is written, and compared by ``Repository.verify``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import StorageError
from virtualstack.location import Fingerprint, Location
from virtualstack.storage import Storage, check_version
from virtualstack.storage.digests import ALL, choose_ranges, digest_of
from virtualstack.storage.local import look_up_local
from virtualstack.storage.source import is_strong
from virtualstack.storage.threads import concurrently


def with_fingerprint(
    location: Location, ends: NDArray[np.int64], /, *, storage: Storage, store: str, checksums: bool = False
) -> Location:
    """Return a location with the fingerprint of its source, if the source is still the version that was indexed.

    Local files have one, and files on web servers without a strong etag. Sources that changed, that do not exist or
    have no known version get none.
    """
    known = location.fingerprint
    if checksums and (known is None or known.ranges != ALL):
        return _with_digest(location, ALL, storage)
    if known is not None and (location.last_modified is not None or location.relative_to == store):
        return location
    is_local, is_web = (location.url.startswith(x) for x in ("file://", ("http://", "https://")))
    if not (is_local or (is_web and known is None and not is_strong(location.etag))):
        return location
    if (location.last_modified, location.unmodified_since, known) == (None, None, None):
        return location
    try:
        if known is None:
            ranges = "" if location.reads is None else choose_ranges(location.reads, ends, location.size or 0)
            return _with_digest(location, ranges, storage)
        now = look_up_local(location.url)
        check_version(location, now)
    except StorageError:
        return location
    return replace(location, fingerprint=replace(known, last_modified=now.last_modified))


def _with_digest(location: Location, ranges: str, storage: Storage) -> Location:
    source = storage.source(location.url, expected=location)
    digest = digest_of(source.read, ranges, source.size)
    time = source.location.last_modified
    return replace(location, fingerprint=Fingerprint(location.last_modified if time is None else time, digest, ranges))


def wrong_digests(locations: Iterable[Location], storage: Storage, /) -> dict[Location, str]:
    """Return the sources whose bytes differ from the digests that were recorded for them, each with the reason.

    Times and etags do not count. Sources with a strong etag have a digest only if the store was written with checksums.
    """
    recorded = [(x, known) for x in locations if (known := x.fingerprint) is not None]

    def check(each: tuple[Location, Fingerprint]) -> str | None:
        try:
            source = storage.source(each[0].url)
            is_same = digest_of(source.read, each[1].ranges, source.size) == each[1].digest
        except StorageError as error:
            return str(error)
        return None if is_same else "its source has other content than when the store was written"

    found = concurrently(check, recorded, [x.url for x, _ in recorded])
    return {x: reason for (x, _), reason in zip(recorded, found, strict=True) if reason is not None}
