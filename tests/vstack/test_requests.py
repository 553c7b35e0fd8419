"""How many requests a commit to a bucket takes."""

from weakref import WeakSet

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.object_server import ObjectServer
from virtualstack.vstack.write import edit

N_VARIABLES = 12
URL = "s3://b/x.vstack"


def write(folder, day, value=0.0):
    """Write a file of nine data variables and three coordinates."""
    names = [f"band{i:02}" for i in range(N_VARIABLES - 3)]
    values = {name: (("time", "y", "x"), np.full((1, 2, 3), day + value, "f4")) for name in names}
    coords = {"time": [day], "y": [0.0, 1.0], "x": [0.0, 1.0, 2.0]}
    path = folder / f"{day:03}-{value}.nc"
    xr.Dataset(values, coords).to_netcdf(path, engine="h5netcdf")
    return path


@pytest.fixture
def server():
    with ObjectServer() as server:
        yield server


@pytest.fixture
def options(server, tmp_path):
    return {"storage": {"s3://b/": server.options}, "allow": [tmp_path]}


def n_puts(server, monkeypatch, call):
    """Return what a call returns in a process that has not written to the server, after its PUTs were counted."""
    monkeypatch.setattr("virtualstack.storage.target._CHECKED", WeakSet())
    server.reset()
    result = call()
    assert 0 < server.requests["PUT"] <= 6, server.requests
    return result


def test_a_commit_takes_at_most_six_puts(server, options, tmp_path, monkeypatch):
    """Of any number of variables: appending, updating, replacing, writing, editing."""
    vs.Repository.create(URL, write(tmp_path, 0), **options)
    repo = vs.Repository.open(URL, **options)
    assert len(repo.open_virtual_dataset().variables) == N_VARIABLES
    repo = n_puts(server, monkeypatch, lambda: repo.append(write(tmp_path, 1), "time"))
    repo = n_puts(server, monkeypatch, lambda: repo.update(write(tmp_path, 4), "time"))
    repo = n_puts(server, monkeypatch, lambda: repo.update([write(tmp_path, 2), write(tmp_path, 3)], "time"))
    repo = n_puts(server, monkeypatch, lambda: repo.update(write(tmp_path, 3, 0.5), "time", prefer="last"))
    repo = n_puts(server, monkeypatch, lambda: repo.write("band00", {"time": 0}, 7.0))
    repo = n_puts(server, monkeypatch, lambda: repo.edit(lambda ds: ds.assign_attrs(title="new")))
    assert repo.open_dataset()["band01"][:, 0, 0].values.tolist() == [0, 1, 2, 3.5, 4]


def test_tables_that_become_full_together_get_pages_one_by_one(server, options, tmp_path, monkeypatch):
    """Each commit adds a row to the table of each variable; the snapshot holds at most twice as many as it should."""
    monkeypatch.setattr(edit, "MAX_TAIL_ROWS", n := 7)

    def day(number):
        values = {name: (("time", "x"), np.full((1, 4), number, "f4")) for name in "abc"}
        path = tmp_path / f"{number}.nc"
        xr.Dataset(values, {"time": [number], "x": np.arange(4.0)}).to_netcdf(path, engine="h5netcdf")
        return path

    repo = vs.Repository.create(URL, day(0), **options)
    for number in range(1, 2 * n):
        server.reset()
        repo = repo.append(day(number), "time")
        assert server.requests["PUT"] <= 6
    tables = [repo.snapshot.arrays[f"/{name}"].placements for name in "abc"]
    assert [(len(x.pages), x.n) for x in tables] == [(1, 2 * n)] * 3
    assert repo.open_dataset()["c"][:, 1].values.tolist() == list(range(2 * n))


def test_a_run_takes_at_most_six_puts(server, options, tmp_path, monkeypatch):
    """Files that were opened by the run, and files of segments that workers have made."""
    (tmp_path / "recipe.toml").write_text(f'files = ["{tmp_path}/*.nc"]\ndim = "time"\n')
    write(tmp_path, 0)
    vs.Repository.build(URL, tmp_path / "recipe.toml", **options)
    repo = vs.Repository.open(URL, **options)
    for day in (1, 2):
        write(tmp_path, day)
    repo = n_puts(server, monkeypatch, lambda: repo.sync().repository)
    write(tmp_path, 3)
    assert vs.Repository.segment(URL, **options) == 1
    repo = n_puts(server, monkeypatch, lambda: repo.sync().repository)
    assert repo.open_dataset()["band01"][:, 0, 0].values.tolist() == [0, 1, 2, 3]
