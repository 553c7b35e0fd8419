"""User-defined systems: GeoKeys to WKT, in the form of GDAL's WKT 1."""

from __future__ import annotations

from virtualstack.readers.tiff.georeference import GeoKeys

__all__ = ["wkt_of"]

_USER_DEFINED = 32767
_MERCATOR, _POLAR = 7, 15
_MERCATOR_2SP = -7
_PARAMETERS = range(3078, 3096)
"""Keys of what a method has parameters of."""

# OGC 19-008r4, annex: projection methods by the value of key 3075, with WKT's parameters and the keys of their values;
# of several keys, the first that is there
_STANDARD_1, _STANDARD_2, _EASTING, _NORTHING = (3078,), (3079,), (3082, 3086), (3083, 3087)
_LON, _LAT = (3080, 3084, 3088), (3081, 3085, 3089)
_SCALE = (3092, 3093)
_POLE = (3095, 3080, 3088)
_FALSE = (("false_easting", _EASTING), ("false_northing", _NORTHING))
_CENTRE = (("latitude_of_origin", _LAT), ("central_meridian", _LON))
_METHODS: dict[int, tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]] = {
    1: ("Transverse_Mercator", (*_CENTRE, ("scale_factor", _SCALE), *_FALSE)),
    7: ("Mercator_1SP", (("central_meridian", _LON), ("scale_factor", _SCALE), *_FALSE)),
    8: (
        "Lambert_Conformal_Conic_2SP",
        (
            ("latitude_of_origin", (3085, 3081, 3089)),
            ("central_meridian", (3084, 3080, 3088)),
            ("standard_parallel_1", _STANDARD_1),
            ("standard_parallel_2", _STANDARD_2),
            ("false_easting", (3086, 3082)),
            ("false_northing", (3087, 3083)),
        ),
    ),
    9: ("Lambert_Conformal_Conic_1SP", (*_CENTRE, ("scale_factor", _SCALE), *_FALSE)),
    10: (
        "Lambert_Azimuthal_Equal_Area",
        (("latitude_of_center", (3089, 3081)), ("longitude_of_center", (3088, 3080)), *_FALSE),
    ),
    11: (
        "Albers_Conic_Equal_Area",
        (
            ("latitude_of_center", _LAT),
            ("longitude_of_center", _LON),
            ("standard_parallel_1", _STANDARD_1),
            ("standard_parallel_2", _STANDARD_2),
            *_FALSE,
        ),
    ),
    12: (
        "Azimuthal_Equidistant",
        (("latitude_of_center", (3089, 3081)), ("longitude_of_center", (3088, 3080)), *_FALSE),
    ),
    15: (
        "Polar_Stereographic",
        (("latitude_of_origin", _LAT), ("central_meridian", _POLE), ("scale_factor", _SCALE), *_FALSE),
    ),
    17: ("Equirectangular", (("standard_parallel_1", _STANDARD_1), ("central_meridian", _LON), *_FALSE)),
    14: ("Stereographic", (*_CENTRE, ("scale_factor", _SCALE), *_FALSE)),
    16: ("Oblique_Stereographic", (*_CENTRE, ("scale_factor", _SCALE), *_FALSE)),
    18: ("Cassini_Soldner", (*_CENTRE, *_FALSE)),
    23: ("Robinson", (("longitude_of_center", (3088, 3080)), *_FALSE)),
    28: ("Cylindrical_Equal_Area", (("standard_parallel_1", _STANDARD_1), ("central_meridian", _LON), *_FALSE)),
    _MERCATOR_2SP: (
        "Mercator_2SP",
        (("standard_parallel_1", _STANDARD_1), ("central_meridian", _LON), *_FALSE),
    ),
    24: ("Sinusoidal", (("longitude_of_center", _LON), *_FALSE)),
}
_DEFAULTS = {"scale_factor": 1.0}

# EPSG codes of ellipsoids, with name, half axis in m, and inverse flattening
_ELLIPSOIDS = {
    7030: ("WGS 84", 6378137.0, 298.257223563),
    7019: ("GRS 1980", 6378137.0, 298.257222101),
    7008: ("Clarke 1866", 6378206.4, 294.978698213898),
    7004: ("Bessel 1841", 6377397.155, 299.1528128),
    7022: ("International 1924", 6378388.0, 297.0),
}
# EPSG codes of geographic systems that projections of users stand on: name, datum, ellipsoid, code of the datum
_SYSTEMS = {
    4326: ("WGS 84", "WGS_1984", 7030, 6326),
    4269: ("NAD83", "North_American_Datum_1983", 7019, 6269),
    4267: ("NAD27", "North_American_Datum_1927", 7008, 6267),
    4258: ("ETRS89", "European_Terrestrial_Reference_System_1989", 7019, 6258),
}
_LINEAR = {9001: ("metre", 1.0), 9002: ("foot", 0.3048), 9003: ("US survey foot", 0.304800609601219)}
_DEGREE = 'UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]]'


def wkt_of(keys: GeoKeys, /) -> str | None:
    """Write the WKT of a projected or geographic system; ``None`` where keys say something that is not known here."""
    geographic = _geographic(keys)
    if geographic is None or _number(keys, 2054, 9102) not in (9102, 9122):
        return None
    if keys.get(1024) == 2:
        return geographic[:-1] + ',AXIS["Latitude",NORTH],AXIS["Longitude",EAST]]'
    if keys.get(1024) != 1:
        return None
    keys = _with_zone(keys)
    number = _number(keys, 3075)
    if number == _MERCATOR and 3078 in keys:
        number = _MERCATOR_2SP
    method = _METHODS.get(number)
    unit = _LINEAR.get(_number(keys, 3076, 9001))
    if method is None or unit is None:
        return None
    name, parameters = method
    known = {key for _, sources in parameters for key in sources}
    if any(keys.get(key) not in (None, 0) for key in _PARAMETERS if key not in known):
        return None  # a parameter that the method has not: it may be another one
    written = []
    for parameter, sources in parameters:
        value = next((keys[key] for key in sources if key in keys), _DEFAULTS.get(parameter, 0.0))
        if not isinstance(value, int | float):
            return None
        written.append(f'PARAMETER["{parameter}",{value:.15g}]')
    east, north = "EAST", "NORTH"
    if number == _POLAR:
        latitude = next((keys[key] for key in _LAT if key in keys), 0.0)
        east = north = "SOUTH" if isinstance(latitude, int | float) and latitude > 0 else "NORTH"
    return (
        f'PROJCS["{_name(keys, (3073, 1026), "unnamed")}",{geographic},PROJECTION["{name}"],{",".join(written)},'
        f'UNIT["{unit[0]}",{unit[1]:.15g}],AXIS["Easting",{east}],AXIS["Northing",{north}]]'
    )


def _with_zone(keys: GeoKeys) -> GeoKeys:
    """Write out a zone of UTM, which EPSG has codes of its own for: 16001 to 16060, and 16101 to 16160 in the south."""
    hemisphere, zone = divmod(_number(keys, 3074) - 16000, 100)
    if hemisphere not in (0, 1) or not 1 <= zone <= 60:
        return keys
    places = {3080: 6.0 * zone - 183, 3081: 0.0, 3092: 0.9996, 3082: 500000.0, 3083: 1e7 * hemisphere}
    return {**keys, 3075: 1, **places}


def _number(keys: GeoKeys, key: int, default: int = -1) -> int:
    value = keys.get(key, default)
    return value if isinstance(value, int) else -1


def _name(keys: GeoKeys, candidates: tuple[int, ...], default: str) -> str:
    texts = (keys.get(key) for key in candidates)
    return next((x.partition("|")[0].replace('"', "'") for x in texts if isinstance(x, str) and x), default)


def _geographic(keys: GeoKeys) -> str | None:
    code = _number(keys, 2048)
    if code not in (*_SYSTEMS, _USER_DEFINED, -1) or _number(keys, 2051, 8901) not in (8901, _USER_DEFINED):
        return None
    by_datum = {number: system for system, (*_, number) in _SYSTEMS.items()}
    code = by_datum.get(_number(keys, 2050), code)
    known = _SYSTEMS.get(code)
    named = _named_parts(keys)
    ellipsoid = _ellipsoid(keys, None if known is None else known[2], named.get("Ellipsoid"))
    if ellipsoid is None:
        return None
    longitude = keys.get(2061, 0)
    if not isinstance(longitude, int | float):
        return None
    shift = keys.get(2062)
    moved = f",TOWGS84[{','.join(f'{x:.15g}' for x in (*shift, 0, 0, 0, 0)[:7])}]" if isinstance(shift, tuple) else ""
    meridian = f'PRIMEM["{named.get("Primem", "Greenwich")}",{longitude:.15g}],{_DEGREE}'
    tail = f"{ellipsoid[1]}{moved}],{meridian}"
    if known is not None:
        title, datum, _, number = known
        tail = f'{ellipsoid[1]}{moved},AUTHORITY["EPSG","{number}"]],{meridian}'
        return f'GEOGCS["{title}",DATUM["{datum}",{tail},AUTHORITY["EPSG","{code}"]]'
    title = named.get("GCS Name") or _name(keys, (2049,), f"Unknown datum based upon the {ellipsoid[0]} ellipsoid")
    datum = named.get("Datum") or f"Not_specified_based_on_{ellipsoid[0].replace(' ', '_')}_spheroid"
    return f'GEOGCS["{title}",DATUM["{datum}",{tail}]'


def _named_parts(keys: GeoKeys) -> dict[str, str]:
    """Read the names in a citation, such as ``GCS Name = X|Datum = Y``."""
    text = keys.get(2049)
    parts = text.replace('"', "'").split("|") if isinstance(text, str) else []
    return {key.strip(): value.strip() for key, found, value in (part.partition("=") for part in parts) if found}


def _ellipsoid(keys: GeoKeys, usual: int | None, name: str | None) -> tuple[str, str] | None:
    """Give name and WKT of an ellipsoid: its own axes count before those of its code."""
    code = _number(keys, 2056)
    known = _ELLIPSOIDS.get(code if code in _ELLIPSOIDS else usual or -1)
    major, inverse, minor = keys.get(2057), keys.get(2059), keys.get(2058)
    if isinstance(major, int | float):
        if not isinstance(inverse, int | float):
            if not isinstance(minor, int | float):
                return None
            inverse = 0.0 if minor == major else major / (major - minor)
        title = name or ("unknown" if known is None else known[0])
        return title, f'SPHEROID["{title}",{major:.15g},{inverse:.15g}]'
    if known is None:
        return None
    title, axis, flattening = known
    return title, f'SPHEROID["{title}",{axis:.15g},{flattening:.15g}]'
