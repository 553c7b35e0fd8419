"""Separate errors of libraries from errors of storage and from mistakes in virtualstack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# Errors that h5py raises on damaged files and on unknown features.
_RAISED = (OSError, RuntimeError, ValueError, TypeError, LookupError, NotImplementedError, OverflowError, MemoryError)

_READING = "Can't synchronously read data ("  # the reason and a closing bracket follow


class LibraryError(Exception):
    """A library could not do its task; the message is the library's own reason."""


@contextmanager
def library_errors() -> Iterator[None]:
    """Turn errors of h5py into `LibraryError`."""
    try:
        yield
    except _RAISED as error:
        text = str(error.args[0]) if error.args else type(error).__name__
        if text.startswith(_READING) and text.endswith(")"):
            text = text[len(_READING) : -1]
        raise LibraryError(text) from None
