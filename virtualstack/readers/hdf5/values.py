"""Values that have no byte-range form, read through the HDF5 library and put into the manifest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np
from h5py import h5l, h5s
from numcodecs import VLenUTF8
from numpy.typing import NDArray

from virtualstack.codecs.metadata import Codec
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill
from virtualstack.readers.hdf5.datatypes import ElementType, packed
from virtualstack.readers.hdf5.faults import LibraryError, library_errors
from virtualstack.readers.hdf5.filters import enable_plugins
from virtualstack.readers.hdf5.object_references import DanglingReferenceError, reference_paths
from virtualstack.readers.hdf5.tree import decode_text

__all__ = [
    "NotInlinedError",
    "check_number_of_strings",
    "check_size",
    "inline_chunk",
    "inline_paths",
    "inline_stored",
    "inline_strings",
    "inline_text",
    "inline_values",
    "one_cell",
]

_TEXT = np.dtypes.StringDType()
_POINTER = 16  # bytes that a dataset keeps for each string of variable length: length, heap address, index


class NotInlinedError(Exception):
    """The values are more than the limit, or the HDF5 library cannot read them; the message is half a sentence.

    Parameters
    ----------
    size
        Bytes that the values take, where the limit is what stands in the way; of strings, at least so many.
    """

    def __init__(self, message: str, *, size: int = 0) -> None:
        super().__init__(message)
        self.size = size


def check_size(size: int, limit: int, /, *, of: str = "") -> None:
    """Raise `NotInlinedError` where values take more bytes than the limit.

    >>> check_size(8, 8)
    """
    if size > limit:
        raise NotInlinedError(f"its {size} bytes{of} are more than the inline limit of {limit}", size=size)


def one_cell(shape: tuple[int, ...]) -> ChunkGrid:
    """Give the grid of one cell over an array (none where it is empty)."""
    return ChunkGrid.regular(shape, (max(n, 1) for n in shape))


def inline_values(
    dataset: h5py.Dataset, dtype: np.dtype[Any], shape: tuple[int, ...], fill: Fill, limit: int, /
) -> ChunkManifest:
    """Read all values as one INLINE chunk.

    Parameters
    ----------
    dataset
        Read as a whole.
    dtype, shape
        Of the values; the shape of an array type included.
    fill
        Of the array.
    limit
        Bytes.

    Raises
    ------
    NotInlinedError
        See there.
    """
    check_size(math.prod(shape) * dtype.itemsize, limit)
    if not math.prod(shape):
        return ChunkManifest.empty(one_cell(shape).shape, fill)
    return inline_chunk(np.ascontiguousarray(_read(dataset)).reshape(shape).astype(dtype), fill)


def inline_chunk(values: NDArray[Any], fill: Fill, /) -> ChunkManifest:
    """Put values, in native byte order, into the manifest as one INLINE chunk."""
    encoding = ChunkEncoding.of(values.dtype, values.shape)
    return ChunkManifest.from_bytes(
        [values.tobytes()], shape=one_cell(values.shape).shape, encoding=encoding, fill=fill
    )


def inline_text(dataset: h5py.Dataset, fill: Fill, limit: int, /) -> ChunkManifest:
    """Read all strings as one INLINE chunk of zarr's ``vlen-utf8``.

    Raises
    ------
    NotInlinedError
        See there; or a string is not UTF-8.
    """
    shape = dataset.shape
    if not math.prod(shape):
        return ChunkManifest.empty(one_cell(shape).shape, fill)
    check_number_of_strings(shape, limit)
    raw = np.asarray(_read_text(dataset), object).reshape(-1).tolist()
    return inline_strings([x or b"" for x in raw], shape, fill, limit)


def check_number_of_strings(shape: tuple[int, ...], limit: int, /) -> None:
    """Raise `NotInlinedError` where strings alone are too many for so many bytes, however short they are."""
    n = math.prod(shape)
    if n * _POINTER > max(limit, _POINTER):
        raise NotInlinedError(
            f"its {n} strings are more than the inline limit of {limit} bytes holds", size=n * _POINTER
        )


def inline_paths(dataset: h5py.Dataset, paths: Mapping[int, str], fill: Fill, limit: int, /) -> ChunkManifest:
    """Read all references to objects as one INLINE chunk of the paths of these.

    Parameters
    ----------
    dataset
        Read as a whole.
    paths
        Of all objects of the file, by address.
    fill
        Of the array.
    limit
        Bytes.

    Raises
    ------
    NotInlinedError
        See there; or a reference leads nowhere.
    """
    shape = dataset.shape
    if not math.prod(shape):
        return ChunkManifest.empty(one_cell(shape).shape, fill)
    check_size(math.prod(shape) * dataset.id.get_type().get_size(), limit, of=" of references")
    references = _read_stored(dataset).view("<u8")
    try:
        texts = reference_paths(references, paths)
    except DanglingReferenceError:
        texts = _all_paths(dataset, references, paths)
    return inline_strings(texts, shape, fill, limit)


def inline_stored(
    dataset: h5py.Dataset, found: ElementType, shape: tuple[int, ...], fill: Fill, /, *, limit: int
) -> ChunkManifest:
    """Read all values as one INLINE chunk, with our own conversion of stored elements.

    h5py itself reads neither bitfields nor opaque elements with a tag: the HDF5 library converts them to no others.

    Parameters
    ----------
    dataset
        Read as a whole.
    found
        Of kind ``"bytes"``.
    shape
        Of the values; that of an array type included.
    fill
        Of the array.
    limit
        Bytes.

    Raises
    ------
    NotInlinedError
        See there.
    """
    if found.stored is None or not math.prod(shape):
        return ChunkManifest.empty(one_cell(shape).shape, fill)
    dtype = packed(found.stored)
    check_size(math.prod(shape) * max(dtype.itemsize, found.size), limit)
    try:
        values = decode(_read_stored(dataset).tobytes(), found.codecs, found.stored, shape).astype(dtype)
    except CodecError as error:
        raise NotInlinedError(f"its values do not decode: {error}") from error
    return inline_chunk(values, fill)


def _all_paths(dataset: h5py.Dataset, references: NDArray[np.uint64], paths: Mapping[int, str]) -> list[str]:
    """Give the paths of any objects, committed datatypes too, by a walk over all links of the file."""
    linked: dict[int, str] = {}

    def add(name: bytes, link: Any) -> None:
        if link.type == h5l.TYPE_HARD:
            linked.setdefault(int(link.u), f"/{decode_text(name)}")  # from the end of the user block, as references

    try:
        with library_errors():
            root = dataset.file["/"]
            root.id.links.visit(add, info=True)
        return reference_paths(references, linked | dict(paths))
    except (DanglingReferenceError, LibraryError) as error:
        raise NotInlinedError(str(error)) from error


def inline_strings(raw: Sequence[bytes | str], shape: tuple[int, ...], fill: Fill, limit: int, /) -> ChunkManifest:
    """Put strings into the manifest as one INLINE chunk of zarr's ``vlen-utf8``.

    Raises
    ------
    NotInlinedError
        There are more bytes than ``limit``, or one string is not UTF-8.
    """
    try:
        texts = [x.decode() if isinstance(x, bytes) else x for x in raw]
    except UnicodeDecodeError as error:
        raise NotInlinedError(f"a string is not UTF-8: {error}") from error
    encoded = bytes(VLenUTF8().encode(np.array(texts, object)))
    check_size(len(encoded), limit)
    encoding = ChunkEncoding.of(_TEXT, shape, [Codec("vlen-utf8")])
    return ChunkManifest.from_bytes([encoded], shape=one_cell(shape).shape, encoding=encoding, fill=fill)


def _read_text(dataset: h5py.Dataset) -> NDArray[Any]:
    """Read strings; chunk by chunk where the HDF5 library cannot make fill values of a chunk that was never written.

    Making a fill value of variable length, it tries to put it into the heap of the file, which is open for reading.
    """
    maxshape = dataset.maxshape
    is_listed_right = maxshape is None or None not in maxshape[1:]  # see `chunk_table`
    try:
        return _read(dataset)
    except NotInlinedError:
        if dataset.chunks is None or not is_listed_right:
            raise
    values = np.full(dataset.shape, dataset.fillvalue or b"", object)
    stored: list[Any] = []
    try:
        with library_errors():
            dataset.id.chunk_iter(stored.append)
    except LibraryError as error:
        raise NotInlinedError(f"the HDF5 library cannot list its chunks: {error}") from error
    for chunk in stored:
        box = tuple(
            slice(first, min(first + n, end))
            for first, n, end in zip(chunk.chunk_offset, dataset.chunks, dataset.shape, strict=True)
        )
        values[box] = _read(dataset, box)
    return values


def _read_stored(dataset: h5py.Dataset) -> NDArray[Any]:
    """Read elements as they are stored, shape that of the dataset, with the filters undone."""
    enable_plugins()
    tid = dataset.id.get_type()
    raw = np.zeros(dataset.shape, f"V{tid.get_size()}")
    try:
        with library_errors():
            dataset.id.read(h5s.ALL, h5s.ALL, raw, tid)
    except LibraryError as error:
        raise NotInlinedError(f"the HDF5 library cannot read it: {error}") from error
    return raw


def _read(dataset: h5py.Dataset, box: tuple[slice, ...] = ()) -> NDArray[Any]:
    enable_plugins()
    try:
        with library_errors():
            return np.asarray(dataset[box])
    except LibraryError as error:
        raise NotInlinedError(f"the HDF5 library cannot read it: {error}") from error
