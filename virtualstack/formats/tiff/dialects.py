"""Files whose images have more axes than rows and columns: OME-TIFF, ImageJ and tifffile's own, read by tifffile."""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from virtualstack.errors import MissingDependencyError, Remedy, UnsupportedFeatureError, VirtualStackError, advised
from virtualstack.formats.tiff.image import Image, Images, Level, Series
from virtualstack.formats.tiff.structure import Directory, TiffStructure, is_number, read_xml
from virtualstack.storage import Source, SourceFile

type Dialect = str

_DESCRIPTION = 270
_UNKNOWN = {34412: "LSM", 33628: "MetaMorph STK", 65420: "NDPI", 34361: "FluoView"}
_PAGE_AXES = frozenset("YXS")
_MAX_PLANES, _MAX_CELLS, _MAX_XML_BYTES = 1 << 20, 1 << 26, 64 << 20
_RAISED_BY_TIFFFILE = (ValueError, LookupError, TypeError, RuntimeError, ArithmeticError, struct.error)
"""Errors that tifffile raises for files that it cannot interpret."""


def detect_dialect(structure: TiffStructure, directories: Sequence[Directory], /) -> Dialect | None:
    """Return the dialect that the first directory shows: whether images have axes that plain TIFF lacks."""
    first = directories[0]
    for code, name in _UNKNOWN.items():
        if code in first.entries:
            raise UnsupportedFeatureError(
                f"'{structure.url}' is {name} (tag {code}), whose planes do not all have directories as those of TIFF "
                "do",
                Remedy("write it as OME-TIFF, with tifffile or Bio-Formats"),
                url=structure.url,
                feature=name,
            )
    text = structure.text(first, _DESCRIPTION) or ""
    if text.rstrip()[-10:].endswith("OME>"):
        return "ome"
    if text.startswith("ImageJ="):
        return "imagej"
    return "shaped" if text.startswith(('{"shape":', "shape=(")) else None


def dialect_note(dialect: Dialect, structure: TiffStructure, directories: Sequence[Directory], /) -> str | None:
    """Return a note if other files belong to the images; ``None`` if the file is complete on its own."""
    root = _xml(structure.text(directories[0], _DESCRIPTION) or "") if dialect == "ome" else None
    if root is None:
        return None
    elsewhere = root.find("{*}BinaryOnly")
    if elsewhere is not None:
        return f"its OME-XML is another file, {elsewhere.get('MetadataFile')!r}. It is not read, so axes may be unnamed"
    files = {x.text for x in root.iterfind(".//{*}TiffData/{*}UUID")} | ({root.get("UUID")} - {None})
    if len(files) < 2:
        return None
    return advised(
        "its OME-XML also describes planes in other files; only those of this file are here, one after another",
        Remedy("join the files along axes of your own, with", "open_virtual_mfdataset", new_dim=...),
    )


def read_dialect_series(
    dialect: Dialect, structure: TiffStructure, images: Images, source: Source, directories: Sequence[Directory], /
) -> list[Series] | None:
    """Find the series of a file as tifffile does; return ``None`` if plain TIFF describes the same series."""
    try:
        tifffile: Any = importlib.import_module("tifffile")
    except ImportError as error:
        raise MissingDependencyError("reading the axes of a TIFF file", extra="tiff", url=structure.url) from error
    known = {directory.offset: directory for directory in directories}
    ome = _Ome.from_xml(structure.text(directories[0], _DESCRIPTION) or "") if dialect == "ome" else None
    if dialect == "ome" and (ome is None or ome.n_planes > _MAX_PLANES):
        raise UnsupportedFeatureError(
            f"'{structure.url}': its OME-XML cannot be read, or describes more than {_MAX_PLANES} planes. Write it "
            "again",
            url=structure.url,
            feature=dialect,
        )
    try:
        found = [_series(x, n, structure, images, known, ome) for n, x in enumerate(_tifffile_series(tifffile, source))]
        whole = [x for x in found if x is not None]
        is_less = len(whole) < len(found)
        if is_less and any(_is_one_directory(level.images) for x in whole for level in x.levels):
            raise _AxesError("the axes of some series are not clear, or some of their images have no directories")
    except _AxesError as error:
        raise UnsupportedFeatureError(
            f"'{structure.url}': tifffile cannot find the axes of its images: {error}",
            Remedy("write it again"),
            url=structure.url,
            feature=dialect,
        ) from error
    if is_less or not (dialect == "ome" or any(x.pages for x in whole)):
        return None
    return whole


class _AxesError(Exception):
    """The axes of images are ambiguous; the message is half a sentence."""


@dataclass(frozen=True, eq=False, kw_only=True)
class _TifffileLevel:
    """Images of one resolution as tifffile describes them."""

    axes: str
    shape: tuple[int, ...]
    pages: tuple[tuple[int, int] | None, ...]
    dataoffset: int | None


def _tifffile_series(tifffile: Any, source: Source) -> list[list[_TifffileLevel]]:
    """Read the series of a file by tifffile, without series that have no elements."""
    try:
        with _silenced(), tifffile.TiffFile(SourceFile(source), _multifile=False) as file:
            return [
                [
                    _TifffileLevel(
                        axes=level.axes,
                        shape=tuple(level.shape),
                        pages=tuple(None if page is None else (page.offset, page.index) for page in level.pages),
                        dataoffset=None if level.dataoffset is None else int(level.dataoffset),
                    )
                    for level in series.levels
                ]
                for series in file.series
                if math.prod(series.shape)
            ]
    except VirtualStackError:
        raise
    except _RAISED_BY_TIFFFILE as error:
        raise _AxesError(str(error)) from error


def _is_one_directory(images: Sequence[Image | None]) -> bool:
    there = [id(image.directory) for image in images if image is not None]
    return len(set(there)) < len(there)


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Suppress log messages of tifffile: all that matters is checked here."""
    logger = logging.getLogger("tifffile")
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was


def _series(
    series: Sequence[_TifffileLevel],
    number: int,
    structure: TiffStructure,
    images: Images,
    known: dict[int, Directory],
    ome: _Ome | None,
) -> Series | None:
    levels = []
    pages: tuple[tuple[str, int], ...] = ()
    for i, level in enumerate(series):
        own = _images(level, structure, images, known)
        if own is None:
            return None
        if not i:
            pages = tuple(
                (name.lower(), n) for name, n in zip(level.axes, level.shape, strict=True) if name not in _PAGE_AXES
            )
        if math.prod(n for _, n in pages) != len(own):
            return None
        layout = next((image.layout for image in own if image is not None), None)
        if layout is None or len(own) * layout.n_segments > _MAX_CELLS:
            return None
        if any(image is not None and image.layout is not layout for image in own):
            return None
        levels.append(own)
    if ome is not None and number < len(ome.pixels):
        return ome.describe(number, pages, levels)
    return Series(levels=_levels(levels), pages=pages, is_stack=True)


def _levels(levels: Iterable[Sequence[Image | None]]) -> tuple[Level, ...]:
    return tuple(Level(images=tuple(images)) for images in levels)


def _images(
    level: _TifffileLevel, structure: TiffStructure, images: Images, known: dict[int, Directory]
) -> tuple[Image | None, ...] | None:
    """Return the images of this package for tifffile's pages."""
    found: list[Image | None] = []
    n = math.prod(x for name, x in zip(level.axes, level.shape, strict=True) if name not in _PAGE_AXES)
    for page in level.pages:
        if page is None:
            found.append(None)
            continue
        offset, number = page
        if offset not in known:
            known[offset] = structure.directory(offset, number)
        found.append(images.image(known[offset]))
    if len(found) == n:
        return tuple(found)
    if len(found) == 1 and found[0] is not None and level.dataoffset is not None:
        layout = found[0].layout
        size = layout.height * layout.width * layout.samples
        total = math.prod(level.shape)
        if total == size:  # samples are an axis under another name: plain TIFF describes this fully
            return None
        if total != n * size:
            raise _AxesError(f"{total} samples along {level.axes} follow one image of {size}, which has some of these")
        return _planes(found[0], level.dataoffset, n, structure)
    return None


def _planes(image: Image, begin: int, n: int, structure: TiffStructure) -> tuple[Image, ...] | None:
    """Return images that follow the first one and have no directories."""
    layout = image.layout
    if not layout.is_plain:
        return None
    size = int(image.counts.sum())
    if size != layout.n_planes * layout.height * layout.row_size:
        return None
    if begin + n * size > structure.size:
        raise structure.malformed(f"{n} images of {size} bytes begin at byte {begin} of {structure.size}", begin)
    relative = np.cumsum(image.counts) - image.counts
    return tuple(Image(image.directory, layout, begin + i * size + relative, image.counts) for i in range(n))


@dataclass(frozen=True, eq=False)
class _Ome:
    """Axes and images that OME-XML describes."""

    pixels: tuple[tuple[Mapping[str, str], tuple[str, ...]], ...]

    @classmethod
    def from_xml(cls, text: str) -> _Ome | None:
        root = _xml(text)
        if root is None:
            return None
        found = []
        for image in root.iterfind(".//{*}Image"):
            pixels = image.find("{*}Pixels")
            if pixels is not None:
                names = tuple(channel.get("Name") or "" for channel in pixels.iterfind("{*}Channel"))
                found.append((dict(pixels.attrib), names))
        return cls(tuple(found))

    @property
    def n_planes(self) -> int:
        """Number of planes of all images."""
        sizes = [[pixels.get(f"Size{name}", "1") for name in "TCZ"] for pixels, _ in self.pixels]
        return sum(math.prod(int(x) if is_number(x) else _MAX_PLANES + 1 for x in row) for row in sizes)

    def describe(
        self, number: int, pages: tuple[tuple[str, int], ...], levels: Sequence[Sequence[Image | None]]
    ) -> Series:
        """Return a series with axes in the order t, c, z, names of channels and physical sizes."""
        pixels, names = self.pixels[number]
        layout = next(x for x in levels[0] if x is not None).layout
        own = dict(pages)
        if own.keys() <= set("tcz"):
            there = [name for name in "tcz" if name in own]
            order = [list(own).index(name) for name in there]
            turned = np.arange(len(levels[0])).reshape(tuple(own.values())).transpose(order).reshape(-1).tolist()
            levels = [[images[i] for i in turned] for images in levels]
            pages = tuple((name, own[name]) for name in there)
        coordinates: dict[str, tuple[Any, Mapping[str, Any]]] = {}
        lengths = {**dict(pages), "y": layout.height, "x": layout.width}
        for name in ("t", "z", "y", "x"):
            key = "TimeIncrement" if name == "t" else f"PhysicalSize{name.upper()}"
            step = _positive(pixels.get(key))
            if step is not None and name in lengths:
                unit = pixels.get(f"{key}Unit", "s" if name == "t" else "µm")
                coordinates[name] = (np.arange(lengths[name]) * step, {"unit": unit})
        if len(names) == lengths.get("c", 1) and all(names):
            texts = np.array(names, np.dtypes.StringDType())
            coordinates["c"] = (texts if "c" in lengths else texts.reshape(()), {})
        return Series(levels=_levels(levels), pages=pages, is_stack=True, coordinates=coordinates)


def _xml(text: str) -> ElementTree.Element | None:
    found = read_xml(text.encode(), _MAX_XML_BYTES)
    return None if isinstance(found, str) else found


def _positive(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None
