"""Facts of one file that a plan is made of: a few values, and no dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.planning.labels import Labels


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Grid:
    """Where the points of 2-D coordinates begin, and where those of the next tiles would begin."""

    dims: tuple[str, str]
    corner: NDArray[np.float64]
    behind: tuple[NDArray[np.float64], NDArray[np.float64]]
    step: tuple[float, float]

    @classmethod
    def from_corners(cls, dims: tuple[str, str], corners: NDArray[np.float64], /) -> Grid | None:
        """Return the grid of the first and last two points along both dimensions, in shape ``(coordinates, 4, 4)``.

        It is ``None`` if a value is missing.
        """
        if not np.isfinite(corners).all():
            return None
        corner = corners[:, 0, 0]
        behind = 2 * corners[:, 3, 0] - corners[:, 2, 0], 2 * corners[:, 0, 3] - corners[:, 0, 2]
        step = tuple(float(np.abs(x - corner).max()) for x in (corners[:, 1, 0], corners[:, 0, 1]))
        return cls(dims=dims, corner=corner, behind=behind, step=(step[0], step[1]))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileFacts:
    """Facts of one file.

    Parameters
    ----------
    source
        URL, or ``None``.
    names
        Names of its data variables.
    dims
        Dimensions of the data variable that has most of them, in order.
    axes
        First axis of a data variable that each dimension is.
    sizes
        Length of each dimension.
    coordinates, times
        Names of the dimension coordinates, and of those that are times.
    scalar_times
        Names of the coordinates without a dimension that are times.
    labels
        Values of each dimension coordinate.
    scalars
        Values of the coordinates without a dimension.
    identities
        Names of the coordinates that identify a station, profile or trajectory (``cf_role``).
    along
        Values of other coordinates along one dimension, by dimension and name.
    texts
        Values of text variables along one dimension without labels, by dimension and name, if they are needed.
    unlimited
        Unlimited dimensions.
    attributes
        Attributes of the file.
    groups
        Groups below that have variables, if the file is one group.
    grids
        Grids of its 2-D coordinates, if they are known; models with staggered grids have several.
    """

    source: str | None = None
    names: frozenset[str] = frozenset()
    dims: tuple[str, ...] = ()
    axes: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    coordinates: frozenset[str] = frozenset()
    times: frozenset[str] = frozenset()
    scalar_times: frozenset[str] = frozenset()
    labels: Mapping[str, Labels] = field(default_factory=dict)
    scalars: Mapping[str, Any] = field(default_factory=dict)
    identities: frozenset[str] = frozenset()
    along: Mapping[str, Mapping[str, Labels]] = field(default_factory=dict)
    texts: Mapping[str, Mapping[str, Labels]] = field(default_factory=dict)
    unlimited: frozenset[str] = frozenset()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()

    @property
    def called(self) -> str:
        """The source in quotes, for messages."""
        return f"'{self.source or 'a dataset'}'"
