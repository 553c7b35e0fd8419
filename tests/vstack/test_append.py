"""``to_vstack(..., append_dim=)``: everything is checked, one segment is written, nothing old is touched."""

import re

import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.watching import before_next_call
from tests.vstack.growing import begin, check, dataset, joined, n_snapshots, objects, values, virtual, write
from virtualstack.errors import CombineError, SourceNotFoundError
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.save import Stored


@pytest.fixture
def first(url):
    """A store of five days, in chunks of two."""
    return begin(url, range(5))


def append(url, part, **options):
    part.virtual.to_vstack(url, append_dim="time", **options)


def test_files_of_uneven_lengths_are_appended(tmp_path, url):
    """Behind a last chunk that is not full, too; and each earlier snapshot stays as it was."""
    rng = np.random.default_rng(5)
    wanted, day = [], 0
    for i in range(12):
        n = int(rng.integers(1, 6))
        made = dataset(range(day, day + n), seed=i)
        path = write(tmp_path / f"{i}.nc", made, t={"chunksizes": [int(rng.integers(1, 4)), 3, 4]})
        day += n + int(rng.integers(0, 3))
        part = xr.load_dataset(path)
        wanted.append(part if not wanted else joined(wanted[-1], part))
        if i:
            append(url, virtual(path))
        else:
            virtual(path).virtual.to_vstack(url)
    assert n_snapshots(url) == 12
    for at, expected in enumerate(wanted):
        check(url, expected, at)


def test_parts_of_files_are_appended(tmp_path, url, first):
    """That begin and end within chunks, have steps, and dimensions in another order."""
    path = write(tmp_path / "1.nc", dataset(range(6, 16), seed=1))
    part, plain = virtual(path), xr.load_dataset(path)
    wanted = first
    for days in (slice(1, 4), slice(5, 10, 2)):
        append(url, part.isel(time=days).transpose("lon", ...))
        wanted = joined(wanted, plain.isel(time=days))
        check(url, wanted)
    assert n_snapshots(url) == 3


def test_nothing_old_is_written_again(tmp_path, url, first):
    """One segment, one bundle and one snapshot come; no object changes."""
    before = objects(url)
    append(url, virtual(write(tmp_path / "1.nc", dataset([9], seed=1))))
    after = objects(url)
    assert all(after[name] == data for name, data in before.items())
    new = sorted({name.split("/")[1] for name in after.keys() - before.keys()})
    assert new == ["bundles", "segments", "snapshots"]


def test_no_rows_of_the_store_are_read(tmp_path, url, first, monkeypatch):
    """Of variables that are appended to: their pages may be many."""
    part = virtual(write(tmp_path / "1.nc", dataset([9], seed=1).drop_vars("mask")))

    def refuse(*_):
        raise AssertionError("a page is read")

    monkeypatch.setattr(Archive, "rows", refuse)
    stored = vs.open_virtual_dataset(url).drop_vars("mask")
    stored.virtual.to_vstack(url, mode="w")
    append(url, part)


def test_other_units_of_time_come_out_right(tmp_path, url, first):
    """Coordinates are values: hours do not fit into whole days, so that the stored units change."""
    other = dataset([7.25, 7.5], seed=1)
    path = write(tmp_path / "1.nc", other, time={"units": "hours since 1970-01-01", "dtype": "i8"})
    append(url, virtual(path))
    check(url, joined(first, xr.load_dataset(path)))


def test_labels_that_do_not_ascend_are_refused(tmp_path, url, first):
    """Unless told otherwise; and nothing is written."""
    before = objects(url)
    late = virtual(write(tmp_path / "1.nc", dataset([4, 6], seed=1)))
    with pytest.raises(CombineError, match=r"to append start at 2000-01-05 .* end at ") as caught:
        append(url, late)
    assert not any(x.arguments for x in caught.value.remedies)  # labels would repeat
    twisted = virtual(write(tmp_path / "2.nc", dataset([9, 8], seed=1)))
    with pytest.raises(CombineError, match="do not ascend"):
        append(url, twisted)
    assert objects(url) == before
    append(url, late, ordered=False)
    assert values(url).sizes["time"] == 7


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda x: x.assign_coords(lat=x["lat"] + 0.5),
            "coordinate 'lat' differs .* join='left'",
        ),
        (lambda x: x.drop_vars("rain"), r"has variable 'rain' and .* does not\. join='outer'"),
        (lambda x: x.assign(snow=x["t"]), r"has variable 'snow' and .* does not\. join='outer'"),
        (lambda x: x.assign(mask=x["mask"] + 1), "variable 'mask' does not have the dimension .* differs"),
        (lambda x: x.isel(time=0, drop=True), r"has no dimension 'time' to append.*expand_dims"),
        (lambda x: x.assign(rain=x["rain"].isel(lat=0)), "'rain' has dimensions"),
    ],
)
def test_variables_that_do_not_fit_are_refused(tmp_path, url, first, change, match):
    """The error names both, and nothing is written."""
    made = dataset([9, 10], seed=1)
    path = write(tmp_path / "1.nc", change(made))
    before = objects(url)
    with pytest.raises(CombineError, match=match):
        append(url, virtual(path))
    assert objects(url) == before


def test_a_scene_with_a_scalar_time_is_appended(tmp_path, url, first):
    """Its variables get the dimension, but those that the store has without it."""
    made = dataset([9], seed=1)
    append(url, virtual(write(tmp_path / "1.nc", made.isel(time=0))))
    check(url, joined(first, xr.load_dataset(write(tmp_path / "2.nc", made))))
    changed = made.assign(mask=made["mask"] + 1).assign_coords(time=made["time"] + np.timedelta64(1, "D"))
    with pytest.raises(CombineError, match=r"variable 'mask' does not have the dimension .* differs"):
        append(url, virtual(write(tmp_path / "3.nc", changed.isel(time=0))))


@pytest.mark.parametrize("how", ["append", "update"])
def test_other_packing_is_unpacked(tmp_path, url, first, how):
    """As when all files are opened together."""
    path = write(tmp_path / "1.nc", dataset([9], seed=1), rain={"scale_factor": 0.25})
    if how == "append":
        append(url, virtual(path))
    else:
        vs.Repository.open(url).update(path, "time")
    check(url, joined(first, xr.load_dataset(path)))


def test_other_units_are_refused(tmp_path, url, first):
    """Unless told whose hold."""
    part = virtual(write(tmp_path / "1.nc", dataset([9], seed=1, units="degC")))
    with pytest.raises(CombineError, match="attribute 'units' of variable 't' is 'K'"):
        append(url, part)
    append(url, part, combine_options={"combine_attrs": "override"})
    assert values(url)["t"].attrs == first["t"].attrs


def test_chunks_that_can_be_cut_are(tmp_path, url, first):
    """Where the store's end, on other axes."""
    path = write(tmp_path / "1.nc", dataset([9, 10], seed=1), t={"chunksizes": [1, 6, 8]})
    append(url, virtual(path))
    check(url, joined(first, xr.load_dataset(path)))


def test_variables_that_are_not_in_all_are_missing_on_request(tmp_path, url, first):
    """In the store or in what is appended."""
    made = dataset([9, 10], seed=1).drop_vars("rain")
    made["wind"] = ("time", np.array([1.0, 2.0]))
    path = write(tmp_path / "1.nc", made)
    append(url, virtual(path), join="outer")
    xr.testing.assert_equal(values(url), joined(first, xr.load_dataset(path)))
    with xr.open_dataset(url, engine="virtualstack", absent="raise") as opened:
        for name, time in (("rain", -1), ("wind", 0)):
            with pytest.raises(vs.errors.StorageError, match="ABSENT"):
                opened[name].isel(time=time).load()


def test_labels_that_the_store_lacks_are_added_or_left_out_by_name(tmp_path, url):
    """With ``join``, and are an error without it."""

    def file(time, levels):
        made = xr.Dataset(
            {"v": (("time", "level"), [[10.0 * time + x for x in levels]])}, {"time": [time], "level": levels}
        )
        made.to_netcdf(tmp_path / f"{time}.nc", engine="netcdf4", encoding={"v": {"chunksizes": (1, 1)}})
        return virtual(tmp_path / f"{time}.nc")

    file(0, [1, 2]).virtual.to_vstack(url)
    part = file(1, [1, 2, 5, 7])
    with pytest.raises(CombineError, match="coordinate 'level' differs") as caught:
        append(url, part)
    assert (caught.value.variable, caught.value.property) == ("level", "labels")
    append(url, part, join="left")
    np.testing.assert_array_equal(values(url).v, [[1, 2], [11, 12]])
    append(url, file(2, [7, 2]), join="outer")
    np.testing.assert_array_equal(values(url).v, [[1, 2, np.nan], [11, 12, np.nan], [np.nan, 22, 27]])
    np.testing.assert_array_equal(values(url).level, [1, 2, 7])


def test_a_group_without_the_dimension_must_be_the_same(tmp_path, url):
    """Its variables are not appended to, so other values would be lost."""

    def tree(time, height):
        made = xr.DataTree.from_dict(
            {"/data": xr.Dataset({"v": ("time", [1.0 * time])}, {"time": [time]}), "/site": xr.Dataset({"h": height})}
        )
        made.to_netcdf(tmp_path / f"{time}.nc", engine="netcdf4")
        return vs.open_virtual_datatree(tmp_path / f"{time}.nc")

    tree(0, 100).virtual.to_vstack(url)
    tree(1, 100).virtual.to_vstack(url, append_dim="time")
    with pytest.raises(CombineError, match=r"'/?(site/)?h' is in a group without the dimension") as caught:
        tree(2, 101).virtual.to_vstack(url, append_dim="time")
    assert caught.value.right_url is not None
    assert n_snapshots(url) == 2


@pytest.mark.parametrize("join", ["left", "outer"])
def test_a_late_file_fills_what_the_appended_one_lacked(tmp_path, url, join):
    """Its labels are ABSENT, as after an update."""

    def file(time, levels):
        made = xr.Dataset(
            {"v": (("time", "level"), 10.0 * time + np.array([levels]))}, {"time": [time], "level": levels}
        )
        made.to_netcdf(tmp_path / f"{time}{levels}.nc", engine="netcdf4", encoding={"v": {"chunksizes": (1, 1)}})
        return tmp_path / f"{time}{levels}.nc"

    whole, part, late = file(0, [1, 2]), file(1, [1]), file(1, [2])
    virtual(whole).virtual.to_vstack(url)
    append(url, virtual(part), join=join)
    with xr.open_dataset(url, engine="virtualstack", absent="raise") as opened:
        assert opened.v.isel(level=0).values.tolist() == [1, 11]
        with pytest.raises(vs.errors.StorageError, match="ABSENT"):
            opened.v.load()
    np.testing.assert_array_equal(values(url).v, [[1, 2], [11, np.nan]])
    vs.Repository.open(url).update([late], dim="time", join=join)
    assert values(url).v.values.tolist() == [[1, 2], [11, 12]]


@pytest.mark.parametrize("ordered", [True, False])
def test_labels_of_another_kind_are_refused(tmp_path, url, ordered):
    """Dates of another calendar, or bytes behind text, which have no order among them."""

    def file(name, labels):
        xr.Dataset({"v": ("time", np.arange(2.0))}, {"time": labels}).to_netcdf(tmp_path / name, engine="netcdf4")
        return virtual(str(tmp_path / name))

    def dates(calendar):
        return xr.date_range("2001-01-01", periods=2, calendar=calendar, use_cftime=True)

    kinds = [(dates("noleap"), dates("360_day")), (np.array(["a", "b"], object), np.array([b"c", b"d"]))]
    for i, (first, second) in enumerate(kinds):
        file(f"{i}.nc", first).virtual.to_vstack(f"{url}{i}")
        with pytest.raises(
            CombineError, match=r"'time' (are of several kinds|has dates of several calendars)"
        ) as caught:
            append(f"{url}{i}", file("other.nc", second), ordered=ordered)
        assert (str(caught.value.left), str(caught.value.right)) in (
            (str(first[0]), str(second[0])),
            ("cftime, calendar 'noleap'", "cftime, calendar '360_day'"),
        )
        assert str(caught.value.right_url).endswith("other.nc")
        assert n_snapshots(f"{url}{i}") == 1


def test_numbers_without_a_missing_value_become_floats(tmp_path, url):
    """As in xarray, but where the user names a number that they read as."""
    first, second = dataset([0, 1]), dataset([2], seed=1)
    first["count"] = ("time", np.array([1, 2], "i4"))
    virtual(write(tmp_path / "0.nc", first)).virtual.to_vstack(url)
    part = virtual(write(tmp_path / "1.nc", second))
    append(url, part, join="outer", combine_options={"fill_value": {"count": -7}})
    np.testing.assert_array_equal(values(url)["count"], [1, 2, -7])
    later = virtual(write(tmp_path / "2.nc", dataset([3], seed=1)))
    append(url, later, join="outer")
    found = values(url)["count"]
    np.testing.assert_array_equal(found, [1, 2, -7, np.nan])
    assert found.dtype == np.float64


def test_attributes_that_differ_can_stay_as_the_store_has_them(tmp_path, url, first):
    """The error advises it."""
    made = dataset([9], seed=1)
    made["mask"] = made["mask"] + 1
    part = virtual(write(tmp_path / "1.nc", made))
    with pytest.raises(
        CombineError, match=r"'mask' .* keep the values of the store, .* combine_options={'compat': 'override'}"
    ):
        append(url, part)
    append(url, part, combine_options={"compat": "override"})
    np.testing.assert_array_equal(values(url)["mask"], first["mask"])


def test_labels_of_other_dimensions_can_be_the_stores(tmp_path, url, first):
    """What lacks some is missing there."""
    made = dataset([9], seed=1)
    part = virtual(write(tmp_path / "1.nc", made)).isel(lat=slice(0, 3))
    with pytest.raises(CombineError, match="coordinate 'lat' differs"):
        append(url, part)
    append(url, part, join="left", combine_options={"compat": "override"})
    found = values(url).isel(time=-1)
    assert bool(found["t"].isel(lat=slice(3, None)).isnull().all())
    np.testing.assert_array_equal(found["t"].isel(lat=slice(0, 3)), made["t"].isel(time=0, lat=slice(0, 3)))


def test_loaded_variables_grow(tmp_path, url):
    """Small ones in the bundle, others by the part that is new; packed ones as the store packs them."""
    names = ["time", "lat", "lon", "rain"]
    paths = [write(tmp_path / f"{i}.nc", dataset(range(4 * i, 4 * i + 4), seed=i)) for i in range(3)]
    virtual(paths[0], loadable_variables=names).virtual.to_vstack(url)
    append(url, virtual(paths[1], loadable_variables=names))
    append(url, virtual(paths[2]))
    parts = [xr.load_dataset(path) for path in paths]
    check(url, joined(*parts))
    assert not isinstance(vs.open_virtual_dataset(url)["rain"].variable._data, vs.ManifestArray)


def test_large_loaded_variables_grow_by_what_is_new(tmp_path, url):
    """Not the whole of them is written again."""
    paths = []
    for i in range(3):
        made = dataset(range(i, i + 1), seed=i).drop_vars(["rain", "t"])
        made["bulk"] = (("time", "n"), np.random.default_rng(i).random((1, 20_000)))
        paths.append(write(tmp_path / f"{i}.nc", made, bulk={"zlib": False, "chunksizes": [1, 20_000]}))
    names = ["time", "lat", "lon", "bulk"]
    virtual(paths[0], loadable_variables=names).virtual.to_vstack(url)
    append(url, virtual(paths[1], loadable_variables=names))
    before = objects(url)
    append(url, virtual(paths[2], loadable_variables=names))
    written = sum(len(data) for name, data in objects(url).items() if name not in before)
    assert written < 20_000 * 8 * 1.2
    check(url, joined(*(xr.load_dataset(path) for path in paths)))


def test_trees_are_appended_group_by_group(tmp_path, url):
    """Groups without the dimension must be the same."""

    def tree(i):
        path = tmp_path / f"{i}.nc"
        xr.DataTree.from_dict(
            {
                "/": dataset(range(2 * i, 2 * i + 2), seed=i).drop_vars(["rain", "mask"]),
                "/more": dataset(range(2 * i, 2 * i + 2), seed=10 + i)[["rain"]].drop_vars(["time", "lat"]),
                "/fixed": xr.Dataset({"area": ("cell", np.arange(3.0))}),
            }
        ).to_netcdf(path, engine="netcdf4")
        return path

    paths = [tree(0), tree(1)]
    vs.open_virtual_datatree(paths[0]).virtual.to_vstack(url)
    vs.open_virtual_datatree(paths[1]).virtual.to_vstack(url, append_dim="time")
    found = xr.open_datatree(url, engine="virtualstack")
    for path in ("/", "/more"):
        parts = [xr.open_datatree(p)[path].to_dataset().load() for p in paths]
        xr.testing.assert_equal(found[path].to_dataset().load(), joined(*parts))
    np.testing.assert_array_equal(found["fixed/area"], np.arange(3.0))


def test_trees_with_other_groups_are_refused(tmp_path, url, first):
    """By the group that is not in both."""
    part = virtual(write(tmp_path / "1.nc", dataset([9], seed=1)))
    tree = xr.DataTree.from_dict({"/": part, "/odd": part})
    with pytest.raises(CombineError, match="group '/odd' is in"):
        tree.virtual.to_vstack(url, append_dim="time")


def test_two_who_append(tmp_path, url, first, monkeypatch):
    """The one who comes late stands behind the other, if its labels do."""
    parts = [virtual(write(tmp_path / f"{i}.nc", dataset([9 + i], seed=i))) for i in (1, 2)]
    before_next_call(monkeypatch, Stored, "write", lambda: append(url, parts[1]))
    with pytest.raises(CombineError, match="the labels of 'time' to append start at"):
        append(url, parts[0])
    assert values(url).sizes["time"] == 6
    last = [virtual(write(tmp_path / f"{i}.nc", dataset([9 + i], seed=i))) for i in (3, 4)]
    before_next_call(monkeypatch, Stored, "write", lambda: append(url, last[0]))
    append(url, last[1])
    assert values(url).sizes["time"] == 8


def test_there_must_be_a_store(tmp_path, url):
    """To append to; and options are checked."""
    part = virtual(write(tmp_path / "1.nc", dataset([9], seed=1)))
    with pytest.raises(SourceNotFoundError, match="not a vstack"):
        append(url, part)
    part.virtual.to_vstack(url)
    for options, match in (
        ({"mode": "w"}, "append_dim='time', region=None and mode='w' are different ways"),
        ({"join": "inner"}, "join='inner'"),
        ({"combine_options": {"coords": "all"}}, "combine_options has"),
    ):
        with pytest.raises(ValueError, match=match):
            append(url, part, **options)


@pytest.mark.parametrize("mode", ["r+", "x", None])
def test_other_modes_do_not_replace_what_is_there(url, first, mode):
    """Such as those of zarr."""
    with pytest.raises(ValueError, match=r"mode=.*; it must be 'w-', 'w' or 'a'\. .* append_dim="):
        virtual(url).isel(time=slice(0, 1)).virtual.to_vstack(url, mode=mode)
    check(url, first)


@pytest.mark.parametrize("dim", [["time"], 3, "step"])
def test_a_dimension_is_named(url, first, dim):
    """One that is there; a list of one is none."""
    with pytest.raises(CombineError, match=rf"has no dimension {re.escape(repr(dim))} to add along; it has"):
        virtual(url).virtual.to_vstack(url, append_dim=dim)


def packed(path, time, scale, **attributes):
    """Write two packed numbers, beside the same numbers in another packing of every file."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createVariable("time", "i4", ("time",))[:] = [time, time + 1]
        for name, dtype in (("p", "i2"), ("same", "i2"), ("when", "i4")):
            variable = file.createVariable(name, dtype, ("time",), fill_value=-9)
            variable.setncatts({"scale_factor": scale if name == "p" else 0.5, "add_offset": 7.0, **attributes})
            if name == "when":
                variable.setncatts({"units": f"days since 2000-01-0{time + 1}"})
                variable.delncattr("scale_factor")
                variable.delncattr("add_offset")
            variable.set_auto_maskandscale(False)
            variable[:] = [3 + time, -9]
    return path


@pytest.mark.parametrize("how", [True, "differing"])
def test_packed_files_are_unpacked_as_the_store_is(how, tmp_path, url):
    """Whatever the option with which they are opened; what the store has packed stays packed."""
    paths = [packed(tmp_path / f"{i}.nc", 2 * i, 0.25 * (i + 1)) for i in range(5)]
    vs.open_virtual_mfdataset(paths[:2], unpack=how).virtual.to_vstack(url)
    append(url, vs.open_virtual_dataset(paths[2]))
    append(url, vs.open_virtual_mfdataset([paths[3]], unpack="differing"))
    vs.Repository.open(url).update([paths[4]], dim="time")
    stored = vs.open_virtual_dataset(url)
    assert (stored["p"].dtype, stored["same"].dtype) == (np.float64, np.float64 if how is True else np.int16)
    found = xr.open_dataset(url, engine="virtualstack").load()
    expected = xr.concat([xr.load_dataset(path, engine="netcdf4") for path in paths], "time", data_vars="all")
    xr.testing.assert_equal(found, expected)


def test_an_unpacked_file_is_added_to_a_packed_store(tmp_path, url):
    """The store is unpacked, too."""
    files = [packed(tmp_path / f"{i}.nc", 2 * i, 0.25) for i in range(2)]
    vs.open_virtual_dataset(files[0]).virtual.to_vstack(url)
    append(url, vs.open_virtual_dataset(files[1], unpack=True))
    found = xr.open_dataset(url, engine="virtualstack").load()
    expected = xr.concat([xr.load_dataset(path, engine="netcdf4") for path in files], "time", data_vars="all")
    xr.testing.assert_equal(found, expected)


def test_a_file_that_unpacks_to_wider_numbers_widens_the_store(tmp_path, url):
    """As xarray joins them."""
    paths = [packed(tmp_path / f"{i}.nc", 2 * i, 0.25) for i in range(2)]
    vs.open_virtual_dataset(paths[0], unpack=True)[["p"]].astype("f4").virtual.to_vstack(url)
    append(url, vs.open_virtual_dataset(paths[1])[["p"]])
    first, second = (xr.load_dataset(path, engine="netcdf4")[["p"]] for path in paths)
    found = xr.open_dataset(url, engine="virtualstack").load()
    xr.testing.assert_equal(found, xr.concat([first.astype("f4"), second], "time", data_vars="all"))
    assert found["p"].dtype == np.float64


def test_labels_of_a_converted_store_must_ascend_too(tmp_path):
    """They are references there; the last one is read, and files that are there already are an error."""
    paths = [tmp_path / f"{i}.nc" for i in range(3)]
    for i, path in enumerate(paths):
        xr.Dataset({"t": ("time", [1.0, 2.0])}, {"time": [2 * i, 2 * i + 1]}).to_netcdf(path, engine="netcdf4")
    url = tmp_path / "x.vstack"
    vs.convert(paths[0], url)
    for n in (1, 2):
        repository = vs.Repository.open(url).append(paths[n], "time")
        for late in paths[: n + 1]:
            with pytest.raises(CombineError, match=r"the labels of 'time' to append start at .* end at"):
                repository.append(late, "time")
    assert repository.open_dataset()["time"].values.tolist() == list(range(6))


def test_reversed_latitudes_are_placed_by_their_labels(tmp_path):
    """The labels of the store would turn them upside down, so that nothing advises to take them."""
    paths = [tmp_path / f"{n}.nc" for n in range(2)]
    for n, (path, y) in enumerate(zip(paths, ([10.0, 20.0], [20.0, 10.0]), strict=True)):
        xr.Dataset({"t": (("time", "y"), [y])}, {"time": [n], "y": y}).to_netcdf(path)
    repo = vs.Repository.create(tmp_path / "x.vstack", paths[0])
    with pytest.raises(CombineError, match="coordinate 'y' differs") as caught:
        repo.append(paths[1], "time")
    assert "assign_coords" not in str(caught.value)
    expected = xr.concat([xr.open_dataset(path) for path in paths], "time", join="left")
    xr.testing.assert_equal(repo.append(paths[1], "time", join="left").open_dataset(), expected)


@pytest.mark.parametrize("join", ["exact", "left", "outer"])
def test_a_file_gets_its_labels_as_the_store_did(tmp_path, join):
    """Without the variable that the labels came from it would have none, and is refused."""
    paths = [tmp_path / f"{n}.nc" for n in range(2)]
    for n, path in enumerate(paths):
        texts = np.array([b"2024-01-01_%02d:00:00" % (2 * n + k) for k in range(2)], "S19")
        xr.Dataset({"t": ("Time", [n, n]), "Times": ("Time", texts)}).to_netcdf(path)
    first = vs.open_virtual_mfdataset(paths[:1], labels={"Time": "Times"})
    repo = vs.Repository.create(tmp_path / "x.vstack", first)
    with pytest.raises(CombineError, match=r"has labels of 'Time'.* does not"):
        repo.append(paths[1], join=join, drop_variables="Times")
    found = repo.append(paths[1], join=join).open_dataset()
    np.testing.assert_array_equal(found["Time"], pd.date_range("2024-01-01", periods=4, freq="h"))
    np.testing.assert_array_equal(found["t"], [0, 0, 1, 1])
