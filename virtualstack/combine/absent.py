"""Elements that a joined variable has though no file does: they stand where a file lacks labels, or the variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["EVERYTHING", "Absent", "Mask", "absent_by_name", "absent_joined", "absent_moved"]

type Mask = NDArray[np.bool_]


class Absent(Protocol):
    """Tells which elements of variables are in no file; masks are made when asked for, as few are."""

    def mask(self, name: str, dims: Sequence[str], /) -> Mask | None:
        """Give a mask that broadcasts to a variable; ``None`` where all of it is there.

        Parameters
        ----------
        name, dims
            Of the variable.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Everything:
    def mask(self, name: str, dims: Sequence[str], /) -> Mask | None:
        return np.ones((1,) * len(dims), np.bool_)


EVERYTHING: Absent = _Everything()
"""Nothing of a variable is there."""


@dataclass(frozen=True, slots=True, eq=False)
class _ByName:
    known: Mapping[str, Absent | None]
    rest: Absent | None

    def mask(self, name: str, dims: Sequence[str], /) -> Mask | None:
        of = self.known.get(name, self.rest)
        return None if of is None else of.mask(name, dims)


@dataclass(frozen=True, slots=True, eq=False)
class _Moved:
    positions: Mapping[str, NDArray[np.int64]]
    rest: Absent | None

    def mask(self, name: str, dims: Sequence[str], /) -> Mask | None:
        mask = None if self.rest is None else self.rest.mask(name, dims)
        for axis, dim in enumerate(dims):
            if (at := self.positions.get(dim)) is None:
                continue
            if mask is not None and mask.shape[axis] > 1:
                mask = mask.take(at, axis, mode="clip")
            if (at < 0).any():
                own = (at < 0).reshape((-1,) + (1,) * (len(dims) - axis - 1))
                mask = own.reshape((1,) * (len(dims) - own.ndim) + own.shape) if mask is None else mask | own
        return mask


@dataclass(frozen=True, slots=True, eq=False)
class _Joined:
    pieces: Sequence[Absent | None]
    dim: str | None
    lengths: Sequence[int]

    def mask(self, name: str, dims: Sequence[str], /) -> Mask | None:
        masks = [None if piece is None else piece.mask(name, dims) for piece in self.pieces]
        having = [mask for mask in masks if mask is not None]
        if self.dim not in dims:  # what is not joined is put together from all
            return reduce(np.logical_and, having) if len(having) == len(masks) else None
        if not having:
            return None
        axis = dims.index(self.dim)
        shape = list(np.broadcast_shapes(*((*x.shape[:axis], 1, *x.shape[axis + 1 :]) for x in having)))
        filled = []
        for mask, n in zip(masks, self.lengths, strict=True):
            shape[axis] = n
            filled.append(np.broadcast_to(np.False_ if mask is None else mask, shape))
        return np.concatenate(filled, axis)


def absent_by_name(rest: Absent | None, known: Mapping[str, Absent | None], /) -> Absent | None:
    """Give what is absent where some variables have their own."""
    return _ByName(known, rest) if known else rest


def absent_moved(rest: Absent | None, positions: Mapping[str, NDArray[np.int64]], /) -> Absent | None:
    """Give what is absent once labels are looked up.

    Parameters
    ----------
    rest
        What was absent.
    positions
        By dimension, shape ``(labels,)``: the element that there was, -1 for none.
    """
    if rest is None and all(bool((at >= 0).all()) for at in positions.values()):
        return None
    return _Moved(positions, rest)


def absent_joined(pieces: Sequence[Absent | None], dim: str | None, lengths: Sequence[int], /) -> Absent | None:
    """Give what is absent once parts are joined along a dimension.

    Of variables without it, what is absent in all parts: they are put together from all.
    """
    return None if all(piece is None for piece in pieces) else _Joined(pieces, dim, lengths)
