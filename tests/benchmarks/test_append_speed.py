"""Appending one file to a large vstack, with a long history.

``python -m tests.benchmarks.test_append_speed x.vstack 10000`` makes the full one: 10,000 commits of 100 files, of 10
variables in 10 chunks each (10^8 references, 10^6 sources), and appends one more file.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.data.arrays import referenced_array
from virtualstack.codecs.codec import Codec
from virtualstack.location import Location, absolute_url
from virtualstack.manifests import ChunkAxis, ManifestGroup, inline_array
from virtualstack.storage import ObjectStore, Storage
from virtualstack.vstack.format.history import OpenStore, read_group
from virtualstack.vstack.format.names import snapshot_key
from virtualstack.vstack.format.sources import Prefixes
from virtualstack.vstack.reader import permission_for_snapshot
from virtualstack.vstack.save import save
from virtualstack.vstack.write.edit import ArrayEdit, Edit, applied
from virtualstack.vstack.write.placing import Piece, place
from virtualstack.vstack.write.segment import SegmentWriter
from virtualstack.vstack.write.write import write_group

N_VARIABLES, N_CHUNKS = 10, 10


def part(first, n):
    """Give ``n`` files of one time each, from a time on: compressed chunks of lengths with noise."""
    rng = np.random.default_rng(first)
    files = [
        Location(f"s3://archive/model/run-1/{i // 8760:04d}/file-{i:09d}.nc", 10**8, f"{i:032x}")
        for i in range(first, first + n)
    ]
    codecs = (Codec("numcodecs.zlib"),)
    length = rng.integers(200_000, 260_000, (N_VARIABLES, n, N_CHUNKS))
    offset = 10_000 + np.cumsum(length.transpose(1, 0, 2).reshape(n, -1), 1).reshape(n, N_VARIABLES, N_CHUNKS)
    arrays = {}
    for v in range(N_VARIABLES):
        places = {"urls": files, "offsets": offset[:, v], "lengths": length[v]}
        how = {"codecs": codecs, "name": f"v{v}", "dimension_names": ("time", "y", "x")}
        arrays[f"v{v}"] = referenced_array((n, 1000, 1000), (1, 100, 1000), **places, **how)
    hours = np.arange(first, first + n, dtype="i8")
    attributes = {"units": "hours since 1900-01-01", "calendar": "proleptic_gregorian"}
    arrays["time"] = inline_array(hours, name="time", dims=["time"], attributes=attributes)
    return ManifestGroup(arrays=arrays, loaded=frozenset({"time"}))


def build(url, n_commits, n_files=100):
    """Make the store that so many appends of so many files make, but for what earlier snapshots hold."""
    first = save(part(0, n_files), url)
    objects = ObjectStore(absolute_url(url) + "/", Storage.from_option(None))
    store = OpenStore(objects, permission_for_snapshot(objects.url, first, ()))
    target, head = objects.target, first
    for i in range(1, n_commits - 1):
        arrays = {f"/{name}": x for name, x in part(i * n_files, n_files).arrays.items() if name != "time"}
        n_rows = sum(x.manifest.entries.size for x in arrays.values())
        writer = SegmentWriter(target, columns=3, n_rows=n_rows)
        length = (i + 1) * n_files
        edits = {}
        for path, array in arrays.items():
            placed = place(Piece(array.manifest, (i * n_files, 0, 0)), writer, 3)
            grid = array.grid.replace(0, ChunkAxis.regular(length, 1))
            edits[path] = ArrayEdit(header=replace(head.arrays[path].header, grid=grid), parts=[placed], keeps=True)
        prefixes = Prefixes(store=objects.url, table=head.prefixes, moved=head.moved)
        segment, chosen = writer.close(prefixes, relative=False)
        edit = Edit(arrays=edits, segment=segment, prefixes=chosen)
        made = applied(edit, head, store.archive(head), target)
        head = replace(made, number=i, time=head.time + 1e-3)
        target.put(snapshot_key(i), head.encode() if i == n_commits - 2 else b"")
    group = read_group(head, store.archive(head))
    n = (n_commits - 1) * n_files
    array = part(0, n_files).arrays["time"]
    values = np.arange(n, dtype="i8")
    time_array = inline_array(values, name="time", dims=["time"], attributes=array.attributes)
    whole = replace(group, arrays={**group.arrays, "time": time_array})
    write_group(store, head, whole)
    save(part(n, n_files), url, append_dim="time")
    return n_commits * n_files


def written(url, since):
    """Count the bytes of all objects that were written since a time."""
    found = (path.stat() for path in Path(url).rglob("*") if path.is_file())
    return sum(x.st_size for x in found if x.st_mtime > since)


def appended(url, first):
    """Append one file, and give seconds and bytes."""
    one = part(first, 1)
    time.sleep(0.05)
    since, start = time.time(), time.perf_counter()
    save(one, url, append_dim="time")
    return time.perf_counter() - start, written(url, since)


def test_one_file_is_appended_to_a_long_history(tmp_path):
    """Its costs do not depend on how many references there are."""
    url = str(tmp_path / "x.vstack")
    n = build(url, 150, n_files=2)
    seconds, n_bytes = appended(url, n)
    print(f"appended in {seconds:.3f} s, {n_bytes} bytes")
    assert n_bytes < 2 << 20


if __name__ == "__main__":
    target, commits = sys.argv[1], int(sys.argv[2])
    begin = time.perf_counter()
    files = commits * 100 if Path(target).exists() else build(target, commits)
    print(f"built in {time.perf_counter() - begin:.0f} s, {written(target, 0) / 1e6:.0f} MB", flush=True)
    for more in range(3):
        took, new = appended(target, files + more)
        print(f"appended in {took:.3f} s, {new / 1e6:.3f} MB", flush=True)
