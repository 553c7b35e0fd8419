"""Facts about cubes and archives as plain data of bounded size, whatever the size of the cube."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

STATES = ("empty", "absent", "inline", "referenced")
"""States of chunks, in the order of the last axis of :attr:`ChunkMap.states`.

The chunk was never written; it is lost; its bytes are in the manifest; its bytes are in a source.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKind:
    """Chunks that are stored alike: the same dtype, chunk shape and codecs."""

    dtype: str
    chunk_shape: tuple[int, ...]
    codecs: tuple[str, ...]
    settings: str
    n_chunks: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChunkMap:
    """The chunk grid of a variable, reduced to boxes in rows and columns.

    The axis with most chunks runs along the columns. The other axes are flattened in C order, and run along the rows.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    grid_shape: tuple[int, ...]
    dtype: str
    column_axis: int | None
    row_axes: tuple[int, ...]
    column_edges: NDArray[np.int64]
    row_edges: NDArray[np.int64]
    column_elements: NDArray[np.int64]
    states: NDArray[np.int64]
    source: NDArray[np.int32]
    encoding: NDArray[np.int32]
    n_chunks: int
    n_empty: int
    n_absent: int
    n_inline: int
    n_referenced: int
    nbytes: int
    sources: tuple[str, ...]
    source_prefix: str
    n_sources: int
    encodings: tuple[StoredKind, ...]
    n_encodings: int

    def to_json(self) -> dict[str, Any]:
        """Return the map as a dict of numbers, text, lists and dicts, for JSON."""
        names = [name for name in self.__slots__ if name != "encodings"]
        found = {name: getattr(self, name) for name in names}
        plain = {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in found.items()}
        return plain | {"state_names": list(STATES), "encodings": [asdict(x) for x in self.encodings]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """One source of a cube."""

    url: str
    size: int | None
    n_chunks: int
    nbytes: int
    variables: tuple[str, ...]
    n_variables: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEra:
    """Files, or a part of a cube, in which all chunks are stored alike."""

    series: str
    number: int
    first: str
    last: str
    begin: float
    end: float
    n_files: int
    n_outliers: int
    changes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineGap:
    """Missing steps between two coordinate values."""

    series: str
    after: str
    before: str
    begin: float
    end: float
    n_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineDuplicate:
    """Coordinate values that exist more than once."""

    text: str
    at: float | None
    n_values: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """An archive along a dimension: eras, gaps and duplicates, each list with at most 200 items and its total.

    Parameters
    ----------
    dim
        Name of the dimension, or ``None`` if there is none.
    first, last
        Least and greatest coordinate value, as text, at both ends of the axis.
    is_to_scale
        If true, places on the axis are coordinate values. If false, they are positions in the order of the files, or
        of the elements along the dimension.
    n_files
        Number of files.
    n_failed
        Number of files that could not be read.
    eras, n_eras
        Eras in order, and the number of all of them.
    gaps, n_gaps, n_missing
        Largest gaps in order, the number of all gaps, and the number of steps that are missing in them.
    duplicates, n_duplicates
        Duplicates, and the number of all of them.
    remarks
        Reasons why gaps are not known.
    """

    dim: str | None
    first: str
    last: str
    is_to_scale: bool
    n_files: int
    n_failed: int
    eras: tuple[TimelineEra, ...]
    n_eras: int
    gaps: tuple[TimelineGap, ...]
    n_gaps: int
    n_missing: int
    duplicates: tuple[TimelineDuplicate, ...]
    n_duplicates: int
    remarks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the timeline as a dict of numbers, text, lists and dicts, for JSON."""
        return asdict(self)


def common_prefix(urls: tuple[str, ...], /) -> str:
    """Return the text up to the last slash that all URLs begin with.

    >>> common_prefix(("s3://bucket/2001/a.nc", "s3://bucket/2002/a.nc"))
    's3://bucket/'
    """
    low, high = min(urls, default=""), max(urls, default="")
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[: low.rfind("/", 0, same) + 1]
