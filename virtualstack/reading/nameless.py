"""Put chunks that no references can name, such as those of a BytesIO, into the manifest before it is written."""

from __future__ import annotations

from virtualstack.errors import WriterError
from virtualstack.location import BYTES
from virtualstack.manifests import ManifestArray, ManifestGroup, inlined
from virtualstack.reading.read import read_array
from virtualstack.storage import StorageLike

__all__ = ["inline_nameless"]


def inline_nameless(
    group: ManifestGroup, /, *, storage: StorageLike = None, inline_limit: int = 1 << 20
) -> ManifestGroup:
    """Return a group whose chunks all have URLs that other processes can open, or are INLINE.

    Parameters
    ----------
    group
        Group to write.
    storage
        Storage by which chunks are read that become INLINE.
    inline_limit
        Largest size of the values of a variable that become INLINE, in bytes.

    Raises
    ------
    WriterError
        A variable is larger, and some of its chunks are in bytes that only this process has.
    StorageError
        The chunks cannot be read.
    """

    def change(array: ManifestArray) -> ManifestArray:
        found = next((x.url for x in array.manifest.tables.locations if x.url.startswith(BYTES)), None)
        if found is None:
            return array
        if array.nbytes > inline_limit:
            raise WriterError(
                f"variable '{array.name}' has chunks in '{found}', which is an object of this process, such as a "
                f"BytesIO: references cannot name it, and the {array.nbytes} bytes of the variable are more than the "
                f"{inline_limit} that are written into references. Write the object to a file or an object store, and "
                "open that",
                variable=array.name,
                feature="bytes without a URL",
            )
        return inlined(array, read_array(array, (), storage))

    return group.map_arrays(change)
