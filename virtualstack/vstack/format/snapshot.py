"""Encode and decode a snapshot: all metadata of one state of a store, and references to its tables."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from virtualstack.errors import MalformedFileError, ManifestError, Remedy, UnsupportedFeatureError, WriterError
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.manifests.serialised.headers import (
    ArrayHeader,
    from_array_header,
    from_group_header,
    to_array_header,
    to_group,
    to_text,
)
from virtualstack.manifests.serialised.values import Heap, UnstorableError, to_count, to_mapping
from virtualstack.printable import counted
from virtualstack.vstack.format.counts import Counts
from virtualstack.vstack.format.documents import Table, dump, load
from virtualstack.vstack.format.ledger import LedgerPage, check_page
from virtualstack.vstack.format.names import FORMAT, format_time

_RAISED = ManifestError, KeyError, ValueError, TypeError, OverflowError, RecursionError  # by forged JSON
_MAX_DEPTH = 100
"""Maximum number of parts of the path of a group or array."""

_MAX_NODES = 100_000
_MAX_AXES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayNode:
    """An array of a snapshot."""

    header: ArrayHeader
    placements: Table = field(default_factory=Table)
    bundled: tuple[int, int] | None = None
    generation: int = 0
    merged: tuple[int, int] = (0, 0)
    counts: Counts | None = None

    @property
    def n_placed(self) -> int:
        """Number of placements that were ever made, including merged ones."""
        return self.placements.n - self.merged[1] + self.merged[0]


class Bundle(NamedTuple):
    """The object that holds loaded variables: its name, number of bytes, and their CRC-32."""

    name: str
    size: int
    crc32: int

    @classmethod
    def from_bytes(cls, name: str, data: bytes, /) -> Bundle:
        """Describe an object by its bytes."""
        return cls(name, len(data), zlib.crc32(data))


class Layout(NamedTuple):
    """A declaration that an array has the values of another one, in other chunks; writers fill both together."""

    of: str
    chunks: tuple[int, ...]


LAYOUT_OF = "virtualstack_layout_of"
"""Attribute by which readers show that an array is a layout: the name of the other array, which is in its group."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Snapshot:
    """One state of a store.

    Parameters
    ----------
    number
        Number of the snapshot; numbers count from 0, without gaps.
    time
        Time of the commit, in seconds since 1970.
    message
        Message of the writer.
    changes
        Differences from the snapshot before, a few words each.
    groups
        Groups by path (``""`` is the root), without arrays and child groups.
    arrays
        Arrays by path.
    segments
        Table of segments; placements refer to its rows by number.
    prefixes, moved
        The same as ``table`` and ``moved`` of :class:`~virtualstack.vstack.format.sources.Prefixes`.
    bundle
        Object of loaded variables.
    recipe
        What the store is made of, as TOML; see :class:`~virtualstack.vstack.recipe.Recipe`.
    ledger
        Pages of the ledger: what became of each file that the recipe names.
    layouts
        Arrays that are layouts of other arrays, by path.
    """

    number: int
    time: float
    message: str | None = None
    changes: tuple[str, ...] = ()
    groups: Mapping[str, ManifestGroup] = field(default_factory=lambda: {"": ManifestGroup()})
    arrays: Mapping[str, ArrayNode] = field(default_factory=dict)
    segments: Table = field(default_factory=Table)
    prefixes: tuple[str, ...] = ()
    moved: tuple[tuple[str, str, int], ...] = ()
    bundle: Bundle | None = None
    recipe: str | None = None
    ledger: tuple[LedgerPage, ...] = ()
    layouts: Mapping[str, Layout] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<snapshot {self.number} of {format_time(self.time)}: {counted(len(self.arrays), 'variable')}>"

    def encode(self) -> bytes:
        """Return the bytes of the object."""
        heap = Heap()
        document: dict[str, Any] = {
            "vstack_format": FORMAT,
            "number": self.number,
            "time": self.time,
            "message": self.message,
            "changes": self.changes,
            "groups": {path: _stored(path, from_group_header, group, heap) for path, group in self.groups.items()},
            "arrays": {path: _array_document(path, node, heap) for path, node in self.arrays.items()},
            "segments": self.segments.document(),
            "prefixes": self.prefixes,
            "relocations": [{"old": old, "new": new, "n_prefixes": n} for old, new, n in self.moved],
            "bundle": None if self.bundle is None else self.bundle._asdict(),
        }
        if self.recipe is not None:
            document |= {"recipe": self.recipe, "ledger": [list(page) for page in self.ledger]}
        if self.layouts:
            document["layouts"] = {path: layout._asdict() for path, layout in self.layouts.items()}
        document["heap"] = base64.b64encode(b"".join(heap.parts)).decode()
        return dump(document)

    @classmethod
    def decode(cls, data: bytes, /, *, number: int, url: str) -> Snapshot:
        """Read a snapshot from the bytes of its object."""
        document = read_document(data, number=number, url=url)
        try:
            return _snapshot(document, number, url)
        except _RAISED as error:
            if isinstance(error, MalformedFileError):
                raise
            raise MalformedFileError(
                f"'{url}' is not a snapshot of a vstack: {error!r}", Remedy("restore it, or open another one"), url=url
            ) from error


def read_document(data: bytes, /, *, number: int, url: str) -> dict[str, Any]:
    """Read the JSON of a snapshot; only its version and number are checked."""
    document = load(data, url=url)
    if document.get("vstack_format") != FORMAT:
        raise UnsupportedFeatureError(
            f"'{url}' is of version {document.get('vstack_format')!r} of the format; this virtualstack reads version "
            f"{FORMAT}",
            Remedy("update virtualstack"),
            url=url,
            feature="format version",
        )
    if document.get("number") != number:
        raise MalformedFileError(
            f"'{url}' has number {document.get('number')!r}, but should have {number}",
            Remedy("restore it, or open another one"),
            url=url,
        )
    return document


class Uses(NamedTuple):
    """The objects that a snapshot needs: the objects of its tables, the bundle, and the pages of the ledger."""

    segments: Table
    placements: tuple[Table, ...]
    bundle: str | None
    ledger: tuple[str, ...] = ()


def decode_uses(document: Mapping[str, Any], /, *, url: str) -> Uses:
    """Return the objects that a snapshot uses; the rest of it is not decoded."""
    try:
        bundle = document["bundle"]
        return Uses(
            segments=Table.from_json(document["segments"], where=url),
            placements=tuple(
                Table.from_json(node["placements"], ndim=len(node["shape"]), where=url)
                for node in to_mapping(document["arrays"]).values()
            ),
            bundle=None if bundle is None else to_text(bundle["name"]),
            ledger=tuple(check_page(page).name for page in document.get("ledger", ())),
        )
    except (ManifestError, KeyError, TypeError, ValueError) as error:
        raise MalformedFileError(
            f"'{url}' is not a snapshot of a vstack: {error!r}", Remedy("restore it"), url=url
        ) from error


def _stored(path: str, write: Any, what: Any, heap: Heap) -> dict[str, Any]:
    try:
        document: dict[str, Any] = write(what, heap)
    except UnstorableError as error:
        raise WriterError(
            f"'{path or '/'}' has an attribute or dtype that a vstack cannot store: {error}. Remove it, or convert "
            "it to text or numbers",
            variable=path,
            feature=str(error),
        ) from error
    return document


def _array_document(path: str, node: ArrayNode, heap: Heap) -> dict[str, Any]:
    return {
        **_stored(path, from_array_header, node.header, heap),
        "placements": node.placements.document(),
        "bundled": node.bundled,
        "generation": node.generation,
        "merged": {"from": node.merged[0], "into": node.merged[1]},
        **({} if node.counts is None else {"counts": list(node.counts)}),
    }


def _snapshot(document: Mapping[str, Any], number: int, url: str) -> Snapshot:
    heap = memoryview(base64.b64decode(document["heap"], validate=True))
    groups, arrays = to_mapping(document["groups"]), to_mapping(document["arrays"])
    if len(groups) + len(arrays) > _MAX_NODES:
        raise ManifestError(f"it has {len(groups) + len(arrays)} groups and arrays; at most {_MAX_NODES} are read")
    bundle = document["bundle"]
    return Snapshot(
        number=number,
        time=_time(document["time"]),
        message=None if document["message"] is None else to_text(document["message"]),
        changes=tuple(map(to_text, document["changes"])),
        groups={_path(path): to_group(x, heap, arrays={}, groups={}) for path, x in groups.items()},
        arrays={_path(path): _array_node(path, x, heap, url) for path, x in arrays.items()},
        segments=Table.from_json(document["segments"], where=url),
        prefixes=tuple(map(to_text, document["prefixes"])),
        moved=tuple((to_text(x["old"]), to_text(x["new"]), to_count(x["n_prefixes"])) for x in document["relocations"]),
        bundle=None if bundle is None else _bundle(bundle),
        recipe=None if document.get("recipe") is None else to_text(document["recipe"]),
        ledger=tuple(map(check_page, document.get("ledger", ()))),
        layouts={path: _layout(path, x, arrays) for path, x in to_mapping(document.get("layouts", {})).items()},
    )


def _layout(path: str, document: Mapping[str, Any], arrays: Mapping[str, Any]) -> Layout:
    layout = Layout(to_text(document["of"]), tuple(map(to_count, document["chunks"])))
    is_near = path.rpartition("/")[0] == layout.of.rpartition("/")[0] and path != layout.of
    if not is_near or not {path, layout.of} <= arrays.keys():
        raise ManifestError(f"array {path[:200]!r} is declared as a layout of {layout.of[:200]!r}, which it cannot be")
    return layout


def check_names(group: ManifestGroup, /) -> None:
    """Check that the names in a group, and below it, can be parts of paths."""
    for path, node in group.walk():
        if path.count("/") >= _MAX_DEPTH and (node.arrays or node.groups):
            raise WriterError(
                f"groups are nested more than {_MAX_DEPTH} deep at '{path[:100]}...', which a vstack cannot store. "
                "Write this group to a store of its own",
                variable=path,
            )
        for name in (*node.arrays, *node.groups):
            if name in ("", ".", "..") or "/" in name:
                raise WriterError(
                    f"{name!r} in '{path or '/'}' cannot be the name of a variable or group in a vstack",
                    Remedy("rename it"),
                    variable=name,
                )


def _path(path: str) -> str:
    if path.count("/") > _MAX_DEPTH:
        raise ManifestError(f"the path {path[:100]!r}... has more than {_MAX_DEPTH} parts")
    if path and (not path.startswith("/") or any(part in ("", ".", "..") for part in path[1:].split("/"))):
        raise ManifestError(f"{path[:200]!r} is not a path of a group or array")
    return path


def _array_node(path: str, document: Mapping[str, Any], heap: memoryview, url: str) -> ArrayNode:
    header = to_array_header(document, heap, name=path.rpartition("/")[2])
    ndim = len(header.grid.axes)
    _check(path, header)
    bundled = document["bundled"]
    merged, left = (to_count(document["merged"][key]) for key in ("from", "into"))
    placements = Table.from_json(document["placements"], ndim=ndim, where=url)
    if left > placements.n:
        raise ManifestError(
            f"array '{path}' has {counted(placements.n, 'placement')}, fewer than the {left} that were merged "
            f"from {merged}"
        )
    return ArrayNode(
        header=header,
        placements=placements,
        bundled=None if bundled is None else _range(bundled),
        generation=to_count(document["generation"]),
        merged=(merged, left),
        counts=Counts.from_json(document.get("counts"), header.grid.shape),
    )


def _time(data: Any) -> float:
    if type(data) not in (int, float):
        raise ManifestError(f"{data!r} is not a time")
    return float(data)


def _bundle(data: Mapping[str, Any]) -> Bundle:
    return Bundle(to_text(data["name"]), to_count(data["size"]), to_count(data["crc32"]))


def _range(data: Any) -> tuple[int, int]:
    offset, length = map(to_count, data)
    return offset, length


def _check(path: str, header: ArrayHeader) -> None:
    """Check sizes that entries are checked against later, before integers beyond 64 bits reach numpy."""
    axes = header.grid.axes
    if len(axes) > _MAX_AXES or not header.fills:
        raise ManifestError(
            f"array '{path}' has {len(axes)} axes and {counted(len(header.fills), 'fill value')}; expected at "
            f"most {_MAX_AXES} axes, and a fill value"
        )
    for encoding in header.encodings:
        if not np.can_cast(encoding.dtype, header.dtype, "equiv"):
            raise ManifestError(
                f"array '{path}' of dtype '{header.dtype}' has an encoding of dtype '{encoding.dtype}'; they may "
                "differ only in byte order and padding"
            )
        if len(encoding.strides) != len(axes):
            raise ManifestError(
                f"array '{path}' of {len(axes)} axes has an encoding with {len(encoding.strides)} strides"
            )
        reach = sum(abs(step) * axis.longest for step, axis in zip(encoding.strides, axes, strict=True))
        sizes = [n * encoding.dtype.itemsize for n in (math.prod(encoding.shape), *encoding.shape)]
        if max(reach, *sizes) >= 1 << 62:
            raise ManifestError(
                f"array '{path}' has an encoding of 2^62 bytes or more: shape {encoding.shape}, strides "
                f"{encoding.strides}"
            )


def group_tree(snapshot: Snapshot, arrays: Mapping[str, ManifestArray], url: str, /) -> ManifestGroup:
    """Build the tree of the groups of a snapshot and of its arrays, by path."""
    members: dict[str, dict[str, ManifestArray]] = {path: {} for path in snapshot.groups}
    children: dict[str, dict[str, str]] = {path: {} for path in snapshot.groups}
    try:
        for path, array in arrays.items():
            folder, _, name = path.rpartition("/")
            members[folder][name] = array
        for path in snapshot.groups:
            if path:
                folder, _, name = path.rpartition("/")
                children[folder][name] = path
        return _subtree("", snapshot.groups, members, children, url)
    except (KeyError, ManifestError) as error:
        raise MalformedFileError(
            f"'{url}' has groups that do not form a tree: {error}", Remedy("restore it"), url=url
        ) from error


def _subtree(
    path: str,
    groups: Mapping[str, ManifestGroup],
    members: Mapping[str, Mapping[str, ManifestArray]],
    children: Mapping[str, Mapping[str, str]],
    url: str,
) -> ManifestGroup:
    below = {name: _subtree(child, groups, members, children, url) for name, child in children[path].items()}
    return replace(groups[path], arrays=members[path], groups=below, url=url)
