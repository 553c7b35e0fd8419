"""Children that are forked while threads of the test run."""

import multiprocessing
import os

import pytest


def forking(test, /):
    """Mark a test that forks while it has threads."""
    test = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")(test)
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")(test)


def forked(function, /, *, timeout=20):
    """Call a function in a forked child; tells whether it came to an end, in time."""
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    process.join(timeout)
    process.kill()
    process.join()
    return process.exitcode == 0
