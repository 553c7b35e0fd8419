"""Checksums of virtual chunks: what Icechunk does not read from a source that changed is not read here either."""

import os
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.amount import examples
from tests.icechunk.repositories import WARNINGS, icechunk, may_refer_to, netcdf, repository
from virtualstack.errors import MalformedFileError, SourceChangedError, VirtualStackError
from virtualstack.icechunk.format import node_id, read_checksums

pytestmark = WARNINGS


def committed(tmp_path, n=4, name="repo", **options):
    """Commit references to a file into a repository."""
    repo = repository(tmp_path / name, tmp_path)
    session = repo.writable_session("main")
    vds = vs.open_virtual_dataset(netcdf(tmp_path / "1.nc", n=n, **options), loadable_variables=["time", "x"])
    vds.virtual.to_icechunk(session.store)
    session.commit("one")
    return repo


def rewritten(path, after=timedelta(hours=1), **options):
    """Write other values of the same size."""
    size, then = path.stat().st_size, path.stat().st_mtime
    netcdf(path, start=1, **options)
    assert path.stat().st_size == size
    os.utime(path, (then + after.total_seconds(),) * 2)


def raw_repository(tmp_path, checksums, source=None):
    """Commit one array of a chunk for each checksum, all of them in one source."""
    source = source or tmp_path / "raw.bin"
    source.write_bytes(np.arange(12, dtype="<i4").tobytes())
    repo = repository(tmp_path / "repo", tmp_path)
    session = repo.writable_session("main")
    root = zarr.create_group(session.store)
    shape = (3 * len(checksums), 4)
    root.create_array("a", shape=shape, chunks=(3, 4), dtype="<i4", compressors=None, dimension_names=["y", "x"])
    for i, checksum in enumerate(checksums):
        session.store.set_virtual_ref(f"a/c/{i}/0", f"file://{source}", offset=0, length=48, checksum=checksum)
    session.commit("one")
    return source


def test_source_that_changed_after_the_commit_is_refused(tmp_path):
    """A file that was written again with the same size raises, as it does when Icechunk reads it."""
    repo = committed(tmp_path)
    vds = vs.open_virtual_dataset(tmp_path / "repo")
    with xr.open_dataset(tmp_path / "1.nc", engine="h5netcdf") as file:
        xr.testing.assert_identical(vds.virtual.open().load(), file.load())
    rewritten(tmp_path / "1.nc")
    by_zarr = zarr.open_group(repo.readonly_session("main").store, mode="r")
    with pytest.raises(icechunk.IcechunkError, match="has changed"):
        by_zarr["t"][:]
    with pytest.raises(SourceChangedError, match=r"1\.nc' changed after .* modified .* instead of \d{4}-"):
        vs.open_virtual_dataset(tmp_path / "repo").virtual.open()["t"].load()


@pytest.mark.parametrize("target", ["store.vstack", "icechunk"])
def test_convert_keeps_the_checksum(tmp_path, target):
    """A store converted from a repository refuses a source that changed after the commit."""
    committed(tmp_path)
    vds = vs.open_virtual_dataset(tmp_path / "repo")
    if target == "icechunk":
        session = repository(tmp_path / "other", tmp_path).writable_session("main")
        vds.virtual.to_icechunk(session.store)
        session.commit("copy")
        path = tmp_path / "other"
    else:
        path = tmp_path / target
        vds.virtual.to_vstack(path)
    opened = vs.open_virtual_dataset(path).virtual.open()
    with xr.open_dataset(tmp_path / "1.nc", engine="h5netcdf") as file:
        xr.testing.assert_identical(opened.load(), file.load())
    rewritten(tmp_path / "1.nc")
    with pytest.raises(SourceChangedError, match=r"1\.nc' changed after"):
        vs.open_virtual_dataset(path).virtual.open()["t"].load()


def test_later_checksum_accepts_the_source(tmp_path):
    """The time says when the source was still as it was: VirtualiZarr records the time of the commit."""
    source = raw_repository(tmp_path, [datetime.now(UTC) + timedelta(hours=1)])
    values = vs.open_virtual_dataset(tmp_path / "repo").virtual.open()["a"]
    np.testing.assert_array_equal(values, np.fromfile(source, "<i4").reshape(3, 4))


def test_each_chunk_has_its_own_checksum(tmp_path):
    """Chunks of one source are read or refused by the checksums that each of them has."""
    now = datetime.now(UTC)
    raw_repository(tmp_path, [None, now + timedelta(hours=1), now - timedelta(hours=1), None])
    values = vs.open_virtual_dataset(tmp_path / "repo").virtual.open()["a"]
    expected = np.arange(12).reshape(3, 4)
    for rows in (slice(0, 3), slice(3, 6), slice(9, 12)):
        np.testing.assert_array_equal(values[rows], expected)
    with pytest.raises(SourceChangedError, match=r"raw\.bin"):
        values[6:9].load()


def test_etag_of_a_local_file_is_refused_as_by_icechunk(tmp_path):
    """Local files have no etags, and Icechunk reads none that a reference names by one."""
    raw_repository(tmp_path, ["9a"])
    with pytest.raises(SourceChangedError, match=r"it has no ETag, as a local file, instead of 9a"):
        vs.open_virtual_dataset(tmp_path / "repo").virtual.open()["a"].load()


def test_checksums_of_many_chunks_and_files_of_manifests(tmp_path):
    """Manifests that are split, and whose locations are compressed, tell the checksums of all chunks."""
    config = may_refer_to(tmp_path)
    condition, dim = icechunk.ManifestSplitCondition.AnyArray(), icechunk.ManifestSplitDimCondition.Any()
    config.manifest = icechunk.ManifestConfig(
        splitting=icechunk.ManifestSplittingConfig.from_dict({condition: {dim: 1100}})
    )
    prefix = f"file://{tmp_path}/"
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repo")), config)
    session = repo.writable_session("main")
    zarr.create_group(session.store).create_array("a", shape=(3000,), chunks=(1,), dtype="u1", dimension_names=["y"])
    start = datetime(2001, 1, 1, tzinfo=UTC)
    session.store.set_virtual_refs(
        "a",
        [
            icechunk.VirtualChunkSpec([i], f"{prefix}{i}.bin", i, 1, f'"{i:x}"' if i % 2 else None, None)
            if i % 3
            else icechunk.VirtualChunkSpec([i], f"{prefix}{i}.bin", i, 1, None, start + timedelta(seconds=i))
            for i in range(3000)
        ],
    )
    snapshot = session.commit("many")
    assert len(repo.list_manifest_files(snapshot)) == 3
    manifest = vs.open_virtual_dataset(tmp_path / "repo")["a"].variable._data.in_memory()
    found = [manifest.locations[x["location"] - 3] for x in manifest.entries]
    for i, location in enumerate(found):
        assert location.url == f"{prefix}{i}.bin"
        assert location.etag == (f'"{i:x}"' if i % 3 and i % 2 else None)
        assert location.unmodified_since == (None if i % 3 else start.timestamp() + i)


def test_repositories_without_virtual_chunks_read_no_manifest_files(tmp_path):
    """Chunks of the repository have no checksums of sources, so that nothing is read for them."""
    repo = repository(tmp_path / "repo", tmp_path)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", data=np.arange(4096), dimension_names=["y"])
    session.commit("native")
    vds = vs.open_virtual_dataset(tmp_path / "repo")
    for file in (tmp_path / "repo" / "manifests").iterdir():
        file.write_bytes(b"")
    assert vds["a"].variable._data.manifest is not None


@pytest.mark.parametrize("damage", [b"", b"ICE", "magic", "kind", "version", "compression", "body"])
def test_damaged_manifest_file_is_refused(tmp_path, damage):
    """Bytes that are no manifest file of Icechunk raise an error that names the file."""
    raw_repository(tmp_path, [datetime.now(UTC)])
    data, node = manifest_of(tmp_path)
    spots = {"magic": (0, b"X"), "kind": (37, b"\1"), "version": (36, b"\7"), "compression": (38, b"\7")}
    spots["body"] = (45, b"\xff" * 8)
    if isinstance(damage, str):
        at, bad = spots[damage]
        damage = data[:at] + bad + data[at + len(bad) :]
    with pytest.raises(MalformedFileError, match="'file:///m'"):
        read_checksums(damage, node, 2, where="file:///m")


def manifest_of(tmp_path):
    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    (file,) = repo.list_manifest_files(repo.lookup_branch("main"))
    (node,) = [x for x in repo.inspect_snapshot(repo.lookup_branch("main"))["nodes"] if x["path"] == "/a"]
    return (tmp_path / "repo" / "manifests" / file.id).read_bytes(), node_id(node["id"])


def test_damaged_flatbuffers_end_in_errors_or_in_checksums(tmp_path):
    """Whatever bytes are changed behind the header, an error of ours is raised, and nothing else."""
    raw_repository(tmp_path, [datetime.now(UTC), "abc", None])
    data, node = manifest_of(tmp_path)
    import pyarrow as pa

    plain = pa.CompressedInputStream(pa.BufferReader(data[39:]), "zstd").read()
    header = data[:38] + b"\0"
    cells, checksums = read_checksums(header + plain, node, 2, where="m")
    assert cells.tolist() == [[0, 0], [1, 0]]
    assert checksums[1] == "abc"
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(examples(2000)):
        changed = np.frombuffer(plain, np.uint8).copy()
        at = random.integers(0, len(changed), random.integers(1, 4))
        changed[at] = random.integers(0, 256, len(at))
        try:
            read_checksums(header + changed.tobytes(), node, 2, where="m")
        except VirtualStackError:
            refused += 1
    assert refused
