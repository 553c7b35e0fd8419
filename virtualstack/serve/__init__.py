"""Serve cubes over HTTP as zarr: ``virtualstack serve``, and :func:`app` for any ASGI server; :func:`report` on one."""

import contextlib
import importlib
from typing import Any

from virtualstack.errors import MissingDependencyError
from virtualstack.serve.report import report

with contextlib.suppress(MissingDependencyError):  # a report needs no server; `__getattr__` says what is missing
    from virtualstack.serve.app import app

__all__ = ["app", "report"]


def __getattr__(name: str) -> Any:
    if name == "app":
        return importlib.import_module("virtualstack.serve.app").app
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
