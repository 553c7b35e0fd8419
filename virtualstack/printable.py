"""Text of others on a terminal, which takes some characters for commands."""

from __future__ import annotations

import re

__all__ = ["MAX_SHOWN_ITEMS", "printable"]

MAX_SHOWN_ITEMS = 20
"""Items of a list that a representation or a message shows; it counts the others."""

# Control characters (C0 but for tab and newline, and C1), and what turns the direction of text around.
_ODD = re.compile("[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]")


def printable(text: str, /) -> str:
    r"""Return text with control characters, which could move the cursor or worse, written as ``\x1b`` and the like.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _ODD.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
