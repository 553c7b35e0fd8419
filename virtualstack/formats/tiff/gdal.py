"""GeoKeys as GDAL reads them, where rasterio is installed."""

from __future__ import annotations

import functools
import importlib
from struct import pack
from typing import Any

from virtualstack.formats.tiff.structure import Directory, Structure

__all__ = ["wkt_by_gdal"]

type _Tag = tuple[int, int, int, bytes]
"""Code, type, count and values."""

_NAMES = 34737
_KEYS = (34735, 34736, _NAMES)
_UNKNOWN = ord("?")
_MOST_BYTES = 1 << 18
# of a file of one pixel, which is the first byte behind the header, and of its place
_PIXEL = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 1}
_PLACE = {33550: (1.0, 1.0, 0.0), 33922: (0.0,) * 6}


def wkt_by_gdal(structure: Structure, directory: Directory, /) -> str | None:
    """Give the WKT that rasterio has for the GeoKeys of an image; ``None`` where it is not installed, or has none."""
    tags = []
    for code in _KEYS:
        if code in directory.entries:
            kind, count, _ = directory.entries[code]
            raw = structure.raw(directory, code)
            tags.append((code, kind, count, _readable(raw) if code == _NAMES else raw))
    return _wkt(structure.order, tuple(tags)) if sum(len(tag[3]) for tag in tags) <= _MOST_BYTES else None


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
