"""Count requests for Prometheus, and write them to a log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, MutableMapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from virtualstack.printable import printable
from virtualstack.serve.reads import Reads
from virtualstack.system import is_running

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that prometheus_client reads when it is imported: the folder of shared counters."""

_LOG = logging.getLogger("virtualstack.serve")


_GAUGES: tuple[tuple[str, str, Literal["sum", "livesum"], Callable[[Reads], int]], ...] = (
    ("chunks_read_total", "Chunks that were read from sources", "sum", attrgetter("n_reads")),
    ("chunks_shared_total", "Chunks that were in the cache or being read", "sum", attrgetter("n_hits")),
    ("cache_bytes", "Bytes of chunks in the cache", "livesum", attrgetter("cached")),
    (
        "memory_bytes",
        "Bytes of chunks that are read or sent now, without the cache",
        "livesum",
        attrgetter("memory.used"),
    ),
)

_SECONDS_OF_REQUESTS = 0.5
"""Requests of so many seconds are counted together, which takes less time than one by one."""


class Metrics:
    """Counters of one application; those of its worker processes together, if the command started several."""

    def __init__(self, reads: Sequence[Reads], /) -> None:
        self.write: Callable[[str], None] | None = None  # what writes a line for each request, in place of the log
        self._registry = CollectorRegistry()
        self._kept: dict[tuple[str, int], tuple[Counter, Counter, Histogram]] = {}
        names = ("cube", "status")
        self._requests = Counter("virtualstack_requests", "Requests that were answered", names, registry=self._registry)
        self._bytes = Counter(
            "virtualstack_sent_bytes", "Bytes of bodies that were sent", ("cube",), registry=self._registry
        )
        self._seconds = Histogram(
            "virtualstack_request_seconds", "Time to the end of the answer in s", ("cube",), registry=self._registry
        )
        self._reads = reads
        self._gauges: list[tuple[Gauge, Callable[[Reads], int]]] = []
        self._pending: list[tuple[str, int, int, float]] = []
        for name, what, mode, value in _GAUGES:
            gauge = Gauge(f"virtualstack_{name}", what, registry=self._registry, multiprocess_mode=mode)
            self._gauges.append((gauge, value))

    def _count_later(self, cube: str, status: int, sent: int, seconds: float) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_later(_SECONDS_OF_REQUESTS, self._count)
        self._pending.append((cube, status, sent, seconds))

    def _count(self) -> None:
        pending, self._pending = self._pending, []
        for cube, status, sent, seconds in pending:
            found = self._kept.get((cube, status))  # finding counters by their labels takes longer than counting
            if found is None:
                counters = self._requests.labels(cube, status), self._bytes.labels(cube), self._seconds.labels(cube)
                found = self._kept[cube, status] = counters
            found[0].inc()
            found[1].inc(sent)
            found[2].observe(seconds)
        for gauge, value in self._gauges:
            gauge.set(sum(map(value, self._reads)))

    async def show(self, _: Request) -> Response:
        """Answer with the counters as Prometheus reads them."""
        self._count()
        registry = self._registry
        if _shared_folder():
            MultiProcessCollector(registry := CollectorRegistry())  # type: ignore[no-untyped-call]
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def watch(self, app: ASGIApp) -> ASGIApp:
        """Return an application that counts and logs the requests of another one."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            begin, status, sent = time.perf_counter(), 0, 0

            async def count(message: MutableMapping[str, Any]) -> None:
                nonlocal status, sent
                if message["type"] == "http.response.start":
                    status = message["status"]
                else:
                    sent += len(message.get("body", b""))
                await send(message)

            try:
                await app(scope, receive, count)
            finally:
                seconds = time.perf_counter() - begin
                status = scope.get("virtualstack.status", status)
                cube = scope.get("virtualstack.cube", "")
                self._count_later(cube, status, sent, seconds)
                write = self.write or (_LOG.info if _LOG.isEnabledFor(logging.INFO) else None)
                if write is not None:
                    client = (scope.get("client") or ("-",))[0]
                    what = printable(f"{scope['method']} {scope['path']}").replace("\n", "\\n")
                    write(f'{client} "{what}" {status} {sent} {1000 * seconds:.1f} ms')

        return watched


def _shared_folder() -> str | None:
    return os.environ.get(FOLDER_VARIABLE)


def forget_ended_processes() -> None:
    """Remove the gauges of processes that have ended."""
    for path in Path(os.environ[FOLDER_VARIABLE]).glob("gauge_live*.db"):
        pid = int(path.stem.rpartition("_")[2])
        if not is_running(pid):
            with contextlib.suppress(FileNotFoundError):  # another process that starts removes it, too
                mark_process_dead(pid)  # type: ignore[no-untyped-call]
