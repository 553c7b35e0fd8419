"""Placement of a part over a region of a store, along its chunk boundaries; and boxes of elements and cells."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.combine.concat import may_follow
from virtualstack.combine.equal_variables import are_equal, the_same
from virtualstack.combine.fitting import (
    Fitting,
    check_presence,
    cut_like,
    cut_like_store,
    fitted,
    joint_dtype,
    load_part,
)
from virtualstack.combine.part import Part, bundled_in, each_node, group_from
from virtualstack.dataset import expand_dims, loaded_variable, virtual_array
from virtualstack.errors import ChunkAlignmentError, Code, CombineError, Remedy
from virtualstack.manifests import ABSENT, ChunkAxis, ManifestArray, ManifestGroup, same_value
from virtualstack.manifests.cells import replaced
from virtualstack.manifests.manifest import Overlay
from virtualstack.planning.labels import is_dates
from virtualstack.storage import Storage


@dataclass(frozen=True, slots=True)
class Side:
    """The elements of a box along an axis; ``is_one`` is true if an integer named a single element."""

    start: int
    stop: int
    is_one: bool = False

    @property
    def length(self) -> int:
        """Number of elements."""
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        """The elements as a slice."""
        return slice(self.start, self.stop)


def read_side(dim: str, item: object, length: int, /) -> Side:
    """Read an integer or a slice without a step along a dimension, as numpy does."""
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        if not -length <= item < length:
            raise IndexError(f"index {int(item)} is out of bounds for dimension '{dim}' of {length} elements")
        start = int(item) % length
        return Side(start, start + 1, True)
    if not isinstance(item, slice) or item.step not in (None, 1):
        raise ValueError(f"region of '{dim}' is {item!r}; it must be an integer, or a slice without a step")
    start, stop, _ = item.indices(length)
    return Side(start, max(start, stop))


def read_region(region: object, dims: Sequence[str], shape: Sequence[int], /) -> list[Side]:
    """Read a region: a map from dimension to items of :func:`read_side`, a sequence of such items, or a single item."""
    if isinstance(region, Mapping):
        unknown = sorted(map(str, region.keys() - set(dims)))
        if unknown:
            raise ValueError(f"region names {unknown}; the dimensions are {list(dims)}")
        items: list[Any] = [region.get(dim, slice(None)) for dim in dims]
    else:
        items = list(region) if isinstance(region, Sequence) else [region]
        if items.count(...) > 1 or len(items) - items.count(...) > len(dims):
            raise IndexError(f"region has {len(items)} items; the dimensions are {list(dims)}")
        at = items.index(...) if ... in items else len(items)
        rest = items[at + 1 :]
        items = [*items[:at], *[slice(None)] * (len(dims) - at - len(rest)), *rest]
    return [read_side(dim, item, n) for dim, item, n in zip(dims, items, shape, strict=True)]


type Box = tuple[tuple[int, int], ...]


def grown(before: Sequence[int], after: Sequence[int], /) -> list[Box]:
    """Return the elements that a larger shape has in addition to another, as boxes that do not overlap.

    >>> grown((4, 5), (6, 5))
    [((4, 6), (0, 5))]
    """
    found: list[Box] = []
    inner = [(0, n) for n in after]
    for axis, (n, m) in enumerate(zip(before, after, strict=True)):
        if m > n:
            found.append(replaced(tuple(inner), axis, (n, m)))
        inner[axis] = (0, min(n, m))
    return [box for box in found if all(a < b for a, b in box)]


def clipped(boxes: Iterable[Box], shape: Sequence[int], /) -> list[Box]:
    """Return the parts of boxes that are in a shape.

    >>> clipped([((2, 6),), ((5, 7),)], (4,))
    [((2, 4),)]
    """
    cut = (tuple((a, min(b, n)) for (a, b), n in zip(box, shape, strict=True)) for box in boxes)
    return [box for box in cut if all(a < b for a, b in box)]


def merged(boxes: Iterable[Box], /) -> list[Box]:
    """Return sorted boxes, merged if they touch or overlap along one axis and are equal along the others.

    >>> merged([((4, 5), (0, 3)), ((0, 4), (0, 3)), ((7, 8), (0, 3))])
    [((0, 5), (0, 3)), ((7, 8), (0, 3))]
    """
    found = sorted(set(boxes))
    for axis in range(len(found[0]) if found else 0):
        found.sort(key=lambda box: (box[:axis], box[axis + 1 :], box[axis]))
        joined: list[Box] = []
        for box in found:
            last = joined[-1] if joined else None
            if (
                last is not None
                and last[:axis] == box[:axis]
                and last[axis + 1 :] == box[axis + 1 :]
                and box[axis][0] <= last[axis][1]
            ):
                stop = max(last[axis][1], box[axis][1])
                joined[-1] = replaced(last, axis, (last[axis][0], stop))
            else:
                joined.append(box)
        found = joined
    return sorted(found)


def bounding(differ: NDArray[np.bool_], /) -> list[Box]:
    """Return the smallest box that has all true elements; no box if no element is true.

    >>> bounding(np.array([False, True, False, True]))
    [((1, 4),)]
    """
    if not differ.any():
        return []
    return [tuple((int(where.min()), int(where.max()) + 1) for where in np.nonzero(differ))] if differ.ndim else [()]


def find_boxes(mask: NDArray[np.bool_], /) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield boxes that cover exactly the true elements of a mask, each as its begin and end along all axes.

    >>> list(find_boxes(np.array([[True, True], [True, True], [False, True]])))
    [((0, 0), (2, 2)), ((2, 1), (3, 2))]
    """
    if not mask.ndim or mask.all():
        if mask.size and mask.all():
            yield (0,) * mask.ndim, mask.shape
        return
    rows = mask.reshape(len(mask), -1)
    lines = [0, *(np.flatnonzero((rows[1:] != rows[:-1]).any(1)) + 1).tolist(), len(mask)]
    for begin, end in itertools.pairwise(lines):
        if mask.ndim == 1:
            if mask[begin]:
                yield (begin,), (end,)
        else:
            for low, high in find_boxes(mask[begin]):
                yield (begin, *low), (end, *high)


type Region = Literal["auto"] | Mapping[str, int | slice | Literal["auto"]]
"""Elements of the store that a part overwrites, by dimension; ``"auto"`` selects those with the part's labels."""

_REMEDIES = (
    Remedy(
        "the labels of a region cannot change: give the new data the same with {} if they mean the same",
        "assign_coords",
    ),
    Remedy("align it with", "vds.virtual.reindex"),
)


def placed(
    stored: ManifestGroup, group: ManifestGroup, region: Region, fitting: Fitting, /
) -> tuple[ManifestGroup, dict[str, Sequence[Overlay]]]:
    """Return a store's group with loaded variables changed, and overlays on its virtual variables.

    Variables without any dimension of the region must be the same and are not changed. Attributes, and variables that
    the new group lacks, are not changed either. ABSENT chunks of the new group do not replace chunks of the store.
    Groups without a coordinate inherit the region of their nearest parent group that has it.
    """
    if not (isinstance(region, Mapping) or (isinstance(region, str) and region == "auto")):
        raise ValueError(f"region={region!r}; it must be 'auto', or a mapping of dimensions to what is overwritten")
    dims = {x for _, node in stored.walk() for array in node.arrays.values() for x in array.dimension_names or ()}
    unknown = sorted(set() if isinstance(region, str) else set(map(str, region)) - dims)
    if unknown:
        raise CombineError(
            f"region names {unknown}, and '{stored.url}' has the dimensions {sorted(dims)}",
            property="dimension",
            left=sorted(dims),
            right=unknown[0],
            left_url=stored.url,
        )
    fitting = fitting.with_remedies(*_REMEDIES)
    overlays: dict[str, Sequence[Overlay]] = {}

    def change(path: str, node: ManifestGroup, groups: Sequence[ManifestGroup]) -> ManifestGroup:
        made, over = _placed(node, groups[0], region, fitting)
        overlays.update({f"{path}/{name}": each for name, x in over.items() if (each := _present(x))})
        return made

    return each_node(stored, [group], change, inherits=True), overlays


def _placed(
    stored: ManifestGroup, group: ManifestGroup, region: Region, fitting: Fitting
) -> tuple[ManifestGroup, dict[str, Overlay]]:
    loaded = bundled_in(stored) | stored.loaded
    old = load_part(stored, fitting.storage, loaded)
    new = load_part(group, fitting.storage, loaded | group.loaded)
    sides = _sides(region, old, new)
    check_presence(old, new, [name for name in new.variables if name not in old.variables])
    box = old
    for dim, side in sides.items():
        box = box.isel(dim, side.slice)
    new = fitted(with_dims(new, old, [dim for dim, side in sides.items() if side.is_one]), box, fitting, but=())
    new = cut_like_store(new, box)
    overlays: dict[str, Overlay] = {}
    patched: dict[str, xr.Variable] = {}
    for name, variable in new.variables.items():
        target = old.variables[name]
        if not sides.keys() & set(target.dims):
            if name not in box.indexes:
                the_same(
                    name, [box, new], fitting.storage, fitting.rules, why="has none of the dimensions of the region"
                )
            continue
        if name in box.indexes and name in new.indexes:
            continue  # the labels are the same
        variable = _of_shape(name, variable, box, new)
        array, mine = virtual_array(target), virtual_array(variable)
        if array is None:
            patched[name] = _patched(target, variable, sides)
        elif mine is not None:
            overlays[name] = overlay_on(name, array, mine, sides, target.dims)
    if not patched:
        return stored, overlays
    unchanged = stored.arrays.keys() - patched.keys()
    return group_from(replace(old, variables={**old.variables, **patched}), stored, unchanged), overlays


def _present(overlay: Overlay) -> list[Overlay]:
    """Split an overlay into boxes of its existing chunks: in ABSENT cells, the store's chunks stay."""
    manifest = overlay.manifest.read(tuple(slice(0, n) for n in overlay.manifest.shape))
    is_missing = manifest.entries["location"] == ABSENT
    if not is_missing.any():
        return [overlay]
    return [
        Overlay(
            manifest.read(tuple(slice(a, b) for a, b in zip(low, high, strict=True))),
            tuple(a + b for a, b in zip(overlay.begin, low, strict=True)),
        )
        for low, high in find_boxes(~is_missing)
    ]


def _sides(region: Region, old: Part, new: Part) -> dict[str, Side]:
    """Return the elements of the store that a region names."""
    if isinstance(region, str):
        return {dim: _by_labels(dim, old, new) for dim in new.indexes if dim in old.indexes}
    return {
        str(dim): _by_labels(str(dim), old, new) if item == "auto" else read_side(str(dim), item, old.sizes[str(dim)])
        for dim, item in region.items()
        if dim in old.sizes
    }


def _by_labels(dim: str, old: Part, new: Part) -> Side:
    if dim not in old.indexes or dim not in new.indexes:
        raise CombineError(
            f"region='auto' finds the position along '{dim}' by labels, so {old.called} and {new.called} must "
            "both have labels",
            variable=dim,
            property="labels",
            left=dim in old.indexes,
            right=dim in new.indexes,
            left_url=old.source,
            right_url=new.source,
        )
    labels, index = new.indexes[dim].index, old.indexes[dim].index
    if not index.is_unique:
        raise CombineError(
            f"{old.called} has label {index[index.duplicated()][0]!s} of '{dim}' more than once, so labels do "
            f"not determine the position of {new.called}",
            Remedy("name the elements instead with", region={dim: Code("slice(begin, end)", "BEGIN:END")}),
            variable=dim,
            property="labels",
            left_url=old.source,
            right_url=new.source,
        )
    at = index.get_indexer(labels)
    if len(at) and bool((at >= 0).all()) and bool((np.diff(at) == 1).all()):
        return Side(int(at[0]), int(at[-1]) + 1)
    lacking = labels[at < 0]
    what = f"does not have the label {lacking[0]!s}" if len(lacking) else "does not have these labels in sequence"
    raise CombineError(
        f"{old.called} {what} along '{dim}', which {new.called} needs",
        Remedy("in a vstack, use {} to insert data that is new or out of order by its labels", "Repository.update"),
        variable=dim,
        property="labels",
        left_url=old.source,
        right_url=new.source,
    )


def following(old: Part, parts: Sequence[Part], dims: Sequence[str], fitting: Fitting, /) -> tuple[Part, list[Part]]:
    """Return a store and parts to add; coordinates that differ follow dimensions, as in a join of all files.

    They follow those of ``dims`` along which labels differ, such as the times and steps of a forecast, and else the
    first one. Other variables of the parts have these dimensions if they have them in the store.
    """
    parts = [with_dims(part, old, dims) for part in parts]
    rules, storage, followers = fitting.rules, fitting.storage, {}
    for name in sorted(old.coordinates - old.indexes.keys()) if rules.scalars_follow else ():
        own = old.variables[name]
        members = [part.variables[name] for part in parts if name in part.variables]
        free = [dim for dim in dims if dim in old.sizes and dim not in own.dims]
        if not free or not may_follow(own) or len(members) < len(parts):
            continue
        wider = [dim for dim in free if any(dim in x.dims for x in members)]
        odd = [dim for dim in free if dim in wider or not all(_has_labels(part, dim, old) for part in parts)]
        is_comparable = all(_has_labels(part, str(dim), old) for part in parts for dim in own.dims)
        if is_comparable:
            follows = bool(wider) or not are_equal(name, [old, *parts], storage, rules)
        else:  # dates of other steps, which may be those of another run too
            differs = any(_differs_where_shared(name, old, part, storage) for part in parts)
            follows = bool(wider) or (bool(odd) and dims[0] not in own.dims and differs)
        if follows:
            array = virtual_array(own)
            own = own if array is None else loaded_variable(name, array, storage, url=old.source)
            followers[name] = expand_dims(own, {dim: old.sizes[dim] for dim in odd or free[:1]})
    old = replace(old, variables={**old.variables, **followers})
    return old, [with_dims(part, old, dims) for part in parts]


def check_time(old: Part, parts: Sequence[Part], dim: str, /) -> None:
    """Refuse parts of another time at labels of a store that has one time, such as the next scene of a tile."""
    if dim not in old.indexes or is_dates(old.indexes[dim].index):
        return
    for part in parts:
        if dim not in part.indexes or not part.indexes[dim].index.isin(old.indexes[dim].index).all():
            continue
        for name in sorted(old.coordinates & part.coordinates):
            times = [x.variables[name] for x in (old, part)]
            if any(x.ndim or virtual_array(x) is not None or not is_dates(pd.Index([x.values[()]])) for x in times):
                continue
            a, b = (x.values[()] for x in times)
            if a != b:
                raise CombineError(
                    f"{old.called} has one value of '{name}', {a!s}, and {part.called} has {b!s} at the same labels of "
                    f"'{dim}'",
                    Remedy("build the store again with", "vs.open_virtual_mfdataset", concat_dim=name),
                    variable=name,
                    property="dimension",
                    left=a,
                    right=b,
                    left_url=old.source,
                    right_url=part.source,
                )


def _differs_where_shared(name: str, old: Part, part: Part, storage: Storage) -> bool:
    """Return whether dates along a dimension differ at the labels that a store and a part share, or share none."""
    dim = str(old.variables[name].dims[0])
    if dim not in old.indexes or dim not in part.indexes:
        return True
    at = old.indexes[dim].index.get_indexer(part.indexes[dim].index)
    values = []
    for each in (old, part):
        variable = each.variables[name]
        array = virtual_array(variable)
        variable = variable if array is None else loaded_variable(name, array, storage, url=each.source)
        values.append(np.asarray(variable.values))
    return not (at >= 0).any() or not same_value(values[0][at[at >= 0]], values[1][at >= 0])


def _has_labels(part: Part, dim: str, old: Part) -> bool:
    """Return whether a part has the labels of a store along a dimension, or as many elements without labels."""
    if dim not in part.indexes or dim not in old.indexes:
        return part.sizes.get(dim) == old.sizes[dim]
    return part.indexes[dim].index.equals(old.indexes[dim].index)


def with_dims(new: Part, old: Part, dims: Collection[str]) -> Part:
    """Return a part whose variables have those dimensions that they have in the store.

    Variables get a dimension of one element; coordinates that may follow a dimension get a longer one, too.
    """
    changed = {}
    for name in new.variables.keys() & old.variables.keys():
        variable = new.variables[name]
        lacking = {dim: new.sizes.get(dim, 1) for dim in map(str, old.variables[name].dims) if dim in dims}
        lacking = {dim: n for dim, n in lacking.items() if dim not in variable.dims}
        if lacking and (set(lacking.values()) == {1} or (name in new.coordinates and may_follow(variable))):
            changed[name] = expand_dims(variable, lacking)
    return new.with_variables(changed, coordinates=new.coordinates & changed.keys()) if changed else new


def _of_shape(name: str, variable: xr.Variable, box: Part, new: Part) -> xr.Variable:
    wanted = box.variables[name]
    if variable.shape == wanted.shape:
        return variable
    raise CombineError(
        f"variable '{name}' has shape {variable.shape} in {new.called}, and the region of {box.called} has "
        f"{wanted.shape}, along {list(wanted.dims)}",
        variable=name,
        property="shape",
        left=wanted.shape,
        right=variable.shape,
        left_url=box.source,
        right_url=new.source,
    )


def _patched(target: xr.Variable, variable: xr.Variable, sides: Mapping[str, Side]) -> xr.Variable:
    values = np.array(target.values, joint_dtype([target.dtype, variable.dtype]))
    values[tuple(sides[str(dim)].slice if dim in sides else slice(None) for dim in target.dims)] = variable.values
    return xr.Variable(target.dims, values, target.attrs, target.encoding)


def overlay_on(
    name: str, array: ManifestArray, part: ManifestArray, sides: Mapping[str, Side], dims: Sequence[Any], /
) -> Overlay:
    """Return an overlay that puts an array over a box of the same shape of another array."""
    begin = []
    for axis, dim in enumerate(map(str, dims)):
        cells, side = array.grid.axes[axis], sides.get(dim)
        if side is None or not side.length:
            begin.append(0)
            continue
        met = cells.cover(side.start, side.stop)
        span = cells.span(met.start, met.stop)
        for element, line in ((side.start, span.start), (side.stop, span.stop)):
            if element != line:
                raise ChunkAlignmentError(
                    f"the region begins or ends at element {element} of '{dim}', within a chunk of variable "
                    f"'{name}' ({cells!r}, elements and chunk lengths)",
                    Remedy("give whole chunks"),
                    Remedy("overwrite values with", "Repository.write"),
                    axis=axis,
                    chunk_length=cells.chunk,
                    variable=name,
                )
        begin.append(met.start)
        lengths = cells.lengths(np.arange(met.start, met.stop))
        part = cut_like(name, dim, part, axis, ChunkAxis.from_lengths(lengths))
    return Overlay(part.manifest, tuple(begin))
