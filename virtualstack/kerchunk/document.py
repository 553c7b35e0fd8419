"""Kerchunk references, version 1: one JSON object of metadata and ``[url, offset, length]`` by zarr key."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.location import Location
from virtualstack.manifests import FIRST, INLINE, ChunkManifest, Manifest
from virtualstack.manifests.counted import in_order
from virtualstack.manifests.rows import distinct_rows
from virtualstack.zarr.metadata.version2 import Zarr2Hierarchy

__all__ = ["UrlColumn", "UrlMap", "reference_dict", "reference_json", "reference_texts"]

_BLOCK_CHUNKS = 1 << 16  # chunks turned into text at once: bounds memory

type UrlMap = Callable[[str], str]
"""What stands in the references for the URL of a location."""


class UrlColumn:
    """What stands in the references for the locations of manifests, one after the other, as a column.

    Parameters
    ----------
    url
        Gives it of a URL.
    """

    def __init__(self, url: UrlMap) -> None:
        self._url = url
        self._locations: tuple[Location, ...] = ()
        self._column = pa.array([], pa.string())

    def __call__(self, manifest: ChunkManifest, /) -> pa.Array:
        """Give a text for each location of a manifest; it is made once where parts have one table."""
        if manifest.locations is not self._locations:
            self._locations = manifest.locations
            self._column = pa.array([self._url(x.url) for x in manifest.locations], pa.string())
        return self._column


def reference_json(hierarchy: Zarr2Hierarchy, /, *, url: UrlMap = str) -> bytes:
    r"""Give references as JSON text; chunks become text by array operations.

    Examples
    --------
    >>> reference_json(Zarr2Hierarchy(metadata={".zgroup": {"zarr_format": 2}}, manifests={}))
    b'{"version":1,"refs":{".zgroup":"{\\"zarr_format\\":2}"}}'
    """
    return b"".join(reference_texts(hierarchy, url=url))


def reference_texts(hierarchy: Zarr2Hierarchy, /, *, url: UrlMap = str) -> Iterator[bytes | memoryview]:
    """Give the parts of :func:`reference_json` one after the other, each of some thousand references."""
    yield b'{"version":1,"refs":{'
    metadata = ",".join(f"{json.dumps(key)}:{json.dumps(_text(value))}" for key, value in hierarchy.metadata.items())
    yield metadata.encode()
    for path, manifest in hierarchy.manifests.items():
        yield from _chunk_texts(path, manifest, url)
    yield b"}}"


def reference_dict(hierarchy: Zarr2Hierarchy, /, *, url: UrlMap = str) -> dict[str, Any]:
    """Give references as a dict, as ``fsspec`` and ``xr.open_dataset(..., engine="kerchunk")`` take it."""
    refs: dict[str, Any] = {key: _text(value) for key, value in hierarchy.metadata.items()}
    for path, manifest in hierarchy.manifests.items():
        read_allowed_urls = UrlColumn(url)
        for cells, part in _blocks(manifest):
            keys = pc.binary_join_element_wise(f"{path}/", _keys(cells, manifest.shape), "").to_pylist()
            is_inline = part.entries["location"] == INLINE
            entries = part.entries[~is_inline]
            spans = zip(
                read_allowed_urls(part).take(pa.array(entries["location"] - FIRST)).to_pylist(),
                entries["offset"].tolist(),
                entries["length"].tolist(),
                strict=True,
            )
            refs.update(zip(compress(keys, (~is_inline).tolist()), map(list, spans), strict=True))
            texts = _inline_texts(part, part.entries[is_inline]).to_pylist()
            refs.update(zip(compress(keys, is_inline.tolist()), texts, strict=True))
    return {"version": 1, "refs": refs}


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _chunk_texts(path: str, manifest: Manifest, url: UrlMap) -> Iterator[memoryview]:
    key = "," + json.dumps(f"{path}/")[:-1]
    read_allowed_urls = UrlColumn(lambda text: json.dumps(url(text)))
    for cells, part in _blocks(manifest):
        is_inline = part.entries["location"] == INLINE
        entries = part.entries[~is_inline]
        if entries.size:
            columns = (
                read_allowed_urls(part).take(pa.array(entries["location"] - FIRST)),
                pa.array(entries["offset"]).cast(pa.string()),
                pa.array(entries["length"]).cast(pa.string()),
            )
            keys = _keys(cells[~is_inline], manifest.shape)
            yield _joined(key, keys, '":[', columns[0], ",", columns[1], ",", columns[2], "]")
        if entries.size < cells.size:
            texts = _inline_texts(part, part.entries[is_inline])
            yield _joined(key, _keys(cells[is_inline], manifest.shape), '":"', texts, '"')


def _joined(*parts: pa.Array | str) -> memoryview:
    """Join columns row by row, and the rows: the data of an Arrow array of strings is all its text in one buffer."""
    texts = pc.binary_join_element_wise(
        *(pa.scalar(x, pa.large_string()) if isinstance(x, str) else x.cast(pa.large_string()) for x in parts),
        pa.scalar("", pa.large_string()),
    )
    return memoryview(texts.buffers()[2])[: texts.buffers()[1] and pc.sum(pc.binary_length(texts)).as_py()]


def _blocks(manifest: Manifest) -> Iterator[tuple[NDArray[np.int64], ChunkManifest]]:
    """Give the chunks that are there block by block, with their flat cell indexes."""
    for block, part in enumerate(in_order(manifest, _BLOCK_CHUNKS)):
        at = np.flatnonzero(~part.holes)
        if at.size:
            yield at + block * _BLOCK_CHUNKS, part if at.size == part.entries.size else part.pick((at,))


def _keys(cells: NDArray[np.int64], shape: tuple[int, ...]) -> pa.Array:
    """Give chunk keys such as ``"0.12"``; that of a scalar is ``"0"``."""
    if not shape:
        return pa.array(["0"] * cells.size, pa.string())
    numbers = [pa.array(x).cast(pa.string()) for x in np.unravel_index(cells, shape)]
    return numbers[0] if len(numbers) == 1 else pc.binary_join_element_wise(*numbers, ".")


def _inline_texts(manifest: ChunkManifest, entries: NDArray[Any]) -> pa.Array:
    spans = np.stack([entries["offset"], entries["length"]], axis=1)
    first, which = distinct_rows(spans.T)
    heap = memoryview(manifest.inline)
    texts = [
        "base64:" + base64.b64encode(heap[offset : offset + length]).decode()
        for offset, length in spans[first].tolist()
    ]
    return pa.array(texts, pa.large_string()).take(pa.array(which))
