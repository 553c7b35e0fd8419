"""Digests of all bytes of sources: recorded with ``checksums=True``, and compared by ``Repository.verify``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from virtualstack.errors import StorageError
from virtualstack.location import Fingerprint, Location
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.storage import Storage
from virtualstack.storage.digests import ALL, digest_of
from virtualstack.storage.threads import concurrently

__all__ = ["with_checksums", "wrong_digests"]


def with_checksums(group: ManifestGroup, storage: Storage, /) -> ManifestGroup:
    """Return a group whose sources have digests of all of their bytes; every source is read once.

    Raises
    ------
    StorageError
        A source cannot be read, or changed after it was indexed.
    """
    arrays = [array for _, node in group.walk() for array in node.arrays.values()]
    access = {x: array.access for array in arrays for x in array.in_memory().locations}

    def read(location: Location) -> Location:
        source = storage.with_access(access[location]).source(location.url, expected=location)
        digest = digest_of(source.read, ALL, source.size)
        time = location.last_modified if location.last_modified is not None else source.location.last_modified
        return replace(location, fingerprint=Fingerprint(time, digest, ALL))

    checked = dict(zip(access, concurrently(read, list(access), [x.url for x in access]), strict=True))

    def placed(array: ManifestArray) -> ManifestArray:
        manifest = array.in_memory()
        return replace(array, manifest=replace(manifest, locations=tuple(checked[x] for x in manifest.locations)))

    return group.map_arrays(placed)


def wrong_digests(locations: Iterable[Location], storage: Storage, /) -> dict[Location, str]:
    """Return the sources whose bytes differ from the digests that were recorded for them, each with the reason.

    Times and etags do not count. Remote sources have a digest only if the store was written with checksums.
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
