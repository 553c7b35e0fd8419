"""Errors of virtualstack, grouped by what the one who catches them does next.

::

    VirtualStackError
    ├── ReaderError                    the source cannot be described
    │   ├── UnknownFormatError         no reader recognises the format (also ValueError)
    │   ├── GroupNotFoundError         the source does not contain the group (also FileNotFoundError)
    │   ├── MissingDependencyError     an extra is not installed (also ImportError)
    │   ├── MalformedFileError         bytes contradict the format (also ValueError)
    │   └── UnsupportedFeatureError    valid, but cannot be described by byte ranges (also NotImplementedError)
    ├── ManifestError                  a manifest contradicts itself (also ValueError)
    ├── CombineError                   arrays cannot be joined unchanged (also ValueError)
    │   └── ChunkAlignmentError        an operation would have to read a chunk
    ├── VirtualValuesError             values of a virtual array are needed (also RuntimeError)
    ├── StorageError                   bytes could not be read (also OSError)
    │   ├── SourceNotFoundError        no file or object at this URL (also FileNotFoundError)
    │   ├── SourceChangedError         size or etag differs from the manifest
    │   ├── ChunkDecodeError           stored bytes cannot be decoded (also ValueError)
    │   └── ForbiddenLocationError     outside of the allowed locations (also PermissionError)
    └── WriterError                    the target cannot store this (also ValueError)
        └── ConflictError              another writer changed the same data first

Every message says what happened, the values that clash, and what to do.
Every error pickles with its attributes, so it crosses process borders whole.
"""

from __future__ import annotations

from typing import Any, Self

from virtualstack.printable import printable

__all__ = [
    "ChunkAlignmentError",
    "ChunkDecodeError",
    "CombineError",
    "ConflictError",
    "ForbiddenLocationError",
    "GroupNotFoundError",
    "MalformedFileError",
    "ManifestError",
    "MissingDependencyError",
    "ReaderError",
    "SourceChangedError",
    "SourceNotFoundError",
    "StorageError",
    "UnknownFormatError",
    "UnsupportedFeatureError",
    "VirtualStackError",
    "VirtualValuesError",
    "WriterError",
]


_MAX_MESSAGE_CHARACTERS = 20_000


def _restore[E: VirtualStackError](cls: type[E], message: str, state: dict[str, Any]) -> E:
    error = cls.__new__(cls)
    error.args = (message,)
    error.__dict__.update(state)
    return error


class VirtualStackError(Exception):
    """Base of all errors that virtualstack raises on purpose.

    Parameters
    ----------
    message
        What happened, the two values that clash, and what to do about it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def __str__(self) -> str:
        # OSError and ImportError have their own idea of str(); the message is ours. Names in it may be a stranger's.
        text = printable(str(self.args[0])) if self.args else ""
        return text if len(text) <= _MAX_MESSAGE_CHARACTERS else f"{text[:_MAX_MESSAGE_CHARACTERS]}..."

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), str(self), self.__dict__.copy())


class ReaderError(VirtualStackError):
    """A source cannot be described as a virtual dataset."""

    def __init__(self, message: str, *, url: str | None = None) -> None:
        super().__init__(message)
        self.url = url


class UnknownFormatError(ReaderError, ValueError):
    """No reader knows these bytes."""


class GroupNotFoundError(ReaderError, FileNotFoundError):
    """The source has no group of that name; an ``OSError``, as with the netCDF engines of xarray."""


class MissingDependencyError(ReaderError, ImportError):
    """An optional dependency is not installed; the message ends with the pip command."""

    def __init__(self, feature: str, *, extra: str, url: str | None = None) -> None:
        super().__init__(
            f"{feature} needs an optional dependency; install it with: pip install 'virtualstack[{extra}]'", url=url
        )
        self.extra = extra


class MalformedFileError(ReaderError, ValueError):
    """Bytes contradict the format: the file is truncated, damaged, or is not what it says.

    Attributes
    ----------
    url
        The file.
    offset
        Byte offset where the contradiction was found, or ``None``.
    """

    def __init__(self, message: str, *, url: str | None = None, offset: int | None = None) -> None:
        super().__init__(message, url=url)
        self.offset = offset


class UnsupportedFeatureError(ReaderError, NotImplementedError):
    """Legal in the format, but has no byte-range form (yet).

    Attributes
    ----------
    url, variable, feature
        Where it is, and the feature in the format's own words.
    """

    def __init__(
        self, message: str, *, url: str | None = None, variable: str | None = None, feature: str | None = None
    ) -> None:
        super().__init__(message, url=url)
        self.variable = variable
        self.feature = feature


class ManifestError(VirtualStackError, ValueError):
    """A manifest, encoding or grid contradicts itself."""


class CombineError(VirtualStackError, ValueError):
    """Arrays cannot be joined as they are.

    Attributes
    ----------
    variable
        Name of the variable, or ``None`` if the array does not know it.
    property
        What differs: ``"dtype"``, ``"scale_factor"``, ``"shape"`` ...
    left, right
        The two values that clash.
    left_url, right_url
        A source of each side, or ``None``.
    """

    def __init__(
        self,
        message: str,
        *,
        variable: str | None = None,
        property: str | None = None,
        left: object = None,
        right: object = None,
        left_url: str | None = None,
        right_url: str | None = None,
    ) -> None:
        super().__init__(message)
        self.variable = variable
        self.property = property
        self.left = left
        self.right = right
        self.left_url = left_url
        self.right_url = right_url


class ChunkAlignmentError(CombineError):
    """An operation would have to read chunks to go on.

    Attributes
    ----------
    axis
        Axis of the array, or ``None``.
    chunk_length
        Length of the chunks along that axis in elements, or ``None`` where they differ.
    """

    def __init__(
        self, message: str, *, axis: int | None = None, chunk_length: int | None = None, variable: str | None = None
    ) -> None:
        super().__init__(message, variable=variable, property="chunks")
        self.axis = axis
        self.chunk_length = chunk_length


class VirtualValuesError(VirtualStackError, RuntimeError):
    """Values of a virtual array were requested."""


class StorageError(VirtualStackError, OSError):
    """Bytes could not be read or written.

    Attributes
    ----------
    url
        The source or target.
    variable, cell
        Name of the variable, and index of the cell in its chunk grid, if a chunk was read; else ``None``.
    offset, length
        Byte range in the source; ``None`` also for a whole file of unknown length.
    is_short
        If true, fewer bytes came than were requested, so the same request may succeed later.
    status
        HTTP status of the server's answer, if known; else ``None``.
    """

    offset: int | None = None
    length: int | None = None
    is_short: bool = False

    def __init__(
        self,
        message: str,
        *,
        url: str | None = None,
        variable: str | None = None,
        cell: tuple[int, ...] | None = None,
        is_short: bool = False,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.is_short = is_short
        self.url = url
        self.status = status
        self.variable = variable
        self.cell = cell

    def of_chunk(
        self, variable: str | None, cell: tuple[int, ...], /, *, offset: int, length: int | None, n_others: int = 0
    ) -> Self:
        """Return the same error with the requested chunk, and the number of others, in its message and attributes."""
        where = "" if length is None else f" (bytes {offset} to {offset + length})"
        others = f" and {n_others} more chunks" if n_others else ""
        message = f"cell {cell} of variable '{variable}'{where}{others} cannot be read: {self}"
        state = {"variable": variable, "cell": cell, "offset": offset, "length": length}
        return _restore(type(self), message, {**self.__dict__, **state})


class SourceNotFoundError(StorageError, FileNotFoundError):
    """There is nothing at that URL."""


class SourceChangedError(StorageError):
    """A source's size or etag differ from what the manifest recorded."""


class ChunkDecodeError(StorageError, ValueError):
    """Stored bytes of one chunk do not decode."""

    def __init__(
        self,
        message: str,
        *,
        variable: str | None = None,
        cell: tuple[int, ...] | None = None,
        url: str | None = None,
        offset: int | None = None,
        length: int | None = None,
    ) -> None:
        super().__init__(message, url=url, variable=variable, cell=cell)
        self.offset = offset
        self.length = length


class ForbiddenLocationError(StorageError, PermissionError):
    """A store points outside of the allowed locations."""


class WriterError(VirtualStackError, ValueError):
    """The target cannot express this.

    Attributes
    ----------
    variable, feature
        What cannot be expressed; the message says which target would.
    """

    def __init__(self, message: str, *, variable: str | None = None, feature: str | None = None) -> None:
        super().__init__(message)
        self.variable = variable
        self.feature = feature


class ConflictError(WriterError):
    """Another writer committed the same region."""
