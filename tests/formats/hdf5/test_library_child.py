import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from h5py import h5a, h5s, h5t

import virtualstack as vs
from tests.data.files import overwrite
from tests.data.hdf5_parts import text
from tests.data.make_hdf5 import make
from tests.formats.groups import CHECKED, group_of, values_of
from virtualstack.child.pool import InChild, run_in_child
from virtualstack.errors import MalformedFileError
from virtualstack.location import absolute_url
from virtualstack.readers import HDF5

VALUES = np.arange(12.0).reshape(3, 4)


def lists_of(values: object, count: int, base: object) -> np.ndarray:
    """Make an array of lists of any length, each with the same values."""
    made = np.empty(count, h5py.vlen_dtype(base))
    for i in range(count):
        made[i] = np.array(values, base)
    return made


def references(file: h5py.File) -> list[h5py.Reference]:
    return [file["y"].ref, file["x"].ref]


LISTS = {
    "references": lambda file: np.array(references(file), h5py.ref_dtype),
    "one reference": lambda file: file["y"].ref,
    "a shorter list": lambda file: lists_of(references(file), 1, h5py.ref_dtype),
    "a longer list": lambda file: lists_of(references(file), 3, h5py.ref_dtype),
    "regions": lambda file: np.array([file["y"].regionref[:], file["x"].regionref[:]], h5py.regionref_dtype),
    "integers": lambda file: np.arange(2),
    "addresses": lambda file: np.full(2, 800, np.uint64),
    "sequences of integers": lambda file: lists_of([800, 2], 2, np.int64),
    "text": lambda file: "x y",
    "texts": lambda file: np.array(["x", "y"], h5py.string_dtype()),
    "nothing": lambda file: h5py.Empty("f8"),
}


@pytest.mark.parametrize("metadata", ["auto", "own", "library"])
@pytest.mark.parametrize("form", LISTS)
def test_lists_of_dimension_scales_of_any_form_do_not_crash(form, metadata, tmp_path):
    """The library trusts the type and shape of DIMENSION_LIST, and takes any bytes for pointers."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["v"], file["y"], file["x"] = VALUES, np.arange(3.0), np.arange(4.0)
        file["y"].make_scale("y")
        file["x"].make_scale("x")
        file["v"].attrs["DIMENSION_LIST"] = LISTS[form](file)
    group = group_of(path, HDF5(metadata=metadata))
    assert set(group.arrays["v"].dimension_names or ()) <= {"y", "x", "phony_dim_0", "phony_dim_1"}
    np.testing.assert_array_equal(values_of(group.arrays["v"]), VALUES)
    assert any(x.path == "/v" and "of its dimension scales" in x.reason for x in group.refusals)


CLASSES = {
    "as it should be": (16, h5t.STR_NULLTERM, None, True),
    "of one element": (16, h5t.STR_NULLTERM, (1,), True),
    "of two elements": (16, h5t.STR_NULLTERM, (2,), False),
    "of many elements": (16, h5t.STR_NULLTERM, (3000,), False),
    "longer": (20, h5t.STR_NULLTERM, None, False),
    "padded by NULs": (16, h5t.STR_NULLPAD, None, False),
    "padded by spaces": (16, h5t.STR_SPACEPAD, None, False),
}


@pytest.mark.parametrize("metadata", ["auto", "library"])
@pytest.mark.parametrize("form", CLASSES)
def test_what_is_a_dimension_scale_does_not_crash(form, metadata, tmp_path):
    """H5DSis_scale reads all elements of CLASS into the memory of one; where there is one, it is the oracle."""
    size, padding, shape, is_scale = CLASSES[form]
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", data=np.arange(4.0))
        tid = text(size, padding)
        space = h5s.create(h5s.SCALAR) if shape is None else h5s.create_simple(shape)
        attribute = h5a.create(dataset.id, b"CLASS", tid, space)
        attribute.write(np.full(shape or (), b"DIMENSION_SCALE", f"S{size}"), tid)
    if shape is None or shape == (1,):
        with h5py.File(path) as file:
            assert h5py.h5ds.is_scale(file["x"].id) is is_scale
    assert group_of(path, HDF5(metadata=metadata)).arrays["x"].dimension_names == (
        ("x",) if is_scale else ("phony_dim_0",)
    )


def damaged(folder: Path) -> Path:
    """Make a file whose root group our parsers do not read: its checksum is wrong, and the library does not look."""
    path = folder / "odd.h5"
    with h5py.File(path, "w") as file:
        file["v"] = VALUES
    overwrite(path, path.read_bytes().index(b"TREE") + 4, b"\7")  # the type of a node
    return path


def dying(monkeypatch: pytest.MonkeyPatch, function: str, *arguments: object, seconds: float = 60) -> None:
    """Let the HDF5 library crash or hang."""
    monkeypatch.setattr(InChild, "call", lambda *_: run_in_child(function, *arguments, seconds=seconds))


@pytest.mark.parametrize(
    ("what", "ends"),
    [
        (("os:abort",), r"crashed \(SIGABRT\)"),
        (("re:match", "(a+)+$", "a" * 40 + "b"), r"did not finish within 0\.5 seconds of computing"),
    ],
)
def test_a_file_that_ends_the_library_is_malformed(what, ends, tmp_path, monkeypatch):
    """The error names the file, what happened, and what can be done."""
    path = damaged(tmp_path)
    dying(monkeypatch, *what, seconds=0.5)
    with pytest.raises(MalformedFileError, match=rf"odd\.h5' is damaged: .*the HDF5 library {ends}.*metadata='own'"):
        group_of(path)


def test_own_metadata_leaves_nothing_to_the_library(tmp_path, monkeypatch):
    """Who asks for it never starts the library, whatever the file holds."""
    path, usual = damaged(tmp_path), make("types", tmp_path)
    dying(monkeypatch, "os:abort")
    with pytest.raises(MalformedFileError, match="metadata='own' leaves nothing to the HDF5 library"):
        group_of(path, HDF5(metadata="own"))
    assert group_of(usual, HDF5(metadata="own")).arrays


def test_threads_of_a_scan_leave_a_file_that_hangs(tmp_path, monkeypatch):
    """The library holds the lock of Python in its own process."""
    path, usual = damaged(tmp_path), make("types", tmp_path)
    dying(monkeypatch, "time:sleep", 30)
    start = time.monotonic()
    result = vs.scan([str(path), str(usual)], reader=HDF5(), executor="threads", timeout=2, on_error="skip")
    assert time.monotonic() - start < 20
    assert [url.rpartition("/")[2] for url, _ in result.errors] == ["odd.h5"]


def test_a_text_as_fill_value_of_a_group(tmp_path):
    """A group has no elements; the attribute is a text."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs["_FillValue"] = np.bytes_("a")
    assert group_of(path, CHECKED).attributes == {"_FillValue": "a"}


def test_usual_files_need_no_library(tmp_path):
    """Neither h5py nor a child process is started for them."""
    path = make("types", tmp_path)
    script = (
        "import subprocess, sys\nsubprocess.Popen = None\n"
        "from virtualstack.readers import HDF5, ReadOptions\nfrom virtualstack.storage import Storage\n"
        f"group = HDF5().read({absolute_url(path)!r}, Storage.from_option(None), ReadOptions())\n"
        "print(len(group.arrays) > 3, 'h5py' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True False\n", "")


def test_a_file_that_was_repaired_in_place_is_read_anew(tmp_path):
    """The child is reused, and the library takes a file that it still has open for the one that is there now."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["v"] = VALUES
    good = path.read_bytes()
    bad = bytearray(good)
    bad[112] ^= 0xFF  # the type of the first message of the root group: the file opens, and its root does not
    with path.open("r+b") as file:  # of the same inode
        file.write(bad)
    with pytest.raises(MalformedFileError):
        group_of(path, HDF5(metadata="library"))
    with path.open("r+b") as file:
        file.write(good)
    group = group_of(path, HDF5(metadata="library"))
    np.testing.assert_array_equal(values_of(group.arrays["v"]), VALUES)
