"""Show a virtual array in a notebook."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from virtualstack.manifests.grid import ChunkGrid
from virtualstack.manifests.manifest import Manifest

__all__ = ["to_html"]

_STYLE = "border-collapse:collapse;font-size:90%"
_CELL = "text-align:left;padding:1px 8px;vertical-align:top"


def to_html(manifest: Manifest, grid: ChunkGrid, dtype: np.dtype[Any], /) -> str:
    """Return an HTML table of an array: shape, chunk grid, codecs, sources, and the number of chunks in each state."""
    count, tables = manifest.summary(), manifest.tables
    codecs = {" → ".join(codec.name for codec in x.codecs) or "none" for x in tables.encodings}
    stored = {f"{x.dtype.str} {x.shape}" for x in tables.encodings}
    urls = [location.url for location in tables.locations]
    chunks, sources = f"not counted; in '{manifest.url}'", "named there"
    if count is not None:
        sources = _some(urls)
        chunks = (
            f"{count.n_references} in sources, {count.n_inline} INLINE, {count.n_empty} EMPTY, {count.n_absent} "
            f"ABSENT; {count.nbytes:,} stored bytes"
        )
    rows = {
        "Shape": f"{grid.array_shape} {dtype}",
        "Chunk grid": f"{' x '.join(map(str, grid.shape)) or '1'} cells ({grid!r})",
        "Stored chunks": "; ".join(sorted(stored)) or "none",
        "Codecs": "; ".join(sorted(codecs)) or "none",
        "Chunks": chunks,
        "Sources": sources,
    }
    body = "".join(
        f'<tr><th style="{_CELL}">{escape(key)}</th><td style="{_CELL}">{escape(value)}</td></tr>'
        for key, value in rows.items()
    )
    return f'<table style="{_STYLE}"><tbody>{body}</tbody></table>'


def _some(urls: list[str]) -> str:
    if len(urls) <= 3:
        return ", ".join(urls) or "none"
    return f"{urls[0]}, {urls[1]}, ... {urls[-1]} ({len(urls)})"
