"""Writing of kerchunk references, version 1, as one JSON object or as a directory of parquet files."""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from virtualstack.location import Location
from virtualstack.manifests import FIRST, INLINE, ChunkManifest, Manifest
from virtualstack.manifests.cells import distinct_rows
from virtualstack.manifests.counted import in_order
from virtualstack.progress import Show, reported
from virtualstack.zarr.metadata.version2 import ZarrFormat, ZarrHierarchy

_BLOCK_CHUNKS = 1 << 16  # chunks that become text at a time: limits memory

type UrlMap = Callable[[str], str]
"""A function that returns the text in the references for the URL of a location."""


class UrlColumn:
    """The texts in the references for the locations of successive manifests, as a column."""

    def __init__(self, url: UrlMap) -> None:
        self._url = url
        self._locations: tuple[Location, ...] = ()
        self._column = pa.array([], pa.string())

    def __call__(self, manifest: ChunkManifest, /) -> pa.Array:
        """Return a text for each location of a manifest; the column is reused if the location table is the same."""
        if manifest.locations is not self._locations:
            self._locations = manifest.locations
            self._column = pa.array([self._url(x.url) for x in manifest.locations], pa.string())
        return self._column


def reference_json(hierarchy: ZarrHierarchy, /, *, url: UrlMap = str) -> bytes:
    r"""Return references as JSON text; chunks become text by array operations.

    Examples
    --------
    >>> reference_json(ZarrHierarchy(metadata={".zgroup": {"zarr_format": 2}}, manifests={}))
    b'{"version":1,"refs":{".zgroup":"{\\"zarr_format\\":2}"}}'
    """
    return b"".join(reference_texts(hierarchy, url=url))


def reference_texts(
    hierarchy: ZarrHierarchy, /, *, url: UrlMap = str, progress: Show | None = None
) -> Iterator[bytes | memoryview]:
    """Yield the text of :func:`reference_json` in pieces of some thousand references; show each finished variable."""
    yield b'{"version":1,"refs":{'
    metadata = ",".join(f"{json.dumps(key)}:{json.dumps(_text(value))}" for key, value in hierarchy.metadata.items())
    yield metadata.encode()
    for path, manifest in reported(hierarchy.manifests.items(), progress):
        yield from _chunk_texts(path, manifest, url, hierarchy.zarr_format)
    yield b"}}"


def reference_dict(hierarchy: ZarrHierarchy, /, *, url: UrlMap = str) -> dict[str, Any]:
    """Return references as a dict, as ``fsspec`` and ``xr.open_dataset(..., engine="kerchunk")`` accept it."""
    found: dict[str, Any] = json.loads(reference_json(hierarchy, url=url))
    return found


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _chunk_texts(path: str, manifest: Manifest, url: UrlMap, zarr_format: ZarrFormat) -> Iterator[memoryview]:
    separator, beginning = (".", "/") if zarr_format == 2 else ("/", "/c/" if manifest.shape else "/c")
    key = "," + json.dumps(f"{path}{beginning}")[:-1]
    url_column = UrlColumn(lambda text: json.dumps(url(text)))
    for cells, part in _blocks(manifest):
        is_inline = part.entries["location"] == INLINE
        entries = part.entries[~is_inline]
        if entries.size:
            columns = (
                url_column(part).take(pa.array(entries["location"] - FIRST)),
                pa.array(entries["offset"]).cast(pa.string()),
                pa.array(entries["length"]).cast(pa.string()),
            )
            keys = _keys(cells[~is_inline], manifest.shape, separator)
            yield _joined(key, keys, '":[', columns[0], ",", columns[1], ",", columns[2], "]")
        if entries.size < cells.size:
            texts = _inline_texts(part, part.entries[is_inline])
            yield _joined(key, _keys(cells[is_inline], manifest.shape, separator), '":"', texts, '"')


def _joined(*parts: pa.Array | str) -> memoryview:
    """Join columns row by row, and all rows: an Arrow array of strings keeps all of its text in one buffer."""
    texts = pc.binary_join_element_wise(
        *(pa.scalar(x, pa.large_string()) if isinstance(x, str) else x.cast(pa.large_string()) for x in parts),
        pa.scalar("", pa.large_string()),
    )
    return memoryview(texts.buffers()[2])[: texts.buffers()[1] and pc.sum(pc.binary_length(texts)).as_py()]


def _blocks(manifest: Manifest) -> Iterator[tuple[NDArray[np.int64], ChunkManifest]]:
    """Yield the existing chunks block by block, with their flat cell indexes."""
    for block, part in enumerate(in_order(manifest, _BLOCK_CHUNKS)):
        at = np.flatnonzero(~part.holes)
        if at.size:
            yield at + block * _BLOCK_CHUNKS, part if at.size == part.entries.size else part.pick((at,))


def _keys(cells: NDArray[np.int64], shape: tuple[int, ...], separator: str) -> pa.Array:
    """Return chunk keys such as ``"0.12"``; that of a scalar is ``"0"`` in zarr v2, and nothing in zarr v3."""
    if not shape:
        return pa.array(["0" if separator == "." else ""] * cells.size, pa.string())
    numbers = [pa.array(x).cast(pa.string()) for x in np.unravel_index(cells, shape)]
    return numbers[0] if len(numbers) == 1 else pc.binary_join_element_wise(*numbers, separator)


def _inline_texts(manifest: ChunkManifest, entries: NDArray[Any]) -> pa.Array:
    chunks, which = _inline_chunks(manifest, entries)
    texts = ["base64:" + base64.b64encode(chunk).decode() for chunk in chunks]
    return pa.array(texts, pa.large_string()).take(pa.array(which))


def _inline_chunks(manifest: ChunkManifest, entries: NDArray[Any]) -> tuple[Iterator[bytes], NDArray[np.intp]]:
    """Return the different inline chunks that entries name, and which of them each entry names."""
    first, which = distinct_rows([entries["offset"], entries["length"]])
    spans = zip(entries["offset"][first].tolist(), entries["length"][first].tolist(), strict=True)
    return (manifest.inline[offset : offset + length] for offset, length in spans), which


RECORD_SIZE = 100_000
"""Chunks in each file of an array; the last file may have fewer and is not padded."""

SCHEMA = pa.schema(
    [
        pa.field("path", pa.dictionary(pa.int32(), pa.string())),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("raw", pa.dictionary(pa.int32(), pa.binary())),
    ]
)
"""Columns of a file, one row for each chunk in C order of the grid; path and raw are null for a chunk without bytes."""

_BASE64 = b"base64:"
_ROWS = "max_rows_per_page"  # older libraries do not have this limit
_ONE_PAGE = {_ROWS: 1 << 31} if _ROWS in inspect.signature(pq.write_table).parameters else {}


def parquet_files(
    hierarchy: ZarrHierarchy, /, *, url: UrlMap = str, record_size: int = RECORD_SIZE, progress: Show | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield the key and content of each file; the last file, ``.zmetadata``, makes the others visible.

    Manifests are read one part at a time.
    """
    for path, manifest in reported(hierarchy.manifests.items(), progress):
        url_column = UrlColumn(url)
        for record, part in enumerate(in_order(manifest, record_size)):
            yield f"{path}/refs.{record}.parq", _file(_table(part, url_column(part)))
    metadata = {"metadata": hierarchy.metadata, "record_size": record_size}
    yield ".zmetadata", json.dumps(metadata, separators=(",", ":")).encode()


def _table(part: ChunkManifest, urls: pa.Array) -> pa.Table:
    entries = part.entries
    # Readers take offset 0 and length 0 for a whole file, so a reference of no bytes is written as inline bytes.
    nothing = (entries["location"] >= FIRST) & (entries["offset"] == 0) & (entries["length"] == 0)
    code = np.where(nothing, INLINE, entries["location"])
    inline = code == INLINE
    used, row = np.unique(code, return_inverse=True)
    n_other = int(np.searchsorted(used, FIRST))  # codes of EMPTY, ABSENT and INLINE chunks come first
    path = pa.DictionaryArray.from_arrays(
        pa.array((row - n_other).astype(np.int32), mask=code < FIRST), urls.take(pa.array(used[n_other:] - FIRST))
    )
    columns = [path, np.where(inline, 0, entries["offset"]), np.where(inline, 0, entries["length"])]
    return pa.table([*columns, _raw(part, entries, inline)], schema=SCHEMA)


def _raw(part: ChunkManifest, entries: NDArray[Any], inline: NDArray[np.bool_]) -> pa.Array:
    if not inline.any():
        return pa.nulls(len(entries), SCHEMA.field("raw").type)
    rows = np.zeros(len(entries), np.int32)
    chunks, rows[inline] = _inline_chunks(part, entries[inline])
    values = pa.array(map(_escape, chunks), pa.binary())
    return pa.DictionaryArray.from_arrays(pa.array(rows, mask=~inline), values)


def _escape(chunk: bytes) -> bytes:
    """Encode bytes that fsspec would otherwise read as base64 text."""
    return _BASE64 + base64.b64encode(chunk) if chunk.startswith(_BASE64) else chunk


def _file(table: pa.Table) -> bytes:
    """Return the bytes of a parquet file that fastparquet can read, as small as possible.

    fsspec reads with fastparquet. fastparquet turns integers into floats unless statistics show that there are no
    nulls. It returns wrong numbers for equal numbers that are packed as differences (2026.9), and refuses split bytes.
    With one page for each column, zstd can use similarities of offsets in all files; a higher level helps only offsets.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level={"offset": 3},
        write_statistics=["offset", "size"],
        use_dictionary=["path", "raw"],
        **_ONE_PAGE,
    )
    return bytes(sink.getvalue())
