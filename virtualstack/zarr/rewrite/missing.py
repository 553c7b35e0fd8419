"""MISSING chunks, for which only vstacks have a place."""

from __future__ import annotations

from typing import Literal

from virtualstack.errors import WriterError

__all__ = ["Missing", "check_word", "refuse_missing"]

type Missing = Literal["raise", "fill"]
"""Whether MISSING chunks are refused, or left out as EMPTY ones are."""


def check_word(missing: str, /) -> None:
    """Raise `ValueError` for what is no `Missing`."""
    if missing not in ("raise", "fill"):
        raise ValueError(f"missing={missing!r}; MISSING chunks are refused ('raise'), or left out ('fill')")


def refuse_missing(n_missing: int, /, *, variable: str, target: str) -> None:
    """Raise `WriterError` where a variable has MISSING chunks, and is to be written as ``target``."""
    if n_missing:
        raise WriterError(
            f"variable '{variable}' has {n_missing:,} MISSING chunks, which {target} cannot tell from those never "
            "written: restore their sources, leave the variable out, write a vstack, or say missing='fill' to "
            "let them read as the fill value",
            variable=variable,
            feature="MISSING chunks",
        )
