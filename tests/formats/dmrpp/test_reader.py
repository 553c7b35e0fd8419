"""DMR++ documents beside the HDF5 files that they are about."""

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.corpus.report import CORPUS, corpus_files, datasets
from tests.data import make_dmrpp, make_hdf5
from tests.data.make_hdf5 import make, numbered
from tests.formats.groups import group_of, reasons, values_of
from tests.servers import RangeServer
from virtualstack.errors import (
    ChunkDecodeError,
    ForbiddenLocationError,
    MalformedFileError,
    ReaderError,
    SourceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from virtualstack.location import absolute_url
from virtualstack.manifests import same_value
from virtualstack.readers import DMRPP, ReadOptions
from virtualstack.testing.readers import ReaderTests, arrays_by_path, difference, record_reads

# Filling is turned off: what was never written is undefined, and the document does not say that it is turned off.
UNDEFINED = {"/never_True_False", "/never_True_True"}


def usual(folder: Path) -> Path:
    """Make a netCDF-4 file with all filters, missing chunks, groups and contiguous data."""
    path = folder / "usual.nc"
    with h5py.File(path, "w", track_order=True) as file:
        for name, n in {"time": 7, "y": 20, "x": 30}.items():
            file.create_dataset(name, data=np.arange(n, dtype="f8"))
            file[name].make_scale(name)
            file[name].attrs["units"] = "days since 2000-01-01" if name == "time" else "m"
        group = file.create_group("below")
        filters = {
            "t": {"compression": "gzip", "shuffle": True, "fletcher32": True},
            "u": {"compression": "gzip"},
            "below/v": {"shuffle": True, "fillvalue": -9999},
            "below/w": {},
        }
        for name, how in filters.items():
            dataset = file.create_dataset(name, (7, 20, 30), ">f4" if name == "u" else "f4", chunks=(2, 7, 16), **how)
            dataset[2:, :8] = numbered((5, 8, 30), "f4")
            dataset.attrs["long_name"] = f"<{name}> & more"
            dataset.attrs["valid_range"] = np.array([0, 1], "i2")
            for axis, dim in enumerate(("time", "y", "x")):
                dataset.dims[axis].attach_scale(file[dim])
        group.attrs["level"] = np.float32(0.1)
        file.attrs["title"] = "usual"
    return path


@pytest.fixture
def path(tmp_path) -> Path:
    return usual(tmp_path)


@pytest.fixture
def document(path) -> Path:
    """Write the document beside the usual file."""
    return make_dmrpp.write(path)


class TestDMRPP(ReaderTests):
    reader = DMRPP()

    def files(self, folder):
        return [make_dmrpp.write(usual(folder))]

    def expected(self, path):
        with h5py.File(path.with_suffix("")) as file:
            return {name: dataset[()] for name, dataset in datasets(file)}


def check_against_hdf5(path: Path, folder: Path) -> None:
    text, left_out = make_dmrpp.describe(path)
    document = folder / f"{path.name}.dmrpp"
    document.write_text(text, encoding="utf-8")
    found = group_of(document, DMRPP(data_url=str(path)))
    expected = group_of(path)
    arrays, refused = arrays_by_path(found), reasons(found)
    inlined = reasons(found, "inlined").keys() | reasons(expected, "inlined").keys()
    assert found.groups.keys() == expected.groups.keys()
    for name, array in arrays_by_path(expected).items():
        if name in left_out | UNDEFINED | refused.keys():
            continue
        mine = arrays[name]
        assert (mine.shape, mine.dtype) == (array.shape, array.dtype), name
        if not any(dim.startswith("phony_dim_") for dim in array.dimension_names):
            assert mine.dimension_names == array.dimension_names, name
        for key, value in array.attributes.items():
            if key in mine.attributes:
                assert type(mine.attributes[key]) is type(value), f"{name}@{key}"
                assert same_value(mine.attributes[key], value), f"{name}@{key}"
        text = difference(values_of(array), values_of(mine))
        assert not text, f"{name}: {text}"
        if not inlined & {name, array.name}:
            theirs = array.in_memory().locations
            there = [replace(x, size=None, etag=None, last_modified=None) for x in theirs]
            assert mine.in_memory().locations in ((), tuple(there)), name
            manifest = replace(mine.in_memory(), locations=theirs or mine.in_memory().locations)
            assert replace(mine, manifest=manifest).equals(array), f"{name}: chunks differ"


@pytest.mark.parametrize("name", sorted(make_hdf5.BUILDERS))
def test_odd_files_are_read_as_the_hdf5_reader_does(name, tmp_path):
    """Types, values, places of chunks, dimensions and attributes are those of the file."""
    check_against_hdf5(make(name, tmp_path), tmp_path)


@pytest.mark.skipif(not corpus_files(), reason=f"no corpus at {CORPUS}")
@pytest.mark.parametrize("path", corpus_files(), ids=lambda path: path.name)
def test_real_files_are_read_as_the_hdf5_reader_does(path, tmp_path):
    """Types, values, places of chunks, dimensions and attributes are those of the file."""
    check_against_hdf5(path, tmp_path)


def test_dimensions_without_names_are_numbered_as_netcdf_does(tmp_path):
    """Axes without a name share phony dimensions by length, child groups first, or take one that is declared."""
    path = tmp_path / "phony.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("scale", data=np.arange(3))
        file["scale"].make_scale("scale")
        file["a"] = np.zeros((3, 4, 4))
        file["g/b"] = np.zeros((4, 5))
    found, expected = group_of(make_dmrpp.write(path), DMRPP()), group_of(path)
    names = {name: array.dimension_names for name, array in arrays_by_path(expected).items()}
    assert {name: array.dimension_names for name, array in arrays_by_path(found).items()} == names
    assert [g.dimensions for _, g in found.walk()] == [g.dimensions for _, g in expected.walk()]


# -- which document, and which data ---------------------------------------------------------------------------


def test_a_document_is_found_by_its_name_and_by_its_bytes(path, document, tmp_path):
    """The reader is found out for ``.dmrpp`` and for a document of another name; data lies beside the first."""
    expected = xr.open_dataset(path, engine="h5netcdf").load()
    vds = vs.open_virtual_dataset(document)
    assert vds.t.attrs["long_name"] == "<t> & more"
    xr.testing.assert_identical(vds.virtual.open().load(), expected)
    other = tmp_path / "other.xml"
    other.write_bytes(document.read_bytes().replace(make_dmrpp.PLACEHOLDER.encode(), b"usual.nc"))
    xr.testing.assert_identical(vs.open_virtual_dataset(other).virtual.open().load(), expected)


def test_groups_make_a_tree(document, tmp_path):
    """Groups of a document are those of a tree, with the dimensions of their parents."""
    tree = vs.open_virtual_datatree(document)
    assert tree["below/v"].dims == ("time", "y", "x")
    assert vs.open_virtual_dataset(tmp_path / "usual.nc.dmrpp", group="below").attrs == {"level": np.float32(0.1)}


def test_the_document_beside_a_file_is_read_when_asked_for(path):
    """``reader="dmrpp"`` with the name of a file reads the document beside it, and points to that file."""
    make_dmrpp.write(path, href="https://elsewhere.example/usual.nc")
    vds = vs.open_virtual_dataset(path, reader="dmrpp", loadable_variables=[])
    assert set(vds.virtual.locations["url"]) == {absolute_url(path)}
    group, sources = record_reads(DMRPP(), absolute_url(path), ReadOptions())
    assert [source.location.url for source in sources] == [f"{absolute_url(path)}.dmrpp"]
    assert group.url == f"{absolute_url(path)}.dmrpp"


def test_there_is_no_document_beside_a_file(path):
    """The error names the document that was looked for."""
    with pytest.raises(SourceNotFoundError, match=r"there is no 'file://.*usual\.nc\.dmrpp' beside .*get_dmrpp"):
        vs.open_virtual_dataset(path, reader="dmrpp")


def test_data_url_says_where_the_data_is(path, tmp_path):
    """The option goes before what the document says; one that says nothing, and has another name, needs it."""
    document = tmp_path / "elsewhere.xml"
    document.write_text(make_dmrpp.describe(path)[0])
    with pytest.raises(ReaderError, match=r"does not say where its data is.*DMRPP\(data_url="):
        group_of(document, DMRPP())
    text = difference(
        numbered((5, 8, 30), "f4"),
        values_of(group_of(document, DMRPP(data_url=path))["t"], (slice(2, None), slice(8))),
    )
    assert not text


def test_remote_documents(path, tmp_path):
    """A document on a server points beside itself, with the query that it was asked for with."""
    make_dmrpp.write(path)
    with RangeServer(tmp_path) as server:
        vds = vs.open_virtual_dataset(server.url("usual.nc.dmrpp"), loadable_variables=[])
        assert set(vds.virtual.locations["url"]) == {server.url("usual.nc")}
        xr.testing.assert_equal(vds.virtual.open().load(), xr.open_dataset(path, engine="h5netcdf").load())
        vds = vs.open_virtual_dataset(server.url("usual.nc"), reader="dmrpp", loadable_variables=[])
        assert set(vds.virtual.locations["url"]) == {server.url("usual.nc")}


@pytest.mark.parametrize("href", ["file:///etc/passwd", "/etc/passwd", "local:///etc/passwd"])
def test_a_document_from_elsewhere_may_not_point_to_local_files(path, href, tmp_path):
    """What came over the network names no file of this machine; the user may."""
    make_dmrpp.write(path, href=href)
    with RangeServer(tmp_path) as server:
        with pytest.raises(
            ForbiddenLocationError, match=r"'file:///etc/passwd', which is a local file.*allow="
        ) as caught:
            vs.open_virtual_dataset(server.url("usual.nc.dmrpp"))
        assert caught.value.url == "file:///etc/passwd"
        vds = vs.open_virtual_dataset(server.url("usual.nc.dmrpp"), reader=DMRPP(data_url=path), loadable_variables=[])
        assert set(vds.virtual.locations["url"]) == {absolute_url(path)}


@pytest.mark.parametrize("href", ["http://127.0.0.1:1/usual.nc", "http://169.254.169.254/usual.nc"])
def test_a_document_from_elsewhere_may_not_point_to_private_hosts(href, tmp_path):
    """What came over the network names its own server, and public ones."""
    make_dmrpp.write(usual(tmp_path), href=href)
    with RangeServer(tmp_path) as server, pytest.raises(ForbiddenLocationError, match=r"is (loopback|link-local)"):
        vs.open_virtual_dataset(server.url("usual.nc.dmrpp"), loadable_variables=[])


def test_ranges_past_the_end_of_the_data_are_found_when_read(path, document):
    """The data is not opened, so that it is too short is found when its values are read."""
    vds = vs.open_virtual_dataset(document, loadable_variables=[])
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(StorageError, match=r"usual\.nc"):
        vds.virtual.open().t.load()


def test_damaged_chunks_are_found_when_read(path, document):
    """A checksum of a document's filter is verified."""
    vds = vs.open_virtual_dataset(document, loadable_variables=[])
    entry = vds.t.variable._data.in_memory().entries.reshape(-1)
    entry = entry[entry["length"] > 0][0]
    data = bytearray(path.read_bytes())
    data[int(entry["offset"]) + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(ChunkDecodeError, match="usual"):
        vds.virtual.open().t.load()


def test_round_trip_through_kerchunk(path, document, tmp_path):
    """References that were written of a document read as the file does."""
    vds = vs.open_virtual_dataset(document, drop_variables=["u"])
    vds.virtual.to_kerchunk(tmp_path / "refs.json")
    expected = xr.open_dataset(path, engine="h5netcdf").drop_vars("u").load()
    xr.testing.assert_equal(xr.open_dataset(tmp_path / "refs.json", engine="virtualstack").load(), expected)


def test_only_what_is_wanted_is_looked_at(document):
    """Variables that are dropped, or lie in groups beside that which is wanted, may be damaged."""
    document.write_text(document.read_text().replace('nBytes="', 'nBytes="-'))
    with pytest.raises(MalformedFileError, match="nBytes is '-"):
        group_of(document, DMRPP())
    found = group_of(document, DMRPP(), drop_variables=frozenset({"time", "x", "y", "t", "u", "v", "w"}))
    assert not arrays_by_path(found)
    text = document.read_text()
    start = text.index('<Float32 name="v">')
    document.write_text(text[:start].replace('nBytes="-', 'nBytes="') + text[start:])
    with pytest.raises(MalformedFileError, match=r"'/below/v': nBytes is '-"):
        group_of(document, DMRPP())
    with pytest.raises(MalformedFileError, match=r"'/below/v': nBytes is '-"):
        group_of(document, DMRPP(), group="below")
    assert not group_of(document, DMRPP(), group="beside").groups["below"].arrays
    document.write_text(text[:start] + text[start:].replace('nBytes="-', 'nBytes="'))
    for group in ("", "below"):  # the group inherits the labels of the root
        with pytest.raises(MalformedFileError, match=r"'/time': nBytes is '-"):
            group_of(document, DMRPP(), group=group)


def test_a_group_inherits_the_labels_of_the_root(path, document):
    """Of the file that the document describes, as the reader of HDF5 finds them."""
    found = vs.open_virtual_dataset(document, group="below").virtual.open().load()
    with xr.open_dataset(path) as root, xr.open_dataset(path, group="below") as group:
        xr.testing.assert_identical(found, group.assign_coords({dim: root[dim] for dim in group.dims}))


def test_refused_variables_are_named(document):
    """A variable that the document does not place is refused by name, unless it is left out."""
    text = document.read_text()
    document.write_text(text.replace("shuffle deflate fletcher32", "shuffle szip fletcher32"))
    with pytest.raises(UnsupportedFeatureError, match="'/t': no codec for the filter 'szip'"):
        vs.open_virtual_dataset(document)
    assert "t" not in vs.open_virtual_dataset(document, drop_variables="t")
