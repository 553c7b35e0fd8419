"""Manifests one after the other along an axis, each left as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests.cells import CellNumbers, ManifestSummary
from virtualstack.manifests.chunk_manifest import ENTRY, ChunkManifest
from virtualstack.manifests.encoding import Fill
from virtualstack.manifests.manifest import Manifest, UnreadManifest
from virtualstack.manifests.paged import map_in_threads
from virtualstack.manifests.unify import join

__all__ = ["JoinedManifest"]


@dataclass(frozen=True)
class JoinedManifest(UnreadManifest):
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
            n_absent=sum(x.n_absent for x in known),
            nbytes=sum(x.nbytes for x in known),
        )

    def read_entries(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """Give the entries of some cells, on shared tables; parts are read side by side."""
        cells = tuple(numbers.reshape((1,) * (len(shape) + 1 - numbers.ndim) + numbers.shape) for numbers in cells)
        along, *others = [i for i, n in enumerate(cells[self.axis].shape) if n > 1] or [0]
        if others:
            return self.pick(tuple(np.broadcast_to(x, (1, *shape)).reshape(-1) for x in cells)).reshape(shape)
        part = np.searchsorted(self._ends, cells[self.axis].reshape(-1), "right")
        order = np.argsort(part, kind="stable")
        begin = np.flatnonzero(np.append(True, np.diff(part[order]) > 0))
        wanted = [self._of_part(int(part[at[0]]), cells, at, along) for at in np.split(order, begin[1:])]
        found = map_in_threads(lambda x: x[0].pick(x[1]), wanted)
        joined = found[0]
        if len(found) > 1 or joined.fill != self.fill:
            own = ChunkManifest.empty((*joined.shape[:along], 0, *joined.shape[along + 1 :]), self.fill)
            joined = join([own, *found], along)  # its fill becomes the first one
        if (order[1:] < order[:-1]).any():
            back = [np.argsort(order) if i == along else np.arange(n) for i, n in enumerate(joined.shape)]
            joined = joined.pick(np.ix_(*back))
        return joined.reshape(shape)

    def _of_part(self, i: int, cells: CellNumbers, at: NDArray[np.intp], along: int) -> tuple[Manifest, CellNumbers]:
        """Give a part, and those cells that lie in it: the ones at some places along the axis on which they vary."""
        own = [numbers.take(at, along) if numbers.shape[along] > 1 else numbers for numbers in cells]
        part = self.parts[i]
        own[self.axis] = own[self.axis] - (self._ends[i] - part.shape[self.axis])
        return part, tuple(own)

    def between(self, start: int, stop: int, /) -> tuple[Manifest, int]:
        """Leave out the parts that have no cell from ``start`` to ``stop``.

        Returns
        -------
        tuple
            What is left, and how many cells of the axis are left out before it.
        """
        low = int(np.searchsorted(self._ends, start, "right"))
        high = int(np.searchsorted(self._ends, stop, "left")) + 1
        if high - low == len(self.parts):
            return self, 0
        skipped = int(self._ends[low - 1]) if low else 0
        parts = self.parts[low:high]
        is_one = len(parts) == 1 and parts[0].tables.fill == self.fill
        return (parts[0] if is_one else replace(self, parts=parts)), skipped
