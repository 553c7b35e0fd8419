"""Read values that have no byte ranges, and put them into the manifest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numcodecs import VLenUTF8
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.formats.hdf5.datatypes import packed
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.tree import DanglingReferenceError, HDF5Variable, reference_paths
from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill

_TEXT_DTYPE = np.dtypes.StringDType()
_POINTER_BYTES = 16  # stored for each string of variable length: length, heap address, index


class NotInlinedError(Exception):
    """The values are larger than the limit, or cannot be read; the message is half a sentence."""

    def __init__(self, message: str, *, size: int = 0) -> None:
        super().__init__(message)
        self.size = size


def check_size(size: int, limit: int, /, *, of: str = "") -> None:
    """Raise `NotInlinedError` if values have more bytes than the limit.

    >>> check_size(8, 8)
    """
    if size > limit:
        raise NotInlinedError(f"its {size} bytes{of} are more than the inline limit of {limit}", size=size)


def one_cell(shape: tuple[int, ...]) -> ChunkGrid:
    """Return the grid of one cell over an array; no cells for an empty array."""
    return ChunkGrid.regular(shape, (max(n, 1) for n in shape))


def inline_values(
    variable: HDF5Variable,
    library: Library,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    fill: Fill,
    limit: int,
    /,
) -> ChunkManifest:
    """Read all values as one INLINE chunk."""
    check_size(math.prod(shape) * dtype.itemsize, limit)
    values = _read(lambda: library.values(variable.raw_path), shape)
    return inline_chunk(np.ascontiguousarray(values).reshape(shape).astype(dtype), fill)


def inline_chunk(values: NDArray[Any], fill: Fill, /) -> ChunkManifest:
    """Return a manifest that has values, in native byte order, as one INLINE chunk."""
    encoding = ChunkEncoding.c_order(values.dtype, values.shape)
    return ChunkManifest.from_bytes(
        [values.tobytes()], shape=one_cell(values.shape).shape, encoding=encoding, fill=fill
    )


def inline_text(variable: HDF5Variable, library: Library, fill: Fill, limit: int, /) -> ChunkManifest:
    """Read all strings as one INLINE chunk of zarr's ``vlen-utf8``."""
    shape = variable.space or ()
    check_number_of_strings(shape, limit)
    try:
        found, texts = library.texts(variable.raw_path)
    except LibraryError as error:
        raise _not_read(error) from error
    _check_shape(found, shape)
    return inline_strings(texts, shape, fill, limit)


def check_number_of_strings(shape: tuple[int, ...], limit: int, /) -> None:
    """Raise `NotInlinedError` if the number of strings alone exceeds the limit of bytes, however short they are."""
    n = math.prod(shape)
    if n * _POINTER_BYTES > max(limit, _POINTER_BYTES):
        raise NotInlinedError(
            f"its {n} strings are more than the inline limit of {limit} bytes holds", size=n * _POINTER_BYTES
        )


def inline_paths(
    variable: HDF5Variable, library: Library, paths: Mapping[int, str], fill: Fill, limit: int, /
) -> ChunkManifest:
    """Read all object references as one INLINE chunk of the paths of the objects."""
    shape = variable.space or ()
    check_size(math.prod(shape) * variable.element.size, limit, of=" of references")
    references = _read(lambda: library.stored(variable.raw_path), shape).view("<u8")
    try:
        texts = reference_paths(references, paths)
    except DanglingReferenceError:
        texts = _all_paths(library, references, paths)
    return inline_strings(texts, shape, fill, limit)


def inline_stored(
    variable: HDF5Variable, library: Library, shape: tuple[int, ...], fill: Fill, limit: int, /
) -> ChunkManifest:
    """Read all values as one INLINE chunk, with our own conversion of stored elements.

    h5py itself reads neither bitfields nor opaque elements with a tag, because the HDF5 library does not convert them.
    """
    found = variable.element
    if found.stored is None:
        raise NotInlinedError(found.reason)
    dtype = packed(found.stored)
    check_size(math.prod(shape) * max(dtype.itemsize, found.size), limit)
    try:
        raw = _read(lambda: library.stored(variable.raw_path), variable.space or ())
        values = decode(raw.tobytes(), found.codecs, found.stored, shape).astype(dtype)
    except CodecError as error:
        raise NotInlinedError(f"its values do not decode: {error}") from error
    return inline_chunk(values, fill)


def _all_paths(library: Library, references: NDArray[np.uint64], paths: Mapping[int, str]) -> list[str]:
    """Return the paths of objects, including committed datatypes, by following all links of the file."""
    try:
        return reference_paths(references, {**library.linked(), **paths})
    except (DanglingReferenceError, LibraryError) as error:
        raise NotInlinedError(str(error)) from error


def inline_strings(raw: Sequence[bytes | str], shape: tuple[int, ...], fill: Fill, limit: int, /) -> ChunkManifest:
    """Return a manifest that has strings as one INLINE chunk of zarr's ``vlen-utf8``."""
    try:
        texts = [x.decode() if isinstance(x, bytes) else x for x in raw]
    except UnicodeDecodeError as error:
        raise NotInlinedError(f"a string is not UTF-8: {error}") from error
    encoded = bytes(VLenUTF8().encode(np.array(texts, object)))
    check_size(len(encoded), limit)
    encoding = ChunkEncoding.c_order(_TEXT_DTYPE, shape, [Codec("vlen-utf8")])
    return ChunkManifest.from_bytes([encoded], shape=one_cell(shape).shape, encoding=encoding, fill=fill)


def _read(read: Callable[[], NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        values = read()
    except LibraryError as error:
        raise _not_read(error) from error
    _check_shape(values.shape, shape)
    return values


def _not_read(error: LibraryError) -> NotInlinedError:
    return NotInlinedError(f"the HDF5 library cannot read it: {error}")


def _check_shape(found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if found != wanted:
        raise NotInlinedError(f"the HDF5 library reads the shape {found} of it, and its header says {wanted}")
