"""Children that are forked while threads of the test run."""

import multiprocessing
import os
import threading
from contextlib import contextmanager

import pytest


def forking(test, /):
    """Mark a test that forks while it has threads."""
    test = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")(test)
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")(test)


@contextmanager
def waiting_reader(read, began, goes_on):
    """Read in a thread, which has begun and waits for ``goes_on`` until the end of the block."""
    thread = threading.Thread(target=read)
    thread.start()
    began.wait(60)
    try:
        yield
    finally:
        goes_on.set()
        thread.join()


def forked(function, /, *, timeout=20):
    """Call a function in a forked child; tells whether it came to an end, in time."""
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    process.join(timeout)
    process.kill()
    process.join()
    return process.exitcode == 0
