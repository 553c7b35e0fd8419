"""Patterns of paths as regular expressions that take linear time, whatever the pattern."""

from __future__ import annotations

import re

__all__ = ["MAGIC", "path_expression"]

MAGIC = re.compile(r"[*?\[]")
"""What makes a pattern of a path."""

_SEEN = r"(?!\.)"
_FOLDERS = rf"(?:{_SEEN}[^/]*+/)*?"
_TOKENS = re.compile(r"(\*+|\?|\[!?\]?[^\]]*\])")


def path_expression(pattern: str, /) -> re.Pattern[str]:
    """Translate a pattern as :func:`glob.glob` has it: ``**`` is any folders, and what begins with a dot is hidden.

    What stands between two stars is matched where it occurs first, once and for all (an atomic group): what is there
    to match after it is most then, so nothing is lost, and nothing has to be tried again.

    >>> bool(path_expression("**/t[0-9]*.nc").fullmatch("a/b/t12.nc"))
    True
    """
    blocks: list[list[str]] = [[]]
    for segment in pattern.split("/"):
        if segment == "**":
            blocks.append([])
        else:
            blocks[-1].append(_segment(segment))
    first, *others = ("/".join(block) for block in blocks)
    if not others:
        return re.compile(first, re.DOTALL)
    made = [f"{first}/"] if first else []
    made += [f"(?>{_FOLDERS}{block}/)" for block in others[:-1] if block]
    made.append(_FOLDERS + (others[-1] or f"{_SEEN}[^/]*"))
    return re.compile("".join(made), re.DOTALL)


def _segment(pattern: str) -> str:
    """Translate what stands between slashes."""
    pieces = [""]
    for i, token in enumerate(_TOKENS.split(pattern)):
        if token.startswith("*"):
            pieces.append("")
        elif i % 2:
            pieces[-1] += "[^/]" if token == "?" else _character_set(token[1:-1])
        else:
            pieces[-1] += re.escape(token)
    first, *others = pieces
    hides = _SEEN if _TOKENS.match(pattern) else ""
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1] if piece)
    return hides + first + middle + (f"[^/]*{others[-1]}" if others else "")


def _character_set(inside: str) -> str:
    """Translate a set; one whose ranges are all empty, such as ``z-a``, has no character."""
    is_negated, chars = inside.startswith("!"), inside.removeprefix("!")
    made = ""
    while chars:
        is_range = len(chars) > 2 and chars[1] == "-"
        low, high = chars[0], chars[2] if is_range else chars[0]
        made += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
        chars = chars[3 if is_range else 1 :]
    if is_negated:
        return f"[^/{made}]"
    return f"(?!/)[{made}]" if made else r"(?!)"
