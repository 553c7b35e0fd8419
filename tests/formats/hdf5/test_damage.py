import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from numcodecs.jenkins import jenkins_lookup3

import virtualstack as vs
from virtualstack.errors import ReaderError, UnsupportedFeatureError
from virtualstack.readers import HDF5

pytest.importorskip("hdf5plugin")


@pytest.mark.parametrize("n", [6, pytest.param(40, marks=pytest.mark.apart)])
def test_flipped_bits_of_metadata_are_read_as_the_library_reads_them(n):
    """Or they end in an error of ours: never in other values, another exception, or without an end."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.formats.hdf5.damage", str(n), "7"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal" in done.stdout


def test_a_fill_value_that_is_shorter_than_its_type_is_refused(tmp_path):
    """The HDF5 library gives what lies behind it in memory: other numbers at each reading."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", (6,), "<i4", fillvalue=0x11223344)
    four, two = (bytes([n, 0, 0, 0]) + b"\x44\x33\x22\x11" for n in (4, 2))
    data = path.read_bytes()
    assert four in data
    path.write_bytes(data.replace(four, two))
    with pytest.raises(UnsupportedFeatureError, match="its fill value has 2 bytes, and its elements 4"):
        vs.open_virtual_dataset(path)


def test_records_that_are_too_short_are_refused(tmp_path):
    """Records of a B-tree name the links in a heap; header and leaf are sealed again."""
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        for i in range(20):
            file[f"n{i}"] = i
    data, size = bytearray((tmp_path / "x.h5").read_bytes()), 2
    header, leaf = data.index(b"BTHD"), data.index(b"BTLF")
    data[header + 10 : header + 12] = size.to_bytes(2, "little")
    for at, n_bytes in ((header, 34), (leaf, 6 + 20 * size)):
        data[at + n_bytes : at + n_bytes + 4] = jenkins_lookup3(bytes(data[at : at + n_bytes]), 0).to_bytes(4, "little")
    (tmp_path / "x.h5").write_bytes(data)
    with pytest.raises(ReaderError, match="ends before its fields do"):
        vs.scan([tmp_path / "x.h5"], reader=HDF5(metadata="own"))
