"""Long runs of chunks in the usual form of ``get_dmrpp``, read without looking at each of them.

A run is cut out of the document before it is parsed, and an element that names it put in its place. Both are elements
and nothing else, so what is left is well-formed where the document is.
"""

from __future__ import annotations

import functools
import re

import numpy as np

from virtualstack.formats.dmrpp.rows import Columns

__all__ = ["RUN", "take_runs"]

RUN = "dmrpp:run"
"""Element in place of a run; its attribute ``n`` counts them."""

_SHORTEST = 1 << 12  # bytes: some 40 chunks
_BLOCK = 1 << 20
_TAG = b"<dmrpp:chunk "
_NUMBER = rb"[0-9]{1,18}"  # less than 2^62, so that two of them have a sum
_FIRST = re.compile(_TAG + rb'offset="%b" nBytes="%b" chunkPositionInArray="\[([0-9,]{1,640})\]"' % (_NUMBER, _NUMBER))
_ENCODING = re.compile(rb"""encoding=["']([^"']*)["']""")
_ASCII_BASED = frozenset({b"utf-8", b"iso-8859-1", b"us-ascii"})
_NO_DIGITS = bytes(i if i in b"0123456789" else 0x20 for i in range(256))


def take_runs(data: bytes, /) -> tuple[bytes, list[Columns]]:
    """Cut the long runs of chunks out of a document.

    Parameters
    ----------
    data
        The document.

    Returns
    -------
    rest
        The document with an element `RUN` in place of each run.
    runs
        The chunks of each run; none where the document has comments or the like, in which tags are no elements.
    """
    encoding = _ENCODING.search(data, 0, 200)
    is_plain = encoding is None or encoding[1].lower() in _ASCII_BASED
    if not is_plain or b"<!" in data or data.count(b"<?") > 1 or b":run" in data or b"<run" in data:
        return data, []
    runs: list[Columns] = []
    pieces: list[bytes] = []
    at = after = 0
    while (at := data.find(_TAG, at)) >= 0:
        first = _FIRST.match(data, at)
        run = None if first is None else _run_of(first[1].count(b",") + 1).match(data, at)
        end = at + len(_TAG) if run is None else run.end()
        if end - at >= _SHORTEST and first is not None:
            pieces += data[after:at], b'<%b n="%d"/>' % (RUN.encode(), len(runs))
            runs.append(_columns(data, at, end, first[1].count(b",") + 1))
            after = end
        at = end
    return b"".join([*pieces, data[after:]]) if runs else data, runs


@functools.lru_cache(maxsize=32)
def _run_of(n_axes: int) -> re.Pattern[bytes]:
    """Give the pattern of chunks that follow each other, with positions of so many numbers."""
    position = rb",".join([_NUMBER] * n_axes)
    chunk = _TAG + rb'offset="%b" nBytes="%b" chunkPositionInArray="\[%b\]" ?/>' % (_NUMBER, _NUMBER, position)
    return re.compile(rb"(?:%b[ \t\r\n]*+)++" % chunk)


def _columns(data: bytes, at: int, end: int, n_axes: int) -> Columns:
    """Read the numbers of a run, some ten thousand chunks at a time: their text is larger than they are."""
    parts = []
    while at < end:
        cut = data.rfind(b">", at, min(at + _BLOCK, end)) + 1
        parts.append(np.fromstring(data[at:cut].translate(_NO_DIGITS), np.int64, sep=" ").reshape(-1, 2 + n_axes))
        at = cut if data.find(_TAG, cut, end) >= 0 else end
    numbers = np.concatenate(parts)
    return Columns(offset=numbers[:, 0], length=numbers[:, 1], position=numbers[:, 2:])
