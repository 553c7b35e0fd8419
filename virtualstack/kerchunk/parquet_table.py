"""Kerchunk parquet files as columns of references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError
from virtualstack.kerchunk.parquet_pages import unpacked_size
from virtualstack.kerchunk.references import WHOLE, References
from virtualstack.kerchunk.table import inline_bytes
from virtualstack.zarr.metadata.json_text import parse_json

__all__ = ["ParquetTable", "check_size", "read_record"]

_COLUMNS = (
    ("path", pa.dictionary(pa.int32(), pa.string())),
    ("offset", pa.int64()),
    ("size", pa.int64()),
    ("raw", pa.dictionary(pa.int32(), pa.binary())),
)

_MAX_BYTES = 1 << 31
"""Bytes that the values of a file may take, and its inline chunks: 20,000 of each of 100,000 chunks."""

_MIN_UNPACKED = 1 << 26
"""Bytes that a file of any size may have, once decoded."""

_MAX_RATIO = 1000
"""Bytes that a larger file may have, once decoded, for each byte that is stored."""

_ROW_BYTES = 64
"""Bytes that a row takes, once decoded, whatever it holds."""

_MAX_RECORDS = 1 << 48
"""Rows that a file may be said to have: those of one that is not there are counted all the same."""

_BATCH = 1 << 20
"""Rows that are decoded at a time."""


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
        if not isinstance(metadata, Mapping) or type(size) is not int or not 0 < size <= _MAX_RECORDS:
            raise MalformedFileError(
                f"'.zmetadata' of '{where}' has no 'metadata', or 'record_size' {size!r}: it is not of references"
            )
        return cls(metadata=metadata, record_size=size)


def read_record(data: bytes | memoryview, n_rows: int, record_size: int | None = None, /, *, where: str) -> References:
    """Give the references in a file; rows past ``n_rows``, and up to ``record_size``, are padding.

    Padding is not decoded, and no value of a column more than once: a few bytes can claim any number of them.

    Raises
    ------
    MalformedFileError
        It is no parquet of references, has fewer rows or more than a file should, or values of more than 2 GiB or
        far more bytes than are stored.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        n = file.metadata.num_rows
        if record_size is not None and n > record_size:  # chunks of later files would be taken for others
            raise MalformedFileError(f"'{where}' has {n} rows; {record_size} a file are said to be the most there are")
        table = _table(file, data, n_rows, where)
        if len(table) < n_rows:
            raise MalformedFileError(f"'{where}' has {len(table)} rows; {n_rows} are asked for")
        present = pc.or_(pc.is_valid(table["path"]), pc.is_valid(table["raw"]))
        rows = np.flatnonzero(present.combine_chunks().to_numpy(zero_copy_only=False))
        return _columns(rows, table if len(rows) == n_rows else table.take(pa.array(rows)), where)
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:  # KeyError: of nested columns
        raise MalformedFileError(f"'{where}' is no parquet of references: {error}") from error


def _table(file: pq.ParquetFile, data: bytes | memoryview, n_rows: int, where: str) -> pa.Table:
    """Give the first rows of the columns of references, with null for those that the file has not."""
    names = [name for name, _ in _COLUMNS if name in file.schema_arrow.names]
    if not {"path", "raw"} & set(names):
        found = file.schema_arrow.names[:9]
        raise MalformedFileError(
            f"'{where}' is no parquet of references: none of its columns {found} is 'path' or 'raw'"
        )
    try:
        unpacked = unpacked_size(data)
    except ValueError as error:
        raise MalformedFileError(
            f"'{where}' is no parquet of references: {error}; write the references anew"
        ) from error
    check_size(unpacked, where)
    _check_ratio(max(unpacked, _ROW_BYTES * min(n_rows, file.metadata.num_rows)), len(data), where)
    texts = [name for name in ("path", "raw") if name in names]
    file = pq.ParquetFile(pa.BufferReader(data), metadata=file.metadata, read_dictionary=texts)
    batches, n = [], 0
    for batch in file.iter_batches(min(n_rows, _BATCH), columns=names):
        batch.validate(full=True)  # pyarrow looks up what is not there
        batches.append(batch[: n_rows - n])
        n += len(batches[-1])
        if n == n_rows:
            break
    table = pa.Table.from_batches(batches, pa.schema(file.schema_arrow.field(name) for name in names))
    columns = [table[name].cast(kind) if name in names else pa.nulls(n, kind) for name, kind in _COLUMNS]
    return pa.table(columns, names=[name for name, _ in _COLUMNS])


def _check_ratio(unpacked: int, stored: int, where: str) -> None:
    """Refuse a file of few bytes that claims to hold much: references never are packed so well."""
    most = max(_MIN_UNPACKED, _MAX_RATIO * stored)
    if unpacked > most:
        raise MalformedFileError(
            f"'{where}' has {stored} bytes and claims to hold {unpacked}; at most {most} are decoded for its size. "
            "Write the references anew, with fewer chunks in a file"
        )


def check_size(nbytes: int, where: str, /) -> None:
    """Refuse a file, or values of it, of more than 2 GiB.

    Raises
    ------
    MalformedFileError
        It is larger.
    """
    if nbytes > _MAX_BYTES:
        raise MalformedFileError(
            f"'{where}' has {nbytes} bytes, packed or not, and at most {_MAX_BYTES} are read: write the references "
            "anew, with less of them in a file"
        )


def _columns(cells: NDArray[np.intp], table: pa.Table, where: str) -> References:
    table = table.unify_dictionaries().combine_chunks()
    path, raw = (_one(table[name]) for name in ("path", "raw"))
    is_inline = pc.is_valid(raw).to_numpy(zero_copy_only=False)
    rows = np.where(is_inline, -1, pc.fill_null(path.indices, -1).to_numpy(zero_copy_only=False)).astype(np.int64)
    offsets, lengths = (
        pc.fill_null(table[name], 0).to_numpy().astype(np.int64, copy=True) for name in ("offset", "size")
    )
    if (lengths < 0).any():  # one of them means a whole file, here but not in the file
        raise MalformedFileError(f"'{where}' has a negative size, {int(lengths.min())}; write the references anew")
    lengths[(offsets == 0) & (lengths == 0) & ~is_inline] = WHOLE  # fsspec: a path alone
    values = [inline_bytes(value, where) for value in raw.dictionary.to_pylist()]
    shown = raw.indices.drop_null().to_numpy()
    check_size(int(np.array([len(value) for value in values], np.int64)[shown].sum()), where)
    return References(
        cells=cells.astype(np.int64),
        rows=rows,
        offsets=offsets,
        lengths=lengths,
        urls=tuple(path.dictionary.to_pylist()),
        inline=tuple([values[i] for i in shown.tolist()]),
    )


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
