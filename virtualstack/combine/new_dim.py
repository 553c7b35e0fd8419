"""New dimensions that the files lack, with labels from file names or attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any, cast

import cftime
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.combine.conflicts import Rules, has_no_missing_number
from virtualstack.combine.part import Part
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError, Remedy
from virtualstack.planning.sources import FromAttribute, FromName
from virtualstack.printable import counted, first_names

type Labelling = FromName | FromAttribute | Callable[[xr.Dataset], Any] | Sequence[Any] | pd.Index[Any] | NDArray[Any]
"""Source of the label of a file: a function is called with the dataset of the file; a list is in the order of files."""


def check_labellings(new_dim: Any, /) -> Mapping[str, Labelling]:
    """Check that each new dimension has a source of labels."""
    if new_dim is None:
        return {}
    if not isinstance(new_dim, Mapping):
        raise CombineError(
            f"new_dim={new_dim!r} does not say where the labels come from. Give a dictionary such as {{'run': "
            f"FromName(r'_r(\\d+)')}}",
            property="new_dim",
        )
    for dim, labelling in new_dim.items():
        is_list = isinstance(labelling, Sequence | pd.Index | np.ndarray) and not isinstance(labelling, str | bytes)
        if not (isinstance(labelling, FromName | FromAttribute) or callable(labelling) or is_list):
            text = repr(labelling) if isinstance(labelling, str) else "..."
            raise CombineError(
                f"new_dim={{{dim!r}: {labelling!r}}} does not say where the labels come from. Give "
                f"FromName({text}), FromAttribute({text}), a function of the dataset, or a list",
                variable=str(dim),
                property="new_dim",
            )
    return new_dim


def make_labels(parts: Sequence[Part], dim: str, labelling: Labelling, /) -> Sequence[Any]:
    """Return one label for each part."""
    found = _found(parts, dim, labelling)
    for x, part in zip(found, parts, strict=True):
        if x is None:
            raise _refusal(dim, part, f"'{dim}' has no label for {part.called}: it {_why(labelling, part)}")
    if any(_is_several(x) and part.sizes.get(dim, 1) > 1 for x, part in zip(found, parts, strict=True)):
        return [_several(dim, x, part) for x, part in zip(found, parts, strict=True)]
    labels = [_plain(dim, x, part) for x, part in zip(found, parts, strict=True)]
    if isinstance(labelling, FromName | FromAttribute):
        if labelling.format is not None:
            labels = [_date(dim, str(x), labelling.format, part) for x, part in zip(labels, parts, strict=True)]
        elif all(isinstance(x, str) and re.fullmatch(r"[+-]?\d{1,18}", x) for x in labels):
            return [int(x) for x in labels]
    is_cftime = any(isinstance(x, cftime.datetime) for x in labels)
    pairs = zip(labels, parts, strict=True)
    return [_any_year(dim, x, part) if is_cftime and isinstance(x, np.datetime64) else x for x, part in pairs]


def _found(parts: Sequence[Part], dim: str, labelling: Labelling) -> Sequence[Any]:
    if isinstance(labelling, FromName):
        return labelling.texts([part.source or "" for part in parts])
    if isinstance(labelling, FromAttribute):
        return [_attributes(part).get(labelling.name) for part in parts]
    if not callable(labelling):
        if len(labelling) != len(parts):
            raise CombineError(
                f"new_dim has {counted(len(labelling), 'label')} of '{dim}' for {counted(len(parts), 'file')}",
                Remedy("give one for each file, in the order of the files"),
                variable=dim,
                property="new_dim",
            )
        return list(labelling)
    return [_called(dim, labelling, part) for part in parts]


def _attributes(part: Part) -> dict[str, Any]:
    """Return the attributes of a part, and of groups above it; those of the nearest group count."""
    return {**part.inherited, **part.attributes}


def _called(dim: str, labelling: Callable[[xr.Dataset], Any], part: Part) -> Any:
    try:
        return labelling(part.dataset())
    except Exception as error:  # the user's code may raise any error, which does not name the file
        raise _refusal(
            dim, part, f"the function of new_dim '{dim}' raised {type(error).__name__} for {part.called}: {error}"
        ) from error


def _why(labelling: Labelling, part: Part) -> str:
    if isinstance(labelling, FromName):
        return f"has a name that does not match {labelling.pattern!r}. Give a pattern that all files match"
    if isinstance(labelling, FromAttribute):
        found = first_names(sorted(_attributes(part)))
        where = " in its group or above" if part.inherited else ""
        return f"has no attribute '{labelling.name}'{where}, only {found}. Give a function of the dataset, or FromName"
    return "got None from its function"


def _is_several(found: Any) -> bool:
    return isinstance(found, Sequence | pd.Index | np.ndarray | xr.DataArray) and not isinstance(found, str | bytes)


def _several(dim: str, found: Any, part: Part) -> list[Any]:
    """Return the labels of the elements that a part has along a dimension."""
    found, n = found if _is_several(found) else [found], part.sizes.get(dim, 1)
    labels = [_plain(dim, x, part) for x in (np.asarray(found) if isinstance(found, xr.DataArray) else found)]
    if len(labels) != n:
        raise _refusal(
            dim,
            part,
            f"{part.called} has {counted(n, 'element')} along '{dim}', and got {counted(len(labels), 'label')}",
        )
    return labels


def _plain(dim: str, found: Any, part: Part) -> Any:
    """Return a label as one plain value; dates are in nanoseconds of UTC, or of cftime if these cannot count them."""
    if isinstance(found, np.ndarray | np.generic | xr.DataArray | xr.Variable) and found.size == 1:
        found = np.asarray(found).reshape(())[()]
    is_text = isinstance(found, str | bytes)
    if not is_text and isinstance(found, (Sequence, Set, Mapping, np.ndarray, xr.DataArray, xr.Variable)):
        raise _refusal(
            dim,
            part,
            f"label {found!r} of '{dim}' in {part.called} is not one value. Give a function that returns one value",
        )
    if pd.isnull(found):
        raise _refusal(dim, part, f"'{dim}' has no label for {part.called}: it has {found!r}")
    if not isinstance(found, date | np.datetime64):  # a datetime is a date too
        return found
    if not isinstance(found, np.datetime64):
        stamp = pd.Timestamp(found)
        found = (stamp if stamp.tzinfo is None else stamp.tz_convert(UTC).tz_localize(None)).asm8
    counted = _counted(found, "ns")
    return _any_year(dim, found, part) if counted is None else counted


def _counted(date: np.datetime64, unit: str) -> np.datetime64 | None:
    """Return a date in another unit, or ``None`` if this is another date."""
    with suppress(OverflowError):  # of some units; others wrap around
        counted = date.astype(f"M8[{unit}]")
        if counted.astype(date.dtype) == date:
            return cast(np.datetime64, counted)
    return None


def _any_year(dim: str, date: np.datetime64, part: Part) -> cftime.datetime:
    """Return a date of numpy's calendar that nanoseconds need not count."""
    counted = _counted(date, "us")
    if counted is None:
        raise _refusal(dim, part, f"label {date} of '{dim}' in {part.called} is a date that microseconds do not count")
    units = "microseconds since 1970-01-01"
    return cftime.num2date(counted.astype(np.int64), units, calendar="proleptic_gregorian")


def _date(dim: str, text: str, format: str, part: Part) -> Any:
    try:
        found = datetime.strptime(text, format)
    except (ValueError, OverflowError) as error:
        raise _refusal(
            dim, part, f"label '{text}' of '{dim}' in {part.called} is not a date of format '{format}': {error}"
        ) from error
    return _plain(dim, found, part)


def _refusal(dim: str, part: Part, message: str, *remedies: Remedy) -> CombineError:
    return CombineError(message, *remedies, variable=dim, property="labels", left_url=part.source)


def with_new_dim(
    part: Part, dim: str, label: Any, rules: Rules, /, like: Mapping[str, xr.Variable] = MappingProxyType({})
) -> Part:
    """Return a part whose data variables, and coordinates named by rules, have a new dimension of one element in front.

    If the part has the dimension, its labels are replaced. A coordinate of its name without a dimension becomes its
    coordinate. Variables that ``like`` has get the dimension if they have it there. With outer joins, bounds of labels
    do not get it if they cannot be missing at other labels.
    """
    own = part.variables.get(dim)
    is_scalar = own is not None and not own.ndim and dim in part.coordinates
    labels = label if isinstance(label, list) else [label]
    if part.sizes.get(dim) == len(labels):
        return part.with_variables({dim: xr.Variable((dim,), labels)}, coordinates=[dim])
    if dim in part.sizes:
        n = counted(part.sizes[dim], "element")
        give = Remedy("give a list of labels for each file, or join along it with", concat_dim=dim)
        raise _refusal(dim, part, f"{part.called} has {n} along '{dim}', and got one label", give)
    if own is not None and not is_scalar:
        why = f"'{dim}' is already a variable of {part.called}, and cannot be a new dimension"
        raise _refusal(dim, part, why, Remedy("give the new dimension another name"), Remedy("drop the variable"))
    if own is None:
        changed = {dim: xr.Variable((dim,), [label])}
    else:  # to look at the type of its values, xarray would import dask
        changed = {dim: xr.Variable((dim,), np.asarray([label], own.dtype), own.attrs, own.encoding, fastpath=True)}
    bounds = {part.variables[name].attrs.get("bounds") for name in part.indexes} if rules.join == "outer" else set()
    for name, variable in part.variables.items():
        is_fixed = name in bounds and name not in like and has_no_missing_number(variable, may_unpack=False)
        if name == dim or is_fixed or (name in like and dim not in like[name].dims):
            continue
        if (
            name in like
            or name not in part.coordinates
            or (rules.expands_coordinate(name) and name not in part.indexes)
        ):
            array = virtual_array(variable)
            data = variable.values[None] if array is None else array[None]
            changed[name] = xr.Variable((dim, *variable.dims), data, variable.attrs, variable.encoding, fastpath=True)
    return part.with_variables(changed, coordinates=[dim])
