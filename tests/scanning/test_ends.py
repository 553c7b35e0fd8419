"""How a scan ends that is not let: readers that hang, ask to end, or are interrupted."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

import virtualstack as vs
from tests.scanning.groups import make
from tests.scanning.readers import RELEASED, Troubled
from virtualstack.scanning.job import DaemonThreads, call_within

N = 6
IN_MODULE = [None, "threads", "given threads", "given processes"]
EXECUTORS = [*IN_MODULE, pytest.param("processes", marks=pytest.mark.slow)]


@pytest.fixture
def files(tmp_path):
    return [make(tmp_path / f"f{i}.h5", i) for i in range(N)]


@pytest.fixture(scope="module")
def executor_of():
    """Two processes and two threads for the whole module."""
    with (
        ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes,
        ThreadPoolExecutor(2) as threads,
    ):
        list(processes.map(abs, range(9)))
        given = {"given threads": threads, "given processes": processes}
        yield lambda executor: given.get(executor, executor)
        RELEASED.set()  # or the pool waits for the readers that hang in it
    RELEASED.clear()


def endings(urls):
    return [url.rpartition("/")[2] for url in urls]


# -- files that take too long -------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [*IN_MODULE, pytest.param("processes", marks=pytest.mark.apart)])
def test_a_file_that_takes_too_long_is_listed_and_no_other(files, tmp_path, executor_of, executor):
    """A process of our own is ended even where the file hangs in a library: nothing of Python runs there."""
    seconds = 3 if executor in ("processes", "given processes") else 1
    hanging = [make(tmp_path / f"{name}.h5") for name in ("hang", "stuck" if executor == "processes" else "hang_too")]
    given = [*files[:2], hanging[0], *files[2:4], hanging[1], *files[4:]]
    result = vs.scan(given, reader=Troubled(), executor=executor_of(executor), on_error="skip", timeout=seconds)
    assert endings(result.urls) == endings(map(str, files))
    assert endings(result.failures.url) == endings(map(str, hanging))
    assert set(result.failures.error) == {"ReaderError"}
    assert result.failures.message.str.contains(f"timeout={seconds} seconds").all()


def test_with_enough_time_nothing_changes(files):
    assert len(vs.scan(files, timeout=100)) == len(vs.scan(files, timeout=100, executor="threads")) == N


# -- readers that ask to end --------------------------------------------------------------------------------------


ENDS = [(KeyboardInterrupt, None), (KeyboardInterrupt, 50), (SystemExit, None), (GeneratorExit, 50)]


@pytest.mark.parametrize(
    ("error", "timeout", "executor"),
    [
        *((*end, executor) for executor in IN_MODULE for end in ENDS),
        pytest.param(*ENDS[0], "processes", marks=pytest.mark.slow),
        *(pytest.param(*end, "processes", marks=pytest.mark.apart) for end in ENDS[1:]),
    ],
)
def test_what_is_no_mere_failure_ends_the_scan(files, tmp_path, executor_of, executor, error, timeout):
    """It is neither listed nor lost, whoever reads."""
    name = {KeyboardInterrupt: "interrupt", SystemExit: "exit", GeneratorExit: "close"}[error]
    given = [*files[:3], make(tmp_path / f"{name}.h5"), *files[3:]]
    with pytest.raises(error) as caught:
        vs.scan(given, reader=Troubled(), executor=executor_of(executor), on_error="skip", timeout=timeout)
    if error is SystemExit:
        assert caught.value.code == 3
    assert len(vs.scan(files, executor=executor_of(executor) if executor != "processes" else None)) == N


# -- Ctrl-C -------------------------------------------------------------------------------------------------------

SCRIPT = """
import sys
import virtualstack as vs
from tests.scanning.readers import Troubled

if __name__ == "__main__":
    executor = None if sys.argv[1] == "None" else sys.argv[1]
    vs.scan(sys.argv[2:], reader=Troubled(), executor=executor, cache=None)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("executor", "whom"),
    [("None", "all of them"), ("threads", "all of them"), ("processes", "the process"), ("processes", "all of them")],
)
def test_an_interrupt_ends_the_program_at_once(tmp_path, executor, whom):
    """Though readers hang; and no process stays behind."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    paths = [make(tmp_path / f"hang{i}.h5") for i in range(9)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [sys.executable, script, executor, *paths]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        try:
            until(lambda: any(tmp_path.glob("*.begun")))
            began = time.monotonic()
            (os.kill if whom == "the process" else os.killpg)(run.pid, signal.SIGINT)
            _, said = run.communicate(timeout=20)
            assert time.monotonic() - began < 10
            assert said.rstrip().endswith("KeyboardInterrupt")
            assert run.returncode == -signal.SIGINT
            until(lambda: is_gone(run.pid))
        finally:
            if not is_gone(run.pid):
                os.killpg(run.pid, signal.SIGKILL)


def until(is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_gone(group):
    """Whether a process group has no process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


# -- the threads --------------------------------------------------------------------------------------------------


def test_threads_make_calls_and_end():
    others = set(threading.enumerate())  # readers of tests before this one may still hang
    futures = [*(DaemonThreads().submit(divmod, 7, i) for i in range(4)), DaemonThreads().submit(int, "7", base=8)]
    assert [type(x.exception()) for x in futures] == [ZeroDivisionError, *[type(None)] * 4]
    assert futures[3].result() == (2, 1)
    until(lambda: not any(x.name == "virtualstack-scan" for x in set(threading.enumerate()) - others))


def test_a_call_within_a_time_gives_its_result_or_a_time_out():
    assert call_within(60, lambda: 3) == 3
    gate = threading.Event()
    with pytest.raises(TimeoutError):
        call_within(0.01, gate.wait)
    gate.set()
