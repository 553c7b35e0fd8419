"""Merge rows that many commits wrote into one segment."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from virtualstack.errors import WriterError
from virtualstack.printable import first_names
from virtualstack.storage import ObjectStore
from virtualstack.vstack.checksums import with_fingerprint
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.format.history import OpenStore, array_in
from virtualstack.vstack.format.snapshot import ArrayNode, Snapshot
from virtualstack.vstack.format.sources import Prefixes
from virtualstack.vstack.write.commit import commit
from virtualstack.vstack.write.edit import ArrayEdit, Edit, rows_from
from virtualstack.vstack.write.placing import Piece, place
from virtualstack.vstack.write.segment import SegmentWriter


def compact(
    store: OpenStore,
    base: Snapshot,
    variables: Iterable[str] | None,
    /,
    *,
    message: str | None,
) -> Snapshot:
    """Write the rows of each variable that has several placements again, in file order, as one placement.

    Rows are read and written in blocks; only the sources are all in memory.
    """
    objects = store.objects
    chosen = {path: node for path, node in _chosen(base, variables, objects).items() if node.placements.n > 1}
    if not chosen:
        return base
    archive = store.archive(base)
    pieces = {path: _whole(base, path, archive) for path in chosen}
    columns = max(_columns(node, archive) for node in chosen.values())
    n_rows = sum(math.prod(piece.manifest.shape) for piece in pieces.values())
    fingerprint = partial(with_fingerprint, storage=objects.storage, store=objects.url)
    segment = SegmentWriter(objects.target, columns=columns, n_rows=n_rows, fingerprint=fingerprint)
    edits = {
        path: ArrayEdit(header=node.header, parts=[place(pieces[path], segment, columns)], merges=node.n_placed)
        for path, node in chosen.items()
    }
    prefixes = Prefixes(store=objects.url, table=base.prefixes, moved=base.moved)
    written, numbered = segment.close(prefixes, relative=False)
    edit = Edit(arrays=edits, segment=written, prefixes=numbered)
    return commit(store, base, edit, message=message)


def _chosen(base: Snapshot, variables: Iterable[str] | None, objects: ObjectStore) -> dict[str, ArrayNode]:
    if variables is None:
        return dict(base.arrays)
    several = isinstance(variables, Iterable) and not isinstance(variables, str)
    names: list[Any] = list(variables) if several else [variables]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"compact() needs names of variables, not {variables!r}")
    paths = [name if name.startswith("/") else f"/{name}" for name in names]
    for path in paths:
        if path not in base.arrays:
            raise WriterError(
                f"'{objects.url.rstrip('/')}' has no variable '{path}'; it has {first_names(sorted(base.arrays))}",
                variable=path,
            )
    return {path: base.arrays[path] for path in paths}


def _whole(base: Snapshot, path: str, archive: Archive) -> Piece:
    manifest = array_in(base, path, archive, b"").manifest
    return Piece(manifest, (0,) * len(manifest.shape))


def _columns(node: ArrayNode, archive: Archive) -> int:
    """Return the number of columns that the rows of an array need."""
    placements = rows_from(node.placements, 0, len(node.header.grid.axes), archive)
    most = max(archive.segment(number).columns for number in np.unique(placements.table[:, 0]).tolist())
    return max(most, 4 if len(node.header.encodings) > 1 or len(node.header.fills) > 1 else 3)
