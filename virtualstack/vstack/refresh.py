"""Scan sources that have changed since they were indexed, and replace their chunks, in one snapshot."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.combine.absent import with_missing_value
from virtualstack.combine.fitting import Fitting, cut_like_store, fitted
from virtualstack.combine.part import Part, bundled_in
from virtualstack.combine.region import find_boxes
from virtualstack.dataset import expand_dims, loaded_dataset, loaded_variable, virtual_array
from virtualstack.errors import CombineError, ReaderError, StorageError, check_word
from virtualstack.location import Location
from virtualstack.manifests import (
    ABSENT,
    EMPTY,
    ENTRY,
    INLINE,
    ChunkAxis,
    ChunkManifest,
    ManifestArray,
    ManifestGroup,
    with_inherited,
)
from virtualstack.manifests.manifest import Overlay
from virtualstack.options import OnMissing
from virtualstack.printable import MAX_SHOWN_ITEMS, counted, printable
from virtualstack.storage import Storage
from virtualstack.storage.digests import ALL
from virtualstack.verify import values_differ
from virtualstack.vstack.format.ledger import Entry
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.ledger import Ledger, ledger_of
from virtualstack.vstack.rescan import Rescan, Scanned, rescan, why_not
from virtualstack.vstack.save import Stored
from virtualstack.vstack.shown import WRITE_AGAIN, Cells, cells_of_sources, check_order, shown_in
from virtualstack.vstack.verify import SourceProblem, stale_sources


class _AtSnapshot(Protocol):
    """A repository at one of its snapshots."""

    @property
    def snapshot(self) -> Snapshot: ...


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Refreshed[R: _AtSnapshot]:
    """The result of :meth:`Repository.refresh`.

    Parameters
    ----------
    repository
        The repository at the new snapshot, or at the old one if nothing changed.
    refreshed
        URLs of the sources whose new chunks are in the store.
    masked
        URLs of the sources whose chunks are ABSENT now, because the sources are missing or do not fit.
    misfits
        URLs of those of them that have changed and do not fit, each with the reason.
    left
        URLs of the sources that were left unchanged in the store, each with the reason.
    """

    repository: R
    refreshed: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    misfits: tuple[tuple[str, str], ...] = ()
    left: tuple[tuple[str, str], ...] = ()

    @property
    def is_complete(self) -> bool:
        """True if no source was left."""
        return not self.left

    @property
    def table(self) -> pd.DataFrame:
        """Table with one row for each source that was refreshed, masked or left."""
        rows = [(url, "refreshed", "") for url in self.refreshed]
        rows += [(url, "masked", dict(self.misfits).get(url, "")) for url in self.masked]
        rows += [(url, "left", reason) for url, reason in self.left]
        return pd.DataFrame(rows, columns=["url", "status", "reason"])

    def __repr__(self) -> str:
        done = [f"{len(self.refreshed)} refreshed", *([f"{len(self.masked)} masked"] if self.masked else [])]
        lines = [f"snapshot {self.repository.snapshot.number}: {', '.join(done)}, {len(self.left)} left"]
        named = [f"  masked: {url}: {reason}" for url, reason in self.misfits]
        named += [f"  left: {url}: {reason}" for url, reason in self.left]
        n_more = len(named) - MAX_SHOWN_ITEMS
        lines += named[:MAX_SHOWN_ITEMS]
        return printable("\n".join(lines + [f"  ... {n_more} more"] * (n_more > 0)))


def refresh[R: _AtSnapshot](
    store: Stored,
    storage: Storage,
    how: Rescan,
    open_at: Callable[[Snapshot], R],
    /,
    *,
    missing: OnMissing = "keep",
    changed: OnMissing = "keep",
    message: str | None = None,
) -> Refreshed[R]:
    """Scan changed sources again; see :meth:`Repository.refresh`. ``open_at`` opens the repository at a snapshot."""
    check_word("missing", missing, OnMissing)
    check_word("changed", changed, OnMissing)
    shown = shown_in(store.group, store.opened.archive(store.snapshot))
    storage = storage.only(store.opened.permission)
    ledger = ledger_of(store.opened, store.snapshot)
    stale = stale_sources(shown, ledger, storage)
    told = {problem.url: problem for problem in stale.problems}
    wanted = {x.url for x in stale.problems if x.status == "changed" or (x.status == "missing" and missing == "mask")}
    segments = {number: frozenset(x for x in own if x.url in wanted) for number, own in stale.segments.items()}
    cells: dict[str, dict[str, Cells]] = {url: {} for url in sorted(wanted)}
    for (url, path), found in cells_of_sources(shown, {k: own for k, own in segments.items() if own}).items():
        cells[url][path] = found
    masked = [url for url in cells if told[url].status == "missing"]
    overlays: dict[str, list[Overlay]] = {}
    refreshed: list[str] = []
    misfits: list[tuple[str, str]] = []
    left = [(x.url, x.reason) for x in stale.problems if x.url not in wanted]
    scanned = {url: each for url, each in cells.items() if told[url].status == "changed"}
    nodes = with_inherited(store.group) if scanned else {}
    for url, found_now in rescan(scanned, storage, how):
        was = told[url].recorded
        made = (
            _made(store, nodes, found_now, was, cells[url], storage, how)
            if isinstance(found_now, Scanned)
            else found_now
        )
        if isinstance(made, Exception):
            if changed == "mask" and not isinstance(made, StorageError):
                misfits.append((url, why_not(made)))
            else:
                left.append((url, why_not(made)))
            continue
        refreshed.append(url)
        for path, over in made.items():
            overlays.setdefault(path, []).extend(over)
    masked += [url for url, _ in misfits]
    for url in masked:
        for path, each in cells[url].items():
            overlays.setdefault(path, []).extend(masks(each))
    snapshot = store.snapshot
    if overlays:
        said = message or _said(told, refreshed, masked)
        known = [told[url].recorded.fingerprint for url in refreshed]
        checksums = bool(known) and all(x is not None and x.ranges == ALL for x in known)
        rows = _entries(
            ledger, told, set(refreshed), {**dict.fromkeys(masked, "the file was missing"), **dict(misfits)}
        )
        snapshot = store.write(store.group, overlays=overlays, message=said, checksums=checksums, ledger=rows)
    return Refreshed(
        repository=open_at(snapshot),
        refreshed=tuple(refreshed),
        masked=tuple(masked),
        misfits=tuple(misfits),
        left=tuple(sorted(left)),
    )


def _entries(
    ledger: Ledger, told: Mapping[str, SourceProblem], refreshed: Set[str], masked: Mapping[str, str]
) -> list[Entry]:
    """Return what became of files that the ledger of the store has."""
    now, rows = time.time(), []
    for entry in ledger.entries():
        version = told[entry.url].found if entry.url in told else None
        if entry.url in masked:
            seen = entry if version is None else Entry.of(version, "masked", since=now)
            rows.append(seen._replace(state="masked", reason=masked[entry.url], since=now))
        elif entry.url in refreshed and version is not None:
            rows.append(Entry.of(version, "placed", since=now))
    return rows


def _said(told: Mapping[str, SourceProblem], refreshed: list[str], masked: list[str]) -> str:
    parts = [f"refreshed {counted(len(refreshed), 'source')}"] if refreshed else []
    return ", ".join(parts + ([f"masked {counted(len(masked), 'source')}"] if masked else []))


def masks(cells: Cells, /) -> Iterator[Overlay]:
    """Yield ABSENT chunks for cells; they read as a missing value if the variable has one."""
    fill = cells.array.manifest.tables.fill
    with contextlib.suppress(CombineError):
        array, missing = with_missing_value(cells.array, name=cells.array.name or "")
        if array.dtype == cells.array.dtype:
            fill = missing
    for low, high in find_boxes(cells.mask()):
        entries = np.zeros([b - a for a, b in zip(low, high, strict=True)], ENTRY)
        entries["location"] = ABSENT
        begin = tuple(a + b for a, b in zip(low, cells.low, strict=True))
        yield Overlay(ChunkManifest(entries=entries, fills=(fill,), encodings=()), begin)


def _made(
    store: Stored,
    nodes: Mapping[str, ManifestGroup],
    source: Scanned,
    was: Location,
    cells: Mapping[str, Cells],
    storage: Storage,
    how: Rescan,
) -> dict[str, list[Overlay]] | Exception:
    """Return the new chunks of a source for its cells, or the error that says why they do not fit or may not be read.

    ``nodes`` are the groups of the store by path, with the coordinates that they inherit.
    """
    made: dict[str, list[Overlay]] = {}
    try:
        whole = source.whole()
        by_groups: dict[tuple[str, int], tuple[ManifestGroup, dict[str, Cells]]] = {}
        for path, each in cells.items():
            own, _, name = path.rpartition("/")
            other = source.find_group(path, nodes[own])
            by_groups.setdefault((own, id(other)), (other, {}))[1][name] = each
        for (own, _), (other, each_name) in by_groups.items():
            for name, over in _placed(nodes[own], whole.get(id(other), other), was, each_name, storage, how).items():
                made[f"{own}/{name}"] = over
        found = {x.url for each in made.values() for over in each for x in over.manifest.tables.locations}
        store.opened.permission.check(sorted(found))  # a document of references names other files than itself
    except (CombineError, ReaderError, StorageError) as error:
        return error
    return made


def _placed(
    stored: ManifestGroup,
    source: ManifestGroup,
    was: Location,
    cells: Mapping[str, Cells],
    storage: Storage,
    how: Rescan,
) -> dict[str, list[Overlay]]:
    """Return the new chunks of the variables of one group of a source."""
    loaded = bundled_in(stored)
    old = loaded_dataset(stored, storage, loaded)
    new = loaded_dataset(source, storage, loaded)
    new = _in_order_of(old, _expand_dims_like(old, new))
    region = _region(cells, old, new)
    for name in sorted((stored.arrays.keys() & source.arrays.keys()) - loaded - cells.keys()):
        _check_inline(stored.arrays[name], source, region, storage, name)
    new = new.drop_vars([name for name in new.variables if name not in cells and name not in loaded])
    old = old[[name for name in new.variables if name in old.variables]]
    fitting = Fitting.from_options(join="exact", options=None, storage=storage).with_remedies(WRITE_AGAIN)
    made: dict[str, list[Overlay]] = {name: [] for name in cells}
    for runs in itertools.product(*region.values()):
        at = {dim: place for dim, (place, _) in zip(region, runs, strict=True)}
        there = old.isel(at)
        parts = [
            Part.from_dataset(x)
            for x in (there, new.isel({dim: own for dim, (_, own) in zip(region, runs, strict=True)}))
        ]
        part = fitted(parts[1], replace(parts[0], source=stored.url), fitting, but=())
        part = cut_like_store(part, parts[0])
        _check_loaded(part, there, loaded)
        labelled = there.indexes.keys() & part.indexes.keys()
        for name, each in cells.items():
            made[name] += _overlays(part.variables[name], there.variables[name].dims, was, each, at, labelled)
    return made


def _expand_dims_like(old: xr.Dataset, new: xr.Dataset) -> xr.Dataset:
    """Add the dimensions that variables got when files were joined along new ones."""
    new = new.set_coords([name for name in new.data_vars if name in old.coords])
    made = {}
    for name in new.variables.keys() & old.variables.keys():
        variable = new.variables[name]
        lacking = {str(dim): 1 for dim in old[name].dims if dim not in variable.dims and new.sizes.get(dim, 1) == 1}
        if lacking:
            made[name] = expand_dims(variable, lacking)
    return new.assign(made)


def _in_order_of(old: xr.Dataset, new: xr.Dataset) -> xr.Dataset:
    """Return a dataset with its labels in the order that a store has them in, such as levels from the top."""
    for dim in new.indexes.keys() & old.indexes.keys():
        at = old.indexes[dim].get_indexer_for(new.indexes[dim])
        if len(at) == new.sizes[dim] and (at >= 0).all() and (np.diff(at) < 0).any():
            new = new.isel({dim: np.argsort(at)})
    return new


type _Runs = tuple[tuple[slice, slice], ...]
"""Pairs of slices along a dimension: elements of the store, and the elements of a source that belong there."""


def _region(cells: Mapping[str, Cells], old: xr.Dataset, new: xr.Dataset) -> dict[str, _Runs]:
    """Find the elements along each dimension that a source covers."""
    region: dict[str, _Runs] = {}
    for name, each in cells.items():
        dims = each.array.dimension_names or ()
        for dim, axis, numbers in zip(dims, each.array.grid.axes, each.numbers.T, strict=True):
            runs = _runs(name, dim, axis, np.unique(numbers), old, new)
            if region.setdefault(dim, runs) != runs:
                raise CombineError(f"its variables are at different positions along '{dim}': {WRITE_AGAIN}")
    return region


def _runs(name: str, dim: str, axis: ChunkAxis, numbers: NDArray[np.int64], old: xr.Dataset, new: xr.Dataset) -> _Runs:
    """Find the elements along one dimension: the elements of some of its cells, and of EMPTY cells around them."""
    n, lines = new.sizes[dim], axis.lines()
    begin, end = int(lines[numbers[0]]), int(lines[numbers[-1] + 1])
    if dim in old.indexes and dim in new.indexes:
        at = old.indexes[dim].get_indexer_for(new.indexes[dim])
        if n and len(at) == n and at[0] >= 0 and (np.diff(at) > 0).all() and np.isin(lines[numbers], at).all():
            cuts = [0, *(np.flatnonzero(np.diff(at) > 1) + 1).tolist(), n]
            return tuple((slice(int(at[a]), int(at[b - 1]) + 1), slice(a, b)) for a, b in itertools.pairwise(cuts))
    if n == end - begin:
        return ((slice(begin, end), slice(0, n)),)
    if n == axis.length:
        return ((slice(0, n), slice(0, n)),)
    shown = int(np.diff(lines)[numbers].sum())
    raise CombineError(
        f"variable '{name}' has {counted(n, 'element')} along '{dim}' now, but the store refers to {shown}: "
        f"{WRITE_AGAIN}"
    )


def _check_loaded(part: Part, there: xr.Dataset, loaded: set[str]) -> None:
    """Check that loaded values in the store equal the values of the source."""
    for name in loaded & part.variables.keys() & set(map(str, there.variables)):
        ours, theirs = there.variables[name], part.variables[name].transpose(*there.variables[name].dims)
        _check_same(name, (ours.sizes, theirs.sizes), [(ours.values, theirs.values)])


def _check_inline(
    array: ManifestArray, source: ManifestGroup, region: Mapping[str, _Runs], storage: Storage, name: str
) -> None:
    """Check that INLINE chunks in the region of a source, such as chunks of strings, hold its values."""
    pieces = list(_inline_pieces(array, region))
    if not pieces:
        return
    dims = array.dimension_names or ()
    found = loaded_dataset(source, storage, {name})[name]
    new = found.expand_dims([dim for dim in dims if dim not in found.dims])
    sizes = {dim: sum(own.stop - own.start for _, own in runs) for dim, runs in region.items()}
    wanted = {dim: sizes.get(dim, n) for dim, n in zip(dims, array.shape, strict=True)}
    cuts = ((replace(array[at], dimension_names=dims), own) for at, own in pieces)
    pairs = (
        (loaded_variable(name, cut, storage, url=source.url).values, new.transpose(*dims)[own].values)
        for cut, own in cuts
    )
    _check_same(name, (wanted, new.sizes), pairs)


def _check_same(
    name: str, sizes: tuple[Mapping[Any, int], Mapping[Any, int]], pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]]
) -> None:
    """Check that a variable has the sizes and the values, here in pieces, that a store itself holds of it."""
    before, now = map(dict, sizes)
    if before != now:
        raise CombineError(
            f"variable '{name}' has the sizes {now} in the file now, but its values in the store have {before}",
            WRITE_AGAIN,
        )
    for ours, theirs in pairs:
        difference = values_differ(np.asarray(ours), np.asarray(theirs))
        if difference is not None:
            raise CombineError(
                f"variable '{name}' has values in the store itself, which differ from those in the file now: "
                f"{difference}",
                WRITE_AGAIN,
            )


def _inline_pieces(
    array: ManifestArray, region: Mapping[str, _Runs]
) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Yield the elements of INLINE chunks in the region of a source, and the matching elements of the source."""
    axes, dims = array.grid.axes, array.dimension_names or ()
    lines = [axis.lines() for axis in axes]
    sides = [region.get(dim, ((slice(0, n), slice(0, n)),)) for dim, n in zip(dims, array.shape, strict=True)]
    for runs in itertools.product(*sides):
        spans = zip(axes, runs, strict=True)
        box = tuple(slice(int(x.find(at.start)), int(x.find(at.stop - 1)) + 1) for x, (at, _) in spans)
        there = array.manifest.read(box).entries["location"]
        for low, high in find_boxes(np.asarray(there == INLINE)):
            at, own = [], []
            for edges, first, a, b, (side, its) in zip(lines, box, low, high, runs, strict=True):
                begin = max(int(edges[first.start + a]), side.start)
                end = min(int(edges[first.start + b]), side.stop)
                at.append(slice(begin, end))
                own.append(slice(its.start + begin - side.start, its.start + end - side.start))
            yield tuple(at), tuple(own)


def _overlays(
    variable: xr.Variable,
    dims: tuple[object, ...],
    was: Location,
    cells: Cells,
    region: Mapping[str, slice],
    labelled: Set[object],
) -> Iterator[Overlay]:
    """Yield the new chunks for cells that refer to a source, and for EMPTY cells among them.

    They are relative to the store if the old source was.
    """
    array = cast(ManifestArray, virtual_array(variable.transpose(*dims)))  # fitted, in the chunks of the store
    spans = [_cells_between(axis, region[str(dim)]) for dim, axis in zip(dims, cells.array.grid.axes, strict=True)]
    low = tuple(begin for begin, _ in spans)
    there, manifest = cells.array.manifest.read(tuple(slice(begin, end) for begin, end in spans)), array.in_memory()
    own = np.zeros(there.shape, np.bool_)
    numbers = cells.numbers - np.array(low, np.int64)
    own[tuple(numbers[((numbers >= 0) & (numbers < own.shape)).all(1)].T)] = True
    locations = tuple(replace(x, relative_to=was.relative_to) for x in manifest.locations)
    manifest = replace(manifest, locations=locations)
    check_order(there, manifest, own, array.grid, [i for i, dim in enumerate(dims) if dim not in labelled])
    for first, last in find_boxes(own | (there.entries["location"] == EMPTY)):
        box = tuple(slice(a, b) for a, b in zip(first, last, strict=True))
        yield Overlay(manifest.read(box), tuple(a + b for a, b in zip(low, first, strict=True)))


def _cells_between(axis: ChunkAxis, side: slice) -> tuple[int, int]:
    lines: NDArray[np.int64] = axis.lines()
    begin, end = np.searchsorted(lines, [side.start, side.stop]).tolist()
    if lines[begin] != side.start or lines[end] != side.stop:
        raise CombineError(f"its chunks begin or end in the middle of chunks of the store: {WRITE_AGAIN}")
    return begin, end
