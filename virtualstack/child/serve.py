"""The loop of a child process: it calls functions for its parent, and sends back their results or errors."""

from __future__ import annotations

import importlib
import io
import os
import pickle
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

from virtualstack.system import end_process_after, limit_memory, pause_time_limit, wait_for_pipe

_LENGTH_BYTES = 8
_MAX_MEMORY_BYTES = 4 << 30
"""Address space that a child may use, in addition to what it uses at its start."""

WALL_TO_CPU = 5
"""Limit of elapsed time, as a multiple of the seconds of computing: a deadlock needs no computing."""

_requests, _answers = 0, 1
"""File descriptors of the pipes from and to the parent."""


def send(descriptor: int, message: object, /, *, seconds: float = 0) -> None:
    """Write a message to a pipe."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    for part in (len(data).to_bytes(_LENGTH_BYTES, "little"), data):
        view = memoryview(part)
        while view:
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:
                wait_for_pipe(descriptor, "POLLOUT", seconds)


def receive(descriptor: int, /, *, seconds: float = 0) -> Any:
    """Read a message from a pipe."""
    length = int.from_bytes(_read(descriptor, _LENGTH_BYTES, seconds), "little")
    return pickle.loads(_read(descriptor, length, seconds))


def _read(descriptor: int, length: int, seconds: float) -> bytes:
    parts: list[bytes] = []
    while length:
        try:
            part = os.read(descriptor, min(length, 1 << 20))
        except BlockingIOError:
            wait_for_pipe(descriptor, "POLLIN", seconds)
            continue
        if not part:
            raise EOFError("the other side of the pipe has ended")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def serve() -> None:
    """Serve the parent until it closes its pipe; its messages are tuples.

    ``("call", seconds, function, arguments)`` calls a function. ``("make", seconds, key, function, arguments, size)``
    keeps the object that a function returns under a key. Unless ``size`` is ``None``, the first argument of the
    function is a file of ``size`` bytes, which are requested from the parent. ``("ask", seconds, key, method,
    arguments)`` calls a method of a kept object. ``("close", seconds, key)`` calls its ``close``.
    """
    global _requests, _answers
    nothing = os.open(os.devnull, os.O_RDWR)  # becomes stderr if stderr is closed and the pipes are not
    _requests, _answers = os.dup(0), os.dup(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_memory(_MAX_MEMORY_BYTES)
    for descriptor in (0, 1, 2):  # libraries print to these; the parent reports errors
        os.dup2(nothing, descriptor)
    kept: dict[int, Any] = {}
    send(_answers, ("ready", None))
    while True:
        try:
            _answer(receive(_requests), kept)
        except (EOFError, BrokenPipeError):
            os._exit(0)  # the parent has ended


def _answer(message: tuple[Any, ...], kept: dict[int, Any]) -> None:
    what, seconds, *rest = message
    try:
        with end_process_after(seconds, elapsed=WALL_TO_CPU * seconds):
            answer = "returned", _do(what, rest, kept)
    except (EOFError, BrokenPipeError):
        raise
    except BaseException as error:  # noqa: BLE001 - the parent raises it
        answer = "raised", _picklable(error)
    send(_answers, answer)


def _do(what: str, rest: list[Any], kept: dict[int, Any]) -> Any:
    if what == "ask":
        key, method, arguments = rest
        return getattr(kept[key], method)(*arguments)
    if what == "make":
        key, function, arguments, size = rest
        file = () if size is None else (_ParentsFile(size),)
        kept[key] = _function(function)(*file, *arguments)
        return None
    if what == "close":
        kept.pop(rest[0]).close()
        return None
    function, arguments = rest
    return _function(function)(*arguments)


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def _picklable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - classes of others raise what they like
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class _ParentsFile(io.RawIOBase):
    """A seekable file whose bytes the parent has; each read requests them from the parent."""

    def __init__(self, size: int, /) -> None:
        super().__init__()
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: the file can be positioned."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position in bytes."""
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into a buffer; return the number of bytes that were read."""
        view = memoryview(buffer).cast("B")
        length = max(0, min(len(view), self._size - self._position))
        if length:
            with pause_time_limit():
                send(_answers, ("read", (self._position, length)))
                data = receive(_requests)
            if data is None:
                raise OSError("the parent could not read the file")
            view[:length] = data
            self._position += length
        return length
