"""Kerchunk parquet files as columns of references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from virtualstack.errors import MalformedFileError
from virtualstack.formats.metadata import ArrayMetadata
from virtualstack.formats.reference_table import inline_bytes, parse_json
from virtualstack.formats.references import WHOLE, References, check_grid

__all__ = ["ParquetTable"]

_MAX_RECORDS = 1 << 17
_COLUMNS = (
    ("path", pa.dictionary(pa.int32(), pa.string())),
    ("offset", pa.int64()),
    ("size", pa.int64()),
    ("raw", pa.binary()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTable:
    """References in a directory of parquet files.

    Parameters
    ----------
    metadata
        Zarr metadata, parsed, by key.
    record_size
        Chunks in a file.
    fetch
        Gives the content of files by their keys, ``None`` for those that are not there.
    where
        The directory, for messages.
    """

    metadata: Mapping[str, Any]
    record_size: int
    fetch: Callable[[list[str]], Iterable[bytes | None]]
    where: str

    @classmethod
    def of(
        cls, zmetadata: bytes, fetch: Callable[[list[str]], Iterable[bytes | None]], /, *, where: str
    ) -> ParquetTable:
        """Read ``.zmetadata``.

        Raises
        ------
        MalformedFileError
            It lacks ``metadata`` or ``record_size``.
        """
        data = parse_json(zmetadata, where=f".zmetadata' of '{where}")
        metadata, size = (data.get("metadata"), data.get("record_size")) if isinstance(data, Mapping) else (None, None)
        if not isinstance(metadata, Mapping) or not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise MalformedFileError(
                f"'.zmetadata' of '{where}' has no 'metadata', or 'record_size' {size!r}: it is not of references"
            )
        return cls(metadata=metadata, record_size=size, fetch=fetch, where=where)

    def read(self, path: str, metadata: ArrayMetadata, /) -> tuple[References, int]:
        """Give the chunks of an array; no reference can lie outside of its grid.

        Raises
        ------
        MalformedFileError
            A file is no parquet of references, or too short.
        """
        n_cells = check_grid(metadata, where=f"{path}' of '{self.where}")
        n_records = -(-n_cells // self.record_size)
        if n_records > _MAX_RECORDS:
            raise MalformedFileError(
                f"'{path}' of '{self.where}' has {n_records} files; at most {_MAX_RECORDS} are read"
            )
        keys = [f"{path}/refs.{record}.parq" for record in range(n_records)]
        parts = list(self._parts(keys, n_cells))
        if not parts:
            none = np.zeros(0, np.int64)
            return References(cells=none, rows=none, offsets=none, lengths=none, urls=()), 0
        cells = np.concatenate([cells for cells, _ in parts])
        return _columns(cells, pa.concat_tables([table for _, table in parts]), f"{path}' of '{self.where}"), 0

    def _parts(self, keys: list[str], n_cells: int) -> Iterator[tuple[np.ndarray[Any, Any], pa.Table]]:
        """Give cells and rows of the chunks that are there, file by file."""
        for record, data in enumerate(self.fetch(keys)):
            if data is None:
                continue
            first = record * self.record_size
            n = min(self.record_size, n_cells - first)
            table = self._table(data, keys[record])
            if len(table) < n:
                raise MalformedFileError(f"'{keys[record]}' of '{self.where}' has {len(table)} rows; {n} are asked for")
            table = table.slice(0, n)
            present = pc.or_(pc.is_valid(table["path"]), pc.is_valid(table["raw"]))
            rows = np.flatnonzero(present.combine_chunks().to_numpy(zero_copy_only=False))
            yield rows + first, table if len(rows) == n else table.take(pa.array(rows))

    def _table(self, data: bytes, key: str) -> pa.Table:
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
            raise MalformedFileError(f"'{key}' of '{self.where}' is no parquet of references: {error}") from error


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
