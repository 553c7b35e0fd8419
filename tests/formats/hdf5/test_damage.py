import subprocess
import sys
from pathlib import Path

import h5py
import pytest

import virtualstack as vs
from virtualstack.errors import UnsupportedFeatureError

pytest.importorskip("hdf5plugin")


@pytest.mark.parametrize("n", [12, pytest.param(40, marks=pytest.mark.apart)])
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
