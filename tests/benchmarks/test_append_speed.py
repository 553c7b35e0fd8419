"""Appending one file to a large manifest store, with a long history.

``python -m tests.benchmarks.test_append_speed x.vstack 10000`` makes the full one: 10,000 commits of 100 files, of 10
variables in 10 chunks each (10^8 references, 10^6 sources), and appends one more file.
"""

import sys
import time
from pathlib import Path

import numpy as np

from virtualstack.location import Location
from virtualstack.manifests import (
    ENTRY,
    FIRST,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    ManifestGroup,
    inline_array,
)
from virtualstack.manifests.encoding import Codec
from virtualstack.repository import append, save

N_VARIABLES, N_CHUNKS = 10, 10


def part(first, n):
    """Give ``n`` files of one time each, from a time on: compressed chunks of lengths with noise."""
    rng = np.random.default_rng(first)
    locations = tuple(
        Location(
            f"s3://archive/model/run-1/{(first + i) // 8760:04d}/file-{first + i:09d}.nc", 10**8, f"{first + i:032x}"
        )
        for i in range(n)
    )
    encoding = ChunkEncoding.of(np.dtype("f4"), (1, 100, 1000), (Codec("numcodecs.zlib"),))
    length = rng.integers(200_000, 260_000, (N_VARIABLES, n, N_CHUNKS))
    offset = 10_000 + np.cumsum(length.transpose(1, 0, 2).reshape(n, -1), 1).reshape(n, N_VARIABLES, N_CHUNKS)
    arrays = {}
    for v in range(N_VARIABLES):
        entries = np.zeros((n, N_CHUNKS, 1), ENTRY)
        entries["location"] = (np.arange(n) + FIRST)[:, None, None]
        entries["offset"], entries["length"] = offset[:, v, :, None], length[v, :, :, None]
        manifest = ChunkManifest(
            entries=entries, fills=(Fill.zero(np.dtype("f4")),), encodings=(encoding,), locations=locations
        )
        grid = ChunkGrid.regular((n, 1000, 1000), (1, 100, 1000))
        arrays[f"v{v}"] = ManifestArray(
            manifest=manifest, grid=grid, dtype=np.dtype("f4"), name=f"v{v}", dimension_names=("time", "y", "x")
        )
    hours = np.arange(first, first + n, dtype="i8")
    attributes = {"units": "hours since 1900-01-01", "calendar": "proleptic_gregorian"}
    arrays["time"] = inline_array(hours, name="time", dims=["time"], attributes=attributes)
    return ManifestGroup(arrays=arrays, loaded=frozenset({"time"}))


def build(url, n_commits, n_files=100):
    """Make a store by many appends."""
    save(part(0, n_files), url)
    for i in range(1, n_commits):
        append(part(i * n_files, n_files), url, "time")
    return n_commits * n_files


def n_bytes(url):
    return sum(x.stat().st_size for x in Path(url).rglob("*") if x.is_file())


def appended(url, first):
    """Append one file, and give seconds and bytes."""
    one = part(first, 1)
    before, start = n_bytes(url), time.perf_counter()
    append(one, url, "time")
    return time.perf_counter() - start, n_bytes(url) - before


def test_one_file_is_appended_to_a_long_history(tmp_path):
    """Its costs do not depend on how many references there are."""
    url = str(tmp_path / "x.vstack")
    n = build(url, 150, n_files=2)
    seconds, written = appended(url, n)
    print(f"appended in {seconds:.3f} s, {written} bytes")
    assert written < 2 << 20


if __name__ == "__main__":
    target, commits = sys.argv[1], int(sys.argv[2])
    begin = time.perf_counter()
    files = commits * 100 if Path(target).exists() else build(target, commits)
    print(f"built in {time.perf_counter() - begin:.0f} s, {n_bytes(target) / 1e6:.0f} MB", flush=True)
    for more in range(3):
        took, new = appended(target, files + more)
        print(f"appended in {took:.3f} s, {new / 1e6:.3f} MB", flush=True)
