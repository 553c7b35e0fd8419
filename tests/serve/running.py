"""Run an application under uvicorn on loopback, in a thread of this process."""

import contextlib
import socket
import threading
import time

import uvicorn

import virtualstack as vs


def find_free_port():
    """Return a port of loopback that no server uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def serving(cubes, **options):
    """Yield the URL of a server of cubes."""
    port = find_free_port()
    config = uvicorn.Config(vs.serve.app(cubes, **options), port=port, log_level="error", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive(), "the server stopped"
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
