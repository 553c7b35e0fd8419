"""The headers of a file, one for each HDU, and where their data are (FITS standard 4.0, chapters 3 to 5)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
from astropy.io.fits import Header
from astropy.io.fits.card import Undefined
from astropy.io.fits.verify import VerifyError

from virtualstack.errors import MalformedFileError, Remedy
from virtualstack.formats.base import contradiction
from virtualstack.storage import Source

_BLOCK_BYTES, _CARD_BYTES = 2880, 80
_FIRST_READ_BYTES = 8 * _BLOCK_BYTES
_MAX_HEADER_BYTES = 2880 << 12
MAX_AXES = 64
_END = b"END".ljust(_CARD_BYTES)
_STARTS = b"SIMPLE  =", b"XTENSION="

DTYPES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
"""Data types by BITPIX."""

_STRUCTURE = frozenset(
    [
        "SIMPLE",
        "XTENSION",
        "BITPIX",
        "NAXIS",
        "PCOUNT",
        "GCOUNT",
        "EXTEND",
        "END",
        "BSCALE",
        "BZERO",
        "BLANK",
        "GROUPS",
        "TFIELDS",
        "THEAP",
        "CONTINUE",
    ]
)
_NUMBERED = tuple(f"{x}" for x in ("NAXIS", "TFORM", "TTYPE", "TDIM", "ZNAXIS", "ZTILE", "ZNAME", "ZVAL", "ZFORM"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HDU:
    """A header, and the bytes of the data after it."""

    number: int
    url: str
    header: Header
    begin: int
    offset: int

    def value(self, key: str, default: Any = None, /) -> Any:
        """Return the value of the first card with a keyword."""
        return self._parsed(key, lambda: self.header.get(key, default), default)

    def _parsed(self, key: str, parse: Callable[[], Any], default: Any = None) -> Any:
        """Return what astropy parses when a card is first used."""
        try:
            with warnings.catch_warnings(action="ignore"):
                found = parse()
        except (VerifyError, ValueError, TypeError) as error:
            self.fail(f"the card {key} of HDU {self.number} cannot be parsed: {error}")
        return default if isinstance(found, Undefined) else found

    def number_of(self, key: str, default: int | None = None, /) -> int:
        """Return a value that must be a whole number."""
        found = self.value(key, default)
        if type(found) is not int or (found < 0 and key not in ("BITPIX", "ZBITPIX")):
            self.fail(f"{key} of HDU {self.number} is {found!r:.100}, not a number that the standard allows")
        return found

    def shape(self, prefix: str = "") -> tuple[int, ...]:
        """Return the lengths of the axes, in elements, the slowest first."""
        n = self.number_of(f"{prefix}NAXIS")
        if n > MAX_AXES:
            self.fail(f"HDU {self.number} has {n} axes")
        return tuple(self.number_of(f"{prefix}NAXIS{i}") for i in range(n, 0, -1))

    def dtype(self, prefix: str = "") -> np.dtype[Any]:
        """Return the data type of stored numbers."""
        bits = self.number_of(f"{prefix}BITPIX")
        if bits not in DTYPES:
            self.fail(f"{prefix}BITPIX of HDU {self.number} is {bits}")
        return np.dtype(DTYPES[bits])

    @property
    def is_groups(self) -> bool:
        """Whether the data are random groups (standard, chapter 6)."""
        return self.value("GROUPS") is True and self.value("NAXIS1") == 0

    @property
    def size(self) -> int:
        """Bytes of the data without padding."""
        shape = self.shape()
        shape = shape[:-1] if self.is_groups else shape
        n = math.prod(shape) if shape else 0
        more = self.number_of("PCOUNT", 0)
        return (n + more) * self.number_of("GCOUNT", 1) * self.dtype().itemsize if n or more else 0

    @property
    def end(self) -> int:
        """Offset of the next header."""
        return self.offset + -(-self.size // _BLOCK_BYTES) * _BLOCK_BYTES

    def attributes(self) -> dict[str, Any]:
        """Return the cards that describe neither structure nor packing; comments are joined."""
        found: dict[str, Any] = {}
        for card in self.header.cards:  # by position: astropy takes some keywords for patterns
            key = card.keyword
            if not key or key in _STRUCTURE or key.rstrip("0123456789") in _NUMBERED:
                continue
            value = self._parsed(key, partial(getattr, card, "value"))
            if key in ("COMMENT", "HISTORY"):
                found[key] = f"{found[key]}\n{value}" if key in found else str(value)
            elif value is not None:
                found.setdefault(key, int(value) if isinstance(value, bool) else value)
        return found

    def fail(self, what: str) -> NoReturn:
        """Raise an error that names the contradiction."""
        raise contradiction(self.url, "a FITS", what, offset=self.begin)


def read_hdus(source: Source, /) -> Iterator[HDU]:
    """Yield the HDUs of a file until its end, or until bytes that begin none.

    Raises
    ------
    MalformedFileError
        The file does not begin with a header, or a header or the data after it are cut short.
    """
    at = number = 0
    while at < source.size:
        raw = _header(source, at, number)
        if raw is None:
            return
        with warnings.catch_warnings(action="ignore"):
            header = Header.fromstring(raw)
        hdu = HDU(number=number, url=source.location.url, header=header, begin=at, offset=at + _padded(len(raw)))
        if hdu.offset + hdu.size > source.size:
            hdu.fail(f"the data of HDU {number} end at offset {hdu.offset + hdu.size}, and the file at {source.size}")
        yield hdu
        at, number = hdu.end, number + 1


def _padded(n: int) -> int:
    return -(-n // _BLOCK_BYTES) * _BLOCK_BYTES


def _header(source: Source, at: int, number: int) -> bytes | None:
    length, url = _FIRST_READ_BYTES, source.location.url
    while True:
        data = source.read(at, min(length, source.size - at))
        if not data.startswith(_STARTS[:1] if number == 0 else _STARTS[1:]):
            if number:
                return None
            raise MalformedFileError(
                f"'{url}' is not a FITS file: it does not begin with 'SIMPLE  ='", url=url, offset=0
            )
        for end in range(0, len(data) - _CARD_BYTES + 1, _CARD_BYTES):
            if data[end : end + _CARD_BYTES] == _END:
                return data[: end + _CARD_BYTES]
        if at + length >= source.size or length >= _MAX_HEADER_BYTES:
            raise MalformedFileError(
                f"'{url}' is truncated or damaged: the header of HDU {number} has no END",
                Remedy("fetch it again"),
                url=url,
                offset=at,
            )
        length *= 2
