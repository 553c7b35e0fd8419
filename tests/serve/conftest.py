"""The JavaScript reader in node and in Chromium, and a server of files for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve import javascript
from tests.serve.browser import Browser, needs_packages
from tests.serve.javascript import ROOT, Reader
from tests.servers import RangeServer


@pytest.fixture(scope="session")
def built() -> None:
    """Compile the reader, or skip."""
    reason = javascript.why_not()
    if reason:
        pytest.skip(reason)
    javascript.build()


@pytest.fixture(scope="session")
def disk() -> Iterator[RangeServer]:
    """A server of all files of this machine, for readers on loopback."""
    with RangeServer(Path("/"), cors="always") as server:
        yield server


@pytest.fixture(scope="session")
def node(built: None) -> Iterator[Reader]:
    with Reader("test/node.js") as reader:
        yield reader


@pytest.fixture(scope="session")
def browser(built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    program = javascript.chromium()
    if program is None:
        pytest.skip("there is no Chromium")
    if not (ROOT / "node_modules" / "playwright-core").is_dir():
        pytest.skip("the npm package playwright-core is not installed")
    with (
        RangeServer({"": b"<!doctype html><title>test</title>"}) as page,
        Reader("test/chromium.js", program, page.root) as reader,
    ):
        yield reader


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Chromium with one page, for the page of the server."""
    needs_packages()
    program = javascript.chromium()
    if program is None:
        pytest.skip("there is no Chromium")
    found = Browser(program)
    yield found
    found.close()
