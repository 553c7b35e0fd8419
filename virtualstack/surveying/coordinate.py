"""Labels of one dimension in each file, their text, and their places on a timeline."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import cftime
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.dataset import loaded_variable
from virtualstack.errors import VirtualStackError
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.planning.labels import Labels, is_dates
from virtualstack.storage import Storage
from virtualstack.storage.threads import concurrently

__all__ = ["label", "place_of", "places_of", "read_labels", "times_along"]

_MAX_FILE_BYTES = 1 << 26
_MAX_TOTAL_BYTES = 1 << 29
"""Bytes of the coordinate that are read from one file, and from all files."""

_EPOCH = "days since 1850-01-01"
_YEAR_DAYS = {"noleap": 365.0, "all_leap": 366.0, "360_day": 360.0, "julian": 365.25}
_USUAL_YEAR_DAYS = 365.2425


def read_labels(
    groups: Sequence[ManifestGroup], dim: str | None, storage: Storage, /
) -> list[Labels | VirtualStackError | ValueError | None]:
    """Read the coordinate of every file. A file without one has ``None``, or the error."""
    arrays = [None if dim is None else _coordinate(group, dim) for group in groups]
    n_bytes = np.cumsum([0 if x is None or x.nbytes > _MAX_FILE_BYTES else x.nbytes for x in arrays])

    def read(i: int) -> Labels | VirtualStackError | ValueError | None:
        array = arrays[i]
        if array is None:
            return None
        if array.nbytes > _MAX_FILE_BYTES or n_bytes[i] > _MAX_TOTAL_BYTES:
            return ValueError(
                f"coordinate '{dim}' was not read, so the position of this file is not known: it has "
                f"{array.nbytes:,} bytes, and at most {_MAX_FILE_BYTES:,} per file and {_MAX_TOTAL_BYTES:,} "
                "in total are read. Survey fewer files at a time, or along another dimension"
            )
        try:
            variable = loaded_variable(str(dim), array, storage, url=groups[i].url)
            return xr.Variable(("label",), np.atleast_1d(variable.values)).to_index()
        except VirtualStackError as error:
            return error

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xr.SerializationWarning)  # dates beyond datetime64 show in the labels
        return list(concurrently(read, range(len(groups)), urls=(x.a_url() for x in arrays if x is not None)))


def _coordinate(group: ManifestGroup, dim: str) -> ManifestArray | None:
    array = group.arrays.get(dim, group.arrays.get(times_along(group, dim) or ""))
    return array if array is not None and array.dimension_names in ((dim,), ()) and array.size else None


def times_along(group: ManifestGroup, dim: str, /) -> str | None:
    """Return the name of the times along a dimension without a coordinate, such as ``XTIME`` of WRF."""
    names = (
        name
        for name, x in group.arrays.items()
        if x.dimension_names == (dim,) and " since " in str(x.cf.get("units", ""))
    )
    return None if dim in group.arrays else next(names, None)


def places_of(labels: Labels, /) -> NDArray[np.float64] | None:
    """Return labels as numbers in their order, or ``None`` for labels without an order, such as text.

    Dates are in years since 1850 of their calendar, so that two calendars can be compared.
    """
    if labels.dtype.kind == "O" and is_dates(labels):
        days = np.asarray(cftime.date2num(labels.values, _EPOCH, labels[0].calendar), np.float64)
        return days / _YEAR_DAYS.get(labels[0].calendar, _USUAL_YEAR_DAYS)
    if is_dates(labels):
        days = (labels.values - np.datetime64("1850-01-01")) / np.timedelta64(1, "D")
        return np.asarray(days / _USUAL_YEAR_DAYS)
    return labels.values.astype(np.float64) if labels.dtype.kind in "iufm" else None


def place_of(value: Any, /) -> float:
    """Return one label as a number; see :func:`places_of`."""
    places = places_of(xr.Variable(("label",), [value]).to_index())
    return 0.0 if places is None else float(places[0])


def label(value: Any, /) -> str:
    """Return a coordinate value as text; a date is shortened by the parts that are zero.

    >>> label(np.datetime64("2000-01-31T00:00:00", "ns")), label(np.datetime64("2000-01-31T06:30:00", "ns"))
    ('2000-01-31', '2000-01-31T06:30')
    """
    if isinstance(value, pd.Timestamp | pd.Timedelta):
        value = value.to_numpy()
    if not isinstance(value, np.datetime64):
        return f"{value:.10g}" if isinstance(value, float | np.floating) else str(value)
    text = str(value).rstrip("0").rstrip(".") if "." in str(value) else str(value)
    text = text.removesuffix(":00") if text.count(":") == 2 else text
    return text.removesuffix("T00:00")
