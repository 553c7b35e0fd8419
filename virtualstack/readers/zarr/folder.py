"""A zarr store in a folder: a document or chunk is an object."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.formats.metadata import ArrayMetadata
from virtualstack.location import Location
from virtualstack.manifests.manifest import check_count
from virtualstack.readers.zarr.objects import Objects
from virtualstack.storage import Storage
from virtualstack.storage.target import UnlistableError

__all__ = ["Folder"]

_MOST_DOCUMENT = 1 << 30
_WEB = "http://", "https://"
_KEPT = "/!$&'()*+,;=:@~"  # of a key, in the URL of a web server


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder of a store, which is the whole store or an array in it.

    Parameters
    ----------
    url
        Without a slash at its end.
    storage
        How it is reached.
    """

    url: str
    storage: Storage

    def document(self, key: str, /) -> bytes | None:
        """Read a whole object; ``None`` where there is none.

        Raises
        ------
        StorageError
            It cannot be had, or has more than 1 GiB.
        """
        try:
            source = self.storage.source(self._url(key))
        except SourceNotFoundError:
            return None
        if source.size > _MOST_DOCUMENT:
            raise StorageError(f"'{self._url(key)}' has {source.size} bytes, too many for metadata", url=self._url(key))
        return source.read(0, source.size)

    def folders(self, path: str, /) -> Sequence[str]:
        """List the folders in a folder.

        Raises
        ------
        UnlistableError
            It is a web server.
        """
        return self.storage.target(self.url).folders(path)

    def below(self, path: str, /) -> Folder:
        """Give a folder in it."""
        return Folder(url=self._url(path) if path else self.url, storage=self.storage)

    def find(self, metadata: ArrayMetadata, /) -> Objects:
        """List the objects in the folder; where there are no lists, each chunk that there may be is asked for."""
        try:
            found = self.storage.target(self.url).contents()
        except UnlistableError:
            found = self._asked(metadata)
        locations = tuple(found.values())
        n = len(locations)
        return Objects(
            keys=list(found),
            rows=np.arange(n),
            offsets=np.zeros(n, np.int64),
            lengths=np.fromiter((location.size or 0 for location in locations), np.int64, n),
            locations=locations,
        )

    def _asked(self, metadata: ArrayMetadata) -> dict[str, Location]:
        grid = metadata.object_grid
        check_count(int(np.prod(grid, dtype=object)), self.url)
        prefix, separator = metadata.key_prefix, metadata.separator
        keys = [prefix + separator.join(map(str, cell)) for cell in itertools.product(*map(range, grid))]
        if not grid:
            keys = [prefix.rstrip(separator) or "0"]
        found: dict[str, Location] = {}
        for key, answer in zip(keys, self.storage.look_up([self._url(key) for key in keys]), strict=True):
            if isinstance(answer, Location):
                found[key] = answer if answer.size is not None else self.storage.source(answer.url).location
            elif not isinstance(answer, SourceNotFoundError):
                raise answer
        return found

    def _url(self, key: str) -> str:
        return f"{self.url}/{quote(key, safe=_KEPT) if self.url.startswith(_WEB) else key}"
