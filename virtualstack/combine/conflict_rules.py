"""What combining does where files differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd

from virtualstack.errors import CombineError

__all__ = ["Join", "Rules"]

type Join = Literal["exact", "outer", "inner", "left", "right", "override"]

_ATTRS = ("drop", "drop_conflicts", "identical", "no_conflicts", "override")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What combining does where files differ; the words are those of :func:`xarray.concat`.

    Parameters
    ----------
    join
        Of labels along dimensions that files are not joined along: ``"exact"`` raises where they differ.
    tolerance
        How far labels, and values of variables that are to be the same, may lie apart to be taken for the first's.
    data_vars, coords
        Variables that get the dimension that files are joined along though they lack it: none (``"minimal"``),
        ``"all"``, or those named. Of ``data_vars``, ``None`` means all along a dimension that no file has.
    compat
        Whether variables without that dimension must be equal (``"equals"``) or are the first's (``"override"``).
    combine_attrs
        ``None`` drops attributes that differ, and raises for units.
    fill_value
        Of what is not there, once decoded: one, or one a variable; ``None`` is a missing value, as xarray has it.
    remedy
        What to do where labels differ, for the message of an error; by default ``join`` and ``tolerance`` are named.
    """

    join: Join = "exact"
    tolerance: int | float | pd.Timedelta | None = None
    data_vars: Literal["minimal", "all"] | frozenset[str] | None = None
    coords: Literal["minimal", "all"] | frozenset[str] = "minimal"
    compat: Literal["equals", "override"] = "equals"
    combine_attrs: str | Callable[..., Any] | None = None
    fill_value: Any = None
    remedy: str | None = None

    @classmethod
    def of(cls, *, join: Join = "exact", tolerance: Any = None, options: Mapping[str, Any] | None = None) -> Rules:
        """Check what a user gives.

        Raises
        ------
        ValueError
            A word or an option is not known.
        CombineError
            The tolerance is none.
        """
        options = dict(options or {})
        known = ("data_vars", "coords", "compat", "combine_attrs", "fill_value")
        unknown = sorted(options.keys() - set(known))
        if unknown:
            raise ValueError(f"combine_options has {unknown}; known are {list(known)}")
        _check("join", join, get_args(Join.__value__))
        for key in ("data_vars", "coords"):
            if key in options and not (key == "data_vars" and options[key] is None):
                options[key] = _names(key, options[key])
        _check("compat", options.get("compat", "equals"), ("equals", "override"))
        attrs = options.get("combine_attrs")
        if attrs is not None and not callable(attrs):
            _check("combine_attrs", attrs, _ATTRS)
        return cls(join=join, tolerance=_tolerance(tolerance), **options)

    def fill(self, name: str) -> Any:
        """Give the fill value of a variable; ``None`` is a missing value."""
        return self.fill_value.get(name) if isinstance(self.fill_value, Mapping) else self.fill_value


def _tolerance(tolerance: Any) -> int | float | pd.Timedelta | None:
    """Give a tolerance as a number or a span of time."""
    number: Any = None
    if isinstance(tolerance, timedelta | np.timedelta64):
        number = None if pd.isnull(tolerance) else pd.Timedelta(tolerance)
    elif isinstance(tolerance, int | float | np.integer | np.floating) and not isinstance(tolerance, bool):
        number = tolerance if isinstance(tolerance, int | float) else tolerance.item()
    if tolerance is not None and not (number is not None and number >= type(number)(0)):
        raise CombineError(
            f"tolerance={tolerance!r} is no distance between labels; give a number such as 1e-6, or for dates a "
            "timedelta such as pd.Timedelta('1min')",
            property="tolerance",
            left=tolerance,
        )
    return cast("int | float | pd.Timedelta | None", number)


def _check(option: str, word: object, known: Collection[str]) -> None:
    if word not in known:
        raise ValueError(f"{option}={word!r}; it is one of {list(known)}")


def _names(option: str, value: object) -> Any:
    if isinstance(value, str):
        _check(option, value, ("minimal", "all"))
        return value
    if not isinstance(value, Iterable):
        raise ValueError(f"{option}={value!r}; it is 'minimal', 'all' or names of variables")
    return frozenset(map(str, value))
