"""The dimension along which files follow each other, from what they declare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from virtualstack.planning.facts import FileFacts

_MIN_SHARE = 0.9
"""Smallest share of files that must have a dimension, relative to the files with the most common one."""


def main_dimension(files: Sequence[FileFacts], /) -> str | None:
    """Return the dimension along which files follow each other, or ``None`` if there is none.

    Candidates are dimensions that the data variables of most files have. The first of these kinds that has a candidate
    decides: an unlimited dimension with times, an unlimited one with a coordinate, any dimension with times, any
    unlimited one. If there are several candidates, the one that has this kind in most files is chosen. On a tie, it is
    the first one among the axes of data variables. Without a candidate, a scalar time coordinate that most files have
    is chosen. Among several of these, ``time`` is preferred.

    Examples
    --------
    >>> scene = FileFacts(axes={"y": 0, "x": 1}, coordinates=frozenset({"y", "x"}), scalar_times=frozenset({"t"}))
    >>> main_dimension([scene, scene])
    't'
    """
    declared: Counter[str] = Counter()
    in_data: Counter[str] = Counter()
    kinds: list[Counter[str]] = [Counter() for _ in range(4)]
    axes: dict[str, int] = {}
    for file in files:
        unlimited, times = file.unlimited, file.times
        declared.update(times | unlimited)
        in_data.update((times | unlimited) & file.axes.keys())
        for kind, names in zip(kinds, (unlimited & times, unlimited & file.coordinates, times, unlimited), strict=True):
            kind.update(names)
        for name, axis in file.axes.items():
            axes[name] = max(axis, axes.get(name, 0))
    counts = in_data or declared
    most = _MIN_SHARE * max(counts.values(), default=0)
    common = sorted((name for name, n in counts.items() if n >= most), key=lambda name: (axes.get(name, 0), name))
    for kind in kinds:
        if usual := [name for name in common if 2 * kind[name] >= declared[name]]:
            return max(usual, key=kind.__getitem__)
    scalars = Counter(name for file in files for name in file.scalar_times)
    usual = [name for name, n in scalars.items() if n >= _MIN_SHARE * len(files)]
    return min(usual, key=lambda name: (name != "time", name), default=None)
