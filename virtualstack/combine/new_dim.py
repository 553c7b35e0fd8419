"""A dimension that the files lack, with a coordinate from their names or attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import numpy as np
import xarray as xr

from virtualstack.combine.part import Part
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError

__all__ = ["FromAttribute", "FromName", "Labelling", "labels_of", "with_new_dim", "with_new_dims"]


@dataclass(frozen=True, slots=True)
class FromName:
    r"""The label of a file from its name: what a regular expression finds there, or else in its whole URL.

    Parameters
    ----------
    pattern
        With one group, or none for the whole match.
    format
        Of dates, as :meth:`datetime.datetime.strptime` has it. Without it labels are integers where all of them are
        whole numbers, else text.

    Examples
    --------
    >>> FromName(r"_(\d{8})", format="%Y%m%d").text("s3://bucket/2020/tas_20200131.nc")
    '20200131'

    Raises
    ------
    ValueError
        The pattern is no regular expression, or has several groups.
    """

    pattern: str
    format: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"FromName({self.pattern!r}) is no regular expression: {error}") from error
        if groups > 1:
            raise ValueError(f"FromName({self.pattern!r}) has {groups} groups; write those not meant as (?:...)")

    def text(self, url: str, /) -> str | None:
        """Give what the pattern finds, or ``None``."""
        for where in (unquote(url).rstrip("/").rsplit("/", 1)[-1], url):
            found = re.search(self.pattern, where)
            if found is not None:
                return found[found.re.groups]
        return None


@dataclass(frozen=True, slots=True)
class FromAttribute:
    """The label of a file from an attribute of its dataset.

    Parameters
    ----------
    name
        Of the attribute.
    format
        As in :class:`FromName`; numbers stay numbers.
    """

    name: str
    format: str | None = field(default=None, kw_only=True)


type Labelling = FromName | FromAttribute | Callable[[xr.Dataset], Any]
"""What gives the label of a file: a callable is given its dataset."""


def with_new_dims(parts: Sequence[Part], labellings: Mapping[str, Labelling], /) -> list[Part]:
    """Put dimensions of one element, with their labels, on all data variables.

    Raises
    ------
    CombineError
        A file has no such label, one that is no date, or the dimension already.
    """
    made = list(parts)
    for dim, labelling in labellings.items():
        labels = labels_of(made, dim, labelling)
        made = [with_new_dim(part, dim, label) for part, label in zip(made, labels, strict=True)]
    return made


def labels_of(parts: Sequence[Part], dim: str, labelling: Labelling, /) -> Sequence[Any]:
    """Give one label a part.

    Raises
    ------
    CombineError
        A part has none, or one that is no date.
    """
    if not isinstance(labelling, FromName | FromAttribute):
        return [labelling(part.dataset()) for part in parts]
    found = [_found(dim, labelling, part) for part in parts]
    if labelling.format is not None:
        return [_date(dim, str(x), labelling.format, part) for x, part in zip(found, parts, strict=True)]
    if all(isinstance(x, str) and re.fullmatch(r"[+-]?\d{1,18}", x) for x in found):
        return [int(x) for x in found]
    return found


def _found(dim: str, labelling: FromName | FromAttribute, part: Part) -> Any:
    if isinstance(labelling, FromName):
        found: Any = labelling.text(part.source or "")
        where = f"the name of {part.called} has no match of {labelling.pattern!r}"
    else:
        found = part.attributes.get(labelling.name)
        where = f"{part.called} has no attribute '{labelling.name}', it has {sorted(part.attributes)}"
    if found is None:
        raise CombineError(
            f"there is no label of '{dim}': {where}", variable=dim, property="labels", left_url=part.source
        )
    return found.item() if isinstance(found, np.ndarray | np.generic) and found.size == 1 else found


def _date(dim: str, text: str, format: str, part: Part) -> np.datetime64:
    try:
        date = datetime.strptime(text, format)
        if date.tzinfo is not None:
            date = date.astimezone(UTC).replace(tzinfo=None)
        if not 1678 <= date.year <= 2261:
            raise ValueError("nanoseconds count from 1678 to 2261; give a function of the dataset for other dates")
        return np.datetime64(date, "ns")
    except (ValueError, OverflowError) as error:
        raise CombineError(
            f"label '{text}' of '{dim}' in {part.called} is no date of format '{format}': {error}",
            variable=dim,
            property="labels",
            left_url=part.source,
        ) from error


def with_new_dim(part: Part, dim: str, label: Any, /) -> Part:
    """Put a dimension of one element in front of all data variables.

    Raises
    ------
    CombineError
        The part has it.
    """
    if dim in part.sizes or dim in part.variables:
        what = "dimension" if dim in part.sizes else "variable"
        raise CombineError(
            f"new_dim names '{dim}', which is a {what} of {part.called} already; leave it out with drop_variables, or "
            "join along it",
            variable=dim,
            property="dimension",
            left_url=part.source,
        )
    changed = {dim: xr.Variable((dim,), [label])}
    for name, variable in part.variables.items():
        if name not in part.coordinates:
            array = virtual_array(variable)
            data = variable.values[None] if array is None else array[None]
            changed[name] = xr.Variable((dim, *variable.dims), data, variable.attrs, variable.encoding)
    return part.with_variables(changed, coordinates=[dim])
