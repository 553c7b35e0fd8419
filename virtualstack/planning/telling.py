"""What tells files apart that have the same labels: scalar coordinates, attributes, positions of tiles, and names."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count
from math import prod
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from virtualstack.planning.facts import FileFacts, Grid
from virtualstack.planning.labels import Labels, is_dates
from virtualstack.planning.names import MEMBER, differing_words
from virtualstack.planning.places import find_places
from virtualstack.planning.sources import FromAttribute, FromName

MEMBERS = (
    "source_id",
    "model_id",
    "experiment_id",
    "variant_label",
    "member_id",
    "ensemble_member",
    "realization_index",
    "realization",
    "driving_source_id",
    "driving_model_id",
    "driving_variant_label",
    "driving_model_ensemble_member",
)
"""Attributes that tell members, models and experiments apart, in the order in which they are preferred."""

_FIRST, _SIZE = "DOMAIN_position_first", "DOMAIN_size_local"
_HALOS = "DOMAIN_halo_size_start", "DOMAIN_halo_size_end"
TELLING = (*MEMBERS, _FIRST, _SIZE, *_HALOS)
"""All attributes that may tell files apart."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Axis:
    """A dimension that files are joined along, and what gives its labels."""

    dim: str
    source: Literal["scalar", "along"] | FromAttribute | FromName
    by: str
    labels: Sequence[Labels] = ()
    kept: Sequence[slice] = ()
    code: NDArray[np.intp]


def candidates(files: Sequence[FileFacts], /) -> Iterator[list[list[Axis]]]:
    """Yield what may tell files apart, the surest first: lists of axes that belong together."""
    scalars = list(_scalars(files))
    yield [[axis] for axis, is_time in scalars if is_time]
    yield [[axis] for axis in _along(files)]
    yield [axes for axes in (_positions(files),) if axes]
    yield [[axis] for axis in _attributes(files)]
    yield [[axis] for axis, is_time in scalars if not is_time]
    yield [axes for axes in (_tiles(files),) if axes]


def _codes(values: Sequence[Hashable]) -> NDArray[np.intp]:
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(x, len(number)) for x in values], np.intp)


def _scalars(files: Sequence[FileFacts]) -> Iterator[tuple[Axis, bool]]:
    """Yield scalar coordinates of all files, those with times first, and whether they are times.

    The time of validity is no axis of its own beside those of runs and steps, whose sum it is. What identifies a
    station comes before its latitude, and words and numbers of members come before what is measured.
    """
    found = []
    has_steps = all({"time", "step"} <= file.scalars.keys() for file in files)
    for name in files[0].scalars.keys() - ({"valid_time"} if has_steps else set()):
        values = [file.scalars.get(name) for file in files]
        if any(x is None or pd.isnull(x) or name in file.sizes for x, file in zip(values, files, strict=True)):
            continue
        is_time = all(isinstance(x, np.datetime64 | np.timedelta64) or hasattr(x, "calendar") for x in values)
        is_measured = isinstance(values[0], float | np.floating)
        rank = (name != "time", name == "valid_time", not is_time, name not in files[0].identities, is_measured, name)
        found.append((rank, Axis(dim=name, source="scalar", by=name, code=_codes(values)), is_time))
    for _, axis, is_time in sorted(found, key=lambda x: x[0]):
        yield axis, is_time


def _along(files: Sequence[FileFacts]) -> list[Axis]:
    """Return dimensions without labels along which another coordinate, such as a time, puts the files in an order.

    It is none if the files differ in the length of others: ragged arrays join along two dimensions together.
    """
    axes = []
    for dim in files[0].dims:
        if any(dim in file.labels or dim not in file.dims for file in files):
            continue
        names = [name for name in files[0].along.get(dim, ()) if all(name in file.along.get(dim, ()) for file in files)]
        for name in sorted(names, key=lambda x: (not is_dates(files[0].along[dim][x]), x)):
            labels = [file.along[dim][name] for file in files]
            if any(x.hasnans or not len(x) or not x.is_monotonic_increasing for x in labels):
                continue
            places = find_places(files, [{dim: x} for x in labels])
            if places and places[0].is_disjoint:
                axes.append(Axis(dim=dim, source="along", by=name, labels=labels, code=places[0].rank))
                break
    return axes if unequal_dims(files) <= {axis.dim for axis in axes} else []


def unequal_dims(files: Sequence[FileFacts], /) -> set[str]:
    """Return the dimensions without labels whose length is not the same in all files."""
    lengths = {(dim, n) for file in files for dim, n in file.sizes.items() if dim not in file.labels}
    return {dim for dim, n in lengths if n != dict(lengths)[dim]}


def _attributes(files: Sequence[FileFacts]) -> Iterator[Axis]:
    for name in MEMBERS:
        values = [file.attributes.get(name) for file in files]
        taken = any(name in file.sizes or name in file.names or name in file.scalars for file in files)
        if not taken and all(isinstance(x, str | int | np.integer) for x in values):
            yield Axis(dim=name, source=FromAttribute(name), by=name, code=_codes(values))


def _positions(files: Sequence[FileFacts]) -> list[Axis]:
    """Return the axes of tiles that say where they begin, as those of NEMO (``DOMAIN_position_first``).

    The numbers count from 1, with the axis that varies fastest first. A file has halos of the given sizes.
    """
    firsts = _numbers(files, _FIRST)
    sizes = _numbers(files, _SIZE)
    if firsts is None or sizes is None or firsts.shape != sizes.shape or firsts.shape[1] != 2:
        return []
    halos = [_numbers(files, name) for name in _HALOS]
    names = files[0].dims
    if len(names) < 2:
        return []
    axes = []
    for k, dim in enumerate(reversed(names[-2:])):
        own = np.array([file.sizes.get(dim, -1) for file in files])
        if not np.array_equal(own, sizes[:, k]) or any(dim in file.labels for file in files):
            return []
        start, end = (np.zeros(len(files), np.int64) if x is None else x[:, k] for x in halos)
        axes.append(_counted(dim, _FIRST, firsts[:, k] - 1, own, start, end))
    return axes[::-1]


def _counted(
    dim: str, by: str, firsts: NDArray[np.int64], sizes: NDArray[np.int64], start: Any = 0, end: Any = 0
) -> Axis:
    """Return the axis of files that begin at positions; the elements at their start and end are halos."""
    spans = [*zip((firsts + start).tolist(), (firsts + sizes - end).tolist(), strict=True)]
    kept = [slice(a - first, b - first) for (a, b), first in zip(spans, firsts.tolist(), strict=True)]
    labels = [pd.RangeIndex(a, b) for a, b in spans]
    return Axis(dim=dim, source="along", by=by, labels=labels, kept=kept, code=_codes([a for a, _ in spans]))


def _numbers(files: Sequence[FileFacts], name: str) -> NDArray[np.int64] | None:
    values = [np.asarray(file.attributes.get(name)) for file in files]
    if any(x.dtype.kind not in "iu" or x.shape != values[0].shape for x in values):
        return None
    return np.stack(values).astype(np.int64)


def _tiles(files: Sequence[FileFacts]) -> list[Axis]:
    """Return the axes of tiles whose 2-D coordinates continue each other."""
    dims = [grid.dims for grid in files[0].grids]
    if any([grid.dims for grid in file.grids] != dims for file in files):
        return []
    each = [_tiles_of(files, [file.grids[k] for file in files]) for k in range(len(dims))]
    return [axis for axes in each for axis in axes] if all(each) else []


def _tiles_of(files: Sequence[FileFacts], known: Sequence[Grid]) -> list[Axis]:
    """Return the axes of tiles of one grid, or none if they do not continue each other."""
    dims = known[0].dims
    if any(dim in file.labels for file in files for dim in dims):
        return []
    corners, first, which = np.unique([x.corner for x in known], axis=0, return_index=True, return_inverse=True)
    tiles = [known[i] for i in first.tolist()]  # files of several times are at one place
    places: dict[int, tuple[int, int]] = {0: (0, 0)}
    todo = [0]
    following = [[_next(x, axis, corners) for x in tiles] for axis in (0, 1)]
    before = [{j: i for i, j in enumerate(each) if j is not None} for each in following]
    while todo:
        i = todo.pop()
        y, x = places[i]
        for axis, step in ((0, (1, 0)), (1, (0, 1))):
            for j, sign in ((following[axis][i], 1), (before[axis].get(i), -1)):
                if j is not None and j not in places:
                    places[j] = y + sign * step[0], x + sign * step[1]
                    todo.append(j)
    if len(set(places.values())) < len(tiles):
        return []
    axes = []
    for axis, dim in enumerate(dims):
        at = np.array([places[i][axis] for i in which.tolist()])
        own = np.array([file.sizes[dim] for file in files])
        lengths = {int(place): set(own[at == place].tolist()) for place in np.unique(at)}
        if any(len(x) > 1 for x in lengths.values()):
            return []
        starts, n = {}, 0
        for place, (length,) in sorted(lengths.items()):
            starts[place], n = n, n + length
        axes.append(_counted(dim, "2-D coordinates", np.array([starts[int(x)] for x in at]), own))
    return axes


def _next(grid: Grid, axis: int, corners: NDArray[np.float64]) -> int | None:
    """Return the tile that begins where a tile ends along an axis, or ``None`` if it is the last one."""
    far = np.abs(corners - grid.behind[axis]).max(axis=1)
    nearest = int(far.argmin())
    return nearest if far[nearest] < grid.step[axis] / 2 else None


def telling_words(files: Sequence[FileFacts], codes: Sequence[NDArray[np.intp]], /) -> Iterator[tuple[Axis, bool]]:
    """Yield places in the names that tell files apart, and whether they name members of an ensemble.

    Words of a dimension come again at most places. A word such as the number of a version, or the time of production,
    is in few names.
    """
    places = [*zip(*(code.tolist() for code in codes), strict=True)] if codes else [()] * len(files)
    n_places = len(set(places))
    has_member = "member" in _taken_names(files)
    for words, kind, source in differing_words([file.source or "" for file in files]):
        if 2 * len(files) <= len(set(words)) * n_places or len({*zip(places, words, strict=True)}) == n_places:
            continue
        is_member = not has_member and all(MEMBER.match(word) for word in words)
        dim = "member" if is_member else kind
        yield Axis(dim=dim, source=source, by=dim, code=_codes(words)), is_member


def enough_words(files: Sequence[FileFacts], codes: Sequence[NDArray[np.intp]], /) -> list[Axis]:
    """Return the fewest places in the names that tell all files apart, each as a dimension of its own.

    Of as many, those with the fewest labels are taken. It is the first place that tells some apart if no three do.
    """
    words = [axis for axis, _ in telling_words(files, codes)]
    sets = [axes for n in (1, 2, 3) for axes in combinations(words, n) if _tell_all(files, codes, axes)]
    best = min(sets, key=lambda axes: (len(axes), prod(len(set(x.code.tolist())) for x in axes)), default=words[:1])
    taken, found = _taken_names(files), []
    for axis in best:
        dim = next(x for k in count(1) if (x := axis.dim if k == 1 else f"{axis.dim}{k}") not in taken)
        taken.add(dim)
        found.append(replace(axis, dim=dim))
    return found


def _tell_all(files: Sequence[FileFacts], codes: Sequence[NDArray[np.intp]], axes: Sequence[Axis]) -> bool:
    return len({*zip(*(x.tolist() for x in (*codes, *(axis.code for axis in axes))), strict=True)}) == len(files)


def _taken_names(files: Sequence[FileFacts]) -> set[str]:
    return {name for file in files for name in (*file.sizes, *file.scalars, *file.labels, *file.names)}
