"""Every block of the README and of the documentation runs, and pages say what holds."""

import importlib.util
import re
import shlex
import tomllib

import pytest

from tests.docs.page import PAGES, ROOT, RUN, Block, Interpreter, blocks, directives, serving
from virtualstack import errors
from virtualstack.cli.group import cli

DOCS = ROOT / "docs"


RUNNING = [path for path in PAGES if any(x.language in RUN and not x.reason for x in blocks(path.read_text()))]


@pytest.fixture(scope="module")
def interpreter():
    found = Interpreter()
    yield found
    found.close()


@pytest.mark.parametrize("path", RUNNING, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_runs_as_typed(path, tmp_path, tmp_path_factory, interpreter):
    """From top to bottom in an interpreter of its own, in an empty folder; warnings are errors."""
    for module in directives(path.read_text(), "needs"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}: pip install 'virtualstack[all]'")
    output = tmp_path_factory.mktemp("output") / "output"
    status = interpreter.run(path, tmp_path, output)
    assert status == 0, output.read_text()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import warnings\nwarnings.warn('no', stacklevel=1)", "UserWarning: no"),
        ("import os\nos.kill(os.getpid(), 9)", ""),
        ("import xarray as xr\nxr.Dataset().virtual", "AttributeError"),
    ],
)
def test_a_wrong_page_fails(lines, says, tmp_path, interpreter):
    """It says why; pages after it run. What a page does not import is not there."""
    page, output = tmp_path / "page.md", tmp_path / "output"
    page.write_text(f"```python\n{lines}\n```\n")
    assert interpreter.run(page, tmp_path, output) != 0
    assert says in output.read_text()
    page.write_text("```bash\necho a > made\n```\n")
    assert interpreter.run(page, tmp_path, output) == 0
    assert (tmp_path / "made").read_text() == "a\n"


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
    """A fence without a language would silently not run, and so would one that is not at the beginning of a line."""
    text = path.read_text()
    fences = re.findall(r"^```(\S*)", text, re.MULTILINE)
    directives = {"{code-cell}"} if path.parent.name == "notebooks" else {"{eval-rst}"}
    assert set(fences[::2]) <= {"python", "bash", "js", "r", "text", "toml"} | directives
    assert set(fences[1::2]) <= {""}
    assert not re.search(r"^[ >]+```|^~~~", text, re.MULTILINE)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_runs_or_says_why_not(path):
    """A text is the output of the commands before it, or has a reason, too; no reason is written above other things."""
    text = path.read_text()
    before = Block("", "", 0)
    found = list(blocks(text))
    for block in found:
        runs = block.language in RUN or block.language.startswith("{")
        is_output = block.language == "text" and before.language == "bash" and before.reason is None
        assert runs or is_output or block.reason, f"line {block.line} is no output, and has no reason"
        before = block
    assert len(re.findall("^<!-- not run:", text, re.MULTILINE)) == sum(block.reason is not None for block in found)


COMMANDS = sorted({line for path in PAGES for x in blocks(path.read_text()) if x.reason for line in x.commands})


def test_what_is_not_run_is_right_usage():
    """Options of virtualstack exist, Python compiles, and files of the repository are there."""
    for path in PAGES:
        for block in blocks(path.read_text()):
            if block.language == "python" and block.reason:
                compile(block.text, str(path), "exec")
            if block.language == "toml":
                tomllib.loads(block.text)
            for file in re.findall(r"\b(?:tests|docs)/\S+\.(?:py|md)", block.reason or ""):
                assert (ROOT / file).exists(), block.reason
    for command in COMMANDS:
        if found := re.search(r"(?:^|\| )virtualstack (\w+) (.*)", command):
            cli.commands[found[1]].make_context(found[1], shlex.split(found[2]))
        for file in re.findall(r"\btests/\S+\.py", command):
            assert (ROOT / file).exists(), command


def test_a_wrong_block_fails(tmp_path, monkeypatch):
    """Of each kind that runs."""
    with pytest.raises(AssertionError, match="Expected:"):
        Block("python", ">>> 1 + 1\n3\n", 1).run({}, tmp_path)
    with pytest.raises(ZeroDivisionError):
        Block("python", "1 / 0\n", 1).run({}, tmp_path)
    with pytest.raises(RuntimeError, match=r"'virtualstack inspect gone\.nc' exits with 1"):
        Block("bash", "virtualstack inspect gone.nc\n", 1).run({}, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match="'rm refs' exits with 1"):
        Block("bash", "rm refs\n", 1).run({}, tmp_path)
    with pytest.raises(RuntimeError, match="exits with 1"):
        Block("bash", "virtualstack inspect gone.nc | cat\n", 1).run({}, tmp_path)
    with (
        pytest.raises(RuntimeError, match=r"'virtualstack serve gone\.vstack' exits with 1"),
        serving("virtualstack serve gone.vstack", "127.0.0.1:1"),
    ):
        pass


def test_a_block_with_a_reason_does_not_run():
    """The line above the fence says it."""
    one, other = blocks("<!-- not run: it costs -->\n```python\n1 / 0\n```\ntext\n```bash\necho a\n```\n")
    assert (one.reason, one.line, other.reason) == ("it costs", 3, None)
    assert one.run({}, ROOT) == ""
    assert other.run({}, ROOT) == "a\n"


def test_output_is_that_of_all_commands(capfd):
    """Of virtualstack, and of programs of a shell."""
    assert "hdf5" in Block("bash", "virtualstack readers | grep hdf5\n", 1).run({}, ROOT)
    both = Block("bash", "virtualstack readers --json\necho 'a' > /dev/null; echo b\n", 1).run({}, ROOT)
    assert both.startswith("{")
    assert both.endswith("b\n")


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
