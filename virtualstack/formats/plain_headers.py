"""Arrays and groups without their chunks as JSON and a heap of bytes, exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from virtualstack.codecs.metadata import Codec
from virtualstack.errors import ManifestError
from virtualstack.formats.plain_values import Heap, Json, from_dtype, from_value, to_dtype, to_value
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

__all__ = [
    "ArrayHeader",
    "cut_heap",
    "from_array_header",
    "from_group_header",
    "same_group_header",
    "same_header",
    "to_array_header",
    "to_group",
    "to_text",
]

_KINDS: dict[str, Literal["refused", "inlined", "noted", "packed"]] = {
    "refused": "refused", "inlined": "inlined", "noted": "noted", "packed": "packed"
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayHeader:
    """An array without its chunks; the words are those of :class:`~virtualstack.manifests.ManifestArray`.

    Parameters
    ----------
    encodings, fills
        What the codes of its entries point into.
    """

    name: str | None
    dtype: np.dtype[Any]
    dimension_names: tuple[str, ...] | None
    attributes: Mapping[str, Any]
    cf: Mapping[str, Any]
    grid: ChunkGrid
    encodings: tuple[ChunkEncoding, ...]
    fills: tuple[Fill, ...]

    @classmethod
    def of(cls, array: ManifestArray, /) -> ArrayHeader:
        """Give the header of an array."""
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

    def array(self, manifest: Manifest, /) -> ManifestArray:
        """Put the chunks in."""
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
    """Give the JSON of a header.

    Raises
    ------
    UnstorableError
        An attribute or dtype has no plain form.
    """
    return {
        "name": header.name,
        "dtype": from_dtype(header.dtype),
        "dims": header.dimension_names,
        "attributes": _from_attributes(header.attributes, heap),
        "cf": _from_attributes(header.cf, heap),
        "grid": [_from_axis(axis, heap) for axis in header.grid.axes],
        "encodings": [
            [from_dtype(x.dtype), x.shape, [[c.name, c.configuration] for c in x.codecs], x.strides]
            for x in header.encodings
        ],
        "fills": [[from_dtype(x.dtype), heap.add(x.raw)] for x in header.fills],
    }


def to_array_header(data: Mapping[str, Json], heap: memoryview, /) -> ArrayHeader:
    """Give the header back.

    Raises
    ------
    ManifestError, ValueError, TypeError, KeyError
        The JSON is none of ours.
    """
    return ArrayHeader(
        name=None if data["name"] is None else to_text(data["name"]),
        dtype=to_dtype(data["dtype"]),
        dimension_names=None if data["dims"] is None else tuple(map(to_text, data["dims"])),
        attributes=_to_attributes(data["attributes"], heap),
        cf=_to_attributes(data["cf"], heap),
        grid=ChunkGrid(tuple(_to_axis(axis, heap) for axis in data["grid"])),
        encodings=tuple(
            ChunkEncoding(
                dtype=to_dtype(dtype),
                shape=tuple(map(int, shape)),
                codecs=tuple(Codec(to_text(name), to_text(configuration)) for name, configuration in codecs),
                strides=tuple(map(int, strides)),
            )
            for dtype, shape, codecs, strides in data["encodings"]
        ),
        fills=tuple(Fill(to_dtype(dtype), bytes(cut_heap(heap, raw))) for dtype, raw in data["fills"]),
    )


def same_header(a: ArrayHeader, b: ArrayHeader, /) -> bool:
    """Tell whether two arrays differ in their chunks at most, and in what codes of chunks point into.

    Raises
    ------
    UnstorableError
        An attribute or dtype has no plain form.
    """
    return _plain(a) == _plain(b)


def same_group_header(a: ManifestGroup, b: ManifestGroup, /) -> bool:
    """Tell whether two groups differ in their arrays and children at most, or where they are from.

    Raises
    ------
    UnstorableError
        An attribute has no plain form.
    """
    heaps = Heap(), Heap()
    x, y = (from_group_header(replace(group, url=None), heap) for group, heap in zip((a, b), heaps, strict=True))
    return json.dumps(x) == json.dumps(y) and heaps[0].parts == heaps[1].parts


def _plain(header: ArrayHeader) -> tuple[Json, bytes]:
    heap = Heap()
    document = from_array_header(replace(header, encodings=(), fills=header.fills[:1]), heap)
    return json.dumps(document), b"".join(heap.parts)


def from_group_header(group: ManifestGroup, heap: Heap, /) -> dict[str, Json]:
    """Give the JSON of a group without its arrays and children.

    Raises
    ------
    UnstorableError
        An attribute has no plain form.
    """
    return {
        "attributes": _from_attributes(group.attributes, heap),
        "coordinates": sorted(group.coordinates),
        "dimensions": dict(group.dimensions),
        "unlimited": sorted(group.unlimited),
        "not_text": sorted(group.not_text),
        "loaded": sorted(group.loaded),
        "refusals": [[x.path, x.reason, x.kind] for x in group.refusals],
        "url": group.url,
    }


def to_group(
    data: Mapping[str, Json],
    heap: memoryview,
    /,
    *,
    arrays: Mapping[str, ManifestArray],
    groups: Mapping[str, ManifestGroup],
) -> ManifestGroup:
    """Give the group back, with arrays and children.

    Raises
    ------
    ManifestError, ValueError, TypeError, KeyError
        The JSON is none of ours.
    """
    return ManifestGroup(
        arrays=arrays,
        groups=groups,
        attributes=_to_attributes(data["attributes"], heap),
        coordinates=frozenset(map(to_text, data["coordinates"])),
        dimensions={name: int(n) for name, n in data["dimensions"].items()},
        unlimited=frozenset(map(to_text, data["unlimited"])),
        not_text=frozenset(map(to_text, data["not_text"])),
        loaded=frozenset(map(to_text, data["loaded"])),
        refusals=tuple(
            Refusal(path=to_text(path), reason=to_text(reason), kind=_KINDS[kind])
            for path, reason, kind in data["refusals"]
        ),
        url=None if data["url"] is None else to_text(data["url"]),
    )


def to_text(data: Json, /) -> str:
    """Give a text that is one.

    Raises
    ------
    ManifestError
        It is something else.
    """
    if not isinstance(data, str):
        raise ManifestError(f"{data!r} is no text")
    return data


def cut_heap(heap: memoryview, spot: Json, /) -> memoryview:
    """Give the bytes that JSON points to by offset and length.

    Raises
    ------
    ManifestError
        The heap has none there.
    """
    offset, length = spot
    if not 0 <= offset <= offset + length <= len(heap):
        raise ManifestError(f"{length} bytes at {offset} of a heap of {len(heap)}")
    return heap[offset : offset + length]


def _from_axis(axis: ChunkAxis, heap: Heap) -> Json:
    if axis.chunk is not None:
        return [axis.length, axis.chunk]
    return [*heap.add(axis.lengths().tobytes()), 0]


def _to_axis(data: Json, heap: memoryview) -> ChunkAxis:
    if len(data) == 2:
        return ChunkAxis.regular(*data)
    return ChunkAxis.from_lengths(np.frombuffer(cut_heap(heap, data[:2]), np.int64))


def _from_attributes(attributes: Mapping[str, Any], heap: Heap) -> Json:
    return {name: from_value(value, heap) for name, value in attributes.items()}


def _to_attributes(data: Json, heap: memoryview) -> dict[str, Any]:
    return {name: to_value(value, heap) for name, value in data.items()}
