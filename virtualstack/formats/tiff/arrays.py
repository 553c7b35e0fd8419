"""Images to virtual arrays: where each strip or tile is, as whole arrays of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.metadata import Codec
from virtualstack.codecs.tiff.names import standard_codec
from virtualstack.formats.tiff.image import Image, ImageLayout
from virtualstack.formats.tiff.metadata import parse_number
from virtualstack.location import Location
from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray, value_changing

__all__ = ["AUTO", "BAND_ATTRIBUTES", "Axes", "image_array", "meaning", "nodata_value"]

AUTO = 4 << 20
"""Bytes that merged strips have at most, unless told otherwise."""

BAND_ATTRIBUTES = ("scales", "offsets")
"""Attributes of bands that do not scale alike, which CF has no words for: they are not applied."""

_MAX_CHUNK_REDUCTION = 16
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The axes of an array of images.

    Parameters
    ----------
    pages
        Names and lengths of the axes along which there are images; none for one image.
    band
        Where the axis of samples is: ``"first"`` before rows, ``"last"`` behind columns, or ``None``. Samples in planes
        are before rows.
    names
        Of the axes of samples, rows and columns.
    """

    pages: tuple[tuple[str, int], ...] = ()
    band: str | None = "first"
    names: tuple[str, str, str] = ("band", "y", "x")


def image_array(
    images: Sequence[Image],
    axes: Axes,
    /,
    *,
    name: str,
    location: Location,
    attributes: Mapping[str, Any],
    most_bytes: int | None = AUTO,
    nodata: Any = None,
) -> ManifestArray:
    """Make the array of images that are laid out alike.

    Parameters
    ----------
    images
        One for each element along the axes of pages, in C order.
    axes
        Of the array.
    name, attributes
        Of the variable.
    location
        Of the file.
    most_bytes
        Of strips that are merged, as they are contiguous and not compressed; ``None`` for all that is contiguous.
    nodata
        Value of pixels without data.
    """
    layout = images[0].layout
    planes, down, across = layout.grid
    shape = (len(images), planes, down, across)
    offsets = np.stack([image.offsets for image in images]).reshape(shape)
    counts = np.stack([image.counts for image in images]).reshape(shape)
    rows = layout.rows
    if layout.is_plain and not layout.is_tiled and (base := _contiguous(layout, offsets, counts)) is not None:
        rows = _chunk_rows(layout, most_bytes)
        offsets, counts = _cut(layout, base, rows)
    holes = (offsets == 0) | (counts == 0)
    if holes.any():
        offsets, counts = np.where(holes, 0, offsets), np.where(holes, -1, counts)
    whole = _encoding(layout, rows, axes)
    encodings, codes = [whole], None
    if not layout.is_tiled and layout.height % rows:
        encodings.append(_encoding(layout, layout.height % rows, axes))
        codes = np.zeros(offsets.shape, np.uint32)
        codes[:, :, -1] = 1
    dims, lengths, chunks = _chunk_axes(layout, rows, axes)
    grid = ChunkGrid.regular(lengths, chunks)
    dtype = layout.dtype
    manifest = ChunkManifest.from_arrays(
        offsets.reshape(grid.shape),
        counts.reshape(grid.shape),
        location=location,
        encoding=encodings,
        encoding_codes=None if codes is None else codes.reshape(grid.shape),
        fill=Fill.zero(dtype) if nodata is None else Fill.of(nodata, dtype),
    )
    return ManifestArray(
        manifest=manifest,
        grid=grid,
        dtype=dtype,
        name=f"/{name}",
        dimension_names=dims,
        attributes=dict(attributes),
        cf=meaning(attributes),
    )


def meaning(attributes: Mapping[str, Any], /) -> dict[str, Any]:
    """Pick the attributes that change values, scales of bands included: bands that scale otherwise are other ones."""
    return {**value_changing(attributes), **{key: attributes[key] for key in BAND_ATTRIBUTES if key in attributes}}


def nodata_value(layout: ImageLayout, /) -> Any:
    """Give the value of pixels without data, in the dtype of values; ``None`` where there is none, or it has no place.

    >>> from dataclasses import replace
    >>> from virtualstack.codecs.tiff.settings import Settings
    >>> image = ImageLayout(height=1, width=1, samples=1, rows=1, columns=1, is_tiled=False, is_planar=False,
    ...                settings=Settings(), nodata="255", obstacle=None)
    >>> nodata_value(image), nodata_value(replace(image, nodata="-9999"))
    (np.uint8(255), None)
    """
    if not layout.nodata:
        return None
    dtype, text = layout.dtype, layout.nodata.strip()
    if dtype.kind in "iu":
        if dtype.itemsize == 8:
            digits = _WHOLE.match(text)
            number: float = int(digits[0]) if digits else 0
        else:
            number = parse_number(text)
        limits = np.iinfo(dtype)
        # what stands behind the point does not count
        return dtype.type(int(number)) if limits.min <= number <= limits.max else None
    number = parse_number(text)
    with np.errstate(over="ignore"):
        value = dtype.type(number)
    is_too_large = dtype == np.float16 and math.isfinite(number) and not np.isfinite(value)
    return None if is_too_large else value


def _contiguous(layout: ImageLayout, offsets: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Give where the first strip of each plane begins, if all others follow it; shape (images, planes)."""
    rows = np.full(counts.shape[2], layout.rows, np.int64)
    rows[-1] = layout.height - (len(rows) - 1) * layout.rows
    is_whole = bool((counts == (rows * layout.row_size)[:, None]).all()) and bool((offsets > 0).all())
    follows = offsets[:, :, 1:] == offsets[:, :, :-1] + counts[:, :, :-1]
    return offsets[:, :, 0, 0] if is_whole and bool(follows.all()) else None


def _chunk_rows(layout: ImageLayout, most_bytes: int | None) -> int:
    """Choose rows of a chunk: such as divide the image where there are, as all chunks are alike then."""
    if most_bytes is None:
        return layout.height
    most = min(max(1, most_bytes // layout.row_size), layout.height)
    least = max(1, most // _MAX_CHUNK_REDUCTION)
    for n in range(-(-layout.height // most), layout.height // least + 1):
        if layout.height % n == 0:
            return layout.height // n
    return most


def _cut(layout: ImageLayout, base: NDArray[np.int64], rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut what is contiguous in chunks of some rows."""
    down, size = -(-layout.height // rows), rows * layout.row_size
    offsets = base[:, :, None, None] + (np.arange(down, dtype=np.int64) * size)[:, None]
    counts = np.full(offsets.shape, size)
    counts[:, :, -1] = (layout.height - (down - 1) * rows) * layout.row_size
    return offsets, counts


def _encoding(layout: ImageLayout, rows: int, axes: Axes) -> ChunkEncoding:
    shape = (rows, layout.columns, layout.depth)
    codecs = _codecs(layout, shape)
    dtype = layout.dtype
    is_ours = bool(codecs) and codecs[0].name.startswith("virtualstack.")
    if not is_ours:
        dtype = dtype.newbyteorder(">" if layout.settings.big else "<")
    size, line = math.prod(shape), layout.columns * layout.depth
    band = 1 if layout.depth > 1 else size
    of_image = {
        "first": (band, line, layout.depth),
        "last": (line, layout.depth, 1),
        None: (line, layout.depth),
    }[_band_place(layout, axes)]
    encoding = ChunkEncoding.of(dtype, shape, codecs)
    return encoding.with_strides((*[size] * len(axes.pages), *of_image))


def _band_place(layout: ImageLayout, axes: Axes) -> str | None:
    return "first" if layout.is_planar else axes.band


def _codecs(layout: ImageLayout, shape: tuple[int, int, int]) -> tuple[Codec, ...]:
    """Give codecs that others know where they decode the same."""
    if layout.is_plain:
        return ()
    standard = standard_codec(layout.settings)
    return (layout.settings.codec(shape) if standard is None else standard,)


def _chunk_axes(layout: ImageLayout, rows: int, axes: Axes) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
    """Give names, lengths and chunks of all axes."""
    band, y, x = axes.names
    parts = {"y": (y, layout.height, rows), "x": (x, layout.width, layout.columns)}
    parts["band"] = (band, layout.samples, layout.depth)
    order = {"first": ("band", "y", "x"), "last": ("y", "x", "band"), None: ("y", "x")}[_band_place(layout, axes)]
    found = [(name, length, 1) for name, length in axes.pages] + [parts[key] for key in order]
    return tuple(x[0] for x in found), tuple(x[1] for x in found), tuple(x[2] for x in found)
