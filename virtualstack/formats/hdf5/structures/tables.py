"""Fixed structures of the format, as tables of the names and types of their fields."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping

from virtualstack.formats.hdf5.structures.requests import (
    Parse,
    StructureError,
    Widths,
    check_signature,
    compiled,
    read_span,
    verified,
)

_CHECKSUM_BYTES = 4


class Table:
    """A fixed structure: fields of unsigned little-endian numbers.

    Parameters
    ----------
    fields
        Name and type of each field, separated by commas. The types are those of `struct`, and ``A`` for an address and
        ``L`` for a length, whose widths differ between files. ``2x`` stands for two bytes without a meaning. A rule
        may follow the type: ``=0``, ``<=7``, ``>0``, or ``=none`` for the undefined address.
    what
        Signature of four letters that the structure begins with, or a name for errors.
    version
        Version after the signature; ``None`` if the structure has no signature.

    Examples
    --------
    >>> Table("size L<=9, place A", "HEAP", version=0).parse(b"HEAP" + bytes([0, 7, 0, 3, 0]), Widths(2, 2))
    {'size': 7, 'place': 3}
    """

    def __init__(self, fields: str, what: str, /, *, version: int | None = None) -> None:
        self.what, self._version = what, version
        words = [field.split() for field in fields.split(",")]
        found = [(word[0], *_TYPE.fullmatch(word[-1]).groups()) for word in words]  # type: ignore[union-attr]
        self._names = tuple(name for name, types, _, _ in found if not types.endswith("x"))
        self._types = ("" if version is None else "5x") + "".join(types for _, types, _, _ in found)
        self._rules = [(name, _RULES[sign], limit) for name, _, sign, limit in found if sign]

    def size(self, widths: Widths, /) -> int:
        """Return the number of bytes of the structure."""
        return compiled(self._types, widths).size

    def parse(self, body: bytes, widths: Widths, /, **expected: int) -> dict[str, int]:
        """Return the fields of a structure by name; further bytes may follow. Some must have the values expected."""
        if self._version is not None:
            check_signature(body, self.what.encode(), self._version)
        found = next(self.rows(body, 0, 1, widths))
        for name, rule, limit in self._rules:
            if not rule(found[name], widths.undefined if limit == "none" else int(limit)):
                raise StructureError(f"'{self.what}' has the {name} {found[name]}, which is not valid")
        for name, value in expected.items():
            if found[name] != value:
                raise StructureError(f"'{self.what}' has the {name} {found[name]}, where it should be {value}")
        return found

    def rows(self, body: bytes, at: int, count: int, widths: Widths, /) -> Iterator[dict[str, int]]:
        """Yield the fields of some structures, one after another from an offset on."""
        found = compiled(self._types, widths)
        if at + count * found.size > len(body):
            raise StructureError(f"'{self.what}' ends before its fields do")
        for number in range(count):
            yield dict(zip(self._names, found.unpack_from(body, at + number * found.size), strict=True))

    def read(self, address: int, widths: Widths, /, **expected: int) -> Parse[dict[str, int]]:
        """Read a structure with a checksum at its end."""
        body = yield from read_span(address, self.size(widths) + _CHECKSUM_BYTES)
        return self.parse(verified(body), widths, **expected)


_TYPE = re.compile(r"(\w+)(?:(=|<=|>)(\w+))?")
_RULES: Mapping[str, Callable[[int, int], bool]] = {"=": operator.eq, "<=": operator.le, ">": operator.gt}
