"""Make one group of the fields of a swath, a grid or a zonal average of HDF-EOS5, which lie in groups of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from virtualstack.manifests import ManifestArray, ManifestGroup, Refusal

# ESDS-RFC-008 (HDF-EOS5 data model), 5
_COORDINATES = "Geolocation Fields"
_FIELDS = ("Data Fields", "Profile Fields", _COORDINATES)


def only_structure(root: ManifestGroup, /) -> str | None:
    """Return the path of the only group with fields of HDF-EOS5, if the root has no variables; else ``None``."""
    if root.arrays or "HDFEOS" not in root.groups:
        return None
    paths = [path for path, node in root.walk() if any(node.groups[name].arrays for name in _of(node))]
    return paths[0] if len(paths) == 1 else None


def groups_with_variables(node: ManifestGroup, /) -> list[str]:
    """Return the paths of the groups below a group that have variables."""
    return [path[1:] for path, group in node.walk() if group is not node and with_fields(group).arrays]


def with_fields(node: ManifestGroup, /) -> ManifestGroup:
    """Return a group with the arrays of its groups of fields; geolocation fields are coordinates.

    A field stays out, and is noted, if its name is taken or one of its dimensions has another length.
    """
    parts = [node.groups[name] for name in _of(node)]
    if not parts:
        return node
    arrays = dict(node.arrays)
    sizes = dict(_sizes(*arrays.values()))
    refusals = list(node.refusals)
    for part in parts:
        refusals += part.refusals
        for name, array in part.arrays.items():
            if name in arrays or any(sizes.get(dim, n) != n for dim, n in _sizes(array)):
                reason = "its name or one of its dimensions is taken by another field; open its group with group="
                refusals.append(Refusal(path=array.name or name, reason=reason, kind="noted"))
                continue
            arrays[name] = array
            sizes |= _sizes(array)
    located = node.groups[_COORDINATES].arrays.keys() if _COORDINATES in node.groups else ()
    return replace(
        node,
        arrays=arrays,
        groups={name: group for name, group in node.groups.items() if name not in _FIELDS},
        coordinates=node.coordinates | {name for name in located if name in arrays},
        unlimited=node.unlimited.union(*(part.unlimited for part in parts)),
        not_text=node.not_text.union(*(part.not_text for part in parts)),
        refusals=tuple(refusals),
    )


def _of(node: ManifestGroup) -> list[str]:
    return [name for name in _FIELDS if name in node.groups]


def _sizes(*arrays: ManifestArray) -> Iterator[tuple[str, int]]:
    for array in arrays:
        yield from zip(array.dimension_names or (), array.shape, strict=True)
