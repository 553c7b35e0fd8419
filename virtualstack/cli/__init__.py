"""The command ``virtualstack``: one module a family of commands."""

from importlib.util import find_spec

if find_spec("pyproj") and find_spec("eccodes"):
    import pyproj  # noqa: F401 - a process that loads eccodes before pyproj aborts at exit

from virtualstack.cli.command import main

__all__ = ["main"]
