"""Errors of the HDF5 library, kept apart from those of storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from virtualstack.errors import VirtualStackError

__all__ = ["LibraryError", "library_errors"]

# What h5py raises on damaged files and on what it does not know. A StorageError, which is an OSError, passes.
_RAISED = (OSError, RuntimeError, ValueError, TypeError, LookupError, NotImplementedError, OverflowError, MemoryError)


class LibraryError(Exception):
    """The HDF5 library could not do what was asked for; the message says why, in its own words."""


@contextmanager
def library_errors() -> Iterator[None]:
    """Turn what h5py raises into `LibraryError`; errors of storage, which pass through h5py, stay what they are."""
    try:
        yield
    except VirtualStackError:
        raise
    except _RAISED as error:
        text = str(error.args[0]) if error.args else type(error).__name__
        raise LibraryError(text.removeprefix("Can't synchronously read data ").strip("()")) from error
