"""Stores that moved with their files, or whose files moved: copies are read, and files written again are not."""

import os
import shutil

import h5netcdf
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import load as read
from tests.vstack.archive import as_read, change_snapshot, copy_with_other_times, days, join, values_of, write_day
from virtualstack.combine.precedence import Candidate
from virtualstack.errors import SourceChangedError, WriterError
from virtualstack.storage import digests


def write_again(path, seed=1):
    """Put other values into a file that keeps its size, so that its time alone tells."""
    before = path.stat()
    with h5netcdf.File(path, "a") as file:
        file["flag"][...] = values_of(9, seed)[..., 0].astype("i2")
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))


@pytest.fixture
def portable(tmp_path):
    """A store that names its files relative to itself, in the folder of the files."""
    paths = days(tmp_path / "here" / "data")
    join(paths).virtual.to_vstack(tmp_path / "here" / "x.vstack", relative=True)
    return tmp_path / "here"


def files_as_read(folder):
    return as_read(sorted(folder.iterdir()))


def test_a_file_of_a_portable_store_that_was_written_again(portable):
    """It is refused where it has the size that it had, and `refresh` takes it in."""
    write_again(portable / "data" / "001.nc")
    with pytest.raises(
        SourceChangedError, match=r"001\.nc' changed after it was indexed: other content, modified .* instead of"
    ):
        read(portable / "x.vstack")
    repository = vs.Repository.open(portable / "x.vstack")
    assert [x.status for x in repository.verify().problems] == ["changed"]
    assert not repository.refresh().left
    xr.testing.assert_equal(read(portable / "x.vstack"), files_as_read(portable / "data"))
    write_again(portable / "data" / "001.nc", seed=2)
    with pytest.raises(SourceChangedError, match=r"001\.nc"):
        read(portable / "x.vstack")


def test_a_portable_store_that_was_copied_with_its_files(portable, tmp_path, monkeypatch):
    """It opens though its files have other times; each of them is looked into once."""
    copy_with_other_times(portable, tmp_path / "there")
    store = tmp_path / "there" / "x.vstack"
    asked, made = [], digests._local_digest
    monkeypatch.setattr(digests, "_local_digest", lambda url, *rest: asked.append(url) or made(url, *rest))
    for _ in range(2):
        xr.testing.assert_equal(read(store), files_as_read(tmp_path / "there" / "data"))
        assert vs.Repository.open(store).verify().is_good
    assert len(asked) == len(set(asked)) == 4
    write_again(tmp_path / "there" / "data" / "002.nc")
    with pytest.raises(SourceChangedError, match=r"there/data/002\.nc"):
        read(store)


def test_what_is_read_from_a_copied_store_is_written_to_another_one(portable, tmp_path):
    """The new store, which names files by absolute URLs, knows the times that they have now."""
    copy_with_other_times(portable, tmp_path / "there")
    vds = vs.open_virtual_dataset(tmp_path / "there" / "x.vstack")
    vds.virtual.to_vstack(tmp_path / "absolute.vstack", relative=False)
    xr.testing.assert_equal(read(tmp_path / "absolute.vstack"), files_as_read(tmp_path / "there" / "data"))
    write_again(tmp_path / "there" / "data" / "002.nc")
    with pytest.raises(SourceChangedError, match=r"there/data/002\.nc"):
        read(tmp_path / "absolute.vstack")


def test_the_same_files_are_not_added_again_to_a_copied_store(portable, tmp_path):
    """Copies of the files that a store has are the files that it has, to `update`."""
    copy_with_other_times(portable, tmp_path / "there")
    paths = sorted((tmp_path / "there" / "data").iterdir())
    repository = vs.Repository.open(tmp_path / "there" / "x.vstack").update(paths, dim="time")
    xr.testing.assert_equal(read(tmp_path / "there" / "x.vstack"), as_read(paths))
    assert len(repository.log()) == 1


def test_files_that_were_relocated(tmp_path):
    """Copies in another folder are read, and what was written again there is not."""
    paths = days(tmp_path / "old")
    join(paths).virtual.to_vstack(tmp_path / "x.vstack", relative=False)
    copy_with_other_times(tmp_path / "old", tmp_path / "new")
    shutil.rmtree(tmp_path / "old")
    vs.Repository.open(tmp_path / "x.vstack").relocate({tmp_path / "old": tmp_path / "new"})
    xr.testing.assert_equal(read(tmp_path / "x.vstack"), files_as_read(tmp_path / "new"))
    write_again(tmp_path / "new" / "003.nc")
    with pytest.raises(SourceChangedError, match=r"new/003\.nc"):
        read(tmp_path / "x.vstack")


def test_a_store_from_before_there_were_digests(portable):
    """It opens as it did, and its files are compared by their sizes alone."""

    def without_digests(document):
        for segment in document["segments"]["tail"]:
            assert all(segment["sources"].pop("digest"))

    change_snapshot(portable / "x.vstack", without_digests)
    write_again(portable / "data" / "001.nc")
    np.testing.assert_array_equal(read(portable / "x.vstack")["flag"], files_as_read(portable / "data")["flag"])


@pytest.mark.parametrize("is_newer", [True, False])
def test_the_newest_file_counts_in_a_portable_store(portable, is_newer):
    """The store knows when its files were modified, and so does a function that is given them."""
    old = portable / "data" / "001.nc"
    new = write_day(portable / "new.nc", 1, seed=7)
    os.utime(new, (old.stat().st_mtime + (100 if is_newer else -100),) * 2)
    seen = []

    def key(file: Candidate):
        seen.append(file.last_modified)
        return file.last_modified

    for name in ("newest", "key"):
        copy_with_other_times(portable / "x.vstack", portable / f"{name}.vstack")
    for name, prefer in (("newest", "newest"), ("key", key)):
        vs.Repository.open(portable / f"{name}.vstack").update(new, dim="time", prefer=prefer, relative=True)
        counts = new if is_newer else old
        got = read(portable / f"{name}.vstack")["t"][2:4]
        np.testing.assert_array_equal(got, xr.load_dataset(counts, engine="h5netcdf")["t"])
    assert None not in seen


def test_a_file_in_another_folder_has_no_relative_location(tmp_path):
    """It stayed absolute without a word, so that a moved store did not find it."""
    for folder in ("data", "cubes"):
        (tmp_path / folder).mkdir()
    xr.Dataset({"a": ("x", [1.0, 2.0])}).to_netcdf(tmp_path / "data" / "a.nc", engine="netcdf4")
    vds = vs.open_virtual_dataset(tmp_path / "data" / "a.nc")
    with pytest.raises(WriterError, match="no location relative to"):
        vds.virtual.to_vstack(tmp_path / "cubes" / "x.vstack", relative=True)
    vds.virtual.to_vstack(tmp_path / "cubes" / "x.vstack")
    vds.virtual.to_vstack(tmp_path / "x.vstack", relative=True)
