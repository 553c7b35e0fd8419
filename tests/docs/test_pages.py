"""Every block of the README and of the documentation runs, and pages say what holds."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from tests.docs.page import PAGES, ROOT, Block, blocks, directives
from virtualstack import errors

DOCS = ROOT / "docs"


RUN = [path for path in PAGES if any(block.language in {"python", "sh"} for block in blocks(path.read_text()))]


@pytest.mark.parametrize("path", RUN, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_runs_as_typed(path, tmp_path):
    """From top to bottom in a new interpreter, in an empty folder; warnings are errors."""
    for module in directives(path.read_text(), "needs"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}: pip install 'virtualstack[all]'")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.docs.page", path],
        capture_output=True, text=True, check=False, timeout=300,
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_hides_nothing(path):
    """No comment has lines of code, and no block uses what only a clone of the repository has."""
    text = path.read_text()
    assert not [comment for comment in re.findall(r"<!--.*?-->", text, re.DOTALL) if "\n" in comment]
    assert not re.search(r"^(>>> )?(from|import) tests\b", text, re.MULTILINE)


def test_the_readme_has_no_broken_links():
    """Relative ones point to files that are there. The strict build of the site checks those of docs/."""
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)[^)]*\)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_names_no_machine_of_ours(path):
    """Nor a folder that only we have."""
    assert not re.search(r"(?<!\w)/(home|root|work|Users|tmp)/", path.read_text())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_says_what_its_blocks_are(path):
    """A fence without a language would silently not run."""
    fences = re.findall(r"^```(\S*)", path.read_text(), re.MULTILINE)
    directives = {"{code-cell}"} if path.parent.name == "notebooks" else {"{eval-rst}"}
    assert set(fences[::2]) <= {"python", "sh", "bash", "js", "text", "toml"} | directives
    assert set(fences[1::2]) <= {""}


def test_a_wrong_block_fails(tmp_path):
    """Of each kind that runs."""
    with pytest.raises(AssertionError, match="Expected:"):
        Block("python", ">>> 1 + 1\n3\n", 1).run({}, tmp_path)
    with pytest.raises(ZeroDivisionError):
        Block("python", "1 / 0\n", 1).run({}, tmp_path)
    with pytest.raises(RuntimeError, match=r"'virtualstack inspect gone\.nc' exits with 1"):
        Block("sh", "virtualstack inspect gone.nc\n", 1).run({}, tmp_path)
    with pytest.raises(ValueError, match="'rm refs' is not a virtualstack command"):
        Block("sh", "rm refs\n", 1).run({}, tmp_path)


def test_a_text_that_is_no_output_fails():
    """Lines of another run, or in another order; bytes may differ."""
    output = "variable  refs    bytes  at\nrain         2  141,980  0-141980\nsnow         1       12  -\n"
    Block("text", "rain  2  142,001  0-142001\nsnow  1  12  -\n", 1).check_output(output)
    for text in ("rain  3  141,980  0-141980\n", "snow  1  12  -\nrain  2  141,980  0-141980\n", "hail\n"):
        with pytest.raises(AssertionError, match="the output has no line"):
            Block("text", text, 1).check_output(output)


def test_blocks_share_a_namespace(tmp_path):
    """Doctests see what other blocks made, and add to it."""
    text = "```python\nx = 1\n```\n```python\n>>> y = x + 1\n```\n```python\nz = y + 1\n```\n"
    namespace = {}
    for block in blocks(text):
        block.run(namespace, tmp_path)
    assert namespace["z"] == 3


def test_the_reference_shows_the_tree_of_errors():
    """As the docstring draws it."""
    tree = [line for line in errors.__doc__.splitlines() if line.startswith("    ")]
    assert "\n".join(line[4:] for line in tree) in (DOCS / "reference" / "errors.md").read_text()
