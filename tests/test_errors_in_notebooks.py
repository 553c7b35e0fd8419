"""Errors in a real kernel: the message comes first, then the lines of the user, and no frame of a library."""

import re
import subprocess
import sys

import pytest

FAILS = """
import virtualstack as vs
import xarray as xr
def mine(name):
    return vs.open_virtual_dataset(name)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A function that runs cells, and returns the traceback of the last one as text without colours."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(cwd=tmp_path_factory.mktemp("kernel"), stderr=subprocess.DEVNULL)

    def run(*cells):
        messages = []
        for cell in cells:
            client.execute_interactive(cell, output_hook=messages.append, timeout=120)
        shown = [message["content"]["traceback"] for message in messages if message["msg_type"] == "error"]
        return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(shown[-1]))

    yield run
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("mode", ["Context", "Plain"])
def test_the_message_comes_first_and_frames_of_libraries_are_folded(kernel, mode):
    """Lines of the user stay, also in front of xarray, and so does the cause."""
    shown = kernel(FAILS, f"%xmode {mode}", "mine('nowhere.nc')")
    first, second, *others = shown.splitlines()
    assert re.match(r"SourceNotFoundError: there is no file at 'file://.*'\.$", first)
    assert second == "Check the path, and that its disk is mounted"
    assert shown.count("Check the path") == 1
    assert "mine('nowhere.nc')" in shown
    assert "return vs.open_virtual_dataset(name)" in shown
    assert "FileNotFoundError: [Errno 2]" in shown
    assert "direct cause of the following exception" in shown
    assert not re.search(r"virtualstack/\w+|site-packages|lib/python", shown)
    assert "folded" in others[-1]
    shown = kernel("xr.open_dataset('nowhere.vstack', engine='virtualstack')")
    assert shown.startswith("SourceNotFoundError: 'file://")
    assert "xr.open_dataset('nowhere.vstack'" in shown
    assert "site-packages" not in shown


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("vs.open_virtual_dataset('x.nc', unsupported=3)", "ValueError: unsupported=3"),
        ("xr.Dataset().virtual.to_kerchunk(3)", "TypeError: expected str, bytes or os.PathLike object, not int"),
        ("vs.Repository.open(3)", "TypeError: "),
        ("vs.convert('x.json', 'y.json', mode=3)", "TypeError: convert() got an unexpected"),
    ],
)
def test_errors_of_python_are_shown_alike(kernel, call, said):
    """Of functions, methods and class methods."""
    shown = kernel(FAILS, "%xmode Context", call)
    assert shown.startswith(said)
    assert call in shown
    assert not re.search(r"virtualstack/\w+|site-packages", shown)


def test_all_frames_are_shown_on_request(kernel):
    """As the last line says."""
    shown = kernel(FAILS, "%xmode Context", "mine('nowhere.nc')", "%xmode Verbose", "%tb")
    assert shown.startswith("SourceNotFoundError: ")
    assert "virtualstack/api/one.py" in shown
    assert "are folded" not in shown


def test_what_helps_is_on_a_line_of_its_own(kernel):
    """Below what happened, and above the lines of the user."""
    code = "from virtualstack.errors import *\nraise CombineError('x differs', Remedy('go'), Remedy('stay'))"
    assert kernel("%xmode Context", code).startswith("CombineError: x differs.\nGo. Or stay\n")


def test_functions_of_the_user_that_fail_are_shown(kernel):
    """Their lines are in the cause."""
    code = """
import numpy as np
from virtualstack.errors import CombineError
def broken():
    return np.arange(3).reshape(2, 2)
try:
    broken()
except ValueError as error:
    cause = error
error = CombineError("'x' differs")
error.add_note("in the group '/a'")
raise error from cause
"""
    shown = kernel("%xmode Context", code)
    assert shown.startswith("CombineError: 'x' differs\nin the group '/a'\n")
    assert "reshape(2, 2)" in shown
    assert "ValueError: cannot reshape" in shown


def test_plain_python_shows_all(tmp_path):
    """As for any error."""
    code = "import virtualstack as vs; vs.open_virtual_dataset('nowhere.nc')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "api/one.py" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("virtualstack.errors.SourceNotFoundError: there is no file")
