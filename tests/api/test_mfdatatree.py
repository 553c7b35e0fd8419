"""Many files with groups as one tree: equal to the groups joined one by one, or an error that names the group."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from tests.joins import MINIMAL
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError, ReaderError


def write(path, *, start, n=2, groups=("fine", "fine/inner", "about"), scale=None, labels_in_root=True):
    """Times in the root, values in groups that see them, and a group without times."""
    time = ("f8", "time", np.arange(start, start + n), {"units": "days since 2000-01-01"})
    sizes, variables = {"time": None}, {"time": time} if labels_in_root else {}
    packing = {"_FillValue": -1} | ({} if scale is None else {"scale_factor": scale})
    for name in groups:
        if name == "about":
            sizes["about/band"] = 3
            variables["about/width"] = ("f4", "band", [1, 2, 3])
            continue
        sizes[f"{name}/x"] = 4
        values = np.arange(n * 4).reshape(n, 4) + start * 10 + len(name)
        variables[f"{name}/x"] = ("i4", "x", np.arange(4))
        variables[f"{name}/v"] = ("i2", "time x", values, packing, {"zlib": True, "chunksizes": (1, 2)})
    return netcdf4_file(path, sizes, variables, title="t")


def check(tree, paths, dim="time"):
    """Each group is what xarray makes of that group of all files."""
    found = tree.virtual.open()
    trees = [xr.open_datatree(path, engine="netcdf4").load() for path in paths]
    assert [node.path for node in found.subtree] == [node.path for node in trees[0].subtree]
    for node in found.subtree:
        opened = [one[node.path].to_dataset(inherit=True) for one in trees]
        expected = xr.concat(opened, dim, join="exact", **MINIMAL) if dim in opened[0].dims else opened[0]
        xr.testing.assert_equal(node.to_dataset(inherit=True).load(), expected)
    for one in trees:
        one.close()


def test_groups_are_joined_by_the_coordinates_that_they_see(tmp_path):
    """Times stand in the root alone; the order is theirs in every group."""
    paths = [write(tmp_path / f"{2 - i}.nc", start=2 * i) for i in range(3)]
    tree = vs.open_virtual_mfdatatree(str(tmp_path / "*.nc"))
    assert [node.path for node in tree.subtree] == ["/", "/fine", "/about", "/fine/inner"]
    assert virtual_array(tree["fine/inner"].to_dataset()["v"].variable) is not None
    assert tree["fine"].sizes["time"] == 6
    check(tree, paths)


def test_groups_are_joined_as_files_are_given(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", start=-2 * i) for i in range(3)]
    check(vs.open_virtual_mfdatatree(paths, combine="nested", concat_dim="time"), paths)
    bare = [write(tmp_path / f"b{i}.nc", start=2 * i, labels_in_root=False) for i in range(3)]
    check(vs.open_virtual_mfdatatree(bare, combine="nested", concat_dim="time"), bare)


def test_groups_get_a_new_dimension(tmp_path):
    paths = [write(tmp_path / f"orbit{i}.nc", start=0, groups=("fine", "about")) for i in (7, 8)]
    tree = vs.open_virtual_mfdatatree(paths, new_dim={"orbit": vs.FromName(r"orbit(\d)")})
    assert tree["fine/v"].dims == ("orbit", "time", "x")
    assert tree["about/width"].dims == ("orbit", "band")
    assert tree["fine"].orbit.values.tolist() == [7, 8]
    found = tree.virtual.open()
    expected = [xr.load_dataset(p, group="fine").v for p in paths]
    assert (found["fine/v"].values == np.stack(expected)).all()


def test_groups_that_pack_differently_are_unpacked(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", start=2 * i, scale=0.5 / (i + 1)) for i in range(2)]
    with pytest.raises(CombineError, match="scale_factor") as caught:
        vs.open_virtual_mfdatatree(paths, unpack=False)
    assert caught.value.__notes__ == ["This is in the group '/fine'"]
    check(vs.open_virtual_mfdatatree(paths), paths)
    check(vs.open_virtual_mfdatatree(paths, unpack="differing"), paths)
    check(vs.open_virtual_mfdatatree(paths, unpack=True), paths)


def test_a_group_that_some_files_lack_is_named(tmp_path):
    paths = [
        write(tmp_path / f"{i}.nc", start=2 * i, groups=("fine", "about") if i != 1 else ("fine",)) for i in range(3)
    ]
    with pytest.raises(
        CombineError, match=r"group '/about' is missing from 1 of 3 files: '.*0.nc' has it, '.*1.nc' does not"
    ):
        vs.open_virtual_mfdatatree(paths)


def test_a_group_without_the_dimension_must_be_the_same(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", start=2 * i) for i in range(2)]
    with netCDF4.Dataset(paths[1], "a") as file:
        file["about"]["width"][0] = 9
    for options in ({}, {"combine": "nested", "concat_dim": "time"}):
        with pytest.raises(CombineError, match=r"'width' .* differs between .* 1 of 3 values differ") as caught:
            vs.open_virtual_mfdatatree(paths, **options)
        assert caught.value.__notes__ == ["This is in the group '/about'"]


def test_preprocess_sees_each_tree(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", start=2 * i) for i in range(2)]
    tree = vs.open_virtual_mfdatatree(paths, preprocess=lambda tree: tree.filter(lambda node: node.name != "about"))
    assert "about" not in tree
    with pytest.raises(TypeError, match=r"returned a Dataset .* must return a DataTree"):
        vs.open_virtual_mfdatatree(paths, preprocess=lambda tree: tree.to_dataset())


def test_files_that_cannot_be_opened_are_left_out_on_request(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", start=2 * i) for i in range(3)]
    paths[1].write_bytes(b"nothing")
    with pytest.raises(ReaderError):
        vs.open_virtual_mfdatatree(paths)
    with pytest.warns(UserWarning, match="left out 1 of 3 files"):
        tree = vs.open_virtual_mfdatatree(paths, on_error="skip")
    check(tree, [paths[0], paths[2]])
    assert tree.to_dataset().virtual.report()["state"].tolist().count("refused") == 1


def test_trees_that_are_open_are_joined_with_files(tmp_path):
    """Virtual trees in the place of files, and beside them, give what xarray gives of the groups of the files."""
    paths = [write(tmp_path / f"{i}.nc", start=2 * i) for i in range(3)]
    trees = [vs.open_virtual_datatree(path) for path in paths]
    check(vs.open_virtual_mfdatatree(trees), paths)
    check(vs.open_virtual_mfdatatree([paths[0], trees[1], paths[2]]), paths)
    with pytest.raises(TypeError, match=r"a Dataset is not a DataTree\. Use open_virtual_mfdataset"):
        vs.open_virtual_mfdatatree([trees[0].to_dataset()])
    with pytest.raises(TypeError, match="only datasets are given"):
        vs.open_virtual_mfdatatree(trees, drop_variables="v")
