"""The image that the tags of a directory describe, and the positions of its strips or tiles."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.tiff.settings import BY_STREAM, Settings
from virtualstack.errors import MalformedFileError
from virtualstack.formats.tiff.structure import Directory, TiffStructure

_OFFSETS, _COUNTS = (324, 273, 513), (325, 279, 514)  # of tiles, strips, and one JPEG file
_JPEG_OFFSET = 513
_OLD_JPEG, _JPEG = 6, 7
_YCBCR = 6
_MAX_SEGMENTS = 1 << 26
_MAX_TILE_PIXELS = 1 << 24

# Tags that describe how an image is laid out and stored. Images with the same values have the same layout.
_LAYOUT = frozenset(
    {256, 257, 258, 259, 262, 266, 277, 278, 284, 292, 317, 322, 323, 338, 339, 347, 530, 32997, 32998, 42113, 50674}
)


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageLayout:
    """How an image is laid out and stored."""

    height: int
    width: int
    samples: int
    rows: int
    columns: int
    is_tiled: bool
    is_planar: bool
    settings: Settings
    nodata: str | None
    obstacle: str | None

    @property
    def n_planes(self) -> int:
        """Number of planes."""
        return self.samples if self.is_planar else 1

    @property
    def depth(self) -> int:
        """Number of interleaved samples."""
        return 1 if self.is_planar else self.samples

    @cached_property
    def grid(self) -> tuple[int, int, int]:
        """Planes, and strips or tiles down and across."""
        return self.n_planes, -(-self.height // self.rows), -(-self.width // self.columns)

    @cached_property
    def n_segments(self) -> int:
        """Number of strips or tiles."""
        planes, down, across = self.grid
        return planes * down * across

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of values; one byte if numpy has no such dtype."""
        return self.settings.dtype or np.dtype(np.uint8)

    @property
    def is_plain(self) -> bool:
        """True if stored bytes are the values without decoding."""
        own = self.settings
        is_whole = not own.is_packed and self.obstacle is None
        return is_whole and own.compression == 1 and own.predictor == 1 and own.fill_order == 1

    @cached_property
    def row_size(self) -> int:
        """Bytes of a row of a strip or tile, uncompressed."""
        return -(-self.columns * self.depth * self.settings.bits // 8)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each strip or tile, uncompressed."""
        planes, down, across = self.grid
        rows = np.full(down, self.rows, np.int64)
        if not self.is_tiled:
            rows[-1] = self.height - (down - 1) * self.rows
        return np.tile(np.repeat(rows * self.row_size, across), planes)


@dataclass(frozen=True, eq=False, slots=True)
class Image:
    """One image of a file.

    Parameters
    ----------
    directory
        Directory that describes the image.
    layout
        Layout of the image.
    offsets, counts
        Offsets and byte counts of its strips or tiles: plane by plane, row by row.
    """

    directory: Directory
    layout: ImageLayout
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def name(self) -> str:
        """Name of the image in messages."""
        return f"image {self.directory.number}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Level:
    """Images of one resolution."""

    images: tuple[Image | None, ...]
    masks: tuple[Image, ...] = ()

    @property
    def image(self) -> Image:
        """The first image that is not missing."""
        return next(image for image in self.images if image is not None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Series:
    """Images that form one array, at one or several resolutions."""

    levels: tuple[Level, ...]
    pages: tuple[tuple[str, int], ...] = ()
    is_stack: bool = False
    coordinates: Mapping[str, tuple[Any, Mapping[str, Any]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Images:
    """Makes images from directories; images that are alike share their layout.

    Parameters
    ----------
    structure
        Structure of the file.
    """

    def __init__(self, structure: TiffStructure) -> None:
        self.structure = structure
        self._layouts: dict[tuple[Any, ...], ImageLayout] = {}
        self._n_segments = 0

    def image(self, directory: Directory, /) -> Image:
        """Return the image that a directory describes."""
        layout = self.layout(directory)
        self._n_segments += layout.n_segments
        # each of them has an offset of at least two bytes
        if self._n_segments > min(_MAX_SEGMENTS, self.structure.size // 2):
            raise self._malformed(directory, f"there are {self._n_segments} strips and tiles in so few bytes")
        if layout.obstacle is not None:
            none = np.zeros(0, np.int64)
            return Image(directory, layout, none, none)
        return Image(directory, layout, *self._segments(directory, layout))

    def layout(self, directory: Directory, /) -> ImageLayout:
        """Return the layout of an image."""
        key = (*self.structure.key(directory, _LAYOUT), 273 in directory.entries)
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = self._read_layout(directory)
        return found

    def _malformed(self, directory: Directory, what: str) -> MalformedFileError:
        return self.structure.malformed(f"of image {directory.number}, {what}", directory.offset)

    def _read_layout(self, directory: Directory) -> ImageLayout:
        def number(code: int, default: int) -> int:
            return self.structure.number(directory, code, default)

        height, width, samples = number(257, 0), number(256, 0), number(277, 1)
        if not 0 < height < 1 << 32 or not 0 < width < 1 << 32 or not 0 < samples < 1 << 16:
            raise self._malformed(directory, f"the size is {height} x {width} x {samples}")
        is_tiled = 322 in directory.entries
        if is_tiled:
            rows, columns = number(323, 0), number(322, 0)
        else:
            rows, columns = min(number(278, height), height), width
            if 278 in directory.entries and directory.entries[278][1] > 1:
                rows = height
        if not 0 < rows < 1 << 31 or not 0 < columns < 1 << 31:
            raise self._malformed(directory, f"a strip or tile is of {rows} x {columns}")
        if is_tiled and rows * columns > max(_MAX_TILE_PIXELS, 4 * height * width):
            raise self._malformed(directory, f"a tile is of {rows} x {columns}, the image of {height} x {width}")
        kind, bits, obstacle = self._samples(directory, samples)
        compression = number(259, 1)
        if compression == _OLD_JPEG and _JPEG_OFFSET in directory.entries and 273 not in directory.entries:
            compression = _JPEG  # one JPEG file
        planar = number(284, 1)
        tables = directory.entries.get(347) and self.structure.raw(directory, 347)
        edge = (height % rows or rows, width % columns or columns)
        settings = Settings(
            compression=compression,
            kind=kind,
            bits=bits,
            big=self.structure.order == ">",
            predictor=number(317, 1) if compression in BY_STREAM else 1,
            fill_order=number(266, 1),
            photometric=number(262, 0),
            planar=planar if samples > 1 else 1,
            t4=number(292, 0),
            extra=directory.entries[338][1] if 338 in directory.entries else 0,
            tables=base64.b64encode(tables).decode() if tables else None,
            edge=edge if is_tiled and edge != (rows, columns) else None,
        )
        return ImageLayout(
            height=height,
            width=width,
            samples=samples,
            rows=rows,
            columns=columns,
            is_tiled=is_tiled,
            is_planar=planar == 2 and samples > 1,
            settings=settings,
            nodata=self.structure.text(directory, 42113),
            obstacle=obstacle or settings.obstacle() or self._obstacle(directory, settings, planar),
        )

    def _samples(self, directory: Directory, samples: int) -> tuple[int, int, str | None]:
        """Return sample format and bits, which must be the same for all samples."""
        found = []
        for code, what in ((339, "sample formats"), (258, "bits a sample")):
            values = self.structure.values(directory, code)
            distinct = [1] if values is None else list(dict.fromkeys(values[:samples].tolist()))
            if len(distinct) > 1:
                return 1, 8, f"{what} {distinct}, which differ"
            if not distinct or not isinstance(distinct[0], int):
                raise self._malformed(directory, f"{what} are not a whole number")
            found.append(distinct[0])
        return found[0], found[1], None

    def _obstacle(self, directory: Directory, settings: Settings, planar: int) -> str | None:
        number = self.structure.number
        if planar not in (1, 2):
            return f"planar configuration {planar} (tag 284), which is not known"
        if number(directory, 32997, 1) > 1 or number(directory, 32998, 1) > 1:
            return "voxels: an image depth (tag 32997) of more than 1"
        subsampling = self.structure.values(directory, 530)
        is_whole = subsampling is not None and subsampling.tolist() == [1, 1]
        if settings.photometric == _YCBCR and not is_whole:
            if settings.compression in BY_STREAM:
                return "chroma subsampling (tag 530) without JPEG"
            if settings.planar == 2:
                return "chroma subsampling (tag 530) in planes"
        return None

    def _segments(self, directory: Directory, layout: ImageLayout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        # the usual case for stacks, which have thousands of images
        if layout.n_segments == 1 and layout.settings.compression != 1:
            codes = (324, 325) if layout.is_tiled else (273, 279)
            offset, count = (self.structure.integer(directory, code) for code in codes)
            if offset is not None and count is not None and offset + count <= self.structure.size:
                return np.array([offset]), np.array([count])
        n = layout.n_segments
        offsets = self._table(directory, _OFFSETS, n, "an offset")
        expected = layout.sizes if layout.settings.compression == 1 else None
        usual = None if expected is None else np.where(offsets > 0, expected, 0)
        counts = self._table(directory, _COUNTS, n, "a length", usual)
        if expected is not None:
            # bytes after the pixels are padding; writers store a wrong length for a single strip
            counts = np.minimum(counts, expected) if n > 1 else np.where(offsets > 0, expected, 0)
        self._check_inside(directory, offsets, counts)
        return offsets, counts

    def _table(
        self, directory: Directory, codes: tuple[int, ...], n: int, what: str, usual: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Return the values of the first tag of some that the directory has, one for each strip or tile."""
        code = next((x for x in codes if x in directory.entries), None)
        values = usual if code is None else self.structure.values(directory, code)
        if values is not None and values.dtype.kind not in "iu":
            raise self._malformed(directory, f"tag {code} has no offsets or lengths")
        if values is None or len(values) < n:
            found = 0 if values is None else len(values)
            raise self._malformed(directory, f"only {found} of {n} strips or tiles have {what}")
        return values[:n].astype(np.int64)  # 2^63 and more become negative, and are refused

    def _check_inside(self, directory: Directory, offsets: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        bad = (offsets < 0) | (counts < 0) | ((counts > 0) & (offsets > self.structure.size - counts) & (offsets > 0))
        if bad.any():
            first = int(bad.argmax())
            raise self._malformed(
                directory,
                f"strip or tile {first} has {counts[first]} bytes from byte {offsets[first]} of "
                f"{self.structure.size} on",
            )
