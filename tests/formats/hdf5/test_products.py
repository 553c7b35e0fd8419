"""Files as MATLAB, neurophysiologists, satellites and machine learning write them: nothing is lost silently."""

import re
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from h5py import h5r

import virtualstack as vs
from tests.corpus.report import judge
from tests.data.make_hdf5_products import ODD_NAMES, PRODUCTS, goes, icesat2, matlab, nwb, odd_names
from tests.formats.groups import CHECKED, group_of, reasons, values_of
from tests.formats.hdf5.test_netcdf import check_as_netcdf4
from virtualstack.errors import WriterError
from virtualstack.testing.readers import arrays_by_path, difference

# zarr has no data type for these; kerchunk none for the last
REFUSED = {
    "nwb.nwb": {"/intervals/trials/timeseries"},
    "anndata.h5ad": {"/uns/rank_genes_groups/names"},
    "pytables.h5": {"/objects", "/when"},
}
NO_KERCHUNK = {"pytables.h5": ["table"], "odd_names.h5": ["of a\\b", "a\\b"]}


def notes(path: Path) -> dict[str, str]:
    return reasons(group_of(path), "noted")


@pytest.fixture(scope="module", params=PRODUCTS)
def product(request, tmp_path_factory) -> Path:
    return PRODUCTS[request.param](tmp_path_factory.mktemp("product") / request.param)


def test_every_dataset_is_equal_or_refused_by_name(product):
    """Beside h5py, raw."""
    verdict = judge(product)
    assert (verdict.error, verdict.wrong) == ("", [])
    assert {path for path, _ in verdict.refused} == REFUSED.get(product.name, set())


def test_both_views_agree(product):
    """Our parsers and the HDF5 library: groups, names, types, attributes, chunks."""
    group_of(product, CHECKED)


def test_all_groups_open_as_a_tree(product):
    """Each dataset of a group is a variable of its node, or is named in the warning."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tree = vs.open_virtual_datatree(product, unsupported="skip")
    left_out = REFUSED.get(product.name, set())
    assert all(f"'{path}'" in str(found[0].message) for path in left_out)
    assert len(found) == bool(left_out)
    paths = {f"/{group}/{name}".replace("//", "/") for group, name in bare_of_links(product)} - left_out
    found = {f"{node.path.rstrip('/')}/{name}" for node in tree.subtree for name in own_variables(node)}
    assert paths <= found
    assert len(paths) > 2


def own_variables(node):
    return node.to_dataset(inherit=False).variables


def bare_of_links(path):
    """Give group and name of each dataset that is more than a dimension, once."""
    found = []

    def visit(name, item):
        is_scale = isinstance(item, h5py.Dataset) and item.is_scale
        is_bare = is_scale and h5py.h5ds.get_scale_name(item.id).startswith(b"This is a netCDF dimension")
        if isinstance(item, h5py.Dataset) and not is_bare:
            found.append(name.rpartition("/")[::2])

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def test_names_are_those_of_netcdf(product):
    """Dimensions and attributes of every group."""
    check_as_netcdf4(product, group_of(product))


def test_references_come_back_equal(product, tmp_path):
    """Written as kerchunk JSON and opened again; what kerchunk cannot express is refused by name."""
    dropped = [path.rpartition("/")[2] for path in REFUSED.get(product.name, ())]
    target = tmp_path / "refs.json"
    if product.name in NO_KERCHUNK:
        tree = vs.open_virtual_datatree(product, drop_variables=dropped)
        with pytest.raises(WriterError, match=re.escape(NO_KERCHUNK[product.name][0])):
            tree.virtual.to_kerchunk(target)
        dropped += NO_KERCHUNK[product.name]
    tree = vs.open_virtual_datatree(product, drop_variables=dropped)
    tree = tree.drop_nodes([name for name in dropped if name in tree.children])
    tree.virtual.to_kerchunk(target)
    found, expected = vs.open_virtual_datatree(target).virtual.open().load(), tree.virtual.open().load()
    assert {node.path for node in found.subtree} == {node.path for node in expected.subtree}
    for node in expected.subtree:
        xr.testing.assert_equal(found[node.path].to_dataset(inherit=False), node.to_dataset(inherit=False))


def test_cells_of_matlab_lead_to_their_values(tmp_path):
    """Through the paths that references have become, into the hidden group behind the user block."""
    path = matlab(tmp_path / "x.mat")
    arrays = arrays_by_path(group_of(path))
    cell = values_of(arrays["/cell"])
    assert cell.ravel().tolist() == ["/#refs#/a", "/#refs#/b", "/#refs#/c"]
    letters = values_of(arrays[cell[1, 0]])
    assert bytes(letters.ravel().astype("u1")).decode() == "in a cell"
    assert arrays["/nothing"].attributes["MATLAB_empty"] == 1
    assert arrays["/title"].attributes["MATLAB_class"] == "char"
    assert "sequences of variable length" in notes(path)["/s@MATLAB_fields"]


def test_references_in_attributes_are_paths(tmp_path):
    """Of one object, of several, of the root, of nothing; of any name of the object."""
    path = nwb(tmp_path / "x.nwb")
    with h5py.File(path, "a") as file:
        units = file["units"]
        units["spike_times"].attrs["many"] = np.array(
            [units.ref, file.ref, h5r.Reference(), file["scratch"].ref], h5py.ref_dtype
        )
        units.attrs.create("none", np.empty(0, h5py.ref_dtype), dtype=h5py.ref_dtype)
        units.attrs.create("two", [[units.ref], [file.ref]], dtype=h5py.ref_dtype)
        file["kind"] = np.dtype("i4")
        units.attrs["kind"] = file["kind"].ref
        units.attrs["nothing"] = h5py.Empty(h5py.ref_dtype)
    group = group_of(path, CHECKED)
    assert group.attributes[".specloc"] == "/specifications"
    assert group["acquisition/lfp 1"].arrays["electrodes"].attributes["table"] == (
        "/general/extracellular_ephys/electrodes"
    )
    units = group["units"]
    assert units.arrays["spike_times_index"].attributes["target"] == "/units/spike_times"
    assert units.arrays["spike_times"].attributes["many"] == ["/units", "/", "", "/scratch"]
    assert (units.attributes["none"], units.attributes["two"]) == ([], ["/units", "/"])
    assert units.attributes["kind"] == "/kind"
    assert "/units@nothing" in notes(path)


def test_references_in_attributes_to_what_is_gone_are_noted(tmp_path):
    """And those to regions, which no path says."""
    path = nwb(tmp_path / "x.nwb")
    with h5py.File(path, "a") as file:
        file.attrs["gone"] = file["scratch"].ref
        file.attrs["region"] = file["units/spike_times"].regionref[1:3]
        del file["scratch"]
    found = notes(path)
    assert "which is not the address of an object with a path" in found["/@gone"]
    assert "references to regions" in found["/@region"]
    assert "gone" not in group_of(path, CHECKED).attributes


def test_links_of_neurophysiologists_are_noted(tmp_path):
    """A dataset under two names has both; a group under two names, and another file, are noted."""
    path = nwb(tmp_path / "x.nwb")
    found, arrays = notes(path), arrays_by_path(group_of(path))
    assert found["/processing/ecephys/filtered/source"] == "another name of '/acquisition/lfp 1'"
    assert "another file" in found["/processing/ecephys/filtered/video"]
    linked, first = (arrays[x] for x in ("/processing/ecephys/filtered/timestamps", "/acquisition/lfp 1/timestamps"))
    assert difference(values_of(first), values_of(linked)) == ""


def test_an_image_of_goes_is_that_of_xarray(tmp_path):
    """Decoded: unsigned numbers, packed axes, scalar coordinates, flags."""
    path = goes(tmp_path / "x.nc")
    with xr.open_dataset(path, engine="netcdf4") as expected:
        found = vs.open_virtual_dataset(path).virtual.open().load()
        xr.testing.assert_identical(found, expected.load())
        assert {k: v.dtype for k, v in found.variables.items()} == {k: v.dtype for k, v in expected.variables.items()}


def test_tracks_of_icesat2_are_those_of_xarray(tmp_path):
    """Sixty groups with an axis of their own length, in one tree; but fixed text stays bytes."""
    path = icesat2(tmp_path / "x.h5")
    with xr.open_datatree(path, engine="netcdf4") as expected:
        found = vs.open_virtual_datatree(path).virtual.open().load()
        assert len(list(found.subtree)) == 1 + 2 + 6 * 11
        for node in expected.subtree:
            ours, theirs = (x.to_dataset(inherit=False).load() for x in (found[node.path], node))
            xr.testing.assert_identical(
                ours.drop_vars("control", errors="ignore"), theirs.drop_vars("control", errors="ignore")
            )


def test_a_hard_link_names_a_group_whatever_soft_links_come_first(tmp_path):
    """The group is found by the name that it was made with; its other names are noted."""
    path = icesat2(tmp_path / "x.h5", n_beams=1, n_groups=2)
    with h5py.File(path, "a") as file:
        file["a_best"] = h5py.SoftLink("/gt1l")
        file["gt1l/latest"] = h5py.SoftLink("part_01")
        file["gt1l/part_00/up"] = h5py.SoftLink("/a_best/latest")
    group = group_of(path, CHECKED)
    assert list(group["gt1l"].groups) == ["part_00", "part_01"]
    assert list(group.groups) == ["METADATA", "ancillary_data", "gt1l"]
    found = notes(path)
    assert found["/a_best"] == "another name of '/gt1l'"
    assert found["/gt1l/latest"] == found["/gt1l/part_00/up"] == "another name of '/gt1l/part_01'"
    assert found["/gt1l/segment_time"] == "another name of '/gt1l/part_00/delta_time'"
    assert judge(path).wrong == []


@pytest.mark.parametrize("name", ["refs.json", "refs.parq"])
def test_odd_names_survive_references(name, tmp_path):
    """Each value by each name, of datasets, groups and attributes, or an error that names it."""
    tree = vs.open_virtual_datatree(odd_names(tmp_path / "x.h5"))
    with pytest.raises(WriterError, match=r"'of a\\b' cannot be a name in zarr"):
        tree.virtual.to_kerchunk(tmp_path / name)
    tree = tree.drop_nodes("a\\b")
    tree.dataset = tree.to_dataset().drop_vars("of a\\b")
    tree.virtual.to_kerchunk(tmp_path / name)
    found = vs.open_virtual_datatree(tmp_path / name).virtual.open()
    for number, odd in enumerate(ODD_NAMES):
        if odd == "a\\b":  # other readers of references would take it for a path
            continue
        assert found[odd].to_dataset()[odd].values.tolist() == (np.arange(6.0) + number).tolist()
        assert found.to_dataset()[f"of {odd}"].values.tolist() == (np.arange(6.0) - number).tolist()
        assert found.to_dataset()[f"of {odd}"].attrs[odd] == odd


@pytest.mark.parametrize("name", ["..", ".zarray", ".zattrs", ".zgroup"])
@pytest.mark.parametrize("is_group", [False, True])
def test_names_that_zarr_keeps_for_itself_are_refused(name, is_group, tmp_path):
    """By name; they open and read as any other."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        (file.create_group(name) if is_group else file).create_dataset("x" if is_group else name, data=np.arange(6.0))
    tree = vs.open_virtual_datatree(path)
    node = tree.children[name] if is_group else tree
    assert node.to_dataset().virtual.open()["x" if is_group else name].values.tolist() == list(range(6))
    with pytest.raises(WriterError, match=f"'{name}' cannot be a name in zarr"):
        tree.virtual.to_kerchunk(tmp_path / "refs.json")
