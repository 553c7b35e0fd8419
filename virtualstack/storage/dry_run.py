"""Dry runs: while one is active, targets take down what would be written, and write nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from virtualstack.errors import SourceNotFoundError
from virtualstack.location import Location
from virtualstack.storage.target import Target, check_most


@dataclass(slots=True)
class DryRun:
    """What would be written and deleted."""

    written: dict[str, bytes] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    others: dict[str, int] = field(default_factory=dict)
    is_uncounted: bool = False

    @property
    def n_bytes(self) -> int:
        """Number of bytes that would be written."""
        return sum(map(len, self.written.values())) + sum(self.others.values())

    @property
    def n_objects(self) -> int:
        """Number of objects that would be written."""
        return len(self.written) + len(self.others)


_ACTIVE: ContextVar[DryRun | None] = ContextVar("dry_run", default=None)


@contextmanager
def dry_run() -> Iterator[DryRun]:
    """Write nothing while the block runs, and yield what would be written. Other threads of the user still write.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> from virtualstack.storage.dry_run import dry_run
    >>> with dry_run() as would:
    ...     xr.Dataset({"rain": ("time", [1.0, 2.0])}).virtual.to_kerchunk("refs.json")
    >>> [url.rpartition("/")[2] for url in would.written]
    ['refs.json']
    >>> import os
    >>> os.path.exists("refs.json")
    False
    """
    record = DryRun()
    token = _ACTIVE.set(record)
    try:
        yield record
    finally:
        _ACTIVE.reset(token)


def active_dry_run() -> DryRun | None:
    """Return the dry run that the caller is in, or ``None``."""
    return _ACTIVE.get()


def is_pending(url: str, /) -> bool:
    """Return whether a dry run would have written an object, so that it counts as there."""
    record = active_dry_run()
    return record is not None and url in record.written


def unless_dry(target: Target, /) -> Target:
    """Return a target, or while a dry run is active one that takes down what would be written."""
    record = active_dry_run()
    return target if record is None else DryTarget(target, record)


@dataclass(frozen=True, slots=True)
class DryTarget:
    """A target that shows its objects, with those that a dry run would have written."""

    target: Target
    record: DryRun

    @property
    def url(self) -> str:
        """The root URL."""
        return self.target.url

    @property
    def is_listed(self) -> bool:
        """True if the keys can be listed."""
        return self.target.is_listed

    def get(self, key: str, /, *, most: int | None = None) -> bytes:
        """Read a whole object."""
        url = self.url + key
        if url in self.record.deleted:
            raise SourceNotFoundError(f"there is no object at '{url}'", url=url)
        if url in self.record.written:
            check_most(len(self.record.written[url]), most=most, url=url)
            return self.record.written[url]
        return self.target.get(key, most=most)

    def list(self, prefix: str = "", /) -> list[str]:
        """List the keys in a folder and below it."""
        return sorted(self._shown(self.target.list(prefix), prefix))

    def first(self, prefix: str = "", /) -> str | None:
        """Return the first key of `list`."""
        if not self.record.written and not self.record.deleted:
            return self.target.first(prefix)
        return next(iter(self.list(prefix)), None)

    def entries(self, prefix: str = "", /) -> Sequence[tuple[str, bool]]:
        """List the names in a folder."""
        start = len(prefix.rstrip("/")) + 1 if prefix else 0
        made = (key[start:].partition("/") for key in self._shown([], prefix))
        return sorted({*self.target.entries(prefix), *((name, bool(slash)) for name, slash, _ in made)})

    def contents(self, prefix: str = "", /) -> dict[str, Location]:
        """List objects with their versions."""
        found = self.target.contents(prefix)
        new = {key: Location(self.url + key) for key in self._shown([], prefix)}
        return {key: each for key, each in {**found, **new}.items() if self.url + key not in self.record.deleted}

    def put(self, key: str, data: bytes | bytearray | memoryview, /) -> None:
        """Take an object down, if it could be written."""
        url = self.url + key
        self.check_put(key)
        self.record.written[url] = bytes(data)
        self.record.deleted.discard(url)

    def check_put(self, key: str, /) -> None:
        """Raise the error of the target."""
        self.target.check_put(key)

    def put_if_absent(self, key: str, data: bytes | bytearray | memoryview, /) -> bool:
        """Take an object down unless the key exists."""
        try:
            self.get(key)
        except SourceNotFoundError:
            self.put(key, data)
            return True
        return False

    def delete(self, key: str, /) -> None:
        """Take down that an object would be deleted."""
        url = self.url + key
        if self.record.written.pop(url, None) is None:
            self.record.deleted.add(url)

    def _shown(self, keys: Sequence[str], prefix: str) -> set[str]:
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        start, written = self.url + folder, list(self.record.written)  # other threads of the writer may go on
        kept = {key for key in keys if self.url + key not in self.record.deleted}
        return kept | {url.removeprefix(self.url) for url in written if url.startswith(start)}
