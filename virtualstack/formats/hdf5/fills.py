"""Fill values of datasets: what was never written reads as; not their ``_FillValue``."""

from __future__ import annotations

from typing import Any

import numpy as np

from virtualstack.child.errors import LibraryError
from virtualstack.formats.hdf5.datatypes import value_of
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.structures.requests import StructureError
from virtualstack.formats.hdf5.tree import Variable
from virtualstack.manifests import Fill

__all__ = ["fill_of", "given_fill"]

_MAX_TEXT = 1 << 20


def fill_of(variable: Variable, dtype: np.dtype[Any], library: Library, /) -> Fill:
    """Give what never-written chunks of a dataset read as.

    Parameters
    ----------
    variable
        The dataset.
    dtype
        Of its values.
    library
        Converts what only the HDF5 library can.

    Raises
    ------
    LibraryError
        It cannot.
    """
    # Where filling is turned off (H5Pset_fill_time), what was never written is undefined, and h5py gives zeros.
    given = given_fill(variable, dtype, library) if variable.fill.is_written else None
    return Fill.zero(dtype) if given is None else given


def given_fill(variable: Variable, dtype: np.dtype[Any], library: Library, /) -> Fill | None:
    """Give the fill value that a dataset was made with, used or not; ``None`` where it was given none."""
    raw, element = variable.fill.raw, variable.element
    if raw is None:
        return None
    if element.subshape or element.kind == "paths":
        return Fill.zero(dtype)
    if element.stored is not None and len(raw) == element.size:
        return Fill(dtype, value_of(raw, element).tobytes())
    if element.kind == "text" and variable.read_texts is not None:
        try:
            return Fill.of(variable.read_texts(raw, _MAX_TEXT)[0], dtype)
        except StructureError as error:
            raise LibraryError(f"its fill value is damaged: {error}") from error
    if element.kind == "text":
        return Fill.of(library.text_fill(variable.raw_path), dtype)
    # integers of odd sizes have a dtype here alone
    cell = library.fill(variable.raw_path, dtype if element.codecs else None)
    return Fill(dtype, cell.astype(dtype).tobytes())
