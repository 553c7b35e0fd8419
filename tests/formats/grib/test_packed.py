"""Files of one message that are compressed as a whole, as MRMS and ICON publish them."""

import bz2
import gzip
import json
import warnings

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import GRIB1, GRIB2, edited, merged, message
from tests.data.watching import memory_below
from tests.kerchunk.reading import needs_engine
from virtualstack.errors import MalformedFileError, SourceChangedError, UnsupportedFeatureError, WriterError
from virtualstack.formats import unpack
from virtualstack.readers import GRIB

pytestmark = pytest.mark.filterwarnings("ignore:In a future version:FutureWarning")
PACK = {"gz": gzip.compress, "bz2": bz2.compress}
HOLES = np.where(np.arange(24) % 5 == 0, np.nan, np.arange(24.0))
PROJECTION = {"gridType": "lambert", "LaDInDegrees": 45, "Latin1InDegrees": 45, "LoVInDegrees": 10}
PROJECTION |= {"Nx": 6, "Ny": 4, "DxInMetres": 9e4, "DyInMetres": 9e4, "jScansPositively": 1}


def cfgrib(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_dataset(path, engine="cfgrib", backend_kwargs={"indexpath": "", "errors": "raise"}) as found:
            found.attrs.pop("history")
            return found.load()


def packed(path, data, packing):
    """Write bytes beside their compressed form; return both paths."""
    path.write_bytes(data)
    target = path.with_name(f"{path.name}.{packing}")
    target.write_bytes(PACK[packing](data))
    return path, target


def days(folder, packing, n=3):
    """Write a file for each day."""
    for day in range(1, n + 1):
        keys = {"shortName": "t", "dataDate": 20200100 + day}
        yield packed(folder / f"{day}.grib2", message(keys, seed=day, values=HOLES if day == 2 else None), packing)


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("sample", [GRIB1, GRIB2])
def test_values_are_those_of_cfgrib_after_unpacking(sample, packing, tmp_path):
    plain, path = packed(tmp_path / "a.grib", message({"shortName": "t"}, sample=sample, values=HOLES), packing)
    vds = vs.open_virtual_dataset(path)
    expected = cfgrib(plain)
    xr.testing.assert_identical(vds.virtual.open().load(), expected)
    with xr.open_dataset(path, engine="virtualstack") as found:
        xr.testing.assert_identical(found.load(), expected)
    (entry,) = vds.t.variable._data.in_memory().entries.reshape(-1)
    assert (entry["offset"], entry["length"]) == (0, path.stat().st_size)


@pytest.mark.parametrize("packing", PACK)
def test_files_are_joined(packing, tmp_path):
    """Compressed files and others, whose chunks have two encodings."""
    files = list(days(tmp_path, packing))
    (tmp_path / "all.grib2").write_bytes(b"".join(plain.read_bytes() for plain, _ in files))
    expected = cfgrib(tmp_path / "all.grib2")
    assert expected.sizes["time"] == 3
    together = vs.open_virtual_mfdataset([path for _, path in files])
    xr.testing.assert_identical(together.virtual.open().load(), expected)
    mixed = vs.open_virtual_mfdataset([files[0][1], files[1][0], files[2][1]])
    xr.testing.assert_identical(mixed.virtual.open().load(), expected)
    both = xr.concat([vs.open_virtual_dataset(path) for _, path in files], "time")
    np.testing.assert_array_equal(both.virtual.open()["t"].values, expected["t"].values)
    with pytest.raises(WriterError, match="codec"):
        mixed.virtual.to_kerchunk(tmp_path / "mixed.json", fill_budget=0, inline_limit=0)


@pytest.mark.parametrize("packing", PACK)
def test_references_round_trip(packing, tmp_path):
    files = [path for _, path in days(tmp_path, packing)]
    vds = vs.open_virtual_mfdataset(files)
    expected = vds.virtual.open().load()
    vds.virtual.to_kerchunk(tmp_path / "refs.json")
    zarray = json.loads(json.loads((tmp_path / "refs.json").read_text())["refs"]["t/.zarray"])
    assert zarray["compressor"]["id"] == {"gz": "gzip", "bz2": "bz2"}[packing]
    with xr.open_dataset(tmp_path / "refs.json", engine="virtualstack") as found:
        np.testing.assert_array_equal(found["t"].values, expected["t"].values)
    vds.virtual.to_vstack(tmp_path / "a.vstack")
    with xr.open_dataset(tmp_path / "a.vstack", engine="virtualstack") as found:
        np.testing.assert_array_equal(found["t"].values, expected["t"].values)


@pytest.mark.parametrize("packing", PACK)
def test_kerchunk_reads_the_references(packing, tmp_path):
    needs_engine()
    plain, path = packed(tmp_path / "a.grib2", message({"shortName": "t"}), packing)
    vs.open_virtual_dataset(path).virtual.to_kerchunk(tmp_path / "refs.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_dataset(str(tmp_path / "refs.json"), engine="kerchunk") as found:
            np.testing.assert_array_equal(found["t"].values, cfgrib(plain)["t"].values)


@pytest.mark.parametrize("packing", PACK)
def test_coordinates_of_all_points_are_references_too(packing, tmp_path):
    data = edited(message({"shortName": "t"}), PROJECTION, values=np.arange(24.0))
    plain, path = packed(tmp_path / "a.grib2", data, packing)
    vds = vs.open_virtual_dataset(path, inline_limit=64, loadable_variables=[])
    for name in ("latitude", "longitude"):
        assert vds[name].variable._data.in_memory().entries["length"].tolist() == [[path.stat().st_size]]
    xr.testing.assert_identical(vds.virtual.open().load(), cfgrib(plain))
    by_default = vs.open_virtual_dataset(path, inline_limit=64)  # which loads these few points
    for name in ("latitude", "longitude"):
        np.testing.assert_array_equal(by_default[name].variable._data, cfgrib(plain)[name].values)
    xr.testing.assert_identical(by_default.virtual.open().load(), cfgrib(plain))


@pytest.mark.parametrize("packing", PACK)
def test_more_than_one_field_is_refused(packing, tmp_path):
    two = [message({"shortName": name}) for name in ("t", "u")]
    for data, n, junk in [
        (b"".join(two), 2, 0),
        (merged(two), 2, 0),
        (b"heading\r\n" + two[0], 1, 9),
        (two[0] + b"\0", 1, 1),
    ]:
        _, path = packed(tmp_path / "a.grib2", data, packing)
        said = rf"a.grib2.{packing}' is compressed.* {n} field\(s\) in {len(data)} bytes, of which {junk} .*: unpack it"
        with pytest.raises(UnsupportedFeatureError, match=said):
            vs.open_virtual_dataset(path)


@pytest.mark.parametrize("packing", PACK)
def test_damage_is_told(packing, tmp_path):
    _, path = packed(tmp_path / "a.grib2", message(), packing)
    data = path.read_bytes()
    flipped = data[:-6] + bytes([data[-6] ^ 0xFF]) + data[-5:]
    for damaged in (data[:-9], data[: len(data) // 2], flipped, data[:4], data + b"more"):
        path.write_bytes(damaged)
        with pytest.raises(
            MalformedFileError, match=rf"a.grib2.{packing}' cannot be unpacked: .*Fetch it again"
        ) as told:
            vs.open_virtual_dataset(path)
        assert told.value.url == path.as_uri()
    path.write_bytes(PACK[packing](b"CDF\1, which is not GRIB"))
    with pytest.raises(MalformedFileError, match="no GRIB message"):
        vs.open_virtual_dataset(path)
    path.write_bytes(PACK[packing](message()[:-20]))
    with pytest.raises(MalformedFileError, match="damaged message at byte 0"):
        vs.open_virtual_dataset(path)


@pytest.mark.parametrize("packing", PACK)
def test_few_compressed_bytes_do_not_become_gigabytes(packing, tmp_path):
    path = tmp_path / f"a.grib2.{packing}"
    path.write_bytes(PACK[packing](message()) + 20 * PACK[packing](bytes(32 << 20)))
    with (
        memory_below(300 << 20),
        pytest.raises(MalformedFileError, match=r"more than 134217728 bytes.*unpack it first"),
    ):
        vs.open_virtual_dataset(path)


def test_plain_files_take_no_request_for_compression():
    """Each read of a store of the user is one request."""

    class Store:
        data, reads = message(), []

        def head(self, key):
            return {"size": len(self.data)}

        def get_ranges(self, key, *, starts, lengths):
            self.reads += zip(starts, lengths, strict=True)
            return [self.data[at : at + n] for at, n in zip(starts, lengths, strict=True)]

    vs.open_virtual_dataset((Store(), "a.grib2"), reader=GRIB())
    assert Store.reads == [(0, len(Store.data))]


def test_large_files_are_refused_unread(tmp_path, monkeypatch):
    _, path = packed(tmp_path / "a.grib2", message(), "gz")
    monkeypatch.setattr(unpack, "_MAX_UNPACKED_BYTES", 16)
    with pytest.raises(UnsupportedFeatureError, match=r"has \d+ bytes.*unpack it first"):
        vs.open_virtual_dataset(path)


def test_a_file_that_only_has_the_suffix_is_read_as_it_is(tmp_path):
    """Servers may unpack a file on the way."""
    path = tmp_path / "a.grib2.gz"
    path.write_bytes(message())
    found = vs.open_virtual_dataset(path).virtual.open().load()
    (tmp_path / "a.grib2").write_bytes(message())
    xr.testing.assert_identical(found, cfgrib(tmp_path / "a.grib2"))


def test_files_without_a_known_suffix_are_read_by_name(tmp_path):
    """The reader that is named unpacks, too."""
    path = tmp_path / "A.GZ"
    path.write_bytes(gzip.compress(message()))
    (tmp_path / "a.grib2").write_bytes(message())
    found = vs.open_virtual_dataset(path, reader="grib").virtual.open().load()
    xr.testing.assert_identical(found, cfgrib(tmp_path / "a.grib2"))


def test_scans_keep_the_packing(tmp_path):
    files = [path for _, path in days(tmp_path, "gz")]
    expected = vs.open_virtual_mfdataset(files).virtual.open().load()
    for _ in range(2):
        found = vs.open_virtual_mfdataset(files, cache=tmp_path / "cache").virtual.open().load()
        xr.testing.assert_identical(found, expected)


def test_a_file_that_changed_is_told(tmp_path):
    _, path = packed(tmp_path / "a.grib2", message(), "gz")
    vds = vs.open_virtual_dataset(path)
    path.write_bytes(gzip.compress(message(seed=1) + b" "))
    with pytest.raises(SourceChangedError):
        vds.virtual.open().load()
