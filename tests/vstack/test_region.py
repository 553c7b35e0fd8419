"""``to_vstack(..., region=)``: overlays on the chunks that there are, all checked first."""

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.watching import before_next_call
from tests.vstack.growing import begin, check, dataset, objects, values, virtual, write, write_tree
from virtualstack.errors import ChunkAlignmentError, CombineError, ConflictError
from virtualstack.vstack.save import Stored


@pytest.fixture
def first(url):
    """A store of seven days, in chunks of two days, 3 latitudes and 4 longitudes."""
    return begin(url, range(7))


def place(url, part, region, **options):
    part.virtual.to_vstack(url, region=region, **options)


def overwritten(model, part, region):
    """Put values of a dataset over a box of a model."""
    model = model.copy(deep=True)
    for name in part.data_vars:
        box = {dim: item for dim, item in region.items() if dim in model[name].dims}
        if box:
            whole = xr.Variable(model[name].dims, np.array(model[name].values), model[name].attrs, model[name].encoding)
            whole[box] = part[name].transpose(*(d for d in model[name].dims if d in part[name].dims)).values
            model[name] = whole
    return model


def test_any_whole_chunks_are_overwritten(tmp_path, url, first):
    """Of some variables or all, once and again; every snapshot reads as it was."""
    rng = np.random.default_rng(8)
    model, states = first, [first]
    for i in range(12):
        start = 2 * int(rng.integers(0, 4))
        stop = min(2 * int(rng.integers(start // 2 + 1, 5)), 7)
        made = dataset(range(start, stop), seed=100 + i)
        region = {"time": slice(start, stop)}
        if rng.random() < 0.4:
            made, region["lat"] = made.isel(lat=slice(3, 6)), slice(3, None)
        if rng.random() < 0.3:
            made = made.drop_vars("rain")
        made = made.drop_vars("mask")
        chunks = [2, 3, 4] if rng.random() < 0.5 else [4, 6, 8]
        path = write(tmp_path / f"part{i}.nc", made, t={"chunksizes": chunks})
        place(url, virtual(path), "auto" if rng.random() < 0.3 else region)
        model = overwritten(model, xr.load_dataset(path), region)
        states.append(model)
        check(url, model)
    for at, state in enumerate(states):
        check(url, state, at)


def test_nothing_old_is_written_again(tmp_path, url, first):
    """One segment and one snapshot."""
    before = objects(url)
    path = write(tmp_path / "1.nc", dataset([2, 3], seed=1))
    place(url, virtual(path), {"time": slice(2, 4)})
    after = objects(url)
    assert all(after[name] == data for name, data in before.items())
    assert {name.split("/")[1] for name in after.keys() - before.keys()} == {"segments", "snapshots"}
    xr.testing.assert_equal(values(url).isel(time=slice(2, 4)), xr.load_dataset(path))


def test_a_single_element_may_lack_the_dimension(tmp_path, url):
    """As a file of one step has it."""
    paths = [write(tmp_path / f"{i}.nc", dataset([i], seed=i)) for i in range(3)]
    vs.open_virtual_mfdataset(paths).virtual.to_vstack(url)
    path = write(tmp_path / "1.nc", dataset([1], seed=7))
    place(url, virtual(path).isel(time=0), {"time": 1})
    xr.testing.assert_equal(values(url).isel(time=[1]), xr.load_dataset(path))


def test_loaded_variables_are_overwritten(tmp_path, url):
    """Whatever their chunks were."""
    names = ["time", "lat", "lon", "rain"]
    path = write(tmp_path / "0.nc", dataset(range(5)))
    virtual(path, loadable_variables=names).virtual.to_vstack(url)
    other = write(tmp_path / "1.nc", dataset([1, 2], seed=1)[["rain"]])
    place(url, virtual(other), {"time": slice(1, 3)})
    check(url, overwritten(xr.load_dataset(path), xr.load_dataset(other), {"time": slice(1, 3)}))


def test_coordinates_without_labels_count_by_their_length(tmp_path, url, first):
    """A region names elements."""
    path = write(tmp_path / "1.nc", dataset([2, 3], seed=1).drop_vars(["time", "mask"]))
    place(url, virtual(path), {"time": slice(4, 6)})
    np.testing.assert_array_equal(values(url)["t"][4:6], xr.load_dataset(path)["t"])
    with pytest.raises(CombineError, match=r"'(t|rain)' has shape \(2, 6.* has \(1, 6"):
        place(url, virtual(path), {"time": slice(6, 8)})


@pytest.mark.parametrize(
    ("days", "region", "chunks", "match"),
    [
        ([1, 2], {"time": slice(1, 3)}, [2, 3, 4], "begins or ends at element 1 of 'time', within a chunk|end at"),
        ([2, 3, 4], {"time": slice(2, 5)}, [2, 3, 4], "begins or ends at element 5 of 'time', within a chunk"),
        ([2, 3], {"time": slice(2, 4)}, [1, 3, 4], "'t' end at element 1 of 'time'"),
        ([2, 3], {"time": slice(2, 4)}, [2, 2, 4], "'t' end at element 2 of 'lat'"),
    ],
)
def test_chunks_must_meet(tmp_path, url, first, days, region, chunks, match):
    """Nothing is written."""
    path = write(tmp_path / "1.nc", dataset(days, seed=1), t={"chunksizes": chunks})
    before = objects(url)
    with pytest.raises(ChunkAlignmentError, match=match):
        place(url, virtual(path), region)
    assert objects(url) == before


@pytest.mark.parametrize(
    ("change", "region", "match"),
    [
        (lambda x: x, {"time": slice(4, 6)}, "coordinate 'time' differs .*reindex$"),
        (
            lambda x: x.assign_coords(lat=x["lat"] + 1),
            {"time": slice(2, 4)},
            "coordinate 'lat' differs .*The labels of a region cannot change",
        ),
        (lambda x: x.assign(snow=x["t"]), {"time": slice(2, 4)}, "has variable 'snow' and"),
        (lambda x: x.assign(mask=x["mask"] + 1), {"time": slice(2, 4)}, "'mask' has none of the dimensions"),
        (lambda x: x.assign(t=x["t"].astype("f8")), {"time": slice(2, 4)}, "'t' has dtype"),
        (lambda x: x, {"step": 1}, r"region names \['step'\]"),
        (lambda x: x.assign_coords(time=x["time"] + np.timedelta64(30, "D")), "auto", "does not have the label"),
        (lambda x: x.drop_vars("time"), {"time": "auto"}, "finds the position along 'time' by labels"),
    ],
)
def test_datasets_that_do_not_fit_are_refused(tmp_path, url, first, change, region, match):
    """The error names both, and nothing is written."""
    path = write(tmp_path / "1.nc", change(dataset([2, 3], seed=1)))
    before = objects(url)
    with pytest.raises(CombineError, match=match):
        place(url, virtual(path), region)
    assert objects(url) == before


def test_the_side_without_labels_is_named(tmp_path, url, first):
    """``left`` is the store, ``right`` the dataset."""
    part = virtual(write(tmp_path / "1.nc", dataset([10], seed=1)))
    with pytest.raises(CombineError, match="both have labels") as caught:
        part.drop_vars("time").virtual.to_vstack(url, region={"time": "auto"})
    assert (caught.value.left, caught.value.right) == (True, False)
    part[["t"]].drop_vars("time").virtual.to_vstack(tmp_path / "y.vstack")
    with pytest.raises(CombineError, match="both have labels") as caught:
        part[["t"]].virtual.to_vstack(tmp_path / "y.vstack", region={"time": "auto"})
    assert (caught.value.left, caught.value.right) == (False, True)


def test_labels_that_are_there_twice_tell_no_place(tmp_path, url):
    """The elements can be named instead."""
    virtual(write(tmp_path / "0.nc", dataset([0, 1, 1, 2]))).virtual.to_vstack(url)
    path = write(tmp_path / "1.nc", dataset([1, 2], seed=1))
    with pytest.raises(CombineError, match=r"has label 2000-01-02 00:00:00 of 'time' more than once"):
        place(url, virtual(path), "auto")
    place(url, virtual(path), {"time": slice(2, 4)})
    np.testing.assert_array_equal(values(url)["t"][2:], xr.load_dataset(path)["t"])


def test_options_are_checked(tmp_path, url, first):
    """Before anything is read."""
    part = virtual(write(tmp_path / "1.nc", dataset([2, 3], seed=1)))
    for region, options, error, match in (
        ({"time": slice(2, 4)}, {"append_dim": "time"}, ValueError, "Give only one of them"),
        ({"time": slice(2, 6, 2)}, {}, ValueError, "without a step"),
        ({"time": 9}, {}, IndexError, "index 9 is out of bounds"),
        *(
            (x, {}, ValueError, f"region={re.escape(repr(x))}; it must be 'auto', or a mapping")
            for x in ("all", 3, ["time"])
        ),
        ("auto", {"join": "left"}, ValueError, "join='left' and ordered=True require append_dim="),
    ):
        with pytest.raises(error, match=match):
            place(url, part, region, **options)
    with pytest.raises(ValueError, match="combine_options= requires"):
        part.virtual.to_vstack(url, mode="w", combine_options={"compat": "override"})


def test_what_lies_in_the_store_is_copied_within_it(tmp_path, url, first):
    """References of other elements, and chunks that begin within a stored one."""
    stored = vs.open_virtual_dataset(url)[["t"]].isel(time=slice(0, 2)).drop_vars("time")
    place(url, stored, {"time": slice(4, 6)})
    np.testing.assert_array_equal(values(url)["t"][4:6], first["t"][:2])
    part = virtual(str(tmp_path / "0.nc"))[["t"]].isel(time=slice(3, 4)).drop_vars("time")
    place(url, part, {"time": 6})
    np.testing.assert_array_equal(values(url)["t"][6], first["t"][3])


def test_writers_of_other_regions_both_succeed(tmp_path, url, first, monkeypatch):
    """Of the same region, one is told."""
    paths = [write(tmp_path / f"part{i}.nc", dataset([2 * i, 2 * i + 1], seed=i)) for i in range(3)]

    def place_all(numbers):
        for i in numbers:
            place(url, virtual(paths[i]), {"time": slice(2 * i, 2 * i + 2)})

    before_next_call(monkeypatch, Stored, "write", lambda: place_all([0, 2]))
    place_all([1])
    for i in range(3):
        np.testing.assert_array_equal(values(url)["t"][2 * i : 2 * i + 2], xr.load_dataset(paths[i])["t"])
    before_next_call(monkeypatch, Stored, "write", lambda: place_all([1]))
    with pytest.raises(ConflictError, match="the same chunks of variable"):
        place_all([1])


def test_groups_of_trees_are_overwritten(tmp_path, url):
    """Each where it has the dimension."""
    paths = [write_tree(tmp_path / f"{i}.nc", [0, 1, 2], i) for i in range(2)]
    vs.open_virtual_datatree(paths[0]).virtual.to_vstack(url)
    vs.open_virtual_datatree(paths[1]).virtual.to_vstack(url, region={"time": slice(0, 3)})
    found = xr.open_datatree(url, engine="virtualstack")
    for name in ("a", "b"):
        xr.testing.assert_equal(found[name].to_dataset().load(), xr.open_datatree(paths[1])[name].to_dataset().load())


@pytest.mark.parametrize("region", ["auto", {"time": "auto"}])
def test_groups_have_the_labels_of_those_above(tmp_path, url, region):
    """A group without a coordinate is placed by that of the group that it lies in, as a tree inherits it."""

    def tree(i, days):
        made = dataset(days, seed=i)
        nodes = {"/": made[["t"]], "/a/b": made[["rain"]].drop_vars(["time", "lat"])}
        path = tmp_path / f"{i}.nc"
        one = {"t": {"chunksizes": [1, 6, 8]}, "rain": {"chunksizes": [1, 6]}}
        encoding = {node: {name: one[name] for name in made.data_vars} for node, made in nodes.items()}
        xr.DataTree.from_dict(nodes).to_netcdf(path, engine="netcdf4", encoding=encoding)
        return path

    paths = [tree(0, range(4)), tree(1, [1, 2])]
    vs.open_virtual_datatree(paths[0]).virtual.to_vstack(url)
    vs.open_virtual_datatree(paths[1]).virtual.to_vstack(url, region=region)
    found = xr.open_datatree(url, engine="virtualstack")
    for path, name in (("/", "t"), ("/a/b", "rain")):
        old, new = (xr.open_datatree(x)[path][name] for x in paths)
        np.testing.assert_array_equal(found[path][name], xr.concat([old[:1], new, old[3:]], "time"))


@pytest.mark.parametrize("region", ["auto", {"site": slice(1, 3)}])
def test_longer_text_is_not_cut(tmp_path, url, region):
    """In variables whose values stand in the store, text has the length of the longest."""
    made = xr.Dataset({"name": ("site", ["a", "b", "c"]), "v": ("site", [1.0, 2.0, 3.0])}, {"site": [1, 2, 3]})
    made.virtual.to_vstack(url)
    part = made.isel(site=[1, 2]).assign(name=("site", ["a long name", "z"]))
    place(url, part, region)
    check(url, made.assign(name=("site", ["a", "a long name", "z"])))


def test_what_is_missing_leaves_what_is_there(tmp_path, url, first):
    """Chunks of a file that is gone, in the store that is placed, keep the values that are there for them."""
    made = [dataset(days, seed=5 + days[0])[["t"]] for days in ([0, 1], [2, 3])]
    paths = [write(tmp_path / f"part{i}.nc", part) for i, part in enumerate(made)]
    vs.open_virtual_mfdataset(paths).virtual.to_vstack(tmp_path / "part.vstack")
    Path(paths[1]).unlink()
    vs.Repository.open(tmp_path / "part.vstack").refresh(missing="mask")
    part = vs.open_virtual_dataset(tmp_path / "part.vstack")
    assert part["t"].variable._data.in_memory().summary().n_absent
    place(url, part, {"time": slice(0, 4)})
    xr.testing.assert_equal(values(url), overwritten(first, made[0], {"time": slice(0, 2)}))
