"""What the HDF5 library refuses though the values could be guessed: found by flipping bits."""

import struct

import h5py
import numpy as np
import pytest
import xarray as xr
from numcodecs.jenkins import jenkins_lookup3

import virtualstack as vs
from tests.data.files import overwrite, replace_once
from tests.data.hdf5_parts import dataset_of, reduced
from tests.formats.groups import CHECKED, group_of, reasons, refusals
from virtualstack.errors import VirtualStackError
from virtualstack.formats.hdf5.filters import Filter, is_nonsense
from virtualstack.formats.hdf5.structures.layout_message import parse_layout
from virtualstack.formats.hdf5.structures.messages import parse_dataspace
from virtualstack.formats.hdf5.structures.requests import StructureError, Widths


def only_refusal(path):
    """Return the reason why dataset ``x`` is refused, beside which nothing is said."""
    ((name, (kind, reason)),) = refusals(group_of(path)).items()
    assert (name, kind) == ("/x", "refused")
    return reason


def test_a_null_dataspace_has_no_axes():
    """Its rank is 0."""
    assert parse_dataspace(bytes([2, 0, 0, 2]), Widths()).shape is None
    with pytest.raises(StructureError, match="a dataspace of type 2 has 1 axes"):
        parse_dataspace(bytes([2, 1, 0, 2]), Widths())


def test_a_string_is_as_long_as_its_object_in_the_heap(tmp_path):
    """A shorter one would be cut."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("text", data=["abcdef", "xy"], dtype=h5py.string_dtype())
        offset = file["text"].id.get_offset()
    assert path.read_bytes()[offset] == 6
    overwrite(path, offset, b"\4")
    group = group_of(path)
    assert not group.arrays
    assert list(reasons(group)) == list(refusals(group)) == ["/text"]


def test_parameters_of_a_filter_that_nothing_decodes_are_not_left_to_the_library(tmp_path):
    """It gives memory that was never written."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        values = file.create_dataset("x", data=np.arange(40), chunks=(40,), scaleoffset=0)
        steps = values.id.get_create_plist()
        parameters = steps.get_filter(0)[2]
    assert is_nonsense((Filter(id=6, name="scaleoffset", values=(*parameters[:7], 129, *parameters[8:])),))
    right = Filter(id=6, name="scaleoffset", values=tuple(parameters))
    assert not is_nonsense((right,))
    wrong = (*parameters[:4], 0, *parameters[5:])
    assert is_nonsense((Filter(id=6, name="scaleoffset", values=wrong),))
    replace_once(path, np.array(parameters, "<u4").tobytes(), np.array(wrong, "<u4").tobytes())
    assert "has numbers of class 0 with 0 bytes" in only_refusal(path)


def test_no_elements_have_no_place(tmp_path):
    """An old file whose shape was damaged to nothing, and whose values are still there."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["x"] = np.arange(1000, dtype="i4").reshape(250, 4)
    replace_once(path, np.array([250, 4, 250, 4], "<u8").tobytes(), np.array([250, 0, 250, 4], "<u8").tobytes())
    assert only_refusal(path)


def test_an_old_header_counts_its_references_itself(tmp_path):
    """A message that does so has no place there: a time of modification whose type was damaged."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        made = file.create_dataset("x", data=np.arange(4), track_times=True)
        address = h5py.h5o.get_info(made.id).addr
    overwrite(path, path.read_bytes().index(b"\x12\0\x08\0", address), b"\x16")
    assert only_refusal(path)


def test_numbers_that_leave_most_of_their_bytes_unused_are_left_to_the_library(tmp_path):
    """It refuses them (2.0), as such a size is most often a damaged one; 24 bits in 4 bytes are usual."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        dataset_of(file, "x", reduced(h5py.h5t.STD_I32LE, 24), (5,), raw=np.arange(5, dtype="i4"))
    assert list(group_of(path).arrays) == ["x"]
    replace_once(path, struct.pack("<IHH", 4, 0, 24), struct.pack("<IHH", 4, 0, 9))
    assert only_refusal(path)


def test_an_old_layout_has_a_number_of_dimensions_that_there_may_be():
    """Also where it is contiguous, and they are not needed."""
    usual = bytes([1, 2, 1, 0, 0, 0, 0, 0]) + struct.pack("<QII", 2048, 8, 4)
    assert parse_layout(usual, Widths()).address == 2048
    for n in (0, 34):
        with pytest.raises(StructureError, match=f"has {n} dimensions"):
            parse_layout(usual[:1] + bytes([n]) + usual[2:], Widths())


@pytest.mark.parametrize("widths", [(4, 8), (4, 4), (8, 4)])
def test_the_library_view_reads_headers_of_any_widths(widths, tmp_path):
    """Check mode compares chunked datasets of such files, too."""
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    plist.set_sizes(*widths)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    path = tmp_path / "x.h5"
    file = h5py.File(h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, plist, access))
    file.create_dataset("x", data=np.arange(40), chunks=(7,))
    file.close()
    group = group_of(path, CHECKED)
    assert list(group.arrays) == ["x"]
    assert not group.refusals


def write_many_attributes(path):
    """Write a packed dataset and a group with so many attributes that these are in heaps with checksums."""
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = np.arange(4, dtype="i2")
        for made in (file["x"], file.create_group("g")):
            made.attrs["scale_factor"] = 0.5
            made.attrs["units"] = "K"
            made.attrs.update({f"a{i}": i for i in range(12)})


@pytest.mark.parametrize("metadata", ["auto", "library"])
@pytest.mark.parametrize("which", [0, 1], ids=["dataset", "group"])
def test_attributes_that_cannot_be_listed_are_not_left_out(which, metadata, tmp_path):
    """Without ``scale_factor``, the stored numbers would be the values."""
    path = tmp_path / "x.h5"
    write_many_attributes(path)
    data = path.read_bytes()
    index = [i for i in range(len(data)) if data.startswith(b"BTLF", i)][which]
    overwrite(path, index + 8, bytes([data[index + 8] ^ 1]))
    with h5py.File(path) as file, pytest.raises(RuntimeError, match="checksum"):
        list(file["xg"[which]].attrs)
    ((name, (kind, reason)),) = refusals(group_of(path, vs.readers.HDF5(metadata=metadata))).items()
    assert (name, kind) == (("/x", "/g")[which], "refused")
    assert "incorrect metadata checksum" in reason
    with pytest.raises(vs.errors.UnsupportedFeatureError, match=r"cannot be opened: .* checksum"):
        vs.open_virtual_datatree(path)


@pytest.mark.parametrize("metadata", ["auto", "library"])
@pytest.mark.parametrize(("name", "is_refused"), [("units", True), ("long_name", False)])
def test_a_damaged_attribute_that_decodes_values_is_not_left_out(name, is_refused, metadata, tmp_path):
    """Without their units, times would be numbers; other attributes are noted."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(4)
        file["x"].attrs.create(name, "days since 2000-01-01", dtype=h5py.string_dtype())
    data = path.read_bytes()
    pointer = struct.pack("<IQ", 21, data.index(b"GCOL"))
    overwrite(path, data.index(pointer), b"\x63")  # the text in the heap is shorter
    group = group_of(path, vs.readers.HDF5(metadata=metadata))
    assert list(group.arrays) == ([] if is_refused else ["x"])
    kinds = {path: kind for path, (kind, _) in refusals(group).items()}
    assert kinds == {f"/x@{name}": "noted", **({"/x": "refused"} if is_refused else {})}


def _checksum(data):
    return jenkins_lookup3(bytes(data), 0).to_bytes(4, "little")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["file space", "paged", "B-tree 'K'", "empty"])
@pytest.mark.parametrize("n_rounds", [40, pytest.param(1000, marks=pytest.mark.apart)])
def test_what_h5py_refuses_of_a_superblock_extension_is_refused(kind, version, n_rounds, tmp_path):
    """Bytes of its header are changed at random, with a checksum that fits; else values are those of h5py."""
    path = tmp_path / "x.h5"
    strategy = {"fs_strategy": "page", "fs_page_size": 512} if kind == "paged" else {"fs_strategy": "fsm"}
    with h5py.File(path, "w", libver="latest", fs_persist=True, **strategy) as file:
        file["x"] = np.arange(20.0)
        file.create_dataset("g/y", data=np.arange(30), chunks=(7,))
    data = bytearray(path.read_bytes())
    data[8] = version
    data[44:48] = _checksum(data[:44])
    at = int.from_bytes(data[20:28], "little")
    assert data[at : at + 4] == b"OHDR"
    begin = at + 6 + (16 if data[at + 5] & 0x20 else 0) + 1
    end = begin + data[begin - 1]
    if kind in ("B-tree 'K'", "empty"):
        body = bytes([0x13, 7, 0, 0, 0, 32, 0, 16, 0, 4, 0]) if kind != "empty" else b""
        n = end - begin - len(body) - 4
        data[begin:end] = body + bytes([0, n, 0, 0]) + bytes(n)
        data[end : end + 4] = _checksum(data[at:end])
    random = np.random.default_rng(version)
    outcomes = set()
    for _ in range(n_rounds):
        changed = bytearray(data)
        for where in random.integers(at + 4, end, random.integers(1, 3)):
            changed[where] = int(random.choice([0, 1, 2, 3, 0x0F, 0x10, 0x13, 0x17, 128, 255, random.integers(256)]))
        changed[end : end + 4] = _checksum(changed[at:end])
        path.write_bytes(changed)
        try:
            with h5py.File(path) as file:
                expected = {name: file[name][...] for name in ("x", "g/y")}
        except (OSError, KeyError, RuntimeError):
            with pytest.raises(VirtualStackError):
                vs.open_virtual_datatree(path)
            outcomes.add("refused")
            continue
        found = xr.open_datatree(path, engine="virtualstack")
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name].values, values)
        outcomes.add("opened")
    assert outcomes == {"opened", "refused"}
