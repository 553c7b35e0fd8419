from pathlib import Path
from unittest.mock import Mock

import h5py
import numpy as np
import pytest

from tests.data.make_hdf5_virtual import U, make_sources, make_virtual, make_virtual_of_one, space
from tests.formats.groups import group_of, reasons, values_of
from tests.formats.hdf5.test_virtual_datasets import (
    check,
    put,
    refusal,
)
from virtualstack.formats.hdf5 import walk
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.structures.object_header import read_object_header
from virtualstack.formats.hdf5.templates import TEMPLATES

GROWS = space((6,), ((0,), (1,), None, (U,)), maxshape=(U,))
NUMBERED = space((0, 6), ((0, 0), (U, 1), (1, 1), (1, 6)), maxshape=(U, 6))


def make_all(folder: Path) -> None:
    """Virtual datasets of fixed places, one that grows, and one of numbered sources."""
    make_sources(folder, 3, maxshape=(None,), chunks=(4,))
    fixed = [(space((3, 6), ((i, 0), (1, 6))), f"s{i}.h5", "x", space((6,))) for i in range(3)]
    make_virtual(folder / "fixed.h5", (3, 6), fixed)
    make_virtual(folder / "grows.h5", (0,), [(GROWS, "s1.h5", "x", GROWS)], maxshape=(U,))
    make_virtual(folder / "numbered.h5", (0, 6), [(NUMBERED, "s%b.h5", "x", space((6,)))], maxshape=(U, 6))


@pytest.mark.parametrize("name", ["fixed", "grows", "numbered"])
def test_the_library_opens_neither_the_file_nor_its_sources(name, tmp_path, monkeypatch):
    make_all(tmp_path)
    check(tmp_path / f"{name}.h5")

    def opened(*_: object) -> None:
        raise AssertionError("the HDF5 library was asked")

    monkeypatch.setattr(Library, "_ask", opened)
    assert "x" in group_of(tmp_path / f"{name}.h5").arrays


@pytest.mark.parametrize("name", ["fixed", "grows", "numbered"])
def test_remote_files_are_read_as_local_ones(name, tmp_path):
    make_all(tmp_path)
    for path in tmp_path.iterdir():
        put(path, f"memory://vdsall{name}/{path.name}")
    array = group_of(f"memory://vdsall{name}/{name}.h5", inline_limit=0).arrays["x"]
    with h5py.File(tmp_path / f"{name}.h5") as file:
        np.testing.assert_array_equal(values_of(array), file["x"][...])


@pytest.mark.parametrize("version", ["earliest", "latest"])
@pytest.mark.parametrize("path", ["a/b/x", "/a//b/./x", "soft", "a/up/x", "abs/x", "chain", "a/hard"])
def test_paths_to_sources_go_over_links(version, path, tmp_path):
    with h5py.File(tmp_path / "s.h5", "w", libver=(version, "latest")) as file:
        file["a/b/x"] = np.arange(6)
        file["soft"] = h5py.SoftLink("a/b/x")
        file["a/up"] = h5py.SoftLink("b")  # from the group that it is in
        file["abs"] = h5py.SoftLink("/a/b")
        file["chain"] = h5py.SoftLink("soft")
        file["a/hard"] = file["a/b/x"]
    make_virtual_of_one(tmp_path / "v.h5", "s.h5", path)
    check(tmp_path / "v.h5")


@pytest.mark.parametrize("path", ["a/../x", "dangling", "loop", "x/y", "a", "type"])
def test_paths_that_lead_to_no_dataset(path, tmp_path):
    """The HDF5 library shows fill values; to it, ``..`` is a name."""
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["x"] = np.arange(6)
        file.create_group("a")
        file["dangling"] = h5py.SoftLink("nowhere")
        file["loop"] = h5py.SoftLink("loop")
        file["type"] = np.dtype("i8")
    make_virtual_of_one(tmp_path / "v.h5", "s.h5", path)
    assert f"whose source '{path}' is not in 's.h5'" in refusal(tmp_path / "v.h5")


@pytest.mark.parametrize("name", ["x", "d%b"])
def test_sources_behind_external_links_are_refused(name, tmp_path):
    """Also where they are numbered: the first that is in another file does not end the numbers."""
    make_sources(tmp_path, 1)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["d0"] = np.arange(6)
        for link in ("x", "d1"):
            file[link] = h5py.ExternalLink("s0.h5", "x")
    if name == "x":
        make_virtual_of_one(tmp_path / "v.h5", "s.h5", name)
    else:
        make_virtual(tmp_path / "v.h5", (0, 6), [(NUMBERED, "s.h5", name, space((6,)))], maxshape=(U, 6))
    assert "is a link to another file" in refusal(tmp_path / "v.h5")


def test_what_grows_beyond_its_maximal_shape_is_refused(tmp_path):
    """The HDF5 library cannot tell its shape."""
    make_sources(tmp_path, 1, maxshape=(None,), chunks=(4,))
    for most in (6, 5):
        make_virtual(tmp_path / "v.h5", (0,), [(GROWS, "s0.h5", "x", GROWS)], maxshape=(most,))
        if most == 6:
            check(tmp_path / "v.h5")
    with h5py.File(tmp_path / "v.h5") as file, pytest.raises(RuntimeError, match="maximal size"):
        file["x"].shape  # noqa: B018
    reason = "the object cannot be opened: its sources fill (6,), and it grows to (5,) at most"
    assert reasons(group_of(tmp_path / "v.h5"))["/x"] == reason


@pytest.mark.parametrize("damaged", [False, True])
def test_only_the_path_to_a_source_is_read(damaged, tmp_path, monkeypatch):
    """Neither the other objects of its file nor their damage count."""
    with h5py.File(tmp_path / "s.h5", "w", libver="latest") as file:
        file["a/x"] = np.arange(6)
        for i in range(50):
            file[f"others/{i}/x"] = np.arange(6)
        other = h5py.h5o.get_info(file["others"].id).addr
    raw = bytearray((tmp_path / "s.h5").read_bytes())
    raw[other + 6] ^= damaged
    (tmp_path / "s.h5").write_bytes(raw)
    make_virtual_of_one(tmp_path / "v.h5", "s.h5", "a/x")
    headers: list[int] = []
    TEMPLATES.clear()
    monkeypatch.setattr(
        walk, "read_object_header", lambda at, widths: headers.append(at) or read_object_header(at, widths)
    )
    monkeypatch.setattr(Library, "_ask", Mock(side_effect=AssertionError("the HDF5 library was asked")))
    array = group_of(tmp_path / "v.h5").arrays["x"]
    assert len(headers) == 5  # two of the virtual dataset's file, three on the path
    np.testing.assert_array_equal(values_of(array), np.arange(6))
