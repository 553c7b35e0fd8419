"""A server of objects that gives each of two users other values, however the user logs in."""

from __future__ import annotations

import base64
import contextlib
import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import xarray as xr

__all__ = ["KINDS", "USERS", "serving_two_users"]

USERS = {"ann": 1.0, "bob": 2.0}
"""The value of each user."""


def file(value):
    buffer = io.BytesIO()
    ds = xr.Dataset({"t": (("time", "x"), np.full((1, 4_000), value))}, {"time": [0]})
    ds.to_netcdf(buffer, engine="h5netcdf")
    return buffer.getvalue()


FILES = {name: file(value) for name, value in USERS.items()}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        signed = self.headers.get("Authorization", "")
        if signed.startswith("Basic "):
            signed = base64.b64decode(signed[6:]).decode()
        names = [name for name in USERS if name in signed]
        if len(names) != 1:
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = FILES[names[0]]
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        part = data[int(first) : int(last) + 1]
        self.send_response(206)
        headers = {"Content-Length": len(part), "ETag": '"e"', "Last-Modified": "Tue, 14 Nov 2023 22:13:20 GMT",
                   "Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"}  # fmt: skip
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(part)


@contextlib.contextmanager
def serving_two_users() -> Iterator[str]:
    """Run the server, and yield its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


KINDS = {
    "s3": lambda root, name: ("s3://b/f.nc", {"s3://b/": {"endpoint": root, "key": name, "secret": "s"}}),
    "gs": lambda root, name: ("gs://b/f.nc", {"gs://b/": {"endpoint": root, "token": name}}),
    "az": lambda root, name: (
        "az://c/f.nc",
        {"az://c/": {"account_name": "a", "endpoint": root, "bearer_token": name}},
    ),
    "web": lambda root, name: (f"{root}/f.nc", {f"{root}/": {"username": name, "password": "pw"}}),
    "url": lambda root, name: (f"{root.replace('//', f'//{name}:pw@')}/f.nc", None),
}
"""URL of the file of a user, and ``storage=`` with the login of this user, by kind of server."""
