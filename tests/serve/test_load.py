"""Many requests, apart from the suite: memory stays within its limit."""

import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.serve.running import find_free_port

pytestmark = pytest.mark.apart

N = 400
LIMIT = 64 << 20


def resident(pid):
    """Bytes of memory of a process, now and at most."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) << 10, int(status["VmHWM"].split()[0]) << 10


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_hundred_thousand_requests(tmp_path, compression):
    """Stored and decoded chunks of 100 kB over 64 connections: the process grows by no more than its limits."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        values = np.random.default_rng(0).integers(0, 9, (N, 25_000)).astype("f4")
        file.create_dataset("a", data=values, chunks=(1, 25_000), compression=compression)
    port = find_free_port()
    command = [
        Path(sys.executable).with_name("virtualstack"),
        "serve",
        "a.h5",
        f"--port={port}",
        "--memory=32 MiB",
        "--cache=32 MiB",
    ]
    server = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(200):
            try:
                urllib.request.urlopen(f"{url}/a/a/c/0/0").read()
                break
            except OSError:
                time.sleep(0.1)
        before, _ = resident(server.pid)
        script = tmp_path / "random.lua"
        script.write_text(
            f'request = function() return wrk.format("GET", "/a/a/c/" .. math.random(0, {N - 1}) .. "/0") end'
        )
        done = 0
        while done < 100_000:
            found = subprocess.run(
                ["wrk", "-t1", "-c64", "-d10s", "-s", str(script), url], capture_output=True, text=True, check=True
            ).stdout
            assert "Non-2xx" not in found
            done += int(next(line for line in found.splitlines() if "requests in" in line).split()[0])
        now, most = resident(server.pid)
        print(f"\n{done:,} requests: {before >> 20} MiB before, {now >> 20} MiB after, {most >> 20} MiB at most")
        assert most - before < LIMIT + (64 << 20)
        end = time.monotonic() + 20
        while b"virtualstack_memory_bytes 0.0" not in urllib.request.urlopen(f"{url}/metrics").read():
            assert time.monotonic() < end, "chunks of clients that have gone are still held"
            time.sleep(0.1)
    finally:
        server.terminate()
        server.wait(20)
