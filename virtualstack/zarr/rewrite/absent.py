"""ABSENT chunks, for which only vstacks have a place."""

from __future__ import annotations

from typing import Literal

from virtualstack.errors import WriterError

__all__ = ["OnAbsent", "check_word", "refuse_absent"]

type OnAbsent = Literal["raise", "fill"]
"""Whether ABSENT chunks are refused, or left out as EMPTY ones are."""


def check_word(absent: str, /) -> None:
    """Raise `ValueError` for what is no `OnAbsent`."""
    if absent not in ("raise", "fill"):
        raise ValueError(f"absent={absent!r}; ABSENT chunks are refused ('raise'), or left out ('fill')")


def refuse_absent(n_absent: int, /, *, variable: str, target: str) -> None:
    """Raise `WriterError` where a variable has ABSENT chunks, and is to be written as ``target``."""
    if n_absent:
        raise WriterError(
            f"variable '{variable}' has {n_absent:,} ABSENT chunks, which {target} cannot tell from those never "
            "written: restore their sources, leave the variable out, write a vstack, or say absent='fill' to "
            "let them read as the fill value",
            variable=variable,
            feature="ABSENT chunks",
        )
