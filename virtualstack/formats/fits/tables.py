"""The data type of a row of a binary table (FITS standard 4.0, section 7.3)."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from virtualstack.formats.fits.headers import HDU

_FORM = re.compile(r"(\d*)([LXBIJKAEDCMPQ])")
_CODES = {"L": "S1", "B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8", "C": ">c8", "M": ">c16"}
_DIM = re.compile(r"\((\d+(?:,\d+)*)\)")
_OTHERS = {"X": "bits", "P": "arrays of variable length", "Q": "arrays of variable length"}
_MAX_FIELDS = 999


class NotATableError(Exception):
    """A column cannot be a field; the message says why."""


def row_dtype(hdu: HDU, /) -> np.dtype[Any]:
    """Return the compound type of a row.

    Raises
    ------
    NotATableError
        A column has no fixed place in a row, or is scaled.
    MalformedFileError
        The columns do not fill the row.
    """
    fields: list[tuple[str, str, tuple[int, ...]]] = []
    n = hdu.number_of("TFIELDS")
    if n > _MAX_FIELDS:
        hdu.fail(f"HDU {hdu.number} has {n} columns; the standard allows {_MAX_FIELDS}")
    for i in range(1, n + 1):
        form = _FORM.match(str(hdu.value(f"TFORM{i}", "")).strip())
        if form is None:
            hdu.fail(f"TFORM{i} of HDU {hdu.number} is {hdu.value(f'TFORM{i}')!r:.100}")
        count, kind = int(form[1] or 1), form[2]
        name = str(hdu.value(f"TTYPE{i}", f"col{i}")).strip()
        if kind in _OTHERS:
            raise NotATableError(f"its column '{name}' has {_OTHERS[kind]}; read it with astropy")
        if (hdu.value(f"TSCAL{i}", 1), hdu.value(f"TZERO{i}", 0)) != (1, 0):
            raise NotATableError(f"its column '{name}' is scaled, and fields cannot be; read it with astropy")
        if not count:
            continue
        dim = _DIM.fullmatch(str(hdu.value(f"TDIM{i}", "")).strip().replace(" ", ""))
        shape = tuple(int(x) for x in dim[1].split(","))[::-1] if dim else (count,) if count > 1 else ()
        if kind == "A":  # the first axis of text is its length
            length = shape[-1] if shape else 1
            fields.append((name, f"S{length}", shape[:-1]))
        else:
            fields.append((name, _CODES[kind], shape))
        if math.prod(shape) != count:
            hdu.fail(f"TDIM{i} of HDU {hdu.number} does not have the {count} elements of TFORM{i}")
    names = [name for name, *_ in fields]
    if len(set(names)) < len(names) or not all(names):
        raise NotATableError("two of its columns have one name; read it with astropy")
    dtype = np.dtype(fields)
    if dtype.itemsize != hdu.number_of("NAXIS1"):
        hdu.fail(f"the columns of HDU {hdu.number} have {dtype.itemsize} bytes, and a row has NAXIS1")
    return dtype
