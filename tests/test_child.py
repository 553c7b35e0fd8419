import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import h5py
import pytest

from tests.forks import forked, forking
from virtualstack.child.errors import LibraryError, library_errors
from virtualstack.child.pool import ChildDiedError, InChild, run_in_child
from virtualstack.errors import StorageError

needs_posix = pytest.mark.skipif(os.name != "posix", reason="signals and forks are of POSIX")


def test_one_child_serves_many_calls():
    """Starting it costs time once."""
    assert run_in_child("os:getpid") == run_in_child("os:getpid") != os.getpid()


def test_errors_of_a_function_are_raised():
    """They are those of the function, and the child goes on."""
    before = run_in_child("os:getpid")
    with pytest.raises(ZeroDivisionError, match="division"):
        run_in_child("operator:truediv", 1, 0)
    assert run_in_child("os:getpid") == before


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Unable to open object (wrong checksum)", "Unable to open object (wrong checksum)"),
        ("Can't synchronously read data (no filter (32015))", "no filter (32015)"),
    ],
)
def test_errors_of_libraries_keep_their_brackets(said, told):
    """One that was opened is closed."""
    with pytest.raises(LibraryError) as found, library_errors():
        raise OSError(said)
    assert str(found.value) == told


def test_a_crash_is_an_error_and_the_next_call_works():
    """The signal is named."""
    with pytest.raises(ChildDiedError, match=r"^crashed \(SIGABRT\)$"):
        run_in_child("os:abort")
    assert run_in_child("operator:add", 1, 2) == 3


def test_an_exit_is_an_error():
    """A library that calls exit() does not end the parent."""
    with pytest.raises(ChildDiedError, match="status 3"):
        run_in_child("os:_exit", 3)


@needs_posix
def test_a_call_without_an_end_is_ended_though_it_holds_the_lock_of_python():
    """No thread of the child can run then; the system ends it."""
    start = time.monotonic()
    with pytest.raises(ChildDiedError, match=r"did not finish within 0\.5 seconds"):
        run_in_child("re:match", "(a+)+$", "a" * 40 + "b", seconds=0.5)
    assert time.monotonic() - start < 30


@needs_posix
def test_a_call_that_waits_for_ever_is_ended():
    """A deadlock takes no computing, but time."""
    with pytest.raises(ChildDiedError, match="did not finish"):
        run_in_child("signal:pause", seconds=0.1)


@pytest.mark.skipif(not Path("/proc").exists(), reason="the memory of a process is looked up in /proc")
@needs_posix
@pytest.mark.parametrize("n_bytes", [0, 1 << 20], ids=["answer", "request"])
def test_a_child_that_is_stopped_is_ended(n_bytes):
    """It cannot end itself, and reads no long request; the next call works."""
    process = run_in_child("os:getpid")
    os.kill(process, signal.SIGSTOP)
    begin = time.monotonic()
    assert run_in_child("builtins:len", bytes(n_bytes), seconds=0.2) == n_bytes  # the cause may be other work
    assert 2 < time.monotonic() - begin < 30
    assert run_in_child("os:getpid") != process


@needs_posix
def test_a_call_that_stops_its_process_is_an_error():
    os.kill(run_in_child("os:getpid"), signal.SIGKILL)
    with pytest.raises(ChildDiedError, match=r"did not answer within 2\.5 seconds, as if its process was stopped"):
        run_in_child("signal:raise_signal", signal.SIGSTOP, seconds=0.1)


def test_memory_is_bounded():
    """A size of a damaged file is asked for in vain."""
    with pytest.raises(MemoryError):
        run_in_child("builtins:bytearray", 1 << 34)


def test_bytes_of_a_file_are_asked_for():
    """The child reads what the parent has, by ranges."""
    data, asked = bytes(range(100)), []

    def read(offset: int, length: int) -> bytes:
        asked.append((offset, length))
        return data[offset : offset + length]

    with contextlib.closing(InChild("io:BufferedReader", 16, size=100, read=read)) as file:
        file.call("seek", 50)
        assert file.call("read", 20) == data[50:70]
    assert asked
    assert all(50 <= offset < 100 for offset, _ in asked)


def test_errors_of_reading_pass():
    """What the source of the bytes raised is raised, whatever the library made of it."""
    read = Mock(side_effect=StorageError("the bucket is gone"))
    with (
        contextlib.closing(InChild("io:BufferedReader", 16, size=100, read=read)) as file,
        pytest.raises(StorageError, match="the bucket is gone"),
    ):
        file.call("read")


def test_objects_are_made_again_after_a_crash():
    """Who shares a child with a file that kills it does not notice."""
    with (
        contextlib.closing(InChild("io:BytesIO", b"abc")) as first,
        contextlib.closing(InChild("io:BytesIO", b"def")) as second,
    ):
        assert first.call("getvalue") == b"abc"
        with pytest.raises(ChildDiedError):
            run_in_child("os:abort")
        assert second.call("getvalue") == b"def"
        assert first.call("getvalue") == b"abc"


def test_a_file_is_closed_when_close_returns(tmp_path):
    """Its owner may write it now: the HDF5 library locks what it has open."""
    h5py.File(path := tmp_path / "a.h5", "w").close()
    for _ in range(50):
        with contextlib.closing(InChild("virtualstack.formats.hdf5.child.files:OpenFile", str(path), False)) as file:
            file.call("root")
        h5py.File(path, "a").close()


def test_a_child_that_ended_while_idle_is_replaced():
    """It was killed by the system, or by someone."""
    before = run_in_child("os:getpid")
    os.kill(before, signal.SIGTERM)
    time.sleep(0.3)
    assert run_in_child("os:getpid") != before


def test_threads_do_not_wait_for_each_other():
    """One that hangs leaves the others alone."""
    with ThreadPoolExecutor(3) as pool:
        slow = pool.submit(run_in_child, "time:sleep", 1)
        fast = [pool.submit(run_in_child, "operator:add", n, 1) for n in range(20)]
        assert [x.result() for x in fast] == list(range(1, 21))
        assert not slow.done()


def test_many_threads_take_turns():
    """There are fewer children than threads."""
    with ThreadPoolExecutor(20) as pool:
        pids = set(pool.map(lambda _: run_in_child("os:getpid"), range(60)))
    assert len(pids) <= 8 + 60 // 8


@forking
def test_forked_processes_have_children_of_their_own():
    """The pipes of the parent are not theirs."""
    before = run_in_child("os:getpid")

    def ask() -> None:
        assert run_in_child("os:getpid") != before

    assert forked(ask)
    assert run_in_child("os:getpid") == before


def _in_a_script(text: str, folder: Path, **options: object) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(text)
    return subprocess.run(
        [sys.executable, path], cwd=folder, capture_output=True, text=True, timeout=120, check=False, **options
    )


def test_scripts_need_no_main_guard(tmp_path):
    """The script is not run again in the child, and its folder is not searched for modules by the child alone."""
    done = _in_a_script("import virtualstack.child.pool as c\nprint(c.run_in_child('operator:add', 1, 2))", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_daemonic_workers_have_children(tmp_path):
    """Those of multiprocessing must not start processes of multiprocessing."""
    text = (
        "import multiprocessing\nfrom virtualstack.child.pool import run_in_child\n"
        "def work(): print(run_in_child('operator:add', 1, 2), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=work, daemon=True)\n"
        "    process.start()\n    process.join()\n"
    )
    done = _in_a_script(text, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or " Z " not in status.read_text()


@needs_posix
@pytest.mark.parametrize("end", ["pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_child_ends_with_its_parent(end, tmp_path):
    """However that ends."""
    text = f"import virtualstack.child.pool as c\nprint(c.run_in_child('os:getpid'), flush=True)\n{end}"
    pid = int(_in_a_script(text, tmp_path).stdout)
    deadline = time.monotonic() + 10
    while _is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_posix
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_call_without_a_word_of_the_child(tmp_path):
    """The whole group of processes gets the signal from a terminal."""
    text = (
        "import virtualstack.child.pool as c\n"
        "c.run_in_child('operator:add', 1, 2)\n"
        "print('ready', flush=True)\n"
        "try:\n    c.run_in_child('time:sleep', 60)\n"
        "except KeyboardInterrupt:\n    print(c.run_in_child('operator:add', 1, 2))\n"
    )
    path = tmp_path / "script.py"
    path.write_text(text)
    process = subprocess.Popen(
        [sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60) == ("3\n", "")


def test_without_a_python_the_error_says_so(tmp_path):
    """An application that embeds Python may have none to start."""
    text = (
        "import sys, virtualstack.child.pool as c\nsys.executable = '/nowhere/python'\n"
        "try:\n    c.run_in_child('os:getpid')\nexcept c.ReaderError as error:\n    print(error)\n"
    )
    assert "'/nowhere/python' does not start" in _in_a_script(text, tmp_path).stdout


def test_a_frozen_program_does_not_start_itself(tmp_path):
    """It would run from its beginning, and start itself without end."""
    text = (
        "import sys, virtualstack.child.pool as c\nsys.frozen = True\n"
        "try:\n    c.run_in_child('os:getpid')\nexcept c.ReaderError as error:\n    print(error)\n"
    )
    assert "it is a frozen program" in _in_a_script(text, tmp_path).stdout


@needs_posix
@pytest.mark.parametrize("closed", [{2}, {0, 1, 2}])
def test_a_process_may_have_no_streams(closed, tmp_path):
    """Those of a daemon are closed."""
    text = (
        "import virtualstack.child.pool as c\n"
        "with open('found', 'w') as file:\n    print(c.run_in_child('operator:add', 1, 2), file=file)\n"
    )
    _in_a_script(text, tmp_path, preexec_fn=lambda: [os.close(x) for x in closed])
    assert (tmp_path / "found").read_text() == "3\n"


@needs_posix
def test_the_current_folder_may_be_gone(tmp_path):
    """Somebody removed it, as schedulers do with what was temporary."""
    text = (
        "import os, virtualstack.child.pool as c\nfolder = os.path.abspath('gone')\nos.mkdir(folder)\n"
        "os.chdir(folder)\nos.rmdir(folder)\nprint(c.run_in_child('operator:add', 1, 2))\n"
    )
    assert _in_a_script(text, tmp_path).stdout == "3\n"
