"""Chunk maps and timelines on axes of matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from virtualstack.drawing.facts import ChunkMap, Timeline
from virtualstack.drawing.svg import (
    COLORS,
    PALETTE,
    WORDS,
    ColorBy,
    classify,
    encoding_legend,
    era_segments,
    lost_quarters,
    summary_of_map,
    totals_of_timeline,
)
from virtualstack.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_LABELS = 40


_WIDTH_INCHES = 7.0
_MAX_HEIGHT_INCHES = 4.8


def _axes(ax: Axes | None, what: str, height: float) -> Axes:
    """Return the axes, or those of a new figure of a height in inches."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingDependencyError(what, extra="plot") from error
    if ax is not None:
        return ax
    figsize = (_WIDTH_INCHES, min(height, _MAX_HEIGHT_INCHES))
    return pyplot.subplots(figsize=figsize, layout="constrained")[1]


def plot_chunk_map(chunk_map: ChunkMap, /, *, by: ColorBy = "state", ax: Axes | None = None) -> Axes:
    """Draw a chunk map.

    A quarter of a box is red for each quarter of its chunks that is lost.
    """
    encodings = encoding_legend(chunk_map) if by == "encoding" else []
    ax = _axes(ax, "plot_chunks()", max(1.6 + 0.25 * chunk_map.states.shape[0], 1.2 + 0.2 * len(encodings)))
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    names, opacity = classify(chunk_map, by)
    image = np.zeros((*names.shape, 4))
    for name in np.unique(names).tolist():
        image[names == name] = to_rgba(name)
    image[..., 3] = opacity
    image = _with_lost(image, chunk_map, to_rgba(COLORS["absent"]))
    extent = (0.0, float(chunk_map.column_edges[-1]), float(chunk_map.row_edges[-1]), 0.0)
    ax.imshow(image, aspect="auto", interpolation="nearest", origin="upper", extent=extent)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    x = chunk_map.column_axis
    if x is not None:
        ax.set_xlabel(f"chunks of {chunk_map.dims[x]}")
    down = [chunk_map.dims[i] for i in chunk_map.row_axes if chunk_map.grid_shape[i] > 1]
    ax.set_ylabel(f"chunks of {', '.join(down)}" if down else "")
    if not down:
        ax.set_yticks([])
    counts = {name: getattr(chunk_map, f"n_{name}") for name in WORDS}
    shown = {name: n for name, n in counts.items() if n and (by == "state" or name in ("absent", "empty"))}
    handles = [
        Patch(color=COLORS[name], alpha=0.15 if name == "empty" else 1.0, label=f"{WORDS[name]} ({n:,})")
        for name, n in shown.items()
    ]
    handles += [Patch(color=color, label=text) for color, text in encodings]
    if handles:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize="small")
    ax.set_title(_plain(summary_of_map(chunk_map)), fontsize="small")
    return ax


def _with_lost(image: NDArray[np.float64], chunk_map: ChunkMap, color: tuple[float, ...]) -> NDArray[np.float64]:
    """Return an image with four pixels for each box: one of them is red for each quarter of chunks that is lost."""
    n_rows, n_columns = image.shape[:2]
    axis = 0 if n_rows < n_columns // 4 else 1
    wide = np.repeat(image, 4, axis)
    last = np.arange(wide.shape[axis]) % 4
    last = last[:, None] if axis == 0 else last[None, :]
    wide[last >= 4 - np.repeat(lost_quarters(chunk_map), 4, axis)] = color
    return wide


def plot_timeline(timeline: Timeline, /, *, ax: Axes | None = None) -> Axes:
    """Draw a timeline: one bar for each series, coloured by era, with gaps in red."""
    series = list(dict.fromkeys(era.series for era in timeline.eras))
    ax = _axes(ax, "plot()", 1.2 + 0.4 * len(series))
    from matplotlib.colors import to_rgba

    pale = to_rgba(COLORS["absent"], 0.25)
    for i, name in enumerate(series):
        for era, spans in era_segments(timeline, name):
            bars = [(begin, max(end - begin, 0.002)) for begin, end in spans]
            ax.broken_barh(bars, (i - 0.4, 0.8), facecolors=PALETTE[(era.number - 1) % len(PALETTE)])
        gaps = [(gap.begin, max(gap.end - gap.begin, 0.002)) for gap in timeline.gaps if gap.series == name]
        if gaps:
            ax.broken_barh(gaps, (i - 0.4, 0.8), edgecolor=COLORS["absent"], facecolor=pale)
    at = [x.at for x in timeline.duplicates if x.at is not None]
    if at:
        ax.plot(at, [-0.5] * len(at), "v", color=PALETTE[1])
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(max(len(series), 1) - 0.4, -0.6)
    ax.set_xticks([0.0, 1.0], [_plain(timeline.first), _plain(timeline.last)])
    ax.set_yticks(range(len(series)), [_plain(name) for name in series] if len(series) > 1 else [""] * len(series))
    if timeline.dim is not None:
        ax.set_xlabel(_plain(timeline.dim) + ("" if timeline.is_to_scale else " (not to scale)"))
    ax.set_title(totals_of_timeline(timeline), fontsize="small")
    return ax


def _plain(text: str) -> str:
    """Return text without the signs with which matplotlib begins formulas."""
    shown = text if len(text) <= 3 * _MAX_LABELS else f"{text[: 3 * _MAX_LABELS]}…"
    return shown.replace("$", r"\$")
