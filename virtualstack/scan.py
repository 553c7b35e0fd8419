"""Many files at once: each becomes a group of virtual arrays, and none is lost silently."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import pandas as pd

from virtualstack.errors import ReaderError, StorageError
from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestGroup
from virtualstack.readers.base import Reader, ReadOptions
from virtualstack.readers.registry import find_reader
from virtualstack.storage import Storage, StorageLike, remember

__all__ = ["ScanResult", "scan"]


@dataclass(frozen=True, eq=False)
class ScanResult(Sequence[ManifestGroup]):
    """Groups in the order of the URLs, and what failed.

    Parameters
    ----------
    groups
        One for each source that could be described.
    errors
        Pairs of URL and error for those that could not.
    """

    groups: tuple[ManifestGroup, ...]
    errors: tuple[tuple[str, Exception], ...] = ()

    @overload
    def __getitem__(self, index: int, /) -> ManifestGroup: ...
    @overload
    def __getitem__(self, index: slice, /) -> ScanResult: ...
    def __getitem__(self, index: int | slice, /) -> ManifestGroup | ScanResult:
        """Give one group, or the result with some of them and the same errors."""
        if isinstance(index, slice):
            return ScanResult(self.groups[index], self.errors)
        return self.groups[index]

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[ManifestGroup]:
        return iter(self.groups)

    @property
    def failures(self) -> pd.DataFrame:
        """What failed: columns ``url``, ``error`` (its class) and ``message``."""
        rows = [(url, type(error).__name__, str(error)) for url, error in self.errors]
        return pd.DataFrame(rows, columns=["url", "error", "message"])


def scan(
    urls: Iterable[str | os.PathLike[str]],
    /,
    *,
    reader: str | Reader | None = None,
    storage: StorageLike = None,
    on_error: Literal["raise", "skip"] = "raise",
    options: ReadOptions | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> ScanResult:
    """Describe many sources, one after the other; what a source's reader could not take over is in its ``refusals``.

    Reads metadata and chunk indexes, no chunk.

    Parameters
    ----------
    urls
        URLs or local paths.
    reader
        Name of a reader or a reader with options; found out for each source by default.
    storage
        See :func:`open_virtual_dataset`.
    on_error
        ``"raise"`` the first error, or ``"skip"`` the source and keep the error in ``failures``.
    options
        What the readers are told.
    progress
        Called with the number done and the number of all, after each source.

    Raises
    ------
    ReaderError, StorageError
        A source cannot be read, and ``on_error`` is ``"raise"``.
    """
    listed = [absolute_url(url) for url in urls]
    store = Storage.of(storage)
    groups, errors = [], []
    for done, url in enumerate(listed, start=1):
        try:
            once = store.once(url)
            groups.append(find_reader(url, once, reader).read(url, once, options or ReadOptions()))
            remember(storage, url=url)
        except (ReaderError, StorageError) as error:
            if on_error == "raise":
                raise
            errors.append((url, error))
        if progress is not None:
            progress(done, len(listed))
    return ScanResult(tuple(groups), tuple(errors))
