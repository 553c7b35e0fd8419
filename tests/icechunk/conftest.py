"""What tests of several modules begin with."""

import pytest


@pytest.fixture
def session(tmp_path):
    """A session of a repository in memory, which may point into the folder of the test."""
    from tests.icechunk.repositories import repository

    return repository(None, tmp_path).writable_session("main")
