"""``Repository.write``: new values go into the store, the originals and older snapshots stay."""

import itertools
import os
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from tests.vstack.growing import begin, check, dataset, joined, objects, values, virtual, write
from virtualstack.errors import ChunkDecodeError, ConflictError, SourceNotFoundError, StorageError, WriterError

opened = vs.Repository.open


@pytest.fixture
def first(url):
    """A store of five days, in chunks of two days, 3 latitudes and 4 longitudes."""
    return begin(url, range(5))


def test_any_region_is_overwritten(tmp_path, url, first):
    """Of any chunks, after appends, over what was written before; every snapshot reads as it was."""
    rng = np.random.default_rng(3)
    part = write(tmp_path / "1.nc", dataset(range(7, 10), seed=1), t={"chunksizes": [1, 6, 8]})
    virtual(part).virtual.to_vstack(url, append_dim="time")
    model = joined(first, xr.load_dataset(part))
    states = [first, model]
    for _ in range(25):
        name = str(rng.choice(["t", "rain", "mask", "time", "lat"]))
        if name in ("time", "lat") and rng.random() < 0.7:
            continue
        region = {}
        for dim, n in model[name].sizes.items():
            start = int(rng.integers(0, n))
            region[dim] = [start, slice(start, int(rng.integers(start + 1, n + 1))), slice(None)][int(rng.integers(3))]
        model = model.copy(deep=True)
        shape = model[name].isel(region).shape
        new = rng.integers(0, 200, shape)
        if name == "time":
            new = np.datetime64("2000-01-01", "ns") + new * np.timedelta64(1, "D")
        else:
            new = (new * (0.5 if name == "rain" else 1)).astype(model[name].dtype)
            if name in ("rain", "t") and rng.random() < 0.3:
                new = np.where(new > 20, np.nan, new).astype(model[name].dtype)
        changed = model[name].variable.copy(deep=True)
        changed = xr.Variable(changed.dims, np.array(changed.values), changed.attrs, changed.encoding)
        changed[region] = new
        model = model.assign_coords({name: changed}) if name in model.coords else model.assign({name: changed})
        opened(url).write(name, region, new)
        states.append(model)
        check(url, model)
    for at, state in enumerate(states):
        check(url, state, at)


def test_sources_stay_and_the_store_can_be_moved(tmp_path, url, first):
    """What was written lies in the store, by a path relative to it."""
    source = (tmp_path / "0.nc").read_bytes()
    opened(url).write("t", {"time": slice(0, 2)}, np.zeros((2, 6, 8), "f4"))
    assert (tmp_path / "0.nc").read_bytes() == source
    moved = tmp_path / "elsewhere" / "y.vstack"
    moved.parent.mkdir()
    (tmp_path / "x.vstack").rename(moved)
    (tmp_path / "0.nc").unlink()
    with xr.open_dataset(moved, engine="virtualstack") as found:
        assert float(found["t"][:2].max()) == 0
    assert any("/values/" in name for name in objects(str(moved)))


@pytest.mark.parametrize(("step", "bits"), [(4, (4,)), pytest.param(1, (1, 4, 16), marks=pytest.mark.apart)])
def test_damaged_values_are_an_error(tmp_path, url, first, step, bits):
    """Whichever byte is another one: they have a checksum."""
    values = np.random.default_rng(0).integers(0, 4, (1, 6, 8)).astype("f4")
    opened(url).write("t", {"time": slice(0, 1)}, values)
    (path,) = (tmp_path / "x.vstack").rglob("values/0")
    good = path.read_bytes()
    n_told = 0
    damages = list(itertools.product(range(0, len(good), step), bits))
    for i, bit in damages:
        path.write_bytes(good[:i] + bytes([good[i] ^ bit]) + good[i + 1 :])
        with xr.open_dataset(url, engine="virtualstack") as found:
            try:
                np.testing.assert_array_equal(found["t"][:1].values, values)  # a bit may mean nothing
            except ChunkDecodeError:
                n_told += 1
    assert n_told > (1 - 0.1 / len(bits)) * len(damages)


def test_a_variable_is_named(url, first):
    """By a text."""
    with pytest.raises(TypeError, match=r"write\(\) needs the name of a variable, not 3"):
        opened(url).write(3, ..., 0.0)


def test_prefixes_do_not_grow(url, first):
    """However often values are written."""
    for i in range(5):
        opened(url).write("t", {"time": i}, 0.0)
    assert len(opened(url).snapshot.prefixes) <= 3


def test_chunks_that_are_covered_are_not_read(tmp_path, url, first):
    """So that what is lost can be replaced; those covered in part are read."""
    (tmp_path / "0.nc").unlink()
    with pytest.raises(SourceNotFoundError) as caught:
        opened(url).write("t", {"time": 0}, 1.0)
    assert "covers whole chunks" in caught.value.__notes__[0]
    opened(url).write("t", {"time": slice(0, 2)}, 1.0)
    assert (xr.open_dataset(url, engine="virtualstack")["t"][:2].values == 1).all()


def test_missing_chunks_are_not_made_up(tmp_path, url, first):
    """A chunk of which no one knows the rest is not completed with fill values."""
    part = write(tmp_path / "1.nc", dataset([9, 10], seed=1).drop_vars("rain"))
    virtual(part).virtual.to_vstack(url, append_dim="time", join="outer")
    with pytest.raises(StorageError, match="ABSENT"):
        opened(url).write("rain", {"time": 6, "lat": 0}, 1.0)
    opened(url).write("rain", {"time": slice(5, 7)}, 1.0)
    np.testing.assert_array_equal(values(url)["rain"][5:], np.ones((2, 6)))


def test_packed_numbers_are_rounded(url, first):
    """To the nearest that the packing has; as stored with ``raw``."""
    opened(url).write("rain", {"time": 0}, [0.2, 0.3, 0.74, 1.0, np.nan, 5.2])
    np.testing.assert_array_equal(values(url)["rain"][0], [0.0, 0.5, 0.5, 1.0, np.nan, 5.0])
    opened(url).write("rain", {"time": 0}, np.array([0, 1, 2, 3, -1, 5]), raw=True)
    np.testing.assert_array_equal(values(url)["rain"][0], [0.0, 0.5, 1.0, 1.5, np.nan, 2.5])


@pytest.mark.parametrize("value", [0, 7, np.uint8(7), np.arange(6)])
def test_integers_are_packed(url, first, value):
    """As the same numbers are that are floats."""
    opened(url).write("rain", {"time": 1}, value)
    np.testing.assert_array_equal(values(url)["rain"][1], np.broadcast_to(value, 6))
    with pytest.raises(WriterError, match="cannot be stored"):
        opened(url).write("rain", {"time": 1}, 1 << 40)


@pytest.mark.parametrize("loadable", [["time"], ["time", "t", "rain"]])
def test_masked_values_are_missing(tmp_path, url, loadable):
    """They are as netCDF4 gives them, and not the numbers under the mask."""
    path = write(tmp_path / "0.nc", dataset(range(5)))
    virtual(path, loadable_variables=loadable).virtual.to_vstack(url)
    masked = np.ma.masked_array([1, 2, 3], [0, 1, 0])
    store = opened(url)
    for name in ("t", "rain"):
        store = store.write(name, (0, slice(0, 3), *[0] * (name == "t")), masked)
        store = store.write(name, (1, slice(0, 3), *[0] * (name == "t")), np.ma.masked)
        found = values(url)[name].isel(time=slice(2), lat=slice(3), lon=0, missing_dims="ignore")
        np.testing.assert_array_equal(found, [[1, np.nan, 3], [np.nan] * 3])
    with pytest.raises(WriterError, match=r"nan.* at .* would read as"):
        store.write("mask", (0, slice(0, 3)), masked)


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_large_integers_with_a_mask_are_refused(dtype, tmp_path, url):
    """What is missing makes floats of them, which would be other numbers."""
    made = xr.Dataset({"n": ("x", np.arange(3, dtype=dtype))})
    made.to_netcdf(tmp_path / "0.nc", encoding={"n": {"_FillValue": np.array(99, dtype)}})
    virtual(str(tmp_path / "0.nc")).virtual.to_vstack(url)
    masked = np.ma.masked_array(np.array([2**53 + 1, 5, 7], dtype), [0, 1, 0])
    with pytest.raises(WriterError, match=r"'n' have integers beyond 2\^53.*raw=True"):
        opened(url).write("n", ..., masked)
    opened(url).write("n", ..., masked.filled(99), raw=True)
    opened(url).write("n", slice(1, 3), masked[1:])
    found = xr.load_dataset(url, engine="virtualstack", mask_and_scale=False)["n"]
    assert found.values.tolist() == [2**53 + 1, 99, 7]


def test_tuples_are_values(tmp_path, url):
    """As lists are."""
    virtual(write(tmp_path / "0.nc", dataset(0))).virtual.to_vstack(url)
    opened(url).write("t", (0, 0, slice(0, 3)), (1, 2, 3))
    assert values(url)["t"].values[0, 0, :3].tolist() == [1, 2, 3]


def test_dates_of_python_and_pandas_are_times(tmp_path, url):
    """And durations, as xarray takes them."""
    made = dataset([0, 1, 2]).assign(lag=("time", np.arange(3).astype("m8[h]").astype("m8[ns]")))
    virtual(write(tmp_path / "0.nc", made)).virtual.to_vstack(url)
    for name in ("time", "lag"):
        for value in (pd.Timestamp("2001-02-03"), datetime(2001, 2, 3)) if name == "time" else (timedelta(hours=5),):
            opened(url).write(name, 2, value)
            assert values(url)[name].values[2] == (pd.Timedelta(value) if name == "lag" else pd.Timestamp(value)).asm8


@pytest.mark.parametrize(
    ("name", "value", "raw", "match"),
    [
        ("rain", 20_000.0, False, "cannot be stored in variable '/?rain' .* from -32768 to 32767: .*20000"),
        ("rain", -0.5, False, "would read as"),
        ("rain", np.inf, False, "would read as"),
        ("rain", -np.inf, False, "would read as"),
        ("mask", np.inf, False, "would read as"),
        ("rain", 40_000, True, "40000"),
        ("rain", 0.5, True, "would read as"),
        ("mask", 0.5, False, "would read as"),
        ("mask", np.nan, False, "would read as"),
        ("mask", 2**40, False, "would read as"),
        ("mask", "x", False, "of dtype '<U1' cannot be stored"),
        ("t", 1e300, False, "would read as"),
        ("t", 1 + 1j, False, "would read as|no place"),
        ("time", np.datetime64("2000-01-01T06:00", "ns"), False, "would read as|cannot be stored"),
        ("time", 5.5, False, "cannot be stored|would read as|no place"),
        ("t", np.zeros(3), False, r"shape \(3,\) were given for a region of shape \(6, 8\)"),
    ],
)
def test_values_that_cannot_be_stored_are_refused(url, first, name, value, raw, match):
    """The error has the value and what it would become, and nothing is written."""
    before = objects(url)
    with pytest.raises(WriterError, match=match):
        opened(url).write(name, (0, ...), value, raw=raw)
    assert objects(url) == before


def test_regions_are_checked(url, first):
    """Names, bounds and steps."""
    store = opened(url)
    for name, region, error, match in (
        ("wind", ..., KeyError, "wind"),
        ("t", {"level": 0}, ValueError, r"region names \['level'\]"),
        ("t", {"time": slice(0, 5, 2)}, ValueError, "without a step"),
        ("t", {"time": 5}, IndexError, "index 5 is out of bounds for dimension 'time'"),
        ("t", (0, 0, 0, 0), IndexError, "4 items"),
    ):
        with pytest.raises(error, match=match):
            store.write(name, region, 0)
    assert store.write("t", {"time": slice(3, 3)}, 0).snapshot.number == 0
    part = first["t"].isel(time=-1).transpose("lon", "lat") * 2
    store.write("t", (-1,), part)
    np.testing.assert_array_equal(values(url)["t"][-1], first["t"][-1] * 2)


def test_times_and_text_are_written(tmp_path, url):
    """Of any dtype that a store holds."""
    made = xr.Dataset(
        {
            "name": ("x", np.array(["a", "bb", "ccc", "d"], object)),
            "when": ("x", pd.date_range("2000-01-01", periods=4)),
            "lasts": ("x", pd.to_timedelta([1, 2, 3, 4], "h")),
            "is_on": ("x", np.array([True, False, True, False])),
            "one": ((), 3.0),
            "wave": ("x", np.arange(4, dtype="u1")),
        }
    )
    made["when"].encoding = {"units": "hours since 2000-01-01", "dtype": "i4", "chunksizes": [2]}
    made["is_on"].encoding = {"chunksizes": [2]}
    made["wave"].encoding = {"_Unsigned": "true", "_FillValue": np.int8(-1), "dtype": "i1"}
    path = tmp_path / "0.nc"
    made.to_netcdf(path, engine="netcdf4")
    for loadable in ([], None, list(made.variables)):
        store = url.replace("x.", f"{loadable is None}-{bool(loadable)}.")
        vs.open_virtual_dataset(path, loadable_variables=loadable).virtual.to_vstack(store)
        new = {
            "name": np.array(["long text", ""], object),
            "when": pd.to_datetime(["2001-05-01T03:00"] * 2),
            "lasts": pd.to_timedelta([7, 9], "h"),
            "is_on": np.array([True, True]),
            "wave": np.array([200, 7], "u1"),
        }
        expected = xr.load_dataset(path).copy(deep=True)
        for name, given in new.items():
            opened(store).write(name, slice(1, 3), np.asarray(given))
            whole = np.array(expected[name].values, object if name == "name" else None)
            whole[1:3] = given
            expected[name] = ("x", whole)
        opened(store).write("one", (), 4.5)
        expected["one"][...] = 4.5
        xr.testing.assert_equal(values(store), expected)


def test_dates_of_another_calendar_are_refused(tmp_path, url):
    """They cannot be compared with those that they would become."""
    days, other = (xr.date_range("2000-01-01", periods=2, calendar=x, use_cftime=True) for x in ("noleap", "360_day"))
    xr.Dataset({"when": ("x", days)}).to_netcdf(tmp_path / "0.nc", engine="netcdf4")
    virtual(str(tmp_path / "0.nc")).virtual.to_vstack(url)
    with pytest.raises(WriterError, match="2 of 2 values cannot be stored in variable 'when'"):
        opened(url).write("when", ..., other)


def test_groups_of_trees_are_written(tmp_path, url):
    """By the path of the variable."""
    path = tmp_path / "0.nc"
    xr.DataTree.from_dict({"/c": dataset([0]), "/a/b": dataset([1, 2])}).to_netcdf(path, engine="netcdf4")
    vs.open_virtual_datatree(path).virtual.to_vstack(url)
    opened(url).write("a/b/t", {"time": 1}, 7.0)
    opened(url).write("a/b/lat", 0, -1.0)
    found = xr.open_datatree(url, engine="virtualstack")
    assert float(found["a/b/t"][1].min()) == 7
    assert float(found["a/b/lat"][0]) == -1
    assert float(found["c/t"].max()) < 7
    with pytest.raises(KeyError, match="is a group"):
        opened(url).write("a/b", 0, 0)


def test_other_regions_at_the_same_time_both_succeed(url, first):
    """Of one variable, or of others; of the same chunks one is told."""
    mine, theirs, other = opened(url), opened(url), opened(url)
    theirs.write("t", {"time": slice(0, 2)}, 1.0)
    mine.write("t", {"time": slice(2, 4)}, 2.0)
    other.write("rain", {"time": slice(0, 2)}, 3.0)
    found = values(url)
    assert float(found["t"][:2].max()) == 1
    assert float(found["t"][2:4].max()) == 2
    assert float(found["rain"][:2].min()) == 3
    with pytest.raises(ConflictError, match="the same chunks of variable '/t'"):
        opened(url, at=0).write("t", {"time": 1, "lat": 0}, 5.0)


def test_other_loaded_variables_at_the_same_time_both_succeed(url, first):
    """They lie in one object, which is made again; the same variable is a conflict."""
    mine, theirs = opened(url), opened(url)
    theirs.write("lat", 0, -1.0)
    mine.write("lon", 0, -2.0)
    found = values(url)
    assert float(found["lat"][0]) == -1
    assert float(found["lon"][0]) == -2
    with pytest.raises(ConflictError, match="variable '/lat'"):
        opened(url, at=0).write("lat", 1, 5.0)


@pytest.mark.parametrize("unit", ["D", "m", "s", "ms", "ns"])
def test_times_of_any_unit_are_written_as_nanoseconds(tmp_path, unit):
    """xarray encodes times of coarser units as NaT here."""
    made = xr.Dataset({"when": ("x", np.array(["2000-01-01T00:00:00.000000001", "2000-01-02"], "M8[ns]"))})
    made["when"].encoding = {"units": "nanoseconds since 2000-01-01", "dtype": "i8"}
    made.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    url = tmp_path / "x.vstack"
    vs.open_virtual_dataset(tmp_path / "a.nc").virtual.to_vstack(url)
    vs.Repository.open(url).write("when", {"x": 1}, np.datetime64("1999-12-31", unit))
    assert values(url)["when"].values.tolist() == [946684800000000001, 946598400000000000]


def test_values_stay_that_are_named_through_a_link(tmp_path):
    """Who opened the store by another path names its values by that; to expire finds them all the same."""
    url, link = tmp_path / "y.vstack", tmp_path / "link.vstack"
    made = xr.Dataset({"v": ("x", np.arange(4.0))})
    made.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    vs.open_virtual_dataset(tmp_path / "a.nc").virtual.to_vstack(url)
    vs.Repository.open(url).write("v", ..., 7.0)
    link.symlink_to(url)
    vs.open_virtual_dataset(link).isel(x=slice(1, 4)).virtual.to_vstack(url, mode="w")
    vs.Repository.open(url).expire(keep=1, grace=timedelta(0))
    assert values(url)["v"].values.tolist() == [7.0] * 3


def test_a_value_without_axes_is_written_twice(tmp_path):
    """The newest of three placements counts, for readers and for what is compared or scanned again."""
    xr.Dataset({"s": ((), 1.0), "t": ("x", [1.0, 2.0])}).to_netcdf(tmp_path / "s.nc", engine="netcdf4")
    url = tmp_path / "s.vstack"
    vs.open_virtual_dataset(tmp_path / "s.nc", loadable_variables=[]).virtual.to_vstack(url)
    repo = vs.Repository.open(url).write("s", ..., 2.0).write("s", ..., 3.0)
    assert repo.open_dataset()["s"].item() == 3.0
    assert [x.status for x in repo.verify(sample=1.0).chunks] == ["not compared", "equal"]
    os.utime(tmp_path / "s.nc", (1, 1))
    assert repo.refresh().refreshed == ()  # only touched
    xr.Dataset({"s": ((), 1.0), "t": ("x", [1.0, 5.0])}).to_netcdf(tmp_path / "s.nc", engine="netcdf4")
    found = repo.refresh()
    assert (len(found.refreshed), found.left) == (1, ())
    cube = found.repository.open_dataset()
    assert (cube["s"].item(), cube["t"].values.tolist()) == (3.0, [1.0, 5.0])
