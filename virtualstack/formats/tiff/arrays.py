"""Make virtual arrays of images, with the same attributes as in rioxarray."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.tiff.settings import standard_codec
from virtualstack.formats.tiff.image import Image, ImageLayout
from virtualstack.formats.tiff.structure import Directory, TiffStructure, is_number, read_xml
from virtualstack.location import Location
from virtualstack.manifests import (
    RASTER_DECODING,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    value_changing,
)
from virtualstack.sizes import equal_chunk_length

GDAL_METADATA = 42112
_TEXTS = {
    269: "DOCUMENTNAME",
    270: "IMAGEDESCRIPTION",
    305: "SOFTWARE",
    306: "DATETIME",
    315: "ARTIST",
    316: "HOSTCOMPUTER",
    33432: "COPYRIGHT",
}
_ROLES = frozenset({"scale", "offset", "description", "unittype"})
_RATIOS = {282: "XRESOLUTION", 283: "YRESOLUTION"}
_NUMBERS = {280: "MINSAMPLEVALUE", 281: "MAXSAMPLEVALUE"}
_UNITS = {1: "1 (unitless)", 2: "2 (pixels/inch)", 3: "3 (pixels/cm)"}
_OURS = frozenset(
    {
        *("_FillValue", "missing_value", "fill_value", "nodata", "nodatavals", "is_tiled", "res"),
        *("scale_factor", "add_offset", "scales", "offsets"),  # GDAL scales only by items with these roles
    }
)
_MAX_XML_BYTES = 16 << 20
_NAMED = re.compile(r"(?!-nan)([+-]?)(?:1\.#)?(nan|qnan|snan|ind|inf)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMetadata:
    """Metadata of an image and its bands; ``roles`` has the texts of bands that GDAL gives a meaning, such as scale."""

    tags: Mapping[str, str] = field(default_factory=dict)
    bands: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    roles: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    note: str | None = None

    def texts(self, role: str, /) -> Mapping[int, str]:
        """Return the texts of one role by band."""
        return self.roles.get(role, {})

    def scaling(self) -> tuple[Any, ...]:
        """Return scales and offsets of all bands, of which a variable has one each."""
        return tuple(
            sorted((role, n, parse_number(x)) for role in ("scale", "offset") for n, x in self.texts(role).items())
        )

    def attributes(self, bands: range, /, *, with_tags: bool = True) -> dict[str, Any]:
        """Return the attributes of a variable with some of the bands; ``with_tags`` adds the tags of the image.

        CF has one scale and one offset for a variable. If bands have different ones, `RASTER_DECODING` names them.
        """
        tags = {**(self.tags if with_tags else {}), **self.bands.get(bands[0], {})}
        found = {key: _parsed(text) for key, text in tags.items()}
        found = {key: value for key, value in found.items() if key not in _OURS}
        for name, role, usual in (("scale_factor", "scale", 1.0), ("add_offset", "offset", 0.0)):
            texts, many = self.texts(role), f"{role}s"
            of_each = [parse_number(texts[band]) if band in texts else usual for band in bands]
            if len(set(of_each)) > 1:
                found[many] = np.array(of_each)
                found[RASTER_DECODING] = f"{found.get(RASTER_DECODING, '')} {many}".strip()
            elif of_each[0] != usual:
                found[name] = of_each[0]
        for name, role in (("long_name", "description"), ("units", "unittype")):
            words = [self.texts(role).get(band, "") for band in bands]
            if any(words):
                is_one = len(words) == 1 or (name == "long_name" and len(set(words)) == 1)
                found[name] = words[0] if is_one else words
        return found

    def dataset_attributes(self) -> dict[str, Any]:
        """Return the attributes of the image alone."""
        return {key: _parsed(text) for key, text in self.tags.items()}


def _parsed(text: str) -> Any:
    """Convert a text to a number if possible, and a text in braces to an array of numbers, as rioxarray does."""
    if text.startswith("{") and text.endswith("}"):
        try:
            return np.array([float(part) for part in text.strip("{}").split(",")])
        except ValueError:
            return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_number(text: str, /) -> float:
    """Read a number as GDAL does: a comma is a decimal point, trailing characters are ignored, other text is 0.

    Windows has special names for NaN and infinity.

    >>> parse_number("0,5 m"), parse_number("-1.#INF"), parse_number("none")
    (0.5, -inf, 0.0)
    """
    text = text.lstrip()
    if named := _NAMED.match(text):
        return math.copysign(math.inf, -1 if named[1] == "-" else 1) if named[2].lower() == "inf" else math.nan
    found = _NUMBER.match(text)
    return float(found[0].replace(",", ".")) if found else 0.0


def read_metadata(structure: TiffStructure, directory: Directory, /) -> ImageMetadata:
    """Read the metadata of an image and its bands."""
    tags = _described(structure, directory)
    xml = structure.text(directory, GDAL_METADATA)
    if xml is None:
        return ImageMetadata(tags=tags)
    root = read_xml(xml, _MAX_XML_BYTES)
    if isinstance(root, str):
        return ImageMetadata(tags=tags, note=f"GDAL's metadata (tag 42112), {root}")
    return _from_items(root, tags)


def with_pam(metadata: ImageMetadata, data: bytes, /) -> ImageMetadata:
    """Return metadata with those of GDAL's auxiliary file (PAM), which count before those of the image."""
    note = "GDAL's metadata in the file '.aux.xml' beside it"
    root = read_xml(data, _MAX_XML_BYTES)
    if isinstance(root, str):
        return replace(metadata, note=f"{note}, {root}")
    roles = {role: dict(texts) for role, texts in metadata.roles.items()}
    bands = {n: dict(tags) for n, tags in metadata.bands.items()}
    for band in root.iterfind("PAMRasterBand"):
        number = band.get("band", "")
        if not is_number(number):
            continue
        n = int(number) - 1
        for item in band:
            roles.setdefault(item.tag.lower(), {})[n] = (item.text or "").strip()
        bands.setdefault(n, {}).update(_pam_tags(band))
    place = [tag for tag in ("SRS", "GeoTransform", "GCPList") if root.find(tag) is not None]
    return replace(
        metadata,
        tags={**metadata.tags, **_pam_tags(root)},
        bands={n: tags for n, tags in bands.items() if tags},
        roles=roles,
        note=f"{' and '.join(place)} of {note}: the coordinates are those of the image" if place else metadata.note,
    )


def _pam_tags(element: ElementTree.Element) -> dict[str, str]:
    """Return the metadata of the default domain."""
    items = [item for node in element.iterfind("Metadata") if not node.get("domain") for item in node.iterfind("MDI")]
    return {str(item.get("key")): item.text or "" for item in items}


def _from_items(root: ElementTree.Element, tags: dict[str, str]) -> ImageMetadata:
    bands: dict[int, dict[str, str]] = {}
    roles: dict[str, dict[int, str]] = {}
    for item in root.iterfind("Item") if root.tag == "GDALMetadata" else ():
        name, role, sample = item.get("name"), item.get("role"), item.get("sample")
        if item.get("domain") or name is None:
            continue
        text = html.unescape((item.text or "").lstrip())  # GDAL escapes this text twice
        if not text:
            continue
        if sample is None:
            tags[name] = text
        elif not is_number(sample):
            continue
        elif role is None:
            bands.setdefault(int(sample), {})[name] = text
        elif role in _ROLES:
            roles.setdefault(role, {})[int(sample)] = text
    return ImageMetadata(tags=tags, bands=bands, roles=roles)


def _described(structure: TiffStructure, directory: Directory) -> dict[str, str]:
    found: dict[str, str] = {}
    for code, name in _TEXTS.items():
        text = structure.text(directory, code)
        if text is not None:
            found[f"TIFFTAG_{name}"] = text.lstrip(" \t")
    for code, name in _NUMBERS.items():
        if code in directory.entries:
            found[f"TIFFTAG_{name}"] = str(structure.number(directory, code, 0))
    for code, name in _RATIOS.items():
        values = structure.values(directory, code)
        if values is not None and values.size >= 2 and values[1]:
            found[f"TIFFTAG_{name}"] = f"{np.float32(values[0] / values[1]):.8g}"
    if 296 in directory.entries and (unit := _UNITS.get(structure.number(directory, 296, 2))):
        found["TIFFTAG_RESOLUTIONUNIT"] = unit
    return found


AUTO_CHUNK_BYTES = 4 << 20
"""Maximum bytes of merged strips by default."""

_MAX_CHUNK_REDUCTION = 16
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The axes of an array of images.

    Parameters
    ----------
    pages
        Names and lengths of the axes along which there are several images; empty for a single image.
    band
        Position of the axis of samples: ``"first"`` before rows, ``"last"`` after columns, or ``None``. Samples in
        planes come before rows.
    """

    pages: tuple[tuple[str, int], ...] = ()
    band: str | None = "first"


def image_array(
    images: Sequence[Image],
    axes: Axes,
    /,
    *,
    name: str,
    location: Location,
    attributes: Mapping[str, Any],
    most_bytes: int | None = AUTO_CHUNK_BYTES,
    nodata: Any = None,
) -> ManifestArray:
    """Make the array of images that have the same layout."""
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
        fill=Fill.zero(dtype) if nodata is None else Fill.from_value(nodata, dtype),
    )
    return ManifestArray(
        manifest=manifest,
        grid=grid,
        dtype=dtype,
        name=f"/{name}",
        dimension_names=dims,
        attributes=dict(attributes),
        cf=value_changing(attributes),
    )


def nodata_value(layout: ImageLayout, /) -> Any:
    """Return the value of pixels without data, in the dtype of values; ``None`` if there is none, or it does not fit.

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
        # digits after the decimal point are ignored
        return dtype.type(int(number)) if limits.min <= number <= limits.max else None
    number = parse_number(text)
    with np.errstate(over="ignore"):
        value = dtype.type(number)
    is_too_large = dtype == np.float16 and math.isfinite(number) and not np.isfinite(value)
    return None if is_too_large else value


def _contiguous(layout: ImageLayout, offsets: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the beginning of the first strip of each plane, if all others follow it; shape (images, planes)."""
    rows = np.full(counts.shape[2], layout.rows, np.int64)
    rows[-1] = layout.height - (len(rows) - 1) * layout.rows
    is_whole = bool((counts == (rows * layout.row_size)[:, None]).all()) and bool((offsets > 0).all())
    follows = offsets[:, :, 1:] == offsets[:, :, :-1] + counts[:, :, :-1]
    return offsets[:, :, 0, 0] if is_whole and bool(follows.all()) else None


def _chunk_rows(layout: ImageLayout, most_bytes: int | None) -> int:
    """Choose the rows of a chunk. Rows that divide the image are preferred, since all chunks are then alike."""
    if most_bytes is None:
        return layout.height
    most = min(max(1, most_bytes // layout.row_size), layout.height)
    return equal_chunk_length(layout.height, most // _MAX_CHUNK_REDUCTION, most) or most


def _cut(layout: ImageLayout, base: NDArray[np.int64], rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut contiguous rows into chunks of ``rows`` rows."""
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
    encoding = ChunkEncoding.c_order(dtype, shape, codecs)
    return encoding.with_strides((*[size] * len(axes.pages), *of_image))


def _band_place(layout: ImageLayout, axes: Axes) -> str | None:
    return "first" if layout.is_planar else axes.band


def _codecs(layout: ImageLayout, shape: tuple[int, int, int]) -> tuple[Codec, ...]:
    """Return the codecs of chunks; standard codecs are used if they decode the same."""
    if layout.is_plain:
        return ()
    standard = standard_codec(layout.settings)
    return (layout.settings.codec(shape) if standard is None else standard,)


def _chunk_axes(layout: ImageLayout, rows: int, axes: Axes) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
    """Return names, lengths and chunks of all axes."""
    parts = {
        "band": (layout.samples, layout.depth),
        "y": (layout.height, rows),
        "x": (layout.width, layout.columns),
    }
    order = {"first": ("band", "y", "x"), "last": ("y", "x", "band"), None: ("y", "x")}[_band_place(layout, axes)]
    found = [(name, length, 1) for name, length in axes.pages] + [(name, *parts[name]) for name in order]
    return tuple(x[0] for x in found), tuple(x[1] for x in found), tuple(x[2] for x in found)
