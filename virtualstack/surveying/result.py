"""A survey: tables of what files share, and the text that a person reads first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

__all__ = ["Survey", "shortened"]

_MAX_LINES = 12


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Survey:
    """What many files share, where that changes, and which of them stand out.

    Files that hold other data variables (temperature in some, rain in others) are separate *series*; each is put in the
    order of its dimension coordinate and cut into *eras*, in which files are alike in all that joining and reading
    depends on: variables, dimensions, dtype, chunks, codecs, packing, fill values. ``print(survey)`` tells most of it.

    Parameters
    ----------
    dim
        Dimension along which files follow each other; ``None`` where none was found, and files are in the order given.
    table
        One row a file: ``url``, ``series``, ``era``, ``is_outlier``, ``steps`` (length along ``dim``), ``first`` and
        ``last`` (its first and last coordinate value as text), ``size`` (bytes, if known), ``variables`` (how many).
    eras
        One row an era: ``series``, ``era``, ``first`` and ``last`` (the least and the greatest coordinate value; of
        text, the first of the first file and the last of the last one), ``files``, ``outliers``, ``first_url``,
        ``last_url`` and ``changes``, what is new in it.
    variables
        One row a property of a variable (of the file, where ``variable`` is empty): ``values``, how many there are;
        ``most``, the most frequent one; ``files`` that have it; ``changes``, how often neighbours differ; ``varies``,
        whether these are too many to make eras; and ``first_url``, the first file that has another value.
    outliers
        One row a file that is unlike its neighbours: ``url``, ``first`` (its least coordinate value), and ``differs``,
        in what.
    duplicates
        One row a pair of files: ``url``, ``other``, ``values``, how many both have, and ``kind``: ``"same values"`` of
        the coordinate, or ``"same values, size and etag"`` (a copy, most probably), each with the first that has its
        values, and in no other pair; ``"overlap"`` where they have some; with ``", other place"`` where another
        coordinate tells them apart (tiles, members), and ``", place unknown"`` where one that might could not be read.
        ``"repeats"``: the file, which is ``other`` too, has values more than once. ``"same size and etag"``: that is
        all that is known, as neither has values.
    has_all_pairs
        Whether all files that overlap are a pair in ``duplicates``. Of very many, each is there with the nearest before
        and the nearest after it that it overlaps.
    interleaved
        One row a pair of files, ``url`` and ``other``, of which the second begins before the first has ended, with no
        value that both have (even days, odd days). The first is the one that ends last of those before.
    gaps
        One row a gap in regular steps: ``series``, ``after``, ``before``, ``steps`` missing.
    irregular
        One row a reason why gaps of a series are not known, or not all: ``series``, ``reason``.
    failures
        One row a file that could not be described, or whose coordinate could not be read: ``url``, ``error``,
        ``message``.
    """

    dim: str | None
    table: pd.DataFrame
    eras: pd.DataFrame
    variables: pd.DataFrame
    outliers: pd.DataFrame
    duplicates: pd.DataFrame
    has_all_pairs: bool
    interleaved: pd.DataFrame
    gaps: pd.DataFrame
    irregular: pd.DataFrame
    failures: pd.DataFrame

    def __len__(self) -> int:
        return len(self.table)

    def __str__(self) -> str:
        return "\n".join(self._lines(_MAX_LINES))

    def __repr__(self) -> str:
        return str(self)

    def text(self, *, most_lines: int | None = None) -> str:
        """Tell it all, or so many lines of each part."""
        return "\n".join(self._lines(most_lines))

    def _lines(self, most: int | None) -> Iterator[str]:
        n_series = self.eras["series"].nunique()
        kinds = f" in {n_series} series" if n_series > 1 else ""
        along = f", along '{self.dim}'" if self.dim else ", in the order given: no dimension was found"
        yield f"{_count(len(self.table), 'file')}{kinds}{along}; {len(self.failures)} failed"
        for name, eras in self.eras.groupby("series", sort=False):
            yield ""
            yield f"series '{name}'" if n_series > 1 else "eras"
            yield from _listed(eras, most, _era)
        yield from _part("unlike their neighbours", self.outliers, most, _outlier)
        some = "" if self.has_all_pairs else " (of each file the nearest before and after it that it overlaps)"
        yield from _part(f"there twice{some}", self.duplicates, most, _duplicate)
        yield from _part("interleaved, with no value twice", self.interleaved, most, _pair)
        yield from _part("missing", self.gaps, most, _gap)
        yield from _part(
            "gaps that cannot be known",
            self.irregular,
            most,
            lambda x: f"series '{x['series']}': {x['reason']}" if n_series > 1 else x["reason"],
        )
        yield from _part("properties that differ", _differing(self.variables), most, _property)
        yield from _part("failed", self.failures, most, lambda x: f"{x['url']}: {x['error']}: {x['message']}")


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _part(title: str, rows: pd.DataFrame, most: int | None, line: Callable[[pd.Series], str]) -> Iterable[str]:
    if len(rows):
        yield f"\n{title}"
        yield from _listed(rows, most, line)


def _listed(rows: pd.DataFrame, most: int | None, line: Callable[[pd.Series], str]) -> Iterator[str]:
    for _, row in rows.iloc[:most].iterrows():
        yield f"  {line(row)}"
    if most is not None and len(rows) > most:
        yield f"  ... and {len(rows) - most:,} more"


def _era(row: pd.Series) -> str:
    span = f"{row['first']} to {row['last']}, " if row["first"] else f"{_name(row['first_url'])} on, "
    odd = f" ({row['outliers']} unlike)" if row["outliers"] else ""
    return f"era {row['era']}: {span}{_count(row['files'], 'file')}{odd}" + (
        f": {row['changes']}" if row["changes"] else ""
    )


def _outlier(row: pd.Series) -> str:
    at = f" ({row['first']})" if row["first"] else ""
    return f"{_name(row['url'])}{at}: {row['differs']}"


def _duplicate(row: pd.Series) -> str:
    if row["kind"] == "repeats":
        return f"{_name(row['url'])}: repeats {_count(row['values'], 'value')}"
    n = "" if pd.isna(row["values"]) else f" ({_count(row['values'], 'value')})"
    return f"{_pair(row)}: {row['kind']}{n}"


def _pair(row: pd.Series) -> str:
    return f"{_name(row['url'])} and {_name(row['other'])}"


def _gap(row: pd.Series) -> str:
    return f"{_count(row['steps'], 'step')} between {row['after']} and {row['before']}"


def _differing(variables: pd.DataFrame) -> pd.DataFrame:
    """Give the properties with several values, variables of which all is the same together."""
    alike = ["property", "values", "most", "files", "changes", "varies"]
    rows = variables[variables["values"] > 1]
    return rows.groupby(alike, sort=False)["variable"].agg(list).reset_index()


def _property(row: pd.Series) -> str:
    names = [repr(name) if name else "the file" for name in row["variable"]]
    of = shortened(names)
    what = of if row["property"] == "present" else f"{row['property']} of {of}"
    often = " (in no era: too often)" if row["varies"] else ""
    return (
        f"{what}: {_count(row['values'], 'value')}, most often {row['most']} "
        f"({_count(row['files'], 'file')}); {_count(row['changes'], 'change')}{often}"
    )


def shortened(names: Sequence[str], /, most: int = 4) -> str:
    """List the first names, and say how many more there are.

    >>> shortened(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _name(url: str) -> str:
    return url.rsplit("/", 1)[-1]
