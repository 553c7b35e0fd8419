"""Chromium for the page of the server: each test says in JavaScript what a person does."""

import contextlib
import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import virtualstack as vs

SOURCES = Path(vs.__file__).parent / "serve" / "page"


def needs_packages():
    if shutil.which("node") is None:
        pytest.skip("there is no node")
    if not (SOURCES / "node_modules" / "playwright-core").is_dir():
        pytest.skip("run 'npm ci' in virtualstack/serve/page")


def eventually(check):
    """Run a check until it holds, for 10 s at most: how soon a page draws depends on who else runs."""
    for _ in range(100):
        with contextlib.suppress(AssertionError):
            return check()
        time.sleep(0.1)
    return check()


class Browser:
    """Chromium with one page, driven by Playwright in a process of node."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            ["node", Path(__file__).with_name("page.mjs"), SOURCES, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what, code="", given=None):
        self.process.stdin.write(json.dumps({"what": what, "code": code, "given": given}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer.get("value")

    def open(self, url, **options):
        self.ask("open", given={"url": url, **options})

    def run(self, code, given=None):
        """Run JavaScript with Playwright's `page`, and `given`."""
        return self.ask("run", code, given)

    def text(self, selector):
        return self.run("return (await page.locator(given).first().innerText()).trim()", selector)

    def stat(self, name):
        """The number of a panel, when it has been computed."""
        code = "const x = page.locator(`[data-stat=${given}]`).filter({ hasNotText: '…' }); return x.innerText()"
        return self.run(code, name).strip()

    def tab(self, name):
        self.run("await page.getByRole('tab', { name: given }).click()", name)

    def seen(self):
        return self.ask("seen")

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()
