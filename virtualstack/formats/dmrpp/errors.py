"""What goes wrong with one variable of a document; the reader adds the names of both."""

from __future__ import annotations

__all__ = ["BadValueError", "RefusedError"]


class BadValueError(Exception):
    """The document contradicts itself; the message is half a sentence."""


class RefusedError(Exception):
    """The variable is legal, and has no byte ranges that are known to give its values; the message is the reason.

    Parameters
    ----------
    inline_size
        Bytes that the values take, where the inline limit is what stands in the way.
    """

    def __init__(self, message: str, *, inline_size: int = 0) -> None:
        super().__init__(message)
        self.inline_size = inline_size
