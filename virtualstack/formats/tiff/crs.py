"""The coordinate reference system of a GeoTIFF, by its GeoKeys.

GDAL reads them where rasterio is installed; pyproj knows the systems that have a code.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from struct import pack
from typing import Any

from virtualstack.formats.tiff.georeference import GeoKeys
from virtualstack.formats.tiff.structure import Directory, TiffStructure
from virtualstack.loading import pyproj_if_safe

__all__ = ["crs_attributes", "crs_text", "read_crs", "wkt_by_gdal"]

type _Tag = tuple[int, int, int, bytes]
"""Code, type, count and values."""

_NAMES = 34737
_KEYS = (34735, 34736, _NAMES)
_UNKNOWN = ord("?")
_MAX_GEOKEY_BYTES = 1 << 18
# of a file of one pixel, which is the first byte behind the header, and of its place
_PIXEL = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 1}
_PLACE = {33550: (1.0, 1.0, 0.0), 33922: (0.0,) * 6}


def wkt_by_gdal(structure: TiffStructure, directory: Directory, /) -> str | None:
    """Give the WKT that rasterio has for the GeoKeys of an image; ``None`` where it is not installed, or has none."""
    tags = []
    for code in _KEYS:
        if code in directory.entries:
            kind, count, _ = directory.entries[code]
            raw = structure.raw(directory, code)
            tags.append((code, kind, count, _readable(raw) if code == _NAMES else raw))
    return _wkt(structure.order, tuple(tags)) if sum(len(tag[3]) for tag in tags) <= _MAX_GEOKEY_BYTES else None


def _readable(raw: bytes) -> bytes:
    """Give names of systems as text that rasterio can read, of as many bytes: it raises where they are not UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return bytes(byte if byte < 128 else _UNKNOWN for byte in raw)
    return raw


@functools.lru_cache(maxsize=256)
def _wkt(order: str, tags: tuple[_Tag, ...]) -> str | None:
    try:
        rasterio: Any = importlib.import_module("rasterio")
    except ImportError:
        return None
    try:
        with rasterio.MemoryFile(_one_pixel(order, tags)) as memory, memory.open(driver="GTiff") as file:
            return file.crs.to_wkt() or None if file.crs else None
    except (rasterio.errors.RasterioError, ValueError):  # among the latter those of systems
        return None


def _one_pixel(order: str, tags: tuple[_Tag, ...]) -> bytes:
    """Write the smallest GeoTIFF that has some tags."""
    entries: list[_Tag] = [(code, 4, 1, pack(f"{order}I", value)) for code, value in _PIXEL.items()]
    entries += [(code, 12, len(values), pack(f"{order}{len(values)}d", *values)) for code, values in _PLACE.items()]
    entries += tags
    directory = pack(f"{order}H", len(entries))
    values = b""
    begin = 10 + len(directory) + 12 * len(entries) + 4
    for code, kind, count, value in entries:
        where = value.ljust(4, b"\0") if len(value) <= 4 else pack(f"{order}I", begin + len(values))
        values += value + b"\0" * (len(value) % 2) if len(value) > 4 else b""
        directory += pack(f"{order}HHI", code, kind, count) + where
    mark = b"II" if order == "<" else b"MM"
    return mark + pack(f"{order}HI", 42, 10) + b"\0\0" + directory + b"\0" * 4 + values


_MODEL, _RASTER_TYPE, _GEOGRAPHIC, _PROJECTED, _VERTICAL = 1024, 1025, 2048, 3072, 4096
_DATUM, _MERIDIAN, _ANGLE, _ELLIPSOID, _AXIS, _METHOD, _LENGTH = 2050, 2051, 2054, 2056, 2057, 3074, 3076
_PROJECTED_MODEL, _GEOGRAPHIC_MODEL, _GEOCENTRIC_MODEL = 1, 2, 3
_WGS84, _WGS84_3D = 4326, 4979
_OLD_HEIGHTS = range(5001, 5107)  # GeoTIFF 1.0, 6.3.4.1, which are no codes of EPSG
_USER_DEFINED = 32767
_CITATIONS = (3073, 1026, 2049)
_PLAIN = frozenset({_MODEL, _RASTER_TYPE, *_CITATIONS, _PROJECTED, _ANGLE, _LENGTH})
"""Keys that say nothing of a projected system that its code does not, if the units are those of the code."""
_OTHERWISE = "(deprecated)", '"grad"'
"""What GDAL replaces by the system that came after it, or writes with other last digits."""
_FACTS = frozenset({_GEOGRAPHIC, _DATUM, _MERIDIAN, _ANGLE, _ELLIPSOID, _AXIS, _METHOD, _LENGTH})
"""Keys that may contradict a code."""


def read_crs(keys: GeoKeys, structure: TiffStructure, directory: Directory, /) -> tuple[Mapping[str, Any], str | None]:
    """Give the attributes of ``spatial_ref``, and what is to be known of them.

    A projected system of a code is looked up by pyproj. All else is read by GDAL, where rasterio is installed. Without
    it, what keys say beside a code is compared with the code, and keys without a code are told in a note.
    """
    text = crs_text(keys)
    code = text if text is not None and text.startswith("EPSG:") else None
    reason = None if code is None else _contradiction(tuple(keys.items()), code)
    is_plain = keys.get(_MODEL) == _PROJECTED_MODEL and keys.keys() <= _PLAIN and reason is None
    found = None if code is None else _by_pyproj(code)
    if is_plain and found is not None and not any(text in found["crs_wkt"] for text in _OTHERWISE):
        return found, None
    wkt = wkt_by_gdal(structure, directory)
    if wkt is not None:
        return {**_cf(wkt), "crs_wkt": wkt, "spatial_ref": wkt}, None
    if reason is not None:
        return {}, f"its GeoKeys {keys} contradict themselves: {reason}"
    if text is None:
        return {}, _not_understood(keys) if keys.keys() - {_RASTER_TYPE} else None
    is_defined_anew = keys.get(_METHOD) == _USER_DEFINED
    if code is None or (_by_pyproj(text) is not None and not is_defined_anew):
        return crs_attributes(text), None
    is_more = bool(keys.keys() & _FACTS - {_LENGTH, _ANGLE}) or keys.get(_LENGTH, 9001) != 9001
    note = f"whether its GeoKeys {keys} agree with {text} is not known without pyproj or rasterio"
    return crs_attributes(text), note if is_more or pyproj_if_safe() is not None else None


def _not_understood(keys: GeoKeys) -> str:
    if find_spec("rasterio") is None:
        return f"its GeoKeys {keys} name no system of EPSG. Install rasterio, whose GDAL reads such keys"
    return f"its GeoKeys {keys} are not understood"


def crs_attributes(text: str, /) -> Mapping[str, Any]:
    """Give the attributes of a system: those of CF and WKT where pyproj knows it, else the text alone."""
    found = _by_pyproj(text)
    if found is not None:
        return found
    return {"spatial_ref": text} if text.startswith("EPSG:") else {"crs_wkt": text, "spatial_ref": text}


def crs_text(keys: GeoKeys, /) -> str | None:
    """Name the system, as ``"EPSG:32633"`` or as the WKT of a citation; ``None`` where the keys have neither.

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
    for citation in _CITATIONS:  # ESRI's, and GDAL's for what GeoKeys cannot say
        text = keys.get(citation)
        if isinstance(text, str) and (at := text.find("PROJCS[")) >= 0:
            return text[at:]
    return None


@functools.lru_cache(maxsize=256)
def _contradiction(items: tuple[tuple[int, Any], ...], code: str) -> str | None:
    """Say what the keys have otherwise than the system of a code; ``None`` where nothing, or pyproj cannot tell."""
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
    """Compare what the keys say with a system."""
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
    """Return the size of a unit in metres or radians; NaN where it is not known."""
    code, size = keys[key], keys.get(key + 1)
    if code == _USER_DEFINED:
        return size if isinstance(size, float) and size > 0 else math.nan
    return _epsg_units().get(code, math.nan) if isinstance(code, int) else math.nan


@functools.cache
def _epsg_units() -> Mapping[int, float]:
    units = importlib.import_module("pyproj.database").get_units_map("EPSG", allow_deprecated=True)
    return {int(unit.code): float(unit.conv_factor) for unit in units.values()}


def _by_pyproj(text: str) -> Mapping[str, Any] | None:
    """Give the attributes of a system; ``None`` where pyproj is not installed, or has none of this name."""
    wkt = _wkt_by_pyproj(text)
    return None if wkt is None else {**_cf(wkt), "crs_wkt": wkt, "spatial_ref": wkt}


@functools.lru_cache(maxsize=256)
def _wkt_by_pyproj(text: str) -> str | None:
    pyproj = pyproj_if_safe()
    if pyproj is None:
        return None
    try:
        system = pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.ProjError:  # a code that its database has not, or text that it cannot read
        return None
    try:
        return str(system.to_wkt("WKT1_GDAL", output_axis_rule=True))
    except pyproj.exceptions.ProjError:  # WKT 1 has no words for it
        return str(system.to_wkt("WKT2_2018"))


@functools.lru_cache(maxsize=256)
def _cf(wkt: str) -> Mapping[str, Any]:
    pyproj = pyproj_if_safe()
    if pyproj is None:
        return {}
    try:
        return dict(pyproj.CRS.from_wkt(wkt).to_cf())
    except (KeyError, pyproj.exceptions.ProjError):
        return {}
