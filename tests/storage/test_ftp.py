"""Files on a server of FTP, through fsspec."""

import pickle
import threading

import fsspec
import numpy as np
import pytest
import xarray as xr
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.ioloop import IOLoop
from pyftpdlib.log import config_logging
from pyftpdlib.servers import ThreadedFTPServer

import virtualstack as vs
from virtualstack.errors import SourceNotFoundError, StorageError

VALUES = np.arange(12_000.0).reshape(3, 4_000)
USER = "ann", "p@ss"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with three files, for a user with a password, and for anybody."""
    folder = tmp_path_factory.mktemp("ftp")
    for n in range(3):
        ds = xr.Dataset({"t": (("time", "x"), VALUES[n : n + 1])}, {"time": [n]})
        ds.to_netcdf(folder / f"f{n}.nc", engine="h5netcdf")
    config_logging(level="ERROR")
    running = {}
    for name in ("anybody", "user"):
        authorizer = DummyAuthorizer()
        if name == "user":
            authorizer.add_user(*USER, str(folder))
        else:
            authorizer.add_anonymous(str(folder))
        handler = type("Handler", (FTPHandler,), {"authorizer": authorizer, "auth_failed_timeout": 0})
        running[name] = ThreadedFTPServer(("127.0.0.1", 0), handler, IOLoop())  # otherwise they share one
        threading.Thread(target=running[name].serve_forever, kwargs={"timeout": 0.05}, daemon=True).start()
    yield {name: f"127.0.0.1:{each.address[1]}" for name, each in running.items()}
    for each in running.values():
        each.close_all()


def opened(url, **options):
    return vs.open_virtual_dataset(url, loadable_variables=[], **options)


def test_files_of_anybody(server, tmp_path):
    """One file, several by a pattern, in another process, and through references."""
    root = f"ftp://{server['anybody']}"
    vds = opened(f"{root}/f0.nc")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(vds)).virtual.open()["t"], VALUES[:1])
    np.testing.assert_array_equal(vs.open_virtual_mfdataset(f"{root}/*.nc").virtual.open()["t"], VALUES)
    vds.virtual.to_kerchunk(tmp_path / "refs.json")
    np.testing.assert_array_equal(xr.open_dataset(tmp_path / "refs.json", engine="virtualstack")["t"], VALUES[:1])
    with pytest.raises(SourceNotFoundError, match=f"there is nothing at '{root}/none.nc'"):
        opened(f"{root}/none.nc")


def test_a_filesystem_and_a_path_in_it(server):
    """References name the host, and an open file is that of its filesystem."""
    host, _, port = server["user"].partition(":")
    filesystem = fsspec.filesystem("ftp", host=host, port=int(port), username=USER[0], password=USER[1])
    for held in ((filesystem, "/f2.nc"), filesystem.open("/f2.nc")):
        vds = opened(held)
        np.testing.assert_array_equal(vds.virtual.open()["t"], VALUES[2:])
        refs = vds.virtual.to_kerchunk()["refs"]
        assert {value[0] for value in refs.values() if isinstance(value, list)} == {f"ftp://{host}:{port}/f2.nc"}


@pytest.mark.parametrize("place", ["url", "storage"])
def test_files_of_a_user(server, place):
    """Its password is in no location and no reference."""
    host = server["user"]
    options = {"username": USER[0], "password": USER[1]}
    url = f"ftp://ann:p%40ss@{host}/f1.nc" if place == "url" else f"ftp://{host}/f1.nc"
    vds = opened(url, storage=None if place == "url" else {f"ftp://{host}/": options})
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(vds)).virtual.open()["t"], VALUES[1:2])
    refs = vds.virtual.to_kerchunk()["refs"]
    assert {value[0] for value in refs.values() if isinstance(value, list)} == {f"ftp://{host}/f1.nc"}
    assert "ss@" not in repr(vds) + str(vds.encoding)


@pytest.mark.parametrize("secret", ["", "wrong:s3cret@"])
def test_who_is_refused_is_told(server, secret):
    with pytest.raises(StorageError, match=r"cannot be reached: .*530 ") as caught:
        opened(f"ftp://{secret}{server['user']}/f1.nc")
    assert "s3cret" not in str(caught.value)
