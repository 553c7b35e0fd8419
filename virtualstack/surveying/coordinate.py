"""Labels of one dimension in each file, their text, and their places on a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import cftime
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.dataset import expand_dims, loaded_variable, virtual_array
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.planning.labels import Labels, is_dates
from virtualstack.storage import Storage

_MAX_FILE_BYTES = 1 << 26
_MAX_TOTAL_BYTES = 1 << 29
"""Bytes of the coordinate that are read from one file, and from all files."""

_EPOCH = "days since 1850-01-01"
_YEAR_DAYS = {"noleap": 365.0, "all_leap": 366.0, "360_day": 360.0, "julian": 365.25}
_USUAL_YEAR_DAYS = 365.2425


def check_bytes(groups: Sequence[ManifestGroup], dim: str | None, /) -> list[ValueError | None]:
    """Return an error for each file whose coordinate has too many bytes to be read."""
    n_bytes = [0 if dim is None or (x := _coordinate(group, dim)) is None else x.nbytes for group in groups]
    total = np.cumsum([n if n <= _MAX_FILE_BYTES else 0 for n in n_bytes])
    return [
        ValueError(
            f"coordinate '{dim}' was not read, so the position of this file is not known. It has {n:,} bytes, and at "
            f"most {_MAX_FILE_BYTES:,} per file and {_MAX_TOTAL_BYTES:,} in total are read. Survey fewer files at a "
            "time, or along another dimension"
        )
        if n > _MAX_FILE_BYTES or (n and before > _MAX_TOTAL_BYTES)
        else None
        for n, before in zip(n_bytes, total, strict=True)
    ]


def read_labels(
    group: ManifestGroup,
    dim: str | None,
    storage: Storage,
    loaded: Mapping[str, xr.Variable] = MappingProxyType({}),
    /,
) -> Labels | None:
    """Return the coordinate of a file from its loaded variables, or read it; ``None`` if it has none."""
    array = None if dim is None else _coordinate(group, dim)
    if array is None:
        return None
    variable = loaded.get(str(dim))
    if variable is None or virtual_array(variable) is not None:
        variable = loaded_variable(str(dim), array, storage, url=group.url)
    return (variable if variable.ndim else expand_dims(variable, {"label": 1})).to_index()


def _coordinate(group: ManifestGroup, dim: str) -> ManifestArray | None:
    """Return the labels or, of a dimension without a coordinate, the times along it, such as ``XTIME`` of WRF."""
    array = group.arrays.get(dim)
    if array is None:
        along = (x for x in group.arrays.values() if x.dimension_names == (dim,))
        array = next((x for x in along if " since " in str(x.cf.get("units", ""))), None)
    return array if array is not None and array.dimension_names in ((dim,), ()) and array.size else None


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
    if isinstance(value, pd.Timestamp):
        value = value.to_numpy()
    if not isinstance(value, np.datetime64):
        value = pd.Timedelta(value) if isinstance(value, np.timedelta64) else value
        return f"{value:.10g}" if isinstance(value, float | np.floating) else str(value)
    text = str(value).rstrip("0").rstrip(".") if "." in str(value) else str(value)
    text = text.removesuffix(":00") if text.count(":") == 2 else text
    return text.removesuffix("T00:00")
