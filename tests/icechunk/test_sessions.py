"""Repositories in memory, sessions and their stores as sources; Icechunk and xarray are the oracle."""

import os
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import StorageError

icechunk = pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository in memory with virtual chunks, chunks of its own, inline chunks and shards."""
    monkeypatch.chdir(tmp_path)
    data = xr.Dataset({"t": (("time", "x"), np.arange(8.0).reshape(4, 2))}, {"time": np.arange(4)})
    data.to_netcdf("a.nc", engine="netcdf4", encoding={"t": {"chunksizes": (1, 2)}})
    prefix = f"file://{tmp_path}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(tmp_path)))
    )
    config.inline_chunk_threshold_bytes = 8
    access = icechunk.containers_credentials({prefix: icechunk.Credentials.LocalFileSystemAccess()})
    made = icechunk.Repository.create(icechunk.in_memory_storage(), config, authorize_virtual_chunk_access=access)
    session = made.writable_session("main")
    vs.open_virtual_dataset("a.nc").virtual.to_icechunk(session.store)
    own = zarr.create_array(
        session.store, name="own", shape=(4, 2), chunks=(2, 2), dtype="f8", dimension_names=["y", "x"]
    )
    own[:2] = np.random.default_rng(0).random((2, 2))  # the other chunk is never written
    sharded = zarr.create_array(
        session.store, name="sharded", shape=(8,), chunks=(2,), shards=(4,), dtype="f4", dimension_names=["z"]
    )
    sharded[:] = np.arange(8)
    session.commit("first")
    return made


def by_icechunk(repository):
    return xr.open_zarr(repository.readonly_session("main").store, consolidated=False).load()


SOURCES = {
    "repository": lambda repository: repository,
    "session": lambda repository: repository.readonly_session("main"),
    "store": lambda repository: repository.readonly_session("main").store,
    "writable": lambda repository: repository.writable_session("main"),
    "fork": lambda repository: repository.writable_session("main").fork().store,
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_objects_of_icechunk_open(source, repository, tmp_path):
    """Their virtual chunks stay references to their files, whose versions are known."""
    vds = vs.open_virtual_dataset(source(repository))
    xr.testing.assert_equal(vds.virtual.open(), by_icechunk(repository))
    xr.testing.assert_equal(xr.open_dataset(source(repository), engine="virtualstack"), by_icechunk(repository))
    table = vds.virtual.locations.set_index("url")
    assert table.loc[f"file://{tmp_path}/a.nc", "size"] == (tmp_path / "a.nc").stat().st_size
    assert table["refs"].sum() == 4 + 1 + 4


def test_chunks_of_a_session_are_written_into_a_store(repository, tmp_path):
    """No references can name them; a store has the values, and names the files of virtual chunks."""
    vs.convert(repository, "a.vstack")
    vds = vs.open_virtual_dataset("a.vstack")
    xr.testing.assert_equal(vds.virtual.open(), by_icechunk(repository))
    assert [url for url in vds.virtual.locations["url"] if "a.vstack" not in url] == [f"file://{tmp_path}/a.nc"]


def test_later_commits_do_not_change_a_dataset(repository):
    """A writable session is read as it was when it was opened; uncommitted changes are refused."""
    session, expected = repository.writable_session("main"), by_icechunk(repository)
    vds = vs.open_virtual_dataset(session)
    zarr.open_array(session.store, path="own")[:] = 7
    with pytest.raises(StorageError, match="not committed"):
        vs.open_virtual_dataset(session)
    session.commit("second")
    xr.testing.assert_equal(vds.virtual.open(), expected)
    assert (vs.open_virtual_dataset(repository).virtual.open()["own"] == 7).all()


@pytest.mark.parametrize("is_read", [False, True])
def test_a_source_that_changed_is_refused(is_read, repository):
    """By the checksum that Icechunk has, and later by the version that was found then."""
    vds = vs.open_virtual_dataset(repository).virtual.open()
    if is_read:
        vds["t"][0].load()
    with Path("a.nc").open("ab") as file:
        file.write(b"more")
    os.utime("a.nc", (2e9, 2e9))
    with pytest.raises(StorageError, match="changed"):
        vds["t"].load()


def test_what_the_repository_may_not_read_is_refused(repository):
    """Icechunk compares checksums only of containers that its user has authorised."""
    with pytest.raises(StorageError, match="authorize"):
        vs.open_virtual_dataset(icechunk.Repository.open(repository.storage)).virtual.open().load()


def test_a_session_has_one_snapshot(repository):
    """Another branch is another session."""
    with pytest.raises(ValueError, match="readonly_session"):
        vs.open_virtual_dataset(repository, reader=vs.readers.Icechunk(branch="other"))
