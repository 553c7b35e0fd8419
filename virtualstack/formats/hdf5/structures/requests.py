"""How parsers ask for bytes: they are generators that yield what they need next, and are sent it.

So one parser serves local files, where each request is a `pread`, and object stores, where those of many parsers are
fetched at once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Blocks", "OutsideError", "Parse", "Span", "StructureError", "Widths", "read_blocks", "read_span"]


class StructureError(Exception):
    """The bytes contradict the file format, or are of a form that is not known here; the message is half a sentence."""


class OutsideError(StructureError):
    """Bytes would lie past the end of the file: it is cut short, or an address is wrong."""


class Span(NamedTuple):
    """A request for one stretch of bytes; the answer is `bytes`.

    Parameters
    ----------
    address
        Bytes from the end of the user block.
    size
        Bytes.
    is_clipped
        Whether it may reach past the end of the file; the answer is shorter then. Else that is an error.
    """

    address: int
    size: int
    is_clipped: bool = False


class Blocks(NamedTuple):
    """A request for blocks of one size; the answer is an array of dtype uint8 and shape ``(n, size)``, C-contiguous.

    Parameters
    ----------
    addresses
        Shape ``(n,)``, bytes from the end of the user block.
    size
        Bytes of each block.
    """

    addresses: NDArray[np.int64]
    size: int


type Parse[T] = Generator[Sequence[Span | Blocks], Sequence[Any], T]
"""A parser: yields requests that do not depend on each other, is sent the answers, and returns a value.

Where bytes cannot be had because an address or a size is none of the file, `StructureError` is thrown into it.
"""


@dataclass(frozen=True, slots=True)
class Widths:
    """Bytes of an address and of a length in a file, as its superblock says ("size of offsets", "size of lengths")."""

    address: int = 8
    length: int = 8

    @property
    def undefined(self) -> int:
        """The address that says that there is nothing: all bits set."""
        return (1 << 8 * self.address) - 1


def read_span(address: int, size: int, *, is_clipped: bool = False) -> Parse[bytes]:
    """Ask for one stretch of bytes."""
    (answer,) = yield (Span(address, size, is_clipped),)
    return answer  # type: ignore[no-any-return]


def read_blocks(addresses: NDArray[np.int64], size: int) -> Parse[NDArray[np.uint8]]:
    """Ask for blocks of one size."""
    (answer,) = yield (Blocks(addresses, size),)
    return answer  # type: ignore[no-any-return]
