"""``Repository.update``: files find their places by their labels."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import concatenated
from tests.data.watching import recorded_calls
from tests.vstack.growing import begin, dataset, n_snapshots, objects, values, virtual, write, write_tree
from virtualstack.errors import ChunkAlignmentError, CombineError, ConflictError, SourceChangedError, StorageError
from virtualstack.storage import ObjectStore
from virtualstack.vstack.format.names import bundle_key

opened = vs.Repository.open


@pytest.fixture
def first(url):
    """A store of the days 10 to 15, in chunks of two days, 3 latitudes and 4 longitudes."""
    return begin(url, range(10, 16))


def placed(model, part):
    """Place a dataset in a model by its labels; variables that it has not stay, or are missing."""
    times = model.indexes["time"].union(part.indexes["time"])
    wanted = model.reindex(time=times)
    for name in part.data_vars:
        if "time" in part[name].dims:
            whole = np.array(wanted[name].values)
            whole[times.get_indexer(part.indexes["time"])] = part[name].transpose(*wanted[name].dims).values
            wanted[name] = wanted[name].copy(data=whole)
    wanted["mask"] = model["mask"]
    return wanted


def test_files_find_their_places(tmp_path, url, first):
    """In any order, between those that are there and over them, in any chunks; snapshots stay as they were."""
    rng = np.random.default_rng(2)
    model, states = first, [first]
    for i in range(20):
        start, n = int(rng.integers(0, 30)), int(rng.integers(1, 6))
        days = np.arange(start, start + n) if rng.random() < 0.8 else start + 2 * np.arange(n)
        made = dataset(days, seed=100 + i)
        if rng.random() < 0.2:
            made = made.drop_vars("rain")
        path = write(tmp_path / f"part{i}.nc", made, t={"chunksizes": [int(rng.integers(1, 4)), 3, 4]})
        opened(url).update(path if rng.random() < 0.5 else virtual(path), dim="time", prefer="last")
        model = placed(model, xr.load_dataset(path))
        states.append(model)
        xr.testing.assert_equal(values(url), model)
    for at, state in enumerate(states):
        xr.testing.assert_equal(values(url, at), state)


def test_many_files_are_placed_at_once(tmp_path, url, first):
    """One snapshot; of two with one label the later one counts where that is said."""
    paths = [write(tmp_path / f"part{i}.nc", dataset([day], seed=i)) for i, day in enumerate((20, 3, 12, 20))]
    opened(url).update(paths, dim="time", prefer="last")
    model = first
    for path in paths:
        model = placed(model, xr.load_dataset(path))
    xr.testing.assert_equal(values(url), model)
    assert n_snapshots(url) == 2


def test_labels_of_the_store_are_left_alone(tmp_path, url, first):
    """No snapshot and no object is written, even if times of modification differ, as in a mirror."""
    path = write(tmp_path / "1.nc", dataset([20, 21], seed=1))
    store = opened(url).update(path, dim="time", relative=True)
    before = objects(url)
    os.utime(tmp_path / "1.nc", ns=(1, 1))
    again = store.update([path, str(tmp_path / "0.nc")], dim="time")
    assert again.snapshot is store.snapshot
    assert objects(url) == before


def test_only_what_is_new_is_written(tmp_path, url, first):
    """Of a file that is there in part."""
    path = write(tmp_path / "1.nc", dataset(range(10), seed=1), t={"chunksizes": [1, 3, 4]})
    store = opened(url).update(virtual(path).isel(time=slice(0, 8)), dim="time")
    n = segment_rows(store)
    store = store.update(virtual(path), dim="time")
    assert segment_rows(store) - n == 2 * 4 + 2  # two days of t in 4 chunks each, and of rain in 2 together


def test_loaded_variables_of_the_store_are_read_once(tmp_path, url, first, monkeypatch):
    """They were asked for five times: to compare, to write, to commit, and twice for zarr's view."""
    store = opened(url)
    path = write(tmp_path / "1.nc", dataset(range(20, 22), seed=1))
    asked = recorded_calls(monkeypatch, ObjectStore, "get", lambda self, key, **options: key)
    made = store.update(path, dim="time")
    assert [key for key in asked if "bundles/" in key] == [bundle_key(store.snapshot.bundle.name)]
    assert made.snapshot.bundle.name != store.snapshot.bundle.name


def segment_rows(store):
    """Count the rows that all segments hold."""
    archive = store._opened.archive(store.snapshot)
    return sum(archive.segment(i).rows for i in range(store.snapshot.segments.n))


def test_nothing_old_is_written_again(tmp_path, url, first):
    """Whatever is done."""
    before = objects(url)
    opened(url).update(write(tmp_path / "1.nc", dataset([12, 13], seed=1)), dim="time", prefer="last")
    opened(url).update(write(tmp_path / "2.nc", dataset([11, 17], seed=2)), dim="time", prefer="last")
    after = objects(url)
    assert all(after[name] == data for name, data in before.items())


def test_a_replaced_file_is_seen(tmp_path, url, first):
    """Whose size or contents are others: its chunks are written over those that are there."""
    write(tmp_path / "0.nc", dataset(range(10, 16), seed=9))
    with pytest.raises(StorageError):
        values(url)
    opened(url).update(str(tmp_path / "0.nc"), dim="time")
    xr.testing.assert_equal(values(url), xr.load_dataset(tmp_path / "0.nc"))


@pytest.mark.parametrize("prefer", [None, "last", "newest"])
def test_values_that_were_written_stay_when_their_file_is_placed_again(tmp_path, url, first, prefer):
    """The chunks that were written are of the store itself; those of the file are of its new version."""
    opened(url).write("t", {"time": slice(2, 4)}, 7)
    write(tmp_path / "0.nc", dataset(range(10, 16), seed=9))
    opened(url).update(str(tmp_path / "0.nc"), dim="time", prefer=prefer)
    expected = xr.load_dataset(tmp_path / "0.nc")
    expected["t"][{"time": slice(2, 4)}] = 7
    xr.testing.assert_equal(values(url), expected)


@pytest.mark.parametrize("n_mask", [1, 2])
def test_a_replaced_file_of_the_same_size_is_seen(tmp_path, url, n_mask):
    """Local files have times of modification, by which the store would refuse what it has."""
    made = [dataset([10, 11], seed=i) for i in range(2)]
    if n_mask == 1:
        made = [x.drop_vars("mask") for x in made]
    path = write(tmp_path / "0.nc", made[0], t={"zlib": False}, rain={"zlib": False})
    size = Path(path).stat().st_size
    virtual(path).virtual.to_vstack(url)
    write(path, made[1], t={"zlib": False}, rain={"zlib": False})
    os.utime(path, (1e9, 1e9))
    assert Path(path).stat().st_size == size
    with pytest.raises(SourceChangedError):
        values(url)
    store = opened(url).update(path, dim="time")
    assert store.snapshot.number == 1
    xr.testing.assert_equal(values(url), xr.load_dataset(path))
    assert store.update(path, dim="time").snapshot is store.snapshot


def test_labels_that_should_be_there_are_missing(tmp_path, url, first):
    """Until a file comes."""
    days = pd.date_range("2000-01-01", periods=31)
    part = write(tmp_path / "1.nc", dataset([3, 4], seed=1))
    opened(url).update(part, dim="time", labels=days)
    model = placed(first, xr.load_dataset(part)).reindex(time=days)
    model["mask"] = first["mask"]
    xr.testing.assert_equal(values(url), model)
    with xr.open_dataset(url, engine="virtualstack", absent="raise") as found:
        with pytest.raises(StorageError, match="ABSENT"):
            found["t"].isel(time=0).load()
        found["t"].isel(time=3).load()
    later = write(tmp_path / "2.nc", dataset(range(20, 27), seed=2), t={"chunksizes": [7, 3, 4]})
    opened(url).update(later, dim="time")
    model = placed(model, xr.load_dataset(later))
    xr.testing.assert_equal(values(url), model)
    assert opened(url).update((), dim="time", labels=days).snapshot.number == 2


def test_files_of_one_step_need_no_dimension(tmp_path, url):
    """A label is enough."""
    paths = [write(tmp_path / f"{i}.nc", dataset([i], seed=i)) for i in range(4)]
    virtual(paths[1]).virtual.to_vstack(url)
    for i in (3, 0, 2):
        opened(url).update(virtual(paths[i]).isel(time=0), dim="time")
    xr.testing.assert_equal(values(url), concatenated(*map(xr.load_dataset, paths)))


def test_loaded_variables_are_placed(tmp_path, url):
    """As values, whatever the units of a file."""
    names = ["time", "lat", "lon", "rain"]
    path = write(tmp_path / "0.nc", dataset(range(10, 14)))
    virtual(path, loadable_variables=names).virtual.to_vstack(url)
    in_hours = {"units": "hours since 1970-01-01", "dtype": "i8"}
    other = write(tmp_path / "1.nc", dataset([2.5, 11], seed=1), time=in_hours)
    opened(url).update(other, dim="time", labels=np.array(["2000-01-05"], "M8[ns]"), prefer="last")
    model = placed(xr.load_dataset(path), xr.load_dataset(other))
    times = model.indexes["time"].union(pd.DatetimeIndex(["2000-01-05"]))
    mask = model["mask"]
    model = model.reindex(time=times)
    model["mask"] = mask
    xr.testing.assert_equal(values(url), model)
    before = objects(url)
    opened(url).update(other, dim="time")
    assert objects(url) == before


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda x: x.drop_vars("time"), r"has no loaded coordinate 'time'"),
        (lambda x: x.isel(time=[1, 1]), r"more than once along 'time'.*drop_duplicates\('time'\)"),
        (lambda x: x.assign_coords(time=[1.0, 2.0]), "labels of 'time' are of several kinds"),
        (
            lambda x: x.assign_coords(lat=x["lat"] + 1),
            "coordinate 'lat' differs .* join='left'",
        ),
        (lambda x: x.assign(snow=x["t"]), "has variable 'snow' and"),
        (lambda x: x.assign(mask=x["mask"] + 1), "'mask' does not have the dimension 'time'"),
    ],
)
def test_datasets_that_do_not_fit_are_refused(tmp_path, url, first, change, match):
    """The error names both, and nothing is written."""
    path = write(tmp_path / "1.nc", change(dataset([2, 3], seed=1)))
    before = objects(url)
    with pytest.raises(CombineError, match=match):
        opened(url).update(virtual(path), dim="time")
    assert objects(url) == before


def test_labels_of_files_may_be_virtual_and_those_of_stores_may_not(tmp_path, url, first):
    path = write(tmp_path / "1.nc", dataset([2, 3], seed=1))
    part = vs.open_virtual_dataset(path, loadable_variables=[])
    opened(url).update(part, dim="time")
    xr.testing.assert_equal(values(url), placed(first, xr.load_dataset(path)))
    part.virtual.to_vstack(tmp_path / "y.vstack")
    with pytest.raises(CombineError, match=r"y.vstack' has no loaded coordinate 'time', whose labels") as caught:
        opened(tmp_path / "y.vstack").update(virtual(path), dim="time")
    assert (caught.value.variable, caught.value.property) == ("time", "labels")
    assert "open the store with vs.open_virtual_dataset, which loads labels" in str(caught.value)
    stored = vs.open_virtual_dataset(tmp_path / "y.vstack")
    stored.virtual.to_vstack(tmp_path / "y.vstack", mode="w")
    opened(tmp_path / "y.vstack").update(virtual(path), dim="time")  # what the message says works


def test_labels_have_one_axis(tmp_path, url, first):
    part = virtual(write(tmp_path / "1.nc", dataset([2, 3], seed=1))).drop_vars("time")
    with pytest.raises(CombineError, match=r"has no loaded coordinate 'time', whose labels"):
        opened(url).update(part.assign_coords(time=(("time", "x"), np.zeros((2, 3)))), dim="time")


@pytest.mark.parametrize(
    ("times", "remedy", "mend"),
    [
        ([5.0, 5.0, 4.0], r"with drop_duplicates\('time'\)$", lambda ds: ds.drop_duplicates("time")),
        ([np.nan, 5.0, 4.0], r"with isel\(time=ds.time.notnull\(\)\)$", lambda ds: ds.isel(time=ds.time.notnull())),
    ],
)
def test_labels_that_tell_no_place_are_placed_once_they_are_mended(times, remedy, mend, tmp_path):
    """As the message says; their order is left to `update`."""
    paths = [tmp_path / "a.nc", tmp_path / "b.nc"]
    for path, labels in zip(paths, ([1.0, 2.0], times), strict=True):
        made = xr.Dataset({"a": (("time", "x"), np.arange(2.0 * len(labels)).reshape(-1, 2))}, {"time": labels})
        made.to_netcdf(path, engine="netcdf4", encoding={"time": {"_FillValue": None}})
    repository = vs.Repository.create(tmp_path / "x.vstack", paths[0])
    with pytest.raises(CombineError, match=remedy):
        repository.update(paths[1], "time")
    first, second = (xr.load_dataset(path) for path in paths)
    expected = xr.concat([first, mend(second).sortby("time")], "time")
    repository = repository.update(mend(vs.open_virtual_dataset(paths[1])), "time")
    xr.testing.assert_equal(repository.open_dataset().load(), expected)


def test_whole_numbers_become_floats_where_they_are_missing(tmp_path, url):
    """As in xarray, but where the user names a number that they read as."""
    made = dataset([0, 1])
    made["count"] = ("time", np.array([1, 2], "i4"))
    virtual(write(tmp_path / "0.nc", made)).virtual.to_vstack(url)
    opened(url).update((), dim="time", labels=pd.to_datetime(["2000-01-05"]))
    expected = made["count"].reindex(time=[*made["time"].values, np.datetime64("2000-01-05", "ns")])
    xr.testing.assert_identical(values(url)["count"].variable, expected.variable)
    virtual(tmp_path / "0.nc").virtual.to_vstack(url, mode="w")
    options = {"fill_value": {"count": -7}}
    opened(url).update((), dim="time", labels=pd.to_datetime(["2000-01-05"]), combine_options=options)
    np.testing.assert_array_equal(values(url)["count"], [1, 2, -7])


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("i2", -7), ("u1", 7), ("f4", 1.5), ("f8", 0), ("M8[ns]", np.datetime64("2001-01-01")), ("f4", np.nan)],
)
def test_loaded_variables_are_filled_as_virtual_ones(tmp_path, url, dtype, fill):
    """With a number or time that their dtype holds, whatever dtype it has itself."""
    made = dataset([0, 1]).assign(count=("time", np.array([1, 2], "i8").astype(dtype)))
    path = write(tmp_path / "0.nc", made)
    options = {"fill_value": {"count": fill}}
    found = []
    for loadable in (["time"], ["time", "count"]):
        virtual(path, loadable_variables=loadable).virtual.to_vstack(url + str(len(found)))
        store = opened(url + str(len(found)))
        store.update((), dim="time", labels=pd.to_datetime(["2000-01-05"]), combine_options=options)
        found.append(values(store.objects.url)["count"])
    wanted = xr.load_dataset(path)["count"].reindex(time=found[0]["time"], fill_value=np.array(fill, dtype)[()])
    for each in found:
        xr.testing.assert_equal(each, wanted)
        assert each.dtype == wanted.dtype


@pytest.mark.parametrize(
    ("dtype", "fill"), [("u1", -7), ("f4", 1e300), ("M8[ns]", np.timedelta64(3, "s")), ("M8[ns]", 0)]
)
def test_what_has_no_place_in_a_loaded_variable_fills_none(tmp_path, url, dtype, fill):
    """It would become another value: -7 of unsigned bytes is 249."""
    made = dataset([0, 1]).assign(count=("time", np.array([1, 2], "i8").astype(dtype)))
    path = write(tmp_path / "0.nc", made)
    virtual(path, loadable_variables=["time", "count"]).virtual.to_vstack(url)
    options = {"fill_value": {"count": fill}}
    with pytest.raises(CombineError, match=r"'count' has dtype .* which cannot store fill_value"):
        opened(url).update((), dim="time", labels=pd.to_datetime(["2000-01-05"]), combine_options=options)
    assert n_snapshots(url) == 1


def noleap(days):
    """Give days of a calendar that numpy does not have."""
    return xr.date_range("2000-02-25", periods=40, calendar="noleap", use_cftime=True)[list(days)]


@pytest.mark.parametrize("loadable", [None, ["time", "name", "lag", "flag", "v"]])
def test_text_flags_spans_and_other_calendars_are_placed(tmp_path, url, loadable):
    """Virtual or loaded; where they are missing, as is said."""

    def file(i, days, names):
        made = xr.Dataset(
            {
                "v": ("time", np.arange(len(days)) * 1.0 + i),
                "name": ("time", np.array(names, object)),
                "code": ("time", np.array([x[:2].encode() for x in names], "S2")),
                "flag": ("time", np.arange(len(days)) % 2 == 0),
                "lag": ("time", np.arange(len(days)).astype("m8[h]").astype("m8[ns]")),
            },
            coords={"time": noleap(days)},
        )
        made.to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4")
        return str(tmp_path / f"{i}.nc")

    paths = [
        file(0, [0, 1, 6], ["a", "bcd", "x"]),
        file(1, [10, 11], ["long name", "q"]),
        file(2, [3, 4], ["m", "dle"]),
    ]
    virtual(paths[0], loadable_variables=loadable).virtual.to_vstack(url)
    virtual(paths[1]).virtual.to_vstack(url, append_dim="time")
    store = opened(url).update(paths[2], dim="time")
    whole = xr.concat([xr.load_dataset(path) for path in paths], "time").sortby("time")
    xr.testing.assert_equal(values(url), whole)
    assert store.update(paths, dim="time").snapshot is store.snapshot
    days = noleap(range(12))
    with pytest.raises(CombineError, match="has missing elements to fill"):
        store.update((), dim="time", labels=days)
    fills = {"name": "", "flag": False, "code": b"zz"}
    store = store.update((), dim="time", labels=days, combine_options={"fill_value": fills})
    xr.testing.assert_equal(
        values(url), whole.reindex(time=days, fill_value={**fills, "v": np.nan, "lag": np.timedelta64("NaT", "ns")})
    )
    store.write("time", -1, noleap([39])[0]).write("name", slice(0, 2), ["new", "er"])
    assert values(url).indexes["time"][-1] == noleap([39])[0]
    assert values(url)["name"][:3].values.tolist() == ["new", "er", ""]


def test_there_must_be_labels(tmp_path, url, first):
    """In the store."""
    with pytest.raises(CombineError, match="has no coordinate 'step'"):
        opened(url).update(str(tmp_path / "0.nc"), dim="step")


def test_writers_of_other_labels_both_succeed(tmp_path, url, first):
    """Labels of the store, which are replaced, and new ones."""
    a, b = (write(tmp_path / f"part{i}.nc", dataset([10 + 2 * i, 11 + 2 * i], seed=i)) for i in (1, 2))
    mine, theirs = opened(url), opened(url)
    theirs.update(a, dim="time", prefer="last")
    mine.update(b, dim="time", prefer="last")
    xr.testing.assert_equal(values(url), placed(placed(first, xr.load_dataset(a)), xr.load_dataset(b)))
    with pytest.raises(ConflictError, match="the same chunks"):
        opened(url, at=0).update(write(tmp_path / "part3.nc", dataset([12, 13], seed=3)), dim="time", prefer="last")
    mine, theirs = opened(url), opened(url)
    theirs.update(write(tmp_path / "part4.nc", dataset([30], seed=4)), dim="time")
    mine.update(write(tmp_path / "part5.nc", dataset([31], seed=5)), dim="time")
    assert values(url).sizes["time"] == first.sizes["time"] + 2


def test_groups_of_trees_are_placed(tmp_path, url):
    """Each by its own labels."""
    paths = [write_tree(tmp_path / f"{i}.nc", days, i) for i, days in enumerate(([0, 1, 5], [2, 3]))]
    vs.open_virtual_datatree(paths[0]).virtual.to_vstack(url)
    opened(url).update(vs.open_virtual_datatree(paths[1]), dim="time")
    found = xr.open_datatree(url, engine="virtualstack")
    for name in ("a", "b"):
        parts = [xr.open_datatree(path)[name].to_dataset().load() for path in paths]
        xr.testing.assert_equal(found[name].to_dataset().load(), xr.concat(parts, "time").sortby("time"))


def test_everything_at_random(tmp_path, url, first):
    """Appends, regions, updates and writes, one after the other: every snapshot reads as a model in memory."""
    rng = np.random.default_rng(11)
    model, states = first, [first]
    for i in range(30):
        known = model.indexes["time"]
        last = int((known[-1] - pd.Timestamp("2000-01-01")).days)
        path = tmp_path / f"part{i}.nc"
        match rng.choice(["append", "region", "update", "write"]):
            case "append":
                made = dataset(range(last + 1, last + 1 + int(rng.integers(1, 4))), seed=i)
                virtual(write(path, made)).virtual.to_vstack(url, append_dim="time")
                model = placed(model, xr.load_dataset(path))
            case "region":
                at = int(rng.integers(0, len(known)))
                day = (known[at] - pd.Timestamp("2000-01-01")).days
                write(path, dataset([day], seed=i))
                try:
                    virtual(path).virtual.to_vstack(url, region={"time": at})
                except ChunkAlignmentError:
                    continue
                model = placed(model, xr.load_dataset(path))
            case "update":
                day = int(rng.integers(0, 40))
                opened(url).update(write(path, dataset([day, day + 1], seed=i)), dim="time", prefer="last")
                model = placed(model, xr.load_dataset(path))
            case "write":
                at = int(rng.integers(0, len(known)))
                new = rng.integers(0, 100, model["t"][at].shape).astype("f4")
                opened(url).write("t", {"time": at}, new)
                whole = np.array(model["t"].values)
                whole[at] = new
                model = model.assign(t=model["t"].copy(data=whole))
        states.append(model)
        xr.testing.assert_equal(values(url), model)
    assert n_snapshots(url) == len(states)
    for at, state in enumerate(states):
        xr.testing.assert_equal(values(url, at), state)
    store = opened(url).compact()
    xr.testing.assert_equal(values(url), model)
    store.expire(keep=1, grace=pd.Timedelta(0))
    xr.testing.assert_equal(values(url), model)


def test_groups_are_placed_by_labels_that_they_inherit(tmp_path, url):
    """The coordinate of a dimension may stand in the root alone, where it stays."""

    def tree(i, times):
        root = xr.Dataset({"top": ("time", np.array(times) * 2.0)}, {"time": times})
        child = xr.Dataset({"v": (("time", "x"), np.arange(len(times) * 3.0).reshape(-1, 3) + 100 * i)})
        made = xr.DataTree.from_dict({"/": root, "/p": child, "/q/r": child + 1})
        made.to_netcdf(tmp_path / f"{i}.nc", engine="h5netcdf", write_inherited_coords=False)
        return vs.open_virtual_datatree(tmp_path / f"{i}.nc"), made

    (first, a), (second, b) = tree(0, [0, 1, 5]), tree(1, [2, 3])
    first.virtual.to_vstack(url)
    store = opened(url).update(second, dim="time")
    found = xr.open_datatree(url, engine="virtualstack")
    for path in ("/p", "/q/r"):
        wanted = xr.concat([a[path].to_dataset(), b[path].to_dataset()], "time").sortby("time")
        xr.testing.assert_equal(found[path].to_dataset().load(), wanted)
        assert "time" not in found[path].to_dataset(inherit=False).variables
    assert store.update(second, dim="time").snapshot.number == store.snapshot.number
    labelled = store.update((), dim="time", labels=[9])
    assert labelled.snapshot.number == 2
    assert np.isnan(xr.open_datatree(url, engine="virtualstack")["q/r/v"].values[-1]).all()


def texts(path, labels, names):
    made = xr.Dataset({"v": ("site", np.arange(len(labels), dtype="f4")), "name": ("site", names)}, {"site": labels})
    made.to_netcdf(path, engine="netcdf4")
    return path


@pytest.mark.parametrize("dtype", [object, "U"])
def test_longer_text_is_not_cut(tmp_path, url, dtype):
    """Neither in labels that files or ``labels=`` add, nor in values."""
    first = texts(tmp_path / "0.nc", np.array(["b", "d"], dtype), np.array(["x", "y"], dtype))
    virtual(first, loadable_variables=["site", "name"]).virtual.to_vstack(url)
    fill = {"fill_value": {"name": ""}}
    part = texts(tmp_path / "1.nc", np.array(["aardvark", "b"], dtype), np.array(["a long name", "z"], dtype))
    labels = np.array(["crocodile"], dtype)
    opened(url).update(part, dim="site", labels=labels, combine_options=fill, prefer="last")
    found = values(url)
    assert found["site"].values.tolist() == ["aardvark", "b", "crocodile", "d"]
    assert found["name"].values.tolist() == ["a long name", "z", "", "y"]
    assert opened(url).update(part, dim="site").snapshot.number == 1


def test_labels_that_are_none_are_refused(tmp_path, url, first):
    """They have no place among others, and no other update would be possible."""
    with pytest.raises(CombineError, match="labels= contains NaN or NaT"):
        opened(url).update((), dim="time", labels=np.array(["2000-01-01", "NaT"], "M8[ns]"))
    assert n_snapshots(url) == 1


@pytest.mark.parametrize("labels", [[[1]], [[1], [1, 2]], np.zeros((2, 2)), pd.DataFrame({"a": [1]})])
def test_labels_that_are_no_list_are_refused(tmp_path, url, first, labels):
    """With an error that says what they should be."""
    with pytest.raises(CombineError, match=r"labels= must be a list of labels of 'time'"):
        opened(url).update((), dim="time", labels=labels)


@pytest.mark.parametrize("dim", [["time"], 3, "tme"])
def test_a_dimension_that_is_no_name_is_refused(tmp_path, url, first, dim):
    """Be it of one that is there."""
    with pytest.raises(CombineError, match=rf"has no coordinate {re.escape(repr(dim))}, whose labels"):
        opened(url).update((), dim=dim)


def test_the_dimension_is_that_of_the_store(tmp_path, url, first):
    """Unless it is named."""
    days = values(url)["time"].values
    more = days[-1] + np.array([3, 5], "m8[D]")
    opened(url).update((), labels=more)
    assert values(url)["time"].values.tolist() == np.concatenate([days, more]).astype(days.dtype).tolist()


def test_options_that_are_no_mapping_are_refused(tmp_path, url, first):
    """A list, say."""
    with pytest.raises(TypeError, match=r"combine_options=\['override'\] is not a mapping of options"):
        opened(url).update((), dim="time", combine_options=["override"])


@pytest.mark.parametrize("prefer", ["first", "last"])
def test_loaded_values_at_the_same_label_are_chosen(url, prefer):
    """Labels that only the newer dataset has are added in both cases."""
    xr.Dataset({"v": ("x", [1.0, 2.0, 3.0])}, {"x": [1, 2, 3]}).virtual.to_vstack(url)
    opened(url).update([xr.Dataset({"v": ("x", [9.0, 4.0])}, {"x": [3, 4]})], dim="x", prefer=prefer)
    assert values(url)["v"].values.tolist() == [1, 2, 3 if prefer == "first" else 9, 4]


def test_a_loaded_variable_that_a_dataset_lacks_is_missing_there(url):
    """Whether its dimension is the one of the update or not."""
    xr.Dataset({"v": ("x", [1.0]), "w": ("x", [2.0]), "s": 5}, {"x": [1]}).virtual.to_vstack(url)
    opened(url).update([xr.Dataset({"v": ("x", [3.0])}, {"x": [2]})], dim="x")
    wanted = xr.Dataset({"v": ("x", [1.0, 3.0]), "w": ("x", [2.0, np.nan]), "s": 5}, {"x": [1, 2]})
    xr.testing.assert_equal(values(url), wanted)


@pytest.mark.parametrize("is_empty", ["store", "dataset"])
def test_a_store_or_a_dataset_without_labels(url, is_empty):
    """An archive may begin with no step at all; a dataset without steps changes nothing."""
    some = xr.Dataset({"v": ("x", [9.0, 4.0])}, {"x": [4, 5]})
    none = some.isel(x=slice(0, 0))
    first, second = (none, some) if is_empty == "store" else (some, none)
    first.virtual.to_vstack(url)
    opened(url).update([second], dim="x")
    xr.testing.assert_equal(values(url), some)
    assert n_snapshots(url) == (2 if is_empty == "store" else 1)


def test_a_file_without_labels_changes_no_place_of_others(tmp_path, url, first):
    """A run of files may have one in which nothing was measured."""
    paths = [write(tmp_path / f"{day}.nc", dataset([day], seed=day)) for day in (20, 3)]
    none = virtual(paths[0]).isel(time=slice(0, 0))
    opened(url).update([none, *map(virtual, paths), none], dim="time")
    model = first
    for path in paths:
        model = placed(model, xr.load_dataset(path))
    xr.testing.assert_equal(values(url), model)


@pytest.mark.parametrize(
    ("stored", "order"),
    [([0, 1, 2], [0, 1, 2, 3, 4, 5, 6]), ([4, 3, 1], [6, 5, 4, 3, 2, 1, 0]), ([1, 4, 0], [1, 4, 0, 5, 3, 2, 6])],
    ids=["ascends", "descends", "neither"],
)
@pytest.mark.parametrize("dim", ["time", "lat"])
def test_labels_are_placed_in_the_order_of_the_store(tmp_path, url, stored, order, dim):
    """Of files that are in any order; two files that have new labels in other orders, too."""

    def made(i, labels):
        labels, other = np.array(labels, "f8"), "lat" if dim == "time" else "time"
        values = 100.0 * i + labels[:, None] if dim == "time" else 100.0 * labels[:, None] + i
        found = xr.Dataset({"v": ((dim, other), values)}, {dim: labels, other: [0.0 if dim == "time" else i]})
        found.to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4", encoding={"v": {"chunksizes": (1, 1)}})
        return virtual(tmp_path / f"{i}.nc")

    parts = [made(0, stored), made(1, [5, 3, 2]), made(2, [3, 6, 5])]
    plain = [xr.load_dataset(tmp_path / f"{i}.nc") for i in range(3)]
    parts[0].virtual.to_vstack(url)
    opened(url).update(parts[1:], dim="time", join="outer", prefer="last")
    found = values(url)
    assert found[dim].values.tolist() == [x for x in order if x in {*stored, 2, 3, 5, 6}]
    shown = plain[2].combine_first(plain[1]).combine_first(plain[0])
    xr.testing.assert_equal(found.transpose(*shown["v"].dims), shown.reindex({dim: found[dim]}))


@pytest.mark.parametrize("is_virtual", [False, True])
def test_a_dimension_that_descends_stays_so(tmp_path, url, is_virtual):
    """Latitudes from north to south; files that have others, or ascend, are placed, too."""

    def made(time, lat):
        lat = np.array(lat, "f8")
        found = xr.Dataset({"v": (("time", "lat"), 100.0 * time + lat[None])}, {"time": [time], "lat": lat})
        if not is_virtual:
            return found
        found.to_netcdf(tmp_path / f"{time}.nc", engine="netcdf4", encoding={"v": {"chunksizes": (1, 1)}})
        return virtual(tmp_path / f"{time}.nc")

    made(0, [5, 4, 2]).virtual.to_vstack(url)
    opened(url).update([made(1, [7, 6]), made(2, [1, 3, 4]), made(3, [0])], dim="time", join="outer")
    found = values(url)
    assert found["lat"].values.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    wanted = [[5, 4, 2], [107, 106], [204, 203, 201], [300]]
    assert [[x for x in row if x == x] for row in found["v"].values.tolist()] == wanted


def test_labels_that_a_store_cannot_hold_are_refused(url):
    """Halves among whole numbers; and nothing is written."""
    xr.Dataset({"v": ("x", [1.0, 2.0])}, {"x": [1, 2]}).virtual.to_vstack(url)
    with pytest.raises(CombineError, match="'x'"):
        opened(url).update([xr.Dataset({"v": ("x", [9.0])}, {"x": [2.5]})], dim="x")
    assert n_snapshots(url) == 1


@pytest.mark.parametrize("join", ["left", "outer"])
def test_labels_of_another_dimension_that_repeat_are_refused(url, join):
    """They do not tell a position."""
    xr.Dataset({"v": (("x", "y"), [[1.0, 2.0]])}, {"x": [1], "y": [1, 2]}).virtual.to_vstack(url)
    part = xr.Dataset({"v": (("x", "y"), [[1.0, 2.0]])}, {"x": [2], "y": [2, 2]})
    with pytest.raises(CombineError, match="has label 2 more than once along 'y'"):
        opened(url).update([part], dim="x", join=join)
    assert n_snapshots(url) == 1


def test_a_variable_that_new_labels_lack_is_noted(tmp_path):
    """Once, and not those that a file has or that have no such dimension."""
    for i, names in enumerate(["abk", "b", "b", "ab"]):
        made = xr.Dataset({name: ("time", [1.0 * i]) for name in names if name != "k"}, {"time": [i]})
        made.assign({name: 4.0 for name in names if name == "k"}).to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4")
    store = str(tmp_path / "s.vstack")
    vs.open_virtual_dataset(tmp_path / "0.nc").virtual.to_vstack(store)
    repository = vs.Repository.open(store).update(tmp_path / "3.nc")
    assert not len(vs.open_virtual_dataset(store).virtual.report().query("state == 'noted'"))
    for i in (1, 2):
        repository = repository.update(tmp_path / f"{i}.nc")
    notes = vs.open_virtual_dataset(store).virtual.report().query("state == 'noted'")
    assert notes[["variable", "detail"]].values.tolist() == [["a", "files without it added labels of 'time'"]]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 3, 1, 0]], ids=["in order", "late"])
def test_scalars_that_differ_get_the_dimension(tmp_path, order):
    """As when all files are joined; in the store they were the same until now."""
    days = [
        xr.Dataset({"t": (("x",), [i, 2.0])}, {"x": [0, 1], "time": 10 * i, "run": i // 2, "height": 2.0})
        for i in range(4)
    ]
    for i, day in enumerate(days):
        day.to_netcdf(tmp_path / f"{i}.nc")
    first, later = sorted(order[:2]), order[2:]
    made = vs.open_virtual_mfdataset([tmp_path / f"{i}.nc" for i in first])
    assert made["run"].ndim == 0
    repo = vs.Repository.create(tmp_path / "a.vstack", made)
    for i in later:
        repo = repo.update(tmp_path / f"{i}.nc", "time")
    with xr.open_dataset(repo.url, engine="virtualstack") as found:
        expected = xr.concat(days, "time", data_vars="all", coords="different", compat="equals", join="exact")
        xr.testing.assert_equal(found.load(), expected)
        assert found["run"].dims == ("time",)
        assert found["height"].ndim == 0


def test_a_data_variable_that_differs_is_never_advised_to_be_left_out(tmp_path):
    """The store would keep the value of its first files for all."""
    for i in range(2):
        data = xr.Dataset({"t": ("time", [i]), "n": 10 * i}, {"time": [i]})
        data.to_netcdf(tmp_path / f"{i}.nc", unlimited_dims=["time"])
    repo = vs.Repository.create(tmp_path / "a.vstack", vs.open_virtual_dataset(tmp_path / "0.nc"))
    for call in (repo.update, repo.append):
        with pytest.raises(CombineError, match="variable 'n'") as caught:
            call(tmp_path / "1.nc", "time")
        given = [x.arguments for x in caught.value.remedies]
        assert {"combine_options": {"data_vars": ["n"]}} in given
        assert not any("drop_variables" in x for x in given)


def test_a_store_of_one_time_without_the_dimension_is_built_again(tmp_path):
    """Its time is one value, along which nothing can be added; followed, the advice grows."""
    for i in range(2):
        xr.Dataset({"t": ("x", [i, 2.0])}, {"x": [0, 1], "time": i}).to_netcdf(tmp_path / f"{i}.nc")
    repo = vs.Repository.create(tmp_path / "a.vstack", vs.open_virtual_dataset(tmp_path / "0.nc"))
    for call in (repo.update, repo.append):
        with pytest.raises(CombineError, match="no dimension 'time'") as caught:
            call(tmp_path / "1.nc", "time")
        assert [x.arguments for x in caught.value.remedies] == [{"concat_dim": "time"}]
    again = vs.open_virtual_mfdataset([tmp_path / "0.nc"], combine="nested", concat_dim="time")
    repo = vs.Repository.create(tmp_path / "b.vstack", again)
    repo = repo.update(tmp_path / "1.nc", "time")
    with xr.open_dataset(repo.url, engine="virtualstack") as found:
        assert found["t"].values.tolist() == [[0, 2], [1, 2]]


@pytest.mark.parametrize("how", [{"prefer": "last"}, {"prefer": "newest"}])
@pytest.mark.parametrize("packing", [{"dtype": "i2", "scale_factor": 0.1, "_FillValue": -9}, {"_FillValue": 3.0}])
def test_numbers_in_place_of_all_packed_ones_stay_as_they_are(tmp_path, packing, how):
    """No chunk of the store is left, so nothing is packed as its chunks were."""
    for name, numbers, encoding in (("a", [1.0, 2.0], {"v": packing}), ("b", [4.0, 3.0], {})):
        made = xr.Dataset({"v": ("time", numbers)}, {"time": [0, 1]})
        made.to_netcdf(tmp_path / f"{name}.nc", encoding=encoding, engine="netcdf4")
    os.utime(tmp_path / "a.nc", (1000, 1000))
    repo = vs.Repository.create(tmp_path / "s.vstack", tmp_path / "a.nc").update(tmp_path / "b.nc", **how)
    assert repo.open_dataset().v.values.tolist() == [4, 3]


@pytest.mark.parametrize("given", ["file", "dataset"])
def test_a_variable_that_the_store_lacks_is_left_out_as_the_message_says(tmp_path, given):
    """By `append` and `update`, of a file and of a dataset."""
    for i in range(3):
        data = xr.Dataset({"t": ("time", [i]), **({"more": ("time", [9.0])} if i else {})}, {"time": [i]})
        data.to_netcdf(tmp_path / f"{i}.nc", unlimited_dims=["time"])
    repo = vs.Repository.create(tmp_path / "a.vstack", tmp_path / "0.nc")
    for i, method in ((1, "append"), (2, "update")):
        part = tmp_path / f"{i}.nc" if given == "file" else vs.open_virtual_dataset(tmp_path / f"{i}.nc")
        with pytest.raises(CombineError, match="'more'") as caught:
            getattr(repo, method)(part)
        assert [x.arguments for x in caught.value.remedies] == [{"join": "outer"}, {"drop_variables": ["more"]}]
        repo = getattr(repo, method)(part, drop_variables=["more"])
    with xr.open_dataset(repo.url, engine="virtualstack") as found:
        assert found["t"].values.tolist() == [0, 1, 2]
        assert "more" not in found.variables
