"""Tables that grow: full pages are objects of their own, which stay, and the last rows stand in the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from virtualstack.errors import MalformedFileError
from virtualstack.manifests.serialised.values import to_count

__all__ = ["FULL", "TAIL", "PageRef", "Table"]

TAIL = 128
"""Rows that stand in the snapshot, at most."""

FULL = 4096
"""Rows of a page to which no more are added."""


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page of a table.

    Parameters
    ----------
    name
        Of its object.
    n
        Rows in it.
    low, high
        Of placements: the box of the grid that holds all of them.
    """

    name: str
    n: int
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows in pages, and the last of them.

    Parameters
    ----------
    pages
        In order.
    tail
        Rows behind the pages, as JSON has them.
    """

    pages: tuple[PageRef, ...] = ()
    tail: tuple[Any, ...] = ()

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(page.n for page in self.pages) + len(self.tail)

    def document(self) -> dict[str, Any]:
        """Give the JSON."""
        return {"pages": [[x.name, x.n, *x.low, *x.high] for x in self.pages], "tail": list(self.tail)}

    @classmethod
    def of(cls, document: Any, /, *, ndim: int = 0, where: str) -> Table:
        """Read the JSON; of placements on a grid of ``ndim`` axes.

        Raises
        ------
        MalformedFileError
            It is none.
        """
        try:
            pages = tuple(_page(row, ndim) for row in document["pages"])
            tail = document["tail"]
            if not isinstance(tail, list):
                raise TypeError(f"tail {tail!r}")
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedFileError(f"'{where}' has a table that is none: {error!r}; restore it") from error
        return cls(pages, tuple(tail))


def _page(row: Sequence[Any], ndim: int) -> PageRef:
    name, n, *box = row
    if not isinstance(name, str) or to_count(n) < 1 or len(box) != 2 * ndim:
        raise ValueError(f"page {str(row)[:200]}")
    return PageRef(name, n, tuple(map(to_count, box[:ndim])), tuple(map(to_count, box[ndim:])))
