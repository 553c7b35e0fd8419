"""The coast on a map: lines of Natural Earth, in the file that the page of the server has."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files

import numpy as np

from virtualstack.drawing.geometry import Floats, Raster

type Project = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""From longitudes and latitudes to places in the plane of a map, infinite or NaN where there is none."""

_PARTS = 2  # of a pixel, in numbers of a path
_MAX_STEP = 1 / 6  # of the width of a map: lines of longer steps say little of the coast there


@cache
def _lines() -> Floats:
    """Return longitudes and latitudes, with NaN after each line; without lines that cut land where the map ends."""
    land = json.loads((files("virtualstack") / "serve" / "assets" / "land-110m.json").read_text("utf-8"))
    scale, first = land["transform"]["scale"], land["transform"]["translate"]
    lines = [np.cumsum(arc, axis=0) * scale + first for arc in land["arcs"]]
    parts = [np.append(line, [[np.nan, np.nan]], axis=0) for line in lines if (np.abs(line[:, 0]) < 180).any()]
    return np.concatenate(parts).T


def coast_svg(raster: Raster, project: Project, y: float, /) -> str:
    """Return the coast as a part of a drawing, with the map at a height; an empty text if there is none."""
    height, width = (_PARTS * n for n in raster.cells.shape)
    places = np.stack(project(*_lines()), axis=-1)
    ends = np.array([raster.x, raster.y[::-1]])
    share = (places - ends[:, 0]) / (ends[:, 1] - ends[:, 0])
    is_near = (np.abs(share - 0.5) < 0.75).all(axis=-1)
    points = np.rint(np.where(is_near[:, None], share, 0) * (width, height)).astype(int)
    lengths = np.hypot(*np.diff(points, axis=0).T)[is_near[1:] & is_near[:-1]]
    if not len(lengths) or np.median(lengths) > _MAX_STEP * width:
        return ""
    path: list[str] = []
    at: tuple[int, int] | None = None
    for (i, j), is_drawn in zip(points.tolist(), is_near.tolist(), strict=True):
        if not is_drawn:
            at = None
            continue
        if at is None or abs(i - at[0]) > width // 2 or abs(j - at[1]) > height // 2:  # a new line, or the map is cut
            path.append(f"M{i} {j}l")
        elif max(abs(i - at[0]), abs(j - at[1])) <= _PARTS:
            continue
        else:
            path.append(f"{i - at[0]} {j - at[1]} ")
        at = i, j
    lines = [line.strip().replace(" -", "-") for line in "".join(path).split("M")]
    drawn = "".join(f"M{line}" for line in lines if line and not line.endswith("l"))
    return drawn and (
        f'<svg y="{y:g}" width="{width // _PARTS}" height="{height // _PARTS}" viewBox="0 0 {width} {height}">'
        f'<path d="{drawn}" fill="none" stroke="#111" stroke-width="{0.8 * _PARTS:g}" stroke-linejoin="round" '
        'style="filter:drop-shadow(0 0 1px #fff) drop-shadow(0 0 1px #fff)"/></svg>'
    )
