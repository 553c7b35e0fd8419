"""``Repository.update`` with files that have a part of a run: what they lack stays as it is."""

import itertools
import os
from functools import reduce

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import load as values
from virtualstack.errors import CombineError, WriterError


def piece(folder, run, steps, *, seed=0, name=None, **attributes):
    """Write some steps of a forecast run; values tell run, step and seed."""
    values = 100.0 * run + np.array(steps, "f8")[None, :, None] + seed / 10 + np.zeros((1, len(steps), 4))
    made = xr.Dataset(
        {"t": (("time", "step", "x"), values), "valid": (("time", "step"), run + np.array([steps], "f8"))},
        {"time": [run], "step": list(steps), "x": np.arange(4.0)},
        attrs=attributes,
    )
    path = folder / (name or f"run{run}_{'_'.join(map(str, steps))}_{seed}.nc")
    made.to_netcdf(path, engine="netcdf4", encoding={"t": {"chunksizes": (1, 1, 4)}})
    return str(path)


@pytest.fixture
def url(tmp_path):
    """A store of the steps 0, 3 and 6 of one run."""
    made = str(tmp_path / "x.vstack")
    vs.open_virtual_dataset(piece(tmp_path, 0, [0, 3, 6])).virtual.to_vstack(made)
    return made


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("join", ["left", "outer"])
def test_a_run_that_arrives_in_pieces_is_whole(tmp_path, url, join, at_once):
    """A later piece leaves the steps that an earlier one had."""
    paths = [piece(tmp_path, 1, [0, 3]), piece(tmp_path, 1, [6])]
    for each in [paths] if at_once else paths:
        vs.Repository.open(url).update(each, dim="time", join=join)
    found = values(url)
    assert found["t"].sel(time=1, x=0).values.tolist() == [100, 103, 106]
    assert found["valid"].sel(time=1).values.tolist() == [1, 4, 7]
    store = vs.Repository.open(url)
    assert store.update(paths, dim="time", join=join).snapshot is store.snapshot


def test_new_steps_are_added_and_left_where_they_have_not_come(tmp_path, url):
    """``join="outer"`` gives the store the steps of a file; steps that no file has are missing."""
    path = piece(tmp_path, 1, [3, 9, 4])
    vs.Repository.open(url).update(path, dim="time", join="outer")
    found = values(url)
    wanted = xr.load_dataset(tmp_path / "run0_0_3_6_0.nc").combine_first(xr.load_dataset(path))
    xr.testing.assert_equal(found, wanted)


def test_any_pieces_in_any_order(tmp_path, url):
    """A store that is filled piece by piece holds what xarray joins."""
    rng = np.random.default_rng(5)
    cells = [(run, step) for run in range(1, 5) for step in (0, 3, 6, 9)]
    rng.shuffle(cells)
    paths = [piece(tmp_path, int(run), [int(step)]) for run, step in cells]
    for i in range(0, len(paths), 3):
        vs.Repository.open(url).update(paths[i : i + 3], dim="time", join="outer")
    parts = [xr.load_dataset(path) for path in [tmp_path / "run0_0_3_6_0.nc", *paths]]
    xr.testing.assert_equal(values(url), reduce(xr.Dataset.combine_first, parts))


def test_other_steps_are_refused_unless_told(tmp_path, url):
    """By default labels of other dimensions are the store's, and the error names what to do."""
    with pytest.raises(CombineError, match=r"'step' differs.*add them with join='outer'"):
        vs.Repository.open(url).update(piece(tmp_path, 1, [6]), dim="time")
    with pytest.raises(CombineError, match=r"has no label of 'step'.*Add its labels with join='outer'"):
        vs.Repository.open(url).update(piece(tmp_path, 1, [9]), dim="time", join="left")


def test_labels_that_differ_by_rounding_are_refused(tmp_path, url):
    """They would be other places, side by side with those of the store."""
    odd = xr.load_dataset(piece(tmp_path, 1, [0, 3, 6])).assign_coords(x=np.arange(4.0) + 1e-9)
    odd.to_netcdf(tmp_path / "odd.nc")
    with pytest.raises(CombineError, match=r"'x' differs.*assign_coords\(x="):
        vs.Repository.open(url).update(str(tmp_path / "odd.nc"), dim="time", join="outer")


def test_holes_of_a_part_leave_what_is_there(tmp_path, url):
    """ABSENT chunks of a joined dataset are no values of its files."""
    paths = [str(tmp_path / "run0_0_3_6_0.nc"), piece(tmp_path, 1, [3])]
    holed = vs.open_virtual_mfdataset(paths, join="outer")
    vs.Repository.open(url).update(piece(tmp_path, 1, [0, 3, 6]), dim="time")
    vs.Repository.open(url).update(holed[["t"]], dim="time", prefer="last")
    assert values(url)["t"].sel(time=1, x=0).values.tolist() == [100, 103, 106]


# -- which source counts --------------------------------------------------------------------------------------


def test_labels_from_another_source_are_refused(tmp_path, url):
    """A late original does not replace what was processed again, and nothing is written."""
    late = piece(tmp_path, 0, [3], seed=5)
    store = vs.Repository.open(url)
    with pytest.raises(CombineError, match=r"'t' has values at time 0, step 3 from .*'first' keeps"):
        store.update(late, dim="time", join="left")
    assert vs.Repository.open(url).snapshot.number == store.snapshot.number


@pytest.mark.parametrize(
    ("prefer", "wins"),
    [
        ("first", False),
        ("last", True),
        ("newest", True),
        (lambda x: x.url.endswith("_5.nc"), True),
        (lambda x: -x.last_modified.timestamp(), False),
        (lambda x: x.attributes.get("version", 0), True),
    ],
)
def test_the_preferred_source_counts(tmp_path, url, prefer, wins):
    """By order, by time of modification, by name, or by an attribute."""
    late = piece(tmp_path, 0, [3], seed=5, version=2)
    os.utime(tmp_path / "run0_0_3_6_0.nc", (1e9, 1e9))
    vs.Repository.open(url).update(str(tmp_path / "run0_0_3_6_0.nc"), dim="time")
    vs.Repository.open(url).update(late, dim="time", join="left", prefer=prefer)
    assert values(url)["t"].sel(time=0, x=0).values.tolist() == [0, 3.5 if wins else 3, 6]


def test_a_rule_that_does_not_tell_is_refused(tmp_path, url):
    """Both files have one key."""
    with pytest.raises(CombineError, match="the keys are 1 and 1"):
        vs.Repository.open(url).update(piece(tmp_path, 0, [3], seed=5), dim="time", join="left", prefer=lambda x: 1)
    with pytest.raises(ValueError, match="prefer='latest'; it must be 'first'"):
        vs.Repository.open(url).update((), dim="time", prefer="latest")


def test_two_files_of_one_call_are_refused_too(tmp_path, url):
    """Which of them counts is not known either."""
    paths = [piece(tmp_path, 1, [0, 3, 6]), piece(tmp_path, 1, [3], seed=5)]
    with pytest.raises(CombineError, match="'t' has values at time 1, step 3"):
        vs.Repository.open(url).update(paths, dim="time", join="left")
    vs.Repository.open(url).update(paths, dim="time", join="left", prefer="first")
    assert values(url)["t"].sel(time=1, x=0).values.tolist() == [100, 103, 106]


def test_a_file_that_changed_in_place_is_placed_again(tmp_path, url):
    """It is the same source, whose old chunks are gone; loaded values follow."""
    path = piece(tmp_path, 0, [0, 3, 6], seed=7, name="run0_0_3_6_0.nc")
    os.utime(path, (1e9, 1e9))
    vs.Repository.open(url).update(path, dim="time")
    assert values(url)["t"].sel(time=0, x=0).values.tolist() == [0.7, 3.7, 6.7]


def test_values_that_were_written_stay(tmp_path, url):
    """An update with the same file leaves the correction of a user."""
    store = vs.Repository.open(url).write("t", {"time": 0, "step": 1}, 42.0)
    again = store.update(str(tmp_path / "run0_0_3_6_0.nc"), dim="time")
    assert again.snapshot is store.snapshot
    assert values(url)["t"].sel(time=0, x=0).values.tolist() == [0, 42, 6]


def test_grib_messages_arrive_by_step(tmp_path):
    """Each file has one step of a run; the second update, and both files in one call."""
    pytest.importorskip("eccodes", reason="eccodes is not installed: pip install 'virtualstack[grib]'")
    from tests.data.make_grib import message

    def file(name, run, step, value):
        path = tmp_path / f"{name}.grib2"
        path.write_bytes(message({"dataDate": 20200100 + run, "step": step}, values=np.full(24, value)))
        return str(path)

    first = [file(f"a{step}", 1, step, float(step)) for step in (0, 3, 6)]
    url = str(tmp_path / "g.vstack")
    options = {"coords": ["valid_time"]}
    whole = vs.open_virtual_mfdataset(first, combine="nested", concat_dim="step", combine_options=options)
    whole = whole.reset_coords("valid_time").expand_dims("time").set_coords("valid_time")
    whole.virtual.to_vstack(url)
    second = [file(f"b{step}", 2, step, 10.0 + step) for step in (0, 3, 6)]
    vs.Repository.open(url).update(second[:2], dim="time", join="left")
    vs.Repository.open(url).update(second[2], dim="time", join="left")
    third = [file(f"c{step}", 3, step, 20.0 + step) for step in (0, 3, 6)]
    vs.Repository.open(url).update(third, dim="time", join="left")
    found = values(url)
    name = next(iter(found.data_vars))
    assert found[name].isel(latitude=0, longitude=0).values.tolist() == [[0, 3, 6], [10, 13, 16], [20, 23, 26]]


@pytest.mark.parametrize("lead", [3.0, 4.0])
def test_what_each_piece_repeats_is_taken_once(tmp_path, lead):
    """Variables along the steps alone are in every file: equal values are no conflict, and others are one."""

    def write(name, run, steps, leads):
        made = xr.Dataset(
            {"t": (("time", "step"), np.full((1, len(steps)), float(run))), "lead": ("step", leads)},
            {"time": [run], "step": steps},
        )
        made.to_netcdf(tmp_path / name, engine="netcdf4", encoding={"lead": {"chunksizes": (1,)}})
        return str(tmp_path / name)

    url = tmp_path / "x.vstack"
    vs.open_virtual_dataset(write("a.nc", 0, [0, 3], [0.0, 3.0])).virtual.to_vstack(url)
    path = write("b.nc", 1, [3, 9], [lead, 9.0])
    if lead != 3:
        with pytest.raises(CombineError, match="'lead' has values at step 3 from"):
            vs.Repository.open(url).update(path, dim="time", join="outer")
        return
    vs.Repository.open(url).update(path, dim="time", join="outer")
    assert values(url)["lead"].values.tolist() == [0, 3, 9]


def test_a_part_of_a_chunk_replaces_a_part_of_a_chunk(tmp_path):
    """Every other latitude of files whose chunks have all of them."""

    def write(name, values):
        made = xr.Dataset(
            {"v": (("time", "lat"), np.asarray(values, "f8").reshape(-1, 4))},
            {"time": np.arange(len(values) // 4), "lat": np.arange(4.0)},
        )
        made.to_netcdf(tmp_path / name, engine="netcdf4", encoding={"v": {"chunksizes": (1, 4)}})
        return vs.open_virtual_dataset(tmp_path / name)

    url = tmp_path / "x.vstack"
    write("a.nc", np.arange(12)).isel(lat=slice(1, None, 2)).virtual.to_vstack(url)
    other = write("b.nc", np.arange(100, 108))
    vs.Repository.open(url).update([other.isel(lat=slice(1, None, 2), time=[1])], dim="time", prefer="last")
    assert values(url)["v"].values.tolist() == [[1, 3], [105, 107], [9, 11]]
    vs.Repository.open(url).update([other.isel(lat=[3], time=[0])], dim="time", prefer="last", join="left")
    assert values(url)["v"].values.tolist() == [[1, 103], [105, 107], [9, 11]]


def test_parts_of_chunks_of_two_files_are_told_apart(tmp_path):
    """One begins with the first element of its chunks, and the other one with the second."""

    def write(name, values, first):
        made = xr.Dataset({"v": (("time", "lat"), np.reshape(values, (-1, 4)))}, {"time": range(len(values) // 4)})
        made.to_netcdf(tmp_path / name, engine="netcdf4", encoding={"v": {"chunksizes": (1, 4)}})
        return vs.open_virtual_dataset(tmp_path / name).isel(lat=slice(first, None, 2))

    url = tmp_path / "x.vstack"
    a, b = write("a.nc", np.arange(12.0), 1), write("b.nc", np.arange(100.0, 116.0), 0)
    a.virtual.to_vstack(url)
    part = vs.combine_datasets([a.isel(time=[0]), b.isel(time=[1, 3])], combine="nested", concat_dim="time")
    vs.Repository.open(url).update([part], dim="time", prefer="last")
    assert values(url)["v"].values.tolist() == [[1, 3], [104, 106], [9, 11], [112, 114]]


def test_values_that_come_from_no_file(tmp_path):
    """Neither a time of modification nor a function chooses between a file and values in memory."""
    cube = xr.Dataset({"r": ("time", [0.0, 1.0])}, {"time": [0, 1]})
    cube.to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    repo = vs.Repository.create(tmp_path / "r.vstack", tmp_path / "a.nc")
    for prefer in ("newest", lambda file: file.url):
        with pytest.raises(
            CombineError, match=r"from '.*a\.nc', which differ .* the values in memory; .*'last' takes the later part$"
        ):
            repo.update(cube + 5, dim="time", prefer=prefer)
    assert repo.update(cube + 5, dim="time", prefer="first").open_dataset()["r"].values.tolist() == [0.0, 1.0]
    assert repo.update(cube + 5, dim="time", prefer="last").open_dataset()["r"].values.tolist() == [5.0, 6.0]


@pytest.mark.parametrize(("join", "n"), [("left", 2), ("outer", 3)])
def test_labels_of_another_dimension_that_an_append_leaves_out_or_adds(tmp_path, join, n):
    """As ``update`` does."""
    cube = xr.Dataset({"r": (("time", "lat"), np.ones((1, 2)))}, {"time": [0], "lat": [1.0, 2.0]})
    cube.virtual.to_vstack(tmp_path / "r.vstack")
    wider = xr.Dataset({"r": (("time", "lat"), np.ones((1, 3)))}, {"time": [1], "lat": [1.0, 2.0, 3.0]})
    repo = vs.Repository.open(tmp_path / "r.vstack")
    assert repo.append(wider, "time", join=join).open_dataset().sizes == {"time": 2, "lat": n}


@pytest.mark.parametrize("mode", ["w-", "w"])
def test_a_folder_of_other_files_does_not_become_a_store(tmp_path, mode):
    """Nothing in it is touched."""
    cube = xr.Dataset({"r": ("x", [0.0])})
    cube.to_zarr(tmp_path / "a.zarr", consolidated=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(WriterError, match=r"contains other files, such as .*, but a vstack needs its own folder"):
        cube.virtual.to_vstack(tmp_path / "a.zarr", mode=mode)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("dim", ["variant_label", "time"])
def test_members_are_placed_by_their_attribute(tmp_path, dim):
    """A new member makes the store wider; a later day of a known one is placed beside it."""
    for label, day in itertools.product(("r1", "r2", "r3"), (0, 1)):
        made = xr.Dataset({"t": (("time", "x"), [[10.0 * int(label[1]) + day] * 3])}, {"time": [day], "x": [0, 1, 2]})
        made.attrs["variant_label"] = label
        made.to_netcdf(tmp_path / f"{label}_{day}.nc", engine="netcdf4", encoding={"t": {"chunksizes": (1, 3)}})
    members = {"variant_label": vs.FromAttribute("variant_label")}
    first = [tmp_path / f"{label}_0.nc" for label in ("r1", "r2")]
    url = tmp_path / "x.vstack"
    vs.open_virtual_mfdataset(first, new_dim=members).virtual.to_vstack(url)
    more = [tmp_path / "r3_0.nc"] if dim == "variant_label" else [tmp_path / "r1_1.nc", tmp_path / "r2_1.nc"]
    vs.Repository.open(url).update(more, dim=dim, join="exact" if dim == "variant_label" else "left")
    with xr.open_dataset(url, engine="virtualstack") as found:
        wanted = vs.open_virtual_mfdataset([*first, *more], new_dim=members).virtual.open()
        xr.testing.assert_equal(found.transpose(*wanted["t"].dims), wanted)
