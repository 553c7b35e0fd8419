"""Text from untrusted sources on a terminal, which interprets some characters as commands."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

MAX_SHOWN_ITEMS = 20
"""Items of a list that a representation or a message shows; it counts the others."""

_MAX_NAMES = 5

# Control characters (C0 except tab and newline, and C1), and characters that reverse the direction of text.
_ODD = re.compile("[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]")


def printable(text: str, /) -> str:
    r"""Return text with control characters, which could move the cursor or do worse, escaped as ``\x1b`` and so on.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _ODD.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def counted(n: int, noun: str, /) -> str:
    """Return a number and its noun, in the singular or plural.

    >>> counted(1, "group"), counted(2000, "group")
    ('1 group', '2,000 groups')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def did_you_mean(name: str, names: Iterable[str], /) -> str:
    """Return a question with the name that is closest to a mistyped one, or nothing if none is close.

    >>> did_you_mean("hdf6", ["grib", "hdf5"]), did_you_mean("moon", ["grib", "hdf5"])
    (" Did you mean 'hdf5'?", '')
    """
    closest = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean '{closest[0]}'?" if closest else ""


def first_names(names: Sequence[str], /) -> str:
    """Return a list of at most five names as text, and how many more there are.

    >>> first_names(["lat", "lon"])
    "['lat', 'lon']"
    >>> first_names(["a", "b", "c", "d", "e", "f", "g"])
    "['a', 'b', 'c', 'd', 'e'] and 2 more"
    """
    more = len(names) - _MAX_NAMES
    return f"{list(names[:_MAX_NAMES])}" + (f" and {more:,} more" if more > 0 else "")
