"""Where the pixels of an image are: the transform, the coordinates and the reference system of a GeoTIFF.

If rasterio and tifffile are installed, GDAL reads GeoKeys; pyproj knows the systems that have a code.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.tiff.structure import Directory, TiffStructure
from virtualstack.loading import pyproj_if_safe

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


class Transform(NamedTuple):
    """An affine transform, in GDAL's order: ``x = x0 + xi * i + xj * j``, ``y = y0 + yi * i + yj * j`` of corners."""

    x0: float
    xi: float
    xj: float
    y0: float
    yi: float
    yj: float

    @property
    def is_rotated(self) -> bool:
        """True if x changes along columns, or y along rows."""
        return self.xj != 0 or self.yi != 0

    def text(self) -> str:
        """Return the six numbers in the format of GDAL and rioxarray."""
        return " ".join(map(str, self))

    def scaled(self, across: float, down: float, /) -> Transform:
        """Return the transform of an overview, whose pixels are larger."""
        return Transform(self.x0, self.xi * across, self.xj * down, self.y0, self.yi * across, self.yj * down)

    def coordinates(self, height: int, width: int, /) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
        """Return dimensions and values of coordinates, bit for bit as in rioxarray: ``a * i + (c + a / 2)``."""
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
    """Read the transform of an image, as GDAL does; ``None`` if there is none."""
    scale, ties = (_numbers(structure, directory, code) for code in (_SCALE, _TIE_POINTS))
    matrix = _numbers(structure, directory, _MATRIX)
    found: Transform | None = None
    if len(scale) >= 2 and scale[0] and scale[1]:
        xi, yj = scale[0], -abs(scale[1])
        if len(ties) < 6:  # only pixel sizes are given
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
    """Return the ground control points of an image without transform as GeoJSON, as rioxarray does, or ``None``."""
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
    """Return the rational polynomials (RPC) of an image as JSON, as rioxarray does, or ``None``."""
    numbers = _numbers(structure, directory, _POLYNOMIALS)
    if len(numbers) != _N_NUMBERS:
        return None
    numbers = [float(f"{x:.15g}") for x in numbers]  # the number of digits that GDAL writes
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
    """Read the GeoKeys of an image; ``None`` if it has none. Like GDAL, leave out keys that are out of bounds."""
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


type _Tag = tuple[int, int, int, bytes]
"""Code, type, count and values."""

_UNKNOWN = ord("?")
_MAX_GEOKEY_BYTES = 1 << 18
# tags of the position of a file of one pixel
_PLACE = {33550: (1.0, 1.0, 0.0), 33922: (0.0,) * 6}


def wkt_by_gdal(structure: TiffStructure, directory: Directory, /) -> str | None:
    """Return the WKT that rasterio makes of the GeoKeys of an image; ``None`` if it makes none or is not installed."""
    tags = []
    for code in (_KEYS, _DOUBLES, _ASCII):
        if code in directory.entries:
            kind, count, _ = directory.entries[code]
            raw = structure.raw(directory, code)
            tags.append((code, kind, count, _readable(raw) if code == _ASCII else raw))
    return _wkt(structure.order, tuple(tags)) if sum(len(tag[3]) for tag in tags) <= _MAX_GEOKEY_BYTES else None


def _readable(raw: bytes) -> bytes:
    """Return names of systems as text of the same length that rasterio can read; it raises if text is not UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return bytes(byte if byte < 128 else _UNKNOWN for byte in raw)
    return raw


@functools.lru_cache(maxsize=256)
def _wkt(order: str, tags: tuple[_Tag, ...]) -> str | None:
    try:
        rasterio: Any = importlib.import_module("rasterio")
        tifffile: Any = importlib.import_module("tifffile")
    except ImportError:
        return None
    try:
        with rasterio.MemoryFile(_one_pixel(tifffile, order, tags)) as memory, memory.open(driver="GTiff") as file:
            return file.crs.to_wkt() or None if file.crs else None
    except (rasterio.errors.RasterioError, ValueError, LookupError):  # of systems, and of types of tags
        return None


def _one_pixel(tifffile: Any, order: str, tags: tuple[_Tag, ...]) -> bytes:
    """Write the smallest GeoTIFF that has some tags."""
    place = tuple((code, 12, len(values), values) for code, values in _PLACE.items())
    file = io.BytesIO()
    extra = [(*tag, True) for tag in place + tags]
    tifffile.imwrite(file, np.zeros((1, 1), np.uint8), byteorder=order, metadata=None, extratags=extra)
    return file.getvalue()


_MODEL, _GEOGRAPHIC, _PROJECTED, _VERTICAL = 1024, 2048, 3072, 4096
_DATUM, _MERIDIAN, _ANGLE, _ELLIPSOID, _AXIS, _METHOD, _LENGTH = 2050, 2051, 2054, 2056, 2057, 3074, 3076
_PROJECTED_MODEL, _GEOGRAPHIC_MODEL, _GEOCENTRIC_MODEL = 1, 2, 3
_WGS84, _WGS84_3D = 4326, 4979
_OLD_HEIGHTS = range(5001, 5107)  # GeoTIFF 1.0, 6.3.4.1; these are not EPSG codes
_USER_DEFINED = 32767
_CITATIONS = (3073, 1026, 2049)
_PLAIN = frozenset({_MODEL, _RASTER_TYPE, *_CITATIONS, _PROJECTED, _ANGLE, _LENGTH})
"""Keys that add nothing to the code of a projected system, if the units are the units of the code."""
_OTHERWISE = "(deprecated)", '"grad"'
"""Text in WKT for which GDAL differs: it replaces deprecated systems, or writes other last digits."""
_FACTS = frozenset({_GEOGRAPHIC, _DATUM, _MERIDIAN, _ANGLE, _ELLIPSOID, _AXIS, _METHOD, _LENGTH})
"""Keys that may contradict a code."""


def read_crs(keys: GeoKeys, structure: TiffStructure, directory: Directory, /) -> tuple[Mapping[str, Any], str | None]:
    """Return the attributes of ``spatial_ref``, and a note on them or ``None``.

    pyproj looks up a projected system that has a code. All other systems are read by GDAL if rasterio is installed.
    Without rasterio, other keys are compared with the code, and keys without a code are listed in a note.
    """
    text = crs_text(keys)
    code = text if text is not None and text.startswith("EPSG:") else None
    reason = None if code is None else _contradiction(tuple(keys.items()), code)
    is_plain = keys.get(_MODEL) == _PROJECTED_MODEL and keys.keys() <= _PLAIN and reason is None
    wkt = _wkt_by_pyproj(code) if code is not None and is_plain else None
    if wkt is None or any(text in wkt for text in _OTHERWISE):
        wkt = wkt_by_gdal(structure, directory)
    if wkt is not None:
        return _of_wkt(wkt), None
    if reason is not None:
        return {}, f"its GeoKeys {keys} contradict themselves: {reason}"
    if text is None:
        return {}, _not_understood(keys) if keys.keys() - {_RASTER_TYPE} else None
    is_defined_anew = keys.get(_METHOD) == _USER_DEFINED
    if code is None or (_wkt_by_pyproj(text) is not None and not is_defined_anew):
        return crs_attributes(text), None
    is_more = bool(keys.keys() & _FACTS - {_LENGTH, _ANGLE}) or keys.get(_LENGTH, 9001) != 9001
    note = f"whether its GeoKeys {keys} agree with {text} is not known without pyproj or rasterio"
    return crs_attributes(text), note if is_more or pyproj_if_safe() is not None else None


def _not_understood(keys: GeoKeys) -> str:
    if find_spec("rasterio") is None:
        return f"its GeoKeys {keys} do not name a system of EPSG. Install rasterio, whose GDAL reads such keys"
    return f"its GeoKeys {keys} are not understood"


def crs_attributes(text: str, /) -> Mapping[str, Any]:
    """Return the attributes of a system: CF attributes and WKT if pyproj knows the system, else only the text."""
    wkt = _wkt_by_pyproj(text)
    if wkt is not None:
        return _of_wkt(wkt)
    return {"spatial_ref": text} if text.startswith("EPSG:") else {"crs_wkt": text, "spatial_ref": text}


def crs_text(keys: GeoKeys, /) -> str | None:
    """Return the system as ``"EPSG:32633"`` or as the WKT of a citation; ``None`` if the keys have neither.

    >>> crs_text({1024: 1, 3072: 32633})
    'EPSG:32633'
    """
    model = keys.get(_MODEL)
    key = _GEOGRAPHIC if model == _GEOGRAPHIC_MODEL else _PROJECTED
    code = keys.get(key)
    if model != _GEOCENTRIC_MODEL and isinstance(code, int) and 1024 <= code < _USER_DEFINED:
        height = keys.get(_VERTICAL)
        if height in _OLD_HEIGHTS:
            return None
        if (code, height) == (_WGS84, _WGS84_3D):
            return f"EPSG:{height}"
        is_known = isinstance(height, int) and 1024 <= height < _USER_DEFINED
        return f"EPSG:{code}+{height}" if is_known else f"EPSG:{code}"
    for citation in _CITATIONS:  # written by ESRI, and by GDAL if GeoKeys cannot express the system
        text = keys.get(citation)
        if isinstance(text, str) and (at := text.find("PROJCS[")) >= 0:
            return text[at:]
    return None


@functools.lru_cache(maxsize=256)
def _contradiction(items: tuple[tuple[int, Any], ...], code: str) -> str | None:
    """Return which keys contradict the system of a code; ``None`` if no key does, or pyproj cannot decide."""
    pyproj, keys = pyproj_if_safe(), dict(items)
    if pyproj is None or not keys.keys() & (_FACTS | {_VERTICAL}):
        return None
    try:
        system = pyproj.CRS.from_user_input(code)
        found = next((name for name, is_same in _compared(keys, system, pyproj) if not is_same), None)
    except pyproj.exceptions.ProjError:
        return None
    return None if found is None else f"{found} is not that of {code}"


def _compared(keys: GeoKeys, system: Any, pyproj: Any) -> Iterator[tuple[str, bool]]:
    """Compare the keys with a system; yield the name of each property, and whether it is equal."""
    parts, own = pyproj.crs, system.sub_crs_list[0] if system.sub_crs_list else system
    unit = own.axis_info[0].unit_conversion_factor
    if _LENGTH in keys and own.is_projected:
        yield "the unit of length", math.isclose(_unit_size(keys, _LENGTH), unit, rel_tol=1e-9)
    base = own.geodetic_crs
    if _ANGLE in keys:
        unit = base.axis_info[0].unit_conversion_factor
        yield "the unit of angles", math.isclose(_unit_size(keys, _ANGLE), unit, rel_tol=1e-9)
    of_code: dict[int, tuple[str, Callable[[int], Any], Any]] = {
        _GEOGRAPHIC: ("the geographic system", int, base.to_epsg()),
        _DATUM: ("the datum", lambda n: parts.Datum.from_epsg(n).name, base.datum.name.removesuffix(" ensemble")),
        _MERIDIAN: ("the prime meridian", parts.PrimeMeridian.from_epsg, base.prime_meridian),
        _ELLIPSOID: ("the ellipsoid", parts.Ellipsoid.from_epsg, base.ellipsoid),
    }
    for key, (name, made, expected) in of_code.items():
        value = keys.get(key)
        if isinstance(value, int) and 1024 <= value < _USER_DEFINED:
            yield name, made(value) == expected
    if isinstance(axis := keys.get(_AXIS), float):
        yield "the half axis", math.isclose(axis, base.ellipsoid.semi_major_metre, rel_tol=1e-9)
    if system.sub_crs_list:
        yield "the vertical system", system.sub_crs_list[-1].is_vertical


def _unit_size(keys: GeoKeys, key: int) -> float:
    """Return the size of a unit in metres or radians; NaN if the unit is not known."""
    code, size = keys[key], keys.get(key + 1)
    if code == _USER_DEFINED:
        return size if isinstance(size, float) and size > 0 else math.nan
    return _epsg_units().get(code, math.nan) if isinstance(code, int) else math.nan


@functools.cache
def _epsg_units() -> Mapping[int, float]:
    units = importlib.import_module("pyproj.database").get_units_map("EPSG", allow_deprecated=True)
    return {int(unit.code): float(unit.conv_factor) for unit in units.values()}


@functools.lru_cache(maxsize=256)
def _wkt_by_pyproj(text: str) -> str | None:
    """Return the WKT of a system; ``None`` if pyproj is not installed, or does not know the name."""
    pyproj = pyproj_if_safe()
    if pyproj is None:
        return None
    try:
        system = pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.ProjError:  # a code that its database lacks, or text that it cannot read
        return None
    try:
        return str(system.to_wkt("WKT1_GDAL", output_axis_rule=True))
    except pyproj.exceptions.ProjError:  # WKT 1 cannot express it
        return str(system.to_wkt("WKT2_2018"))


@functools.lru_cache(maxsize=256)
def _of_wkt(wkt: str) -> Mapping[str, Any]:
    """Return the attributes of a system: CF attributes if pyproj is installed, and WKT."""
    pyproj, cf = pyproj_if_safe(), {}
    if pyproj is not None:
        with contextlib.suppress(KeyError, pyproj.exceptions.ProjError):
            cf = pyproj.CRS.from_wkt(wkt).to_cf()
    return {**cf, "crs_wkt": wkt, "spatial_ref": wkt}
