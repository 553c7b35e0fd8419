"""What writers leave that are killed: zarr's view is never wrong, nor do what they wrote and made stay for ever."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import pytest
import zarr

from tests.vstack.stores import Change, added, appended, create_rows, labels, removed, values_of, virtual
from virtualstack.storage import LocalTarget
from virtualstack.vstack.repository import Repository
from virtualstack.vstack.write import commit as commits

NONE = timedelta(0)


@pytest.fixture
def url(tmp_path):
    return create_rows(tmp_path)


def killed_before(name, monkeypatch, change, n=0):
    """Commit a change, and die before the n-th time that something is called."""
    left = [n]

    def die(*args, **options):
        if left[0]:
            left[0] -= 1
            return real(*args, **options)
        raise KeyboardInterrupt

    owner = commits if name == "write_view" else LocalTarget
    real = getattr(owner, name)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        with pytest.raises(KeyboardInterrupt):
            change.commit()


def shown(url, name="time"):
    """Values and units that zarr sees; ``None`` where it sees none, or an error."""
    try:
        array = zarr.open_group(url, mode="r", use_consolidated=False)[name]
        return array[...].tolist(), array.attrs["units"]
    except (KeyError, ValueError):
        return None


def relabelled(values, units):
    return added(time=labels(values, units=units))


def test_zarr_never_sees_values_with_the_metadata_of_others(url, monkeypatch):
    """The view is two snapshots behind: old values, new ones, or none, at each step of the writer."""
    killed_before("write_view", monkeypatch, Change(url, relabelled([5, 6, 7, 8], "hours since 2000-01-01")))
    right = ([0, 1, 2, 3], "days since 2000-01-01"), ([9, 10, 11, 12], "seconds since 2000-01-01"), None
    assert shown(url) == right[0]
    found = []
    for name in ("put", "delete"):
        real = getattr(LocalTarget, name)

        def seen(*args, real=real):
            real(*args)
            found.append(shown(url))

        monkeypatch.setattr(LocalTarget, name, seen)
    Change(url, relabelled([9, 10, 11, 12], "seconds since 2000-01-01")).commit()
    assert found[-1] == right[1]
    assert all(each in right for each in found)


@pytest.mark.parametrize("n", range(2, 4))
def test_a_variable_goes_from_the_view_though_its_writers_were_killed(url, monkeypatch, n):
    """One was killed while it wrote the view of a variable, and one after it had removed that."""
    killed_before("put", monkeypatch, Change(url, added(a=labels(range(4), "a"))), n)
    killed_before("write_view", monkeypatch, Change(url, removed("a")))
    Change(url, added(b=labels(range(4), "b"))).commit()
    assert not list((url / "a").glob("**/*.json"))
    assert not list((url / "a").glob("**/0"))
    assert shown(url, "b") == ([0, 1, 2, 3], "days since 2000-01-01")


def test_a_variable_goes_from_the_view_though_what_it_shows_is_expired(url, monkeypatch):
    Change(url, added(a=labels(range(4), "a"))).commit()
    killed_before("write_view", monkeypatch, Change(url, removed("a")))
    assert shown(url, "a") is not None
    Repository.open(url).expire(keep=1, grace=NONE)
    assert shown(url, "a") is None
    assert shown(url) == ([0, 1, 2, 3], "days since 2000-01-01")


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
