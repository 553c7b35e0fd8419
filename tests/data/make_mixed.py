"""Small files of one archive that differ in how they store their variables, by three libraries.

``python tests/data/make_mixed.py FOLDER`` writes one of each library.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
from scipy.io import netcdf_file

NETCDF = {
    "netcdf4": "NETCDF4",
    "netcdf4_classic": "NETCDF4_CLASSIC",
    "netcdf3": "NETCDF3_CLASSIC",
    "netcdf3_64bit": "NETCDF3_64BIT_OFFSET",
    "cdf5": "NETCDF3_64BIT_DATA",
}
HDF5_WRITERS = ("netcdf4", "netcdf4_classic", "compact")
CODECS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "zlib1": {"compression": "zlib", "complevel": 1},
    "zlib9": {"compression": "zlib", "complevel": 9},
    "zstd": {"compression": "zstd", "complevel": 3},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one file stores a cube ``v(time, y, x)``, its coordinates, and what else is asked for.

    Parameters
    ----------
    n, first
        Records, and days from 2000-01-01 to the first of them; values depend on ``first``.
    tile
        Number of the tile along ``x``; the coordinate goes on from the tile before.
    writer
        ``netcdf4``, ``netcdf4_classic``, ``netcdf3``, ``netcdf3_64bit``, ``cdf5`` of the netCDF library, ``scipy``
        (netCDF-3), or ``compact``: HDF5 with all values in the headers, by h5py.
    dims
        Order of the dimensions of ``v``; formats other than ``netcdf4`` and ``compact`` want ``time`` first.
    dtype, endian
        Of the stored numbers of ``v``; only netCDF-4 has ``big`` beside ``native``.
    chunks
        Lengths of the chunks of ``v`` along ``time``, ``y`` and ``x``; ``None`` leaves them to the library, and
        ``"contiguous"`` asks for no chunks.
    codec, shuffle, fletcher32
        Filters of ``v``; a codec of :data:`CODECS`.
    scale, offset
        ``scale_factor`` and ``add_offset`` of ``v``, their dtype included, or ``None``.
    fill, missing
        ``_FillValue`` and ``missing_value`` of ``v``, or ``None``; where there is one, some values are it.
    unsigned
        ``_Unsigned`` of ``v``, or ``None``.
    written
        Records of ``v`` that are written, where ``time`` comes first; ``None`` for all.
    attributes
        Further ones of ``v``.
    units, calendar
        Of the coordinate ``time``.
    bounds
        Whether there are bounds of ``time``, without units of their own.
    run_units, run_calendar
        Of a variable ``run(time)`` of dates; no units for no such variable.
    height
        Value of a scalar coordinate ``height`` of ``v``; ``None`` for none.
    label
        Length of texts ``label(time, letters)`` of characters; ``None`` for none.
    name
        Whether there are strings of variable length, ``name(time)``.
    flag
        ``bool``, or a dtype of numbers, of a variable ``flag(time)``; ``None`` for none.
    only
        Whether there is a variable ``only(time)``.
    """

    n: int = 5
    first: int = 0
    tile: int = 0
    writer: str = "netcdf4"
    dims: tuple[str, str, str] = ("time", "y", "x")
    dtype: str = "f4"
    endian: str = "native"
    chunks: tuple[int, int, int] | str | None = (4, 2, 6)
    codec: str = "none"
    shuffle: bool = False
    fletcher32: bool = False
    scale: np.floating | None = None
    offset: np.floating | None = None
    fill: float | None = None
    missing: float | None = None
    unsigned: str | None = None
    written: int | None = None
    attributes: tuple[tuple[str, str], ...] = (("units", "K"),)
    units: str = "days since 2000-01-01"
    calendar: str = "standard"
    bounds: bool = False
    run_units: str | None = None
    run_calendar: str = "standard"
    height: float | None = None
    label: int | None = None
    name: bool = False
    flag: str | None = None
    only: bool = False

    @property
    def is_hdf5(self) -> bool:
        return self.writer in HDF5_WRITERS

    @property
    def packing(self) -> dict[str, Any]:
        """Attributes of ``v`` that change values."""
        dtype = np.dtype(self.dtype)
        found = {
            "scale_factor": self.scale,
            "add_offset": self.offset,
            "_FillValue": None if self.fill is None else dtype.type(self.fill),
            "missing_value": None if self.missing is None else dtype.type(self.missing),
            "_Unsigned": self.unsigned,
        }
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A variable as it is written: raw values, of which only the first ``written`` records are."""

    name: str
    dims: tuple[str, ...]
    values: np.ndarray
    attributes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    written: int | None = None


SIZES = {"y": 4, "x": 6}


def write(recipe: Recipe, path: Path) -> Path:
    """Write the file of a recipe."""
    write_with = {"compact": _write_h5py, "scipy": _write_scipy}.get(recipe.writer, _write_netcdf)
    write_with(recipe, path)
    return path


def variables(recipe: Recipe) -> list[Stored]:
    """Give all variables of a file."""
    found = [_times("time", recipe, recipe.units, "f8", recipe.calendar)]
    found += [
        Stored(name="y", dims=("y",), values=np.arange(SIZES["y"], dtype="f4")),
        Stored(name="x", dims=("x",), values=np.arange(SIZES["x"], dtype="f4") + recipe.tile * SIZES["x"]),
        _cube(recipe),
    ]
    if recipe.run_units is not None:
        found.append(_times("run", recipe, recipe.run_units, "i4", recipe.run_calendar))
    if recipe.bounds:
        starts = found[0].values
        found[0] = replace(found[0], attributes={**found[0].attributes, "bounds": "time_bounds"})
        found.append(Stored(name="time_bounds", dims=("time", "two"), values=np.stack([starts, starts + 1], 1)))
    if recipe.height is not None:
        found.append(Stored(name="height", dims=(), values=np.array(recipe.height), attributes={"units": "m"}))
    if recipe.label is not None:
        texts = np.array([f"{'L' * recipe.label}{i}"[-recipe.label :] for i in range(recipe.n)], f"S{recipe.label}")
        letters = texts.view("S1").reshape(recipe.n, recipe.label)
        found.append(Stored(name="label", dims=("time", "letters"), values=letters))
    if recipe.name:
        texts = np.array([f"{'name' * (i % 3)}{recipe.first + i}" for i in range(recipe.n)], object)
        found.append(Stored(name="name", dims=("time",), values=texts))
    if recipe.flag is not None:
        attributes = {"dtype": "bool"} if recipe.flag == "bool" else {}
        values = (np.arange(recipe.n) % 2).astype("i1" if attributes else recipe.flag)
        found.append(Stored(name="flag", dims=("time",), values=values, attributes=attributes))
    if recipe.only:
        found.append(Stored(name="only", dims=("time",), values=np.arange(recipe.n, dtype="i4")))
    return found


def _times(name: str, recipe: Recipe, units: str, dtype: str, calendar: str) -> Stored:
    step, _, origin = units.partition(" since ")
    unit: Any = {"days": "D", "hours": "h", "seconds": "s"}[step]
    dates = np.datetime64("2000-01-01", "s") + np.arange(recipe.first, recipe.first + recipe.n) * np.timedelta64(1, "D")
    values = ((dates - np.datetime64(origin, "s")) / np.timedelta64(1, unit)).astype(dtype)
    return Stored(name=name, dims=("time",), values=values, attributes={"units": units, "calendar": calendar})


def _cube(recipe: Recipe) -> Stored:
    dtype = np.dtype(recipe.dtype)
    rng = np.random.default_rng(recipe.first + 1000 * recipe.tile)
    values = rng.integers(0, 101, (recipe.n, *SIZES.values())).astype(dtype)
    if dtype.kind == "f":
        values += dtype.type(0.1)
    for i, key in enumerate(("_FillValue", "missing_value")):
        if key in recipe.packing:
            values[i::2, i, i::3] = recipe.packing[key]
    axes = [("time", *SIZES).index(dim) for dim in recipe.dims]
    options = {}
    if recipe.is_hdf5:
        options = {"shuffle": recipe.shuffle, "fletcher32": recipe.fletcher32, **CODECS[recipe.codec]}
        options["endian"] = recipe.endian
        if recipe.chunks == "contiguous":
            options["contiguous"] = True
        elif recipe.chunks is not None:
            options["chunksizes"] = [recipe.chunks[axis] for axis in axes]
    coordinates = {} if recipe.height is None else {"coordinates": "height"}
    return Stored(
        name="v",
        dims=recipe.dims,
        values=values.transpose(axes),
        attributes={**dict(recipe.attributes), **recipe.packing, **coordinates},
        options=options,
        written=recipe.written,
    )


def _sizes(recipe: Recipe) -> dict[str, int]:
    sizes = {"time": recipe.n, **SIZES}
    if recipe.bounds:
        sizes["two"] = 2
    if recipe.label is not None:
        sizes["letters"] = recipe.label
    return sizes


def _write_netcdf(recipe: Recipe, path: Path) -> None:
    with netCDF4.Dataset(path, "w", format=NETCDF[recipe.writer]) as file:
        for dim, n in _sizes(recipe).items():
            is_unlimited = dim == "time" and recipe.chunks != "contiguous"
            file.createDimension(dim, None if is_unlimited else n)
        for stored in variables(recipe):
            attributes = dict(stored.attributes)
            dtype = str if stored.values.dtype.kind == "O" else stored.values.dtype
            fill = attributes.pop("_FillValue", None)
            variable = file.createVariable(stored.name, dtype, stored.dims, fill_value=fill, **stored.options)
            variable.set_auto_mask(False)
            variable.set_auto_scale(False)
            variable.set_auto_chartostring(False)
            variable.setncatts(attributes)
            if not stored.dims:
                variable[...] = stored.values
            elif stored.values.size and stored.written != 0:
                values = stored.values[: stored.written]
                variable[: len(values)] = values


def _write_scipy(recipe: Recipe, path: Path) -> None:
    with netcdf_file(path, "w", version=2) as file:
        for dim, n in _sizes(recipe).items():
            file.createDimension(dim, None if dim == "time" else n)
        for stored in variables(recipe):
            if not stored.dims:
                raise ValueError("scipy 1.18 writes files with scalars that the netCDF library cannot read")
            values = stored.values[: stored.written]
            variable = file.createVariable(stored.name, values.dtype, stored.dims)
            for key, value in stored.attributes.items():
                setattr(variable, key, value)
            if values.size:
                variable[: len(values)] = values


def _write_h5py(recipe: Recipe, path: Path) -> None:
    with h5py.File(path, "w", track_order=True) as file:
        made = {}
        for stored in variables(recipe):
            fill = stored.attributes.get("_FillValue")
            made[stored.name] = _compact_dataset(file, stored, fill, recipe.endian)
            for key, value in stored.attributes.items():
                made[stored.name].attrs[key] = np.bytes_(value) if isinstance(value, str) else np.array([value])
        for dim, n in _sizes(recipe).items():
            if dim not in made:
                made[dim] = file.create_dataset(dim, (n,), "f4")
                made[dim].make_scale(f"This is a netCDF dimension but not a netCDF variable.{n:10}")
            else:
                made[dim].make_scale(dim)
        for stored in variables(recipe):
            for axis, dim in enumerate(stored.dims):
                if stored.name != dim:
                    made[stored.name].dims[axis].attach_scale(made[dim])


def _compact_dataset(file: h5py.File, stored: Stored, fill: Any, endian: str) -> h5py.Dataset:
    dtype = stored.values.dtype.newbyteorder(">") if endian == "big" and stored.name == "v" else stored.values.dtype
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_attr_creation_order(h5py.h5p.CRT_ORDER_TRACKED | h5py.h5p.CRT_ORDER_INDEXED)
    if stored.dims:
        plist.set_layout(h5py.h5d.COMPACT)
    if fill is not None:
        plist.set_fill_value(np.asarray(fill, stored.values.dtype))
    kind = h5py.string_dtype() if dtype.kind == "O" else dtype
    space = h5py.h5s.create_simple(stored.values.shape) if stored.dims else h5py.h5s.create(h5py.h5s.SCALAR)
    name = stored.name.encode()
    dataset = h5py.Dataset(h5py.h5d.create(file.id, name, h5py.h5t.py_create(kind, logical=True), space, plist))
    if stored.values.size:
        dataset[...] = stored.values
    return dataset


if __name__ == "__main__":
    for _writer in (*NETCDF, "scipy", "compact"):
        write(Recipe(writer=_writer), Path(sys.argv[1]) / f"{_writer}.nc")
