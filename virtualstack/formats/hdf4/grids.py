"""Coordinates of the grids of HDF-EOS2, which their StructMetadata describes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.hdfeos import statements

_CORNERS = "UpperLeftPointMtrs", "LowerRightMtrs"
_MAX_DEGREES = 360
_UPPER_LEFT = "HDFE_GD_UL"


def grid_axes(text: str, /) -> Iterator[tuple[str, NDArray[np.float64], Mapping[str, str]]]:
    """Yield each axis of each grid: the name of its dimension, the centres of its cells, and attributes.

    A grid without corners, or whose origin is not the upper left corner, is left out.

    Examples
    --------
    >>> text = "GridName=G XDim=2 YDim=1 UpperLeftPointMtrs=(0,90000000) LowerRightMtrs=(20000000,80000000)"
    >>> [(dim, values.tolist()) for dim, values, _ in grid_axes(text + " Projection=GCTP_GEO")]
    [('XDim:G', [5.0, 15.0]), ('YDim:G', [85.0])]
    """
    here: dict[str, list[str]] = {}
    for key, values in [*statements(text), ("GridName", [])]:
        if key == "GridName":
            yield from _axes(here)
            here = {}
        here.setdefault(key, values)


def _axes(grid: Mapping[str, list[str]]) -> Iterator[tuple[str, NDArray[np.float64], Mapping[str, str]]]:
    try:
        (name,), (projection,) = grid["GridName"], grid["Projection"]
        lengths = [int(grid[key][0]) for key in ("XDim", "YDim")]
        corners = np.array([[float(x) for x in grid[key]] for key in _CORNERS])
        is_usual = grid.get("GridOrigin", [_UPPER_LEFT]) == [_UPPER_LEFT] and corners.shape == (2, 2)
    except (KeyError, ValueError, IndexError):
        return
    if not is_usual or not np.isfinite(corners).all() or not 0 < min(lengths) <= max(lengths) <= 1 << 20:
        return
    is_degrees = projection == "GCTP_GEO"
    if is_degrees and np.abs(corners).max() > _MAX_DEGREES:  # packed as DDDMMMSSS.SS
        corners = np.vectorize(_degrees)(corners)
    names = (("longitude", "degrees_east"), ("latitude", "degrees_north"))
    for i, (letter, length) in enumerate(zip("XY", lengths, strict=True)):
        begin, end = corners[:, i].tolist()
        values = begin + (np.arange(length) + 0.5) * (end - begin) / length
        standard, units = names[i] if is_degrees else (f"projection_{letter.lower()}_coordinate", "m")
        yield f"{letter}Dim:{name}", values, {"standard_name": standard, "units": units}


def _degrees(packed: float) -> float:
    degrees, rest = divmod(abs(packed), 1e6)
    minutes, seconds = divmod(rest, 1e3)
    return math.copysign(degrees + minutes / 60 + seconds / 3600, packed)
