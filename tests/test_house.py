"""The map of the package in docs/explanation/architecture.md is that of the folders, and of the layers."""

import json
import re
import shlex
import subprocess
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


@pytest.mark.parametrize(("table", "n_rows"), [("tasks", 30), ("errors", 15)])
def test_each_row_of_the_tables_of_files_names_a_file(table, n_rows):
    """A reader with a task finds a file, and not a folder alone; files of the table of errors raise some."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text().split(f"<!-- {table} -->")[1]
    rows = text.strip().split("\n\n")[0].splitlines()[2:]
    assert len(rows) >= n_rows
    for row in rows:
        files = re.findall(r"`((?:virtualstack|docs)/[\w/.-]*\.(?:py|md))`", row)
        assert files, row
        if table == "errors":
            assert all("Error(" in (ROOT / file).read_text() for file in files), row


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_a_page_with_states_of_chunks_links_to_their_explanation(page):
    """Nobody has to guess what EMPTY, INLINE and ABSENT mean."""
    text = page.read_text()
    if re.search(r"\b(EMPTY|INLINE|ABSENT)\b", text) and page.stem != "chunk-states":
        assert re.search(r"\]\((\.\./)*(explanation/)?chunk-states\.md\)", text)


def test_the_top_level_is_what_a_newcomer_expects():
    """Nothing but the package, tests, docs and project files; citation tools look for CITATION.cff here alone."""
    if not (ROOT / ".git").exists():
        pytest.skip("not in a clone of the repository")
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {name.partition("/")[0] for name in files.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        "CITATION.cff",
        "LICENSE",
        "README.md",
        "conftest.py",
        "docs",
        "pyproject.toml",
        "tests",
        "virtualstack",
    }


def test_the_citation_is_of_this_package():
    """Title, description and licence are those of the package; the version is the tag."""
    citation = dict(re.findall(r"^([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["title"] == project["name"]
    assert "version" not in citation
    assert citation["license"] == project["license"]
    assert citation["abstract"] == project["description"]


def test_the_tasks_of_the_contributing_page_are_those_of_the_project():
    """Each task is on the page or a step of one that is, and its programs are installed by a dependency group."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tasks = project["tool"]["poe"]["tasks"]
    named = set(re.findall(r"`\.venv/bin/poe ([\w-]+)", (ROOT / "docs" / "contributing.md").read_text()))
    assert named <= set(tasks)
    steps = {step for name in named for step in tasks[name].get("sequence", ()) if isinstance(step, str)}
    assert set(tasks) == named | steps
    for task in tasks.values():
        for step in task.get("sequence", [task]):
            program = shlex.split(step["cmd"])[0] if isinstance(step, dict) else "ruff"
            assert program in {"ruff", "mypy", "lint-imports", "pytest", "sphinx-build", "towncrier", ".ci/run"}


def test_the_ci_workflow_calls_the_script():
    """The workflow has no list of checks of its own."""
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (.+)", workflow) == [".ci/run"]


@pytest.mark.parametrize("folder", ["js", "page"])
def test_a_lock_of_npm_has_checksums_and_no_address(folder):
    """A registry's address in it would send everyone there; npm takes the one that is configured."""
    folder = ROOT / "virtualstack" / "serve" / folder
    declared = json.loads((folder / "package.json").read_text())
    lock = json.loads(text := (folder / "package-lock.json").read_text())["packages"]
    root = lock.pop("")
    assert {key: root[key] for key in ("dependencies", "devDependencies")} == {
        key: declared[key] for key in ("dependencies", "devDependencies")
    }
    assert all(package["integrity"].startswith("sha512-") for package in lock.values())
    assert "://" not in text
