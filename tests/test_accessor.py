"""``.virtual`` of datasets and of trees has the same members, which do the same to each group."""

import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs


@pytest.fixture
def path(tmp_path):
    """Write a file with two groups, of which the second inherits a coordinate."""
    url = tmp_path / "a.nc"
    time = xr.Dataset({"a": ("time", np.arange(4.0))}, {"time": [0, 1, 2, 3]})
    inner = xr.Dataset({"b": (("time", "y"), np.arange(8, dtype="i2").reshape(4, 2))})
    inner["b"].encoding = {"_FillValue": np.int16(-1)}
    xr.DataTree.from_dict({"/": time, "/g": inner}).to_netcdf(url, engine="netcdf4")
    return str(url)


@pytest.fixture
def tree(path):
    return vs.open_virtual_datatree(path)


def test_members_are_the_same(tree):
    """So are their parameters; no private name is shown."""
    of_tree, of_dataset = tree.virtual, tree.to_dataset().virtual
    assert dir(of_tree) == dir(of_dataset)
    assert not [name for name in dir(of_tree) if name.startswith("_")]
    assert {"load", "report", "locations", "nrefs", "reindex", "to_vstack"} <= set(dir(of_tree))
    for name in set(dir(of_tree)) - {"locations", "nbytes", "nrefs"}:
        pair = [inspect.signature(getattr(x, name)).parameters for x in (of_tree, of_dataset)]
        assert list(pair[0]) == list(pair[1]), name
        assert [x.kind for x in pair[0].values()] == [x.kind for x in pair[1].values()], name


def test_loading(tree, path):
    """Variables are named by path."""
    loaded = tree.virtual.load(["g/b", "a"])
    assert loaded.virtual.nrefs == 0
    with xr.open_datatree(path, engine="netcdf4") as expected:
        np.testing.assert_array_equal(loaded["g/b"].values, expected["g/b"].values)
        np.testing.assert_array_equal(loaded["a"].values, expected["a"].values)
    assert tree.virtual.load("/g/b")["a"].variable._data is not None
    with pytest.raises(KeyError, match="no group 'h' for variable 'h/b'"):
        tree.virtual.load("h/b")
    with pytest.raises(KeyError):
        tree.virtual.load("g/a")


def test_labels(tree, path):
    """Groups that inherit a coordinate follow its new labels, with the values that xarray has."""
    changed = tree.virtual.reindex(time=[3, 1, 9], fill_value={"a": -5.0})
    with xr.open_datatree(path, engine="netcdf4") as expected:
        inner = expected["g"].to_dataset().reindex(time=[3, 1, 9])
    found = changed.virtual.open()
    np.testing.assert_array_equal(found["g/b"].values, inner["b"].values)
    np.testing.assert_array_equal(found["a"].values, [3, 1, -5])
    assert "time" not in found["g"].to_dataset(inherit=False).coords
    with pytest.raises(ValueError, match=r"labels were given for \['z'\], but no group of the tree has such"):
        tree.virtual.reindex(z=[1])


def test_labels_of_a_coordinate_that_no_variable_has():
    """It stays where other dimensions get other labels, as with xarray."""
    dataset = xr.Dataset({"a": ("x", [1.0, 2.0])}, {"x": [0, 1], "t": [5, 6, 7]})
    xr.testing.assert_identical(dataset.virtual.reindex(x=[1, 2]), dataset.reindex(x=[1, 2]))


def test_facts(tree, path):
    """Those of all groups together, as of each alone."""
    alone = [vs.open_virtual_dataset(path, group=group).virtual for group in (None, "g")]
    assert tree.virtual.nrefs == sum(x.nrefs for x in alone) == 2
    assert tree.virtual.nbytes == sum(x.nbytes for x in alone)
    assert tree.virtual.locations["refs"].tolist() == [2]
    assert tree.virtual.locations["bytes"].tolist() == [sum(x.locations["bytes"][0] for x in alone)]
    assert dict(zip(*tree.virtual.report()[["variable", "state"]].values.T, strict=True)) == {
        "a": "virtual",
        "time": "loaded",
        "g/b": "virtual",
    }


def test_locations_are_renamed(tree):
    """In all groups."""
    renamed = tree.virtual.rename_locations(lambda url: url.replace("a.nc", "b.nc"))
    assert [url.rpartition("/")[2] for url in renamed.virtual.locations["url"]] == ["b.nc"]
    assert [url.rpartition("/")[2] for url in tree.virtual.locations["url"]] == ["a.nc"]


def test_values_are_overwritten(tree, tmp_path):
    """Those of one variable, by its path."""
    written = tree.virtual.write("g/b", {"time": 0}, 7, to=tmp_path / "new")
    assert written.virtual.open()["g/b"].values[0].tolist() == [7, 7]
    assert tree.virtual.open()["g/b"].values[0].tolist() == [0, 1]


@pytest.mark.parametrize(
    "options",
    [{"join": "left"}, {"ordered": False}, {"combine_options": {"compat": "override"}}],
    ids=lambda options: next(iter(options)),
)
def test_options_of_adding_need_something_to_add_to(tree, tmp_path, options):
    """All targets say the same."""
    found = []
    for write in (tree.virtual.to_kerchunk, tree.virtual.to_icechunk, tree.virtual.to_vstack):
        with pytest.raises(ValueError, match="append_dim=") as caught:
            write(str(tmp_path / "x.json"), **options)
        found.append(str(caught.value))
    assert len(set(found)) == 1


def test_sizes_are_given_as_people_write_them(path, tmp_path):
    """As when a file is opened, a size may be a text with a unit; what is no size is an error."""
    first = vs.open_virtual_dataset(path, loadable_variables=[])
    both = xr.concat([first, first], "time")
    assert both.virtual.to_kerchunk(inline_limit="1 KiB")["refs"]["a/0"]
    with pytest.raises(vs.errors.WriterError, match="cannot be written as kerchunk references"):
        both.isel(time=slice(1, 7)).virtual.to_kerchunk(inline_limit="8 B")
    for write in (first.virtual.to_kerchunk, first.virtual.to_icechunk):
        with pytest.raises(ValueError, match="inline_limit='much' is not a number of bytes"):
            write(str(tmp_path / "x"), inline_limit="much")
    with pytest.raises(ValueError, match="fill_budget='much' is not a number of bytes"):
        first.virtual.to_kerchunk(fill_budget="much")
    for option in ("inline_limit", "fill_budget"):
        with pytest.raises(ValueError, match=f"{option}='much' is not a number of bytes"):
            vs.convert(path, tmp_path / "x.json", **{option: "much"})


@pytest.mark.parametrize("width", [80, 120])
def test_a_report_prints_all_its_columns_in_the_width_of_the_screen(width, tmp_path, monkeypatch):
    """pandas would leave out those in the middle."""
    monkeypatch.setenv("COLUMNS", str(width))
    xr.Dataset({"a_long_name": (("time", "x"), np.zeros((4, 5)))}, {"time": range(4)}).to_netcdf(tmp_path / "a.nc")
    report = vs.open_virtual_dataset(tmp_path / "a.nc").virtual.report()
    for table in (report, report[report.state == "virtual"], report.set_index("variable")):
        lines = str(table).splitlines()
        assert max(map(len, lines)) <= width
        assert {"state", "form", "chunks", "kerchunk", "detail"} <= set(lines[0].split())
        assert any("float64 (4, 5" in line for line in lines)
    assert pd.DataFrame(report).equals(pickle.loads(pickle.dumps(report)))
    assert report["detail"].iloc[0].endswith("takes it as it is")
