"""Translate chunk keys of zarr, such as ``"v/0.12"``, to cells of a grid."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError
from virtualstack.zarr.metadata.array import ArrayMetadata


def whole_numbers(
    texts: pa.Array, n_columns: int, /, *, delimiter: str, blanks: bool = False
) -> list[NDArray[np.int64]] | None:
    """Return the columns of texts that each hold ``n_columns`` numbers; ``None`` if a text does not.

    A number is written as in JSON: only digits, without a leading zero, and below 2^63.

    Examples
    --------
    >>> whole_numbers(pa.array(["1.20", "3.0"], pa.large_string()), 2, delimiter=".")
    [array([1, 3]), array([20,  0])]
    >>> whole_numbers(pa.array(["1.20", "3.00"], pa.large_string()), 2, delimiter=".")
    """
    if not len(texts):
        return [np.zeros(0, np.int64)] * n_columns
    parts = pc.split_pattern(texts, delimiter)
    if not pc.all(pc.equal(pc.list_value_length(parts), n_columns)).as_py():
        return None
    numbers = parts.flatten()
    if blanks:
        numbers = pc.ascii_trim(numbers, " ")
    try:
        columns = numbers.cast(pa.int64()).to_numpy().reshape(-1, n_columns).T
    except pa.ArrowInvalid:  # empty, no number, or 2^63 and more
        return None
    return list(columns) if _are_digits(numbers) else None


def _are_digits(numbers: pa.Array) -> bool:
    """Return whether texts that Arrow parses as numbers have no sign, no ``0x`` and no leading zero."""
    starts = np.frombuffer(numbers.buffers()[1], np.int64)[numbers.offset :][: len(numbers) + 1]
    text = np.frombuffer(numbers.buffers()[2], np.uint8)
    has_zero = (text[starts[:-1]] == ord("0")) & (np.diff(starts) > 1)
    used = text[starts[0] : starts[-1]]
    return bool(used.min() >= ord("0") and used.max() <= ord("9") and not has_zero.any())


_BLOCK_KEYS = 1 << 16  # keys that are processed together, so that their data stays in the processor's cache


def cells_of_keys(keys: pa.Array, path: str, metadata: ArrayMetadata, /, *, where: str) -> NDArray[np.int64]:
    """Return the cell that each chunk key names, counted in C order of the grid; -1 if it is outside."""
    start = f"{path}/{metadata.key_prefix}" if path else metadata.key_prefix
    if not metadata.shape:
        start = start.rstrip(metadata.separator) if metadata.key_prefix else f"{start}0"
    cells = [np.zeros(0, np.int64)]
    for at in range(0, len(keys), _BLOCK_KEYS):
        block = keys[at : at + _BLOCK_KEYS]
        index = _index(block, start, metadata)
        if index is None:
            key = _first_bad(block, start, metadata)
            raise MalformedFileError(
                f"'{key}' of '{where}' is not a chunk of an array of {len(metadata.shape)} axes: write the "
                f"references again"
            )
        cells.append(_ravel(index, metadata.object_grid))
    return np.concatenate(cells)


def _index(keys: pa.Array, start: str, metadata: ArrayMetadata) -> list[NDArray[np.int64]] | None:
    """Return the index of each key on each axis; ``None`` if a key has no index."""
    if not metadata.shape:
        return [np.zeros(len(keys), np.int64)] if pc.all(pc.equal(keys, start)).as_py() else None
    if not pc.all(pc.starts_with(keys, start)).as_py():
        return None
    names = pc.utf8_slice_codeunits(keys, len(start))
    return whole_numbers(names, len(metadata.shape), delimiter=metadata.separator)


def _ravel(index: list[NDArray[np.int64]], grid: tuple[int, ...]) -> NDArray[np.int64]:
    inside = np.all([numbers < n for numbers, n in zip(index, grid or (1,), strict=True)], axis=0)
    cells = np.full(inside.size, -1, np.int64)
    if inside.any():
        cells[inside] = np.ravel_multi_index([numbers[inside] for numbers in index], grid or (1,))
    return cells


def _first_bad(keys: pa.Array, start: str, metadata: ArrayMetadata) -> str:
    """Return the first key without an index by bisection."""
    first, last = 0, len(keys)
    while last - first > 1:
        middle = (first + last) // 2
        if _index(keys[first:middle], start, metadata) is None:
            last = middle
        else:
            first = middle
    return str(keys[first])
