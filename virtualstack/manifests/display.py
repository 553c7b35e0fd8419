"""What terminals and notebooks show of virtual arrays and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from virtualstack.codecs.pipeline import codec_names
from virtualstack.drawing.html import folded, make_page, property_table, table, text, url_list
from virtualstack.manifests.encoding import stored_dtype
from virtualstack.manifests.grid import ChunkGrid
from virtualstack.manifests.manifest import Manifest
from virtualstack.printable import counted
from virtualstack.sizes import human_bytes


class _Shown(Protocol):
    """A virtual array, as far as it is shown."""

    @property
    def manifest(self) -> Manifest:
        """The manifest."""

    @property
    def grid(self) -> ChunkGrid:
        """The chunk grid."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type of the values."""

    @property
    def dimension_names(self) -> tuple[str, ...] | None:
        """The names of the dimensions."""


def chunk_text(grid: ChunkGrid, /) -> str:
    """Return the lengths of chunks along each axis as text; a range if they differ.

    >>> from virtualstack.manifests.grid import ChunkAxis
    >>> chunk_text(ChunkGrid((ChunkAxis.from_lengths([31, 28, 31]), ChunkAxis.regular(180, 45))))
    '(28-31, 45)'
    """
    lengths = []
    for axis in grid.axes:
        if axis.chunk is not None:
            lengths.append(str(axis.chunk))
        else:
            all_lengths = axis.lengths()
            lengths.append(f"{all_lengths.min()}-{all_lengths.max()}")
    return f"({', '.join(lengths)}{',' if len(lengths) == 1 else ''})"


def codec_text(manifest: Manifest, /) -> str:
    """Return the codecs of a manifest, or their number if chunks have more than two chains of codecs."""
    chains = list(dict.fromkeys("+".join(codec_names(x.codecs)) or "uncompressed" for x in manifest.tables.encodings))
    return " or ".join(chains) if len(chains) <= 2 else f"{len(chains)} codecs"


def stored_text(manifest: Manifest, /) -> str:
    """Return the stored bytes of a manifest as text; empty if they are not counted."""
    count = manifest.summary()
    return "" if count is None else human_bytes(count.nbytes)


def inline_text(array: _Shown, max_width: int, /) -> str:
    """Return the text of a virtual variable in the representation of a dataset, in at most ``max_width`` characters.

    If there is not enough space, the words "stored" and "virtual" are left out first, then the codecs, then the size.
    """
    count = array.manifest.summary()
    chunks, codecs = f"chunks {chunk_text(array.grid)}", codec_text(array.manifest)
    size, lost = "", []
    if count is not None:
        size = human_bytes(count.nbytes)
        lost = [f"{n:,} {word}" for n, word in ((count.n_absent, "lost"), (count.n_empty, "never written")) if n]
    shown = ""
    choices = (
        ["virtual", chunks, codecs, size and f"{size} stored"],
        ["virtual", chunks, codecs, size],
        [chunks, codecs, size],
        ["virtual", chunks, size],
        ["virtual", chunks],
    )
    for choice in choices:
        shown = ", ".join(filter(None, [*choice, *lost]))
        if len(shown) <= max_width:
            return shown
    return f"{shown[: max_width - 1]}…"


def array_html(array: _Shown, /) -> str:
    """Return an HTML table of an array: shape, chunks, codecs, sources, and the number of chunks in each state."""
    manifest, grid = array.manifest, array.grid
    count, tables = manifest.summary(), manifest.tables
    codecs = {" + ".join(codec_names(x.codecs)) or "uncompressed" for x in tables.encodings}
    stored = {f"{stored_dtype(x).str} {x.shape}" for x in tables.encodings}
    rows: dict[str, object] = {
        "Shape": f"{grid.array_shape} {array.dtype}",
        "Chunks": f"{chunk_text(grid)} in a grid of {' x '.join(f'{n:,}' for n in grid.shape) or '1'}",
        "Stored chunks": _some(stored),
        "Codecs": _some(codecs),
    }
    if count is None:
        rows |= {"States": f"not counted; in '{manifest.url}'", "Sources": "named there"}
    else:
        rows |= {
            "States": f"{count.n_references:,} in sources, {count.n_inline:,} INLINE, {count.n_empty:,} EMPTY, "
            f"{count.n_absent:,} ABSENT",
            "Stored": human_bytes(count.nbytes),
            "Sources": url_list([x.url for x in tables.locations]) if tables is manifest else "not listed",
        }
    return property_table(rows)


def _some(items: Iterable[str]) -> str:
    listed = sorted(items)
    more = f" and {len(listed) - 5:,} more" if len(listed) > 5 else ""
    return "; ".join(listed[:5]) + more if listed else "none"


class _ShownGroup(Protocol):
    """A group, as far as it is shown."""

    @property
    def arrays(self) -> Mapping[str, _Shown]:
        """Arrays by name."""

    @property
    def groups(self) -> Mapping[str, _ShownGroup]:
        """Groups by name."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes."""

    @property
    def url(self) -> str | None:
        """URL of the source."""


def group_html(group: _ShownGroup, title: str, /) -> str:
    """Return the HTML of a group: a table of its arrays, and its subgroups and attributes, which are folded."""
    rows = []
    for name, array in list(group.arrays.items())[:_MAX_ARRAYS]:
        rows.append(
            (
                name,
                ", ".join(array.dimension_names or ()),
                f"{array.dtype} {array.grid.array_shape}",
                chunk_text(array.grid),
                codec_text(array.manifest),
                stored_text(array.manifest),
            )
        )
    columns = ["array", "dimensions", "values", "chunks", "codecs", "stored"]
    parts = [table(columns, rows, total=len(group.arrays))] if rows else []
    if group.url is not None:
        parts.insert(0, text(group.url))
    for name, child in list(group.groups.items())[:_MAX_GROUPS]:
        inside = f"{counted(len(child.arrays), 'array')}, {counted(len(child.groups), 'group')}"
        parts.append(folded(f"group '{name}': {inside}", group_html(child, name)))
    if len(group.groups) > _MAX_GROUPS:
        parts.append(text(f"… and {counted(len(group.groups) - _MAX_GROUPS, 'more group')}"))
    if group.attributes:
        attributes = list(group.attributes.items())
        body = table(["attribute", "value"], attributes[:_MAX_ARRAYS], total=len(attributes))
        parts.append(folded(counted(len(attributes), "attribute"), body))
    return make_page(title, *parts)


_MAX_ARRAYS = 200
_MAX_GROUPS = 20
