"""Kerchunk references as parquet: a directory of ``.zmetadata`` and, for each array, files of equally many chunks."""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from virtualstack.kerchunk.document import UrlColumn, UrlMap
from virtualstack.manifests import FIRST, INLINE, ChunkManifest
from virtualstack.manifests.counted import in_order
from virtualstack.manifests.rows import distinct_rows
from virtualstack.zarr.metadata.version2 import Zarr2Hierarchy

__all__ = ["RECORD_SIZE", "SCHEMA", "parquet_files"]

RECORD_SIZE = 100_000
"""Chunks in each file but the last of an array, which has no padding."""

SCHEMA = pa.schema(
    [
        pa.field("path", pa.dictionary(pa.int32(), pa.string())),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("raw", pa.dictionary(pa.int32(), pa.binary())),
    ]
)
"""Columns of a file: a row a chunk in C order of the grid; path and raw are null where the chunk is absent."""

_BASE64 = b"base64:"
_ROWS = "max_rows_per_page"  # older libraries have no such limit
_ONE_PAGE = {_ROWS: RECORD_SIZE} if _ROWS in inspect.signature(pq.write_table).parameters else {}


def parquet_files(
    hierarchy: Zarr2Hierarchy, /, *, url: UrlMap = str, record_size: int = RECORD_SIZE
) -> Iterator[tuple[str, bytes]]:
    """Give key and content of each file, the one that makes the others visible last; reads no more than it needs.

    Parameters
    ----------
    hierarchy
        Metadata and chunks.
    url
        What stands in the references for the URL of a location.
    record_size
        Chunks in a file.
    """
    for path, manifest in hierarchy.manifests.items():
        read_allowed_urls = UrlColumn(url)
        for record, part in enumerate(in_order(manifest, record_size)):
            yield f"{path}/refs.{record}.parq", _file(_table(part, read_allowed_urls(part)))
    metadata = {"metadata": hierarchy.metadata, "record_size": record_size}
    yield ".zmetadata", json.dumps(metadata, separators=(",", ":")).encode()


def _table(part: ChunkManifest, urls: pa.Array) -> pa.Table:
    entries = part.entries
    # No bytes at offset 0 are a whole file for who reads this; none of a reference are none.
    nothing = (entries["location"] >= FIRST) & (entries["offset"] == 0) & (entries["length"] == 0)
    code = np.where(nothing, INLINE, entries["location"])
    inline = code == INLINE
    used, row = np.unique(code, return_inverse=True)
    n_other = int(np.searchsorted(used, FIRST))  # codes of holes and inline chunks come first
    path = pa.DictionaryArray.from_arrays(
        pa.array((row - n_other).astype(np.int32), mask=code < FIRST), urls.take(pa.array(used[n_other:] - FIRST))
    )
    columns = [path, np.where(inline, 0, entries["offset"]), np.where(inline, 0, entries["length"])]
    return pa.table([*columns, _raw(entries, inline, part.inline)], schema=SCHEMA)


def _raw(entries: NDArray[Any], inline: NDArray[np.bool_], heap: bytes) -> pa.Array:
    if not inline.any():
        return pa.nulls(len(entries), SCHEMA.field("raw").type)
    spans = np.stack([entries["offset"][inline], entries["length"][inline]], axis=1)
    first, which = distinct_rows(spans.T)
    rows = np.zeros(len(entries), np.int32)
    rows[inline] = which
    values = [_escape(heap[offset : offset + length]) for offset, length in spans[first].tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(rows, mask=~inline), pa.array(values, pa.binary()))


def _escape(chunk: bytes) -> bytes:
    """Encode bytes that fsspec would take for base64 text."""
    return _BASE64 + base64.b64encode(chunk) if chunk.startswith(_BASE64) else chunk


def _file(table: pa.Table) -> bytes:
    """Write a file that fastparquet reads, in as few bytes as it can have.

    fastparquet, which fsspec reads with, makes floats of integers unless statistics say that there are no nulls. It
    gives wrong numbers for equal ones that are packed as differences (2026.9), and refuses split bytes. One page a
    column lets zstd see what offsets in all files have in common; more effort helps these alone.
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
