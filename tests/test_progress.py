"""Progress bars: on terminals, in notebooks, and for functions of users."""

import io
import subprocess
import sys
import types

import pytest

from virtualstack.progress import progress_shown


class _Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


def run(n=10, n_failed=0, total=None):
    """Show the progress of some steps, of which the first ones fail."""
    with progress_shown(True, "scan") as show:
        for done in range(1, n + 1):
            show(done, total or n, min(done, n_failed))


def test_a_bar_on_a_terminal(monkeypatch):
    """It is drawn again and again, with counts, rate, failures and remaining time."""
    monkeypatch.setattr(sys, "stderr", _Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    run(n_failed=2)
    shown = sys.stderr.getvalue()
    assert shown.count("scan") > 1
    for text in ("10/10", "/s", "2 failed", "elapsed", "left"):
        assert text in shown
    assert shown.endswith("\x1b[?25h")  # the cursor is shown again


def test_elsewhere_only_the_last_state_is_written(monkeypatch):
    """A log has one line."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv("COLUMNS", "120")
    run()
    (line,) = sys.stderr.getvalue().splitlines()
    assert line.startswith("scan ")
    assert " 10/10 " in line
    assert "failed" not in line
    assert "\x1b" not in line


def test_a_bar_is_closed_after_an_error(monkeypatch):
    """The state at the error stays, and the cursor is shown again."""
    monkeypatch.setattr(sys, "stderr", _Terminal())
    monkeypatch.setenv("TERM", "xterm")

    def interrupted():
        with progress_shown(True, "scan") as show:
            show(3, 9, 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "3/9" in sys.stderr.getvalue()
    assert sys.stderr.getvalue().endswith("\x1b[?25h")


def test_a_function_of_the_user_gets_two_numbers():
    """It is not told of failures, as it was before."""
    seen = []
    with progress_shown(lambda *numbers: seen.append(numbers), "scan") as show:
        show(1, 2, 1)
    assert seen == [(1, 2)]


@pytest.mark.parametrize("progress", [None, False])
def test_silent_unless_asked(progress):
    """Nothing is to be called."""
    with progress_shown(progress, "scan") as show:
        assert show is None


def test_a_bar_in_a_notebook(monkeypatch):
    """One output of the cell is updated in place; nothing goes to stderr."""
    shown = []

    class Handle:
        def update(self, table):
            shown.append(table._repr_mimebundle_([], [])["text/plain"])

    def display(table, *, display_id):
        assert display_id
        return Handle()

    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    run(n_failed=3)
    assert "10/10" in shown[-1]
    assert "3 failed" in shown[-1]
    assert sys.stderr.getvalue() == ""


def test_nothing_is_imported_before_the_first_step():
    """Importing rich takes longer than all of virtualstack."""
    code = """
import sys
import virtualstack as vs
from virtualstack.progress import progress_shown
with progress_shown(True, "scan"):
    pass
assert "rich" not in sys.modules and "IPython" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
