"""Show the changes that no release has yet: fragments of docs/changes, as towncrier writes them into the changelog."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]


def _add_fragments(app: Sphinx, docname: str, source: list[str]) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    if f"docs/{docname}.md" != settings["filename"]:
        return
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "Not released yet", "--date", "-"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"towncrier cannot read docs/changes:\n{done.stderr}")
    draft = done.stdout.replace("Not released yet (-)", "Not released yet")
    source[0] = source[0].replace(settings["start_string"], draft)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the fragments when the page is read."""
    app.connect("source-read", _add_fragments)
    app.connect("env-get-outdated", lambda *_: ["changelog"])  # a new fragment does not change the page's file
    return {"parallel_read_safe": True}
