"""Run libraries of C that may crash, hang or take all memory on a damaged file in a child process.

The child is started on first use, and serves all later files. A crash, an endless call or unbounded memory ends only
the child, and the parent continues. The child is not a sandbox: it runs with the user's rights.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from virtualstack.child.serve import WALL_TO_CPU, receive, send
from virtualstack.errors import ReaderError, VirtualStackError
from virtualstack.system import OWN_GROUP, TIME_LIMIT_STATUSES, can_wait, in_forked_children

_MAX_SECONDS = 60
"""Seconds of computing that one call may take; the time in which the child waits for bytes of a file is not counted."""

_GRACE_SECONDS = 2
"""Seconds that a child has to end itself at its limit of elapsed time; a child that is stopped (SIGSTOP) cannot."""

_MAX_CHILDREN = 8
"""Children that work at the same time; threads that need another child wait. Idle children are kept for later use."""

_START = """
import sys, types
package = sys.modules["virtualstack"] = types.ModuleType("virtualstack")
package.__path__ = [sys.argv[1]]
sys.path[:] = sys.argv[2:]
from virtualstack.child.serve import serve
serve()
"""
"""Code that starts a child without the package's ``__init__``, which imports xarray and takes a second."""

_PACKAGE = Path(__file__).parents[1]

_keys = itertools.count()


class ChildDiedError(Exception):
    """A call killed the child, or did not end; the message is half a sentence, and its subject is a library."""

    def __init__(self, reason: str, *, is_doubtful: bool = False) -> None:
        super().__init__(reason)
        self.is_doubtful = is_doubtful


def run_in_child(function: str, /, *arguments: Any, seconds: float = _MAX_SECONDS) -> Any:
    """Call a function in a child process.

    Examples
    --------
    >>> run_in_child("math:hypot", 3, 4)
    5.0
    >>> run_in_child("os:abort")
    Traceback (most recent call last):
    virtualstack.child.pool.ChildDiedError: crashed (SIGABRT)
    """

    def call(is_new: bool) -> Any:
        child = _pool.take(is_new=is_new)
        try:
            child.n_uses += 1
            return child.ask(("call", seconds, function, arguments))
        finally:
            child.pool.give_back(child)

    return _in_a_new_one_if_doubtful(call)


def _in_a_new_one_if_doubtful(call: Callable[[bool], Any]) -> Any:
    """Make a call again in a new child if an earlier call may have damaged the child that died."""
    try:
        return call(False)
    except ChildDiedError as error:
        if not error.is_doubtful:
            raise
    return call(True)


class InChild:
    """An object that lives in a child process, where its methods are called.

    Only one thread at a time uses the object. If the child has ended, the object is made again in another child, so its
    methods must not depend on each other.

    Examples
    --------
    >>> from contextlib import closing
    >>> with closing(InChild("io:TextIOWrapper", size=5, read=lambda at, n: b"abcde"[at : at + n])) as text:
    ...     text.call("read")
    'abcde'
    """

    def __init__(
        self,
        function: str,
        /,
        *arguments: Any,
        size: int | None = None,
        read: Callable[[int, int], bytes] | None = None,
        seconds: float = _MAX_SECONDS,
    ) -> None:
        self._made = function, arguments, size
        self._read = read
        self._seconds = seconds
        self._key = next(_keys)
        self._child: _Child | None = None

    def call(self, method: str, /, *arguments: Any) -> Any:
        """Call a method."""
        return _in_a_new_one_if_doubtful(lambda is_new: self._call(method, arguments, is_new=is_new))

    def _call(self, method: str, arguments: tuple[Any, ...], *, is_new: bool) -> Any:
        child = self._child
        if child is None or child.is_dead:
            self.close()
            child = self._child = _pool.take(is_new=is_new)
        if self._key not in child.keys:
            child.n_uses += 1
            child.ask(("make", self._seconds, self._key, *self._made), self._read)
            child.keys.add(self._key)
        return child.ask(("ask", self._seconds, self._key, method, arguments), self._read)

    def close(self) -> None:
        """Call ``close`` of the object, wait until it is closed, and release the child."""
        child, self._child = self._child, None
        if child is None:
            return
        try:
            if self._key in child.keys and not child.is_dead:
                child.keys.discard(self._key)
                with contextlib.suppress(ChildDiedError):  # the system has closed the child's files
                    child.ask(("close", self._seconds, self._key), self._read)
        finally:
            child.pool.give_back(child)


class _Child:
    """A child process."""

    def __init__(self, pool: _Pool) -> None:
        self.pool = pool
        self.thread = self.n_users = self.n_uses = 0
        self.keys: set[int] = set()
        self.is_dead = self.does_work = False
        self._lock = threading.RLock()
        if not sys.executable:
            raise _not_started("sys.executable is empty. Set it to the path of a Python")
        if getattr(sys, "frozen", False):  # the child would be this program, and start itself again
            raise _not_started("it is a frozen program. Open this file with an ordinary Python")
        theirs, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(_PACKAGE), *_paths()],
                stdin=theirs,
                stdout=answers,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                **OWN_GROUP,
            )
        except OSError as error:
            os.close(self._requests)
            os.close(self._answers)
            raise _not_started(str(error)) from error
        finally:
            os.close(theirs)
            os.close(answers)
        can_wait(self._requests, self._answers)
        _children.add(self)
        try:
            receive(self._answers, seconds=_wait_seconds(_MAX_SECONDS))
        except EOFError as error:
            self.end()
            raise _not_started(f"it ended with status {self._process.returncode}") from error
        except TimeoutError as error:
            self.end()
            raise _not_started(f"it said nothing within {_wait_seconds(_MAX_SECONDS):g} seconds") from error
        except BaseException:
            self.end()
            raise

    def ask(self, message: tuple[Any, ...], read: Callable[[int, int], bytes] | None = None) -> Any:
        """Send a request, and serve the child until it answers."""
        failure: VirtualStackError | None = None
        wait = _wait_seconds(message[1])
        with self._lock:
            try:
                send(self._requests, message, seconds=wait)
                while True:
                    what, value = receive(self._answers, seconds=wait)
                    if what != "read" or read is None:
                        break
                    data = None
                    try:
                        data = read(*value)
                    except VirtualStackError as error:
                        failure = error
                    send(self._requests, data, seconds=wait)
            except TimeoutError as error:
                self.end()
                reason = f"did not answer within {wait:g} seconds, as if its process was stopped"
                raise ChildDiedError(reason, is_doubtful=self.n_uses > 1) from error
            except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
                raise self._died(message[1]) from error
            except BaseException:  # an interrupt: the answer would never be read
                self.end()
                raise
        if failure is not None:
            raise failure
        if what == "raised":
            raise value
        return value

    def end(self) -> None:
        """Kill the process."""
        if not self.is_dead:
            self.is_dead = True
            _children.discard(self)
            self._process.kill()
            self._process.wait()
            os.close(self._requests)
            os.close(self._answers)
            self.pool.leave(self)

    def forget(self) -> None:
        """Drop the process without ending it, since it belongs to the parent of this forked process."""
        if not self.is_dead:
            self.is_dead = True
            self._process.returncode = 0  # it is not a child of this process
            os.close(self._requests)
            os.close(self._answers)

    def has_ended(self) -> bool:
        """Return whether the process has ended by itself."""
        if not self.is_dead and self._process.poll() is not None:
            self.end()
        return self.is_dead

    def _died(self, seconds: float) -> ChildDiedError:
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            status = 1
        self.end()
        if status in TIME_LIMIT_STATUSES:
            return ChildDiedError(f"did not finish within {seconds:g} seconds of computing")
        if status < 0:
            name = {int(x): x.name for x in signal.Signals}.get(-status, f"signal {-status}")
            reason = f"{'was killed' if name == 'SIGKILL' else 'crashed'} ({name})"
        else:
            reason = f"ended its process with status {status}"
        return ChildDiedError(reason, is_doubtful=self.n_uses > 1)


def _wait_seconds(seconds: float) -> float:
    """Return how long to wait for a child that may compute for some seconds."""
    return WALL_TO_CPU * seconds + _GRACE_SECONDS


def _paths() -> list[str]:
    """Return where this process looks for modules, without the current folder, and the folder of this package."""
    here = str(_PACKAGE.parent)
    paths = [x for x in sys.path if isinstance(x, str) and x]
    return paths if here in paths else [*paths, here]


_children: set[_Child] = set()


class _Pool:
    """The children of this process; all objects and calls of one thread share one child at a time."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(_MAX_CHILDREN)
        self._here = threading.local()

    def take(self, *, is_new: bool = False) -> _Child:
        """Return the child of this thread; the thread keeps it until all its users have given it back."""
        child: _Child | None = getattr(self._here, "child", None)
        thread = threading.get_ident()
        with self._lock:
            if child is not None and child.thread == thread and child.n_users and not child.is_dead and not is_new:
                child.n_users += 1
                return child
        self._free.acquire()
        try:
            child = _Child(self) if is_new else self._idle_or_new()
        except BaseException:
            self._free.release()
            raise
        child.n_users, child.thread, child.does_work = 1, thread, True
        self._here.child = child
        return child

    def _idle_or_new(self) -> _Child:
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                return _Child(self)
            if not child.has_ended():
                return child

    def give_back(self, child: _Child) -> None:
        """Return the child of `take` to the pool."""
        if self is not _pool:  # this process was forked from the parent of the child
            return
        with self._lock:
            child.n_users -= 1
            if child.n_users or child.is_dead:
                return
            self._idle.append(child)
        self.leave(child)

    def leave(self, child: _Child) -> None:
        """Let another child work instead of one that has ended, or that is idle."""
        with self._lock:
            does_work, child.does_work = child.does_work, False
        if does_work:
            self._free.release()


def _not_started(why: str) -> ReaderError:
    return ReaderError(
        f"a library of C is needed, which runs in a child process, and '{sys.executable}' does not start as one: {why}"
    )


_pool = _Pool()


@in_forked_children
def _begin_anew() -> None:
    global _pool
    for child in _children:
        child.forget()
    _children.clear()
    _pool = _Pool()


@atexit.register
def _end() -> None:
    for child in list(_children):
        child.end()
