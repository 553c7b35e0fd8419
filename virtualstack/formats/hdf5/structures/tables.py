"""Fixed structures of the format, as tables of the names and types of their fields."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from struct import Struct

from virtualstack.formats.hdf5.structures.requests import (
    Parse,
    StructureError,
    Widths,
    check_signature,
    read_span,
    verified,
)

__all__ = ["Table"]

_UNSIGNED = {2: "H", 4: "I", 8: "Q"}
_CHECKSUM_BYTES = 4


class Table:
    """A fixed structure: fields of unsigned little-endian numbers.

    Parameters
    ----------
    fields
        Name and type of each field, separated by commas. The types are those of `struct`, and ``A`` for an address and
        ``L`` for a length, whose widths differ between files. ``2x`` stands for two bytes without a meaning.
    signature, version
        Signature of four letters and version that the structure begins with; they are no fields.

    Examples
    --------
    >>> Table("size L, place A", signature=b"HEAP").parse(b"HEAP" + bytes([0, 7, 0, 3, 0]), Widths(2, 2))
    {'size': 7, 'place': 3}
    """

    def __init__(self, fields: str, *, signature: bytes = b"", version: int = 0) -> None:
        self._signature, self._version = signature, version
        words = [field.split() for field in fields.split(",")]
        self._names = tuple(word[0] for word in words if len(word) == 2)
        self._types = ("5x" if signature else "") + "".join(word[-1] for word in words)

    def size(self, widths: Widths, /) -> int:
        """Return the number of bytes of the structure."""
        return _compiled(self._types, widths).size

    def parse(self, body: bytes, widths: Widths, /) -> dict[str, int]:
        """Return the fields of a structure by name; further bytes may follow."""
        if self._signature:
            check_signature(body, self._signature, self._version)
        return next(self.rows(body, 0, 1, widths))

    def rows(self, body: bytes, at: int, count: int, widths: Widths, /) -> Iterator[dict[str, int]]:
        """Yield the fields of some structures, one after another from an offset on."""
        found = _compiled(self._types, widths)
        if at + count * found.size > len(body):
            raise StructureError("a structure ends before its fields do")
        for number in range(count):
            yield dict(zip(self._names, found.unpack_from(body, at + number * found.size), strict=True))

    def read(self, address: int, widths: Widths, /) -> Parse[dict[str, int]]:
        """Read a structure with a checksum at its end."""
        body = yield from read_span(address, self.size(widths) + _CHECKSUM_BYTES)
        return self.parse(verified(body), widths)


@functools.lru_cache(maxsize=64)
def _compiled(types: str, widths: Widths) -> Struct:
    return Struct("<" + types.replace("A", _UNSIGNED[widths.address]).replace("L", _UNSIGNED[widths.length]))
