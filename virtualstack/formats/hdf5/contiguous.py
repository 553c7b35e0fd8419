"""Refer to values in C order in one or several byte ranges, as one chunk each, or as smaller chunks on request.

The ranges are in the file itself or in other files (external raw storage).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.formats.hdf5.structures.requests import LostValuesError, NoReferencesError
from virtualstack.location import Location, local_path
from virtualstack.manifests import ENTRY, FIRST, ChunkAxis, ChunkEncoding, ChunkGrid, ChunkManifest, Fill
from virtualstack.manifests.cells import along
from virtualstack.manifests.encoding import c_strides
from virtualstack.sizes import equal_chunk_length

__all__ = ["UNLIMITED", "FileSegment", "contiguous_chunks", "external_segments", "split_shape"]

_MAX_CHUNKS = 1 << 24
"""Largest number of chunks into which a dataset is divided: their entries take 400 MB."""

_CELLS_PER_SEGMENT = 16  # largest number of cells for each segment if segments end within rows
_SMALL_GRID_CELLS = 1 << 12  # number of cells that is always allowed


@dataclass(frozen=True, slots=True)
class FileSegment:
    """A byte range that holds values in C order."""

    location: Location
    offset: int
    length: int


def split_shape(shape: Sequence[int], itemsize: int, chunk_size: int | None, /) -> tuple[int, ...]:
    """Return the shape of chunks that are one byte range each: whole along the last axes, one element along the first.

    A length that divides the axis is preferred to a length up to four times as long. All chunks then have one shape.

    Examples
    --------
    >>> split_shape((365, 180, 360), 4, 1 << 20)
    (1, 180, 360)
    >>> split_shape((24, 1000), 8, 100_000)
    (12, 1000)
    >>> split_shape((3, 1_000_003), 1, 500_000)
    (1, 333335)
    """
    chunk = [max(int(n), 1) for n in shape]
    if chunk_size is None:
        return tuple(chunk)
    inner = math.prod(chunk) * itemsize
    for axis, n in enumerate(chunk):
        if inner <= chunk_size:
            break
        inner //= n
        chunk[axis] = _chunk_length(n, max(chunk_size // max(inner, 1), 1))
    return tuple(chunk)


def _chunk_length(n: int, most: int) -> int:
    """Return the length, at most ``most``, of equal parts of ``n`` elements; otherwise the last part is shorter."""
    if n <= most:
        return n
    return equal_chunk_length(n, -(-most // 4), most) or -(-n // -(-n // most))


def contiguous_chunks(
    segments: Sequence[FileSegment],
    shape: tuple[int, ...],
    stored: np.dtype[Any],
    fill: Fill,
    /,
    *,
    chunk_size: int | None = None,
) -> tuple[ChunkManifest, ChunkGrid]:
    """Return references to values that follow one another in C order.

    Cells end where segments end. If all segments end between rows, each chunk is a separate byte range. Otherwise a
    chunk is a whole segment, and cells show strided parts of it.
    """
    length = math.prod(shape) * stored.itemsize
    if chunk_size is None and segments[0].length >= length:  # the usual case
        return _one_chunk(segments[0], length, shape, stored, fill)
    parts, ends = _clip(segments, length)
    if (ends % stored.itemsize).any():
        at = int((ends % stored.itemsize).argmax())
        raise NoReferencesError(f"'{parts[at].location.url}' ends within an element of {stored.itemsize} bytes")
    ends //= stored.itemsize
    axes = _axes(ends, shape)
    along = _row_axis(axes)
    if along is None:
        return _strided(parts, ends, axes, shape, stored, fill)
    return _ranges(
        parts, ends, _split(axes, along, split_shape(shape, stored.itemsize, chunk_size)), shape, stored, fill
    )


def _one_chunk(
    segment: FileSegment, length: int, shape: tuple[int, ...], stored: np.dtype[Any], fill: Fill
) -> tuple[ChunkManifest, ChunkGrid]:
    entries = np.zeros((1,) * len(shape), ENTRY)
    entries[...] = (FIRST, 0, segment.offset, length)
    encodings = (ChunkEncoding.c_order(stored, shape),)
    manifest = ChunkManifest(entries=entries, fills=(fill,), encodings=encodings, locations=(segment.location,))
    return manifest, ChunkGrid.regular(shape, shape)


def _clip(segments: Sequence[FileSegment], length: int) -> tuple[list[FileSegment], NDArray[np.int64]]:
    """Remove bytes after the values; return the segments, and the end of each segment in the values in bytes."""
    parts, ends, end = [], [], 0
    for segment in segments:
        if segment.length and end < length:
            end = min(end + segment.length, length)
            parts.append(segment)
            ends.append(end)
    return parts, np.array(ends, np.int64)


def _axes(ends: NDArray[np.int64], shape: tuple[int, ...]) -> list[ChunkAxis]:
    """Divide each axis so that no cell has elements of two segments; segments end at the elements ``ends``."""
    inner, rest, axes = math.prod(shape), ends[:-1], []
    n_cells = 1
    for n in shape:
        inner //= n
        index, rest = np.divmod(rest, inner)
        lines = np.unique(np.concatenate([[0, n], index, index[rest > 0] + 1]))
        rest = rest[rest > 0]
        axes.append(ChunkAxis.from_lengths(np.diff(lines)))
        n_cells *= axes[-1].n_cells
    if n_cells > max(_CELLS_PER_SEGMENT * len(ends), _SMALL_GRID_CELLS):
        raise NoReferencesError(
            f"its {len(ends)} external files end within rows: cut there it would have {n_cells} cells, more than "
            f"{_CELLS_PER_SEGMENT} for each file"
        )
    return axes


def _row_axis(axes: Sequence[ChunkAxis]) -> int | None:
    """Return the axis along which chunks of one byte range are divided; ``None`` if cells are not byte ranges."""
    cut = [axis for axis, cells in enumerate(axes) if cells.n_cells > 1]
    along = cut[-1] if cut else 0
    return along if all(cells.n_cells == cells.length for cells in axes[:along]) else None


def _split(axes: list[ChunkAxis], along: int, chunk: tuple[int, ...]) -> list[ChunkAxis]:
    """Divide cells that are byte ranges into smaller cells of at most a given shape."""
    cut = [axis for axis, (n, cells) in enumerate(zip(chunk, axes, strict=True)) if n < cells.length]
    if not cut or cut[-1] < along:
        return axes
    last = cut[-1]
    n_cells = math.prod(cells.length for cells in axes[:last]) * -(-axes[last].length // chunk[last])
    if n_cells > _MAX_CHUNKS:
        raise NoReferencesError(f"it would be cut into {n_cells} chunks, more than {_MAX_CHUNKS}; ask for larger ones")
    pieces = [_pieces(n, chunk[last]) for n in axes[last].lengths().tolist()]
    return [
        *(ChunkAxis.regular(cells.length, 1) for cells in axes[:last]),
        ChunkAxis.from_lengths(np.concatenate(pieces)),
        *axes[last + 1 :],
    ]


def _pieces(n: int, most: int) -> NDArray[np.int64]:
    length = _chunk_length(n, most)
    pieces = np.full(-(-n // length), length, np.int64)
    pieces[-1] = n - length * (len(pieces) - 1)
    return pieces


def _ranges(
    parts: list[FileSegment],
    ends: NDArray[np.int64],
    axes: list[ChunkAxis],
    shape: tuple[int, ...],
    stored: np.dtype[Any],
    fill: Fill,
) -> tuple[ChunkManifest, ChunkGrid]:
    """Return a byte range for each cell; there is one encoding for each length along the divided axis."""
    grid = ChunkGrid(tuple(axes))
    along = max((axis for axis, cells in enumerate(axes) if cells.n_cells > 1), default=0)
    first, which = _places(grid, ends)
    lengths = axes[along].lengths() if axes else np.ones(1, np.int64)
    distinct, rows = np.unique(lengths, return_inverse=True)
    inner = shape[along + 1 :]
    encodings = [ChunkEncoding.c_order(stored, ((1,) * along + (n, *inner))[: len(shape)]) for n in distinct.tolist()]
    lead = (-1,) + (1,) * len(inner) if shape else ()
    return _manifest(
        parts,
        which,
        offsets=_segment_starts(parts)[which] + (first - _firsts(ends)[which]) * stored.itemsize,
        lengths=np.broadcast_to((lengths * math.prod(inner) * stored.itemsize).reshape(lead), grid.shape),
        encodings=encodings,
        codes=np.broadcast_to(rows.reshape(lead), grid.shape),
        starts=None,
        fill=fill,
    ), grid


def _strided(
    parts: list[FileSegment],
    ends: NDArray[np.int64],
    axes: list[ChunkAxis],
    shape: tuple[int, ...],
    stored: np.dtype[Any],
    fill: Fill,
) -> tuple[ChunkManifest, ChunkGrid]:
    """Return each segment as one chunk, of which cells show strided parts."""
    grid = ChunkGrid(tuple(axes))
    first, which = _places(grid, ends)
    firsts = _firsts(ends)
    sizes = ends - firsts
    distinct, rows = np.unique(sizes, return_inverse=True)
    strides = c_strides(shape)
    return _manifest(
        parts,
        which,
        offsets=_segment_starts(parts)[which],
        lengths=sizes[which] * stored.itemsize,
        encodings=[ChunkEncoding(dtype=stored, shape=(n,), codecs=(), strides=strides) for n in distinct.tolist()],
        codes=rows.reshape(-1)[which],
        starts=first - firsts[which],
        fill=fill,
    ), grid


def _places(grid: ChunkGrid, ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return the first element of each cell, counted in C order of the array, and the segment that contains it."""
    first = np.zeros(grid.shape, np.int64)
    for axis, (cells, step) in enumerate(zip(grid.axes, c_strides(grid.array_shape), strict=True)):
        first += along(cells.lines()[:-1] * step, axis, len(grid.axes))
    return first, np.searchsorted(ends, first, "right")


def _firsts(ends: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), ends[:-1]])


def _segment_starts(parts: list[FileSegment]) -> NDArray[np.int64]:
    return np.array([part.offset for part in parts], np.int64)


def _manifest(
    parts: list[FileSegment],
    which: NDArray[np.intp],
    *,
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    encodings: list[ChunkEncoding],
    codes: NDArray[np.intp],
    starts: NDArray[np.int64] | None,
    fill: Fill,
) -> ChunkManifest:
    locations: dict[Location, int] = {}
    numbers = np.array([locations.setdefault(part.location, len(locations) + FIRST) for part in parts])
    return ChunkManifest.from_arrays(
        offsets,
        lengths,
        location=tuple(locations),
        location_codes=numbers[which],
        encoding=encodings,
        encoding_codes=codes,
        starts=starts,
        fill=fill,
    )


UNLIMITED = (1 << 64) - 1
"""Size of a last external file that holds all remaining values (H5F_UNLIMITED)."""

_PREFIX = "HDF5_EXTFILE_PREFIX"


def external_segments(
    files: Iterable[tuple[bytes, int, int]], length: int, url: str, locate: Callable[[str], Location], /
) -> list[FileSegment]:
    """Find the external files of a dataset; this reads their sizes, but no values.

    Only a file at a local path may refer to other files, because the HDF5 library searches for them on the local
    machine.
    """
    main = local_path(url)
    if main is None:
        raise LostValuesError("its values are in external files, which are looked for beside local files only")
    segments, end = [], 0
    for name, offset, size in files:
        if end >= length:
            break
        size = min(size, length - end)
        if not 0 <= offset < 1 << 62:
            raise LostValuesError(f"its values are in external files, one of them from byte {offset} on")
        end += size
        segments.append(FileSegment(_locate(name, main, locate), offset, size))
    if end < length:
        raise LostValuesError(f"its external files hold {end} bytes of {length}")
    for segment in segments:
        n = segment.location.size
        if n is not None and n < segment.offset + segment.length:
            raise NoReferencesError(
                f"its values are in external files, of which '{segment.location.url}' ends at {n} bytes, before the "
                f"values in it do ({segment.offset + segment.length}): the HDF5 library shows zeros there"
            )
    return segments


def _locate(name: bytes, main: Path, locate: Callable[[str], Location]) -> Location:
    try:
        return locate(str(_path(name, main)))
    except SourceNotFoundError as error:
        raise LostValuesError(
            f"its values are in external files, of which '{os.fsdecode(name)}' does not exist; relative names begin at "
            f"the working directory, or at {_PREFIX}"
        ) from error
    except StorageError as error:
        raise LostValuesError(f"its values are in external files: {error}") from error


def _path(name: bytes, main: Path) -> Path:
    """Return the path of an external file, relative to the working directory or to a prefix (H5Pset_efile_prefix)."""
    prefix = os.environ.get(_PREFIX, "")
    if prefix.startswith("${ORIGIN}"):
        prefix = f"{main.parent}{prefix.removeprefix('${ORIGIN}')}"
    return Path(prefix, os.fsdecode(name)).absolute()
