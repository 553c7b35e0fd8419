"""Facts about one version of a cube, for the page of the server and for reports: plain data of bounded size."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from virtualstack.drawing.facts import common_prefix
from virtualstack.errors import SourceNotFoundError, VirtualStackError, WriterError
from virtualstack.manifests import ManifestArray
from virtualstack.manifests.chunk_map import count_sources, map_chunks
from virtualstack.manifests.grid import ChunkAxis
from virtualstack.printable import printable
from virtualstack.serve.content import Content
from virtualstack.serve.cubes import Cube
from virtualstack.serve.http import hide_secrets, shown_url
from virtualstack.serve.verified import Verified
from virtualstack.surveying.cube import cube_timeline
from virtualstack.vstack.ledger import grouped
from virtualstack.vstack.verify import SOURCE_STATUSES
from virtualstack.zarr.metadata.attributes import json_attributes

ASSETS = Path(__file__).with_name("assets")
"""Folder of the built page that shows the facts. Its sources are in the folder ``page`` of the repository."""

_MAX_PAGE_BYTES = 400_000
"""Size of a page of a list from which on no item is added."""

_MAX_ATTRIBUTE_CHARACTERS = 1000
_MAX_ATTRIBUTES = 100
_MAX_COUNTED = 50
"""Number of variables whose chunks are counted for one answer."""

_MAX_LIMIT = 1000
_MAX_SNAPSHOTS = 200
_MAX_LINES = 500
_MAX_PROBLEMS = 100
_UNVERIFIED = "not verified"


class CubeFacts:
    """Facts about one version of a cube; those that are costly to compute are kept."""

    def __init__(self, cube: Cube, content: Content, /, *, max_boxes: int = 4096) -> None:
        self._cube = cube
        self._content = content
        self._max_boxes = max_boxes

    @cached_property
    def _arrays(self) -> dict[str, ManifestArray]:
        return self._content.group.all_arrays()

    def find(self, kind: str, options: Mapping[str, str] | None = None, /) -> dict[str, Any] | None:
        """Return facts of one kind, or ``None`` if there is no such kind or variable."""
        options = options or {}
        offset = _number(options, "offset", 0)
        match kind:
            case "variables":
                return self.variables(offset)
            case "counts":
                return self.counts(offset)
            case "map":
                array = self._arrays.get(options.get("variable", ""))
                return None if array is None else self._map(options["variable"], array)
            case "timeline":
                return cube_timeline(self._content.group, storage=self._content.storage).to_json()
            case "sources":
                return self.sources(offset, _number(options, "limit", 100))
            case "verified":
                return self.verified()
            case "health":
                return self.health()
            case "snapshots":
                return self.snapshots()
            case "diff":
                return self.diff(_number(options, "before", 0), _number(options, "after", 0))
        return None

    def variables(self, offset: int = 0, /) -> dict[str, Any]:
        """Return a page of the variables, as their metadata say. No references are read."""
        content = self._content
        items = (self._variable(path, array) for path, array in islice(self._arrays.items(), offset, None))
        page = _page(items, offset, len(self._arrays))
        if offset:
            return page
        refused = list(content.keys[3].refused().items())
        noted = [
            {"path": x.path, "kind": x.kind, "reason": printable(x.reason)[:_MAX_ATTRIBUTE_CHARACTERS]}
            for _, group in content.group.walk()
            for x in group.refusals
            if x.kind != "refused"
        ]
        about = self._cube.about
        return {
            **{name: about[name] for name in ("name", "kind", "url")},
            # a tag of a vstack begins with the number of the snapshot
            "version": content.tag.partition("-")[0] if self._cube.kind == "vstack" else content.tag,
            "is_fixed": content.is_fixed,
            "has_recipe": self._cube.open_repository is not None and self._cube.open_repository().recipe is not None,
            "attributes": _attributes(content.group.attributes),
            "groups": [path for path, _ in content.group.walk() if path][:_MAX_LINES],
            "n_refused": len(refused),
            "refused": [
                {"path": path, "reason": printable(why)[:_MAX_ATTRIBUTE_CHARACTERS]} for path, why in refused[:100]
            ],
            "n_noted": len(noted),
            "noted": noted[:100],
            **page,
        }

    def _variable(self, path: str, array: ManifestArray) -> dict[str, Any]:
        return {
            "path": path,
            "dims": list(array.dimension_names or ["?"] * array.ndim),
            "shape": list(array.shape),
            "dtype": "text" if array.dtype.kind == "T" else str(array.dtype),
            "chunks": [_chunk(axis) for axis in array.grid.axes],
            "grid": list(array.grid.shape),
            "nbytes": array.nbytes,
            "attributes": _attributes(array.attributes),
            "is_coordinate": array.dimension_names == (path.rpartition("/")[2],),
        }

    def counts(self, offset: int = 0, /) -> dict[str, Any]:
        """Return how many chunks of each variable are in each state, their stored bytes and codecs."""
        stop = offset + _MAX_COUNTED
        items = (self._count(path, array) for path, array in islice(self._arrays.items(), offset, stop))
        return _page(items, offset, len(self._arrays))

    def _count(self, path: str, array: ManifestArray) -> dict[str, Any]:
        try:
            found = map_chunks(array, name=path, max_boxes=1)
        except VirtualStackError as error:
            return {"path": path, "error": hide_secrets(printable(str(error)))}
        names = "n_chunks", "n_empty", "n_absent", "n_inline", "n_referenced", "nbytes", "n_sources", "n_encodings"
        encodings = [asdict(x) for x in found.encodings[:10]]
        return {"path": path, **{name: getattr(found, name) for name in names}, "encodings": encodings}

    def _map(self, path: str, array: ManifestArray) -> dict[str, Any]:
        found = map_chunks(array, name=path, max_boxes=self._max_boxes).to_json()
        prefix = found["source_prefix"]
        found["sources"] = [shown_url(prefix + x) for x in found["sources"]]  # a secret may begin in the prefix
        found["source_prefix"] = common_prefix(found["sources"]) if "?" not in prefix else ""
        found["sources"] = [x.removeprefix(found["source_prefix"]) for x in found["sources"]]
        return found

    @cached_property
    def _sources(self) -> Any:
        return count_sources(self._arrays)

    def sources(self, offset: int = 0, limit: int = 100, /) -> dict[str, Any]:
        """Return a page of the sources, with their states if a file says what was verified."""
        found, _ = self._read_verified()
        items = (
            {
                **asdict(x),
                "url": shown_url(x.url),
                "status": None if found is None else found["statuses"].get(x.url, _UNVERIFIED),
            }
            for x in self._sources.rows(offset, min(limit, _MAX_LIMIT))
        )
        return _page(items, offset, len(self._sources.locations))

    def _read_verified(self) -> tuple[Verified | None, str | None]:
        """Return what was verified, or ``None`` and, if there is a file, why it does not say it."""
        try:
            return None if self._cube.verified is None else self._cube.verified.read(), None
        except VirtualStackError as error:
            return None, hide_secrets(printable(str(error)))

    def verified(self) -> dict[str, Any]:
        """Return when which snapshot was verified, and how many sources are in each state."""
        found, error = self._read_verified()
        if found is None:
            return {"found": None, "error": error}
        counts = Counter(found["statuses"].get(x.url, _UNVERIFIED) for x in self._sources.locations)
        order = *SOURCE_STATUSES, _UNVERIFIED
        problems = [
            {
                "url": shown_url(x["url"]),
                "status": x["status"],
                "reason": hide_secrets(printable(x["reason"]))[:_MAX_ATTRIBUTE_CHARACTERS],
            }
            for x in found["problems"][:_MAX_PROBLEMS]
        ]
        shown = {
            "snapshot": found["snapshot"],
            "time": found["time"],
            "counts": {x: counts[x] for x in order if counts[x]},
            "n_problems": len(found["problems"]),
            "problems": problems,
            "chunks": Counter(x["status"] for x in found["chunks"]),
        }
        return {"found": shown, "error": None}

    def health(self) -> dict[str, Any] | None:
        """Return what ``virtualstack health`` says of the newest snapshot; ``None`` for cubes that are no vstack."""
        if self._cube.open_repository is None:
            return None
        health = self._cube.open_repository().health()
        found = health.to_json()
        found["odd"] = [hide_secrets(printable(line))[:_MAX_ATTRIBUTE_CHARACTERS] for line in grouped(health.odd)]
        for name in ("late", "missing"):
            found[f"n_{name}"], found[name] = sum(x["n"] for x in found[name]), found[name][:_MAX_PROBLEMS]
        return found

    def snapshots(self) -> dict[str, Any]:
        """Return the newest snapshots of a vstack, newest first; an empty list for other cubes."""
        if self._cube.open_repository is None:
            return {**_page(iter(()), 0, 0), "has_snapshots": False}
        entries = self._cube.open_repository().log(_MAX_SNAPSHOTS)
        items = (
            {
                "number": x.number,
                "time": x.time,
                "message": None if x.message is None else printable(x.message),
                "changes": [printable(line) for line in x.changes[:_MAX_LINES]],
                "n_changes": len(x.changes),
            }
            for x in entries
        )
        return {**_page(items, 0, len(entries)), "has_snapshots": True}

    def diff(self, before: int, after: int, /) -> dict[str, Any] | None:
        """Return the differences between two snapshots of a vstack as lines of text."""
        if self._cube.open_repository is None:
            return None
        try:
            found = self._cube.open_repository().diff(before, after)
        except SourceNotFoundError:
            return None
        lines = hide_secrets(repr(found)).splitlines()[1:]
        return {
            "before": before,
            "after": after,
            "n_lines": len(lines),
            "lines": [line[:_MAX_ATTRIBUTE_CHARACTERS] for line in lines[:_MAX_LINES]],
        }


def dump_facts(facts: object, /) -> bytes:
    """Return facts as JSON that browsers parse."""
    return json.dumps(facts, separators=(",", ":"), allow_nan=False).encode()


def _page(items: Iterator[dict[str, Any]], offset: int, total: int) -> dict[str, Any]:
    """Return items as long as they fit in one answer, and the number of the next one or ``None``."""
    taken: list[dict[str, Any]] = []
    size = 0
    for item in items:
        taken.append(item)
        size += len(json.dumps(item))
        if size > _MAX_PAGE_BYTES:
            break
    stop = offset + len(taken)
    return {"total": total, "offset": offset, "next": stop if taken and stop < total else None, "items": taken}


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ValueError(f"{name}={text!r} must be a number, 0 or more")
    return int(text)


def _chunk(axis: ChunkAxis) -> int | str:
    """Return the length of the cells along an axis, or the least and greatest one as text."""
    if axis.chunk is not None:
        return axis.chunk
    lengths = np.asarray(axis.lengths())
    low, high = (int(lengths.min()), int(lengths.max())) if lengths.size else (0, 0)
    return low if low == high else f"{low} to {high}"


def _exact(digits: str) -> int | str:
    """Return an integer, as text if numbers of JavaScript would round it."""
    return int(digits) if abs(int(digits)) < 1 << 53 else digits


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON; long ones are cut, and numbers that JSON does not have become text."""
    shown: dict[str, Any] = {}
    for name, value in islice(attributes.items(), _MAX_ATTRIBUTES):
        try:
            (plain,) = json_attributes({name: value}, variable=name).values()
        except WriterError:
            plain = str(value)
        text = json.dumps(plain)
        if len(text) > _MAX_ATTRIBUTE_CHARACTERS:
            shown[name] = (plain if isinstance(plain, str) else text)[:_MAX_ATTRIBUTE_CHARACTERS] + "..."
        else:
            shown[name] = json.loads(text, parse_constant=str, parse_int=_exact)
    if len(attributes) > _MAX_ATTRIBUTES:
        shown["..."] = f"{len(attributes) - _MAX_ATTRIBUTES} more"
    return shown
