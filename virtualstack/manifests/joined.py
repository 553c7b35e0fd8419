"""Manifests one after the other along an axis, each left as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests.chunk_manifest import ENTRY, ChunkManifest
from virtualstack.manifests.encoding import Fill
from virtualstack.manifests.manifest import Box, Manifest, ManifestSummary
from virtualstack.manifests.paged import hollow, map_in_threads
from virtualstack.manifests.unify import join

__all__ = ["JoinedManifest"]


@dataclass(frozen=True)
class JoinedManifest:
    """Parts along an axis; a box is read from those that it meets, which are found by bisection.

    Parameters
    ----------
    parts
        Of one shape but for ``axis``.
    axis
        Of the chunk grid.
    fill
        The array's own fill value.
    """

    parts: tuple[Manifest, ...]
    axis: int
    fill: Fill

    @classmethod
    def of(cls, parts: Sequence[Manifest], axis: int, /) -> JoinedManifest:
        """Join parts; those that are joined along this axis themselves are taken apart. The first one's fill holds."""
        flat: list[Manifest] = []
        for part in parts:
            flat += part.parts if isinstance(part, JoinedManifest) and part.axis == axis else [part]
        return cls(tuple(flat), axis, parts[0].tables.fill)

    def __deepcopy__(self, memo: object) -> JoinedManifest:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.parts, self.axis, self.fill)  # without what was made of them

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum([part.shape[self.axis] for part in self.parts])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the grid, in cells."""
        first = self.parts[0].shape
        return (*first[: self.axis], int(self._ends[-1]), *first[self.axis + 1 :])

    @property
    def url(self) -> str | None:
        """That of the first part that has one."""
        return next((url for part in self.parts if (url := part.url) is not None), None)

    @cached_property
    def tables(self) -> ChunkManifest:
        """Fills and encodings of all parts."""
        tables = [part.tables for part in self.parts]
        return ChunkManifest(
            entries=np.zeros(0, ENTRY),
            fills=tuple(dict.fromkeys((self.fill, *(fill for x in tables for fill in x.fills)))),
            encodings=tuple(dict.fromkeys(encoding for x in tables for encoding in x.encodings)),
        )

    def summary(self) -> ManifestSummary | None:
        """Add up the counts of the parts, where all are known."""
        counts = [part.summary() for part in self.parts]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            return None
        return ManifestSummary(
            n_chunks=sum(x.n_chunks for x in known),
            n_references=sum(x.n_references for x in known),
            n_inline=sum(x.n_inline for x in known),
            n_empty=sum(x.n_empty for x in known),
            n_missing=sum(x.n_missing for x in known),
            nbytes=sum(x.nbytes for x in known),
        )

    def read(self, box: Box, /) -> ChunkManifest:
        """Give the entries of a box, on shared tables; parts that lie in pages are read side by side."""
        side = box[self.axis]
        shape = tuple(max(x.stop - x.start, 0) for x in box)
        if 0 in shape:
            return hollow(self.tables, shape)
        low, high = self._met(side.start, side.stop)
        wanted = []
        for i in range(low, high):
            end = int(self._ends[i])
            begin = end - self.parts[i].shape[self.axis]
            inner = slice(max(side.start, begin) - begin, min(side.stop, end) - begin)
            wanted.append((self.parts[i], (*box[: self.axis], inner, *box[self.axis + 1 :])))
        found = map_in_threads(lambda x: x[0].read(x[1]), wanted)
        if len(found) == 1 and found[0].fill == self.fill:
            return found[0]
        own = ChunkManifest.empty((*shape[: self.axis], 0, *shape[self.axis + 1 :]), self.fill)
        return join([own, *found], self.axis)  # its fill becomes the first one

    def _met(self, start: int, stop: int) -> tuple[int, int]:
        """Give the first part that has cells from ``start`` to ``stop``, and the first after them that has none."""
        low = int(np.searchsorted(self._ends, start, "right"))
        return low, int(np.searchsorted(self._ends, stop, "left")) + 1

    def between(self, start: int, stop: int, /) -> tuple[Manifest, int]:
        """Leave out the parts that have no cell from ``start`` to ``stop``.

        Returns
        -------
        tuple
            What is left, and how many cells of the axis are left out before it.
        """
        low, high = self._met(start, stop)
        if high - low == len(self.parts):
            return self, 0
        skipped = int(self._ends[low - 1]) if low else 0
        parts = self.parts[low:high]
        is_one = len(parts) == 1 and parts[0].tables.fill == self.fill
        return (parts[0] if is_one else replace(self, parts=parts)), skipped
