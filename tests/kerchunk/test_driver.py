"""Drivers of kerchunk as readers; the oracles are the libraries of the formats."""

import json
import pickle
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.opened import opened_files
from virtualstack.errors import ForbiddenLocationError, MalformedFileError, ReaderError, UnsupportedFeatureError
from virtualstack.location import Location
from virtualstack.readers import KerchunkDriver

pytest.importorskip("kerchunk")
RAW = np.arange(6, dtype=">i2").reshape(2, 3)


def raw_references(url, storage_options=None, *, times=1):
    """Refer to numbers that are a file of their own: what a third party's driver is."""
    array = {"shape": [2, 3], "chunks": [2, 3], "dtype": ">i2", "compressor": None, "filters": None}
    refs = {
        ".zgroup": "{}",
        "v/.zarray": json.dumps({**array, "fill_value": None, "order": "C", "zarr_format": 2}),
        "v/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["y", "x"], "times": times}),
        "v/0.0": [url, 0, 12],
    }
    return {"version": 1, "refs": refs}


def read_first_byte(url, storage_options=None):
    """Read as drivers do, through fsspec."""
    import fsspec

    with fsspec.open(url, **storage_options) as file:
        assert file.read(4) == RAW.tobytes()[:4]
        file.seek(10)
        assert file.read(4) == RAW.tobytes()[10:]
    return raw_references(url)


@pytest.fixture
def raw(tmp_path):
    path = tmp_path / "a file.raw"
    path.write_bytes(RAW.tobytes())
    return path


def test_a_driver_of_a_third_party(raw):
    """A function that gives references; the source has the version that was translated."""
    reader = KerchunkDriver(raw_references, {"times": 7})
    for each in (reader, pickle.loads(pickle.dumps(reader))):
        vds = vs.open_virtual_dataset(raw, reader=each)
        assert vds["v"].attrs == {"times": 7}
        status = raw.stat()
        expected = Location(f"file://{raw}", status.st_size, None, status.st_mtime)
        assert vds["v"].variable._data.in_memory().locations == (expected,)
        np.testing.assert_array_equal(vds.virtual.open()["v"], RAW)
    named = KerchunkDriver(f"{__name__}:raw_references")
    xr.testing.assert_identical(
        vs.open_virtual_dataset(raw, reader=named).virtual.open().load(),
        vs.open_virtual_dataset(raw, reader=KerchunkDriver(raw_references)).virtual.open().load(),
    )
    raw.write_bytes(RAW.tobytes() + b"0")
    with pytest.raises(vs.errors.SourceChangedError):
        vds.virtual.open()["v"].load()


def test_sources_that_are_not_local(raw):
    """A driver reads through the storage, and its references name the source as it is."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(raw.parent))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/a%20file.raw"
            vds = vs.open_virtual_dataset(url, reader=KerchunkDriver(read_first_byte))
            assert [x.url for x in vds["v"].variable._data.in_memory().locations] == [url]
            np.testing.assert_array_equal(vds.virtual.open()["v"], RAW)
        finally:
            server.shutdown()
    assert vs.open_virtual_dataset(raw, reader=KerchunkDriver(read_first_byte))["v"].shape == (2, 3)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def several(url, storage_options=None):
    return [raw_references(url, times=n) for n in (1, 2)]


def test_several_sets(raw):
    """One of them is asked for by its number."""
    with pytest.raises(
        ReaderError,
        match=r"returned 2 sets of references, and number=None is none of them. Choose one with number=, from 0 to 1",
    ):
        vs.open_virtual_dataset(raw, reader=KerchunkDriver(several))
    with pytest.raises(ReaderError, match="number=2 is none of them"):
        vs.open_virtual_dataset(raw, reader=KerchunkDriver(several, number=2))
    assert vs.open_virtual_dataset(raw, reader=KerchunkDriver(several, number=1))["v"].attrs["times"] == 2


def fails(url, storage_options=None):
    raise AssertionError("no magic")


@pytest.mark.parametrize(
    ("reader", "error", "message"),
    [
        (KerchunkDriver("no_such_module:X"), ReaderError, "needs the module 'no_such_module'. Install the package"),
        (KerchunkDriver("kerchunk.hdf:Gone"), ReaderError, "has no driver 'Gone'"),
        (KerchunkDriver("kerchunk.fits:BITPIX2DTYPE"), ReaderError, "names a dict, not a class or function"),
        (KerchunkDriver(fails), MalformedFileError, "file.raw': the driver 'fails' failed: AssertionError: no magic"),
        (
            KerchunkDriver(lambda url, storage_options: 5),
            MalformedFileError,
            "returned an object of type 'int', not references",
        ),
        (KerchunkDriver(lambda url, storage_options: {}), MalformedFileError, "not a set of kerchunk references"),
        (KerchunkDriver(raw_references, {"n": 1}), MalformedFileError, "unexpected keyword argument 'n'"),
    ],
)
def test_errors_of_the_driver_name_the_file(reader, error, message, raw):
    """Typed errors with the file and the driver."""
    pytest.importorskip("astropy")
    with pytest.raises(error, match=message) as caught:
        vs.open_virtual_dataset(raw, reader=reader)
    assert caught.value.url == f"file://{raw}"
    with pytest.raises(TypeError, match="neither a text such as 'module:name' nor a callable"):
        KerchunkDriver("kerchunk.hdf4")


@pytest.mark.parametrize(
    ("driver", "reader"),
    [("fits:FitsToZarr", "fits"), ("hdf4:HDF4ToZarr", "hdf4"), ("tiff:tiff_to_zarr", "tiff")],
)
def test_a_driver_that_a_reader_replaces_is_refused(driver, reader, raw):
    """Its values would be others than those of the format's library."""
    pytest.importorskip("astropy")
    with pytest.raises(UnsupportedFeatureError) as caught:
        vs.open_virtual_dataset(raw, reader=KerchunkDriver(f"kerchunk.{driver}"))
    assert caught.value.remedies[0].arguments == {"reader": reader}


# -- the drivers of kerchunk ---------------------------------------------------------------------------------


def test_netcdf(tmp_path):
    """What the drivers of formats that we read ourselves say is what we say."""
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("v", data=np.arange(24.0).reshape(4, 6), chunks=(2, 3), compression="gzip")
        data.attrs["_FillValue"] = np.array([7.0])
    other = tmp_path / "b.nc"
    with netCDF4.Dataset(other, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("x", 6)
        file.createVariable("v", "f8", ("x",), fill_value=3.0)[:] = np.arange(6.0)
    for source, driver in ((path, "kerchunk.hdf:SingleHdf5ToZarr"), (other, "kerchunk.netCDF3:NetCDF3ToZarr")):
        got = vs.open_virtual_dataset(source, reader=KerchunkDriver(driver)).virtual.open()["v"]
        own = vs.open_virtual_dataset(source).virtual.open()["v"]
        np.testing.assert_array_equal(got, own)
        assert np.isnan(got).sum() == 1


def test_names_of_files_are_labels(tmp_path):
    """The source of each file is known, as with other readers."""
    paths = [tmp_path / f"run{n}.raw" for n in (1, 2)]
    for path in paths:
        path.write_bytes(RAW.tobytes())
    reader = KerchunkDriver(raw_references)
    found = vs.open_virtual_mfdataset(paths, reader=reader, new_dim={"run": vs.FromName(r"run(\d)")})
    assert found.run.values.tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["storage", "link", "virtual"])
def test_a_driver_for_hdf5_reads_no_other_file(tmp_path, kind):
    """With listed places: the HDF5 library opens files that another one names, and kerchunk inlines their values."""
    secret, path = tmp_path / "outside" / "secret.h5", tmp_path / "inside" / "a.h5"
    for each in (secret, path):
        each.parent.mkdir()
    with h5py.File(secret, "w") as file:
        file["x"] = np.arange(3)
    with h5py.File(path, "w") as file:
        if kind == "storage":
            file.create_dataset("x", (3,), "i8", external=[(str(secret), 0, 24)])
        elif kind == "link":
            file["x"] = h5py.ExternalLink(str(secret), "x")
        else:
            layout = h5py.VirtualLayout((3,), "i8")
            layout[:] = h5py.VirtualSource(str(secret), "x", (3,))
            file.create_virtual_dataset("x", layout)
    driver = KerchunkDriver("kerchunk.hdf:SingleHdf5ToZarr")
    with opened_files(secret) as opened, pytest.raises(ForbiddenLocationError, match="would open every local file"):
        vs.open_virtual_dataset(path, reader=driver, allow=vs.Listed())
    assert opened == []
