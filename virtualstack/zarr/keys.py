"""A group under the keys of one version of zarr: what a key names, and in which form its arrays are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virtualstack.errors import UnsupportedFeatureError
from virtualstack.manifests import ManifestArray, ManifestGroup, ManifestNode
from virtualstack.manifests.grid import parse_cell
from virtualstack.zarr.client import Client, ZarrFormat
from virtualstack.zarr.documents import group_document
from virtualstack.zarr.present import ZarrArray, present

_DOCUMENTS: Mapping[ZarrFormat, tuple[str, ...]] = {
    3: ("zarr.json",),
    2: (".zgroup", ".zattrs", ".zarray", ".zmetadata"),
    "cells": ("array.json",),
}
"""Names of metadata documents."""


class ZarrKeys:
    """A group under the keys that a client asks for.

    Parameters
    ----------
    group
        The group.
    client
        What the program that reads it can do.
    """

    def __init__(self, group: ManifestGroup, client: Client, /) -> None:
        self.group = group
        self.client = client
        self.document_names = _DOCUMENTS[client.zarr_format]
        self.arrays: dict[str, ZarrArray | str] = {}

    def array(self, path: str, array: ManifestArray, /) -> ZarrArray | str:
        """Return an array in the form in which the client has it, or the reason why it cannot have it."""
        found = self.arrays.get(path)
        if found is None:
            try:
                found = present(array, self.client, path=path)
            except UnsupportedFeatureError as error:
                found = str(error)
            self.arrays[path] = found
        return found

    def refused(self) -> dict[str, str]:
        """Return the paths of the variables that the client cannot have, each with the reason."""
        refused: dict[str, str] = {}
        for path, group in self.group.walk():
            refused |= {x.path.lstrip("/"): x.reason for x in group.refusals if x.kind == "refused"}
            for name, array in group.arrays.items():
                inner = f"{path}/{name}".lstrip("/")
                if isinstance(found := self.array(inner, array), str):
                    refused[inner] = found
        return refused

    def find(self, key: str, /) -> tuple[str, ManifestNode, list[str]]:
        """Split a key into the path of a node, the node, and the rest of the key.

        A metadata document is the rest of its key, also if a variable has its name.
        """
        node: ManifestNode = self.group
        parts = key.split("/") if key else []
        for depth, part in enumerate(parts):
            if depth == len(parts) - 1 and part in self.document_names:
                return "/".join(parts[:depth]), node, parts[depth:]
            if isinstance(node, ManifestGroup) and part in node.arrays:
                node = node.arrays[part]
            elif isinstance(node, ManifestGroup) and part in node.groups:
                node = node.groups[part]
            else:
                return "/".join(parts[:depth]), node, parts[depth:]
        return "/".join(parts), node, []

    def documents(self, path: str, node: ManifestNode, /) -> Mapping[str, Mapping[str, Any]]:
        """Return the metadata documents of a node by name, without those of its members; none if it is refused."""
        if isinstance(node, ManifestArray):
            found = self.array(path, node)
            return {} if isinstance(found, str) else found.documents
        if self.client.zarr_format == 3:
            return {"zarr.json": group_document(node)}
        if self.client.zarr_format == "cells":
            return {}
        return {".zgroup": {"zarr_format": 2}, ".zattrs": group_document(node)["attributes"]}

    def chunk_key(self, key: str, /) -> tuple[ZarrArray, tuple[int, ...]] | None:
        """Return the array and cell of a chunk key, or ``None`` if there is no such chunk in the grid."""
        path, node, rest = self.find(key)
        if not isinstance(node, ManifestArray) or not rest:
            return None
        if self.client.zarr_format == 3:
            cell = parse_cell(rest[1:]) if rest[0] == "c" else None
        else:
            cell = parse_cell(rest[0].split(".")) if len(rest) == 1 else None
            if node.ndim == 0 and cell == (0,):
                cell = ()
        if cell is None or len(cell) != node.ndim:
            return None
        array = self.array(path, node)
        if isinstance(array, str) or any(i >= n for i, n in zip(cell, array.grid_shape, strict=True)):
            return None
        return array, cell

    def names(self, path: str, /, *, most: int | None = None) -> list[str] | None:
        """Return the names in a folder; those of folders end in ``/``. ``None`` if there is no such folder.

        Chunks are listed in zarr 3, where they are folders of numbers, and at most ``most`` of them; also those that
        do not exist.
        """
        path, node, rest = self.find(path)
        if isinstance(node, ManifestGroup):
            if rest:
                return None
            inner = ((name, self.array(f"{path}/{name}".lstrip("/"), array)) for name, array in node.arrays.items())
            arrays = [name for name, array in inner if not isinstance(array, str)]
            own = [name for name in self.document_names if name not in (".zarray", "array.json")]
            return [*own, *(f"{name}/" for name in (*arrays, *node.groups))]
        array = self.array(path, node)
        if isinstance(array, str):
            return None
        if self.client.zarr_format != 3:
            return None if rest else list(array.documents)
        if not rest:
            return ["zarr.json", "c/" if node.ndim else "c"]
        cell = parse_cell(rest[1:])
        if rest[0] != "c" or cell is None or len(cell) >= node.ndim:
            return None
        if any(i >= n for i, n in zip(cell, array.grid_shape, strict=False)):
            return None
        slash = "" if len(cell) == node.ndim - 1 else "/"
        return [f"{i}{slash}" for i in range(array.grid_shape[len(cell)])[:most]]
