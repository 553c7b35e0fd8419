"""Chunk maps and timelines as SVG: without scripts, for light and dark pages, of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from virtualstack.drawing.facts import ChunkMap, Timeline, TimelineEra
from virtualstack.printable import counted, printable

type ColorBy = Literal["state", "source", "encoding"]
"""What the colours of a chunk map mean."""

COLORS: Mapping[str, str] = {
    "referenced": "#2f7ab8",
    "inline": "#8f5fbf",
    "absent": "#d1462f",
    "empty": "#808080",
}
"""Colours of states. Each has a contrast of at least 3.5 with white and with the backgrounds of dark pages."""

WORDS: Mapping[str, str] = {
    "referenced": "in sources",
    "inline": "inline",
    "absent": "lost",
    "empty": "never written",
}
"""States of chunks in words."""

PALETTE = ("#2f7ab8", "#b5610b", "#3a8543", "#8f5fbf", "#c0483f", "#4d7c8a", "#a3567f", "#7a7420")
"""Colours of sources, encodings and eras by their number; the ninth has the first colour again."""

_FONT = "font:11px system-ui,sans-serif"
_MAX_WIDTH, _MAX_HEIGHT = 520, 160
_MAX_LEGEND = 8
_MAX_LINES = 8
_MAX_LABEL = 60


def svg_chunk_map(chunk_map: ChunkMap, /, *, by: ColorBy = "state") -> str:
    """Return a chunk map as SVG.

    Boxes with lost chunks are red in part, whatever the colours mean: a quarter of the box for each quarter of its
    chunks that is begun. A paler colour means that some chunks of a box were never written. Neighbours of one colour
    are one shape, so that a map has at most some 100 kB.
    """
    n_rows, n_columns = chunk_map.states.shape[:2]
    summary = summary_of_map(chunk_map)
    if not n_rows or not n_columns:
        return framed_svg(16, summary, label(0, 12, summary))
    width = min(_MAX_WIDTH, 24 * n_columns)
    height = max(min(_MAX_HEIGHT, 24 * n_rows), 12)
    color, opacity = classify(chunk_map, by)
    paths = "".join(
        f'<path fill="{name}" fill-opacity="{share}" d="{path}"/>' for name, share, path in _paths(color, opacity)
    )
    paths += _lost_marks(chunk_map, is_tall=height / n_rows >= width / n_columns)
    boxes = (
        f'<svg x="0" y="0" width="{width}" height="{height}" viewBox="0 0 {n_columns} {n_rows}" '
        f'preserveAspectRatio="none" shape-rendering="crispEdges">{paths}</svg>'
        f'<rect x="0" y="0" width="{width}" height="{height}" fill="none" stroke="currentColor" stroke-opacity=".35"/>'
    )
    axis = chunk_map.column_axis
    across = "" if axis is None else f"{chunk_map.dims[axis]}: {chunk_map.grid_shape[axis]:,} chunks →"
    flat = [chunk_map.dims[i] for i in chunk_map.row_axes if chunk_map.grid_shape[i] > 1]
    down = (
        f"{flat[0] if len(flat) == 1 else f'({", ".join(flat)})'}: {chunk_map.row_edges[-1]:,} chunks ↓" if flat else ""
    )
    labels = "   ".join(x for x in (across, down) if x)
    legend, bottom = legend_of(_legend_items(chunk_map, by), height + 30)
    return framed_svg(bottom, summary, boxes + label(0, height + 14, labels) + legend)


def summary_of_map(chunk_map: ChunkMap, /) -> str:
    """Return the totals of a map as text."""
    grid = " x ".join(f"{n:,}" for n in chunk_map.grid_shape) or "1"
    counts = {name: getattr(chunk_map, f"n_{name}") for name in WORDS}
    states = ", ".join(f"{n:,} {WORDS[name]}" for name, n in counts.items() if n)
    return f"chunk map of {_short(chunk_map.name)}: {grid} chunks ({states or 'none'})"


def classify(chunk_map: ChunkMap, by: ColorBy, /) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
    """Return the colour and the opacity of each box.

    The opacity is the share of chunks that are not EMPTY, in steps of a quarter.
    """
    total = np.maximum(chunk_map.states.sum(-1), 1)
    empty, absent, inline, referenced = (chunk_map.states[..., i] for i in range(4))
    if by == "state":
        names = np.where(referenced >= inline, COLORS["referenced"], COLORS["inline"])
    else:
        number = chunk_map.source if by == "source" else chunk_map.encoding
        names = np.where(number >= 0, np.array(PALETTE)[number % len(PALETTE)], COLORS["inline"])
        names = np.where((number < 0) & (inline == 0), COLORS["empty"], names)
    is_empty = empty + absent == total
    names = np.where(is_empty, COLORS["empty"], names)
    share = np.ceil(4 * (total - empty) / total) / 4
    opacity = np.where(is_empty, 0.15, np.maximum(share, 0.4))
    return names, opacity


def _legend_items(chunk_map: ChunkMap, by: ColorBy) -> Iterator[tuple[str, float, str]]:
    """Yield colour, opacity and text of each item of the legend."""
    if by == "state":
        for name in ("referenced", "inline"):
            if n := getattr(chunk_map, f"n_{name}"):
                yield COLORS[name], 1.0, f"{WORDS[name]} {n:,}"
    elif by == "encoding":
        yield from ((color, 1.0, text) for color, text in encoding_legend(chunk_map))
    else:
        yield "none", 0.0, f"{counted(chunk_map.n_sources, 'source')}, in {len(PALETTE)} colours in turn"
    if chunk_map.n_absent:
        yield COLORS["absent"], 1.0, f"{WORDS['absent']} {chunk_map.n_absent:,}"
    if chunk_map.n_empty:
        yield COLORS["empty"], 0.3, f"{WORDS['empty']} {chunk_map.n_empty:,}"


def encoding_legend(chunk_map: ChunkMap, /) -> list[tuple[str, str]]:
    """Return colour and text of the encodings of a map, with the number of their chunks.

    Encodings that differ only in settings, such as the scale factor of packed numbers, have colours of their own. They
    share one text without a colour.
    """
    alike: dict[str, list[int]] = {}
    for i, x in enumerate(chunk_map.encodings):
        text = f"{x.dtype} {x.chunk_shape} {' + '.join(x.codecs) or 'uncompressed'}"
        alike.setdefault(text, []).append(i)
    items, n_shown = [], 0
    for text, rows in list(alike.items())[:_MAX_LEGEND]:
        n = sum(chunk_map.encodings[i].n_chunks for i in rows)
        color = PALETTE[rows[0] % len(PALETTE)] if len(rows) == 1 else "none"
        items.append((color, f"{text}{f', {len(rows)} settings' if len(rows) > 1 else ''}: {n:,}"))
        n_shown += len(rows)
    if chunk_map.n_encodings > n_shown:
        items.append(("none", f"and {counted(chunk_map.n_encodings - n_shown, 'more encoding')}"))
    return items


def _paths(color: NDArray[np.str_], opacity: NDArray[np.float64]) -> Iterator[tuple[str, str, str]]:
    """Yield colour, opacity and shape of all boxes that are drawn alike."""
    for name in np.unique(color).tolist():
        for share in np.unique(opacity[color == name]).tolist():
            yield name, f"{share:g}", _runs((color == name) & (opacity == share))


def lost_quarters(chunk_map: ChunkMap, /) -> NDArray[np.float64]:
    """Return how many quarters of the chunks of each box are lost; a quarter counts if one chunk is lost."""
    return np.asarray(np.ceil(4 * chunk_map.states[..., 1] / np.maximum(chunk_map.states.sum(-1), 1)))


def _lost_marks(chunk_map: ChunkMap, *, is_tall: bool) -> str:
    """Return red marks over the lower or right part of boxes: a quarter for each quarter of chunks that is lost."""
    share = lost_quarters(chunk_map) / 4
    shapes = [_runs(share == 1)]
    for part in (0.25, 0.5, 0.75):
        if is_tall:
            shapes.append(_runs(share == part, part))
        else:
            rows, columns = np.nonzero(share == part)
            boxes = zip(rows.tolist(), columns.tolist(), strict=True)
            shapes += [f"M{column + 1 - part} {row}h{part}v1h-{part}z" for row, column in boxes]
    shape = "".join(shapes)
    return f'<path fill="{COLORS["absent"]}" d="{shape}"/>' if shape else ""


def _runs(is_in: NDArray[np.bool_], height: float = 1.0) -> str:
    """Return the shape of boxes; neighbours in a row are one rectangle.

    >>> _runs(np.array([[True, True, False, True]]))
    'M0 0h2v1h-2zM3 0h1v1h-1z'
    """
    padded = np.zeros((is_in.shape[0], is_in.shape[1] + 2), np.int8)
    padded[:, 1:-1] = is_in
    step = np.diff(padded, axis=1)
    rows, begins = np.nonzero(step == 1)
    ends = np.nonzero(step == -1)[1]
    top = 1 - height
    return "".join(
        f"M{begin} {row + top:g}h{end - begin}v{height:g}h-{end - begin}z"
        for row, begin, end in zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True)
    )


# -- timelines ------------------------------------------------------------------------------------------------


def svg_timeline(timeline: Timeline, /) -> str:
    """Return a timeline as SVG: a line of eras for each series, with gaps in red and duplicates as triangles."""
    series = list(dict.fromkeys(era.series for era in timeline.eras))
    shown = series[:_MAX_LINES]
    is_named = len(series) > 1
    pitch, top = 18 + (14 if is_named else 0), 12 if any(x.at is not None for x in timeline.duplicates) else 2
    parts = []
    for i, name in enumerate(shown):
        y = top + i * pitch
        if is_named:
            parts.append(label(0, y + 10, _short(name)))
            y += 14
        parts.append(_line(timeline, name, y))
    parts += [
        f'<path fill="{PALETTE[1]}" d="M{_x(x.at) - 4:g} {top - 10}h8l-4 8z"/>'
        for x in timeline.duplicates
        if x.at is not None
    ]
    bottom = top + max(len(shown), 1) * pitch
    if len(series) > len(shown):
        bottom += 14
        parts.append(label(0, bottom - 3, f"and {len(series) - len(shown):,} more series"))
    dim = (
        ""
        if timeline.dim is None
        else f"{_short(timeline.dim)} →" + ("" if timeline.is_to_scale else " (not to scale)")
    )
    parts.append(label(0, bottom + 12, _short(timeline.first)))
    parts.append(label(_MAX_WIDTH / 2, bottom + 12, dim, anchor="middle"))
    parts.append(label(_MAX_WIDTH, bottom + 12, _short(timeline.last), anchor="end"))
    items: list[tuple[str, float, str]] = []
    if timeline.n_gaps:
        items.append((COLORS["absent"], 0.25, f"{counted(timeline.n_gaps, 'gap')}, {timeline.n_missing:,} missing"))
    if timeline.n_duplicates:
        color = PALETTE[1] if any(x.at is not None for x in timeline.duplicates) else "none"
        items.append((color, 1.0, counted(timeline.n_duplicates, "duplicate")))
    if timeline.n_eras > 1:
        items.append(("none", 0.0, f"{timeline.n_eras:,} eras, each with the next colour"))
    if timeline.n_eras > len(timeline.eras):
        items.append(("none", 0.0, f"the first {len(timeline.eras):,} are shown"))
    legend, height = legend_of(items, bottom + 28)
    span = f", {timeline.first} to {timeline.last}" if timeline.first else ""
    along = f" along {timeline.dim}" if timeline.dim else ""
    summary = f"timeline{along}{span}: {totals_of_timeline(timeline)}"
    return framed_svg(height, summary, "".join(parts) + legend)


def totals_of_timeline(timeline: Timeline, /) -> str:
    """Return the totals of a timeline as text."""
    totals = {
        "file": timeline.n_files,
        "era": timeline.n_eras,
        "gap": timeline.n_gaps,
        "duplicate": timeline.n_duplicates,
    }
    return ", ".join(counted(n, word) for word, n in totals.items())


def era_segments(timeline: Timeline, series: str, /) -> list[tuple[TimelineEra, list[tuple[float, float]]]]:
    """Return each era of a series with the spans of the axis where it has values, from 0 to 1.

    An era reaches to the beginning of the next one if there is no gap between them.
    """
    eras = [era for era in timeline.eras if era.series == series]
    gaps = [gap for gap in timeline.gaps if gap.series == series]
    spans = []
    for i, era in enumerate(eras):
        end = era.end
        if (
            i + 1 < len(eras)
            and eras[i + 1].begin > end
            and not any(gap.begin >= end - 1e-12 and gap.end <= eras[i + 1].begin + 1e-12 for gap in gaps)
        ):
            end = eras[i + 1].begin
        inside = [gap for gap in gaps if gap.begin < end and gap.end > era.begin]
        edges = [era.begin, *(x for gap in inside for x in (gap.begin, gap.end)), end]
        pieces = zip(edges[::2], edges[1::2], strict=True)
        spans.append((era, [(a, b) for a, b in pieces if b >= a]))
    return spans


def _line(timeline: Timeline, series: str, y: float) -> str:
    parts = []
    for era, spans in era_segments(timeline, series):
        color = PALETTE[(era.number - 1) % len(PALETTE)]
        for begin, end in spans:
            width = max((end - begin) * _MAX_WIDTH, 1.5)
            left = min(_x(begin), _MAX_WIDTH - width)
            parts.append(f'<rect x="{left:.4g}" y="{y}" width="{width:.4g}" height="14" fill="{color}"/>')
    parts += [
        f'<rect x="{_x(gap.begin):.4g}" y="{y + 0.5}" width="{max((gap.end - gap.begin) * _MAX_WIDTH, 2):.4g}" '
        f'height="13" fill="{COLORS["absent"]}" fill-opacity=".25" stroke="{COLORS["absent"]}"/>'
        for gap in timeline.gaps
        if gap.series == series
    ]
    return "".join(parts)


def _x(at: float | None) -> float:
    return (at or 0.0) * _MAX_WIDTH


# -- parts ----------------------------------------------------------------------------------------------------


def framed_svg(height: float, summary: str, inside: str, /) -> str:
    """Return a drawing of the usual width, with what it shows in words."""
    text = _escaped(summary)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{text}" viewBox="0 0 {_MAX_WIDTH} {height:g}" '
        f'width="{_MAX_WIDTH}" height="{height:g}" style="max-width:100%;height:auto;display:block;{_FONT}" '
        f'fill="currentColor"><title>{text}</title>{inside}</svg>'
    )


def label(x: float, y: float, text: str, /, *, anchor: str = "start") -> str:
    """Return a line of text, which strangers may have written."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{_escaped(text)}</text>' if text else ""


def legend_of(items: Iterable[tuple[str, float, str]], y: float, /) -> tuple[str, float]:
    """Return a legend whose first line of text is at ``y``, and its lower end."""
    parts, x, is_any = [], 0.0, False
    for color, opacity, text in items:
        has_box = color != "none"
        width = 6.2 * len(text) + (15 if has_box else 0) + 16
        if is_any and x + width > _MAX_WIDTH:
            x, y = 0.0, y + 16
        if has_box:
            parts.append(
                f'<rect x="{x:g}" y="{y - 9:g}" width="10" height="10" fill="{color}" fill-opacity="{opacity:g}"/>'
            )
        parts.append(label(x + (15 if has_box else 0), y, text))
        x, is_any = x + width, True
    return "".join(parts), y + 5 if is_any else y - 12


def _short(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}…"


def _escaped(text: str) -> str:
    return escape(printable(text).encode(errors="backslashreplace").decode())
