"""Ctrl-C ends the command with one line and exit status 130, and leaves nothing behind."""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.latency_server import LatencyServer
from tests.scanning.test_ends import is_gone, until

pytestmark = pytest.mark.usefixtures("interruptible")

N_INTERRUPTS = int(os.environ.get("INTERRUPTS", "25"))
"""Interrupts of each case."""

COMMAND = """
import os, sys
from virtualstack.cli.start import main
if __name__ == "__main__":
    open(os.environ["BEGUN"], "x")
    sys.exit(main())
"""

SCRIPT = """
import os, sys
import xarray as xr
import virtualstack as vs
if __name__ == "__main__":
    open(os.environ["BEGUN"], "x")
    try:
        {}
    except KeyboardInterrupt:
        print("virtualstack: error: interrupted", file=sys.stderr, flush=True)
        os._exit(130)
"""

UPDATE = "vs.open_virtual_dataset(sys.argv[2]).virtual.to_vstack(sys.argv[1], append_dim='time', allow=[sys.argv[3]])"
READ = "xr.open_dataset(sys.argv[1], engine='virtualstack', allow=[sys.argv[2]]).load()"
SCAN = "vs.scan(sys.argv[1:])"
N_FILES = 12


@dataclass(frozen=True)
class Case:
    """A program, its arguments for a folder, where its files are, and what it writes."""

    program: str
    arguments: tuple[str, ...]
    is_remote: bool
    output: str | None = None


CASES = {
    f"{name}{', at a server' if remote else ''}{f', {whom}'}": (Case(program, arguments, remote, output), whom)
    for whom in ("the process", "its group")
    for remote in (False, True)
    for name, program, arguments, output in [
        ("build", COMMAND, ("build", "{files}", "-o", "cube.vstack"), "cube.vstack"),
        ("build --verify", COMMAND, ("build", "{files}", "-o", "refs.parq", "--verify"), "refs.parq"),
        ("survey", COMMAND, ("survey", "{files}"), None),
        ("scan with processes", COMMAND, ("survey", "{files}", "--executor", "processes"), None),
        ("verify", COMMAND, ("verify", "there.vstack", "--sample", "100%", "--allow", "{root}"), None),
        ("scan", SCRIPT.format(SCAN), ("{files}",), None),
        ("read", SCRIPT.format(READ), ("there.vstack", "{root}"), None),
        ("update", SCRIPT.format(UPDATE), ("there.vstack", "{last}", "{root}"), "there.vstack"),
    ]
    if not (remote and name in ("build --verify", "verify", "read", "update"))
}


UNUSED = re.compile(r"there\.vstack/\.vstack/(segments|bundles|pages)(/|$)")
"""Objects that a commit writes before its snapshot; expiry deletes those that no snapshot names."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Files of a day each, and a store of all but the last."""
    folder = tmp_path_factory.mktemp("archive")
    for i in range(N_FILES):
        data = np.random.default_rng(i).random((1, 40, 40), np.float32)
        xr.Dataset({f"v{n}": (("time", "y", "x"), data + n) for n in range(20)}, {"time": [i]}).to_netcdf(
            folder / f"f{i:02}.nc",
            unlimited_dims="time",
            encoding={f"v{n}": {"zlib": True, "chunksizes": (1, 10, 10)} for n in range(20)},
        )
    paths = [str(folder / f"f{i:02}.nc") for i in range(N_FILES)]
    made = vs.open_virtual_mfdataset(paths[:-1], combine="nested", concat_dim="time")
    made.virtual.to_vstack(str(folder / "there.vstack"), allow=[f"{folder}/"])
    return folder


def everything(folder):
    """Files of a folder, and what is in them; a key that signs is made by who comes first."""
    return {str(x.relative_to(folder)): x.read_bytes() for x in folder.rglob("*") if x.is_file()} | {
        str(x.relative_to(folder)): b"" for x in folder.rglob("*") if x.is_dir()
    }


def start(case, folder, archive, root):
    """Start a program in a session of its own, and wait until its handler is there."""
    words = {"{root}": [f"{archive}/"], "{last}": [f"{root}/f{N_FILES - 1:02}.nc"]}
    words["{files}"] = [f"{root}/f{i:02}.nc" for i in range(N_FILES)]
    begun, script = folder.parent / "begun", folder.parent / "program.py"
    begun.unlink(missing_ok=True)
    script.write_text(case.program)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
        "TMPDIR": str(folder),
        "BEGUN": str(begun),
    }
    run = subprocess.Popen(
        [sys.executable, script, *(x for word in case.arguments for x in words.get(word, [word]))],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(begun.exists)
    return run


def interrupted(case, whom, archive, folder, root, after):
    """Interrupt a program some seconds after it began; return what it did wrong, and whether it had come to its end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if "there.vstack" in case.arguments:
        shutil.copytree(archive / "there.vstack", folder / "there.vstack")
    before = everything(folder)
    with start(case, folder, archive, root) as run:
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            (os.kill if whom == "the process" else os.killpg)(run.pid, signal.SIGINT)
        began = time.monotonic()
        try:
            _, said = run.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            return f"did not end, after {after} s", False
    took = time.monotonic() - began
    wrong = []
    if run.returncode == 130 and took > 5:
        wrong.append(f"took {took:.1f} s to end")
    if case.program != COMMAND and run.returncode == -signal.SIGINT and not said:
        pass  # so Python ends any script that is interrupted while the interpreter ends
    elif run.returncode not in (0, 130) or (run.returncode == 130) != (said == "virtualstack: error: interrupted\n"):
        wrong.append(f"exit status {run.returncode}: {said[-2000:]}")
    until(lambda: is_gone(run.pid), 10)
    left = everything(folder)
    odd = [x for x in left.keys() | before.keys() if before.get(x) != left.get(x) and not UNUSED.match(x)]
    if odd and not is_complete(case, folder, archive, root):
        wrong.append(f"left behind: {sorted(odd)}")
    if [x for x in left if ".virtualstack-" in x]:
        wrong.append(f"temporary files: {sorted(left)}")
    return "; ".join(wrong), run.returncode == 0


def is_complete(case, folder, archive, root):
    """Whether the target is there, with all that it should have: the interrupt came after it was put in place."""
    if case.output is None or not (folder / case.output).exists():
        return False
    try:
        allow = [f"{archive}/", f"{root}/"] if "vstack" in case.output else ()
        with xr.open_dataset(folder / case.output, engine="virtualstack", allow=allow) as found:
            return found.sizes["time"] == N_FILES
    except vs.errors.VirtualStackError:
        return False


def check(name, n, archive, tmp_path, seed):
    """Interrupt one case ``n`` times, between its first step and its last one."""
    case, whom = CASES[name]
    folder, wrong, ends = tmp_path / "work", [], 0
    with ExitStack() as stack:
        root = str(archive)
        if case.is_remote:
            server = stack.enter_context(LatencyServer(archive, latency=0.05))
            root = server.url("").rstrip("/")
        began = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if "there.vstack" in case.arguments:
            shutil.copytree(archive / "there.vstack", folder / "there.vstack")
        with start(case, folder, archive, root) as run:
            began = time.monotonic()
            said = run.communicate(timeout=300)
            assert run.returncode == 0, said
        longest = time.monotonic() - began
        moments = random.Random(seed)
        for _ in range(n):
            after = moments.uniform(0.005, longest)
            found, is_end = interrupted(case, whom, archive, folder, root, after)
            ends += is_end
            if found:
                wrong.append(f"after {after:.3f} of {longest:.2f} s: {found}")
    print(f"{name}: {n} interrupts, {ends} after the end, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)


AT_A_STEP = """
import os, signal, sys
{setting}
sys.argv = ["virtualstack", "readers"]
from virtualstack.cli.start import main
sys.exit(main())
"""

WHILE_IMPORTING = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "virtualstack.cli.command":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""

IN_A_CALLBACK_THAT_LOSES_IT = """
import time, types
class Closing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
def run():
    Closing()
    time.sleep(60)
    return 0
sys.modules["virtualstack.cli.command"] = types.SimpleNamespace(main=run)
"""

TURNED_INTO_ANOTHER_ERROR = """
import types
def run():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise TypeError("a C library said so") from None
sys.modules["virtualstack.cli.command"] = types.SimpleNamespace(main=run)
"""

AT_THE_END = """
import atexit
atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""


def run_to(setting):
    """Run the command with something that interrupts it at one step."""
    return subprocess.run(
        [sys.executable, "-c", AT_A_STEP.format(setting=setting)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("setting", [WHILE_IMPORTING, IN_A_CALLBACK_THAT_LOSES_IT, TURNED_INTO_ANOTHER_ERROR])
def test_an_interrupt_is_one_line_and_130(setting):
    """While the command starts, and where Python or a library loses the interrupt."""
    found = run_to(setting)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "virtualstack: error: interrupted\n")


def test_an_interrupt_when_all_is_done_is_ignored():
    """The command has said what it had to say, and ends with its own status."""
    found = run_to(AT_THE_END)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout


@pytest.mark.apart
@pytest.mark.parametrize("name", CASES)
def test_many_interrupts_at_any_moment_are_one_line_and_130(name, archive, tmp_path):
    """And nothing is left behind."""
    check(name, N_INTERRUPTS, archive, tmp_path, time.time())
