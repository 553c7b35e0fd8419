"""The map of the package in docs/explanation/architecture.md is that of the folders, and of the layers."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs" / "explanation").glob("*.md")), ROOT / "docs" / "contributing.md"]
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \| (.+) \|$", re.MULTILINE)
PATH = re.compile(r"`((?:virtualstack|tests|docs)/[\w/.-]*)`")


@pytest.fixture(scope="module")
def rows():
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    return [(int(line), name) for line, name, _ in ROW.findall(text.split("<!-- map -->")[1])]


def test_the_map_has_the_layers_that_are_checked(rows):
    """In the same order, and with the same names on one line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = (x for x in project["tool"]["importlinter"]["contracts"] if x["id"] == "layers")
    layers = [set(layer.split(" | ")) for layer in contract["layers"]]
    lines = {}
    for line, name in rows:
        lines.setdefault(line, set()).add(name)
    assert list(lines) == list(range(1, len(layers) + 1))
    assert list(lines.values()) == layers


def test_the_map_names_every_folder_and_module(rows):
    """Each once."""
    package = ROOT / "virtualstack"
    there = [path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert sorted(name for _, name in rows) == sorted(set(there) - {"__init__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_paths_that_a_page_names_are_there(page):
    """Those of folders and modules of the package, of tests and of pages."""
    gone = [path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()]
    assert not gone
