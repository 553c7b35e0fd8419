"""How a URL is spelt: what one program reads as a name, and another one as a way out of the folder."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

__all__ = ["are_plain", "flaw", "way_out"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")
_SLASH, _DOT = r"(?:[/\\]|%(?:25)*2f)", r"(?:\.|%(?:25)*2e)"
# What ends a segment: RFC 3986 3.3, the parameters of some servers (";"), and all of it encoded, be it twice.
_DOTS = re.compile(rf"{_SLASH}{_DOT}{{1,2}}(?=[/\\?#;\n]|$|%(?:25)*(?:2f|5c|3f|23|3b|00))", re.IGNORECASE)
# Bytes C0 and C1 are in no UTF-8; careless decoders make dots and slashes of them.
_ENCODED = re.compile(r"%(?:25)*(?:[01][0-9a-f]|7f|5c|c0|c1)", re.IGNORECASE)
_CONTROL = re.compile(r"[\0-\x1f\x7f]")


def are_plain(urls: Sequence[str], /) -> bool:
    """Tell whether no URL has a flaw, given that each begins with a scheme: a few looks at all of them together."""
    text = "\n".join(urls)
    try:
        data = np.frombuffer(text.encode(), np.uint8)
    except UnicodeEncodeError:
        return False
    return not (
        np.count_nonzero(data < 32) != max(0, len(urls) - 1)
        or "\x7f" in text
        or "\\" in text
        or text.count("//") != len(urls)
        or (("/." in text or "%2" in text) and _DOTS.search(text))
        or ("%" in text and _ENCODED.search(text))
    )


def way_out(url: str, /) -> str | None:
    """Say by what a URL leads elsewhere than where it begins, or is none; ``None`` where it does not.

    >>> way_out("https://host/data/%2E%2e/secret")
    "has a segment '.' or '..'"
    """
    scheme = _SCHEME.match(url)
    if scheme is None or scheme.group(1).lower() == "local":
        return "is no absolute URL"
    if scheme.group(1).lower() == "file" and not url[scheme.end() :].startswith("/"):
        return "is no absolute path"
    return "has a segment '.' or '..'" if _DOTS.search(url) else None


def flaw(url: str, /) -> str | None:
    """Say what could be read in two ways in a URL, or ``None``; see `way_out`, which is part of it.

    >>> flaw("s3://bucket/a//b")
    'has an empty segment'
    """
    if found := way_out(url):
        return found
    if url.count("//") != 1:
        return "has an empty segment"
    if "\\" in url or _CONTROL.search(url) or _ENCODED.search(url):
        return "has a backslash or a control character"
    try:
        url.encode()
    except UnicodeEncodeError:
        return "has half a character"
    return None
