"""Run a server of cubes, in one process or in several."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import uvicorn
from starlette.applications import Starlette

from virtualstack.serve.app import app
from virtualstack.sizes import byte_count

__all__ = ["run"]

_VARIABLE = "VIRTUALSTACK_SERVE"
"""Environment variable with the options of worker processes, as JSON."""


def run(options: Mapping[str, Any], /, *, host: str, port: int, workers: int, announce: Callable[[], None]) -> None:
    """Serve cubes until the process is stopped.

    Parameters
    ----------
    options
        Parameters of :func:`virtualstack.serve.app`, as JSON values.
    host, port
        Where to listen.
    workers
        Number of processes. They share the limits of memory and cache, but a chunk may be read once by each.

    announce
        Function that is called when all cubes are open.

    Raises
    ------
    VirtualStackError
        A cube cannot be opened.
    """
    settings: dict[str, Any] = {"host": host, "port": port, "log_level": "warning", "access_log": False}
    application = _app(options)
    for cube in application.state.cubes.values():
        cube.open_now()
    announce()
    if workers == 1:
        _log()
        uvicorn.run(application, **settings)
        return
    shares = {name: byte_count(options[name], option=name) // workers for name in ("memory", "cache")}
    os.environ[_VARIABLE] = json.dumps({**options, **shares})
    uvicorn.run("virtualstack.serve.workers:make", factory=True, workers=workers, **settings)


def make() -> Starlette:
    """Return the application of a worker process."""
    _log()
    return _app(json.loads(os.environ[_VARIABLE]))


def _app(options: Mapping[str, Any]) -> Starlette:
    return app(options["cubes"], **{name: value for name, value in options.items() if name != "cubes"})


def _log() -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
