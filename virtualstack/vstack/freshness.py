"""Which sources of a snapshot are not as they were when they were indexed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from virtualstack.errors import SourceChangedError, SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage import Storage, check_version
from virtualstack.vstack.shown import Shown

__all__ = ["SourceProblem", "Stale", "stale_sources"]


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """A source that is not as it was.

    Parameters
    ----------
    url
        Of the source.
    status
        ``"changed"``; ``"missing"``, where nothing is there; or ``"unreachable"``, where that could not be found out.
    reason
        What was found instead.
    recorded, found
        Its versions then and now.
    """

    url: str
    status: Literal["changed", "missing", "unreachable"]
    reason: str
    recorded: Location
    found: Location | None


@dataclass(frozen=True, slots=True)
class Stale:
    """What was found.

    Parameters
    ----------
    n_sources
        Versions of sources that were looked up: a URL may be there in several.
    n_touched
        Those with another time of modification, which are what they were by size and etag.
    n_unknown
        Those that are there, and of which the store has neither size, etag nor time.
    problems
        In the order of their URLs.
    segments
        By number of the segment: sources of it with problems, which cells still refer to.
    """

    n_sources: int
    n_touched: int
    n_unknown: int
    problems: tuple[SourceProblem, ...]
    segments: Mapping[int, frozenset[Location]]


def stale_sources(shown: Shown, storage: Storage, /) -> Stale:
    """Look up all sources that a snapshot shows: in listings of their folders where there are some."""
    by_segment = shown.sources()
    every = list(dict.fromkeys(location for each in by_segment.values() for location in each))
    urls = list(dict.fromkeys(location.url for location in every))
    now = dict(zip(urls, storage.look_up(urls), strict=True))
    suspects = {x: problem for x in every if (problem := _problem(x, now[x.url])) is not None}
    still: dict[int, frozenset[Location]] = {}
    for number, sources in by_segment.items():
        own = suspects.keys() & sources if suspects else set()
        seen = shown.still(number, own) if own else set()
        if seen:
            still[number] = frozenset(seen)
    seen = set().union(*still.values())
    problems = sorted((problem for x, problem in suspects.items() if x in seen), key=lambda x: x.url)
    n_unknown = sum(
        {x.size, x.etag, x.last_modified, x.unmodified_since, x.fingerprint} == {None}
        for x in every
        if x not in suspects
    )
    return Stale(len(every), _count_touched(every, now), n_unknown, tuple(problems), still)


def _problem(recorded: Location, now: Location | StorageError) -> SourceProblem | None:
    if isinstance(now, SourceNotFoundError):
        return SourceProblem(recorded.url, "missing", str(now), recorded, None)
    if isinstance(now, StorageError):
        return SourceProblem(recorded.url, "unreachable", str(now), recorded, None)
    try:
        check_version(recorded, now)
    except SourceChangedError as error:
        return SourceProblem(recorded.url, "changed", str(error), recorded, now)
    except StorageError as error:  # of a file that may be listed and not read
        return SourceProblem(recorded.url, "unreachable", str(error), recorded, now)
    return None


def _count_touched(every: Sequence[Location], now: Mapping[str, Location | StorageError]) -> int:
    return sum(
        isinstance(found := now[x.url], Location)
        and not x.url.startswith("file://")
        and None not in (x.last_modified, found.last_modified)
        and x.last_modified != found.last_modified
        and (x.size, x.etag) == (found.size, found.etag)
        for x in every
    )
