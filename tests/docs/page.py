"""A page of Markdown, and how its blocks run: as a reader types them, from top to bottom, and nothing else.

- ``python`` blocks run one after the other in one namespace; a block that begins with ``>>>`` is a doctest.
- ``bash`` blocks are commands. A block of ``virtualstack ...`` alone is run by its ``main``, which starts faster, and
  any other by bash, in a home folder of its own. ``virtualstack serve`` runs beside the rest, on a free port.
- A ``text`` block next to a ``bash`` block has lines of its output, in the same order. Numbers of bytes and offsets in
  it may differ, because compressors do.
- ``<!-- not run: reason -->`` above a block: it is not run. All other ``text`` blocks have a reason, too.
- ``<!-- needs: module -->`` skips the page where the module is not installed.

The site's build runs ``{code-cell}`` blocks of notebooks.
``python -m tests.docs.page PAGE`` runs a page in the folder that one is in. Without a page, it loads libraries
of others once, and runs each page that a line of its input names in a fork of itself: see `Interpreter`.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CHANGES = ROOT / "docs" / "changes"
"""Fragments of the changelog, which are no pages."""
PAGES = [ROOT / "README.md", *sorted(x for x in (ROOT / "docs").rglob("*.md") if x.parent != CHANGES)]

RUN = {"python", "bash"}
"""Languages of blocks that run, unless they have a reason why not."""

_LIBRARIES = (
    "pyproj",
    "cfgrib",
    "rioxarray",
    "h5py",
    "pyarrow.parquet",
    "obstore",
    "zarr",
    "dask.array",
    "scipy",
    "kerchunk",
)
"""What most pages load, though few name it: half of the time of a page. pyproj comes before eccodes. Our own package is
not among them: a page that does not import it cannot use it."""

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_SHELL = re.compile(r"[|<>~$]|&&")
_SERVER = "127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, the line of the page that it begins on, and why it is not run."""

    language: str
    text: str
    line: int
    reason: str | None = None

    @property
    def commands(self) -> list[str]:
        """The lines of the block, with those that a backslash continues."""
        return self.text.replace("\\\n", " ").splitlines()

    def run(self, namespace: dict[str, Any], path: Path) -> str:
        """Run it, if its language is one that runs, and return the output of commands."""
        if self.reason is not None or self.language not in RUN:
            return ""
        if self.language == "bash":
            is_plain = all(x.startswith("virtualstack ") and not _SHELL.search(x) for x in self.commands)
            return "".join(map(_run_main, self.commands)) if is_plain else _run_bash(self.text)
        if self.text.startswith(">>>"):
            self._run_doctest(namespace, path)
        else:
            # Empty lines in front let a traceback show the line of the page.
            exec(compile("\n" * (self.line - 1) + self.text, str(path), "exec"), namespace)
        return ""

    def check_output(self, output: str) -> None:
        """Check that each line of the block is a line of an output, in the same order."""
        lines = iter([_without_bytes(line) for line in output.splitlines()])
        for line in self.text.splitlines():
            if _without_bytes(line) not in lines:  # takes lines until it finds this one
                raise AssertionError(f"the output has no line '{line}' at this place:\n{output}")

    def _run_doctest(self, namespace: dict[str, Any], path: Path) -> None:
        test = doctest.DocTestParser().get_doctest(self.text, namespace, path.name, str(path), self.line - 1)
        test.globs = namespace  # get_doctest copies it
        report: list[str] = []
        doctest.DocTestRunner(optionflags=_FLAGS).run(test, out=report.append, clear_globs=False)
        if report:
            raise AssertionError("".join(report))


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    fence = r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\S*).*?\n(.*?)^```$"
    for match in re.finditer(fence, text, re.MULTILINE | re.DOTALL):
        yield Block(match[2], match[3], text.count("\n", 0, match.start(3)) + 1, match[1])


def directives(text: str, name: str) -> list[str]:
    """Return the values of ``<!-- name: value -->``."""
    return re.findall(rf"^<!-- {name}: (\S+) -->$", text, re.MULTILINE)


def run(path: Path) -> None:
    """Run the blocks of a page in the folder that one is in."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    output = ""
    text = path.read_text()
    with contextlib.ExitStack() as servers:
        address = f"127.0.0.1:{find_free_port()}"
        for block in blocks(text.replace(_SERVER, address)):
            if block.language == "bash" and block.reason is None and block.text.startswith("virtualstack serve "):
                servers.enter_context(serving(block.text, address))
                continue
            if block.language == "text" and block.reason is None and output:
                block.check_output(output)
            output = block.run(namespace, path)


_RUN_PAGES = sys.executable, "-W", "error", "-m", "tests.docs.page"


class Interpreter:
    """A process that runs pages, each in a fork of itself, where there are forks; warnings are errors."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(_RUN_PAGES, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def run(self, page: Path, folder: Path, output: Path) -> int:
        """Run a page in a folder, write its output to a file, and return the exit status."""
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        if not hasattr(os, "fork"):
            with output.open("w") as file:
                return subprocess.run(
                    [*_RUN_PAGES, page], stdout=file, stderr=file, check=False, timeout=300, cwd=folder, env=environment
                ).returncode
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(page), str(folder), str(output), environment]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process, which must not have failed."""
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


def _run_each() -> None:
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError, Warning):  # a page that needs it says so
            importlib.import_module(name)
    for line in sys.stdin:
        page, folder, output, environment = json.loads(line)
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        signal.alarm(300)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.path[0] = folder
        run(Path(page))
        break


@contextlib.contextmanager
def serving(command: str, address: str) -> Iterator[None]:
    """Run ``virtualstack serve`` beside the block, at an address such as 127.0.0.1:8000."""
    host, port = address.split(":")
    program = Path(sys.executable).with_name("virtualstack")
    arguments = [program, *shlex.split(command)[1:], "--port", port]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(600):
            with socket.socket() as client:
                if client.connect_ex((host, int(port))) == 0:
                    break
            if process.poll() is not None:
                raise RuntimeError(f"'{command}' exits with {process.returncode}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        _, messages = process.communicate(timeout=60)
        print(messages)


def _run_main(command: str) -> str:
    from virtualstack.cli.command import main

    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = main(shlex.split(command)[1:])
    if status:
        raise RuntimeError(f"'{command}' exits with {status}")
    return output.getvalue()


def _run_bash(script: str) -> str:
    home = Path("home").absolute()
    (home / ".config/fish/completions").mkdir(parents=True, exist_ok=True)  # fish makes it when it starts
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"HOME": str(home), "PATH": programs}
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"'{script.strip()}' exits with {done.returncode}")
    return done.stdout


def find_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _without_bytes(line: str) -> str:
    """Write numbers of bytes, such as 1,024, 0-1024 and 9.1 kB, and spaces, in one way."""
    return re.sub(r"\s+", " ", re.sub(r"\b\d{1,3}(,\d{3})+\b|\b\d+-\d{3,}\b|\b[\d.]+(?= [kMG]?B\b)", "N", line)).strip()


if __name__ == "__main__":
    run(Path(sys.argv[1])) if sys.argv[1:] else _run_each()
