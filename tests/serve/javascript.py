"""The JavaScript reader at work: jobs for it in node and in headless Chromium."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import numpy as np

ROOT = Path(__file__).parents[2] / "virtualstack" / "serve" / "js"


def why_not() -> str | None:
    """Say what is missing on this machine, if anything is."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    if not (ROOT / "node_modules" / "zarrita").is_dir():
        return "the npm packages are not installed: run 'npm ci' in virtualstack/serve/js"
    return None


def chromium() -> str | None:
    """Return the program of Chromium, which the environment may name."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def build() -> None:
    """Compile the reader, and bundle it with the tests for a page, unless that has been done since the last change."""
    made = ROOT / "dist" / "test" / "browser.js"
    sources = [
        ROOT / "package.json",
        ROOT / "tsconfig.json",
        *(ROOT / "src").rglob("*.ts"),
        *(ROOT / "test").glob("*.js"),
    ]
    lock = ROOT / "node_modules" / ".building"
    for _ in range(600):
        if made.exists() and made.stat().st_mtime > max(x.stat().st_mtime for x in sources):
            return
        try:
            lock.touch(exist_ok=False)
            break
        except FileExistsError:
            if time.time() - lock.stat().st_mtime > 120:
                lock.unlink(missing_ok=True)
            time.sleep(0.1)  # another process of the tests builds
    try:
        for task in ("build", "bundle"):
            done = subprocess.run(
                ["npm", "run", task, "--silent"], cwd=ROOT, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        lock.unlink(missing_ok=True)


class JavaScriptError(Exception):
    """An error of the reader, with its attributes."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.name, self.message = error["name"], error["message"]
        self.variable, self.cell = error.get("variable"), error.get("cell")
        self.url, self.status = error.get("url"), error.get("status")
        super().__init__(f"{self.name}: {self.message}\n{error.get('stack', '')}")


class Reader:
    """A process that does one job after the other; a context manager.

    Attributes
    ----------
    requests
        Requests of the last job: url, range and headers.
    """

    def __init__(self, *command: str) -> None:
        self.command = command
        self.requests: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            ["node", *self.command], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def __call__(self, job: str, url: str, /, *, options: dict[str, Any] | None = None, **rest: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"job": job, "url": url, "options": options or {}, **rest}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.requests = answer["requests"]
        if "error" in answer:
            raise JavaScriptError(answer["error"])
        return answer.get("result")


def url_of(server: str, path: Path | str) -> str:
    """Return the URL of a file at a server that serves the whole disk."""
    return server + quote(str(path).lstrip("/"))


def untagged(value: Any) -> Any:
    """Return an attribute that the driver has tagged."""
    if isinstance(value, list):
        return [untagged(x) for x in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "int":
        return int(content)
    if kind == "float":
        return float(content.replace("Infinity", "inf"))
    if kind == "bytes":
        return base64.b64decode(content)
    return {name: untagged(x) for name, x in content}


def as_javascript(value: Any) -> Any:
    """Return what an attribute is for the reader: one type of numbers, lists for arrays and tuples."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "mM":
            value = value.astype("i8")
        if value.dtype.names:
            items = [{n: as_javascript(x[n]) for n in value.dtype.names} for x in np.ravel(value)]
            return items[0] if value.ndim == 0 else items
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [as_javascript(x) for x in value]
    if isinstance(value, dict):
        return {name: as_javascript(x) for name, x in value.items()}
    return value


def put_together(found: dict[str, Any], dtype: np.dtype) -> np.ndarray:
    """Return an array of its cells."""
    values = np.empty(found["shape"], dtype)
    for one in found["cells"]:
        begin = [edges[n] for edges, n in zip(found["edges"], one["cell"], strict=True)]
        box = tuple(slice(a, a + n) for a, n in zip(begin, one["shape"], strict=True))
        if isinstance(one["values"], list):
            part = np.array(one["values"], dtype)
        else:
            part = np.frombuffer(base64.b64decode(one["values"]), dtype)
        values[box] = part.reshape(one["shape"])
    return values


def through_zarrita(found: dict[str, Any]) -> np.ndarray:
    """Return the values that zarrita shows."""
    zarr = found["zarr"]
    if "list" in zarr:
        return np.array(zarr["list"], dtype=object).reshape(zarr["shape"])
    dtype = "bool" if zarr["dtype"] == "bool" else zarr["dtype"]
    return np.frombuffer(base64.b64decode(zarr["bytes"]), dtype).reshape(zarr["shape"])
