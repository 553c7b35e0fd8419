"""Adding to Icechunk: as if all had been written at once, or refused with the session as it was."""

import json
import os
import shutil

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import cpu
from zarr.core.sync import sync

import virtualstack as vs
from tests.data.stores import concatenated
from tests.icechunk.repositories import (
    WARNINGS,
    icechunk,
    months,
    netcdf,
    opens_rectilinear_grids,
    references,
    repository,
)
from virtualstack.errors import (
    ChunkAlignmentError,
    CombineError,
    SourceNotFoundError,
    StorageError,
    VirtualStackError,
    WriterError,
)

pytestmark = WARNINGS


def opened(session, **options):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        return xr.open_zarr(session.store, consolidated=False, chunks=None, **options).load()


def metadata(session, name):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        return zarr.open_array(session.store, path=name, mode="r").metadata.to_dict()


def assert_like_one_shot(session, paths, tmp_path, **options):
    """Values are those of the sources, and references and metadata those of writing all at once."""
    at_once = repository(None, tmp_path).writable_session("main")
    whole = vs.open_virtual_mfdataset(paths)
    whole.virtual.to_icechunk(at_once.store, **options)
    assert_values_of_sources(session, paths)
    for name in ("t", "mask", "crs", "x", "time"):
        assert metadata(session, name) == metadata(at_once, name)
        assert references(session, name) == references(at_once, name)


def assert_values_of_sources(session, paths):
    """Values are those that h5netcdf reads."""
    xr.testing.assert_identical(opened(session), by_h5netcdf(paths))


def by_h5netcdf(paths):
    return concatenated(*(xr.load_dataset(path, engine="h5netcdf") for path in paths))


def unchanged(session, write, error):
    """Check that writing fails, and that the session is as it was."""
    before = session.has_uncommitted_changes, repr(session.status()), opened(session)
    with pytest.raises(error) as caught:
        write()
    assert (session.has_uncommitted_changes, repr(session.status())) == before[:2]
    xr.testing.assert_identical(opened(session), before[2])
    return caught.value


def append(session, *paths, **options):
    for path in paths:
        vs.open_virtual_dataset(path).virtual.to_icechunk(session.store, append_dim="time", **options)


# -- append ---------------------------------------------------------------------------------------------------


def test_labels_in_files_are_read_only_where_icechunk_may_read_them(tmp_path):
    """A repository of a stranger names a local file as its labels, and appending wrote them into it."""
    paths = [netcdf(tmp_path / f"{i}.nc", start=4 * i) for i in range(2)]
    made = repository(tmp_path / "repo", tmp_path)
    session = made.writable_session("main")
    vs.open_virtual_dataset(paths[0], loadable_variables=[]).virtual.to_icechunk(session.store)
    session.commit("labels in files")
    closed = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    with pytest.raises(StorageError, match=r"authorize"):
        append(closed.writable_session("main"), paths[1])
    opened_again = repository(tmp_path / "repo", tmp_path, create=False).writable_session("main")
    append(opened_again, paths[1])
    assert opened(opened_again).sizes["time"] == 8
    assert_values_of_sources(opened_again, paths)


def closed_and_opened(paths, folder):
    """A repository with references to a file: opened without a word on its container, and with."""
    made = repository(folder, paths[0].parent)
    session = made.writable_session("main")
    vs.open_virtual_dataset(paths[0]).virtual.to_icechunk(session.store, inline_limit=0)
    session.commit("references")
    closed = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))
    return closed.writable_session("main"), repository(folder, paths[0].parent, create=False).writable_session("main")


def test_static_variables_are_read_only_where_icechunk_may_read_them(tmp_path):
    """A repository of a stranger names a local file as a static variable, which appending compared with its own."""
    paths = [netcdf(tmp_path / f"{i}.nc", start=4 * i) for i in range(2)]
    closed, session = closed_and_opened(paths, tmp_path / "repo")
    with pytest.raises(StorageError, match="authorize"):
        append(closed, paths[1], inline_limit=0)
    assert not closed.has_uncommitted_changes
    append(session, paths[1], inline_limit=0)
    assert_like_one_shot(session, paths, tmp_path, inline_limit=0)


def test_chunks_are_rewritten_only_where_icechunk_may_read_them(tmp_path):
    """A last chunk that is not full was read from wherever a repository of a stranger says, and stored in it."""
    paths = [tmp_path / f"{i}.nc" for i in range(2)]
    for path, label in zip(paths, (0, 3), strict=True):
        xr.Dataset({"t": ("time", np.arange(3.0) + label)}, coords={"time": [label, label + 1, label + 2]}).to_netcdf(
            path, engine="netcdf4", encoding={"t": {"chunksizes": (2,), "zlib": True}}
        )
    closed, session = closed_and_opened(paths, tmp_path / "repo")
    with pytest.raises(StorageError, match="authorize"):
        append(closed, paths[1], inline_limit=0, rewrite="100%")
    append(session, paths[1], inline_limit=0, rewrite="100%")
    assert opened(session)["t"].values.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_static_variable_of_a_file_that_changed_is_not_compared(tmp_path):
    """Icechunk refuses a file that was replaced after the commit; appending read the new one."""
    paths = [netcdf(tmp_path / f"{i}.nc", start=4 * i) for i in range(2)]
    _, session = closed_and_opened(paths, tmp_path / "repo")
    os.utime(paths[0], (2_000_000_000, 2_000_000_000))
    with pytest.raises(StorageError, match=r"0\.nc|modified|changed"):
        append(session, paths[1], inline_limit=0)


@pytest.mark.parametrize("commits", [False, True])
def test_appending_is_writing_at_once(tmp_path, commits):
    """In one session, or in one for each file; a last chunk that is not full may be the last one."""
    repo = repository(None, tmp_path)
    session = repo.writable_session("main")
    lengths = (4, 2, 3)
    paths = [
        netcdf(tmp_path / f"{i}.nc", start=4 * i, n=n, zlib=True, fill=np.float32(-1), written=3)
        for i, n in enumerate(lengths)
    ]
    vs.open_virtual_dataset(paths[0]).virtual.to_icechunk(session.store)
    for path in paths[1:]:
        if commits:
            session.commit("one more")
            session = repo.writable_session("main")
        append(session, path)
    assert_like_one_shot(session, paths, tmp_path)
    if commits:
        status = session.status()
        assert status.updated_arrays == {"/t", "/time"}
        assert sorted(status.updated_chunks["/t"]) == [[i, 0, j] for i in (3, 4) for j in (0, 1)]


@opens_rectilinear_grids
def test_chunks_of_different_lengths_are_appended(tmp_path, session):
    """A regular grid becomes a rectilinear one, and no reference that is there changes."""
    paths = months(tmp_path)
    vs.open_virtual_dataset(paths[0]).virtual.to_icechunk(session.store, inline_limit=0)
    append(session, *paths[1:], inline_limit=0)
    assert metadata(session, "t")["chunk_grid"]["name"] == "rectilinear"
    assert_like_one_shot(session, paths, tmp_path, inline_limit=0)


def test_a_last_chunk_that_is_not_full_is_refused_or_rewritten(tmp_path, session):
    """It would stand in the middle: an error with numbers, before anything is written, or re-encoded."""
    paths = [netcdf(tmp_path / f"{i}.nc", start=3 * i, n=3, zlib=True) for i in range(2)]
    vs.open_virtual_dataset(paths[0]).virtual.to_icechunk(session.store, inline_limit=0)
    error = unchanged(session, lambda: append(session, paths[1], inline_limit=0), WriterError)
    assert error.variable == "t"
    assert "would have to be re-encoded" in str(error)
    append(session, paths[1], inline_limit=0, rewrite="100%")
    xr.testing.assert_equal(opened(session), by_h5netcdf(paths))
    kinds = {cell: int(row[0]) for cell, row in references(session, "t").items()}
    assert {kinds[0, 0, 0], kinds[0, 0, 1]} == {2}
    assert {kinds[1, 0, 0], kinds[2, 0, 1]} == {3}


def odd_static(path):
    netcdf(path, start=4)
    with netCDF4.Dataset(path, "a") as file:
        file["mask"][0, 0] = 99


ODD = {
    "labels that do not ascend": lambda p: netcdf(p, start=2, dtype="i2", fill=np.int16(-1)),
    "a static variable": lambda p: odd_static(p),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_does_not_fit_changes_nothing(odd, tmp_path, session):
    static = odd == "a static variable"
    first = netcdf(tmp_path / "0.nc", **({} if static else {"dtype": "i2", "fill": np.int16(-1)}))
    vs.open_virtual_dataset(first).virtual.to_icechunk(session.store)
    ODD[odd](tmp_path / "1.nc")
    error = unchanged(session, lambda: append(session, tmp_path / "1.nc"), CombineError)
    assert error.variable == {"labels that do not ascend": "time", "a static variable": "mask"}[odd]


@pytest.mark.parametrize(
    "other",
    [
        {"dtype": "i2", "fill": np.int16(3)},
        {"fill": np.float32(-1)},
        {"dtype": "i2", "fill": np.int16(-1), "attrs": {"scale_factor": 0.5}},
    ],
    ids=["fill", "dtype", "scale"],
)
def test_what_packs_differently_is_unpacked(other, tmp_path, session):
    """The variable of the store, too, with the values that xarray joins."""
    paths = [netcdf(tmp_path / "0.nc", dtype="i2", fill=np.int16(-1)), netcdf(tmp_path / "1.nc", start=4, **other)]
    vs.open_virtual_dataset(paths[0]).virtual.to_icechunk(session.store)
    append(session, paths[1])
    xr.testing.assert_equal(opened(session), by_h5netcdf(paths))


def test_other_dimensions_places_and_groups_change_nothing(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    session = repository(None, folders[0]).writable_session("main")
    vs.open_virtual_dataset(netcdf(folders[0] / "0.nc")).virtual.to_icechunk(session.store)
    path = netcdf(folders[1] / "1.nc", start=4)
    error = unchanged(session, lambda: append(session, path), WriterError)
    assert f"file://{folders[1]}/" in error.feature
    part = vs.open_virtual_dataset(netcdf(folders[0] / "2.nc", start=4)).isel(x=slice(2))
    unchanged(session, lambda: part.virtual.to_icechunk(session.store, append_dim="time"), VirtualStackError)
    error = unchanged(session, lambda: part.virtual.to_icechunk(session.store, append_dim="depth"), CombineError)
    assert "'icechunk session, group /' has no dimension 'depth'" in str(error)
    unchanged(session, lambda: append(session, path, group="other"), SourceNotFoundError)
    unchanged(session, lambda: append(session, path, mode="w"), ValueError)


def test_checksums_of_what_is_there_stay(tmp_path):
    """Files that were written before still are refused where they change, also where metadata are written anew."""
    repo = repository(None, tmp_path)
    session = repo.writable_session("main")
    paths = [netcdf(tmp_path / f"{i}.nc", start=i * 4, n=4 - i, chunk=4 - i, zlib=True) for i in range(2)]
    for path in paths:
        os.utime(path, (1000, 1000))
    vs.open_virtual_dataset(paths[0]).virtual.to_icechunk(session.store, inline_limit=0)
    session.commit("first")
    session = repo.writable_session("main")
    append(session, paths[1], inline_limit=0)
    os.utime(paths[0], (1050, 1050))
    with zarr.config.set({"array.rectilinear_chunks": True}):
        t = zarr.open_array(session.store, path="t", mode="r")
        assert t[4:].shape == (3, 3, 4)
        with pytest.raises(icechunk.IcechunkError, match="checksum"):
            t[:4]


def test_chunks_of_the_repository_stay(tmp_path):
    """Files go behind an array that zarr has written into the repository, of which a part is in files of its own."""
    repo = repository(tmp_path / "repo", tmp_path)
    session = repo.writable_session("main")
    first = xr.Dataset({"t": (("time", "x"), np.random.default_rng(0).random((4, 4000)))}, {"time": np.arange(4)})
    first.to_zarr(
        session.store, consolidated=False, zarr_format=3, encoding={"t": {"chunks": (2, 4000), "compressors": ()}}
    )
    session.commit("values")
    session = repo.writable_session("main")
    before = references(session, "t")
    second = xr.Dataset({"t": (("time", "x"), np.ones((4, 4000)))}, {"time": np.arange(4, 8)})
    second.to_netcdf(
        tmp_path / "1.nc", engine="netcdf4", encoding={"t": {"chunksizes": (2, 4000), "_FillValue": np.nan}}
    )
    append(session, tmp_path / "1.nc")
    now = references(session, "t")
    assert {cell: now[cell] for cell in before} == before
    assert [int(now[cell][0]) for cell in sorted(now)] == [1, 1, 2, 2]
    xr.testing.assert_equal(opened(session), xr.concat([first, second], "time"))


def test_trees_are_appended(tmp_path, session):
    def tree(name, start):
        path = tmp_path / name
        with netCDF4.Dataset(path, "w") as file:
            for group in ("a", "a/b"):
                node = file.createGroup(group)
                node.createDimension("time", 3)
                node.createVariable("time", "i4", ("time",))[:] = np.arange(start, start + 3)
                node.createVariable("v", "f4", ("time",), chunksizes=(1,))[:] = np.arange(start, start + 3) / 2
        return path

    vs.open_virtual_datatree(tree("0.nc", 0)).virtual.to_icechunk(session.store, group="cube")
    vs.open_virtual_datatree(tree("1.nc", 3)).virtual.to_icechunk(session.store, group="cube", append_dim="time")
    for group in ("cube/a", "cube/a/b"):
        got = opened(session, group=group)
        np.testing.assert_array_equal(got["v"], np.arange(6, dtype="f4") / 2)
        np.testing.assert_array_equal(got["time"], np.arange(6))


# -- region ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("region", [{"time": slice(2, 6)}, "auto"])
def test_a_region_is_replaced(region, tmp_path, session):
    """Values of the region are those of the new file, all others those of the old one; two chunk rows change."""
    old, new = netcdf(tmp_path / "old.nc", n=8), netcdf(tmp_path / "new.nc", start=2, n=4)
    vs.open_virtual_dataset(old).virtual.to_icechunk(session.store)
    before = references(session, "t")
    vs.open_virtual_dataset(new).virtual.to_icechunk(session.store, region=region)
    with xr.open_dataset(old, engine="h5netcdf") as a, xr.open_dataset(new, engine="h5netcdf") as b:
        expected = a.load()
        expected["t"][2:6] = b["t"].values
        xr.testing.assert_identical(opened(session), expected)
    now = references(session, "t")
    assert {cell for cell in now if now[cell] != before[cell]} == {(i, 0, j) for i in (1, 2) for j in (0, 1)}


def test_a_session_is_as_it_was_where_storage_fails(tmp_path):
    """What was written before is taken back, if there is nothing else in the session."""
    repo = repository(tmp_path / "repo", tmp_path)
    session = repo.writable_session("main")
    made = xr.Dataset({"t": ("time", np.random.default_rng(1).normal(size=2000))})
    made.virtual.to_icechunk(session.store)
    session.commit("the first")
    shutil.rmtree(tmp_path / "repo" / "chunks")
    (tmp_path / "repo" / "chunks").write_text("in the way")
    session = repo.writable_session("main")
    with pytest.raises(StorageError, match=r"written by Icechunk: .*Not a directory.*it was not changed"):
        made.virtual.to_icechunk(session.store, group="other")
    assert not session.has_uncommitted_changes
    made[["t"]].isel(time=slice(0, 1)).virtual.to_icechunk(session.store, group="small")
    with pytest.raises(StorageError, match=r"and other changes. Call session.discard_changes"):
        made.virtual.to_icechunk(session.store, group="other")
    assert zarr.open_array(session.store, path="small/t", mode="r").shape == (1,)


def test_chunks_of_what_became_shorter_are_not_seen_again(tmp_path, session):
    """Icechunk keeps them where only metadata changed; what is appended there and was never written reads so."""
    paths = [netcdf(tmp_path / f"{i}.nc", start=4 * i, n=8, fill=np.float32(-1), written=8 - 8 * i) for i in range(2)]
    vs.open_virtual_dataset(paths[0]).virtual.to_icechunk(session.store)
    for name in ("t", "time"):
        key = f"{name}/zarr.json"
        document = json.loads(sync(session.store.get(key, cpu.buffer_prototype)).to_bytes())
        document["shape"][0] = 4
        sync(session.store.set(key, cpu.Buffer.from_bytes(json.dumps(document).encode())))
    append(session, paths[1])
    found = opened(session)["t"]
    assert found[:4].notnull().all()
    assert found[4:].isnull().all()


def test_a_file_that_was_replaced_is_put_over_itself(tmp_path, session):
    """Its chunks lie where they lay, and have the checksum of the file that is there now."""
    path = netcdf(tmp_path / "0.nc")
    os.utime(path, (1e9, 1e9))
    vs.open_virtual_dataset(path)[["t"]].virtual.to_icechunk(session.store)
    netcdf(path, start=50)
    os.utime(path, (1.1e9, 1.1e9))
    newer = vs.open_virtual_dataset(path)[["t"]].drop_vars(["time", "x"])
    newer.virtual.to_icechunk(session.store, region={"time": slice(0, 4)})
    with xr.open_dataset(path, engine="h5netcdf") as file:
        np.testing.assert_array_equal(opened(session)["t"], file["t"])


def test_chunks_that_a_region_leaves_out_are_removed(tmp_path, session):
    old, new = netcdf(tmp_path / "old.nc", n=8, fill=np.float32(-1)), tmp_path / "new.nc"
    netcdf(new, start=2, n=4, fill=np.float32(-1), written=2)
    vs.open_virtual_dataset(old).virtual.to_icechunk(session.store)
    vs.open_virtual_dataset(new).virtual.to_icechunk(session.store, region="auto")
    assert np.isnan(opened(session)["t"][4:6]).all()
    assert not {(2, 0, 0), (2, 0, 1)} & references(session, "t").keys()


def test_regions_that_cut_chunks_change_nothing(tmp_path, session):
    old, new = netcdf(tmp_path / "old.nc", n=8), netcdf(tmp_path / "new.nc", start=3, n=4)
    vs.open_virtual_dataset(old).virtual.to_icechunk(session.store)
    vds = vs.open_virtual_dataset(new)
    unchanged(session, lambda: vds.virtual.to_icechunk(session.store, region="auto"), ChunkAlignmentError)
    unchanged(session, lambda: vds.virtual.to_icechunk(session.store, region={"time": slice(0, 4)}), CombineError)
    packed = vs.open_virtual_dataset(netcdf(tmp_path / "packed.nc", start=2, n=4, zlib=True))
    error = unchanged(
        session, lambda: packed.virtual.to_icechunk(session.store, region="auto", inline_limit=0), WriterError
    )
    assert "re-encoded" in str(error)
    unchanged(session, lambda: vds.virtual.to_icechunk(session.store, region="auto", append_dim="time"), ValueError)
    unchanged(session, lambda: vds.virtual.to_icechunk(session.store, join="left"), ValueError)
    unchanged(session, lambda: vds.virtual.to_icechunk(session.store, combine_options={}), ValueError)
