"""Reading more blocks than should be in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.requests import Blocks, OutsideError, Parse, StructureError

__all__ = ["ROUND_BYTES", "SLICE_BYTES", "check_places", "read_in_rounds"]

ROUND_BYTES = 1 << 24  # at most in memory; on a fast network it takes longer to come than a round trip does
_FEW = 16
SLICE_BYTES = 1 << 18  # worked on at once: what is computed from it stays in the caches of the processor


def read_in_rounds(requests: Sequence[Blocks], use: Callable[[int, int, NDArray[np.uint8]], None]) -> Parse[None]:
    """Ask for blocks, as many at once as is good for memory, and hand them to a function piece by piece.

    Parameters
    ----------
    requests
        Independent of each other.
    use
        Is given the number of the request, the number of the first block in it, and some blocks, which it must not
        keep: an array of shape ``(n, size)``, C-contiguous, n at least 1.
    """
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
        del answers, answer  # before the next ones are asked for


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
    """Refuse blocks that reach past the end of a file, or into each other.

    So no number in a file makes a parser read more than the file has, and no loop of references is without an end.

    Parameters
    ----------
    places
        Addresses as read from the file, those of 2^63 bytes and more as negative numbers.
    end
        Bytes of the file after the user block.
    what
        Name of the structures, for the error.
    """
    if sum(len(addresses) * size for addresses, size in places) > end:
        raise OutsideError(f"{what} have more bytes than the file")
    if sum(len(addresses) for addresses, _ in places) <= _FEW:
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
    """Do the same with numbers of Python, which are faster for a few blocks."""
    if places and (places[0][0] < 0 or any(address > end - size for address, size in places)):
        raise OutsideError(f"{what} lie past the end of the file")
    if any(following - address < size for (address, size), (following, _) in pairwise(places)):
        raise StructureError(f"{what} overlap")
