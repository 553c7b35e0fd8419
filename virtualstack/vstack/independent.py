"""Chunks of GRIB and TIFF files as eccodes and tifffile decode them."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions

from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import ChildDiedError, run_in_child
from virtualstack.errors import MissingDependencyError, UnsupportedFeatureError
from virtualstack.manifests import ChunkEncoding, ManifestArray
from virtualstack.storage import Source, SourceFile

__all__ = ["Decoder", "as_opened", "decoder_of"]

type Decoder = Callable[[ChunkEncoding, int, int], NDArray[Any]]
"""Gives the elements of the chunk at some offset, of some length, in the order of its encoding."""

_GRIB = b"GRIB"
_TIFF = b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"
_MOST_PAGES = 10_000
_LERC = 34887
_JPEG = 6, 7, 33007, 34892
_LARGEST = 1 << 29


def decoder_of(source: Source, /) -> Decoder | None:
    """Give what decodes the chunks of a file; ``None`` where it is of another format.

    Raises
    ------
    MissingDependencyError
        The library of its format is not installed.
    """
    head = source.read(0, min(4, source.size))
    if head in _TIFF:
        return _Tiff(source, _imported("tifffile", "tiff"))
    if head == _GRIB:
        _imported("eccodes", "grib")
        return _Grib(source)
    return None


def as_opened(array: ManifestArray, values: NDArray[Any], /) -> xr.Variable:
    """Unpack the values of a source as xarray does, but for times."""
    names = tuple(f"axis{i}" for i in range(values.ndim))
    packed = xr.Variable(names, values, {**array.attributes, **array.cf})
    return conventions.decode_cf_variable(
        str(array.name), packed, concat_characters=False, decode_times=False, stack_char_dim=False
    )


def _imported(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # the package without the library behind it
        raise MissingDependencyError("comparing chunks with their sources", extra=extra) from error


def _not_compared(why: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(why, feature="comparison")


@dataclass(frozen=True)
class _Grib:
    """Decodes messages of one field.

    Parameters
    ----------
    source
        The file.
    """

    source: Source

    def __call__(self, encoding: ChunkEncoding, offset: int, length: int, /) -> NDArray[Any]:
        (codec,) = encoding.codecs
        key = json.loads(codec.configuration).get("key", "values")
        head = self.source.read(offset, min(16, self.source.size - offset))
        if head[:4] != _GRIB:
            raise _not_compared("it does not begin with a message")
        whole = int.from_bytes(head[4:7] if head[7] == 1 else head[8:16], "big")
        if not len(head) < whole <= self.source.size - offset:
            raise _not_compared("its message is longer than it says")
        message = self.source.read(offset, whole)
        if key == "values" and (whole != length or _n_fields(message) > 1):
            raise _not_compared("it is one of several fields of a message, of which eccodes gives the first")
        try:
            values: NDArray[Any] = run_in_child("virtualstack.codecs.grib.child:plain_values", message, key)
        except (LibraryError, ChildDiedError) as error:
            raise _not_compared(f"eccodes cannot read it: {error}") from error
        return values.reshape(encoding.shape)


def _n_fields(message: bytes) -> int:
    """Count the fields of a message: sections 7 of GRIB 2."""
    n, at = 0, 16
    while message[7] == 2 and at + 5 <= len(message) and (length := int.from_bytes(message[at : at + 4], "big")) >= 5:
        n, at = n + (message[at + 4] == 7), at + length
    return n


class _Tiff:
    """Decodes strips and tiles.

    Parameters
    ----------
    source
        The file.
    library
        tifffile.
    """

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
        """All images of the file, and where their strips and tiles are."""
        file = self._library.TiffFile(SourceFile(self._source))
        return [(page, np.array(page.dataoffsets, np.int64)) for page in self._below(file.pages)]

    def _below(self, pages: Any) -> Iterator[Any]:
        if len(pages) > _MOST_PAGES:
            raise _not_compared(f"its file has {len(pages)} images; {_MOST_PAGES} are looked at")
        for i in range(len(pages)):
            page = pages.get(i, aspage=True)
            if page.dtype is not None and page.dataoffsets:
                yield page
            if page.subifds:
                yield from self._below(page.pages)

    def _segment(self, page: Any, number: int, length: int, shape: tuple[int, ...]) -> NDArray[Any]:
        if page.compression == _LERC:
            raise _not_compared("tifffile leaves masks of LERC unseen")
        if math.prod(page.chunks) * page.dtype.itemsize > _LARGEST:
            raise _not_compared("its strips or tiles are too large")
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
