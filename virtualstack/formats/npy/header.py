"""The header of an array that numpy saved (numpy.lib.format): data type, order of the axes and shape."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib import format as npy

from virtualstack.errors import MalformedFileError, Remedy

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 1 << 16
"""Maximum bytes of a header; numpy itself stops at 10,000 by default."""

_MAX_NDIM = 64
_LONG = re.compile(r"('[^']*')|(\d)L")  # text, or an integer as Python 2 wrote it: 3L


@dataclass(frozen=True, slots=True, kw_only=True)
class NpyHeader:
    """What a header says, and how long it is (bytes)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    length: int

    @property
    def end(self) -> int:
        """Offset in bytes after the last value."""
        return self.length + math.prod(self.shape) * self.dtype.itemsize


def parse_header(head: bytes, what: str, url: str, /) -> NpyHeader:
    """Parse the first bytes of an array.

    Raises
    ------
    MalformedFileError
        They are not those of an array.
    """
    width = 2 if head[6:7] == b"\1" else 4  # version 1; versions 2 and 3 have a longer length
    begin = 8 + width
    length = begin + int.from_bytes(head[8:begin], "little")
    try:
        if not head.startswith(MAGIC) or not 1 <= head[6] <= 3 or length > len(head):
            raise ValueError(f"its first bytes are {head[:12].hex(' ')}, which begin no header of {len(head)} bytes")
        text = head[begin:length].decode("utf-8" if head[6] == 3 else "latin-1").strip()
        found = ast.literal_eval(_LONG.sub(lambda x: x[1] or x[2], text))
        if not isinstance(found, dict) or found.keys() != {"descr", "fortran_order", "shape"}:
            raise ValueError("the header has other keys than 'descr', 'fortran_order' and 'shape'")
        shape, is_fortran = found["shape"], found["fortran_order"]
        if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape) or len(shape) > _MAX_NDIM:
            raise ValueError(f"the shape {shape!r:.100} is not a tuple of up to {_MAX_NDIM} lengths")
        if not isinstance(is_fortran, bool):
            raise ValueError(f"'fortran_order' is {is_fortran!r:.100}")
        dtype = npy.descr_to_dtype(found["descr"])
        if not isinstance(dtype, np.dtype):
            raise ValueError(f"the data type {dtype!r:.100} is none of numpy")
    except (ValueError, TypeError, SyntaxError, LookupError, RecursionError, MemoryError) as error:
        raise MalformedFileError(
            f"{what} is damaged or not an array that numpy saved: {error}", Remedy("fetch it again"), url=url, offset=0
        ) from error
    return NpyHeader(dtype=dtype, shape=shape, is_fortran=is_fortran, length=length)
