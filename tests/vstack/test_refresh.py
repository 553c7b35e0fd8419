"""Sources that changed are scanned again, and nothing else is."""

import os
import re

import h5netcdf
import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
import virtualstack.vstack.rescan as refreshing
from tests.data.stores import load as read
from tests.data.watching import recorded_calls
from tests.servers import RangeServer
from tests.vstack.archive import as_read, days, join, values_of, write_day
from tests.vstack.growing import dataset, values, virtual, write
from virtualstack.combine.region import find_boxes
from virtualstack.errors import ConflictError, SourceChangedError, StorageError
from virtualstack.vstack.format.archive import Archive


def opened(tmp_path, **options):
    return vs.Repository.open(tmp_path / "x.vstack", **options)


def names(urls):
    return [url.rpartition("/")[2] for url in urls]


@pytest.fixture
def scanned(monkeypatch):
    """Which sources are scanned, at each time."""
    return recorded_calls(monkeypatch, refreshing, "scan", lambda given, **options: names(given))


def test_changed_sources_are_scanned_again(tmp_path, archive, scanned):
    """New values are read; the old snapshot says what it said, and that its source has changed."""
    before = as_read(archive)
    write_day(archive[1], 1, seed=1)
    write_day(archive[3], 3, seed=2, level=9)
    with pytest.raises(SourceChangedError, match=r"001\.nc"):
        read(tmp_path / "x.vstack")
    found = opened(tmp_path).refresh()
    assert (names(found.refreshed), found.masked, found.left, found.is_complete) == (["001.nc", "003.nc"], (), (), True)
    assert repr(found) == "snapshot 1: 2 refreshed, 0 left"
    assert found.repository.snapshot.message == "refreshed 2 sources"
    assert scanned == [["001.nc", "003.nc"]]
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), as_read(archive))
    assert opened(tmp_path).verify(sample=1.0).is_good
    assert opened(tmp_path, at=0).verify().table["status"].tolist() == ["changed"] * 2
    old = xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack", at=0)
    xr.testing.assert_identical(old.isel(time=slice(0, 2)).load(), before.isel(time=slice(0, 2)))
    with pytest.raises(SourceChangedError, match=r"001\.nc"):
        old["t"][2].load()


def test_the_report_has_the_repository_at_the_new_snapshot(tmp_path, archive):
    """It reads the new values, as the repository that was asked does not."""
    before = opened(tmp_path)
    write_day(archive[1], 1, seed=1)
    after = before.refresh().repository
    assert (before.snapshot.number, after.snapshot.number) == (0, 1)
    xr.testing.assert_identical(after.open_dataset().load(), as_read(archive))
    assert after.refresh().repository is after


def test_where_nothing_changed_there_is_no_snapshot(tmp_path, archive, scanned):
    """And nothing is scanned."""
    found = opened(tmp_path).refresh()
    assert (found.repository.snapshot.number, found.refreshed, scanned) == (0, (), [])
    assert opened(tmp_path).snapshot.number == 0


def test_it_can_be_done_again(tmp_path, archive):
    """A source that changes every day; those before it are hidden."""
    for seed in range(1, 4):
        write_day(archive[2], 2, seed=seed)
        assert names(opened(tmp_path).refresh().refreshed) == ["002.nc"]
        xr.testing.assert_identical(read(tmp_path / "x.vstack"), as_read(archive))
    assert opened(tmp_path).snapshot.number == 3


def test_only_rows_of_segments_with_the_source_are_read(tmp_path, archive, monkeypatch):
    """A store of several commits."""
    for day in range(4, 7):
        path = write_day(tmp_path / "data" / f"{day:03}.nc", day)
        join([path]).virtual.to_vstack(tmp_path / "x.vstack", append_dim="time")
    write_day(tmp_path / "data" / "005.nc", 5, seed=1)
    segments = recorded_calls(monkeypatch, Archive, "rows", lambda self, segment, page: segment.name)
    assert names(opened(tmp_path).refresh().refreshed) == ["005.nc"]
    assert len(set(segments)) == 1


@pytest.mark.parametrize("chunks", [(2, 6, 4), (1, 6, 4), (2, 3, 4)])
def test_longer_chunks_are_cut_where_those_of_the_store_end(tmp_path, archive, chunks):
    """They fit."""
    write_day(archive[1], 1, seed=1, chunks=chunks)
    assert opened(tmp_path).refresh().is_complete
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), as_read(archive))


def rewrite(path, **changes):
    """Write a file that another one is put in the place of."""
    with xr.load_dataset(path, engine="h5netcdf", decode_times=False) as found:
        found = found.copy()
    path.unlink()
    encoding = {"t": {"chunksizes": (1, 3, 4)}}
    for key, change in changes.items():
        match key:
            case "length":
                found = found.isel(time=slice(0, change))
            case "dtype":
                encoding["t"]["dtype"] = change
            case "lines":
                encoding["t"]["chunksizes"] = change
            case "packing":
                encoding["t"] |= {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
            case "labels":
                found[change] = found[change] + 1
            case "without":
                found = found.drop_vars(change)
            case "scale":
                found["t"].attrs["scale_factor"] = np.float32(change)
                found["t"].attrs["missing_value"] = np.float32(0)
    found.to_netcdf(path, engine="h5netcdf", encoding={k: v for k, v in encoding.items() if k in found})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"length": 1}, "has 1 element along 'time' now, but the store refers to 2"),
        ({"dtype": "f8"}, "has dtype = 'float32' in .* and 'float64' in"),
        ({"lines": (1, 2, 4)}, "chunks of variable 't' end at element 2 of 'lat'"),
        ({"packing": True}, "has dtype = 'float32' in .* and 'int16' in"),
        ({"labels": "time"}, "'time'"),
        ({"labels": "lat"}, "'lat'"),
        ({"without": "flag"}, "variable 'flag' is in 0 of its groups"),
    ],
)
def test_sources_that_do_not_fit_are_left(tmp_path, archive, changes, reason):
    """They are reported, and the others are scanned again."""
    before = as_read(archive)
    rewrite(archive[1], **changes)
    write_day(archive[2], 2, seed=1)
    found = opened(tmp_path).refresh()
    assert (names(found.refreshed), [x.rpartition("/")[2] for x, _ in found.left]) == (["002.nc"], ["001.nc"])
    assert found.table["status"].tolist() == ["refreshed", "left"]
    assert not found.is_complete
    assert re.search(reason, found.left[0][1])
    assert f"  left: file://{archive[1]}: " in repr(found)
    now = xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack")
    expected = before["t"].values.copy()
    expected[4:6] = values_of(2, 1)
    others = [0, 1, 4, 5, 6, 7]
    np.testing.assert_array_equal(now["t"][others].values, expected[others])
    with pytest.raises(SourceChangedError, match=r"001\.nc"):
        now["t"][2].load()


@pytest.mark.parametrize("change", [{"dtype": "f8"}, {"packing": True}, {"lines": (1, 2, 4)}, "damage"])
def test_sources_that_do_not_fit_are_masked_and_placed_again(tmp_path, archive, change):
    """So that all others are read together; an update of the file puts it back."""
    before, good = as_read(archive), archive[1].read_bytes()
    if change == "damage":
        archive[1].write_bytes(good[:100])
    else:
        rewrite(archive[1], **change)
    os.utime(archive[1], (2000, 2000))
    found = opened(tmp_path).refresh(changed="mask")
    assert (names(found.masked), found.left, found.is_complete) == (["001.nc"], (), True)
    assert [names([url]) for url, _ in found.misfits] == [["001.nc"]]
    assert found.table["reason"].tolist() == [found.misfits[0][1]]
    assert f"  masked: file://{archive[1]}: " in repr(found)
    expected = before["t"].astype("f4").copy()
    expected[2:4] = np.nan
    xr.testing.assert_equal(found.repository.open_dataset()["t"].load(), expected)
    assert found.repository.verify().is_good
    if change == "damage":
        archive[1].write_bytes(good)
    again = found.repository.update(str(archive[1]), "time")
    files = [xr.load_dataset(path, engine="netcdf4")["t"] for path in archive]
    xr.testing.assert_equal(again.open_dataset()["t"].load(), xr.concat(files, "time"))


def test_floats_that_are_packed_now_are_unpacked(tmp_path, archive):
    """The store has values as they are, and the file says how its numbers become values."""
    rewrite(archive[1], scale=2)
    assert opened(tmp_path).refresh().is_complete
    found, expected = read(tmp_path / "x.vstack")["t"], as_read(archive)["t"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.values, expected.values)


def test_a_source_that_cannot_be_scanned_is_left(tmp_path, archive):
    """Damaged, or of another format."""
    archive[0].write_bytes(b"not what it was")
    found = opened(tmp_path).refresh()
    assert "is damaged or another kind of file" in dict(found.left)[f"file://{archive[0]}"]


def test_chunks_of_a_zarr_store_are_left(tmp_path):
    """What to do is told: unpacking one of them would not help."""
    made = xr.Dataset({"t": (("x",), np.arange(4.0))})
    made.to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False)
    vs.open_virtual_dataset(tmp_path / "a.zarr").virtual.to_vstack(tmp_path / "x.vstack")
    (made + 1).to_zarr(tmp_path / "a.zarr", mode="w", zarr_format=3, consolidated=False)
    os.utime(tmp_path / "a.zarr/t/c/0", (1, 1))
    ((url, reason),) = opened(tmp_path).refresh().left
    assert url.endswith("a.zarr/t/c/0")
    assert "open the whole zarr store" in reason


def test_missing_sources_are_kept_or_masked(tmp_path, archive):
    """As is asked for; missing values are read then, of plain integers fill values, or errors where that is wanted."""
    expected = as_read(archive)
    archive[1].unlink()
    found = opened(tmp_path).refresh()
    assert (found.repository.snapshot.number, names(x for x, _ in found.left)) == (0, ["001.nc"])
    found = opened(tmp_path).refresh(missing="mask")
    assert (found.repository.snapshot.number, names(found.masked), found.is_complete) == (1, ["001.nc"], True)
    assert repr(found) == "snapshot 1: 0 refreshed, 1 masked, 0 left"
    now = read(tmp_path / "x.vstack")
    expected["t"][2:4] = np.nan
    expected["flag"][2:4] = 0
    np.testing.assert_array_equal(now["t"].values, expected["t"].values)
    np.testing.assert_array_equal(now["flag"].values, expected["flag"].values)
    strict = xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack", absent="raise")
    with pytest.raises(StorageError, match="ABSENT"):
        strict["t"][2].load()
    assert strict["t"][4].values.shape == (6, 4)
    assert opened(tmp_path).verify().is_good
    with pytest.raises(ValueError, match="missing='remove'; it must be 'keep' or 'mask'"):
        opened(tmp_path).refresh(missing="remove")


def test_values_that_were_overwritten_stay(tmp_path, archive):
    """In the store, over chunks of a source that changes then."""
    opened(tmp_path).write("t", {"time": 2, "lat": slice(0, 3)}, 7)
    write_day(archive[1], 1, seed=1)
    assert opened(tmp_path).refresh().is_complete
    expected = as_read(archive)["t"].values.copy()
    expected[2, :3] = 7
    np.testing.assert_array_equal(read(tmp_path / "x.vstack")["t"].values, expected)
    assert opened(tmp_path).verify().is_good


def sparse(path, day, rows):
    """Write a file with some chunks that were never written."""
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"time": 2, "x": 8}
        file.create_variable("time", ("time",), "i4", data=np.arange(2, dtype="i4") + 2 * day)
        variable = file.create_variable("v", ("time", "x"), "f4", chunks=(1, 2), fillvalue=np.float32(-1))
        for row, begin in rows:
            variable[row, begin : begin + 2] = [day, row]
    return path


@pytest.mark.parametrize("rows", [[(0, 2)], [(1, 4), (0, 0)], [(0, 0), (1, 6)]])
def test_chunks_that_were_not_written_before(tmp_path, rows):
    """Where they stand is known by the labels."""
    paths = [sparse(tmp_path / f"{day}.nc", day, rows) for day in range(3)]
    join(paths).virtual.to_vstack(tmp_path / "x.vstack")
    sparse(paths[1], 1, [(0, 4), (1, 2), (1, 6), (0, 2)])
    found = opened(tmp_path).refresh()
    assert found.is_complete
    assert found.refreshed
    expected = [h5py.File(path)["v"][...] for path in paths]
    now = read(tmp_path / "x.vstack", mask_and_scale=False)
    np.testing.assert_array_equal(now["v"].values, np.concatenate(expected))


def test_a_new_dimension_and_other_orders(tmp_path):
    """Files that were stacked, with variables turned."""
    paths = [write_day(tmp_path / f"{k}.nc", 0, seed=k) for k in range(3)]
    stacked = vs.open_virtual_mfdataset(paths, combine="nested", concat_dim="member")
    stacked[["t"]].transpose("lon", "member", "lat", "time").virtual.to_vstack(tmp_path / "x.vstack")
    write_day(paths[1], 0, seed=9)
    assert opened(tmp_path).refresh().is_complete
    expected = np.stack([values_of(0, seed) for seed in (0, 9, 2)]).transpose(3, 0, 2, 1)
    np.testing.assert_array_equal(read(tmp_path / "x.vstack")["t"].values, expected)


@pytest.mark.parametrize("has_bounds", [True, False])
def test_files_whose_times_are_scalars_are_refreshed(has_bounds, tmp_path):
    """Images with one time each, which xarray joined along it: ``refresh`` raised an error of xarray."""

    def write(name, time, value):
        (tmp_path / name).unlink(missing_ok=True)
        with netCDF4.Dataset(tmp_path / name, "w") as file:
            file.createDimension("x", 4)
            file.createDimension("nv", 2)
            variable = file.createVariable("time", "f8", ())
            variable.units = "seconds since 2000-01-01 12:00:00"
            variable[...] = time
            if has_bounds:
                variable.bounds = "time_bounds"
                file.createVariable("time_bounds", "f8", ("nv",))[:] = [time - 1, time + 1]
            file.createVariable("a", "i2", ("x",), fill_value=-1)[:] = np.full(4, value)
        return tmp_path / name

    paths = [write(f"{i}.nc", 60 * i, i + 1) for i in range(2)]
    images = [vs.open_virtual_dataset(path, loadable_variables=["time"]).set_coords("time") for path in paths]
    xr.concat(images, "time", data_vars="all").virtual.to_vstack(tmp_path / "x.vstack")
    write("1.nc", 60, 30)
    found = opened(tmp_path).refresh()
    assert (names(found.refreshed), found.left) == (["1.nc"], ())
    expected = xr.concat([xr.load_dataset(path).set_coords("time") for path in paths], "time", data_vars="all")
    got = read(tmp_path / "x.vstack")
    for name in ("a", "time", *(["time_bounds"] if has_bounds else [])):
        np.testing.assert_array_equal(got[name].values, expected[name].values)


def test_a_scalar_and_a_tree(tmp_path):
    """Variables without dimensions, in groups."""

    def write(value):
        (tmp_path / "a.nc").unlink(missing_ok=True)
        with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
            group = file.createGroup("g")
            group.createDimension("x", 4)
            group.createVariable("v", "i4", ("x",), chunksizes=(2,))[:] = np.arange(4) * value
            group.createVariable("s", "f8", ())[...] = value

    write(1)
    tree = vs.open_virtual_datatree(tmp_path / "a.nc")
    tree.virtual.to_vstack(tmp_path / "x.vstack")
    write(3)
    assert opened(tmp_path).refresh().is_complete
    now = xr.load_dataset(tmp_path / "x.vstack", engine="virtualstack", group="g")
    assert now["v"].values.tolist() == [0, 3, 6, 9]
    assert now["s"].item() == 3


@pytest.mark.parametrize("unpack", [True, False])
def test_packed_files(tmp_path, unpack):
    """Stores of unpacked chunks are refreshed with other scales; in others the numbers would mean something else."""

    def write(path, day, scale):
        path.unlink(missing_ok=True)
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("time", 2)
            time = file.createVariable("time", "i4", ("time",))
            time[:] = np.arange(2) + 2 * day
            packed = file.createVariable("p", "i2", ("time",), chunksizes=(1,))
            packed.scale_factor = scale
            packed[:] = np.arange(2) * scale * (day + 1)
        return path

    paths = [write(tmp_path / f"{day}.nc", day, 0.5) for day in range(2)]
    join(paths, unpack=unpack).virtual.to_vstack(tmp_path / "x.vstack")
    write(paths[0], 0, 0.25)
    found = opened(tmp_path).refresh()
    assert found.is_complete == unpack
    if unpack:
        assert read(tmp_path / "x.vstack")["p"].values.tolist() == [0, 0.25, 0, 1]
        assert read(tmp_path / "x.vstack")["p"].dtype == as_plain(paths)
    else:
        assert "has scale_factor = " in found.left[0][1]


def as_plain(paths):
    return xr.load_dataset(paths[0], engine="netcdf4")["p"].dtype


def test_files_on_s3_and_beside_a_store(tmp_path, s3_server):
    """Sources that are relative to the store stay so."""
    options = {"s3://bucket": s3_server.options}
    paths = days(tmp_path / "data")
    for path in paths:
        s3_server.put(f"fresh/data/{path.name}", path.read_bytes())
    urls = [f"s3://bucket/fresh/data/{path.name}" for path in paths]
    store = "s3://bucket/fresh/x.vstack"
    join(urls, storage=options).virtual.to_vstack(store, storage=options, relative=True)
    write_day(paths[1], 1, seed=4)
    s3_server.put("fresh/data/001.nc", paths[1].read_bytes())
    s3_server.client.delete_object(Bucket="bucket", Key="fresh/data/003.nc")
    repository = vs.Repository.open(store, storage=options)
    found = repository.refresh()
    assert (names(found.refreshed), [x.rpartition("/")[2] for x, _ in found.left]) == (["001.nc"], ["003.nc"])
    now = xr.open_dataset(store, engine="virtualstack", storage=options)
    xr.testing.assert_identical(now.isel(time=slice(0, 6)).load(), as_read(paths).isel(time=slice(0, 6)))
    assert all(prefix.startswith("../") for prefix in found.repository.snapshot.prefixes)


@pytest.mark.parametrize("first", [True, False])
def test_each_source_stays_relative_or_absolute(tmp_path, first):
    """In a store that has both, of files in one folder; the store and its folder can be moved then."""
    paths = days(tmp_path / "data")
    url = tmp_path / "x.vstack"
    join(paths[:2]).virtual.to_vstack(url, relative=first)
    join(paths[2:]).virtual.to_vstack(url, append_dim="time", relative=not first)
    for n in (1, 2):
        write_day(paths[n], n, seed=n, level=0)
    found = opened(tmp_path).refresh()
    assert names(found.refreshed) == ["001.nc", "002.nc"]
    store = vs.open_virtual_dataset(url).virtual.to_group()
    locations = [x for array in store.arrays.values() for x in array.in_memory().locations if "/data/" in x.url]
    are_relative = {x.url.rpartition("/")[2]: x.relative_to is not None for x in locations}
    assert are_relative == {path.name: (n < 2) == first for n, path in enumerate(paths)}


def test_files_of_a_web_server(tmp_path):
    """By their etags."""
    paths = days(tmp_path / "data")
    with RangeServer(tmp_path / "data") as server:
        join([server.url(path.name) for path in paths]).virtual.to_vstack(tmp_path / "x.vstack")
        write_day(paths[2], 2, seed=4)
        assert names(opened(tmp_path, allow=server.root).refresh().refreshed) == ["002.nc"]
        xr.testing.assert_identical(read(tmp_path / "x.vstack", allow=server.root), as_read(paths))


def test_who_has_changed_the_same_meanwhile_is_not_undone(tmp_path, archive):
    """Of two that refresh at once, one does it."""
    write_day(archive[1], 1, seed=1)
    early = opened(tmp_path)
    assert opened(tmp_path).refresh().refreshed
    with pytest.raises(ConflictError, match="the same chunks of variable"):
        early.refresh()


def test_a_touched_file_is_what_it_was(tmp_path, archive, scanned):
    """It is not scanned again."""
    os.utime(archive[0], (5, 5))
    assert opened(tmp_path).refresh().is_complete
    assert scanned == []
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), as_read(archive))


def test_boxes_are_what_is_marked():
    """Each cell once."""
    random = np.random.default_rng(0)
    for _ in range(300):
        shape = tuple(random.integers(1, 5, random.integers(0, 4)))
        mask = np.asarray(random.random(shape) < random.choice([0.1, 0.5, 0.9, 1]))
        painted = np.zeros(shape, int)
        for low, high in find_boxes(mask):
            painted[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] += 1
        np.testing.assert_array_equal(painted, mask.astype(int))


@pytest.mark.parametrize("chunk", [1, 3])
def test_a_source_among_whose_labels_others_lie(chunk, tmp_path):
    """Labels tell its places."""
    url, paths = tmp_path / "x.vstack", [str(tmp_path / "0.nc"), str(tmp_path / "1.nc")]
    chunks = {"t": {"chunksizes": (1, chunk, 4)}, "u": {"chunksizes": (1, chunk)}}

    def some(times, seed):
        made = dataset(times, seed=seed)
        return made.assign(u=made["t"][..., 0] * 2)

    virtual(write(paths[0], some([0, 2, 4, 5], 0), **chunks)).virtual.to_vstack(url)
    others = some([1, 3, 4], 1)
    write(paths[1], others, **chunks)
    vs.Repository.open(url).update(paths[1], dim="time", prefer="last")
    made = some([0, 2, 4, 5], 2).assign_attrs(note="longer" * 1000)
    write(paths[0], made, **chunks)
    found = vs.Repository.open(url).refresh()
    assert (found.refreshed, found.left) == ((f"file://{paths[0]}",), ())
    assert vs.Repository.open(url).verify().is_good
    wanted = {0: made, 1: others, 2: made, 3: others, 4: others, 5: made}
    with xr.open_dataset(url, engine="virtualstack") as cube:
        for day, of in wanted.items():
            when = {"time": cube["time"].values[day]}
            for name in ("t", "u", "rain"):
                np.testing.assert_array_equal(cube[name].sel(when), of[name].sel(when))


@pytest.mark.parametrize("name", [None, "rain"])
def test_a_source_that_lies_in_as_many_elements_as_it_has(name, tmp_path):
    """Of which some are another's, and some of its own are hidden: by another source, or in one variable by values."""
    url, paths = tmp_path / "x.vstack", [str(tmp_path / "0.nc"), str(tmp_path / "1.nc")]
    chunks = {"t": {"chunksizes": (1, 3, 4)}, "rain": {"chunksizes": (1, 3)}}
    virtual(write(paths[0], dataset([0, 2, 4]), **chunks)).virtual.to_vstack(url)
    others = [1, 4] if name is None else [1]
    write(paths[1], dataset(others, seed=1), **chunks)
    store = vs.Repository.open(url).update(paths[1], dim="time", prefer="last")
    wanted = values(url)
    if name is not None:
        store = store.write(name, {"time": 3}, 7.0)
    made = dataset([0, 2, 4], seed=2).assign_attrs(note="longer" * 1000)
    write(paths[0], made, **chunks)
    found = store.refresh()
    assert (found.refreshed, found.left) == ((f"file://{paths[0]}",), ())
    times = wanted["time"].values
    for each in ("t", "rain"):
        wanted[each][{"time": [0, 2]}] = made[each].sel(time=times[[0, 2]])
        if name is not None:
            wanted[each][{"time": 3}] = 7.0 if each == name else made[each].sel(time=times[3])
    xr.testing.assert_equal(values(url), wanted)


@pytest.mark.parametrize("left", [[0, 4, 6], []])
def test_a_source_that_has_lost_labels_among_others_is_left(left, tmp_path):
    """Nothing of it is taken."""
    url, paths = tmp_path / "x.vstack", [str(tmp_path / "0.nc"), str(tmp_path / "1.nc")]
    virtual(write(paths[0], dataset([0, 2, 4, 6]), t={"chunksizes": (1, 3, 4)})).virtual.to_vstack(url)
    write(paths[1], dataset([1, 3, 5], seed=1), t={"chunksizes": (1, 3, 4)})
    vs.Repository.open(url).update(paths[1], dim="time")
    dataset(left, seed=2).to_netcdf(paths[0], unlimited_dims=["time"])
    found = vs.Repository.open(url).refresh()
    assert (found.refreshed, [x for x, _ in found.left]) == ((), [f"file://{paths[0]}"])
    assert f"has {len(left)} elements along 'time' now, but the store refers to 4" in found.left[0][1]


def with_text(path, days, text, *, seed=0):
    """Write numbers and strings, which are kept in the store."""
    made = xr.Dataset(
        {"t": ("time", np.random.default_rng(seed).random(len(days))), "s": ("time", text)},
        {"time": np.datetime64("2000-01-01", "ns") + np.array(days, "m8[D]")},
    )
    made["s"].encoding = {"dtype": str, "chunksizes": (len(days),)}
    return write(path, made, t={"chunksizes": (1,)})


def test_strings_that_are_others_now(tmp_path):
    """They stand in the store: a source is left whose other chunks would come beside old ones, and no other."""
    paths = [with_text(tmp_path / f"{n}.nc", [2 * n, 2 * n + 1], [f"{n}", f"{n}{n}"], seed=n) for n in range(3)]
    cube = vs.open_virtual_mfdataset(paths, combine="nested", concat_dim="time")
    cube.virtual.to_vstack(tmp_path / "x.vstack")
    opened(tmp_path).write("s", {"time": 3}, "mended")
    with_text(paths[0], [0, 1], ["0", "new"], seed=5)
    with_text(paths[1], [2, 3], ["1", "11"], seed=6)  # as they were, below what was written
    with_text(paths[2], [4, 5], ["2", "new"], seed=7)
    found = opened(tmp_path).refresh()
    assert names(found.refreshed) == ["1.nc"]
    assert names(url for url, _ in found.left) == ["0.nc", "2.nc"]
    for _, reason in found.left:
        assert (
            "'s' has values in the store itself, which differ from those in the file now: 1 of 2 values differ, "
            "the first at (1,)" in reason
        )
    now = xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack")
    assert now["s"].values.tolist() == ["0", "00", "1", "mended", "2", "22"]
    np.testing.assert_array_equal(now["t"][2:4], xr.load_dataset(paths[1])["t"])


@pytest.mark.parametrize("text", ["abc", "abx", "xbc"])
def test_strings_of_a_source_among_whose_labels_others_lie(text, tmp_path):
    """Each is compared with that of its label."""
    paths, url = [tmp_path / f"{n}.nc" for n in range(3)], tmp_path / "x.vstack"
    for path, days_of, its in zip(paths, ([0, 2, 4], [1, 3], [6, 7]), ("abc", "de", "fg"), strict=True):
        with_text(path, days_of, list(its), seed=len(its))
    cube = vs.open_virtual_mfdataset([paths[0], paths[2]], combine="nested", concat_dim="time")
    cube.virtual.to_vstack(url)
    store = vs.Repository.open(url).update([paths[1]], dim="time")
    with_text(paths[0], [0, 2, 4], list(text), seed=5)
    found = store.refresh()
    assert names(found.refreshed) == (["0.nc"] if text == "abc" else [])
    assert [" differ from those in the file now: 1 of " in reason for _, reason in found.left] == [True][
        text == "abc" :
    ]
    assert xr.open_dataset(url, engine="virtualstack")["s"].values.tolist() == list("adbecfg")


def inheriting(path, days, seed):
    """Write a group whose times stand in the root."""
    t = np.random.default_rng(seed).random(len(days))
    times = np.datetime64("2000-01-01", "ns") + np.array(days, "m8[D]")
    tree = xr.DataTree.from_dict({"/": xr.Dataset(coords={"time": times}), "/a": xr.Dataset({"t": ("time", t)})})
    tree.to_netcdf(path, engine="h5netcdf", encoding={"/a": {"t": {"chunksizes": (1,)}}})
    return t


def test_a_group_whose_labels_are_inherited(tmp_path):
    """They tell the places of its chunks, among those of others too; where they are others now, it is left."""
    for name, its in {"a": [0, 3], "b": [1, 2]}.items():
        inheriting(tmp_path / f"{name}.nc", its, 0)
    vs.open_virtual_datatree(tmp_path / "a.nc").virtual.to_vstack(tmp_path / "x.vstack")
    opened(tmp_path).update([tmp_path / "b.nc"], dim="time")
    a, b = inheriting(tmp_path / "a.nc", [0, 3], 1), inheriting(tmp_path / "b.nc", [1, 2], 2)
    assert names(opened(tmp_path).refresh().refreshed) == ["a.nc", "b.nc"]

    def stored():
        return xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack", group="a", stale="ignore")["t"].values

    assert stored().tolist() == [a[0], *b, a[1]]
    inheriting(tmp_path / "b.nc", [2, 4], 3)
    ((url, reason),) = opened(tmp_path).refresh().left
    assert url.endswith("b.nc")
    assert "coordinate 'time' differs" in reason


def unlabelled(path, *, seed, chunk=1, order=None, **attributes):
    """Write four elements of a dimension without labels, the chunks in an order of their own."""
    values = np.random.default_rng(seed).random((4, 3))
    with h5py.File(path, "w") as file:
        data = file.create_dataset("t", (4, 3), "f8", chunks=(chunk, 3))
        for i in order or range(4):
            data[i] = values[i]
        file.attrs.update(attributes)
    return values


MOVES = {
    "reversed": lambda x: x.isel(phony_dim_0=slice(None, None, -1)),
    "sorted": lambda x: x.isel(phony_dim_0=[2, 0, 1, 3]),
    "rolled": lambda x: x.roll(phony_dim_0=1),
    "repeated": lambda x: x.isel(phony_dim_0=[0, 0, 1, 2]),
    "turned": lambda x: x.isel(phony_dim_1=slice(None, None, -1)),
}


@pytest.mark.parametrize("chunk", [1, 2, 4])
@pytest.mark.parametrize("how", MOVES)
def test_what_lay_in_another_order_than_in_the_file(how, chunk, tmp_path):
    """Along a dimension without labels: it is left, as it would come back to the order of the file."""
    unlabelled(tmp_path / "a.h5", seed=0, chunk=chunk)
    MOVES[how](vs.open_virtual_dataset(tmp_path / "a.h5")).virtual.to_vstack(tmp_path / "x.vstack")
    unlabelled(tmp_path / "a.h5", seed=1, chunk=chunk, note="longer" * 1000)
    ((url, reason),) = opened(tmp_path).refresh().left
    assert url.endswith("a.h5")
    is_cut = chunk == 2 and how in ("sorted", "rolled", "repeated")
    assert ("chunks of" if is_cut else "are in another order now") in reason


@pytest.mark.parametrize(
    ("before", "after", "is_left"),
    [
        ([0, 1, 2, 3], [3, 1, 0, 2], False),
        ([3, 1, 0, 2], [3, 1, 0, 2], False),
        ([3, 1, 0, 2], [0, 1, 2, 3], True),
        ([3, 1, 0, 2], [1, 3, 2, 0], True),
    ],
)
def test_files_whose_chunks_lie_in_any_order(before, after, is_left, tmp_path):
    """Where they do not follow each other, nothing tells whether the store or the file had them so."""
    unlabelled(tmp_path / "a.h5", seed=0, order=before)
    vs.open_virtual_dataset(tmp_path / "a.h5").virtual.to_vstack(tmp_path / "x.vstack")
    values = unlabelled(tmp_path / "a.h5", seed=1, order=after, note="longer" * 1000)
    found = opened(tmp_path).refresh()
    assert bool(found.left) is is_left
    if not is_left:
        np.testing.assert_array_equal(read(tmp_path / "x.vstack")["t"], values)


def test_files_that_are_changed_in_place_again_and_again(tmp_path):
    """A compressed chunk that grows comes to the end of the file, and the others stay where they are."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=np.zeros((4, 3)), chunks=(1, 3), compression="gzip")
    vs.open_virtual_dataset(tmp_path / "a.h5").virtual.to_vstack(tmp_path / "x.vstack")
    for i in range(3):
        with h5py.File(tmp_path / "a.h5", "r+") as file:
            file["t"][i] = np.random.default_rng(i).random(3)
            values = file["t"][:]
        assert names(opened(tmp_path).refresh().refreshed) == ["a.h5"]
        np.testing.assert_array_equal(read(tmp_path / "x.vstack")["t"], values)


@pytest.mark.parametrize("how", ["reversed", "sorted"])
def test_what_lay_in_another_order_and_is_changed_in_place(how, tmp_path):
    """What stays where it is does not tell where the rest belongs."""
    unlabelled(tmp_path / "a.h5", seed=0)
    MOVES[how](vs.open_virtual_dataset(tmp_path / "a.h5")).virtual.to_vstack(tmp_path / "x.vstack")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["t"][3] = 9
        file.attrs["note"] = "longer" * 1000
    assert names(url for url, _ in opened(tmp_path).refresh().left) == ["a.h5"]


@pytest.mark.parametrize("how", ["reversed", "sorted"])
def test_what_lay_in_another_order_by_its_labels(how, tmp_path):
    """These tell where it belongs."""
    path, labels = tmp_path / "a.nc", np.arange(4)
    made = xr.Dataset({"t": ("phony_dim_0", np.arange(4.0))}, {"phony_dim_0": labels})
    write(path, made, t={"chunksizes": (1,)})
    MOVES[how](vs.open_virtual_dataset(path)).virtual.to_vstack(tmp_path / "x.vstack")
    write(path, (made + 9).assign_attrs(note="longer" * 1000), t={"chunksizes": (1,)})
    found = opened(tmp_path).refresh()
    assert found.left == ()
    assert found.repository.open_dataset()["t"].sortby("phony_dim_0").values.tolist() == [9.0, 10.0, 11.0, 12.0]


def test_variables_of_a_source_at_different_positions_are_left(tmp_path):
    """A store may show two variables of its files in two orders; labels of a file tell one place alone."""
    paths = days(tmp_path / "data", 3)
    cube = join(paths).assign(flag=join(paths[::-1])["flag"].variable)
    cube.virtual.to_vstack(tmp_path / "x.vstack")
    write_day(paths[0], 0, seed=1)
    ((url, reason),) = opened(tmp_path).refresh().left
    assert url.endswith("000.nc")
    assert "its variables are at different positions along 'time': write the store again" in reason


def test_loaded_values_that_are_others_now_are_left(tmp_path):
    """The store has a copy of them, which would come beside new chunks."""
    paths = days(tmp_path / "data", 2)
    join(paths, loadable_variables=["time", "lat", "flag"]).virtual.to_vstack(tmp_path / "x.vstack")
    write_day(paths[0], 0, seed=1)
    ((url, reason),) = opened(tmp_path).refresh().left
    assert url.endswith("000.nc")
    assert "variable 'flag' has values in the store itself, which differ from those in the file now: 12 of 12" in reason


def test_loaded_values_of_another_size_are_left(tmp_path):
    """Along a dimension that no other variable has."""

    def write(n):
        made = xr.Dataset({"t": ("time", [float(n), 2.0]), "s": (("time", "n"), [["a"] * n, ["b"] * n])})
        (tmp_path / "a.nc").unlink(missing_ok=True)
        made.to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding={"t": {"chunksizes": (1,)}})

    write(2)
    virtual(tmp_path / "a.nc").virtual.to_vstack(tmp_path / "x.vstack")
    write(3)
    ((_, reason),) = opened(tmp_path).refresh().left
    assert "'s' has the sizes {'time': 2, 'n': 3} in the file now" in reason


def test_a_file_with_groups_is_scanned_once(tmp_path, monkeypatch):
    """Only a file without the groups of the store is scanned as a dataset, too."""
    chunks = {group: {"t": {"chunksizes": (1,)}} for group in ("/a", "/b")}

    def write(first):
        made = xr.Dataset({"t": ("time", np.arange(3.0) + first)}, {"time": [0, 1, 2]})
        (tmp_path / "a.nc").unlink(missing_ok=True)
        xr.DataTree.from_dict({"/a": made, "/b": made}).to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding=chunks)

    write(0)
    vs.open_virtual_datatree(tmp_path / "a.nc").virtual.to_vstack(tmp_path / "x.vstack")
    write(1)
    scans = []

    def counted(urls, **options):
        scans.append(list(urls))
        return vs.scan(urls, **options)

    monkeypatch.setattr("virtualstack.vstack.rescan.scan", counted)
    assert opened(tmp_path).refresh().is_complete
    assert len(scans) == 1
    assert xr.open_datatree(tmp_path / "x.vstack", engine="virtualstack")["b/t"].values.tolist() == [1, 2, 3]


def test_a_variable_that_is_in_two_groups_now_is_left(tmp_path):
    """The store has it without its group: only one group with it tells where it is from."""

    def write(groups, first):
        made = xr.Dataset({"t": ("time", np.arange(3.0) + first)}, {"time": [0, 1, 2]})
        (tmp_path / "a.nc").unlink(missing_ok=True)
        chunks = {group: {"t": {"chunksizes": (1,)}} for group in groups}
        tree = xr.DataTree.from_dict(dict.fromkeys(groups, made))
        tree.to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding=chunks)

    write(["/a"], 0)
    virtual(tmp_path / "a.nc", group="a").virtual.to_vstack(tmp_path / "x.vstack")
    write(["/a"], 1)
    assert opened(tmp_path).refresh().is_complete
    assert values(tmp_path / "x.vstack")["t"].values.tolist() == [1, 2, 3]
    write(["/a", "/b"], 2)
    ((_, reason),) = opened(tmp_path).refresh().left
    assert "variable 't' is in 2 of its groups" in reason
