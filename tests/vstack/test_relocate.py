"""Archives that move, with their store or without it."""

import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import fsspec
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import load as read
from tests.servers import RangeServer
from tests.vstack.archive import as_read, copy_with_other_times, days, join
from tests.vstack.test_plain_reader import assert_reads_alike
from virtualstack.errors import (
    ForbiddenLocationError,
    SourceChangedError,
    SourceNotFoundError,
    StorageError,
    WriterError,
)
from virtualstack.vstack.format.names import snapshot_key


@pytest.mark.parametrize("end", ["", "/"])
@pytest.mark.parametrize("as_url", [True, False])
def test_a_copied_archive_is_read_where_it_is_now(tmp_path, archive, end, as_url):
    """Paths and URLs, with a slash or without; the times of the copies do not matter."""
    expected = as_read(archive)
    copy_with_other_times(tmp_path / "data", tmp_path / "new" / "place")
    shutil.rmtree(tmp_path / "data")
    begin = "file://" if as_url else ""
    moves = {f"{begin}{tmp_path}/data{end}": f"{begin}{tmp_path}/new/place{end}"}
    repository = vs.Repository.open(tmp_path / "x.vstack").relocate(moves)
    assert repository.snapshot.number == 1
    assert repository.snapshot.message == f"relocated 'file://{tmp_path}/data/' to 'file://{tmp_path}/new/place/'"
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), expected)
    with pytest.raises(SourceNotFoundError, match=r"data/000\.nc"):
        read(tmp_path / "x.vstack", reader=vs.readers.VStack(at=0))


def test_nothing_but_a_snapshot_is_written(tmp_path, archive):
    """Whatever the number of references."""

    def objects():
        return {p for p in (tmp_path / "x.vstack" / ".vstack").rglob("*") if p.is_file() and "snapshots" not in p.parts}

    before = objects()
    vs.Repository.open(tmp_path / "x.vstack").relocate({tmp_path / "data": "s3://bucket"})
    assert {p for p in objects() if p.name != "zarr.json"} == {p for p in before if p.name != "zarr.json"}


def test_an_archive_moves_to_s3_and_back(tmp_path, archive, s3_server):
    """One relocation after another, of files with sizes and no etags."""
    expected = as_read(archive)
    for path in archive:
        s3_server.put(f"moved/{path.name}", path.read_bytes())
    storage = {"s3://bucket": s3_server.options}
    there = vs.Repository.open(tmp_path / "x.vstack").relocate({tmp_path / "data": "s3://bucket/moved"})
    xr.testing.assert_identical(read(tmp_path / "x.vstack", storage=storage), expected)
    there.relocate({"s3://bucket/moved/": tmp_path / "data"})
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), expected)


def test_what_came_back_is_what_was_indexed_there(tmp_path, archive):
    """Where files are where they were indexed, their content counts, though they were elsewhere meanwhile."""
    expected = as_read(archive)
    repository = vs.Repository.open(tmp_path / "x.vstack").relocate({tmp_path / "data": tmp_path / "new"})
    back = repository.relocate({tmp_path / "new": tmp_path / "data"})
    assert back.verify().is_good
    copy_with_other_times(tmp_path / "data", tmp_path / "new")
    shutil.rmtree(tmp_path / "data")
    copy_with_other_times(tmp_path / "new", tmp_path / "data")
    assert back.verify(sample=1.0).is_good
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), expected)
    data = bytearray(archive[1].read_bytes())
    data[-1] ^= 1
    archive[1].write_bytes(data)
    assert [(x.status, Path(x.url).name) for x in back.verify().problems] == [("changed", archive[1].name)]
    with pytest.raises(SourceChangedError, match=rf"{archive[1].name}' changed after it was indexed: other content"):
        read(tmp_path / "x.vstack")
    assert back.relocate({tmp_path / "data": tmp_path / "new"}).verify().is_good


def test_what_is_added_later_is_where_it_is_added(tmp_path, archive):
    """Files under the old folder, after others were moved from there; then they move too."""
    shutil.move(tmp_path / "data", tmp_path / "old")
    first = [tmp_path / "old" / path.name for path in archive]
    vs.Repository.open(tmp_path / "x.vstack").relocate({tmp_path / "data": tmp_path / "old"})
    later = days(tmp_path / "data", 6)[4:]
    stored = vs.open_virtual_dataset(tmp_path / "x.vstack")
    grown = xr.concat([stored, join(later)], "time", data_vars="minimal", coords="minimal", compat="override")
    grown.virtual.to_vstack(tmp_path / "x.vstack", mode="w")
    expected = as_read([*first, *later])
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), expected)
    shutil.move(tmp_path / "data", tmp_path / "newer")
    vs.Repository.open(tmp_path / "x.vstack").relocate({tmp_path / "data": tmp_path / "newer"})
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), expected)


@pytest.mark.parametrize(
    "select", [{"time": slice(1, None)}, {"lat": slice(None, None, -1)}, {"lat": 2}, {"time": slice(0, 4, 2)}]
)
def test_a_part_of_an_earlier_snapshot_is_put_back_where_its_files_are_now(tmp_path, archive, select):
    """As the whole of it is, though its references are written anew."""
    expected = as_read(archive).isel(select)
    copy_with_other_times(tmp_path / "data", tmp_path / "new")
    shutil.rmtree(tmp_path / "data")
    url = tmp_path / "x.vstack"
    vs.Repository.open(url).relocate({tmp_path / "data": tmp_path / "new"})
    earlier = vs.open_virtual_dataset(url, reader=vs.readers.VStack(at=0))
    earlier.isel(select).virtual.to_vstack(url, mode="w")
    xr.testing.assert_identical(read(url), expected)
    assert vs.Repository.open(url).verify().is_good


def test_a_part_of_an_archive_moves(tmp_path):
    """A folder below the common one; another of that folder's beginning stays."""
    paths = [*days(tmp_path / "data" / "a", 2), *days(tmp_path / "data" / "ab", 4)[2:]]
    join(paths).virtual.to_vstack(tmp_path / "x.vstack")
    expected = as_read(paths)
    shutil.move(tmp_path / "data" / "a", tmp_path / "b")
    repository = vs.Repository.open(tmp_path / "x.vstack")
    moved = repository.relocate({tmp_path / "data" / "a": tmp_path / "b"})
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), expected)
    with pytest.raises(WriterError, match=rf"no source of .* is in 'file://{tmp_path}/data/c/'. Its sources are in: "):
        moved.relocate({tmp_path / "data" / "c": tmp_path / "b"})


def test_a_folder_without_sources_is_an_error_that_names_those_with(tmp_path, archive):
    """A mistake in a name must not look as if it had been done."""
    repository = vs.Repository.open(tmp_path / "x.vstack").write("t", {"time": 0}, 1.0)  # whose values stay in it
    message = (
        rf"no source of .* is in 's3://bucket/dta/'. Its sources are in: 'file://{tmp_path}/data/'; give one of these"
    )
    with pytest.raises(WriterError, match=message):
        repository.relocate({"s3://bucket/dta": "s3://other"})
    with pytest.raises(ValueError, match="is empty"):
        repository.relocate({})
    with pytest.raises(WriterError, match="'' is not a folder"):
        repository.relocate({"": "s3://other"})
    assert vs.Repository.open(tmp_path / "x.vstack").snapshot.number == 1


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        ("", WriterError, "'' is not a folder"),
        (" ", WriterError, "' ' is not a folder"),
        ("odd://bucket/data", StorageError, "no storage is known for 'odd://'"),
        ("s3://", WriterError, "'s3://' has no host or bucket"),
        ("https:///data", WriterError, "'https:///data/' has no host or bucket"),
        ("s3://bucket/../data", WriterError, "has a segment '.' or '..'"),
        (None, TypeError, "URLs or paths of folders, not None"),
    ],
)
def test_a_place_that_nobody_reads_is_refused(tmp_path, archive, place, error, message):
    """Before anything is written: else the store could not be read any more."""
    with pytest.raises(error, match=message):
        vs.Repository.open(tmp_path / "x.vstack").relocate({tmp_path / "data": place})
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), as_read(archive))


def test_a_scheme_that_the_user_gives_storage_for(tmp_path, archive):
    """Is no unknown one."""
    repository = vs.Repository.open(tmp_path / "x.vstack", storage={"odd://": fsspec.filesystem("memory")})
    assert repository.relocate({tmp_path / "data": "odd://bucket"}).snapshot.number == 1


def test_moves_that_would_undo_each_other_are_refused(tmp_path):
    """An exchange of two folders has no order; nested ones do."""
    paths = [*days(tmp_path / "a", 2), *days(tmp_path / "b", 4)[2:]]
    join(paths).virtual.to_vstack(tmp_path / "x.vstack")
    repository = vs.Repository.open(tmp_path / "x.vstack")
    a, b, c = (tmp_path / name for name in "abc")
    with pytest.raises(WriterError, match="Call relocate\\(\\) once for each folder, in the intended order"):
        repository.relocate({a: b, b: a})
    expected = as_read(paths)
    shutil.move(a, c / "a")
    shutil.move(b, c / "rest" / "b")
    repository.relocate({a: c / "a", b: c / "rest" / "b"})
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), expected)


def test_a_store_moves_with_its_archive(tmp_path):
    """Locations relative to the store; times of copies do not matter."""
    paths = days(tmp_path / "here" / "data")
    join(paths).virtual.to_vstack(tmp_path / "here" / "x.vstack", relative=True)
    expected = as_read(paths)
    copy_with_other_times(tmp_path / "here", tmp_path / "there")
    shutil.rmtree(tmp_path / "here")
    xr.testing.assert_identical(read(tmp_path / "there" / "x.vstack"), expected)
    vds = vs.open_virtual_dataset(tmp_path / "there" / "x.vstack")
    assert set(vds.virtual.locations["url"]) == {f"file://{tmp_path}/there/data/{path.name}" for path in paths}


def test_a_store_and_its_archive_move_to_s3(tmp_path, s3_server):
    """All files of both, put under one prefix."""
    paths = days(tmp_path / "data")
    join(paths).virtual.to_vstack(tmp_path / "x.vstack", relative=True)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            s3_server.put(f"both/{path.relative_to(tmp_path).as_posix()}", path.read_bytes())
    found = read("s3://bucket/both/x.vstack", storage={"s3://bucket": s3_server.options})
    xr.testing.assert_identical(found, as_read(paths))


def test_etags_of_a_bucket_mean_nothing_to_a_web_server(tmp_path, s3_server):
    """Where a store and its archive are copied from the one to the other."""
    paths, options = days(tmp_path / "data"), {"storage": {"s3://bucket": s3_server.options}}
    for path in paths:
        s3_server.put(f"web/data/{path.name}", path.read_bytes())
    vds = join([f"s3://bucket/web/data/{path.name}" for path in paths], **options)
    vds.virtual.to_vstack("s3://bucket/web/x.vstack", relative=True, **options)
    found = s3_server.client.list_objects_v2(Bucket="bucket", Prefix="web/")["Contents"]
    files = {x["Key"]: s3_server.client.get_object(Bucket="bucket", Key=x["Key"])["Body"].read() for x in found}
    with RangeServer(files) as server:
        known = server.read
        server.read = lambda path: None if (x := known(path)) is None else (x[0], f'"other-{len(x[0])}"')
        xr.testing.assert_identical(read(server.url("web/x.vstack"), allow=[server.root]), as_read(paths))
        assert vs.Repository.open(server.url("web/x.vstack"), allow=[server.root]).verify().is_good


@pytest.mark.parametrize("name", ["a b", "100%", "p%41", "run#1", "w?o", "\u00e9"])
def test_relative_names_are_paths_at_a_web_server_too(tmp_path, name):
    """Though these characters mean something else in its URLs."""
    (tmp_path / name).mkdir()
    (path,) = days(tmp_path / name, 1)
    path = path.rename(path.with_name(f"{name}.nc"))
    vs.open_virtual_dataset(path).virtual.to_vstack(tmp_path / "x.vstack", relative=True)
    with RangeServer(tmp_path) as server:
        found = xr.load_dataset(server.url("x.vstack"), engine="virtualstack", allow=[server.root])
    xr.testing.assert_identical(found, xr.load_dataset(path))


@pytest.mark.parametrize("name", ["a b", "100%", "p%41", "run#1", "w?o", "\u00e9"])
def test_names_are_spelt_as_they_are_where_files_moved(tmp_path, name):
    """From a disk to a web server, where these characters mean something else, and back; as the store names them."""
    (path,) = days(tmp_path / name, 1)
    path = path.rename(path.with_name(f"{name}.nc"))
    expected, url = xr.load_dataset(path), tmp_path / "x.vstack"
    vs.open_virtual_dataset(path).virtual.to_vstack(url)
    with RangeServer(tmp_path) as server:
        repository = vs.Repository.open(url, allow=[server.root]).relocate({tmp_path: server.root})
        xr.testing.assert_identical(xr.load_dataset(url, engine="virtualstack", allow=[server.root]), expected)
        assert repository.verify().is_good
        quoted = vs.open_virtual_dataset(server.url(quote(f"{name}/{name}.nc")))
        quoted.virtual.to_vstack(tmp_path / "y.vstack")
        for store in ("x.vstack", "y.vstack"):
            repository = vs.Repository.open(tmp_path / store, allow=[server.root])
            repository.relocate({server.root: tmp_path})
            xr.testing.assert_identical(read(tmp_path / store), expected)
            assert set(vs.open_virtual_dataset(tmp_path / store).virtual.locations["url"]) == {f"file://{path}"}
            assert_reads_alike(tmp_path / store)


def test_relative_sources_are_relocated_by_their_name(tmp_path):
    """They move with the store, so that an absolute folder does not mean them; and what moved can become relative."""
    paths = days(tmp_path / "data")
    expected = as_read(paths)
    join(paths).virtual.to_vstack(tmp_path / "x.vstack", relative=True)
    repository = vs.Repository.open(tmp_path / "x.vstack")
    with pytest.raises(WriterError, match=r"'\.\./data/' is relative to the store and moves with it. To relocate it"):
        repository.relocate({tmp_path / "data": tmp_path / "new"})
    shutil.move(tmp_path / "data", tmp_path / "new")
    repository = repository.relocate({"../data": tmp_path / "new"})
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), expected)
    repository.relocate({tmp_path / "new": "../new"})
    shutil.move(tmp_path / "new", tmp_path / "both" / "new")
    shutil.move(tmp_path / "x.vstack", tmp_path / "both" / "x.vstack")
    xr.testing.assert_identical(read(tmp_path / "both" / "x.vstack"), expected)


CLIMBS = "leads out of the folder that contains the store"
UNREADABLE = "cannot be a path relative to the store"  # readers would not take the locations, or the store at all
INSIDE = "is in the store itself, and could not be relocated from there again"


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        *((folder, CLIMBS) for folder in ("../../data", "../a/../../b", ".././x")),
        *((x, UNREADABLE) for x in ("../data#", "../what?/a", "../a\\", "../%2e%2e/data", "../a%2f/b", "../a\nb")),
        *((folder, INSIDE) for folder in (".", "./", "./data")),
    ],
)
def test_a_new_place_that_no_relative_location_may_have(tmp_path, archive, folder, reason, monkeypatch):
    """It is refused, and nothing changes."""
    monkeypatch.chdir(tmp_path)
    repository = vs.Repository.open(tmp_path / "x.vstack")
    with pytest.raises(WriterError, match=reason):
        repository.relocate({tmp_path / "data": folder})
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), as_read(archive))


def test_what_lies_in_the_store_stays_there(tmp_path):
    """Sources in the store's own folder move with it."""
    join(days(tmp_path / "elsewhere")).virtual.to_vstack(tmp_path / "x.vstack")
    paths = days(tmp_path / "x.vstack" / "data")
    join(paths).virtual.to_vstack(tmp_path / "x.vstack", mode="w")
    with pytest.raises(WriterError, match=r"'\./data/' is in the store itself and moves with it"):
        vs.Repository.open(tmp_path / "x.vstack").relocate({"./data": tmp_path})
    expected = as_read(paths)
    shutil.move(tmp_path / "x.vstack", tmp_path / "y.vstack")
    xr.testing.assert_identical(read(tmp_path / "y.vstack"), expected)


def test_two_writers_relocate_and_add(tmp_path, archive):
    """Who opened the store before somebody else changed it relocates what there is now."""
    early = vs.Repository.open(tmp_path / "x.vstack")
    vds = vs.open_virtual_dataset(tmp_path / "x.vstack").assign_attrs(title="b")
    vds.virtual.to_vstack(tmp_path / "x.vstack", mode="w")
    shutil.move(tmp_path / "data", tmp_path / "new")
    assert early.relocate({tmp_path / "data": tmp_path / "new"}).snapshot.number == 2
    found = read(tmp_path / "x.vstack")
    xr.testing.assert_identical(found, as_read([tmp_path / "new" / p.name for p in archive]).assign_attrs(title="b"))


def test_a_trap_in_a_store_is_refused(tmp_path):
    """A relative location that climbs, as a stranger's store may have it."""
    paths = days(tmp_path / "data", 1)
    join(paths).virtual.to_vstack(tmp_path / "x.vstack")
    repository = vs.Repository.open(tmp_path / "x.vstack")
    trap = "../" + "../" * len(Path(tmp_path).parts) + "etc/"
    moved = ((f"file://{tmp_path}/data/", trap, 99),)
    made = replace(repository.snapshot, number=1, moved=moved)
    repository.objects.target.put(snapshot_key(1), made.encode())
    with pytest.raises(ForbiddenLocationError, match="neither a URL nor a plain path"):
        read(tmp_path / "x.vstack")


def test_new_folders_may_be_read(tmp_path, archive):
    """Where places are listed, the new folder is one that must be."""
    expected = as_read(archive)
    url = shutil.copytree(tmp_path / "x.vstack", tmp_path / "given" / "x.vstack")
    shutil.copytree(tmp_path / "data", tmp_path / "c")
    moved = vs.Repository.open(url).relocate({tmp_path / "data": tmp_path / "c"})
    assert moved.verify(sample=2).is_good
    changed = moved.write("flag", ..., expected["flag"].values + 1)
    xr.testing.assert_identical(read(url, allow=tmp_path / "c").drop_vars("flag"), expected.drop_vars("flag"))
    assert changed.verify().is_good
    read(url)
    with pytest.raises(ForbiddenLocationError, match=r"/c/', which is a local file"):
        read(url, allow=vs.Listed())
    xr.testing.assert_identical(
        read(url, allow=vs.Listed(tmp_path / "c")).drop_vars("flag"), expected.drop_vars("flag")
    )
