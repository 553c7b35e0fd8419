"""Limits of connections, which uvicorn with httptools does not have: who has no token meets them, too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_HEAD_BYTES = 64 << 10
"""Bytes of the line and the headers of a request. They count from the request before, as a reader sends no bodies."""

_SLICE_BYTES = 4 << 10
"""Bytes that are parsed before the next look at the limits."""

_MAX_PIPELINED = 64
"""Requests on a connection that wait for the answer to another one."""

_MAX_CONNECTIONS = 500
"""Connections of a process. By default it may open 1,024 files, and sources are files, too."""

_MAX_SECONDS = 60.0
"""Seconds in which a client sends a whole request, or takes more of its answer."""

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class LimitedProtocol(HttpToolsProtocol):
    """A connection that waits only so long for a request of only so many bytes.

    If there are too many connections, the one that has waited longest is closed, so that those which send nothing do
    not keep others out.
    """

    if TYPE_CHECKING:
        connections: set[LimitedProtocol]  # type: ignore[assignment]

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0
    _n_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > _MAX_CONNECTIONS:
            waiting = (each for each in self.connections if each._timer is not None)
            min(waiting, key=lambda each: each._since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, a few at a time: a single call could hold thousands of requests."""
        for begin in range(0, len(data), _SLICE_BYTES):
            part = data[begin : begin + _SLICE_BYTES]
            self._n_bytes += len(part)
            super().data_received(part)
            if self.transport.is_closing():
                return
            if self._n_bytes > _MAX_HEAD_BYTES or len(self.pipeline) > _MAX_PIPELINED:
                if self.cycle is None or self.cycle.response_complete:
                    self.transport.write(_TOO_LARGE)
                self.transport.close()
                return

    def on_headers_complete(self) -> None:
        """Answer a request."""
        self._n_bytes = 0
        if not self.flow.write_paused:
            self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has arrived."""
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self in self.connections:
            self._wait()

    def pause_writing(self) -> None:
        """Wait until the client takes bytes."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Go on with an answer, or wait for the next request."""
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def _wait(self) -> None:
        self._stop_waiting()
        self._since = self.loop.time()
        self._timer = self.loop.call_later(_MAX_SECONDS, self._end, self.transport.get_write_buffer_size())

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, before: int) -> None:
        """Close the connection, unless the client has taken more of an answer meanwhile."""
        if self.transport.get_write_buffer_size() in (0, before):
            self.transport.abort()
        else:
            self._wait()
