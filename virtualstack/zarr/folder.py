"""A zarr store in a folder: a document or chunk is an object."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.manifests.cells import check_count
from virtualstack.storage import Storage
from virtualstack.zarr.metadata.array import ArrayMetadata
from virtualstack.zarr.objects import FoundObjects

__all__ = ["Folder"]

_MAX_DOCUMENT_BYTES = 1 << 30
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
        if source.size > _MAX_DOCUMENT_BYTES:
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

    @property
    def is_listed(self) -> bool:
        """Whether there is a list of what is in it."""
        return self.storage.target(self.url).is_listed

    def find(self, metadata: ArrayMetadata, cells: NDArray[np.int64] | None = None, /) -> FoundObjects:
        """List the objects in the folder; where there are no lists, chunks or shards that there may be are asked for.

        Parameters
        ----------
        metadata
            Of the array.
        cells
            Of the grid of objects, in C order, that are wanted; all by default.
        """
        target = self.storage.target(self.url)
        found = target.contents() if target.is_listed else self._asked(metadata, cells)
        locations = tuple(found.values())
        n = len(locations)
        return FoundObjects(
            keys=list(found),
            rows=np.arange(n),
            offsets=np.zeros(n, np.int64),
            lengths=np.fromiter((location.size or 0 for location in locations), np.int64, n),
            locations=locations,
        )

    def _asked(self, metadata: ArrayMetadata, cells: NDArray[np.int64] | None) -> dict[str, Location]:
        grid, prefix, separator = metadata.object_grid, metadata.key_prefix, metadata.separator
        check_count(math.prod(grid) if cells is None else cells.size, self.url)
        if grid:
            index = np.unravel_index(np.arange(math.prod(grid)) if cells is None else cells, grid)
            keys = [prefix + separator.join(map(str, cell)) for cell in zip(*(x.tolist() for x in index), strict=True)]
        else:
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
