"""Reading of kerchunk parquet files as columns of references.

Page headers are read first: they limit the memory that pyarrow takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, Remedy
from virtualstack.kerchunk.references import WHOLE, References
from virtualstack.kerchunk.table import inline_bytes
from virtualstack.printable import first_names
from virtualstack.zarr.metadata.attributes import parse_json

# parquet.thrift: numbers of fields
_ROW_GROUPS, _GROUP_COLUMNS, _COLUMN_METADATA = 4, 1, 3
_PATH, _CHUNK_SIZE, _FIRST_DATA, _DICTIONARY = 3, 7, 9, 11
_UNPACKED, _STORED, _DATA, _DATA_V2 = 2, 3, 5, 8
_ENCODING = {_DATA: 2, _DATA_V2: 4}
_DELTA_BYTE_ARRAY = 7

# the compact protocol of thrift: types of fields
_TRUE, _FALSE, _NUMBERS, _BINARY, _LIST, _STRUCT = 1, 2, (4, 5, 6), 8, 9, 12
_FIXED = {1: 1, 2: 1, 3: 1, 7: 8}  # bytes of booleans in lists, of bytes and of floats
_INT32 = 5
_MAX_DEPTH = 9

_MAX_METADATA_BYTES = 1 << 20
_FREE_PAGES = 10_000
_BYTES_PER_PAGE = 1000
"""Stored bytes of a file for each further page: reading a page header takes about as long as reading these bytes."""


def unpacked_size(data: bytes | memoryview) -> int:
    """Return the number of bytes of a file's pages after unpacking.

    The sizes in the metadata of the file need not be true. pyarrow uses the sizes before each page, and so does this
    function. The metadata are parsed here, since pyarrow aborts the process for columns of some damaged files. Text
    that is stored as differences is refused, since it can unpack to any number of bytes.
    """
    try:
        return _unpacked_size(data)
    except (IndexError, AttributeError, TypeError) as error:  # the metadata end early, or have wrong types
        raise ValueError(f"its metadata is damaged ({error})") from error


def _unpacked_size(data: bytes | memoryview) -> int:
    length = int.from_bytes(data[-8:-4], "little")
    if length > _MAX_METADATA_BYTES:
        raise ValueError(f"it has {length} bytes of metadata; at most {_MAX_METADATA_BYTES} are read")
    metadata, _ = _struct(data, max(len(data) - 8 - length, 0))
    total, room = 0, _FREE_PAGES + len(data) // _BYTES_PER_PAGE
    for group in metadata.get(_ROW_GROUPS, []):
        for chunk in group.get(_GROUP_COLUMNS, []):
            column = chunk.get(_COLUMN_METADATA, {})
            name = bytes(column.get(_PATH, [b""])[0]).decode()  # for messages: pyarrow uses the order of columns
            at, dictionary = column.get(_FIRST_DATA, 0), column.get(_DICTIONARY, 0)
            if 0 < dictionary < at:
                at = dictionary
            end = min(at + column.get(_CHUNK_SIZE, 0), len(data))
            while 0 < at < end:
                header, at = _struct(data, at)
                for kind, encoding in _ENCODING.items():
                    if header.get(kind, {}).get(encoding) == _DELTA_BYTE_ARRAY:
                        raise ValueError(f"the column '{name}' has the encoding DELTA_BYTE_ARRAY, which is not read")
                sizes = header.get(_UNPACKED, -1), header.get(_STORED, -1)
                if min(sizes) < 0:
                    raise ValueError(f"a page of the column '{name}' has the sizes {sizes}; sizes cannot be negative")
                total += sizes[0]
                at += sizes[1]
                room -= 1
                if not room:
                    raise ValueError(f"it has {len(data)} bytes, but more pages than are read from a file of this size")
    return total


def _struct(data: bytes | memoryview, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct by number, and the position after it."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _number(data, at)
        if number in fields:
            raise ValueError(f"its metadata has field {number} twice")
        kind = head & 15
        fields[number], at = (None, at) if kind in (_TRUE, _FALSE) else _value(kind, data, at, depth)
    return fields, at + 1


def _value(kind: int, data: bytes | memoryview, at: int, depth: int) -> tuple[Any, int]:
    """Return a value of a type, and the position after it."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"its metadata is nested more than {_MAX_DEPTH} deep, which parquet never is")
    if kind in _NUMBERS:
        number, at = _number(data, at)
        if kind == _INT32 and not -(1 << 31) <= number < 1 << 31:  # pyarrow takes the lower bits
            raise ValueError("its metadata has a number of more than 32 bits")
        return number, at
    if kind == _BINARY:
        length, at = _varint(data, at)
        return data[at : at + length], at + length
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind == _LIST:
        head = data[at]
        n, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
        if n > len(data) - at:
            raise ValueError(f"its metadata has a list of {n} values, which is longer than the file")
        items = []
        for _ in range(n):
            item, at = _value(head & 15, data, at, depth + 1)
            items.append(item)
        return items, at
    if kind in _FIXED:
        return None, at + _FIXED[kind]
    raise ValueError(f"its metadata has a value of type {kind}, which parquet does not have")


def _number(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("its metadata has a number of more than 64 bits")


_COLUMNS = (
    ("path", pa.dictionary(pa.int32(), pa.string())),
    ("offset", pa.int64()),
    ("size", pa.int64()),
    ("raw", pa.dictionary(pa.int32(), pa.binary())),
)

_MAX_BYTES = 1 << 31
"""Largest size in bytes of a file's values, and of its inline chunks: 20,000 bytes for each of 100,000 chunks."""

_FREE_UNPACKED_BYTES = 1 << 26
"""Unpacked bytes that are accepted for a file of any size."""

_MAX_RATIO = 1000
"""Unpacked bytes that are accepted for each stored byte of a larger file."""

_ROW_BYTES = 64
"""Bytes of an unpacked row, whatever it holds."""

_MAX_RECORDS = 1 << 48
"""Largest accepted number of rows in a file: rows of missing files count, too."""

_BATCH_ROWS = 1 << 20
"""Rows that are decoded at a time."""


def parse_zmetadata(zmetadata: bytes, /, *, where: str) -> tuple[Mapping[str, Any], int]:
    """Return the zarr metadata by key, and the number of chunks in each parquet file, from ``.zmetadata``."""
    data = parse_json(zmetadata, where=f".zmetadata' of '{where}")
    metadata, size = (data.get("metadata"), data.get("record_size")) if isinstance(data, Mapping) else (None, None)
    if not isinstance(metadata, Mapping) or type(size) is not int or not 0 < size <= _MAX_RECORDS:
        raise MalformedFileError(
            f"'.zmetadata' of '{where}' has no 'metadata', or the invalid 'record_size' {size!r}: it does not "
            "belong to references",
            Remedy("check the path"),
        )
    return metadata, size


def read_record(data: bytes | memoryview, n_rows: int, record_size: int | None = None, /, *, where: str) -> References:
    """Return the references in a file; rows after ``n_rows``, and up to ``record_size``, are padding.

    Padding is not decoded, and each value of a column is decoded only once: a few bytes can declare any number of
    values. Files whose values have more than 2 GiB, or far more bytes than are stored, are refused.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        n = file.metadata.num_rows
        if record_size is not None and n > record_size:  # extra rows would shift the chunks of later files
            raise MalformedFileError(
                f"'{where}' has {n} rows, but the 'record_size' of these references is {record_size}. Write the "
                "references again"
            )
        table = _table(file, data, n_rows, where)
        if len(table) < n_rows:
            raise MalformedFileError(
                f"'{where}' has {len(table)} rows; expected {n_rows}", Remedy("write the references again")
            )
        present = pc.or_(pc.is_valid(table["path"]), pc.is_valid(table["raw"]))
        rows = np.flatnonzero(present.combine_chunks().to_numpy(zero_copy_only=False))
        return _columns(rows, table if len(rows) == n_rows else table.take(pa.array(rows)), where)
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:  # KeyError: nested columns
        raise MalformedFileError(f"'{where}' is not a parquet table of references: {error}") from error


def _table(file: pq.ParquetFile, data: bytes | memoryview, n_rows: int, where: str) -> pa.Table:
    """Return the first rows of the columns of references, with nulls for columns that the file lacks."""
    names = [name for name, _ in _COLUMNS if name in file.schema_arrow.names]
    if not {"path", "raw"} & set(names):
        found = first_names(file.schema_arrow.names)
        raise MalformedFileError(
            f"'{where}' is not a parquet table of references: none of its columns {found} is 'path' or 'raw'. Write "
            "the references again"
        )
    try:
        unpacked = unpacked_size(data)
    except ValueError as error:
        raise MalformedFileError(
            f"'{where}' is not a parquet table of references: {error}", Remedy("write the references again")
        ) from error
    check_size(unpacked, where)
    _check_ratio(max(unpacked, _ROW_BYTES * min(n_rows, file.metadata.num_rows)), len(data), where)
    texts = [name for name in ("path", "raw") if name in names]
    file = pq.ParquetFile(pa.BufferReader(data), metadata=file.metadata, read_dictionary=texts)
    batches, n = [], 0
    for batch in file.iter_batches(min(n_rows, _BATCH_ROWS), columns=names):
        batch.validate(full=True)  # pyarrow does not check dictionary indices on its own
        batches.append(batch[: n_rows - n])
        n += len(batches[-1])
        if n == n_rows:
            break
    table = pa.Table.from_batches(batches, pa.schema(file.schema_arrow.field(name) for name in names))
    columns = [table[name].cast(kind) if name in names else pa.nulls(n, kind) for name, kind in _COLUMNS]
    return pa.table(columns, names=[name for name, _ in _COLUMNS])


def _check_ratio(unpacked: int, stored: int, where: str) -> None:
    """Refuse a small file that declares far more bytes: references are never compressed that well."""
    most = max(_FREE_UNPACKED_BYTES, _MAX_RATIO * stored)
    if unpacked > most:
        raise MalformedFileError(
            f"'{where}' has {stored} bytes but says that it unpacks to {unpacked}; at most {most} are decoded for a "
            "file of this size",
            Remedy("write the references again, with fewer chunks in a file"),
        )


def check_size(nbytes: int, where: str, /) -> None:
    """Refuse a file, or values of a file, of more than 2 GiB."""
    if nbytes > _MAX_BYTES:
        raise MalformedFileError(
            f"'{where}' has {nbytes} bytes of values; at most {_MAX_BYTES} are read. Write the references again, "
            "with fewer chunks in a file"
        )


def _columns(cells: NDArray[np.intp], table: pa.Table, where: str) -> References:
    table = table.unify_dictionaries().combine_chunks()
    path, raw = (_one(table[name]) for name in ("path", "raw"))
    is_inline = pc.is_valid(raw).to_numpy(zero_copy_only=False)
    rows = np.where(is_inline, -1, pc.fill_null(path.indices, -1).to_numpy(zero_copy_only=False)).astype(np.int64)
    offsets, lengths = (pc.fill_null(table[name], 0).to_numpy() for name in ("offset", "size"))
    if (lengths < 0).any():  # -1 means a whole file here, but not in parquet
        raise MalformedFileError(
            f"'{where}' has a reference of {int(lengths.min())} bytes; expected 0 or more",
            Remedy("write the references again"),
        )
    is_whole = (offsets == 0) & (lengths == 0) & ~is_inline  # fsspec: a path alone
    values = [inline_bytes(value, where) for value in raw.dictionary.to_pylist()]
    shown = raw.indices.drop_null().to_numpy()
    check_size(int(np.array([len(value) for value in values], np.int64)[shown].sum()), where)
    return References(
        cells=cells.astype(np.int64, copy=False),
        rows=rows,
        offsets=offsets,
        lengths=np.where(is_whole, WHOLE, lengths),
        urls=tuple(path.dictionary.to_pylist()),
        inline=tuple([values[i] for i in shown.tolist()]),
    )


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
