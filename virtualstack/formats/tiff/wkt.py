"""User-defined systems: GeoKeys to WKT, in the form of GDAL's WKT 1."""

from __future__ import annotations

import math

from virtualstack.formats.tiff.georeference import GeoKeys

__all__ = ["angle_of", "length_of", "wkt_of"]

_USER_DEFINED = 32767
_MERCATOR, _POLAR = 7, 15
_MERCATOR_2SP, _SOUTH = -7, 27
_PARAMETERS = range(3078, 3097)
"""Keys of what a method has parameters of."""

# OGC 19-008r4, annex: projection methods by the value of key 3075, with WKT's parameters and the keys of their values;
# of several keys, the first that is there
_STANDARD_1, _STANDARD_2, _EASTING, _NORTHING = (3078,), (3079,), (3082, 3086, 3090), (3083, 3087, 3091)
_LON, _LAT = (3080, 3084, 3088), (3081, 3085, 3089)
_SCALE = (3092, 3093)
_POLE = (3095, 3080, 3088)
_FALSE = (("false_easting", _EASTING), ("false_northing", _NORTHING))
_CENTRE = (("latitude_of_origin", _LAT), ("central_meridian", _LON))
_OBLIQUE = (
    ("latitude_of_center", _LAT),
    ("longitude_of_center", _LON),
    ("azimuth", (3094,)),
    ("rectified_grid_angle", (3096,)),
    ("scale_factor", _SCALE),
    *_FALSE,
)
_METHODS: dict[int, tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]] = {
    1: ("Transverse_Mercator", (*_CENTRE, ("scale_factor", _SCALE), *_FALSE)),
    3: ("Hotine_Oblique_Mercator", _OBLIQUE),
    9815: ("Hotine_Oblique_Mercator_Azimuth_Center", _OBLIQUE),
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
    13: (
        "Equidistant_Conic",
        (
            ("latitude_of_center", _LAT),
            ("longitude_of_center", _LON),
            ("standard_parallel_1", _STANDARD_1),
            ("standard_parallel_2", _STANDARD_2),
            *_FALSE,
        ),
    ),
    15: (
        "Polar_Stereographic",
        (("latitude_of_origin", _LAT), ("central_meridian", _POLE), ("scale_factor", _SCALE), *_FALSE),
    ),
    17: ("Equirectangular", (("standard_parallel_1", _STANDARD_1), ("central_meridian", _LON), *_FALSE)),
    14: ("Stereographic", (*_CENTRE, ("scale_factor", _SCALE), *_FALSE)),
    16: ("Oblique_Stereographic", (*_CENTRE, ("scale_factor", _SCALE), *_FALSE)),
    18: ("Cassini_Soldner", (*_CENTRE, *_FALSE)),
    19: ("Gnomonic", (*_CENTRE, *_FALSE)),
    20: ("Miller_Cylindrical", (("longitude_of_center", _LON), *_FALSE)),
    21: ("Orthographic", (*_CENTRE, *_FALSE)),
    22: ("Polyconic", (*_CENTRE, *_FALSE)),
    25: ("VanDerGrinten", (("central_meridian", _LON), *_FALSE)),
    26: ("New_Zealand_Map_Grid", (*_CENTRE, *_FALSE)),
    _SOUTH: ("Transverse_Mercator_South_Orientated", (*_CENTRE, ("scale_factor", _SCALE), *_FALSE)),
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
# EPSG codes of units, with name and size in metres or radians
_LENGTHS = {
    9001: ("metre", 1.0),
    9002: ("foot", 0.3048),
    9003: ("US survey foot", 0.304800609601219),
    9005: ("Clarke's foot", 0.3047972654),
    9030: ("nautical mile", 1852.0),
    9036: ("kilometre", 1000.0),
    9093: ("Statute mile", 1609.344),
}
_ANGLES = {
    9101: ("radian", 1.0),
    9102: ("degree", 0.0174532925199433),
    9105: ("grad", 0.015707963267949),
    9122: ("degree", 0.0174532925199433),
}
_DEGREE = 'UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]]'
_GEOCENTRIC_AXES = 'AXIS["Geocentric X",OTHER],AXIS["Geocentric Y",OTHER],AXIS["Geocentric Z",NORTH]'


def length_of(keys: GeoKeys, /, key: int = 3076) -> tuple[str, float]:
    """Give name and metres of the unit of lengths; metres by default, and NaN where it is not known."""
    return _unit(keys, key, _LENGTHS, 9001)


def angle_of(keys: GeoKeys, /) -> tuple[str, float]:
    """Give name and radians of the unit of angles; degrees by default, and NaN where it is not known."""
    return _unit(keys, 2054, _ANGLES, 9102)


def _unit(keys: GeoKeys, key: int, known: dict[int, tuple[str, float]], usual: int) -> tuple[str, float]:
    code, size = _number(keys, key, usual), keys.get(key + 1)
    if code == _USER_DEFINED and isinstance(size, float) and size > 0:
        return "unknown", size
    return known.get(code, ("unknown", math.nan))


def wkt_of(keys: GeoKeys, /) -> str | None:
    """Write the WKT of a system; ``None`` where keys say something that is not known here."""
    model = keys.get(1024)
    geographic = _geographic(keys)
    if model == 3:
        return None if geographic is None else _geocentric(keys, geographic)
    if model != 2 and not {3074, 3075} & keys.keys():
        return _local(keys) if {3072, 3076, 1026} & keys.keys() else None
    if geographic is None or not math.isclose(angle_of(keys)[1], _ANGLES[9102][1]):
        return None
    if model == 2:
        return geographic[:-1] + ',AXIS["Latitude",NORTH],AXIS["Longitude",EAST]]'
    return _projected(_with_zone(keys), geographic)


def _geocentric(keys: GeoKeys, geographic: str) -> str | None:
    name, size = length_of(keys, 2052)
    datum = geographic[geographic.index("DATUM[") : geographic.index(f",{_DEGREE}")]
    unit = f'UNIT["{name}",{size:.15g}]'
    return (
        None if math.isnan(size) else f'GEOCCS["{_name(keys, (1026,), "unnamed")}",{datum},{unit},{_GEOCENTRIC_AXES}]'
    )


def _local(keys: GeoKeys) -> str | None:
    name, size = length_of(keys)
    title, unit = _name(keys, (1026,), "unnamed"), f'UNIT["{name}",{size:.15g}]'
    return None if math.isnan(size) else f'LOCAL_CS["{title}",{unit},AXIS["Easting",EAST],AXIS["Northing",NORTH]]'


def _projected(keys: GeoKeys, geographic: str) -> str | None:
    number = _number(keys, 3075)
    if number == _MERCATOR and 3078 in keys:
        number = _MERCATOR_2SP
    method, (unit, size) = _METHODS.get(number), length_of(keys)
    if method is None or math.isnan(size):
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
    east, north = ("WEST", "SOUTH") if number == _SOUTH else ("EAST", "NORTH")
    if number == _POLAR:
        latitude = next((keys[key] for key in _LAT if key in keys), 0.0)
        east = north = "SOUTH" if isinstance(latitude, int | float) and latitude > 0 else "NORTH"
    return (
        f'PROJCS["{_name(keys, (3073, 1026), "unnamed")}",{geographic},PROJECTION["{name}"],{",".join(written)},'
        f'UNIT["{unit}",{size:.15g}],AXIS["Easting",{east}],AXIS["Northing",{north}]]'
    )


def _with_zone(keys: GeoKeys) -> GeoKeys:
    """Write out a zone of UTM, which EPSG has codes of its own for: 16001 to 16060, and 16101 to 16160 in the south."""
    hemisphere, zone = divmod(_number(keys, 3074) - 16000, 100)
    if hemisphere not in (0, 1) or not 1 <= zone <= 60:
        return keys
    size = length_of(keys)[1]
    places = {3080: 6.0 * zone - 183, 3081: 0.0, 3092: 0.9996, 3082: 5e5 / size, 3083: 1e7 * hemisphere / size}
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
    datums = {_USER_DEFINED: code, -1: code, **{number: system for system, (*_, number) in _SYSTEMS.items()}}
    if _number(keys, 2050) not in datums:
        return None
    code = datums[_number(keys, 2050)]
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
