"""Facts that a scanned group declares, before any value is read."""

from __future__ import annotations

from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.planning.facts import FileFacts

_NOT_DATA = ("bounds", "climatology", "grid_mapping", "ancillary_variables", "cell_measures", "coordinates")
"""Attributes that name variables which describe other variables."""


def data_variables(group: ManifestGroup, /) -> dict[str, ManifestArray]:
    """Return the data variables of a file by path, without coordinates, bounds and similar variables."""
    found: dict[str, ManifestArray] = {}
    helpers = set(group.coordinates)
    for path, node in group.walk():
        for name, array in node.arrays.items():
            found[f"{path[1:]}/{name}" if path else name] = array
            texts = (array.attributes.get(key) for key in _NOT_DATA)
            helpers.update(word for text in texts if isinstance(text, str) for word in text.split())
    return {name: x for name, x in found.items() if name not in helpers and x.dimension_names != (name,)}


def declared_facts(group: ManifestGroup, /) -> FileFacts:
    """Return the facts of a file that decide its main dimension, of those that its metadata declare."""
    data = data_variables(group)
    axes: dict[str, int] = {}
    for array in data.values():
        for axis, name in enumerate(array.dimension_names or ()):
            axes[name] = min(axis, axes.get(name, axis))
    coordinates = frozenset(name for name, x in group.arrays.items() if x.dimension_names == (name,))
    sizes = dict(group.dimensions)
    for array in group.arrays.values():
        sizes.update(zip(array.dimension_names or (), array.shape, strict=True))
    return FileFacts(
        source=group.url,
        axes=axes,
        sizes=sizes,
        coordinates=coordinates,
        times=frozenset(name for name in coordinates if _is_time(group.arrays[name])),
        scalar_times=frozenset(
            name for name, x in group.arrays.items() if not x.shape and name not in data and _is_time(x)
        ),
        unlimited=frozenset(name for _, node in group.walk() for name in node.unlimited),
    )


def _is_time(array: ManifestArray) -> bool:
    return " since " in str(array.cf.get("units", ""))
