"""Throughput of `virtualstack serve` beside nginx and beside one process that decodes; needs wrk and nginx.

Run with VIRTUALSTACK_BENCHMARK=full for ten seconds a round.
"""

import contextlib
import math
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.serve.running import find_free_port

pytestmark = [
    pytest.mark.apart,
    pytest.mark.skipif(shutil.which("wrk") is None or shutil.which("nginx") is None, reason="wrk or nginx is missing"),
]

SECONDS = 10 if os.environ.get("VIRTUALSTACK_BENCHMARK") == "full" else 3
WORKERS = 2


BARE = """
import numpy as np

CHUNKS = [row.tobytes() for row in np.load("a.npy")]
HEADERS = [(b"content-length", b"%d" % len(CHUNKS[0]))]

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": CHUNKS[int(scope["path"].split("/")[-2])]})
"""


@contextlib.contextmanager
def running(command, url, cwd):
    """Run a server until its first answer, and return its process."""
    process = subprocess.Popen(command, cwd=cwd, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url).read()
                break
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def cpu_seconds(pid):
    """CPU time of a process and its children, in s."""
    total, pids = 0, [pid]
    while pids:
        fields = Path(f"/proc/{pids[-1]}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
        children = Path(f"/proc/{pids[-1]}/task/{pids[-1]}/children").read_text().split()
        pids[-1:] = map(int, children)
    return total / os.sysconf("SC_CLK_TCK")


def load(url, path, n, folder):
    """Return chunks a second over 64 connections, at random."""
    script = folder / "random.lua"
    script.write_text(
        f'request = function() return wrk.format("GET", "{path}/c/" .. math.random(0, {n - 1}) .. "/0") end'
    )
    found = subprocess.run(
        ["wrk", "-t1", "-c64", f"-d{SECONDS}s", "--timeout", "20s", "-s", str(script), url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Non-2xx" not in found, found
    return float(next(line for line in found.splitlines() if "Requests/sec" in line).split()[1])


def serve(folder, port, *options):
    """Return the command of the server."""
    return [Path(sys.executable).with_name("virtualstack"), "serve", "a.vstack", f"--port={port}", *options]


@pytest.mark.parametrize(("n", "length"), [(1000, 25_000), (200, 250_000), (60, 1_000_000)])
def test_stored_chunks(tmp_path, n, length):
    """Chunks of 100 kB, 1 MB and 4 MB, beside nginx with a plain zarr copy, and the least that uvicorn can do.

    All have two processes.
    """
    values = np.random.default_rng(0).random((n, length), "f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=values, chunks=(1, length))
    vs.open_virtual_dataset(tmp_path / "a.h5").virtual.to_vstack(tmp_path / "a.vstack")
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(1, length), compressors=None, name="a")
    ours, theirs, bare = find_free_port(), find_free_port(), find_free_port()
    np.save(tmp_path / "a.npy", values)
    (tmp_path / "bare.py").write_text(BARE)
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; user root; worker_processes {WORKERS}; pid {tmp_path}/pid; error_log {tmp_path}/error;\n"
        "events { worker_connections 256; }\n"
        "http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 9999999;\n"
        f"server {{ listen 127.0.0.1:{theirs}; root {tmp_path}; }} }}"
    )
    uvicorn = [sys.executable, "-m", "uvicorn", "bare:app", f"--port={bare}", f"--workers={WORKERS}", "--no-access-log"]
    servers = {
        "virtualstack": (serve(tmp_path, ours, f"--workers={WORKERS}"), f"http://127.0.0.1:{ours}", "/a/a"),
        "nginx": (["nginx", "-c", tmp_path / "nginx.conf"], f"http://127.0.0.1:{theirs}", "/a.zarr/a"),
        "bytes from memory under uvicorn": ([*uvicorn, "--log-level=warning"], f"http://127.0.0.1:{bare}", "/a/a"),
    }
    rates, cpu = dict.fromkeys(servers, 0.0), dict.fromkeys(servers, math.inf)
    with contextlib.ExitStack() as stack:
        processes = {
            name: stack.enter_context(running(command, f"{url}{path}/c/0/0", tmp_path))
            for name, (command, url, path) in servers.items()
        }
        for name, (_, url, path) in list(servers.items()) * 3:
            before = cpu_seconds(processes[name].pid)
            rate = load(url, path, n, tmp_path)
            rates[name] = max(rate, rates[name])
            cpu[name] = min(cpu[name], (cpu_seconds(processes[name].pid) - before) / (rate * SECONDS))
    print(f"\nstored chunks of {length * 4:,} bytes")
    for name, rate in rates.items():
        print(
            f"{name}: {rate:,.0f} a second, nginx x {rate / rates['nginx']:.2f}; {cpu[name] * 1e6:.0f} us of CPU each"
        )


def test_decoded_chunks(tmp_path):
    """Chunks of 1 MB that are compressed in the file, beside a process that reads them with xarray."""
    n, length = 400, 250_000
    values = np.random.default_rng(0).integers(0, 50, (n, length)).astype("f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=values, chunks=(1, length), compression="gzip", shuffle=True)
    vs.open_virtual_dataset(tmp_path / "a.h5").virtual.to_vstack(tmp_path / "a.vstack")
    port, best, alone = find_free_port(), 0.0, 0.0
    url = f"http://127.0.0.1:{port}"
    code = (
        "import time, xarray as xr, numpy as np\n"
        "array = xr.open_dataset('a.vstack', engine='virtualstack').a\n"
        "array[:8].values\n"
        f"begin, n = time.perf_counter(), 0\n"
        f"while time.perf_counter() < begin + {SECONDS}:\n"
        f"    array[np.random.randint({n})].values\n"
        "    n += 1\n"
        "print(n / (time.perf_counter() - begin))"
    )
    with running(serve(tmp_path, port, "--cache=0"), f"{url}/a/a/c/0/0", tmp_path):
        for _ in range(3):
            best = max(best, load(url, "/a/a", n, tmp_path))
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
            )
            alone = max(alone, float(done.stdout))
    whole = 0.0
    for _ in range(3):
        with xr.open_dataset(tmp_path / "a.vstack", engine="virtualstack") as dataset:
            begin = time.perf_counter()
            dataset["a"].load()
            whole = max(whole, n / (time.perf_counter() - begin))
    print(
        f"\ndecoded chunks of {length * 4:,} bytes: {best:,.0f} a second; one process, chunk by chunk {alone:,.0f}: "
        f"x{best / alone:.2f}, and all at once {whole:,.0f}: x{best / whole:.2f}"
    )
