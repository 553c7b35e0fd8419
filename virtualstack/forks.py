"""Reset locks and thread pools in forked children, as these inherit locks and pools without their threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

__all__ = ["in_forked_children", "was_imported_before_fork"]

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
