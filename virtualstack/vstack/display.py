"""What a notebook shows of a snapshot: its variables, a map, a timeline, and the chunks of the largest variable."""

from __future__ import annotations

import math

from virtualstack.drawing.html import MAX_LISTED, folded, make_page, table, text
from virtualstack.drawing.svg import ColorBy, svg_chunk_map, svg_timeline
from virtualstack.errors import VirtualStackError
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.manifests.chunk_map import map_chunks
from virtualstack.manifests.display import chunk_text
from virtualstack.printable import counted
from virtualstack.storage import Storage
from virtualstack.surveying.cube import cube_timeline
from virtualstack.surveying.picture import Picture
from virtualstack.vstack.format.history import OpenStore
from virtualstack.vstack.format.snapshot import Snapshot

_MAX_DRAWN_CHUNKS = 1 << 20
"""Chunks whose references a notebook reads to draw pictures of a snapshot."""
_MAX_BOXES = 1024


def snapshot_html(title: str, snapshot: Snapshot, store: OpenStore, picture: Picture, /) -> str:
    """Return the HTML of a snapshot.

    Pictures are left out if a snapshot has more than 2^20 chunks, or if its references cannot be read.
    """
    rows = []
    for path, node in list(snapshot.arrays.items())[:MAX_LISTED]:
        header = node.header
        sizes = ", ".join(f"{dim} {n:,}" for dim, n in zip(header.dims, header.grid.array_shape, strict=True))
        rows.append((path.removeprefix("/"), str(header.dtype), sizes, chunk_text(header.grid)))
    listed = table(["variable", "dtype", "dimensions", "chunks"], rows, total=len(snapshot.arrays))
    n_chunks = sum(math.prod(node.header.grid.shape) for node in snapshot.arrays.values())
    if n_chunks > _MAX_DRAWN_CHUNKS:
        return make_page(title, listed, picture.html(), text(f"{n_chunks:,} chunks, which plot() draws"))
    try:
        pictures = _pictures(store.group(snapshot), store.objects.storage.only(store.permission))
    except VirtualStackError as error:
        pictures = [text(f"not drawn: {error}")]
    return make_page(title, listed, picture.html(), *pictures)


def _pictures(group: ManifestGroup, storage: Storage) -> list[str]:
    """Return the timeline of a group, and the chunk map of its variable with most chunks, which is folded."""
    found = cube_timeline(group, storage=storage)
    parts = [svg_timeline(found)] if found.dim is not None else []
    arrays = group.all_arrays()
    path = max(arrays, key=lambda path: _n_chunks(arrays[path]), default=None)
    if path is not None and _n_chunks(arrays[path]) > 1:
        drawn = map_chunks(arrays[path], name=path, max_boxes=_MAX_BOXES)
        by: ColorBy = "encoding" if drawn.n_encodings > 1 else "state"
        parts.append(folded(f"chunks of {path}: {counted(drawn.n_sources, 'source')}", svg_chunk_map(drawn, by=by)))
    return parts


def _n_chunks(array: ManifestArray) -> int:
    return math.prod(array.grid.shape)
