"""Headers of the pages of a parquet file: what the pages become is known before pyarrow takes memory for them."""

from __future__ import annotations

from typing import Any

__all__ = ["unpacked_size"]

# parquet.thrift: numbers of fields
_ROW_GROUPS, _COLUMNS, _COLUMN_METADATA = 4, 1, 3
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
_FEW_PAGES = 10_000
_BYTES_PER_PAGE = 1000
"""Stored bytes of a file for each further page: to read its header takes as long as to read so many."""


def unpacked_size(data: bytes | memoryview) -> int:
    """Return the bytes that the pages of a file have once they are unpacked.

    The sizes in the metadata of the file need not be true; pyarrow goes by those in front of each page, as this does.
    The metadata is parsed here, for pyarrow aborts the process where it is asked for columns of some damaged files.

    Raises
    ------
    ValueError
        The metadata or the header of a page cannot be read, or text is stored as differences, which any number of
        bytes may come of; or there are very many pages.
    """
    try:
        return _unpacked_size(data)
    except (IndexError, AttributeError, TypeError) as error:  # it ends early, or has other types than it should
        raise ValueError(f"its metadata is damaged ({error})") from error


def _unpacked_size(data: bytes | memoryview) -> int:
    length = int.from_bytes(data[-8:-4], "little")
    if length > _MAX_METADATA_BYTES:
        raise ValueError(f"it has {length} bytes of metadata, and at most {_MAX_METADATA_BYTES} are read")
    metadata, _ = _struct(data, max(len(data) - 8 - length, 0))
    total, room = 0, _FEW_PAGES + len(data) // _BYTES_PER_PAGE
    for group in metadata.get(_ROW_GROUPS, []):
        for chunk in group.get(_COLUMNS, []):
            column = chunk.get(_COLUMN_METADATA, {})
            name = bytes(column.get(_PATH, [b""])[0]).decode()  # for messages: pyarrow goes by the order of columns
            at, dictionary = column.get(_FIRST_DATA, 0), column.get(_DICTIONARY, 0)
            if 0 < dictionary < at:
                at = dictionary
            end = min(at + column.get(_CHUNK_SIZE, 0), len(data))
            while 0 < at < end:
                header, at = _struct(data, at)
                for kind, encoding in _ENCODING.items():
                    if header.get(kind, {}).get(encoding) == _DELTA_BYTE_ARRAY:
                        raise ValueError(f"the column '{name}' holds differences of text")
                sizes = header.get(_UNPACKED, -1), header.get(_STORED, -1)
                if min(sizes) < 0:
                    raise ValueError(f"a page of the column '{name}' has the sizes {sizes}")
                total += sizes[0]
                at += sizes[1]
                room -= 1
                if not room:
                    raise ValueError(f"it has {len(data)} bytes and more pages than are read of so many")
    return total


def _struct(data: bytes | memoryview, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct by number, and where it ends."""
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
    """Return a value of a type, and where it ends."""
    if depth > _MAX_DEPTH:
        raise ValueError("its metadata has structs in each other that parquet does not have")
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
