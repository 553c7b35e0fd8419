"""Where the pixels of an image are: the transform of a GeoTIFF, and coordinates of pixel centres."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.tiff.structure import Directory, TiffStructure

__all__ = ["GeoKeys", "Transform", "control_points", "geo_keys", "polynomials", "read_transform"]

_SCALE, _TIE_POINTS, _MATRIX = 33550, 33922, 34264
_KEYS, _DOUBLES, _ASCII = 34735, 34736, 34737
_RASTER_TYPE, _POINT = 1025, 2
_RATIOS = (5, 10)  # TIFF 6.0, section 2: types of tags
_MAX_CONTROL_POINTS = 10_000
_POLYNOMIALS, _N_NUMBERS, _N_COEFFICIENTS = 50844, 92, 20
_POLYNOMIAL_NAMES = (
    *("err_bias", "err_rand", "line_off", "samp_off", "lat_off", "long_off", "height_off"),
    *("line_scale", "samp_scale", "lat_scale", "long_scale", "height_scale"),
)
_COEFFICIENTS = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")

type GeoKeys = dict[int, int | float | str | tuple[float, ...]]
"""Values by key; see OGC 19-008r4, 7.1."""


@dataclass(frozen=True, slots=True)
class Transform:
    """An affine transform, in GDAL's order: ``x = x0 + xi * i + xj * j``, ``y = y0 + yi * i + yj * j`` of corners."""

    x0: float
    xi: float
    xj: float
    y0: float
    yi: float
    yj: float

    @property
    def is_rotated(self) -> bool:
        """Whether x changes along columns, or y along rows."""
        return self.xj != 0 or self.yi != 0

    def text(self) -> str:
        """Give the six numbers as GDAL and rioxarray write them."""
        return " ".join(str(x) for x in (self.x0, self.xi, self.xj, self.y0, self.yi, self.yj))

    def scaled(self, across: float, down: float, /) -> Transform:
        """Give the transform of an overview, whose pixels are larger."""
        return Transform(self.x0, self.xi * across, self.xj * down, self.y0, self.yi * across, self.yj * down)

    def coordinates(self, height: int, width: int, /) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
        """Give dims and values of coordinates, bit for bit those of rioxarray: ``a * i + (c + a / 2)``."""
        x0 = self.xi * 0.5 + self.xj * 0.5 + self.x0
        y0 = self.yi * 0.5 + self.yj * 0.5 + self.y0
        i, j = np.arange(width), np.arange(height)
        if not self.is_rotated:
            return {"x": (("x",), self.xi * i + x0), "y": (("y",), self.yj * j + y0)}
        i, j = i[None, :], j[:, None]
        return {
            "xc": (("y", "x"), i * self.xi + j * self.xj + x0),
            "yc": (("y", "x"), i * self.yi + j * self.yj + y0),
        }


def read_transform(structure: TiffStructure, directory: Directory, keys: GeoKeys | None, /) -> Transform | None:
    """Read the transform of an image, as GDAL does; ``None`` where there is none."""
    scale, ties = (_numbers(structure, directory, code) for code in (_SCALE, _TIE_POINTS))
    matrix = _numbers(structure, directory, _MATRIX)
    found: Transform | None = None
    if len(scale) >= 2 and scale[0] and scale[1]:
        xi, yj = scale[0], -abs(scale[1])
        if len(ties) < 6:  # sizes of pixels alone
            return Transform(0.0, xi, 0.0, 0.0, 0.0, yj)
        found = Transform(ties[3] - ties[0] * xi, xi, 0.0, ties[4] - ties[1] * yj, 0.0, yj)
    elif len(matrix) == 16:
        found = Transform(matrix[3], matrix[0], matrix[1], matrix[7], matrix[4], matrix[5])
    if found is not None and keys is not None and keys.get(_RASTER_TYPE) == _POINT:
        x0 = found.x0 - (found.xi * 0.5 + found.xj * 0.5)
        y0 = found.y0 - (found.yi * 0.5 + found.yj * 0.5)
        found = Transform(x0, found.xi, found.xj, y0, found.yi, found.yj)
    return found


def control_points(structure: TiffStructure, directory: Directory, keys: GeoKeys | None, /) -> str | None:
    """Give the ground control points of an image without transform as GeoJSON, as rioxarray does; or ``None``."""
    ties = _numbers(structure, directory, _TIE_POINTS)
    n = len(ties) // 6
    if not 0 < n <= _MAX_CONTROL_POINTS:
        return None
    shift = 0.5 if keys is not None and keys.get(_RASTER_TYPE) == _POINT else 0.0
    features = []
    for i in range(n):
        column, row, _, *place = ties[6 * i : 6 * i + 6]
        own = {"id": str(i + 1), "info": "", "row": row + shift, "col": column + shift}
        features.append({"type": "Feature", "properties": own, "geometry": {"type": "Point", "coordinates": place}})
    return json.dumps({"type": "FeatureCollection", "features": features})


def polynomials(structure: TiffStructure, directory: Directory, /) -> str | None:
    """Give the rational polynomials (RPC) of an image as JSON, as rioxarray does; or ``None``."""
    numbers = _numbers(structure, directory, _POLYNOMIALS)
    if len(numbers) != _N_NUMBERS:
        return None
    numbers = [float(f"{x:.15g}") for x in numbers]  # as many digits as GDAL gives
    found: dict[str, Any] = dict(zip(_POLYNOMIAL_NAMES, numbers, strict=False))
    for i, name in enumerate(_COEFFICIENTS):
        begin = len(_POLYNOMIAL_NAMES) + i * _N_COEFFICIENTS
        found[name] = numbers[begin : begin + _N_COEFFICIENTS]
    return json.dumps(dict(sorted(found.items(), key=lambda item: (item[0].startswith("err_"), item[0]))))


def _numbers(structure: TiffStructure, directory: Directory, code: int) -> list[float]:
    values = structure.values(directory, code)
    if values is None or values.dtype.kind not in "iuf":
        return []
    numbers = [float(x) for x in values.tolist()]
    if directory.entries[code][0] in _RATIOS:
        return [a / b if b else 0.0 for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
    return numbers


def geo_keys(structure: TiffStructure, directory: Directory, /) -> GeoKeys | None:
    """Read the GeoKeys of an image; ``None`` where it has none. What is out of bounds is left out, as GDAL does."""
    table = structure.values(directory, _KEYS)
    if table is None or table.dtype.kind not in "iu" or len(table) < 4:
        return None
    doubles = _numbers(structure, directory, _DOUBLES)
    ascii_ = structure.raw(directory, _ASCII).decode("latin-1") if _ASCII in directory.entries else ""
    rows: Any = table[4 : 4 + 4 * min(int(table[3]), (len(table) - 4) // 4)].reshape(-1, 4).tolist()
    found: GeoKeys = {}
    for key, place, count, value in rows:
        if place == 0:
            found[key] = value
        elif place == _DOUBLES and value + count <= len(doubles):
            numbers = tuple(doubles[value : value + count])
            found[key] = numbers[0] if count == 1 else numbers
        elif place == _ASCII and value + count <= len(ascii_) + 1:
            found[key] = ascii_[value : value + count].rstrip("|\0 ")
    return found
