"""Join files that are alike all at once; the first two, joined as any others, say which variables get the dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from virtualstack.combine.conflicts import merge_attributes
from virtualstack.combine.datasets import CombineOptions, combine_datasets
from virtualstack.combine.part import Part
from virtualstack.dataset import virtual_array
from virtualstack.dataset.decode import default_loaded
from virtualstack.dataset.opening import Opening
from virtualstack.errors import CombineError, ReaderError, StorageError
from virtualstack.manifests import ChunkManifest, Chunks, ManifestArray, ManifestGroup, same_value
from virtualstack.manifests.joining import concatenate, equal
from virtualstack.planning import TELLING, member_words
from virtualstack.reading import fetched, read_array
from virtualstack.storage import Storage

_MIN_FILES = 4
"""Smallest number of files that are joined at once."""

_MAX_KINDS = 8
"""Kinds of files that a file is compared with: the last ones that were found."""

_MAX_COMPARED_BYTES = 1 << 22
"""Values of a variable that must be the same in all files, up to which they are read at once."""


class AlikeFiles(NamedTuple):
    """The cube of files that are alike, their numbers in the order of their labels, and the elements of each."""

    dataset: xr.Dataset
    numbers: Sequence[int]
    n: int
    is_scalar: bool


def join_alike(
    nodes: Sequence[ManifestGroup], dim: str, opening: Opening, how: CombineOptions, /
) -> Iterator[AlikeFiles]:
    """Yield cubes of files whose groups differ only in chunks and in attributes of the group.

    Their labels along the dimension follow each other, and their other coordinates are the same. What cannot be joined
    so, and what repeats a label, is left out.
    """
    kinds: list[list[int]] = []
    for number, node in enumerate(nodes):
        kind = next((x for x in reversed(kinds[-_MAX_KINDS:]) if _are_alike(nodes[x[0]], node)), None)
        if kind is None:
            kinds.append(kind := [])
        kind.append(number)
    for kind in kinds:
        try:
            found = _joined([nodes[i] for i in kind], dim, opening, how) if len(kind) >= _MIN_FILES else None
        except (CombineError, ReaderError, StorageError):  # opened one by one, it is told of which file
            continue
        if found is not None:
            yield found._replace(numbers=[kind[i] for i in found.numbers])


def _are_alike(a: ManifestGroup, b: ManifestGroup) -> bool:
    return (
        [*a.arrays] == [*b.arrays]
        and a.attributes.keys() == b.attributes.keys()
        and all(same_value(a.attributes[x], b.attributes[x]) for x in TELLING if x in a.attributes)
        and member_words(a.url or "") == member_words(b.url or "")
        and (a.coordinates, a.unlimited, a.loaded, a.not_text) == (b.coordinates, b.unlimited, b.loaded, b.not_text)
        and (a.refusals, a.groups.keys(), a.dimensions) == ((), b.groups.keys(), b.dimensions)
        and not b.refusals
        and all(_is_alike(x, b.arrays[name]) for name, x in a.arrays.items())
    )


def _is_alike(a: ManifestArray, b: ManifestArray) -> bool:
    x, y = a.in_memory(), b.in_memory()
    return (
        (a.grid, a.dtype, a.dimension_names) == (b.grid, b.dtype, b.dimension_names)
        and (x.encodings, x.fills) == (y.encodings, y.fills)
        and _are_same(a.attributes, b.attributes)
        and _are_same(a.cf, b.cf)
    )


def _are_same(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> bool:
    return a.keys() == b.keys() and all(x is b[key] or same_value(x, b[key]) for key, x in a.items())


def _joined(nodes: Sequence[ManifestGroup], dim: str, opening: Opening, how: CombineOptions) -> AlikeFiles | None:
    own = nodes[0].arrays.get(dim)
    if own is None or own.dimension_names not in ((), (dim,)) or not own.size or callable(how.rules.combine_attrs):
        return None
    n, names = own.size, default_loaded(nodes[0])
    stacks = [_stacked([x.arrays[name] for x in nodes], dim) for name in names]
    loaded = dict(zip(names, fetched(stacks, opening.storage), strict=True))  # by few requests
    labels = opening.dataset(ManifestGroup(arrays={dim: loaded[dim]})).indexes.get(dim) if dim in loaded else None
    if labels is None or labels.hasnans:
        return None
    numbers = np.flatnonzero(~labels[::n].duplicated())
    numbers = numbers[labels[::n][numbers].argsort()]
    at = (numbers[:, None] * n + np.arange(n)).reshape(-1)
    labels = labels[at]
    if len(numbers) < _MIN_FILES or not (labels.is_monotonic_increasing and labels.is_unique):
        return None
    nodes = [nodes[i] for i in numbers.tolist()]
    pair = Part.from_dataset(combine_datasets([opening.dataset(x) for x in nodes[:2]], how, storage=opening.storage))
    along = {name for name, x in pair.variables.items() if dim in x.dims}
    if along & pair.coordinates != {dim}:
        return None
    arrays = dict(nodes[0].arrays)
    for name in arrays:
        if name == dim:
            arrays[name] = replace(loaded[name][at], dimension_names=(dim,))
        elif name in along:
            arrays[name] = _stacked([x.arrays[name] for x in nodes], dim)
        else:
            whole = loaded[name] if name in loaded else _stacked([x.arrays[name] for x in nodes], dim)
            if not _is_one(whole, opening.storage):
                return None
    cube = Part.from_dataset(opening.dataset(replace(nodes[0], arrays=arrays, url=None)))
    if not all(_begins_with(cube.variables[name], pair.variables[name], dim) for name in along):
        return None
    sources = [Part(variables={}, sizes={}, attributes=x.attributes, source=x.url) for x in nodes]
    merged, left_out = merge_attributes([x.attributes for x in nodes], how.rules, name=None, sources=sources)
    made = replace(
        pair,
        variables={name: cube.variables[name] if name in along else x for name, x in pair.variables.items()},
        sizes={**pair.sizes, dim: cube.sizes[dim]},
        indexes={**pair.indexes, dim: cube.indexes[dim]},
        attributes={key: x for key, x in merged.items() if key in pair.attributes},
        left_out=left_out,
        n_files=len(nodes),
    )
    return AlikeFiles(made.dataset(), numbers.tolist(), n, own.dimension_names == ())


def _stacked(arrays: Sequence[ManifestArray], dim: str) -> ManifestArray:
    """Join alike arrays along a dimension, which is a new one in front if they do not have it."""
    first, dims = arrays[0], arrays[0].dimension_names or ()
    parts = [x.as_chunks() for x in arrays]
    if dim not in dims:
        first = replace(first[None], dimension_names=(dim, *dims))
        parts = [Chunks(_in_front(x.manifest, first.in_memory()), first.grid) for x in parts]
    joined = concatenate(parts, dims.index(dim) if dim in dims else 0)
    return replace(first, manifest=joined.manifest, grid=joined.grid)


def _in_front(manifest: ChunkManifest, like: ChunkManifest) -> ChunkManifest:
    """Return a manifest with a new axis in front, and the tables of one that has it."""
    starts = None if manifest.starts is None else manifest.starts[None]
    return ChunkManifest(
        entries=manifest.entries[None],
        fills=like.fills,
        encodings=like.encodings,
        locations=manifest.locations,
        starts=starts,
        inline=manifest.inline,
    )


def _is_one(stacked: ManifestArray, storage: Storage) -> bool:
    """Return whether all elements of the first axis have the same values, bit by bit."""
    if stacked.nbytes > _MAX_COMPARED_BYTES:
        return False
    values = read_array(stacked, (), storage)
    if values.dtype.kind in "OT":
        return bool((values == values[:1]).all())
    rows = np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8)
    return bool((rows == rows[:1]).all())


def _begins_with(cube: xr.Variable, pair: xr.Variable, dim: str) -> bool:
    """Return whether a variable begins as that of the first two files, which were joined as any others."""
    if cube.dims != pair.dims:
        return False
    some = cube.isel({dim: slice(0, pair.sizes[dim])})
    if some.dtype != pair.dtype or not (_are_same(some.attrs, pair.attrs) and _are_same(some.encoding, pair.encoding)):
        return False
    left, right = virtual_array(some), virtual_array(pair)
    if left is None or right is None:
        return left is right and bool(some.equals(pair))  # type: ignore[no-untyped-call]
    return equal(left.as_chunks(), right.as_chunks()) and _are_same(left.cf, right.cf)
