"""Labels that files have in common, and files whose labels alternate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from virtualstack.planning.labels import Labels, in_a_row

_MAX_PAIRS = 1 << 19
"""Largest number of pairs of parts that are counted, each once for every value that both have."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Values that parts have in common."""

    counts: dict[tuple[int, int], int]
    has_all: bool


def label_codes(parts: Sequence[Labels], /) -> list[NDArray[np.intp]]:
    """Return one number for each label of files, the same for equal labels and in their order."""
    codes, _ = pd.factorize(in_a_row(parts), sort=True)
    return np.split(codes, np.cumsum([len(x) for x in parts])[:-1])


def count_shared(parts: Sequence[NDArray[Any]], /, most: int = _MAX_PAIRS) -> Shared:
    """Count the values that parts have in common.

    >>> count_shared([np.array([1, 2, 3]), np.array([3, 4, 4]), np.array([1, 3])]).counts
    {(1, 1): 1, (0, 1): 1, (0, 2): 2, (1, 2): 1}
    """
    if not parts:
        return Shared({}, True)
    owner = np.repeat(np.arange(len(parts)), [len(x) for x in parts])
    table = pd.DataFrame({"value": np.concatenate(parts), "part": owner})
    is_again = table.duplicated()
    counts: dict[Any, int] = {(i, i): n for i, n in table["part"][is_again].value_counts().items()}
    table = table[~is_again]
    table = table[table.duplicated("value", keep=False)].sort_values(["value", "part"])
    n_parts = table["value"].value_counts()
    has_all = int((n_parts * (n_parts - 1) // 2).sum()) <= most
    if has_all:
        pairs = table.merge(table, on="value")
        pairs = pairs[pairs["part_x"] < pairs["part_y"]]
        counts |= pairs.groupby(["part_x", "part_y"]).size().to_dict()
    else:
        own = {i: x.to_numpy() for i, x in table.groupby("part")["value"]}
        counts |= {(i, j): _count_common(own[i], own[j]) for i, j in _nearest(table)}
    return Shared(counts, has_all)


def _nearest(table: pd.DataFrame) -> set[tuple[int, int]]:
    """Return pairs of each part with the nearest earlier and the nearest later part that has one of its values."""
    pairs = table.assign(before=table.groupby("value")["part"].shift()).dropna().astype({"before": np.intp})
    earlier: dict[Any, Any] = pairs.groupby("part")["before"].max().to_dict()
    later: dict[Any, Any] = pairs.groupby("before")["part"].min().to_dict()
    return {(i, j) for j, i in earlier.items()} | {*later.items()}


def _count_common(a: NDArray[Any], b: NDArray[Any]) -> int:
    """Count the values that two rising arrays have in common, in the time of the shorter one."""
    few, many = (a, b) if len(a) < len(b) else (b, a)
    at = np.minimum(np.searchsorted(many, few), len(many) - 1)
    return int(np.count_nonzero(many[at] == few))


def find_interleaved(parts: Sequence[NDArray[Any]], /) -> list[tuple[int, int]]:
    """Return pairs of parts that overlap in range and share no value.

    Parts are in the order of their least numbers. A part that begins before an earlier part has ended is paired with
    the earlier part that ends last.

    >>> find_interleaved([np.array([0, 9]), np.array([1, 2]), np.array([4, 12]), np.array([13])])
    [(0, 1), (0, 2)]
    """
    spans = sorted((part.min(), i, part.max()) for i, part in enumerate(parts))
    found: list[tuple[int, int]] = []
    latest: tuple[Any, int] | None = None  # the greatest end so far, and the number of its part
    risen: tuple[int, NDArray[Any]] = -1, np.zeros(0)  # number and sorted values of that part
    for begin, i, end in spans:
        if latest is not None and begin < latest[0]:
            if risen[0] != latest[1]:
                risen = latest[1], np.sort(parts[latest[1]])
            if not _count_common(np.sort(parts[i]), risen[1]):
                found.append((latest[1], i))
        if latest is None or end > latest[0]:
            latest = end, i
    return found
