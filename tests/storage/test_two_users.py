"""Two users in one process: a server gives each user other values, and nobody ever sees those of the other."""

import base64
import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import StorageError

USERS = {"ann": 1.0, "bob": 2.0}


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


@pytest.fixture(scope="module")
def root():
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


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_sees_the_values_of_the_other(root, kind):
    """Opened in turn in many threads, kept while others open the same URL, and pickled."""

    def use(n):
        name = ("ann", "bob")[n % 2]
        url, storage = KINDS[kind](root, name)
        vds = vs.open_virtual_dataset(url, storage=storage)
        again = pickle.loads(pickle.dumps(vds)) if n % 3 else vds
        return name, again, set(np.unique(again.virtual.open()["t"].values).tolist())

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(use, range(16)))
    assert all(values == {USERS[name]} for name, _, values in found)
    for name, vds, _ in reversed(found):
        assert set(np.unique(vds.virtual.load("t")["t"].values).tolist()) == {USERS[name]}


@pytest.mark.parametrize("kind", ["s3", "web"])
def test_a_stranger_gets_nothing_after_others_have_read(root, kind):
    url, storage = KINDS[kind](root, "ann")
    vs.open_virtual_dataset(url, storage=storage).virtual.open()["t"].load()
    options = {"endpoint": root} if kind == "s3" else {}
    with pytest.raises(StorageError, match="access denied"):
        vs.open_virtual_dataset(url, storage={next(iter(storage)): options})
