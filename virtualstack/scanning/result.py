"""What a scan gives: groups in the order of the sources, and a table of what failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import pandas as pd

from virtualstack.manifests import ManifestGroup

__all__ = ["ScanResult"]


@dataclass(frozen=True, eq=False)
class ScanResult(Sequence[ManifestGroup]):
    """Groups in the order of the URLs, and what failed.

    Parameters
    ----------
    groups
        One for each source that could be described.
    errors
        Pairs of URL and error for those that could not.
    urls
        One for each group: the URL that was given, made absolute.
    """

    groups: tuple[ManifestGroup, ...]
    errors: tuple[tuple[str, Exception], ...] = ()
    urls: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int, /) -> ManifestGroup: ...
    @overload
    def __getitem__(self, index: slice, /) -> ScanResult: ...
    def __getitem__(self, index: int | slice, /) -> ManifestGroup | ScanResult:
        """Give one group, or the result with some of them and the same errors."""
        if isinstance(index, slice):
            return ScanResult(self.groups[index], self.errors, self.urls[index])
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

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        return f"ScanResult({len(self.groups)} groups{failed})"
