"""How much random tests try: a part by default, all with ``VIRTUALSTACK_TESTS=all``."""

import os

__all__ = ["ALL", "examples"]

ALL = os.environ.get("VIRTUALSTACK_TESTS") == "all"


def examples(n, /):
    """Give a third of a number of examples, or all."""
    return n if ALL else -(-n // 3)
