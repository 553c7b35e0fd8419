"""Clients that send what no client should, without a token: a server answers others meanwhile, and its memory stays."""

import contextlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import xarray as xr

from tests.serve.running import find_free_port, serving
from tests.serve.test_command import first_answer

MAX_SECONDS = 2
_COMMAND = f"""
from virtualstack.serve import protocol
protocol._MAX_SECONDS = {MAX_SECONDS}
from virtualstack.cli.start import main
main()
"""


class Server:
    """The command in a process of its own, with a shorter limit of time."""

    def __init__(self, folder):
        self.port = find_free_port()
        attributes = {"note": "x" * 1_000_000}
        xr.Dataset({"rain": ("time", [1.0, 2.0], attributes)}).virtual.to_vstack(folder / "rain.vstack")
        command = [sys.executable, "-c", _COMMAND, "serve", "rain.vstack", f"--port={self.port}", "--token=sesame"]
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen(command, cwd=folder, stderr=self.log)
        first_answer(self.process, self.request())

    def get(self):
        """Do as a good client does."""
        with urllib.request.urlopen(self.request(), timeout=10) as answer:
            assert b'"shape":[2]' in answer.read()

    def request(self):
        """Return the request of a good client."""
        url = f"http://127.0.0.1:{self.port}/rain/rain/zarr.json"
        return urllib.request.Request(url, headers={"Authorization": "Bearer sesame"})

    def connect(self, n_kept=None):
        """Return a connection, whose system keeps some bytes that the client has not read."""
        client = socket.socket()
        client.settimeout(20)
        if n_kept is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, n_kept)
        client.connect(("127.0.0.1", self.port))
        return client

    def memory(self):
        """Return the largest resident memory since the last call of `forget`, in bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

    def forget(self):
        """Start to measure memory anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def close(self):
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    found = Server(tmp_path_factory.mktemp("limits"))
    yield found
    found.close()


def send(client, data, most):
    """Send the same bytes again and again; return how many the server let pass before it closed the connection."""
    n = 0
    with contextlib.suppress(OSError):
        while n < most:
            client.sendall(data)
            n += len(data)
    return n


ENDLESS = {
    "line": (b"GET /", b"a" * 65536),
    "query": (b"GET /?", b"a=b&" * 16384),
    "header": (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ", b"a" * 65536),
    "headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"A: 1\r\n" * 10000),
    "body": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n", b"a" * 65536),
    "chunks": (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 10000),
    "requests": (b"", b"GET /rain/ HTTP/1.1\r\n\r\n" * 3000),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_endless_requests(server, kind):
    """Ten clients send 100 MB each, as far as they can: all are cut off, and no memory is taken."""
    before, data = ENDLESS[kind]
    server.forget()
    was = server.memory()
    for _ in range(10):
        with server.connect() as client:
            client.sendall(before)
            assert send(client, data, 100 << 20) < 100 << 20
            server.get()
    assert server.memory() - was < 20 << 20


def test_the_answer_to_a_large_request(server):
    """Headers of 60 kB are read, and those of 80 kB get status 431."""
    for n, status in ((60_000, b"401"), (80_000, b"431")):
        with server.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * n + b"\r\n\r\n")
            assert client.recv(100).split()[1] == status


def test_a_request_byte_by_byte(server):
    """It is closed after the limit of time, however many bytes still come."""
    with server.connect() as client:
        begin = time.monotonic()
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: 1\r\n" * 1000
        with contextlib.suppress(OSError):
            for byte in request:
                client.sendall(bytes([byte]))
                time.sleep(0.05)
        assert MAX_SECONDS - 0.5 < time.monotonic() - begin < MAX_SECONDS + 8
    server.get()


def test_a_connection_that_sends_nothing(server):
    """It is closed, also after an answer."""
    for first in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with server.connect() as client:
            client.sendall(first)
            begin = time.monotonic()
            with contextlib.suppress(OSError):
                while client.recv(1 << 16):
                    pass
            assert time.monotonic() - begin < MAX_SECONDS + 8


def test_thousands_of_half_requests(server):
    """The oldest are closed, and a good client is answered at once."""
    server.forget()
    was = server.memory()
    with contextlib.ExitStack() as stack:
        for n in range(2000):
            client = stack.enter_context(server.connect())
            with contextlib.suppress(OSError):
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 1000)
            if n % 400 == 399:
                begin = time.monotonic()
                server.get()
                assert time.monotonic() - begin < 5
        assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) < 600
        assert server.memory() - was < 50 << 20


def test_requests_in_one_packet(server):
    """A few that are sent at once are all answered, in order."""
    keys = ["rain/rain/zarr.json", "rain/zarr.json", "nothing"] * 5
    head = "Host: localhost\r\nAuthorization: Bearer sesame\r\n"
    requests = [f"GET /{key} HTTP/1.1\r\n{head}\r\n" for key in keys]
    requests[-1] = f"GET / HTTP/1.1\r\n{head}Connection: close\r\n\r\n"
    with server.connect() as client:
        client.sendall("".join(requests).encode())
        found = b""
        while part := client.recv(1 << 16):
            found += part
    statuses = [part[:3] for part in found.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"200", b"404"] * 4 + [b"200", b"200", b"200"]


@pytest.mark.parametrize(("pauses", "is_whole"), [([2 * MAX_SECONDS + 1], False), ([0.1 * MAX_SECONDS] * 15, True)])
def test_an_answer_that_nobody_takes(server, pauses, is_whole):
    """Its connection is closed, and a client that takes a little at a time gets all."""
    head = b"GET /rain/rain/zarr.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sesame\r\n"
    with server.connect(n_kept=1 << 18) as client, client.makefile("rb") as answers:
        client.sendall((head + b"\r\n") * 14 + head + b"Connection: close\r\n\r\n")
        n = 0
        with contextlib.suppress(ConnectionResetError):
            for pause in pauses:
                time.sleep(pause)
                n += len(answers.read(1 << 20))
            while part := answers.read(1 << 20):
                n += len(part)
        assert (n > 15_000_000) == is_whole


@pytest.mark.parametrize("hosts", [None, ["*"]])
def test_two_headers_host(tmp_path, hosts):
    """They are status 400, whichever host comes first."""
    xr.Dataset({"rain": ("time", [1.0])}).virtual.to_vstack(tmp_path / "rain.vstack")
    with serving({"rain": tmp_path / "rain.vstack"}, hosts=hosts) as url:
        port = int(url.rpartition(":")[2])
        for heads, status in (
            (["localhost", "evil.example"], b"400"),
            (["localhost"] * 2, b"400"),
            (["localhost"], b"200"),
        ):
            with socket.create_connection(("127.0.0.1", port)) as client:
                lines = "".join(f"Host: {host}\r\n" for host in heads)
                client.sendall(f"GET /rain/zarr.json HTTP/1.1\r\n{lines}\r\n".encode())
                assert client.recv(100).split()[1] == status


def test_a_wrong_snapshot_tells_no_path(tmp_path):
    """Neither in its message nor in its URL, whatever is wrong about it."""
    xr.Dataset({"rain": ("time", [1.0])}).virtual.to_vstack(tmp_path / "rain.vstack")
    xr.Dataset({"rain": ("time", [1.0])}).virtual.to_kerchunk(tmp_path / "refs.json")
    cubes = {"rain": tmp_path / "rain.vstack", "refs": tmp_path / "refs.json"}
    with serving(cubes) as url:
        for first in ("rain@7", "rain@x", "rain@-1", "rain@999999999999", "refs@0"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"{url}/{first}/zarr.json")
            body = caught.value.read()
            assert caught.value.code == 404
            assert tmp_path.name.encode() not in body
            assert b"has no snapshot" in body
