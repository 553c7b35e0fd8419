"""A map of values as SVG around a small PNG: for light and dark pages, of bounded size."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.drawing.coast import Project, coast_svg
from virtualstack.drawing.colours import choose_palette
from virtualstack.drawing.geometry import Raster
from virtualstack.drawing.svg import framed_svg, label, legend_of

_COLOURS = 64
_NOTHING, _MISSING, _HATCHED, _FIRST = range(4)
_GREY = ((0, 0, 0, 0), (128, 128, 128, 40), (128, 128, 128, 130))
"""Colour and opacity of what is no cell, and of cells without a value, which are hatched."""

_TOP, _BAR = 17, 120
_MAX_CLASSES = 6
_MAX_TEXT = 40
_MAX_TITLE = 150
_MAX_IMAGE_BYTES = 16_000


def svg_picture(
    values: NDArray[Any],
    raster: Raster,
    attributes: Mapping[str, Any],
    /,
    *,
    title: str,
    places: str,
    project: Project | None,
) -> str:
    """Return the map of a slice, with its colours; an empty text if it has no value.

    Parameters
    ----------
    values
        Values of the slice, NaN where they are missing.
    raster
        The cell of each pixel.
    attributes
        Attributes of the variable, which decide the colours.
    title, places
        What is written above and below.
    project
        Where longitudes and latitudes are in the plane of the map, for its coast.
    """
    title = title[:_MAX_TITLE]
    is_known = np.isfinite(values)
    if not is_known.any():
        return ""
    palette = choose_palette(attributes, values[is_known])
    table = palette.table(_COLOURS)
    height, width = raster.cells.shape
    down, across = np.indices((height, width))
    shown = is_known.reshape(-1)[raster.cells]
    pixels = np.where((down + across) % 8 < 2, _HATCHED, _MISSING)
    pixels[shown] = _FIRST + palette.rows(values.reshape(-1)[raster.cells[shown]], len(table))
    pixels[raster.cells < 0] = _NOTHING
    has_missing = bool((~shown & (raster.cells >= 0)).any())
    units = str(attributes.get("units", ""))[:_MAX_TEXT]
    units = "" if units == "1" else units
    low, high = (f"{x:.4g}" for x in (palette.low, palette.high))
    classes = [(i, text[:_MAX_TEXT]) for i, (value, text) in enumerate(palette.classes) if (values == value).any()]
    said = ", ".join(text for _, text in classes[:_MAX_CLASSES]) if classes else f"values from {low} to {high} {units}"
    parts = [
        label(0, 11, title),
        _image(0, _TOP, width, height, pixels, table),
        "" if project is None else coast_svg(raster, project, _TOP),
        f'<rect x="0" y="{_TOP}" width="{width}" height="{height}" fill="none" stroke="currentColor" '
        'stroke-opacity=".35"/>',
        label(0, _TOP + height + 14, places),
    ]
    bottom = _TOP + height + 20
    if not palette.classes:
        bar = _FIRST + np.arange(len(table))[None]
        begin = 7 * len(low) + 4
        parts += [
            label(0, bottom + 11, low),
            _image(begin, bottom + 2, _BAR, 10, bar, table),
            label(begin + _BAR + 4, bottom + 11, f"{high} {units}"),
        ]
        bottom += 18
    items = [("#" + bytes(table[i].tolist()).hex(), 1.0, text) for i, text in classes[:_MAX_CLASSES]]
    if len(classes) > _MAX_CLASSES:
        items.append(("none", 1.0, f"and {len(classes) - _MAX_CLASSES} more classes"))
    if has_missing:
        items.append(("#808080", 0.35, "hatched: no value"))
    drawn, bottom = legend_of(items, bottom + 11)
    missing = "; some have none" if has_missing else ""
    return framed_svg(bottom, f"map of {title}: {places}; {said.strip()}{missing}", "".join(parts) + drawn)


def _image(x: float, y: float, width: float, height: float, pixels: NDArray[Any], table: NDArray[np.uint8]) -> str:
    """Return an image of SVG with rows of the table as pixels; of noise, every other pixel has to do."""
    opaque = np.column_stack([table, np.full(len(table), 255)])
    colours = np.concatenate([_GREY, opaque]).astype(np.uint8)
    png = _png(pixels.astype(np.uint8), colours)
    if len(png) > _MAX_IMAGE_BYTES:
        png = _png(pixels[::2, ::2].astype(np.uint8), colours)
    data = b64encode(png).decode()
    return (
        f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
    )


def _png(pixels: NDArray[np.uint8], colours: NDArray[np.uint8]) -> bytes:
    """Return an image as PNG: numbers of colours, which are red, green, blue and opacity."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each begins with its filter
    rows[:, 1:] = pixels
    parts = (
        chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        chunk(b"PLTE", colours[:, :3].tobytes()),
        chunk(b"tRNS", colours[:, 3].tobytes()),
        chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
        chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
