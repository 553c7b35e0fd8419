"""What eccodes takes for granted in a message, and crashes, hangs or reads on where it is not so."""

from __future__ import annotations

from struct import Struct

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.decoder import CodecError

__all__ = ["check_grid_1", "check_grid_2", "check_packing_2", "check_product_2"]

MAX_PARALLELS = 1 << 14
"""Parallels of a Gaussian grid between a pole and the equator: eccodes' time for them grows with the square."""

_PRODUCT = Struct(">HH")
_MIN_PRODUCT_BYTES = {0: 34, 1: 37, 2: 36, 8: 58, 11: 61, 12: 60}
"""Bytes that section 4 of GRIB 2 has at least, by its template, before the coordinates of model levels."""

_LATLON_1, _GAUSSIAN_1 = frozenset({0, 10, 20, 30}), frozenset({4, 14, 24, 34})
"""WMO FM 92 GRIB1 table 6: types of grids; plain, rotated, stretched, and both, as in GRIB 2."""
_LATLON_2 = {0: 72, 1: 84, 2: 84, 3: 96}
_GAUSSIAN_2 = {40: 72, 41: 84, 42: 84, 43: 96}
"""Where lengths of rows begin in section 3 of GRIB 2, by its template."""
_POINTS_A_PARALLEL = 8  # more than any reduced grid has in its longest row; those of ECMWF have 4 n + 16

_COMPLEX = (b"\0\2", b"\0\3")
_BITS = (19, 35, 36, 46)
"""Where section 5 of GRIB 2 has them with complex packing, templates 5.2 and 5.3: of values, groups and lengths."""
_MAX_BITS = 64


def check_grid_1(grid: bytes, /) -> None:
    """Check section 2 of GRIB 1: coordinates of levels and lengths of rows.

    Raises
    ------
    CodecError
        It contradicts itself.
    """
    if len(grid) < 28:
        return
    lists = grid[4] - 1 if 0 < grid[4] < 255 else len(grid)  # coordinates of levels, then rows
    _check_levels(grid[3], lists + 4 * grid[3], len(grid))
    if grid[5] in _GAUSSIAN_1:
        _check_parallels(int.from_bytes(grid[25:27], "big"))
    if grid[6:8] != b"\xff\xff":
        return
    n_rows = int.from_bytes(grid[8:10], "big")
    rows = grid[lists + 4 * grid[3] :]
    if grid[5] in _GAUSSIAN_1:
        _check_gaussian(rows, 2, n_rows, int.from_bytes(grid[25:27], "big"))
    elif grid[5] in _LATLON_1:
        _rows(rows, 2, n_rows)


def check_grid_2(grid: bytes, /) -> None:
    """Check section 3 of GRIB 2: lengths of rows.

    Raises
    ------
    CodecError
        It contradicts itself.
    """
    template = int.from_bytes(grid[12:14], "big")
    at = _LATLON_2.get(template) or _GAUSSIAN_2.get(template)
    if at is None or len(grid) < at:
        return
    if template in _GAUSSIAN_2:
        _check_parallels(int.from_bytes(grid[67:71], "big"))
    size, n_rows = grid[10], int.from_bytes(grid[34:38], "big")
    if not size and grid[30:34] != b"\xff\xff\xff\xff":
        return
    if template in _GAUSSIAN_2:
        _check_gaussian(grid[at:], size, n_rows, int.from_bytes(grid[67:71], "big"))
        return
    n, n_points = int(_rows(grid[at:], size, n_rows).sum()), int.from_bytes(grid[6:10], "big")
    if n != n_points:
        raise CodecError(f"rows of its grid have {n} points together, and the grid has {n_points}")


def _rows(lengths: bytes, size: int, n_rows: int) -> NDArray[np.unsignedinteger]:
    """Read lengths of rows of a reduced grid, one behind the other, of so many bytes each."""
    if size not in (1, 2, 4):
        raise CodecError(f"lengths of rows of its grid have {size} bytes")
    if n_rows * size > len(lengths):
        raise CodecError(f"its grid has {n_rows} rows, and lengths of {len(lengths) // size}")
    return np.frombuffer(lengths[: n_rows * size], f">u{size}")


def _check_parallels(number: int) -> None:
    if number > MAX_PARALLELS:
        raise CodecError(f"its Gaussian grid has {number} parallels in each hemisphere, more than {MAX_PARALLELS}")


def _check_gaussian(lengths: bytes, size: int, n_rows: int, number: int) -> None:
    rows = _rows(lengths, size, n_rows)
    if (rows == 1).any():
        raise CodecError("a row of its Gaussian grid has a single point")
    most = _POINTS_A_PARALLEL * number + _POINTS_A_PARALLEL**2
    if rows.size and rows.max() > most:
        raise CodecError(f"a row of its Gaussian grid of {number} parallels has {rows.max()} points")


def _check_levels(n: int, end: int, length: int) -> None:
    """Check that there is room for the coordinates of model levels: eccodes reads on behind the section."""
    if n and end > length:
        raise CodecError(f"a section of {length} bytes has no room for the {n} coordinates of levels that it names")


def check_product_2(product: bytes, /) -> None:
    """Check section 4 of GRIB 2: coordinates of levels.

    Raises
    ------
    CodecError
        It has no room for them.
    """
    if len(product) >= 9:
        n_levels, template = _PRODUCT.unpack_from(product, 5)
        _check_levels(n_levels, _MIN_PRODUCT_BYTES.get(template, 9) + 4 * n_levels, len(product))


def check_packing_2(packing: bytes, /) -> None:
    """Check section 5 of GRIB 2: how many bits the numbers of complex packing have.

    Raises
    ------
    CodecError
        They are too many, with which eccodes ends the process.
    """
    if packing[9:11] in _COMPLEX and max((packing[at] for at in _BITS if at < len(packing)), default=0) > _MAX_BITS:
        raise CodecError(f"its complex packing has numbers of more than {_MAX_BITS} bits")
