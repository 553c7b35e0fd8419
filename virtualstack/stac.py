"""STAC: items of a catalog opened as one cube, and an item that says where a cube is and how it is opened."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.api.many import open_virtual_mfdataset
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError, ReaderError, Remedy
from virtualstack.loading import pyproj_if_safe
from virtualstack.location import absolute_url, join_url
from virtualstack.printable import first_names
from virtualstack.storage import Permission, Storage, StorageLike

_DATACUBE = "https://stac-extensions.github.io/datacube/v2.2.0/schema.json"
_XARRAY = "https://stac-extensions.github.io/xarray-assets/v1.0.0/schema.json"
_MOST_VALUES = 100
"""Labels of a dimension that an item lists; of more, it has the first and the last."""


# -- items in -------------------------------------------------------------------------------------------------


def open_items(
    items: Any,
    /,
    assets: str | Sequence[str] | None = None,
    *,
    dim: str = "time",
    properties: Sequence[str] = (),
    storage: StorageLike = None,
    **options: Any,
) -> xr.Dataset:
    """Open assets of STAC items as one virtual dataset, with the dates of the items as labels.

    Each asset becomes a variable with the asset's name, or keeps the names of its variables if it has several. Images
    get a new dimension with the dates of their items; the dimension ``band`` of images with one band is left out.
    Files that have labels of their own, such as netCDF, are joined by them. An item that lacks an asset has missing
    values there.

    When to use: a catalog describes files on one grid, such as the scenes of one tile. Alternatives:
    :func:`virtualstack.open_virtual_mfdataset` for paths and patterns; scenes on several grids need a tool that
    resamples, such as odc-stac.

    Parameters
    ----------
    items
        Items of pystac or as dicts, an item collection, or a path or URL of a GeoJSON file of items, as a search of a
        catalog gives them.
    assets
        Names of assets. By default: those whose role is ``"data"``; if an item says nothing of roles, all images.
    dim
        Name of the dimension of dates.
    properties
        Properties of items that become coordinates along the dates, such as ``"eo:cloud_cover"``.
    storage
        Access to the files, as in :func:`virtualstack.open_virtual_mfdataset`.
    options
        Other options of :func:`virtualstack.open_virtual_mfdataset`, such as ``duplicates``.

    Returns
    -------
    xarray.Dataset
        A virtual dataset, in the order of dates.

    Raises
    ------
    ReaderError
        There are no items, or none of them has the assets or the properties.
    CombineError
        The items are on grids or in reference systems that differ, or two of them have the same date: the message
        shows both. Or the cube has other labels than the dates of the items, and ``properties`` are asked for.
    ForbiddenLocationError
        Items that came over a network name a local file or a private host.
    StorageError
        A file cannot be read.

    Examples
    --------
    >>> import virtualstack as vs
    >>> scenes = vs.sample.scenes("scenes")
    >>> items = [
    ...     {
    ...         "id": day,
    ...         "properties": {"datetime": f"{day}T10:00:00Z"},
    ...         "assets": {band: {"href": f"scenes/T32UPU_{day}_{band}.tif"} for band in ("B04", "B08")},
    ...     }
    ...     for day in ("2024-04-06", "2024-05-11")
    ... ]
    >>> cube = vs.stac.open_items(items, ["B04", "B08"])
    >>> dict(cube["B08"].sizes)
    {'time': 2, 'y': 256, 'x': 256}
    """
    storage = Storage.from_option(storage)
    found, bases = _items(items, storage)
    found.sort(key=_date)
    if not found:
        raise ReaderError("there are no items", Remedy("look whether the search found some"))
    names = [assets] if isinstance(assets, str) else list(assets or dict.fromkeys(x for i in found for x in _data(i)))
    urls = [absolute_url(item["assets"][name]["href"]) for name in names for item in found if name in item["assets"]]
    for base in bases:  # items from a network may name what references from a network may
        permission = Permission.from_allow(base, options.get("allow"))
        permission.check(urls)
        storage = storage.only(permission)
    cubes = []
    for name in names:
        having = [item for item in found if name in item["assets"]]
        if not having:
            known = sorted({x for item in found for x in item["assets"]})
            raise ReaderError(f"no item has the asset {name!r}; they have {first_names(known)}")
        _check_systems(name, having)
        cubes.append(_asset_cube(name, having, dim, storage, options))
    dates = reduce(np.union1d, [cube[dim].values for cube in cubes if dim in cube.indexes], np.zeros(0, "M8[ns]"))
    cubes = [x.virtual.reindex({dim: dates}) if dim in x.indexes else x for x in cubes]
    try:
        cube: xr.Dataset = xr.merge(cubes, join="exact", compat="no_conflicts", combine_attrs="drop_conflicts")
    except ValueError as error:  # of xarray, which names the dimension
        raise CombineError(
            f"the assets {first_names(names)} are not on one grid: {error}",
            Remedy("open the assets of each grid apart with", assets=[...]),
            property="grid",
        ) from error
    by_date = {_date(x): x["properties"] for x in (found[::-1] if options.get("duplicates") == "first" else found)}
    for key in properties:
        cube = cube.assign_coords({key: (dim, _property(key, cube.indexes.get(dim), by_date))})
    return cube


def _property(
    key: str, dates: pd.Index[Any] | None, by_date: Mapping[pd.Timestamp, Mapping[str, Any]]
) -> Sequence[Any] | NDArray[Any]:
    """Return a property of the items of some dates."""
    if all(key not in x for x in by_date.values()):
        known = sorted({name for x in by_date.values() for name in x})
        raise ReaderError(f"no item has the property {key!r}; they have {first_names(known)}")
    if dates is None or any(date not in by_date for date in dates):
        raise CombineError(
            f"property {key!r} is known at the dates of the items, but files have labels of their own",
            Remedy("leave it out of", properties=...),
            variable=key,
            property="labels",
        )
    found = [by_date[date].get(key) for date in dates]
    return pd.Series(found).to_numpy() if None in found else found


def _asset_cube(
    name: str, items: Sequence[Mapping[str, Any]], dim: str, storage: StorageLike, options: Mapping[str, Any]
) -> xr.Dataset:
    urls = [item["assets"][name]["href"] for item in items]
    is_image = _is_image(items[0]["assets"][name])
    labels = {dim: [_date(item) for item in items]} if is_image else None
    cube = open_virtual_mfdataset(urls, storage=storage, new_dim=labels, **options)
    if is_image and cube.sizes.get("band") == 1:
        cube = cube.isel(band=0, drop=True)
    return cube.rename({next(iter(cube.data_vars)): name}) if len(cube.data_vars) == 1 else cube


def _items(items: Any, storage: Storage) -> tuple[list[dict[str, Any]], set[str]]:
    """Return items as dicts whose assets have absolute URLs, and the URLs from which the items came."""
    base: str | None = None
    if isinstance(items, str | os.PathLike):
        base = absolute_url(items)
        source = storage.source(base)
        items = json.loads(bytes(source.read(0, source.size)))
    if isinstance(items, Mapping):
        items = items.get("features", [items])
    made, bases = [], set[str]()
    for item in items:
        beside = base
        if hasattr(item, "to_dict"):
            beside, item = item.get_self_href(), item.to_dict(transform_hrefs=False)
        if lacking := [key for key in ("assets", "properties") if key not in item]:
            raise ReaderError(f"item {item.get('id')!r} has no {lacking[0]}: it is no item of STAC")
        assets = {name: {**asset, "href": _href(beside, asset["href"])} for name, asset in item["assets"].items()}
        made.append({**item, "assets": assets})
        if beside:
            bases.add(f"{absolute_url(beside).rpartition('/')[0]}/items")  # items of one folder have one permission
    return made, bases


def _href(beside: str | None, href: str) -> str:
    if "://" in href or href.startswith("/") or not beside:
        return href
    return join_url(absolute_url(beside).rpartition("/")[0], href)


def _date(item: Mapping[str, Any]) -> pd.Timestamp:
    about = item["properties"]
    date = pd.Timestamp(about.get("datetime") or about.get("start_datetime"))
    return date if date.tz is None else date.tz_convert(None)


def _data(item: Mapping[str, Any]) -> list[str]:
    """Return the assets of an item that hold data."""
    assets = item["assets"]
    by_role = [name for name, asset in assets.items() if "data" in (asset.get("roles") or ())]
    return by_role or [name for name, asset in assets.items() if not asset.get("roles") and _is_image(asset)]


def _is_image(asset: Mapping[str, Any]) -> bool:
    kind = asset.get("type")
    path = asset["href"].partition("?")[0].lower()
    return str(kind).startswith("image/tiff") or (not kind and path.endswith((".tif", ".tiff")))


def _check_systems(name: str, items: Sequence[Mapping[str, Any]]) -> None:
    """Raise an error if items say that they have several reference systems: equal numbers would be other places."""
    systems: dict[str, str] = {}
    for item in items:
        for key in ("proj:code", "proj:epsg"):
            system = item["assets"][name].get(key, item["properties"].get(key))
            if system is not None:
                systems.setdefault(str(system), str(item.get("id")))
                break
    if len(systems) > 1:
        (a, first), (b, other) = list(systems.items())[:2]
        raise CombineError(
            f"asset {name!r} has the reference system {a} in item {first!r} and {b} in item {other!r}",
            Remedy("open the items of each system apart"),
            variable=name,
            property="reference system",
            left=a,
            right=b,
        )


# -- a cube out -----------------------------------------------------------------------------------------------


def make_item(
    cube: xr.Dataset,
    href: str | os.PathLike[str],
    /,
    id: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> dict[str, Any]:
    """Return a STAC item of a cube: its place, dates, dimensions and variables, and how xarray opens it.

    ``pystac.Item.from_dict`` takes the item, which is plain JSON. It has the extensions datacube 2.2 and xarray-assets
    1.0, so that xpystac and others open its asset with ``engine="virtualstack"``. The place comes from coordinates
    with units of degrees, or from the grid mapping if pyproj is installed. Without either, the item has no geometry.

    Parameters
    ----------
    cube
        The cube, virtual or opened; only its labels are used.
    href
        Path or URL of the references or the store that the item is about.
    id
        Identifier of the item.
    storage_options
        Options of ``storage=`` that everybody needs, such as ``{"s3://bucket/": {"anonymous": True}}``; no secrets.
    title
        Title of the asset.

    Returns
    -------
    dict
        The item.

    Examples
    --------
    >>> import virtualstack as vs
    >>> cube = vs.open_virtual_mfdataset(vs.sample.model("data"))
    >>> item = vs.stac.make_item(cube, "s3://bucket/model.vstack", "model")
    >>> item["properties"]["start_datetime"], item["bbox"]
    ('2024-06-01T00:00:00Z', [-180.0, -87.0, 174.0, 87.0])
    """
    bbox = _bbox(cube)
    dates = [x for x in (_extent(cube.coords[dim]) for dim in map(str, cube.indexes)) if x and isinstance(x[0], str)]
    times: dict[str, Any] = {"datetime": None}
    if dates:
        times |= {"start_datetime": min(x[0] for x in dates), "end_datetime": max(x[1] for x in dates)}
    else:
        times["datetime"] = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    described = {"cube:dimensions": _dimensions(cube), "cube:variables": _variables(cube)}
    opening: dict[str, Any] = {"engine": "virtualstack", "chunks": {}}
    if storage_options is not None:
        opening["storage"] = dict(storage_options)
    asset = {"href": os.fspath(href), "roles": ["data"], "xarray:open_kwargs": opening}
    return {
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": [_DATACUBE, _XARRAY],
        "id": id,
        "geometry": None if bbox is None else _polygon(*bbox),
        **({} if bbox is None else {"bbox": list(bbox)}),
        "properties": {**times, **described},
        "links": [],
        "assets": {"cube": asset if title is None else {**asset, "title": title}},
    }


def _variables(cube: xr.Dataset) -> dict[str, Any]:
    made = {}
    for name, variable in cube.variables.items():
        if name in cube.indexes:
            continue
        about = {"type": "auxiliary" if name in cube.coords else "data", "dimensions": [*map(str, variable.dims)]}
        made[str(name)] = about | {
            key: text
            for key, source in (("description", "long_name"), ("unit", "units"))
            if isinstance(text := variable.attrs.get(source, variable.encoding.get(source)), str)
        }
    return made


def _dimensions(cube: xr.Dataset) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for dim in cube.sizes:
        if dim not in cube.indexes:
            made[str(dim)] = {"type": "index", "extent": [0, cube.sizes[dim] - 1]}
            continue
        labels, extent = cube[dim], _extent(cube[dim])
        axis = _axis(labels)
        kind = {"type": "temporal"} if extent and isinstance(extent[0], str) else {"type": str(dim)}
        if axis is not None:
            kind = {"type": "spatial", "axis": axis}
        made[str(dim)] = kind | ({} if extent is None else {"extent": list(extent)})
        if extent is None or (kind["type"] == dim and labels.size <= _MOST_VALUES):
            made[str(dim)] |= {"values": labels.values.tolist()[:_MOST_VALUES]}
        if isinstance(unit := labels.attrs.get("units"), str):
            made[str(dim)]["unit"] = unit
    return made


_AXES = (
    ("y", r"degrees?_?n(orth)?|latitude|projection_y_.*|grid_latitude|y"),
    ("x", r"degrees?_?e(ast)?|longitude|projection_x_.*|grid_longitude|x"),
    ("z", r"air_pressure|height|depth|altitude|z"),
)


def _axis(labels: xr.DataArray) -> str | None:
    """Return the axis in space that labels are along, by what CF conventions say of them."""
    words = [str(labels.attrs.get(key, "")).lower() for key in ("units", "standard_name", "axis")]
    words.append(str(labels.name).lower() if str(labels.name).lower() in ("x", "y") else "")
    return next((axis for axis, pattern in _AXES if any(re.fullmatch(pattern, x) for x in words)), None)


def _extent(labels: xr.DataArray) -> tuple[Any, Any] | None:
    """Return the smallest and the largest label: numbers, or dates as text."""
    values = labels.values
    if not values.size or values.dtype.kind not in "iufMO":
        return None
    if values.dtype.kind == "M":
        texts = np.datetime_as_string(np.array([values.min(), values.max()]), unit="s")
        return f"{texts[0]}Z", f"{texts[1]}Z"
    if values.dtype.kind == "O":
        if not hasattr(values.flat[0], "isoformat"):
            return None
        return f"{min(values.flat).isoformat()}Z", f"{max(values.flat).isoformat()}Z"
    return values.min().item(), values.max().item()


def _bbox(cube: xr.Dataset) -> tuple[float, float, float, float] | None:
    """Return west, south, east and north of the cells' centres, or ``None`` if they are not known.

    West is greater than east if the cube goes over the date line.
    """
    degrees: dict[str, Any] = {}
    for axis, pattern in (("x", r"degrees?_?e(ast)?"), ("y", r"degrees?_?n(orth)?")):
        for coordinate in cube.coords.values():
            is_loaded = virtual_array(coordinate.variable) is None
            if is_loaded and re.fullmatch(pattern, str(coordinate.attrs.get("units", "")).lower()):
                degrees.setdefault(axis, coordinate.values)
    if len(degrees) == 2:
        lons, lats = (np.asarray(degrees[x], np.float64) for x in "xy")
        west, east = _west_and_east(lons)
        return _rounded(west, np.nanmin(lats), east, np.nanmax(lats))
    pyproj = pyproj_if_safe()
    names = [str(x.attrs.get("grid_mapping", x.encoding.get("grid_mapping"))) for x in cube.variables.values()]
    mapping = next((cube.variables[x] for x in (*names, "spatial_ref") if x in cube.variables), None)
    if pyproj is None or mapping is None or not {"x", "y"} <= cube.indexes.keys():
        return None
    try:
        system = pyproj.CRS.from_cf(dict(mapping.attrs))
    except (pyproj.exceptions.CRSError, KeyError, TypeError):
        return None
    x, y = cube["x"].values, cube["y"].values
    ends = pyproj.Transformer.from_crs(system, 4326, always_xy=True).transform_bounds(
        x.min(), y.min(), x.max(), y.max()
    )
    return _rounded(*ends) if np.isfinite(ends).all() else None


_GAP = 10.0
"""Degrees between two longitudes that may belong to a cube all around the Earth."""


def _west_and_east(longitudes: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ends of longitudes between -180 and 180; west is greater if they go over the date line."""
    if np.nanmax(longitudes) <= 180:
        return np.nanmin(longitudes), np.nanmax(longitudes)
    at = np.unique((longitudes[np.isfinite(longitudes)] + 180) % 360 - 180)
    gaps = np.diff(at, append=at[0] + 360)
    widest = int(gaps.argmax())
    is_around = gaps[widest] <= max(_GAP, 1.5 * float(np.median(gaps)))
    return (at[0], at[-1]) if is_around else (at[(widest + 1) % len(at)], at[widest])


def _rounded(*ends: float) -> tuple[float, float, float, float]:
    west, south, east, north = (round(float(x), 7) for x in ends)
    return west, south, east, north


def _polygon(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    if west > east:
        parts = [_polygon(west, south, 180.0, north), _polygon(-180.0, south, east, north)]
        return {"type": "MultiPolygon", "coordinates": [x["coordinates"] for x in parts]}
    corners = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [corners]}
