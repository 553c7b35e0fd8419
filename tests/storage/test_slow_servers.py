"""Servers that are busy are waited for, and those that are too slow are not."""

import os
import signal
import subprocess
import sys
import time
from email.utils import formatdate

import pytest

from tests.servers import RangeServer
from virtualstack.errors import StorageError
from virtualstack.storage import open_source, slow_servers
from virtualstack.storage.unsaid import seconds_to_wait

DATA = bytes(range(200))
QUICK = 6  # requests that obstore makes in about a second


@pytest.fixture
def server():
    with RangeServer({"a": DATA}, mode="status", status=503) as running:
        yield running


@pytest.fixture
def pauses(monkeypatch):
    """Seconds of each pause, which nobody waits for."""
    found = []
    monkeypatch.setattr(slow_servers, "_pause", found.append)
    return found


def asking(server, seconds):
    return {server.root: {"retry_timeout": seconds}}


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_is_busy_for_seconds_is_waited_for(server, monkeypatch, status):
    """Not only for the second in which obstore asks five times."""
    monkeypatch.setattr(slow_servers, "_FIRST_PAUSE_SECONDS", 0.1)
    server.status, server.times = status, 2 * QUICK
    assert open_source(server.url("a"), storage=asking(server, 60)).read(0, 200) == DATA


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_server_says_when_it_wants_to_be_asked(server, form, pauses):
    """``Retry-After`` has two forms, and only one request comes after that time."""
    began, date = int(time.time()), int(time.time()) + 50
    server.headers = {"Retry-After": "50" if form == "seconds" else formatdate(date, usegmt=True)}
    server.times = QUICK + 1
    assert open_source(server.url("a"), storage=asking(server, 60)).size == 200
    assert server.n_requests == QUICK + 2
    assert pauses == [50] if form == "seconds" else began <= date - pauses[0] <= time.time()


def test_a_pause_is_no_shorter():
    began = time.monotonic()
    slow_servers._pause(0.7)
    assert time.monotonic() - began >= 0.7


def test_a_time_beyond_the_total_is_not_waited_for(server, pauses):
    """The error says how long the server asks for, and which option waits for it."""
    server.headers = {"Retry-After": "3000"}
    message = r"answered 503 .* asked to wait 3000 s\. .*wait longer: storage=\{.*\"retry_timeout\": 6000\}\}"
    with pytest.raises(StorageError, match=message):
        open_source(server.url("a"), storage=asking(server, 60))
    assert pauses == []


def test_the_total_is_kept(server, monkeypatch):
    """And once it is over, other requests to the same server are not waited for, either."""
    monkeypatch.setattr(slow_servers, "_FIRST_PAUSE_SECONDS", 0.5)
    pause, pauses = slow_servers._pause, []
    monkeypatch.setattr(slow_servers, "_pause", lambda seconds: (pauses.append(seconds), pause(seconds)))
    for _ in range(2):
        pauses.clear()
        with pytest.raises(StorageError, match="the server answered 503"):
            open_source(server.url("a"), storage=asking(server, 2))
        assert sum(pauses) <= 2
    server.mode = "normal"
    assert open_source(server.url("a"), storage=asking(server, 4)).size == 200


def test_a_number_of_retries_is_the_number_of_all(server):
    """Whoever gives ``max_retries`` has no further ones."""
    with pytest.raises(StorageError, match=r"after 1 retries\). Try again later"):
        open_source(server.url("a"), storage={server.root: {"max_retries": 1}})
    assert server.n_requests == 2


@pytest.mark.parametrize("text", ["soon", "-1", "Tue, 14 Nov 2023", ""])
def test_what_is_no_time_is_not_waited_for(server, text):
    """An odd ``Retry-After`` is as good as none."""
    server.headers = {"Retry-After": text}
    assert seconds_to_wait(server.url("a"), {}) in (None, 0.0)


def test_a_server_of_a_few_bytes_a_second_is_given_up(monkeypatch):
    """The error says how many came, and which option allows it."""
    monkeypatch.setattr(slow_servers, "_RATE_SECONDS", 1.0)
    with RangeServer({"a": DATA[:40], "b": DATA}, mode="trickle") as server:
        match = r"bytes arrived in \d+ s, fewer than 1024 per second.*\"min_rate\": 0"
        with pytest.raises(StorageError, match=match) as caught:
            open_source(server.url("b"))
        assert int(str(caught.value).partition("': ")[2].split()[0]) < len(DATA) / 2  # of 10 s in all
        assert open_source(server.url("a"), storage={server.root: {"min_rate": 5}}).read(0, 40) == DATA[:40]


PROGRAM = """
import sys
from virtualstack.storage import open_source
print("begun", flush=True)
open_source(sys.argv[1])
"""


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_waiting(server):
    """At once, and the process too."""
    server.headers = {"Retry-After": "40"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, server.url("a")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout.readline() == "begun\n"
        while server.n_requests <= QUICK:
            time.sleep(0.05)
        time.sleep(0.5)
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        assert run.communicate(timeout=30)[1].rstrip().endswith("KeyboardInterrupt")
        assert time.monotonic() - began < 5
