"""Behaviours of kerchunk and VirtualiZarr beside what says the same here, and the table of the page that lists them."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file, opened
from virtualstack.errors import WriterError

pytestmark = pytest.mark.filterwarnings("ignore:.*Zarr format 3:UserWarning", "ignore:.*Zarr V3", "ignore:.*format 3")
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "comparison.md"


def test_each_row_of_the_table_names_tests():
    """All of them are there; the verdict is one of three."""
    rows = PAGE.read_text().split("<!-- behaviours -->")[1].split("\n## ")[0]
    rows = [line for line in rows.splitlines() if line.startswith("| ") and "::" in line]
    assert len(rows) >= 60
    for row in rows:
        _, _, verdict, _, tests, _ = (x.strip() for x in re.split(r"(?<!\\)\|", row))
        assert verdict in ("same", "better", "different", "missing"), row
        for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests):
            functions = {
                x.name for x in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(x, ast.FunctionDef)
            }
            assert name in functions, row


@pytest.fixture
def runs(tmp_path):
    """Files whose names, attributes and order tell them apart, as joined programs of kerchunk have them."""
    paths = []
    for k, run in enumerate((7, 3, 5)):
        paths.append(str(tmp_path / f"model_run_{run}.nc"))
        variables = {
            "t": ("i4", "t", [0, 6], {"units": "hours since 2024-01-01"}),
            "a": ("f4", "t x", np.arange(60).reshape(2, 30) + 10 * k, {"number": run}),
            "b": ("f4", "t x", -np.arange(60).reshape(2, 30) - k),
        }
        netcdf4_file(Path(paths[-1]), {"t": 2, "x": 30}, variables, run=run, title=f"run {run}")
    return paths


SELECTORS = {
    "a pattern of names": (re.compile(r"run_(\d+)"), vs.FromName(r"run_(\d+)"), "i8"),
    "an attribute": ("attr:run", vs.FromAttribute("run"), "i8"),
    "an attribute of a variable": ("vattr:a:number", lambda ds: int(ds["a"].attrs["number"]), "i8"),
    "numbers of the files": ("INDEX", [0, 1, 2], "i8"),
    "a list": ([70, 30, 50], [70, 30, 50], "i8"),
    "a function": (
        lambda index, fs, var, fn: 10 * index,
        lambda ds: 10 * (7, 3, 5).index(int(ds.attrs["run"])),
        "i8",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", SELECTORS)
def test_labels_of_a_new_dimension_as_kerchunk_selects_them(runs, kind):
    """Each selector of ``coo_map`` has a word of ``new_dim``, with the same labels and values."""
    combine, hdf = pytest.importorskip("kerchunk.combine"), pytest.importorskip("kerchunk.hdf")
    selector, labels, dtype = SELECTORS[kind]
    references = [hdf.SingleHdf5ToZarr(path).translate() for path in runs]
    joined = combine.MultiZarrToZarr(
        runs,
        references,
        coo_map={"run": selector},
        coo_dtypes={"run": dtype},
        concat_dims=["run"],
        identical_dims=["t"],
    ).translate()
    theirs = xr.open_dataset(joined, engine="kerchunk").load()
    ours = vs.open_virtual_mfdataset(runs, new_dim={"run": labels}).virtual.open().sortby("run")
    assert ours["run"].values.tolist() == theirs["run"].values.tolist()
    for name in "ab":
        np.testing.assert_array_equal(ours[name].transpose("run", "t", "x"), theirs[name].transpose("run", "t", "x"))


def test_variables_along_a_dimension(runs):
    """``VARNAME`` of kerchunk stacks variables; xarray does it with virtual ones."""
    vds = vs.open_virtual_dataset(runs[0])
    stacked = xr.concat([vds[x].reset_coords(drop=True).rename("v") for x in "ab"], pd.Index(list("ab"), name="var"))
    found = stacked.to_dataset(name="v").virtual.open()["v"]
    expected = opened(Path(runs[0]))
    for name in "ab":
        np.testing.assert_array_equal(found.sel(var=name), expected[name])


def test_attributes_of_a_file_of_choice(runs):
    """``attrs_file`` of VirtualiZarr: attributes are taken from any dataset."""
    vds = vs.open_virtual_mfdataset(runs, new_dim={"run": vs.FromAttribute("run")})
    chosen = vs.open_virtual_dataset(runs[1]).attrs
    found = vds.drop_attrs(deep=False).assign_attrs(chosen).virtual.open()
    assert found.attrs == opened(Path(runs[1])).attrs


def test_small_variables_are_in_the_references(runs):
    """What ``inline_threshold`` decides by bytes, ``loadable_variables`` decides by names."""
    references = vs.open_virtual_dataset(runs[0], loadable_variables=["t", "b"]).virtual.to_kerchunk()["refs"]
    assert isinstance(references["b/0.0"], str)
    assert isinstance(references["a/0.0"], list)
    none = vs.open_virtual_dataset(runs[0], loadable_variables=[]).virtual.to_kerchunk()["refs"]
    assert all(isinstance(value, list) for key, value in none.items() if "/.z" not in key and key[0] != ".")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("factor", "lengths"), [(2, {"t": 1}), (4, {"t": 1, "x": 15})])
def test_subchunks_are_those_of_kerchunk(runs, factor, lengths):
    """The same references, which zarr reads; in a tree, too. What is compressed, or is no byte range, is refused."""
    utils = pytest.importorskip("kerchunk.utils")
    vds = vs.open_virtual_dataset(runs[0])
    cut = vds.virtual.subchunk("a", lengths)
    ours = cut.virtual.to_kerchunk()["refs"]
    if factor == 2:
        theirs = utils.subchunk(vds.virtual.to_kerchunk()["refs"], "a", factor)
        assert json.loads(ours["a/.zarray"]) == json.loads(theirs["a/.zarray"])
        assert {k: v for k, v in theirs.items() if k[:3] == "a/0"} == {k: v for k, v in ours.items() if k[:3] == "a/0"}
    xr.testing.assert_identical(cut.virtual.open().load(), vds.virtual.open().load())
    np.testing.assert_array_equal(
        zarr.open_group(vs.ManifestStore(cut.virtual.to_group()), mode="r")["a"], vds.virtual.open()["a"]
    )
    tree = xr.DataTree.from_dict({"/g": vds}).virtual.subchunk("g/a", lengths)
    assert (tree["g/a"].data == cut["a"].data).all()


def test_what_cannot_be_cut_is_no_subchunk(tmp_path):
    """Compressed chunks, other axes than the slowest one, and names and lengths that make no sense."""
    made = xr.Dataset({x: (("t", "x"), np.arange(12.0).reshape(3, 4)) for x in "ab"})
    made.to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding={"a": {"zlib": True}})
    virtual = vs.open_virtual_dataset(tmp_path / "a.nc").virtual
    with pytest.raises(WriterError, match="compressed"):
        virtual.subchunk("a", {"t": 1})
    with pytest.raises(WriterError, match="slowest"):
        virtual.subchunk("b", {"x": 2})
    for lengths in ({"y": 1}, {"t": 0}):
        with pytest.raises(ValueError, match="no length"):
            virtual.subchunk("b", lengths)
    with pytest.raises(KeyError, match="no virtual variable"):
        virtual.subchunk("c", {"t": 1})
    uneven = virtual.subchunk("b", {"t": 2})
    assert uneven.virtual.nrefs == 3
    np.testing.assert_array_equal(uneven.virtual.open()["b"], made["b"])


def test_a_dataset_in_memory_is_written_as_values(runs, tmp_path):
    """VirtualiZarr warns; here the values are stored, in the references or as chunks of the store."""
    values = opened(Path(runs[0]))
    values.virtual.to_kerchunk(tmp_path / "values.json")
    values.virtual.to_vstack(tmp_path / "values.vstack")
    for name in ("values.json", "values.vstack"):
        xr.testing.assert_identical(xr.load_dataset(tmp_path / name, engine="virtualstack"), values)


def test_coordinates_of_a_parent_are_written_once(runs, tmp_path):
    """As with ``write_inherited_coords=False``, the default of VirtualiZarr."""
    pytest.importorskip("icechunk")
    vds = vs.open_virtual_dataset(runs[0])
    tree = xr.DataTree.from_dict({"/": vds[["t"]], "/a": vds[["a"]].drop_vars("t")})
    tree.virtual.to_icechunk(tmp_path / "tree.icechunk")
    with xr.open_datatree(tmp_path / "tree.icechunk", engine="virtualstack", chunks=None) as found:
        assert "t" not in found["a"].to_dataset(inherit=False)
        np.testing.assert_array_equal(found["a"]["t"], opened(Path(runs[0]))["t"])


def test_whole_chunk_sizes_are_kept_by_writers_of_xarray(tmp_path):
    """Of dask arrays too: a task is a whole number of stored chunks, so ``to_zarr`` needs no option."""
    paths = []
    for k in range(2):
        made = xr.Dataset({"a": (("t", "x"), np.arange(40.0).reshape(8, 5) + k)}, {"t": np.arange(8) + 8 * k})
        made["a"].encoding = {"zlib": True, "chunksizes": (2, 5), "dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
        paths.append(tmp_path / f"{k}.nc")
        made.to_netcdf(paths[-1], engine="netcdf4")
    vs.open_virtual_mfdataset(paths).virtual.to_vstack(tmp_path / "cube.vstack")
    for chunks in (None, {}, {"t": 4}, "auto"):
        with xr.open_dataset(tmp_path / "cube.vstack", engine="virtualstack", chunks=chunks) as cube:
            part = cube.isel(t=slice(2, 14))
            part.to_zarr(tmp_path / "part.zarr", mode="w", consolidated=False)
        with xr.open_dataset(tmp_path / "part.zarr", engine="zarr", consolidated=False, chunks=None) as found:
            assert found["a"].encoding["chunks"] == (2, 5)
            assert (found["a"].encoding["dtype"], found["a"].encoding["scale_factor"]) == (np.dtype("i2"), 0.5)
            xr.testing.assert_equal(found.load(), part.load())
