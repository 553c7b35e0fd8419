"""Two parsers that run side by side, so that what both need next is fetched at once."""

from __future__ import annotations

from itertools import islice
from typing import Any

from virtualstack.formats.hdf5.structures.requests import Parse

__all__ = ["read_both"]


def read_both[A, B](first: Parse[A], second: Parse[B]) -> Parse[tuple[A, B]]:
    """Run two parsers to their ends; an error of one is an error of both.

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
