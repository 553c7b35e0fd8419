"""Files that lead to other files: the HDF5 library follows no link and opens no source that may not be read."""

import re

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.opened import opened_files
from virtualstack.errors import VirtualStackError
from virtualstack.readers import HDF5, ReadOptions

SECRET = 123456789
LISTED = ReadOptions.from_options(allow=vs.Listed())


@pytest.fixture
def secret(tmp_path):
    """A file that nothing may open."""
    path = tmp_path / "outside" / "secret.h5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file["x"] = np.full(3, SECRET)
        file.create_dataset("grows", data=np.full(3, SECRET), maxshape=(None,), chunks=(3,))
    return path


def _hostile(path, secret, kind):
    """Write a file for which our parsers need the library (its references), with a way to the secret."""
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w", libver="latest") as file:
        file["own"] = np.arange(3)
        file["references"] = np.array([file["own"].ref, file.ref], h5py.ref_dtype)
        if kind == "external link":
            file["x"] = h5py.ExternalLink(str(secret), "x")
        elif kind == "soft link over an external link":
            file["g"] = h5py.ExternalLink(str(secret), "/")
            file["x"] = h5py.SoftLink("/g/x")
            file.create_group("below")["y"] = h5py.SoftLink("../g/x")
        elif kind == "external storage":
            file.create_dataset("x", (3,), "i8", external=[(str(secret), 0, 24)])
        elif kind == "virtual text":
            layout = h5py.VirtualLayout((3,), h5py.string_dtype())
            layout[:] = h5py.VirtualSource(str(secret), "x", (3,))
            file.create_virtual_dataset("x", layout)
        else:
            layout = h5py.VirtualLayout((3,), "i8", maxshape=(None,))
            source = h5py.VirtualSource(str(secret), "grows", (3,), maxshape=(None,))
            layout[h5py.h5s.UNLIMITED :] = source[h5py.h5s.UNLIMITED :]
            layout = h5py.VirtualLayout((3,), "i8", maxshape=(None,))
            layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
            file.create_virtual_dataset("x", layout)
    return path


KINDS = ["external link", "soft link over an external link", "external storage", "virtual text", "growing"]


@pytest.mark.parametrize("metadata", ["auto", "library", "own"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_other_file_is_opened(tmp_path, secret, kind, metadata):
    """With listed places, by our parsers and by the library; the rest of the file opens."""
    path = _hostile(tmp_path / "inside" / "a.h5", secret, kind)
    reader = HDF5(metadata=metadata)
    with opened_files(secret) as opened:
        group = vs.scan([path], reader=reader, options=LISTED)[0]
        assert "own" in group.arrays
        assert "x" not in group.arrays
        assert any(x.path == "/x" for x in group.refusals)
    assert opened == []


@pytest.mark.parametrize("metadata", ["auto", "library"])
def test_external_links_show_what_netcdf4_shows(metadata, tmp_path):
    """Variables and groups of other files, with values, attributes and dimensions."""
    with netCDF4.Dataset(tmp_path / "b.nc", "w") as file:
        file.createDimension("t", 3)
        file.createVariable("x", "f4", ("t",))[:] = [1, 2, 3]
        file["x"].units = "K"
        file.createGroup("g").createVariable("y", "i4", ("t",))[:] = [4, 5, 6]
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("t", 3)
        file.createVariable("own", "f4", ("t",))[:] = [1, 2, 3]
    with h5py.File(tmp_path / "a.nc", "a") as file:
        for name, target in {"x": "/x", "group": "/g", "whole": "/"}.items():
            file[name] = h5py.ExternalLink("b.nc", target)
    found = xr.open_datatree(tmp_path / "a.nc", engine="virtualstack", reader=HDF5(metadata=metadata))
    xr.testing.assert_identical(found.load(), xr.open_datatree(tmp_path / "a.nc", engine="netcdf4").load())
    assert str(vs.open_virtual_dataset(tmp_path / "a.nc")["x"].data.manifest.locations[0].url).endswith("b.nc")


def test_an_external_link_to_an_axis_of_another_length_gets_a_dimension_of_its_own(tmp_path):
    """netCDF-C takes the number of a dimension in the other file for that of one in this file."""
    for name, n in (("a", 3), ("b", 5)):
        xr.Dataset({"own": ("t", np.arange(n))}).to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    with h5py.File(tmp_path / "a.nc", "a") as file:
        file["other"] = h5py.ExternalLink("b.nc", "/own")
    with xr.open_dataset(tmp_path / "a.nc", engine="virtualstack") as found:
        assert dict(found.sizes) == {"t": 3, "t_of_other": 5}
        np.testing.assert_array_equal(found["other"].values, np.arange(5))


@pytest.mark.parametrize(
    ("file", "target", "reason"),
    [
        ("none.h5", "x", "the file does not exist"),
        ("b.h5", "none", "it does not exist"),
        ("b.h5", "none/x", "it does not exist"),
        ("b.h5", "chain", "are not followed"),
        ("c.txt", "x", "not an HDF5 file"),
        ("a.h5", "/", "another name of|are not followed"),
    ],
)
def test_external_links_that_lead_nowhere_are_noted(file, target, reason, tmp_path):
    """The rest of the file opens, and links of a file behind a link are not followed: no loop, and no explosion."""
    (tmp_path / "c.txt").write_text("no file of HDF5")
    with h5py.File(tmp_path / "b.h5", "w") as other:
        other["chain"] = h5py.ExternalLink("a.h5", "own")
    with h5py.File(tmp_path / "a.h5", "w") as main:
        main["own"] = np.arange(3)
        main["link"] = main["again"] = h5py.ExternalLink(file, target)
    group = vs.scan([tmp_path / "a.h5"])[0]
    assert "own" in group.arrays
    assert "link" not in group.arrays
    notes = [x for _, node in group.walk() for x in node.refusals]
    assert all(x.kind == "noted" for x in notes)
    assert any(re.search(reason, x.reason) for x in notes)


def test_a_name_that_is_twice_in_a_group_leads_nowhere_else(tmp_path, secret):
    """Our parsers see a dataset where the library sees a link: a link takes the place of a name in the bytes."""
    path = tmp_path / "inside" / "a.h5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        group = file.create_group("g")
        group["aa"] = np.array([b"text"], h5py.string_dtype())
        group["ab"] = h5py.ExternalLink(str(secret), "x")
    data = path.read_bytes()
    assert data.count(b"\x02ab") == 1  # a message of the group: the name, then the target
    path.write_bytes(data.replace(b"\x02ab", b"\x02aa"))
    with opened_files(secret) as opened:
        for metadata in ("auto", "library"):
            try:
                found = vs.scan([path], reader=HDF5(metadata=metadata), options=LISTED)
            except VirtualStackError:
                continue
            assert str(SECRET) not in repr(found[0])
    assert opened == []
