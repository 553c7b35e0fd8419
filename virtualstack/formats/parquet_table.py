"""Kerchunk parquet files as columns of references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from virtualstack.errors import MalformedFileError
from virtualstack.formats.reference_table import inline_bytes, parse_json
from virtualstack.formats.references import WHOLE, References

__all__ = ["ParquetTable", "read_record"]

_COLUMNS = (
    ("path", pa.dictionary(pa.int32(), pa.string())),
    ("offset", pa.int64()),
    ("size", pa.int64()),
    ("raw", pa.binary()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTable:
    """References in a directory of parquet files, each with those of so many chunks of one array.

    Parameters
    ----------
    metadata
        Zarr metadata, parsed, by key.
    record_size
        Chunks in a file.
    """

    metadata: Mapping[str, Any]
    record_size: int

    @classmethod
    def of(cls, zmetadata: bytes, /, *, where: str) -> ParquetTable:
        """Read ``.zmetadata``.

        Raises
        ------
        MalformedFileError
            It lacks ``metadata`` or ``record_size``.
        """
        data = parse_json(zmetadata, where=f".zmetadata' of '{where}")
        metadata, size = (data.get("metadata"), data.get("record_size")) if isinstance(data, Mapping) else (None, None)
        if not isinstance(metadata, Mapping) or type(size) is not int or not 0 < size < 1 << 62:
            raise MalformedFileError(
                f"'.zmetadata' of '{where}' has no 'metadata', or 'record_size' {size!r}: it is not of references"
            )
        return cls(metadata=metadata, record_size=size)


def read_record(data: bytes, n_rows: int, /, *, where: str) -> References:
    """Give the references in a file; rows past ``n_rows`` are padding.

    Raises
    ------
    MalformedFileError
        It is no parquet of references, or has fewer rows.
    """
    table = _table(data, where)
    if len(table) < n_rows:
        raise MalformedFileError(f"'{where}' has {len(table)} rows; {n_rows} are asked for")
    table = table.slice(0, n_rows)
    present = pc.or_(pc.is_valid(table["path"]), pc.is_valid(table["raw"]))
    rows = np.flatnonzero(present.combine_chunks().to_numpy(zero_copy_only=False))
    return _columns(rows, table if len(rows) == n_rows else table.take(pa.array(rows)), where)


def _table(data: bytes, where: str) -> pa.Table:
    try:
        file = pq.read_table(pa.BufferReader(data))
        columns = []
        for name, kind in _COLUMNS:
            column = file[name] if name in file.column_names else pa.chunked_array([pa.nulls(len(file), kind)])
            if name == "raw" and pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if name == "path" and not pa.types.is_dictionary(column.type):
                column = column.cast(pa.string()).dictionary_encode()
            columns.append(column.cast(kind))
        return pa.table(columns, names=[name for name, _ in _COLUMNS])
    except (pa.ArrowException, OSError) as error:
        raise MalformedFileError(f"'{where}' is no parquet of references: {error}") from error


def _columns(cells: np.ndarray[Any, Any], table: pa.Table, where: str) -> References:
    table = table.unify_dictionaries().combine_chunks()
    path, raw = (_one(table[name]) for name in ("path", "raw"))
    is_inline = pc.is_valid(raw).to_numpy(zero_copy_only=False)
    rows = np.where(is_inline, -1, pc.fill_null(path.indices, -1).to_numpy(zero_copy_only=False)).astype(np.int64)
    offsets, lengths = (
        pc.fill_null(table[name], 0).to_numpy().astype(np.int64, copy=True) for name in ("offset", "size")
    )
    lengths[(offsets == 0) & (lengths == 0) & ~is_inline] = WHOLE  # fsspec: a path alone
    return References(
        cells=cells.astype(np.int64),
        rows=rows,
        offsets=offsets,
        lengths=lengths,
        urls=tuple(path.dictionary.to_pylist()),
        inline=tuple(inline_bytes(chunk, where) for chunk in pc.drop_null(raw).to_pylist()),
    )


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
