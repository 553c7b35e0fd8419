"""The coordinate reference system of a GeoTIFF, by its GeoKeys."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from virtualstack.loading import pyproj_if_safe
from virtualstack.readers.tiff.georeference import GeoKeys
from virtualstack.readers.tiff.wkt import wkt_of

__all__ = ["crs_attributes", "crs_text"]

_MODEL, _GEOGRAPHIC, _PROJECTED = 1024, 2048, 3072
_VERTICAL, _WGS84_3D = 4096, 4979
_USER_DEFINED = 32767
_CITATIONS = (3073, 1026, 2049)


def crs_text(keys: GeoKeys, /) -> str | None:
    """Name the system, as ``"EPSG:32633"`` or as WKT; ``None`` where the keys do not tell, or are not understood.

    >>> crs_text({1024: 1, 3072: 32633})
    'EPSG:32633'
    """
    for key in (_PROJECTED, _GEOGRAPHIC):
        code = keys.get(key)
        if key == _PROJECTED and code == 0:  # undefined, which a geographic system does not stand in for
            break
        if isinstance(code, int) and 1024 <= code < _USER_DEFINED:
            height = keys.get(_VERTICAL)
            if height == _WGS84_3D:
                return f"EPSG:{height}"
            is_known = isinstance(height, int) and 1024 <= height < _USER_DEFINED
            return f"EPSG:{code}+{height}" if is_known else f"EPSG:{code}"
        if code == _USER_DEFINED:
            break
    for key in _CITATIONS:  # ESRI's, and GDAL's for what GeoKeys cannot say
        text = keys.get(key)
        if isinstance(text, str) and (at := text.find("PROJCS[")) >= 0:
            return text[at:]
    return wkt_of(keys)


def crs_attributes(text: str, /) -> dict[str, Any]:
    """Give the attributes of ``spatial_ref``: CF's and WKT where pyproj is installed, else the text alone.

    What pyproj does not understand is given as it is.
    """
    found = _by_pyproj(text)
    if found is not None:
        return dict(found)
    return {"spatial_ref": text} if text.startswith("EPSG:") else {"crs_wkt": text, "spatial_ref": text}


@functools.lru_cache(maxsize=256)
def _by_pyproj(text: str) -> Mapping[str, Any] | None:
    pyproj = pyproj_if_safe()
    if pyproj is None:
        return None
    try:
        wkt = pyproj.CRS.from_user_input(text).to_wkt("WKT1_GDAL", output_axis_rule=True) or text
        return {**pyproj.CRS.from_wkt(wkt).to_cf(), "crs_wkt": wkt, "spatial_ref": wkt}
    except pyproj.exceptions.ProjError:  # a code that its database has not, or text that it cannot read
        return None
