"""What forked children must do before anything else: they have locks and pools of threads that they do not have."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["in_forked_children"]


def in_forked_children(function: Callable[[], None], /) -> Callable[[], None]:
    """Call a function in each child that is forked from now on, where this system forks; as a decorator, too."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function
