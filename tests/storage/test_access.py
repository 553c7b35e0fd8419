"""``storage=`` belongs to what was opened with it, travels with it, and no other call sees it."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from obstore.store import LocalStore, MemoryStore

import virtualstack as vs
from tests.servers import RangeServer
from virtualstack.errors import CombineError, StorageError


def day(path: Path, number: int) -> Path:
    """Write a netCDF-4 file of one day."""
    values = {"rain": ("time", [1.0 + number]), "wind": ("time", [10.0 + number])}
    xr.Dataset(values, {"time": [number]}).to_netcdf(path, engine="netcdf4")
    return path


@pytest.fixture
def days(tmp_path):
    """Two files of one day each."""
    return [day(tmp_path / f"day{number}.nc", number) for number in range(2)]


def in_memory(path: Path, key: str = "day.nc") -> MemoryStore:
    """Return a store of this process that holds one file."""
    store = MemoryStore()
    store.put(key, path.read_bytes())
    return store


def test_a_later_call_does_not_see_the_storage_of_an_earlier_one(days, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    day(elsewhere / "day.nc", 7)
    given = vs.open_virtual_dataset("file:///day.nc", storage=LocalStore(prefix=elsewhere))
    assert given.virtual.open()["rain"].values == 8.0
    assert vs.open_virtual_dataset("day0.nc").virtual.open()["rain"].values == 1.0
    assert len(vs.scan(["day0.nc", "day1.nc"], executor="processes")) == 2
    with pytest.raises(StorageError):
        vs.open_virtual_dataset("file:///day.nc")


def test_two_users_of_one_url_each_read_with_their_own_storage(days):
    """Two users in one process, as in a server, at the same time."""

    def use(path: Path) -> set[float]:
        store, found = in_memory(path), set()
        for _ in range(10):
            vds = vs.open_virtual_dataset("s3://bucket/day.nc", storage={"s3://bucket/": store})
            found |= set(vds.virtual.open()["rain"].values)
        return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(use, days)) == [{1.0}, {2.0}]


def test_storage_travels_through_the_operations_of_xarray(days):
    one, two = (
        vs.open_virtual_dataset(f"s3://{name}/day.nc", storage=in_memory(path))
        for name, path in zip("ab", days, strict=True)
    )
    joined = xr.concat([one, two], "time")
    np.testing.assert_array_equal(joined.virtual.open()["rain"], [1, 2])
    np.testing.assert_array_equal(joined.isel(time=[1]).virtual.load("rain")["rain"], [2])
    merged = xr.merge([one[["rain"]], two[["wind"]].assign_coords(time=[0])])
    np.testing.assert_array_equal(merged.virtual.open()["wind"], [11])
    np.testing.assert_array_equal(joined.where(joined["time"] == 0).virtual.open()["rain"], [1, np.nan])
    many = vs.combine_datasets([one, two])
    np.testing.assert_array_equal(many.virtual.open()["rain"], [1, 2])


def test_storage_travels_to_workers_and_writers_and_into_no_references(days, tmp_path):
    secret = "Bearer letmein"
    with RangeServer(tmp_path, mode="refuse_anonymous") as server:
        storage = {server.root: {"headers": {"Authorization": secret}}}
        cube = vs.open_virtual_mfdataset([server.url(path.name) for path in days], storage=storage)
        with pytest.raises(StorageError):
            vs.open_virtual_dataset(server.url("day0.nc"))
        copy = pickle.loads(pickle.dumps(cube))
        np.testing.assert_array_equal(copy.virtual.open()["rain"], [1, 2])
        cube.virtual.to_kerchunk(tmp_path / "refs.json", inline_limit=0)
        cube.virtual.to_vstack(tmp_path / "cube.vstack")
        with pytest.raises(StorageError):
            xr.open_dataset(tmp_path / "refs.json", engine="virtualstack")["rain"].load()
        repository = vs.Repository.open(tmp_path / "cube.vstack", storage=storage)
        np.testing.assert_array_equal(repository.open_dataset()["rain"], [1, 2])
        np.testing.assert_array_equal(repository.open_virtual_dataset().virtual.open()["rain"], [1, 2])
    written = [tmp_path / "refs.json", *(path for path in (tmp_path / "cube.vstack").rglob("*") if path.is_file())]
    assert not any(b"letmein" in path.read_bytes() for path in written)
    assert "letmein" not in repr(cube) + cube["rain"].data.__repr__() + str(cube.virtual.to_kerchunk())


def test_a_store_serves_the_manifest_store(days):
    vds = vs.open_virtual_dataset("s3://a/day.nc", storage=in_memory(days[0]))
    opened = xr.open_zarr(vs.ManifestStore(vds.virtual.to_group()), consolidated=False)
    assert opened["rain"].values == 1.0


def test_one_place_is_not_reached_in_two_ways(days, tmp_path):
    """The first URL would be read from the store of the second."""
    one = vs.open_virtual_dataset("s3://a/day.nc", storage=in_memory(days[0]))
    two = vs.open_virtual_dataset("s3://a/other.nc", storage=in_memory(days[1], "other.nc"))
    with pytest.raises(CombineError) as caught:
        xr.concat([one, two], "time")
    assert (caught.value.property, caught.value.left) == ("storage", "s3://a/other.nc")
    assert (caught.value.variable, caught.value.right) == ("/rain", "s3://a/")
    assert "another dataset has for 's3://a/'." in str(caught.value)
    plain = vs.open_virtual_dataset(days[1])
    local = vs.open_virtual_dataset("file:///day0.nc", storage=LocalStore(prefix=tmp_path))
    with pytest.raises(CombineError, match=r"day1\.nc"):
        xr.concat([local, plain], "time")


def test_references_and_the_bucket_that_they_name_are_read_by_one_call(days, tmp_path):
    """A store without a prefix that does not hold the references is for what the references name."""
    store = in_memory(days[0])
    vs.open_virtual_dataset("s3://a/day.nc", storage=store).virtual.to_kerchunk(tmp_path / "refs.json")
    vds = vs.open_virtual_dataset(tmp_path / "refs.json", storage=store)
    assert vds.virtual.open()["rain"].values == 1.0


def test_changed_values_are_read_where_they_were_written(days):
    """The new file is in a store that only the call that wrote it has."""
    store = MemoryStore()
    vds = vs.open_virtual_dataset(days[0])
    changed = vds.virtual.write("rain", {"time": 0}, 5.0, to="s3://b/new.bin", storage={"s3://b/": store})
    assert changed.virtual.open()["rain"].values == 5.0
