"""Timeline of surveyed files: eras, gaps and duplicates as plain data of bounded size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from virtualstack.drawing import Timeline, TimelineDuplicate, TimelineEra, TimelineGap
from virtualstack.planning.gaps import MissingSteps
from virtualstack.planning.sources import names_of_two
from virtualstack.surveying.coordinate import label, place_of

MAX_ITEMS = 200
"""Largest number of eras, gaps or duplicates of a timeline."""
_MAX_TEXT_CHARACTERS = 400


def survey_timeline(
    dim: str | None,
    places: Mapping[int, NDArray[Any]],
    members: Sequence[Sequence[Sequence[int]]],
    /,
    *,
    urls: Sequence[str],
    eras: pd.DataFrame,
    gaps: Sequence[tuple[str, MissingSteps]],
    duplicates: pd.DataFrame,
    remarks: Sequence[str],
    n_failed: int,
) -> Timeline:
    """Return the timeline of surveyed files."""
    flat = [era for series in members for era in series]
    ends = {i: (float(x.min()), float(x.max())) for i, x in places.items()}
    is_to_scale = bool(flat) and all(any(i in ends for i in era) for era in flat)
    if not is_to_scale:
        ends = {i: (float(k), k + 1.0) for k, i in enumerate(i for era in flat for i in era)}
    known = [[ends[i] for i in era if i in ends] for era in flat]
    spans = [(min(a for a, _ in era), max(b for _, b in era)) for era in known]
    axis = PlaceAxis(min((a for a, _ in spans), default=0.0), max((b for _, b in spans), default=1.0))
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
    number = dict(zip(urls, range(len(urls)), strict=False))
    order = range(len(spans))
    return Timeline(
        dim=dim,
        first=eras["first"].iloc[min(order, key=lambda i: spans[i])] if spans else "",
        last=eras["last"].iloc[max(order, key=lambda i: spans[i][1])] if spans else "",
        is_to_scale=is_to_scale,
        n_files=sum(len(era) for era in flat),
        n_failed=n_failed,
        eras=tuple(made),
        n_eras=len(flat),
        gaps=most_missing([(name if len(members) > 1 else "", x) for name, x in gaps], axis) if is_to_scale else (),
        n_gaps=len(gaps),
        n_missing=sum(x.n_steps for _, x in gaps),
        duplicates=tuple(
            _pair(row, [ends.get(number[row[key]]) for key in ("url", "other")] if is_to_scale else [None], axis)
            for _, row in duplicates.iloc[:MAX_ITEMS].iterrows()
        ),
        n_duplicates=len(duplicates),
        remarks=tuple(map(shorten, remarks[:MAX_ITEMS])),
    )


def most_missing(gaps: Sequence[tuple[str, MissingSteps]], axis: PlaceAxis, /) -> tuple[TimelineGap, ...]:
    """Return the longest gaps of series, in their order along the axis."""
    longest = sorted(gaps, key=lambda x: -x[1].n_steps)[:MAX_ITEMS]
    made = [
        TimelineGap(
            series=series,
            after=label(gap.after),
            before=label(gap.before),
            begin=axis.at(place_of(gap.after)),
            end=axis.at(place_of(gap.before)),
            n_steps=gap.n_steps,
        )
        for series, gap in longest
    ]
    return tuple(sorted(made, key=lambda x: (x.series, x.begin)))


def _pair(row: pd.Series, ends: Sequence[tuple[float, float] | None], axis: PlaceAxis) -> TimelineDuplicate:
    """Return a pair of files, at the first label that both can have."""
    names = names_of_two(row["url"], row["other"])
    is_one = row["kind"] == "repeats"
    known = [x[0] for x in ends if x is not None]
    return TimelineDuplicate(
        text=shorten(f"{names[0] if is_one else ' and '.join(names)}: {row['kind']}"),
        at=axis.at(max(known)) if len(known) == 2 and not is_one else None,
        n_values=None if pd.isna(row["values"]) else int(row["values"]),
    )


def shorten(text: str, /) -> str:
    """Return text of at most 400 characters."""
    return text if len(text) <= _MAX_TEXT_CHARACTERS else f"{text[: _MAX_TEXT_CHARACTERS - 1]}…"


@dataclass(frozen=True, slots=True)
class PlaceAxis:
    """The axis of a timeline."""

    least: float
    greatest: float

    def at(self, number: float, /) -> float:
        """Return a place from 0 to 1."""
        width = self.greatest - self.least
        return min(max((number - self.least) / width, 0.0), 1.0) if width > 0 else 0.0
