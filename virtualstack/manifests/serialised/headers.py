"""Arrays and groups without their chunks, as JSON and a heap of bytes that restore them exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from virtualstack.codecs.codec import Codec, check_text
from virtualstack.errors import ManifestError
from virtualstack.manifests import (
    ChunkAxis,
    ChunkEncoding,
    ChunkGrid,
    Fill,
    Manifest,
    ManifestArray,
    ManifestGroup,
    Refusal,
)
from virtualstack.manifests.serialised.values import (
    Heap,
    Json,
    UnstorableError,
    cut_heap,
    from_dtype,
    from_value,
    to_count,
    to_dtype,
    to_integer,
    to_mapping,
    to_value,
)

_KINDS: dict[str, Literal["refused", "inlined", "noted", "packed"]] = {
    "refused": "refused", "inlined": "inlined", "noted": "noted", "packed": "packed"
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayHeader:
    """An array without its chunks; the attributes are the same as in :class:`~virtualstack.manifests.ManifestArray`."""

    name: str | None
    dtype: np.dtype[Any]
    dimension_names: tuple[str, ...] | None
    attributes: Mapping[str, Any]
    cf: Mapping[str, Any]
    grid: ChunkGrid
    encodings: tuple[ChunkEncoding, ...]
    fills: tuple[Fill, ...]

    @classmethod
    def from_array(cls, array: ManifestArray, /) -> ArrayHeader:
        """Return the header of an array."""
        tables = array.manifest.tables
        return cls(
            name=array.name,
            dtype=array.dtype,
            dimension_names=array.dimension_names,
            attributes=array.attributes,
            cf=array.cf,
            grid=array.grid,
            encodings=tables.encodings,
            fills=tables.fills,
        )

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes; ``axis 0`` and so on if they have no names."""
        if self.dimension_names is None:
            return tuple(f"axis {i}" for i in range(len(self.grid.axes)))
        return self.dimension_names

    @property
    def sizes(self) -> str:
        """Dtype and lengths as text, such as ``float32 (time 31, lat 180)``."""
        sizes = zip(self.dims, self.grid.array_shape, strict=True)
        return f"{self.dtype} ({', '.join(f'{dim} {n}' for dim, n in sizes)})"

    def array(self, manifest: Manifest, /) -> ManifestArray:
        """Return the array with the chunks of a manifest."""
        return ManifestArray(
            manifest=manifest,
            grid=self.grid,
            dtype=self.dtype,
            name=self.name,
            dimension_names=self.dimension_names,
            attributes=self.attributes,
            cf=self.cf,
        )


def from_array_header(header: ArrayHeader, heap: Heap, /) -> dict[str, Json]:
    """Return the JSON of a header, without its name."""
    return {
        "dtype": from_dtype(header.dtype),
        "shape": header.grid.array_shape,
        "chunk_shapes": [_from_axis(axis, heap) for axis in header.grid.axes],
        "dimension_names": header.dimension_names,
        "attributes": _from_attributes(header.attributes, heap),
        "cf": _from_attributes(header.cf, heap),
        "encodings": list(map(from_encoding, header.encodings)),
        "fill_values": [heap.add(x.raw) for x in header.fills],
    }


def from_encoding(encoding: ChunkEncoding, /) -> dict[str, Json]:
    """Return the JSON of an encoding."""
    return {
        "dtype": from_dtype(encoding.dtype),
        "shape": encoding.shape,
        "codecs": [codec.to_json() for codec in encoding.codecs],
        "strides": encoding.strides,
    }


def to_array_header(data: Mapping[str, Json], heap: memoryview, /, *, name: str | None) -> ArrayHeader:
    """Return the header of JSON, with a name."""
    dtype, names = to_dtype(data["dtype"]), data["dimension_names"]
    axes = tuple(_to_axis(n, chunks, heap) for n, chunks in zip(data["shape"], data["chunk_shapes"], strict=True))
    return ArrayHeader(
        name=name,
        dtype=dtype,
        dimension_names=None if names is None else tuple(map(to_text, names)),
        attributes=_to_attributes(data["attributes"], heap),
        cf=_to_attributes(data["cf"], heap),
        grid=ChunkGrid(axes),
        encodings=tuple(
            ChunkEncoding(
                dtype=to_dtype(x["dtype"]),
                shape=tuple(map(to_count, x["shape"])),
                codecs=tuple(map(Codec.from_json, x["codecs"])),
                strides=tuple(map(to_integer, x["strides"])),
            )
            for x in data["encodings"]
        ),
        fills=tuple(_to_fill(dtype, cut_heap(heap, spot)) for spot in data["fill_values"]),
    )


def _to_fill(dtype: np.dtype[Any], raw: memoryview) -> Fill:
    fill = Fill(dtype, bytes(raw))
    if dtype.kind != "T" and len(raw) != dtype.itemsize:
        raise ManifestError(f"a fill value of dtype '{dtype}' has {len(raw)} bytes")
    if dtype.kind != "T":
        check_text(np.frombuffer(raw, dtype) if raw else np.zeros(1, dtype))
    fill.value  # noqa: B018 - an error if the bytes are not valid text
    return fill


def same_header(a: ArrayHeader, b: ArrayHeader, /) -> bool:
    """Return whether two arrays differ at most in their manifests and in the tables of their chunks; grids are equal.

    An array with an attribute or dtype without an exact JSON form equals no array.
    """
    try:
        return a is b or _plain(a) == _plain(b)
    except UnstorableError:
        return False


def same_group_header(a: ManifestGroup, b: ManifestGroup, /) -> bool:
    """Return whether two groups differ at most in their arrays, children and URL.

    A group with an attribute without an exact JSON form equals no group.
    """
    heaps = Heap(), Heap()
    try:
        x, y = (from_group_header(group, heap) for group, heap in zip((a, b), heaps, strict=True))
    except UnstorableError:
        return False
    return json.dumps(x) == json.dumps(y) and heaps[0].parts == heaps[1].parts


def _plain(header: ArrayHeader) -> tuple[Json, bytes]:
    heap = Heap()
    document = from_array_header(replace(header, encodings=(), fills=header.fills[:1]), heap)
    return json.dumps(document), b"".join(heap.parts)


def from_group_header(group: ManifestGroup, heap: Heap, /) -> dict[str, Json]:
    """Return the JSON of a group without its arrays, children and URL."""
    return {
        "attributes": _from_attributes(group.attributes, heap),
        "coordinates": sorted(group.coordinates),
        "dimensions": dict(group.dimensions),
        "unlimited": sorted(group.unlimited),
        "not_text": sorted(group.not_text),
        "loaded": sorted(group.loaded),
        "refusals": [
            {"path": x.path, "reason": x.reason, "kind": x.kind, "inline_size": x.inline_size} for x in group.refusals
        ],
    }


def to_group(
    data: Mapping[str, Json],
    heap: memoryview,
    /,
    *,
    arrays: Mapping[str, ManifestArray],
    groups: Mapping[str, ManifestGroup],
    url: str | None = None,
) -> ManifestGroup:
    """Return the group of JSON, with arrays, children and URL."""
    return ManifestGroup(
        arrays=arrays,
        groups=groups,
        attributes=_to_attributes(data["attributes"], heap),
        coordinates=frozenset(map(to_text, data["coordinates"])),
        dimensions={name: to_count(n) for name, n in to_mapping(data["dimensions"]).items()},
        unlimited=frozenset(map(to_text, data["unlimited"])),
        not_text=frozenset(map(to_text, data["not_text"])),
        loaded=frozenset(map(to_text, data["loaded"])),
        refusals=tuple(
            Refusal(
                path=to_text(x["path"]),
                reason=to_text(x["reason"]),
                kind=_KINDS[x["kind"]],
                inline_size=to_count(x["inline_size"]),
            )
            for x in data["refusals"]
        ),
        url=url,
    )


def to_text(data: Json, /) -> str:
    """Return JSON data that must be a text."""
    if not isinstance(data, str):
        raise ManifestError(f"{data!r} is not text")
    return data


def _from_axis(axis: ChunkAxis, heap: Heap) -> Json:
    return heap.add(axis.lengths().astype("<i8").tobytes()) if axis.chunk is None else axis.chunk


def _to_axis(length: Json, chunks: Json, heap: memoryview) -> ChunkAxis:
    if not isinstance(chunks, list):
        return ChunkAxis.regular(to_count(length), to_count(chunks))
    axis = ChunkAxis.from_lengths(np.frombuffer(cut_heap(heap, chunks), "<i8"))
    if axis.length != to_count(length):
        raise ManifestError(f"an axis of {length} elements has chunks of {axis.length}")
    return axis


def _from_attributes(attributes: Mapping[str, Any], heap: Heap) -> Json:
    try:
        return {name: from_value(value, heap) for name, value in attributes.items()}
    except RecursionError as error:
        raise UnstorableError("lists too deep in each other") from error


def _to_attributes(data: Json, heap: memoryview) -> dict[str, Any]:
    return {name: to_value(value, heap) for name, value in to_mapping(data).items()}
