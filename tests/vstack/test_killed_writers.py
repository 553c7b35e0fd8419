"""What writers leave that are killed does not stay for ever."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import pytest

from tests.vstack.stores import Change, appended, create_rows, values_of, virtual
from virtualstack.vstack.repository import Repository

NONE = timedelta(0)


@pytest.fixture
def url(tmp_path):
    return create_rows(tmp_path)


def test_empty_folders_go(url, tmp_path, monkeypatch):
    """A writer was killed between making a folder and writing to it: the folder goes after the grace period."""
    left = url / ".vstack/segments/0123456789ab0123456789ab/refs/c/0"
    left.mkdir(parents=True)
    Repository.open(url).expire()
    assert left.exists()
    then = time.time() - 2 * 86400
    for folder in (left, *list(left.parents)[:3]):
        os.utime(folder, (then, then))
    Repository.open(url).expire()
    assert [len(list(x.iterdir())) for x in (url / ".vstack/segments").iterdir()] == [1]
    Change(url, appended(range(5), v=virtual(tmp_path, [4]))).commit()
    assert values_of(url) == [0, 1, 2, 3, 4]
