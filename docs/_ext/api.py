"""Pages of the API: links in docstrings, and a check that every public name has its place."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

MODULES = (
    "virtualstack",
    "virtualstack.errors",
    "virtualstack.readers",
    "virtualstack.sample",
    "virtualstack.serve",
    "virtualstack.testing.readers",
    "virtualstack.testing.sources",
    "virtualstack.testing.strategies",
)
"""Modules whose `__all__` is public."""

ACCESSORS = (
    "virtualstack.accessor.VirtualAccessor",
    "virtualstack.accessor.VirtualTreeAccessor",
    "virtualstack.engine.VirtualStackBackendEntrypoint",
)
"""Classes that users reach by other names, such as `vds.virtual`."""

SHOWN_ELSEWHERE = {"virtualstack.readers.list_readers"}
"""Second names of objects."""


def _public_names() -> Iterator[str]:
    """Yield functions and classes, and the methods and properties of classes that this package defines."""
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            thing = getattr(importlib.import_module(module), name)
            if not inspect.ismodule(thing):
                yield f"{module}.{name}"
            if inspect.isclass(thing) and not issubclass(thing, Exception):
                yield from (f"{module}.{name}.{member}" for member in _members(thing))
    for name in ACCESSORS:
        module, _, cls = name.rpartition(".")
        yield from (f"{name}.{member}" for member in _members(getattr(importlib.import_module(module), cls)))


def _members(cls: type) -> Iterator[str]:
    for name in dir(cls):
        found = inspect.getattr_static(cls, name)
        code = getattr(found, "__func__", getattr(found, "fget", getattr(found, "func", found)))
        if not name.startswith("_") and inspect.isfunction(code) and code.__module__.startswith("virtualstack"):
            yield name


def _link_pages(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Make links of the pages that a docstring names by their paths."""
    lines[:] = [re.sub(r"docs/([\w/-]+)\.md", r":doc:`/\1`", line) for line in lines]


def _check(app: Sphinx, env: BuildEnvironment) -> None:
    shown = {name for name, *_ in env.get_domain("py").get_objects()}
    for name in sorted(set(_public_names()) - shown - SHOWN_ELSEWHERE):
        logging.getLogger(__name__).warning("%s is public, and no page of docs/reference shows it", name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both."""
    app.connect("autodoc-process-docstring", _link_pages)
    app.connect("env-check-consistency", _check)
    return {"parallel_read_safe": True}
