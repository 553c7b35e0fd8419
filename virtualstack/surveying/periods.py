"""Runs of files that are alike, and single ones that are unlike their neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtualstack.surveying.facts import UNKNOWN

__all__ = ["Periods", "find_periods"]

_MAX_OUTLIERS = 2
"""Files that make no era between two parts of another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Periods:
    """How files in an order follow each other.

    Parameters
    ----------
    era
        Shape ``(files,)``: number of the era that each lies in, from 0 on.
    is_outlier
        Shape ``(files,)``: unlike the others of its era.
    varies
        Shape ``(columns,)``: changes so often that it makes no era.
    n_changes
        Shape ``(columns,)``: how often neighbours differ.
    codes
        Shape ``(files, columns)``: numbers of values; where a file says nothing, those of the file before it.
    typical
        Shape ``(eras, columns)``: what most files of an era have.
    """

    era: NDArray[np.intp]
    is_outlier: NDArray[np.bool_]
    varies: NDArray[np.bool_]
    n_changes: NDArray[np.intp]
    codes: NDArray[np.int32]
    typical: NDArray[np.int32]


def find_periods(codes: NDArray[np.int32], is_structure: NDArray[np.bool_], /) -> Periods:
    """Cut files into eras.

    Parameters
    ----------
    codes
        Shape ``(files, columns)``, files in their order; at least one file.
    is_structure
        Shape ``(columns,)``: which columns make eras.
    """
    codes = _filled(codes)
    n = len(codes)
    n_changes = np.count_nonzero(codes[1:] != codes[:-1], axis=0)
    varies = n_changes > max(8, n // 5)
    used = codes[:, is_structure & ~varies]
    kinds: dict[bytes, int] = {}  # of whole rows: there may be 10^4 columns and more
    kind = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in used], np.intp)
    smooth = _without_outliers(kind)
    era = np.concatenate([[0], np.cumsum(smooth[1:] != smooth[:-1])])
    typical = np.stack([_most_frequent(codes[(era == i) & (kind == smooth)]) for i in range(int(era[-1]) + 1)])
    return Periods(era, kind != smooth, varies, n_changes, codes, typical)


def _filled(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Let files that say nothing say what the one before them says, or at the beginning the first one after."""
    for turn in (1, -1):
        rows = np.where(codes[::turn] != UNKNOWN, np.arange(len(codes))[:, None], -1)
        last = np.maximum.accumulate(rows, axis=0)
        codes = np.take_along_axis(codes[::turn], np.maximum(last, 0), axis=0)[::turn]
    return codes


def _without_outliers(kind: NDArray[np.intp]) -> NDArray[np.intp]:
    """Give one or two files that stand between at least as many of another kind, on both sides, that kind."""
    smooth = kind.tolist()
    n, i, n_before = len(smooth), 1, 1
    while i < n:
        around = smooth[i - 1]
        if smooth[i] == around:
            i, n_before = i + 1, n_before + 1
            continue
        for width in range(1, _MAX_OUTLIERS + 1):
            after = smooth[i + width : i + 2 * width]
            if n_before >= width and after == [around] * width:
                smooth[i : i + width] = [around] * width
                i, n_before = i + width, n_before + width
                break
        else:
            i, n_before = i + 1, 1
    return np.array(smooth, np.intp)


def _most_frequent(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.array([np.bincount(column - UNKNOWN).argmax() + UNKNOWN for column in codes.T], np.int32)
