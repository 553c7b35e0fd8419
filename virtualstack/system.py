"""What differs between operating systems: reads at an offset, locks, time limits, signals, forks, threads and paths.

No other module uses what one of Linux, macOS and Windows lacks. A test looks for such uses. Another test removes all
that Windows lacks, and reads and writes a vstack without it.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from types import FrameType
from typing import Any, Literal

IS_WINDOWS = os.name == "nt"

_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)

READ_FLAGS = os.O_RDONLY | _CLOSE_ON_EXEC | getattr(os, "O_BINARY", 0)
"""Flags of `os.open` to read a file."""

LOCK_FLAGS = os.O_RDWR | os.O_CREAT | _CLOSE_ON_EXEC | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Flags of `os.open` to create or open a file that is locked; a link is refused."""

OWN_GROUP: dict[str, Any] = {"creationflags": 0x200} if IS_WINDOWS else {"process_group": 0}
"""Options of `subprocess.Popen` for a child that Ctrl-C in a terminal must not reach.

0x200 is ``CREATE_NEW_PROCESS_GROUP``.
"""


def n_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# -- reads ------------------------------------------------------------------------------------------------------

_SEEKING = threading.Lock()


def _seek_and_read(descriptor: int, length: int, offset: int) -> bytes:
    with _SEEKING:  # the position belongs to all threads
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)


pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _seek_and_read)
"""Read at most so many bytes from a descriptor, at an offset: ``pread(descriptor, length, offset)``."""


def read_into(descriptor: int, target: memoryview, offset: int) -> int:
    """Fill the beginning of a buffer with bytes from an offset, and return their number; 0 at the end of the file."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [target], offset)
    data = pread(descriptor, target.nbytes, offset)
    target.cast("B")[: len(data)] = data
    return len(data)


# -- locks and rights -------------------------------------------------------------------------------------------

_LOCKED_BYTE = 0x7FFFFFFF
"""Offset of the byte that is locked on Windows, where nobody can read a locked byte: no file is that long."""


def lock(descriptor: int) -> None:
    """Wait until no other process has locked this file, and lock it; closing it, or the end of the process, unlocks it.

    Raises
    ------
    OSError
        The file system has no locks, or on Windows another process held the lock for ten seconds.
    """
    if IS_WINDOWS:
        _lock_byte(descriptor)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)


def lock_for_reading(descriptor: int) -> bool:
    """Lock a file against writers, and return False if a program has locked it for writing. Windows: always True."""
    if not IS_WINDOWS:  # there, other programs cannot read a file that is open for writing
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _lock_byte(descriptor: int) -> None:
    import msvcrt

    where = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]
    finally:
        os.lseek(descriptor, where, os.SEEK_SET)


def is_running(pid: int) -> bool:
    """Return whether a process runs; on Windows, which cannot be asked so, always true."""
    if not IS_WINDOWS:  # there, signal 0 would end the process
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
    return True


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Write the names in a folder to the disk; a file system that cannot do so raises an error. Windows does so itself.

    Raises
    ------
    OSError
        The folder cannot be opened or synchronised.
    """
    if IS_WINDOWS:
        return
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


# -- paths ------------------------------------------------------------------------------------------------------


def url_path(path: str, *, is_windows: bool = IS_WINDOWS) -> str:
    r"""Return an absolute path as it is written after ``file://``, which begins with a slash.

    >>> url_path("/data/a.nc"), url_path(r"C:\data\a.nc", is_windows=True)
    ('/data/a.nc', '/C:/data/a.nc')
    """
    if not is_windows:
        return path
    path = path.replace("\\", "/")
    return path if path.startswith("/") else f"/{path}"


def path_in_url(text: str, *, is_windows: bool = IS_WINDOWS) -> str:
    """Return the path of the text that `url_path` returned.

    >>> path_in_url("/C:/data/a.nc", is_windows=True)
    'C:/data/a.nc'
    """
    return text[1:] if is_windows and text[2:3] == ":" else text


# -- pipes and children -----------------------------------------------------------------------------------------

TIME_LIMIT_STATUSES = frozenset(-getattr(signal, name) for name in ("SIGPROF", "SIGALRM") if hasattr(signal, name))
"""Exit statuses of a process that `end_process_after` has ended."""


def can_wait(*descriptors: int) -> bool:
    """Make pipes not block, if this system can wait for pipes for a limited time, and return whether it can."""
    if not hasattr(select, "poll"):  # Windows
        return False
    for descriptor in descriptors:
        os.set_blocking(descriptor, False)
    return True


def wait_for_pipe(descriptor: int, event: Literal["POLLIN", "POLLOUT"], seconds: float) -> None:
    """Wait until a pipe can be read or written; while this process is stopped, at most a second of the time passes.

    Raises
    ------
    TimeoutError
        The other side did nothing in that time.
    """
    poll = select.poll()
    poll.register(descriptor, getattr(select, event))
    for _ in range(math.ceil(seconds)):
        if poll.poll(1000):
            return
    raise TimeoutError


def limit_memory(most: int) -> None:
    """Limit the memory that this process may use beyond what it uses now, in bytes, and prevent core dumps.

    Systems that cannot do so do nothing.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - pathlib takes 10 ms to import
            limit = int(file.read().split()[0]) * resource.getpagesize() + most
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@contextlib.contextmanager
def end_process_after(seconds: float, *, elapsed: float) -> Iterator[None]:
    """End this process if the block computes for longer, or takes longer. Windows has no limits.

    The timers end the process by a signal without a handler, even while a library holds Python's lock.

    Parameters
    ----------
    seconds
        Limit of computing.
    elapsed
        Limit of elapsed time.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, elapsed)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def pause_time_limit() -> Iterator[None]:
    """Stop the clock of elapsed time of `end_process_after` during a block."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3))


# -- interrupts -------------------------------------------------------------------------------------------------


def ring_after(seconds: float, handler: Callable[[int, FrameType | None], None] | None = None) -> None:
    """Call a handler of signals in the main thread after some seconds; 0 cancels the call.

    Without a handler, the last one is used. Windows has no alarm, and does nothing.
    """
    if hasattr(signal, "setitimer"):
        if handler is not None:
            signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, seconds)


@contextlib.contextmanager
def hold_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back during a block, also in processes that the block starts. Windows does not hold it back."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a child inherits the mask of its parent
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


# -- forks: a forked child inherits locks and pools without their threads ----------------------------------------

_INHERITED: frozenset[str] = frozenset()


def in_forked_children(function: Callable[[], None], /) -> Callable[[], None]:
    """Call a function in each child that is forked from now on, if the system supports forks; usable as a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function


def was_imported_before_fork(module: str, /) -> bool:
    """Return whether this process was forked from a process that had already imported a module."""
    return module in _INHERITED


@in_forked_children
def _note_modules() -> None:
    global _INHERITED
    _INHERITED = frozenset(sys.modules)


class Threads(ThreadPoolExecutor):
    """Threads whose calls see the context variables of their caller, such as a dry run."""

    def submit[T](self, function: Callable[..., T], /, *arguments: Any, **options: Any) -> Future[T]:
        """Start a call in a thread, and return its future."""
        return super().submit(copy_context().run, function, *arguments, **options)
