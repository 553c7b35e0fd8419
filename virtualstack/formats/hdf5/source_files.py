"""The files that hold sources of virtual datasets, open for as long as they may be needed again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from virtualstack.formats.hdf5.fetch import Metadata
from virtualstack.formats.hdf5.finder import DatasetFinder
from virtualstack.formats.hdf5.library import Library
from virtualstack.storage import Source

__all__ = ["SourceFile", "SourceFiles"]

_MAX_OPEN = 64
"""Files of which the metadata are kept, usually 1 MiB at most; those of all sources of a large virtual dataset are too
much for memory."""


@dataclass(slots=True, kw_only=True)
class SourceFile:
    """An open file.

    Parameters
    ----------
    source, metadata, library
        The file, its metadata, and the HDF5 library's view of it.
    finder
        Of its datasets.
    n_users
        How many read it now: a virtual dataset may be in the file of its sources.
    """

    source: Source
    metadata: Metadata
    library: Library
    finder: DatasetFinder
    n_users: int = 0


class SourceFiles:
    """Opens files by URL, and keeps the last ones.

    Parameters
    ----------
    open_file
        Does it.
    """

    def __init__(self, open_file: Callable[[str], SourceFile]) -> None:
        self._open_file = open_file
        self._known: OrderedDict[str, SourceFile] = OrderedDict()

    @contextmanager
    def use(self, url: str, /) -> Iterator[SourceFile]:
        """Give an open file. What the HDF5 library has open is closed when nobody uses it any more."""
        file = self._known.get(url) or self._open_file(url)
        self._known[url] = file
        self._known.move_to_end(url)
        if len(self._known) > _MAX_OPEN:
            self._known.popitem(last=False)
        file.n_users += 1
        try:
            yield file
        finally:
            file.n_users -= 1
            if not file.n_users:
                file.library.close()
