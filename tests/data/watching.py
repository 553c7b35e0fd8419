"""What code under test does on the way: which calls it makes, and how much memory it takes."""

import tracemalloc
from contextlib import contextmanager

__all__ = ["before_next_call", "memory_below", "recorded_calls"]


def recorded_calls(monkeypatch, owner, name, what):
    """Return a list to which each call of a function adds what ``what`` makes of its arguments."""
    calls, function = [], getattr(owner, name)

    def recorded(*args, **options):
        calls.append(what(*args, **options))
        return function(*args, **options)

    monkeypatch.setattr(owner, name, recorded)
    return calls


def before_next_call(monkeypatch, owner, name, do):
    """Do something once, right before the next call of a function: what another writer does meanwhile."""
    function = getattr(owner, name)

    def interrupted(*args, **options):
        monkeypatch.setattr(owner, name, function)
        do()
        return function(*args, **options)

    monkeypatch.setattr(owner, name, interrupted)


@contextmanager
def memory_below(n_bytes):
    """Fail where Python's memory grows beyond a number of bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < n_bytes
    finally:
        tracemalloc.stop()
