"""What tests of several modules begin with."""

import pytest

from tests.vstack.archive import days, join


@pytest.fixture
def url(tmp_path):
    """Where a store may be made."""
    return str(tmp_path / "x.vstack")


@pytest.fixture
def archive(tmp_path):
    """Files in data/, and a store beside the folder."""
    paths = days(tmp_path / "data")
    join(paths).virtual.to_vstack(tmp_path / "x.vstack")
    return paths
