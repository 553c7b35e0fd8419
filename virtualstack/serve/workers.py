"""Run a server of cubes, in one process or in several."""

from __future__ import annotations

import asyncio
import atexit
import os
import pickle
import sys
import tempfile
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette

from virtualstack.errors import VirtualStackError
from virtualstack.serve.app import app
from virtualstack.serve.cubes import Cube
from virtualstack.serve.metrics import FOLDER_VARIABLE, forget_ended_processes
from virtualstack.serve.protocol import LimitedProtocol
from virtualstack.serve.verified import VerifiedFile
from virtualstack.sizes import byte_count

_SECONDS_OF_LINES = 0.1

_MAX_SECONDS_TO_ANSWER = 60
"""Seconds after which uvicorn ends a process that does not answer; on a busy machine one takes many to start."""

_BY_NAME = "cubes", "verified"
"""Options that have one value for each cube."""

_VARIABLE = "VIRTUALSTACK_SERVE"
"""Environment variable with the options of worker processes, pickled: they may hold functions."""


def run(
    options: Mapping[str, Any],
    /,
    *,
    host: str,
    port: int,
    workers: int,
    announce: Callable[[Mapping[str, VirtualStackError]], None],
) -> None:
    """Serve the cubes that can be opened until the process is stopped."""
    settings: dict[str, Any] = {"host": host, "port": port, "log_level": "warning", "access_log": False}
    settings["http"] = LimitedProtocol
    opened: dict[str, Cube] = {}
    refused: dict[str, VirtualStackError] = {}
    for name, cube in options["cubes"].items():
        try:
            made: Cube = _app({**options, "cubes": {name: cube}, "verified": {}}).state.cubes[name]
            made.open_now()
            opened[name] = made
        except VirtualStackError as error:
            refused[name] = error
    if not opened:
        raise next(iter(refused.values()))
    served = {each: {x: y for x, y in options.get(each, {}).items() if x not in refused} for each in _BY_NAME}
    options = {**options, **served}
    application = _app({**options, "cubes": opened})
    announce(refused)
    if workers == 1:
        uvicorn.run(application, **settings)
        return
    shares = {name: byte_count(options[name], option=name) // workers for name in ("memory", "cache")}
    passed = b64encode(pickle.dumps({**options, **shares})).decode()
    settings["timeout_worker_healthcheck"] = _MAX_SECONDS_TO_ANSWER
    with (
        tempfile.TemporaryDirectory(prefix="virtualstack-metrics-") as folder,
        _environment({_VARIABLE: passed, FOLDER_VARIABLE: folder}),  # of this process, which starts the others
    ):
        uvicorn.run("virtualstack.serve.workers:make", factory=True, workers=workers, **settings)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment while the block runs."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def make() -> Starlette:
    """Return the application of a worker process."""
    forget_ended_processes()
    options = pickle.loads(b64decode(os.environ[_VARIABLE]))
    application = _app({**options, "verified": {}})
    for name, path in options["verified"].items():  # read once before: a process that starts later takes any file
        cube = application.state.cubes[name]
        cube.verified = VerifiedFile(path, cube.url)
    return application


def _app(options: Mapping[str, Any]) -> Starlette:
    application = app(options["cubes"], **{name: value for name, value in options.items() if name != "cubes"})
    application.state.metrics.write = _Lines().write
    return application


class _Lines:
    """Lines with their times for stderr: a record of logging for each request would take as long as the answer."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._second, self._text = 0, ""
        atexit.register(self._flush)

    def write(self, line: str) -> None:
        """Write a line, with all others of a tenth of a second."""
        if not self._lines:
            asyncio.get_running_loop().call_later(_SECONDS_OF_LINES, self._flush)
        now = time.time()
        if int(now) != self._second:
            self._second = int(now)
            self._text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        self._lines.append(f"{self._text},{int(now % 1 * 1000):03} {line}\n")

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        sys.stderr.write("".join(lines))
        sys.stderr.flush()
