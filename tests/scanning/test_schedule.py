"""Whatever workers do, each source has one outcome, and only those that end a worker are lost."""

import contextlib
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, InvalidStateError, ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.errors import ReaderError
from virtualstack.manifests import ManifestGroup
from virtualstack.readers import ReadOptions
from virtualstack.scanning import workers as working
from virtualstack.scanning.job import Job
from virtualstack.scanning.workers import Schedule, Workers
from virtualstack.storage import Storage

SLOW, KILLER, BUG = "slow", "killer", "bug"


class Reader:
    name = "made"

    def read(self, url, storage, options):
        if url.startswith(SLOW):
            time.sleep(0.002)
        if url.startswith(BUG):
            raise KeyError(url)
        return ManifestGroup(url=url)


class Mortal(Executor):
    """Three threads that are one process: a task with a killer ends it, and all that is under way is lost."""

    made = 0

    def __init__(self):
        self.pool = ThreadPoolExecutor(3)
        self.lock = threading.Lock()
        self.futures = set()
        self.is_dead = False
        Mortal.made += 1

    def submit(self, function, *arguments):
        with self.lock:
            if self.is_dead:
                raise BrokenExecutor("dead")
            future = Future()
            self.futures.add(future)
        self.pool.submit(self.work, future, function, arguments)
        return future

    def work(self, future, function, arguments):
        result = function(*arguments)
        with self.lock:
            ended = {future} & self.futures
            if arguments and any(url.startswith(KILLER) for url in arguments[-1]):
                self.is_dead, ended = True, set(self.futures)
            self.futures -= ended
        for other in ended:
            with contextlib.suppress(InvalidStateError):  # it was cancelled
                if self.is_dead:
                    other.set_exception(BrokenExecutor("died"))
                else:
                    other.set_result(result)

    def shutdown(self, wait=True, *, cancel_futures=False):
        self.pool.shutdown(wait=False, cancel_futures=cancel_futures)


def outcomes_of(urls, n_tasks, task_length, make=Mortal):
    job = Job(reader=Reader(), storage=Storage(), options=ReadOptions(), retries=0)
    return Schedule(urls, Workers(job, make(), make, n_tasks, task_length))


KINDS = st.sampled_from(["good"] * 8 + [SLOW, SLOW, BUG, KILLER])


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(KINDS, max_size=40), st.integers(1, 9), st.integers(1, 7))
def test_each_source_has_one_outcome(kinds, n_tasks, task_length):
    urls = [f"{kind}{i}" for i, kind in enumerate(kinds)]
    before = Mortal.made
    found = list(outcomes_of(urls, n_tasks, task_length).outcomes())
    assert sorted(i for i, _ in found) == list(range(len(urls)))
    for i, outcome in found:
        expected = {KILLER: ReaderError, BUG: KeyError}.get(kinds[i], ManifestGroup)
        assert isinstance(outcome, expected)
        assert expected is not ManifestGroup or outcome.url == urls[i]
    assert Mortal.made - before <= 2 + 3 * kinds.count(KILLER)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(KINDS, min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 7), st.data())
def test_what_is_dropped_is_not_waited_for(kinds, n_tasks, task_length, data):
    """All before it have their outcome, and it ends."""
    urls = [f"{kind}{i}" for i, kind in enumerate(kinds)]
    last = data.draw(st.integers(0, len(urls) - 1))
    schedule = outcomes_of(urls, n_tasks, task_length)
    found = set()
    for i, _ in schedule.outcomes():
        found.add(i)
        if i >= last:
            schedule.drop_after(last)
    assert found >= set(range(last + 1))


def test_a_pool_is_given_no_more_than_it_should_have():
    seen = []

    class Counting(ThreadPoolExecutor):
        def submit(self, function, *arguments):
            future = super().submit(function, *arguments)
            seen.append(future)
            assert sum(not x.done() for x in seen) <= 3
            return future

    urls = [f"{SLOW}{i}" for i in range(50)]
    assert len(list(outcomes_of(urls, 3, 2, lambda: Counting(2)).outcomes())) == 50
    assert len(seen) == 25


def test_futures_that_nobody_will_finish_are_lost(monkeypatch):
    """Dask leaves some as they are where its client is closed at the wrong moment; who watches sees that it is."""
    monkeypatch.setattr(working, "_WATCH_SECONDS", 0.01)
    urls = [f"file{i}" for i in range(9)]

    class Closed(Executor):
        def submit(self, function, *arguments):
            return Future()

    job = Job(reader=Reader(), storage=Storage(), options=ReadOptions(), retries=0)
    workers = Workers(job, Closed(), None, 4, 1, watch=iter([False, *[True] * 9]).__next__)
    found = list(Schedule(urls, workers).outcomes())
    assert sorted(i for i, _ in found) == list(range(9))
    assert all("was cancelled: its executor or cluster was shut down" in str(outcome) for _, outcome in found)
