"""A fast HTTP/1.1 range server in a process of its own, whose answers take their time: for measuring.

`RangeServer` shares the process with the client, so at hundreds of requests it measures Python's lock.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

__all__ = ["LatencyServer", "Traffic"]


class Traffic(NamedTuple):
    """What a server was asked.

    Parameters
    ----------
    n_requests
        Of all methods.
    n_bytes
        Of all bodies.
    most_at_once
        Requests that were under way at a time.
    depth
        Longest chain of requests of which each came after the answer to the one before.
    """

    n_requests: int = 0
    n_bytes: int = 0
    most_at_once: int = 0
    depth: int = 0


class LatencyServer:
    """Serve the files of a folder under an ephemeral port of 127.0.0.1; a context manager.

    Parameters
    ----------
    folder
        Files may be larger than memory.
    latency
        Seconds before each answer.
    bandwidth
        Bytes a second of one connection; ``None``: as fast as can be.
    """

    def __init__(self, folder: Path, *, latency: float = 0.0, bandwidth: float | None = None) -> None:
        self._arguments = [str(folder), str(latency), str(bandwidth or 0)]

    def url(self, path: str) -> str:
        """URL of one file."""
        return f"http://127.0.0.1:{self._port}/{path}"

    def traffic(self) -> Traffic:
        """Say what came since this was asked for last."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url("?traffic")) as answer:
            return Traffic(*json.load(answer))

    def __enter__(self) -> Self:
        command = [sys.executable, __file__, *self._arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # the end of its input ends it


class _Counters:
    def __init__(self) -> None:
        self.under_way = 0
        self.reset()

    def reset(self) -> None:
        self.traffic = Traffic()
        self.link_end = 0.0

    def begin(self, n_bytes: int) -> None:
        self.under_way += 1
        found = self.traffic
        self.traffic = found._replace(
            n_requests=found.n_requests + 1,
            n_bytes=found.n_bytes + n_bytes,
            most_at_once=max(found.most_at_once, self.under_way),
        )

    def end(self, began: float, now: float) -> None:
        self.under_way -= 1
        if began >= self.link_end:  # answers come in the order of their ends: the greedy chain is the longest one
            self.link_end = now
            self.traffic = self.traffic._replace(depth=self.traffic.depth + 1)


class _Connection(asyncio.Protocol):
    def __init__(self, folder: Path, latency: float, bandwidth: float, counters: _Counters) -> None:
        self.folder, self.latency, self.bandwidth, self.counters = folder, latency, bandwidth, counters
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, self.received = self.received.split(b"\r\n\r\n", 1)
            self.answer(head.decode("latin1").split("\r\n"))

    def answer(self, lines: list[str]) -> None:
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        if target == "/?traffic":
            body = json.dumps(self.counters.traffic).encode()
            self.counters.reset()
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            return
        try:
            file = os.open(self.folder / target.lstrip("/"), os.O_RDONLY)
        except OSError:
            self.transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        size = os.fstat(file).st_size
        first, stop, status = 0, size, "200 OK"
        if "range" in headers:
            begin, _, end = headers["range"].removeprefix("bytes=").partition("-")
            first = int(begin) if begin else max(0, size - int(end))
            stop = min(int(end) + 1, size) if begin and end else size
            status = f"206 Partial Content\r\nContent-Range: bytes {first}-{stop - 1}/{size}"
        n_sent = 0 if method == "HEAD" else stop - first
        loop = asyncio.get_running_loop()
        self.counters.begin(n_sent)
        arguments = file, first, n_sent, status, stop - first, loop.time()
        loop.call_later(self.latency + (n_sent / self.bandwidth if self.bandwidth else 0), self.send, *arguments)

    def send(self, file: int, first: int, n_sent: int, status: str, length: int, began: float) -> None:
        self.counters.end(began, asyncio.get_running_loop().time())
        head = (
            f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\nAccept-Ranges: bytes\r\n"
            'ETag: "1"\r\nLast-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n\r\n'
        )
        self.transport.write(head.encode() + os.pread(file, n_sent, first))
        os.close(file)


async def _serve(folder: Path, latency: float, bandwidth: float) -> None:
    loop, counters = asyncio.get_running_loop(), _Counters()
    server = await loop.create_server(
        lambda: _Connection(folder, latency, bandwidth, counters), "127.0.0.1", 0, backlog=512
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
