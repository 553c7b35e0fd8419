"""Result of a survey: tables of what files share, and a text that summarises them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from virtualstack.drawing import Timeline
from virtualstack.drawing.axes import plot_timeline
from virtualstack.drawing.html import make_page, preformatted
from virtualstack.drawing.svg import svg_timeline
from virtualstack.planning.sources import name_of, names_of_two
from virtualstack.printable import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_LINES = 12


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Survey:
    """Result of :func:`survey`: what many files share, where that changes, and which of them stand out.

    Files with different data variables (temperature in some, rain in others) are separate *series*. The files of a
    series are sorted by their dimension coordinate and divided into *eras*. Within an era, files agree in everything
    that joining and reading depends on: variables, dimensions, dtype, chunks, codecs, packing and fill values.
    ``print(survey)`` shows the first lines of each part.

    When to use: before many files are joined. Alternatives: :func:`scan` only reads them, and
    :func:`open_virtual_mfdataset` joins them and raises the first conflict.

    Parameters
    ----------
    dim
        Dimension along which files follow each other. If no dimension was found, it is ``None``, and files are in the
        given order.
    table
        One row for each file: ``url``, ``series``, ``era``, ``is_outlier``, ``steps`` (its length along ``dim``),
        ``first`` and ``last`` (its first and last coordinate value, in the order of the file), ``size`` (its bytes, if
        known), and ``variables`` (the number of its variables). Coordinate values are text in all tables.
    eras
        One row for each era: ``series``, ``era``, ``first`` and ``last`` (least and greatest coordinate value of its
        files), ``files`` and ``outliers`` (number of each), ``first_url``, ``last_url``, and ``changes`` since the era
        before. If the coordinate is text, ``first`` is from the first file, and ``last`` from the last file.
    variables
        One row for each ``property`` of a ``variable`` (empty for the file itself): ``values`` (number of different
        values of the property), ``most`` (the most frequent one), ``files`` (number of files that have it), ``changes``
        (how often neighbours differ), ``varies`` (if true, there are too many changes to make eras), and ``first_url``
        (the first file that has another value).
    outliers
        One row for each file that differs from its neighbours: ``url``, ``first`` (its least coordinate value), and
        ``differs`` (the differences).
    duplicates
        One row for each pair of files with common coordinate values: ``url``, ``other``, ``kind``, and ``values`` (the
        number of common values). ``kind`` is one of:

        - ``"same labels"``: all coordinate values are the same. A file is paired with the first file that has its
          labels, and is in no other pair. ``"same labels, size and etag"`` is most probably a copy.
        - ``"overlap"``: the files share some values.
        - ``"repeats"``: one file has some values more than once; ``other`` is the same file as ``url``.
        - ``"same size and etag"``: neither file has coordinate values, so that only size and etag are known.

        Files that the plan tells apart, such as members and tiles, are no duplicates.
    has_all_pairs
        If true, ``duplicates`` has all pairs of files that overlap. It is false if there are too many. Each file is
        then paired only with the nearest overlapping file before it, and the nearest one after it.
    interleaved
        One row for each file that begins before an earlier file has ended, and has no value in common with it, such as
        even days and odd days. ``other`` is this file. ``url`` is the file that ends last among all files that begin
        earlier.
    gaps
        One row for each gap in regular steps, ``missing`` in the printed text: ``series``, ``after`` and ``before``
        (the coordinate values around the gap), and ``steps`` (the number of missing steps).
    irregular
        One row for each reason why the gaps of a series are not known, or not all known: ``series``, ``reason``.
    failures
        One row for each file that could not be read, or whose coordinate could not be read: ``url``, ``error`` (class
        of the error), ``message``.
    timeline
        Eras, gaps and duplicates with their places along the dimension, as plain data of bounded size for pictures.
    plan
        How :func:`open_virtual_mfdataset` joins the files, as sentences; the last one says what is ambiguous, with the
        option that decides.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> for day in (0, 1, 2, 4):
    ...     part = xr.Dataset({"rain": ("time", [1.0])}, {"time": [day]})
    ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4", unlimited_dims=["time"])
    >>> found = vs.survey("day*.nc")
    >>> found.dim, len(found.eras)
    ('time', 1)
    >>> print(found)
    4 files, along 'time'; 0 failed
    ...
    missing
      1 step between 2 and 4
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
    timeline: Timeline
    plan: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.table)

    def __str__(self) -> str:
        return "\n".join(self._lines(_MAX_LINES))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        title, *lines = self._lines(_MAX_LINES)
        drawn = [svg_timeline(self.timeline)] if len(self.table) and self.dim else []
        return make_page(title, *drawn, preformatted("\n".join(lines)))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the timeline of the files: eras in colours, gaps in red.

        It needs matplotlib: ``pip install 'virtualstack[plot]'``.

        Parameters
        ----------
        ax
            Axes of matplotlib to draw on; by default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        MissingDependencyError
            matplotlib is not installed.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in (0, 1, 2, 4):
        ...     part = xr.Dataset({"rain": ("time", [1.0])}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4", unlimited_dims=["time"])
        >>> vs.survey("day*.nc").plot().get_title()
        '4 files, 1 era, 1 gap, 0 duplicates'
        """
        return plot_timeline(self.timeline, ax=ax)

    def text(self, *, most_lines: int | None = None) -> str:
        """Return the text of the survey, with at most ``most_lines`` lines of each part, or all lines."""
        return "\n".join(self._lines(most_lines))

    def _lines(self, most: int | None) -> Iterator[str]:
        n_series = self.eras["series"].nunique()
        kinds = f" in {n_series} series" if n_series > 1 else ""
        along = f", along '{self.dim}'" if self.dim else ", in the given order: no dimension was found"
        yield f"{counted(len(self.table), 'file')}{kinds}{along}; {len(self.failures)} failed"
        if self.plan:
            yield "\nhow they join"
            yield from (f"  {line}" for line in self.plan[:most])
            if most is not None and len(self.plan) > most:
                yield f"  ... and {len(self.plan) - most:,} more"
        for name, eras in self.eras.groupby("series", sort=False):
            yield ""
            yield f"series '{name}'" if n_series > 1 else "eras"
            yield from _listed(eras, most, _era)
        yield from _part("unlike their neighbours", self.outliers, most, _outlier)
        some = "" if self.has_all_pairs else " (for each file, only the nearest overlapping files before and after it)"
        yield from _part(f"duplicates{some}", self.duplicates, most, _duplicate)
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
    span = f"{row['first']} to {row['last']}, " if row["first"] else f"{name_of(row['first_url'])} on, "
    odd = f" ({row['outliers']} unlike)" if row["outliers"] else ""
    return f"era {row['era']}: {span}{counted(row['files'], 'file')}{odd}" + (
        f": {row['changes']}" if row["changes"] else ""
    )


def _outlier(row: pd.Series) -> str:
    at = f" ({row['first']})" if row["first"] else ""
    return f"{name_of(row['url'])}{at}: {row['differs']}"


def _duplicate(row: pd.Series) -> str:
    if row["kind"] == "repeats":
        return f"{name_of(row['url'])}: repeats {counted(row['values'], 'label')}"
    n = "" if pd.isna(row["values"]) else f" ({counted(row['values'], 'label')})"
    return f"{_pair(row)}: {row['kind']}{n}"


def _pair(row: pd.Series) -> str:
    return " and ".join(names_of_two(row["url"], row["other"]))


def _gap(row: pd.Series) -> str:
    return f"{counted(row['steps'], 'step')} between {row['after']} and {row['before']}"


def _differing(variables: pd.DataFrame) -> pd.DataFrame:
    """Return the properties with several values; variables for which everything is the same share a row."""
    alike = ["property", "values", "most", "files", "changes", "varies"]
    rows = variables[variables["values"] > 1]
    return rows.groupby(alike, sort=False)["variable"].agg(list).reset_index()


def _property(row: pd.Series) -> str:
    names = [repr(name) if name else "the file" for name in row["variable"]]
    of = shortened(names)
    what = of if row["property"] == "present" else f"{row['property']} of {of}"
    often = " (in no era: too often)" if row["varies"] else ""
    return (
        f"{what}: {counted(row['values'], 'value')}, most often {row['most']} "
        f"({counted(row['files'], 'file')}); {counted(row['changes'], 'change')}{often}"
    )


def shortened(names: Sequence[str], /, most: int = 4) -> str:
    """Return the first names as text, and how many more there are.

    >>> shortened(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
