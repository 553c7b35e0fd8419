"""Stores whose files change packing, dtype, codec, chunks, units, variables or levels go on, night by night."""

import os

import icechunk
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.archives.eras import by_xarray, write
from tests.archives.truth import differences
from virtualstack.cli.command import main
from virtualstack.errors import WriterError

FIRST = pytest.mark.parametrize("reverse", [False, True], ids=["before first", "after first"])

CUT = "variable 'layers' has 1 of 3 chunks .* ABSENT"
"""Error of references for a file with fewer levels than its chunks have: a part of a chunk is ABSENT."""


@pytest.fixture(params=["exact", "outer"])
def join(request):
    """Only with ``"outer"`` may files have other variables or levels: they may be files that were cut short."""
    return request.param


def same(found, paths, but=()):
    """Check that a dataset has the values and dtypes that xarray joins of the files."""
    found, expected = (x.drop_vars(but, errors="ignore") for x in (found.load(), by_xarray(paths)))
    assert differences(found.sortby("level", ascending=False), expected, attributes=False) == []


def check(url, paths, **options):
    with xr.open_dataset(url, engine="virtualstack", **options) as found:
        same(found, paths)


@FIRST
@pytest.mark.parametrize("how", ["append", "update"])
def test_a_store_goes_on_night_by_night(how, reverse, join, tmp_path):
    """And each snapshot keeps what it had."""
    paths, url = write(tmp_path, is_lacking=join == "outer", reverse=reverse), tmp_path / "x.vstack"
    repo = vs.Repository.create(url, paths[0])
    for n in range(1, len(paths)):
        repo = getattr(repo, how)(paths[n], join=join)
        check(url, paths[: n + 1])
    for n in range(len(paths)):
        check(url, paths[: n + 1], at=n)


@FIRST
def test_the_command_line_goes_on(reverse, join, tmp_path, capsys):
    """By ``append`` and ``update``, after a build of the first files."""
    paths, url = write(tmp_path, is_lacking=join == "outer", reverse=reverse), str(tmp_path / "x.vstack")
    assert main(["build", *paths[:2], "-o", url]) == 0
    for n, command in ((2, "append"), (3, "update"), (4, "update")):
        assert main([command, url, paths[n], "--join", join]) == 0, capsys.readouterr().err
        check(url, paths[: n + 1])


@FIRST
def test_files_come_late_and_together(reverse, join, tmp_path):
    """Of both kinds in one update, with later days first; a second time nothing is written."""
    paths, url = write(tmp_path, is_lacking=join == "outer", reverse=reverse), tmp_path / "x.vstack"
    repo = vs.Repository.create(url, paths[3])
    repo = repo.update([paths[4], paths[0]], join=join)
    check(url, [paths[i] for i in (3, 4, 0)])
    repo = repo.update([paths[2], paths[1]], join=join)
    check(url, [paths[i] for i in (3, 4, 0, 2, 1)])
    assert repo.update(paths, join=join).snapshot.number == repo.snapshot.number


@FIRST
def test_a_store_of_all_files_takes_some_again(reverse, join, tmp_path):
    """Where it was built at once, and files of the one and the other era are processed again."""
    paths, url = write(tmp_path, is_lacking=join == "outer", reverse=reverse), tmp_path / "x.vstack"
    vs.open_virtual_mfdataset(paths[:4], join=join).virtual.to_vstack(url)
    vs.Repository.open(url).append(paths[4], join=join)
    check(url, paths)
    (tmp_path / "again").mkdir()
    again = write(tmp_path / "again", is_lacking=join == "outer", reverse=not reverse)
    for n in (0, 2):
        vs.Repository.open(url).update(again[n], prefer="last", join=join)
    found = vs.Repository.open(url).open_dataset().load()
    for n in range(5):
        own = xr.load_dataset(again[n] if n in (0, 2) else paths[n], engine="netcdf4")
        here = found.isel(time=slice(2 * n, 2 * n + 2))
        for name in own.data_vars:
            np.testing.assert_array_equal(here[name].reindex_like(own[name]), own[name], err_msg=name)


@FIRST
@pytest.mark.parametrize("how", ["build", "update"])
def test_changed_files_of_all_eras_are_refreshed(how, reverse, join, tmp_path):
    """With the bounds of their times, whose units are those of the times of each file."""
    paths, url = write(tmp_path, is_lacking=join == "outer", reverse=reverse), tmp_path / "x.vstack"
    if how == "build":
        vs.open_virtual_mfdataset(paths, join=join).virtual.to_vstack(url)
    else:
        vs.Repository.create(url, paths[0]).update(paths[1:], join=join)
    for n, path in enumerate(paths):
        with netCDF4.Dataset(path, "a") as file:
            file.set_auto_maskandscale(False)
            for variable in file.variables.values():
                if variable.ndim == 3:
                    variable[1, 1, 1] = 7
            file["time_bnds"][:] = file["time_bnds"][:] + 0.25
        os.utime(path, (1000 + n, 1000 + n))
    found = vs.Repository.open(url).refresh()
    assert (len(found.refreshed), found.left) == (5, ())
    check(url, paths)


@FIRST
def test_references_go_on(reverse, join, tmp_path):
    """Kerchunk has one encoding for a variable: chunks are encoded anew within ``rewrite``, or the error names it."""
    paths = write(tmp_path, is_lacking=join == "outer", reverse=reverse)
    target = str(tmp_path / "refs.json")
    vs.open_virtual_dataset(paths[0]).virtual.to_kerchunk(target)
    for n in range(1, len(paths)):
        part = vs.open_virtual_dataset(paths[n])
        options = {"append_dim": "time", "join": join, "rewrite": "1MB"}
        if n == 2 and join == "outer" and reverse:
            with pytest.raises(WriterError, match=CUT):
                part.virtual.to_kerchunk(target, **options)
            break
        part.virtual.to_kerchunk(target, **options)
    check(target, paths[: n + 1] if n == 4 else paths[:n])
    with pytest.raises(WriterError, match="variable '"):  # and the error names one
        vs.open_virtual_mfdataset(paths, join=join).virtual.to_kerchunk(target, inline_limit=0)


@FIRST
def test_icechunk_goes_on(reverse, join, tmp_path):
    """As references do."""
    paths = write(tmp_path, is_lacking=join == "outer", reverse=reverse)
    folder, config = f"file://{tmp_path}/", icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(tmp_path)
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(folder, store))
    granted = {folder: icechunk.credentials.LocalFileSystemAccess}
    repo = icechunk.Repository.create(icechunk.in_memory_storage(), config, authorize_virtual_chunk_access=granted)
    session = repo.writable_session("main")
    vs.open_virtual_dataset(paths[0]).virtual.to_icechunk(session.store)
    for n in range(1, len(paths)):
        part = vs.open_virtual_dataset(paths[n])
        options = {"append_dim": "time", "join": join, "rewrite": "1MB", "absent": "fill"}
        if n == 2 and join == "outer" and reverse:
            with pytest.raises(WriterError, match=CUT):
                part.virtual.to_icechunk(session.store, **options)
            break
        part.virtual.to_icechunk(session.store, **options)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        found = xr.open_zarr(session.store, consolidated=False, zarr_format=3)
    # attributes of zarr are JSON, which has no float32
    same(found, paths[: n + 1] if n == 4 else paths[:n], but=["narrow_scale"])


@pytest.mark.parametrize("form", ["scalar", "along steps", "along both"])
@pytest.mark.parametrize("order", [range(6), (4, 0, 5, 1, 3, 2)], ids=["in order", "late"])
@pytest.mark.parametrize("n", [1, 5], ids=["one by one", "together"])
def test_times_that_labels_give_grow_with_them(form, order, n, tmp_path):
    """The valid time of a forecast is that of its run and step, whichever of them comes first."""
    paths = []
    for run, step in ((run, step) for run in range(2) for step in (0, 6, 12)):
        made = xr.Dataset({"t": (("time", "step", "x"), np.full((1, 1, 3), 100.0 * run + step))})
        time, step = np.datetime64("2024-01-01", "ns") + np.timedelta64(run, "D"), np.timedelta64(step * 3600, "s")
        made = made.assign_coords(time=[time], step=[step.astype("m8[ns]")])
        valid = {"scalar": ((), time + step), "along steps": ("step", [time + step])}
        made = made.assign_coords(valid_time=valid.get(form, (("time", "step"), [[time + step]])))
        paths.append(tmp_path / f"{len(paths)}.nc")
        made.to_netcdf(paths[-1], engine="netcdf4", unlimited_dims=["time"])
    first, *others = [paths[i] for i in order]
    repo = vs.Repository.create(tmp_path / "x.vstack", first)
    for i in range(0, 5, n):
        repo = repo.update(others[i : i + n], "time", join="outer")
    found = repo.open_dataset().load()
    assert found.sizes == {"time": 2, "step": 3, "x": 3}
    np.testing.assert_array_equal(found["valid_time"].transpose("time", "step"), found["time"] + found["step"])
    np.testing.assert_array_equal(found["t"][..., 0], [[0, 6, 12], [100, 106, 112]])
