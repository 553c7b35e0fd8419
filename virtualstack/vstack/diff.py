"""Compare two snapshots of a store, by variable and box; rows are not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.combine.region import Box, bounding, clipped, grown, merged
from virtualstack.errors import SourceNotFoundError
from virtualstack.manifests import ChunkAxis, same_value
from virtualstack.manifests.serialised.headers import ArrayHeader
from virtualstack.printable import MAX_SHOWN_ITEMS, counted, printable
from virtualstack.reading import read_array
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.format.history import array_in, bundle_bytes, read_snapshot
from virtualstack.vstack.format.rows import Placements
from virtualstack.vstack.format.snapshot import ArrayNode, Snapshot
from virtualstack.vstack.write.edit import rows_from, rows_since


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The differences of a variable or a group.

    Parameters
    ----------
    attributes
        Values before and after, for attributes that differ; ``None`` if there is no value.
    properties
        Values before and after, of ``"dtype"``, ``"dims"``, ``"shape"`` and ``"chunks"`` that differ.
    appended
        Boxes that are new, as one range of elements for each dimension.
    overwritten
        Boxes that both snapshots have and whose chunks, or values of loaded variables, differ.
    anew
        If true, boxes cannot be compared: the variable was made again with other chunks, or the snapshots in between
        were compacted and expired.
    """

    attributes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    properties: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    appended: tuple[Mapping[str, slice], ...] = ()
    overwritten: tuple[Mapping[str, slice], ...] = ()
    anew: bool = False

    def __bool__(self) -> bool:
        return bool(self.attributes or self.properties or self.appended or self.overwritten or self.anew)

    def lines(self) -> Iterator[str]:
        """Yield one line of text for each difference."""
        for name, (before, after) in self.properties.items():
            yield f"{name}: {before} to {after}"
        for name, (before, after) in self.attributes.items():
            yield f"attribute {name}: {_short(before)} to {_short(after)}"
        for what, boxes in (("appended", self.appended), ("overwritten", self.overwritten)):
            for box in boxes[:MAX_SHOWN_ITEMS]:
                yield f"{what}: " + (", ".join(f"{dim} {x.start}:{x.stop}" for dim, x in box.items()) or "the value")
            if len(boxes) > MAX_SHOWN_ITEMS:
                yield f"{what}: {counted(len(boxes) - MAX_SHOWN_ITEMS, 'more region')}"
        if self.anew:
            yield "made anew"


def _short(value: object) -> str:
    if isinstance(value, np.ndarray | np.generic):
        value = value.astype(str).tolist() if value.dtype.kind in "mM" else value.tolist()
    text = "none" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diff:
    """The differences between two snapshots.

    Parameters
    ----------
    url
        URL of the store.
    before, after
        Numbers of the snapshots.
    added, removed
        Paths of variables and groups that only ``after``, or only ``before``, has.
    changed
        Differences by path, of variables and groups that both snapshots have; ``"/"`` is the root.
    relocated
        Old and new folders of sources.
    """

    url: str
    before: int
    after: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: Mapping[str, Changed]
    relocated: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.relocated)

    def __repr__(self) -> str:
        lines = [f"<snapshots {self.before} to {self.after} of '{self.url}'>"]
        lines += [f"  + {path}" for path in self.added]
        lines += [f"  - {path}" for path in self.removed]
        for path, changed in self.changed.items():
            lines += [f"  {path}", *(f"      {line}" for line in changed.lines())]
        lines += [f"  {old} is now {new}" for old, new in self.relocated]
        return printable("\n".join(lines if len(lines) > 1 else [*lines, "  no difference"]))


def diff(before: Snapshot, after: Snapshot, archives: tuple[Archive, Archive], /) -> Diff:
    """Compare two snapshots.

    The call reads the loaded variables, and pages of placements if there are many.
    """
    compared = _Compared(before, after, archives)
    added, removed = (
        tuple(sorted(_named(path) for path in (*a.arrays.keys() - b.arrays.keys(), *a.groups.keys() - b.groups.keys())))
        for a, b in ((after, before), (before, after))
    )
    changed = {}
    for path in before.groups.keys() & after.groups.keys():
        changed[path] = Changed(attributes=_items(before.groups[path].attributes, after.groups[path].attributes))
    for path in before.arrays.keys() & after.arrays.keys():
        changed[path] = compared.array(path)
    moved = [(old, new) for old, new, _ in after.moved if (old, new) not in {x[:2] for x in before.moved}]
    return Diff(
        url=archives[0].url.rstrip("/"),
        before=before.number,
        after=after.number,
        added=added,
        removed=removed,
        changed={_named(path): changed[path] for path in sorted(changed) if changed[path]},
        relocated=tuple(moved),
    )


def _named(path: str) -> str:
    return path[1:] or "/"


def _items(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the values before and after, of names whose values differ."""
    pairs = {name: (before.get(name), after.get(name)) for name in (*before, *after)}
    return {name: (a, b) for name, (a, b) in pairs.items() if type(a) is not type(b) or not same_value(a, b)}


def _properties(header: ArrayHeader) -> dict[str, Any]:
    axes = header.grid.axes
    chunks = tuple(axis.chunk if axis.chunk is not None else "uneven" for axis in axes)
    shape = header.grid.array_shape
    return {"dtype": str(header.dtype), "dims": header.dimension_names, "shape": shape, "chunks": chunks}


@dataclass(frozen=True, slots=True)
class _Compared:
    before: Snapshot
    after: Snapshot
    archives: tuple[Archive, Archive]
    _bundles: dict[int, bytes] = field(default_factory=dict)

    def array(self, path: str) -> Changed:
        old, new = self.before.arrays[path], self.after.arrays[path]
        a, b = old.header, new.header
        attributes = _items({**a.attributes, **a.cf}, {**b.attributes, **b.cf})
        properties = _items(_properties(a), _properties(b))
        if a.dtype != b.dtype or a.dimension_names != b.dimension_names:
            return Changed(attributes=attributes, properties=properties, anew=True)
        shapes = a.grid.array_shape, b.grid.array_shape
        common = tuple(map(min, *shapes)) if shapes[0] else ()
        boxes = self._loaded(path, common) if old.bundled and new.bundled else self._placed(path, old, new, common)
        return Changed(
            attributes=attributes,
            properties=properties,
            appended=tuple(_by_dim(b, box) for box in grown(shapes[0], shapes[1])),
            overwritten=tuple(_by_dim(b, box) for box in boxes or ()),
            anew=boxes is None,
        )

    def _loaded(self, path: str, common: tuple[int, ...]) -> list[Box]:
        """Return the smallest box that holds all values of a loaded variable that differ."""
        pair = zip((self.before, self.after), self.archives, strict=True)
        arrays = [array_in(x, path, archive, self._bundle(x, archive)) for x, archive in pair]
        key = tuple(slice(0, n) for n in common)
        x, y = (np.ascontiguousarray(read_array(array, key)) for array in arrays)
        if x.dtype.kind == "T":
            differ = x != y
        else:
            differ = (
                (x.view(np.uint8) != y.view(np.uint8)).reshape(*common, -1).any(-1)
                if x.ndim
                else x.tobytes() != y.tobytes()
            )
        return bounding(np.asarray(differ))

    def _bundle(self, snapshot: Snapshot, archive: Archive) -> bytes:
        """Return the bundle of a snapshot, which is read once."""
        if snapshot.number not in self._bundles:
            self._bundles[snapshot.number] = bundle_bytes(snapshot, archive.objects)
        return self._bundles[snapshot.number]

    def _placed(self, path: str, old: ArrayNode, new: ArrayNode, common: tuple[int, ...]) -> list[Box] | None:
        """Return the boxes of a variable whose chunks differ; ``None`` if they cannot be compared."""
        axes = zip(old.header.grid.axes, new.header.grid.axes, strict=True)
        if not all(a.begins(b) or b.begins(a) for a, b in axes):
            return None
        if old.bundled or new.bundled:
            return merged([tuple((0, n) for n in common)])
        parts = self._rows(old, new)
        if parts is None:
            return self._between(path, common)
        return merged([box for node, rows in parts for box in clipped(_elements(node, rows), common)])

    def _rows(self, old: ArrayNode, new: ArrayNode) -> list[tuple[ArrayNode, Placements]] | None:
        """Return placements outside of which both snapshots have the same chunks; ``None`` if they were merged."""
        if old.generation == new.generation:
            least, most = sorted((old, new), key=lambda node: node.n_placed)
            archive = self.archives[1] if most is new else self.archives[0]
            rows = rows_since(most, least.n_placed, archive)
            return None if rows is None else [(most, rows)]
        a, b = (
            rows_from(node.placements, 0, len(node.header.grid.axes), archive).table
            for node, archive in zip((old, new), self.archives, strict=True)
        )
        n = min(len(a), len(b))
        same = 0
        if _begins(old.header.encodings, new.header.encodings) and _begins(old.header.fills, new.header.fills):
            differ = (a[:n] != b[:n]).any(1)
            same = int(differ.argmax()) if differ.any() else n
        return [(old, Placements(a[same:])), (new, Placements(b[same:]))]

    def _between(self, path: str, common: tuple[int, ...]) -> list[Box] | None:
        """Return the boxes that differ, by way of a snapshot in between; ``None`` if they cannot be compared so."""
        first, last = sorted((self.before, self.after), key=lambda snapshot: snapshot.number)
        if last.number - first.number < 2:
            return None
        middle = (first.number + last.number) // 2
        try:
            between = read_snapshot(self.archives[0].objects, middle)
        except SourceNotFoundError:
            return None
        if path not in between.arrays:
            return None
        found: list[Box] = []
        for a, b in ((first, between), (between, last)):
            half = _Compared(a, b, self.archives)
            boxes = half._placed(path, a.arrays[path], b.arrays[path], common)
            if boxes is None:
                return None
            found += boxes
        return merged(found)


def _begins[T](a: Sequence[T], b: Sequence[T]) -> bool:
    return all(x == y for x, y in zip(a, b, strict=False))


def _elements(node: ArrayNode, rows: Placements) -> list[Box]:
    """Return the elements that placements show: begin and end for each axis."""
    axes = node.header.grid.axes
    begins = [_lines(axis, rows.begins[:, i]) for i, axis in enumerate(axes)]
    ends = [_lines(axis, rows.ends[:, i]) for i, axis in enumerate(axes)]
    each = zip(*(zip(a.tolist(), b.tolist(), strict=True) for a, b in zip(begins, ends, strict=True)), strict=True)
    return list(each) if axes else [()] * len(rows.table)


def _lines(axis: ChunkAxis, cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the elements at which cells begin."""
    inside = np.minimum(cells, axis.n_cells)
    return np.minimum(axis.starts(inside), axis.length)


def _by_dim(header: ArrayHeader, box: Box) -> dict[str, slice]:
    names = header.dimension_names or ()
    dims = names if len(set(names)) == len(box) else [f"axis {i}" for i in range(len(box))]
    return {dim: slice(begin, end) for dim, (begin, end) in zip(dims, box, strict=True)}
