"""Requests of parsers for bytes: parsers are generators that yield requests and receive the answers.

Thus one parser serves local files and object stores. On local files each request is a `pread`. From object stores the
requests of many parsers are fetched at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numcodecs.jenkins import jenkins_lookup3
from numpy.typing import NDArray


class StructureError(Exception):
    """The bytes contradict the file format, or have an unknown form; the message is half a sentence."""


class OutsideError(StructureError):
    """Bytes are past the end of the file: the file is truncated, or an address is wrong."""


class Span(NamedTuple):
    """A request for one byte range; the answer is `bytes`."""

    address: int
    size: int
    is_clipped: bool = False


class Blocks(NamedTuple):
    """A request for blocks of one size; the answer is a C-contiguous array of dtype uint8 and shape ``(n, size)``."""

    addresses: NDArray[np.int64]
    size: int


type Parse[T] = Generator[Sequence[Span | Blocks], Sequence[Any], T]
"""A parser: it yields requests that do not depend on each other, receives the answers, and returns a value.

If a request has an address or a size that is not within the file, `StructureError` is thrown into the parser.
"""


@dataclass(frozen=True, slots=True)
class Widths:
    """Widths in bytes of addresses and lengths ("size of offsets" and "size of lengths" in the superblock)."""

    address: int = 8
    length: int = 8

    def __post_init__(self) -> None:
        if not {self.address, self.length} <= {2, 4, 8}:
            raise StructureError(f"addresses have {self.address} bytes and lengths {self.length}; expected 2, 4 or 8")

    @property
    def undefined(self) -> int:
        """The undefined address: all bits set."""
        return (1 << 8 * self.address) - 1

    def defined(self, address: int) -> int | None:
        """Return an address, or ``None`` for the undefined address."""
        return None if address == self.undefined else address


def read_span(address: int, size: int, *, is_clipped: bool = False) -> Parse[bytes]:
    """Request one byte range."""
    (answer,) = yield (Span(address, size, is_clipped),)
    return answer  # type: ignore[no-any-return]


def read_blocks(addresses: NDArray[np.int64], size: int) -> Parse[NDArray[np.uint8]]:
    """Request blocks of one size."""
    (answer,) = yield (Blocks(addresses, size),)
    return answer  # type: ignore[no-any-return]


def read_both[A, B](first: Parse[A], second: Parse[B]) -> Parse[tuple[A, B]]:
    """Run two parsers to their ends; an error of one parser ends both.

    Examples
    --------
    >>> from virtualstack.formats.hdf5.structures.requests import read_span
    >>> both = read_both(read_span(0, 2), read_span(8, 2))
    >>> next(both)
    [Span(address=0, size=2, is_clipped=False), Span(address=8, size=2, is_clipped=False)]
    >>> both.send([b"ab", b"cd"])
    Traceback (most recent call last):
    StopIteration: (b'ab', b'cd')
    """
    results: list[Any] = [None, None]
    running: dict[int, tuple[Parse[Any], Any]] = {0: (first, None), 1: (second, None)}
    answers: Any = None
    while running:
        for n, (parser, requests) in list(running.items()):
            try:
                if requests is None:
                    running[n] = parser, next(parser)
                else:
                    running[n] = parser, parser.send(list(islice(answers, len(requests))))
            except StopIteration as stop:
                results[n] = stop.value
                del running[n]
        if running:
            answers = iter((yield [request for _, requests in running.values() for request in requests]))
    return results[0], results[1]


ROUND_BYTES = 1 << 24  # largest round in memory; even a fast network needs longer for it than for a round trip
_FEW_BLOCKS = 16
SLICE_BYTES = 1 << 18  # processed at once, so that intermediate results stay in the processor's caches


def read_in_rounds(requests: Sequence[Blocks], use: Callable[[int, int, NDArray[np.uint8]], None]) -> Parse[None]:
    """Request blocks, as many at once as memory should hold, and pass them to a function in pieces."""
    if sum(len(addresses) * size for addresses, size in requests) <= SLICE_BYTES:  # one round, each in one piece
        for number, answer in enumerate((yield requests)):
            if len(answer):
                use(number, 0, answer)
        return
    pieces = [
        (number, first, Blocks(request.addresses[first : first + step], request.size))
        for number, request in enumerate(requests)
        for step in (max(1, ROUND_BYTES // request.size),)
        for first in range(0, len(request.addresses), step)
    ]
    for round_ in _packed(pieces):
        answers = yield [blocks for _, _, blocks in round_]
        for (number, first, blocks), answer in zip(round_, answers, strict=True):
            step = max(1, SLICE_BYTES // blocks.size)
            for at in range(0, len(answer), step):
                use(number, first + at, answer[at : at + step])
        del answers, answer  # freed before the next request


def _packed(pieces: list[tuple[int, int, Blocks]]) -> list[list[tuple[int, int, Blocks]]]:
    rounds: list[list[tuple[int, int, Blocks]]] = []
    room = 0
    for piece in pieces:
        n_bytes = len(piece[2].addresses) * piece[2].size
        if n_bytes > room:
            rounds.append([])
            room = ROUND_BYTES
        rounds[-1].append(piece)
        room -= n_bytes
    return rounds


def check_places(places: Sequence[Blocks], end: int, what: str, /) -> None:
    """Raise an error if blocks extend past the end of a file, or overlap.

    Thus no number in a file makes a parser read more than the file has, and no loop of references is endless.
    """
    if sum(len(addresses) * size for addresses, size in places) > end:
        raise OutsideError(f"{what} have more bytes than the file")
    if sum(len(addresses) for addresses, _ in places) <= _FEW_BLOCKS:
        _check_few(sorted((address, size) for addresses, size in places for address in addresses.tolist()), end, what)
        return
    addresses = np.concatenate([addresses for addresses, _ in places] or [np.zeros(0, np.int64)])
    sizes = np.concatenate([np.full(len(addresses), size, np.int64) for addresses, size in places] or [addresses])
    order = np.argsort(addresses, kind="stable")
    addresses, sizes = addresses[order], sizes[order]
    if len(addresses) and (addresses[0] < 0 or (addresses > end - sizes).any()):
        raise OutsideError(f"{what} lie past the end of the file")
    if (addresses[1:] - addresses[:-1] < sizes[:-1]).any():
        raise StructureError(f"{what} overlap")


def _check_few(places: list[tuple[int, int]], end: int, what: str) -> None:
    """Make the same checks with Python's numbers, which are faster for a few blocks."""
    if places and (places[0][0] < 0 or any(address > end - size for address, size in places)):
        raise OutsideError(f"{what} lie past the end of the file")
    if any(following - address < size for (address, size), (following, _) in pairwise(places)):
        raise StructureError(f"{what} overlap")


def check(is_true: bool, what: str, /) -> None:
    """Raise `StructureError` unless a rule of the format holds; ``what`` is half a sentence about the fault."""
    if not is_true:
        raise StructureError(what)


def unsigned(body: bytes, at: int, width: int, /) -> int:
    """Read a little-endian number of ``width`` bytes; raise `StructureError` if there are too few bytes."""
    if at + width > len(body):
        raise StructureError("a structure ends before its fields do")
    return int.from_bytes(body[at : at + width], "little")


class Fields:
    """Reader of the little-endian fields of a structure, one after another."""

    def __init__(self, body: bytes, what: str = "a structure") -> None:
        self._body, self._at, self._what = body, 0, what

    @property
    def rest(self) -> bytes:
        """The bytes that are left."""
        return self._body[self._at :]

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        begin, end = self._at, self._at + size
        if end > len(self._body):
            raise StructureError(f"{self._what} ends before its fields do")
        self._at = end
        return self._body[begin:end]

    def number(self, width: int) -> int:
        """Return the next unsigned number of ``width`` bytes."""
        return int.from_bytes(self.take(width), "little")

    def numbers(self, width: int, count: int) -> tuple[int, ...]:
        """Return the next unsigned numbers of ``width`` bytes each."""
        return tuple(self.number(width) for _ in range(count))

    def unpack(self, form: str) -> tuple[Any, ...]:
        """Return the next fields of a little-endian format of `struct`."""
        found = compiled(form, None)
        return found.unpack(self.take(found.size))

    def text(self) -> bytes:
        """Return the bytes up to the next NUL, which is left out."""
        end = self._body.find(b"\0", self._at)
        check(end >= 0, f"a text of {self._what} has no end")
        return self.take(end + 1 - self._at)[:-1]


_UNSIGNED = {2: "H", 4: "I", 8: "Q"}


@lru_cache(maxsize=256)
def compiled(form: str, widths: Widths | None, /) -> struct.Struct:
    """Return a little-endian format of `struct`, in which ``A`` is an address and ``L`` a length."""
    if widths is not None:
        form = form.replace("A", _UNSIGNED[widths.address]).replace("L", _UNSIGNED[widths.length])
    return struct.Struct(f"<{form}")


def check_signature(body: bytes, signature: bytes, version: int, /) -> None:
    """Check the signature of four letters at the beginning of a structure, and the version after it."""
    if body[:4] != signature:
        raise StructureError(f"there is no '{signature.decode()}' where it should be")
    if body[4] != version:
        raise StructureError(f"version {body[4]} of '{signature.decode()}' is not known")


def verified(body: bytes, /) -> bytes:
    """Check the checksum at the end of a structure, and return the structure without it.

    HDF5 spec: Jenkins' lookup3 of all bytes before the checksum, in 4 bytes.
    """
    if len(body) < 4 or jenkins_lookup3(body[:-4], 0) != int.from_bytes(body[-4:], "little"):
        raise StructureError(f"the checksum of '{body[:4].decode('latin-1')}' is wrong")
    return body[:-4]


def decode_text(raw: bytes, /) -> str:
    """Decode text as UTF-8, or as latin-1 if it is not UTF-8, so that no letter is lost."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def read_column(
    raw: NDArray[np.uint8], at: int, width: int, shape: tuple[int, ...], strides: tuple[int, ...], /
) -> NDArray[np.int64]:
    """Read unsigned little-endian numbers of up to 8 bytes; numbers of 2^63 and more become negative.

    Examples
    --------
    >>> raw = np.arange(16, dtype=np.uint8)
    >>> read_column(raw, 1, 1, (2, 2), (8, 3))
    array([ 1,  4,  9, 12])
    >>> [hex(n) for n in read_column(raw, 0, 3, (2,), (8,))]
    ['0x20100', '0xa0908']
    """
    if width in (1, 2, 4, 8):
        kind = "<i8" if width == 8 else f"<u{width}"
        return np.array(np.ndarray(shape, kind, raw, at, strides), np.int64).reshape(-1)
    eight = np.ndarray(shape, "<u8", raw, at, strides)
    return (eight & np.uint64((1 << 8 * width) - 1)).reshape(-1).view(np.int64)


def verify_blocks(blocks: NDArray[np.uint8], sizes: NDArray[np.int64] | int, what: str, /) -> None:
    """Check the checksum after the first bytes of each block.

    HDF5 spec, "checksum" of each structure since version 1.8: Jenkins' lookup3 of all bytes before it, in 4 bytes.
    """
    n, width = blocks.shape
    flat = blocks.reshape(-1)
    starts = np.arange(n, dtype=np.int64) * width
    ends = starts + sizes
    stored = flat[ends[:, None] + np.arange(4)].view("<u4")[:, 0].tolist()
    data = flat.data
    found = [jenkins_lookup3(data[start:end], 0) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    if found != stored:
        raise StructureError(f"the checksum of {what} is wrong")


class NoReferencesError(Exception):
    """The values have no byte ranges in a source, but the HDF5 library can read them; the message states the reason."""


class LostValuesError(Exception):
    """The values cannot be read: the HDF5 library fails, returns other values, or must not be used."""
