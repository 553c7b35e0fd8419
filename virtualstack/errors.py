"""Errors of virtualstack, grouped by what the one who catches them does next.

::

    VirtualStackError
    ├── ReaderError                    the source cannot be described
    │   ├── UnknownFormatError         no reader recognises the format (also ValueError)
    │   ├── GroupNotFoundError         the source does not contain the group (also FileNotFoundError)
    │   ├── MissingDependencyError     an extra is not installed (also ImportError)
    │   ├── MalformedFileError         bytes contradict the format (also ValueError)
    │   ├── TemplateError              an index of a GRIB file is not as its template says (also ValueError)
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
    ├── RecipeError                    the recipe of a store is not valid (also ValueError)
    └── WriterError                    the target cannot store this (also ValueError)
        └── ConflictError              another writer changed the same data first

An error says what happened, where, and the values that clash; what to do are its remedies, which are data.
Every error pickles with its attributes, so it crosses process borders whole.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from types import FunctionType, TracebackType, UnionType
from typing import Any, Self, TypeAliasType, get_args

from virtualstack.printable import counted, printable

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
    "RecipeError",
    "Remedy",
    "SourceChangedError",
    "SourceNotFoundError",
    "StorageError",
    "TemplateError",
    "UnknownFormatError",
    "UnsupportedFeatureError",
    "VirtualStackError",
    "VirtualValuesError",
    "WriterError",
]


_MAX_MESSAGE_CHARACTERS = 20_000
_ONE = re.compile(r"(?<![\w.,/-])(1 (?:bit|byte|character|chunk|dimension|element|file|number|row|time|value))s\b")


@dataclass(frozen=True, slots=True, repr=False)
class Code:
    """An expression of Python as the value of an argument, and its text on the command line, if it has one."""

    python: str
    command: str | None = None

    def __repr__(self) -> str:
        return self.python


class Remedy:
    """What helps: words, with arguments of the call that failed, or with another function.

    Parameters
    ----------
    words
        What to do, such as ``"leave it out with"``. ``{}`` is the place of arguments and function, else the end.
    function
        Another function that helps, such as ``"Repository.update"``; or a whole call, beside which the arguments are
        those that do the same on the command line.
    arguments
        Arguments by name, with their values; ``...`` if the user decides the value.

    Examples
    --------
    >>> str(Remedy("leave it out with", drop_variables=["x"]))
    "leave it out with drop_variables=['x']"
    >>> str(Remedy("use {} to replace it", "vds.virtual.to_vstack", mode="w"))
    "use vds.virtual.to_vstack(..., mode='w') to replace it"
    """

    def __init__(self, words: str, function: str | None = None, /, **arguments: Any) -> None:
        self.words = words
        self.function = function
        self.arguments = arguments

    def __str__(self) -> str:
        return _RENDERERS[-1](self) or ""

    def filled(self, text: str, /) -> str:
        """Return the words with the text of the arguments and the function."""
        return self.words.replace("{}", text) if "{}" in self.words else f"{self.words} {text}".strip()


def in_python(remedy: Remedy, /) -> str:
    """Return a remedy in the words of Python."""
    named = [f"{name}={'' if value is ... else repr(value)}" for name, value in remedy.arguments.items()]
    if remedy.function is None:
        return remedy.filled(" and ".join(named))
    is_whole = not named or "(" in remedy.function
    return remedy.filled(remedy.function if is_whole else f"{remedy.function}({', '.join(['...', *named])})")


type Renderer = Callable[[Remedy], str | None]

_RENDERERS: list[Renderer] = [in_python]  # of the process: the threads of a command speak as the command does


@contextmanager
def rendered_by(renderer: Renderer, /) -> Iterator[None]:
    """Show remedies as a function returns them, such as in the words of a command; ``None`` leaves one out."""
    _RENDERERS.append(renderer)
    try:
        yield
    finally:
        _RENDERERS.remove(renderer)


def advised(what: str, /, *remedies: Remedy, between: str = " ") -> str:
    """Return a text with a sentence for each of the remedies; one without words belongs to the sentence before it.

    >>> advised("'x' is odd", Remedy("leave it out with", drop_variables=["x"]), Remedy("write a vstack"))
    "'x' is odd. Leave it out with drop_variables=['x']. Or write a vstack"
    """
    usable = [(remedy, text) for remedy in remedies if (text := str(remedy))]
    if not usable:
        return what
    (first, said), *others = usable
    if first.words[:1].isalpha():  # or a name comes first, and keeps its letters
        said = f"{said[0].upper()}{said[1:]}"
    said += "".join(f". Or {text}" if remedy.words else f", or {text}" for remedy, text in others)
    return f"{what.rstrip('.')}{'' if what.endswith('?') else '.'}{between}{said}"


def check_word(option: str, value: object, words: TypeAliasType | Collection[object], /) -> None:
    """Raise `ValueError` if an option has none of its values, which may be declared as the type of the option."""
    words = get_args(words.__value__) if isinstance(words, TypeAliasType) else words
    if not isinstance(value, tuple(map(type, words))) or value not in words:  # an array is no word
        *first, last = map(repr, words)
        raise ValueError(f"{option}={value!r}; it must be {', '.join(first)} or {last}")


def check_type(option: str, value: object, kind: type | UnionType, wanted: str, /) -> None:
    """Raise `TypeError` if an option is of another type; ``wanted`` says what it is, such as "a whole number"."""
    if not isinstance(value, kind):
        raise TypeError(f"{option}={value!r:.1000} is not {wanted}")


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
        What happened, where, and the values that clash.
    remedies
        What helps, the best first.
    **fields
        Values of the attributes that the class declares.
    """

    remedies: tuple[Remedy, ...] = ()

    def __init__(self, message: str, /, *remedies: Remedy, **fields: Any) -> None:
        super().__init__(message)
        self.remedies = remedies
        for name, value in fields.items():
            getattr(type(self), name)  # no other fields than those that the class declares
            setattr(self, name, value)

    @property
    def what(self) -> str:
        """The message without its remedies."""
        # OSError and ImportError have their own idea of str(); the message is ours. Names in it may be a stranger's.
        text = printable(str(self.args[0])) if self.args else ""
        text = _ONE.sub(r"\1", text)
        return text if len(text) <= _MAX_MESSAGE_CHARACTERS else f"{text[:_MAX_MESSAGE_CHARACTERS]}..."

    def __str__(self) -> str:
        return advised(self.what, *self.remedies)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.what, self.__dict__.copy())

    def _render_traceback_(self) -> list[str]:
        return _shown(self)


def folding[**P, T](call: Callable[P, T]) -> Callable[P, T]:
    """Let notebooks show any other error of a public function as they show those of virtualstack."""

    @wraps(call)
    def folded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            if not isinstance(error, VirtualStackError) and "IPython" in sys.modules:
                with suppress(AttributeError):  # of errors that nobody can change
                    error._render_traceback_ = partial(_shown, error)  # type: ignore[attr-defined]
            raise

    return folded


def folding_methods[C: type](cls: C) -> C:
    """Let notebooks show errors of public methods as those of virtualstack."""
    for name, x in list(vars(cls).items()):
        if isinstance(x, FunctionType | classmethod) and not name.startswith("_"):
            setattr(cls, name, folding(x) if isinstance(x, FunctionType) else classmethod(folding(x.__func__)))
    return cls


def _shown(error: Exception) -> list[str]:
    """Return an error as IPython and notebooks show it: first the message, then the user's own lines."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return traceback.format_exception(error)
    renderer = shell.InteractiveTB
    is_whole = renderer.mode == "Verbose"
    found: dict[BaseException, TracebackType | None] = {}  # of the error and its causes
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found[cause] = cause.__traceback__
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    try:
        for x, frames in found.items() if not is_whole else ():
            x.__traceback__ = _own_frames(frames)
        shown = renderer.structured_traceback(type(error), error, error.__traceback__)
    finally:
        for x, frames in found.items():
            x.__traceback__ = frames
    renderer.tb = error.__traceback__  # %debug goes into all frames
    n = 1 + len(getattr(error, "__notes__", ()))  # IPython ends with the message
    if isinstance(error, VirtualStackError):
        shown[-n] = shown[-n].replace(str(error), advised(error.what, *error.remedies, between="\n"))
    folded = [] if is_whole else ["    [frames of libraries are folded: %xmode Verbose and %tb show them]"]
    return [*shown[-n:], *shown[:-n], *folded]


def _own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback without frames of virtualstack, of installed packages and of Python.

    IPython leaves out its own.
    """
    if frames is None:
        return None
    path = Path(frames.tb_frame.f_code.co_filename)
    folders = Path(__file__).parent, Path(sysconfig.get_path("stdlib"))
    is_library = {"site-packages", "dist-packages"} & set(path.parts) or any(path.is_relative_to(x) for x in folders)
    after = _own_frames(frames.tb_next)
    if is_library and "IPython" not in path.parts:
        return after
    return TracebackType(after, frames.tb_frame, frames.tb_lasti, frames.tb_lineno)


class ReaderError(VirtualStackError):
    """A source cannot be described as a virtual dataset."""

    url: str | None = None


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

    offset: int | None = None


class TemplateError(ReaderError, ValueError):
    """The index of a GRIB file is not that of the file, or its product is not the one that a template was learnt from.

    Attributes
    ----------
    url
        The GRIB file.
    index
        Its index, or ``None`` if it has none.
    offset
        Byte offset of the message that contradicts the index, or ``None``.
    unknown
        Lines of the index that the template, or the file like it, does not have.
    missing
        Lines that the file like it has, and the index does not.
    """

    index: str | None = None
    offset: int | None = None
    unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


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

    variable: str | None = None
    feature: str | None = None


class ManifestError(VirtualStackError, ValueError):
    """A manifest, encoding, grid or fill value contradicts itself, or cannot be made from the given arguments."""


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

    variable: str | None = None
    property: str | None = None
    left: object = None
    right: object = None
    left_url: str | None = None
    right_url: str | None = None


class ChunkAlignmentError(CombineError):
    """An operation does not fit the chunks, and would have to read them to go on.

    Attributes
    ----------
    axis
        Axis of the array, or ``None``.
    chunk_length
        Length of the chunks along that axis in elements, or ``None`` where they differ.
    """

    property = "chunks"
    axis: int | None = None
    chunk_length: int | None = None


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

    url: str | None = None
    variable: str | None = None
    cell: tuple[int, ...] | None = None
    status: int | None = None

    offset: int | None = None
    length: int | None = None
    is_short: bool = False

    def of_chunk(
        self, variable: str | None, cell: tuple[int, ...], /, *, offset: int, length: int | None, n_others: int = 0
    ) -> Self:
        """Return the same error with the requested chunk, and the number of others, in its message and attributes."""
        where = "" if length is None else f" (bytes {offset} to {offset + length})"
        others = f" and {counted(n_others, 'more chunk')}" if n_others else ""
        message = f"cell {cell} of variable '{variable}'{where}{others} cannot be read: {self.what}"
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


class ForbiddenLocationError(StorageError, PermissionError):
    """A store or a file refers to a location that is not allowed. If you trust it, pass the ``allow=`` of the message.

    The attributes are those of :class:`StorageError`.
    """


class RecipeError(VirtualStackError, ValueError):
    """The recipe of a store is not valid. The message names the line and the key."""


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

    variable: str | None = None
    feature: str | None = None


class ConflictError(WriterError):
    """Another writer has meanwhile changed the same variables or chunks of a store; your change was not made.

    Open the store again, and repeat the change.
    """


READ_VALUES = Remedy("read the values with", "vds.virtual.open()")
"""What always gives the values of a virtual variable."""

IN_ANOTHER_WAY = Remedy("leave the variable out"), Remedy("write a vstack"), READ_VALUES
"""What helps if a target cannot store a variable."""

UNCHANGED = (
    Remedy("write a vstack, which stores the variable unchanged"),
    Remedy("leave the variable out"),
    Remedy("join only files that are stored alike"),
    READ_VALUES,
)
"""What helps if a target could store a variable only with its chunks re-encoded."""


@contextmanager
def naming_group(path: str, /) -> Iterator[None]:
    """Add a note with the path of a group to errors, which name only variables of the group; the root has no note."""
    try:
        yield
    except Exception as error:
        if path.strip("/"):
            error.add_note(f"This is in the group '/{path.strip('/')}'")
        raise
