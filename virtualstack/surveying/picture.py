"""The map of a cube: the first slice of a variable on a grid, at its place, where few bytes hold it.

Where cells are, and which variable is shown, follow the page of the server (``serve/page/src/locate.ts``).
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions

from virtualstack.drawing.coast import Project
from virtualstack.drawing.geometry import Floats, Raster, edges, lattice, mesh
from virtualstack.drawing.picture import svg_picture
from virtualstack.lazy import lazy_variable
from virtualstack.loading import pyproj_if_safe
from virtualstack.location import is_remote
from virtualstack.manifests import FIRST, RASTER_DECODING, ManifestArray, ManifestGroup
from virtualstack.rasters import raster_variable
from virtualstack.storage import Storage, StorageLike
from virtualstack.storage.threads import concurrently, thread_pool

_SECONDS = 2.0
_MAX_TRIED = 8
_MAX_NAME = 40
_MAX_ELEMENTS = 1 << 22
_MAX_DECODED_BYTES = 1 << 26
_MAX_CHUNKS = {True: 24, False: 1024}  # of remote and of local sources
_METRES = {"m": 1.0, "metre": 1.0, "metres": 1.0, "meter": 1.0, "meters": 1.0, "km": 1000.0}
_MAX_BYTES = {True: 1 << 21, False: 1 << 24}


class Picture:
    """The map of a cube as HTML, made when it is first shown, in a thread: whoever shows it waits 2 s at most.

    Stored chunks are read once, at the same time, and only few: see ``_is_cheap``. Nothing is shown if no variable is
    on a grid, or if reading fails.
    """

    def __init__(self, group: Callable[[], ManifestGroup], storage: StorageLike = None, /) -> None:
        self._group = group
        self._storage = storage
        self._drawing: Future[str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_drawing": None}

    def html(self) -> str:
        """Return the map, or an empty text."""
        seconds = _SECONDS if self._drawing is None else 0.0
        try:
            if self._drawing is None:
                self._drawing = thread_pool("pictures", 2).submit(lambda: _draw(self._group(), self._storage))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self._drawing.result(seconds)
        except Exception:  # noqa: BLE001 - what is shown beside the facts must not keep them back
            return ""


@dataclass(frozen=True, slots=True)
class _Role:
    """Which axis of a map a coordinate is along."""

    is_x: bool
    is_geographic: bool


_PATTERNS = (
    ("units", r"degrees?_?n(orth)?", _Role(False, True)),
    ("standard_name", r"latitude", _Role(False, True)),
    ("units", r"degrees?_?e(ast)?", _Role(True, True)),
    ("standard_name", r"longitude", _Role(True, True)),
    ("standard_name", r"grid_latitude|projection_y_.*", _Role(False, False)),
    ("axis", r"y", _Role(False, False)),
    ("standard_name", r"grid_longitude|projection_x_.*", _Role(True, False)),
    ("axis", r"x", _Role(True, False)),
)
_NAMES = (
    (r"(nav_)?lat(itude)?", _Role(False, True)),
    (r"(nav_)?lon(gitude)?", _Role(True, True)),
    (r"y|yc|rlat|northing", _Role(False, False)),
    (r"x|xc|rlon|easting", _Role(True, False)),
)


def _role(name: str, array: ManifestArray) -> _Role | None:
    """Return what a coordinate says of itself, or else its name."""
    for key, pattern, role in _PATTERNS:
        if re.fullmatch(pattern, str(array.attributes.get(key, "")), re.IGNORECASE):
            return role
    units = str(array.attributes.get("units", ""))
    for pattern, role in _NAMES:
        if re.fullmatch(pattern, name, re.IGNORECASE):
            return replace(role, is_geographic=role.is_geographic and (not units or units.startswith("deg")))
    return None


@dataclass(frozen=True, slots=True)
class _Grid:
    """The two dimensions of a map in the order of the array, and the paths of its coordinates and grid mapping."""

    dims: tuple[str, str]
    x: str
    y: str
    is_mesh: bool
    is_geographic: bool
    mapping: str | None


class _Cube:
    """The arrays of a group and of all below it, by their paths."""

    def __init__(self, group: ManifestGroup) -> None:
        self.arrays = group.all_arrays()
        self.coordinates = {f"{path}/{name}".strip("/") for path, node in group.walk() for name in node.coordinates}

    def find(self, name: str, beside: str) -> str | None:
        """Return the path of a name in the group of an array, or in the root."""
        places = (f"{beside.rpartition('/')[0]}/{name}".strip("/"), name)
        return next((path for path in places if path in self.arrays), None)

    def named(self, path: str, key: str) -> list[str]:
        """Return the paths of variables that an attribute names."""
        value = self.arrays[path].attributes.get(key)
        words = value.replace(":", " ").split() if isinstance(value, str) else map(str, np.ravel(value or ()))
        return [found for word in words if (found := self.find(word, path))]

    def candidates(self) -> list[str]:
        """Return the variables that make a picture, the largest first."""
        keys = ("bounds", "climatology", "coordinates", "grid_mapping", "ancillary_variables")
        helpers = {found for path in self.arrays for key in keys for found in self.named(path, key)} | self.coordinates
        pictures = [
            path
            for path, array in self.arrays.items()
            if path not in helpers
            and array.ndim > 1
            and array.dtype.kind in "iufb"
            and not re.search(r"(^|/)(expver|spatial_ref)$|_(bnds|bounds)$", path)
        ]
        return sorted(pictures, key=lambda path: -self.arrays[path].nbytes)

    def grid(self, path: str) -> _Grid | None:
        """Return where a variable has its cells, or ``None`` if it has no two dimensions in space."""
        dims = self.arrays[path].dimension_names or ()
        along: dict[bool, tuple[str, str, _Role]] = {}
        for dim in dims:
            found = self.find(dim, path)
            array = None if found is None else self.arrays[found]
            if found and array is not None and array.dimension_names == (dim,) and array.dtype.kind in "iuf":
                role = _role(dim, array)
                if role is not None:
                    along.setdefault(role.is_x, (dim, found, role))
        mapping = next(iter(self.named(path, "grid_mapping")), None)
        curved = [self._curved(path, is_x=is_x) for is_x in (True, False)]
        is_lined = len(along) == 2
        if all(curved) and not (is_lined and (mapping or along[True][2].is_geographic)):
            x, y = map(str, curved)
            names = self.arrays[y].dimension_names or ()
            return _Grid((names[-2], names[-1]), x, y, True, True, None)
        if not is_lined:
            return None
        first, second = sorted((along[True][0], along[False][0]), key=dims.index)
        is_geographic = along[True][2].is_geographic and along[False][2].is_geographic
        return _Grid((first, second), along[True][1], along[False][1], False, is_geographic, mapping)

    def _curved(self, path: str, *, is_x: bool) -> str | None:
        """Return a coordinate of two or more dimensions of a variable that is its longitude or latitude."""
        dims = self.arrays[path].dimension_names or ()
        beside = [other for other in self.arrays if other.rpartition("/")[0] == path.rpartition("/")[0]]
        for other in (*self.named(path, "coordinates"), *beside):
            array = self.arrays[other]
            own = array.dimension_names or ()
            role = _role(other.rpartition("/")[2], array)
            if (
                other != path
                and len(own) > 1
                and role == _Role(is_x, True)
                and own == tuple(x for x in dims if x in own)
            ):
                return other
        return None


def _draw(root: ManifestGroup, storage: StorageLike) -> str:
    """Return the map of the first of the largest variables that has one at little cost."""
    cube = _Cube(root)
    for path in cube.candidates()[:_MAX_TRIED]:
        grid = cube.grid(path)
        if grid is not None and _is_cheap([_first(cube.arrays[x], grid) for x in (path, grid.x, grid.y)]):
            return _map(cube, path, grid, storage)
    return ""


def _first(array: ManifestArray, grid: _Grid) -> ManifestArray:
    return array[tuple(slice(None) if dim in grid.dims else 0 for dim in array.dimension_names or ())]


def _is_cheap(arrays: Sequence[ManifestArray]) -> bool:
    """Return whether few bytes of few chunks hold arrays."""
    is_far = any(url is not None and is_remote(url) for url in (x.a_url() for x in arrays))
    if max(x.size for x in arrays) > _MAX_ELEMENTS or min(arrays[0].shape) < 2:
        return False
    if sum(math.prod(x.grid.shape) for x in arrays) > _MAX_CHUNKS[is_far]:
        return False
    stored = decoded = 0
    for array in arrays:
        manifest = array.in_memory()
        is_coded = np.array([bool(x.codecs) for x in manifest.encodings] or [False])[manifest.encoding_rows]
        sizes = np.array([x.size * x.dtype.itemsize for x in manifest.encodings] or [0])[manifest.encoding_rows]
        stored += int(manifest.entries["length"][is_coded & (manifest.entries["location"] >= FIRST)].sum())
        decoded += int(sizes[is_coded & ~manifest.holes].sum())
        if not is_coded.all():  # of numbers as they are in memory, those of the map are read alone
            stored += array.nbytes
    return stored <= _MAX_BYTES[is_far] and decoded <= _MAX_DECODED_BYTES


def _map(cube: _Cube, path: str, grid: _Grid, storage: StorageLike) -> str:
    """Read the first slice of a variable with its coordinates, all at the same time, and return its map."""
    array = cube.arrays[path]
    about = {**array.attributes, **array.cf}
    if str(about.get("_Unsigned")) == "true" and "flag_values" in about:  # netCDF-3 has signed attributes alone
        n = array.dtype.itemsize
        about["flag_values"] = np.asarray(about["flag_values"]).astype(f"i{n}").view(f"u{n}")
    masks = re.findall(r"mask=(\S+)", str(about.get(RASTER_DECODING, "")))
    wanted = [path, grid.x, grid.y]
    beside = [found for name in ("band", *masks) if (found := cube.find(name, path))]
    arrays = {x.rpartition("/")[2]: cube.arrays[x] for x in (*beside, *wanted)}
    lazy = {name: _decoded(name, array, Storage.from_option(storage)) for name, array in arrays.items()}
    dataset = xr.Dataset(coords=xr.Coordinates(lazy, indexes={}))

    def read(path: str) -> NDArray[Any]:
        name = path.rpartition("/")[2]
        variable = raster_variable(dataset, name) or dataset.variables[name]
        return np.asarray(variable.isel({dim: 0 for dim in variable.dims if dim not in grid.dims}).values)

    values, x, y = concurrently(read, wanted, [cube.arrays[name].a_url() for name in wanted])
    raster, places, project = _located(cube, grid, x, y)
    if raster is None:
        return ""
    others = [(dim, n) for dim, n in zip(array.dimension_names or (), array.shape, strict=True) if dim not in grid.dims]
    steps = ", ".join(f"first of {n:,} along {dim}" for dim, n in others if n > 1)
    name = about.get("long_name")
    long = f" ({name[:_MAX_NAME]})" if isinstance(name, str) and name else ""
    return svg_picture(
        values, raster, about, title=f"{path}{long}{steps and f', {steps}'}", places=places, project=project
    )


def _decoded(name: str, array: ManifestArray, storage: Storage) -> xr.Variable:
    """Return the values of an array as ``xr.open_dataset`` decodes them; nothing is read yet."""
    lazy = lazy_variable(array, storage, absent="fill", task_bytes="64 MiB")
    return conventions.decode_cf_variable(name, lazy, decode_times=False, decode_timedelta=False)


def _located(cube: _Cube, grid: _Grid, x: NDArray[Any], y: NDArray[Any]) -> tuple[Raster | None, str, Project | None]:
    """Return which cell each pixel shows, what the map covers in words, and where places are in its plane if known."""
    if grid.is_mesh:
        raster = mesh(x, y)
        if raster is None:
            return None, "", None
        if raster.pole:
            return raster, f"around the {'North' if raster.pole > 0 else 'South'} Pole", raster.at
        return raster, f"{_span(raster.x, 'WE')}, {_span(raster.y, 'SN')}", raster.at
    units = [str(cube.arrays[name].attributes.get("units", "")) for name in (grid.x, grid.y)]
    lines = edges(x, is_longitude=grid.is_geographic), edges(y, most=90 if grid.is_geographic else math.inf)
    is_plane = grid.is_geographic or (units[0] == units[1] and (bool(units[0]) or grid.mapping is not None))
    is_swapped = grid.x.rpartition("/")[2] == grid.dims[0]
    if lines[0] is not None and lines[1] is not None and is_plane:
        raster = lattice(lines[0], lines[1], is_swapped=is_swapped)
        if grid.is_geographic:
            return raster, f"{_span(raster.x, 'WE')}, {_span(raster.y, 'SN')}", raster.at
        ends = [f"{name} {low:.7g} to {high:.7g}" for name, (low, high) in (("x", raster.x), ("y", raster.y))]
        project = None if grid.mapping is None else _projection(cube.arrays[grid.mapping].attributes, units[0])
        return raster, f"{', '.join(ends)} {units[0]}".strip(), project
    rows, columns = (x, y) if is_swapped else (y, x)
    is_up = rows[0] < rows[1] and cube.arrays[grid.x if is_swapped else grid.y].attributes.get("positive") != "down"
    squares = [np.arange(len(line) + 1) - 0.5 for line in (columns, rows)]
    raster = lattice(squares[0], squares[1] * (1 if is_up else -1), is_swapped=False)
    return raster, f"{len(columns)} x {len(rows)} cells", None


def _projection(mapping: Mapping[str, Any], units: str) -> Project | None:
    """Return where a grid mapping has places, in units of its coordinates; ``None`` without pyproj or if not known."""
    pyproj = pyproj_if_safe()
    if pyproj is None:
        return None
    try:
        crs = pyproj.CRS.from_cf(dict(mapping))
        to_plane = pyproj.Transformer.from_crs(crs.geodetic_crs, crs, always_xy=True)
    except (pyproj.exceptions.ProjError, KeyError, TypeError, ValueError):
        return None
    axis = crs.axis_info[0]
    if mapping.get("grid_mapping_name") == "geostationary" and units not in _METRES:  # angles, seen from the satellite
        one = float(mapping["perspective_point_height"]) * (1e-6 if re.match("micro|[uµ]", units) else 1)
    elif units in ("", axis.unit_name) or (units.startswith("deg") and axis.unit_name == "degree"):
        one = 1.0
    elif units in _METRES:
        one = _METRES[units] / axis.unit_conversion_factor
    else:
        return None

    def project(longitudes: Floats, latitudes: Floats) -> tuple[Floats, Floats]:
        x, y = to_plane.transform(longitudes, latitudes)
        return x / one, y / one

    return project


def _span(ends: tuple[float, float], signs: str) -> str:
    """Return a range of longitudes or latitudes as text."""

    def place(x: float) -> str:
        at = x if signs == "SN" else x - 360 * round(x / 360)
        return f"{abs(at):.4g} °{signs[at > 0]}" if at % 180 else f"{abs(at):g}°"

    return "all longitudes" if ends[1] - ends[0] >= 360 else f"{place(ends[0])} to {place(ends[1])}"
