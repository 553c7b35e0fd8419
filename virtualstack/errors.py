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
    │   └── ChunkAlignmentError        an operation does not fit the chunks
    ├── VirtualValuesError             values of a virtual array are needed (also RuntimeError)
    ├── StorageError                   bytes could not be read or written (also OSError)
    │   ├── SourceNotFoundError        no file or object at this URL (also FileNotFoundError)
    │   ├── AccessDeniedError          the server or file system refuses access (also PermissionError)
    │   ├── SourceChangedError         the source changed after it was scanned
    │   ├── ChunkDecodeError           stored bytes cannot be decoded (also ValueError)
    │   └── ForbiddenLocationError     outside of the allowed locations (also PermissionError)
    └── WriterError                    the target cannot store this (also ValueError)
        └── ConflictError              another writer changed the same data first

Every message says what happened, the values that clash, and what to do.
Every error pickles with its attributes, so it crosses process borders whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from virtualstack.printable import printable

__all__ = [
    "AccessDeniedError",
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
    """The source has no group of that name. This error is also an ``OSError``, as in the netCDF engines of xarray."""


class MissingDependencyError(ReaderError, ImportError):
    """An optional dependency is not installed; the message ends with the pip command."""

    def __init__(self, feature: str, *, extra: str, url: str | None = None) -> None:
        super().__init__(
            f"{feature} needs an optional dependency; install it with: pip install 'virtualstack[{extra}]'", url=url
        )
        self.extra = extra


class MalformedFileError(ReaderError, ValueError):
    """Bytes contradict the format: the file is truncated, damaged, or is not what it says.

    Compare the size of the file with that of its origin, fetch it again, or leave it out.

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
    """A source uses a feature of its format that cannot be expressed as byte ranges.

    An example is an HDF5 variable of sequences of variable length. The file is valid. Leave the variable out with
    ``drop_variables=``, or leave out all such variables with ``unsupported="skip"``.

    Attributes
    ----------
    url, variable
        URL of the source, and path of the variable; ``None`` if the feature is not in a variable.
    feature
        The feature, in the words of the format.
    """

    def __init__(
        self, message: str, *, url: str | None = None, variable: str | None = None, feature: str | None = None
    ) -> None:
        super().__init__(message, url=url)
        self.variable = variable
        self.feature = feature


class ManifestError(VirtualStackError, ValueError):
    """A manifest, encoding, grid or fill value contradicts itself, or cannot be made from the given arguments."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option that helps: as an argument in Python, and as an option of the command.

    Parameters
    ----------
    argument, command
        Text of both.
    """

    argument: str
    command: str


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
    options
        Options that help, in the order of the message, which has each as an argument in Python.
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
        options: Sequence[Option] = (),
    ) -> None:
        super().__init__(message)
        self.variable = variable
        self.property = property
        self.left = left
        self.right = right
        self.left_url = left_url
        self.right_url = right_url
        self.options = tuple(options)


class ChunkAlignmentError(CombineError):
    """An operation does not fit the chunks, and would have to read them to go on.

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
    """Values of a virtual array were requested: open the dataset with ``vds.virtual.open()``, or load the variable."""


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


class AccessDeniedError(StorageError, PermissionError):
    """The server or the file system refuses access. Servers that list nothing also say so of what does not exist."""


class SourceChangedError(StorageError):
    """A source has changed after it was scanned: its size or etag differs from what the references record.

    For local files with another modification time, a digest of the content decides. References of Icechunk record a
    time after which the source must not be modified. The attributes are those of :class:`StorageError`.
    """


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
    """A store or a file refers to a location that is not allowed. If you trust it, pass the ``allow=`` of the message.

    The attributes are those of :class:`StorageError`.
    """


class WriterError(VirtualStackError, ValueError):
    """Data cannot be written: the target cannot express them, it exists already, or a variable cannot hold the values.

    The call may also prepare a target, such as ``to_group``. The message says what to do.

    Attributes
    ----------
    variable
        Name or path of the variable, or ``None`` if the error is not about one variable.
    feature
        What stands in the way, such as a codec or ``"existing target"``, or ``None``.
    """

    def __init__(self, message: str, *, variable: str | None = None, feature: str | None = None) -> None:
        super().__init__(message)
        self.variable = variable
        self.feature = feature


class ConflictError(WriterError):
    """Another writer has meanwhile changed the same variables or chunks of a store; your change was not made.

    Open the store again, and repeat the change.
    """


@contextmanager
def naming_group(path: str, /) -> Iterator[None]:
    """Add a note with the path of a group to errors, which name only variables of the group; the root has no note."""
    try:
        yield
    except Exception as error:
        if path.strip("/"):
            error.add_note(f"This is in the group '/{path.strip('/')}'")
        raise
