"""Ctrl-C while a server does not answer."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.servers import RangeServer
from virtualstack.location import Location
from virtualstack.storage import open_source


def interrupted(ask):
    """Seconds from an interrupt to the end of what it broke off."""
    done = []

    def interrupt():
        done.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, interrupt)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            ask()
    finally:
        timer.join()
    return time.monotonic() - done[0]


@pytest.mark.skipif(sys.platform == "win32", reason="waiting for a lock is not interrupted there")
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_does_not_wait_for_an_answer():
    """One request, be it to open a file or to read a chunk of it; what is asked for next is answered."""
    with RangeServer({"x": b"0123456789"}, mode="hang") as server:
        url = server.url("x")
        expected = Location(url, size=10)
        assert interrupted(lambda: open_source(url)) < 5
        assert interrupted(lambda: open_source(url, expected=expected).read(2, 3)) < 5
        server.mode = "normal"
        assert open_source(url).read(2, 3) == b"234"


def test_what_is_asked_for_while_the_process_ends_is_answered():
    """No thread can be started then."""
    code = """
import atexit, sys
from virtualstack.storage import open_source
atexit.register(lambda: print(open_source(sys.argv[1]).size))
"""
    with RangeServer({"x": b"0123456789"}) as server:
        command = [sys.executable, "-c", code, server.url("x")]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "10\n"
