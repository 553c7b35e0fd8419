"""What is made once, however many ask for it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from virtualstack.cache import ByteCache


def test_an_interrupt_of_one_thread_is_none_of_the_others():
    """Ctrl-C comes to the thread that makes a value; who waits for the value makes it, and goes on."""
    cache, begun, asked = ByteCache(10), threading.Event(), threading.Event()

    def interrupted():
        begun.set()
        asked.wait(5)
        raise KeyboardInterrupt

    def wait():
        begun.wait(5)
        threading.Timer(0.2, asked.set).start()
        return cache.get("k", lambda: b"made")

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(wait) for _ in range(2)]
        with pytest.raises(KeyboardInterrupt):
            cache.get("k", interrupted)
        assert [answer.result(5) for answer in waiting] == [b"made"] * 2
    assert "k" in cache
