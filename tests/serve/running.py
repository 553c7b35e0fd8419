"""Run an application under uvicorn on loopback, in a thread of this process; or nginx for static files."""

import contextlib
import shutil
import socket
import subprocess
import threading
import time

import pytest
import uvicorn

import virtualstack as vs
from virtualstack.serve.protocol import LimitedProtocol


def find_free_port():
    """Return a port of loopback that no server uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def serving(cubes, **options):
    """Yield the URL of a server of cubes."""
    return serving_app(vs.serve.app(cubes, **options))


@contextlib.contextmanager
def serving_app(app):
    """Yield the URL of a server of an application."""
    port = find_free_port()
    config = uvicorn.Config(app, port=port, log_level="error", access_log=False, http=LimitedProtocol)
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


@contextlib.contextmanager
def serving_by_nginx(root, folder):
    """Run nginx, which serves the files below ``root`` to pages of all servers; its own files are in ``folder``."""
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("there is no nginx")
    port = find_free_port()
    (folder / "nginx.conf").write_text(f"""
        pid {folder}/nginx.pid; error_log {folder}/error.log; daemon off; master_process off; user root;
        events {{ worker_connections 64; }}
        http {{ client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
            uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e; access_log off;
            types {{ text/html html; text/javascript js; text/css css; }}
            server {{ listen 127.0.0.1:{port}; root {root};
            add_header Access-Control-Allow-Origin *;
            add_header Access-Control-Expose-Headers "Content-Range, ETag"; }} }}
    """)
    process = subprocess.Popen([program, "-c", folder / "nginx.conf", "-p", folder])
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait()
