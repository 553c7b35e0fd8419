"""What is written to Icechunk, opened by xarray and zarr beside xarray on the source."""

import os
import sys
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from tests.data.stores import concatenated
from tests.icechunk.repositories import (
    WARNINGS,
    icechunk,
    kinds_of,
    may_refer_to,
    months,
    netcdf,
    opens_rectilinear_grids,
    repository,
)
from tests.kerchunk.test_writer_oracle import CASES
from virtualstack.errors import MissingDependencyError, WriterError
from virtualstack.icechunk.repositories import save_icechunk
from virtualstack.manifests import ABSENT

pytestmark = [*WARNINGS, pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")]


def opened(session, **options):
    return xr.open_zarr(session.store, consolidated=False, chunks=None, **options)


def source(path):
    return xr.open_dataset(path, engine="h5netcdf")


def joined(paths):
    """What plain xarray makes of files one behind the other in time."""
    return concatenated(*map(source, paths))


def assert_same(got, expected):
    """Equal values, dtypes, names and attributes."""
    xr.testing.assert_identical(got.load(), expected.load())
    for name, variable in expected.variables.items():
        assert got[name].dtype == variable.dtype


@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "_"))
def test_zarr_gives_what_xarray_gives_on_the_source(case, tmp_path, session):
    """Decoded values, dtypes and attributes equal those of the source, whatever the fill values and holes."""
    path = tmp_path / "a file #1.nc"
    CASES[case](path)
    vs.open_virtual_dataset(path).virtual.to_icechunk(session.store)
    with source(path) as expected:
        assert_same(opened(session), expected)
    with xr.open_dataset(path, engine="h5netcdf", decode_cf=False) as expected:
        np.testing.assert_array_equal(opened(session, decode_cf=False)["v"].values, expected["v"].values)


def test_loaded_variables_are_chunks_and_others_references(tmp_path, session):
    """Coordinates and the like lie in the repository, one array in its file."""
    vds = vs.open_virtual_dataset(netcdf(tmp_path / "a.nc", zlib=True, shuffle=True), loadable_variables="crs")
    vds.virtual.to_icechunk(session.store)
    kinds = {name: set(kinds_of(session, name)) for name in vds.variables}
    assert kinds == {"time": {3}, "x": {3}, "t": {2}, "mask": {2}, "crs": {3}}
    assert set(session.all_virtual_chunk_locations()) == {f"file://{tmp_path}/a.nc"}
    session.commit("a")
    with source(tmp_path / "a.nc") as expected:
        assert_same(opened(session), expected)


# -- trees, groups and modes ----------------------------------------------------------------------------------


def tree_file(path):
    variables = {
        f"{group}/{name}": (dtype, "x", values)
        for group in ("a", "a/b")
        for name, dtype, values in (("x", "i4", np.arange(5)), ("v", "f4", np.arange(5) / 2))
    }
    attributes = {"title": "a tree", "a/level": "a", "a/b/level": "a/b"}
    return netcdf4_file(path, {"a/x": 5, "a/b/x": 5}, variables, **attributes)


def test_trees_become_groups(tmp_path, session):
    vs.open_virtual_datatree(tree_file(tmp_path / "a.nc")).virtual.to_icechunk(session.store, group="cube/one")
    got = xr.open_datatree(session.store, engine="zarr", group="cube/one", consolidated=False, chunks=None)
    with xr.open_datatree(tmp_path / "a.nc", engine="h5netcdf") as expected:
        xr.testing.assert_identical(got.load(), expected.load())
    assert sorted(zarr.open_group(session.store, mode="r").members(max_depth=None))[0][0] == "cube"


def test_what_is_there_is_replaced_only_with_mode_w(tmp_path, session):
    """mode="w" replaces a group and all below it; "w-" nothing, and groups beside one another do not touch."""
    one, two = (vs.open_virtual_dataset(netcdf(tmp_path / f"{i}.nc", start=i)) for i in (1, 2))
    one.virtual.to_icechunk(session.store)
    two.virtual.to_icechunk(session.store, group="below")
    status = repr(session.status())
    for group in (None, "below"):
        with pytest.raises(WriterError, match="mode='w'") as caught:
            two.virtual.to_icechunk(session.store, group=group)
        assert caught.value.feature == "existing target"
    with pytest.raises(WriterError, match="an array cannot contain groups"):
        two.virtual.to_icechunk(session.store, group="t/inner")
    assert repr(session.status()) == status
    two[["t"]].virtual.to_icechunk(session.store, group="below", mode="w")
    assert set(opened(session, group="below").variables) == {"t", "time", "x"}
    with source(tmp_path / "1.nc") as expected:
        assert_same(opened(session), expected)
    two.virtual.to_icechunk(session.store, mode="w")
    with source(tmp_path / "2.nc") as expected:
        assert_same(opened(session), expected)
    assert list(zarr.open_group(session.store, mode="r").group_keys()) == []


# -- what is refused, before anything is written --------------------------------------------------------------


def refused(vds, session, **options):
    """Give the error of writing, which must have changed nothing."""
    before = session.has_uncommitted_changes, repr(session.status())
    with pytest.raises(WriterError) as caught:
        vds.virtual.to_icechunk(session.store, **options)
    assert (session.has_uncommitted_changes, repr(session.status())) == before
    return caught.value


def test_places_without_a_container_are_named(tmp_path):
    """The error names the prefix that is missing, and what to do; what it says to do helps."""
    folder = tmp_path / "da ta"
    folder.mkdir()
    vds = vs.open_virtual_dataset(netcdf(folder / "a.nc"))
    session = repository(None).writable_session("main")
    error = refused(vds, session)
    prefix = f"file://{tmp_path}/"  # Icechunk reads nothing in containers whose prefix is percent-encoded
    assert error.feature == f"virtual chunk container for '{prefix}'"
    assert f"icechunk.VirtualChunkContainer('{prefix}', ...)" in str(error)
    assert error.variable in ("t", "mask", "x", "crs")
    config = may_refer_to((prefix, prefix.removeprefix("file://")))
    access = {prefix: icechunk.credentials.LocalFileSystemAccess}
    other = icechunk.Repository.create(icechunk.in_memory_storage(), config, access).writable_session("main")
    vds.virtual.to_icechunk(other.store)
    expected = xr.open_dataset(folder / "a.nc")
    xr.testing.assert_identical(xr.open_zarr(other.store, consolidated=False, chunks=None).load(), expected.load())


def test_containers_that_icechunk_does_not_read_are_none(tmp_path):
    """Those whose prefix is percent-encoded."""
    (tmp_path / "da ta").mkdir()
    vds = vs.open_virtual_dataset(netcdf(tmp_path / "da ta" / "a.nc"))
    prefix = f"file://{tmp_path}/da%20ta/"
    config = may_refer_to((prefix, f"{tmp_path}/da ta/"))
    session = icechunk.Repository.create(icechunk.in_memory_storage(), config).writable_session("main")
    assert refused(vds, session).feature == f"virtual chunk container for 'file://{tmp_path}/'"


def test_sessions_that_only_read_are_refused(tmp_path):
    vds = vs.open_virtual_dataset(netcdf(tmp_path / "a.nc"))
    session = repository(None, tmp_path).readonly_session("main")
    with pytest.raises(WriterError, match="writable_session"):
        vds.virtual.to_icechunk(session.store)
    with pytest.raises(TypeError, match=r"session\.store"):
        vds.virtual.to_icechunk(session.store.session.config)


def test_a_path_names_a_repository_which_is_created_or_opened(tmp_path):
    """The call commits to the branch main, with the containers that icechunk itself needs to read the sources."""
    target = tmp_path / "a.icechunk"
    vds = vs.open_virtual_dataset(netcdf(tmp_path / "a.nc"))
    vds.virtual.to_icechunk(target)
    with pytest.raises(WriterError, match="mode='w'"):
        vds.virtual.to_icechunk(target)
    vds.virtual.to_icechunk(str(target), mode="w")
    vds.virtual.to_icechunk(target, group="again/below")
    storage = icechunk.local_filesystem_storage(str(target))
    access = {f"file://{tmp_path}/": icechunk.credentials.LocalFileSystemAccess}
    repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    for group in ("", "again/below"):
        read = xr.open_zarr(repo.readonly_session("main").store, group=group, consolidated=False)
        with xr.open_dataset(tmp_path / "a.nc") as expected:
            xr.testing.assert_equal(read.load(), expected)


@pytest.mark.parametrize("option", [{"join": "outer"}, {"mode": "x"}, {"absent": "x"}, {"rewrite": "x"}])
def test_options_are_checked_before_a_repository_is_created(tmp_path, monkeypatch, option):
    vds = vs.open_virtual_dataset(netcdf(tmp_path / "a.nc"))
    monkeypatch.setattr(icechunk.Repository, "create", Mock(side_effect=AssertionError))
    with pytest.raises(ValueError, match=next(iter(option))):
        vds.virtual.to_icechunk(tmp_path / "a.icechunk", **option)
    assert not (tmp_path / "a.icechunk").exists()


@pytest.mark.parametrize("name", ["a\\b", "..", "__values", "zarr.json"])
def test_names_that_zarr_does_not_find_again(session, tmp_path, name):
    vds = vs.open_virtual_dataset(netcdf(tmp_path / "a.nc")).rename(t=name)
    with pytest.raises(WriterError, match="cannot be a name in zarr") as caught:
        vds.virtual.to_icechunk(session.store)
    assert caught.value.variable == name


@pytest.mark.parametrize("name", ["zarr.json_notes", "zarr.json.bak"])
def test_names_that_begin_as_that_of_a_document_are_names(session, tmp_path, name):
    vs.open_virtual_dataset(netcdf(tmp_path / "a.nc")).rename(t=name).virtual.to_icechunk(session.store)
    with source(tmp_path / "a.nc") as expected:
        assert_same(opened(session), expected.rename(t=name))


@pytest.mark.parametrize("why", ["dimension", "grid"])
def test_metadata_that_icechunk_refuses_leave_the_session_as_it_was(tmp_path, why):
    """Neither what is committed nor other changes of the session go, and the error names the variable."""
    storage, config = icechunk.in_memory_storage(), may_refer_to(tmp_path)
    session = icechunk.Repository.create(storage, config, spec_version=1).writable_session("main")
    zarr.create_array(session.store, name="mine", data=np.arange(3))
    before = str(session.status())
    vds = vs.open_virtual_mfdataset(months(tmp_path))[["t"]]
    if why == "dimension":
        vds = vds.isel(time=slice(0, 3)).rename(x="\udce9")  # a name in latin-1
    with pytest.raises(WriterError, match="does not take the metadata of 't'") as caught:
        vds.virtual.to_icechunk(session.store, mode="w", inline_limit=0)
    assert caught.value.variable == "t"
    assert str(session.status()) == before


@pytest.mark.parametrize("name", ["a\nb.nc", "a\\b.nc", "./a.nc"])
def test_names_of_files_that_no_reader_of_a_bucket_opens(tmp_path, name):
    """They are refused before the server is asked, or anything is created there."""
    group = vs.open_virtual_dataset(netcdf(tmp_path / "a.nc")).virtual.to_group()
    named = group.map_arrays(lambda x: x.rename_locations(lambda url: f"s3://other/{name}"))
    with pytest.raises(WriterError, match="may not name it"):
        save_icechunk(named, "s3://bucket/a.icechunk")


def test_a_path_of_other_files_is_no_repository(tmp_path):
    """A folder of files is not made a repository, and stays as it is."""
    vds = vs.open_virtual_dataset(netcdf(tmp_path / "a.nc"))
    with pytest.raises(WriterError, match="is not an Icechunk repository"):
        vds.virtual.to_icechunk(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]


def test_icechunk_is_named_where_it_is_not_installed(tmp_path, monkeypatch):
    vds = vs.open_virtual_dataset(netcdf(tmp_path / "a.nc"))
    monkeypatch.setitem(sys.modules, "icechunk", None)
    with pytest.raises(MissingDependencyError, match=r"virtualstack\[icechunk\]"):
        vds.virtual.to_icechunk(object())


def test_absent_chunks_are_refused_or_read_as_the_fill_value(tmp_path, session):
    """What should be there and is not is an error, or filled where that is asked for."""
    vds = vs.open_virtual_dataset(netcdf(tmp_path / "a.nc", fill=np.float32(-1)))
    array = vds["t"].data
    entries = array.manifest.entries.copy()
    entries[1] = (ABSENT, 0, 0, 0)
    vds["t"] = vds["t"].copy(data=replace(array, manifest=replace(array.manifest, entries=entries)))
    error = refused(vds, session)
    assert (error.feature, error.variable) == ("ABSENT chunks", "t")
    assert "2 ABSENT chunks" in str(error)
    vds.virtual.to_icechunk(session.store, absent="fill")
    got = opened(session)["t"].values
    assert np.isnan(got[2:]).all()
    with source(tmp_path / "a.nc") as expected:
        np.testing.assert_array_equal(got[:2], expected["t"].values[:2])
    with pytest.raises(ValueError, match="absent="):
        vds.virtual.to_icechunk(session.store, absent="drop")


def test_packing_that_json_cannot_hold_is_refused(tmp_path, session):
    path = netcdf(tmp_path / "a.nc", dtype="i2", attrs={"scale_factor": np.nan})
    assert refused(vs.open_virtual_dataset(path), session).feature == "NaN"


# -- chunks that differ ---------------------------------------------------------------------------------------


@opens_rectilinear_grids
def test_chunks_of_different_lengths_are_a_rectilinear_grid(tmp_path, session):
    """Months of 3, 4 and 2 days in one chunk each need no byte: zarr reads them where it is told that it may."""
    paths = months(tmp_path)
    vds = vs.open_virtual_mfdataset(paths, combine="by_coords")
    vds.virtual.to_icechunk(session.store, inline_limit=0)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        grid = zarr.open_array(session.store, path="t", mode="r").metadata.chunk_grid.to_dict()
        assert list(grid["configuration"]["chunk_shapes"]) == [[3, 4, 2], [3], [[2, 2]]]
        with joined(paths) as expected:
            xr.testing.assert_equal(opened(session).load(), expected.load())
    with pytest.raises(Exception, match="rectilinear_chunks"):
        opened(session)


def test_strings_in_chunks_of_different_lengths(tmp_path, session):
    """Those of several files."""
    texts = [["a", "bé"], ["c", "", "ddd"], ["e"]]
    for n, text in enumerate(texts):
        xr.Dataset({"s": ("x", np.array(text, object))}).to_netcdf(tmp_path / f"{n}.nc", engine="netcdf4")
    paths = [tmp_path / f"{n}.nc" for n in range(3)]
    vs.open_virtual_mfdataset(paths, combine="nested", concat_dim="x").virtual.to_icechunk(session.store)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        assert opened(session)["s"].values.tolist() == [x for text in texts for x in text]


def test_encodings_that_differ_are_rewritten_or_refused_with_numbers(tmp_path, session):
    """One file of four is compressed in another way: its chunks are encoded as the others are, within a budget."""
    paths = [
        netcdf(tmp_path / f"{i}.nc", start=4 * i, **({"zlib": True, "shuffle": True} if i != 2 else {}))
        for i in range(4)
    ]
    vds = vs.open_virtual_mfdataset(paths, combine="by_coords")
    error = refused(vds, session, inline_limit=0)
    assert "4 of 16 chunks" in str(error)
    assert "rewrite=" in str(error)
    assert refused(vds, session, inline_limit=0, rewrite=1).feature == "rewrite"
    vds.virtual.to_icechunk(session.store, inline_limit=0, rewrite="100%")
    with joined(paths) as expected:
        xr.testing.assert_equal(opened(session).load(), expected.load())
    kinds = kinds_of(session, "t")
    assert (kinds.count(2), kinds.count(3)) == (12, 4)


def test_small_variables_that_differ_are_stored_whole(tmp_path, session):
    paths = [netcdf(tmp_path / f"{i}.nc", start=4 * i, zlib=bool(i)) for i in range(2)]
    vds = vs.open_virtual_mfdataset(paths, combine="by_coords")
    vds.virtual.to_icechunk(session.store)
    with joined(paths) as expected:
        xr.testing.assert_equal(opened(session).load(), expected.load())


# -- files that change ----------------------------------------------------------------------------------------


def test_files_that_changed_are_not_read(tmp_path, session):
    """Each of two files has its own time: Icechunk refuses the one that changed, and reads the other."""
    paths = [netcdf(tmp_path / f"{i}.nc", start=4 * i) for i in range(2)]
    for i, path in enumerate(paths):
        os.utime(path, (1000 + 100 * i, 1000.25 + 100 * i))
    vds = vs.open_virtual_mfdataset(paths, combine="by_coords")
    vds.virtual.to_icechunk(session.store)
    xr.testing.assert_equal(opened(session).t.load(), vds.virtual.open().t.load())
    os.utime(paths[0], (1050, 1050))
    got = opened(session).t
    assert got[4:].values.shape == (4, 3, 4)
    with pytest.raises(Exception, match="checksum of the object"):
        got[:4].load()


def test_scattered_chunks_keep_the_time_of_their_file(tmp_path, session):
    """Chunks of two files in turn are no boxes, and are handed over one by one."""
    paths = [netcdf(tmp_path / f"{i}.nc", start=20 * i, n=20, chunk=1) for i in range(2)]
    os.utime(paths[0], (1000, 1000))
    joined = vs.open_virtual_mfdataset(paths, combine="by_coords")
    order = np.random.default_rng(1).permutation(40)
    mixed = joined.isel(time=np.r_[order, order])[["t"]]
    mixed.virtual.to_icechunk(session.store)
    xr.testing.assert_equal(opened(session).t.load(), mixed.virtual.open().t.load())
    os.utime(paths[0], (1050, 1050))
    with pytest.raises(Exception, match="checksum of the object"):
        opened(session).t[int(np.flatnonzero(order < 20)[0])].load()
    assert opened(session).t[int(np.flatnonzero(order >= 20)[0])].load().size == 12


def test_no_name_of_a_group_is_taken_for_checks():
    """Metadata are tried elsewhere, before they are written."""
    store = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main").store
    for name in ("__virtualstack_checked", "other"):
        ds = xr.Dataset({"t": ("x", np.arange(3.0))}, attrs={"name": name})
        ds.virtual.to_icechunk(store, group=name)
    got = xr.open_zarr(store, group="__virtualstack_checked", consolidated=False, chunks=None)
    assert got.attrs == {"name": "__virtualstack_checked"}
    assert got["t"].values.tolist() == [0, 1, 2]
