"""An archive whose files change in the middle: packing, dtype, codec, chunks, units of times, variables, levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr

type _Form = Mapping[str, Any]

ERAS = (False, False, True, True, False)
"""Whether each file is as after the change; the last one is a late file of before."""

_PACKED: _Form = {"dtype": "<i2", "scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.int16(-1)}
_CHUNKED: _Form = {"dtype": "<f4", "chunks": (2, 4, 3), "zlib": True, "shuffle": True}

CHANGES: Mapping[str, tuple[_Form, _Form]] = {
    "scale": (_PACKED, {**_PACKED, "scale_factor": 0.25, "add_offset": -3.0}),
    "narrow_scale": (_PACKED, {**_PACKED, "scale_factor": np.float32(0.25), "add_offset": np.float32(-3)}),
    "fill": (_PACKED, {**_PACKED, "_FillValue": np.int16(-2)}),
    "no_fill": (_PACKED, {"dtype": "<i2", "scale_factor": 0.5, "add_offset": 10.0}),
    "packed_to_floats": (_PACKED, {"dtype": "<f4", "_FillValue": np.float32(-1)}),
    "packed_to_doubles": (_PACKED, {"dtype": "<f8"}),
    "packed_to_integers": (_PACKED, {"dtype": "<i4"}),
    "unsigned": (_PACKED, {**_PACKED, "_Unsigned": "true"}),
    "bytes": (_PACKED, {**_PACKED, "dtype": "<i1", "_FillValue": np.int8(-1), "_Unsigned": "true"}),
    "wider_packing": (_PACKED, {**_PACKED, "dtype": "<i4", "_FillValue": np.int32(-1)}),
    "doubles": ({"dtype": "<f4"}, {"dtype": "<f8"}),
    "marked_floats": ({"dtype": "<f4"}, {"dtype": "<f4", "_FillValue": np.float32(-1)}),
    "marked_doubles": ({"dtype": "<f4"}, {"dtype": "<f8", "_FillValue": -1.0}),
    "big_endian": ({"dtype": "<f4"}, {"dtype": ">f4"}),
    "wider_integers": ({"dtype": "<i2"}, {"dtype": "<i4"}),
    "unsigned_integers": ({"dtype": "<i2"}, {"dtype": "<u2"}),
    "integers_to_floats": ({"dtype": "<i2"}, {"dtype": "<f4"}),
    "integers_to_doubles": ({"dtype": "<i2"}, {"dtype": "<f8"}),
    "no_filters": (_CHUNKED, {"dtype": "<f4", "chunks": (2, 4, 3)}),
    "other_filters": (_CHUNKED, {**_CHUNKED, "complevel": 9, "fletcher32": True}),
    "smaller_chunks": (_CHUNKED, {**_CHUNKED, "chunks": (1, 2, 3)}),
    "chunks_that_do_not_divide": (_CHUNKED, {**_CHUNKED, "chunks": (1, 3, 2)}),
    "larger_chunks": (_CHUNKED, {**_CHUNKED, "chunks": (2, 4, 6)}),
    "smaller_chunks_packed": ({**_PACKED, "chunks": (2, 4, 3)}, {**_PACKED, "scale_factor": 2.0, "chunks": (1, 2, 6)}),
    "attributes": ({"dtype": "<f4", "long_name": "a", "history": "b"}, {"dtype": "<f4", "long_name": "c", "note": 1}),
}
"""What a variable has in files before the change and after it; each is a variable of all files."""

LACKING: Mapping[str, _Form] = {
    "floats": {"dtype": "<f4"},
    "packed": _PACKED,
    "unmarked": {"dtype": "<i2", "scale_factor": 0.5},
    "integers": {"dtype": "<i2"},
    "wide_integers": {"dtype": "<i4"},
    "chunked": _CHUNKED,
}
"""Variables that only files before the change have."""

LEVELS = (1000, 500), (1000, 500, 250)
"""Levels before the change and after it."""


def _write_variable(file: netCDF4.Dataset, name: str, form: _Form, dims: tuple[str, ...], day: int) -> None:
    how = {key: form[key] for key in ("zlib", "shuffle", "complevel", "fletcher32") if key in form}
    shape = tuple(file.dimensions[dim].size or 2 for dim in dims)
    endian = "big" if form["dtype"].startswith(">") else "little"
    fill, chunks = form.get("_FillValue", False), form.get("chunks", shape)
    made = file.createVariable(name, form["dtype"], dims, fill_value=fill, chunksizes=chunks, endian=endian, **how)
    made.setncatts({key: x for key, x in form.items() if key not in ("dtype", "chunks", "_FillValue", *how)})
    made.set_auto_maskandscale(False)
    numbers = np.random.default_rng(day).integers(0, 100, shape).astype(form["dtype"])
    numbers[0, 0, 0] = 100 if numbers.dtype.kind == "u" else -1
    made[:] = numbers


def write(folder: str | Path, *, is_lacking: bool, reverse: bool = False) -> list[str]:
    """Write the files of an archive, one for each day, and return their paths.

    Parameters
    ----------
    folder
        Folder of the files.
    is_lacking
        If true, files have the variables of ``LACKING`` and the levels of ``LEVELS``, else those of ``CHANGES``.
    reverse
        If true, the first files are as after the change.
    """
    paths = []
    for day, x in enumerate(ERAS):
        is_changed = x is not reverse
        path = Path(folder) / f"day{day}.nc"
        with netCDF4.Dataset(path, "w") as file:
            file.title = f"day {day}"
            sizes = {"time": None, "level": len(LEVELS[is_changed and is_lacking]), "lat": 4, "lon": 6, "nv": 2}
            for dim, n in sizes.items():
                file.createDimension(dim, n)
            time = file.createVariable("time", "f8", ("time",))
            units = "hours since 1999-12-31" if is_changed else "days since 2000-01-01"
            time.setncatts({"units": units, "bounds": "time_bnds"})
            hours = np.array([[0.0, 12], [12, 24]]) + 24 * day
            bounds = hours + 24 if is_changed else hours / 24
            time[:] = bounds[:, 0]
            file.createVariable("time_bnds", "f8", ("time", "nv"))[:] = bounds
            file.createVariable("level", "i4", ("level",))[:] = LEVELS[is_changed and is_lacking]
            file.createVariable("lat", "f4", ("lat",))[:] = np.arange(4)
            dims = ("time", "lat", "lon")
            if is_lacking:
                for name, form in LACKING.items() if not is_changed else ():
                    _write_variable(file, name, form, dims, day)
                layers = {"layers": {"dtype": "<f4"}, "packed_layers": _PACKED, "counts": {"dtype": "<i2"}}
                for name, form in layers.items():
                    _write_variable(file, name, form, ("time", "level", "lat"), day)
            else:
                for name, forms in CHANGES.items():
                    _write_variable(file, name, forms[is_changed], dims, day)
        paths.append(str(path))
    return paths


def by_xarray(paths: Sequence[str]) -> xr.Dataset:
    """Return what a loop over the files reads with netCDF4, joined by xarray; levels are in the order of the store."""
    own = [xr.load_dataset(path, engine="netcdf4") for path in paths]
    joined = xr.concat(
        own, "time", data_vars="minimal", coords="minimal", compat="override", join="outer", combine_attrs="override"
    )
    return joined.sortby("time").sortby("level", ascending=False)
