"""Build a group from zarr metadata by key and chunks by array."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from virtualstack.errors import MalformedFileError, ManifestError, Remedy, UnsupportedFeatureError
from virtualstack.manifests import Manifest, ManifestArray, ManifestGroup, Refusal
from virtualstack.printable import counted
from virtualstack.zarr.metadata.array import ArrayMetadata, malformed, read_object
from virtualstack.zarr.metadata.attributes import with_dtypes
from virtualstack.zarr.metadata.version2 import is_nczarr, parse_zarr2
from virtualstack.zarr.metadata.version3 import check_group, parse_zarr3

type ReadChunks = Callable[[str, ArrayMetadata], tuple[Manifest, int]]
"""Function that returns the chunks of the array at a path, and the number of references outside its grid."""

MAX_GROUP_DEPTH = 100
"""Largest number of groups in each other, as in a vstack: links may lead into themselves, and names are made up."""

_NAMELESS = "data"
"""Name of the variable of an array without a group around it."""


@dataclass(slots=True)
class _UnfinishedGroup:
    """A group under construction."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    arrays: dict[str, ManifestArray] = field(default_factory=dict)
    groups: dict[str, _UnfinishedGroup] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    def at(self, path: str) -> _UnfinishedGroup:
        node = self
        for part in filter(None, path.split("/")):
            node = node.groups.setdefault(part, _UnfinishedGroup())
        return node


def array_paths(metadata: Mapping[str, Any], /) -> list[str]:
    """Return the paths of the arrays that zarr metadata of either version describes; the root is ``""``."""
    paths = {_parent(key) for key in metadata if _leaf(key) == ".zarray"}
    paths |= {_parent(key) for key, value in metadata.items() if _leaf(key) == "zarr.json" and _kind(value) == "array"}
    return sorted(paths)


def _parent(key: str) -> str:
    return key.rpartition("/")[0]


def _leaf(key: str) -> str:
    return key.rpartition("/")[2]


def _kind(value: object) -> object:
    return value.get("node_type") if isinstance(value, Mapping) else None


def build_group(
    metadata: Mapping[str, Any],
    read: ReadChunks,
    /,
    *,
    where: str,
    url: str | None = None,
    wanted: Callable[[str], bool] = lambda path: True,
    masks_fill_value: bool = True,
    refusals: Iterable[Refusal] = (),
    rectilinear: bool = False,
    sharded: bool = False,
) -> ManifestGroup:
    """Build the group that zarr metadata describes.

    An array with an unsupported feature becomes a refusal of its group.
    """
    root = _UnfinishedGroup(refusals=list(refusals))
    for key in metadata:
        if key.count("/") > MAX_GROUP_DEPTH:
            raise MalformedFileError(
                f"'{key[:100]}...' of '{where}' is nested in more than {MAX_GROUP_DEPTH} groups. Write the "
                "references with fewer levels"
            )
        if _leaf(key) == "zarr.json" and _kind(metadata[key]) not in ("array", "group"):
            raise malformed(f"{key}' of '{where}", "node_type", _kind(metadata[key]), "'array' or 'group'")
    arrays = dict.fromkeys(array_paths(metadata))
    for key in sorted(metadata):
        path = _parent(key)
        if path not in arrays and _leaf(key) in (".zgroup", ".zattrs", "zarr.json"):
            if _leaf(key) == "zarr.json":
                check_group(read_object(metadata[key], "metadata", f"{key}' of '{where}"), f"{key}' of '{where}")
            attributes = metadata[key] if _leaf(key) == ".zattrs" else _group_attributes(metadata[key])
            node = root.at(path)
            given = read_object(attributes, "attributes", f"{key}' of '{where}")
            node.attributes = {**node.attributes, **{x: value for x, value in given.items() if not is_nczarr(x)}}
            if _leaf(key) != ".zattrs" and isinstance(metadata[key], Mapping):  # they come after it
                node.attributes = with_dtypes(node.attributes, metadata[key])
    for path in filter(wanted, arrays):
        node, name = root.at(_parent(path)), _leaf(path) or _NAMELESS
        at = f"{path}' of '{where}"
        try:
            if not path and len(arrays) > 1:
                raise UnsupportedFeatureError(
                    f"'{where}' is an array that contains other arrays, which zarr does not have",
                    Remedy("write it again"),
                    feature="array at the root",
                )
            described = _describe(path, metadata, at, masks_fill_value, rectilinear, sharded)
            manifest, n_outside = read(path, described)
        except UnsupportedFeatureError as error:
            node.refusals.append(Refusal(path=f"/{path}", reason=str(error)))
            continue
        node.arrays[name] = described.array(manifest, path=path or _NAMELESS)
        if n_outside:
            reason = f"{counted(n_outside, 'reference')} outside of its grid of {manifest.shape} chunks"
            node.refusals.append(Refusal(path=f"/{path}", reason=reason, kind="noted"))
    try:
        return _finish(root, url)
    except ManifestError as error:
        raise MalformedFileError(f"'{where}' contradicts itself: {error}", Remedy("write it again"), url=url) from error


def _describe(
    path: str, metadata: Mapping[str, Any], at: str, masks_fill_value: bool, rectilinear: bool, sharded: bool
) -> ArrayMetadata:
    prefix = f"{path}/" if path else ""
    if f"{prefix}.zarray" in metadata:
        zarray, zattrs = metadata[f"{prefix}.zarray"], metadata.get(f"{prefix}.zattrs", {})
        return parse_zarr2(
            read_object(zarray, "metadata", at),
            read_object(zattrs, "attributes", at),
            where=at,
            masks_fill_value=masks_fill_value,
        )
    return parse_zarr3(
        read_object(metadata[f"{prefix}zarr.json"], "metadata", at), where=at, rectilinear=rectilinear, sharded=sharded
    )


def _group_attributes(value: object) -> object:
    return value.get("attributes", {}) if isinstance(value, Mapping) else value


def _finish(node: _UnfinishedGroup, url: str | None) -> ManifestGroup:
    attributes = dict(node.attributes)
    names = str(attributes.get("coordinates", "")).split()
    if names and node.arrays.keys() >= set(names):
        # as in xarray: this attribute names coordinates, and is not an attribute of the source
        del attributes["coordinates"]
    for array in node.arrays.values():
        names += str(array.attributes.get("coordinates", "")).split()
    return ManifestGroup(
        arrays=node.arrays,
        groups={name: _finish(child, url) for name, child in node.groups.items()},
        attributes=attributes,
        coordinates=frozenset(names) & node.arrays.keys(),
        refusals=tuple(node.refusals),
        url=url,
    )
