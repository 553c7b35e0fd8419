"""What differs between operating systems is in one module, and what Windows lacks is not needed."""

import ast
import os
import subprocess
import sys
import textwrap

import pytest

from tests.docs.page import ROOT
from virtualstack import system

MISSING_SOMEWHERE = {
    "os": {
        "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "fork", "geteuid", "getuid", "killpg", "mkfifo", "pread", "preadv",
        "pwrite", "register_at_fork", "sched_getaffinity", "set_blocking", "setsid", "statvfs", "umask", "wait",
        "waitpid",
    },
    "signal": {"ITIMER_PROF", "ITIMER_REAL", "SIGALRM", "SIGHUP", "SIGKILL", "SIGPROF", "pthread_sigmask", "setitimer"},
    "select": {"epoll", "kqueue", "poll"},
}  # fmt: skip
"""Python's documentation has them for Unix, or for one system; `os.umask` exists on Windows, without effect."""

MODULES = {"fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "winreg"}


def uses(path):
    """Names in a module that one of the systems lacks."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in MISSING_SOMEWHERE.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Import):
            yield from (x.name for x in node.names if x.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            yield from {node.module} & MODULES
            yield from (x.name for x in node.names if x.name in MISSING_SOMEWHERE.get(node.module, ()))


def test_no_other_module_uses_what_a_system_lacks():
    """Only `virtualstack.system` does."""
    found = {str(x.relative_to(ROOT)): set(uses(x)) for x in (ROOT / "virtualstack").rglob("*.py")}
    assert {name for name, used in found.items() if used} == {"virtualstack/system.py"}


WINDOWS = """
import concurrent.futures, errno, multiprocessing.spawn, os, select, signal, subprocess, sys, tempfile, types
import cftime, dask.array, h5netcdf, isal.isal_zlib, numcodecs, numpy as np, obstore, orjson, pandas, platformdirs
import pyarrow.parquet, rich.progress, urllib3, xarray as xr, zarr  # nothing that others need is removed
made = xr.Dataset({{"t": (("time", "x"), np.arange(12.0).reshape(3, 4))}}, coords={{"time": np.arange(3)}})
if __name__ == "__main__":
    made.to_netcdf("a.nc", engine="h5netcdf")
assert "virtualstack" not in sys.modules
lacking = {lacking!r}
for module in (os, select, signal):
    for name in lacking[module.__name__] - {{"fork", "sched_getaffinity", "umask", "waitpid"}}:  # Python needs these
        module.__dict__.pop(name, None)
for name in ("fcntl", "resource"):
    sys.modules[name] = None
locked = []
sys.modules["msvcrt"] = types.SimpleNamespace(LK_LOCK=1, locking=lambda number, how, n: locked.append(how))

from virtualstack import system
assert not system.in_forked_children(print) is None
system.IS_WINDOWS = True
import virtualstack as vs
vds = vs.open_virtual_dataset("a.nc")
store = vds.virtual.to_vstack("a.vstack")
vds.virtual.to_kerchunk("a.parq")
for name in ("a.vstack", "a.parq"):
    with xr.open_dataset(name, engine="virtualstack") as found:
        xr.testing.assert_equal(found.load(), made)
result = vs.scan(["a.nc"], executor="processes")
assert not result.errors, result.errors
from virtualstack.child.pool import run_in_child
assert run_in_child("math:hypot", 3, 4) == 5
assert not locked  # NTFS has hard links, and exFAT has none
def no_links(*args, **options):
    raise OSError(errno.EPERM, "no hard links")
os.link = no_links
vds.virtual.to_vstack("b.vstack")
with xr.open_dataset("b.vstack", engine="virtualstack") as found:
    xr.testing.assert_equal(found.load(), made)
assert set(locked) == {{1}}, locked
print("locked", len(locked))
"""


def test_nothing_that_windows_lacks_is_needed(tmp_path):
    """Reading, writing, scanning and children work without it; a lock is a lock of one byte there."""
    pytest.importorskip("h5netcdf")
    code = textwrap.dedent(WINDOWS).format(lacking=MISSING_SOMEWHERE)
    script = tmp_path / "windows.py"
    begin, _, rest = code.partition("import virtualstack as vs")
    script.write_text(
        begin + "if __name__ == '__main__':\n" + textwrap.indent("import virtualstack as vs" + rest, "    ")
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 0


def test_a_read_at_an_offset_needs_no_pread(tmp_path):
    """Threads share the position of a descriptor, and do not disturb each other."""
    from concurrent.futures import ThreadPoolExecutor

    (tmp_path / "a").write_bytes(bytes(range(256)) * 16)
    number = os.open(tmp_path / "a", system.READ_FLAGS)
    try:
        with ThreadPoolExecutor(8) as threads:
            got = list(threads.map(lambda at: system._seek_and_read(number, 5, at), range(4000)))
    finally:
        os.close(number)
    assert got == [bytes((at + n) % 256 for n in range(5)) for at in range(4000)]


@pytest.mark.parametrize(
    ("path", "text"),
    [(r"C:\data\a b.nc", "/C:/data/a b.nc"), ("d:/x", "/d:/x"), (r"\\server\share\x", "//server/share/x")],
)
def test_paths_of_windows_in_urls(path, text):
    """A drive is the first part of the path of a URL, as RFC 8089 (appendix E.2) writes it."""
    assert system.url_path(path, is_windows=True) == text
    assert system.path_in_url(text, is_windows=True) == path.replace("\\", "/")


@pytest.mark.parametrize("path", ["/data/a.nc", "/C:/odd", "/"])
def test_paths_of_posix_in_urls(path):
    """They are the same text."""
    assert system.path_in_url(system.url_path(path, is_windows=False), is_windows=False) == path
