"""What files are about, and the dimension along which they follow each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from virtualstack.manifests import ManifestArray, ManifestGroup

__all__ = ["common_dimension", "data_variables"]

_NOT_DATA = ("bounds", "climatology", "grid_mapping", "ancillary_variables", "cell_measures", "coordinates")
"""Attributes that name variables which are about others."""

_MIN_SHARE = 0.9
"""Of the files in which data variables have the commonest dimension, those that must have another one."""


def data_variables(group: ManifestGroup, /) -> dict[str, ManifestArray]:
    """Give the variables that a file is about, by path: no coordinates, bounds or the like."""
    found: dict[str, ManifestArray] = {}
    helpers = set(group.coordinates)
    for path, node in group.walk():
        for name, array in node.arrays.items():
            found[f"{path[1:]}/{name}" if path else name] = array
            texts = (array.attributes.get(key) for key in _NOT_DATA)
            helpers.update(word for text in texts if isinstance(text, str) for word in text.split())
    return {name: x for name, x in found.items() if name not in helpers and x.dimension_names != (name,)}


def common_dimension(groups: Sequence[ManifestGroup], /) -> str | None:
    """Find the dimension along which files follow each other; ``None`` where there is none.

    That is a dimension that data variables have in most files: one that is unlimited and whose coordinate has times,
    else one that is unlimited and has a coordinate, else one that has times, else one that is unlimited. Of several the
    one that most files have so, and then the one that comes first among the axes of their data variables. Where there
    is none, it is a time that most files have one of, as a scalar coordinate; of several the one named ``time``.
    """
    files: Counter[str] = Counter()
    in_data: Counter[str] = Counter()
    kinds: list[Counter[str]] = [Counter() for _ in range(4)]
    axes: dict[str, int] = {}
    for group in groups:
        coordinates = {name for name, x in group.arrays.items() if x.dimension_names == (name,)}
        times = {name for name in coordinates if _is_time(group.arrays[name])}
        unlimited = {name for _, node in group.walk() for name in node.unlimited}
        own: dict[str, int] = {}
        for array in data_variables(group).values():
            for axis, name in enumerate(array.dimension_names or ()):
                own[name] = min(axis, own.get(name, axis))
        files.update(times | unlimited)
        in_data.update((times | unlimited) & own.keys())
        for kind, names in zip(kinds, (unlimited & times, unlimited & coordinates, times, unlimited), strict=True):
            kind.update(names)
        for name, axis in own.items():
            axes[name] = max(axis, axes.get(name, 0))
    counts = in_data or files
    most = _MIN_SHARE * max(counts.values(), default=0)
    common = sorted((name for name, n in counts.items() if n >= most), key=lambda name: (axes.get(name, 0), name))
    for kind in kinds:
        if usual := [name for name in common if 2 * kind[name] >= files[name]]:
            return max(usual, key=kind.__getitem__)
    return _common_scalar(groups)


def _common_scalar(groups: Sequence[ManifestGroup]) -> str | None:
    files: Counter[str] = Counter()
    for group in groups:
        about = data_variables(group).keys()
        files.update(name for name, x in group.arrays.items() if not x.shape and name not in about and _is_time(x))
    usual = [name for name, n in files.items() if n >= _MIN_SHARE * len(groups)]
    return min(usual, key=lambda name: (name != "time", name), default=None)


def _is_time(array: ManifestArray) -> bool:
    return " since " in str(array.cf.get("units", ""))
