"""Counts of chunks in snapshots: equal to those of all references after each kind of change, and no page is read."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.vstack.archive import change_snapshot
from virtualstack.errors import MalformedFileError
from virtualstack.manifests.cells import blocks
from virtualstack.manifests.chunk_manifest import count_entries
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.format.manifest import StoredManifest

DAY = np.timedelta64(1, "D")


def day(path, first, n=2, lat=4, value=1.0, **encoding):
    times = np.datetime64("2020-01-01", "ns") + DAY * np.arange(first, first + n)
    ds = xr.Dataset(
        {name: (("time", "lat"), np.full((n, lat), value + i)) for i, name in enumerate(("t", "q"))},
        {"time": times, "lat": np.arange(lat) * 1.0},
    )
    ds.to_netcdf(path, engine="h5netcdf", encoding={"t": {"chunksizes": (1, 2), **encoding}}, unlimited_dims=["time"])
    return str(path)


@pytest.fixture
def files(tmp_path):
    return [day(tmp_path / f"{i}.nc", 2 * i) for i in range(4)]


def checked(repo, known=True):
    """Compare counts and uses with those of all entries; return the counts of ``t``."""
    found = {}
    for name, array in repo.open_virtual_dataset().virtual.to_group().arrays.items():
        if isinstance(manifest := array.manifest, StoredManifest):
            parts = [manifest.read(box) for box in blocks(manifest.shape)]
            assert (manifest.counts is not None) == known
            read = replace(manifest, counts=None)
            assert read.usage == count_entries(read.shape, read.read, read.tables.fill)
            if known:
                assert manifest.summary() == type(parts[0].summary()).sum(x.summary() for x in parts)
                assert manifest.usage == read.usage
            found[name] = manifest.summary()
    return found["t"]


def test_each_change_keeps_the_counts(files, tmp_path):
    repo = vs.Repository.create(tmp_path / "a.vstack", vs.open_virtual_mfdataset(files[:2]))
    assert checked(repo).n_references == 8
    repo = repo.append(files[2], "time")
    assert checked(repo).n_references == 12
    repo = repo.update([day(tmp_path / "new.nc", 3, 4, value=7.0)], prefer="last")  # over two files, and beyond them
    assert checked(repo).n_chunks == 14
    repo = repo.update([day(tmp_path / "late.nc", 11)])  # later than a gap
    assert checked(repo).n_references == 18
    repo = repo.write("t", {"time": slice(1, 3)}, 5.0)
    assert checked(repo).n_references == 18
    repo = repo.edit(lambda ds: ds.assign_attrs(title="x"))
    repo = repo.compact()
    assert checked(repo).nbytes > 0
    repo.edit(lambda ds: ds.rename(q="humidity"))
    assert checked(vs.Repository.open(repo.url)).n_references == 18


def test_cut_inline_and_empty_chunks_are_counted(files, tmp_path):
    vds = vs.open_virtual_dataset(files[0]).isel(lat=slice(1, 4))
    vds = vds.assign(loaded=(("time", "lat"), np.ones((2, 3))))
    repo = vs.Repository.create(tmp_path / "a.vstack", vds)
    checked(repo)
    repo = repo.append(vs.open_virtual_dataset(files[1]).isel(lat=slice(1, 4)).drop_vars("q"), "time", join="outer")
    assert checked(repo).n_references == 8
    assert repo.open_virtual_dataset()["q"].data.manifest.summary().n_absent == 1


def test_a_race_counts_what_both_wrote(files, tmp_path):
    repo = vs.Repository.create(tmp_path / "a.vstack", vs.open_virtual_mfdataset(files[:3]))
    repo.write("t", {"time": slice(0, 1)}, 5.0)
    repo = repo.write("t", {"time": slice(4, 5)}, 6.0)  # begun before the other
    assert checked(repo).n_references == 12


def test_counts_read_no_page(files, tmp_path, monkeypatch):
    vs.Repository.create(tmp_path / "a.vstack", vs.open_virtual_mfdataset(files))
    vds = vs.open_virtual_dataset(tmp_path / "a.vstack")
    monkeypatch.setattr("virtualstack.accessor.facts._MAX_WHOLE_CHUNKS", 0)

    def refuse(*_):
        raise AssertionError("rows were read")

    monkeypatch.setattr(Archive, "rows", refuse)
    assert vds.virtual.nrefs == 16 + 4
    assert "20 references" in repr(vds.virtual)
    report = vds.virtual.report().set_index("variable")
    assert "16 references, 0 inline, 0 EMPTY, 0 ABSENT" in report.detail["t"]
    assert (report.form["t"], report.kerchunk["t"]) == ("plain", "as it is")


def test_stores_without_counts_are_counted_until_they_are_compacted(files, tmp_path):
    vs.Repository.create(tmp_path / "a.vstack", vs.open_virtual_mfdataset(files[:2]))
    change_snapshot(tmp_path / "a.vstack", lambda document: None)
    repo = vs.Repository.open(tmp_path / "a.vstack")
    checked(repo, known=False)
    assert repo.open_virtual_dataset().virtual.nrefs == 8 + 2
    repo = repo.append(files[2], "time")
    checked(repo, known=False)
    assert checked(repo.compact()).n_references == 12


@pytest.mark.parametrize("counts", [[3, 0, 0, 0, 64, 0], [4, 0, 0, 0, 64], [5, -1, 0, 0, 64, 0], [4, 0, 0, 0, 64, 9]])
def test_counts_of_other_chunks_are_damage(files, tmp_path, counts):
    vs.Repository.create(tmp_path / "a.vstack", vs.open_virtual_dataset(files[0]))
    change_snapshot(tmp_path / "a.vstack", lambda document: document["arrays"]["/t"].update(counts=counts))
    with pytest.raises(MalformedFileError):
        vs.open_virtual_dataset(tmp_path / "a.vstack")
