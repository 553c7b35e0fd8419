"""The labels that a recipe expects, and when files of them are due."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.frequencies import to_offset

from virtualstack.errors import RecipeError, Remedy

type _Index = pd.Index[Any]

_MISSING_AFTER = 10
"""How many times as long as until it is late it takes until a label is missing, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a recipe expects along a dimension: labels, or one label in each period, beginning with ``first``."""

    labels: Sequence[Any] | None = None
    every: str | None = None
    first: str | None = None
    last: str | None = None
    late: float | str = 0
    missing: float | str | None = None
    gaps: Sequence[Sequence[str]] = ()

    @classmethod
    def from_table(cls, given: Any, /) -> Expected:
        """Check a table of a recipe.

        Raises
        ------
        ValueError, TypeError
            It is not valid.
        """
        if unknown := sorted(set(given) - {x.name for x in fields(cls)}):
            raise ValueError(f"'{unknown[0]}' is not known; there are {', '.join(x.name for x in fields(cls))}")
        made = cls(**given)
        if (made.every is None) == (made.labels is None):
            raise ValueError("a dimension has either every or labels")
        if made.labels is not None and set(given) != {"labels"}:
            raise ValueError("labels goes without other keys")
        if made.every is not None:
            begin = pd.Timestamp(0)
            if begin + _offset(made.every) <= begin:
                raise ValueError("every is not longer than nothing")
        for text in (made.first, made.last, *np.ravel(np.array(made.gaps, object))):
            _time(text)
        if made.first is not None and made.last is not None and _time(made.last) < _time(made.first):
            raise ValueError("last is before first")
        if any(len(pair) != 2 for pair in made.gaps):
            raise ValueError("gaps are pairs: the first and the last label of each")
        if not 0 <= made.late_seconds <= made.missing_seconds:
            raise ValueError("late and missing are not negative, and missing is not less than late")
        return made

    @property
    def late_seconds(self) -> float:
        """Seconds from the begin of a period until its file is late."""
        return seconds(self.late)

    @property
    def missing_seconds(self) -> float:
        """Seconds from the begin of a period until its file is missing."""
        return _MISSING_AFTER * self.late_seconds if self.missing is None else seconds(self.missing)

    def wanted(self, dim: str, stored: _Index, now: float, /) -> _Index:
        """Return the expected labels, or the begins of periods until now.

        Raises
        ------
        RecipeError
            The labels of the store are of another kind.
        """
        if self.labels is not None:
            try:
                labels = pd.Index(np.asarray(self.labels))
                made = labels.astype(stored.dtype)
                is_cut = stored.dtype.kind in "iu" and not made.equals(labels)
                if labels.dtype.kind in "iuf" and (is_cut or stored.dtype.kind in "mM"):
                    raise TypeError(f"numbers such as {labels[0]} are not {stored.dtype}")
                return made
            except (TypeError, ValueError) as error:
                raise RecipeError(
                    f"'expected' of the recipe has labels of '{dim}' that are not like those of the store: {error}"
                ) from error
        if not isinstance(stored, pd.DatetimeIndex):
            raise RecipeError(
                f"'expected' of the recipe has every for '{dim}', whose labels are no dates",
                Remedy("name them with labels"),
            )
        offset = _offset(self.every)
        if self.first is not None:
            first = _time(self.first)
        else:
            first = stored.min()
            is_tick = isinstance(offset, pd.offsets.Tick)
            first = first.floor(cast(Any, offset)) if is_tick else offset.rollback(first.normalize())
        last = pd.Timestamp(now, unit="s")
        if self.last is not None:
            last = min(last, _time(self.last))
        return pd.date_range(first, last, freq=offset)

    def find(self, stored: _Index, wanted: _Index, /) -> NDArray[np.intp]:
        """Return the position of each stored label among the expected ones, -1 if it is not expected."""
        if self.labels is not None:
            return wanted.get_indexer(stored)
        at = np.asarray(wanted.searchsorted(stored, side="right"), np.intp) - 1
        if len(wanted):
            at[np.asarray(stored >= cast(Any, wanted[-1] + _offset(self.every)))] = -1
        return at

    def is_over(self, wanted: _Index, seconds: float, now: float, /) -> NDArray[np.bool_]:
        """Return whether some time has passed since the begin of each period."""
        if self.labels is not None:
            return np.ones(len(wanted), np.bool_)
        return np.asarray(wanted <= cast(Any, pd.Timestamp(now - seconds, unit="s")))

    def in_gaps(self, wanted: _Index, /) -> NDArray[np.bool_]:
        """Return whether each expected label is in a gap that is known."""
        found = np.zeros(len(wanted), np.bool_)
        for first, last in self.gaps:
            found |= np.asarray((wanted >= cast(Any, _time(first))) & (wanted <= cast(Any, _time(last))))
        return found


def expected_of(given: Mapping[str, Any], /) -> dict[str, Expected]:
    """Return what is expected along each dimension.

    Raises
    ------
    ValueError, TypeError
        A table is not valid.
    """
    return {dim: Expected.from_table(table) for dim, table in given.items()}


def _time(given: Any) -> pd.Timestamp:
    """Return a time of a recipe in UTC, as those of stores, which name no zone."""
    found = pd.Timestamp(given)
    return found if found.tz is None else found.tz_convert(None)


def _offset(every: str | None) -> pd.offsets.BaseOffset:
    return cast(pd.offsets.BaseOffset, to_offset(every))


def seconds(given: float | str, /) -> float:
    """Return a duration of a recipe in seconds.

    >>> seconds(90), seconds("10min"), seconds("2d")
    (90.0, 600.0, 172800.0)
    """
    if not isinstance(given, str):
        return float(given)
    return float(pd.Timedelta(re.sub(r"(?<=\d)d\b", "D", given)).total_seconds())
