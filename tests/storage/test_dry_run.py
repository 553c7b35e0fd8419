"""A dry run writes nothing, and leaves other threads alone."""

import threading

import pytest

from virtualstack.errors import SourceNotFoundError
from virtualstack.manifests.paged import map_in_threads
from virtualstack.storage import Storage
from virtualstack.storage.atomic import write_file
from virtualstack.storage.dry_run import active_dry_run, dry_run
from virtualstack.storage.target import Puts
from virtualstack.storage.threads import concurrently, thread_pool


def test_another_thread_writes_meanwhile(tmp_path):
    """It has not asked for a dry run."""

    def write(name):
        Storage().target(tmp_path).put(name, b"data")
        write_file(tmp_path / f"{name}.json", b"data")

    with dry_run() as would:
        other = threading.Thread(target=write, args=("theirs",))
        other.start()
        other.join()
        write("mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["theirs", "theirs.json"]
    assert sorted(url.rpartition("/")[2] for url in would.written) == ["mine", "mine.json"]


def test_threads_of_a_writer_write_nothing(tmp_path):
    with dry_run() as would:
        target = Storage().target(tmp_path)
        puts = Puts(target)
        for n in range(20):
            puts.put(str(n), b"data")
        puts.close()
        assert len(target.list()) == 20
        found = list(concurrently(lambda _: active_dry_run(), range(40), ["http://h/x"]))
        found += map_in_threads(lambda _: active_dry_run(), range(40))
        found += thread_pool("storage", 2).map(lambda _: active_dry_run(), range(40))
    assert all(x is would for x in found)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SourceNotFoundError):
        Storage().target(tmp_path).get("1")


def test_dry_runs_end_with_their_block(tmp_path):
    with dry_run() as outer:
        with dry_run() as inner:
            Storage().target(tmp_path).put("a", b"")
        Storage().target(tmp_path).put("b", b"")
    assert active_dry_run() is None
    assert (len(inner.written), len(outer.written)) == (1, 1)
