"""Which cell of a slice each pixel of its map shows, by the rules of the page (``serve/page/src/geometry.ts``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_WIDTH, MAX_HEIGHT = 260, 160
_MAX_SAMPLES = 1 << 20

type Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Raster:
    """The cell of each pixel, numbered in C order of the slice, -1 where there is none; and what the map covers.

    ``pole`` is 1 or -1 if the North or South Pole is in the middle.
    """

    cells: NDArray[np.intp]
    x: tuple[float, float]
    y: tuple[float, float]
    pole: int = 0

    def at(self, longitudes: Floats, latitudes: Floats, /) -> tuple[Floats, Floats]:
        """Return where places are in the plane of a map of longitudes and latitudes, or around a pole."""
        if self.pole:
            return _around_pole(longitudes, latitudes, self.pole)
        middle = sum(self.x) / 2
        return middle + _turn(longitudes - middle), latitudes


def edges(centres: NDArray[Any], /, *, is_longitude: bool = False, most: float = math.inf) -> Floats | None:
    """Return the edges of cells around ordered centres, or ``None`` if they have no order.

    >>> edges(np.array([10.0, 20.0, 40.0]))
    array([ 5., 15., 30., 50.])
    """
    at = centres.astype(np.float64)
    if is_longitude:
        at = at[0] + np.append(0.0, np.cumsum(_turn(np.diff(at))))
    steps = np.diff(at) * (1 if at[-1] >= at[0] else -1)
    if not (steps > 0).all() or not np.isfinite(at).all():
        return None
    inner = (at[1:] + at[:-1]) / 2
    if len(at) == 1:
        return np.array([at[0] - 0.5, at[0] + 0.5])
    line: Floats = np.concatenate([[2 * at[0] - inner[0]], inner, [2 * at[-1] - inner[-1]]])
    return line.clip(-most, most)


def lattice(x: Floats, y: Floats, /, *, is_swapped: bool) -> Raster:
    """Return the map of cells between the edges along two axes; ``is_swapped`` if the rows of the slice go along x."""
    (left, right), (bottom, top) = ((float(line.min()), float(line.max())) for line in (x, y))
    width, height = _size((right - left) / (top - bottom))
    columns = _cells_at(x, left + (np.arange(width) + 0.5) / width * (right - left))
    rows = _cells_at(y, top - (np.arange(height) + 0.5) / height * (top - bottom))
    along_x, along_y = (len(y) - 1, 1) if is_swapped else (1, len(x) - 1)
    return Raster(rows[:, None] * along_y + columns * along_x, (left, right), (bottom, top))


def _cells_at(line: Floats, places: Floats) -> NDArray[np.intp]:
    sign = 1 if line[-1] > line[0] else -1
    return np.clip(np.searchsorted(sign * line, sign * places, side="right") - 1, 0, len(line) - 2)


def mesh(longitudes: NDArray[Any], latitudes: NDArray[Any], /) -> Raster | None:
    """Return the map of cells around centres anywhere on the globe; ``None`` if no centre is a place.

    Grids around a pole have it in the middle of a polar stereographic map.
    """
    step = math.isqrt(latitudes.size * 4 // _MAX_SAMPLES) + 1  # of large grids, some cells suffice
    numbers = np.arange(latitudes.size).reshape(latitudes.shape)[::step, ::step]
    longitudes, latitudes = longitudes[::step, ::step], latitudes[::step, ::step]
    is_place = (np.abs(latitudes) <= 90) & (np.abs(longitudes) <= 720)
    if not is_place.any():
        return None
    lon, lat = (np.radians(np.where(is_place, a, np.nan).astype(np.float64)) for a in (longitudes, latitudes))
    points = np.stack([np.cos(lon) * np.cos(lat), np.sin(lon) * np.cos(lat), np.sin(lat)])
    corners = _between(points, 1, is_corner=True)
    west, east = _around(_places(corners)[0])
    low = latitudes[is_place][np.abs(latitudes[is_place]).argmin()]
    is_polar = east - west >= 360 and abs(low) >= 25 and bool((latitudes[is_place] * low > 0).all())
    pole = (1 if low > 0 else -1) if is_polar else 0
    x, y = _places(corners, pole)
    if is_polar:
        west, east = float(np.nanmin(x)), float(np.nanmax(x))
    bottom, top = float(np.nanmin(y)), float(np.nanmax(y))
    if not (east > west and top > bottom):
        return None
    width, height = _size((east - west) / (top - bottom))
    middle, per_pixel = (west + east) / 2, (east - west) / width
    steps = [np.abs(np.diff(a, axis=axis)) for a in (x if is_polar else _turn(x - middle), y) for axis in (0, 1)]
    usual = [float(np.nanquantile(step[step < 90 * per_pixel + 90], 0.99)) for step in steps if step.size]
    n = math.ceil(1.5 * max(usual) / per_pixel)
    n = max(1, min(n, math.isqrt(_MAX_SAMPLES // latitudes.size)))
    x, y = _places(_between(points, n), pole)
    columns = np.floor((x - west if is_polar else _turn(x - middle) + middle - west) / per_pixel)
    rows = np.floor((top - y) / per_pixel)
    numbers = numbers.repeat(n, 0).repeat(n, 1)
    is_in = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    cells = np.full((height, width), -1)
    cells[rows[is_in].astype(int), columns[is_in].astype(int)] = numbers[is_in]
    return Raster(cells, (west, east), (bottom, top), pole)


def _between(points: Floats, n: int, *, is_corner: bool = False) -> Floats:
    """Return places within cells, ``n`` along each side, or their corners, on lines between neighbouring centres."""
    for axis in (1, 2):
        length = points.shape[axis]
        first, last = (points.take([i], axis) for i in (0, -1))
        before, after = (points.take([i], axis) for i in (min(1, length - 1), max(length - 2, 0)))
        points = np.concatenate([2 * first - before, points, 2 * last - after], axis)
        at = np.arange(length + 1) + 0.5 if is_corner else (np.arange(length * n) + 0.5) / n + 0.5
        whole = np.floor(at).astype(int)
        share = (at - whole).reshape([-1 if i == axis else 1 for i in range(3)])
        points = points.take(whole, axis) * (1 - share) + points.take(whole + 1, axis) * share
    return points


def _places(points: Floats, pole: int = 0) -> tuple[Floats, Floats]:
    """Return longitude and latitude of points in space, or their places on a map with a pole in its middle."""
    x, y, z = points
    lon, lat = np.degrees(np.arctan2(y, x)), np.degrees(np.arctan2(z, np.hypot(x, y)))
    return _around_pole(lon, lat, pole) if pole else (lon, lat)


def _around_pole(longitudes: Floats, latitudes: Floats, pole: int, /) -> tuple[Floats, Floats]:
    """Return places of a polar stereographic map: the North Pole (1) or the South Pole (-1) is in the middle."""
    away, lon = np.tan(np.radians(90 - pole * latitudes) / 2), np.radians(longitudes)
    return away * np.sin(lon), -pole * away * np.cos(lon)


def _around(longitudes: Floats) -> tuple[float, float]:
    """Return the longitudes that points cover: all but the widest gap between them."""
    at = np.sort(longitudes[np.isfinite(longitudes)] % 360)
    gaps = np.diff(at, append=at[0] + 360)
    widest = int(gaps.argmax())
    if gaps[widest] < 10:
        return -180.0, 180.0
    west = float(at[(widest + 1) % len(at)])
    west -= 360 if west > 180 else 0
    return west, west + 360 - float(gaps[widest])


def _turn(degrees: Floats) -> Floats:
    """Return differences of longitudes as those nearest to zero."""
    return np.asarray(degrees - 360 * np.round(degrees / 360))


def _size(ratio: float) -> tuple[int, int]:
    """Return width and height of a map in pixels, by the ratio of its sides."""
    width = min(MAX_WIDTH, MAX_HEIGHT * ratio)
    return max(round(width), 1), max(round(width / ratio), 1)
