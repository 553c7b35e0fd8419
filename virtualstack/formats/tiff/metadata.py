"""Attributes of an image, as rioxarray names them: those of GDAL, and the tags that describe."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import numpy as np

from virtualstack.formats.tiff.structure import Directory, TiffStructure

__all__ = ["GDAL_METADATA", "ImageMetadata", "parse_number", "read_metadata"]

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
_RATIOS = {282: "XRESOLUTION", 283: "YRESOLUTION"}
_NUMBERS = {280: "MINSAMPLEVALUE", 281: "MAXSAMPLEVALUE"}
_UNITS = {1: "1 (unitless)", 2: "2 (pixels/inch)", 3: "3 (pixels/cm)"}
_OURS = frozenset(
    {
        *("_FillValue", "missing_value", "fill_value", "nodata", "nodatavals", "is_tiled", "res"),
        *("scale_factor", "add_offset", "scales", "offsets"),  # GDAL scales by items of those roles alone
    }
)
_MAX_XML_CHARACTERS = 16 << 20
_NAMED = re.compile(r"(?!-nan)([+-]?)(?:1\.#)?(nan|qnan|snan|ind|inf)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMetadata:
    """What describes an image and its bands.

    Parameters
    ----------
    tags
        Of the image, as text.
    bands
        Tags of each band that has some, by number from 0.
    scales, offsets, names, units
        Of bands, by number from 0; what is not there is 1, 0 or empty.
    note
        Why GDAL's metadata is left out.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    bands: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    scales: Mapping[int, float] = field(default_factory=dict)
    offsets: Mapping[int, float] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    units: Mapping[int, str] = field(default_factory=dict)
    note: str | None = None

    def attributes(self, bands: range, /, *, with_tags: bool = True) -> dict[str, Any]:
        """Give the attributes of a variable with some of the bands; without those of the image where it has them."""
        tags = {**(self.tags if with_tags else {}), **self.bands.get(bands[0], {})}
        found = {key: _parsed(text) for key, text in tags.items()}
        found = {key: value for key, value in found.items() if key not in _OURS}
        for name, many, values, usual in (
            ("scale_factor", "scales", self.scales, 1.0),
            ("add_offset", "offsets", self.offsets, 0.0),
        ):
            of_each = [values.get(band, usual) for band in bands]
            if len(set(of_each)) > 1:
                found[many] = np.array(of_each)
            elif of_each[0] != usual:
                found[name] = of_each[0]
        for name, texts in (("long_name", self.names), ("units", self.units)):
            words = [texts.get(band, "") for band in bands]
            if any(words):
                is_one = len(words) == 1 or (name == "long_name" and len(set(words)) == 1)
                found[name] = words[0] if is_one else words
        return found

    def dataset_attributes(self) -> dict[str, Any]:
        """Give the attributes of the image alone."""
        return {key: _parsed(text) for key, text in self.tags.items()}


def _parsed(text: str) -> Any:
    """Make a number of a text that is one, and an array of numbers in braces, as rioxarray does."""
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
    """Read a number as GDAL does: a comma is a point, what follows does not count, and what is no number is 0.

    Windows has names of its own for what is not finite.

    >>> parse_number("0,5 m"), parse_number("-1.#INF"), parse_number("none")
    (0.5, -inf, 0.0)
    """
    text = text.lstrip()
    if named := _NAMED.match(text):
        return math.copysign(math.inf, -1 if named[1] == "-" else 1) if named[2].lower() == "inf" else math.nan
    found = _NUMBER.match(text)
    return float(found[0].replace(",", ".")) if found else 0.0


def read_metadata(structure: TiffStructure, directory: Directory, /) -> ImageMetadata:
    """Read what describes an image."""
    tags = _described(structure, directory)
    xml = structure.text(directory, GDAL_METADATA)
    if xml is None:
        return ImageMetadata(tags=tags)
    # an entity may stand for more text than there is memory; GDAL writes none
    if "<!" in xml.replace("<!--", "") or len(xml) > _MAX_XML_CHARACTERS:
        return ImageMetadata(tags=tags, note="GDAL's metadata (tag 42112), which declares entities or is very long")
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        return ImageMetadata(tags=tags, note=f"GDAL's metadata (tag 42112), which is no XML: {error}")
    return _from_items(root, tags)


def _from_items(root: ElementTree.Element, tags: dict[str, str]) -> ImageMetadata:
    bands: dict[int, dict[str, str]] = {}
    columns: dict[str, dict[int, Any]] = {"scale": {}, "offset": {}, "description": {}, "unittype": {}}
    for item in root.iterfind("Item") if root.tag == "GDALMetadata" else ():
        name, role, sample = item.get("name"), item.get("role"), item.get("sample")
        if item.get("domain") or name is None:
            continue
        text = html.unescape((item.text or "").lstrip())  # which GDAL escapes twice
        if not text:
            continue
        if sample is None:
            tags[name] = text
        elif not sample.isdigit():
            continue
        elif role in ("scale", "offset"):
            columns[role][int(sample)] = parse_number(text)
        elif role in columns:
            columns[role][int(sample)] = text
        elif role is None:
            bands.setdefault(int(sample), {})[name] = text
    return ImageMetadata(
        tags=tags,
        bands=bands,
        scales=columns["scale"],
        offsets=columns["offset"],
        names=columns["description"],
        units=columns["unittype"],
    )


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
