"""Health of a store: labels that are late or missing, files that do not fit, and growth."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.dataset import loaded_dataset
from virtualstack.errors import RecipeError
from virtualstack.manifests import ABSENT, ManifestGroup
from virtualstack.manifests.cells import blocks
from virtualstack.printable import MAX_SHOWN_ITEMS, counted, printable
from virtualstack.sizes import human_bytes
from virtualstack.storage import Storage
from virtualstack.vstack.expected import Expected, expected_of
from virtualstack.vstack.ledger import Ledger, grouped
from virtualstack.vstack.recipe import Recipe

_DAY = 86400.0
_SPANS = (1, 7, 30)
"""Days for which the growth is told."""

_MAX_LABELS = 1 << 27


class LabelRange(NamedTuple):
    """Expected labels that follow each other: the first, the last, and how many they are."""

    first: str
    last: str
    n: int


class Growth(NamedTuple):
    """Files that were placed in the last days, and their bytes."""

    days: int
    n_files: int
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Health:
    """The result of :meth:`Repository.health`.

    Parameters
    ----------
    url
        URL of the store.
    snapshot
        Number of the snapshot.
    time
        Seconds since 1970-01-01 (UTC) of the check.
    files
        Number of files by state, as the ledger says.
    n_expected
        Number of labels that the recipe expects until now; ``None`` if it expects none.
    n_there
        Number of these that the store has.
    n_known
        Number of these that it lacks, in gaps that the recipe names.
    late, missing
        Labels that the store lacks, although files of them are due.
    odd
        State, URL and reason of files that do not fit, or have vanished.
    growth
        Files that were placed in the last days.
    last_placed
        Seconds since 1970-01-01 (UTC) when a file was last placed.
    """

    url: str
    snapshot: int
    time: float
    files: Mapping[str, int]
    n_expected: int | None = None
    n_there: int = 0
    n_known: int = 0
    late: tuple[LabelRange, ...] = ()
    missing: tuple[LabelRange, ...] = ()
    odd: tuple[tuple[str, str, str], ...] = ()
    growth: tuple[Growth, ...] = ()
    last_placed: float | None = None

    @property
    def labels(self) -> dict[str, int] | None:
        """Number of expected labels: ``there``, ``late``, ``missing``, ``known`` gaps, and ``pending`` until due."""
        if self.n_expected is None:
            return None
        counts = {"there": self.n_there, "late": _count(self.late), "missing": _count(self.missing)}
        counts["known"] = self.n_known
        return {**counts, "pending": self.n_expected - sum(counts.values())}

    @property
    def exit_code(self) -> int:
        """Exit status of ``virtualstack health``: 1: labels are late or missing. 3: files do not fit. 0: neither."""
        if self.late or self.missing:
            return 1
        return 3 if any(state != "vanished" for state, *_ in self.odd) else 0

    def to_json(self) -> dict[str, Any]:
        """Return the facts that ``virtualstack health --json`` and the page of the server show, as plain data.

        Returns
        -------
        dict
            The fields by name, with ``exit_code``, and ``labels`` by state. Times are in seconds since 1970 (UTC).
        """
        ranges = ("late", "missing", "growth")
        return {
            "snapshot": self.snapshot,
            "time": self.time,
            "exit_code": self.exit_code,
            "files": dict(self.files),
            "labels": self.labels,
            **{name: [x._asdict() for x in getattr(self, name)] for name in ranges},
            "odd": [{"state": state, "url": url, "reason": reason} for state, url, reason in self.odd],
            "last_placed": self.last_placed,
        }

    def __repr__(self) -> str:
        files = ", ".join(f"{n:,} {state}" for state, n in self.files.items())
        lines = [f"snapshot {self.snapshot} of '{self.url}'", f"  files: {files or 'none'}"]
        if self.last_placed is not None:
            lines[-1] += f"; the last was placed at {pd.Timestamp(self.last_placed, unit='s'):%Y-%m-%d %H:%M}"
        if self.labels is not None:
            told = ", ".join(f"{n:,} {name}" for name, n in self.labels.items() if n)
            lines.append(f"  labels: {self.n_expected:,} expected: {told}")
        for name in ("late", "missing"):
            found: tuple[LabelRange, ...] = getattr(self, name)
            lines += [f"  {name}: {_shown(x)}" for x in found[:MAX_SHOWN_ITEMS]]
            n_more = _count(found[MAX_SHOWN_ITEMS:])
            lines += [f"  ... {counted(n_more, 'more label')}"] * (n_more > 0)
        grown = [
            f"{counted(x.n_files, 'file')} ({human_bytes(x.n_bytes)}) in {counted(x.days, 'day')}" for x in self.growth
        ]
        lines += [f"  growth: {', '.join(grown)}", *(f"  {line}" for line in grouped(self.odd))]
        return printable("\n".join(lines))

    def to_prometheus(self) -> str:
        """Return the numbers as the text format of Prometheus, for example for the collector of text files.

        Returns
        -------
        str
            Gauges whose names begin with ``virtualstack_store_``; each has the URL of the store as label.
        """
        growth = {f"{x.days}d": x for x in self.growth}
        gauges: list[tuple[str, str, str, Mapping[str, float]]] = [
            ("snapshot", "Number of the newest snapshot", "", {"": self.snapshot}),
            ("checked_timestamp_seconds", "Time of this check", "", {"": self.time}),
            ("files", "Files of the recipe by state", "state", self.files),
            ("labels", "Expected labels by state", "state", self.labels or {}),
            ("placed_files", "Files that were placed lately", "within", {k: x.n_files for k, x in growth.items()}),
            ("placed_bytes", "Bytes of these files", "within", {k: x.n_bytes for k, x in growth.items()}),
        ]
        if self.last_placed is not None:
            gauges.append(("last_placed_timestamp_seconds", "Time of the last placed file", "", {"": self.last_placed}))
        lines = []
        for name, what, label, values in gauges:
            lines += [f"# HELP virtualstack_store_{name} {what}", f"# TYPE virtualstack_store_{name} gauge"]
            for key, value in values.items():
                labels = {"store": self.url, **({label: key} if label else {})}
                told = ",".join(f"{a}={json.dumps(b, ensure_ascii=False)}" for a, b in labels.items())
                lines.append(f"virtualstack_store_{name}{{{told}}} {value!r}")
        return "\n".join(lines) + "\n"


def _count(ranges: tuple[LabelRange, ...]) -> int:
    return sum(x.n for x in ranges)


def _shown(found: LabelRange) -> str:
    return found.first if found.n == 1 else f"{found.first} to {found.last}: {counted(found.n, 'label')}"


def health(
    url: str, snapshot: int, group: ManifestGroup, ledger: Ledger, recipe: Recipe | None, storage: Storage, /
) -> Health:
    """Return the health of a snapshot; no file is opened."""
    now = time.time()
    placed = ledger.where(["placed"]).columns
    growth = []
    for days in _SPANS:
        own = placed.filter(pc.greater(placed["since"], now - days * _DAY))
        growth.append(Growth(days, own.num_rows, pc.sum(own["size"]).as_py() or 0))
    odd = ledger.where(["quarantined", "waiting", "masked", "vanished"]).entries()
    found: dict[str, Any] = {}
    if recipe is not None and recipe.expected:
        found = _labels(expected_of(recipe.expected), group, storage, now)
    return Health(
        url=url,
        snapshot=snapshot,
        time=now,
        files=ledger.counts,
        odd=tuple((x.state, x.url, x.reason) for x in odd),
        growth=tuple(growth),
        last_placed=pc.max(placed["since"]).as_py() if placed.num_rows else None,
        **found,
    )


# -- expected labels ------------------------------------------------------------------------------------------


def _labels(rules: Mapping[str, Expected], group: ManifestGroup, storage: Storage, now: float) -> dict[str, Any]:
    """Compare the labels that rules expect with those that a store has."""
    stored = loaded_dataset(group, storage, set(rules)).indexes
    if unknown := [dim for dim in rules if dim not in stored]:
        raise RecipeError(f"'expected' of the recipe names '{unknown[0]}', whose labels '{group.url}' does not have")
    wanted = {dim: rule.wanted(dim, stored[dim], now) for dim, rule in rules.items()}
    shape = tuple(map(len, wanted.values()))
    if math.prod(shape) > _MAX_LABELS:
        raise RecipeError(f"'expected' of the recipe names more than {_MAX_LABELS:,} labels; begin later with first")

    def along(axis: int, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return mask.reshape([-1 if i == axis else 1 for i in range(len(shape))])

    is_there = _there(group, list(rules))
    is_known, is_late, is_missing = np.zeros(shape, np.bool_), np.ones(shape, np.bool_), np.ones(shape, np.bool_)
    for axis, (dim, rule) in enumerate(rules.items()):
        found = np.zeros((len(wanted[dim]), *is_there.shape[:axis], *is_there.shape[axis + 1 :]), np.bool_)
        at = rule.find(stored[dim], wanted[dim])
        np.logical_or.at(found, at[at >= 0], np.moveaxis(is_there, axis, 0)[at >= 0])
        is_there = np.moveaxis(found, 0, axis)
        is_known |= along(axis, rule.in_gaps(wanted[dim]))
        is_late &= along(axis, rule.is_over(wanted[dim], rule.late_seconds, now))
        is_missing &= along(axis, rule.is_over(wanted[dim], rule.missing_seconds, now))
    lacking = ~is_there & ~is_known & is_late
    return {
        "n_expected": math.prod(shape),
        "n_there": int(is_there.sum()),
        "n_known": int((is_known & ~is_there).sum()),
        "late": tuple(_ranges(lacking & ~is_missing, wanted)),
        "missing": tuple(_ranges(lacking & is_missing, wanted)),
    }


def _there(group: ManifestGroup, dims: Sequence[str]) -> NDArray[np.bool_]:
    """Return at which labels along dimensions a virtual variable has a chunk that is not ABSENT."""
    lengths = {
        dim: n
        for array in group.arrays.values()
        for dim, n in zip(array.dimension_names or (), array.shape, strict=True)
    }
    there: NDArray[np.bool_] | None = None
    for name, array in group.arrays.items():
        own = array.dimension_names or ()
        if name in group.loaded or name in dims or not set(dims) <= set(own):
            continue
        axes = [own.index(dim) for dim in dims]
        found = np.zeros([array.grid.shape[axis] for axis in axes], np.bool_)
        for box in blocks(array.manifest.shape):
            is_stored = array.manifest.read(box).entries["location"] != ABSENT
            is_stored = is_stored.any(tuple(set(range(array.ndim)) - set(axes)))
            found[tuple(box[axis] for axis in axes)] |= is_stored.transpose([sorted(axes).index(x) for x in axes])
        for i, axis in enumerate(axes):
            found = np.repeat(found, array.grid.axes[axis].lengths(), i)
        there = found if there is None else there | found
    return np.ones([lengths[dim] for dim in dims], np.bool_) if there is None else there


def _ranges(mask: NDArray[np.bool_], wanted: Mapping[str, pd.Index[Any]]) -> Iterator[LabelRange]:
    """Yield the runs of labels of a mask, in C order."""
    edges = np.flatnonzero(np.diff(mask.reshape(-1).astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
    for begin, stop in edges.tolist():
        first, last = (
            ", ".join(f"{dim} {index[int(i)]!s}" for (dim, index), i in zip(wanted.items(), at, strict=True))
            for at in (np.unravel_index(k, mask.shape) for k in (begin, stop - 1))
        )
        yield LabelRange(first, last, stop - begin)
