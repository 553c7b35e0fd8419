"""Benchmarks run only with ``-m apart tests/benchmarks``; other runs import them, so that they stay whole."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark all tests of this folder as ``apart``, before pytest selects by marks."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.apart)
