"""Files that lead to other files: the HDF5 library follows no link and opens no source that may not be read."""

import h5py
import numpy as np
import pytest

import virtualstack as vs
from tests.data.opened import opened_files
from virtualstack.errors import VirtualStackError
from virtualstack.readers import HDF5

SECRET = 123456789


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
    """With our parsers and with the library; the rest of the file opens without ``allow=``."""
    path = _hostile(tmp_path / "inside" / "a.h5", secret, kind)
    reader = HDF5(metadata=metadata)
    with opened_files(secret) as opened:
        group = vs.scan([path], reader=reader)[0]
        assert "own" in group.arrays
        assert "x" not in group.arrays
        assert any(x.path == "/x" for x in group.refusals)
    assert opened == []


def test_a_file_with_links_opens_where_they_lead_to_allowed_places(tmp_path, secret):
    """The references in it need the HDF5 library; what is behind the links is left out by name."""
    path = _hostile(secret.parent / "a.h5", secret, "external link")
    group = vs.scan([path])[0]
    assert set(group.arrays) == {"own", "references"}
    assert [x.reason for x in group.refusals if x.path == "/x"] == [
        f"a link to 'x of {secret}', which is in another file"
    ]


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
                found = vs.scan([path], reader=HDF5(metadata=metadata))
            except VirtualStackError:
                continue
            assert str(SECRET) not in repr(found[0])
    assert opened == []
