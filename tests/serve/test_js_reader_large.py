"""How many requests the JavaScript reader needs for the first chunk of 10^6, and how long that takes."""

import base64
import json
import re
import time

import numpy as np
import pytest

from tests.data.arrays import array_of
from tests.serve.javascript import JavaScriptError, url_of
from virtualstack.location import Location
from virtualstack.manifests import ChunkEncoding, ChunkManifest, Fill, ManifestGroup
from virtualstack.vstack.save import save

N_FILES = 3000


def write_store(folder, n_references, n_files):
    """Write a store of chunks of some kB, the same number in each file; only the last file exists."""
    rng = np.random.default_rng(0)
    length = rng.integers(100, 5000, n_references)
    each = n_references // n_files
    file = np.minimum(np.arange(n_references) // each, n_files - 1)
    end = np.cumsum(length)
    offset = end - length
    offset -= offset[file * each] - 4096
    size = 6000 * (each + n_files)
    (folder / f"{n_files - 1}.bin").write_bytes(rng.bytes(size))
    manifest = ChunkManifest.from_arrays(
        offset,
        np.where(np.arange(n_references) == n_references - 1, 9, length),
        location=[Location(f"file://{folder}/{i}.bin", size=size) for i in range(n_files)],
        location_codes=file + 3,
        encoding=ChunkEncoding.c_order("u1", (9,)),
        fill=Fill.zero("u1"),
    )
    save(
        ManifestGroup(arrays={"v": array_of(manifest, (9,), name="v", dims=["x"])}), folder / "x.vstack", relative=True
    )
    with (folder / f"{n_files - 1}.bin").open("rb") as opened:
        opened.seek(offset[-1])
        return opened.read(9), length


@pytest.mark.parametrize("n", [2000, pytest.param(10**6, marks=pytest.mark.apart)])
@pytest.mark.parametrize("how", ["listing", "number", "hint"])
def test_requests_before_the_first_chunk(how, n, node, disk, s3_server, tmp_path):
    """At most 4: a listing and the snapshot, or the hint and the next number; rows and sources."""
    wanted, length = write_store(tmp_path, n, min(N_FILES, n // 10))
    url, options = url_of(disk.root, tmp_path / "x.vstack"), {}
    if how == "number":
        options["snapshot"] = 0
    if how == "listing":
        bucket = f"large{n}"
        s3_server.client.create_bucket(Bucket=bucket, ACL="public-read")
        for file in [*(tmp_path / "x.vstack" / ".vstack").rglob("*"), *tmp_path.glob("*.bin")]:
            if file.is_file():
                s3_server.put(str(file.relative_to(tmp_path)), file.read_bytes(), acl="public-read", bucket=bucket)
        options["bucket"] = f"{s3_server.endpoint}/{bucket}"
        url = f"{options['bucket']}/x.vstack"
    began = time.perf_counter()
    found = node("first", url, options=options, path="/v", cell=[n - 1])
    took = time.perf_counter() - began
    assert base64.b64decode(found["values"]) == wanted
    before = node.requests[:-1]
    print(
        f"\n{n} references, {how}: {len(before)} requests, {took:.3f} s", json.dumps([x["url"][-50:] for x in before])
    )
    assert len(before) <= {"listing": 4, "number": 3, "hint": 4}[how]
    states = node("states", url, options=options, path="/v")
    assert np.all(np.frombuffer(base64.b64decode(states["state"]), "u1") == 3)
    lengths = np.frombuffer(base64.b64decode(states["length"]), "f8")
    np.testing.assert_array_equal(lengths[:-1], length[:-1])
    assert all(x["range"] for x in node.requests if "/refs/" in x["url"]) or n < 10**6
    print(f"all states: {states['took'] / 1000:.3f} s, {len(node.requests)} requests")


@pytest.mark.parametrize("n", [250_000, pytest.param(2_500_000, marks=pytest.mark.apart)])
def test_large_shards_are_read_in_parts(n, node, disk, tmp_path):
    """An index and a page for one chunk, and requests of at most 1 MB for all."""
    rng = np.random.default_rng(0)
    offset, length = rng.integers(0, 2**50, n), rng.integers(0, 2**31, n)
    offset[-1], length[-1] = 5, 9
    (tmp_path / "a.bin").write_bytes(bytes(range(20)))
    manifest = ChunkManifest.from_arrays(
        offset,
        length,
        location=f"file://{tmp_path}/a.bin",
        encoding=ChunkEncoding.c_order("u1", (9,), []),
        fill=Fill.zero("u1"),
    )
    save(
        ManifestGroup(arrays={"v": array_of(manifest, (9,), name="v", dims=["x"])}),
        tmp_path / "x.vstack",
        relative=True,
    )
    url = url_of(disk.root, tmp_path / "x.vstack")
    assert base64.b64decode(node("first", url, path="/v", cell=[n - 1])["values"]) == bytes(range(5, 14))
    ranges = [x["range"] for x in node.requests if "/refs/" in x["url"]]
    assert len(ranges) == 2
    assert all(ranges)
    states = node("states", url, path="/v")
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(states["length"]), "f8"), length)
    ranges = [re.fullmatch(r"bytes=(\d+)-(\d+)", x["range"]).groups() for x in node.requests if "/refs/" in x["url"]]
    assert 3 <= len(ranges) <= 40
    assert all(int(b) - int(a) < 10**6 for a, b in ranges)
    (shard, *_) = (tmp_path / "x.vstack/.vstack/segments").glob("*/refs/c/0/0")
    size = shard.stat().st_size
    with shard.open("ab") as file:
        file.write(b"more")
    with pytest.raises(JavaScriptError, match=f"'.*/refs/c/0/0' has {size + 4} bytes instead of {size}") as caught:
        node("first", url, path="/v", cell=[0])
    assert caught.value.name == "ManifestError"
