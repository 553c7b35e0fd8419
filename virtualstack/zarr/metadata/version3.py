"""Read zarr v3 metadata of an array, as references have it."""

from __future__ import annotations

import base64
import binascii
import math
import struct
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray
from zarr.dtype import data_type_registry

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.shards import SHARDS
from virtualstack.errors import ManifestError, Remedy, UnsupportedFeatureError
from virtualstack.manifests import Fill
from virtualstack.printable import counted
from virtualstack.zarr.metadata.array import (
    ArrayMetadata,
    check_itemsize,
    malformed,
    ordered_encoding,
    read_counts,
    read_names,
    read_object,
)
from virtualstack.zarr.metadata.attributes import with_dtypes
from virtualstack.zarr.metadata.shards import Shards

_MAX_AXIS_CHUNKS = 1 << 26
"""Largest number of chunks along one axis of a rectilinear grid: a few bytes can declare any number."""


_MEMBERS = frozenset(
    (
        *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"),
        *("attributes", "dimension_names", "storage_transformers"),
    )
)
"""Members of ``zarr.json`` in the specification."""

_GROUP_MEMBERS = frozenset(("zarr_format", "node_type", "attributes", "consolidated_metadata"))

_MAX_CHUNK_SHAPES = 1 << 12
"""Largest number of chunk shapes of one array."""


def parse_zarr3(
    data: Mapping[str, Any], /, *, where: str, rectilinear: bool = False, sharded: bool = False
) -> ArrayMetadata:
    """Read ``zarr.json`` of an array."""
    _check_members(data, where)
    shape = read_counts(data, "shape", least=0, where=where)
    grid = _named(data.get("chunk_grid"), "chunk_grid", where)
    if grid[0] != "regular" and not (rectilinear and grid[0] == "rectilinear"):
        raise _unsupported(where, f"chunk grid '{grid[0]}'")
    edges = None if grid[0] == "regular" else _edges(grid[1], shape, where)
    if edges is None:
        chunks = read_counts(grid[1], "chunk_shape", least=1, where=where, n=len(shape))
    else:
        chunks = tuple(int(x.max(initial=1)) for x in edges)
    native, fill = _dtype_and_fill(data, where)
    listed = _listed(data.get("codecs"), where)
    shards = None
    if sharded and len(listed) == 1 and listed[0][0] == SHARDS:
        chunks, listed, shards = _shards(listed[0][1], shape, chunks, edges, where)
        edges = None
    dtype, codecs, order = _codecs(listed, native, len(shape), where)
    prefix, separator = _keys(data, where)
    attributes = {} if data.get("attributes") is None else read_object(data["attributes"], "attributes", where)
    return ArrayMetadata(
        shape=shape,
        chunks=chunks,
        encoding=ordered_encoding(dtype, chunks, codecs, order),
        fill=fill,
        dimension_names=read_names(data.get("dimension_names"), len(shape), key="dimension_names", where=where),
        attributes=with_dtypes(_attributes(attributes, native, where), data),
        key_prefix=prefix,
        separator=separator,
        edges=edges,
        order=None if edges is None else order,
        shards=shards,
    )


def _check_members(data: Mapping[str, Any], where: str) -> None:
    """Raise an error for unknown members that may change how the array is read."""
    if data.get("zarr_format", 3) != 3:
        raise malformed(where, "zarr_format", data["zarr_format"], "3 in zarr.json")
    if data.get("storage_transformers"):
        raise _unsupported(where, f"storage transformers {str(data['storage_transformers'])[:100]}")
    _refuse_unknown(data, _MEMBERS, where)


def check_group(data: Mapping[str, Any], where: str, /) -> None:
    """Raise an error if ``zarr.json`` of a group has members outside the specification, as zarr does."""
    _refuse_unknown(data, _GROUP_MEMBERS, where)


def _refuse_unknown(data: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for name in data.keys() - known:
        if not isinstance(data[name], Mapping) or data[name].get("must_understand") is not False:
            raise _unsupported(where, f"member '{name}' in its metadata, without \"must_understand\": false")


def _shards(
    options: Mapping[str, Any],
    shape: tuple[int, ...],
    outer: tuple[int, ...],
    edges: tuple[NDArray[np.int64], ...] | None,
    where: str,
) -> tuple[tuple[int, ...], list[tuple[str, dict[str, Any]]], Shards]:
    """Read the configuration of ``sharding_indexed``: lengths of chunks in shards, their codecs, and the shards."""
    chunks = read_counts(options, "chunk_shape", least=1, where=where, n=len(shape))
    counts = [-(-n // length) for n, length in zip(shape, outer, strict=True)]
    if edges is None and max(counts, default=0) > _MAX_AXIS_CHUNKS:
        raise _unsupported(where, f"grid of more than {_MAX_AXIS_CHUNKS} shards along one axis")
    if edges is None:
        edges = tuple(np.full(count, length, np.int64) for count, length in zip(counts, outer, strict=True))
    if any((x % n).any() for x, n in zip(edges, chunks, strict=True)):
        raise malformed(where, "chunk_shape", chunks, f"lengths that divide those of the shards, {outer}")
    names = [(name, config.get("endian")) for name, config in _listed(options.get("index_codecs"), where)]
    if names[:1] != [("bytes", "little")] or names[1:] not in ([], [("crc32c", None)]):
        raise _unsupported(where, f"index of shards with the codecs {options.get('index_codecs')!r}")
    location = options.get("index_location", "end")
    if location not in ("start", "end"):
        raise malformed(where, "index_location", location, "'start' or 'end'")
    shards = Shards(
        edges=tuple(_within(x, length) // n for x, length, n in zip(edges, shape, chunks, strict=True)),
        grid=tuple(-(-length // n) for length, n in zip(shape, chunks, strict=True)),
        is_index_first=location == "start",
        is_checked=len(names) == 2,
    )
    return chunks, _listed(options.get("codecs"), where), shards


def _within(edges: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return the lengths, except for cells that begin beyond the end of an axis."""
    return edges[: int(np.searchsorted(np.cumsum(edges), length)) + 1] if length else edges[:0]


def _edges(grid: Mapping[str, Any], shape: Sequence[int], where: str) -> tuple[NDArray[np.int64], ...]:
    """Read the chunk lengths of a rectilinear grid, one array an axis."""
    listed = grid.get("chunk_shapes")
    if grid.get("kind") != "inline":
        raise malformed(where, "a rectilinear grid of kind", grid.get("kind"), "kind 'inline'")
    if not isinstance(listed, list) or len(listed) != len(shape):
        raise malformed(where, "chunk_shapes", listed, counted(len(shape), "item"))
    edges = tuple(_axis_edges(item, length, where) for item, length in zip(listed, shape, strict=True))
    if math.prod(np.unique(x).size for x in edges) > _MAX_CHUNK_SHAPES:
        raise _unsupported(where, f"grid of chunks in more than {_MAX_CHUNK_SHAPES} shapes")
    return edges


def _axis_edges(item: object, length: int, where: str) -> NDArray[np.int64]:
    runs: list[tuple[int, int]] = []
    if _is_count(item):
        runs.append((item, -(-length // item)))
    elif isinstance(item, list):
        for part in item:
            if _is_count(part):
                runs.append((part, 1))
            elif isinstance(part, list) and len(part) == 2 and all(map(_is_count, part)):
                runs.append((part[0], part[1]))
    n_items = len(item) if isinstance(item, list) else 1
    if not item or len(runs) != n_items or sum(n * count for n, count in runs) < length:
        expected = f"whole numbers, or pairs of length and count, that reach the end of {length} elements"
        raise malformed(where, "chunk lengths", item, expected)
    if sum(count for _, count in runs) > _MAX_AXIS_CHUNKS:
        raise _unsupported(where, f"rectilinear grid of more than {_MAX_AXIS_CHUNKS} chunks along one axis")
    return np.repeat(*np.array(runs, np.int64).T)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 1 << 63


def _named(value: object, what: str, where: str) -> tuple[str, dict[str, Any]]:
    """Return name and configuration of an extension point, such as a codec."""
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return value["name"], dict(value.get("configuration") or {})
    raise malformed(where, what, value, "a name, or an object with a name")


def _unsupported(where: str, feature: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"'{where}' has the {feature}, which cannot be expressed as a virtual array",
        Remedy("read it with zarr itself"),
        feature=feature,
    )


def _dtype_and_fill(data: Mapping[str, Any], where: str) -> tuple[np.dtype[Any], Fill]:
    spec = data.get("data_type")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr warns of data types that are not in the specification yet
            kind = data_type_registry.match_json(cast(Any, spec), zarr_format=3)
            dtype: np.dtype[Any] = kind.to_native_dtype()
            check_itemsize(dtype, where=where)
            value = kind.from_json_scalar(data.get("fill_value"), zarr_format=3)
        if dtype.hasobject and dtype.kind != "T":
            raise _unsupported(where, f"data type {spec!r}")
        return dtype.newbyteorder("=") if dtype.kind != "T" else dtype, Fill.from_value(value, dtype)
    except (ValueError, TypeError, KeyError, OverflowError, ManifestError) as error:
        found = spec, data.get("fill_value")
        raise malformed(where, "the data type and fill value", found, f"those of zarr: {error}") from error


def _listed(listed: object, where: str) -> list[tuple[str, dict[str, Any]]]:
    """Return names and configurations of codecs."""
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise malformed(where, "codecs", listed, "a list")
    return [_named(value, "codec", where) for value in listed]


def _codecs(
    listed: Sequence[tuple[str, dict[str, Any]]], native: np.dtype[Any], ndim: int, where: str
) -> tuple[np.dtype[Any], tuple[Codec, ...], tuple[int, ...] | None]:
    dtype, order, codecs = native, None, []
    for position, (name, options) in enumerate(listed):
        if name == SHARDS:
            raise _unsupported(where, f"codec '{SHARDS}'")
        if name == "bytes":
            if options.get("endian") not in (None, "little", "big"):
                raise malformed(where, "endian", options["endian"], "'little' or 'big'")
            if native.kind != "T" and options.get("endian") == "big":
                dtype = native.newbyteorder(">")
        elif name == "transpose" and position == 0:
            order = _transpose(options.get("order"), ndim, where)
        else:
            codecs.append(Codec.from_config(name, **options))
    return dtype, tuple(codecs), order


def _transpose(order: object, ndim: int, where: str) -> tuple[int, ...]:
    if not isinstance(order, list) or sorted(order) != list(range(ndim)):
        raise malformed(where, "transpose order", order, f"a permutation of {ndim} axes")
    return tuple(order)


def _keys(data: Mapping[str, Any], where: str) -> tuple[str, str]:
    name, options = _named(data.get("chunk_key_encoding") or "default", "chunk_key_encoding", where)
    separator = options.get("separator", "/" if name == "default" else ".")
    if name not in ("default", "v2") or separator not in (".", "/"):
        raise _unsupported(where, f"chunk key encoding '{name}' with separator {separator!r}")
    return (f"c{separator}" if name == "default" else ""), separator


def _attributes(attributes: Mapping[str, Any], dtype: np.dtype[Any], where: str) -> dict[str, Any]:
    """Return attributes with ``_FillValue`` as a value: xarray writes it to zarr v3 as base64 of a double."""
    value = attributes.get("_FillValue")
    if isinstance(value, int) and dtype.kind in "iu":
        return {**attributes, "_FillValue": _typed(value, dtype)}
    if value is None or not isinstance(value, (str, list)) or dtype.kind not in "fcS":
        return dict(attributes)
    try:
        if dtype.kind == "S":
            decoded: Any = base64.b64decode(cast(str, value), validate=True)
        else:
            parts = [_double(x) for x in (value if isinstance(value, list) else [value])]
            decoded = complex(*parts) if dtype.kind == "c" else parts[0]
    except (binascii.Error, struct.error, TypeError, ValueError, IndexError) as error:
        raise malformed(where, "_FillValue", value, "base64 of a double") from error
    return {**attributes, "_FillValue": decoded if dtype.kind == "S" else _typed(decoded, dtype)}


def _typed(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number in the dtype of the values, if the dtype can hold it."""
    try:
        with np.errstate(all="ignore"):
            typed = dtype.type(value)
    except OverflowError:
        return value
    return typed if typed == value or value != value else value


def _double(text: str) -> float:
    number = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(text)
    return float(struct.unpack("<d", base64.b64decode(text, validate=True))[0]) if number is None else number
