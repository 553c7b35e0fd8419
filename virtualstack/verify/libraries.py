"""Read sources by the libraries of their formats (xarray, eccodes, tifffile), and compare values."""

from __future__ import annotations

import importlib
import json
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions
from xarray.backends import (
    BackendEntrypoint,
    H5netcdfBackendEntrypoint,
    NetCDF4BackendEntrypoint,
    ScipyBackendEntrypoint,
    ZarrBackendEntrypoint,
)
from zarr.storage import ZipStore

from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import ChildDiedError, run_in_child
from virtualstack.errors import MalformedFileError, MissingDependencyError, ReaderError, UnsupportedFeatureError
from virtualstack.formats.hdf5.library import check_alone
from virtualstack.location import local_path
from virtualstack.manifests import ChunkEncoding, ManifestArray
from virtualstack.storage import Source, SourceFile, Storage

type ChunkDecoder = Callable[[ChunkEncoding, int, int], NDArray[Any]]
"""A function of encoding, offset and length that returns the decoded chunk, in the order of its encoding."""

_CLASSIC = b"CDF\1", b"CDF\2", b"CDF\5"  # with any other beginning the libraries look for HDF5
_GRIB = b"GRIB"
_ZIP = b"PK\3\4"
_TIFF = b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"
_MAX_PAGES = 10_000
_LERC = 34887  # TIFF compression
_JPEG = 6, 7, 33007, 34892  # TIFF compressions
_MAX_SEGMENT_BYTES = 1 << 29


# -- netCDF and HDF5 ---------------------------------------------------------------------------------------


def require_library(url: str, /) -> None:
    """Raise `MissingDependencyError` if no other library than virtualstack is installed that can read a file."""
    if not find_spec("h5netcdf") and not (local_path(url) is not None and find_spec("netCDF4")):
        raise MissingDependencyError(f"reading '{url}' independently", extra="verify", url=url)


@contextmanager
def open_independently(
    url: str,
    group: str | None,
    storage: Storage,
    /,
    *,
    concat_characters: bool = True,
    decode_times: bool = True,
    is_scanned: bool = False,
) -> Iterator[xr.Dataset]:
    """Open a group of a file by another library than virtualstack, through xarray."""
    source = storage.source(url)
    path = local_path(url)
    head = source.read(0, min(4, source.size))
    engine, options = _engine_for(url, head)
    target: Any = SourceFile(source) if path is None else str(path)
    if head == _ZIP:
        target = ZipStore(target, mode="r")
    elif head not in _CLASSIC:
        check_alone(source, storage, only_links=is_scanned)
    try:
        # An engine given by its class, not by name: xarray then loads no other plugin.
        dataset = xr.open_dataset(
            target, engine=engine, concat_characters=concat_characters, decode_times=decode_times, **options(group)
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        name = engine.__name__.removesuffix("BackendEntrypoint")
        which = "" if head == _ZIP else "; netCDF and HDF5 files can be compared"
        raise MalformedFileError(
            f"'{url}' cannot be opened by xarray's {name} engine: {error}{which}",
            url=url,
        ) from error
    with dataset:
        yield dataset


def _engine_for(url: str, head: bytes) -> tuple[type[BackendEntrypoint], Callable[[str | None], dict[str, Any]]]:
    """Return the engine for a file that begins with some bytes, and a function from a group to the engine's options."""
    is_local = local_path(url) is not None
    if head == _ZIP:
        if not is_local:
            raise _not_compared(
                f"'{url}' is a zip archive that is not a local file, which zarr cannot open here. Download it first"
            )
        return ZarrBackendEntrypoint, lambda group: {"group": group, "consolidated": False}
    if head.startswith(b"CDF"):
        if is_local and find_spec("netCDF4"):
            return NetCDF4BackendEntrypoint, lambda group: {"group": group}
        if find_spec("scipy"):
            return ScipyBackendEntrypoint, lambda group: {}
    require_library(url)
    if not find_spec("h5netcdf"):
        return NetCDF4BackendEntrypoint, lambda group: {"group": group}
    if find_spec("hdf5plugin"):
        importlib.import_module("hdf5plugin")  # registers filters that HDF5 itself does not have
    return H5netcdfBackendEntrypoint, lambda group: {"group": group, "phony_dims": "sort"}


# -- GRIB and TIFF -------------------------------------------------------------------------------------------


def decoder_for(source: Source, /) -> ChunkDecoder | None:
    """Return the decoder of the chunks of a GRIB or TIFF file; ``None`` for another format."""
    head = source.read(0, min(4, source.size))
    if head in _TIFF:
        return _Tiff(source, _imported("tifffile", "tiff"))
    if head == _GRIB:
        _imported("eccodes", "grib")
        return _Grib(source)
    return None


def as_opened(array: ManifestArray, values: NDArray[Any], /) -> xr.Variable:
    """Decode the values of a source as xarray does, except for times."""
    names = tuple(f"axis{i}" for i in range(values.ndim))
    packed = xr.Variable(names, values, {**array.attributes, **array.cf})
    return conventions.decode_cf_variable(
        str(array.name), packed, concat_characters=False, decode_times=False, stack_char_dim=False
    )


def _imported(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # the Python package without its C library
        raise MissingDependencyError("comparing chunks with their sources", extra=extra) from error


def _not_compared(why: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(why, feature="comparison")


@dataclass(frozen=True)
class _Grib:
    """A decoder of messages with one field."""

    source: Source

    def __call__(self, encoding: ChunkEncoding, offset: int, length: int, /) -> NDArray[Any]:
        (codec,) = encoding.codecs
        key = json.loads(codec.configuration).get("key", "values")
        head = self.source.read(offset, min(16, self.source.size - offset))
        if head[:4] != _GRIB:
            raise _not_compared("its bytes do not begin with a GRIB message")
        whole = int.from_bytes(head[4:7] if head[7] == 1 else head[8:16], "big")
        if not len(head) < whole <= self.source.size - offset:
            raise _not_compared("the length of its GRIB message contradicts the file")
        message = self.source.read(offset, whole)
        if key == "values" and (whole != length or _n_fields(message) > 1):
            raise _not_compared("its message has several fields, and eccodes returns only the first")
        try:
            values: NDArray[Any] = run_in_child("virtualstack.codecs.grib.child:plain_values", message, key)
        except (LibraryError, ChildDiedError) as error:
            raise _not_compared(f"eccodes cannot read it: {error}") from error
        return values.reshape(encoding.shape)


def _n_fields(message: bytes) -> int:
    """Return the number of fields of a message: its sections 7 in GRIB 2, and 0 for GRIB 1."""
    n, at = 0, 16
    while message[7] == 2 and at + 5 <= len(message) and (length := int.from_bytes(message[at : at + 4], "big")) >= 5:
        n, at = n + (message[at + 4] == 7), at + length
    return n


class _Tiff:
    """A decoder of strips and tiles."""

    def __init__(self, source: Source, library: Any) -> None:
        self._source = source
        self._library = library

    def __call__(self, encoding: ChunkEncoding, offset: int, length: int, /) -> NDArray[Any]:
        for page, offsets in self._pages:
            (found,) = np.nonzero(offsets == offset)
            is_plain = page.is_contiguous and page.compression == 1
            if len(found) and not is_plain:
                return self._segment(page, int(found[0]), length, encoding.shape)
            if is_plain and offsets[0] <= offset <= offsets[0] + page.nbytes - length:
                file = page.parent.filehandle
                file.seek(offset)
                dtype = page.dtype.newbyteorder(page.parent.byteorder)
                return np.asarray(file.read_array(dtype, length // dtype.itemsize)).reshape(encoding.shape)
        raise _not_compared("tifffile finds no strip or tile there")

    @cached_property
    def _pages(self) -> list[tuple[Any, NDArray[np.int64]]]:
        """All images of the file, each with the offsets of its strips and tiles."""
        file = self._library.TiffFile(SourceFile(self._source))
        return [(page, np.array(page.dataoffsets, np.int64)) for page in self._below(file.pages)]

    def _below(self, pages: Any) -> Iterator[Any]:
        if len(pages) > _MAX_PAGES:
            raise _not_compared(f"its file has {len(pages)} images; at most {_MAX_PAGES} are searched")
        for i in range(len(pages)):
            page = pages.get(i, aspage=True)
            if page.dtype is not None and page.dataoffsets:
                yield page
            if page.subifds:
                yield from self._below(page.pages)

    def _segment(self, page: Any, number: int, length: int, shape: tuple[int, ...]) -> NDArray[Any]:
        if page.compression == _LERC:
            raise _not_compared("tifffile ignores masks of LERC")
        if math.prod(page.chunks) * page.dtype.itemsize > _MAX_SEGMENT_BYTES:
            raise _not_compared(
                f"its strips or tiles have {math.prod(page.chunks) * page.dtype.itemsize} bytes; at most "
                f"{_MAX_SEGMENT_BYTES} are decoded"
            )
        values: NDArray[Any] = np.zeros(shape, page.dtype)
        tables = {"jpegtables": page.jpegtables, "jpegheader": page.jpegheader} if page.compression in _JPEG else {}
        end, top = page.dataoffsets[number] + length, 0
        while number < len(page.dataoffsets) and top < shape[0] and page.dataoffsets[number] < end:  # strips in a row
            data = self._source.read(page.dataoffsets[number], page.databytecounts[number])
            segment = page.decode(data, number, **tables)[0]
            if segment is None or segment.shape[0] != 1:
                raise _not_compared("tifffile finds no strip or tile there")
            rows, columns = min(shape[0] - top, segment.shape[1]), min(shape[1], segment.shape[2])
            values[top : top + rows, :columns] = segment[0, :rows, :columns].reshape(rows, columns, -1)
            number, top = number + 1, top + rows
        return values


_LIBRARY_ERRORS = OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, struct.error
"""Errors that libraries raise for an unknown filter or type, or for a damaged file."""


def values_read(read: Callable[[], Any], /) -> NDArray[Any] | str:
    """Return the values that another library reads, or its error as text."""
    try:
        return np.asarray(read())
    except ReaderError:
        raise
    except _LIBRARY_ERRORS as error:
        return str(error)


def values_differ(ours: NDArray[Any], theirs: NDArray[Any], /) -> str | None:
    """Return how two arrays of one shape differ in dtype or values; ``None`` if they are equal.

    Byte order does not count as a difference, nor does the class of strings; NaN equals NaN, and NaT equals NaT.

    >>> values_differ(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
    >>> values_differ(np.array([1, 2]), np.array([1, 3]))
    '1 of 2 values differ, the first at (1,): 2 in the cube, 3 in the file'
    """
    if _is_text(ours) and _is_text(theirs):
        ours, theirs = ours.astype(object), theirs.astype(object)
    elif theirs.dtype == "S0" and ours.dtype.kind == "S":
        theirs = theirs.astype(ours.dtype)  # netCDF4 returns this for one NUL character
    elif ours.dtype.newbyteorder("=") != theirs.dtype.newbyteorder("="):
        return f"the cube has dtype '{ours.dtype}', but the file has '{theirs.dtype}'"
    if ours.dtype.names is not None:
        pairs = [(name, values_differ(ours[name], theirs[name])) for name in ours.dtype.names]
        return next((f"field '{name}': {reason}" for name, reason in pairs if reason), None)
    same = np.asarray((ours == theirs) | ((ours != ours) & (theirs != theirs)), bool)
    if same.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    n_different = int(np.count_nonzero(~same))
    return (
        f"{n_different} of {same.size} values differ, the first at {at}: "
        f"{ours[at]!s} in the cube, {theirs[at]!s} in the file"
    )


def _is_text(values: NDArray[Any]) -> bool:
    if values.dtype.kind == "O":
        return all(isinstance(x, str) for x in values.reshape(-1).tolist())
    return values.dtype.kind in "UT"
