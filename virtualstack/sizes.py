"""Read and write numbers of bytes as people write them, and divide axes into chunks of equal length."""

from __future__ import annotations

import math
import re
from numbers import Integral

_MAX_DIVIDED = 1 << 40  # the number of candidates is the square root
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def byte_count(size: int | str, /, *, option: str) -> int:
    """Read a number of bytes from the value of an option.

    >>> byte_count("1 MiB", option="inline_limit")
    1048576

    Raises
    ------
    ValueError
        The value is not a number of bytes, or is negative.
    """
    if isinstance(size, Integral):
        number, unit = float(size), ""
    else:
        match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", size) if isinstance(size, str) else None
        if match is None or match.group(2).upper() not in _UNITS or match.group(1).count(".") > 1:
            raise ValueError(f"{option}={size!r} is not a number of bytes, such as 65536 or '1 MiB'")
        number, unit = float(match.group(1)), match.group(2).upper()
    if number < 0:
        raise ValueError(f"{option}={size!r} is negative")
    return int(number * _UNITS[unit])


def chunk_byte_count(chunk_size: int | str | None, /, *, auto: int) -> int | None:
    """Read the maximum bytes of a chunk, as an option of readers: ``"auto"``, a number of bytes, or ``None`` for any.

    >>> chunk_byte_count("auto", auto=4096), chunk_byte_count("1 MiB", auto=4096), chunk_byte_count(None, auto=4096)
    (4096, 1048576, None)

    Raises
    ------
    ValueError
        The value is not a number of bytes, or is less than one byte.
    """
    if chunk_size is None or chunk_size == "auto":
        return None if chunk_size is None else auto
    found = byte_count(chunk_size, option="chunk_size")
    if found == 0:
        raise ValueError(f"chunk_size={chunk_size!r} is less than one byte")
    return found


def equal_chunk_length(n: int, least: int, most: int, /) -> int | None:
    """Return the greatest divisor of ``n`` from ``least`` to ``most``; ``None`` if there is none, or ``n`` is huge.

    >>> equal_chunk_length(365, 25, 100), equal_chunk_length(365, 25, 50)
    (73, None)
    """
    if not 0 < n < _MAX_DIVIDED:
        return None
    divisors = (x for small in range(1, math.isqrt(n) + 1) if n % small == 0 for x in (small, n // small))
    return max((x for x in divisors if least <= x <= most), default=None)


def human_bytes(size: int, /) -> str:
    """Return a number of bytes with a unit, as people write it.

    >>> human_bytes(999), human_bytes(67_700_000), human_bytes(5 * 10**15)
    ('999 B', '67.7 MB', '5 PB')
    """
    number, units = float(size), ["B", "kB", "MB", "GB", "TB", "PB"]
    while number >= 999.5 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.3g} {units[0]}" if number < 1000 else f"{number:,.0f} {units[0]}"
