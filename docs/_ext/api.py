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

SHOWN_ELSEWHERE = {"virtualstack.readers.list_readers"}
"""Second names of objects."""


def _public_names() -> Iterator[str]:
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            if not inspect.ismodule(getattr(importlib.import_module(module), name)):
                yield f"{module}.{name}"


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
