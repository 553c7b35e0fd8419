import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hdf5plugin")


def test_flipped_bits_of_metadata_are_read_as_the_library_reads_them():
    """Or they end in an error of ours: never in other values, another exception, or without an end."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.formats.hdf5.damage", "40", "7"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal" in done.stdout
