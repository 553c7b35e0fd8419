"""Precedence of sources: the choice between a store and a file, or two files, with the same labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from virtualstack.combine.region import Box, find_boxes
from virtualstack.errors import Code, CombineError, Remedy, SourceChangedError
from virtualstack.location import Location
from virtualstack.manifests import ABSENT, FIRST, INLINE, ChunkGrid, ChunkManifest, ManifestArray
from virtualstack.manifests.cells import distinct_rows
from virtualstack.manifests.joining import align
from virtualstack.manifests.unify import unify
from virtualstack.storage.source import check_version


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that has the same labels as another file; a function ``prefer=`` of :meth:`Repository.update` gets it.

    Parameters
    ----------
    url
        URL of the file.
    last_modified
        Time of its last modification, in UTC. For a file that was copied, it is the time of the file that the store was
        written from. ``None`` if the time is not known.

    Examples
    --------
    A function for ``prefer=`` that takes the file with the greater version:

    >>> def version(file):
    ...     return int(file.attributes["version"])
    >>> version(Candidate("a.nc", None, lambda url: {"version": "2"}))
    2
    """

    url: str
    last_modified: datetime | None
    _read: Callable[[str], Mapping[str, Any]] = field(repr=False, compare=False)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The global attributes of the file, which is opened to read them."""
        return self._read(self.url)


type Prefer = Literal["first", "last", "newest"] | Callable[[Candidate], Any] | None
"""Rule that chooses between two files; ``None`` refuses.

``"first"`` keeps the existing file, and ``"last"`` takes the file that is placed last. ``"newest"`` takes the file that
was modified last. A function takes the file for which it returns the greater key.
"""

type IsGone = Callable[[Location], bool]
"""Rule that says which sources of a store do not exist any more, so that each other source is preferred to them."""

_OF_VALUES: tuple[Remedy, ...] = (
    Remedy("to resolve this, {} keeps the existing values", prefer="first"),
    Remedy("{} takes the later part", prefer="last"),
)
_OF_FILES = (
    *_OF_VALUES,
    Remedy("{} takes the file that was modified last", prefer="newest"),
    Remedy("{} takes the file with the greater result", prefer=Code("lambda file: file.url")),
)


def check_prefer(prefer: object, /) -> None:
    """Check the option ``prefer`` of a user."""
    if prefer is not None and prefer not in ("first", "last", "newest") and not callable(prefer):
        raise ValueError(f"prefer={prefer!r}; it must be 'first', 'last', 'newest' or a function of a file")


def is_preferred(
    prefer: Prefer,
    new: Location | None,
    old: Location | None,
    read: Callable[[str], Mapping[str, Any]],
    /,
    *,
    name: str,
    where: str,
) -> bool:
    """Return whether a new source is preferred to the existing one."""
    if prefer in ("first", "last"):
        return prefer == "last"
    a, b = (
        f"'{x.url}'" if x is not None else other
        for x, other in ((old, "the store itself"), (new, "the values in memory"))
    )
    why, remedies = "", _OF_FILES
    if prefer is not None:
        if old is None or new is None:
            why, remedies = "; prefer= cannot choose, because not both come from files", _OF_VALUES
        else:
            theirs, mine = (_key(prefer, x, read) for x in (old, new))
            if None not in (theirs, mine) and theirs != mine:
                with suppress(TypeError):  # a number and a text, for example
                    return bool(mine > theirs)
            why = f"; prefer= cannot choose, because the keys are {theirs!r} and {mine!r}"
    raise CombineError(
        f"variable '{name}' has values at {where} from {a}, which differ from those of {b}{why}",
        *remedies,
        variable=name,
        property="source",
        left=None if old is None else old.url,
        right=None if new is None else new.url,
        left_url=None if old is None else old.url,
        right_url=None if new is None else new.url,
    )


def _key(prefer: Prefer, location: Location, read: Callable[[str], Mapping[str, Any]]) -> Any:
    known = location.fingerprint
    time = location.last_modified if known is None else known.last_modified
    if callable(prefer):
        return prefer(Candidate(location.url, None if time is None else datetime.fromtimestamp(time, UTC), read))
    return time


# -- cells ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Meeting:
    """The chunks of two arrays with the same elements and the same grid, and the cells in which they differ."""

    old: ChunkManifest
    new: ChunkManifest
    grid: ChunkGrid
    take: NDArray[np.bool_]
    clashing: NDArray[np.bool_]
    unknown: NDArray[np.bool_]

    def pairs(self) -> list[tuple[Location, Location, NDArray[np.bool_]]]:
        """Return the pairs of clashing sources, old and new, and a mask of the cells of each pair."""
        codes = [x.entries["location"].astype(np.int64) - FIRST for x in (self.old, self.new)]
        at = self.clashing
        first, _ = distinct_rows([x[at] for x in codes])
        found = np.stack([x[at][first] for x in codes], 1).tolist()
        known = self.old.locations
        return [(known[a], known[b], at & (codes[0] == a) & (codes[1] == b)) for a, b in found]

    def boxes(self, mask: NDArray[np.bool_], /) -> list[Box]:
        """Return boxes of elements that cover exactly the cells of a mask."""
        spans = [
            [axis.span(a, b) for axis, a, b in zip(self.grid.axes, low, high, strict=True)]
            for low, high in find_boxes(mask)
        ]
        return [tuple((side.start, side.stop) for side in box) for box in spans]

    def merged(self, like: ManifestArray, take: NDArray[np.bool_], /) -> ManifestArray:
        """Return an array with some cells of the new array, and all others of the old one."""
        entries, starts = self.old.entries.copy(), None
        entries[take] = self.new.entries[take]
        if self.old.starts is not None or self.new.starts is not None:
            starts = np.where(take, self.new.all_starts, self.old.all_starts)
        manifest = replace(self.old, entries=entries, starts=starts)
        return replace(like, manifest=manifest, grid=self.grid)


def compare_cells(old: ManifestArray, new: ManifestArray, /) -> Meeting | None:
    """Compare two arrays of the same elements cell by cell.

    ``None`` is returned if the old array has all that the new one has. ABSENT cells of the new array are not taken,
    since they never replace existing data.
    """
    new = _as_known(new, old)
    if old.equals(new):
        return None
    a, b = align([old.as_chunks(), new.as_chunks()])
    x, y = unify([a.manifest, b.manifest])
    left, right = x.entries, y.entries
    is_same = (left == right) & (x.all_starts == y.all_starts)
    is_alike = (left["location"] == right["location"]) & (left["length"] == right["length"]) & ~is_same
    is_alike &= (left["location"] == INLINE) | (left["offset"] == right["offset"])
    meeting = Meeting(old=x, new=y, grid=a.grid, take=is_same, clashing=is_same, unknown=is_same)
    cells = [replace(old, manifest=x, grid=a.grid), replace(new, manifest=y, grid=a.grid)]
    for low, high in find_boxes(is_alike):
        cut = tuple(slice(begin, end) for begin, end in zip(low, high, strict=True))
        box = tuple(axis.span(begin, end) for axis, begin, end in zip(a.grid.axes, low, high, strict=True))
        is_same[cut] |= cells[0][box].equals(cells[1][box])
    rest = ~is_same & (right["location"] != ABSENT)
    if not rest.any():
        return None
    take = rest & (left["location"] == ABSENT)
    rest &= ~take
    numbers = {url: i for i, url in enumerate(dict.fromkeys(location.url for location in x.locations))}
    of_code = np.array([*range(-1, -1 - FIRST, -1), *(numbers[location.url] for location in x.locations)], np.int64)
    both = rest & (left["location"] >= FIRST) & (right["location"] >= FIRST)
    is_one = of_code[left["location"]] == of_code[right["location"]]
    return replace(meeting, take=take | (both & is_one), clashing=both & ~is_one, unknown=rest & ~both)


def _as_known(new: ManifestArray, old: ManifestArray) -> ManifestArray:
    """Return an array that has the locations of another array for sources of the same version."""
    known: dict[str, list[Location]] = {}
    for location in old.in_memory().compact().locations:
        known.setdefault(location.url, []).append(location)
    manifest = new.in_memory()
    locations = tuple(
        next((then for then in known.get(now.url, ()) if not is_changed(then, now)), now) for now in manifest.locations
    )
    return new if locations == manifest.locations else replace(new, manifest=replace(manifest, locations=locations))


def is_changed(then: Location, now: Location, /) -> bool:
    """Return whether a source has changed since a store recorded it, so that the store cannot be read."""
    try:
        check_version(then, now)
    except SourceChangedError:
        return True
    return False
