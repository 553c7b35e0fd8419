"""Put chunks that no references can name, such as those of a BytesIO, into the manifest before it is written."""

from __future__ import annotations

from dataclasses import replace

from virtualstack.errors import Remedy, WriterError
from virtualstack.location import ARCHIVES, BYTES
from virtualstack.manifests import FIRST, ManifestArray, ManifestGroup, inlined
from virtualstack.reading.read import read_array
from virtualstack.storage import Storage, StorageLike
from virtualstack.storage.chained import MemberSource


def inline_nameless(
    group: ManifestGroup, /, *, storage: StorageLike = None, inline_limit: int = 1 << 20
) -> ManifestGroup:
    """Return a group whose chunks all have URLs that other processes can open, or are INLINE."""
    reached = Storage.from_option(storage)

    def change(array: ManifestArray) -> ManifestArray:
        array = _in_file(array, reached.with_access(array.access))
        if array.access is not None and any(prefix.startswith(BYTES) for prefix, _ in array.access.given):
            array = array.whole()  # of a session, only the pages name the chunks
        found = next((x.url for x in array.manifest.tables.locations if x.url.startswith((BYTES, *ARCHIVES))), None)
        if found is None:
            return array
        if array.nbytes > inline_limit:
            raise WriterError(
                f"variable '{array.name}' has chunks in '{found}', which references cannot name. It is an object of "
                "this process, such as a BytesIO or a session of Icechunk, or a compressed member of an archive. The "
                f"{array.nbytes} bytes of the variable are more than the {inline_limit} that are written into "
                "references",
                Remedy("write the object to a file or an object store, or unpack the archive"),
                variable=array.name,
                feature="bytes without a URL",
            )
        return inlined(array, read_array(array, (), storage))

    return group.map_arrays(change)


def in_files(group: ManifestGroup, storage: Storage, /) -> ManifestGroup:
    """Return a group whose chunks in stored members of archives are byte ranges of the archives.

    Chunks in compressed members keep the chained URL of their member.
    """
    return group.map_arrays(lambda array: _in_file(array, storage))


def _in_file(array: ManifestArray, storage: Storage) -> ManifestArray:
    if not any(x.url.startswith(ARCHIVES) for x in array.manifest.tables.locations):
        return array
    manifest = array.in_memory()
    entries, locations = manifest.entries.copy(), list(manifest.locations)
    for row, location in enumerate(locations):
        source = storage.source(location.url) if location.url.startswith(ARCHIVES) else None
        if isinstance(source, MemberSource):
            locations[row], offset = source.in_file()
            entries["offset"][entries["location"] == FIRST + row] += offset
    return replace(array, manifest=replace(manifest, entries=entries, locations=tuple(locations)))
