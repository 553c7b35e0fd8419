"""The chunks of virtual variables as an Arrow table: a row for each chunk, made block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import xarray as xr
from numpy.typing import NDArray

from virtualstack.codecs.pipeline import codec_names
from virtualstack.dataset import virtual_array
from virtualstack.manifests import ABSENT, EMPTY, FIRST, INLINE, ManifestArray
from virtualstack.manifests.cells import CellBox, blocks
from virtualstack.manifests.encoding import stored_dtype

_BLOCK_CELLS = 1 << 17
_TEXT = pa.dictionary(pa.int32(), pa.string())
_STATES = {ABSENT: "absent", EMPTY: "empty", INLINE: "inline", FIRST: "referenced"}
_COLUMNS = {
    "variable": _TEXT,
    "cell": pa.list_(pa.int64()),
    "begin": pa.list_(pa.int64()),
    "end": pa.list_(pa.int64()),
    "state": _TEXT,
    "source": _TEXT,
    "offset": pa.int64(),
    "length": pa.int64(),
    "dtype": _TEXT,
    "codecs": _TEXT,
}

type _Extents = tuple[tuple[int, ...], NDArray[Any], NDArray[Any]]
"""Axes of the chunk grid; the least and the greatest label of each cell along them."""


def chunk_table(groups: Mapping[str, xr.Dataset], /) -> pa.RecordBatchReader:
    """Return the chunks of all virtual variables of some groups by path, with the labels that each chunk covers."""
    variables = [
        (f"{path}/{name}" if path else str(name), tuple(map(str, variable.dims)), array, labels)
        for path, dataset in groups.items()
        for labels in [_labels(path, groups)]
        for name, variable in dataset.variables.items()
        if (array := virtual_array(variable)) is not None
    ]
    types: dict[str, set[pa.DataType]] = {}
    for _, dims, _, labels in variables:
        for name, label in labels.items():
            if set(label.dims) <= set(dims):
                types.setdefault(name, set()).add(pa.array(label.values.reshape(-1)[:1]).type)
    columns = {name: found.pop() if len(found) == 1 else pa.string() for name, found in types.items()}
    ends = [(f"{name}_{end}", column) for name, column in columns.items() for end in ("min", "max")]
    schema = pa.schema([*_COLUMNS.items(), *ends])
    return pa.RecordBatchReader.from_batches(
        schema, (batch for x in variables for batch in _batches(*x, columns=columns, schema=schema))
    )


def _labels(path: str, groups: Mapping[str, xr.Dataset]) -> dict[str, xr.Variable]:
    """Return the coordinates of a group that are in memory, with the indexes that it inherits."""
    parents = ["", *(path[:i] for i, letter in enumerate(path) if letter == "/")]
    found: dict[Any, xr.Variable] = {}
    for dataset in (groups[parent] for parent in parents if parent in groups):
        found |= {name: dataset.variables[name] for name in dataset.xindexes}
    found |= {name: groups[path].variables[name] for name in groups[path].coords}
    return {
        str(name): label.copy(data=_sortable(label.values))
        for name, label in found.items()
        if label.size and label.ndim and virtual_array(label) is None
    }


def _sortable(values: NDArray[Any]) -> NDArray[Any]:
    """Return labels as Arrow takes them: numbers and dates in native byte order, all others as texts of Python."""
    if values.dtype.kind in "iufmM":
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    texts = np.char.decode(values, "utf-8", "replace") if values.dtype.kind == "S" else values.astype(str)
    return texts.astype(object)


def _batches(
    name: str,
    dims: tuple[str, ...],
    array: ManifestArray,
    labels: Mapping[str, xr.Variable],
    *,
    columns: Mapping[str, pa.DataType],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield the chunks of a variable in the order of its grid."""
    extents = {key: _extents(x, dims, array) for key, x in labels.items() if set(x.dims) <= set(dims)}
    for box in blocks(array.grid.shape, _BLOCK_CELLS):
        cells = np.indices([side.stop - side.start for side in box]).reshape(len(box), -1 if box else 1)
        cells += np.array([[side.start] for side in box], np.int64).reshape(-1, 1)
        n = cells.shape[1]
        rows = {"variable": _texts([name], np.zeros(n, np.int32))} | _places(cells, array) | _references(array, box)
        for key, column in columns.items():
            least = greatest = pa.nulls(n, column)
            if key in extents:
                axes, *ends = extents[key]
                at = tuple(cells[axis] for axis in axes)
                least, greatest = (_as(values[at], column) for values in ends)
            rows |= {f"{key}_min": least, f"{key}_max": greatest}
        yield pa.RecordBatch.from_arrays([rows[x.name] for x in schema], schema=schema)


def _as(values: NDArray[Any], column: pa.DataType) -> pa.Array:
    found = pa.array(values, from_pandas=True)  # NaN and NaT are null
    return found if found.type == column else found.cast(column)


def _texts(words: Sequence[str], which: NDArray[np.int32], is_missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return words by their numbers; a dictionary of Arrow has each word once."""
    table = {word: i for i, word in enumerate(dict.fromkeys(words))}
    numbers = np.array([table[word] for word in words], np.int32)[which]
    return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=is_missing), pa.array(list(table), pa.string()))


def _places(cells: NDArray[np.int64], array: ManifestArray) -> dict[str, pa.Array]:
    """Return the cells, and the first element and the element after the last of each along each axis."""
    axes = array.grid.axes
    begin = np.array([axis.starts(x) for axis, x in zip(axes, cells, strict=True)], np.int64).reshape(cells.shape)
    size = np.array([axis.lengths(x) for axis, x in zip(axes, cells, strict=True)], np.int64).reshape(cells.shape)
    ends = pa.array(np.arange(cells.shape[1] + 1, dtype=np.int32) * np.int32(len(cells)))
    lists = {"cell": cells, "begin": begin, "end": begin + size}
    return {name: pa.ListArray.from_arrays(ends, pa.array(x.T.reshape(-1))) for name, x in lists.items()}


def _references(array: ManifestArray, box: CellBox) -> dict[str, pa.Array]:
    """Return the states of chunks, and where and how they are stored."""
    part = array.manifest.read(box)
    entries = part.entries.reshape(-1)
    state = np.minimum(entries["location"], FIRST)
    is_stored, is_referenced = state >= INLINE, state == FIRST
    used, source = np.unique(np.where(is_referenced, entries["location"], FIRST) - FIRST, return_inverse=True)
    encoding = np.where(is_stored, entries["encoding"], 0).astype(np.int32)
    urls = [part.locations[i].url for i in used] if is_referenced.any() else [""]
    return {
        "state": _texts([_STATES[i] for i in range(FIRST + 1)], state.astype(np.int32)),
        "source": _texts(urls, source.astype(np.int32), ~is_referenced),
        "offset": pa.array(entries["offset"].astype(np.int64), mask=~is_referenced),
        "length": pa.array(entries["length"].astype(np.int64), mask=~is_stored),
        "dtype": _texts([stored_dtype(x).str for x in part.encodings] or [""], encoding, ~is_stored),
        "codecs": _texts([", ".join(codec_names(x.codecs)) for x in part.encodings] or [""], encoding, ~is_stored),
    }


def _extents(label: xr.Variable, dims: tuple[str, ...], array: ManifestArray) -> _Extents:
    """Return the least and the greatest label of each cell; texts are compared as Python does."""
    axes = tuple(sorted(dims.index(str(dim)) for dim in label.dims))
    values = label.transpose(*(dims[axis] for axis in axes)).values
    words, values = (None, values) if values.dtype.kind != "O" else np.unique(values, return_inverse=True)
    least = greatest = values
    for i, axis in enumerate(axes):
        begins = array.grid.axes[axis].lines()[:-1]
        least = np.fmin.reduceat(least, begins, axis=i)
        greatest = np.fmax.reduceat(greatest, begins, axis=i)
    return (axes, least, greatest) if words is None else (axes, words[least], words[greatest])
