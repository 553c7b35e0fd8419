"""Strings of variable length: the dataset holds pointers, the strings lie in heaps of the file."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from virtualstack.errors import ChunkDecodeError
from virtualstack.formats.hdf5.datatypes import ElementType
from virtualstack.formats.hdf5.references import FileContext, references
from virtualstack.formats.hdf5.structures.requests import StructureError
from virtualstack.formats.hdf5.tree import Variable
from virtualstack.formats.hdf5.values import NotInlinedError, check_number_of_strings, inline_strings, one_cell
from virtualstack.manifests import ChunkManifest, Fill, ManifestArray
from virtualstack.reading import read_array

__all__ = ["inline_own_text"]


def inline_own_text(
    variable: Variable, read_texts: Callable[[bytes, int], list[bytes]], fill: Fill, context: FileContext, /
) -> ChunkManifest:
    """Read all strings as one INLINE chunk, without the HDF5 library, which may hang on damaged heaps.

    Parameters
    ----------
    variable
        Of strings of variable length, with a dataspace.
    read_texts
        Gives the strings that stored elements point to, of so many bytes at most.
    fill
        Of the array.
    context
        Of its file.

    Raises
    ------
    NotInlinedError
        There are more bytes than the limit, one is not UTF-8, or the pointers or heaps are damaged.
    NoReferencesError, LostValuesError
        The pointers are out of reach.
    """
    shape, limit = variable.space or (), context.inline_limit
    if not math.prod(shape):
        return ChunkManifest.empty(one_cell(shape).shape, fill)
    check_number_of_strings(shape, limit)
    dtype = np.dtype(f"V{variable.element.size}")
    nothing = variable.fill.raw if variable.fill.is_written else None
    raw = replace(variable, element=ElementType(kind="bytes", stored=dtype, size=dtype.itemsize))
    manifest, grid = references(raw, shape, Fill(dtype, nothing or bytes(dtype.itemsize)), context)
    array = ManifestArray(manifest=manifest, grid=grid, dtype=dtype, name=variable.path)
    try:
        found = read_texts(read_array(array, (), context.storage).tobytes(), limit)
    except (StructureError, ChunkDecodeError) as error:
        raise NotInlinedError(f"they are damaged: {error}") from error
    return inline_strings(found, shape, fill, limit)
