import pickle
import re
import tracemalloc

import h5py
import netCDF4
import numpy as np
import pytest

from tests.corpus.report import datasets, judge
from tests.data import make_hdf5
from tests.data.hdf5_parts import dataset_of, library, properties
from tests.data.make_hdf5 import A, make, numbered
from tests.data.make_hdf5_indexes import Build, unfiltered_edges
from tests.data.processes import run_python
from tests.formats.groups import CHECKED, group_of, refusals, values_of
from virtualstack.child.pool import InChild
from virtualstack.location import absolute_url
from virtualstack.manifests import ABSENT, EMPTY, ENTRY, INLINE
from virtualstack.readers import HDF5
from virtualstack.testing.readers import ReaderTests

LIBRARY = HDF5(metadata="library")


class TestHDF5(ReaderTests):
    reader = HDF5()

    def files(self, folder):
        path = folder / "usual.nc"
        with h5py.File(path, "w", track_order=True) as file:
            for name, n in {"time": None, "y": 20, "x": 30}.items():
                file.create_dataset(name, (n or 7,), "f8", maxshape=(n,), chunks=None if n else (4,))[...] = np.arange(
                    n or 7
                )
                file[name].make_scale(name)
            for name, how in {"t": {"compression": "gzip", "shuffle": True}, "u": {}}.items():
                dataset = file.create_dataset(
                    name, (7, 20, 30), "f4", maxshape=(None, 20, 30), chunks=(2, 7, 16), **how
                )
                dataset[...] = numbered((7, 20, 30), "f4")
                for axis, dim in enumerate(("time", "y", "x")):
                    dataset.dims[axis].attach_scale(file[dim])
        return [path]

    def expected(self, path):
        with h5py.File(path) as file:
            return {name: dataset[()] for name, dataset in datasets(file)}


@pytest.mark.parametrize("name", sorted(make_hdf5.BUILDERS))
def test_odd_files_are_equal_or_refused_by_name(name, tmp_path):
    """Values equal h5py's, or the dataset carries a refusal; none is wrong, whatever the file holds."""
    verdict = judge(make(name, tmp_path))
    assert not verdict.error
    assert not verdict.wrong
    assert verdict.equal + len(verdict.inlined) >= 1


@pytest.mark.parametrize("name", sorted(make_hdf5.BUILDERS))
def test_the_parsers_and_the_library_agree(name, tmp_path):
    """On every name, shape, attribute, fill value and chunk of the file."""
    group_of(make(name, tmp_path), CHECKED)


@pytest.mark.parametrize("name", sorted(set(make_hdf5.BUILDERS) - {"external", "no_zarr_type"}))
def test_the_library_is_not_asked(name, tmp_path, monkeypatch):
    """But for values that only it can convert, such as strings of variable length: so comparing with it says a lot."""

    def refuse(opened, method, *arguments):
        raise AssertionError("the HDF5 library was asked")

    path = make(name, tmp_path)
    monkeypatch.setattr(InChild, "call", refuse)
    assert group_of(path).arrays


@pytest.mark.parametrize("name", [name for name in sorted(make_hdf5.BUILDERS) if "_v1" in name or "est" in name])
def test_every_chunk_index_is_listed(name, tmp_path):
    """No chunked dataset falls back to inlining, also where the HDF5 library lists chunks in wrong places."""
    group = group_of(make(name, tmp_path), inline_limit=0)
    assert not refusals(group)
    assert len(group.arrays) == 51


def test_edge_chunks_without_filters(tmp_path):
    """Where the file says that edge chunks are not filtered, they have an encoding of their own."""
    if library() is None:
        pytest.skip("the HDF5 library of h5py cannot be called")
    path = Build(unfiltered_edges, "latest")(tmp_path)
    verdict = judge(path)
    assert (verdict.equal, verdict.wrong) == (4, [])
    for array in group_of(path).arrays.values():
        assert [len(x.codecs) for x in array.manifest.encodings] == [1, 0]


def test_a_filter_mask_is_an_encoding(tmp_path):
    """Chunks that went past filters have a second row of encodings, without those filters."""
    array = group_of(make("filter_mask", tmp_path)).arrays["x"]
    assert sorted(len(x.codecs) for x in array.manifest.encodings) == [0, 2]


def test_holes_are_empty(tmp_path):
    """What was never written has EMPTY entries and the fill value of the dataset."""
    group = group_of(make("indexes_earliest", tmp_path))
    for name, fill in {"never_written": 3, "contiguous_never_written": 5, "edges_sparse": -7}.items():
        manifest = group.arrays[name].manifest
        assert (manifest.entries["location"] == EMPTY).sum() == manifest.entries.size - (name == "edges_sparse")
        assert manifest.fill.value == fill


def test_a_user_block_shifts_all_offsets(tmp_path):
    """Also that of a contiguous dataset, and the one that is nowhere stays a hole."""
    group = group_of(make("user_block_earliest", tmp_path))
    assert group.arrays["contiguous"].manifest.entries["offset"].item() > 1024
    assert group.arrays["contiguous_never_written"].manifest.entries["location"].item() == EMPTY


def test_compact_values_are_inline_without_a_record(tmp_path):
    """They lie in the object header, which is read anyway."""
    group = group_of(make("layouts", tmp_path), inline_limit=0)
    assert group.arrays["compact"].manifest.entries["location"].item() == INLINE
    assert set(refusals(group)) == {"/null"}


def test_a_null_dataspace_is_kept_with_its_attributes(tmp_path):
    """It has no value: a scalar hole, recorded."""
    group = group_of(make("layouts", tmp_path))
    assert group.arrays["null"].attributes == {"units": "m"}
    assert refusals(group)["/null"] == ("noted", "a null dataspace: it has no value, only attributes")
    assert group.arrays["null"].manifest.entries["location"].item() == ABSENT


def test_texts_of_several_axes_stay_nested(tmp_path):
    """As numbers keep their shape."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs["fixed"] = np.array([["a", "b"], ["c", "d"]], "S1")
        file.attrs["any"] = np.array([["a", "b"], ["c", "d"]], object)
        file.attrs["one"] = np.array([["a"]], object)
    attributes = group_of(path, CHECKED).attributes
    assert attributes == {"fixed": [["a", "b"], ["c", "d"]], "any": [["a", "b"], ["c", "d"]], "one": "a"}


def test_soft_links_lead_as_far_as_the_library_goes(tmp_path):
    """Through 16 of them."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["d"] = 1
        for i in range(20):
            file[f"c{i:02}"] = h5py.SoftLink("/d" if i == 0 else f"/c{i - 1:02}")
    assert "c15" in group_of(path, CHECKED).arrays
    assert "c16" not in group_of(path).arrays


def test_a_file_of_text_may_be_opened_by_many_threads(tmp_path):
    """Though the HDF5 library crashes where they ask for the fill value of strings at once."""
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 2)
        file.createVariable("s", str, ("x",))
    code = (
        "import concurrent.futures as cf, virtualstack as vs\n"
        f"def one(i): return len(vs.open_virtual_dataset({str(path)!r}).variables)\n"
        "with cf.ThreadPoolExecutor(8) as threads: assert set(threads.map(one, range(100))) == {1}"
    )
    run_python(code)


def test_values_have_native_dtypes_without_padding(tmp_path):
    """The byte order and the padding of a record stand in the encoding alone."""
    group = group_of(make("types", tmp_path))
    assert group.arrays["padded"].dtype == np.dtype([("a", "i1"), ("b", "f8")])
    assert group.arrays["padded"].manifest.encodings[0].dtype.itemsize == 24
    assert group.arrays["bool"].dtype == np.bool_
    assert group.arrays["enum"].dtype == np.dtype("i4")
    assert group.arrays["number_i4_True"].manifest.encodings[0].dtype == np.dtype(">i4")


def test_bitfields_are_unsigned_integers(tmp_path):
    """As the HDF5 library reads them, also those that h5py cannot read."""
    path = make("bitfields", tmp_path)
    group, verdict = group_of(path, inline_limit=0), judge(path)
    assert not verdict.wrong
    assert group.arrays["b16_one"].dtype == np.dtype("u2")
    assert group.arrays["b16_one"].manifest.encodings[0].dtype == np.dtype(">u2")
    assert group.arrays["b8_member"].dtype == np.dtype([("a", "i1"), ("b", "u1")])
    kinds, names = ("one", "member", "pair", "never_written"), ("b8", "b16", "b64", "narrow", "three")
    wanted = {f"{name}_{kind}" for name in names for kind in kinds} - {"three_member"}
    assert set(group.arrays) == {"x"} | wanted
    with h5py.File(path) as file:
        for ours, theirs in ((group, file), (group.arrays["x"], file["x"])):
            for name in ("b8", "b16", "b64"):
                assert ours.attributes[name] == theirs.attrs[name]
                assert ours.attributes[name].dtype == theirs.attrs[name].dtype.newbyteorder("=")
            # h5py reads neither: bits 3 to 7 of bytes 0 and 1; bytes 0, 1 and 2
            assert (ours.attributes["narrow"], ours.attributes["three"]) == (0, 0x020100)
    found = refusals(group)
    assert {path: kind for path, (kind, _) in found.items()} == {"/three_member": "refused"}
    assert found["/three_member"][1].startswith("bitfields of 24 bits from bit 0 in 3 bytes: zarr has no data type")


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_sparse_grid_costs_what_was_written(libver, tmp_path):
    """Peak memory of opening stays below that of one dense table of entries: cells never written cost no page."""
    path, n_cells = tmp_path / "sparse.h5", 1 << 22
    with h5py.File(path, "w", libver=libver) as file:
        dataset = file.create_dataset("x", (n_cells,), "i1", chunks=(1,), maxshape=(None,))
        dataset[5] = 7
    tracemalloc.start()
    group = group_of(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    manifest = group.arrays["x"].manifest
    # numpy's zeroed memory counts whole, whether its pages are there or not
    assert peak < n_cells * ENTRY.itemsize + (20 << 20)
    assert np.flatnonzero(manifest.entries["location"]).tolist() == [5]
    assert values_of(group.arrays["x"], (slice(4, 7),)).tolist() == [0, 7, 0]


def test_array_types_have_more_axes(tmp_path):
    """An array type adds its axes at the end, as h5py reads it, with phony dimensions."""
    array = group_of(make("types", tmp_path)).arrays["arrays"]
    assert array.shape == (4, 3)
    assert array.manifest.encodings[0].shape == (3, 3)
    assert len(array.dimension_names) == 2


def test_strings_of_variable_length_are_inlined(tmp_path):
    """As zarr's ``vlen-utf8``, and recorded."""
    group = group_of(make("strings", tmp_path))
    array = group.arrays["text"]
    assert array.dtype == np.dtypes.StringDType()
    assert values_of(array).tolist() == ["a", "", "wörld", "x" * 300]
    assert refusals(group)["/text"] == ("inlined", "strings of variable length lie in the heap of the file")
    assert "not UTF-8" in refusals(group)["/text_not_utf8"][1]


@pytest.mark.parametrize(
    ("file", "path", "reason"),
    [
        ("strings", "/text", "variable length.*limit of 0 bytes"),
        ("no_zarr_type", "/ragged", "sequences of variable length"),
        ("no_zarr_type", "/reference", "meaning only in their file; its 16 bytes of references.*limit of 0"),
        ("no_zarr_type", "/region", "references to regions of datasets: zarr has no data type"),
        ("no_zarr_type", "/with_text", "strings of variable length in a compound"),
        ("no_zarr_type", "/with_reference", "references to objects in a compound"),
        ("no_zarr_type", "/long_double", "floats of 80 bits"),
        ("virtual", "/lost", "source file 'lost.h5' does not exist; the HDF5 library would show fill values"),
        ("external", "/lost", "external files"),
    ],
)
def test_what_cannot_be_referenced_is_refused_by_name(file, path, reason, tmp_path):
    """With an inline limit of 0, everything that has no byte-range form is a refusal that says why."""
    kind, found = refusals(group_of(make(file, tmp_path), inline_limit=0))[path]
    assert kind == "refused"
    assert re.search(reason, found), found


def test_a_filter_without_plugin_is_refused_with_the_remedy(tmp_path):
    """Neither a codec nor a plugin of the HDF5 library knows it; the message has its number and name."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dcpl = properties(chunk=((2, 3),), filter=(305, h5py.h5z.FLAG_OPTIONAL, (1,)))
        for name, mask in {"x": 0, "skipped": 1}.items():
            dataset = dataset_of(file, name, h5py.h5t.STD_I32LE, (4, 6), dcpl)
            dataset.id.write_direct_chunk((0, 0), A[:2, :3].tobytes(), filter_mask=mask)
    reason = (
        "no codec for filter 305 (lzo) yet, and the HDF5 library has no plugin for filter 305 (lzo), nor has the "
        "package hdf5plugin. Where you have one, name its folder in the environment variable HDF5_PLUGIN_PATH"
    )
    group = group_of(path)
    assert refusals(group) == {"/x": ("refused", reason)}
    # chunks that went past the filter need neither
    np.testing.assert_array_equal(values_of(group.arrays["skipped"])[:2, :3], A[:2, :3])


def test_one_external_file_is_referenced(tmp_path):
    """External raw data in one file has that file as location."""
    group = group_of(make("external", tmp_path), inline_limit=0)
    (location,) = group.arrays["offset"].manifest.locations
    assert (location.url, location.size) == (absolute_url(tmp_path / "external.bin"), 196)
    np.testing.assert_array_equal(values_of(group.arrays["offset"]), A)


def test_links_are_followed_once_and_recorded(tmp_path):
    """Every name of a dataset is an array; loops end, and links that lead nowhere are noted."""
    group = group_of(make("links", tmp_path))
    assert set(group.arrays) == {"x", "hard", "soft"}
    assert {name: set(child.arrays) for name, child in group.groups.items()} == {"group": {"y"}, "out": {"z"}}
    linked = group["out"].arrays["z"]
    assert [x.url for x in linked.manifest.locations] == [absolute_url(tmp_path / "other.h5")]
    np.testing.assert_array_equal(values_of(linked), A)
    assert {path: reason for path, (_, reason) in refusals(group).items()} == {
        "/soft": "another name of '/hard'",
        "/x": "another name of '/hard'",
        "/dangling": "a soft link to '/nowhere', which does not exist",
        "/dangling_external": "a link to '/x' of 'nowhere.h5', which is in another file: the file does not exist",
        "/through": "a link to '/out/z', which is in another file",
        "/group/root": "another name of '/'",
        "/group/itself": "another name of '/group'",
        "/group/loop": "a soft link to 'loop', which does not exist",
        "/group_again": "another name of '/group'",
    }
    assert {kind for kind, _ in refusals(group).values()} == {"noted"}


def test_dropped_and_unwanted_variables_are_not_looked_at(tmp_path):
    """Neither dropped variables nor those of other groups are in the group, or in its refusals."""
    path = make("links", tmp_path)
    assert "x" not in group_of(path, drop_variables=frozenset({"x"})).arrays
    assert set(group_of(path, group="group")["group"].arrays) == {"y"}


def test_pickles(tmp_path):
    """A group of every kind of dataset pickles."""
    for name in ("types", "strings", "layouts"):
        group = group_of(make(name, tmp_path))
        copy = pickle.loads(pickle.dumps(group))
        assert all(array.equals(copy.arrays[key]) for key, array in group.arrays.items())
