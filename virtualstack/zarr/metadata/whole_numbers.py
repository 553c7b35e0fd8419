"""Columns of numbers out of texts such as ``"1.20.3"``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["whole_numbers"]


def whole_numbers(
    texts: pa.Array, n_columns: int, /, *, delimiter: str, blanks: bool = False
) -> list[NDArray[np.int64]] | None:
    """Give the columns of texts that each hold ``n_columns`` numbers; ``None`` where one does not.

    A number is written as JSON has it: digits alone, without a zero in front, and below 2^63.

    Parameters
    ----------
    texts
        Large strings, none of them null.
    n_columns
        At least 1.
    delimiter
        Between numbers.
    blanks
        Whether blanks may stand around numbers.

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
    """Say whether texts that are numbers, to Arrow, are so without a sign, ``0x`` or a zero in front."""
    starts = np.frombuffer(numbers.buffers()[1], np.int64)[numbers.offset :][: len(numbers) + 1]
    text = np.frombuffer(numbers.buffers()[2], np.uint8)
    has_zero = (text[starts[:-1]] == ord("0")) & (np.diff(starts) > 1)
    used = text[starts[0] : starts[-1]]
    return bool(used.min() >= ord("0") and used.max() <= ord("9") and not has_zero.any())
