"""Read through stores with the methods of obspec, such as the wrappers of obspec-utils, that a user passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import Remedy, SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage.backends import key_in
from virtualstack.storage.source import ByteRange, Bytes, ManyRangesSource, check_version
from virtualstack.storage.threads import LimitedLookup, concurrently


@dataclass(frozen=True, slots=True)
class ObspecSource(ManyRangesSource):
    """An object of a store with the methods ``head`` and ``get_ranges``; it pickles if the store does."""

    store: Any = field(repr=False)
    key: str
    location: Location

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges with one call of the store."""
        return self._filled(ranges, self._fetch)

    def _fetch(self, starts: list[int], lengths: list[int]) -> list[Bytes]:
        try:
            return [memoryview(x) for x in self.store.get_ranges(self.key, starts=starts, lengths=lengths)]
        except Exception as error:  # noqa: BLE001 - stores of other packages may raise any error
            _translate(error, self.location.url)


def open_source(url: str, backend: Any, prefix: str, expected: Location | None, /) -> ObspecSource:
    """Open an object of a store; its version is requested first."""
    key = key_in(prefix, url)
    try:
        found = backend.head(key)
    except Exception as error:  # noqa: BLE001 - stores of other packages may raise any error
        _translate(error, url)
    modified = found.get("last_modified")
    location = Location(
        url, int(found["size"]), found.get("e_tag"), None if modified is None else modified.timestamp() or None
    )
    source = ObspecSource(backend, key, location)
    check_version(expected, location, source.read)
    return source


def look_up(urls: Sequence[str], backend: Any, prefix: str, /) -> list[Location | StorageError]:
    """Return the current version of each URL, or an error; each is requested."""
    ask = LimitedLookup(lambda url: open_source(url, backend, prefix, None).location)
    return list(concurrently(ask, urls, urls[:1]))


def open_target(url: str, backend: Any, prefix: str, /) -> NoReturn:
    """Raise an error: obspec has no way of writing that these objects have in common."""
    raise StorageError(
        f"'{url}': the {type(backend).__name__} in storage= can only be read. To write or to list files, give an "
        "obstore store, an fsspec filesystem or options",
        url=url,
    )


def _translate(error: Exception, url: str) -> NoReturn:
    if isinstance(error, FileNotFoundError):
        raise SourceNotFoundError(f"there is nothing at '{url}': {error}", Remedy("check the URL"), url=url) from error
    reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    raise StorageError(
        f"'{url}' cannot be reached: {reason}", Remedy("check the store in", storage=...), url=url
    ) from error
