"""Rows of tables that are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["distinct_rows"]


def distinct_rows(columns: Sequence[NDArray[Any]] | NDArray[Any], /) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first of the rows that are equal, and the number of each row among these, in the order of the values.

    ``numpy.unique(axis=...)`` makes one structured value of each row. numpy calls Python code for such values, loses
    what Ctrl-C raises there, and goes on or raises another error; it also takes longer for many rows of few columns.

    Parameters
    ----------
    columns
        Columns of one length, without NaN, or the rows of an array. The first one decides the order.

    Returns
    -------
    tuple
        Position of the first row of each value, of shape ``(values,)``, and number of the value of each row, of shape
        ``(rows,)``.

    >>> first, number = distinct_rows([np.array([2, 1, 2, 1]), np.array([0, 5, 0, 4])])
    >>> first.tolist(), number.tolist()
    ([3, 1, 0], [2, 1, 2, 0])
    """
    order = np.lexsort(tuple(reversed(columns))) if len(columns) else np.arange(np.shape(columns)[-1])  # stable
    is_new = np.zeros(order.size, np.bool_)
    is_new[:1] = True
    for column in columns:
        ordered = column[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    number = np.empty(order.size, np.intp)
    number[order] = np.cumsum(is_new) - 1
    return order[is_new], number
