"""Timeline of surveyed files: eras, gaps and duplicates as plain data of bounded size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from virtualstack.drawing import Timeline, TimelineDuplicate, TimelineEra, TimelineGap
from virtualstack.surveying.coordinate import CoordinateLine
from virtualstack.surveying.sequence import FileSequence, SeriesGap, find_url

__all__ = ["MAX_ITEMS", "PlaceAxis", "shorten", "survey_timeline"]

MAX_ITEMS = 200
"""Largest number of eras, gaps or duplicates of a timeline."""
_MAX_TEXT_CHARACTERS = 400


def survey_timeline(
    files: FileSequence,
    members: Sequence[Sequence[Sequence[int]]],
    /,
    *,
    eras: pd.DataFrame,
    gaps: Sequence[SeriesGap],
    duplicates: pd.DataFrame,
    remarks: Sequence[str],
    n_failed: int,
) -> Timeline:
    """Return the timeline of surveyed files.

    Parameters
    ----------
    files
        The files and their coordinates.
    members
        Files of each era of each series.
    eras, duplicates
        Tables of a :class:`~virtualstack.surveying.result.Survey`; the rows of ``eras`` are in the order of `members`.
    gaps, remarks
        Missing steps, and reasons why they are not known.
    n_failed
        Number of files that failed.
    """
    flat = [era for series in members for era in series]
    lines = [[x for i in era if (x := files.lines[i]) is not None and not np.isnan(x.least)] for era in flat]
    is_to_scale = bool(flat) and all(lines)
    if is_to_scale:
        spans = [(min(x.least for x in era), max(x.greatest for x in era)) for era in lines]
    else:
        place = {i: k for k, i in enumerate(i for era in flat for i in era)}
        spans = [(place[era[0]], place[era[-1]] + 1.0) for era in flat]
    axis = PlaceAxis(min((a for a, _ in spans), default=0.0), max((b for _, b in spans), default=1.0))
    order = sorted(range(len(spans)), key=lambda i: spans[i])
    made = [
        TimelineEra(
            series=row["series"] if len(members) > 1 else "",
            number=int(row["era"]),
            first=row["first"],
            last=row["last"],
            begin=axis.at(span[0]),
            end=axis.at(span[1]),
            n_files=int(row["files"]),
            n_outliers=int(row["outliers"]),
            changes=shorten(row["changes"]),
        )
        for span, (_, row) in zip(spans[:MAX_ITEMS], eras.iloc[:MAX_ITEMS].iterrows(), strict=True)
    ]
    shown = sorted(sorted(gaps, key=lambda x: -x.gap.n_steps)[:MAX_ITEMS], key=lambda x: (x.series, x.gap.after))
    ends = (
        (eras["first"].iloc[order[0]], eras["last"].iloc[max(order, key=lambda i: spans[i][1])]) if order else ("", "")
    )
    by_url = dict(zip(map(find_url, files.groups), files.lines, strict=True)) if len(duplicates) and is_to_scale else {}
    pairs = duplicates.iloc[:MAX_ITEMS].iterrows()
    return Timeline(
        dim=files.dim,
        first=ends[0],
        last=ends[1],
        is_to_scale=is_to_scale,
        n_files=sum(len(era) for era in flat),
        n_failed=n_failed,
        eras=tuple(made),
        n_eras=len(flat),
        gaps=tuple(_gap(x, axis, is_alone=len(members) < 2) for x in shown) if is_to_scale else (),
        n_gaps=len(gaps),
        n_missing=sum(x.gap.n_steps for x in gaps),
        duplicates=tuple(_pair(row, by_url, axis) for _, row in pairs),
        n_duplicates=len(duplicates),
        remarks=tuple(map(shorten, remarks[:MAX_ITEMS])),
    )


def _gap(found: SeriesGap, axis: PlaceAxis, *, is_alone: bool) -> TimelineGap:
    gap, line = found.gap, found.line
    return TimelineGap(
        series="" if is_alone else found.series,
        after=line.label(gap.after),
        before=line.label(gap.before),
        begin=axis.at(line.comparable(float(gap.after))),
        end=axis.at(line.comparable(float(gap.before))),
        n_steps=gap.n_steps,
    )


def _pair(row: pd.Series, by_url: Mapping[str, CoordinateLine | None], axis: PlaceAxis) -> TimelineDuplicate:
    """Return a pair of files, at the first value that both can have."""
    least = [line.least for key in ("url", "other") if (line := by_url.get(row[key])) is not None]
    is_known = len(least) == 2 and row["kind"] != "repeats" and not np.isnan(least).any()
    names = [row[key].rsplit("/", 1)[-1] for key in ("url", "other")]
    text = names[0] if row["kind"] == "repeats" else " and ".join(names)
    n = None if pd.isna(row["values"]) else int(row["values"])
    at = axis.at(max(least)) if is_known else None
    return TimelineDuplicate(text=shorten(f"{text}: {row['kind']}"), at=at, n_values=n)


def shorten(text: str, /) -> str:
    """Return text of at most 400 characters."""
    return text if len(text) <= _MAX_TEXT_CHARACTERS else f"{text[: _MAX_TEXT_CHARACTERS - 1]}…"


@dataclass(frozen=True, slots=True)
class PlaceAxis:
    """The axis of a timeline.

    Parameters
    ----------
    least, greatest
        Numbers at both ends.
    """

    least: float
    greatest: float

    def at(self, number: float, /) -> float:
        """Return a place from 0 to 1."""
        width = self.greatest - self.least
        return min(max((number - self.least) / width, 0.0), 1.0) if width > 0 else 0.0
