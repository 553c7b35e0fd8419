"""Whether the sources of a store are as they were, and its chunks what others read."""

import os
import shutil
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import concatenated
from tests.data.watching import recorded_calls
from tests.servers import RangeServer
from tests.vstack.archive import change_snapshot, copy_with_other_times, days, join, write_day
from virtualstack.errors import SourceChangedError
from virtualstack.vstack.format.archive import Archive


@pytest.fixture
def rows_read(monkeypatch):
    """Which segments rows are read of."""
    return recorded_calls(monkeypatch, Archive, "rows", lambda self, segment, page: segment.name)


def verified(tmp_path, **options):
    return vs.Repository.open(tmp_path / "x.vstack").verify(**options)


def statuses(result):
    return [(x.url.rpartition("/")[2], x.status) for x in result.problems]


def test_nothing_has_changed(tmp_path, archive):
    """All sources are counted, and said to be as they were."""
    found = verified(tmp_path)
    assert (found.n_sources, found.problems, found.is_good) == (4, (), True)
    assert repr(found) == f"snapshot 0 of 'file://{tmp_path}/x.vstack': 4 sources, all as they were indexed"
    assert found.table.empty


@pytest.mark.parametrize("relative", [False, True])
def test_an_archive_that_was_written_again_is_told(tmp_path, relative):
    """Stores have no CRC-32 of members of a zip archive: the time of modification, or the digest, tells instead."""
    source = xr.Dataset({"v": ("x", np.arange(10.0))})
    source.to_zarr(tmp_path / "a.zarr", zarr_format=2, encoding={"v": {"chunks": (5,), "compressors": None}})
    path = tmp_path / "a.zarr.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in filter(Path.is_file, (tmp_path / "a.zarr").rglob("*")):
            archive.write(file, file.relative_to(tmp_path / "a.zarr"))
    vs.open_virtual_dataset(path).virtual.to_vstack(tmp_path / "x.vstack", relative=relative)
    assert verified(tmp_path).is_good
    data = path.read_bytes().replace(np.arange(5.0).tobytes(), np.arange(5.0)[::-1].tobytes())
    path.write_bytes(data)
    assert statuses(verified(tmp_path)) == [("a.zarr.zip", "changed")]
    with pytest.raises(SourceChangedError, match=r"a\.zarr\.zip"):
        xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack").load()


def test_versions_of_a_file_count_by_themselves(tmp_path, archive):
    """One that was changed and then appended is there twice: as it was, and as it is."""
    write_day(archive[0], 9)
    vs.open_virtual_dataset(archive[0]).virtual.to_vstack(tmp_path / "x.vstack", append_dim="time")
    found = verified(tmp_path)
    assert (found.n_sources, statuses(found)) == (5, [("000.nc", "changed")])
    assert len(found.statuses) == 4
    assert found.statuses[f"file://{archive[0]}"] == "changed"


def test_changed_and_missing_files_are_told(tmp_path, archive, rows_read):
    """With their versions then and now; no reference is read for it."""
    before = archive[1].stat()
    write_day(archive[1], 1, seed=1, level=1)
    archive[2].unlink()
    os.utime(archive[3], (1, 1))
    begin = time.time()
    found = verified(tmp_path)
    assert begin <= found.time <= time.time()
    assert statuses(found) == [("001.nc", "changed"), ("002.nc", "missing")]
    assert found.n_touched == 1
    assert list(found.statuses) == [f"file://{path}" for path in archive]
    assert list(found.statuses.values()) == ["unchanged", "changed", "missing", "unchanged"]
    assert not found.is_good
    table = found.table.set_index("url")
    row = table.loc[f"file://{archive[1]}"]
    assert (row["size"], row["size_now"]) == (before.st_size, archive[1].stat().st_size)
    assert " instead of " in row["reason"]
    assert repr(found).splitlines() == [
        f"snapshot 0 of 'file://{tmp_path}/x.vstack': 4 sources, 1 changed, 1 missing",
        "  1 with another modification time, but otherwise as they were",
        f"  changed: file://{archive[1]}",
        f"  missing: file://{archive[2]}",
    ]
    assert rows_read == []


def test_a_copy_may_have_other_times(tmp_path):
    """Of sources that are relative to the store, or were relocated."""
    paths = days(tmp_path / "here" / "data")
    join(paths).virtual.to_vstack(tmp_path / "here" / "x.vstack", relative=True)
    copy_with_other_times(tmp_path / "here", tmp_path / "there")
    assert vs.Repository.open(tmp_path / "there" / "x.vstack").verify().is_good
    write_day(tmp_path / "there" / "data" / "000.nc", 0, chunks=(2, 6, 4))
    found = vs.Repository.open(tmp_path / "there" / "x.vstack").verify()
    assert statuses(found) == [("000.nc", "changed")]
    assert vs.Repository.open(tmp_path / "here" / "x.vstack").verify().is_good


def test_what_is_hidden_is_not_told(tmp_path, archive, rows_read):
    """Sources whose chunks lie under later ones, in whole segments, or in a part of one."""
    stored = vs.open_virtual_dataset(tmp_path / "x.vstack")
    replaced = join([write_day(tmp_path / "new" / "001.nc", 1, seed=5)])
    whole = concatenated(stored.isel(time=slice(0, 2)), replaced, stored.isel(time=slice(4, None)))
    whole.virtual.to_vstack(tmp_path / "x.vstack", mode="w")
    archive[1].unlink()
    found = verified(tmp_path)
    assert found.is_good
    assert rows_read != []
    rows_read.clear()
    assert "unchanged" in found.statuses.values()
    assert f"file://{archive[1]}" not in found.statuses
    archive[0].unlink()
    assert statuses(verified(tmp_path)) == [("000.nc", "missing")]
    assert vs.Repository.open(tmp_path / "x.vstack", at=0).verify().table["status"].tolist() == ["missing"] * 2


def test_what_was_removed_is_not_told(tmp_path):
    """A variable that is not a part of the store any more, with the files that only it was in."""
    first = write_day(tmp_path / "a.nc", 0)
    second = write_day(tmp_path / "b.nc", 0, seed=3)
    both = vs.open_virtual_dataset(first).assign(u=vs.open_virtual_dataset(second)["t"])
    both.virtual.to_vstack(tmp_path / "x.vstack")
    vs.open_virtual_dataset(tmp_path / "x.vstack").drop_vars("u").virtual.to_vstack(tmp_path / "x.vstack", mode="w")
    second.unlink()
    assert verified(tmp_path).is_good
    assert statuses(vs.Repository.open(tmp_path / "x.vstack", at=0).verify()) == [("b.nc", "missing")]


def test_a_bucket_is_listed(tmp_path, s3_server, monkeypatch):
    """Etags decide, times do not: the same bytes put again are told to be touched."""
    options = {"s3://bucket": s3_server.options}
    for path in days(tmp_path / "data"):
        s3_server.put(f"verify/{path.name}", path.read_bytes())
    urls = [f"s3://bucket/verify/{day:03}.nc" for day in range(4)]
    join(urls, storage=options).virtual.to_vstack("s3://bucket/verify/x.vstack", storage=options)
    repository = vs.Repository.open("s3://bucket/verify/x.vstack", storage=options)
    heads = []
    monkeypatch.setattr("obstore.head", lambda *args: heads.append(args))
    assert repository.verify().is_good
    time.sleep(1.1)  # times of objects are whole seconds
    s3_server.put("verify/000.nc", (tmp_path / "data" / "000.nc").read_bytes())
    found = repository.verify()
    assert found.is_good
    assert found.n_touched == 1
    assert "1 with another modification time, but otherwise as they were" in repr(found)
    s3_server.client.delete_object(Bucket="bucket", Key="verify/002.nc")
    changed = bytearray((tmp_path / "data" / "001.nc").read_bytes())
    changed[-1] ^= 1
    s3_server.put("verify/001.nc", bytes(changed))
    assert statuses(repository.verify()) == [("001.nc", "changed"), ("002.nc", "missing")]
    assert heads == []


def test_sources_that_nothing_is_known_of(tmp_path, archive):
    """Of kerchunk references: nobody says that they are as they were; those that are gone are missing."""
    join(archive).virtual.to_kerchunk(tmp_path / "refs.json")
    vs.convert(tmp_path / "refs.json", tmp_path / "y.vstack")
    found = vs.Repository.open(tmp_path / "y.vstack").verify(sample=1)
    assert (found.is_good, found.n_sources, found.n_unknown) == (True, len(archive), len(archive))
    told = f"{len(archive)} sources, {len(archive)} may have changed: the store records neither size nor etag"
    assert told in repr(found)
    archive[0].unlink()
    found = vs.Repository.open(tmp_path / "y.vstack").verify()
    assert f"1 missing, {len(archive) - 1} may have changed" in repr(found)
    assert list(found.statuses.values()) == ["missing", *["unknown"] * (len(archive) - 1)]
    assert verified(tmp_path).n_unknown == 0


def test_web_servers_are_asked_for_each(tmp_path):
    """Heads; and a server that does not answer is unreachable, not missing."""
    paths = days(tmp_path / "data")
    with RangeServer(tmp_path / "data") as server:
        join([server.url(path.name) for path in paths]).virtual.to_vstack(tmp_path / "x.vstack")
        repository = vs.Repository.open(tmp_path / "x.vstack", allow=server.root)
        server.reset()
        assert repository.verify().is_good
        assert server.requests == {"HEAD": 4}
        write_day(paths[0], 0, seed=1)
        paths[1].unlink()
        assert statuses(repository.verify()) == [("000.nc", "changed"), ("001.nc", "missing")]
        server.mode, server.status = "status", 403
        assert [status for _, status in statuses(repository.verify())] == ["unreachable"] * 4


# -- samples --------------------------------------------------------------------------------------------------


def test_all_chunks_are_equal(tmp_path, archive):
    """What h5netcdf reads from each file; one chunk in two of the whole store, and some by number."""
    found = verified(tmp_path, sample=1.0)
    assert {chunk.status for chunk in found.chunks} == {"equal"}
    assert {chunk.variable for chunk in found.chunks} >= {"t", "flag"}
    total = len(found.chunks)
    assert total >= 4 * (4 + 1)
    assert len(verified(tmp_path, sample=0.5).chunks) == -(-total // 2)
    assert len(verified(tmp_path, sample=3).chunks) == 3
    assert len(verified(tmp_path, sample=np.float32(0.5)).chunks) == -(-total // 2)
    assert verified(tmp_path, sample=5, seed=1).chunks == verified(tmp_path, sample=5, seed=1).chunks
    assert "chunks compared with their sources: 5 equal" in repr(verified(tmp_path, sample=5))


def test_operations_do_not_matter(tmp_path, archive):
    """Cut, flipped, transposed, cast and renamed variables, whose cells are views of chunks."""
    vds = join(archive)
    odd = xr.Dataset(
        {
            "cut": vds["t"][1:7, 1:5, ::-1].rename(time="a", lat="b").drop_vars(["a", "b"], errors="ignore"),
            "turned": vds["t"].transpose("lon", "time", "lat").astype("f8").drop_vars(["time", "lat"]),
            "point": vds["t"][3, 4, 2].drop_vars(["time", "lat"]),
        }
    )
    odd.virtual.to_vstack(tmp_path / "y.vstack")
    found = vs.Repository.open(tmp_path / "y.vstack").verify(sample=1.0)
    assert {chunk.variable for chunk in found.chunks} == {"cut", "turned", "point"}
    assert {chunk.status for chunk in found.chunks} == {"equal"}


@pytest.mark.parametrize("unpack", [True, False])
def test_packed_values_are_compared_as_they_are_meant(tmp_path, unpack):
    """Scales and missing values, in the store or in the chunks; times. Characters are text here and not there."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 6)
        file.createDimension("n", 3)
        packed = file.createVariable("p", "i2", ("x",), fill_value=-1, chunksizes=(2,))
        packed.scale_factor, packed.add_offset = 0.1, 20.0
        packed[:] = np.ma.masked_equal([20.1, 20.2, 0, 20.5, 0, 21], 0)
        when = file.createVariable("when", "f8", ("x",), chunksizes=(3,))
        when.units = "days since 2000-01-01"
        when[:] = np.arange(6) / 2
        letters = file.createVariable("letters", "S1", ("x", "n"), chunksizes=(3, 3))
        letters[:] = np.array([list("abc")] * 6, "S1")
    vs.open_virtual_dataset(tmp_path / "a.nc", unpack=unpack).virtual.to_vstack(tmp_path / "x.vstack")
    found = verified(tmp_path, sample=1.0)
    assert {(chunk.variable, chunk.status) for chunk in found.chunks} == {
        ("p", "equal"),
        ("when", "equal"),
        ("letters", "not compared"),
    }


def test_a_chunk_that_is_not_what_others_read_is_told(tmp_path, archive):
    """A store that has the wrong order of bytes."""
    vds = vs.open_virtual_dataset(archive[0])
    array = vds["t"].variable._data
    manifest = array.in_memory()
    other = replace(manifest.encodings[0], dtype=np.dtype(">f4"))
    wrong = replace(array, manifest=replace(manifest, encodings=(other,)))
    xr.Dataset({"t": (vds["t"].dims, wrong)}).virtual.to_vstack(tmp_path / "y.vstack")
    found = vs.Repository.open(tmp_path / "y.vstack").verify(sample=1.0)
    assert not found.is_good
    assert {chunk.status for chunk in found.chunks} == {"different"}
    assert "values differ, the first at" in found.chunks[0].reason
    assert "  different: variable 't', cell (0, 0, 0): " in repr(found)
    first = found.chunks[0]
    assert list(found.chunk_table.columns) == ["variable", "cell", "url", "status", "reason"]
    assert found.chunk_table.iloc[0].tolist() == ["t", first.cell, first.url, "different", first.reason]
    assert len(found.chunk_table) == len(found.chunks)


def test_bytes_beside_a_chunk_are_told(tmp_path):
    """Values without compression, a few bytes too early: they decode, to wrong values. A part of a chunk is none."""
    xr.Dataset({"t": (("y", "x"), np.arange(24.0).reshape(4, 6))}).to_netcdf(tmp_path / "a.nc")
    vds = vs.open_virtual_dataset(tmp_path / "a.nc", loadable_variables=[])
    array = vds["t"].variable._data
    entries = array.in_memory().entries.copy()
    entries["offset"] -= 8
    wrong = replace(array, manifest=replace(array.in_memory(), entries=entries))
    xr.Dataset({"t": (("y", "x"), wrong)}).virtual.to_vstack(tmp_path / "y.vstack")
    (found,) = vs.Repository.open(tmp_path / "y.vstack").verify(sample=1.0).chunks
    assert (found.status, found.variable) == ("different", "t")
    vds.virtual.subchunk("t", {"y": 1}).virtual.to_vstack(tmp_path / "z.vstack")
    found = vs.Repository.open(tmp_path / "z.vstack").verify(sample=1.0)
    assert {x.status for x in found.chunks} == {"not compared"}


def test_a_chunk_that_does_not_decode_is_told(tmp_path, archive):
    """Bytes that were damaged in place, in a store without digests; the times are as they were."""

    def without_digests(document):
        for segment in document["segments"]["tail"]:
            segment["sources"].pop("digest", None)

    change_snapshot(tmp_path / "x.vstack", without_digests)
    with h5py.File(archive[2]) as file:
        info = file["t"].id.get_chunk_info(0)
    before = archive[2].stat()
    data = bytearray(archive[2].read_bytes())
    data[info.byte_offset + 2 : info.byte_offset + 12] = bytes(10)
    archive[2].write_bytes(data)
    os.utime(archive[2], ns=(before.st_atime_ns, before.st_mtime_ns))
    found = verified(tmp_path, sample=1.0)
    assert [(x.variable, x.cell, x.status) for x in found.chunks if x.status != "equal"] == [
        ("t", (4, 0, 0), "different")
    ]
    assert "it cannot be read" in next(x.reason for x in found.chunks if x.status == "different")


def test_netcdf3_is_compared_too(tmp_path):
    """By netCDF4 or scipy."""
    xr.Dataset({"t": (("x", "y"), np.arange(12.0).reshape(3, 4))}).to_netcdf(
        tmp_path / "a.nc", format="NETCDF3_CLASSIC", engine="netcdf4"
    )
    vs.open_virtual_dataset(tmp_path / "a.nc").virtual.to_vstack(tmp_path / "x.vstack")
    assert {x.status for x in verified(tmp_path, sample=10).chunks} == {"equal"}


def test_sources_of_no_known_format_are_not_compared(tmp_path, archive):
    """Which is told; their chunks are read all the same."""
    vds = join(archive)
    shutil.copyfile(archive[0], tmp_path / "odd.bin")
    data = (tmp_path / "odd.bin").read_bytes()
    (tmp_path / "odd.bin").write_bytes(bytes(8) + data[8:])
    renamed = vds.virtual.rename_locations({f"file://{archive[0]}": f"file://{tmp_path}/odd.bin"})
    renamed.virtual.to_vstack(tmp_path / "y.vstack")
    os.utime(tmp_path / "odd.bin", ns=(archive[0].stat().st_atime_ns, archive[0].stat().st_mtime_ns))
    found = vs.Repository.open(tmp_path / "y.vstack").verify(sample=1.0)
    odd = {x.status for x in found.chunks if x.url.endswith("odd.bin")}
    assert odd == {"not compared"}
    assert found.is_good
    assert "not compared: variable" in repr(found)


def test_values_that_were_written_into_the_store_are_not_compared(tmp_path, archive):
    """There is no file that holds them; the message does not ask for one."""
    join(archive).virtual.to_vstack(tmp_path / "y.vstack")
    found = vs.Repository.open(tmp_path / "y.vstack").write("t", {"time": 0}, 1.0).verify(sample=1.0)
    odd = [x for x in found.chunks if x.status != "equal"]
    assert {(x.status, x.variable) for x in odd} == {("not compared", "t")}
    assert all(x.cell[0] == 0 and "were written into the store" in x.reason for x in odd)


@pytest.mark.parametrize("sample", [-1, 1.5, True, np.nan, "3", None, np.True_])
def test_a_sample_is_a_number_or_a_fraction(tmp_path, archive, sample):
    """Nothing else."""
    with pytest.raises(ValueError, match="is neither a number of chunks nor a fraction"):
        verified(tmp_path, sample=sample)
